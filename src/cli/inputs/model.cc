#include "cli/inputs/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/layer_types.h"
#include "api/open_file.h"
#include "api/ranges.h"
#include "cli/file.h"
#include "cli/inputs/late.h"
#include "cli/inputs/shape_sets.h"
#include "cli/print.h"
#include "cpu/cap.h"
#include "onnx/import/import.h"
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
    OCTAVO_TRY(plan::PrecisionRule read, api::precision_rule(rule.substr(0, at), rule.substr(at + 1)));
    plan.precisions.push_back(std::move(read));
  }
  if (!o.allow.empty()) {
    OCTAVO_TRY(plan.allowed, api::allowed_types({o.allow.begin(), o.allow.end()}));
  }
  return {};
}

/// What --max-elements says.
Status take_bounds(const ModelOptions& o, std::map<std::string, std::int64_t>& out) {
  for (const std::string& text : o.max_elements) {
    const std::size_t at = text.rfind('=');
    std::int64_t most = 0;
    const char* const end = text.data() + text.size();
    const bool read =
        at != std::string::npos && at != 0 && std::from_chars(text.data() + at + 1, end, most).ptr == end && at + 1 < text.size();
    if (!read || most < 1 || most > onnx::kMostElements)
      return fail(ErrorKind::usage, fmt::format("--max-elements: \"{}\" is not NAME=N with N from 1 to {}, as in boxes=100", text,
                                                onnx::kMostElements));
    out[text.substr(0, at)] = most;
  }
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
  OCTAVO_TRY(const auto session, session_of(o));
  OCTAVO_TRY(const auto model, session->imported(build.import));
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
  for (const ir::ValueId v : model->graph.inputs) inputs.push_back(model->graph.value(v).name);
  OCTAVO_CHECK(take("--inputIOFormats", o.input_formats, inputs));
  return take("--outputIOFormats", o.output_formats, model->graph.output_names);
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

/// What every way from a file to an engine begins with: the cap on instructions holds, and there is a file.
Status require_path(const ModelOptions& options) {
  if (!options.build.cpu.empty()) OCTAVO_CHECK(cpu::set_cap(options.build.cpu));
  if (!options.path.empty()) return {};
  return fail(ErrorKind::usage, "no model given; name its file, for example: octavo run model.onnx --input photo.jpg");
}

std::vector<InputDeclaration> declared(const region::Plan& plan) {
  std::vector<InputDeclaration> out;
  for (const region::Binding& b : plan.inputs) out.push_back({b.name, ir::to_string(b.type.shape), b.type});
  return out;
}

}  // namespace

Status check_batch(const ModelOptions& o, const std::vector<InputDeclaration>& inputs) {
  if (o.batch == 0) return {};
  std::int64_t batch = 0;
  for (const InputDeclaration& in : inputs) {
    if (in.type.shape.empty()) continue;
    if (in.type.shape[0] == o.batch) return {};
    if (batch == 0) batch = in.type.shape[0];
  }
  return fail(
      ErrorKind::usage,
      fmt::format("--batch {0}: the batch of \"{1}\" is fixed at {2}\n  leave --batch out, or build for that batch where the model "
                  "leaves it open: octavo build MODEL.onnx -o ENGINE --batch {0}",
                  o.batch, o.path, batch));
}

bool is_engine_file(const std::string& path) {
  char magic[8] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic, "OCTAVO\0\n", sizeof magic) == 0;
}

ModelOptions options_for(const ModelOptions& own, const std::string& path) {
  ModelOptions m = own;
  if (is_engine_file(path)) {  // already built
    m = ModelOptions();
    m.opened = own.opened;
    m.verify = own.verify, m.code = own.code, m.no_upgrade = own.no_upgrade, m.looks_only = own.looks_only;
    m.build.device = own.build.device, m.build.cpu = own.build.cpu, m.build.plan.threads = own.build.plan.threads;
    m.build.timing = own.build.timing;  // of a file that is built again
    m.shapes = own.shapes, m.values = own.values, m.batch = own.batch;
    m.verbose = own.verbose;
  }
  m.path = path, m.made = nullptr;
  return m;
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

Result<std::shared_ptr<const api::Session>> session_of(const ModelOptions& options) {
  if (options.made != nullptr) return options.made;
  return options.opened->session(options.path);
}

Result<Declared> declared_inputs(const ModelOptions& options) {
  OCTAVO_CHECK(require_path(options));
  Declared declared;
  declared.formats_asked = !options.bindings.empty() || !options.input_formats.empty();
  declared.is_engine = is_engine_file(options.path);
  if (declared.is_engine) {
    OCTAVO_TRY(const auto file, options.opened->file(options));
    if (file->open_sections()) {
      OCTAVO_TRY(const api::OpenInputs open, api::open_inputs(*file));
      for (const onnx::InputInfo& in : open.inputs) declared.inputs.push_back({in.name, in.shape_text(), {in.dtype, in.dims}});
      return declared;
    }
    OCTAVO_TRY(const auto plans, options.opened->plans(options));
    for (std::size_t i = 0; i < plans.front().inputs.size(); ++i) {
      const region::Binding& first = plans.front().inputs[i];
      ir::TensorType type = first.type;
      for (const region::Plan& plan : plans) {  // open where they differ
        if (i >= plan.inputs.size()) continue;  // refused when they are loaded
        const ir::Shape& other = plan.inputs[i].type.shape;
        for (std::size_t k = 0; k < type.shape.size() && type.shape.size() == other.size(); ++k)
          if (type.shape[k] != other[k]) type.shape[k] = -1;
      }
      declared.inputs.push_back({first.name, ir::to_string(type.shape), type});
    }
  } else {
    OCTAVO_TRY(const auto session, options.opened->session(options.path));
    OCTAVO_TRY(const auto inputs, session->inputs());
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
  if (options.batch > 0) batch = options.batch;
  api::PipelineOptions build = options.build;
  OCTAVO_CHECK(take_precisions(options, build.plan));
  OCTAVO_CHECK(take_bounds(options, build.import.max_elements));
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
  if (options.batch > 0) batch = options.batch;
  Loaded loaded;
  loaded.threads = options.build.plan.threads;
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  if (is_engine_file(options.path)) {
    progress.step(fmt::format("load {}", options.path));
    OCTAVO_TRY(const auto open, options.opened->open(options));
    OCTAVO_TRY(const auto all, options.opened->engines(options));
    if (open != nullptr) {
      OCTAVO_TRY(loaded.engine, choose(*open, options, shapes, arrays));
      loaded.range = open;
    } else if (all.size() > 1 || !options.shapes.empty() || !options.values.empty()) {
      OCTAVO_TRY(loaded.engine, choose(all, options, shapes, batch, arrays));
    } else {
      loaded.engine = all.front();
    }
    if (loaded.threads == 0) loaded.threads = engine::threads_here(loaded.engine->plan());
    OCTAVO_CHECK(check_batch(options, declared(loaded.engine->plan())));
    loaded.seconds = options.opened->seconds(options);
    return loaded;
  }
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(options, shapes, batch));
  build.progress = progress.watcher(options.path);
  OCTAVO_TRY(const auto session, session_of(options));
  onnx::LateValues late;
  if (!options.values.empty()) {
    OCTAVO_TRY(const Declared declared, declared_inputs(options));
    OCTAVO_TRY(late.given, given_values(options, declared.inputs));
  }
  for (;;) {
    auto built = session->build(build, late);
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
  OCTAVO_CHECK(check_batch(options, declared(loaded.engine->plan())));
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
