// Engine files into engines, for the command, the C++ and the Python interface: verified where that is asked for, built again where the file
// is of an earlier version.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/pipeline.h"
#include "base/task.h"
#include "engine/engine.h"
#include "onnx/import/late_values.h"

namespace octavo::api {

class OpenModel;
class Session;

struct LoadRequest {
  std::string device = "cuda";  ///< which GPU "cuda" is
  /// The engines are read or written to a file, and never run: no GPU is opened for them, and its memory stays as it is. What is built again is for the GPU that
  /// the first build named; otherwise for `device`, whatever GPU that build named (device_to_run of api/device_name.h).
  bool looks_only = false;
  std::string public_key;  ///< PEM, or a file's name: only what its owner signed is loaded; empty: anybody's
  bool upgrade = true;     ///< files of an earlier version are built again, from the model that they hold; false: refused
  /// GPU kernels are compiled anew from the plans; machine code and launches of the file are not used (remake_code).
  bool rebuild_code = false;
  std::string timing_cache;                               ///< of such a build (PipelineOptions::Timing::cache)
  TaskWatcher progress;                                   ///< of such a build
  std::function<void(const std::string& sentence)> warn;  ///< told before such a build begins; may be empty
};

/// Errors: as EngineFile::open and Engine::load_all; for a file of an earlier version those of a build.
[[nodiscard]] Result<engine::Engines> load_engines(const std::string& path, const LoadRequest& request = {});
/// The same of a file that is open, and verified by now.
[[nodiscard]] Result<engine::Engines> load_engines(const std::shared_ptr<const engine::EngineFile>& file,
                                                   const LoadRequest& request);

/// Builds the plans of a file again, by the options that it was built with, from the model that it holds. They have its notes. Errors: usage where
/// it holds no model; bad_engine where that is damaged; those of a build.
[[nodiscard]] Result<engine::Engines> rebuild(const std::shared_ptr<const engine::EngineFile>& file, const LoadRequest& request);

/// The same of a file that serves a range of shapes, as it was built: for the range, with the shapes that were tuned. Errors also: usage where it serves none.
[[nodiscard]] Result<std::shared_ptr<const OpenModel>> rebuild_open(const std::shared_ptr<const engine::EngineFile>& file,
                                                                    const LoadRequest& request);
/// Opens and verifies it, as the request says. Errors: as EngineFile::open.
[[nodiscard]] Result<std::shared_ptr<const engine::EngineFile>> open_engine_file(const std::string& path,
                                                                                 const LoadRequest& request);
/// A file that serves a range of shapes (api/open_file.h); null: its engines serve their own shapes alone. Errors: as load_engines.
[[nodiscard]] Result<std::shared_ptr<const OpenModel>> load_open(const std::shared_ptr<const engine::EngineFile>& file,
                                                                 const LoadRequest& request = {});

/// The model that an engine file holds, parsed. `holds`: keeps its bytes, and a folder with its external data.
struct KeptModel {
  std::shared_ptr<const Session> session;
  std::shared_ptr<const void> holds;
};
[[nodiscard]] Result<KeptModel> kept_model(const std::shared_ptr<const engine::ModelSource>& source, const std::string& engine);

/// For what reads plans and runs nothing (LoadRequest::looks_only): a GPU that need not be in this machine, whatever engine it is.
[[nodiscard]] engine::Devices devices_elsewhere();

/// cuda::remake_kernels for the GPU that `device` names. A plan without regions for a GPU stays as it is.
[[nodiscard]] Status remake_code(region::Plan& plan, std::string_view device);

/// The options of a build as JSON, for Origin::build: all that decides what the engine computes and on what, and its number of threads. Not
/// where times come from, which is the machine's.
[[nodiscard]] std::string build_text(const PipelineOptions& options, const onnx::LateValues& late);
struct ReadBuild {
  PipelineOptions options;
  onnx::LateValues late;
};
/// Errors: bad_engine for what build_text does not write.
[[nodiscard]] Result<ReadBuild> read_build(std::string_view text, std::string_view engine);
/// The same for a build of what an engine file holds, on the device that the request says (LoadRequest::looks_only).
[[nodiscard]] Result<ReadBuild> options_again(std::string_view text, std::string_view engine, const LoadRequest& request);

}  // namespace octavo::api
