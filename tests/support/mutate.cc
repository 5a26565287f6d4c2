// place_otherwise: one function a way of writing the same meaning otherwise. Each states its law; none calls the rules under test.
// Over 400 lines because the ways share the class's helpers and are read as one list.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "ir/canonical.h"
#include "ir/grid.h"
#include "support/placement.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Op;
using ir::Quantizer;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

/// A quantize + dequantize pair with equal parameters.
struct Pair {
  ValueId x = ir::kNone, y = ir::kNone;
  Quantizer q;  ///< u8, per tensor
};

/// Operators that take one data operand per input slot and act on codes as on values (scale > 0, no NaN).
bool moves(Op op) {
  switch (op) {
    case Op::transpose:
    case Op::reshape:
    case Op::slice:
    case Op::concat:
    case Op::pad:
    case Op::resize_nearest:
    case Op::gather:
    case Op::gather_elements:
    case Op::gather_nd:
    case Op::expand:
    case Op::tile:
    case Op::depth_to_space:
    case Op::space_to_depth:
    case Op::max_pool:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::max:
    case Op::min:
    case Op::where:
    case Op::relu:
    case Op::clip: return true;
    default: return false;
  }
}
std::vector<std::size_t> data_slots(const ir::Node& m) {
  if (m.op == Op::where) return {1, 2};
  if (m.op == Op::gather || m.op == Op::gather_elements || m.op == Op::gather_nd) return {0};
  std::vector<std::size_t> slots(m.inputs.size());
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  return slots;
}

class Mutator {
 public:
  Mutator(ir::Graph g, std::uint64_t seed, PlacementCounts& counts)
      : g_(std::move(g)), random_(seed * 0xda942042e4dd58b5ULL + 3), counts_(counts) {}

  void step() {
    using Way = bool (Mutator::*)();
    static constexpr std::pair<const char*, Way> kWays[] = {
        {"double pair", &Mutator::double_pair},
        {"split node by reader", &Mutator::split_node},
        {"pair below operator", &Mutator::pair_below},
        {"pair above operator", &Mutator::pair_above},
        {"respell u8, s8", &Mutator::respell},
        {"swap operands", &Mutator::swap_operands},
        {"weights as Q/DQ", &Mutator::uncode},
        {"relu that does nothing", &Mutator::add_relu},
        {"clip that does nothing", &Mutator::add_clip},
        {"relu as clip", &Mutator::relu_as_clip},
        {"dequantize below operator", &Mutator::dequantize_below},
        {"quantize above operator", &Mutator::quantize_above},
        {"requantize codes", &Mutator::requantize},
        {"pair before quantize", &Mutator::pair_before_quantize},
        {"per axis, equal entries", &Mutator::spread_axis},
        {"weights transposed", &Mutator::transpose_weights},
        {"per-axis pair over concat", &Mutator::per_axis_concat},
    };
    for (int tries = 0; tries < 8; ++tries) {
      const auto& [name, way] = kWays[static_cast<std::size_t>(below(std::size(kWays)))];
      if (!(this->*way)()) continue;
      ++counts_[name];
      g_.touch();
      g_.remove_dead();
      return;
    }
  }

  ir::Graph take() { return std::move(g_); }

 private:
  int below(std::size_t n) { return n <= 1 ? 0 : static_cast<int>(random_() % n); }
  bool chance(int percent) { return below(100) < percent; }
  const Shape& shape(ValueId v) const { return g_.type(v).shape; }

  /// A live node for which `fits` holds, at random.
  template <class Fits>
  std::optional<NodeId> find(Fits&& fits) {
    std::vector<NodeId> list;
    for (const NodeId id : g_.order()) {
      if (fits(id)) list.push_back(id);
    }
    if (list.empty()) return std::nullopt;
    return list[static_cast<std::size_t>(below(list.size()))];
  }

  /// The readers in a random, non-empty subset read `to` instead; graph outputs are readers. All of them if `all`.
  bool redirect(ValueId from, ValueId to, bool all = false) {
    const auto users = g_.users(from);
    std::vector<int> chosen;
    const int readers = static_cast<int>(users.size()) + g_.output_uses(from);
    for (int i = 0; i < readers; ++i) {
      if (all || chance(60)) chosen.push_back(i);
    }
    if (chosen.empty() && readers > 0) chosen.push_back(below(static_cast<std::size_t>(readers)));
    bool any = false;
    for (const int i : chosen) {
      if (i < static_cast<int>(users.size())) {
        const auto [node, slot] = users[static_cast<std::size_t>(i)];
        if (depends(to, g_.node(node).outputs[0])) continue;
        g_.node(node).inputs[static_cast<std::size_t>(slot)] = to;
        any = true;
      } else {
        int k = i - static_cast<int>(users.size());
        for (ValueId& out : g_.outputs) {
          if (out == from && k-- == 0) {
            out = to;
            any = true;
            break;
          }
        }
      }
    }
    g_.touch();
    return any;
  }
  /// True if v is computed from `from`.
  bool depends(ValueId v, ValueId from) const {
    std::vector<ValueId> stack{v};
    std::set<ValueId> seen;
    while (!stack.empty()) {
      const ValueId at = stack.back();
      stack.pop_back();
      if (at == from) return true;
      if (at == ir::kNone || !seen.insert(at).second) continue;
      const ir::Node& n = g_.producer(at);
      stack.insert(stack.end(), n.inputs.begin(), n.inputs.end());
    }
    return false;
  }

  std::optional<Pair> pair_at(ValueId y) const {
    const ir::Node& dq = g_.producer(y);
    if (dq.op != Op::dequantize || g_.producer(dq.inputs[0]).op != Op::quantize) return std::nullopt;
    const ir::Node& q = g_.producer(dq.inputs[0]);
    const Quantizer a = ir::collapse_axis(*q.quantizer), b = ir::collapse_axis(*dq.quantizer);
    if (!(a == b) || !a.per_tensor() || !ir::is_int8(a.type)) return std::nullopt;
    return Pair{q.inputs[0], y, ir::as_u8(a)};
  }
  /// quantize + dequantize in a random spelling.
  ValueId make_pair(ValueId x, Quantizer q) {
    q = chance(50) ? ir::as_u8(q) : ir::as_s8(q);
    const ValueId codes = g_.add_quantizer(Op::quantize, x, q, {q.type, shape(x)}, {"mutated"});
    return g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, shape(x)}, {"mutated"});
  }

  /// quantize_q(dequantize_q(c)) = c for all 256 codes: not so in bfloat16, mostly.
  static bool gives_back(const Quantizer& q) {
    for (std::int64_t c = q.lo(); c <= q.hi(); ++c) {
      const float x = ir::dequantize_one(static_cast<std::int32_t>(c), q.scale[0], q.zero_point[0], q.arith);
      if (ir::quantize_one(x, q.scale[0], q.zero_point[0], q.lo(), q.hi(), q.arith) != c) return false;
    }
    return true;
  }

  // q(q(x)) = q(x): any value on a grid may go through its quantizer again.
  bool double_pair() {
    const ir::Grids grids = ir::find_grids(g_);
    const auto id = find([&](NodeId n) {
      const ValueId v = g_.node(n).outputs[0];
      return grids.get(v) && grids.get(v)->per_tensor() && ir::is_int8(grids.get(v)->type) && !g_.is_constant(v) &&
             ir::fixes(*grids.get(v), *grids.get(v));
    });
    if (!id) return false;
    const ValueId v = g_.node(*id).outputs[0];
    return redirect(v, make_pair(v, *grids.get(v)));
  }

  // One node for all its readers = a node for each.
  bool split_node() {
    const auto id = find([&](NodeId n) {
      const ir::Node& node = g_.node(n);
      return node.op != Op::input && node.outputs.size() == 1 && g_.use_count(node.outputs[0]) > 1;
    });
    if (!id) return false;
    const ir::Node copy = g_.node(*id);
    const ValueId counterpart = g_.node(g_.add_node(copy, {g_.type(copy.outputs[0])})).outputs[0];
    return redirect(copy.outputs[0], counterpart);
  }

  /// The attributes of m with its constants read through q, or nothing if it mixes or has a window of padding alone.
  std::optional<ir::Attrs> through(const ir::Node& m, const Quantizer& q) const {
    ir::Attrs attrs = m.attrs;
    const auto read = [&](const char* key) {
      const auto value = static_cast<float>(ir::get_float(attrs, key, NAN));
      if (std::isfinite(value)) attrs[key] = static_cast<double>(ir::view_one(q, value));
    };
    if (m.op == Op::clip) read("min"), read("max");
    const auto padding = ir::get_ints(attrs, "pads");
    const bool padded = std::any_of(padding.begin(), padding.end(), [](std::int64_t p) { return p > 0; });
    if (m.op == Op::pad && padded && ir::get_text(attrs, "mode", "constant") == "constant") read("value");
    if (m.op == Op::max_pool) {  // dense windows whose padding is narrower than the kernel, and no pads beyond the end
      const auto kernel = ir::get_ints(m.attrs, "kernel"), pads = ir::get_ints(m.attrs, "pads"),
                 strides = ir::get_ints(m.attrs, "strides");
      for (std::size_t d = 0; d < 2; ++d) {
        const std::int64_t last = (shape(m.outputs[0])[d + 2] - 1) * strides[d] - pads[d];
        if (pads[d] >= kernel[d] || last >= shape(m.inputs[0])[d + 2]) return std::nullopt;
      }
    }
    return attrs;
  }

  // M(q(a), q(b)...) = q(M(a, b...)), where the constants of M lie on the grid of q.
  bool pair_below() {
    const auto shared = [&](const ir::Node& m) -> std::optional<Quantizer> {
      if (!moves(m.op)) return std::nullopt;
      std::optional<Quantizer> q;
      for (const std::size_t slot : data_slots(m)) {
        const auto p = pair_at(m.inputs[slot]);
        if (!p || (q && !(*q == p->q))) return std::nullopt;
        q = p->q;
      }
      return through(m, *q) == m.attrs ? q : std::nullopt;
    };
    const auto id = find([&](NodeId n) { return shared(g_.node(n)).has_value(); });
    if (!id) return false;
    const ir::Node m = g_.node(*id);
    const Quantizer q = *shared(m);
    std::vector<ValueId> operands = m.inputs;
    for (const std::size_t slot : data_slots(m)) operands[slot] = pair_at(m.inputs[slot])->x;
    const ValueId moved = ir::add_inferred(g_, m.op, operands, m.attrs, {"mutated"});
    return redirect(m.outputs[0], make_pair(moved, q));
  }

  // q(M(a, b...)) = M(q(a), q(b)...), the constants of M read through q.
  bool pair_above() {
    const auto id = find([&](NodeId n) {
      if (g_.node(n).op != Op::dequantize) return false;
      const auto p = pair_at(g_.node(n).outputs[0]);
      return p && moves(g_.producer(p->x).op) && through(g_.producer(p->x), p->q).has_value();
    });
    if (!id) return false;
    const Pair p = *pair_at(g_.node(*id).outputs[0]);
    const ir::Node m = g_.producer(p.x);
    std::vector<ValueId> operands = m.inputs;
    for (const std::size_t slot : data_slots(m)) operands[slot] = make_pair(operands[slot], p.q);
    return redirect(p.y, ir::add_inferred(g_, m.op, operands, *through(m, p.q), {"mutated"}));
  }

  // u8 with zero point z = s8 with z - 128. Constants shift their codes.
  bool respell() {
    const auto id = find([&](NodeId n) {
      const ir::Node& dq = g_.node(n);
      if (dq.op != Op::dequantize || !ir::is_int8(dq.quantizer->type)) return false;
      return g_.is_constant(dq.inputs[0]) || pair_at(dq.outputs[0]).has_value();
    });
    if (!id) return false;
    const ir::Node dq = g_.node(*id);
    const Quantizer& q = *dq.quantizer;
    const Quantizer other = q.type == DType::u8 ? ir::as_s8(q) : ir::as_u8(q);
    if (const auto p = pair_at(dq.outputs[0])) {
      const ValueId codes = g_.add_quantizer(Op::quantize, p->x, other, {other.type, shape(p->x)}, {"mutated"});
      return redirect(p->y, g_.add_quantizer(Op::dequantize, codes, other, {DType::f32, shape(p->x)}, {"mutated"}));
    }
    const Tensor& codes = g_.payload(dq.inputs[0]);
    Tensor shifted(other.type, codes.shape());
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      const auto k = static_cast<std::size_t>(i);
      shifted.mutable_data<std::uint8_t>()[k] = static_cast<std::uint8_t>(codes.data<std::uint8_t>()[k] ^ 0x80U);
    }
    const ValueId c = g_.add_constant(std::move(shifted));
    return redirect(dq.outputs[0], g_.add_quantizer(Op::dequantize, c, other, g_.type(dq.outputs[0]), {"mutated"}));
  }

  bool swap_operands() {
    const auto id = find([&](NodeId n) { return ir::commutes(g_.node(n).op); });
    if (!id) return false;
    std::swap(g_.node(*id).inputs[0], g_.node(*id).inputs[1]);
    return true;
  }

  // A coded constant = dequantize(its codes) = dequantize(quantize(its values)).
  bool uncode() {
    const auto id = find([&](NodeId n) { return g_.node(n).op == Op::constant && g_.node(n).quantizer; });
    if (!id) return false;
    const ir::Node w = g_.node(*id);
    const Quantizer q = *w.quantizer;
    ValueId codes = ir::kNone;
    if (q.type == DType::s8 && chance(40)) {
      Tensor values(DType::f32, w.payload.shape());
      const Shape strides = ir::dense_strides(values.shape());
      for (std::int64_t i = 0; i < values.size(); ++i) {
        const std::int64_t c =
            q.per_tensor() ? 0
                           : i / strides[static_cast<std::size_t>(q.axis)] % shape(w.outputs[0])[static_cast<std::size_t>(q.axis)];
        const auto code = static_cast<std::int32_t>(w.payload.at(i));
        float value = ir::dequantize_one(code, q.scale_at(c), q.zero_at(c));
        if (chance(30)) value += q.scale_at(c) * 0.4F;                // anywhere in the cell of the code
        if (code == 127 && chance(50)) value *= 1 + std::abs(value);  // saturates
        if (ir::quantize_one(value, q.scale_at(c), q.zero_at(c), -128, 127) != code)
          value = ir::dequantize_one(code, q.scale_at(c), q.zero_at(c));
        values.mutable_data<float>()[static_cast<std::size_t>(i)] = value;
      }
      const ValueId floats = g_.add_constant(std::move(values));
      codes = g_.add_quantizer(Op::quantize, floats, q, {q.type, shape(floats)}, {"mutated"});
    } else {
      codes = g_.add_constant(w.payload);
    }
    return redirect(w.outputs[0], g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, shape(codes)}, {"mutated"}));
  }

  /// A value on a per-tensor 8-bit grid for which `fits(q)` holds.
  template <class Fits>
  std::optional<std::pair<ValueId, Quantizer>> on_grid(Fits&& fits) {
    const ir::Grids grids = ir::find_grids(g_);
    const auto good = [&](NodeId n) {
      const Quantizer* q = grids.get(g_.node(n).outputs[0]);
      return q && q->per_tensor() && ir::is_int8(q->type) && g_.node(n).op != Op::constant && fits(*q);
    };
    const auto id = find(good);
    if (!id) return std::nullopt;
    return std::pair{g_.node(*id).outputs[0], *grids.get(g_.node(*id).outputs[0])};
  }
  // relu(y) = y on a grid without negative values.
  bool add_relu() {
    const auto at = on_grid([](const Quantizer& q) { return ir::grid_min(q) >= 0; });
    return at && redirect(at->first, ir::add_inferred(g_, Op::relu, {at->first}, {}, {"mutated"}));
  }
  // clip(y, lo, hi) = y on a grid inside lo..hi.
  bool add_clip() {
    const auto at = on_grid([](const Quantizer&) { return true; });
    if (!at) return false;
    ir::Attrs attrs{{"min", static_cast<double>(ir::grid_min(at->second) - static_cast<float>(below(3)))},
                    {"max", static_cast<double>(ir::grid_max(at->second) + static_cast<float>(below(3)))}};
    if (chance(20)) attrs.erase("max");
    return redirect(at->first, ir::add_inferred(g_, Op::clip, {at->first}, attrs, {"mutated"}));
  }
  bool relu_as_clip() {
    const auto id = find([&](NodeId n) { return g_.node(n).op == Op::relu; });
    if (!id) return false;
    const ir::Node relu = g_.node(*id);
    ir::Attrs attrs{{"min", 0.0}};
    if (chance(50)) attrs["max"] = static_cast<double>(INFINITY);
    return redirect(relu.outputs[0], ir::add_inferred(g_, Op::clip, {relu.inputs[0]}, attrs, {"mutated"}));
  }

  /// Operators whose integer form is the same node.
  static bool moves_codes(const ir::Node& m) {
    return moves(m.op) && m.op != Op::relu && m.op != Op::clip &&
           (m.op != Op::pad || ir::get_text(m.attrs, "mode", "constant") != "constant");
  }
  // M(dequantize(c)...) = dequantize(M(c...)), equal parameters.
  bool dequantize_below() {
    const auto shared = [&](const ir::Node& m) -> std::optional<Quantizer> {
      if (!moves_codes(m)) return std::nullopt;
      std::optional<Quantizer> q;
      for (const std::size_t slot : data_slots(m)) {
        const ir::Node& p = g_.producer(m.inputs[slot]);
        if (p.op != Op::dequantize || !p.quantizer->per_tensor() || (q && !(*q == *p.quantizer))) return std::nullopt;
        q = *p.quantizer;
      }
      return through(m, *q) ? q : std::nullopt;
    };
    const auto id = find([&](NodeId n) { return shared(g_.node(n)).has_value(); });
    if (!id) return false;
    const ir::Node m = g_.node(*id);
    const Quantizer q = *shared(m);
    std::vector<ValueId> operands = m.inputs;
    for (const std::size_t slot : data_slots(m)) operands[slot] = g_.producer(m.inputs[slot]).inputs[0];
    const ValueId codes = ir::add_inferred(g_, m.op, operands, m.attrs, {"mutated"});
    return redirect(m.outputs[0], g_.add_quantizer(Op::dequantize, codes, q, g_.type(m.outputs[0]), {"mutated"}));
  }
  // quantize(M(x...)) = M(quantize(x)...). A constant operand becomes codes, which find back only if q gives every code back.
  bool quantize_above() {
    const auto fits = [&](const ir::Node& n) {
      if (n.op != Op::quantize || !n.quantizer->per_tensor()) return false;
      const ir::Node& m = g_.producer(n.inputs[0]);
      const bool constant = std::any_of(m.inputs.begin(), m.inputs.end(), [&](ValueId v) { return g_.is_constant(v); });
      if (constant && !gives_back(*n.quantizer)) return false;
      return moves_codes(m) && through(m, *n.quantizer).has_value();
    };
    const auto id = find([&](NodeId n) { return fits(g_.node(n)); });
    if (!id) return false;
    const ir::Node n = g_.node(*id);
    const ir::Node m = g_.producer(n.inputs[0]);
    std::vector<ValueId> operands = m.inputs;
    for (const std::size_t slot : data_slots(m)) {
      operands[slot] =
          g_.add_quantizer(Op::quantize, operands[slot], *n.quantizer, {n.quantizer->type, shape(operands[slot])}, {"mutated"});
    }
    return redirect(n.outputs[0], ir::add_inferred(g_, m.op, operands, m.attrs, {"mutated"}));
  }
  // quantize(dequantize(c)) = c, for any parameters that give every code back (f32, ordinary scales).
  bool requantize() {
    const auto id =
        find([&](NodeId n) { return g_.node(n).op != Op::constant && ir::is_int8(g_.type(g_.node(n).outputs[0]).dtype); });
    if (!id) return false;
    const ValueId c = g_.node(*id).outputs[0];
    const DType type = g_.type(c).dtype;
    const Quantizer q = g_.node(*id).op == Op::quantize && chance(70) ? *g_.node(*id).quantizer : ir::per_tensor(type, 0.37F, 5);
    if (!gives_back(q)) return false;
    const ValueId x = g_.add_quantizer(Op::dequantize, c, q, {DType::f32, shape(c)}, {"mutated"});
    return redirect(c, g_.add_quantizer(Op::quantize, x, q, g_.type(c), {"mutated"}));
  }
  // quantize_q(x) = quantize_q(q(x)).
  bool pair_before_quantize() {
    const auto id = find([&](NodeId n) {
      return g_.node(n).op == Op::quantize && g_.node(n).quantizer->per_tensor() && gives_back(*g_.node(n).quantizer);
    });
    if (!id) return false;
    const ir::Node n = g_.node(*id);
    const ValueId y = make_pair(n.inputs[0], *n.quantizer);
    g_.node(*id).inputs[0] = y;
    return true;
  }
  // Per tensor = per axis with equal entries.
  bool spread_axis() {
    const auto id = find([&](NodeId n) {
      const ir::Node& node = g_.node(n);
      return (node.op == Op::quantize || node.op == Op::dequantize) && node.quantizer->per_tensor() &&
             !shape(node.outputs[0]).empty();
    });
    if (!id) return false;
    Quantizer& q = *g_.node(*id).quantizer;
    q.axis = below(shape(g_.node(*id).outputs[0]).size());
    const auto entries = static_cast<std::size_t>(shape(g_.node(*id).outputs[0])[static_cast<std::size_t>(q.axis)]);
    q.scale.assign(entries, q.scale[0]);
    q.zero_point.assign(entries, q.zero_point[0]);
    return true;
  }

  // Coded weights = transpose of the coded, transposed weights.
  bool transpose_weights() {
    const auto id = find([&](NodeId n) {
      const ir::Node& w = g_.node(n);
      return w.op == Op::constant && w.quantizer && w.payload.dtype() == DType::s8 && w.payload.shape().size() >= 2;
    });
    if (!id) return false;
    const ir::Node w = g_.node(*id);
    const Shape dims = w.payload.shape(), strides = ir::dense_strides(dims);
    std::vector<std::int64_t> perm(dims.size()),
        back(dims.size());  // dimension d of the weights is dimension back[d] of the turned ones
    for (std::size_t d = 0; d < perm.size(); ++d) perm[d] = static_cast<std::int64_t>(d);
    std::shuffle(perm.begin(), perm.end(), random_);
    Shape turned_dims;
    for (std::size_t d = 0; d < perm.size(); ++d) {
      turned_dims.push_back(dims[static_cast<std::size_t>(perm[d])]);
      back[static_cast<std::size_t>(perm[d])] = static_cast<std::int64_t>(d);
    }
    Tensor turned(w.payload.dtype(), turned_dims);
    const Shape turned_strides = ir::dense_strides(turned_dims);
    for (std::int64_t i = 0; i < turned.size(); ++i) {
      std::int64_t from = 0;
      for (std::size_t d = 0; d < perm.size(); ++d)
        from += i / turned_strides[d] % turned_dims[d] * strides[static_cast<std::size_t>(perm[d])];
      turned.mutable_data<std::int8_t>()[static_cast<std::size_t>(i)] =
          w.payload.data<std::int8_t>()[static_cast<std::size_t>(from)];
    }
    Quantizer q = *w.quantizer;
    if (!q.per_tensor()) q.axis = static_cast<int>(back[static_cast<std::size_t>(q.axis)]);
    const ValueId codes = g_.add_constant(std::move(turned));
    const ValueId y = g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, turned_dims}, {"mutated"});
    return redirect(w.outputs[0], ir::add_inferred(g_, Op::transpose, {y}, {{"perm", back}}, {"mutated"}));
  }

  // concat(q1(a), q2(b)...) = q(concat(a, b...)), q per axis with the entries of the pieces.
  bool per_axis_concat() {
    const auto fits = [&](const ir::Node& m) {
      return m.op == Op::concat && std::all_of(m.inputs.begin(), m.inputs.end(), [&](ValueId v) { return pair_at(v).has_value(); });
    };
    const auto id = find([&](NodeId n) { return fits(g_.node(n)); });
    if (!id) return false;
    const ir::Node m = g_.node(*id);
    Quantizer q{DType::u8, {}, {}, static_cast<int>(ir::get_int(m.attrs, "axis")), DType::f32};
    q.arith = pair_at(m.inputs[0])->q.arith;
    std::vector<ValueId> operands;
    for (const ValueId v : m.inputs) {
      const Pair p = *pair_at(v);
      if (p.q.arith != q.arith) return false;
      for (std::int64_t i = 0; i < shape(v)[static_cast<std::size_t>(q.axis)]; ++i) {
        q.scale.push_back(p.q.scale[0]);
        q.zero_point.push_back(p.q.zero_point[0]);
      }
      operands.push_back(p.x);
    }
    const ValueId x = ir::add_inferred(g_, Op::concat, operands, m.attrs, {"mutated"});
    const ValueId codes = g_.add_quantizer(Op::quantize, x, q, {q.type, shape(x)}, {"mutated"});
    return redirect(m.outputs[0], g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, shape(x)}, {"mutated"}));
  }

  ir::Graph g_;
  std::mt19937_64 random_;
  PlacementCounts& counts_;
};

}  // namespace

ir::Graph place_otherwise(const ir::Graph& g, std::uint64_t seed, int steps, PlacementCounts& counts) {
  Mutator mutator(g, seed, counts);
  for (int i = 0; i < steps; ++i) mutator.step();
  return shuffled(mutator.take(), seed);
}

}  // namespace octavo::testing
