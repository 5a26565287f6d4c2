#include "cuda/device/cubin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/hash.h"

namespace octavo::cuda {
namespace {

tl::unexpected<Error> bad(const std::string& what) {
  return fail(ErrorKind::bad_engine, "machine code for the GPU: " + what);
}

// ELF of 64 bits, little-endian (System V ABI), as far as it is read here.
struct Header {
  std::array<unsigned char, 16> ident;
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, segments_at, sections_at;
  std::uint32_t flags;
  std::uint16_t header_bytes, segment_bytes, segments, section_bytes, sections, names;
};
static_assert(sizeof(Header) == 64);
struct SectionHeader {
  std::uint32_t name, type;
  std::uint64_t flags, address, at, bytes;
  std::uint32_t link, info;
  std::uint64_t align, entry_bytes;
};
static_assert(sizeof(SectionHeader) == 64);
struct Segment {
  std::uint32_t type, flags;
  std::uint64_t at, address, physical, file_bytes, memory_bytes, align;
};
static_assert(sizeof(Segment) == 56);
struct Symbol {
  std::uint32_t name;
  std::uint8_t info, other;
  std::uint16_t section;
  std::uint64_t value, bytes;
};
static_assert(sizeof(Symbol) == 24);

constexpr std::uint16_t kMachine = 190;  // EM_CUDA
constexpr std::uint32_t kNoBits = 8, kSymbols = 2, kStrings = 3, kRela = 4, kRel = 9;
constexpr std::uint8_t kFunction = 2;
constexpr std::uint16_t kReserved = 0xff00;  // from here on indices of sections mean something else
constexpr std::uint8_t kNewAbi = 8;          // of CUDA 13: the architecture is another byte of the flags
constexpr std::int64_t kMostShared = 228 << 10;

class Reader {
 public:
  explicit Reader(std::span<const std::byte> code) : code_(code) {}

  Result<Cubin> read() {
    OCTAVO_CHECK(headers());
    OCTAVO_CHECK(segments());
    OCTAVO_CHECK(sections());
    Cubin out;
    out.sm = static_cast<int>(header_.ident[8] >= kNewAbi ? (header_.flags >> 8) & 0xff : header_.flags & 0xff);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].type == kSymbols) OCTAVO_CHECK(symbols(sections_[i], out));
    }
    for (CubinKernel& k : out.kernels) OCTAVO_CHECK(facts(k));
    return out;
  }

 private:
  template <class T>
  [[nodiscard]] T at(std::uint64_t offset) const {
    T out;
    std::memcpy(&out, code_.data() + offset, sizeof out);
    return out;
  }
  [[nodiscard]] bool holds(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= code_.size() && bytes <= code_.size() - offset;
  }

  Status headers() {
    constexpr unsigned char kIdent[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};  // 64 bits, little-endian, version 1
    if (code_.size() < sizeof(Header)) return bad(fmt::format("{} bytes, an ELF header needs {}", code_.size(), sizeof(Header)));
    header_ = at<Header>(0);
    if (!std::equal(std::begin(kIdent), std::end(kIdent), header_.ident.begin())) return bad("it is not an ELF file of 64 bits");
    if (header_.machine != kMachine) return bad(fmt::format("it is for machine {} (CUDA is {})", header_.machine, kMachine));
    if (header_.header_bytes != sizeof(Header) || header_.section_bytes != sizeof(SectionHeader) ||
        (header_.segments > 0 && header_.segment_bytes != sizeof(Segment)))
      return bad("its headers have other sizes than ELF's");
    if (header_.sections == 0 || !holds(header_.sections_at, std::uint64_t{header_.sections} * sizeof(SectionHeader)))
      return bad(
          fmt::format("{} section headers at {} do not lie in its {} bytes", header_.sections, header_.sections_at, code_.size()));
    if (header_.names >= header_.sections)
      return bad(fmt::format("the names of sections are in section {} of {}", header_.names, header_.sections));
    return {};
  }

  Status segments() const {
    if (!holds(header_.segments_at, std::uint64_t{header_.segments} * sizeof(Segment)))
      return bad(fmt::format("{} segments at {} do not lie in its {} bytes", header_.segments, header_.segments_at, code_.size()));
    for (std::uint64_t i = 0; i < header_.segments; ++i) {
      const auto s = at<Segment>(header_.segments_at + i * sizeof(Segment));
      if (!holds(s.at, s.file_bytes))
        return bad(fmt::format("segment {} is at {}+{} of {} bytes", i, s.at, s.file_bytes, code_.size()));
    }
    return {};
  }

  Status sections() {
    for (std::uint64_t i = 0; i < header_.sections; ++i)
      sections_.push_back(at<SectionHeader>(header_.sections_at + i * sizeof(SectionHeader)));
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const SectionHeader& s = sections_[i];
      if (s.type != kNoBits && !holds(s.at, s.bytes))
        return bad(fmt::format("section {} is at {}+{} of {} bytes", i, s.at, s.bytes, code_.size()));
      if (s.link >= sections_.size()) return bad(fmt::format("section {} names section {} of {}", i, s.link, sections_.size()));
      if ((s.type == kRela || s.type == kRel) && s.info >= sections_.size())
        return bad(fmt::format("section {} relocates section {} of {}", i, s.info, sections_.size()));
      if (s.type == kStrings && s.bytes > 0 && code_[s.at + s.bytes - 1] != std::byte{0})
        return bad(fmt::format("the strings of section {} do not end", i));
    }
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      OCTAVO_TRY(std::string name, text(header_.names, sections_[i].name));
      by_name_.emplace(std::move(name), i);
    }
    return {};
  }

  /// A string of a table.
  [[nodiscard]] Result<std::string> text(std::size_t table, std::uint64_t offset) const {
    const SectionHeader& s = sections_[table];
    if (s.type != kStrings) return bad(fmt::format("section {} is taken for strings, and is none", table));
    if (offset >= s.bytes) return bad(fmt::format("a name at {} of {} bytes of strings", offset, s.bytes));
    return std::string(reinterpret_cast<const char*>(code_.data() + s.at + offset));  // the table ends with a zero
  }

  Status symbols(const SectionHeader& table, Cubin& out) const {
    if (table.entry_bytes != sizeof(Symbol) || table.bytes % sizeof(Symbol) != 0)
      return bad("its symbols have another size than ELF's");
    for (std::uint64_t i = 0; i < table.bytes / sizeof(Symbol); ++i) {
      const auto s = at<Symbol>(table.at + i * sizeof(Symbol));
      OCTAVO_TRY(const std::string name, text(table.link, s.name));
      if (s.section >= sections_.size() && s.section < kReserved)
        return bad(fmt::format("symbol \"{}\" is in section {} of {}", name, s.section, sections_.size()));
      if ((s.info & 0xf) != kFunction || s.section == 0 || s.section >= kReserved) continue;
      const SectionHeader& in = sections_[s.section];
      if (s.value > in.bytes || s.bytes > in.bytes - s.value)
        return bad(fmt::format("kernel \"{}\" is at {}+{} of {} bytes", name, s.value, s.bytes, in.bytes));
      if (by_name_.contains(".nv.info." + name)) out.kernels.push_back({name});
    }
    return {};
  }

  /// What `.nv.info.NAME` says of a kernel: a list of { u8 format, u8 attribute, u16 value or bytes that follow }.
  Status facts(CubinKernel& k) const {
    constexpr std::uint8_t kSized = 4, kMaxThreads = 0x05, kParameter = 0x17, kParameterBytes = 0x19;
    const SectionHeader& s = sections_[by_name_.at(".nv.info." + k.name)];
    if (s.type == kNoBits) return bad(fmt::format("kernel \"{}\" has no facts", k.name));
    std::optional<std::int64_t> bytes;
    std::map<int, std::pair<int, int>> parameters;  // by number: offset, size
    for (std::uint64_t i = 0; i + 4 <= s.bytes;) {
      const auto format = at<std::uint8_t>(s.at + i), attribute = at<std::uint8_t>(s.at + i + 1);
      const auto value = at<std::uint16_t>(s.at + i + 2);
      i += 4;
      if (format != kSized) {
        if (attribute == kParameterBytes) bytes = value;
        continue;
      }
      if (value > s.bytes - i) return bad(fmt::format("the facts of kernel \"{}\" are cut off", k.name));
      if (attribute == kMaxThreads && value == 12) {
        std::int64_t most = 1;
        for (std::uint64_t d = 0; d < 3; ++d) most *= std::min<std::uint32_t>(at<std::uint32_t>(s.at + i + 4 * d), 1 << 16);
        k.most_threads = most;
      }
      if (attribute == kParameter && value == 12) {
        const int number = at<std::uint16_t>(s.at + i + 4), offset = at<std::uint16_t>(s.at + i + 6);
        parameters[number] = {offset, static_cast<int>(at<std::uint32_t>(s.at + i + 8) >> 18)};
      }
      i += value;
    }
    k.parameters = static_cast<int>(parameters.size());
    k.parameter_bytes = bytes.value_or(0);
    int next = 0, end = 0;
    bool sound = true;
    for (const auto& [number, place] : parameters) {
      const auto& [offset, size] = place;
      // An image is aligned as the bank of constants has it, of which parameters are a part: from where these begin, to 16 bytes.
      const bool placed = size == kImageBytes ? offset >= end && offset < end + kImageAlignment && offset % 16 == 0
                                              : (size == 4 || size == 8) && offset == (end + size - 1) / size * size;
      sound = sound && number == next && placed;
      end = offset + size, ++next;
      k.sizes.push_back(size);
    }
    if (!sound || k.parameter_bytes != end) k.sizes.clear();
    if (const auto shared = by_name_.find(".nv.shared." + k.name); shared != by_name_.end()) {
      const std::uint64_t size = sections_[shared->second].bytes;
      if (size > (std::uint64_t{1} << 31)) return bad(fmt::format("kernel \"{}\" has {} bytes of shared memory", k.name, size));
      k.shared_bytes = static_cast<std::int64_t>(size);
    }
    return {};
  }

  std::span<const std::byte> code_;
  Header header_{};
  std::vector<SectionHeader> sections_;
  std::map<std::string, std::size_t> by_name_;
};

Status check_launch(const Launch& l, const Cubin& cubin) {
  const auto of =
      std::find_if(cubin.kernels.begin(), cubin.kernels.end(), [&](const CubinKernel& k) { return k.name == l.function; });
  if (of == cubin.kernels.end()) {
    std::string names;
    for (const CubinKernel& k : cubin.kernels) names += (names.empty() ? "" : ", ") + k.name;
    return bad(fmt::format("a launch of \"{}\", its kernels are: {}", l.function, names));
  }
  const std::size_t given = l.arguments.size();
  bool fits =
      static_cast<std::size_t>(of->parameters) == given && of->sizes.size() == given && (given > 0 || of->parameter_bytes == 0);
  for (std::size_t i = 0; fits && i < given; ++i) {
    const Argument& a = l.arguments[i];
    fits = a.image >= 0
               ? of->sizes[i] == kImageBytes
               : of->sizes[i] == 8 || (of->sizes[i] == 4 && (a.kind == Argument::Kind::number || a.kind == Argument::Kind::next));
  }
  if (!fits)
    return bad(fmt::format("kernel \"{}\" takes {} parameters of {} bytes, the launch gives {} pointers", l.function,
                           of->parameters, of->parameter_bytes, given));
  // What every GPU since compute capability 8.0 can start (CUDA C++ Programming Guide, technical specifications).
  constexpr std::array<std::int64_t, 3> kMostGrid{(std::int64_t{1} << 31) - 1, 65535, 65535}, kMostBlock{1024, 1024, 64};
  constexpr std::int64_t kMostThreads = 1024;
  std::int64_t threads = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    if (l.grid[d] < 1 || l.grid[d] > kMostGrid[d] || l.block[d] < 1 || l.block[d] > kMostBlock[d])
      return bad(fmt::format("kernel \"{}\" is started with a grid of {}x{}x{} blocks of {}x{}x{} threads", l.function, l.grid[0],
                             l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2]));
    threads *= l.block[d];
  }
  const std::int64_t most = of->most_threads > 0 ? std::min(of->most_threads, kMostThreads) : kMostThreads;
  if (threads > most)
    return bad(fmt::format("kernel \"{}\" is started with {} threads a block, it takes {}", l.function, threads, most));
  if (l.shared_bytes < 0 || of->shared_bytes + l.shared_bytes > kMostShared)
    return bad(fmt::format("kernel \"{}\" is started with {} bytes of shared memory beside its own {}", l.function, l.shared_bytes,
                           of->shared_bytes));
  return {};
}

}  // namespace

Result<Cubin> read_cubin(std::span<const std::byte> code) {
  return Reader(code).read();
}

namespace {

Status check_launches(const Cubin& cubin, Architecture architecture, std::span<const Launch* const> launches) {
  if (architecture.sm == 0 || cubin.sm != architecture.sm)
    return bad(
        fmt::format("it is for sm_{}, the plan for {}", cubin.sm, architecture.sm == 0 ? "no architecture" : architecture.text()));
  for (const Launch* l : launches) OCTAVO_CHECK(check_launch(*l, cubin));
  return {};
}

Status with_advice(Status done) {
  if (!done)
    done.error().message +=
        "\n  an engine file for a GPU is a program: load it from where you would take one, or without its code (--code rebuild, "
        "code=\"rebuild\"; docs/hostile.md)";
  return done;
}

}  // namespace

Status check_machine_code(std::span<const std::byte> code, Architecture architecture, std::span<const Launch* const> launches) {
  const auto cubin = read_cubin(code);
  return with_advice(cubin ? check_launches(*cubin, architecture, launches) : Status(tl::unexpected(cubin.error())));
}

Status check_read_code(const Cubin& cubin, Architecture architecture, std::span<const Launch* const> launches) {
  return with_advice(check_launches(cubin, architecture, launches));
}

CodeCheck remembering_check() {
  struct Known {
    std::vector<std::byte> code;
    Cubin cubin;
  };
  struct Memory {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::shared_ptr<const Known>> known;  ///< by a hash; the bytes are compared
  };
  return [memory = std::make_shared<Memory>()](std::span<const std::byte> code, Architecture architecture,
                                               std::span<const Launch* const> launches) -> Status {
    constexpr std::size_t kMost = 4096;
    const std::uint64_t hash = hash64(code);
    std::shared_ptr<const Known> known;
    {
      const std::lock_guard lock(memory->mutex);
      if (const auto at = memory->known.find(hash); at != memory->known.end()) known = at->second;
    }
    // memcmp: std::ranges::equal compares std::byte one by one, and a new shape compares megabytes.
    if (known == nullptr || known->code.size() != code.size() || std::memcmp(known->code.data(), code.data(), code.size()) != 0) {
      auto cubin = read_cubin(code);
      if (!cubin) return with_advice(tl::unexpected(cubin.error()));
      known = std::make_shared<const Known>(Known{{code.begin(), code.end()}, std::move(*cubin)});
      const std::lock_guard lock(memory->mutex);
      if (memory->known.size() >= kMost) memory->known.clear();
      memory->known[hash] = known;
    }
    return with_advice(check_launches(known->cubin, architecture, launches));
  };
}

}  // namespace octavo::cuda
