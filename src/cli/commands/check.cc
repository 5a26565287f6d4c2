#include "api/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/commands/compare.h"
#include "cli/commands/inspection.h"
#include "cli/effect.h"
#include "cli/inputs/inputs.h"
#include "cli/inputs/late.h"
#include "cli/inputs/model.h"
#include "cli/print.h"
#include "plan/candidates/narrow.h"

namespace octavo::cli {
namespace {

/// The exit code where nothing differs and the reference could not judge everything.
constexpr int kNotFullyJudged = 8;

struct CheckCommandOptions {
  ModelOptions model;
  InputOptions input;
  std::uint64_t seed = 1;
  std::vector<std::string> data;
  std::size_t samples = 0;  ///< 0: as many as is usual
  std::string picture;
  bool json = false, from_model = false;
  CompareOptions compare;
  bool tolerance = false;  ///< one is given
};

/// The samples that the reference judges, evenly spread over the data.
Result<std::vector<Feed>> feeds_of(const FileData& data, std::size_t count, const region::Plan& plan) {
  const quantize::Part part(data, count);
  std::vector<Feed> out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    OCTAVO_TRY(quantize::Sample sample, part.at(i));
    for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
      if (sample.inputs[k].type() == plan.inputs[k].type) continue;
      return fail(ErrorKind::usage,
                  fmt::format("--data gives input \"{}\" as {}, and the engine takes {}\n  leave out --bind and "
                              "--inputIOFormats",
                              plan.inputs[k].name, ir::to_string(sample.inputs[k].type()), ir::to_string(plan.inputs[k].type)));
    }
    out.push_back({sample.name, std::move(sample.inputs), {}, -1});
  }
  return out;
}

Result<std::vector<Feed>> feeds_for(const CheckCommandOptions& o, const Given& given, const engine::Engine& engine) {
  if (o.input.inputs.empty())
    return std::vector<Feed>{{fmt::format("random input, --seed {}", o.seed), api::random_inputs(engine.plan(), o.seed), {}, -1}};
  return make_feeds(given, o.input.recipe, engine);
}

nlohmann::json json_of(const api::CheckReport& report, const std::string& feed) {
  nlohmann::json out{
      {"sample", feed}, {"ok", report.ok()}, {"complete", report.complete()}, {"first_divergence", report.first_divergence()}};
  for (const auto& r : report.regions) {
    out["regions"].push_back({{"region", r.region},
                              {"name", r.name},
                              {"tactic", r.tactic},
                              {"elements", r.elements},
                              {"different", r.different},
                              {"allowed", r.allowed},
                              {"worst", r.worst},
                              {"skipped", r.skipped}});
  }
  return out;
}

/// Prints what differs (with --verbose: every region) and a closing line; true if nothing does.
bool print_report(const api::CheckReport& report, const std::string& feed, bool verbose) {
  std::int64_t elements = 0, different = 0, allowed = 0;
  std::size_t exact = 0, within = 0, skipped = 0, other = 0;  // other: judged with the regions that read their results
  for (const auto& r : report.regions) {
    elements += r.elements;
    different += r.different;
    allowed += r.allowed;
    const bool equal = r.ok() && r.worst == 0 && r.allowed == 0;
    const bool unjudged = r.elements == 0 && !r.skipped.empty();
    const bool elsewhere = r.elements == 0 && r.skipped.empty();
    if (r.ok()) ++(unjudged || !r.skipped.empty() ? skipped : elsewhere ? other : equal ? exact : within);
    if (r.ok() && r.skipped.empty() && !verbose) continue;
    const std::string verdict =
        !r.ok()              ? fmt::format("{} of {} elements differ ({} by one code)", r.different, r.elements, r.off_by_one)
        : !r.skipped.empty() ? fmt::format("not all compared: {}", r.skipped)
        : elsewhere          ? "the model does not name its results: compared together with the regions that read them"
        : equal              ? fmt::format("{} elements equal", r.elements)
                             : fmt::format(
                                   "{} elements; floats within {:.1e} of the largest; {} codes differ at rounding ties of a float sum, or "
                                                "16-bit floats by one step",
                                   r.elements, r.worst, r.allowed);
    fmt::print("region {} \"{}\" ({}): {}\n", r.region, r.name, r.tactic, verdict);
  }
  if (!report.ok()) fmt::print("first divergence: {}\n", report.first_divergence());
  const std::string judged = other > 0 ? fmt::format(", {} compared with others", other) : "";
  fmt::print(
      "{}{}: {} regions: {} bit-equal, {} within the float tolerance{}, {} not judged, {} differ; {} elements: {} differ, {} "
      "accepted at rounding ties of float sums\n",
      !report.ok()         ? "DIFFERENT"
      : !report.complete() ? "NOT FULLY JUDGED"
                           : "ok",
      feed.empty() ? "" : " (" + feed + ")", report.regions.size(), exact, within, judged, skipped,
      report.regions.size() - exact - within - skipped - other, elements, different, allowed);
  return report.ok();
}

/// Tensors that are stored in float16, the largest magnitude in all samples first: at most ten.
std::vector<std::pair<std::string, double>> nearest_to_the_end(const std::map<std::string, double>& float16) {
  constexpr std::size_t kMost = 10;
  std::vector<std::pair<std::string, double>> out(float16.begin(), float16.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (out.size() > kMost) out.resize(kMost);
  return out;
}

std::string float16_text(const std::map<std::string, double>& float16, std::size_t samples) {
  if (float16.empty()) return "";
  std::string text =
      fmt::format("\nfloat16 ends at {}; of {} tensor{} in float16, largest magnitude{} in {} sample{}:\n", plan::kFloat16End,
                  float16.size(), float16.size() == 1 ? "" : "s", float16.size() == 1 ? "" : "s", samples, samples == 1 ? "" : "s");
  for (const auto& [tensor, largest] : nearest_to_the_end(float16)) {
    text += std::isfinite(largest)
                ? fmt::format("  {:>11.5g}  {:>5.1f} %  {}\n", largest, 100 * largest / plan::kFloat16End, tensor)
                : fmt::format("  {:>11}  beyond   {}\n", "inf", tensor);
  }
  return text;
}

Status check_options(const CheckCommandOptions& o) {
  const bool compares = !o.compare.other.empty() || !o.compare.against.empty();
  if (o.tolerance && !compares) {
    return fail(ErrorKind::usage,
                "--rtol, --atol: are for two models\n  octavo check A B, or octavo check MODEL --against onnxruntime; the "
                "reference compares codes bit for bit");
  }
  if (compares && (o.from_model || !o.picture.empty())) {
    return fail(ErrorKind::usage,
                fmt::format("{}: is for one model, which is compared with the reference\n  leave it out, or the second model",
                            o.from_model ? "--from-model" : "--picture"));
  }
  if (o.from_model &&
      (!o.model.calibration.empty() || o.model.build.plan.permit_pairs || !o.model.allow.empty() || !o.model.precision.empty())) {
    return fail(ErrorKind::usage,
                "--from-model: the model itself does not round where --calibration, --qdq permit, --precision and --allow permit "
                "it\n  without --from-model, the plan is compared as it was made");
  }
  if (!o.data.empty() && !o.input.inputs.empty())
    return fail(ErrorKind::usage, "--input and --data: give one of the two\n  --data also reports the accuracy");
  if (!o.picture.empty() && o.data.empty())
    return fail(ErrorKind::usage, "--picture shows the error of tensors on data\n  give --data as well");
  return {};
}

/// The samples that two models run on: those asked for, or all.
Result<std::vector<Feed>> compared_feeds(const CheckCommandOptions& o, const Given& given, const engine::Engine& engine) {
  if (o.data.empty()) return feeds_for(o, given, engine);
  OCTAVO_TRY(const auto data, FileData::open({o.data, o.input.recipe}, inputs_of(engine.plan())));
  for (const std::string& w : data->warnings()) say("warning: {}\n", w);
  return feeds_of(*data, o.samples > 0 ? o.samples : data->size(), engine.plan());
}

/// Two models on the same inputs.
Result<int> check_two(const CheckCommandOptions& o) {
  const ModelOptions mine = options_of_first(o.model, o.compare.other);
  OCTAVO_TRY(const auto declared, declared_inputs(mine));
  Given given;
  if (!o.input.inputs.empty()) {
    OCTAVO_TRY(given, read_inputs(o.input, declared));
  }
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto loaded, load(mine, *progress, shapes_of(given, declared, mine.batch), 1, given.arrays));
  OCTAVO_TRY(const auto feeds, compared_feeds(o, given, *loaded.engine));
  CompareOptions options = o.compare;
  options.json = o.json;
  return compare(o.model, options, loaded, feeds, given.arrays, progress);
}

/// Equality with the reference on a few samples, and accuracy on all of them.
Result<int> check(const CheckCommandOptions& o) {
  OCTAVO_CHECK(check_options(o));
  if (!o.compare.other.empty() || !o.compare.against.empty()) return check_two(o);
  bool ok = true, complete = true;
  Given given;
  OCTAVO_TRY(const auto declared, declared_inputs(o.model));
  if (declared.is_engine)
    return fail(
        ErrorKind::usage,
        fmt::format("check needs the ONNX model, not an engine (\"{0}\"): the reference reads the graph\n  two files are compared "
                    "with each other: octavo check {0} MODEL.onnx",
                    o.model.path));
  if (!o.input.inputs.empty()) {
    OCTAVO_TRY(given, read_inputs(o.input, declared));
  }
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared, o.model.batch), 1, given.arrays));
  std::unique_ptr<FileData> data;
  std::vector<Feed> feeds;
  if (o.data.empty()) {
    OCTAVO_TRY(feeds, feeds_for(o, given, *loaded.engine));
  } else {
    OCTAVO_TRY(data, FileData::open({o.data, o.input.recipe}, inputs_of(loaded.built->model.graph)));
    for (const std::string& w : data->warnings()) say("warning: {}\n", w);
    OCTAVO_TRY(feeds, feeds_of(*data, std::max<std::size_t>(o.samples, 1), loaded.engine->plan()));
  }
  nlohmann::json json;
  std::map<std::string, double> float16;
  for (const auto& feed : feeds) {
    if (!progress) progress.emplace(o.model.verbose);
    api::CheckOptions options;
    options.progress = [&](std::size_t region, std::size_t count) {
      progress->step(fmt::format("check region {} of {}: {}", region + 1, count, loaded.engine->plan().regions[region].name));
    };
    options.threads = o.model.build.plan.threads;
    if (o.from_model) options.model = &loaded.built->model.graph;
    OCTAVO_TRY(const auto report, api::check(loaded.engine, loaded.built->graph, feed.tensors, options));
    progress.reset();
    for (const auto& r : report.regions) {
      for (const auto& [tensor, largest] : r.float16) {
        double& kept = float16[tensor];
        kept = std::max(kept, largest);
      }
    }
    if (o.json) json["checked"].push_back(json_of(report, feed.name));
    complete = complete && report.complete();
    ok = (o.json ? report.ok() : print_report(report, feed.name, o.model.verbose)) && ok;
  }
  for (const auto& [tensor, largest] : nearest_to_the_end(float16)) {
    const bool finite = std::isfinite(largest);
    json["float16"].push_back(
        {{"tensor", tensor}, {"largest", finite ? nlohmann::json(largest) : nlohmann::json()}, {"overflows", !finite}});
  }
  if (data && !o.json) fmt::print("{}", float16_text(float16, feeds.size()));
  const bool rounded = data && rounds(o.model, *loaded.built);
  if (!rounded && !o.picture.empty())
    return fail(ErrorKind::usage,
                fmt::format("--picture {}: nothing is rounded: the model has no Q/DQ pairs, and no ranges were given\n"
                            "  leave it out, or give ranges: --calibration FILE",
                            o.picture));
  if (rounded) {
    progress.emplace(o.model.verbose);
    OCTAVO_TRY(const auto inspection, inspect_on(o.model, *loaded.built, *data, *progress));
    progress.reset();
    if (!o.picture.empty()) OCTAVO_CHECK(write_picture(inspection, o.picture));
    if (o.json) add_json(inspection, json);
    if (!o.json) fmt::print("\n{}{}", tensors_text(inspection, data->size()), outputs_text(inspection, data->size()));
  } else if (data && !o.json) {
    fmt::print("nothing is rounded: the model has no Q/DQ pairs, and no ranges were given (octavo quantize makes both)\n");
  }
  if (o.json) fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  return !ok ? 1 : complete ? 0 : kNotFullyJudged;
}

}  // namespace

Command add_check(Arguments& app) {
  auto o = std::make_shared<CheckCommandOptions>();
  add_model_options(app, o->model, true);
  app.add_option("OTHER", o->compare.other,
                 "A second model or engine; check then compares the outputs of the two, without the reference")
      ->reads("FILE");
  app.add_option(
         "--against", o->compare.against,
         "onnxruntime: compare with ONNX Runtime, which runs OTHER (or MODEL, if there is no OTHER) in a process of its own. "
         "OCTAVO_PYTHON names the Python that has the package (default: python3)")
      ->check(OneOf({"onnxruntime"}))
      ->type_name("NAME");
  app.add_option_function<double>(
         "--atol", [o](double x) { o->compare.atol = x, o->tolerance = true; },
         fmt::format("Two models: an element may differ by X + rtol * |value of the second model| (default {:g})", o->compare.atol))
      ->check(AtLeast{0.0})
      ->type_name("X");
  app.add_option_function<double>(
         "--rtol", [o](double x) { o->compare.rtol = x, o->tolerance = true; },
         fmt::format("Two models: the relative tolerance (default {:g})", o->compare.rtol))
      ->check(AtLeast{0.0})
      ->type_name("X");
  app.add_flag("--from-model", o->from_model,
               "Compare with the graph as imported, before laws and rewrites, instead of the graph that the plan was made from");
  add_input_options(app, o->input);
  app.add_option("--seed", o->seed, "Seed of the random input that is used without --input")->type_name("N");
  app.add_option("--data", o->data,
                 "A folder, pictures, .npy or .npz files; repeat for more. check then also reports where int8 loses accuracy "
                 "(docs/doctor.md)")
      ->reads("PATH");
  app.add_option(
         "--samples", o->samples,
         "With --data: the number of samples to compare with the reference, spread evenly over the data (default 1). Two models: "
         "the number of samples to run (default all)")
      ->check(Range{1, 1000000})
      ->type_name("N");
  app.add_option("--picture", o->picture,
                 "With --data: write the signal to noise of each rounded tensor and layer as a picture (.svg)")
      ->writes("FILE");
  app.add_flag("--json", o->json, "Print JSON");
  app.footer(
      "Compares each region with the reference evaluator on the region's own inputs, so an error in one region does not "
      "hide others. 8-bit\n"
      "results must be equal bit for bit, except at rounding ties of float sums. The reference takes seconds to minutes.\n"
      "The exit code is 1 if a region differs, and 8 if none differs but the reference could not evaluate all of them.\n"
      "With --data, check then reports for all samples how much each rounded tensor clips, how many codes it uses, and which "
      "layers add the error.\n"
      "Examples: octavo check model.onnx --input photo.jpg --preset torch\n"
      "          octavo check model.q.onnx --data photos/ --preset torch --picture error.svg\n"
      "          octavo check model.onnx model.octavo --atol 1e-3\n"
      "          octavo check model.onnx --against onnxruntime");
  o->input.data = &o->data;
  o->model.others = [o = o.get()] { return std::vector<std::string>{o->compare.other}; };
  not_these(
      app, [o = o.get()] { return !o->input.inputs.empty() || !o->data.empty(); }, {"--seed"},
      "it makes a random input, and --input or --data gives one\n  leave out one of the two");
  not_these(
      app, [o = o.get()] { return o->data.empty(); }, {"--samples"},
      "it counts samples of --data, which is not given\n  give --data as well");
  arrange(app, [o = o.get()] {
    const bool named = !o->model.path.empty();
    take_model_from(o->input.inputs, o->model);
    if (!named && !o->input.inputs.empty()) {  // --input x.npy A B
      ModelOptions first;
      take_model_from(o->input.inputs, first);
      if (!first.path.empty()) o->compare.other = std::exchange(o->model.path, first.path);
    }
  });
  return [o] { return check(*o); };
}

}  // namespace octavo::cli
