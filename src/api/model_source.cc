#include "api/model_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

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

Status add_files(const std::string& folder, const std::set<std::string>& names, const timespec& when, engine::ModelBytes& out) {
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
  FileSource(std::unique_ptr<const ModelFile> file, std::set<std::string> external)
      : file_(std::move(file)), external_(std::move(external)) {}

  Result<engine::ModelBytes> read() const override {
    if (file_->changed()) return changed(file_->path());
    engine::ModelBytes out;
    OCTAVO_TRY(std::shared_ptr<const engine::MappedFile> mapped,
               engine::MappedFile::open(fmt::format("/proc/self/fd/{}", file_->fd())));
    out.model = mapped->bytes();
    out.holds.push_back(std::move(mapped));
    OCTAVO_CHECK(add_files(std::filesystem::path(file_->path()).parent_path().string(), external_, file_->opened(), out));
    return out;
  }

 private:
  std::unique_ptr<const ModelFile> file_;
  std::set<std::string> external_;
};

class MemorySource final : public engine::ModelSource {
 public:
  MemorySource(std::shared_ptr<const std::vector<std::byte>> model, std::string folder, std::set<std::string> external)
      : model_(std::move(model)), folder_(std::move(folder)), external_(std::move(external)), when_(clock_now()) {}

  Result<engine::ModelBytes> read() const override {
    engine::ModelBytes out;
    out.model = *model_;
    out.holds = {model_};
    OCTAVO_CHECK(add_files(folder_, external_, when_, out));
    return out;
  }

 private:
  std::shared_ptr<const std::vector<std::byte>> model_;
  std::string folder_;
  std::set<std::string> external_;
  timespec when_;
};

}  // namespace

ModelFile::ModelFile(std::string path, int fd, const struct stat& was)
    : path_(std::move(path)), fd_(fd), was_(was), when_(clock_now()) {}

ModelFile::~ModelFile() {
  ::close(fd_);
}

bool ModelFile::changed() const {
  struct stat now {};
  return ::fstat(fd_, &now) != 0 || now.st_size != was_.st_size || later(now.st_mtim, was_.st_mtim);
}

Result<std::unique_ptr<const ModelFile>> ModelFile::open(const std::string& path) {
  std::error_code ignored;
  std::string full = std::filesystem::absolute(path, ignored).string();  // the working folder may be another by then
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat was {};
  if (fd < 0 || ::fstat(fd, &was) != 0) {
    const int code = errno;
    if (fd >= 0) ::close(fd);
    return fail(ErrorKind::io, fmt::format("reading {}: {}", path, std::strerror(code)));
  }
  return std::unique_ptr<const ModelFile>(new ModelFile(full.empty() ? path : std::move(full), fd, was));
}

std::shared_ptr<const engine::ModelSource> file_source(std::unique_ptr<const ModelFile> file, std::set<std::string> external) {
  return std::make_shared<FileSource>(std::move(file), std::move(external));
}

std::shared_ptr<const engine::ModelSource> memory_source(std::shared_ptr<const std::vector<std::byte>> model, std::string folder,
                                                         std::set<std::string> external) {
  return std::make_shared<MemorySource>(std::move(model), std::move(folder), std::move(external));
}

}  // namespace octavo::api
