#include "api/check.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/model.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  InputOptions input;
  std::uint64_t seed = 1;
};

Result<std::vector<Feed>> feeds_for(const Options& o, const Given& given, const engine::Engine& engine) {
  if (o.input.inputs.empty())
    return std::vector<Feed>{{fmt::format("random input, --seed {}", o.seed), api::random_inputs(engine.plan(), o.seed), {}, -1}};
  return make_feeds(given, o.input.recipe, engine);
}

/// Prints what differs (with --verbose: every region) and a closing line; true if nothing does.
bool print_report(const api::CheckReport& report, const std::string& feed, bool verbose) {
  std::int64_t elements = 0, different = 0, allowed = 0;
  std::size_t exact = 0, within = 0, skipped = 0;
  for (const auto& r : report.regions) {
    elements += r.elements;
    different += r.different;
    allowed += r.allowed;
    const bool equal = r.ok() && r.worst == 0 && r.allowed == 0;
    const bool unjudged = r.elements == 0 && !r.skipped.empty();
    (unjudged ? skipped : equal ? exact : within) += r.ok() ? 1 : 0;
    if (r.ok() && r.skipped.empty() && !verbose) continue;
    const std::string verdict =
        !r.ok()              ? fmt::format("{} of {} elements differ ({} by one code)", r.different, r.elements, r.off_by_one)
        : !r.skipped.empty() ? fmt::format("not all compared: {}", r.skipped)
        : equal
            ? fmt::format("{} elements equal", r.elements)
            : fmt::format(
                  "{} elements; floats within {:.1e} of the largest, {} codes or 16-bit floats off by one step behind a float sum",
                  r.elements, r.worst, r.allowed);
    fmt::print("region {} \"{}\" ({}): {}\n", r.region, r.name, r.tactic, verdict);
  }
  if (!report.ok()) fmt::print("first divergence: {}\n", report.first_divergence());
  fmt::print(
      "{}{}: {} regions: {} bit-equal, {} within the float tolerance, {} not judged, {} differ; {} elements, {} differ, {} off by "
      "one behind a float sum\n",
      report.ok() ? "ok" : "DIFFERENT", feed.empty() ? "" : " (" + feed + ")", report.regions.size(), exact, within, skipped,
      report.regions.size() - exact - within - skipped, elements, different, allowed);
  return report.ok();
}

Result<int> check(const Options& o) {
  bool ok = true;
  Given given;
  OCTAVO_TRY(const auto declared, declared_inputs(o.model));
  if (declared.is_engine)
    return fail(ErrorKind::usage,
                fmt::format("check needs the ONNX model, not an engine (\"{}\"): the reference reads the graph", o.model.path));
  if (!o.input.inputs.empty()) {
    OCTAVO_TRY(given, read_inputs(o.input, declared));
  }
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared)));
  OCTAVO_TRY(const auto feeds, feeds_for(o, given, *loaded.engine));
  for (const auto& feed : feeds) {
    if (!progress) progress.emplace(o.model.verbose);
    api::CheckOptions options;
    options.progress = [&](std::size_t region, std::size_t count) {
      progress->step(fmt::format("check region {} of {}: {}", region + 1, count, loaded.engine->plan().regions[region].name));
    };
    options.threads = o.model.build.plan.threads;
    OCTAVO_TRY(const auto report, api::check(loaded.engine, loaded.built->graph, feed.tensors, options));
    progress.reset();
    ok = print_report(report, feed.name, o.model.verbose) && ok;
  }
  return ok ? 0 : 1;
}

}  // namespace

Command add_check(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, false);
  add_input_options(app, o->input);
  app.add_option("--seed", o->seed, "Seed of the random input that is used without --input")->type_name("N");
  app.footer(
      "Feeds the reference with each region's own inputs, so that the first region that differs is the one at fault. 8-bit results "
      "must be\n"
      "equal bit for bit. Takes as long as the reference does: seconds to minutes. Exit code 1 on a difference.\n"
      "Example: octavo check model.onnx --input photo.jpg --preset torch");
  return [o] {
    take_model_from(o->input.inputs, o->model);
    return check(*o);
  };
}

}  // namespace octavo::cli
