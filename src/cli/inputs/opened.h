// The files of one command, each opened once: models are parsed once, engines are made ready once, however many parts of it ask.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "api/open_model.h"
#include "api/session.h"
#include "base/result.h"
#include "engine/engine.h"

namespace octavo::cli {

struct ModelOptions;

class OpenedFiles {
 public:
  /// Of an ONNX file.
  [[nodiscard]] Result<std::shared_ptr<const api::Session>> session(const std::string& path);
  /// Of the engine file at `options.path`, checked as --verify says; its kernels are not loaded.
  [[nodiscard]] Result<std::shared_ptr<const engine::EngineFile>> file(const ModelOptions& options);
  /// The plans of that file as they stand in it, without constants and kernels; of a file of an earlier version those that it is built again
  /// with.
  [[nodiscard]] Result<std::vector<region::Plan>> plans(const ModelOptions& options);
  /// Its engines, as --verify, --code and --no-upgrade say. Warnings go to stderr.
  [[nodiscard]] Result<engine::Engines> engines(const ModelOptions& options);
  /// What serves a range of shapes, of such a file; null: its engines serve their own shapes alone.
  [[nodiscard]] Result<std::shared_ptr<const api::OpenModel>> open(const ModelOptions& options);
  /// How long that took.
  [[nodiscard]] double seconds(const ModelOptions& options);

 private:
  struct Loaded {
    std::shared_ptr<const engine::EngineFile> file;
    engine::Engines engines;
    std::shared_ptr<const api::OpenModel> open;
    double seconds = 0;
  };
  /// Of the same file others may ask as --verify and --code say, which is another file for them.
  [[nodiscard]] Status make_ready(const ModelOptions& options);
  [[nodiscard]] Loaded& at(const ModelOptions& options);

  std::map<std::string, std::shared_ptr<const api::Session>> sessions_;
  std::map<std::tuple<std::string, std::string, std::string>, Loaded> engines_;
};

}  // namespace octavo::cli
