// One class, a little longer than 400 lines: marks and storage share the tensors of 16 bits that were made.
#include "plan/candidates/narrow.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/causes/plan_precision.h"
#include "base/half_arrays.h"
#include "ir/facts.h"
#include "ir/grid.h"
#include "plan/regions/group.h"

namespace octavo::plan {
namespace {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

constexpr const char* kMark = kArithmeticMark;
constexpr std::string_view kTf32 = ir::spelled(ir::Arithmetic::tf32);
constexpr const char* kCast = kCastMark;

/// How the operands of a marked operator are rounded.
struct Rounding {
  DType type = DType::bf16;
  bool emulated = false;
  auto operator<=>(const Rounding&) const = default;
};

constexpr std::pair<ir::Arithmetic, Rounding> kMarks[] = {{ir::Arithmetic::bf16, {DType::bf16, false}},
                                                          {ir::Arithmetic::bf16_emulated, {DType::bf16, true}},
                                                          {ir::Arithmetic::f16, {DType::f16, false}},
                                                          {ir::Arithmetic::f16_emulated, {DType::f16, true}}};

std::optional<Rounding> mark_of(const Node& node) {
  if (!can_be_marked(node.op)) return std::nullopt;
  const std::string text = ir::get_text(node.attrs, kMark);
  for (const auto& [arithmetic, rounding] : kMarks) {
    if (text == ir::spelled(arithmetic)) return rounding;
  }
  return std::nullopt;
}
void unmark(ir::Attrs& attrs) {
  attrs.erase(kMark);
}

ir::Tensor rounded(const ir::Tensor& t, DType type) {
  ir::Tensor out(DType::f32, t.shape());
  (type == DType::f16 ? round_to_f16_all : round_to_bf16_all)(t.data<float>(), out.mutable_data<float>());
  return out;
}

/// The magnitude of a finite weight that `type` cannot hold; nothing: it holds all.
std::optional<double> beyond(const ir::Tensor& weights, DType type) {
  for (const float w : weights.data<float>()) {
    if (std::abs(w) > 60000 && std::isfinite(w) && !std::isfinite(ir::round_to(type, w))) return std::abs(static_cast<double>(w));
  }
  return std::nullopt;
}

/// May the value, by its range, come near the end of float16?
bool reaches_limit(const Graph& g, ValueId v, DType type) {
  return type == DType::f16 && largest_of_range(g, v) >= kFloat16Limit;
}

class Narrower {
 public:
  Narrower(Graph& g, const Storage& storage) : g_(g), storage_(storage) {}

  std::map<std::string, Reason> run() {
    const std::vector<NodeId> order = g_.order();
    const bool marked = std::any_of(order.begin(), order.end(), [&](NodeId id) { return mark_of(g_.node(id)).has_value(); });
    if (!marked && !storage_.any()) return {};
    grouping_ = make_groups(g_, {});
    std::vector<std::pair<ValueId, Rounding>> read;  // by marked operators
    for (const NodeId id : order) {
      const auto mark = mark_of(g_.node(id));
      if (!mark) continue;
      const Node n = g_.node(id);  // a copy: adding nodes moves the original
      if (n.op == Op::matmul) {
        product(id, n, *mark, read);
        continue;
      }
      const Node& w = g_.producer(n.inputs[1]);
      if (g_.type(n.inputs[0]).dtype != DType::f32 || g_.is_constant(n.inputs[0]) || w.op != Op::constant || w.quantizer ||
          w.payload.dtype() != DType::f32) {
        unmark(g_.node(id).attrs);
        continue;
      }
      if (const auto most = beyond(w.payload, mark->type); most && mark->type == DType::f16) {
        for (const std::string& node : n.origin)
          refused_.insert_or_assign(node, because<cause::weights_beyond_float16>(g_.value(n.inputs[1]).name, *most, kFloat16End));
        unmark(g_.node(id).attrs);
        continue;
      }
      read.emplace_back(n.inputs[0], *mark);
      edits_[{id, 0}] = wide(n.inputs[0], *mark);
      auto [at, fresh] = weights_.emplace(std::pair{n.inputs[1], mark->type}, ir::kNone);
      if (fresh) {
        const std::string name = g_.value(n.inputs[1]).name;
        at->second = g_.add_constant(rounded(g_.payload(n.inputs[1]), mark->type), name);
      }
      edits_[{id, 1}] = at->second;
    }
    for (const auto& [v, mark] : read) read_along(v, mark);
    if (storage_.any()) store(order);
    for (const auto& [at, value] : edits_) g_.node(at.first).inputs[at.second] = value;
    for (const NodeId id : order) {
      if (const auto mark = mark_of(g_.node(id)); mark && mark->emulated)
        unmark(g_.node(id).attrs);  // a float32 operator from here on
    }
    g_.touch();
    g_.remove_dead();
    return std::move(refused_);
  }

 private:
  /// Both matrices are read in the 16-bit type, computed or constant.
  void product(NodeId id, const Node& n, Rounding mark, std::vector<std::pair<ValueId, Rounding>>& read) {
    const bool floats = std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return plain_float(v); });
    if (!floats) return unmark(g_.node(id).attrs);
    for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
      edits_[{id, slot}] = wide(n.inputs[slot], mark);
      if (!g_.is_constant(n.inputs[slot])) read.emplace_back(n.inputs[slot], mark);
    }
  }
  [[nodiscard]] bool plain_float(ValueId v) const {
    return g_.type(v).dtype == DType::f32 && !(g_.is_constant(v) && g_.producer(v).quantizer);
  }
  /// The 16-bit tensor of a float value.
  ValueId small(ValueId v, DType type) {
    const auto found = small_.find({v, type});
    if (found != small_.end()) return found->second;
    const Node n = g_.producer(v);
    const std::string name = g_.value(v).name;
    ValueId out = ir::kNone;
    if (n.op == Op::constant && !n.quantizer) {
      ir::Tensor t(type, n.payload.shape());
      (type == DType::f16 ? f32_to_f16_all : f32_to_bf16_all)(n.payload.data<float>(), t.mutable_data<std::uint16_t>());
      out = g_.add_constant(std::move(t), name);
    } else if (given_as(n, type)) {
      out = n.inputs[0];
    } else if (moved(n)) {
      std::vector<ValueId> inputs = n.inputs;
      for (std::size_t slot = 0; slot < moved_inputs(n); ++slot) inputs[slot] = small(n.inputs[slot], type);
      out = ir::add_inferred(g_, n.op, std::move(inputs), n.attrs, n.origin, name);
    } else {
      out = g_.add(Op::cast, {v}, {type, g_.type(v).shape}, {{"to", std::string(ir::name_of(type))}, {kCast, std::int64_t{1}}},
                   origin(v), name);
    }
    return small_[{v, type}] = out;
  }
  /// A caller's tensor that has the type, widened.
  [[nodiscard]] bool given_as(const Node& n, DType type) const {
    return n.op == Op::cast && g_.type(n.inputs[0]).dtype == type && g_.producer(n.inputs[0]).op == Op::input;
  }
  /// Strides and slices move it: the rounding moves above, element by element the same. Where tensors are stored in 16 bits, so do regions that only move.
  [[nodiscard]] bool moved(const Node& n) const {
    if (!is_alias(n) && !(storage_.any() && moves_alone(n))) return false;
    return std::all_of(n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(moved_inputs(n)),
                       [&](ValueId v) { return plain_float(v); });
  }
  /// Its first operands, whose elements it moves.
  static std::size_t moved_inputs(const Node& n) { return is_alias(n) ? n.inputs.size() : 1; }
  /// A region of its own that takes elements as they are.
  [[nodiscard]] bool moves_alone(const Node& n) const {
    switch (n.op) {
      case Op::pad:
      case Op::resize_nearest:
      case Op::gather:
      case Op::tile:
      case Op::depth_to_space:
      case Op::space_to_depth: break;
      default: return false;
    }
    const int group = group_of(g_.value(n.outputs[0]).producer);
    return group >= 0 && grouping_.groups[static_cast<std::size_t>(group)].nodes.empty();
  }
  ValueId wide(ValueId v, Rounding mark) {
    if (mark.emulated) return rounded_of(v, mark.type);
    const auto found = wide_.find({v, mark.type});
    if (found != wide_.end()) return found->second;
    const ValueId from = small(v, mark.type);
    return wide_[{v, mark.type}] = g_.add(Op::cast, {from}, {DType::f32, g_.type(v).shape},
                                          {{"to", std::string("f32")}, {kCast, std::int64_t{1}}}, origin(v), g_.value(v).name);
  }
  /// The same values by two casts that are computed: element by element, so it need not move above what strides express.
  ValueId rounded_of(ValueId v, DType type) {
    const auto found = rounded_.find({v, type});
    if (found != rounded_.end()) return found->second;
    ValueId& out = rounded_[{v, type}];
    if (g_.is_constant(v)) return out = g_.add_constant(rounded(g_.payload(v), type), g_.value(v).name);
    const ir::Shape shape = g_.type(v).shape;
    const std::string name = g_.value(v).name;
    const ValueId small = g_.add(Op::cast, {v}, {type, shape}, {{"to", std::string(ir::name_of(type))}}, origin(v), name);
    return out = g_.add(Op::cast, {small}, {DType::f32, shape}, {{"to", std::string("f32")}}, origin(v), name);
  }
  /// A cast stands for what makes the value; a network input or a constant stands for no node: then for what reads it.
  [[nodiscard]] std::set<std::string> origin(ValueId v) const {
    std::set<std::string> out = g_.producer(v).origin;
    if (!out.empty()) return out;
    for (const auto& [user, slot] : g_.users(v)) out.insert(g_.node(user).origin.begin(), g_.node(user).origin.end());
    return out;
  }

  [[nodiscard]] int group_of(NodeId id) const {
    const auto at = static_cast<std::size_t>(id);
    return at < grouping_.of_node.size() ? grouping_.of_node[at] : -1;
  }
  /// Was the node made here?
  [[nodiscard]] bool made_here(NodeId id) const { return static_cast<std::size_t>(id) >= grouping_.of_node.size(); }
  [[nodiscard]] bool reads_as_operand(const Node& n, std::int64_t slot) const {
    return mark_of(n) && (slot == 0 || n.op == Op::matmul);
  }

  /// Element-wise readers in other regions, where then nobody stores the floats.
  void read_along(ValueId v, Rounding mark) {
    if (!done_.insert(v).second || moved(g_.producer(v)) || g_.output_uses(v) > 0) return;
    const int group = group_of(g_.value(v).producer);
    if (group < 0) return;
    std::vector<std::pair<NodeId, std::size_t>> others;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (is_narrow_cast(n) || (n.op == Op::cast && made_here(user)) || reads_as_operand(n, slot)) continue;
      if (!made_here(user) && group_of(user) == group) continue;
      if (!in_program(g_, n) || is_choice(n.op) || n.op == Op::view || n.op == Op::quantize || n.op == Op::cast) return;
      others.emplace_back(user, static_cast<std::size_t>(slot));
    }
    for (const auto& at : others) edits_.insert_or_assign(at, wide(v, mark));
  }

  /// A float tensor that leaves its region, and what reads it in others: at (node, slot), as the value that a chain of moves makes of it.
  struct Stored {
    DType type = DType::f16;
    bool of_model = false;  ///< it has the type in the model
    bool given = false;     ///< a caller's tensor of that type: whoever can read it as it is does
    struct Reader {
      NodeId node;
      std::size_t slot;
      ValueId value;
    };
    std::vector<Reader> readers;
  };

  /// Tensors all of whose readers in other regions take the 16-bit tensor are read as such: nobody stores the floats. A reader of a concatenation takes
  /// it if all of its parts are so.
  void store(const std::vector<NodeId>& order) {
    const ir::Grids grids = ir::find_grids(g_);
    std::map<ValueId, Stored> stored;
    for (const NodeId id : order) {
      std::optional<Stored> s = storable(id, grids);
      if (!s) continue;
      const ValueId v = g_.node(id).outputs[0];
      if (collect(v, v, *s) || s->given) stored.emplace(v, std::move(*s));
    }
    const auto whole = [&](ValueId v, DType type) {
      std::vector<ValueId> open{v};
      while (!open.empty()) {
        const ValueId at = open.back();
        open.pop_back();
        if (const Node& n = g_.producer(at); n.op != Op::constant && moved(n)) {
          open.insert(open.end(), n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(moved_inputs(n)));
        } else if (n.op != Op::constant) {
          const auto found = stored.find(at);
          if (found == stored.end() || found->second.type != type) return false;
        }
      }
      return true;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = stored.begin(); at != stored.end();) {
        auto& readers = at->second.readers;
        const auto left = [&](const Stored::Reader& r) { return !whole(r.value, at->second.type); };
        if (at->second.given) {
          changed = std::erase_if(readers, left) > 0 || changed;
        } else if (std::any_of(readers.begin(), readers.end(), left)) {
          at = stored.erase(at);
          changed = true;
          continue;
        }
        ++at;
      }
    }
    for (const auto& [v, s] : stored) {
      for (const Stored::Reader& r : s.readers) edits_.insert_or_assign(std::pair{r.node, r.slot}, wide(r.value, {s.type, false}));
    }
  }

  [[nodiscard]] std::optional<Stored> storable(NodeId id, const ir::Grids& grids) const {
    const Node& n = g_.node(id);
    if (n.outputs.size() != 1 || n.op == Op::constant || group_of(id) < 0) return std::nullopt;
    const ValueId v = n.outputs[0];
    if (g_.type(v).dtype != DType::f32 || grids.get(v) != nullptr) return std::nullopt;
    if (n.op == Op::cast && g_.producer(n.inputs[0]).op == Op::input) {
      const DType type = g_.type(n.inputs[0]).dtype;
      if (type != DType::f16 && type != DType::bf16) return std::nullopt;
      return Stored{type, true, true, {}};
    }
    const bool kept =
        std::any_of(n.origin.begin(), n.origin.end(), [&](const std::string& o) { return storage_.kept.contains(o); });
    const auto of_model = narrow_type_of_model(n, storage_.model);
    const auto type = of_model ? of_model : storage_.all;
    if (kept || !type || g_.output_uses(v) > 0 || reaches_limit(g_, v, *type)) return std::nullopt;
    if (!of_model && *type == DType::f16 && !g_.value(v).range && storage_.large.contains(g_.value(v).name)) return std::nullopt;
    if (!in_program(g_, n) && !computes_floats(n.op)) return std::nullopt;
    return Stored{*type, of_model.has_value(), false, {}};
  }
  /// Anchors of one float result, which a program behind them rounds and stores.
  static bool computes_floats(Op op) { return can_be_marked(op) || reads_small(op) || op == Op::softmax || op == Op::log_softmax; }
  /// Anchors that read 16-bit floats as they are, and compute in float32.
  static bool reads_small(Op op) {
    switch (op) {
      case Op::layer_norm:
      case Op::instance_norm:
      case Op::reduce_mean:
      case Op::reduce_sum:
      case Op::reduce_max:
      case Op::reduce_min:
      case Op::avg_pool:
      case Op::max_pool:
      case Op::resize_linear:
      case Op::resize_cubic: return true;
      default: return false;
    }
  }

  /// The readers of `v`, which is `base` moved, in other regions; false: one of them needs the floats.
  bool collect(ValueId base, ValueId v, Stored& s) const {
    bool all = g_.output_uses(v) == 0;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (made_here(user)) continue;
      if (moved(n)) {
        all = collect(base, n.outputs[0], s) && all;
      } else if (v == base && group_of(user) == group_of(g_.value(base).producer)) {
        continue;
      } else if (reads_as_operand(n, slot)) {
        all = all && !mark_of(n)->emulated;
      } else if (takes(n, slot, s)) {
        s.readers.push_back({user, static_cast<std::size_t>(slot), v});
      } else {
        all = false;
      }
    }
    return all;
  }
  [[nodiscard]] bool takes(const Node& n, int slot, const Stored& s) const {
    if (reads_small(n.op)) return slot == 0;
    if (!in_program(g_, n)) return false;
    // A comparison of rounded values may come out otherwise as a whole: only where the model compares such.
    if (is_choice(n.op)) return s.of_model;
    return n.op != Op::cast || ir::is_float(g_.type(n.outputs[0]).dtype);
  }

  Graph& g_;
  const Storage& storage_;
  Grouping grouping_;
  std::map<std::pair<ValueId, DType>, ValueId> small_, wide_, rounded_, weights_;
  std::set<ValueId> done_;
  std::map<std::pair<NodeId, std::size_t>, ValueId> edits_;
  std::map<std::string, Reason> refused_;
};

}  // namespace

void mark_narrow(Node& node, DType type, bool emulated) {
  for (const auto& [arithmetic, rounding] : kMarks) {
    if (rounding == Rounding{type, emulated}) node.attrs[kMark] = std::string(ir::spelled(arithmetic));
  }
}
double largest_of_range(const Graph& g, ValueId v) {
  const auto& range = g.value(v).range;
  if (!range) return 0;
  const ir::Ends ends = ir::ends_of(*range);
  return std::max(std::abs(static_cast<double>(ends.lo)), std::abs(static_cast<double>(ends.hi)));
}
std::optional<DType> narrow_type_of_model(const Node& node, const ModelTypes& types) {
  std::optional<DType> found;
  if (types.empty()) return found;
  for (const std::string& origin : node.origin) {
    const auto at = types.find(origin);
    if (at == types.end()) continue;
    if (at->second == DType::f32 || (found && *found != at->second)) return std::nullopt;
    found = at->second;
  }
  return found;
}
void permit_tf32(Graph& g) {
  const auto is_float = [&](ValueId v) { return g.type(v).dtype == DType::f32; };
  for (const NodeId id : g.order()) {
    Node& n = g.node(id);
    if (!can_be_marked(n.op) || n.op == Op::conv_transpose || n.attrs.contains(kMark)) continue;
    const bool product = n.op == Op::matmul && is_float(n.inputs[1]);  // of computed matrices
    if (is_float(n.inputs[0]) && (product || (n.op != Op::matmul && g.is_constant(n.inputs[1]))))
      n.attrs[kMark] = std::string(kTf32);
  }
}
std::map<std::string, Reason> narrow(Graph& g, const Storage& storage) {
  return Narrower(g, storage).run();
}

}  // namespace octavo::plan
