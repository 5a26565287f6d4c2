#include "tune/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace octavo::tune {
namespace {

bool wait_for(int fd) {
  int code = 0;
  do code = ::flock(fd, LOCK_EX);
  while (code != 0 && errno == EINTR);
  return code == 0;
}

}  // namespace

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileLock::take(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path real = std::filesystem::weakly_canonical(path, ignored);  // two links to one file, one lock
  if (ignored) real = path;
  const std::string folder = real.parent_path().empty() ? "." : real.parent_path().string();
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) {
    return fail(ErrorKind::io,
                fmt::format("locking \"{}\": its folder cannot be opened: {} (errno {})", path, std::strerror(errno), errno));
  }
  if (wait_for(fd_)) return {};
  ::close(fd_);
  fd_ = ::open((real.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ >= 0 && wait_for(fd_)) return {};
  return fail(ErrorKind::io, fmt::format("locking \"{}\": {} (errno {})", path, std::strerror(errno), errno));
}

}  // namespace octavo::tune
