// octavo profile: the time of each region, and the files that trtexec writes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>

#include "cli/commands.h"
#include "cli/file.h"
#include "cli/model.h"
#include "cli/run_buffers.h"
#include "report/costs.h"
#include "report/trex.h"
#include "tune/timing_cache.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  int runs = 50;
  std::string profile, layers, times, metadata, output;
  bool separate = false, dump = false, dump_layers = false;
};

Status write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  return write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

Result<int> profile(const Options& o) {
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto loaded, load(o.model, *progress));
  progress.reset();
  const region::Plan& plan = loaded.engine->plan();
  OCTAVO_TRY(const auto context, engine::Context::create(loaded.engine, loaded.threads));
  const RunBuffers b(plan);

  // Whole runs first (what --separateProfileRun asks for; always done: timing regions would disturb them), then regions.
  using Clock = std::chrono::steady_clock;
  const auto zero = Clock::now();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - zero).count(); };
  std::vector<report::RunTime> runs;
  for (int i = 0; i < o.runs + 2; ++i) {
    const double start = since();
    OCTAVO_CHECK(context->run(b.in, b.out));
    if (i >= 2) runs.push_back({start, since()});
  }
  std::vector<std::vector<double>> samples(plan.regions.size());
  double begun = 0;
  engine::Observer observer;
  observer.before = [&](std::size_t, const region::Memory&) { begun = since(); };
  observer.after = [&](std::size_t i, const region::Memory&) { samples[i].push_back(since() - begun); };
  for (int i = 0; i < o.runs; ++i) OCTAVO_CHECK(context->run(b.in, b.out, &observer));
  std::vector<report::LayerTimes> layers;
  for (auto& s : samples) {
    std::sort(s.begin(), s.end());
    layers.push_back({s[s.size() / 2], std::accumulate(s.begin(), s.end(), 0.0) / static_cast<double>(s.size())});
  }

  OCTAVO_CHECK(write_text(o.layers, report::layer_info(plan)));
  OCTAVO_CHECK(write_text(o.profile, report::profile(plan, layers, o.runs)));
  OCTAVO_CHECK(write_text(o.times, report::times(runs)));
  OCTAVO_CHECK(write_text(o.metadata, report::profile_metadata(plan, runs, tune::here(1).device)));
  if (!o.output.empty()) OCTAVO_CHECK(write_text(o.output, report::outputs(plan, b.outputs)));
  if (o.dump_layers) fmt::print("{}", report::layer_info(plan));

  double sum = 0;
  for (const auto& l : layers) sum += l.median;
  fmt::print("{:>4} {:>10} {:>7} {:>9} {:>9}  {}\n", "#", "median us", "share", "GMAC/s", "GB/s", "region (tactic)");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const report::Costs c = report::costs_of(plan.regions[i]);
    const double t = std::max(layers[i].median, 1e-9);
    fmt::print("{:>4} {:>10.1f} {:>6.1f}% {:>9.1f} {:>9.1f}  {} ({})\n", i, t * 1e6, 100 * t / sum,
               static_cast<double>(c.macs) / t / 1e9, static_cast<double>(c.bytes) / t / 1e9, plan.regions[i].name,
               plan.regions[i].tactic);
  }
  std::vector<double> whole;
  for (const auto& r : runs) whole.push_back(r.end - r.start);
  std::nth_element(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2), whole.end());
  fmt::print("whole runs: median {:.3f} ms of {}; regions together {:.3f} ms{}\n", whole[whole.size() / 2] * 1e3, whole.size(),
             sum * 1e3, plan.images > 1 ? fmt::format(" an image, of {}", plan.images) : "");
  return 0;
}

}  // namespace

Command add_profile(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, true);
  app.add_option("--runs,--iterations", o->runs, "How often to run (default 50)")->check(CLI::Range(1, 1000000))->type_name("N");
  app.add_option("--exportProfile", o->profile, "Times of the regions as JSON (docs/profile.md)")->type_name("FILE");
  app.add_option("--exportLayerInfo", o->layers, "The regions as JSON")->type_name("FILE");
  app.add_option("--exportTimes", o->times, "Times of whole runs as JSON")->type_name("FILE");
  app.add_option("--exportOutput", o->output, "The outputs of the last run as JSON")->type_name("FILE");
  app.add_option("--exportMetadata", o->metadata, "Throughput, latency and device as JSON")->type_name("FILE");
  app.add_flag("--separateProfileRun", o->separate, "Accepted: whole runs and regions are always timed apart");
  app.add_flag("--dumpProfile", o->dump, "Accepted: the table is always printed");
  app.add_flag("--dumpLayerInfo", o->dump_layers, "Print the JSON of --exportLayerInfo as well");
  app.add_option_function<std::string>(
         "--profilingVerbosity", [](const std::string&) {}, "Accepted: always detailed")
      ->type_name("LEVEL");
  app.footer("Inputs are random. Example: octavo profile model.onnx --exportProfile m.profile.json --exportLayerInfo m.graph.json");
  return [o] { return profile(*o); };
}

}  // namespace octavo::cli
