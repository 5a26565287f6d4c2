#include "base/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace octavo {
namespace {

/// What a symbolic link names, so that the link stays; other paths as they are.
std::string resolved(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const auto target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

struct Temporary {
  std::string path;
  int fd = -1;
};

/// A name that nobody else has, by O_EXCL. It does not contain the file's own name: that may be as long as names can be.
Temporary make_temporary(const std::string& folder, mode_t mode) {
  Temporary t;
  for (int i = 0; i < 1000 && t.fd < 0; ++i) {
    t.path = fmt::format("{}/.octavo-{}-{}.tmp", folder, ::getpid(), i);
    t.fd = ::open(t.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (t.fd < 0 && errno != EEXIST) break;
  }
  return t;
}

/// Owner where we may (root replacing a user's file), then permissions. 0, or an errno.
int adopt(int fd, const struct stat& old) {
  if (old.st_uid != ::geteuid() || old.st_gid != ::getegid()) {
    if (::fchown(fd, old.st_uid, old.st_gid) != 0 && errno != EPERM) return errno;
  }
  return ::fchmod(fd, old.st_mode & 07777) == 0 ? 0 : errno;
}

/// The rename itself lasts: best effort, some file systems cannot sync a folder.
void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

bool write_all(int fd, const void* data, std::size_t size) {
  const auto* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

namespace {

std::string folder_of(const std::string& target) {
  const std::string parent = std::filesystem::path(target).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string named_file(const std::string& path, std::string_view what) {
  return fmt::format("cannot write {}{}\"{}\"", what, what.empty() ? "" : " ", path);
}

/// A pipe, a terminal, /dev/stdout: what is written there is gone, there is nothing to replace.
bool is_stream(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode));
}

int write_stream(const std::string& path, const std::function<bool(int fd)>& fill) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  errno = 0;
  int code = 0;
  if (!fill(fd)) code = errno != 0 ? errno : EIO;
  if (::close(fd) != 0 && code == 0) code = errno;
  return code;
}

}  // namespace

Status check_writable(const std::string& path, std::string_view what) {
  const std::string named = named_file(path, what);
  if (is_stream(path)) return {};
  const std::string target = resolved(path), folder = folder_of(target);
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return fail(ErrorKind::io, named + ": it is a folder; name a file in it");
    if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0)
      return fail(ErrorKind::io, fmt::format("{}: the file there is protected: {}", named, std::strerror(errno)));
  }
  if (::stat(folder.c_str(), &info) != 0)
    return fail(ErrorKind::io, fmt::format("{}: its folder \"{}\": {}", named, folder, std::strerror(errno)));
  if (!S_ISDIR(info.st_mode)) return fail(ErrorKind::io, fmt::format("{}: \"{}\" is not a folder", named, folder));
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return fail(ErrorKind::io, fmt::format("{}: its folder \"{}\": {}", named, folder, std::strerror(errno)));
  return {};
}

Status replace_file(const std::string& path, std::string_view what, const std::function<bool(int fd)>& fill) {
  const std::string named = named_file(path, what);
  const auto error = [&](const std::string& step, int code) {
    return fail(ErrorKind::io, fmt::format("{}: {}: {} (errno {})", named, step, std::strerror(code), code));
  };
  if (is_stream(path)) {
    if (const int code = write_stream(path, fill); code != 0) return error("the device or pipe there", code);
    return {};
  }
  const std::string target = resolved(path), folder = folder_of(target);
  struct stat old {};
  const bool there = ::stat(target.c_str(), &old) == 0;
  if (there && !S_ISREG(old.st_mode)) return fail(ErrorKind::io, named + ": it exists and is not a regular file");
  if (there && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) return error("the file there is protected", errno);
  const auto [temporary, fd] = make_temporary(folder, there ? 0600 : 0666);
  if (fd < 0) return error(fmt::format("no temporary file can be made in \"{}\"", folder), errno);
  errno = 0;
  int code = 0;
  if (!fill(fd)) code = errno != 0 ? errno : EIO;
  if (code == 0 && there) code = adopt(fd, old);
  if (code == 0 && ::fsync(fd) != 0) code = errno;
  if (::close(fd) != 0 && code == 0) code = errno;
  if (code == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) code = errno;
  if (code != 0) {
    ::unlink(temporary.c_str());
    return error("the file there before, if any, is unchanged", code);
  }
  sync_folder(folder);
  return {};
}

Status write_file(const std::string& path, std::span<const std::byte> bytes, std::string_view what) {
  return replace_file(path, what, [&](int fd) { return write_all(fd, bytes.data(), bytes.size()); });
}

Status write_file(const std::string& path, std::string_view text, std::string_view what) {
  return replace_file(path, what, [&](int fd) { return write_all(fd, text.data(), text.size()); });
}

}  // namespace octavo
