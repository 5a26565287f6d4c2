#include "quantize/data/kept_samples.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/write_file.h"

namespace octavo::quantize {
namespace {

/// Opened, and without a name from then on.
Result<int> nameless_file() {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(ignored);
  std::string path = ((folder.empty() ? std::filesystem::path("/tmp") : folder) / "octavo-samples-XXXXXX").string();
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0)
    return fail(ErrorKind::io, fmt::format("no room for the samples: cannot make a file in \"{}\" (TMPDIR): {}",
                                           std::filesystem::path(path).parent_path().string(), std::strerror(errno)));
  ::unlink(path.c_str());
  return fd;
}

bool read_at(int fd, std::int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
  return true;
}

}  // namespace

KeptSamples::~KeptSamples() {
  if (file_ >= 0) ::close(file_);
}

Status KeptSamples::add(Sample sample) {
  std::size_t bytes = 0;
  for (const ir::Tensor& t : sample.inputs) bytes += t.bytes().size();
  Kept kept{sample.name, {}, {}, 0};
  if (in_memory_ + bytes <= most_) {
    in_memory_ += bytes;
    kept.tensors = std::move(sample.inputs);
  } else {
    OCTAVO_CHECK(write(sample, kept));
  }
  samples_.push_back(std::move(kept));
  return {};
}

Status KeptSamples::write(const Sample& sample, Kept& kept) {
  if (file_ < 0) {
    OCTAVO_TRY(file_, nameless_file());
  }
  kept.offset = end_;
  for (const ir::Tensor& t : sample.inputs) {
    if (!write_all(file_, t.bytes().data(), t.bytes().size()))
      return fail(ErrorKind::io, fmt::format("no room for the samples in the temporary folder (TMPDIR): {}", std::strerror(errno)));
    end_ += static_cast<std::int64_t>(t.bytes().size());
    kept.types.push_back(t.type());
  }
  return {};
}

Result<Sample> KeptSamples::at(std::size_t index) const {
  const Kept& kept = samples_[index];
  if (kept.types.empty()) return Sample{kept.name, kept.tensors};
  Sample out{kept.name, {}};
  std::int64_t offset = kept.offset;
  for (const ir::TensorType& type : kept.types) {
    ir::Tensor& t = out.inputs.emplace_back(type);
    if (!read_at(file_, offset, t.mutable_bytes()))
      return fail(ErrorKind::io,
                  fmt::format("{}: cannot be read back from the temporary folder: {}", kept.name, std::strerror(errno)));
    offset += static_cast<std::int64_t>(t.bytes().size());
  }
  return out;
}

}  // namespace octavo::quantize
