// Which questions a plan raises.
//
// Candidate fuse-conv-pool: pool(conv(x)) in bands of rows, the rows between in cache. Default: joined. Exact.
// Candidate stages: depthwise + 1x1, 1x1 + depthwise, quantize + conv in bands of rows. Default: apart. Exact.
// Candidate horizontal: convolutions that read one tensor run side by side as one region. Default: apart. Exact.
// Candidate one-pass: the pointwise parts of one concatenated tensor are written by one region. Default: apart. Exact.
// Candidate concat: the quantizer above a concatenation (each producer stores its slice) or below it (one pass over the stored
// parts).
//   Default: above. Exact.
// Candidate stores: a value wanted in two types or at two scales is stored twice, or once and requantized by a pass. Default:
// twice. Exact. Candidate segments: a convolution over differently scaled parts, part by part in int8. Default: float. Within
// float's own freedom. Candidate direct-store: an output whose channels do not lie side by side is stored there, or stored and
// copied. Default: copied. Exact.
#include <algorithm>
#include <map>

#include "plan/choices.h"
#include "plan/group.h"
#include "plan/merge.h"
#include "plan/segments.h"
#include "plan/split_views.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

class Asker {
 public:
  Asker(const Realized& base, const Choices& defaults, const PlanOptions& options)
      : g_(base.graph), plan_(base.plan), defaults_(defaults), options_(options) {}

  std::vector<Question> run() {
    stages();
    neighbours();
    order_ = g_.order();
    segments();
    split_views();
    concats();
    stores();
    direct();
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool off(std::string_view kind) const { return options_.disabled.contains(kind); }

  [[nodiscard]] std::string where(const std::set<std::string>& origin, ValueId v) const {
    if (!origin.empty()) return *origin.begin();
    return v == ir::kNone ? std::string("?") : g_.value(v).name;
  }

  void ask(std::string kind, std::string at, std::set<std::string> nodes, std::string standard, std::string other,
           std::function<void(Choices&)> apply, std::string note = "") {
    out_.push_back({std::move(kind),
                    std::move(at),
                    std::move(nodes),
                    {{std::move(standard), "", [](Choices&) {}}, {std::move(other), std::move(note), std::move(apply)}}});
  }

  void stages() {
    for (const Link& link : find_links(plan_)) {
      if (off("stages") || defaults_.staged.contains(link.value)) continue;
      const auto& r = plan_.regions[link.second];
      ask("stages", where(r.onnx_nodes, link.value), r.onnx_nodes, "two regions", link.kind + " in bands of rows",
          [v = link.value](Choices& c) { c.staged.insert(v); });
    }
    if (off("fuse-conv-pool")) return;
    for (const ValueId v : defaults_.staged) {
      const auto& origin = g_.producer(v).origin;
      ask("fuse-conv-pool", where(origin, v), origin, "in bands of rows", "two regions", [v](Choices& c) { c.staged.erase(v); });
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
      ask(n.kind, where(nodes, *values.begin()), nodes, "a region each", "one region, side by side",
          [values](Choices& c) { c.together.insert(values); });
    }
  }

  void segments() {
    if (off("segments")) return;
    const ir::Grids grids = ir::find_grids(g_);
    for (const NodeId id : order_) {
      if (g_.node(id).op != Op::conv || !why_no_segments(g_, grids, id).empty()) continue;
      ask(
          "segments", where(g_.node(id).origin, g_.node(id).outputs[0]), g_.node(id).origin, "float convolution over the whole",
          "int8, part by part", [id](Choices& c) { c.segments.insert(id); }, "sums in fp32 in channel order");
    }
  }

  void split_views() {
    if (off("split-views")) return;
    for (const NodeId id : order_) {
      for (const ValueId v : g_.node(id).outputs) {
        if (!why_no_split_views(g_, v).empty()) continue;
        ask("split-views", where(g_.node(id).origin, v), g_.node(id).origin, "stored once a scale",
            "stored once, a scale a channel", [v](Choices& c) { c.split_views.insert(v); });
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
      ask("concat", where(n.origin, n.outputs[0]), n.origin, "quantized above: every producer stores int8 into its slice",
          "quantized below: one pass over the stored parts", [views, parts](Choices& c) {
            c.apart.insert(views.begin(), views.end());
            if (parts.size() > 1) c.together.insert(parts);
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
        ask("stores", where(n.origin, v), n.origin, "stored by the producer as well", "requantized by a pass of its own",
            [id = g_.value(v).producer](Choices& c) { c.apart.insert(id); });
      }
    }
  }

  void direct() {
    if (off("direct-store")) return;
    for (const auto& r : plan_.regions) {
      if (r.precision != "move" || r.reason.find("image kernels store channels") == std::string::npos) continue;
      const ValueId v = r.graph_inputs[0];
      ask("direct-store", where(r.onnx_nodes, v), r.onnx_nodes, "stored channels last and copied", "stored where it is wanted",
          [v](Choices& c) { c.direct.insert(v); });
    }
  }

  const Graph& g_;
  const region::Plan& plan_;
  const Choices& defaults_;
  const PlanOptions& options_;
  std::vector<NodeId> order_;
  std::vector<Question> out_;
};

}  // namespace

std::vector<Question> find_questions(const Realized& base, const Choices& defaults, const PlanOptions& options) {
  return Asker(base, defaults, options).run();
}

}  // namespace octavo::plan
