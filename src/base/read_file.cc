#include "base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

namespace octavo {

namespace {

/// What has no length is read so far: a device such as /dev/zero does not end, and nothing that is read through a pipe is longer than an ONNX file can be.
constexpr std::size_t kMostOfDevice = std::size_t{1} << 16, kMostOfPipe = std::size_t{1} << 31;

}  // namespace

bool read_all(int fd, std::vector<std::byte>& bytes) {
  struct stat info {};
  std::size_t room = 1 << 16;  // pipes and devices say nothing of their length; a file's is a guess that saves copies
  std::size_t most = kMostOfPipe;
  if (::fstat(fd, &info) == 0) {
    if (S_ISREG(info.st_mode)) room = std::max<std::size_t>(static_cast<std::size_t>(info.st_size) + 1, 1), most = SIZE_MAX;
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) most = kMostOfDevice;
  }
  std::size_t used = 0;
  for (;;) {
    if (used > most) {
      errno = EFBIG;
      return false;
    }
    if (used == bytes.size()) bytes.resize(used == 0 ? room : 2 * used);
    const ssize_t n = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      bytes.resize(used);
      return n == 0;
    }
    used += static_cast<std::size_t>(n);
  }
}

Result<std::vector<std::byte>> read_file(const std::string& path, std::string_view what) {
  const auto error = [&](int code) {
    return fail(ErrorKind::io, fmt::format("cannot read {}{}\"{}\": {}", what, what.empty() ? "" : " ", path, std::strerror(code)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno);
  std::vector<std::byte> bytes;
  int code = 0;
  try {
    if (!read_all(fd, bytes)) code = errno;
  } catch (const std::bad_alloc&) {
    code = ENOMEM;
  }
  ::close(fd);
  if (code != 0) return error(code);
  return bytes;
}

Result<std::string> read_text(const std::string& path, std::string_view what) {
  OCTAVO_TRY(const auto bytes, read_file(path, what));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace octavo
