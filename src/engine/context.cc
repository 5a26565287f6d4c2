// One class, past 400 lines: memory, transfers and regions of a run share the buffers that were placed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "engine/engine.h"
#include "engine/float_environment.h"
#include "region/bound_value.h"
#include "region/sizes.h"

namespace octavo::engine {
namespace {

using region::BufferKind;
using region::DeviceId;
using region::kHost;

RegionTime summarize(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  const double median = seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  return {median, seconds.front()};
}

/// The buffer of a device whose place a caller's memory can take: the other end of a transfer, all of it, in the same layout, stored
/// by nobody else. -1: none.
region::BufferId stands_for(const region::Plan& plan, std::size_t transfer, bool input) {
  const region::Stage& s = plan.regions[transfer].stages.front();
  const region::TensorRef &from = s.anchor.inputs.front(), &to = s.stores.front();
  const region::TensorRef &bound = input ? from : to, &inner = input ? to : from;
  const auto buffer = [&](const region::TensorRef& t) -> const region::Buffer& {
    return plan.buffers[static_cast<std::size_t>(t.buffer)];
  };
  const BufferKind kind = buffer(bound).kind;
  if (kind != (input ? BufferKind::input : BufferKind::output) || buffer(inner).kind != BufferKind::arena) return -1;
  if (bound.offset != 0 || inner.offset != 0 || bound.strides != inner.strides || buffer(bound).bytes != buffer(inner).bytes)
    return -1;
  int stores = 0;
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& stage : r.stages) {
      for (const region::TensorRef& t : stage.stores) stores += t.buffer == inner.buffer ? 1 : 0;
    }
  }
  return stores == 1 ? inner.buffer : -1;
}

/// Outputs that say only how much regions of other devices compute, which read them there: neither a result's size nor a region of the host needs them.
std::vector<region::BufferId> counts_for_kernels(const region::Plan& plan) {
  const std::size_t shown = region::shown_outputs(plan);
  std::vector<region::BufferId> out;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].kind != BufferKind::output || static_cast<std::size_t>(plan.buffers[b].binding) < shown) continue;
    const auto id = static_cast<region::BufferId>(b);
    const bool size = std::any_of(plan.sizes.begin(), plan.sizes.end(), [&](const ir::OutputSize& s) {
      return !ir::is_counter(s) && s.count == plan.buffers[b].binding;
    });
    const bool read = std::any_of(plan.regions.begin(), plan.regions.end(), [&](const region::Region& r) { return r.count == id; });
    if (!size && !read) out.push_back(id);
  }
  return out;
}

/// An input whose value the plan holds as a constant must have that value.
Status fits_value(const region::Binding& b, const Address& given, const std::string& where) {
  if (given.space != kHost) return fail(ErrorKind::bad_input, where + " decides shapes; give it in the memory of the host");
  const std::string value = region::value_format(b.type, static_cast<const std::byte*>(given.at));
  if (value == b.format) return {};
  return fail(
      ErrorKind::bad_input,
      fmt::format(
          "{} {} is [{}], the engine was built for [{}], because shapes depend on it\n  to do: build for this value, or run "
          "the engine of octavo.build (Engine::build) on the model, which builds once for each value",
          where, ir::to_string(b.type), value.substr(1), b.format.substr(1)));
}

}  // namespace

int threads_here(const region::Plan& plan) {
  return std::min(region::threads_of(plan), available_cores());
}

Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<const Engine> engine, int threads, SharedMemory* shared,
                                                 std::shared_ptr<RunResources> resources) {
  std::unique_ptr<Context> c(new Context);
  c->engine_ = std::move(engine);
  const Engine& e = *c->engine_;
  const region::Plan& plan = e.plan();
  std::vector<const region::HostKernel*> host;
  std::vector<const ShorterKernels*> shorter;
  std::vector<const region::Kernel*> all;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    host.push_back(e.host_kernel(i));
    all.push_back(&e.kernel(i));
    shorter.push_back(&e.shorter_kernels(i));
  }
  // A plan without a kernel for threads starts none: that is part of the first run of every new shape.
  const bool of_threads = std::any_of(host.begin(), host.end(), [](const auto* kernel) { return kernel != nullptr; });
  const int wanted = threads == 0 ? region::threads_of(plan) : threads;
  if (plan.devices.size() > 1) c->device_resources_ = std::exchange(resources, nullptr);
  OCTAVO_TRY(c->host_, HostExecutor::create(plan, std::move(host), std::move(shorter), of_threads ? wanted : std::min(wanted, 1),
                                            e.core_load(), resources != nullptr));
  const std::size_t lanes =
      plan.images > 1 ? std::min(static_cast<std::size_t>(c->host_->threads()), static_cast<std::size_t>(plan.images)) : 1;
  const auto arena_bytes = static_cast<std::size_t>(plan.devices[kHost].arena_bytes);
  const std::size_t arena_stride = c->arena_stride_ = round_up(arena_bytes);
  if (resources != nullptr) {
    c->resources_ = std::move(resources);
  } else {
    const bool there = shared != nullptr && shared->arena != nullptr && shared->arena->size() >= lanes * arena_stride;
    try {
      c->arena_ = there ? shared->arena : std::make_shared<AlignedBytes>(lanes * arena_stride);
    } catch (const std::bad_alloc&) {
      return fail(ErrorKind::io, fmt::format("context: no memory for {} arenas of {} bytes", lanes, arena_bytes));
    }
    if (shared != nullptr) shared->arena = c->arena_;
    c->arena_at_ = c->arena_->data();
  }
  c->executors_.resize(plan.devices.size());
  c->device_arenas_.resize(plan.devices.size());
  c->device_leases_.resize(plan.devices.size());
  c->device_at_.resize(plan.devices.size());
  for (std::size_t d = 1; d < plan.devices.size(); ++d) {
    const region::Device& device = e.device(static_cast<DeviceId>(d));
    std::vector<const region::Kernel*> own(all);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (plan.regions[i].device != static_cast<DeviceId>(d)) own[i] = nullptr;
    }
    OCTAVO_TRY(c->executors_[d], device.executor(plan, own));
    if (c->device_resources_ != nullptr) continue;
    OCTAVO_TRY(c->device_arenas_[d], device.allocate(static_cast<std::size_t>(plan.devices[d].arena_bytes)));
    c->device_at_[d] = c->device_arenas_[d]->address();
  }
  c->counts_.resize(plan.outputs.size() - region::shown_outputs(plan));
  c->memory_.resize(lanes);
  c->first_.resize(plan.buffers.size());
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    auto& base = c->memory_[lane].base;
    base.resize(plan.buffers.size());
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].kind == BufferKind::constant) base[i] = e.constant_address(static_cast<region::BufferId>(i));
    }
  }
  if (c->arena_at_ != nullptr && c->device_resources_ == nullptr) c->place_buffers();
  c->skipped_.resize(plan.regions.size());
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (!region::is_transfer(plan.regions[i], plan)) continue;
    for (const bool input : {true, false}) {
      const region::BufferId inner = stands_for(plan, i, input);
      if (inner < 0) continue;
      const region::Stage& s = plan.regions[i].stages.front();
      const region::BufferId bound = (input ? s.anchor.inputs.front() : s.stores.front()).buffer;
      c->bridges_.push_back({i, bound, inner, input});
    }
  }
  for (const region::BufferId id : counts_for_kernels(plan)) {
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      if (region::is_transfer(plan.regions[i], plan) && plan.regions[i].stages.front().stores.front().buffer == id)
        c->for_kernels_.push_back(i);
    }
  }
  return c;
}

std::byte* Context::place_in_arena(const region::Buffer& b, std::size_t lane_offset) const {
  if (b.space == kHost) return arena_at_ + lane_offset + b.arena_offset;
  return device_at_[static_cast<std::size_t>(b.space)] + b.arena_offset;
}

void Context::place_buffers() {
  const region::Plan& plan = engine_->plan();
  for (std::size_t lane = 0; lane < memory_.size(); ++lane) {
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].kind == BufferKind::arena) memory_[lane].base[i] = place_in_arena(plan.buffers[i], lane * arena_stride_);
    }
  }
}

/// Arenas on other devices for this run, unless it has them.
Status Context::rent_devices() {
  if (device_resources_ == nullptr) return {};
  const region::Plan& plan = engine_->plan();
  bool moved = false;
  for (std::size_t d = 1; d < plan.devices.size(); ++d) {
    if (device_leases_[d]->address() != nullptr) continue;
    OCTAVO_TRY(device_leases_[d],
               device_resources_->devices.take(engine_->device(static_cast<DeviceId>(d)),
                                               static_cast<std::size_t>(plan.devices[d].arena_bytes), device_at_[d]));
    moved = moved || device_at_[d] != device_leases_[d]->address();
    device_at_[d] = device_leases_[d]->address();
  }
  if (moved) place_buffers();
  return {};
}

/// At the end of a run, which has ended on the devices, too.
void Context::give_devices() {
  for (DeviceArenas::Lease& lease : device_leases_) {
    if (keeps_devices_)
      lease.keep();
    else
      lease = DeviceArenas::Lease();
  }
}

/// An arena, scratch and threads for this run.
Status Context::rent() {
  OCTAVO_CHECK(rent_devices());
  if (resources_ == nullptr) return {};
  try {
    lease_ = resources_->arenas.take(arena_bytes());
    scratch_lease_ = resources_->scratch.take(host_->scratch_bytes());
    OCTAVO_TRY(threads_lease_, resources_->threads.take(host_->threads()));
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::io, fmt::format("run: no memory for {} arenas of {} bytes and {} bytes of scratch", memory_.size(),
                                           arena_stride_, host_->scratch_bytes()));
  }
  host_->lend(scratch_lease_->data(), threads_lease_->get());
  if (lease_->data() != arena_at_) {
    arena_at_ = lease_->data();
    place_buffers();
  }
  return {};
}

void Context::expect_run(std::size_t most) const {
  if (resources_ == nullptr || arena_bytes() + host_->scratch_bytes() > most) return;
  resources_->arenas.expect(arena_bytes());
  resources_->scratch.expect(host_->scratch_bytes());
}

Status Context::bind(std::span<const Address> inputs, std::span<const Address> outputs) {
  const region::Plan& plan = engine_->plan();
  const std::size_t shown = plan.outputs.size() - counts_.size();
  if (inputs.size() != plan.inputs.size() || (outputs.size() != plan.outputs.size() && outputs.size() != shown)) {
    return fail(ErrorKind::bad_input, fmt::format("run: {} inputs and {} outputs given, \"{}\" has {} and {}", inputs.size(),
                                                  outputs.size(), plan.model_name, plan.inputs.size(), shown));
  }
  std::fill(counts_.begin(), counts_.end(), 0);
  const auto output_at = [&](std::size_t i) { return i < outputs.size() ? outputs[i] : Address{&counts_[i - shown]}; };
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != BufferKind::input && b.kind != BufferKind::output) continue;
    const bool in = b.kind == BufferKind::input;
    const auto binding = static_cast<std::size_t>(b.binding);
    const Address given = in ? inputs[binding] : output_at(binding);
    const auto where = [&] {
      return fmt::format("run: {} {} \"{}\"", in ? "input" : "output", binding, (in ? plan.inputs : plan.outputs)[binding].name);
    };
    if (given.at == nullptr && b.bytes > 0) return fail(ErrorKind::bad_input, where() + " has no address");
    if (given.space != b.space && !crosses(static_cast<region::BufferId>(i), given.space)) {
      return fail(ErrorKind::bad_input, fmt::format("{} is in the memory of device {}; the engine takes it from {}", where(),
                                                    given.space, plan.devices[static_cast<std::size_t>(b.space)].name));
    }
    if (in && region::has_value(plan.inputs[binding])) OCTAVO_CHECK(fits_value(plan.inputs[binding], given, where()));
    first_[i] = static_cast<std::byte*>(given.at);
    if (plan.images == 1) memory_[0].base[i] = first_[i];
  }
  for (const std::size_t transfer : for_kernels_) skipped_[transfer] = 0;
  // A transfer between a binding and a buffer of the device is left out where the caller's memory can be that buffer.
  for (const Bridge& bridge : bridges_) {
    const auto bound = static_cast<std::size_t>(bridge.bound), inner = static_cast<std::size_t>(bridge.inner);
    const region::Buffer& b = plan.buffers[bound];
    const auto binding = static_cast<std::size_t>(b.binding);
    const Address given = bridge.input ? inputs[binding] : output_at(binding);
    const region::Buffer& own = plan.buffers[inner];
    const bool fits =
        given.space == own.space && reinterpret_cast<std::uintptr_t>(given.at) % static_cast<std::uintptr_t>(own.alignment) == 0;
    memory_[0].base[inner] = fits ? first_[bound] : place_in_arena(own, 0);
    skipped_[bridge.transfer] = fits ? 1 : 0;
  }
  for (const std::size_t transfer : for_kernels_) {
    if (outputs.size() == shown) skipped_[transfer] = 1;
  }
  return {};
}

/// Do all regions that name the binding's buffer copy it from or to that device? They can as well within its memory.
bool Context::crosses(region::BufferId buffer, DeviceId device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= executors_.size()) return false;
  const region::Plan& plan = engine_->plan();
  for (const region::Region& r : plan.regions) {
    const auto names = [&](const region::TensorRef& t) { return t.buffer == buffer; };
    bool named = false;
    for (const region::Stage& s : r.stages) {
      named = named || std::any_of(s.anchor.inputs.begin(), s.anchor.inputs.end(), names) ||
              std::any_of(s.stores.begin(), s.stores.end(), names) ||
              std::any_of(s.operands.begin(), s.operands.end(), [&](const region::Operand& o) { return names(o.ref); });
    }
    if (named && (r.device != device || !region::is_transfer(r, plan))) return false;
  }
  return true;
}

/// All regions of one image on this thread, in the memory of its lane.
void Context::run_image(std::int64_t image, int worker, const Observer* observer) {
  const region::Plan& plan = engine_->plan();
  region::Memory& memory = memory_[static_cast<std::size_t>(worker)];
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind == BufferKind::input || b.kind == BufferKind::output) memory.base[i] = first_[i] + image * b.bytes;
  }
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (observer != nullptr && observer->before) observer->before(i, memory);
    host_->run_alone(i, memory, worker);
    if (observer != nullptr && observer->after) observer->after(i, memory);
  }
}

void Context::run_images(const Observer* observer) {
  const std::int64_t images = engine_->plan().images;
  if (observer != nullptr) {
    for (std::int64_t i = 0; i < images; ++i) run_image(i, 0, observer);
    return;
  }
  // A pool larger than the images has workers without a lane: those get no task.
  host_->pool().run(static_cast<int>(images), [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) run_image(i, worker, nullptr);
  });
}

region::Executor& Context::executor(DeviceId device) {
  return device == kHost ? static_cast<region::Executor&>(*host_) : *executors_[static_cast<std::size_t>(device)];
}

Status Context::wait_for_others(DeviceId device) {
  for (std::size_t d = 0; d < executors_.size(); ++d) {
    if (executors_[d] && static_cast<DeviceId>(d) != device) OCTAVO_CHECK(executors_[d]->wait());
  }
  return {};
}

/// Regions in order; neighbours of one device together. A device begins when the others have nothing left to do.
Status Context::run_regions(void* stream) {
  const auto& regions = engine_->plan().regions;
  for (std::size_t i = 0; i < regions.size();) {
    if (skipped_[i] != 0) {
      ++i;
      continue;
    }
    const DeviceId device = regions[i].device;
    std::size_t end = i + 1;
    while (end < regions.size() && regions[end].device == device && skipped_[end] == 0) ++end;
    OCTAVO_CHECK(wait_for_others(device));
    OCTAVO_CHECK(executor(device).start(i, end, memory_[0], device == kHost ? nullptr : stream));
    i = end;
  }
  return stream == nullptr ? wait_for_others(kHost) : Status();
}

Status Context::run_observed(const Observer& observer) {
  const auto& regions = engine_->plan().regions;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (observer.before) observer.before(i, memory_[0]);
    if (skipped_[i] == 0) {
      OCTAVO_CHECK(executor(regions[i].device).start(i, i + 1, memory_[0], nullptr));
      OCTAVO_CHECK(executor(regions[i].device).wait());
    }
    if (observer.after) observer.after(i, memory_[0]);
  }
  return {};
}

Status Context::repeat(std::size_t region, const region::Memory& memory) {
  if (engine_->plan().images > 1) {
    host_->run_alone(region, memory, 0);
    return {};
  }
  if (skipped_[region] != 0) return {};
  const DeviceId device = engine_->plan().regions[region].device;
  OCTAVO_CHECK(executor(device).start(region, region + 1, memory, nullptr));
  return executor(device).wait();
}

Status Context::run(std::span<const Address> inputs, std::span<const Address> outputs, void* stream, const Observer* observer) {
  struct Return {
    ArenaPool::Lease &arena, &scratch;
    ThreadPools::Lease& threads;
    Context& context;
    bool ended;  ///< what was started has ended on all devices
    ~Return() {
      arena = ArenaPool::Lease(), scratch = ArenaPool::Lease(), threads = ThreadPools::Lease();
      context.keeps_devices_ = context.keeps_devices_ || !ended;
      context.give_devices();
    }
  } back{lease_, scratch_lease_, threads_lease_, *this, true};
  OCTAVO_CHECK(rent());
  OCTAVO_CHECK(bind(inputs, outputs));
  OCTAVO_CHECK(host_->pool().ready());
  const DefaultFloatEnvironment floats;
  if (engine_->plan().images > 1) {
    run_images(observer);
    return {};
  }
  back.ended = false;
  OCTAVO_CHECK(observer != nullptr ? run_observed(*observer) : run_regions(stream));
  if (stream != nullptr && observer == nullptr) return {};
  back.ended = true;
  const std::size_t shown = engine_->plan().outputs.size() - counts_.size();
  for (std::size_t i = shown; i < outputs.size(); ++i) {
    if (outputs[i].space == kHost) counts_[i - shown] = *static_cast<const std::int64_t*>(outputs[i].at);
  }
  return within_bounds();
}

Status Context::within_bounds() const {
  const region::Plan& plan = engine_->plan();
  return ir::within_bounds(plan.sizes, plan.outputs.size() - counts_.size(), counts_,
                           [&](std::size_t i) -> const std::string& { return plan.outputs[i].name; });
}

Status Context::wait() {
  OCTAVO_CHECK(wait_for_others(region::kHost));
  return within_bounds();
}

Status Context::run(std::span<const void* const> inputs, std::span<void* const> outputs, const Observer* observer) {
  in_.clear(), out_.clear();
  for (const void* at : inputs) in_.push_back({const_cast<void*>(at)});  // never written: only stores name output buffers
  for (void* at : outputs) out_.push_back({at});
  return run(in_, out_, nullptr, observer);
}

ir::Shape Context::shape_of(std::size_t output) const {
  return region::shape_after(engine_->plan(), output, counts_);
}

Result<double> Context::time(std::size_t first, std::size_t last, int runs) {
  const auto& regions = engine_->plan().regions;
  double total = 0;
  for (std::size_t i = first; i < last;) {
    if (skipped_[i] != 0) {
      ++i;
      continue;
    }
    const DeviceId device = regions[i].device;
    std::size_t end = i + 1;
    while (end < last && regions[end].device == device && skipped_[end] == 0) ++end;
    OCTAVO_CHECK(wait_for_others(device));
    OCTAVO_TRY(const double seconds, executor(device).time(i, end, memory_[0], runs));
    total += seconds;
    i = end;
  }
  return total;
}

Result<Profile> Context::profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs) {
  using Clock = std::chrono::steady_clock;
  if (runs < 1) return fail(ErrorKind::usage, fmt::format("profile: {} runs asked for, needs at least 1", runs));
  keeps_devices_ = true;  // regions are timed between runs
  OCTAVO_CHECK(run(inputs, outputs));
  const DefaultFloatEnvironment floats;
  const std::size_t regions = engine_->plan().regions.size();
  std::vector<std::vector<double>> times(regions);
  std::vector<double> totals;
  // Of several images: sums over all of them, one after the other.
  Clock::time_point last;
  std::vector<double> sums(regions);
  Observer observer;
  observer.before = [&](std::size_t, const region::Memory&) { last = Clock::now(); };
  observer.after = [&](std::size_t i, const region::Memory&) {
    sums[i] += std::chrono::duration<double>(Clock::now() - last).count();
  };
  const auto elsewhere = [&](std::size_t i) {
    const region::Region& r = engine_->plan().regions[i];
    return r.device != kHost && !region::is_transfer(r, engine_->plan());
  };
  const bool only_host = engine_->plan().devices.size() < 2;
  for (int n = 0; n < runs; ++n) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const Clock::time_point start = Clock::now();
    OCTAVO_CHECK(run(inputs, outputs, only_host ? &observer : nullptr));
    totals.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (!only_host) OCTAVO_CHECK(run(inputs, outputs, &observer));
    for (std::size_t i = 0; i < regions; ++i) {
      constexpr int kLaunches = 8;  // one is shorter than a device's clock can tell
      if (elsewhere(i)) {
        OCTAVO_TRY(sums[i], time(i, i + 1, kLaunches));
      }
      times[i].push_back(sums[i]);
    }
  }
  Profile profile;
  for (std::vector<double>& t : times) profile.regions.push_back(summarize(t));
  profile.total = summarize(totals);
  return profile;
}

}  // namespace octavo::engine
