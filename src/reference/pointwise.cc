// Element-wise operators. Floats: the named functions of program/math.h on fp32, rounded once to the value's type (f64 arithmetic
// stays in double; f64 functions go through fp32). Integers: 64 bits, wrapping into the type; division truncates towards zero.
#include <cmath>
#include <limits>

#include "ir/small_types.h"
#include "program/math.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

using U = std::uint64_t;

/// f over broadcast operands; A and R are vectors' element types.
template <class R, class A, class F>
std::vector<R> combine(const Args& a, const std::vector<A>& x, const std::vector<A>& y, F&& f) {
  const Shape& out = a.out().shape;
  std::vector<R> result(idx(ir::count(out)));
  if (a.shape(0) == out && a.shape(1) == out) {
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = f(x[i], y[i]);
  } else {
    for_each_element(out, {broadcast_strides(a.shape(0), out), broadcast_strides(a.shape(1), out)},
                     [&](std::int64_t i, const Ints& at) { result[idx(i)] = f(x[idx(at[0])], y[idx(at[1])]); });
  }
  return result;
}

template <class T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::equal: return a == b;
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::greater: return a > b;
    case Op::greater_equal: return a >= b;
    case Op::logical_and: return a != T{} && b != T{};
    default: return a != T{} || b != T{};
  }
}
bool is_predicate(Op op) {
  return op == Op::equal || op == Op::less || op == Op::less_equal || op == Op::greater || op == Op::greater_equal ||
         op == Op::logical_and || op == Op::logical_or;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  U result = 1, b = static_cast<U>(base);
  for (; exponent != 0; exponent >>= 1, b *= b) {
    if (exponent & 1) result *= b;
  }
  return static_cast<std::int64_t>(result);
}

/// Divisors are not 0 here. u64 operands above 2^63 are not told apart from negative ones except by div and mod.
std::int64_t whole(Op op, bool is_unsigned, bool fmod, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Op::add: return static_cast<std::int64_t>(static_cast<U>(a) + static_cast<U>(b));
    case Op::sub: return static_cast<std::int64_t>(static_cast<U>(a) - static_cast<U>(b));
    case Op::mul: return static_cast<std::int64_t>(static_cast<U>(a) * static_cast<U>(b));
    case Op::div:
      if (is_unsigned) return static_cast<std::int64_t>(static_cast<U>(a) / static_cast<U>(b));
      return b == -1 ? static_cast<std::int64_t>(U{0} - static_cast<U>(a)) : a / b;
    case Op::mod: {
      if (is_unsigned) return static_cast<std::int64_t>(static_cast<U>(a) % static_cast<U>(b));
      const std::int64_t r = b == -1 ? 0 : a % b;
      return !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;  // the sign of the divisor, as in Python
    }
    case Op::pow: return power(a, b);
    case Op::max:
      return is_unsigned ? static_cast<std::int64_t>(std::max<U>(static_cast<U>(a), static_cast<U>(b))) : std::max(a, b);
    default: return is_unsigned ? static_cast<std::int64_t>(std::min<U>(static_cast<U>(a), static_cast<U>(b))) : std::min(a, b);
  }
}

template <class T>
T float_mod(bool fmod, T a, T b) {
  const T r = std::fmod(a, b);  // exact
  return !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double wide(Op op, bool fmod, double a, double b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return a * b;
    case Op::div: return a / b;
    case Op::mod: return float_mod(fmod, a, b);
    case Op::max: return !(a == a) || a > b ? a : b;
    case Op::min: return !(a == a) || a < b ? a : b;
    case Op::prelu: return a < 0 ? a * b : a;
    default: {
      program::FloatOps m;
      return static_cast<double>(program::pow(m, static_cast<float>(a), static_cast<float>(b)));
    }
  }
}

std::vector<double> doubles(const Tensor& t) {
  return {t.data<double>().begin(), t.data<double>().end()};
}

/// Float to integer: towards zero, saturating at the type's bounds; NaN is 0. Bool: not zero.
std::int64_t truncated(double v, DType to) {
  constexpr double kTwo63 = 9223372036854775808.0;
  if (to == DType::boolean) return v != 0;
  if (std::isnan(v)) return 0;
  if (to == DType::s64 && v >= kTwo63) return std::numeric_limits<std::int64_t>::max();
  if (to == DType::u64 && v >= kTwo63)
    return v >= 2 * kTwo63 ? -1 : static_cast<std::int64_t>(static_cast<U>(v));  // the bits of a u64
  double lo = 0, hi = 0;
  switch (to) {
    case DType::s8: lo = -128, hi = 127; break;
    case DType::u8: hi = 255; break;
    case DType::s16: lo = -32768, hi = 32767; break;
    case DType::u16: hi = 65535; break;
    case DType::s32: lo = -2147483648.0, hi = 2147483647.0; break;
    case DType::u32: hi = 4294967295.0; break;
    case DType::s64: lo = -kTwo63, hi = kTwo63; break;
    case DType::s4:  // 4 and 2 bits: the low ones, as ONNX has it
    case DType::u4:
    case DType::s2:
    case DType::u2: lo = -kTwo63, hi = kTwo63 / 2; break;
    default: hi = kTwo63;
  }
  return static_cast<std::int64_t>(std::min(std::max(std::trunc(v), lo), hi));
}

Tensor from_doubles(const std::vector<double>& v, const TensorType& type) {
  Tensor t(type);
  std::copy(v.begin(), v.end(), t.mutable_data<double>().begin());
  return t;
}

}  // namespace

Result<Tensors> eval_unary(const Args& a) {
  if (a.n.op == Op::logical_not || !ir::is_float(a.out().dtype)) {
    auto x = integers(a.in[0]);
    const double lo = ir::get_float(a.n.attrs, "min", -std::numeric_limits<double>::infinity());
    const double hi = ir::get_float(a.n.attrs, "max", std::numeric_limits<double>::infinity());
    for (std::int64_t& v : x) {
      switch (a.n.op) {
        case Op::logical_not: v = v == 0; break;
        case Op::relu: v = std::max<std::int64_t>(v, 0); break;
        case Op::abs: v = v < 0 ? static_cast<std::int64_t>(U{0} - static_cast<U>(v)) : v; break;
        case Op::neg: v = static_cast<std::int64_t>(U{0} - static_cast<U>(v)); break;
        case Op::sign: v = (v > 0) - (v < 0); break;
        default:  // clip
          if (static_cast<double>(v) < lo) v = static_cast<std::int64_t>(std::ceil(lo));
          if (static_cast<double>(v) > hi) v = static_cast<std::int64_t>(std::floor(hi));
      }
    }
    return Tensors{from_integers(x, a.out())};
  }
  program::FloatOps m;
  auto x = floats(a.in[0]);
  for (float& v : x) v = program::unary(m, a.n.op, a.n.attrs, v);
  return Tensors{from_floats(x, a.out())};
}

Result<Tensors> eval_binary(const Args& a) {
  const Op op = a.n.op;
  const DType t = a.in[0].dtype();
  const bool fmod = ir::get_int(a.n.attrs, "fmod") != 0;
  if (is_predicate(op)) {
    const auto test = [op](auto x, auto y) { return static_cast<std::int64_t>(compare(op, x, y)); };
    if (t == DType::f64) return Tensors{from_integers(combine<std::int64_t>(a, doubles(a.in[0]), doubles(a.in[1]), test), a.out())};
    if (ir::is_float(t)) return Tensors{from_integers(combine<std::int64_t>(a, floats(a.in[0]), floats(a.in[1]), test), a.out())};
    return Tensors{from_integers(combine<std::int64_t>(a, integers(a.in[0]), integers(a.in[1]), test), a.out())};
  }
  if (t == DType::f64) {
    const auto f = [&](double x, double y) { return wide(op, fmod, x, y); };
    return Tensors{from_doubles(combine<double>(a, doubles(a.in[0]), doubles(a.in[1]), f), a.out())};
  }
  if (ir::is_float(t)) {
    program::FloatOps m;
    const auto f = [&](float x, float y) { return op == Op::mod ? float_mod(fmod, x, y) : program::binary(m, op, x, y); };
    return Tensors{from_floats(combine<float>(a, floats(a.in[0]), floats(a.in[1]), f), a.out())};
  }
  const auto x = integers(a.in[0]), y = integers(a.in[1]);
  if (op == Op::div || op == Op::mod) {
    for (const std::int64_t v : y) {
      if (v == 0) return a.error(ErrorKind::bad_input, "integer division by zero");
    }
  }
  const auto f = [&](std::int64_t p, std::int64_t q) { return whole(op, t == DType::u64, fmod, p, q); };
  return Tensors{from_integers(combine<std::int64_t>(a, x, y, f), a.out())};
}

Result<Tensors> eval_affine(const Args& a) {
  const auto x = floats(a.in[0]), scale = floats(a.in[1]), shift = floats(a.in[2]);
  const std::int64_t inner = ir::dense_strides(a.shape(0))[1], channels = a.shape(0)[1];
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = idx(static_cast<std::int64_t>(i) / inner % channels);
    y[i] = std::fma(x[i], scale[c], shift[c]);
  }
  return Tensors{from_floats(y, a.out())};
}

Result<Tensors> eval_cast(const Args& a) {
  const DType from = a.in[0].dtype(), to = a.out().dtype;
  if (ir::is_small_float(to)) {
    const bool saturate = ir::get_int(a.n.attrs, "saturate", 1) != 0;
    const std::string mode = ir::get_text(a.n.attrs, "round_mode", "up");
    const auto power = mode == "down"      ? ir::PowerRounding::down
                       : mode == "nearest" ? ir::PowerRounding::nearest
                                           : ir::PowerRounding::up;
    Tensor y(a.out());
    const auto x = floats(a.in[0]);
    for (std::size_t i = 0; i < x.size(); ++i) y.mutable_data<std::uint8_t>()[i] = ir::f32_to_small(to, x[i], saturate, power);
    return Tensors{y};
  }
  if (ir::is_small_float(from) && !ir::is_float(to)) {
    std::vector<std::int64_t> y;
    for (const float v : floats(a.in[0])) y.push_back(truncated(static_cast<double>(v), to));
    return Tensors{from_integers(y, a.out())};
  }
  if (!ir::is_float(from) && !ir::is_float(to)) return Tensors{from_integers(integers(a.in[0]), a.out())};
  if (!ir::is_float(from)) {
    if (to != DType::f64 || ir::is_small_float(from)) return Tensors{from_floats(floats(a.in[0]), a.out())};
    std::vector<double> y;
    for (const std::int64_t v : integers(a.in[0])) {
      y.push_back(from == DType::u64 ? static_cast<double>(static_cast<U>(v)) : static_cast<double>(v));
    }
    return Tensors{from_doubles(y, a.out())};
  }
  if (ir::is_float(to)) {
    if (to == DType::f64 && from == DType::f64) return Tensors{a.in[0]};
    return Tensors{from_floats(floats(a.in[0]), a.out())};
  }
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < a.in[0].size(); ++i) y.push_back(truncated(a.in[0].at(i), to));
  return Tensors{from_integers(y, a.out())};
}

}  // namespace octavo::reference
