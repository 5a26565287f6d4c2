// small_floats: casts to and from floats of 8 and 4 bits, with the reference's roundings, saturation and NaNs.
#include "cuda/families/plain/plain.h"
#include "ir/small_types.h"

namespace octavo::cuda {
namespace {

using ir::DType;

constexpr const char* kSmallFloatFunctions = R"(
// Of a code: no negative zero, whose code is the only NaN (fnuz); no infinities (fn).
OCTAVO_DEVICE float octavo_power(int k) { return __int_as_float((k + 127) << 23); }
OCTAVO_DEVICE float octavo_small_value(int code, int exponent_bits, int bits, int bias, bool fn, bool fnuz, int largest) {
  const int sign = code >> (exponent_bits + bits) & 1, magnitude = code & ((1 << (exponent_bits + bits)) - 1);
  const float nan = __int_as_float(0x7fc00000), infinity = __int_as_float(0x7f800000);
  if (fnuz && sign != 0 && magnitude == 0) return nan;
  if (magnitude > largest) return fn || magnitude != largest + 1 ? nan : sign != 0 ? -infinity : infinity;
  const int e = magnitude >> bits, m = magnitude & ((1 << bits) - 1);
  const float v = e == 0 ? (float)m * octavo_power(1 - bias - bits) : (float)(m + (1 << bits)) * octavo_power(e - bias - bits);
  return sign != 0 ? -v : v;
}
OCTAVO_DEVICE int octavo_small_code(float x, int exponent_bits, int bits, int bias, bool fn, bool fnuz, int largest, bool saturate, bool four) {
  const int all = __float_as_int(x), sign = all < 0 ? 1 << (exponent_bits + bits) : 0, nan = fnuz ? 0x80 : 0x7f;
  if (x != x) return four ? 8 : fnuz ? nan : sign | nan;
  const int beyond = saturate || four ? sign | largest : !fn ? sign | (largest + 1) : fnuz ? nan : sign | nan;
  const float v = __int_as_float(all & 0x7fffffff);
  if (v == __int_as_float(0x7f800000)) return beyond;
  const int least = 1 - bias, own = (all >> 23 & 255) - 127, exponent = own > least ? own : least;
  const float steps = rintf(v * octavo_power(bits - exponent));
  if (steps * octavo_power(exponent - bits) > octavo_small_value(largest, exponent_bits, bits, bias, fn, fnuz, largest)) return beyond;
  const int magnitude = ((exponent - least) << bits) + (int)steps;
  return fnuz && magnitude == 0 ? 0 : sign | magnitude;
}
// Towards zero, within the type; NaN is 0.
OCTAVO_DEVICE long long octavo_small_whole(float v, float lo, float hi) { return v != v ? 0 : (long long)(v < lo ? lo : v > hi ? hi : v); }
)";

/// exponent_bits, bits, bias, fn, fnuz, largest; empty: a type that is none of these.
std::string_view format(DType t) {
  switch (t) {
    case DType::f8e4m3fn: return "4, 3, 7, true, false, 0x7e";
    case DType::f8e4m3fnuz: return "4, 3, 8, true, true, 0x7f";
    case DType::f8e5m2: return "5, 2, 15, false, false, 0x7b";
    case DType::f8e5m2fnuz: return "5, 2, 16, true, true, 0x7f";
    case DType::f4e2m1: return "2, 1, 1, true, false, 0x07";
    default: return "";
  }
}

/// The least and the largest number of an integer type: no value of a small float is beyond 2^16.
std::string_view small_bounds(DType t) {
  switch (t) {
    case DType::s8: return "-128.0f, 127.0f";
    case DType::u8: return "0.0f, 255.0f";
    case DType::s16: return "-32768.0f, 32767.0f";
    case DType::u16: return "0.0f, 65535.0f";
    case DType::s32: return "-2147483648.0f, 2147483520.0f";
    case DType::u32: return "0.0f, 4294967040.0f";
    case DType::s64: return "-9223372036854775808.0f, 9223371487098961920.0f";
    default: return "0.0f, 9223371487098961920.0f";
  }
}

class SmallFloatsFamily final : public PlainFamily {
 public:
  SmallFloatsFamily() : PlainFamily("small_floats", {ir::Op::cast}, 1, true) {}

  Result<PlainText> text(const Stage& s) const override {
    const bool raw = s.program.outputs.empty();
    const DType from = s.anchor.inputs[0].dtype, to = raw ? s.stores[0].dtype : DType::f32;
    const bool reads = !format(from).empty(), gives = !format(to).empty();
    if ((!reads && !gives) || from == DType::f8e8m0 || to == DType::f8e8m0)
      return refuse("types", fmt::format("{} and {}", ir::name_of(from), ir::name_of(to)),
                    "a float of 8 or 4 bits that is no power of two");
    if (ir::is_small_int(from) || ir::is_small_int(to)) return refuse("types", "integers of 4 bits", "of 8 and more");
    const std::string value = reads                ? fmt::format("octavo_small_value((int)octavo_bits0(t, i), {})", format(from))
                              : from == DType::u64 ? "(float)(unsigned long long)octavo_x0(t, i)"
                                                   : "(float)octavo_x0(t, i)";
    std::string body;
    if (gives) {
      const auto& cast = s.anchor.as<ir::Cast>();
      body = fmt::format("  octavo_put_bits0(t, i, (unsigned long long)octavo_small_code({}, {}, {}, {}));\n", value, format(to),
                         cast.saturate, to == DType::f4e2m1);
    } else if (to == DType::boolean) {
      body = fmt::format("  octavo_put0(t, i, {} != 0.0f ? 1ll : 0ll);\n", value);
    } else if (ir::is_float(to)) {
      body = fmt::format("  octavo_put0(t, i, {});\n", value);
    } else {
      // Infinities of 64 bits are the ends of the type.
      const char* past = to == DType::s64   ? "v > 1e18f ? 9223372036854775807ll : "
                         : to == DType::u64 ? "v > 1e18f ? -1ll : "
                         : to == DType::s32 ? "v > 1e9f ? 2147483647ll : "
                         : to == DType::u32 ? "v > 4e9f ? 4294967295ll : "
                                            : "";
      body =
          fmt::format("  const float v = {};\n  octavo_put0(t, i, {}octavo_small_whole(v, {}));\n", value, past, small_bounds(to));
    }
    PlainText t;
    t.functions = kSmallFloatFunctions;
    t.passes = {in_order({std::move(body), ir::count(s.space)})};
    t.work = static_cast<double>(ir::count(s.space));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(small_floats, SmallFloatsFamily)

}  // namespace octavo::cuda
