#include "plan/candidates/epilogue_pass.h"

#include <algorithm>
#include <set>
#include <vector>

namespace octavo::plan {
namespace {

using ir::Op;

constexpr std::size_t kLong = 20;        ///< operations of an epilogue
constexpr std::int64_t kMany = 1 << 14;  ///< elements
constexpr std::size_t kMostNodes = 256;  ///< that are looked at

bool cheap(Op op) {
  return op == Op::add || op == Op::sub || op == Op::mul || op == Op::relu || op == Op::clip || op == Op::neg || op == Op::affine ||
         op == Op::max || op == Op::min || op == Op::view || op == Op::cast || op == Op::abs;
}

bool inline_epilogue(Op op) {
  return op == Op::instance_norm || op == Op::layer_norm || op == Op::reduce_mean || op == Op::reduce_sum || op == Op::reduce_max ||
         op == Op::reduce_min || op == Op::resize_linear || op == Op::resize_nearest || op == Op::gather || op == Op::gather_nd ||
         op == Op::gather_elements || op == Op::grid_sample || op == Op::cumulate || op == Op::pad || op == Op::avg_pool ||
         op == Op::max_pool;
}

}  // namespace

std::vector<ir::NodeId> costly_epilogue(const ir::Graph& g, const region::Region& r) {
  if (r.stages.size() != 1 || r.graph_outputs.empty()) return {};
  const region::Stage& s = r.stages.front();
  if (!inline_epilogue(s.anchor.op) || s.program.code.size() < kLong || ir::count(s.space) < kMany) return {};
  // From what the region stores back to the anchor: what lies between them, producers last.
  std::vector<ir::ValueId> seen(r.graph_outputs.begin(), r.graph_outputs.end());
  std::vector<ir::NodeId> between;
  for (std::size_t i = 0; i < seen.size() && i < kMostNodes; ++i) {
    const ir::Node& n = g.producer(seen[i]);
    if (!ir::has_trait(n.op, ir::kPointwise) || ir::count(g.type(seen[i]).shape) != ir::count(s.space)) continue;
    between.push_back(g.value(seen[i]).producer);
    for (const ir::ValueId v : n.inputs) {
      if (v != ir::kNone && std::find(seen.begin(), seen.end(), v) == seen.end()) seen.push_back(v);
    }
  }
  // The first of them on each way, whose operands come from the anchor through cheap nodes alone.
  const auto near = [&](ir::ValueId v, const auto& self) -> bool {
    if (v == ir::kNone) return false;
    const ir::Node& n = g.producer(v);
    if (n.op == s.anchor.op) return true;
    if (!ir::has_trait(n.op, ir::kPointwise) || !cheap(n.op) || std::find(seen.begin(), seen.end(), v) == seen.end()) return false;
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId in) { return self(in, self); });
  };
  std::vector<ir::NodeId> found;
  for (std::size_t i = between.size(); i-- > 0;) {
    const ir::Node& n = g.node(between[i]);
    if (!cheap(n.op) && std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId v) { return near(v, near); }))
      found.push_back(between[i]);
  }
  return found;
}

}  // namespace octavo::plan
