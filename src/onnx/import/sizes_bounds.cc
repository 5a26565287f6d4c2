// Bounds of the elements of short lists that follow from sizes, operator by operator.
#include <algorithm>
#include <cmath>

#include "onnx/import/sizes_detail.h"
#include "reference/evaluate.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

namespace {

/// Element `i` of a result of shape `out` is which element of an operand of shape `in`, by broadcasting?
std::size_t broadcast_from(std::int64_t i, const Shape& out, const Shape& in) {
  std::int64_t at = 0, step = 1;
  for (std::size_t d = out.size(); d-- > 0;) {
    const std::int64_t k = i % out[d];
    i /= out[d];
    if (d + in.size() < out.size()) break;
    const std::int64_t e = in[d + in.size() - out.size()];
    if (e != 1) at += k * step;
    step *= e;
  }
  return static_cast<std::size_t>(at);
}

}  // namespace

std::optional<Numbers> Sizes::numbers_of(NodeContext& n, Op op, const std::vector<ValueId>& inputs, ValueId result) {
  const ir::Graph& g = n.graph();
  const Shape out = n.shape_of(result);
  if (ir::count(out) > kMostNumbers || ir::count(out) == 0) return std::nullopt;
  // Elements without scalars of their own: bounds and keys are enough here.
  const auto have = [&](ValueId v) -> std::optional<Numbers> {
    if (v == ir::kNone) return std::nullopt;
    if (const auto at = numbers_.find(v); at != numbers_.end()) return at->second;
    if (const auto at = counts_.find(v); at != counts_.end()) return Numbers{at->second};
    return g.is_constant(v) ? elements(n, v) : std::nullopt;
  };
  std::vector<Numbers> in;
  bool any = false;
  for (const ValueId v : inputs) {
    const bool constant = v != ir::kNone && g.is_constant(v);
    auto one = have(v);
    if (!one) return std::nullopt;
    any = any || !constant;
    in.push_back(std::move(*one));
  }
  if (!any || in.empty()) return std::nullopt;
  const auto total = static_cast<std::size_t>(ir::count(out));
  Numbers result_numbers(total);
  if (ir::has_trait(op, ir::kMove)) {
    if (op == Op::max_pool || op == Op::reduce_max || op == Op::reduce_min || op == Op::pad) {
      if (op != Op::reduce_max && op != Op::reduce_min) return std::nullopt;
      if (total != 1) return std::nullopt;
      Number m = in[0][0];
      for (const Number& x : in[0]) {
        const bool greatest = op == Op::reduce_max;
        const Number apart = sum(m, 1, x, -1);
        if (greatest ? apart.least >= 0 : apart.most <= 0) continue;
        if (greatest ? apart.most <= 0 : apart.least >= 0) {
          m = x;
          continue;
        }
        m = term(mixed(mixed(static_cast<std::uint64_t>(greatest ? Op::max : Op::min) + 1, std::min(m.key, x.key)),
                       std::max(m.key, x.key)),
                 greatest ? std::max(m.least, x.least) : std::min(m.least, x.least),
                 greatest ? std::max(m.most, x.most) : std::min(m.most, x.most));
      }
      return Numbers{m};
    }
    // Where does each element come from? The operator moves numbers of places.
    std::vector<Number> places;
    std::vector<Tensor> operands;
    const bool indexed = op == Op::gather || op == Op::gather_elements || op == Op::gather_nd;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (indexed && i == 1) {
        if (!g.is_constant(inputs[1])) return std::nullopt;
        operands.push_back(g.payload(inputs[1]));
        continue;
      }
      Tensor t(DType::f64, n.shape_of(inputs[i]));
      for (std::size_t k = 0; k < in[i].size(); ++k) {
        t.mutable_data<double>()[k] = static_cast<double>(places.size());
        places.push_back(in[i][k]);
      }
      const DType type = n.type_of(inputs[i]).dtype;
      if (type == DType::boolean) return std::nullopt;
      operands.push_back(type == DType::f32 ? t.to_f32() : Tensor(type, t.shape()));
      if (type != DType::f32) {
        for (std::int64_t k = 0; k < t.size(); ++k) {
          const auto v = static_cast<std::int64_t>(t.at(k));
          if (type == DType::s64) {
            operands.back().mutable_data<std::int64_t>()[static_cast<std::size_t>(k)] = v;
          } else if (type == DType::s32) {
            operands.back().mutable_data<std::int32_t>()[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(v);
          } else {
            return std::nullopt;
          }
        }
      }
    }
    const auto moved = reference::evaluate_node(g, {}, g.value(result).producer, operands);
    if (!moved) return std::nullopt;
    for (std::size_t i = 0; i < total; ++i) {
      const auto from = static_cast<std::size_t>((*moved)[0].at(static_cast<std::int64_t>(i)));
      if (from >= places.size()) return std::nullopt;
      result_numbers[i] = places[from];
    }
    return result_numbers;
  }
  const auto keyed = [&](std::initializer_list<std::uint64_t> keys) {
    std::uint64_t k = static_cast<std::uint64_t>(op) + 1;
    for (const std::uint64_t one : keys) k = mixed(k, one);
    return k;
  };
  const bool floats = ir::is_float(n.type_of(result).dtype);
  const auto integral = [&](const Number& x) {
    bool whole = std::trunc(x.constant) == x.constant && std::trunc(x.least) == x.least && std::trunc(x.most) == x.most;
    for (const auto& [key, times] : x.terms) whole = whole && std::trunc(times) == times && !fractions_.contains(key);
    return whole;
  };
  for (std::size_t i = 0; i < total; ++i) {
    std::vector<Number> a;
    for (std::size_t k = 0; k < in.size(); ++k)
      a.push_back(in[k][broadcast_from(static_cast<std::int64_t>(i), out, n.shape_of(inputs[k]))]);
    Number& y = result_numbers[i];
    const auto set = [&](double least, double most, std::uint64_t key) {
      y = term(key, least, most);
      if (floats && op != Op::floor && op != Op::ceil) fractions_.insert(key);
    };
    const auto either = [&](Op as) {
      return mixed(mixed(static_cast<std::uint64_t>(as) + 1, std::min(a[0].key, a[1].key)), std::max(a[0].key, a[1].key));
    };
    switch (op) {
      case Op::cast:
        y = a[0];
        if (!floats && ir::is_float(n.type_of(inputs[0]).dtype) && !integral(a[0]))
          set(std::trunc(a[0].least), std::trunc(a[0].most), keyed({a[0].key, 7}));
        break;
      case Op::add: y = sum(a[0], 1, a[1], 1); break;
      case Op::sub: y = sum(a[0], 1, a[1], -1); break;
      case Op::mul: {
        if (a[0].known() || a[1].known()) {
          const std::size_t k = a[1].known() ? 1 : 0;
          y = sum(a[1 - k], a[k].least, {}, 0);
          break;
        }
        const double e[] = {a[0].least * a[1].least, a[0].least * a[1].most, a[0].most * a[1].least, a[0].most * a[1].most};
        set(*std::min_element(e, e + 4), *std::max_element(e, e + 4), either(Op::mul));
        break;
      }
      case Op::div: {
        if (!a[1].known() || a[1].least <= 0) return std::nullopt;
        const double d = a[1].least;
        if (const auto exact = quotient(a[0], d)) {
          y = *exact;
        } else {
          set(floats ? a[0].least / d : std::trunc(a[0].least / d), floats ? a[0].most / d : std::trunc(a[0].most / d),
              keyed({a[0].key, a[1].key, floats ? 1U : 0U}));
        }
        break;
      }
      case Op::min:
      case Op::max: {
        const bool greatest = op == Op::max;
        const Number apart = sum(a[0], 1, a[1], -1);
        if (greatest ? apart.least >= 0 : apart.most <= 0) {
          y = a[0];
        } else if (greatest ? apart.most <= 0 : apart.least >= 0) {
          y = a[1];
        } else {
          set(greatest ? std::max(a[0].least, a[1].least) : std::min(a[0].least, a[1].least),
              greatest ? std::max(a[0].most, a[1].most) : std::min(a[0].most, a[1].most), either(op));
        }
        break;
      }
      case Op::floor:
        if (integral(a[0]))
          y = a[0];
        else
          set(std::floor(a[0].least), std::floor(a[0].most), keyed({a[0].key}));
        break;
      case Op::ceil:
        if (integral(a[0]))
          y = a[0];
        else
          set(std::ceil(a[0].least), std::ceil(a[0].most), keyed({a[0].key}));
        break;
      case Op::neg: y = sum(a[0], -1, {}, 0); break;
      case Op::relu: set(std::max(a[0].least, 0.0), std::max(a[0].most, 0.0), keyed({a[0].key})); break;
      case Op::equal: {
        const Number apart = sum(a[0], 1, a[1], -1);
        set(apart.known() && apart.least == 0 ? 1 : 0, apart.least > 0 || apart.most < 0 ? 0 : 1, keyed({a[0].key, a[1].key}));
        break;
      }
      case Op::less: set(a[0].most < a[1].least ? 1 : 0, a[0].least >= a[1].most ? 0 : 1, keyed({a[0].key, a[1].key})); break;
      case Op::less_equal: set(a[0].most <= a[1].least ? 1 : 0, a[0].least > a[1].most ? 0 : 1, keyed({a[0].key, a[1].key})); break;
      case Op::greater: set(a[0].least > a[1].most ? 1 : 0, a[0].most <= a[1].least ? 0 : 1, keyed({a[0].key, a[1].key})); break;
      case Op::greater_equal:
        set(a[0].least >= a[1].most ? 1 : 0, a[0].most < a[1].least ? 0 : 1, keyed({a[0].key, a[1].key}));
        break;
      case Op::logical_not: set(1 - a[0].most, 1 - a[0].least, keyed({a[0].key})); break;
      case Op::logical_and:
        set(std::min(a[0].least, a[1].least), std::min(a[0].most, a[1].most), keyed({a[0].key, a[1].key}));
        break;
      case Op::logical_or:
        set(std::max(a[0].least, a[1].least), std::max(a[0].most, a[1].most), keyed({a[0].key, a[1].key}));
        break;
      case Op::where:
        if (a[0].known()) {
          y = a[0].least != 0 ? a[1] : a[2];
        } else if (a[1].key == a[2].key) {
          y = a[1];
        } else {
          set(std::min(a[1].least, a[2].least), std::max(a[1].most, a[2].most), keyed({a[0].key, a[1].key, a[2].key}));
        }
        break;
      default: return std::nullopt;
    }
    y.value = ir::kNone;
  }
  return result_numbers;
}

}  // namespace octavo::onnx
