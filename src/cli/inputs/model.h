// MODEL or ENGINE: the options that all subcommands share, and getting from a file to an engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "cli/arguments.h"
#include "cli/inputs/opened.h"
#include "cli/inputs/options.h"
#include "cli/progress.h"
#include "engine/engine.h"
#include "plan/effort.h"

namespace octavo::cli {

struct ModelOptions {
  ModelOptions() { build.plan.effort = plan::kDefaultEffort; }
  api::PipelineOptions
      build;  ///< what options say directly: device, cpu, timing cache, and of the planner's threads, choices and effort
  // Text that pipeline_options reads once there is a model.
  std::string path, opt_shapes, min_shapes, max_shapes;
  std::vector<std::string> shapes, values;  ///< each as one --shapes or --values; build takes several (cli/inputs/shape_sets.h)
  std::vector<std::string> bindings;
  std::vector<std::string> max_elements;  ///< each as one --max-elements
  std::string input_formats, output_formats;
  std::string calibration;
  std::int64_t batch = 0;  ///< --batch; 0: not given
  std::vector<std::string> precision, allow;
  bool verbose = false;
  std::string verify, code;  ///< of engine files: the public key; "rebuild": GPU kernels compiled anew
  bool looks_only = false;   ///< the command reads plans and runs nothing: an engine for a GPU needs none (api::LoadRequest)
  bool no_upgrade = false;   ///< an engine file of an earlier version is an error
  std::shared_ptr<OpenedFiles> opened = std::make_shared<OpenedFiles>();
  std::vector<Option*> of_build;  ///< those that say how a model is built, and nothing about an engine file
  /// Further models and engines that the options apply to: a second one to compare with, say.
  std::function<std::vector<std::string>()> others;
  /// What is built instead of the file's contents: a model that was made from it. Empty: the file.
  std::shared_ptr<const api::Session> made;
};
/// Adds MODEL (also --onnx, and --loadEngine where engines are accepted), --shapes, --batch, --values, --threads, --device, --cpu, --disable,
/// --effort, --timing-cache, --strict-timing, --calibration, --precision, --allow and --verbose.
void add_model_options(Arguments& app, ModelOptions& options, bool engines);

/// The options of the same command for another model or engine file that it loads: `path`. Every command that loads several files makes their
/// options here, so that none of them is loaded with less caution than the first. For an engine file they are those about engine files (--verify,
/// --code, --no-upgrade), about the run and about what it is built again with; those that say how a model is built are left out.
[[nodiscard]] ModelOptions options_for(const ModelOptions& own, const std::string& path);

/// Of --values in commands that look at a model without running it.
inline constexpr const char* kNoValues =
    "this command does not bind values of inputs\n  octavo build, run, bench, profile, explain, view, check and eval take --values";

/// `octavo run --input a.jpg b.jpg model.onnx`: where no model is named, the last of the inputs that is an ONNX or engine file by its
/// ending is the model.
void take_model_from(std::vector<std::string>& inputs, ModelOptions& options);

/// By the first bytes; a file that cannot be read is left to whoever reads it next.
[[nodiscard]] bool is_engine_file(const std::string& path);

/// What is built: the model of the file at `options.path`, or what was made from it.
[[nodiscard]] Result<std::shared_ptr<const api::Session>> session_of(const ModelOptions& options);

/// What the file declares, before anything is built, and before the kernels of an engine are loaded. -1: not known yet.
struct InputDeclaration {
  std::string name, shape_text;
  ir::TensorType type;
};
struct Declared {
  bool is_engine = false;
  bool formats_asked = false;  ///< the options change types or layouts: what the file says of them does not hold
  std::vector<InputDeclaration> inputs;
};
[[nodiscard]] Result<Declared> declared_inputs(const ModelOptions& options);

/// The options as the pipeline takes them, bindings included; `batch` where --batch is not given. Errors: usage; those of reading files that they name.
[[nodiscard]] Result<api::PipelineOptions> pipeline_options(const ModelOptions& options, const Shapes& shapes = {},
                                                            std::int64_t batch = 1);

/// --batch is what the model leaves open: usage where it is given and these inputs have another one.
[[nodiscard]] Status check_batch(const ModelOptions& options, const std::vector<InputDeclaration>& inputs);

struct Loaded {
  std::shared_ptr<const engine::Engine> engine;
  std::shared_ptr<const api::OpenModel> range;  ///< of a file that serves a range of shapes, which the engine is one of
  std::optional<api::Built> built;              ///< absent when an engine file was loaded
  int threads = 0;                              ///< to run with; 0: the plan's
  double seconds = 0;                           ///< that it took, whichever it was: with checks, kernels ready
};
/// Builds the model or maps the engine file. `shapes` (of arrays to be run) bind what --shapes leaves open; `batch` binds an
/// open first dimension where --batch does not. Of a file with engines for several shapes the one that fits is taken, by the same options. With --verbose, says on stderr what import and the rules decided.
[[nodiscard]] Result<Loaded> load(const ModelOptions& options, Progress& progress, const Shapes& shapes = {},
                                  std::int64_t batch = 1);

/// "loaded in 12.3 ms, first run done 10.1 ms later": `first` is the seconds that making a context and its first run took.
[[nodiscard]] std::string start_text(const Loaded& loaded, double first);

}  // namespace octavo::cli
