// MODEL or ENGINE: the options that all subcommands share, and getting from a file to an engine.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "cli/options.h"
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
  std::vector<std::string> shapes, values;  ///< each as one --shapes or --values; build takes several (cli/shape_sets.h)
  std::vector<std::string> bindings;
  std::string input_formats, output_formats;
  std::string calibration;
  std::int64_t batch = 0;  ///< --batch; 0: not given
  std::vector<std::string> precision, allow;
  bool verbose = false;
  std::string verify, code;  ///< of engine files: the public key; "rebuild": GPU kernels compiled anew
  bool no_upgrade = false;   ///< an engine file of an earlier version is an error
  /// The engine file that was loaded last: a command that asks for its inputs first does not load (or rebuild) it twice.
  struct LoadedFile {
    std::string path;
    engine::Engines engines;
    double seconds = 0;
  };
  std::shared_ptr<LoadedFile> last = std::make_shared<LoadedFile>();
  std::vector<CLI::Option*> of_build;  ///< those that say how a model is built, and nothing about an engine file
  /// Further models and engines that the options apply to: a second one to compare with, say.
  std::function<std::vector<std::string>()> others;
  /// What is built instead of the file's contents: a model that was made from it. Empty: the file.
  std::shared_ptr<const std::vector<std::byte>> made;
};
/// Adds MODEL (also --onnx, and --loadEngine where engines are accepted), --shapes, --batch, --values, --threads, --device, --cpu, --disable,
/// --effort, --timing-cache, --strict-timing, --calibration, --precision, --allow and --verbose.
void add_model_options(CLI::App& app, ModelOptions& options, bool engines);

/// Of --values in commands that look at a model without running it.
inline constexpr const char* kNoValues =
    "this command does not bind values of inputs\n  octavo build, run, bench, profile, explain, view, check and eval take --values";

/// `octavo run --input a.jpg b.jpg model.onnx`: where no model is named, the last of the inputs that is an ONNX or engine file by its
/// ending is the model.
void take_model_from(std::vector<std::string>& inputs, ModelOptions& options);

/// By the first bytes; a file that cannot be read is left to whoever reads it next.
[[nodiscard]] bool is_engine_file(const std::string& path);

/// The engines of the file at `options.path`, as --verify, --code and --no-upgrade say. Warnings go to stderr.
[[nodiscard]] Result<engine::Engines> load_engines(const ModelOptions& options);

/// What the file declares, before anything is built. -1: not known yet.
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
  std::optional<api::Built> built;  ///< absent when an engine file was loaded
  int threads = 0;                  ///< to run with; 0: the plan's
  double seconds = 0;               ///< that it took, whichever it was: with checks, kernels ready
};
/// Builds the model or maps the engine file. `shapes` (of arrays to be run) bind what --shapes leaves open; `batch` binds an
/// open first dimension where --batch does not. Of a file with engines for several shapes the one that fits is taken, by the same options. With --verbose, says on stderr what import and the rules decided.
[[nodiscard]] Result<Loaded> load(const ModelOptions& options, Progress& progress, const Shapes& shapes = {},
                                  std::int64_t batch = 1);

/// "loaded in 12.3 ms, first run done 10.1 ms later": `first` is the seconds that making a context and its first run took.
[[nodiscard]] std::string start_text(const Loaded& loaded, double first);

}  // namespace octavo::cli
