#include "cli/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/late.h"
#include "api/load.h"
#include "api/model_source.h"
#include "api/ranges.h"
#include "cli/file.h"
#include "cli/late.h"
#include "cli/print.h"
#include "cli/shape_sets.h"
#include "cli/sources.h"
#include "cpu/cap.h"
#include "onnx/import/import.h"
#include "plan/candidates/registry.h"
#include "plan/layout/bind.h"
#include "report/sentences.h"

namespace octavo::cli {
namespace {

/// What --calibration, --precision and --allow say.
Status take_precisions(const ModelOptions& o, plan::PlanOptions& plan) {
  if (!o.calibration.empty()) {
    OCTAVO_TRY(plan.ranges, api::read_ranges(o.calibration));
    if (plan.ranges.empty()) return fail(ErrorKind::bad_input, fmt::format("--calibration: \"{}\" holds no range", o.calibration));
  }
  for (const std::string& rule : o.precision) {
    const std::size_t at = rule.rfind('=');
    if (at == std::string::npos || at == 0) {
      return fail(ErrorKind::usage, fmt::format("--precision: \"{}\" is not PATTERN=TYPE, as in conv1=float32", rule));
    }
    plan.precisions.push_back({rule.substr(0, at), rule.substr(at + 1)});
  }
  if (!o.allow.empty()) plan.allowed = {o.allow.begin(), o.allow.end()};
  return {};
}

/// What --bind, --inputIOFormats and --outputIOFormats say.
Status take_bindings(const ModelOptions& o, const api::PipelineOptions& build, std::map<std::string, plan::BindingFormat>& out) {
  for (const std::string& text : o.bindings) {
    const std::size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0)
      return fail(ErrorKind::usage, fmt::format("--bind: \"{}\" is not NAME=FORMAT, as in image=uint8:hwc", text));
    OCTAVO_TRY(out[text.substr(0, at)], plan::parse_format(std::string_view(text).substr(at + 1)));
  }
  if (o.input_formats.empty() && o.output_formats.empty()) return {};
  OCTAVO_TRY(const auto model, onnx::import_file(o.path, build.import));
  const auto take = [&](const char* option, const std::string& text, const std::vector<std::string>& names) -> Status {
    if (text.empty()) return {};
    std::vector<std::string> parts(1);
    for (const char c : text) {
      if (c == ',') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() != names.size()) {
      return fail(ErrorKind::usage, fmt::format("{}: {} formats for {} {}", option, parts.size(), names.size(),
                                                names.size() == 1 ? "tensor" : "tensors"));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      OCTAVO_TRY(out[names[i]], plan::parse_format(parts[i]));
    }
    return {};
  };
  std::vector<std::string> inputs;
  for (const ir::ValueId v : model.graph.inputs) inputs.push_back(model.graph.value(v).name);
  OCTAVO_CHECK(take("--inputIOFormats", o.input_formats, inputs));
  return take("--outputIOFormats", o.output_formats, model.graph.output_names);
}

/// What every way from a file to an engine begins with: the cap on instructions holds, and there is a file.
Status require_path(const ModelOptions& options) {
  if (!options.build.cpu.empty()) OCTAVO_CHECK(cpu::set_cap(options.build.cpu));
  if (!options.path.empty()) return {};
  return fail(ErrorKind::usage, "no model given; name its file, for example: octavo run model.onnx --input photo.jpg");
}

void log_decisions(const api::Built& built) {
  for (const auto& note : built.model.notes) say("import: {}\n", note);
  for (const auto& report : built.reports) {
    for (const auto& rule : report.stats) {
      if (rule.applied + rule.refused == 0) continue;
      say("rule {}: {} applied, {} refused, {:.1f} ms\n", rule.rule, rule.applied, rule.refused, rule.seconds * 1e3);
    }
    for (const auto& refusal : report.refusals)
      say("rule {}: not at \"{}\": {}\n", refusal.rule, refusal.node, report::sentence(*refusal.refusal));
  }
}

}  // namespace

bool is_engine_file(const std::string& path) {
  char magic[8] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic, "OCTAVO\0\n", sizeof magic) == 0;
}

void add_model_options(CLI::App& app, ModelOptions& o, bool engines) {
  auto* model = app.add_option(engines ? "MODEL,--onnx,--loadEngine" : "MODEL,--onnx", o.path,
                               engines ? "ONNX model, or engine file" : "ONNX model");
  model->type_name("FILE");
  model->transform(CLI::Validator(
      [](std::string& path) {  // a model is read more than once, an engine is mapped
        const Status kept = spool(path);
        return kept ? std::string() : kept.error().message;
      },
      "", ""));
  app.add_option("--shapes", o.shapes,
                 "Shapes of inputs with open dimensions, for example image:1x3x224x224,mask:1x10. build takes the option several "
                 "times and makes one engine file "
                 "for all shapes")
      ->allow_extra_args(false)
      ->type_name("SHAPES");
  app.add_option("--values", o.values,
                 "Values of an input that decides the shapes of tensors, for example k=3 or sizes=1,3,8,8; repeat for other "
                 "inputs. build also takes several values "
                 "of one input and makes one engine file for all")
      ->allow_extra_args(false)
      ->type_name("NAME=NUMBERS");
  app.add_option("--optShapes", o.opt_shapes, "Like --shapes; with --minShapes and --maxShapes: the shapes to build first")
      ->type_name("SHAPES");
  app.add_option("--minShapes", o.min_shapes,
                 fmt::format("The smallest shapes that may occur, with --optShapes and --maxShapes; smaller ones are refused. "
                             "build makes one engine file for all shapes "
                             "between, at most {}",
                             kMostInRange))
      ->type_name("SHAPES");
  app.add_option("--maxShapes", o.max_shapes, "The largest shapes that may occur; see --minShapes")->type_name("SHAPES");
  app.add_option("--threads", o.build.plan.threads, "Number of threads to plan for and to run with (default: all cores)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  app.add_option("--device", o.build.device,
                 "cpu, cuda (cuda:N is GPU number N), or reference, the slow evaluator that defines the results")
      ->type_name("NAME");
  app.add_option(
         "--cpu", o.build.cpu,
         fmt::format("Use at most these vector instructions, so that the engine also loads on processors that have no others: {}",
                     cpu::known_caps()))
      ->type_name("LEVEL");
  app.add_option("--disable", o.build.plan.disabled,
                 fmt::format("Rewrite rules to switch off (docs/rules.md lists their names), and choices of the planner to leave "
                             "at their default: {}; round-to-scale-type: quotients by a float16 scale stay float32, as in ONNX "
                             "Runtime",
                             fmt::join(plan::choice_names(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("RULE");
  app.add_option("--force", o.build.plan.forced,
                 fmt::format("Choices for which the planner takes the alternative to the default wherever that is possible, even "
                             "if it is slower: {} (docs/rules.md)",
                             fmt::join(plan::forceable_choices(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CHOICE");
  app.add_option("--effort,--builderOptimizationLevel", o.build.plan.effort,
                 "Effort to find the fastest plan: 0 uses estimates, 1 measures kernels, 2 (default) to 5 also search among plans "
                 "(docs/planner.md)")
      ->check(CLI::Range(0, 5))
      ->type_name("0..5");
  app.add_option("--timing-cache,--timingCacheFile", o.build.timing.cache,
                 "File that keeps measured times between builds (docs/timing-cache.md; default: octavo/timing.txt in "
                 "$XDG_CACHE_HOME or ~/.cache); none: keep no "
                 "times")
      ->type_name("FILE");
  app.add_flag("--strict-timing", o.build.timing.strict, "Fail if the timing cache lacks a time, instead of measuring it");
  app.add_option("--calibration,--calib", o.calibration,
                 "Ranges of the tensors of a float model: a TensorRT calibration table, or JSON (docs/tables.md)")
      ->type_name("FILE");
  app.add_option_function<std::string>(
         "--qdq", [&o](const std::string& qdq) { o.build.plan.permit_pairs = qdq == "permit"; },
         "Meaning of the model's Q/DQ pairs. demand (default): every pair rounds where it stands. permit: pairs on activations may "
         "be left out where that makes "
         "the model faster; results change (docs/implicit.md)")
      ->check(CLI::IsMember({"demand", "permit"}))
      ->type_name("demand|permit");
  app.add_option("--precision,--layerPrecisions", o.precision,
                 "Types of layers, by a pattern of ONNX node or tensor names; the first match counts, for example "
                 "conv1=float32,*head*=int8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("PATTERN=TYPE");
  app.add_option("--bind", o.bindings, "Type and layout of an input or output: NAME=uint8:hwc (docs/bindings.md)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME=FORMAT");
  app.add_option("--inputIOFormats", o.input_formats, "Type and layout of all inputs, in order, for example int8:hwc,fp16:chw")
      ->type_name("FORMATS");
  app.add_option("--outputIOFormats", o.output_formats, "Type and layout of all outputs, in order")->type_name("FORMATS");
  if (engines) {
    app.add_option("--verify", o.verify,
                   "Load an engine file only if it is signed with this public Ed25519 key (octavo build --sign signs)")
        ->type_name("PUBLIC.pem");
    app.add_option(
           "--code", o.code,
           "file (default): the machine code in an engine file for a GPU runs as it is; rebuild: it is not used, the kernels are "
           "compiled anew from the plan (docs/hostile.md)")
        ->check(CLI::IsMember({"file", "rebuild"}))
        ->type_name("file|rebuild");
    app.add_flag("--no-upgrade", o.no_upgrade,
                 "Refuse an engine file of an earlier version, which is otherwise built again from the model it holds");
  }
  app.add_option("--max-error", o.build.plan.max_error,
                 "Keep layers in float32 until no output changes by more than this part of its largest magnitude, for example 0.02 "
                 "(estimated on random inputs; "
                 "slow)")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("X");
  app.add_option("--allow", o.allow,
                 "Types that layers without Q/DQ pairs may compute in (default: int8,float32; others: bfloat16, and tf32 on a GPU)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("TYPE");
  app.add_flag("-v,--verbose", o.verbose, "Print each step to stderr, and which rewrite rules applied or were refused");
}

void take_model_from(std::vector<std::string>& inputs, ModelOptions& options) {
  if (!options.path.empty()) return;
  const auto is_model = [](const std::string& path) {
    return path.ends_with(".onnx") || path.ends_with(".octavo") || path.ends_with(".engine");
  };
  const auto found = std::find_if(inputs.rbegin(), inputs.rend(), is_model);
  if (found == inputs.rend()) return;
  options.path = *found;
  inputs.erase(std::next(found).base());
}

Result<engine::Engines> load_engines(const ModelOptions& options) {
  ModelOptions::LoadedFile& last = *options.last;
  if (!last.engines.empty() && last.path == options.path) return last.engines;
  const auto start = std::chrono::steady_clock::now();
  Progress progress(options.verbose);
  api::LoadRequest request;
  request.device = options.build.device;
  request.public_key = options.verify;
  request.rebuild_code = options.code == "rebuild";
  request.upgrade = !options.no_upgrade;
  request.timing_cache = options.build.timing.cache;
  request.progress = progress.watcher(options.path);
  request.warn = [](const std::string& sentence) { say("warning: {}\n", sentence); };
  OCTAVO_TRY(engine::Engines all, api::load_engines(options.path, request));
  last = {options.path, std::move(all), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  return last.engines;
}

Result<Declared> declared_inputs(const ModelOptions& options) {
  OCTAVO_CHECK(require_path(options));
  Declared declared;
  declared.formats_asked = !options.bindings.empty() || !options.input_formats.empty();
  declared.is_engine = is_engine_file(options.path);
  if (declared.is_engine) {
    OCTAVO_TRY(const auto engines, load_engines(options));
    for (std::size_t i = 0; i < engines.front()->plan().inputs.size(); ++i) {
      const region::Binding& first = engines.front()->plan().inputs[i];
      ir::TensorType type = first.type;
      for (const auto& e : engines) {  // open where they differ
        const ir::Shape& other = e->plan().inputs[i].type.shape;
        for (std::size_t k = 0; k < type.shape.size() && type.shape.size() == other.size(); ++k)
          if (type.shape[k] != other[k]) type.shape[k] = -1;
      }
      declared.inputs.push_back({first.name, ir::to_string(type.shape), type});
    }
  } else {
    OCTAVO_TRY(const auto inputs, onnx::inputs_of_file(options.path));
    OCTAVO_TRY(Shapes given, given_shapes(options));
    const bool range = !options.min_shapes.empty() || !options.max_shapes.empty();
    if (range && options.shapes.empty()) given.clear();  // what is run goes before the opt shapes
    for (const auto& input : inputs) {
      const auto found = given.find(input.name);
      if (found == given.end() || (input.has_shape && found->second.size() != input.dims.size())) {
        declared.inputs.push_back({input.name, input.shape_text(), {input.dtype, input.dims}});
      } else {
        declared.inputs.push_back({input.name, ir::to_string(found->second), {input.dtype, found->second}});
      }
    }
  }
  return declared;
}

Result<api::PipelineOptions> pipeline_options(const ModelOptions& options, const Shapes& shapes, std::int64_t batch) {
  OCTAVO_CHECK(require_path(options));
  api::PipelineOptions build = options.build;
  OCTAVO_CHECK(take_precisions(options, build.plan));
  std::error_code ignored;
  if (!build.timing.strict && !std::filesystem::exists(build.timing.cache, ignored))
    OCTAVO_CHECK(check_outputs({build.timing.cache}));
  if (options.verbose) build.timing.log = [](const std::string& line) { say("{}\n", line); };
  build.import.default_batch = batch;
  OCTAVO_TRY(const Shapes given, given_shapes(options));
  const bool range = !options.min_shapes.empty() || !options.max_shapes.empty();
  build.import.shapes = range && options.shapes.empty() ? shapes : given;  // what is run goes before the opt shapes of a range
  build.import.shapes.insert(shapes.begin(), shapes.end());
  build.import.shapes.insert(given.begin(), given.end());
  OCTAVO_CHECK(check_range(options, build.import.shapes));
  OCTAVO_CHECK(take_bindings(options, build, build.plan.bindings));
  return build;
}

Result<Loaded> load(const ModelOptions& options, Progress& progress, const Shapes& shapes, std::int64_t batch) {
  return load(options, progress, shapes, batch, {});
}

Result<Loaded> load(const ModelOptions& options, Progress& progress, const Shapes& shapes, std::int64_t batch,
                    const Arrays& arrays) {
  OCTAVO_CHECK(require_path(options));
  Loaded loaded;
  loaded.threads = options.build.plan.threads;
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  if (is_engine_file(options.path)) {
    if (!options.calibration.empty() || !options.precision.empty() || !options.allow.empty() || options.build.plan.max_error ||
        options.build.plan.permit_pairs) {
      return fail(ErrorKind::usage,
                  fmt::format("--calibration, --qdq, --precision, --allow and --max-error belong to building; \"{}\" is "
                              "an engine, already built\n  give them to: octavo build MODEL.onnx -o {}",
                              options.path, options.path));
    }
    if (!options.opt_shapes.empty() || !options.min_shapes.empty() || !options.max_shapes.empty() ||
        !options.build.plan.disabled.empty() || !options.build.plan.forced.empty()) {
      return fail(ErrorKind::usage,
                  fmt::format("--optShapes, --disable and --force belong to building; \"{}\" is an engine, already built\n"
                              "  give them to: octavo build MODEL.onnx -o {}",
                              options.path, options.path));
    }
    progress.step(fmt::format("load {}", options.path));
    OCTAVO_TRY(const auto all, load_engines(options));
    if (all.size() > 1 || !options.shapes.empty() || !options.values.empty()) {
      OCTAVO_TRY(loaded.engine, choose(all, options, shapes, batch, arrays));
    } else {
      loaded.engine = all.front();
    }
    if (loaded.threads == 0) loaded.threads = engine::threads_here(loaded.engine->plan());
    loaded.seconds = options.last->seconds;
    return loaded;
  }
  if (!options.verify.empty() || !options.code.empty() || options.no_upgrade)
    return fail(ErrorKind::usage,
                fmt::format("--verify, --code and --no-upgrade are about engine files; \"{}\" is none", options.path));
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(options, shapes, batch));
  build.progress = progress.watcher(options.path);
  if (options.made) build.source = api::memory_source(options.made, std::filesystem::path(options.path).parent_path().string());
  onnx::LateValues late;
  if (!options.values.empty()) {
    OCTAVO_TRY(const Declared declared, declared_inputs(options));
    OCTAVO_TRY(late.given, given_values(options, declared.inputs));
  }
  for (;;) {
    auto built = options.made
                     ? api::build_bytes(*options.made, build, std::filesystem::path(options.path).parent_path().string(), late)
                     : api::build_file(options.path, build, late);
    bool more = false;  // values that the build lacks, and the arrays have
    if (!built) {
      for (const std::string& name : late.needed) {
        const auto array = arrays.find(name);
        more = (array != arrays.end() && late.given.emplace(name, array->second).second) || more;
      }
    }
    if (more) continue;
    OCTAVO_TRY(loaded.built, std::move(built));
    break;
  }
  loaded.engine = loaded.built->engine;
  loaded.seconds = since();
  if (options.verbose) log_decisions(*loaded.built);
  return loaded;
}

std::string start_text(const Loaded& loaded, double first) {
  const auto time = [](double seconds) {
    return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
  };
  return fmt::format("{} in {}, first run done {} later", loaded.built ? "built" : "loaded, checked, kernels ready",
                     time(loaded.seconds), time(first));
}

}  // namespace octavo::cli
