#include "cli/commands/profiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "api/check.h"
#include "base/write_file.h"
#include "cli/commands/other_load.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/shape_sets.h"
#include "cli/print.h"
#include "report/costs.h"
#include "report/trex.h"
#include "tune/timing_cache.h"

namespace octavo::cli {
namespace {

using Clock = std::chrono::steady_clock;

Status write_text(const std::string& path, const std::string& text) {
  return path.empty() ? Status() : write_file(path, text);
}

void print_table(const region::Plan& plan, const std::vector<report::LayerTimes>& layers,
                 const std::vector<report::RunTime>& runs) {
  double sum = 0;
  for (const auto& l : layers) sum += l.median;
  fmt::print("{:>4} {:>10} {:>7} {:>9} {:>9}  {}\n", "#", "median us", "share", "GMAC/s", "GB/s", "region (tactic)");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const report::Costs c = report::costs_of(plan.regions[i], plan);
    const double t = std::max(layers[i].median, 1e-9);
    fmt::print("{:>4} {:>10.1f} {:>6.1f}% {:>9.1f} {:>9.1f}  {} ({})\n", i, t * 1e6, 100 * t / std::max(sum, 1e-9),
               static_cast<double>(c.macs) / t / 1e9, static_cast<double>(c.bytes) / t / 1e9, plan.regions[i].name,
               plan.regions[i].tactic.name());
  }
  std::vector<double> whole;
  for (const auto& r : runs) whole.push_back(r.end - r.start);
  std::nth_element(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2), whole.end());
  fmt::print("whole runs: median {:.3f} ms of {}; regions together {:.3f} ms{}\n", whole[whole.size() / 2] * 1e3, whole.size(),
             sum * 1e3, plan.images > 1 ? fmt::format(" an image, of {}", plan.images) : "");
}

}  // namespace

void add_profile_options(Arguments& app, ProfileOptions& o) {
  app.add_option("--runs,--iterations", o.runs,
                 "Number of runs for a profile (default 50); bench also makes at least this many (default 10)")
      ->check(Range{1, 1000000})
      ->type_name("N");
  app.add_option("--exportProfile", o.profile, "Write the times of the regions as JSON (docs/profile.md)")->writes("FILE");
  app.add_option("--exportLayerInfo", o.layers, "Write the regions as JSON")->writes("FILE");
  app.add_option("--exportTimes", o.times, "Write the times of whole runs as JSON")->writes("FILE");
  app.add_option("--exportOutput", o.output, "Write the outputs as JSON")->writes("FILE");
  has_effect_or_note(app,
                     app.add_flag("--separateProfileRun", o.separate,
                                  "Accepted without effect: whole runs and regions are always measured separately"),
                     [](const std::string&) { return "whole runs and regions are always measured separately"; });
  app.add_flag("--dumpProfile", o.dump, "Print the time of each region");
  app.add_flag("--dumpLayerInfo", o.dump_layers, "Print the JSON of --exportLayerInfo as well");
  has_effect_or_note(
      app,
      app.add_option("--profilingVerbosity", o.verbosity, "Detail of --exportLayerInfo: detailed (default), layer_names_only, none")
          ->check(OneOf({"detailed", "layer_names_only", "none"}))
          ->type_name("LEVEL"),
      [&o](const std::string&) {
        return o.layers.empty() && !o.dump_layers ? "it applies to --exportLayerInfo and --dumpLayerInfo, and neither is given"
                                                  : "";
      });
}

Status check_profile_outputs(const ProfileOptions& o) {
  return check_outputs({o.profile, o.layers, o.times, o.metadata, o.output});
}

Status export_layers(const ProfileOptions& o, const region::Plan& plan) {
  if (o.layers.empty() && !o.dump_layers) return {};
  const auto detail = o.verbosity == "none"               ? report::LayerDetail::none
                      : o.verbosity == "layer_names_only" ? report::LayerDetail::names
                                                          : report::LayerDetail::all;
  const std::string text = report::layer_info(plan, detail);
  OCTAVO_CHECK(write_text(o.layers, text));
  if (o.dump_layers) fmt::print("{}", text);
  return {};
}

Result<int> run_profile(const ProfileOptions& o, const Loaded& loaded, const std::vector<Feed>& given, bool table) {
  const region::Plan& plan = loaded.engine->plan();
  const auto created = Clock::now();
  OCTAVO_TRY(const auto context, engine::Context::create(loaded.engine, loaded.threads));
  double first = std::chrono::duration<double>(Clock::now() - created).count();
  std::vector<Feed> feeds = given;
  if (feeds.empty()) feeds.push_back({"", api::random_inputs(plan, 1), {}, -1});
  std::vector<std::vector<const void*>> in(feeds.size());
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    for (const auto& t : feeds[f].tensors) in[f].push_back(t.bytes().data());
  }
  std::vector<ir::Tensor> outputs;
  std::vector<void*> out;
  for (const auto& b : plan.outputs) outputs.emplace_back(b.type);
  for (auto& t : outputs) out.push_back(t.mutable_bytes().data());

  const OtherLoad others;
  // Whole runs first (what --separateProfileRun asks for; always done: timing regions would disturb them), then regions.
  const auto zero = Clock::now();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - zero).count(); };
  std::vector<report::RunTime> runs;
  for (int i = -2; i < o.runs; ++i) {
    const auto& feed = in[static_cast<std::size_t>(std::max(i, 0)) % in.size()];
    const double start = since();
    OCTAVO_CHECK(context->run(feed, out));
    if (i == -2) first += since() - start;
    if (i >= 0) runs.push_back({start, since()});
  }
  std::vector<std::vector<double>> samples(plan.regions.size());
  double begun = 0;
  engine::Observer observer;
  observer.before = [&](std::size_t, const region::Memory&) { begun = since(); };
  observer.after = [&](std::size_t i, const region::Memory&) { samples[i].push_back(since() - begun); };
  for (int i = 0; i < o.runs; ++i) OCTAVO_CHECK(context->run(in[static_cast<std::size_t>(i) % in.size()], out, &observer));
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {  // by the device's own clock: the host's has the start of a kernel in it
    if (plan.regions[i].device == region::kHost || region::is_transfer(plan.regions[i], plan)) continue;
    samples[i].clear();
    constexpr int kSamples = 10, kLaunches = 8;
    for (int k = 0; k < std::min(o.runs, kSamples); ++k) {
      OCTAVO_TRY(const double seconds, context->time(i, i + 1, kLaunches));
      samples[i].push_back(seconds);
    }
  }
  std::vector<report::LayerTimes> layers;
  for (auto& s : samples) {
    std::sort(s.begin(), s.end());
    layers.push_back({s[s.size() / 2], std::accumulate(s.begin(), s.end(), 0.0) / static_cast<double>(s.size())});
  }

  if (const std::string text = others.warning(others.cores()); !text.empty()) say("warning: {}\n", text);
  OCTAVO_CHECK(export_layers(o, plan));
  std::vector<report::LayerTimes> whole = layers;  // of a run: a plan for one image runs its regions once an image
  for (auto& l : whole) l.median *= static_cast<double>(plan.images), l.mean *= static_cast<double>(plan.images);
  OCTAVO_CHECK(write_text(o.profile, report::profile(plan, whole, o.runs)));
  OCTAVO_CHECK(write_text(o.times, report::times(runs)));
  OCTAVO_CHECK(write_text(o.metadata, report::profile_metadata(plan, runs, api::runs_on(context->engine()))));
  if (!o.output.empty()) {
    OCTAVO_CHECK(context->run(in[0], out));
    OCTAVO_CHECK(write_text(o.output, report::outputs(plan, outputs)));
  }
  if (!table && !o.dump) return 0;
  print_table(plan, layers, runs);
  fmt::print("{}{}\n", range_lines(loaded), start_text(loaded, first));
  return 0;
}

Result<int> profile_if_wanted(const ProfileOptions& o, const Loaded& loaded) {
  if (o.runs_wanted()) return run_profile(o, loaded, {}, false);
  OCTAVO_CHECK(export_layers(o, loaded.engine->plan()));
  return 0;
}

}  // namespace octavo::cli
