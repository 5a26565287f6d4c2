#include "cli/inputs/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace octavo::cli {
namespace {

using ir::DType;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"f4", DType::f32}, {"f2", DType::f16}, {"f8", DType::f64}, {"i1", DType::s8},  {"u1", DType::u8},  {"i2", DType::s16},
    {"u2", DType::u16}, {"i4", DType::s32}, {"u4", DType::u32}, {"i8", DType::s64}, {"u8", DType::u64}, {"b1", DType::boolean}};

/// The part of Python's literal syntax that headers use: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Header {
 public:
  explicit Header(std::string_view text) : rest_(text) {}

  bool parse() {
    if (!take('{')) return false;
    while (!take('}')) {
      const auto key = quoted();
      if (!key || !take(':')) return false;
      if (*key == "descr") {
        const auto value = quoted();
        if (!value) return false;
        descr = std::string(*value);
      } else if (*key == "fortran_order") {
        fortran = word("True");
        if (!fortran && !word("False")) return false;
      } else if (*key == "shape") {
        if (!tuple()) return false;
        has_shape = true;
      } else {
        return false;
      }
      take(',');
    }
    return !descr.empty() && has_shape;
  }

  std::string descr;
  bool fortran = false, has_shape = false;
  ir::Shape shape;

 private:
  void skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view w) {
    skip();
    if (!rest_.starts_with(w)) return false;
    rest_.remove_prefix(w.size());
    return true;
  }
  std::optional<std::string_view> quoted() {
    if (!take('\'')) return std::nullopt;
    const auto end = rest_.find('\'');
    if (end == std::string_view::npos) return std::nullopt;
    const auto text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool tuple() {
    if (has_shape || !take('(')) return false;
    while (!take(')')) {
      skip();
      std::int64_t dim = 0;
      int digits = 0;
      for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; rest_.remove_prefix(1), ++digits) {
        if (digits > 15) return false;
        dim = dim * 10 + (rest_.front() - '0');
      }
      if (digits == 0 || shape.size() >= 32) return false;
      shape.push_back(dim);
      take(',');
    }
    return true;
  }
  std::string_view rest_;
};

/// Elements of the shape, or nullopt if more than `limit`.
std::optional<std::int64_t> count_up_to(const ir::Shape& shape, std::int64_t limit) {
  std::int64_t n = 1;
  for (const auto dim : shape) {
    if (dim == 0) return 0;
  }
  for (const auto dim : shape) {
    if (dim > limit / n) return std::nullopt;
    n *= dim;
  }
  return n;
}

/// Column-major bytes to row-major.
void reorder(std::span<const std::byte> from, std::span<std::byte> to, const ir::Shape& shape, std::size_t item) {
  ir::Shape index(shape.size(), 0);
  const std::int64_t n = ir::count(shape);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t source = 0;
    for (std::size_t d = shape.size(); d-- > 0;) source = source * shape[d] + index[d];
    std::memcpy(to.data() + static_cast<std::size_t>(i) * item, from.data() + static_cast<std::size_t>(source) * item, item);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

Result<ir::Tensor> parse_npy(std::span<const std::byte> bytes, std::string_view what) {
  const auto bad = [&](std::string_view why) { return fail(ErrorKind::bad_input, fmt::format("reading {}: {}", what, why)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < 12) return bad("not a .npy file (it does not start with \\x93NUMPY)");
  const int version = text[6];
  if (version < 1 || version > 3) return bad(fmt::format("format version {}; versions 1 to 3 are known", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(text[8 + i])) << (8 * i);
  const std::size_t start = 8 + length_bytes;
  if (length > text.size() - start)
    return bad(fmt::format("truncated: the header needs {} bytes, {} are left", length, text.size() - start));

  Header header(text.substr(start, length));
  if (!header.parse()) return bad("the header is not the dictionary that numpy.save writes");
  if (header.descr.size() != 3) return bad(fmt::format("element type '{}' is not a plain number type", header.descr));
  const DType* type = nullptr;
  for (const auto& [name, t] : kTypes) {
    if (name == header.descr.substr(1)) type = &t;
  }
  if (type == nullptr) return bad(fmt::format("element type '{}' is not supported", header.descr));
  const std::size_t item = ir::size_of(*type);
  if (header.descr[0] == '>' && item > 1) return bad("big-endian; save it with array.astype(array.dtype.newbyteorder('<'))");

  const auto data = bytes.subspan(start + length);
  const auto n = count_up_to(header.shape, static_cast<std::int64_t>(data.size() / item));
  if (!n || static_cast<std::size_t>(*n) * item != data.size()) {
    return bad(fmt::format("shape {} of '{}' does not fit the {} bytes that follow the header", ir::to_string(header.shape),
                           header.descr, data.size()));
  }
  ir::Tensor tensor(*type, header.shape);
  if (*n == 0) return tensor;
  if (header.fortran && header.shape.size() > 1) {
    reorder(data, tensor.mutable_bytes(), header.shape, item);
  } else {
    std::memcpy(tensor.mutable_bytes().data(), data.data(), data.size());
  }
  return tensor;
}

namespace {

std::vector<std::byte> npy_file(const std::string& descr, const std::string& shape, std::span<const std::byte> data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');  // the data starts at a multiple of 64
  header += '\n';
  std::string file(kMagic);
  file += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file += header;
  std::vector<std::byte> bytes(file.size());
  std::memcpy(bytes.data(), file.data(), file.size());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

/// The code points of UTF-8; bytes that are none become U+FFFD.
std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    char32_t point = length == 1 ? lead : lead & (0x7fU >> length);
    bool good = length > 0;
    for (std::size_t k = 1; good && k < length; ++k) {
      good = byte(i + k) >> 6 == 2;
      point = point << 6 | (byte(i + k) & 0x3fU);
    }
    good = good && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    out += good ? point : char32_t{0xfffd};
    i += good ? length : 1;
  }
  return out;
}

}  // namespace

std::vector<std::byte> format_npy(const std::vector<std::string>& texts) {
  std::vector<std::u32string> wide;
  std::size_t longest = 1;
  for (const std::string& t : texts) longest = std::max(longest, wide.emplace_back(code_points(t)).size());
  std::u32string data;
  for (std::u32string& t : wide) {
    t.resize(longest, U'\0');
    data += t;
  }
  return npy_file(fmt::format("<U{}", longest), fmt::format("{},", texts.size()), std::as_bytes(std::span(data)));
}

std::vector<std::byte> format_npy(const ir::Tensor& tensor) {
  if (tensor.dtype() == DType::bf16) return format_npy(tensor.to_f32());
  std::string_view descr;
  for (const auto& [name, t] : kTypes) {
    if (t == tensor.dtype()) descr = name;
  }
  std::string shape;
  for (const auto dim : tensor.shape()) shape += fmt::format("{}, ", dim);
  if (tensor.shape().size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape().size() == 1) shape.pop_back();
  const std::string type = (ir::size_of(tensor.dtype()) == 1 ? "|" : "<") + std::string(descr);
  return npy_file(type, shape, tensor.empty() ? std::span<const std::byte>() : tensor.bytes());
}

}  // namespace octavo::cli
