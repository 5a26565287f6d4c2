#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "engine/engine.h"
#include "engine/float_environment.h"

namespace octavo::engine {
namespace {

using region::BufferKind;

RegionTime summarize(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  const double median = seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  return {median, seconds.front()};
}

}  // namespace

Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<const Engine> engine, int threads) {
  std::unique_ptr<Context> c(new Context);
  c->engine_ = std::move(engine);
  const region::Plan& plan = c->engine_->plan();
  OCTAVO_TRY(c->pool_, ThreadPool::create(threads == 0 ? region::threads_of(plan) : threads, c->engine_->core_load()));
  std::size_t scratch = 0;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) scratch = std::max(scratch, c->engine_->kernel(i).scratch_bytes());
  c->scratch_stride_ = round_up(scratch) + kAlignment;
  const std::size_t scratch_total = c->scratch_stride_ * static_cast<std::size_t>(c->pool_->size());
  const std::size_t lanes =
      plan.images > 1 ? std::min(static_cast<std::size_t>(c->pool_->size()), static_cast<std::size_t>(plan.images)) : 1;
  const std::size_t arena_stride = round_up(static_cast<std::size_t>(plan.devices[region::kHost].arena_bytes));
  try {
    c->arena_ = AlignedBytes(lanes * arena_stride);
    c->scratch_ = AlignedBytes(scratch_total);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::io, fmt::format("context: no memory for {} arenas of {} and scratch of {} bytes", lanes,
                                           plan.devices[region::kHost].arena_bytes, scratch_total));
  }
  c->kept_.resize(static_cast<std::size_t>(c->pool_->size()));
  c->memory_.resize(lanes);
  c->first_.resize(plan.buffers.size());
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    auto& base = c->memory_[lane].base;
    base.resize(plan.buffers.size());
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const region::Buffer& b = plan.buffers[i];
      if (b.kind == BufferKind::arena) base[i] = c->arena_.data() + lane * arena_stride + b.arena_offset;
      if (b.kind == BufferKind::constant) {
        base[i] = const_cast<std::byte*>(c->engine_->constant(static_cast<region::BufferId>(i)).data());
      }
    }
  }
  const int workers = plan.images > 1 ? 1 : c->pool_->size();
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    for (int w = 0; w < workers; ++w) c->ahead_.push_back(c->read_after(i, w, workers));
  }
  return c;
}

/// What the worker reads first in the region after this one, or in the one after that where the next reads little. Behind the last
/// region comes the first: of the next run.
const std::byte* Context::read_after(std::size_t region, int worker, int workers) const {
  const std::size_t regions = engine_->plan().regions.size();
  for (std::size_t k = 1; k <= 2; ++k) {
    const region::HostKernel& next = engine_->kernel((region + k) % regions);
    const int active = std::min(next.tasks(), workers);
    if (worker >= active) continue;
    const std::byte* at = next.first_read(ThreadPool::first_task(next.tasks(), worker, active));
    if (at != nullptr) return at;
  }
  return nullptr;
}

Status Context::bind(std::span<const void* const> inputs, std::span<void* const> outputs) {
  const region::Plan& plan = engine_->plan();
  if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) {
    return fail(ErrorKind::bad_input, fmt::format("run: {} inputs and {} outputs given, \"{}\" has {} and {}", inputs.size(),
                                                  outputs.size(), plan.model_name, plan.inputs.size(), plan.outputs.size()));
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != BufferKind::input && b.kind != BufferKind::output) continue;
    const bool in = b.kind == BufferKind::input;
    const auto binding = static_cast<std::size_t>(b.binding);
    // Inputs are never written: only stores name output buffers (region::verify).
    void* const address = in ? const_cast<void*>(inputs[binding]) : outputs[binding];
    if (address == nullptr && b.bytes > 0) {
      return fail(ErrorKind::bad_input, fmt::format("run: {} {} \"{}\" has no address", in ? "input" : "output", binding,
                                                    (in ? plan.inputs : plan.outputs)[binding].name));
    }
    first_[i] = static_cast<std::byte*>(address);
    if (plan.images == 1) memory_[0].base[i] = first_[i];
  }
  return {};
}

void Context::run_region(std::size_t index) {
  const region::HostKernel* const kernel = &engine_->kernel(index);
  ++region_run_;
  // Captures go to the workers as they are: few words, and nothing on this stack.
  pool_->run(kernel->tasks(), [this, kernel, index](int begin, int end, int worker) {
    const int count = pool_->size(), tasks = kernel->tasks(), active = std::min(tasks, count);
    Kept& kept = kept_[static_cast<std::size_t>(worker)];
    if (kept.region_run != region_run_) kept = {.region_run = region_run_};
    const std::byte* ahead = ahead_[index * static_cast<std::size_t>(count) + static_cast<std::size_t>(worker)];
    if (end < ThreadPool::first_task(tasks, worker + 1, active))
      ahead = kernel->first_read(end);  // more of this worker's share follows
    const region::Worker w{worker, count, scratch_.data() + static_cast<std::size_t>(worker) * scratch_stride_, ahead, &kept.what};
    kernel->run(memory_[0], begin, end, w);
  });
}

/// All regions of one image on this thread, in the memory of its lane.
void Context::run_image(std::int64_t image, int worker, const Observer* observer) {
  const region::Plan& plan = engine_->plan();
  region::Memory& memory = memory_[static_cast<std::size_t>(worker)];
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind == BufferKind::input || b.kind == BufferKind::output) memory.base[i] = first_[i] + image * b.bytes;
  }
  region::Worker alone{0, 1, scratch_.data() + static_cast<std::size_t>(worker) * scratch_stride_, nullptr};
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (observer != nullptr && observer->before) observer->before(i, memory);
    const region::HostKernel& kernel = engine_->kernel(i);
    alone.ahead = ahead_[i];
    kernel.run(memory, 0, kernel.tasks(), alone);
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
  pool_->run(static_cast<int>(images), [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) run_image(i, worker, nullptr);
  });
}

Status Context::run(std::span<const void* const> inputs, std::span<void* const> outputs, const Observer* observer) {
  OCTAVO_CHECK(bind(inputs, outputs));
  OCTAVO_CHECK(pool_->ready());
  const DefaultFloatEnvironment floats;
  if (engine_->plan().images > 1) {
    run_images(observer);
    return {};
  }
  const std::size_t regions = engine_->plan().regions.size();
  for (std::size_t i = 0; i < regions; ++i) {
    if (observer != nullptr && observer->before) observer->before(i, memory_[0]);
    run_region(i);
    if (observer != nullptr && observer->after) observer->after(i, memory_[0]);
  }
  return {};
}

Result<Profile> Context::profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs) {
  using Clock = std::chrono::steady_clock;
  if (runs < 1) return fail(ErrorKind::usage, fmt::format("profile: {} runs asked for, needs at least 1", runs));
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
  for (int n = 0; n < runs; ++n) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const Clock::time_point start = Clock::now();
    OCTAVO_CHECK(run(inputs, outputs, &observer));
    totals.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    for (std::size_t i = 0; i < regions; ++i) times[i].push_back(sums[i]);
  }
  Profile profile;
  for (std::vector<double>& t : times) profile.regions.push_back(summarize(t));
  profile.total = summarize(totals);
  return profile;
}

}  // namespace octavo::engine
