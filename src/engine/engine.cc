// One class, a little longer than 400 lines: all ways to an engine (a plan, a file, another shape) end in the same checks and the same constants.
#include "engine/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/fork.h"
#include "engine/part_plan.h"
#include "engine/set.h"
#include "engine/version.h"
#include "region/artifact.h"
#include "region/counted.h"
#include "region/counted_tasks.h"
#include "region/hash.h"
#include "region/kernel_version.h"
#include "region/verify.h"

namespace octavo::engine {
namespace {

using region::BufferKind;

/// What a machine must have to run all regions, each name once.
std::vector<std::string> required_by(const region::Plan& plan) {
  std::set<std::string> all;
  for (const region::Region& r : plan.regions) all.insert(r.required.begin(), r.required.end());
  return {all.begin(), all.end()};
}

std::atomic<std::uint64_t>& load_count() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const region::Provider* find_provider(const Providers& providers, const region::Tactic& tactic) {
  const auto found = std::find_if(providers.begin(), providers.end(), [&](const region::Provider* p) { return p->knows(tactic); });
  return found == providers.end() ? nullptr : *found;
}

/// Memory of the host for the constants of a created engine: zeros that become real as they are written, so that the tensors they come from can
/// go one after the other, and weights are never there twice.
class HostBlock final : public region::DeviceMemory {
 public:
  static Result<std::unique_ptr<HostBlock>> of(std::size_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(ErrorKind::io, fmt::format("new engine: no memory for {} bytes of constants", bytes));
    return std::unique_ptr<HostBlock>(new HostBlock(static_cast<std::byte*>(at), bytes));
  }
  ~HostBlock() override { ::munmap(at_, bytes_); }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  [[nodiscard]] std::byte* address() const override { return at_; }

 private:
  HostBlock(std::byte* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
  std::byte* at_;
  std::size_t bytes_;
};
/// From here on constants get a block of their own.
constexpr std::size_t kLargeConstants = std::size_t{1} << 20;

/// Generated kernels that a thread is worth starting for, and as many threads as are started.
constexpr int kRegionsOfLoader = 4, kMostLoaders = 16;

/// The extents of counted_extents, and of a region that takes long further ones between those that matter, in steps of at most a sixteenth.
constexpr double kLong = 50e-6;  // seconds
std::vector<std::int64_t> extents_of(const region::Region& r) {
  constexpr std::int64_t kSteps = 16, kMatters = 16;
  const std::int64_t room = region::room_of(r);
  std::vector<std::int64_t> out = region::counted_extents(room);
  if (r.seconds < kLong) return out;
  for (std::int64_t power = kSteps; power < room; power *= 2) {
    for (std::int64_t k = 0; k < kSteps; ++k) {
      const std::int64_t e = power + power / kSteps * k;
      if (e < room && e * kMatters >= room) out.push_back(e);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// How many elements a kernel for `extent` computes where `wanted` count: it leaves tasks out.
std::int64_t computed_of(const region::HostKernel& kernel, int dim, std::int64_t extent, std::int64_t wanted) {
  const auto* known = dynamic_cast<const region::CountedTasks*>(&kernel);
  std::int64_t next = extent;
  for (int t = 0; known != nullptr && t < kernel.tasks(); ++t) {
    if (const std::int64_t first = known->first_element(t, dim, extent); first >= wanted) next = std::min(next, first);
  }
  return next;
}

tl::unexpected<Error> internal(std::string message) {
  return fail(ErrorKind::internal, std::move(message));
}

}  // namespace

Result<std::shared_ptr<const Engine>> Engine::create(region::Plan plan, const Providers& providers, std::string graph_text,
                                                     const Devices& devices, SharedMemory* shared, Origin origin) {
  OCTAVO_CHECK(region::check_compiled(plan));
  std::shared_ptr<Engine> e(new Engine);
  e->plan_ = std::move(plan);
  e->graph_text_ = std::move(graph_text);
  e->origin_ = std::move(origin);
  e->plan_hash_ = region::plan_hash(e->plan_);
  OCTAVO_CHECK(e->adopt_constants(shared));
  OCTAVO_CHECK(region::verify(e->plan_));
  OCTAVO_CHECK(e->find_devices(devices, "new engine"));
  OCTAVO_CHECK(e->place_constants());
  OCTAVO_CHECK(e->load_kernels(providers, "new engine"));
  return e;
}

Result<std::shared_ptr<const Engine>> Engine::resized(const std::shared_ptr<const Engine>& base, region::Plan plan,
                                                      const Providers& providers,
                                                      const std::map<region::BufferId, std::span<const std::byte>>& others,
                                                      std::shared_ptr<const void> keeps, Origin origin,
                                                      const std::map<region::BufferId, std::byte*>& placed) {
  std::shared_ptr<Engine> e(new Engine);
  e->plan_ = std::move(plan);
  e->origin_ = std::move(origin);
  e->base_ = base, e->keeps_ = std::move(keeps);
  e->constants_ = base->constants_;
  if (e->plan_.buffers.size() < e->constants_.size() || e->plan_.devices.size() != base->plan_.devices.size())
    return internal(fmt::format("resized plan: {} buffers on {} devices, its base has {} on {}", e->plan_.buffers.size(),
                                e->plan_.devices.size(), e->constants_.size(), base->plan_.devices.size()));
  e->constants_.resize(e->plan_.buffers.size());
  for (const auto& [id, bytes] : others) e->constants_[static_cast<std::size_t>(id)] = bytes;
  for (std::size_t i = 0; i < e->constants_.size(); ++i) {
    const region::Buffer& b = e->plan_.buffers[i];
    if (b.kind == BufferKind::constant && static_cast<std::size_t>(b.bytes) != e->constants_[i].size())
      return internal(
          fmt::format("resized plan: constant {} \"{}\" has {} bytes, of {}", i, b.name, e->constants_[i].size(), b.bytes));
  }
  OCTAVO_CHECK(region::verify_resized(e->plan_, base->plan_));
  e->devices_ = base->devices_;
  OCTAVO_CHECK(e->place_constants(&others, placed));
  OCTAVO_CHECK(e->load_kernels(providers, "resized engine"));
  return e;
}

Status Engine::adopt_constants(SharedMemory* shared) {
  const auto found = [&](const region::Buffer& b) -> std::byte* {
    if (shared == nullptr || b.bytes == 0) return nullptr;
    const auto at = shared->constants.find(b.data.bytes().data());
    return at == shared->constants.end() ? nullptr : at->second;
  };
  std::size_t total = 0;
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    const region::Buffer& b = plan_.buffers[i];
    if (b.kind != BufferKind::constant) continue;
    const std::size_t bytes = b.data.empty() ? 0 : b.data.bytes().size();
    if (b.bytes < 0 || static_cast<std::size_t>(b.bytes) != bytes) {
      return internal(fmt::format("plan: constant buffer {} \"{}\" says {} bytes and has {}", i, b.name, b.bytes, bytes));
    }
    if (found(b) == nullptr) total += round_up(bytes) + kAlignment;
  }
  constants_.resize(plan_.buffers.size());
  std::byte* at = nullptr;
  if (shared == nullptr && total < kLargeConstants) {
    owned_ = AlignedBytes(total);
    at = owned_.data();
  } else {
    OCTAVO_TRY(auto block, HostBlock::of(total + kAlignment));
    at = block->address() + kAlignment;
    blocks_.push_back(std::move(block));
  }
  if (shared != nullptr) {
    shared->blocks.push_back(blocks_.back());
    blocks_ = shared->blocks;
  }
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    region::Buffer& b = plan_.buffers[i];
    if (b.kind != BufferKind::constant) continue;
    const auto bytes = static_cast<std::size_t>(b.bytes);
    if (std::byte* there = found(b)) {
      constants_[i] = {there, bytes};
    } else {
      if (bytes > 0) std::memcpy(at, b.data.bytes().data(), bytes);
      if (bytes > 0 && shared != nullptr) {
        shared->constants[b.data.bytes().data()] = at;
        shared->tensors.push_back(b.data);
      }
      constants_[i] = {at, bytes};
      at += round_up(bytes) + kAlignment;
    }
    b.data = ir::Tensor();
  }
  return {};
}

Result<std::shared_ptr<const Engine>> Engine::load(const std::string& path, const Providers& providers, const Devices& devices) {
  OCTAVO_TRY(Engines all, load_all(path, providers, devices));
  if (all.size() == 1) return std::move(all.front());
  return fail(ErrorKind::unsupported,
              fmt::format("engine \"{}\": it holds engines for {} sets of shapes; this call needs one\n  {}", path, all.size(),
                          shapes_text(all)));
}

Result<Engines> Engine::load_all(const std::string& path, const Providers& providers, const Devices& devices) {
  OCTAVO_TRY(const auto file, EngineFile::open(path));
  return load_all(file, providers, devices);
}

std::uint64_t loads() {
  return load_count().load(std::memory_order_relaxed);
}

bool Engine::is_outdated(const EngineFile& file, const Error& error) {
  return !file.made_by().outdated().empty() || region::is_older_version(error);
}

Result<Engines> Engine::load_all(const std::shared_ptr<const EngineFile>& file, const Providers& providers,
                                 const Devices& devices) {
  const std::string& path = file->name();
  if (const std::string outdated = file->made_by().outdated(); !outdated.empty()) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}{}", path, outdated, rebuild_hint(file->container(), path)));
  }
  auto all = load_parts(file, providers, devices);
  if (all) return all;
  Error error = std::move(all).error();
  if (region::is_older_version(error)) {
    error.message += rebuild_hint(file->container(), path);
  } else {
    const std::string by = file->made_by().version();
    error.message += by == kVersion ? fmt::format("\n  the engine was built by this version of Octavo, {}", by)
                                    : fmt::format("\n  the engine was built by Octavo {}, this is {}", by, kVersion);
  }
  return tl::unexpected<Error>(std::move(error));
}

Result<Engines> Engine::load_parts(const std::shared_ptr<const EngineFile>& file, const Providers& providers,
                                   const Devices& devices) {
  const std::string& path = file->name();
  load_count().fetch_add(1, std::memory_order_relaxed);
  OCTAVO_TRY(const std::vector<Part> parts, file->parts());
  const std::shared_ptr<const ModelSource> model = file->model();
  Engines all;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::shared_ptr<Engine> e(new Engine);
    e->file_ = file;
    e->made_by_ = file->made_by();
    e->origin_ = {model, std::string(as_text(parts[k].build)), parts[k].notes(), parts[k].about()};
    OCTAVO_CHECK(e->read(parts[k], path));
    const std::string who = parts.size() == 1 ? fmt::format("engine \"{}\"", path) : fmt::format("engine \"{}\", plan {}", path, k);
    OCTAVO_CHECK(e->find_devices(devices, who));
    OCTAVO_CHECK(e->place_constants());
    OCTAVO_CHECK(e->load_kernels(providers, who));
    all.push_back(std::move(e));
  }
  const std::string why = why_no_set(all);
  if (!why.empty())
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": its plans do not belong together: {}", path, why));
  return all;
}

const std::string& Engine::plan_hash() const {
  {
    const std::lock_guard lock(fork_safe_mutex());
    if (!plan_hash_.empty()) return plan_hash_;
  }
  std::string computed = region::plan_hash(plan_, constants_);
  const std::lock_guard lock(fork_safe_mutex());
  if (plan_hash_.empty()) plan_hash_ = std::move(computed);
  return plan_hash_;
}

Status Engine::read(const Part& part, const std::string& name) {
  const auto bad = [&](const std::string& fact) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", name, fact));
  };
  graph_text_ = as_text(part.graph);
  if (!nlohmann::json::accept(as_text(part.summary))) return bad("the summary section is not JSON");

  auto plan = region::from_json(as_text(part.plan));
  if (!plan) return bad("the plan section is not a valid plan: " + plan.error().message);
  plan_ = std::move(*plan);
  constants_.resize(plan_.buffers.size());
  std::size_t found = 0;
  for (const auto& [id, bytes] : part.constants) {
    if (id >= plan_.buffers.size() || plan_.buffers[id].kind != BufferKind::constant) {
      return bad(fmt::format("constant section {}: the plan has no such constant buffer", id));
    }
    if (static_cast<std::uint64_t>(plan_.buffers[id].bytes) != bytes.size()) {
      return bad(fmt::format("constant {} has {} bytes, the plan says {}", id, bytes.size(), plan_.buffers[id].bytes));
    }
    constants_[id] = bytes;
    ++found;
  }
  const auto wanted = static_cast<std::size_t>(std::count_if(
      plan_.buffers.begin(), plan_.buffers.end(), [](const region::Buffer& b) { return b.kind == BufferKind::constant; }));
  if (found != wanted) return bad(fmt::format("{} constant sections, the plan has {} constants", found, wanted));
  return fits(name);
}

Status Engine::fits(const std::string& name) const {
  return fits_memory(plan_, name);
}

/// The devices of the plan, by name.
Status Engine::find_devices(const Devices& devices, std::string_view who) {
  devices_.assign(plan_.devices.size(), nullptr);
  for (std::size_t d = 1; d < plan_.devices.size(); ++d) {
    const auto named = [&](const region::Device* device) { return device->name() == plan_.devices[d].name; };
    const auto found = std::find_if(devices.begin(), devices.end(), named);
    if (found == devices.end()) {
      std::vector<std::string_view> here{plan_.devices[region::kHost].name};
      for (const region::Device* device : devices) here.push_back(device->name());
      return fail(ErrorKind::unsupported,
                  fmt::format("{}: it needs device \"{}\"; here are: {}", who, plan_.devices[d].name, fmt::join(here, ", ")));
    }
    devices_[d] = *found;
  }
  if (plan_.devices.size() > 1 && plan_.images > 1)
    return fail(ErrorKind::bad_engine, fmt::format("{}: only plans on the host can run image by image", who));
  return {};
}

/// Constants of other devices are copied there, once for all contexts. `others`: of a resized engine, whose base has the rest; `placed`: those of them that are
/// there already.
Status Engine::place_constants(const std::map<region::BufferId, std::span<const std::byte>>* others,
                               const std::map<region::BufferId, std::byte*>& placed) {
  constexpr std::size_t kUnit = 256;
  const auto size_of = [&](std::size_t i) { return (constants_[i].size() + kUnit - 1) / kUnit * kUnit; };
  const auto is_there = [&](std::size_t i) {
    const auto id = static_cast<region::BufferId>(i);
    return others != nullptr && plan_.buffers[i].space != region::kHost && (!others->contains(id) || placed.contains(id));
  };
  constant_at_.assign(plan_.buffers.size(), nullptr);
  device_memory_.resize(plan_.devices.size());
  std::vector<std::size_t> total(plan_.devices.size());
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    const region::Buffer& b = plan_.buffers[i];
    if (b.kind != BufferKind::constant) continue;
    if (b.space == region::kHost) constant_at_[i] = const_cast<std::byte*>(constants_[i].data());
    const auto own = placed.find(static_cast<region::BufferId>(i));
    if (is_there(i))
      constant_at_[i] = own != placed.end() ? own->second : base_->constant_at_[i];
    else
      total[static_cast<std::size_t>(b.space)] += size_of(i);
  }
  for (std::size_t d = 1; d < plan_.devices.size(); ++d) {
    if (others != nullptr && total[d] == 0) continue;
    OCTAVO_TRY(device_memory_[d], devices_[d]->allocate(std::max(total[d], kUnit)));
    std::byte* at = device_memory_[d]->address();
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      const region::Buffer& b = plan_.buffers[i];
      if (b.kind != BufferKind::constant || b.space != static_cast<region::DeviceId>(d) || is_there(i)) continue;
      OCTAVO_CHECK(devices_[d]->write(at, constants_[i]));
      constant_at_[i] = at;
      at += size_of(i);
    }
  }
  return {};
}

Result<std::unique_ptr<region::Kernel>> Engine::kernel_for(const Providers& providers, std::size_t i, std::string_view who) const {
  const region::Region& r = plan_.regions[i];
  const region::Provider* provider = find_provider(providers, r.tactic);
  if (provider == nullptr) {
    std::vector<std::string_view> names;
    for (const region::Provider* p : providers) names.push_back(p->name());
    std::string message = fmt::format("{}: region {} \"{}\": no provider for tactic \"{}\" (providers: {})", who, i, r.name,
                                      r.tactic.name(), fmt::join(names, ", "));
    if (file_ == nullptr) return internal(std::move(message));
    return fail(ErrorKind::unsupported,
                message + "\n  load the engine with the provider it was built with, or build it again without");
  }
  std::vector<const std::byte*> packed;
  for (const region::BufferId id : r.packed) packed.push_back(constant(id).data());
  const auto code = r.code < 0 ? std::span<const std::byte>() : constant(r.code);
  const std::string& runs_on = plan_.devices[static_cast<std::size_t>(r.device)].name;
  if (provider->device() != runs_on) {
    return fail(ErrorKind::bad_engine, fmt::format("{}: region {} \"{}\" runs on device \"{}\", its tactic \"{}\" on \"{}\"", who,
                                                   i, r.name, runs_on, r.tactic.name(), provider->device()));
  }
  auto kernel = provider->load(r, plan_, {packed, code, r.launch});
  if (!kernel) {
    Error error = std::move(kernel).error();
    error.message = fmt::format("{}: region {} \"{}\", tactic \"{}\": {}", who, i, r.name, r.tactic.name(), error.message);
    return tl::unexpected<Error>(std::move(error));
  }
  return std::move(*kernel);
}

/// A kernel that cannot be made for an extent, or would read other constants, is left out: a longer one has room for its elements too. So is one where the next
/// longer one computes little more with some of its tasks.
void Engine::load_shorter(const Providers& providers, std::size_t i) {
  const region::Region& r = plan_.regions[i];
  const region::Provider& provider = *find_provider(providers, r.tactic);
  std::vector<const std::byte*> packed;
  for (const region::BufferId id : r.packed) packed.push_back(constant(id).data());
  const auto layout = packed.empty() ? std::optional<std::string>("") : provider.packed_layout(r, plan_);
  if (!layout) return;
  const std::vector<std::int64_t> extents = extents_of(r), always = region::counted_extents(region::room_of(r));
  const auto* longer = dynamic_cast<const region::HostKernel*>(kernels_[i].get());
  std::int64_t longest = region::room_of(r);
  for (auto at = extents.rbegin(); at != extents.rend(); ++at) {
    const std::int64_t extent = *at;
    if (longer != nullptr && !std::binary_search(always.begin(), always.end(), extent) &&
        computed_of(*longer, r.stages.back().counted, longest, extent) <= extent + extent / 32)
      continue;
    const auto shorter = region::clipped(r, extent);
    if (!shorter) break;
    if (!packed.empty() && provider.packed_layout(*shorter, plan_) != layout) continue;
    auto kernel = region::as_host_kernel(provider.load(*shorter, plan_, {packed, {}, r.launch}));
    if (!kernel || (*kernel)->tasks() < 1 || (*kernel)->shared_bytes() != 0) continue;
    shorter_[i].push_back({extent, std::move(*kernel)});
    longer = shorter_[i].back().kernel.get(), longest = extent;
  }
  std::reverse(shorter_[i].begin(), shorter_[i].end());
}

/// Kernels are made on several cores: for generated ones it is most of what loading takes.
Status Engine::load_kernels(const Providers& providers, std::string_view who) {
  const int regions = static_cast<int>(plan_.regions.size());
  const auto generated = std::count_if(plan_.regions.begin(), plan_.regions.end(), [&](const region::Region& r) {
    return r.device == region::kHost ||
           base_ == nullptr;  // other machine code of a resized engine was read before: a microsecond each
  });
  const int loaders = std::clamp(static_cast<int>(generated) / kRegionsOfLoader, 1, kMostLoaders);
  core_load_ = std::make_shared<CoreLoad>(cores_of_mask());  // a quota limits time, not how many threads run at once
  kernels_.resize(plan_.regions.size());
  shorter_.resize(plan_.regions.size());
  std::vector<Status> made(plan_.regions.size());
  // Of another shape's engine this is part of a first run, and a quota takes longer to read than kernels to load.
  const int cores = loaders == 1 ? 1 : base_ != nullptr ? core_load_->cores : available_cores();
  OCTAVO_TRY(const auto pool, ThreadPool::create(std::min(loaders, cores)));
  pool->run(regions, [&](int begin, int end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      auto kernel = kernel_for(providers, i, who);
      if (kernel) {
        kernels_[i] = std::move(*kernel);
        if (plan_.regions[i].count >= 0 && plan_.regions[i].device == region::kHost) load_shorter(providers, i);
      } else {
        made[i] = tl::unexpected(std::move(kernel.error()));
      }
    }
  });
  for (const Status& status : made) OCTAVO_CHECK(status);  // the first, whatever order they were found in
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const bool here = plan_.regions[i].device == region::kHost;
    const auto* host = here ? dynamic_cast<const region::HostKernel*>(kernels_[i].get()) : nullptr;
    if (here && host == nullptr) return internal(fmt::format("{}: region {} has a kernel that host threads cannot run", who, i));
    if (host != nullptr && host->tasks() < 1)  // its results would be whatever the memory held
      return internal(fmt::format("{}: region {} \"{}\", tactic \"{}\": the kernel divides its work into no tasks", who, i,
                                  plan_.regions[i].name, plan_.regions[i].tactic.name()));
    host_kernels_.push_back(host);
  }
  return {};
}

std::string Engine::summary(const Notes& more) const {
  nlohmann::json summary = {{"requires", required_by(plan_)}};
  Notes notes = more;
  notes.insert(origin_.notes.begin(), origin_.notes.end());
  if (!notes.empty()) summary["notes"] = notes;
  if (!origin_.about.empty()) summary["model"] = nlohmann::json::parse(origin_.about, nullptr, /*allow_exceptions=*/false);
  return summary.dump();
}

Status Engine::save(const std::string& path, const Notes& more, const std::string& private_key) const {
  const std::string plan_json = region::to_json(plan_);
  const std::string summary_json = summary(more);
  std::vector<Section> sections = {{section::kPlan, 0, as_bytes(plan_json)}, {section::kSummary, 0, as_bytes(summary_json)}};
  if (!graph_text_.empty()) sections.push_back({section::kGraph, 0, as_bytes(graph_text_)});
  if (!origin_.build.empty()) sections.push_back({section::kBuild, 0, as_bytes(origin_.build)});
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    if (plan_.buffers[i].kind == BufferKind::constant)
      sections.push_back({section::kConstant, static_cast<std::uint32_t>(i), constants_[i]});
  }
  ModelBytes model;
  std::string names;
  if (origin_.model != nullptr) {
    OCTAVO_TRY(model, origin_.model->read());
    add_model(model, names, sections);
  }
  return write_file(path, sections, made_by_, private_key);
}

}  // namespace octavo::engine
