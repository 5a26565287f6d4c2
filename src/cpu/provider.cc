#include "cpu/provider.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cpu/families/element_families.h"
#include "cpu/families/row_families.h"
#include "cpu/family.h"
#include "cpu/onednn/onednn.h"
#include "region/kernel_version.h"
#if defined(__x86_64__) && __has_include("cpu/jit/provider.h")
#include "cpu/jit/provider.h"
#define OCTAVO_HAVE_AVX512_PROVIDER 1
#endif

namespace octavo::cpu {
namespace {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> list = [] {
    std::vector<const Family*> all{&copy_family(),          &pointwise_family(), &conv_family(),     &depthwise_family(),
                                   &depthwise_f32_family(), &conv_f32_family(),  &max_pool_family(), &avg_pool_family(),
                                   &reduce_family(),        &softmax_family(),   &resize_family()};
    all.insert(all.end(), onednn_families().begin(), onednn_families().end());
    for (const auto* both : {&matmul_bf16_families(), &attention_bf16_families()})
      all.insert(all.end(), both->begin(), both->end());
    all.insert(all.end(),
               {&generated_pointwise_family(), &winograd_family(), &norm_family(), &matmul_family(), &matmul_codes_family(),
                &attention_family(), &attention_codes_family(), &recurrent_family(), &dynamic_quantize_family(), &arg_max_family(),
                &elements_family(), &top_k_family(), &non_max_suppression_family(), &grid_sample_family()});
    all.insert(all.end(), move_families().begin(), move_families().end());
    all.insert(all.end(), indexed_families().begin(), indexed_families().end());
    all.push_back(&staged_family());
    all.push_back(&grouped_family());
    all.push_back(&reference_family());
    return all;
  }();
  return list;
}

const std::vector<const Family*>& families_for(const Region& r) {
  static const std::vector<const Family*> nothing{&nothing_family()};
  return stores_nothing(r) ? nothing : families();
}

/// The family's tactic for a level. What the tactic says of itself follows from the family, the level and the parts, on any machine.
Tactic tactic_of(const Family& f, const Region& r, Isa isa, std::vector<Tactic> parts,
                 std::map<std::string, std::string> parameters = {}) {
  Tactic t;
  t.parameters = std::move(parameters);
  t.provider = "cpu";
  t.family = f.per_isa() ? fmt::format("{}.{}", f.name_for(r), name_of(isa)) : f.name_for(r);
  t.version = f.version();
  t.required = region::required_by(parts);
  if (f.per_isa() && isa != Isa::portable) t.required.emplace_back(name_of(isa));
  for (std::string& name : f.required()) t.required.push_back(std::move(name));
  t.vector = parts.empty() ? f.vector(f.per_isa() ? isa : Isa::avx512)
                           : std::all_of(parts.begin(), parts.end(), [](const Tactic& p) { return p.vector; });
  t.reference = f.reference();
  t.forwards_stages = f.forwards_stages();
  t.parts = std::move(parts);
  return t;
}

struct Found {
  const Family* family;
  Isa isa;
};
Result<Found> find_tactic(const Region& r, const Tactic& tactic) {
  for (const Family* f : families_for(r)) {
    if (!f->about(r)) continue;
    for (const Isa isa : f->levels()) {
      const bool known = std::all_of(tactic.parameters.begin(), tactic.parameters.end(),
                                     [&](const auto& p) { return f->takes_parameter(p.first); });
      const Tactic own = tactic_of(*f, r, isa, f->packs_parts() ? tactic.parts : std::vector<Tactic>(),
                                   known ? tactic.parameters : std::map<std::string, std::string>());
      if (own.family != tactic.family) continue;
      OCTAVO_CHECK(check_tactic(tactic, own));
      return Found{f, f->per_isa() ? isa : Isa::portable};
    }
  }
  return fail(ErrorKind::unsupported,
              fmt::format("region \"{}\": no tactic \"{}\" for this kind of region in this build", r.name, tactic.name()));
}

}  // namespace

Status check_tactic(const Tactic& stored, const Tactic& own) {
  if (stored == own) return {};
  if (stored.version != own.version) return region::other_version(stored, own.version);
  if (stored.name() != own.name())
    return fail(ErrorKind::bad_engine, fmt::format("tactic {}: for this region it is {}", stored.name(), own.name()));
  return fail(ErrorKind::bad_engine,
              fmt::format("tactic {}: what it says to require ({}), or to be, is not what it is (it requires {})", stored.name(),
                          fmt::join(stored.required, ", "),
                          own.required.empty() ? "nothing" : fmt::format("{}", fmt::join(own.required, ", "))));
}

bool divides(const Region& region) {
  return std::any_of(region.stages.begin(), region.stages.end(), [](const Stage& s) {
    return std::any_of(s.program.code.begin(), s.program.code.end(),
                       [](const program::Instr& i) { return i.op == program::Op::div; });
  });
}

Result<std::vector<const region::Provider*>> providers_of(const std::vector<Tactic>& parts, std::size_t stages) {
  if (parts.size() != stages)
    return fail(ErrorKind::bad_engine, fmt::format("a tactic of {} parts for {} stages", parts.size(), stages));
  std::vector<const region::Provider*> out;
  for (const Tactic& part : parts) {
    const auto found =
        std::find_if(providers().begin(), providers().end(), [&](const region::Provider* p) { return p->knows(part); });
    if (found == providers().end())
      return fail(ErrorKind::bad_engine, fmt::format("part \"{}\" is not a tactic of the CPU", part.name()));
    out.push_back(*found);
  }
  return out;
}

Status check_packed(const Region& region, const Plan& plan, std::size_t packed, std::span<const std::int64_t> bytes, bool more) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("region \"{}\", tactic \"{}\": {}", region.name, region.tactic.name(), what));
  };
  if (region.packed.size() != packed || packed < bytes.size() || (!more && packed != bytes.size()))
    return bad(fmt::format("{} packed constants, needs {}{}", packed, more ? "at least " : "", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int64_t has = plan.buffers[static_cast<std::size_t>(region.packed[i])].bytes;
    if (has != bytes[i]) return bad(fmt::format("packed constant {} has {} bytes, the tactic reads {}", i, has, bytes[i]));
  }
  return {};
}

namespace {

class CpuProvider final : public region::Provider {
 public:
  std::string_view name() const override { return "cpu"; }

  bool knows(const Tactic& tactic) const override {
    if (tactic.provider != name()) return false;
    return std::none_of(providers().begin(), providers().end(),
                        [&](const region::Provider* p) { return p != this && p->knows(tactic); });
  }

  std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    for (const Family* f : families_for(region)) {
      if (!f->about(region)) continue;
      const Reasons refusal = f->why_not(region, plan);
      if (f->packs_parts()) {
        out.push_back(composed(*f, region, plan, refusal, {}));
        continue;
      }
      for (const Isa isa : f->levels()) {
        Offer o;
        o.tactic = tactic_of(*f, region, isa, {});
        o.refusal = refusal;
        if (o.refusal.empty()) o.refusal = why_not_here(f->per_isa() ? isa : Isa::portable, o.tactic);
        if (o.refusal.empty()) o.cost = f->cost(region, plan, isa);
        out.push_back(std::move(o));
        if (!f->per_isa()) break;
      }
    }
    return out;
  }

  std::vector<Offer> variants(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    const bool generated = generated_takes(region, plan);
    for (const Family* f : families_for(region)) {
      if (!f->about(region) || !f->why_not(region, plan).empty()) continue;
      if (!f->packs_parts()) {
        if (!generated) add_sets(*f, region, plan, out);
        continue;
      }
      for (auto& parameters : f->parameter_sets(region, plan, Isa::portable)) {
        Offer o = composed(*f, region, plan, {}, std::move(parameters));
        if (o.refusal.empty()) out.push_back(std::move(o));
      }
    }
    return out;
  }

  Result<region::Artifact> compile(const Region& region, const Plan& plan, const Tactic& tactic) const override {
    OCTAVO_TRY(const Found found, find_tactic(region, tactic));
    Region named = region;
    named.tactic = tactic;
    region::Artifact made;
    OCTAVO_TRY(made.constants, found.family->pack(named, plan, found.isa));
    OCTAVO_TRY(const std::vector<std::int64_t> bytes, found.family->packed_bytes(named, plan, found.isa));
    const auto& packed = made.constants;
    bool same = packed.size() == bytes.size() || (found.family->packs_parts() && packed.size() > bytes.size());
    for (std::size_t i = 0; same && i < bytes.size(); ++i) same = static_cast<std::int64_t>(packed[i].bytes().size()) == bytes[i];
    if (!same) return fail(ErrorKind::internal, fmt::format("packing for {}: not the sizes that loading expects", tactic.name()));
    return made;
  }

  Result<std::unique_ptr<region::Kernel>> load(const Region& region, const Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    OCTAVO_TRY(const Found found, find_tactic(region, region.tactic));
    if (const Reasons why = why_not_here(found.isa, region.tactic); !why.empty()) {
      return fail(ErrorKind::unsupported,
                  fmt::format("loading region \"{}\" with tactic {}: {}\n  build the engine again on this machine", region.name,
                              region.tactic.name(), in_words(why)));
    }
    if (const Reasons why = found.family->why_not(region, plan); !why.empty()) {
      return fail(ErrorKind::unsupported,
                  fmt::format("loading region \"{}\" with tactic {}: {}", region.name, region.tactic.name(), spelled(why)));
    }
    OCTAVO_TRY(const std::vector<std::int64_t> bytes, found.family->packed_bytes(region, plan, found.isa));
    OCTAVO_CHECK(check_packed(region, plan, artifact.constants.size(), bytes, found.family->packs_parts()));
    return found.family->instantiate(region, plan, found.isa, artifact.constants);
  }

 private:
  /// The offer of a family whose tactics are made of others.
  static Offer composed(const Family& f, const Region& region, const Plan& plan, const Reasons& refusal,
                        std::map<std::string, std::string> parameters) {
    Region named = region;
    named.tactic = {};
    named.tactic.parameters = parameters;
    Family::Composed made;
    made.refusal = refusal;
    if (refusal.empty()) made = f.compose(named, plan);
    Offer o;
    o.tactic = tactic_of(f, region, Isa::portable, std::move(made.parts), std::move(parameters));
    o.refusal = std::move(made.refusal);
    if (o.refusal.empty()) o.refusal = why_not_here(Isa::portable, o.tactic);
    if (o.refusal.empty()) o.cost = made.cost;
    return o;
  }

  /// Is there generated code for the region? It is faster by more than a set of parameters makes of anything here.
  bool generated_takes(const Region& region, const Plan& plan) const {
    return std::any_of(providers().begin(), providers().end(), [&](const region::Provider* p) {
      if (p == this) return false;
      const auto offers = p->offers(region, plan);
      return std::any_of(offers.begin(), offers.end(), [](const Offer& o) { return o.refusal.empty(); });
    });
  }
  /// The family's sets for the best instruction set at hand.
  static void add_sets(const Family& f, const Region& region, const Plan& plan, std::vector<Offer>& out) {
    for (const Isa isa : f.levels()) {
      if (!why_not_here(f.per_isa() ? isa : Isa::portable, tactic_of(f, region, isa, {})).empty()) continue;
      for (auto& parameters : f.parameter_sets(region, plan, isa))
        out.push_back({tactic_of(f, region, isa, {}, std::move(parameters)), {}, f.cost(region, plan, isa)});
      return;
    }
  }

  static Reasons why_not_here(Isa isa, const Tactic& tactic) {
    if (kernel_table(isa) == nullptr) return unmet("kernels of this build", "without them", name_of(isa));
    return why_lacking(tactic.required);
  }
};

}  // namespace

const region::Provider& cpu_provider() {
  static const CpuProvider provider;
  return provider;
}

const std::vector<const region::Provider*>& providers() {
#ifdef OCTAVO_HAVE_AVX512_PROVIDER
  static const std::vector<const region::Provider*> list{&jit_provider(), &cpu_provider()};
#else
  static const std::vector<const region::Provider*> list{&cpu_provider()};
#endif
  return list;
}

}  // namespace octavo::cpu
