#include "quant/range.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "quant/codes.h"
#include "quant/moving.h"

namespace octavo::quant {
namespace {

using ir::Op;
using ir::Quantizer;
using ir::ValueId;

constexpr Range kAnything{-INFINITY, INFINITY, true};

bool is_minus_zero(float x) {
  return x == 0 && std::signbit(x);
}
Range point(float x) {
  return {x, x, is_minus_zero(x)};
}
Range hull(Range a, Range b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.minus_zero || b.minus_zero};
}

class Ranges {
 public:
  explicit Ranges(const ir::Graph& g) : g_(g) {}

  Range of(ValueId v) {
    const auto [entry, fresh] = known_.try_emplace(v, kAnything);
    if (fresh) entry->second = compute(g_.producer(v));
    return known_.at(v);
  }

 private:
  Range compute(const ir::Node& n) {
    if (!ir::is_float(g_.type(n.outputs[0]).dtype)) return kAnything;
    switch (n.op) {
      case Op::constant: return constant(n);
      case Op::view: return through({Label::Kind::view, *n.quantizer, std::nullopt}, of(n.inputs[0]));
      case Op::dequantize: return dequantized(n);
      case Op::relu: {
        const Range x = of(n.inputs[0]);
        return {std::max(x.lo, 0.0F), std::max(x.hi, 0.0F), false};
      }
      case Op::clip: {
        const Range x = of(n.inputs[0]);
        const auto lo = static_cast<float>(ir::get_float(n.attrs, "min", -INFINITY));
        const auto hi = static_cast<float>(ir::get_float(n.attrs, "max", INFINITY));
        if (!(lo <= hi)) return kAnything;
        const bool minus_zero = (x.minus_zero && lo < 0) || is_minus_zero(lo) || is_minus_zero(hi);
        return {std::min(std::max(x.lo, lo), hi), std::min(std::max(x.hi, lo), hi), minus_zero};
      }
      case Op::max: {
        const Range a = of(n.inputs[0]), b = of(n.inputs[1]);
        return {std::max(a.lo, b.lo), std::max(a.hi, b.hi), a.minus_zero || b.minus_zero};
      }
      case Op::min: {
        const Range a = of(n.inputs[0]), b = of(n.inputs[1]);
        return {std::min(a.lo, b.lo), std::min(a.hi, b.hi), a.minus_zero || b.minus_zero};
      }
      case Op::max_pool: {
        const bool whole =
            find_move(n.op)->push(g_, n, {Label::Kind::view, ir::per_tensor(ir::DType::u8, 1), std::nullopt}).has_value();
        return whole ? of(n.inputs[0]) : kAnything;
      }
      case Op::pad: {
        const Range x = of(n.inputs[0]);
        if (!adds_constant(n)) return x;
        return hull(x, point(static_cast<float>(ir::get_float(n.attrs, "value"))));
      }
      case Op::where: return hull(of(n.inputs[1]), of(n.inputs[2]));
      default: break;
    }
    if (find_move(n.op) == nullptr) return kAnything;
    Range all = of(n.inputs[0]);
    if (n.op == Op::concat) {
      for (const ValueId in : n.inputs) all = hull(all, of(in));
    }
    return all;
  }

  static Range constant(const ir::Node& n) {
    if (!n.quantizer && n.payload.dtype() == ir::DType::f64) return kAnything;
    const ir::Tensor values = values_of(n);
    if (values.size() == 0) return kAnything;
    Range all{INFINITY, -INFINITY, false};
    for (const float x : values.data<float>()) {
      if (std::isnan(x)) return kAnything;
      all = hull(all, point(x));
    }
    return all;
  }

  /// The label keeps order in each channel; the hull over channels.
  static Range through(const Label& label, Range x) {
    Range all{INFINITY, -INFINITY, false};
    for (std::size_t c = 0; c < label.q.entries(); ++c) {
      if (!(label.q.scale[c] > 0)) return kAnything;
      const auto channel = static_cast<std::int64_t>(c);
      all = hull(all, {apply_label(label, x.lo, channel), apply_label(label, x.hi, channel), false});
    }
    return all;
  }

  Range dequantized(const ir::Node& n) {
    const Quantizer& q = *n.quantizer;
    const ir::Node& p = g_.producer(n.inputs[0]);
    if (p.op == Op::quantize && p.quantizer->per_tensor() && q.per_tensor() && p.quantizer->scale[0] > 0 &&
        ir::is_float(g_.type(p.inputs[0]).dtype))
      return through({Label::Kind::recode, q, *p.quantizer}, of(p.inputs[0]));
    return through({Label::Kind::dequantize, q, std::nullopt}, {static_cast<float>(q.lo()), static_cast<float>(q.hi()), false});
  }

  const ir::Graph& g_;
  std::map<ValueId, Range> known_;
};

}  // namespace

Range range_of(const ir::Graph& g, ValueId v) {
  return Ranges(g).of(v);
}

}  // namespace octavo::quant
