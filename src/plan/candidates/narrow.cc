#include "plan/candidates/narrow.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/half.h"
#include "ir/facts.h"
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
constexpr std::string_view kNarrow = ir::spelled(ir::Arithmetic::bf16), kEmulated = ir::spelled(ir::Arithmetic::bf16_emulated),
                           kTf32 = ir::spelled(ir::Arithmetic::tf32);
constexpr const char* kCast = kCastMark;

ir::Tensor rounded(const ir::Tensor& t) {
  ir::Tensor out(DType::f32, t.shape());
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.size()); ++i)
    out.mutable_data<float>()[i] = ir::round_to(DType::bf16, t.data<float>()[i]);
  return out;
}

void unmark(ir::Attrs& attrs) {
  attrs.erase(kMark);
}
bool is_emulated(const Node& node) {
  return ir::get_text(node.attrs, kMark) == kEmulated && can_be_marked(node.op);
}
bool is_marked(const Node& node) {
  return is_narrow(node) || is_emulated(node);
}

class Narrower {
 public:
  explicit Narrower(Graph& g) : g_(g) {}

  void run() {
    const std::vector<NodeId> order = g_.order();
    if (std::none_of(order.begin(), order.end(), [&](NodeId id) { return is_marked(g_.node(id)); })) return;
    grouping_ = make_groups(g_, {});
    std::vector<std::pair<ValueId, bool>> read;  // by marked operators: value, emulated
    for (const NodeId id : order) {
      if (!is_marked(g_.node(id))) continue;
      const Node n = g_.node(id);  // a copy: adding nodes moves the original
      if (n.op == Op::matmul) {
        product(id, n, read);
        continue;
      }
      const Node& w = g_.producer(n.inputs[1]);
      if (g_.type(n.inputs[0]).dtype != DType::f32 || g_.is_constant(n.inputs[0]) || w.op != Op::constant || w.quantizer ||
          w.payload.dtype() != DType::f32) {
        unmark(g_.node(id).attrs);
        continue;
      }
      const bool emulated = is_emulated(n);
      read.emplace_back(n.inputs[0], emulated);
      edits_.push_back({{id, 0}, wide(n.inputs[0], emulated)});
      auto [at, fresh] = weights_.emplace(n.inputs[1], ir::kNone);
      if (fresh) {
        const std::string name = g_.value(n.inputs[1]).name;
        at->second = g_.add_constant(rounded(g_.payload(n.inputs[1])), name);
      }
      edits_.push_back({{id, 1}, at->second});
    }
    for (const auto& [v, emulated] : read) read_along(v, emulated);
    for (const auto& [at, value] : edits_) g_.node(at.first).inputs[at.second] = value;
    for (const NodeId id : order) {
      if (is_emulated(g_.node(id))) unmark(g_.node(id).attrs);  // a float32 operator from here on
    }
    g_.touch();
    g_.remove_dead();
  }

 private:
  /// Both matrices are read in bfloat16, computed or constant.
  void product(NodeId id, const Node& n, std::vector<std::pair<ValueId, bool>>& read) {
    const bool floats = std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      return g_.type(v).dtype == DType::f32 && !(g_.is_constant(v) && g_.producer(v).quantizer);
    });
    if (!floats) return unmark(g_.node(id).attrs);
    const bool emulated = is_emulated(n);
    for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
      edits_.push_back({{id, slot}, wide(n.inputs[slot], emulated)});
      if (!g_.is_constant(n.inputs[slot])) read.emplace_back(n.inputs[slot], emulated);
    }
  }
  /// The bfloat16 tensor of a float value.
  ValueId small(ValueId v) {
    const auto found = small_.find(v);
    if (found != small_.end()) return found->second;
    const Node n = g_.producer(v);
    const std::string name = g_.value(v).name;
    ValueId out = ir::kNone;
    if (n.op == Op::constant && !n.quantizer) {
      ir::Tensor t(DType::bf16, n.payload.shape());
      for (std::size_t i = 0; i < static_cast<std::size_t>(t.size()); ++i)
        t.mutable_data<std::uint16_t>()[i] = f32_to_bf16(n.payload.data<float>()[i]);
      out = g_.add_constant(std::move(t), name);
    } else if (moved(n)) {
      std::vector<ValueId> inputs;
      for (const ValueId in : n.inputs) inputs.push_back(small(in));
      out = ir::add_inferred(g_, n.op, std::move(inputs), n.attrs, n.origin, name);
    } else {
      out = g_.add(Op::cast, {v}, {DType::bf16, g_.type(v).shape}, {{"to", std::string("bf16")}, {kCast, std::int64_t{1}}},
                   origin(v), name);
    }
    return small_[v] = out;
  }
  /// Strides and slices move it: the rounding moves above, element by element the same.
  [[nodiscard]] bool moved(const Node& n) const {
    return is_alias(n) && std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
             return g_.type(v).dtype == DType::f32 && !(g_.is_constant(v) && g_.producer(v).quantizer);
           });
  }
  ValueId wide(ValueId v, bool emulated) {
    if (emulated) return rounded_of(v);
    const auto found = wide_.find(v);
    if (found != wide_.end()) return found->second;
    const ValueId from = small(v);
    return wide_[v] = g_.add(Op::cast, {from}, {DType::f32, g_.type(v).shape},
                             {{"to", std::string("f32")}, {kCast, std::int64_t{1}}}, origin(v), g_.value(v).name);
  }
  /// The same values by two casts that are computed: element by element, so it need not move above what strides express.
  ValueId rounded_of(ValueId v) {
    const auto found = rounded_.find(v);
    if (found != rounded_.end()) return found->second;
    if (g_.is_constant(v)) return rounded_[v] = g_.add_constant(rounded(g_.payload(v)), g_.value(v).name);
    const ir::Shape shape = g_.type(v).shape;
    const std::string name = g_.value(v).name;
    const ValueId small = g_.add(Op::cast, {v}, {DType::bf16, shape}, {{"to", std::string("bf16")}}, origin(v), name);
    return rounded_[v] = g_.add(Op::cast, {small}, {DType::f32, shape}, {{"to", std::string("f32")}}, origin(v), name);
  }
  /// A cast stands for what makes the value; a network input or a constant stands for no node: then for what reads it.
  [[nodiscard]] std::set<std::string> origin(ValueId v) const {
    std::set<std::string> out = g_.producer(v).origin;
    if (!out.empty()) return out;
    for (const auto& [user, slot] : g_.users(v)) out.insert(g_.node(user).origin.begin(), g_.node(user).origin.end());
    return out;
  }

  /// Element-wise readers in other regions, where then nobody stores the floats.
  void read_along(ValueId v, bool emulated) {
    if (!done_.insert(v).second || moved(g_.producer(v)) || g_.output_uses(v) > 0) return;
    const int group = grouping_.of_node[static_cast<std::size_t>(g_.value(v).producer)];
    if (group < 0) return;
    std::vector<std::pair<NodeId, std::size_t>> others;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      const bool known = static_cast<std::size_t>(user) < grouping_.of_node.size();  // else a cast that was made here
      if (is_narrow_cast(n) || (n.op == Op::cast && !known) || (is_marked(n) && (slot == 0 || n.op == Op::matmul))) continue;
      if (known && grouping_.of_node[static_cast<std::size_t>(user)] == group) continue;
      if (!in_program(g_, n) || is_choice(n.op) || n.op == Op::view || n.op == Op::quantize || n.op == Op::cast) return;
      others.emplace_back(user, static_cast<std::size_t>(slot));
    }
    for (const auto& at : others) edits_.push_back({at, wide(v, emulated)});
  }

  Graph& g_;
  Grouping grouping_;
  std::map<ValueId, ValueId> small_, wide_, rounded_, weights_;
  std::set<ValueId> done_;
  std::vector<std::pair<std::pair<NodeId, std::size_t>, ValueId>> edits_;
};

}  // namespace

void mark_narrow(Node& node, bool emulated) {
  node.attrs[kMark] = std::string(emulated ? kEmulated : kNarrow);
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
void narrow(Graph& g) {
  Narrower(g).run();
}

}  // namespace octavo::plan
