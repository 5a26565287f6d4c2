#include "cuda/text/bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace octavo::cuda {
namespace {

using program::Op;

/// Around all of them; everything where one of them is no number (0 times infinity, infinity less infinity).
Bounds around(std::initializer_list<double> values) {
  Bounds out{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const double v : values) {
    if (std::isnan(v)) return {};
    out.least = std::min(out.least, v), out.most = std::max(out.most, v);
  }
  return out;
}
Bounds joined(const Bounds& a, const Bounds& b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}
Bounds sum(const Bounds& a, const Bounds& b) {
  const double least = a.least + b.least, most = a.most + b.most;
  return std::isnan(least) || std::isnan(most) ? Bounds() : Bounds{least, most};
}
Bounds product(const Bounds& a, const Bounds& b) {
  return around({a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most});
}
/// With what rounding to a float adds; beyond floats there is infinity.
Bounds rounded(Bounds b, double unit = 1e-6) {
  constexpr double kTiny = 1e-37, kMost = 3e38;
  const bool above = b.least >= 0, below = b.most <= 0;  // of which rounding makes zero at most
  b.least -= std::abs(b.least) * unit + kTiny;
  b.most += std::abs(b.most) * unit + kTiny;
  if (above) b.least = std::max(b.least, 0.0);
  if (below) b.most = std::min(b.most, 0.0);
  if (b.least < -kMost) b.least = -std::numeric_limits<double>::infinity();
  if (b.most > kMost) b.most = std::numeric_limits<double>::infinity();
  return b;
}

}  // namespace

std::vector<Bounds> bounds_of(const program::Program& p) {
  std::vector<Bounds> out;
  for (const program::Instr& in : p.code) {
    const auto arg = [&](std::size_t k) { return out[static_cast<std::size_t>(in.args[k])]; };
    const auto is_constant = [&](std::size_t k) { return p.code[static_cast<std::size_t>(in.args[k])].op == Op::imm_f; };
    Bounds b;
    if (program::info(in.op).result == 'i') b = {-2147483648.0, 2147483647.0};
    switch (in.op) {
      case Op::imm_f:
        if (const auto v = static_cast<double>(std::bit_cast<float>(in.imm)); !std::isnan(v)) b = {v, v};
        break;
      case Op::i2f: b = rounded(arg(0)); break;
      case Op::to_f16:
      case Op::to_bf16: {
        b = rounded(arg(0), 0.01);
        constexpr double kLarge = 6e4;  // float16 overflows
        if (b.least < -kLarge) b.least = -std::numeric_limits<double>::infinity();
        if (b.most > kLarge) b.most = std::numeric_limits<double>::infinity();
        if (b.least > 0 && b.least < 1e-4) b.least = 0;  // or loses digits
        if (b.most < 0 && b.most > -1e-4) b.most = 0;
        break;
      }
      case Op::add: b = rounded(sum(arg(0), arg(1))); break;
      case Op::sub: b = rounded(sum(arg(0), {-arg(1).most, -arg(1).least})); break;
      case Op::mul: {
        b = product(arg(0), arg(1));
        if (in.args[0] == in.args[1]) b.least = std::max(b.least, 0.0);
        b = rounded(b);
        break;
      }
      case Op::fma: b = rounded(sum(product(arg(0), arg(1)), arg(2))); break;
      case Op::div:
        if (arg(1).least > 0 || arg(1).most < 0) b = rounded(product(arg(0), around({1 / arg(1).least, 1 / arg(1).most})));
        break;
      // Where the first is NaN, which a constant is not, the result is the second one.
      case Op::max:
        b = {std::max(arg(0).least, arg(1).least), std::max(arg(0).most, arg(1).most)};
        if (!is_constant(0)) b = joined(b, arg(1));
        break;
      case Op::min:
        b = {std::min(arg(0).least, arg(1).least), std::min(arg(0).most, arg(1).most)};
        if (!is_constant(0)) b = joined(b, arg(1));
        break;
      case Op::sel_lt:
      case Op::sel_eq: b = joined(arg(2), arg(3)); break;
      case Op::nan0: b = joined(arg(0), {0, 0}); break;
      case Op::round:
      case Op::floor:
      case Op::ceil: b = {arg(0).least - 1, arg(0).most + 1}; break;
      case Op::sqrt: b.least = 0; break;
      default: break;
    }
    out.push_back(b);
  }
  return out;
}

}  // namespace octavo::cuda
