// One class, past 400 lines: offers, texts and loads of all families, and the targets that they are for.
#include "cuda/provider.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/causes/kernels.h"
#include "base/hash.h"
#include "cuda/cost_model.h"
#include "cuda/device/compile_pool.h"
#include "cuda/device/cubin.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/device/nvrtc.h"
#include "cuda/families/families.h"
#include "cuda/offer_memo.h"
#include "cuda/programmed.h"
#include "cuda/text/counted.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/next.h"
#include "cuda/unknown_weights.h"
#include "region/artifact.h"
#include "region/kernel_version.h"
#include "region/restarts.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using region::Offer;
using region::Tactic;

constexpr std::string_view kTransfer = "transfer";
/// Sets of parameters that a family offers to thorough searches, at most.
constexpr std::size_t kAll = 64;
/// Where several families take a convolution or a linear layer with constant weights, only the one with the least estimate offers what it prefers; the others what they estimate within kBehind
/// times that, at least kLeast and at most kFew. Thorough searches have the rest.
constexpr std::size_t kLeast = 1, kFew = 2;
constexpr double kBehind = 1.2;
constexpr std::size_t kOfAKind = 3;  ///< further sets that differ in little

/// Of the family's: the best of each kind first. A kind is what differs in minor parameters alone.
std::vector<EstimatedTactic> shortlist(const Family& family, std::vector<EstimatedTactic> all) {
  std::set<std::string_view> minor;
  for (const ParameterRow& row : family.parameters()) {
    if (row.minor) minor.insert(row.name);
  }
  std::map<std::string, std::size_t> seen;
  std::vector<std::pair<std::size_t, const EstimatedTactic*>> ranked;
  for (const EstimatedTactic& c : all) {
    std::string kind;
    for (const auto& [name, value] : c.parameters) {
      if (!minor.contains(name)) kind += name + "=" + value + " ";
    }
    const std::size_t turn = seen[kind]++;
    if (turn < kOfAKind) ranked.emplace_back(turn, &c);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<EstimatedTactic> out;
  for (const auto& [turn, c] : ranked) {
    if (out.size() < kAll) out.push_back(*c);
  }
  return out;
}

/// The region as families see it.
class Seen {
 public:
  explicit Seen(const region::Region& r) : given_(r), other_(programmed(r)) {}
  [[nodiscard]] const region::Region& region() const { return other_ ? *other_ : given_; }

 private:
  const region::Region& given_;
  std::optional<region::Region> other_;
};

std::atomic<std::uint64_t>& emitted() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::vector<const Family*> families_for(const region::Region& r) {
  std::vector<const Family*> out;
  for (const Family* f : families()) {
    if (!f->about(r)) continue;
    out.push_back(f);
    if (f->alone()) return {f};
  }
  return out;
}

/// Launches that only lack their numbers.
struct ReadLaunches final : region::Read {
  LaunchForm form;
};
/// Machine code of a region.
struct ReadModules final : region::Read {
  std::vector<std::span<const std::byte>> modules;
  std::vector<Cubin> cubins;  ///< parallel to modules; empty: nobody checks them
};

class GpuProvider final : public region::Provider, public region::Restarts {
 public:
  GpuProvider(Target target, Compiler compiler, CodeCheck check)
      : target_(std::move(target)), compiler_(remembering(std::move(compiler))), check_(std::move(check)) {}
  std::string_view name() const override { return kProvider; }
  std::string_view device() const { return kProvider; }  // NOLINT

  std::vector<ParameterRow> parameters_of(const Tactic& tactic) const override {
    const auto all = families();
    const auto f = std::find_if(all.begin(), all.end(), [&](const Family* one) { return one->name() == tactic.family; });
    return f == all.end() || tactic.provider != kProvider ? std::vector<ParameterRow>() : (*f)->parameters();
  }

  std::vector<Offer> offers(const region::Region& r, const region::Plan& plan) const override {
    if (region::is_transfer(r, plan)) return {transfer(r)};
    kept_.keep();  // a planning has begun
    return memo_.of(r, plan, [&] { return offers_made(r, plan); });
  }

  std::vector<Offer> variants(const region::Region& r, const region::Plan& plan) const override {
    std::vector<Offer> out;
    if (region::is_transfer(r, plan)) return out;
    for (const Listed& l : listed(r, plan)) {
      for (std::size_t i = l.preferred; i < l.all.size(); ++i)
        out.push_back({tactic_of(*l.family, l.all[i].parameters, r), {}, l.all[i].seconds});
    }
    return out;
  }

  static Status check_version(const Tactic& tactic) {
    if (tactic.family == kTransfer) return {};
    OCTAVO_CHECK(check_has_kernels());
    const auto all = families();
    const auto f = std::find_if(all.begin(), all.end(), [&](const Family* one) { return one->name() == tactic.family; });
    if (f == all.end()) return fail(ErrorKind::bad_engine, fmt::format("tactic {}: the GPU has no such family", tactic.name()));
    if ((*f)->version() == tactic.version) return {};
    return region::other_version(tactic, (*f)->version());
  }

  /// One region's part of remake_kernels: its launches, and its texts as a constant of the plan. `full` has weights.
  Status remake(region::Region& r, const TextFacts& facts, const region::Plan& full, region::Plan& plan) const {
    constexpr std::string_view kRebuild = "\n  octavo rebuild builds the engine again from its model";
    const auto bad = [&](const std::string& what) {
      return fail(ErrorKind::bad_engine, fmt::format("region \"{}\", tactic {}: {}", r.name, r.tactic.name(), what));
    };
    if (r.tactic.required != std::vector<std::string>{target_.architecture.text()})
      return fail(ErrorKind::unsupported,
                  fmt::format("region \"{}\" needs {}, this GPU is {}", r.name,
                              r.tactic.required.empty() ? "nothing" : r.tactic.required[0], target_.architecture.text()));
    if (region::is_transfer(r, plan) != (r.tactic.family == kTransfer)) return bad("it is not one for this region");
    RegionKernels kernels;
    if (r.tactic.family != kTransfer) {
      const Seen seen(r);
      OCTAVO_TRY(const Family* f, family_of(seen.region(), r.tactic));
      if (tactic_of(*f, r.tactic.parameters, r) != r.tactic) return bad("it is not what it says of itself");
      const auto matched = f->matched(seen.region(), full, target_);
      if (!matched) return bad(spelled(refusal_of(matched)) + std::string(kRebuild));
      const auto all = (*matched)->tactics();
      if (std::none_of(all.begin(), all.end(), [&](const EstimatedTactic& c) { return c.parameters == r.tactic.parameters; }))
        return bad("its parameters are not among those that the family has for the region on this GPU" + std::string(kRebuild));
      OCTAVO_TRY(kernels, kernels_of(**matched, r.tactic, r));
    }
    const std::vector<PackedConstant> constants = kernels.constants;  // shared, not copied
    OCTAVO_TRY(region::Artifact made, artifact_of(std::move(kernels), r, full));
    if (hash128_hex(made.source.text) != facts.texts)  // its packed constants may not be what other texts read
      return bad("its kernels do not come out as the engine's build made them" + std::string(kRebuild));
    OCTAVO_CHECK(check_packed(r, plan, constants));
    r.launch = std::move(made.launch);
    r.code = region::keep_source(made.source, r, plan);
    return {};
  }

  void forget() const override {
    memo_.clear();
    kept_.release();
  }

  Status finish(std::span<region::Plan* const> plans, int threads) const override {
    return compile_kernels(plans, compiler_, threads);
  }

  Result<region::Artifact> compile(const region::Region& r, const region::Plan& plan, const Tactic& tactic) const override {
    RegionKernels kernels;
    if (tactic.family != kTransfer) {
      const Seen seen(r);
      OCTAVO_TRY(const Family* f, family_of(seen.region(), tactic));
      OCTAVO_TRY(const auto matched, f->matched(seen.region(), plan, target_));
      OCTAVO_TRY(kernels, kernels_of(*matched, tactic, r));
    }
    return artifact_of(std::move(kernels), r, plan);
  }

  Result<region::Artifact> restart(const region::Region& r, const region::Plan& plan) const override {
    OCTAVO_CHECK(check_version(r.tactic));
    const bool unknown = std::any_of(r.stages.begin(), r.stages.end(),
                                     [](const region::Stage& s) { return s.anchor.weights && !s.anchor.weight_sum; });
    if (!unknown || r.launch.empty()) return compile(r, plan, r.tactic);
    region::Region known = r;
    OCTAVO_CHECK(give_sums(known));
    return compile(known, plan, r.tactic);
  }

  Result<std::string> code_of(const region::Source& source) const override {
    OCTAVO_TRY(const auto texts, split_modules(std::as_bytes(std::span(source.text))));
    std::vector<std::string> codes;
    for (const auto text : texts) {
      OCTAVO_TRY(codes.emplace_back(), compiler_({reinterpret_cast<const char*>(text.data()), text.size()}));
    }
    return join_modules(codes);
  }

  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    OCTAVO_CHECK(check_version(r.tactic));
    OCTAVO_TRY(RegionKernels kernels, read_launches(artifact.launch, r));
    OCTAVO_TRY(const auto modules, split_modules(artifact.code));
    return kernel_of(std::move(kernels), modules, r, plan,
                     [&](std::size_t m, Architecture architecture, std::span<const Launch* const> launches) {
                       return check_ ? check_(modules[m], architecture, launches) : Status();
                     });
  }

  Result<std::shared_ptr<const region::Read>> read_launch(std::string_view form) const override {
    auto out = std::make_shared<ReadLaunches>();
    OCTAVO_TRY(out->form, read_form(form));
    return out;
  }

  Result<std::shared_ptr<const region::Read>> read_code(std::span<const std::byte> code) const override {
    auto out = std::make_shared<ReadModules>();
    OCTAVO_TRY(out->modules, split_modules(code));
    for (const auto module : out->modules) {
      if (!check_) continue;
      OCTAVO_TRY(out->cubins.emplace_back(), read_cubin(module));
    }
    return out;
  }

  Result<std::unique_ptr<region::Kernel>> load_read(const region::Region& r, const region::Plan& plan, const region::Read& launch,
                                                    std::span<const std::int64_t> numbers,
                                                    const region::Read* code) const override {
    const auto* read = dynamic_cast<const ReadLaunches*>(&launch);
    const auto* known = dynamic_cast<const ReadModules*>(code);
    if (read == nullptr || (known == nullptr) != (code == nullptr))
      return fail(ErrorKind::internal, "launches or code of another provider");
    OCTAVO_TRY(RegionKernels kernels, launches_of(read->form, numbers, r));
    return kernel_of(std::move(kernels), known != nullptr ? known->modules : std::vector<std::span<const std::byte>>(), r, plan,
                     [&](std::size_t m, Architecture architecture, std::span<const Launch* const> launches) {
                       return check_ ? check_read_code(known->cubins[m], architecture, launches) : Status();
                     });
  }

 private:
  /// A family's sets of parameters, the first `preferred` of which are offered at any effort.
  struct Listed {
    const Family* family;
    Reasons refusal;
    std::vector<EstimatedTactic> all;
    std::size_t preferred = 0;
  };
  [[nodiscard]] std::vector<Listed> listed(const region::Region& r, const region::Plan& plan) const {
    std::vector<Listed> out;
    const Listed* best = nullptr;
    const Seen seen(r);
    for (const Family* f : families_for(seen.region())) {
      const auto matched = f->matched(seen.region(), plan, target_);
      Listed l{f, refusal_of(matched), {}};
      if (matched) l.all = shortlist(*f, (*matched)->tactics());
      out.push_back(std::move(l));
    }
    for (const Listed& l : out) {
      if (!l.all.empty() && (best == nullptr || l.all[0].seconds < best->all[0].seconds)) best = &l;
    }
    // Every set is compiled and timed: where several families take a convolution or a linear layer, those behind the best one offer few.
    const bool products = r.stages[0].anchor.op == ir::Op::conv && r.stages[0].anchor.weights.has_value();
    for (Listed& l : out) {
      const auto close = [&](const EstimatedTactic& c) { return c.seconds <= kBehind * best->all[0].seconds; };
      const auto few = static_cast<std::size_t>(std::find_if_not(l.all.begin(), l.all.end(), close) - l.all.begin());
      l.preferred = std::min(&l == best || !products ? l.family->preferred() : std::clamp(few, kLeast, kFew), l.all.size());
    }
    return out;
  }

  [[nodiscard]] std::vector<Offer> offers_made(const region::Region& r, const region::Plan& plan) const {
    std::vector<Offer> out;
    for (const Listed& l : listed(r, plan)) {
      if (!l.refusal.empty()) out.push_back({tactic_of(*l.family, {}, r), l.refusal, 0});
      for (std::size_t i = 0; i < l.preferred; ++i)
        out.push_back({tactic_of(*l.family, l.all[i].parameters, r), {}, l.all[i].seconds});
    }
    if (out.empty()) {
      Tactic none;
      none.provider = kProvider;
      none.family = ir::name_of(r.stages[0].anchor.op);
      out.push_back({std::move(none), {because<cause::no_kernel_for_operator>("the GPU", ir::name_of(r.stages[0].anchor.op))}, 0});
    }
    return out;
  }

  /// A family takes a region of several stages only if it keeps what they forward on the chip.
  Tactic tactic_of(const Family& f, const Parameters& parameters, const region::Region& r) const {
    Tactic t;
    t.provider = kProvider;
    t.family = f.name();
    t.version = f.version();
    t.parameters = parameters;
    t.required = {target_.architecture.text()};
    t.forwards_stages = r.stages.size() > 1 && !r.independent;
    return t;
  }

  /// The executor copies: there is no kernel.
  Offer transfer(const region::Region& r) const {
    Offer o;
    o.tactic.provider = kProvider;
    o.tactic.family = kTransfer;
    o.tactic.required = {target_.architecture.text()};
    o.cost = cost::kTransferStart +
             static_cast<double>(ir::count(r.stages[0].space) * element_bytes(r.stages[0].stores[0])) / cost::kTransfer;
    return o;
  }

  Result<const Family*> family_of(const region::Region& r, const Tactic& tactic) const {
    for (const Family* f : families_for(r)) {
      if (f->name() == tactic.family) return f;
    }
    return fail(ErrorKind::unsupported,
                fmt::format("region \"{}\": no tactic \"{}\" for this kind of region", r.name, tactic.name()));
  }

  Result<RegionKernels> kernels_of(const Matched& matched, const Tactic& tactic, const region::Region& r) const {
    RegionKernels out;
    ++emitted();
    OCTAVO_TRY(KernelText one, matched.emit(tactic.parameters));
    take_next(one);
    leave_out_uncounted(one, r);
    for (Launch& l : one.launches) {
      l.early = target_.starts_early();
      out.starts.push_back({0, std::move(l)});
    }
    out.constants = std::move(one.constants);
    out.workspace_bytes = one.workspace_bytes;
    out.texts = {std::move(one.text)};
    return out;
  }
  /// `check`: of a module's number, the architecture and the launches of it.
  template <class Check>
  static Result<std::unique_ptr<region::Kernel>> kernel_of(RegionKernels kernels, std::vector<std::span<const std::byte>> modules,
                                                           const region::Region& r, const region::Plan& plan, const Check& check) {
    for (const RegionKernels::Start& s : kernels.starts) {
      if (static_cast<std::size_t>(s.module) >= modules.size())
        return fail(ErrorKind::bad_engine, fmt::format("a launch of module {}, there are {}", s.module, modules.size()));
      for (const Argument& p : s.launch.arguments) {
        if (p.kind == Argument::Kind::number || p.kind == Argument::Kind::next) continue;
        const std::int64_t bytes =
            p.kind == Argument::Kind::workspace ? kernels.workspace_bytes : plan.buffers[static_cast<std::size_t>(p.index)].bytes;
        if (p.offset < 0 || p.offset > bytes)
          return fail(ErrorKind::bad_engine, fmt::format("a kernel's parameter {} bytes into {}", p.offset, bytes));
        if (p.image >= 0) OCTAVO_CHECK(check_image(s.launch.images[static_cast<std::size_t>(p.image)], bytes - p.offset));
      }
    }
    std::optional<Architecture> architecture;
    if (!r.tactic.required.empty()) {
      architecture = parse_architecture(r.tactic.required[0]);
      if (!architecture)
        return fail(ErrorKind::bad_engine,
                    fmt::format("region \"{}\" needs \"{}\", which is no architecture of a GPU", r.name, r.tactic.required[0]));
    }
    for (std::size_t m = 0; m < modules.size(); ++m) {
      std::vector<const Launch*> launches;
      for (const RegionKernels::Start& s : kernels.starts) {
        if (static_cast<std::size_t>(s.module) == m) launches.push_back(&s.launch);
      }
      OCTAVO_CHECK(check(m, architecture.value_or(Architecture()), launches));
    }
    return std::make_unique<GpuKernel>(std::move(modules), std::move(kernels.starts), kernels.workspace_bytes, architecture);
  }
  static Result<region::Artifact> artifact_of(RegionKernels kernels, const region::Region& r, const region::Plan& plan) {
    region::Artifact made;
    OCTAVO_TRY(const std::string launch, write_launches(kernels, r));
    made.source = {join_modules(kernels.texts)};
    made.launch = with_facts(launch, {weight_sums(r, plan), hash128_hex(made.source.text), open_marks(r)});
    for (PackedConstant& c : kernels.constants) made.constants.push_back(std::move(c.data));
    return made;
  }

  Target target_;
  Compiler compiler_;
  CodeCheck check_;
  mutable OfferMemo memo_;
  mutable KeptProcesses kept_;  ///< processes that compile stay until a planning ends
};

}  // namespace

std::uint64_t emissions() {
  return emitted();
}

std::unique_ptr<const region::Provider> make_provider(const Target& target, Compiler compiler, CodeCheck check) {
  return std::make_unique<GpuProvider>(target, std::move(compiler), std::move(check));
}

Status remake_kernels(region::Plan& plan, const Target& target, const Compiler& compiler, int threads) {
  const GpuProvider provider(target, compiler, {});
  region::Plan full = plan;  // constants are shared, not copied
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    region::Region& r = plan.regions[i];
    if (r.tactic.provider != kProvider) continue;
    if (r.code >= 0) {
      region::Buffer& old = plan.buffers[static_cast<std::size_t>(r.code)];
      old.data = ir::Tensor(ir::DType::u8, {0}), old.bytes = 0;
    }
    OCTAVO_CHECK(provider.check_version(r.tactic));
    OCTAVO_TRY(const TextFacts facts, read_facts(r.launch));
    OCTAVO_CHECK(set_open_marks(r, facts.open));
    OCTAVO_CHECK(give_weights(r, full, facts.sums));
    OCTAVO_CHECK(provider.remake(r, facts, full, plan));
  }
  return provider.finish(std::vector<region::Plan*>{&plan}, threads);
}

Status remake_kernels(region::Plan& plan, int ordinal, int threads) {
  const Target here = target(ordinal);
  OCTAVO_TRY(const std::string version, compiler_version());
  const std::string key =
      fmt::format("{} {:016x} {}", version, hash64(emit_prelude()), fmt::join(compile_options(here.architecture), " "));
  return remake_kernels(plan, here, kept_on_disk(nvrtc_compiler(here.architecture), key), threads);
}

namespace {
Target target_of(const GpuFacts& facts) {
  return {facts.architecture, facts.multiprocessors, facts.shared_bytes};
}
}  // namespace

Target target(int ordinal) {
  const auto facts = gpu_facts(ordinal);
  return facts ? target_of(*facts) : Target();
}

Status check_has_kernels() {
  if (!families().empty()) return {};
  return fail(
      ErrorKind::unsupported,
      "this octavo has no kernels for GPUs: it was compiled with OCTAVO_GPU_KERNELS=OFF, as `make run` does where nothing is "
      "built yet\n  `make build` compiles them; --device cpu needs none");
}

std::set<std::string, std::less<>> usual_choices() {
  return {"stages", "direct-store", "split-conv", "above-moves", "horizontal-layers"};
}

std::set<std::string, std::less<>> priced_choices() {
  return {"fuse-conv-pool", "depthwise-pointwise", "quantize-conv", "attention", "segments", "precision"};
}

namespace {
template <class Key>
const region::Provider& provider_of(const Key& key, const std::function<Target()>& target_of_key) {
  static std::mutex mutex;
  static std::map<Key, std::unique_ptr<const region::Provider>> all;
  const std::lock_guard lock(mutex);
  auto& one = all[key];
  if (one == nullptr) {
    const Target made_for = target_of_key();
    one = make_provider(made_for, nvrtc_compiler(made_for.architecture), remembering_check());
  }
  return *one;
}
}  // namespace

const region::Provider& provider(int ordinal) {
  return provider_of(ordinal, [&] { return target(ordinal); });
}

const region::Provider& provider(const GpuFacts& facts) {
  return provider_of(facts.name, [&] { return target_of(facts); });
}

}  // namespace octavo::cuda
