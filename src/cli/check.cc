#include "api/check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/inspection.h"
#include "cli/late.h"
#include "cli/model.h"
#include "cli/print.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  InputOptions input;
  std::uint64_t seed = 1;
  std::vector<std::string> data;
  std::size_t samples = 1;
  std::string picture;
  bool json = false;
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

Result<std::vector<Feed>> feeds_for(const Options& o, const Given& given, const engine::Engine& engine) {
  if (o.input.inputs.empty())
    return std::vector<Feed>{{fmt::format("random input, --seed {}", o.seed), api::random_inputs(engine.plan(), o.seed), {}, -1}};
  return make_feeds(given, o.input.recipe, engine);
}

nlohmann::json json_of(const api::CheckReport& report, const std::string& feed) {
  nlohmann::json out{{"sample", feed}, {"ok", report.ok()}, {"first_divergence", report.first_divergence()}};
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
        : equal              ? fmt::format("{} elements equal", r.elements)
                             : fmt::format(
                                   "{} elements; floats within {:.1e} of the largest; {} codes or 16-bit floats differ by one step, because a "
                                                "float sum has another order",
                                   r.elements, r.worst, r.allowed);
    fmt::print("region {} \"{}\" ({}): {}\n", r.region, r.name, r.tactic, verdict);
  }
  if (!report.ok()) fmt::print("first divergence: {}\n", report.first_divergence());
  fmt::print(
      "{}{}: {} regions: {} bit-equal, {} within the float tolerance, {} not judged, {} differ; {} elements: {} differ, {} differ "
      "by "
      "one code because a float sum has another order\n",
      report.ok() ? "ok" : "DIFFERENT", feed.empty() ? "" : " (" + feed + ")", report.regions.size(), exact, within, skipped,
      report.regions.size() - exact - within - skipped, elements, different, allowed);
  return report.ok();
}

Status check_options(const Options& o) {
  if (!o.data.empty() && !o.input.inputs.empty())
    return fail(ErrorKind::usage,
                "--input and --data: one of the two says what the model runs on\n  --data looks at accuracy as well");
  if (!o.picture.empty() && o.data.empty())
    return fail(ErrorKind::usage, "--picture shows what data make of the tensors\n  give --data as well");
  return {};
}

/// Equality with the reference on a few samples, and accuracy on all of them.
Result<int> check(const Options& o) {
  OCTAVO_CHECK(check_options(o));
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
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared), 1, given.arrays));
  std::unique_ptr<FileData> data;
  std::vector<Feed> feeds;
  if (o.data.empty()) {
    OCTAVO_TRY(feeds, feeds_for(o, given, *loaded.engine));
  } else {
    OCTAVO_TRY(data, FileData::open({o.data, o.input.recipe}, inputs_of(loaded.built->model.graph)));
    for (const std::string& w : data->warnings()) say("warning: {}\n", w);
    OCTAVO_TRY(feeds, feeds_of(*data, o.samples, loaded.engine->plan()));
  }
  nlohmann::json json;
  for (const auto& feed : feeds) {
    if (!progress) progress.emplace(o.model.verbose);
    api::CheckOptions options;
    options.progress = [&](std::size_t region, std::size_t count) {
      progress->step(fmt::format("check region {} of {}: {}", region + 1, count, loaded.engine->plan().regions[region].name));
    };
    options.threads = o.model.build.plan.threads;
    OCTAVO_TRY(const auto report, api::check(loaded.engine, loaded.built->graph, feed.tensors, options));
    progress.reset();
    if (o.json) json["checked"].push_back(json_of(report, feed.name));
    ok = (o.json ? report.ok() : print_report(report, feed.name, o.model.verbose)) && ok;
  }
  const bool rounded = data && rounds(o.model, *loaded.built);
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
  return ok ? 0 : 1;
}

}  // namespace

Command add_check(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, false);
  add_input_options(app, o->input);
  app.add_option("--seed", o->seed, "Seed of the random input that is used without --input")->type_name("N");
  app.add_option("--data", o->data,
                 "A folder, pictures, .npy or .npz files; repeat for more. check then also reports where int8 loses accuracy "
                 "(docs/doctor.md)")
      ->type_name("PATH");
  app.add_option("--samples", o->samples,
                 "With --data: compare so many samples with the reference, spread evenly over the data (default 1)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app.add_option("--picture", o->picture,
                 "With --data: write the signal to noise of each rounded tensor and layer as a picture (.svg)")
      ->type_name("FILE");
  app.add_flag("--json", o->json, "Print JSON");
  app.footer(
      "Compares each region with the reference evaluator on the region's own inputs, so the first region that differs is the "
      "faulty one. 8-bit\n"
      "results must be equal bit for bit. The reference takes seconds to minutes. The exit code is 1 if a region differs.\n"
      "With --data, check then reports for all samples how much each rounded tensor clips, how many codes it uses, and which "
      "layers add the error.\n"
      "Examples: octavo check model.onnx --input photo.jpg --preset torch\n"
      "          octavo check model.q.onnx --data photos/ --preset torch --picture error.svg");
  return [o] {
    take_model_from(o->input.inputs, o->model);
    return check(*o);
  };
}

}  // namespace octavo::cli
