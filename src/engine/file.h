// The engine file: one header, one table of sections, sections. All numbers are little-endian.
//
// Header, 64 bytes, at byte 0:
//   0   magic         "OCTAVO\0\n"
//   8   u32 format    kFormat; a file of another format is refused
//   12  u32 x 3       Octavo version (major, minor, patch). Major and minor must be ours, because tactic names and packings belong
//                     to a version.
//   24  u32 sections  entries of the table, which starts at byte 64
//   28  u32 zero
//   32  u64           file bytes
//   40  u64           XXH3-64 of the table
//   48  u64 zero
//   56  u64           XXH3-64 of bytes 0 to 55
//
// Table: an entry { u32 kind, u32 id, u64 offset, u64 bytes, u64 XXH3-64 of the section } for each section, in their order.
//
// Sections: each starts at the next multiple of 64 that leaves at least 64 zero bytes after the one before, and the file ends with
// such a gap too. Bytes outside the header, the table and the sections are zero, and are checked to be. There are the plan
// (region::to_json), a summary (JSON: plan hash, what the processor must have, notes, what the model says of itself), optionally the normalized graph as text, and each
// constant buffer of the plan raw, whose `id` is its BufferId. Of several plans, engine/set.h says what the ids are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo::engine {

/// Raised whenever an older Octavo would misread the file, or this one an older file. 1: plans without memory spaces, tactics as
/// text, constants packed for the machine at hand. 2: memory spaces, tactics and artifacts as values. 3: refusals as reasons.
inline constexpr std::uint32_t kFormat = 3;
enum class SectionKind : std::uint32_t { plan = 1, summary = 2, graph = 3, constant = 4, set = 5 };

struct Section {
  SectionKind kind = SectionKind::plan;
  std::uint32_t id = 0;
  std::span<const std::byte> bytes;  ///< not owned
};

/// The file's bytes before a section or gap is written: deterministic, a function of the sections alone.
/// Writes to a temporary file beside `path`, then renames: an existing file survives any failure. `path` must be new or a regular
/// file.
[[nodiscard]] Status write_file(const std::string& path, std::span<const Section> sections);

/// Checks everything named above and returns the sections, as views into `file` (64-byte aligned when `file` is). `name` is for
/// messages. Never reads outside `file`; every failure is `bad_engine` with what was expected and what was found. Cost: one pass
/// over the bytes.
[[nodiscard]] Result<std::vector<Section>> read_sections(std::span<const std::byte> file, std::string_view name);

/// A file mapped read-only. Changing the file while it is mapped changes what is read: replace engine files, do not rewrite them.
class MappedFile {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace octavo::engine
