#include "cuda/text/rising.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "cuda/text/epilogue.h"

namespace octavo::cuda {
namespace {

using program::Instr;
using program::Op;

/// What is known of a value: constant over pixels (of one channel), or rising with the accumulator; and where it lies.
struct Known {
  bool constant = false;
  double low = 0, high = 0;
};
using Value = std::optional<Known>;

constexpr double kLeastInt = -2147483648.0, kMostInt = 2147483647.0, kMostFloat = 1e37;

/// Nothing where the value could leave the type: integers wrap, floats become infinite.
Value within(Known v, bool integer) {
  if (!(v.low >= (integer ? kLeastInt : -kMostFloat)) || !(v.high <= (integer ? kMostInt : kMostFloat))) return std::nullopt;
  return v;
}

Value loaded(const Tail& s, const Instr& in) {
  const region::Operand& o = s.operands[static_cast<std::size_t>(in.imm)];
  const auto& bits = s.constants[static_cast<std::size_t>(in.imm)];
  if (!bits || (in.op == Op::load_f && o.ref.dtype != ir::DType::f32)) return std::nullopt;
  Known v{true, HUGE_VAL, -HUGE_VAL};
  for (const std::uint32_t b : *bits) {
    const double x = in.op == Op::load_f ? static_cast<double>(std::bit_cast<float>(b)) : std::bit_cast<std::int32_t>(b);
    if (!std::isfinite(x)) return std::nullopt;
    v.low = std::min(v.low, x), v.high = std::max(v.high, x);
  }
  return v;
}

Value sum(const Value& a, const Value& b, bool integer) {
  if (!a || !b) return std::nullopt;
  return within({a->constant && b->constant, a->low + b->low, a->high + b->high}, integer);
}
Value product(const Value& a, const Value& b) {
  if (!a || !b) return std::nullopt;
  const Known& by = a->constant ? *a : *b;
  const Known& v = a->constant ? *b : *a;
  if (!by.constant || by.low < 0) return std::nullopt;
  const auto [low, high] = std::minmax({v.low * by.low, v.low * by.high, v.high * by.low, v.high * by.high});
  return within({v.constant, low, high}, false);
}
Value quotient(const Value& a, const Value& b) {
  if (!a || !b || !b->constant || !(b->low > 0)) return std::nullopt;
  const auto [low, high] = std::minmax({a->low / b->low, a->low / b->high, a->high / b->low, a->high / b->high});
  return within({a->constant, low, high}, false);
}
Value limit(const Value& a, const Value& b, bool most) {
  if (!a || !b) return std::nullopt;
  const auto pick = [&](double x, double y) { return most ? std::min(x, y) : std::max(x, y); };
  return Known{a->constant && b->constant, pick(a->low, b->low), pick(a->high, b->high)};
}
Value difference(const Value& a, const Value& b, bool integer) {
  if (!a || !b || !b->constant) return std::nullopt;
  return within({a->constant, a->low - b->high, a->high - b->low}, integer);
}

Value looked_up(const program::Program& p, const Instr& in, const Value& index) {
  const program::Table& t = p.tables[static_cast<std::size_t>(in.imm)];
  if (!index || index->low < 0 || index->high > 255 || !std::is_sorted(t.begin(), t.end())) return std::nullopt;
  return Known{index->constant, static_cast<double>(t.front()), static_cast<double>(t.back())};
}

}  // namespace

bool rises(const Tail& s, double accumulator) {
  const program::Program& p = s.program;
  std::vector<Value> known;
  for (const Instr& in : p.code) {
    const auto arg = [&](std::size_t k) { return known[static_cast<std::size_t>(in.args[k])]; };
    Value v;
    switch (in.op) {
      case Op::acc_i: v = within({false, -accumulator, accumulator}, true); break;
      case Op::imm_i: v = Known{true, static_cast<double>(in.imm), static_cast<double>(in.imm)}; break;
      case Op::imm_f: {
        const auto x = static_cast<double>(std::bit_cast<float>(in.imm));
        if (std::isfinite(x)) v = Known{true, x, x};
        break;
      }
      case Op::load_i:
      case Op::load_f: v = loaded(s, in); break;
      case Op::i2f: v = arg(0); break;
      case Op::f2i:
      case Op::round:
        if (const Value x = arg(0)) v = within({x->constant, std::nearbyint(x->low), std::nearbyint(x->high)}, in.op == Op::f2i);
        break;
      case Op::add: v = sum(arg(0), arg(1), false); break;
      case Op::add_i: v = sum(arg(0), arg(1), true); break;
      case Op::sub: v = difference(arg(0), arg(1), false); break;
      case Op::sub_i: v = difference(arg(0), arg(1), true); break;
      case Op::mul: v = product(arg(0), arg(1)); break;
      case Op::fma: v = sum(product(arg(0), arg(1)), arg(2), false); break;
      case Op::div: v = quotient(arg(0), arg(1)); break;
      case Op::max:
      case Op::max_i: v = limit(arg(0), arg(1), false); break;
      case Op::min:
      case Op::min_i: v = limit(arg(0), arg(1), true); break;
      case Op::table: v = looked_up(p, in, arg(0)); break;
      default: break;
    }
    known.push_back(v);
  }
  return !p.outputs.empty() && known[static_cast<std::size_t>(p.outputs[0].value)].has_value();
}

}  // namespace octavo::cuda
