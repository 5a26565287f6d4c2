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
  OCTAVO_TRY(c->pool_, ThreadPool::create(threads == 0 ? plan.threads : threads, c->engine_->core_load()));
  std::size_t scratch = 0;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) scratch = std::max(scratch, c->engine_->kernel(i).scratch_bytes());
  c->scratch_stride_ = round_up(scratch) + kAlignment;
  const std::size_t scratch_total = c->scratch_stride_ * static_cast<std::size_t>(c->pool_->size());
  try {
    c->arena_ = AlignedBytes(static_cast<std::size_t>(plan.arena_bytes));
    c->scratch_ = AlignedBytes(scratch_total);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::io,
                fmt::format("context: no memory for an arena of {} and scratch of {} bytes", plan.arena_bytes, scratch_total));
  }
  c->memory_.base.resize(plan.buffers.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind == BufferKind::arena) c->memory_.base[i] = c->arena_.data() + b.arena_offset;
    if (b.kind == BufferKind::constant) {
      c->memory_.base[i] = const_cast<std::byte*>(c->engine_->constant(static_cast<region::BufferId>(i)).data());
    }
  }
  return c;
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
    memory_.base[i] = static_cast<std::byte*>(address);
  }
  return {};
}

void Context::run_region(std::size_t index) {
  const region::Kernel& kernel = engine_->kernel(index);
  pool_->run(kernel.tasks(), [&](int begin, int end, int worker) {
    const region::Worker w{worker, pool_->size(), scratch_.data() + static_cast<std::size_t>(worker) * scratch_stride_};
    kernel.run(memory_, begin, end, w);
  });
}

Status Context::run(std::span<const void* const> inputs, std::span<void* const> outputs, const Observer* observer) {
  OCTAVO_CHECK(bind(inputs, outputs));
  const DefaultFloatEnvironment floats;
  const std::size_t regions = engine_->plan().regions.size();
  for (std::size_t i = 0; i < regions; ++i) {
    if (observer != nullptr && observer->before) observer->before(i, memory_);
    run_region(i);
    if (observer != nullptr && observer->after) observer->after(i, memory_);
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
  for (int n = 0; n < runs; ++n) {
    const Clock::time_point start = Clock::now();
    Clock::time_point last = start;
    for (std::size_t i = 0; i < regions; ++i) {
      run_region(i);
      const Clock::time_point now = Clock::now();
      times[i].push_back(std::chrono::duration<double>(now - last).count());
      last = now;
    }
    totals.push_back(std::chrono::duration<double>(last - start).count());
  }
  Profile profile;
  for (std::vector<double>& t : times) profile.regions.push_back(summarize(t));
  profile.total = summarize(totals);
  return profile;
}

}  // namespace octavo::engine
