#include "api/model_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "onnx/import/external_files.h"

namespace octavo::api {
namespace {

bool later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

tl::unexpected<Error> changed(const std::string& file) {
  return fail(ErrorKind::io,
              fmt::format("the model \"{}\" changed after the engine was built from it, and an engine file must hold its model\n"
                          "  build the engine again, or build it without its model (keep_model false, --no-model)",
                          file));
}

/// A file of external data as it was when the model was read.
Status add_file(const std::string& folder, const std::string& name, const timespec& when, engine::ModelBytes& out) {
  const std::string path = (std::filesystem::path(folder.empty() ? "." : folder) / name).string();
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0)
    return fail(ErrorKind::io, fmt::format("the model's external data \"{}\": {}", path, std::strerror(errno)));
  if (later(now.st_mtim, when)) return changed(path);
  OCTAVO_TRY(std::shared_ptr<const engine::MappedFile> file, engine::MappedFile::open(path));
  out.files.emplace_back(name, file->bytes());
  out.holds.push_back(std::move(file));
  return {};
}

Status add_files(const std::string& folder, const timespec& when, engine::ModelBytes& out) {
  OCTAVO_TRY(const auto names, onnx::external_files(out.model));
  for (const std::string& name : names) OCTAVO_CHECK(add_file(folder, name, when, out));
  return {};
}

timespec clock_now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return t;
}

class FileSource final : public engine::ModelSource {
 public:
  FileSource(std::string path, int fd, const struct stat& was) : path_(std::move(path)), fd_(fd), was_(was), when_(clock_now()) {}
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  Result<engine::ModelBytes> read() const override {
    struct stat now {};
    if (::fstat(fd_, &now) != 0 || now.st_size != was_.st_size || later(now.st_mtim, was_.st_mtim)) return changed(path_);
    engine::ModelBytes out;
    OCTAVO_TRY(std::shared_ptr<const engine::MappedFile> file, engine::MappedFile::open(fmt::format("/proc/self/fd/{}", fd_)));
    out.model = file->bytes();
    out.holds.push_back(std::move(file));
    OCTAVO_CHECK(add_files(std::filesystem::path(path_).parent_path().string(), when_, out));
    return out;
  }

 private:
  std::string path_;
  int fd_;
  struct stat was_;
  timespec when_;
};

class MemorySource final : public engine::ModelSource {
 public:
  MemorySource(std::shared_ptr<const std::vector<std::byte>> model, std::string folder)
      : model_(std::move(model)), folder_(std::move(folder)), when_(clock_now()) {}

  Result<engine::ModelBytes> read() const override {
    engine::ModelBytes out;
    out.model = *model_;
    out.holds = {model_};
    OCTAVO_CHECK(add_files(folder_, when_, out));
    return out;
  }

 private:
  std::shared_ptr<const std::vector<std::byte>> model_;
  std::string folder_;
  timespec when_;
};

}  // namespace

Result<std::shared_ptr<const engine::ModelSource>> file_source(const std::string& path) {
  std::error_code ignored;
  std::string full = std::filesystem::absolute(path, ignored).string();  // the working folder may be another by then
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat was {};
  if (fd < 0 || ::fstat(fd, &was) != 0) {
    const int code = errno;
    if (fd >= 0) ::close(fd);
    return fail(ErrorKind::io, fmt::format("reading {}: {}", path, std::strerror(code)));
  }
  return std::make_shared<FileSource>(full.empty() ? path : std::move(full), fd, was);
}

std::shared_ptr<const engine::ModelSource> memory_source(std::shared_ptr<const std::vector<std::byte>> model,
                                                         const std::string& folder) {
  return std::make_shared<MemorySource>(std::move(model), folder);
}

}  // namespace octavo::api
