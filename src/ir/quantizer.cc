#include "ir/quantizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace octavo::ir {
namespace {

/// A cursor over the text of a quantizer; every `take` leaves the text alone when it does not match.
struct Cursor {
  std::string_view text;

  bool take(std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
  }
  template <class T>
  bool number(T& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc{}) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  }
  template <class T>
  bool list(std::vector<T>& out) {
    out.clear();
    do {
      T item{};
      if (!number(item)) return false;
      out.push_back(item);
    } while (take(","));
    return true;
  }
};

Quantizer shifted(const Quantizer& q, DType to, std::int32_t by) {
  Quantizer out = q;
  out.type = to;
  for (std::int32_t& zp : out.zero_point) zp += by;
  return out;
}

}  // namespace

std::int64_t Quantizer::lo() const {
  switch (type) {
    case DType::s8: return -128;
    case DType::s16: return -32768;
    case DType::s32: return std::numeric_limits<std::int32_t>::min();
    default: return 0;
  }
}

std::int64_t Quantizer::hi() const {
  switch (type) {
    case DType::s8: return 127;
    case DType::u8: return 255;
    case DType::s16: return 32767;
    case DType::u16: return 65535;
    case DType::s32: return std::numeric_limits<std::int32_t>::max();
    default: return 0;
  }
}

std::string to_string(const Quantizer& q) {
  std::string out = fmt::format("{}", name_of(q.type));
  if (q.per_tensor() && q.scale.size() == 1 && q.zero_point.size() == 1) {
    out += fmt::format("({},{})", q.scale[0], q.zero_point[0]);
  } else {
    out += fmt::format("[axis={}]({};{})", q.axis, fmt::join(q.scale, ","), fmt::join(q.zero_point, ","));
  }
  if (q.arith != DType::f32) out += fmt::format("@{}", name_of(q.arith));
  return out;
}

std::optional<Quantizer> parse_quantizer(std::string_view text) {
  const auto name_end = text.find_first_of("[(");
  Quantizer q;
  if (name_end == std::string_view::npos || !parse_dtype(text.substr(0, name_end), q.type) || is_float(q.type)) return std::nullopt;
  Cursor in{text.substr(name_end)};
  const bool per_axis = in.take("[axis=");
  if (per_axis && (!in.number(q.axis) || !in.take("]"))) return std::nullopt;
  if (!in.take("(")) return std::nullopt;
  if (per_axis) {
    if (!in.list(q.scale) || !in.take(";") || !in.list(q.zero_point)) return std::nullopt;
  } else if (!in.number(q.scale[0]) || !in.take(",") || !in.number(q.zero_point[0])) {
    return std::nullopt;
  }
  if (!in.take(")")) return std::nullopt;
  if (in.take("@")) {
    if (!parse_dtype(in.text, q.arith) || !is_float(q.arith)) return std::nullopt;
  } else if (!in.text.empty()) {
    return std::nullopt;
  }
  return q;
}

Quantizer covering(double lo, double hi) {
  constexpr double kLeast = 1e-30;  // far above the denormals, where scales lose their precision
  lo = std::min(lo, 0.0), hi = std::max(hi, 0.0);
  const auto scale = static_cast<float>(std::max(hi - lo, kLeast) / 255);
  const double zero = std::nearbyint(-lo / static_cast<double>(scale));
  return per_tensor(DType::u8, scale, static_cast<std::int32_t>(std::clamp(zero, 0.0, 255.0)));
}

Ends ends_of(const Quantizer& q) {
  const double scale = q.scale[0], zero = q.zero_point[0];
  const bool around_zero = q.type == DType::s8 && zero == 0;
  return {(static_cast<double>(around_zero ? -127 : q.lo()) - zero) * scale, (static_cast<double>(q.hi()) - zero) * scale};
}

bool is_range(const Quantizer& q) {
  return q.per_tensor() && q.scale.size() == 1 && q.zero_point.size() == 1 && is_int8(q.type) && q.arith == DType::f32 &&
         q.scale[0] >= 0 && std::isfinite(q.scale[0]) && q.zero_point[0] >= q.lo() && q.zero_point[0] <= q.hi();
}

const Quantizer& wider(const Quantizer& a, const Quantizer& b) {
  if (a.scale[0] != b.scale[0]) return a.scale[0] > b.scale[0] ? a : b;
  return as_u8(a).zero_point[0] <= as_u8(b).zero_point[0] ? a : b;
}

Ranges symmetric(const std::map<std::string, float>& scales) {
  Ranges out;
  for (const auto& [name, scale] : scales) out[name] = symmetric(scale);
  return out;
}

float round_to(DType arith, float x) {
  if (arith == DType::f16) return f16_to_f32(f32_to_f16(x));
  if (arith == DType::bf16) return bf16_to_f32(f32_to_bf16(x));
  return x;
}

std::int32_t quantize_one(float x, float scale, std::int32_t zp, std::int64_t lo, std::int64_t hi, DType arith) {
  const float ratio = round_to(arith, x / scale);
  if (std::isnan(ratio)) return zp;
  // Clamped before the conversion to an integer, which is undefined outside its range; double holds every bound exactly.
  const double code =
      std::clamp(static_cast<double>(std::nearbyint(ratio)), static_cast<double>(lo - zp), static_cast<double>(hi - zp));
  return static_cast<std::int32_t>(static_cast<std::int64_t>(code) + zp);
}

float dequantize_one(std::int32_t code, float scale, std::int32_t zp, DType arith) {
  const auto steps = static_cast<float>(static_cast<std::int64_t>(code) - zp);
  return round_to(arith, steps * scale);
}

float view_one(const Quantizer& q, float x, std::int64_t channel) {
  const float scale = q.scale_at(channel);
  const std::int32_t zp = q.zero_at(channel);
  return dequantize_one(quantize_one(x, scale, zp, q.lo(), q.hi(), q.arith), scale, zp, q.arith);
}

Quantizer as_u8(const Quantizer& q) {
  return q.type == DType::s8 ? shifted(q, DType::u8, 128) : q;
}
Quantizer as_s8(const Quantizer& q) {
  return q.type == DType::u8 ? shifted(q, DType::s8, -128) : q;
}

Quantizer collapse_axis(const Quantizer& q) {
  if (q.per_tensor() || q.scale.empty() || q.zero_point.empty()) return q;
  const auto same = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [&](auto v) { return v == list.front(); });
  };
  if (!same(q.scale) || !same(q.zero_point)) return q;
  return Quantizer{q.type, {q.scale[0]}, {q.zero_point[0]}, -1, q.arith};
}

bool fixes(const Quantizer& q2, const Quantizer& q1) {
  const auto enumerable = [](const Quantizer& q) { return is_int8(q.type) || q.type == DType::s16 || q.type == DType::u16; };
  if (!enumerable(q1) || !enumerable(q2)) return false;
  if (!q1.per_tensor() && !q2.per_tensor() && (q1.axis != q2.axis || q1.entries() != q2.entries())) return false;
  const auto channels = static_cast<std::int64_t>(std::max(q1.per_tensor() ? 1 : q1.entries(), q2.per_tensor() ? 1 : q2.entries()));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t code = q1.lo(); code <= q1.hi(); ++code) {
      const float x = dequantize_one(static_cast<std::int32_t>(code), q1.scale_at(c), q1.zero_at(c), q1.arith);
      if (view_one(q2, x, c) != x) return false;
    }
  }
  return true;
}

bool injective(const Quantizer& q) {
  if (!is_int8(q.type)) return true;
  for (std::size_t c = 0; c < q.entries(); ++c) {
    if (q.arith == DType::f32 && std::abs(q.scale[c]) > 1e-30F) continue;
    const auto value = [&](std::int64_t code) {
      return dequantize_one(static_cast<std::int32_t>(code), q.scale[c], q.zero_point[c], q.arith);
    };
    for (std::int64_t code = q.lo(); code < q.hi(); ++code) {
      if (value(code) == value(code + 1)) return false;
    }
  }
  return true;
}

}  // namespace octavo::ir
