#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "api/open_file.h"
#include "api/used_gpu.h"
#include "base/build_work.h"
#include "base/write_file.h"
#include "cli/commands/changed_outputs.h"
#include "cli/commands/commands.h"
#include "cli/commands/diagnosis.h"
#include "cli/commands/float_share.h"
#include "cli/commands/inspection.h"
#include "cli/commands/kept_float.h"
#include "cli/commands/profiling.h"
#include "cli/commands/slow_share.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/gpu_option.h"
#include "cli/inputs/model.h"
#include "cli/inputs/recipe.h"
#include "cli/inputs/shape_sets.h"
#include "cli/inputs/sign_option.h"
#include "cli/outputs/outcome.h"
#include "cli/print.h"
#include "cuda/device/absent_gpu.h"
#include "cuda/device/compile_pool.h"
#include "engine/source.h"
#include "plan/candidates/narrow.h"
#include "report/explain.h"
#include "report/sentences.h"
#include "report/trex.h"
#include "tune/timing_cache.h"

namespace octavo::cli {
namespace {

struct BuildCommandOptions {
  ModelOptions model;
  ProfileOptions profile;
  RecipeOptions recipe;
  std::string output, metadata, sign;
  bool no_model = false;
  std::vector<std::string> data;
};

/// What ranges made of the network, and which of them had no effect.
std::string permitted_summary(const plan::PermitReport& report, bool data) {
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    constexpr std::size_t kMost = 12;
    for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += "\n  " + names[i];
    if (names.size() > kMost) text += fmt::format("\n  and {} more", names.size() - kMost);
    return text + "\n";
  };
  std::string text = fmt::format("ranges: {} weighted layers int8 by permission, {} by the model's Q/DQ, {} float{}\n",
                                 report.int8_layers, report.demanded_layers, report.float_layers,
                                 report.bfloat16_layers > 0 ? fmt::format(", {} bfloat16", report.bfloat16_layers) : "");
  if (!report.unmatched.empty())
    text += fmt::format("{} ranges name no tensor of the model:{}", report.unmatched.size(), list(report.unmatched));
  if (!report.unusable.empty())
    text += fmt::format("{} ranges are 0 or infinite and are ignored:{}", report.unusable.size(), list(report.unusable));
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [node, why] : report.why_float) reasons[report::sentence(why)].push_back(node);
  for (const auto& [why, nodes] : reasons)
    text += fmt::format("{} layer{} float: {}\n", nodes.size(), nodes.size() == 1 ? "" : "s", why);
  if (!data) text += "estimated signal to noise: unknown: no data (--data FOLDER measures it)\n";
  if (!report.missing.empty())
    text += fmt::format("{} tensors without a range keep a layer float:{}", report.missing.size(), list(report.missing));
  return text;
}

/// Where float16 is allowed: that ranges are those of a random input, or are not known at all.
std::string magnitudes_line(const plan::PermitReport& report, const region::Plan& plan) {
  if (!report.magnitudes) return "";
  const plan::SampledMagnitudes& m = *report.magnitudes;
  const bool stores = std::any_of(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) {
    return r.precision.has(ir::DType::f16) || std::any_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) {
             return std::any_of(s.stores.begin(), s.stores.end(), [](const auto& t) { return t.dtype == ir::DType::f16; });
           });
  });
  if (!stores && m.large.empty()) return "";  // nothing is float16 that could overflow, or would be
  const std::string real = "--calibration TABLE gives the ranges of real data (docs/precision.md)";
  switch (m.found) {
    case plan::SampledMagnitudes::Found::values:
      return fmt::format(
          "float16: ranges were taken from one random input, which is no proof: {}; {}\n",
          m.large.empty() ? fmt::format("no tensor comes near {}", plan::kFloat16End)
                          : fmt::format("{} tensor{} reach{} {} and stay{} wider", m.large.size(), m.large.size() == 1 ? "" : "s",
                                        m.large.size() == 1 ? "es" : "", plan::kFloat16Limit, m.large.size() == 1 ? "s" : ""),
          real);
    case plan::SampledMagnitudes::Found::too_long:
      return fmt::format(
          "float16: no ranges are known, so a value beyond {} becomes infinite: evaluating the model once on a random "
          "input would take about {:.0f} s, and {:.0f} s are the most; {}\n",
          plan::kFloat16End, m.seconds, plan::kMostEvaluation, real);
    case plan::SampledMagnitudes::Found::failed: break;
  }
  return fmt::format(
      "float16: no ranges are known, so a value beyond {} becomes infinite: the model cannot be evaluated on a random "
      "input ({}); {}\n",
      plan::kFloat16End, m.error, real);
}

report::BuildOptions build_options(const BuildCommandOptions& o, const engine::Engine& engine) {
  report::BuildOptions b;
  b.model = o.model.path;
  b.engine = o.output;
  b.effort = o.model.build.plan.effort;
  b.timing_cache = o.model.build.timing.cache;
  b.calibration = o.model.calibration;
  b.device = api::runs_on(engine);
  return b;
}

/// The preprocessing that the options name, for the only input that takes pictures.
Result<engine::Notes> recipe_note(const BuildCommandOptions& o, const region::Plan& plan) {
  if (!o.recipe.given()) return engine::Notes();
  for (const auto& input : plan.inputs) {
    bool channels_last = false;
    if (!picture_shape(input.type.shape, o.recipe.layout, channels_last)) continue;
    OCTAVO_TRY(const auto recipe, recipe_of(o.recipe, "", input.type.shape));
    return engine::Notes{{kRecipeNote, recipe_text(recipe)}};
  }
  return fail(ErrorKind::usage, "a preprocessing is given (--preset, --scale, ...), but no input of the model takes a picture");
}

/// --data and a float model without ranges: octavo quantize with its defaults, in memory. Nothing otherwise.
Result<std::optional<quantize::Outcome>> quantize_first(const BuildCommandOptions& o, ModelOptions& model) {
  std::optional<quantize::Outcome> none;
  if (o.data.empty() || !model.calibration.empty() || is_engine_file(model.path)) return none;
  OCTAVO_TRY(const api::PipelineOptions build, pipeline_options(model));
  OCTAVO_TRY(const auto session, session_of(model));
  quantize::Options options;
  options.import = build.import;
  options.import.display_name = model.path;
  options.threads = build.plan.threads > 0 ? build.plan.threads : engine::available_cores();
  OCTAVO_TRY(const auto imported, session->imported(options.import));
  const ir::Graph& graph = imported->graph;
  const auto order = graph.order();
  if (std::any_of(order.begin(), order.end(), [&](ir::NodeId id) { return graph.node(id).quantizer.has_value(); })) return none;
  OCTAVO_TRY(const auto data, FileData::open({o.data, o.recipe}, inputs_of(graph)));
  Progress progress(model.verbose);
  options.progress = quantize_watcher(progress, model.verbose);
  OCTAVO_TRY(quantize::Outcome out, quantize::quantize(session->parsed(), *imported, *data, options));
  print_warnings(*data, out);
  OCTAVO_TRY(model.made, api::Session::made(*out.model));
  return std::optional<quantize::Outcome>(std::move(out));
}

/// What the roundings that the model or its ranges ask for do on the data.
Result<std::string> accuracy_on(const BuildCommandOptions& o, const Loaded& loaded, const FileData& data) {
  if (!rounds(o.model, *loaded.built)) return std::string();
  Progress progress(o.model.verbose);
  for (const std::string& w : data.warnings()) say("warning: {}\n", w);
  OCTAVO_TRY(const auto inspection, inspect_on(o.model, *loaded.built, data, progress));
  return outputs_text(inspection, data.size()) + "  octavo check MODEL --data FOLDER shows where it is lost\n";
}

struct BuildTimes {
  BuildWork work;
  double made = 0, written = 0;  ///< seconds by the clock until all plans were made, and for the file
};

/// What is written of several shapes: one file for the range that is given; null where none is, or where --values decide shapes too.
Result<std::unique_ptr<api::OpenModel>> range_of(const BuildCommandOptions& o, const ModelOptions& first, Progress& progress) {
  OCTAVO_TRY(api::ShapeRanges ranges, given_range(o.model));
  if (ranges.empty() || !o.model.values.empty()) return std::unique_ptr<api::OpenModel>();
  OCTAVO_TRY(api::PipelineOptions options, pipeline_options(first));
  options.progress = progress.watcher(o.model.path);
  options.import.shapes.clear();
  options.import.default_batch = 0;
  OCTAVO_TRY(const auto session, session_of(first));
  return api::OpenModel::create(session, nullptr, std::move(options), std::move(ranges));
}

/// Which processes compiled kernels.
std::string compilers_text(const BuildWork& work) {
  if (work.processes == 1) return "1 process started for it";
  if (work.processes > 1) return fmt::format("{} processes started for it", work.processes);
  const std::string why = cuda::compile_pool().refusal();
  return "all in this process" + (why.empty() ? "" : ": " + why);
}

/// Where the time of a build for a GPU went: by the clock, of the thread that plans.
std::string times_text(const BuildTimes& t) {
  const BuildWork& w = t.work;
  const double planning = t.made - w.read - w.open - w.prepare - w.wait - w.time;
  std::string text = fmt::format("built in {:.1f} s: reading the model {:.1f}", t.made + t.written, w.read);
  if (w.open > 0) text += fmt::format(", opening the device {:.1f}", w.open);
  text += fmt::format(", planning {:.1f}", planning);
  if (w.timed > 0) text += fmt::format(", timing {} tactics {:.1f}, preparing them {:.1f}", w.timed, w.time, w.prepare);
  text += fmt::format(", waiting for kernels {:.1f}, writing {:.1f}\n", w.wait, t.written);
  if (w.kernels > 0)
    text += fmt::format("{} kernels compiled beside that: {:.1f} s summed over threads, {:.1f} s of processor time; {}\n",
                        w.kernels, w.compile, w.compile_processor, compilers_text(w));
  return text;
}

Result<int> build(const BuildCommandOptions& o) {
  OCTAVO_CHECK(check_outputs({o.output, o.metadata}));
  if (o.recipe.given()) {  // that the options say something shows before the build
    OCTAVO_TRY(const auto checked, recipe_of(o.recipe, "", {1, 3, 8, 8}));
    (void)checked;
  }
  OCTAVO_CHECK(check_profile_outputs(o.profile));
  OCTAVO_TRY(const auto gpu, api::UsedGpu::named(o.model.build.device));
  if (gpu && gpu->absent() && o.profile.runs_wanted()) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "--dumpProfile, --exportProfile, --exportTimes and --exportOutput run the engine, but it is built for {}, which "
            "need not be in this machine\n  leave them out, or build for device cuda on a machine that has such a GPU",
            cuda::with_architecture(*gpu->absent())));
  }
  OCTAVO_TRY(const std::string private_key, signing_key(o.sign));
  OCTAVO_TRY(std::vector<ModelOptions> sets, shape_sets(o.model));
  for (ModelOptions& set : sets) set.build.keep_model = !o.no_model;
  ModelOptions& model = sets.front();  // of several engines what is printed beside their plans is about the first
  OCTAVO_TRY(const auto quantized, quantize_first(o, model));
  for (ModelOptions& other : sets) other.made = model.made;
  OCTAVO_TRY(const api::PipelineOptions asked, pipeline_options(model));
  using Clock = std::chrono::steady_clock;
  const BuildWork before = build_work();
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  // Of the file, whatever was made from it.
  std::optional<onnx::Diagnosis> diagnosis;
  if (!is_engine_file(o.model.path)) {
    const BuildTimer timer(&BuildWork::read);
    if (auto found = diagnose(model)) diagnosis = std::move(*found);
  }
  Loaded loaded;
  engine::Engines engines;
  std::unique_ptr<api::OpenModel> range;
  BuildTimes times;
  const auto compile = [&]() -> Status {
    Progress progress(o.model.verbose);
    if (!is_engine_file(o.model.path)) {
      OCTAVO_TRY(range, range_of(o, model, progress));
    }
    OCTAVO_TRY(loaded, load(model, progress));
    if (!loaded.built)
      return fail(ErrorKind::usage, fmt::format("\"{}\" is an engine already; build takes an ONNX model", o.model.path));
    OCTAVO_TRY(engine::Notes notes, recipe_note(o, loaded.engine->plan()));
    const engine::Notes kept = kept_float_note(*loaded.built);
    notes.insert(kept.begin(), kept.end());
    engines.push_back(loaded.engine);
    const auto shapes_of = [](const engine::Engine& e) {
      Shapes shapes;
      for (const region::Binding& b : e.plan().inputs) shapes[b.name] = b.type.shape;
      return shapes;
    };
    if (range != nullptr) OCTAVO_CHECK(range->adopt(shapes_of(*loaded.engine), *loaded.built));
    for (std::size_t i = 1; i < sets.size(); ++i) {
      progress.step(fmt::format("engine {} of {}", i + 1, sets.size()));
      OCTAVO_TRY(const Loaded other, load(sets[i], progress));
      engines.push_back(other.engine);
      if (range != nullptr) OCTAVO_CHECK(range->adopt(shapes_of(*other.engine), *other.built));
    }
    progress.step(fmt::format("write {}", o.output));
    times.made = seconds();
    const std::string path = o.output == "-" ? "/dev/stdout" : o.output;
    const Status written =
        range != nullptr ? range->save(path, notes, private_key) : engine::save_set(path, engines, notes, private_key);
    times.written = seconds() - times.made;
    times.work = build_work() - before;
    return written;
  };
  const Status done = compile();
  if (diagnosis) print_warnings(*diagnosis, done ? "" : done.error().message);  // why it failed may be among what misleads
  OCTAVO_CHECK(done);
  if (o.output == "-") return 0;  // stdout holds the engine
  std::error_code ignored;
  const double kilobytes = static_cast<double>(std::filesystem::file_size(o.output, ignored)) / 1e3;
  std::string kept;
  if (auto file = engine::EngineFile::open(o.output); file && (*file)->model_bytes() > 0)
    kept = fmt::format(" (its model {:.1f} kB)", static_cast<double>((*file)->model_bytes()) / 1e3);
  if (range != nullptr) {
    fmt::print("{}: {:.1f} kB{}, for {}; plans:\n", o.output, kilobytes, kept, api::range_text(range->ranges()));
    for (const auto& e : range->tuned()) {
      const std::string& from = e->plan().decided_for;
      fmt::print("  {} {}{}\n", e->plan_hash(), engine::shapes_text(e->plan()), from.empty() ? "" : ", as " + from);
    }
    if (const std::string why = range->why_planned(); !why.empty())
      fmt::print("other shapes are planned when they first occur, by the decisions of these: {}\n", why);
    fmt::print("of the first:\n");
  } else if (engines.size() == 1) {
    fmt::print("{}: {:.1f} kB{}, plan {}\n", o.output, kilobytes, kept, loaded.engine->plan_hash());
  } else {
    fmt::print("{}: {:.1f} kB{}, {} plans:\n", o.output, kilobytes, kept, engines.size());
    for (const auto& e : engines) fmt::print("  {} {}\n", e->plan_hash(), engine::shapes_text(e->plan()));
    fmt::print("of the first:\n");
  }
  fmt::print("{}", report::summary(loaded.engine->plan()));
  if (loaded.engine->plan().devices.size() > 1) fmt::print("{}", times_text(times));
  OCTAVO_TRY(const std::string slow, slow_share(loaded.engine, loaded.threads));
  fmt::print("{}", slow);
  fmt::print("{}", float_share(loaded.engine->plan(), asked.plan, loaded.built->permitted.kept_wide));
  if (!quantized && o.model.calibration.empty() && rounds(o.model, *loaded.built))
    fmt::print("{}", placement_cost(loaded.engine->plan(), asked.plan));
  fmt::print("{}", magnitudes_line(loaded.built->permitted, loaded.engine->plan()));
  const auto& regions = loaded.engine->plan().regions;
  if (quantized) fmt::print("{}", outcome_text(*quantized, false));
  if (!quantized && o.model.calibration.empty() &&
      std::none_of(regions.begin(), regions.end(), [](const auto& r) { return r.precision.has_codes(); })) {
    fmt::print(
        "nothing is int8: the model has no Q/DQ pairs, and no ranges were given\n  give --data FOLDER with pictures or arrays, or "
        "quantize it with octavo quantize MODEL --data FOLDER -o model.q.onnx\n");
  }
  if (!o.model.calibration.empty()) fmt::print("{}", permitted_summary(loaded.built->permitted, !o.data.empty()));
  std::unique_ptr<FileData> data;
  if (!quantized && !o.data.empty() && (o.model.build.plan.permit_pairs || rounds(o.model, *loaded.built))) {
    OCTAVO_TRY(data, FileData::open({o.data, o.recipe}, inputs_of(loaded.built->model.graph)));
  }
  if (o.model.build.plan.permit_pairs) {
    OCTAVO_TRY(const std::string changed, changed_outputs(o.model, loaded, data.get()));
    fmt::print("{}", changed);
  }
  if (data != nullptr) {
    OCTAVO_TRY(const std::string accuracy, accuracy_on(o, loaded, *data));
    fmt::print("{}", accuracy);
  }
  if (!o.metadata.empty())
    OCTAVO_CHECK(write_file(o.metadata, report::build_metadata(loaded.engine->plan(), build_options(o, *loaded.engine))));
  return profile_if_wanted(o.profile, loaded);
}

}  // namespace

Command add_build(Arguments& app) {
  auto o = std::make_shared<BuildCommandOptions>();
  add_model_options(app, o->model, false);
  add_gpu_option(app, o->model);
  app.add_option("-o,--output,--saveEngine", o->output, "Engine file to write")->required()->writes("ENGINE");
  app.add_option(
         "--data", o->data,
         "A folder, pictures, .npy or .npz files; repeat for more. A float model without --calibration is first "
         "quantized on them, as octavo quantize does by default. For other models, build prints the signal to noise on them")
      ->reads("PATH");
  app.add_flag("--no-model", o->no_model,
               "Leave the ONNX model out of the engine file. The file is smaller, but a later version of Octavo cannot rebuild it "
               "(octavo rebuild)");
  add_sign_option(app, o->sign);
  add_profile_options(app, o->profile);
  add_recipe_options(app, o->recipe, [](const std::string&) { return std::string(); });
  has_effect(app, app.get_option("--layout"), [o = o.get()](const std::string&) {
    return o->recipe.given()
               ? ""
               : "it belongs to a preprocessing, and none is given\n  give --preset or --scale as well, or leave it out";
  });
  has_effect(app, app.get_option("--runs"), [o = o.get()](const std::string&) {
    return o->profile.runs_wanted() ? "" : "nothing is measured\n  give --dumpProfile, --exportProfile or --exportTimes as well";
  });
  app.add_option("--exportMetadata", o->metadata,
                 "Write the plan's figures, the options and the machine as JSON (build.metadata.json)")
      ->writes("FILE");
  app.footer(
      "The engine keeps the preprocessing options (--preset and the like) for run, check and profile.\n"
      "Examples: octavo build model.onnx -o model.octavo --shapes image:1x3x224x224 --threads 4\n"
      "          octavo build model.onnx -o model.octavo --shapes image:1x3x224x224 --shapes image:8x3x224x224\n"
      "          octavo build model.onnx --data photos/ --preset torch -o model.octavo");
  return [o] { return build(*o); };
}

}  // namespace octavo::cli
