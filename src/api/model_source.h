// Models as engine files keep them (engine/source.h).
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/source.h"

namespace octavo::api {

/// A file as it is before it is parsed.
class ModelFile {
 public:
  /// Errors: io.
  [[nodiscard]] static Result<std::unique_ptr<const ModelFile>> open(const std::string& path);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] timespec opened() const { return when_; }
  /// Has it been written to since?
  [[nodiscard]] bool changed() const;

 private:
  ModelFile(std::string path, int fd, const struct stat& was);
  std::string path_;
  int fd_;
  struct stat was_;
  timespec when_;
};

/// The ONNX file and the files of its external data beside it, read again when an engine is saved; until then an open descriptor is all that it
/// takes. `read` fails with `io` where one was written to in between: the engine would hold another model than it was built from.
[[nodiscard]] std::shared_ptr<const engine::ModelSource> file_source(std::unique_ptr<const ModelFile> file,
                                                                     std::set<std::string> external);
/// A model in memory, whose external data lies in `folder`.
[[nodiscard]] std::shared_ptr<const engine::ModelSource> memory_source(std::shared_ptr<const std::vector<std::byte>> model,
                                                                       std::string folder, std::set<std::string> external);

}  // namespace octavo::api
