// Element-wise operators. Floats: the named functions of program/math.h on fp32, rounded once to the value's type (f64 arithmetic
// stays in double; f64 functions go through fp32). Integers, bool and comparisons: the functions of program/elements.inc, on the operands' own type.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ir/small_types.h"
#include "ir/with_integer.h"
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

#include "program/elements.inc"

template <class T>
std::uint8_t compare(Op op, T a, T b) {
  switch (op) {
    case Op::equal: return element::equal(a, b);
    case Op::less: return element::less(a, b);
    case Op::less_equal: return element::less_equal(a, b);
    case Op::greater: return element::greater(a, b);
    case Op::greater_equal: return element::greater_equal(a, b);
    case Op::logical_and: return element::logical_and(a, b);
    default: return element::logical_or(a, b);
  }
}
bool is_predicate(Op op) {
  return op == Op::equal || op == Op::less || op == Op::less_equal || op == Op::greater || op == Op::greater_equal ||
         op == Op::logical_and || op == Op::logical_or;
}

/// Divisors are not 0 here.
template <class T>
T whole(Op op, bool fmod, T a, T b) {
  switch (op) {
    case Op::add: return element::add(a, b);
    case Op::sub: return element::sub(a, b);
    case Op::mul: return element::mul(a, b);
    case Op::div: return element::div(a, b);
    case Op::mod: return fmod ? element::fmod(a, b) : element::mod(a, b);
    case Op::pow: return element::pow(a, b);
    case Op::max: return element::max(a, b);
    default: return element::min(a, b);
  }
}

template <class T>
T whole(Op op, const ir::Facts& facts, T a) {
  switch (op) {
    case Op::logical_not: return static_cast<T>(element::logical_not(a));
    case Op::relu: return element::relu(a);
    case Op::abs: return element::abs(a);
    case Op::neg: return element::neg(a);
    case Op::sign: return element::sign(a);
    default: {  // clip; bounds outside the type are its own
      constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min()),
                     kMost = static_cast<double>(std::numeric_limits<T>::max());
      const auto bound = [&](double v) {
        return v <= kLeast ? std::numeric_limits<T>::min() : v >= kMost ? std::numeric_limits<T>::max() : static_cast<T>(v);
      };
      const auto& clip = std::get<ir::Clip>(facts);
      return element::clip(a, bound(std::ceil(clip.min)), bound(std::floor(clip.max)));
    }
  }
}

template <class T>
std::vector<T> typed(const Tensor& t) {
  return {t.data<T>().begin(), t.data<T>().end()};
}
template <class T>
Tensor of_type(const std::vector<T>& values, const TensorType& type) {
  Tensor t(type);
  std::copy(values.begin(), values.end(), t.mutable_data<T>().begin());
  return t;
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
    case Op::max: return element::max(a, b);
    case Op::min: return element::min(a, b);
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
    return ir::with_integer(a.out().dtype, [&]<class T>(T) {
      auto x = typed<T>(a.in[0]);
      for (T& v : x) v = whole(a.n.op, a.facts, v);
      return Tensors{of_type(x, a.out())};
    });
  }
  program::FloatOps m;
  auto x = floats(a.in[0]);
  for (float& v : x) v = program::unary(m, a.n.op, a.facts, v);
  return Tensors{from_floats(x, a.out())};
}

Result<Tensors> eval_binary(const Args& a) {
  const Op op = a.n.op;
  const DType t = a.in[0].dtype();
  const bool fmod = op == Op::mod && a.as<ir::Remainder>().fmod;
  if (is_predicate(op)) {
    const auto test = [op](auto x, auto y) { return compare(op, x, y); };
    if (t == DType::f64) return Tensors{of_type(combine<std::uint8_t>(a, doubles(a.in[0]), doubles(a.in[1]), test), a.out())};
    if (ir::is_float(t)) return Tensors{of_type(combine<std::uint8_t>(a, floats(a.in[0]), floats(a.in[1]), test), a.out())};
    return ir::with_integer(t, [&]<class T>(T) {
      return Tensors{of_type(combine<std::uint8_t>(a, typed<T>(a.in[0]), typed<T>(a.in[1]), test), a.out())};
    });
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
  return ir::with_integer(t, [&]<class T>(T) -> Result<Tensors> {
    const auto x = typed<T>(a.in[0]), y = typed<T>(a.in[1]);
    if ((op == Op::div || op == Op::mod) && std::find(y.begin(), y.end(), T{0}) != y.end())
      return a.error(ErrorKind::bad_input, "integer division by zero");
    return Tensors{of_type(combine<T>(a, x, y, [&](T p, T q) { return whole(op, fmod, p, q); }), a.out())};
  });
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
    const auto& facts = a.as<ir::Cast>();
    Tensor y(a.out());
    const auto x = floats(a.in[0]);
    for (std::size_t i = 0; i < x.size(); ++i)
      y.mutable_data<std::uint8_t>()[i] = ir::f32_to_small(to, x[i], facts.saturate, facts.round_mode);
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
