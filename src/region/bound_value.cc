#include "region/bound_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/half.h"

namespace octavo::region {
namespace {

ir::Tensor tensor(const ir::TensorType& type, const std::byte* elements) {
  ir::Tensor t(type);
  if (t.size() > 0) std::memcpy(t.mutable_bytes().data(), elements, t.bytes().size());
  return t;
}

template <class T>
bool put_integer(std::string_view text, ir::Tensor& t, std::size_t i) {
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  std::memcpy(t.mutable_bytes().data() + i * sizeof v, &v, sizeof v);
  return true;
}

bool put_float(const std::string& text, ir::Tensor& t, std::size_t i) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0) return false;
  std::byte* to = t.mutable_bytes().data();
  const auto single = static_cast<float>(v);
  switch (t.dtype()) {
    case ir::DType::f64: std::memcpy(to + i * sizeof v, &v, sizeof v); return true;
    case ir::DType::f32: std::memcpy(to + i * sizeof single, &single, sizeof single); return true;
    case ir::DType::f16: {
      const std::uint16_t bits = f32_to_f16(single);
      std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
      return true;
    }
    case ir::DType::bf16: {
      const std::uint16_t bits = f32_to_bf16(single);
      std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
      return true;
    }
    default: return false;
  }
}

bool put(const std::string& text, ir::Tensor& t, std::size_t i) {
  if (ir::is_float(t.dtype())) return put_float(text, t, i);
  switch (ir::size_of(t.dtype())) {
    case 8: return t.dtype() == ir::DType::u64 ? put_integer<std::uint64_t>(text, t, i) : put_integer<std::int64_t>(text, t, i);
    case 4: return t.dtype() == ir::DType::u32 ? put_integer<std::uint32_t>(text, t, i) : put_integer<std::int32_t>(text, t, i);
    case 2: return t.dtype() == ir::DType::u16 ? put_integer<std::uint16_t>(text, t, i) : put_integer<std::int16_t>(text, t, i);
    default:
      return t.dtype() == ir::DType::s8 || t.dtype() == ir::DType::s4 || t.dtype() == ir::DType::s2
                 ? put_integer<std::int8_t>(text, t, i)
                 : put_integer<std::uint8_t>(text, t, i);
  }
}

}  // namespace

std::string value_format(const ir::TensorType& type, const std::byte* elements) {
  const ir::Tensor t = tensor(type, elements);
  std::string text = "=";
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (i > 0) text += ',';
    switch (type.dtype) {  // 64 bits do not fit into a double
      case ir::DType::s64: text += fmt::format("{}", t.data<std::int64_t>()[static_cast<std::size_t>(i)]); break;
      case ir::DType::u64: text += fmt::format("{}", t.data<std::uint64_t>()[static_cast<std::size_t>(i)]); break;
      default: text += fmt::format("{}", t.at(i));
    }
  }
  return text;
}

std::optional<ir::Tensor> value_of(const Binding& b) {
  if (!has_value(b)) return std::nullopt;
  ir::Tensor t(b.type);
  const std::string text = b.format.substr(1);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (at > text.size()) return std::nullopt;
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (!put(text.substr(at, end - at), t, static_cast<std::size_t>(i))) return std::nullopt;
    at = end + 1;
  }
  if (t.size() > 0 ? at <= text.size() : !text.empty()) return std::nullopt;
  return t;
}

}  // namespace octavo::region
