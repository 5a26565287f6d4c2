// Which choices a plan raises. Each Candidate block below and beside the code that makes it becomes a part of docs/rules.md.
//
// Candidate concat:  concat(q(a), q(b)) as slices stored by the producers  <==>  q over the stored parts, in one pass
//   Why    an int8 slice is a quarter of a float one. One pass over stored floats is better if another reader of a producer needs
//          the floats anyway.
//   Exact  bit for bit: each element goes through the same quantizer once.
//   Needs  a concatenation with a quantizer right above at least one operand, computed by a region's epilogue.
//   Order  on the default plan. Default: above, every producer stores into its slice.
//
// Candidate stores:  store(y), store(q(y))  <==>  store(y); then q(y) by a pass of its own
//   Why    the producer stores a value twice if readers need two types or two scales. A separate pass is better if the second store
//          leaves the fast path of the kernel.
//   Exact  bit for bit: the same operations on the same float, or on codes that stand for it.
//   Needs  a region that stores both a value and a quantized form of it.
//   Order  on the default plan. Default: stored twice.
//
// Candidate direct-store:  copy(store(y))  <==>  store(y) where it is wanted
//   Why    if channels are not adjacent in the target, kernels store channels last, and a copy transposes. A direct store saves the
//          copy, but its stores are scattered.
//   Exact  bit for bit: elements keep their bits.
//   Needs  a copy because of the target's channel stride.
//   Order  on the default plan. Default: copied.
#include <algorithm>
#include <map>

#include "base/causes/plan_layout.h"
#include "base/causes/plan_search.h"
#include "base/machine.h"
#include "plan/candidates/above_moves.h"
#include "plan/candidates/attention.h"
#include "plan/candidates/blocks.h"
#include "plan/candidates/choices.h"
#include "plan/candidates/epilogue_pass.h"
#include "plan/candidates/neighbours.h"
#include "plan/candidates/registry.h"
#include "plan/candidates/segments.h"
#include "plan/candidates/split_conv.h"
#include "plan/candidates/split_views.h"
#include "plan/candidates/stages.h"
#include "plan/effort.h"
#include "plan/layout/row_order.h"
#include "plan/regions/group.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

class Finder {
 public:
  Finder(const Realized& base, const Selection& defaults, const PlanOptions& options, bool all)
      : g_(base.graph),
        plan_(base.plan),
        in_rows_(base.in_rows),
        defaults_(defaults),
        options_(options),
        all_(all || effort_at(options.effort).small_choices) {}

  std::vector<Choice> run() {
    stages();
    blocks();
    attention();
    neighbours();
    order_ = g_.order();
    segments();
    split_convs();
    split_views();
    above_moves();
    concats();
    stores();
    epilogue_passes();
    direct();
    row_orders();
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool off(std::string_view name) const { return options_.disabled.contains(name) || options_.forced.contains(name); }

  [[nodiscard]] std::string where(const std::set<std::string>& origin, ValueId v) const {
    if (!origin.empty()) return *origin.begin();
    return v == ir::kNone ? std::string("?") : g_.value(v).name;
  }

  /// The choice `name` with its candidates of the registry. `swapped`: its second candidate is the default here.
  void add(std::string_view name, std::string at, std::set<std::string> nodes, std::function<void(Selection&)> apply,
           Reasons notes = {}, bool swapped = false) {
    const auto& known = find_choice(name)->candidates;
    out_.push_back({std::string(name),
                    std::move(at),
                    std::move(nodes),
                    {},
                    {{std::string(known[swapped ? 1 : 0].name), {}, [](Selection&) {}},
                     {std::string(known[swapped ? 0 : 1].name), std::move(notes), std::move(apply)}}});
  }

  /// Of a core, where times are taken.
  [[nodiscard]] std::int64_t l2_bytes() const { return machine_of(options_).l2_bytes; }

  void stages() {
    for (const Link& link : find_links(plan_)) {
      const std::string_view name = choice_of(link.kind);
      if (name.empty() || off(name) || defaults_.staged.contains(link.value)) continue;
      if (link.kind == LinkKind::conv_pool && off(kFuseConvPool)) continue;  // not by another name either
      if (link.kind == LinkKind::stage_store && !all_ && link.bytes < l2_bytes() / 2) continue;
      const auto& r = plan_.regions[link.second];
      add(name, where(r.onnx_nodes, link.value), r.onnx_nodes, [v = link.value](Selection& s) { s.staged.insert(v); });
      if (name == kStages) out_.back().kind = name_of(link.kind);
    }
    const auto pooled = [&](ValueId v) {
      const auto& users = g_.users(v);
      return std::any_of(users.begin(), users.end(),
                         [&](const auto& u) { return g_.node(u.first).op == Op::max_pool || g_.node(u.first).op == Op::avg_pool; });
    };
    for (const ValueId v : defaults_.staged) {
      const bool pool = pooled(v);
      const std::string_view name = pool ? kFuseConvPool : kStageOperand;
      if (off(name) || (!pool && options_.forced.contains(kStages))) continue;  // forced stages are among the default ones
      const auto& origin = g_.producer(v).origin;
      add(
          name, where(origin, v), origin, [v](Selection& s) { s.staged.erase(v); }, {}, !pool);
    }
  }

  void blocks() {
    if (off(kBlock)) return;
    for (const Block& block : find_blocks(plan_)) {
      if (!all_ && !worth_pricing(block, l2_bytes())) continue;
      const auto& last = plan_.regions[block.last];
      add(kBlock, where(last.onnx_nodes, last.graph_outputs[0]), last.onnx_nodes,
          [values = block.values](Selection& s) { s.staged.insert(values.begin(), values.end()); });
    }
  }

  void attention() {
    if (off(kAttention)) return;
    std::set<AttentionValues> apart;  // no provider takes the three as one
    for (const AttentionRegions& a : find_attention(plan_)) apart.insert(a.values);
    for (const AttentionValues& v : defaults_.attention) {
      if (apart.contains(v)) continue;
      const auto& origin = g_.producer(v.second).origin;
      add(kAttention, where(origin, v.second), origin, [v](Selection& s) { s.attention.erase(v); });
    }
  }

  void neighbours() {
    for (const Neighbours& n : find_neighbours(plan_)) {
      if (off(n.kind)) continue;
      std::set<ValueId> values;
      std::set<std::string> nodes;
      for (const std::size_t i : n.regions) {
        values.insert(plan_.regions[i].graph_outputs[0]);
        nodes.insert(plan_.regions[i].onnx_nodes.begin(), plan_.regions[i].onnx_nodes.end());
      }
      add(n.kind, where(nodes, *values.begin()), nodes, [values](Selection& s) { s.grouped.insert(values); });
    }
  }

  void segments() {
    if (off("segments")) return;
    const ir::Grids grids = ir::find_grids(g_);
    for (const NodeId id : order_) {
      if (g_.node(id).op != Op::conv || why_no_segments(g_, grids, id)) continue;
      add("segments", where(g_.node(id).origin, g_.node(id).outputs[0]), g_.node(id).origin,
          [id](Selection& s) { s.segments.insert(id); }, {because<cause::sums_in_channel_order>()});
    }
  }

  void split_convs() {
    if (off("split-conv")) return;
    const ir::Grids grids = ir::find_grids(g_);
    for (const NodeId id : order_) {
      if (g_.node(id).op != Op::conv || why_no_split_conv(g_, grids, id)) continue;
      add("split-conv", where(g_.node(id).origin, g_.node(id).outputs[0]), g_.node(id).origin,
          [id](Selection& s) { s.split_convs.insert(id); });
    }
  }

  void above_moves() {
    if (off("above-moves")) return;
    const ir::Grids grids = ir::find_grids(g_);
    for (const NodeId id : order_) {
      if (g_.node(id).op != Op::gemm || why_no_above_moves(g_, grids, id)) continue;
      add("above-moves", where(g_.node(id).origin, g_.node(id).outputs[0]), g_.node(id).origin,
          [id](Selection& s) { s.above_moves.insert(id); });
    }
  }

  void split_views() {
    if (off("split-views")) return;
    for (const NodeId id : order_) {
      for (const ValueId v : g_.node(id).outputs) {
        if (why_no_split_views(g_, v)) continue;
        add("split-views", where(g_.node(id).origin, v), g_.node(id).origin, [v](Selection& s) { s.split_views.insert(v); });
      }
    }
  }

  /// The view nodes right above a concatenation that some region's epilogue computes.
  void concats() {
    if (off("concat")) return;
    for (const NodeId id : order_) {
      const Node& n = g_.node(id);
      if (n.op != Op::concat) continue;
      std::set<NodeId> views;
      std::set<ValueId> parts;
      for (const ValueId v : n.inputs) {
        const NodeId p = g_.value(v).producer;
        if (g_.node(p).op != Op::view || g_.node(g_.value(g_.node(p).inputs[0]).producer).op == Op::input) continue;
        views.insert(p);
        parts.insert(v);
      }
      if (views.empty()) continue;
      add("concat", where(n.origin, n.outputs[0]), n.origin, [views, parts](Selection& s) {
        for (const NodeId view : views) s.apart.emplace(view, "concat");
        if (parts.size() > 1) s.grouped.insert(parts);
      });
    }
  }

  void stores() {
    if (off("stores")) return;
    for (const auto& r : plan_.regions) {
      if (r.graph_outputs.size() < 2 || r.independent) continue;
      for (const ValueId v : std::set<ValueId>(r.graph_outputs.begin(), r.graph_outputs.end())) {
        const Node& n = g_.producer(v);
        if (n.op != Op::view || std::count(r.graph_outputs.begin(), r.graph_outputs.end(), n.inputs[0]) == 0) continue;
        add("stores", where(n.origin, v), n.origin, [id = g_.value(v).producer](Selection& s) { s.apart.emplace(id, "stores"); });
      }
    }
  }

  void epilogue_passes() {
    if (off("epilogue-pass")) return;
    for (const auto& r : plan_.regions) {
      const std::vector<ir::NodeId> first = costly_epilogue(g_, r);
      if (first.empty()) continue;
      const Node& n = g_.node(first.front());
      add("epilogue-pass", where(n.origin, n.outputs[0]), n.origin, [first](Selection& s) {
        for (const ir::NodeId id : first) s.apart.emplace(id, "epilogue-pass");
      });
    }
  }

  void direct() {
    if (off("direct-store")) return;
    for (const auto& r : plan_.regions) {
      if (r.precision != region::Work::move || !has(r.reasons, cause::store_needs_channels_last)) continue;
      const ValueId v = r.graph_inputs[0];
      add("direct-store", where(r.onnx_nodes, v), r.onnx_nodes, [v](Selection& s) { s.direct.insert(v); });
    }
  }

  void row_orders() {
    if (off("row-order")) return;
    for (const std::set<ValueId>& values : connected(g_, in_rows_)) {
      std::set<std::string> nodes;
      for (const ValueId v : values) nodes.insert(g_.producer(v).origin.begin(), g_.producer(v).origin.end());
      add("row-order", where(g_.producer(*values.begin()).origin, *values.begin()), nodes,
          [values](Selection& s) { s.as_made.insert(values.begin(), values.end()); });
    }
  }

  const Graph& g_;
  const region::Plan& plan_;
  const std::set<ValueId>& in_rows_;
  const Selection& defaults_;
  const PlanOptions& options_;
  const bool all_;  ///< also those that too little speaks for to ask for times
  std::vector<NodeId> order_;
  std::vector<Choice> out_;
};

}  // namespace

std::vector<Choice> find_choices(const Realized& base, const Selection& defaults, const PlanOptions& options, bool all) {
  return Finder(base, defaults, options, all).run();
}

}  // namespace octavo::plan
