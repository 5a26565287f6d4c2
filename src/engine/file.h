// The engine file: one header, one table of sections, sections. All numbers are little-endian.
//
// This container stays as it is in every version from format 4 on: each Octavo can read the header, the table and the sections `model` and
// `build` of every older file, which is what a rebuild takes (engine/source.h). What is in the sections belongs to a format.
//
// Header, 64 bytes, at byte 0:
//   0   magic         "OCTAVO\0\n"
//   8   u32 format    kFormat. A later format is refused; a file of an earlier one is outdated: it can be rebuilt, not run.
//   12  u32 x 3       Octavo version (major, minor, patch) that wrote it. Of another minor or major version the same holds, because
//                     tactic names and packings belong to a version.
//   24  u32 sections  entries of the table, which starts at byte 64
//   28  u32 zero
//   32  u64           file bytes, without a signature
//   40  u64           XXH3-64 of the table
//   48  u64 zero
//   56  u64           XXH3-64 of bytes 0 to 55
//
// Table: an entry { char name[24], u32 id, u32 zero, u64 offset, u64 bytes, u64 XXH3-64 of the section, u64 zero } for each section, in
// their order. A name is 1 to 23 characters of a-z and -, filled with zeros. A name and an id occur once.
//
// Sections: each starts at the next multiple of 64 that leaves at least 64 zero bytes after the one before, and the file ends with
// such a gap too. Bytes outside the header, the table and the sections are zero, and are checked to be. Their names are below.
//
// Behind the file there may be 128 bytes of signature (engine/signature.h), which covers every byte before it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo::engine {

/// Raised whenever an older Octavo would misread the sections, or this one an older file's. 1: plans without memory spaces, tactics as
/// text, constants packed for the machine at hand. 2: memory spaces, tactics and artifacts as values. 3: refusals as reasons. 4: named
/// sections, the model is kept.
inline constexpr std::uint32_t kFormat = 4;
/// The first with this container.
inline constexpr std::uint32_t kOldestReadable = 4;

/// Names of sections. Of several plans, engine/set.h says what the ids are.
namespace section {
inline constexpr std::string_view kSet = "set";    ///< JSON: which constants are whose, in a file of several plans
inline constexpr std::string_view kPlan = "plan";  ///< region::to_json
inline constexpr std::string_view kSummary =
    "summary";                                       ///< JSON: what the processor must have, notes, what the model says of itself
inline constexpr std::string_view kGraph = "graph";  ///< the normalized graph as text, without large constants; optional
inline constexpr std::string_view kConstant = "constant";  ///< a constant buffer of the plan, raw; its id is its BufferId
inline constexpr std::string_view kBuild = "build";        ///< JSON: the options of the build; optional
// Of a file that serves a range of shapes, what api/open_file.h writes; this module does not read it.
inline constexpr std::string_view kOpen = "open";  ///< JSON: the range, and how plans follow from those of the file
inline constexpr std::string_view kOpenData =
    "open-data";  ///< longer contents of a plan's constants; its id is the plan's; optional
// What the engine was built from, for a rebuild: optional, not read by a normal load, and its checksums are compared when it is read.
inline constexpr std::string_view kModel = "model";             ///< the ONNX file
inline constexpr std::string_view kModelFiles = "model-files";  ///< JSON: names of its external data files
inline constexpr std::string_view kModelFile = "model-file";    ///< one of these; its id is the index in `model-files`
}  // namespace section

struct Section {
  std::string_view name;  ///< one of those above, or a view into a file
  std::uint32_t id = 0;
  std::span<const std::byte> bytes;  ///< not owned
};

/// Who wrote a file.
struct MadeBy {
  std::uint32_t format = kFormat;
  std::uint32_t major = 0, minor = 0, patch = 0;
  [[nodiscard]] static MadeBy here();
  [[nodiscard]] std::string version() const;  ///< "0.1.0"
  /// Why this Octavo cannot run what is in the file, which is of an earlier version or format: a clause that begins with "it was built by". Empty: it can.
  [[nodiscard]] std::string outdated() const;
};

/// A file taken apart.
struct Container {
  MadeBy by;
  std::vector<Section> sections;      ///< views into the file (64-byte aligned when it is)
  std::vector<std::uint64_t> stored;  ///< their checksums by the table
  std::span<const std::byte> body;    ///< the file without a signature
};

/// The file's bytes before a section or gap is written: deterministic, a function of the sections alone (and `by`, which tests set).
/// Writes to a temporary file beside `path`, then renames: an existing file survives any failure. `path` must be new or a regular
/// file. A private key (PEM; engine/signature.h) signs it.
[[nodiscard]] Status write_file(const std::string& path, std::span<const Section> sections, const MadeBy& by = MadeBy::here(),
                                const std::string& private_key = {});

/// Checks the container and the checksum of every section but those of the model. `name` is for messages. Never reads outside `file`; every
/// failure is `bad_engine` with what was expected and what was found: a file of a later version or format, too. Cost: one pass over
/// the bytes, without the model's.
[[nodiscard]] Result<Container> read_container(std::span<const std::byte> file, std::string_view name);
/// The checksum of section `i`, for those that read_container leaves out.
[[nodiscard]] Status check_section(const Container& container, std::size_t i, std::string_view name);

/// The sections of a file that this Octavo can run. Errors: bad_engine, as above, and for an outdated file.
[[nodiscard]] Result<std::vector<Section>> read_sections(std::span<const std::byte> file, std::string_view name);

/// What an error about an outdated file adds: how to get a current one.
[[nodiscard]] std::string rebuild_hint(const Container& container, std::string_view name);

/// A file mapped read-only. Changing the file while it is mapped changes what is read: replace engine files, do not rewrite them.
class MappedFile {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  /// The same as a private copy in memory, which no other process can change: for files that are verified before they are used.
  [[nodiscard]] static Result<std::unique_ptr<MappedFile>> copy(const std::string& path);
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
