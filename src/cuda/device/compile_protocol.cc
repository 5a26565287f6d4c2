#include "cuda/device/compile_protocol.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>

namespace octavo::cuda {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMagic = 0x6f6376'6e76727463ULL;  // no text begins with these bytes
constexpr std::string_view kDone = "done", kFailed = "failed";

bool write_all(int fd, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    ssize_t n = ::send(fd, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK) n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool read_exactly(int fd, void* bytes, std::size_t size) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<std::size_t>(n);
  }
  return true;
}

/// A number of nanoseconds or of a kind of errors.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string protocol_name() {
  return fmt::format("octavo-nvrtc, messages {}, Octavo {}", kVersion, OCTAVO_VERSION);
}

bool send_message(int fd, const std::vector<std::string_view>& message) {
  std::vector<std::uint64_t> head{kMagic, message.size()};
  std::size_t sum = 0;
  for (const std::string_view s : message) head.push_back(s.size()), sum += s.size();
  if (message.size() > kMostStrings || sum > kMostMessageBytes) return false;
  if (!write_all(fd, head.data(), head.size() * sizeof head[0])) return false;
  for (const std::string_view s : message) {
    if (!write_all(fd, s.data(), s.size())) return false;
  }
  return true;
}

std::optional<Message> receive_message(int fd) {
  std::array<std::uint64_t, 2> begin{};
  if (!read_exactly(fd, begin.data(), sizeof begin) || begin[0] != kMagic || begin[1] > kMostStrings) return std::nullopt;
  std::vector<std::uint64_t> sizes(begin[1]);
  if (!read_exactly(fd, sizes.data(), sizes.size() * sizeof(std::uint64_t))) return std::nullopt;
  std::size_t sum = 0;
  for (const std::uint64_t size : sizes) {
    if (size > kMostMessageBytes - sum) return std::nullopt;
    sum += size;
  }
  Message out;
  for (const std::uint64_t size : sizes) {
    std::string& s = out.emplace_back(size, '\0');
    if (!read_exactly(fd, s.data(), size)) return std::nullopt;
  }
  return out;
}

bool send_answer(int fd, const Result<Compiled>& made, double processor) {
  const std::string nanoseconds = std::to_string(static_cast<std::int64_t>(processor * 1e9));
  if (made) return send_message(fd, {kDone, nanoseconds, made->cubin, made->log});
  const std::string kind = std::to_string(static_cast<int>(made.error().kind));
  return send_message(fd, {kFailed, nanoseconds, kind, made.error().message});
}

std::optional<Result<Compiled>> read_answer(Message answer) {
  if (answer.size() != 4) return std::nullopt;
  const auto nanoseconds = number_of(answer[1]);
  if (!nanoseconds) return std::nullopt;
  if (answer[0] == kDone) {
    Compiled made{std::move(answer[2]), std::move(answer[3])};
    made.processor_elsewhere = 1e-9 * static_cast<double>(*nanoseconds);
    return made;
  }
  const auto kind = number_of(answer[2]);
  if (answer[0] != kFailed || !kind || *kind > static_cast<std::int64_t>(ErrorKind::internal)) return std::nullopt;
  return fail(static_cast<ErrorKind>(*kind), std::move(answer[3]));
}

}  // namespace octavo::cuda
