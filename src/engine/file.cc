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
#include <set>
#include <string>
#include <utility>

#include "base/foreign_file.h"
#include "base/hash.h"
#include "base/write_file.h"
#include "engine/aligned.h"
#include "engine/signature.h"
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
  std::array<char, 24> name;
  std::uint32_t id, zero;
  std::uint64_t offset, bytes, hash, zero2;
};
static_assert(sizeof(Entry) == 64);

constexpr std::array<std::byte, 2 * kAlignment> kZeros{};

std::uint64_t header_hash(const Header& h) {
  return hash64(std::span(reinterpret_cast<const std::byte*>(&h), offsetof(Header, header_hash)));
}

/// Where the next section may start after something that ends at `end`.
std::uint64_t next_offset(std::uint64_t end) {
  return round_up(end + kAlignment);
}

bool is_model(std::string_view name) {
  return name == section::kModel || name == section::kModelFiles || name == section::kModelFile;
}

/// The name that an entry holds; empty: none that write_file writes.
std::string_view name_of(const char* at) {
  const std::string_view field(at, sizeof(Entry::name));
  const std::string_view name = field.substr(0, field.find('\0'));
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; };
  if (name.size() == field.size() || !std::all_of(name.begin(), name.end(), fits)) return {};
  return field.find_first_not_of('\0', name.size()) == std::string_view::npos ? name : std::string_view();
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// What a file that is not ours looks like, to help the user who passed the wrong one.
std::string guess(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<std::size_t>(file.size(), 8));
  if (head.starts_with("\x08") && head.size() > 2) return " It looks like an ONNX model: build an engine from it first.";
  const auto foreign = foreign_file(file);
  return foreign ? fmt::format(" It is {}: {}.", foreign->name, foreign->help) : std::string();
}

std::string printable(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    const auto c = static_cast<unsigned char>(b);
    out += (c >= 0x20 && c < 0x7f && c != '\\' && c != '"') ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return out;
}

/// Hands the file to `put`, piece by piece, until it says false.
template <class Put>
bool write_sections(std::span<const Section> sections, const MadeBy& by, const Put& put) {
  std::vector<Entry> table;
  std::uint64_t end = sizeof(Header) + sections.size() * sizeof(Entry);
  for (const Section& s : sections) {
    const std::uint64_t offset = next_offset(end);
    Entry entry{{}, s.id, 0, offset, s.bytes.size(), hash64(s.bytes), 0};
    s.name.copy(entry.name.data(), entry.name.size() - 1);
    table.push_back(entry);
    end = offset + s.bytes.size();
  }
  Header h{};
  h.magic = kMagic;
  h.format = by.format;
  h.major = by.major, h.minor = by.minor, h.patch = by.patch;
  h.sections = static_cast<std::uint32_t>(sections.size());
  h.file_bytes = next_offset(end);
  h.table_hash = hash64(std::as_bytes(std::span(table)));
  h.header_hash = header_hash(h);
  if (!put(&h, sizeof h) || !put(table.data(), table.size() * sizeof(Entry))) return false;
  std::uint64_t at = sizeof(Header) + table.size() * sizeof(Entry);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (!put(kZeros.data(), table[i].offset - at) || !put(sections[i].bytes.data(), sections[i].bytes.size())) return false;
    at = table[i].offset + table[i].bytes;
  }
  return put(kZeros.data(), h.file_bytes - at);
}

/// -1, 0 or 1: the file's version is earlier, of the same minor version, or later.
int age(const MadeBy& by) {
  const std::array<std::uint32_t, 2> its{by.major, by.minor}, ours{kVersionMajor, kVersionMinor};
  return its < ours ? -1 : its == ours ? 0 : 1;
}

}  // namespace

MadeBy MadeBy::here() {
  return {kFormat, kVersionMajor, kVersionMinor, kVersionPatch};
}

std::string MadeBy::version() const {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string MadeBy::outdated() const {
  if (format == kFormat && age(*this) >= 0) return "";
  return fmt::format("it was built by Octavo {} in file format {}; this is Octavo {}, which runs format {}", version(), format,
                     kVersion, kFormat);
}

Status write_file(const std::string& path, std::span<const Section> sections, const MadeBy& by, const std::string& private_key) {
  if (private_key.empty()) {
    return replace_file(path, "engine", [&](int fd) {
      return write_sections(sections, by, [fd](const void* data, std::size_t size) { return write_all(fd, data, size); });
    });
  }
  std::string file;  // a signature takes all bytes at once
  write_sections(sections, by, [&](const void* data, std::size_t size) {
    file.append(static_cast<const char*>(data), size);
    return true;
  });
  OCTAVO_TRY(const std::string signature, sign(std::as_bytes(std::span(file)), private_key));
  return octavo::write_file(path, file + signature, "engine");
}

Result<Container> read_container(std::span<const std::byte> file, std::string_view name) {
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
  Container out;
  out.by = {h.format, h.major, h.minor, h.patch};
  if (h.format > kFormat || (h.format == kFormat && age(out.by) > 0)) {
    return bad(
        fmt::format("it was built by Octavo {} in file format {}, which is later than this Octavo {} (format {}). Install that "
                    "version or a later one to run it, "
                    "or build the engine again from its model with this one.",
                    out.by.version(), h.format, kVersion, kFormat));
  }
  if (h.format < kOldestReadable) {
    return bad(
        fmt::format("it was built by Octavo {} in file format {}; this is Octavo {}, which runs format {} and can rebuild files "
                    "from format {} on. {}",
                    out.by.version(), h.format, kVersion, kFormat, kOldestReadable, kRebuild));
  }
  if (const std::uint64_t found = header_hash(h); found != h.header_hash) {
    return bad(fmt::format("damaged header: checksum {:016x} stored, {:016x} found. {}", h.header_hash, found, kRebuild));
  }
  const bool is_signed = h.file_bytes <= file.size() && is_signature(file.subspan(h.file_bytes));
  if (h.file_bytes != file.size() && !is_signed) {
    return bad(fmt::format("{}: the header says {} bytes, the file has {}. Copy or build it again.",
                           file.size() < h.file_bytes ? "truncated" : "too long", h.file_bytes, file.size()));
  }
  file = out.body = file.first(h.file_bytes);
  if (h.zero != 0 || h.zero2 != 0)
    return bad(fmt::format("reserved header fields are {} and {}, expected 0. {}", h.zero, h.zero2, kRebuild));
  if (h.sections > kMaxSections || sizeof(Header) + std::uint64_t{h.sections} * sizeof(Entry) > file.size()) {
    return bad(fmt::format("damaged header: {} sections do not fit in {} bytes. {}", h.sections, file.size(), kRebuild));
  }
  const auto table_bytes = file.subspan(sizeof(Header), std::size_t{h.sections} * sizeof(Entry));
  if (const std::uint64_t found = hash64(table_bytes); found != h.table_hash) {
    return bad(fmt::format("damaged section table: checksum {:016x} stored, {:016x} found. {}", h.table_hash, found, kRebuild));
  }
  std::set<std::pair<std::string_view, std::uint32_t>> names;
  std::uint64_t end = sizeof(Header) + table_bytes.size();
  const auto gap_error = [&](std::uint64_t from, std::uint64_t to) {
    return bad(fmt::format("damaged: bytes {}..{} lie between sections and should be zero. {}", from, to, kRebuild));
  };
  for (std::uint32_t i = 0; i < h.sections; ++i) {
    const std::byte* const at = table_bytes.data() + i * sizeof(Entry);
    Entry e;
    std::memcpy(&e, at, sizeof e);
    const std::string_view its = name_of(reinterpret_cast<const char*>(at));
    if (its.empty() || e.zero != 0 || e.zero2 != 0)
      return bad(fmt::format("section {} has no valid entry in the table. {}", i, kRebuild));
    if (!names.emplace(its, e.id).second) return bad(fmt::format("two sections \"{}\" with id {}. {}", its, e.id, kRebuild));
    if (e.offset != next_offset(end) || e.offset > file.size() || e.bytes > file.size() - e.offset) {
      return bad(fmt::format("section {} ({} {}) is at {}+{}, expected at {} within {} bytes. {}", i, its, e.id, e.offset, e.bytes,
                             next_offset(end), file.size(), kRebuild));
    }
    if (!all_zero(file.subspan(end, e.offset - end))) return gap_error(end, e.offset - 1);
    out.sections.push_back({its, e.id, file.subspan(e.offset, e.bytes)});
    out.stored.push_back(e.hash);
    if (!is_model(its)) OCTAVO_CHECK(check_section(out, i, name));
    end = e.offset + e.bytes;
  }
  if (next_offset(end) != file.size()) {
    return bad(fmt::format("the last section ends at {}, so the file should have {} bytes; it has {}. {}", end, next_offset(end),
                           file.size(), kRebuild));
  }
  if (!all_zero(file.subspan(end))) return gap_error(end, file.size() - 1);
  return out;
}

Status check_section(const Container& container, std::size_t i, std::string_view name) {
  const Section& s = container.sections[i];
  const std::uint64_t found = hash64(s.bytes);
  if (found == container.stored[i]) return {};
  const auto from = static_cast<std::uint64_t>(s.bytes.data() - container.body.data());
  return fail(
      ErrorKind::bad_engine,
      fmt::format("engine \"{}\": damaged: section {} ({} {}, bytes {}..{}) has checksum {:016x} stored, {:016x} found. Build the "
                  "engine again from its model.",
                  name, i, s.name, s.id, from, from + s.bytes.size(), container.stored[i], found));
}

std::string rebuild_hint(const Container& container, std::string_view name) {
  const bool kept =
      std::any_of(container.sections.begin(), container.sections.end(), [](const Section& s) { return s.name == section::kModel; });
  return kept ? fmt::format("\n  it holds its model: octavo rebuild {} builds it again and replaces the file", name)
              : std::string("\n  it was built without its model (--no-model): build it again from the ONNX file");
}

Result<std::vector<Section>> read_sections(std::span<const std::byte> file, std::string_view name) {
  OCTAVO_TRY(Container all, read_container(file, name));
  const std::string outdated = all.by.outdated();
  if (outdated.empty()) return std::move(all.sections);
  return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}{}", name, outdated, rebuild_hint(all, name)));
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

Result<std::unique_ptr<MappedFile>> MappedFile::copy(const std::string& path) {
  OCTAVO_TRY(const std::unique_ptr<MappedFile> file, open(path));
  const std::span<const std::byte> from = file->bytes();
  if (from.empty()) return std::unique_ptr<MappedFile>(new MappedFile(nullptr, 0));
  void* data = ::mmap(nullptr, from.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return fail(ErrorKind::io, fmt::format("cannot read engine \"{}\": {}", path, std::strerror(errno)));
  std::memcpy(data, from.data(), from.size());
  (void)::mprotect(data, from.size(), PROT_READ);
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const std::byte*>(data), from.size()));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace octavo::engine
