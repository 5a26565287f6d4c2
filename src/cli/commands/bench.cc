#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "api/pipeline.h"
#include "cli/commands/commands.h"
#include "cli/commands/other_load.h"
#include "cli/commands/profiling.h"
#include "cli/commands/run_buffers.h"
#include "cli/effect.h"
#include "cli/inputs/late.h"
#include "cli/inputs/model.h"
#include "cli/print.h"
#include "region/from_key.h"
#include "region/key.h"
#include "report/sentences.h"
#include "tune/known_tactics.h"
#include "tune/measure.h"

namespace octavo::cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  InputOptions input;
  ProfileOptions profile;
  std::vector<double> percentiles;
  std::size_t least = 10;  ///< runs that are measured
  double seconds = 3;
  bool json = false, regions = false, no_transfers = false;
  std::string key;
};

struct Times {
  std::vector<double> sorted;  ///< seconds of each run
  double total = 0;
  double processor = 0;  ///< seconds of all threads of the process in that time: what other programs take does not count
  [[nodiscard]] double quantile(double q) const {
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
  }
};

/// At least `least` runs and `seconds`, after warming up for a tenth of that.
Result<Times> measure(double seconds, std::size_t least, const std::function<Status()>& run) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  const auto warm = Clock::now();
  do {
    OCTAVO_CHECK(run());
  } while (since(warm) < seconds / 10);
  Times times;
  const auto start = Clock::now();
  const std::clock_t busy = std::clock();
  while (times.sorted.size() < least || since(start) < seconds) {
    const auto one = Clock::now();
    OCTAVO_CHECK(run());
    times.sorted.push_back(since(one));
  }
  times.total = since(start);
  times.processor = static_cast<double>(std::clock() - busy) / CLOCKS_PER_SEC;
  std::ranges::sort(times.sorted);
  return times;
}

/// KiB that a line of /proc/self/status names: VmRSS, memory in use now, or VmHWM, the most so far. 0 where there is no such file.
long memory_kb(std::string_view what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what)) return std::strtol(line.c_str() + what.size() + 1, nullptr, 10);
  }
  return 0;
}

/// Bytes of the constants in the memory of the plan's device beside the host.
std::int64_t constants_on_device(const region::Plan& plan) {
  std::int64_t sum = 0;
  for (const region::Buffer& b : plan.buffers)
    sum += b.kind == region::BufferKind::constant && b.space != region::kHost ? b.bytes : 0;
  return sum;
}

void print_regions(const region::Plan& plan, const engine::Profile& profile) {
  double sum = 0;
  for (const auto& r : profile.regions) sum += r.median;
  fmt::print("{:>4}  {:>10}  {:>6}  {}\n", "#", "median us", "share", "region (tactic)");
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const double t = profile.regions[i].median;
    fmt::print("{:>4}  {:>10.1f}  {:>5.1f}%  {} ({})\n", i, t * 1e6, 100 * t / sum, plan.regions[i].name,
               plan.regions[i].tactic.name());
  }
}

/// The region's constants as they were before packing: bytes that the engine has, seeded ones for weights that it only has packed.
void restore_constants(const region::Region& r, const engine::Engine& engine, region::Plan& plan) {
  const auto restore = [&](const region::TensorRef& t) {
    region::Buffer& b = plan.buffers[static_cast<std::size_t>(t.buffer)];
    if (b.kind != region::BufferKind::constant || !b.data.empty()) return;
    const auto bytes = engine.constant(t.buffer);
    const auto size = static_cast<std::int64_t>(ir::size_of(t.dtype));
    if (bytes.empty()) {
      b.data = region::seeded_constant(t.dtype, ir::count(t.dims) * size);
    } else {
      b.data = ir::Tensor(t.dtype, {static_cast<std::int64_t>(bytes.size()) / size});
      std::copy(bytes.begin(), bytes.end(), b.data.mutable_bytes().begin());
    }
    b.bytes = static_cast<std::int64_t>(b.data.bytes().size());
  };
  for (const region::Stage& s : r.stages) {
    for (const auto& t : s.anchor.inputs) restore(t);
    if (s.anchor.weights) restore(*s.anchor.weights);
    for (const auto& operand : s.operands) restore(operand.ref);
  }
}

std::string threads_text(int threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

/// Every tactic for the one region `r` of `plan`, timed again and carefully. `planned`: the tactic that a plan took for it.
Result<int> bench_region(const BenchOptions& o, const region::Region& r, const region::Plan& plan, const region::Tactic& planned) {
  OCTAVO_TRY(const auto providers, api::providers(o.model.build.device));
  std::vector<tune::ProvidedTactic> candidates;
  std::vector<region::Offer> refused;
  for (const region::Provider* p : providers) {
    std::vector<region::Offer> offers = p->offers(r, plan);
    for (region::Offer& variant : p->variants(r, plan)) offers.push_back(std::move(variant));
    for (const region::Offer& offer : offers) {
      if (offer.refusal.empty()) {
        candidates.push_back({offer.tactic, p});
      } else {
        refused.push_back(offer);
      }
    }
  }
  OCTAVO_TRY(const auto seconds, tune::measure(r, plan, candidates, std::min(o.seconds, 0.5), api::devices(o.model.build.device)));
  fmt::print("{}, {}\n  {}\n", r.name, o.model.build.device == "cpu" ? threads_text(plan.threads) : o.model.build.device,
             region::key_of(r, plan));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string time = seconds[i].seconds < 0
                                 ? "cannot be made"
                                 : fmt::format("{:.2f} us{}", seconds[i].seconds * 1e6, seconds[i].disturbed ? " ?" : "");
    fmt::print("{:>15}  {}{}\n", time, candidates[i].tactic.name(), candidates[i].tactic == planned ? "  (in the plan)" : "");
  }
  if (o.model.verbose) {
    for (const auto& offer : refused)
      fmt::print("{:>15}  {}: {}\n", "refused", offer.tactic.name(), report::sentences(offer.refusal));
  }
  return 0;
}

/// The region with the key, in the engine's plan.
Result<int> bench_key(const BenchOptions& o, const engine::Engine& engine) {
  region::Plan plan = engine.plan();
  const auto at = std::find_if(plan.regions.begin(), plan.regions.end(),
                               [&](const region::Region& r) { return region::key_of(r, plan) == o.key; });
  if (at == plan.regions.end()) {
    return fail(ErrorKind::usage, fmt::format("--region-key: no region of \"{}\" has this key\n  see: octavo explain {} --all\n"
                                              "  without a model, the region is made from the key alone",
                                              o.model.path, o.model.path));
  }
  region::Region r = *at;
  r.tactic = {};
  r.packed.clear();
  restore_constants(r, engine, plan);
  return bench_region(o, r, plan, at->tactic);
}

/// The region that the key spells, without a model: weights and scales are made up.
Result<int> bench_key(const BenchOptions& o) {
  const int threads = o.model.build.plan.threads > 0 ? o.model.build.plan.threads
                                                     : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto plan = region::plan_from_key(o.key, threads);
  if (!plan) {
    return fail(ErrorKind::usage, fmt::format("--region-key: {}\n  give the model as well: octavo bench MODEL --region-key KEY",
                                              plan.error().message));
  }
  OCTAVO_TRY(const auto providers, api::providers(o.model.build.device));
  tune::put_on(providers.front()->device(), *plan);
  return bench_region(o, plan->regions[0], *plan, {});
}

Result<int> bench(const BenchOptions& o) {
  if (o.json && (o.profile.dump || o.profile.dump_layers))
    return fail(ErrorKind::usage, "--json prints one line, --dumpProfile and --dumpLayerInfo print more: take one of them");
  if (!o.key.empty() && o.profile.wanted())
    return fail(ErrorKind::usage, "--region-key times one region, it makes no profile: leave --export... and --dump... out");
  if (!o.key.empty() && o.model.path.empty()) return bench_key(o);
  OCTAVO_CHECK(check_profile_outputs(o.profile));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  const long memory = memory_kb("VmRSS");
  Given given;
  Declared declared;
  if (!o.input.inputs.empty()) {
    OCTAVO_TRY(declared, declared_inputs(o.model));
    OCTAVO_TRY(given, read_inputs(o.input, declared));
  }
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared, o.model.batch), 1, given.arrays));
  if (!o.key.empty()) {
    progress.reset();
    return bench_key(o, *loaded.engine);
  }
  const auto& plan = loaded.engine->plan();
  const std::int64_t batch = plan.inputs.empty() || plan.inputs[0].type.shape.empty() ? 1 : plan.inputs[0].type.shape[0];
  RunBuffers buffers(plan);
  if (!o.input.inputs.empty()) {
    OCTAVO_TRY(const Feeds feeds, Feeds::create(given, o.input.recipe, stored_recipe(*loaded.engine), plan));
    OCTAVO_TRY(const Feed feed, feeds.at(0));
    buffers.feed(feed.tensors);
  }
  const auto begun = std::chrono::steady_clock::now();
  OCTAVO_TRY(const auto context, engine::Context::create(loaded.engine, loaded.threads));
  OCTAVO_CHECK(context->run(buffers.in, buffers.out));
  const double first = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  progress->step(fmt::format("measure for {} s", o.seconds));
  const OtherLoad others;
  OCTAVO_TRY(const DeviceBuffers on_device, DeviceBuffers::create(*loaded.engine, buffers));
  std::optional<Times> resident;  // inputs and outputs in the device's memory
  if (!on_device.memory.empty()) {
    OCTAVO_TRY(resident, measure(o.seconds, o.least, [&] { return context->run(on_device.in, on_device.out, nullptr); }));
  }
  Times times;
  if (o.no_transfers && resident) {
    times = *std::exchange(resident, std::nullopt);
  } else {
    OCTAVO_TRY(times, measure(o.seconds, o.least, [&] { return context->run(buffers.in, buffers.out); }));
  }
  const double other_cores = others.cores();
  progress.reset();
  if (const std::string text = others.warning(other_cores); !text.empty()) say("warning: {}\n", text);

  const double median = times.quantile(0.5), p99 = times.quantile(0.99), least = times.sorted.front();
  const double mean = std::accumulate(times.sorted.begin(), times.sorted.end(), 0.0) / static_cast<double>(times.sorted.size());
  const auto rate_of = [&](const Times& t) { return static_cast<double>(batch) * static_cast<double>(t.sorted.size()) / t.total; };
  const double rate = rate_of(times);
  const bool gpu = plan.devices.size() > 1;
  if (o.json) {
    nlohmann::json result = {{"model", o.model.path},
                             {"plan_hash", loaded.engine->plan_hash()},
                             {"threads", context->threads()},
                             {"batch", batch},
                             {"runs", times.sorted.size()},
                             {"median_ms", median * 1e3},
                             {"p99_ms", p99 * 1e3},
                             {"mean_ms", mean * 1e3},
                             {"min_ms", least * 1e3},
                             {"processor_ms", times.processor / static_cast<double>(times.sorted.size()) * 1e3},
                             {"images_per_second", rate},
                             {"cores_used_by_others", other_cores},
                             {"first_ms", first * 1e3},
                             {loaded.built ? "build_ms" : "load_ms", loaded.seconds * 1e3},
                             {"memory_kb", memory_kb("VmHWM") - memory}};
    if (gpu) {
      result["device"] = api::runs_on(*loaded.engine);
      result["device_memory"] = {{"arena_bytes", plan.devices[1].arena_bytes}, {"constant_bytes", constants_on_device(plan)}};
      result["transfers"] = !o.no_transfers;
    }
    if (resident) {
      result["no_transfers"] = {{"median_ms", resident->quantile(0.5) * 1e3},
                                {"p99_ms", resident->quantile(0.99) * 1e3},
                                {"images_per_second", rate_of(*resident)}};
    }
    for (const double p : o.percentiles) result[fmt::format("p{:g}_ms", p)] = times.quantile(p / 100) * 1e3;
    fmt::print("{}\n", result.dump());
    return profile_if_wanted(o.profile, loaded);
  }
  const std::string on = !gpu ? threads_text(context->threads()) : o.no_transfers ? "without transfers" : "with transfers";
  fmt::print("{}: batch {}, {}: median {:.3f} ms, p99 {:.3f} ms, best {:.3f} ms, {:.1f} images/s ({} runs)\n", o.model.path, batch,
             on, median * 1e3, p99 * 1e3, least * 1e3, rate, times.sorted.size());
  if (resident) {
    fmt::print(
        "  inputs and outputs in the GPU's memory: median {:.3f} ms, p99 {:.3f} ms, best {:.3f} ms, {:.1f} images/s ({} runs)\n",
        resident->quantile(0.5) * 1e3, resident->quantile(0.99) * 1e3, resident->sorted.front() * 1e3, rate_of(*resident),
        resident->sorted.size());
  }
  if (gpu) {
    constexpr double kMiB = 1 << 20;
    fmt::print("  {}\n  its memory: {:.1f} MiB of weights, {:.1f} MiB for activations\n", api::runs_on(*loaded.engine),
               static_cast<double>(constants_on_device(plan)) / kMiB, static_cast<double>(plan.devices[1].arena_bytes) / kMiB);
  }
  for (const double p : o.percentiles) fmt::print("  p{:g}: {:.3f} ms\n", p, times.quantile(p / 100) * 1e3);
  fmt::print("{}\n", start_text(loaded, first));
  if (o.regions) {
    const int runs = std::clamp(static_cast<int>(o.seconds / median), 3, 200);
    OCTAVO_TRY(const auto profile, context->profile(buffers.in, buffers.out, runs));
    print_regions(plan, profile);
  }
  return profile_if_wanted(o.profile, loaded);
}

}  // namespace

Command add_bench(Arguments& app) {
  auto o = std::make_shared<BenchOptions>();
  add_model_options(app, o->model, true);
  app.add_option("--seconds", o->seconds, "Duration of the measurement in seconds (default 3)")
      ->check(Range{0.01, 86400.0})
      ->type_name("S");
  app.add_flag("--noDataTransfers", o->no_transfers,
               "On a GPU: keep inputs and outputs in GPU memory, so that the times contain no copies (on the CPU there are none)");
  app.add_flag("--regions", o->regions, "Also print the time of each region");
  app.add_option(
         "--region-key", o->key,
         "Measure every tactic for one region instead: the one with this key in MODEL, or without MODEL a region made from the key "
         "(docs/timing-cache.md)")
      ->type_name("KEY");
  app.add_option("--percentile", o->percentiles, "Also print these percentiles, for example 90,95,99.9")
      ->delimiter(',')
      ->check(Range{0.0, 100.0})
      ->allow_extra_args(false)
      ->type_name("P");
  add_input_options(app, o->input);
  add_profile_options(app, o->profile);
  app.add_flag("--json", o->json, "One line of JSON");
  app.footer(
      "Inputs are random unless --input gives data; of several samples, only the first is used.\nExample: "
      "octavo bench model.onnx --threads "
      "1 --seconds 5 --regions");
  const auto* runs = app.get_option("--runs");
  arrange(app, [o = o.get(), runs] {
    take_model_from(o->input.inputs, o->model);
    if (runs->count() > 0) o->least = static_cast<std::size_t>(o->profile.runs);
  });
  only_these(
      app, [o = o.get()] { return !o->key.empty() && o->model.path.empty(); },
      {"--region-key", "--threads", "--device", "--seconds", "--verbose"},
      "--region-key without MODEL times a region made from the key");
  not_these(
      app, [o = o.get()] { return !o->key.empty(); }, {"--json", "--regions", "--percentile", "--noDataTransfers", "--runs"},
      "--region-key times one region, and prints the time of each tactic\n  leave out one of the two");
  return [o] { return bench(*o); };
}

}  // namespace octavo::cli
