#include "engine/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "base/write_file.h"
#include "engine/aligned.h"
#include "engine/version.h"

namespace octavo::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "engine files are written by copying numbers");

constexpr std::array<char, 8> kMagic = {'O', 'C', 'T', 'A', 'V', 'O', '\0', '\n'};
constexpr std::uint32_t kMaxSections = 1U << 20;

struct Header {
  std::array<char, 8> magic;
  std::uint32_t format;
  std::uint32_t major, minor, patch;
  std::uint32_t sections;
  std::uint32_t zero;
  std::uint64_t file_bytes;
  std::uint64_t table_hash;
  std::uint64_t zero2;
  std::uint64_t header_hash;
};
static_assert(sizeof(Header) == 64);

struct Entry {
  std::uint32_t kind, id;
  std::uint64_t offset, bytes, hash;
};
static_assert(sizeof(Entry) == 32);

constexpr std::array<std::byte, 2 * kAlignment> kZeros{};

std::uint64_t header_hash(const Header& h) {
  return hash64(std::span(reinterpret_cast<const std::byte*>(&h), offsetof(Header, header_hash)));
}

/// Where the next section may start after something that ends at `end`.
std::uint64_t next_offset(std::uint64_t end) {
  return round_up(end + kAlignment);
}

std::string_view kind_name(SectionKind kind) {
  switch (kind) {
    case SectionKind::plan: return "plan";
    case SectionKind::summary: return "summary";
    case SectionKind::graph: return "graph";
    case SectionKind::constant: return "constant";
    case SectionKind::set: return "set";
  }
  return "unknown";
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// What a file that is not ours looks like, to help the user who passed the wrong one.
std::string_view guess(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<std::size_t>(file.size(), 8));
  if (head.starts_with("\x08") && head.size() > 2) return " It looks like an ONNX model: build an engine from it first.";
  if (head.starts_with("ptrt") || head.starts_with("ftrt")) return " It looks like a TensorRT engine.";
  if (head.starts_with("PK\x03\x04")) return " It looks like a zip archive.";
  if (head.starts_with("\x89PNG") || head.starts_with("\xff\xd8")) return " It looks like an image.";
  return "";
}

std::string printable(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    const auto c = static_cast<unsigned char>(b);
    out += (c >= 0x20 && c < 0x7f && c != '\\' && c != '"') ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return out;
}

bool write_sections(int fd, std::span<const Section> sections) {
  std::vector<Entry> table;
  std::uint64_t end = sizeof(Header) + sections.size() * sizeof(Entry);
  for (const Section& s : sections) {
    const std::uint64_t offset = next_offset(end);
    table.push_back({static_cast<std::uint32_t>(s.kind), s.id, offset, s.bytes.size(), hash64(s.bytes)});
    end = offset + s.bytes.size();
  }
  Header h{};
  h.magic = kMagic;
  h.format = kFormat;
  h.major = kVersionMajor, h.minor = kVersionMinor, h.patch = kVersionPatch;
  h.sections = static_cast<std::uint32_t>(sections.size());
  h.file_bytes = next_offset(end);
  h.table_hash = hash64(std::as_bytes(std::span(table)));
  h.header_hash = header_hash(h);
  if (!write_all(fd, &h, sizeof h) || !write_all(fd, table.data(), table.size() * sizeof(Entry))) return false;
  std::uint64_t at = sizeof(Header) + table.size() * sizeof(Entry);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (!write_all(fd, kZeros.data(), table[i].offset - at) || !write_all(fd, sections[i].bytes.data(), sections[i].bytes.size()))
      return false;
    at = table[i].offset + table[i].bytes;
  }
  return write_all(fd, kZeros.data(), h.file_bytes - at);
}

}  // namespace

Status write_file(const std::string& path, std::span<const Section> sections) {
  return replace_file(path, "engine", [&](int fd) { return write_sections(fd, sections); });
}

Result<std::vector<Section>> read_sections(std::span<const std::byte> file, std::string_view name) {
  const auto bad = [&](const std::string& fact) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", name, fact));
  };
  constexpr std::string_view kRebuild = "Build the engine again from its model.";
  const std::size_t seen = std::min(file.size(), kMagic.size());
  if (seen == 0 || std::memcmp(file.data(), kMagic.data(), seen) != 0) {
    return bad(
        fmt::format("not an Octavo engine: it should begin with \"OCTAVO\\x00\\x0a\", it begins with \"{}\" ({} bytes in all).{}",
                    printable(file.first(seen)), file.size(), guess(file)));
  }
  if (file.size() < sizeof(Header)) {
    return bad(
        fmt::format("truncated: the header needs {} bytes, the file has {}. Copy or build it again.", sizeof(Header), file.size()));
  }
  Header h;
  std::memcpy(&h, file.data(), sizeof h);
  if (h.format != kFormat) {
    return bad(fmt::format("it has file format {}, written by Octavo {}.{}.{}; this Octavo ({}) reads format {}. {}", h.format,
                           h.major, h.minor, h.patch, kVersion, kFormat,
                           h.format > kFormat ? "Use the Octavo that wrote it, or build the engine again." : kRebuild));
  }
  if (const std::uint64_t found = header_hash(h); found != h.header_hash) {
    return bad(fmt::format("damaged header: checksum {:016x} stored, {:016x} found. {}", h.header_hash, found, kRebuild));
  }
  if (h.major != kVersionMajor || h.minor != kVersionMinor) {
    return bad(fmt::format("built by Octavo {}.{}.{}, this is {}. {}", h.major, h.minor, h.patch, kVersion, kRebuild));
  }
  if (h.file_bytes != file.size()) {
    return bad(fmt::format("{}: the header says {} bytes, the file has {}. Copy or build it again.",
                           file.size() < h.file_bytes ? "truncated" : "too long", h.file_bytes, file.size()));
  }
  if (h.zero != 0 || h.zero2 != 0)
    return bad(fmt::format("reserved header fields are {} and {}, expected 0. {}", h.zero, h.zero2, kRebuild));
  if (h.sections > kMaxSections || sizeof(Header) + std::uint64_t{h.sections} * sizeof(Entry) > file.size()) {
    return bad(fmt::format("damaged header: {} sections do not fit in {} bytes. {}", h.sections, file.size(), kRebuild));
  }
  const auto table_bytes = file.subspan(sizeof(Header), std::size_t{h.sections} * sizeof(Entry));
  if (const std::uint64_t found = hash64(table_bytes); found != h.table_hash) {
    return bad(fmt::format("damaged section table: checksum {:016x} stored, {:016x} found. {}", h.table_hash, found, kRebuild));
  }
  std::vector<Section> sections;
  std::uint64_t end = sizeof(Header) + table_bytes.size();
  const auto gap_error = [&](std::uint64_t from, std::uint64_t to) {
    return bad(fmt::format("damaged: bytes {}..{} lie between sections and should be zero. {}", from, to, kRebuild));
  };
  for (std::uint32_t i = 0; i < h.sections; ++i) {
    Entry e;
    std::memcpy(&e, table_bytes.data() + i * sizeof e, sizeof e);
    const auto kind = static_cast<SectionKind>(e.kind);
    if (e.kind < 1 || e.kind > 5) return bad(fmt::format("section {} has kind {}, known are 1 to 5. {}", i, e.kind, kRebuild));
    if (e.offset != next_offset(end) || e.offset > file.size() || e.bytes > file.size() - e.offset) {
      return bad(fmt::format("section {} ({} {}) is at {}+{}, expected at {} within {} bytes. {}", i, kind_name(kind), e.id,
                             e.offset, e.bytes, next_offset(end), file.size(), kRebuild));
    }
    if (!all_zero(file.subspan(end, e.offset - end))) return gap_error(end, e.offset - 1);
    const auto bytes = file.subspan(e.offset, e.bytes);
    if (const std::uint64_t found = hash64(bytes); found != e.hash) {
      return bad(fmt::format("damaged: section {} ({} {}, bytes {}..{}) has checksum {:016x} stored, {:016x} found. {}", i,
                             kind_name(kind), e.id, e.offset, e.offset + e.bytes, e.hash, found, kRebuild));
    }
    sections.push_back({kind, e.id, bytes});
    end = e.offset + e.bytes;
  }
  if (next_offset(end) != file.size()) {
    return bad(fmt::format("the last section ends at {}, so the file should have {} bytes; it has {}. {}", end, next_offset(end),
                           file.size(), kRebuild));
  }
  if (!all_zero(file.subspan(end))) return gap_error(end, file.size() - 1);
  return sections;
}

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const auto error = [&](int code) {
    return fail(ErrorKind::io, fmt::format("cannot read engine \"{}\": {}", path, std::strerror(code)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    const int code = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    ::close(fd);
    return error(code);
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int code = errno;
      ::close(fd);
      return error(code);
    }
  }
  ::close(fd);
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace octavo::engine
