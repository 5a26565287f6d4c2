// One class, past 400 lines: what joins a group depends on what the group already has.
#include "plan/regions/group.h"

#include <algorithm>

#include "base/causes/plan_regions.h"
#include "ir/output_sizes.h"
#include "plan/regions/narrow_marks.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

bool program_type(ir::DType t) {
  return t == ir::DType::f32 || t == ir::DType::f16 || t == ir::DType::bf16 || ir::is_int8(t);
}

/// The graph's order but for pointwise nodes: an operand of fewer elements, as a mask that heads share, comes first, so that it is ready
/// before the region that computes the larger one starts, whose epilogue then reads it.
std::vector<NodeId> small_operands_first(const Graph& g) {
  std::vector<bool> seen(static_cast<std::size_t>(g.node_capacity()), false);
  std::vector<NodeId> out;
  struct Visit {
    NodeId id;
    std::vector<ValueId> inputs;
    std::size_t next = 0;
  };
  std::vector<Visit> stack;
  const auto enter = [&](NodeId id) {
    if (seen[static_cast<std::size_t>(id)]) return;
    seen[static_cast<std::size_t>(id)] = true;
    const Node& n = g.node(id);
    Visit v{id, n.inputs};
    std::erase(v.inputs, ir::kNone);
    if (in_program(g, n)) {
      std::stable_sort(v.inputs.begin(), v.inputs.end(),
                       [&](ValueId a, ValueId b) { return ir::count(g.type(a).shape) < ir::count(g.type(b).shape); });
    }
    stack.push_back(std::move(v));
  };
  const auto visit = [&](NodeId root) {
    enter(root);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next < top.inputs.size()) {
        enter(g.value(top.inputs[top.next++]).producer);
      } else {
        out.push_back(top.id);
        stack.pop_back();
      }
    }
  };
  for (const ValueId v : g.inputs) visit(g.value(v).producer);
  if (const std::vector<NodeId> counts = ir::count_nodes(g); !counts.empty()) {  // first, as in Graph::order
    for (const NodeId id : g.order()) {
      if (std::find(counts.begin(), counts.end(), id) != counts.end()) visit(id);
    }
  }
  for (const ValueId v : g.outputs) visit(g.value(v).producer);
  return out;
}

/// Pad, nearest resizing, gather and the like as soon as their operand is there, everything else in the graph's order. An add
/// behind one of them then joins the convolution that computes its other operand, not the cheap operator that happened to come
/// last.
constexpr std::int64_t kFew = 4096;
bool is_small(const Graph& g, const Node& n) {
  return ir::count(g.type(n.outputs[0]).shape) <= kFew;
}

std::vector<NodeId> moves_first(const Graph& g, const std::optional<std::set<NodeId>>& small) {
  const auto moves = [&](const Node& n) {  // or joins its only producer's group whenever it comes
    if (ir::has_trait(n.op, ir::kMove)) return !ir::has_trait(n.op, ir::kAnchor);
    return in_program(g, n) && std::count_if(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return !g.is_constant(v); }) == 1;
  };
  std::vector<bool> done(static_cast<std::size_t>(g.node_capacity()), false);
  std::vector<NodeId> out;
  // A move behind a count that data decide waits for it: it then moves only so many elements.
  std::vector<std::size_t> place(static_cast<std::size_t>(g.node_capacity()), 0);
  const std::vector<NodeId> counts = ir::count_nodes(g);
  if (!counts.empty()) {
    const std::vector<NodeId> order = g.order();
    for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = i;
  }
  const auto waits = [&](NodeId id) {
    return std::any_of(counts.begin(), counts.end(), [&](NodeId c) {
      return !done[static_cast<std::size_t>(c)] && place[static_cast<std::size_t>(c)] < place[static_cast<std::size_t>(id)];
    });
  };
  const auto emit = [&](NodeId id, const auto& self) -> void {
    done[static_cast<std::size_t>(id)] = true;
    out.push_back(id);
    for (const ValueId v : g.node(id).outputs) {
      for (const auto& [user, slot] : g.users(v)) {
        const Node& u = g.node(user);
        if (done[static_cast<std::size_t>(user)] || u.dead || !moves(u)) continue;
        // Of a few elements, as scales and zero points of a run: ready before the convolution whose sums they scale.
        const bool few = small ? small->contains(user) : is_small(g, u);
        const bool ready = std::all_of(u.inputs.begin(), u.inputs.end(), [&](ValueId in) {
          return in == ir::kNone || done[static_cast<std::size_t>(g.value(in).producer)] || (few && g.is_constant(in));
        });
        if (ready && !waits(user)) self(user, self);
      }
    }
  };
  for (const NodeId id : small_operands_first(g)) {
    if (!done[static_cast<std::size_t>(id)]) emit(id, emit);
  }
  return out;
}

}  // namespace

bool is_alias(const Node& node) {
  switch (node.op) {
    case Op::transpose:
    case Op::reshape:
    case Op::expand:
    case Op::concat: return true;
    case Op::slice: {
      const auto steps = ir::get_ints(node.attrs, "steps");
      return std::all_of(steps.begin(), steps.end(), [](std::int64_t s) { return s > 0; });
    }
    default: return false;
  }
}

namespace {

bool read_as_codes(const Graph& g, const ir::Grids& grids, ValueId v) {
  if (g.output_uses(v) > 0) return false;
  const auto& users = g.users(v);
  return std::all_of(users.begin(), users.end(), [&](const auto& use) {
    const Node& n = g.node(use.first);
    if (is_alias(n)) return n.op != Op::concat && read_as_codes(g, grids, n.outputs[0]);
    if (n.op == Op::conv || n.op == Op::conv_transpose || n.op == Op::gemm)
      return use.second == 0 && ir::classify_anchor(g, grids, use.first).integer;
    return in_program(g, n);
  });
}

}  // namespace

bool is_code_source(const Graph& g, const Node& node) {
  if (node.op != Op::dequantize || !node.quantizer->per_tensor() || node.quantizer->type != ir::DType::u8) return false;
  if (!ir::injective(*node.quantizer) || g.type(node.outputs[0]).dtype != ir::DType::f32) return false;
  ValueId source = node.inputs[0];
  while (is_alias(g.producer(source)) && g.producer(source).op != Op::concat) source = g.producer(source).inputs[0];
  // A caller's tensor, or what DynamicQuantizeLinear stores.
  const Node& made = g.producer(source);
  const bool given = made.op == Op::input || (made.op == Op::dynamic_quantize && made.outputs[0] == source);
  return given && read_as_codes(g, ir::find_grids(g), node.outputs[0]);
}

bool is_round_trip(const Graph& g, const Node& node) {
  if (node.op != Op::cast || g.type(node.outputs[0]).dtype != ir::DType::f32) return false;
  const Node& there = g.producer(node.inputs[0]);
  if (there.op != Op::cast || g.type(there.inputs[0]).dtype != ir::DType::f32) return false;
  const ir::DType t = g.type(there.outputs[0]).dtype;
  return ir::is_int8(t) || t == ir::DType::s16 || t == ir::DType::u16;
}

bool is_passed(const Graph& g, const Node& node) {
  if (node.op != Op::cast || g.output_uses(node.outputs[0]) > 0) return false;
  const auto& users = g.users(node.outputs[0]);
  return !users.empty() &&
         std::all_of(users.begin(), users.end(), [&](const auto& use) { return is_round_trip(g, g.node(use.first)); });
}

std::vector<ValueId> read_values(const Graph& g, const Node& node) {
  if (is_round_trip(g, node)) return {g.producer(node.inputs[0]).inputs[0]};
  return node.inputs;
}

namespace {

/// Sums in int32 of a convolution or product of codes.
bool is_sums(const Graph& g, const Node& n) {
  return (n.op == Op::conv || n.op == Op::gemm) && g.type(n.outputs[0]).dtype == ir::DType::s32 &&
         g.type(n.inputs[0]).dtype == ir::DType::f32;
}

bool adds_whole(const Graph& g, const Node& n) {
  return (n.op == Op::add || n.op == Op::sub || n.op == Op::mul) && g.type(n.outputs[0]).dtype == ir::DType::s32;
}

/// Whole numbers that sums in int32 are part of.
bool of_sums(const Graph& g, ValueId v) {
  const Node& n = g.producer(v);
  if (n.op == Op::reshape) return of_sums(g, n.inputs[0]);
  return is_sums(g, n) ||
         (adds_whole(g, n) && std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId i) { return of_sums(g, i); }));
}

/// Is every reader int32 arithmetic that sums are part of? As of a zero point of the run, times sums of weights.
bool joins_sums(const Graph& g, const Node& n) {
  const auto& users = g.users(n.outputs[0]);
  return g.output_uses(n.outputs[0]) == 0 && !users.empty() && std::all_of(users.begin(), users.end(), [&](const auto& use) {
           const Node& u = g.node(use.first);
           return adds_whole(g, u) && (of_sums(g, u.outputs[0]) || joins_sums(g, u));
         });
}

}  // namespace

bool is_choice(Op op) {
  switch (op) {
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::where: return true;
    default: return false;
  }
}

bool in_program(const Graph& g, const Node& node) {
  const auto of_type = [&](std::size_t first, const auto& test) {
    return std::all_of(node.inputs.begin() + static_cast<std::ptrdiff_t>(first), node.inputs.end(),
                       [&](ValueId v) { return test(g.type(v).dtype); });
  };
  const auto real = [](ir::DType t) { return ir::is_float(t) && program_type(t); };
  switch (node.op) {
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal: return of_type(0, real);
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not: return true;
    case Op::where: return of_type(1, real);
    case Op::mod:
    case Op::quantize_rt:
    case Op::dequantize_rt: return false;
    case Op::dequantize: return g.type(node.inputs[0]).dtype == ir::DType::u8 || g.type(node.inputs[0]).dtype == ir::DType::s8;
    case Op::quantize: return ir::is_int8(node.quantizer->type);
    case Op::cast:
      if (is_round_trip(g, node)) return true;
      if (ir::is_int8(g.type(node.inputs[0]).dtype) && g.type(node.outputs[0]).dtype == ir::DType::s32) return joins_sums(g, node);
      if (ir::is_int8(g.type(node.inputs[0]).dtype) || g.type(node.inputs[0]).dtype == ir::DType::s32)
        return g.type(node.outputs[0]).dtype == ir::DType::f32;
      return ir::is_float(g.type(node.inputs[0]).dtype) && program_type(g.type(node.inputs[0]).dtype) &&
             ir::is_float(g.type(node.outputs[0]).dtype) && program_type(g.type(node.outputs[0]).dtype);
    default: break;
  }
  if (adds_whole(g, node)) return of_sums(g, node.outputs[0]) || joins_sums(g, node);
  if (!ir::has_trait(node.op, ir::kPointwise)) return false;
  if (node.op == Op::pow && !(g.is_constant(node.inputs[1]) && ir::count(g.type(node.inputs[1]).shape) == 1)) return false;
  const ir::DType type = g.type(node.outputs[0]).dtype;
  if (!real(type) || (type != ir::DType::f32 && (node.op == Op::view || node.op == Op::affine))) return false;
  return of_type(0, [&](ir::DType t) { return t == type; });
}

std::set<NodeId> small_nodes(const Graph& g) {
  std::set<NodeId> out;
  for (const NodeId id : g.order()) {
    if (!g.node(id).outputs.empty() && is_small(g, g.node(id))) out.insert(id);
  }
  return out;
}

namespace {

constexpr std::size_t kMostJoined = 4;  // operations, which the reader repeats for each of its elements

bool is_cheap(const Graph& g, const Node& n) {
  const ir::DType to = g.type(n.outputs[0]).dtype;
  if (n.op == Op::cast)
    return !is_round_trip(g, n) && !ir::is_float(g.type(n.inputs[0]).dtype) && (to == ir::DType::f32 || to == ir::DType::s32);
  return (n.op == Op::add || n.op == Op::sub || n.op == Op::mul) && (to == ir::DType::f32 || to == ir::DType::s32);
}

/// Does a value of this shape broadcast to the other?
bool broadcasts(const ir::Shape& from, const ir::Shape& to) {
  if (from.size() > to.size()) return false;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[d + to.size() - from.size()]) return false;
  }
  return true;
}

/// The group that has all readers of the nodes' results outside the group `k` as its pointwise members; -1: none has.
int only_reader(const Graph& g, const Grouping& grouping, int k) {
  int reader = -1;
  for (const NodeId id : grouping.groups[static_cast<std::size_t>(k)].nodes) {
    const ValueId v = g.node(id).outputs[0];
    if (g.output_uses(v) > 0) return -1;
    for (const auto& [user, slot] : g.users(v)) {
      if (g.node(user).dead) continue;
      const int of = grouping.of_node[static_cast<std::size_t>(user)];
      if (of == k) continue;
      if (of < 0 || (reader >= 0 && of != reader) || grouping.groups[static_cast<std::size_t>(of)].anchor == user) return -1;
      reader = of;
    }
  }
  return reader;
}

/// Fusion join-operand (group.h): operands that are cheap to compute join the group that reads them.
void join_operands(const Graph& g, const std::map<NodeId, std::string>& apart, const std::optional<std::set<NodeId>>& small,
                   Grouping& out) {
  std::vector<int> number(out.groups.size());
  const auto few = [&](NodeId id) { return small ? small->contains(id) : is_small(g, g.node(id)); };
  for (std::size_t k = 0; k < out.groups.size(); ++k) {
    Group& from = out.groups[k];
    if (from.anchor != ir::kNone || from.nodes.size() > kMostJoined) continue;
    const bool joins = std::all_of(from.nodes.begin(), from.nodes.end(),
                                   [&](NodeId id) { return is_cheap(g, g.node(id)) && !apart.contains(id); });
    const int reader = joins ? only_reader(g, out, static_cast<int>(k)) : -1;
    if (reader < 0) continue;
    Group& to = out.groups[static_cast<std::size_t>(reader)];
    const Node* anchor = to.anchor == ir::kNone ? nullptr : &g.node(to.anchor);
    const bool weighted = anchor == nullptr || anchor->op == Op::conv || anchor->op == Op::gemm || anchor->op == Op::matmul;
    if (!weighted || !broadcasts(from.space, to.space) || !std::all_of(to.nodes.begin(), to.nodes.end(), few)) continue;
    for (const NodeId id : from.nodes) {
      out.of_node[static_cast<std::size_t>(id)] = reader;
      out.depends[static_cast<std::size_t>(g.node(id).outputs[0])] = reader;
      out.notes[static_cast<std::size_t>(id)].reset();
    }
    if (anchor == nullptr)
      out.notes[static_cast<std::size_t>(from.nodes.front())] = out.notes[static_cast<std::size_t>(to.nodes.front())];
    to.nodes.insert(to.nodes.begin(), from.nodes.begin(), from.nodes.end());
    from.nodes.clear();
  }
  int next = 0;
  for (std::size_t k = 0; k < out.groups.size(); ++k) {
    const bool kept = out.groups[k].anchor != ir::kNone || !out.groups[k].nodes.empty();
    number[k] = kept ? next : -1;
    if (kept && static_cast<std::size_t>(next) != k) out.groups[static_cast<std::size_t>(next)] = std::move(out.groups[k]);
    next += kept ? 1 : 0;
  }
  out.groups.resize(static_cast<std::size_t>(next));
  for (std::vector<int>* list : {&out.of_node, &out.depends}) {
    for (int& k : *list) k = k < 0 ? k : number[static_cast<std::size_t>(k)];
  }
}

}  // namespace

Grouping make_groups(const Graph& g, const std::set<std::string, std::less<>>& disabled, const std::map<NodeId, std::string>& apart,
                     const std::optional<std::set<NodeId>>& small, const std::set<NodeId>& fills) {
  Grouping out;
  out.of_node.assign(static_cast<std::size_t>(g.node_capacity()), -1);
  out.depends.assign(static_cast<std::size_t>(g.value_capacity()), -1);
  out.notes.assign(static_cast<std::size_t>(g.node_capacity()), std::nullopt);
  const bool fuse = !disabled.contains("fuse-epilogue");
  for (const NodeId id : moves_first(g, small)) {
    const Node& n = g.node(id);
    if (n.op == Op::input || n.op == Op::constant) continue;
    int latest = -1, direct = -1;
    const std::vector<ValueId> inputs = read_values(g, n);
    for (const ValueId v : inputs) {
      if (v == ir::kNone) continue;
      latest = std::max(latest, out.depends[static_cast<std::size_t>(v)]);
      const int producer_group = out.of_node[static_cast<std::size_t>(g.value(v).producer)];
      direct = std::max(direct, producer_group);
    }
    if (is_alias(n) || is_code_source(g, n) || is_held(n) || is_passed(g, n)) {
      for (const ValueId v : n.outputs) out.depends[static_cast<std::size_t>(v)] = latest;
      continue;
    }
    const ir::Shape& space = g.type(n.outputs[0]).shape;
    int group = -1;
    if (in_program(g, n)) {
      std::optional<Reason>& note = out.notes[static_cast<std::size_t>(id)];
      if (direct < 0) {
        note = because<cause::operands_not_computed>();
      } else if (!fuse) {
        note = because<cause::fusion_disabled>("fuse-epilogue");
      } else if (apart.contains(id)) {
        note = because<cause::own_pass_chosen>(apart.at(id));
      } else if (fills.contains(id)) {
        note = because<cause::own_pass_for_all>();
      } else if (out.groups[static_cast<std::size_t>(direct)].space != space) {
        note = because<cause::producer_shape_differs>(ir::to_string(out.groups[static_cast<std::size_t>(direct)].space),
                                                      ir::to_string(space));
      } else {
        bool ready = true;
        for (const ValueId v : inputs) {
          if (v == ir::kNone || g.is_constant(v)) continue;
          const bool inside = out.of_node[static_cast<std::size_t>(g.value(v).producer)] == direct;
          if (!inside && out.depends[static_cast<std::size_t>(v)] >= direct) {
            ready = false;
            note = because<cause::operand_ready_later>(g.value(v).name);
          }
        }
        const Group& target = out.groups[static_cast<std::size_t>(direct)];
        const Node* anchor = target.anchor == ir::kNone ? nullptr : &g.node(target.anchor);
        if (ready && anchor && g.type(anchor->outputs[0]).dtype != ir::DType::f32 && !is_sums(g, *anchor)) {
          ready = false;
          note = because<cause::producer_result_not_float>();
        }
        if (ready && anchor && (anchor->outputs.size() > 1 || anchor->op == Op::scatter)) {
          ready = false;
          note = because<cause::producer_has_several_results>();
        }
        if (ready) group = direct;
      }
    }
    if (group < 0) {
      group = static_cast<int>(out.groups.size());
      out.groups.push_back({});
      out.groups.back().space = space;
      if (!in_program(g, n)) out.groups.back().anchor = id;
    } else {
      out.notes[static_cast<std::size_t>(id)].reset();
    }
    Group& target = out.groups[static_cast<std::size_t>(group)];
    if (target.anchor != id) target.nodes.push_back(id);
    out.of_node[static_cast<std::size_t>(id)] = group;
    for (const ValueId v : n.outputs) out.depends[static_cast<std::size_t>(v)] = group;
  }
  if (fuse && !disabled.contains("join-operand")) join_operands(g, apart, small, out);
  return out;
}

}  // namespace octavo::plan
