// .npz: the subset of ZIP that numpy writes and reads. Source: PKWARE APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12, 4.3.16.
#include <fmt/format.h>
#include <zlib.h>

#include <cstring>

#include "cli/inputs/npy.h"

namespace octavo::cli {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22;
constexpr std::uint64_t kLimit = 0xfffffffeU;

std::uint32_t read(std::span<const std::byte> b, std::size_t at, int bytes) {
  std::uint32_t v = 0;
  for (int i = 0; i < bytes; ++i) v |= std::to_integer<std::uint32_t>(b[at + static_cast<std::size_t>(i)]) << (8 * i);
  return v;
}

void write(std::vector<std::byte>& out, std::uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(v >> (8 * i)));
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Raw deflate into exactly `size` bytes; false if it does not fit.
bool inflate_raw(std::span<const std::byte> in, std::vector<std::byte>& out, std::size_t size) {
  if (size > in.size() * 1032 + 64) return false;  // deflate cannot expand more: do not allocate for a lie
  out.resize(size);
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  std::byte nothing{};
  z.next_out = reinterpret_cast<Bytef*>(out.empty() ? &nothing : out.data());
  z.avail_out = static_cast<uInt>(size);
  const int result = inflate(&z, Z_FINISH);
  const bool whole = result == Z_STREAM_END && z.avail_out == 0;
  inflateEnd(&z);
  return whole;
}

}  // namespace

Result<Arrays> parse_npz(std::span<const std::byte> bytes, std::string_view what) {
  const auto bad = [&](std::string_view why) { return fail(ErrorKind::bad_input, fmt::format("reading {}: {}", what, why)); };
  if (bytes.size() < kEndSize) return bad("not a .npz file (too short for a ZIP archive)");
  std::size_t end = bytes.size() - kEndSize;
  const std::size_t stop = end > 65535 ? end - 65535 : 0;  // an archive comment may follow the end record
  while (read(bytes, end, 4) != kEnd) {
    if (end == stop) return bad("not a .npz file, or truncated (no ZIP end record)");
    --end;
  }
  const std::uint32_t entries = read(bytes, end + 10, 2);
  std::size_t at = read(bytes, end + 16, 4);
  Arrays arrays;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (at > end || end - at < kCentralSize || read(bytes, at, 4) != kCentral)
      return bad(fmt::format("damaged: ZIP entry {} of {} is not where the directory says", i + 1, entries));
    const std::uint32_t method = read(bytes, at + 10, 2), crc = read(bytes, at + 16, 4);
    const std::size_t packed = read(bytes, at + 20, 4), size = read(bytes, at + 24, 4), name_length = read(bytes, at + 28, 2);
    const std::size_t extra = read(bytes, at + 30, 2), comment = read(bytes, at + 32, 2), local = read(bytes, at + 42, 4);
    if (end - at - kCentralSize < name_length) return bad("damaged: a ZIP entry's name is cut off");
    std::string name(reinterpret_cast<const char*>(bytes.data() + at + kCentralSize), name_length);
    at += kCentralSize + name_length + extra + comment;
    if (packed > kLimit || size > kLimit || local > kLimit)
      return bad(fmt::format("\"{}\" is 4 GiB or more, which is not supported", name));
    if (local > end || end - local < kLocalSize || read(bytes, local, 4) != kLocal)
      return bad(fmt::format("damaged: \"{}\" is not where the directory says", name));
    const std::size_t data = local + kLocalSize + read(bytes, local + 26, 2) + read(bytes, local + 28, 2);
    if (data > end || end - data < packed) return bad(fmt::format("truncated: \"{}\" needs {} bytes", name, packed));
    const auto content = bytes.subspan(data, packed);
    std::vector<std::byte> inflated;
    if (method == 8) {
      if (!inflate_raw(content, inflated, size))
        return bad(fmt::format("damaged: \"{}\" does not inflate to {} bytes", name, size));
    } else if (method != 0 || packed != size) {
      return bad(fmt::format("\"{}\" uses ZIP method {}; stored (0) and deflated (8) are supported", name, method));
    }
    const std::span<const std::byte> npy = method == 8 ? std::span<const std::byte>(inflated) : content;
    if (crc_of(npy) != crc)
      return bad(fmt::format("damaged: the checksum of \"{}\" is {:08x}, the archive says {:08x}", name, crc_of(npy), crc));
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    OCTAVO_TRY(auto tensor, parse_npy(npy, fmt::format("{}, array \"{}\"", what, name)));
    arrays.insert_or_assign(std::move(name), std::move(tensor));
  }
  return arrays;
}

Result<std::vector<std::byte>> format_npz(const Arrays& arrays, const std::vector<std::string>& names) {
  std::vector<std::byte> out, directory;
  std::size_t count = 0;
  const auto append = [&](const std::string& key, const std::vector<std::byte>& npy) -> Status {
    const std::string name = key + ".npy";
    ++count;
    if (out.size() + npy.size() > kLimit - 65536)
      return fail(ErrorKind::bad_input, "writing .npz: 4 GiB or more of arrays are not supported");
    const std::size_t local = out.size();
    const auto common = [&](std::vector<std::byte>& to) {
      write(to, 20, 2);     // version needed
      write(to, 0x800, 2);  // names are UTF-8
      write(to, 0, 2);      // stored
      write(to, 0, 2);      // 00:00
      write(to, 0x21, 2);   // 1980-01-01: the same bytes for the same arrays
      write(to, crc_of(npy), 4);
      write(to, npy.size(), 4);
      write(to, npy.size(), 4);
      write(to, name.size(), 2);
      write(to, 0, 2);
    };
    const auto text = std::as_bytes(std::span(name));
    write(out, kLocal, 4);
    common(out);
    out.insert(out.end(), text.begin(), text.end());
    out.insert(out.end(), npy.begin(), npy.end());
    write(directory, kCentral, 4);
    write(directory, 20, 2);
    common(directory);
    write(directory, 0, 6);  // comment length, disk, internal attributes
    write(directory, 0, 4);
    write(directory, local, 4);
    directory.insert(directory.end(), text.begin(), text.end());
    return {};
  };
  for (const auto& [key, tensor] : arrays) OCTAVO_CHECK(append(key, format_npy(tensor)));
  if (!names.empty()) OCTAVO_CHECK(append(arrays.contains("names") ? "_names" : "names", format_npy(names)));
  const std::size_t start = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  write(out, kEnd, 4);
  write(out, 0, 4);
  write(out, count, 2);
  write(out, count, 2);
  write(out, directory.size(), 4);
  write(out, start, 4);
  write(out, 0, 2);
  return out;
}

}  // namespace octavo::cli
