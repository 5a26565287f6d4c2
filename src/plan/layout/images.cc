#include "plan/layout/images.h"

#include <algorithm>
#include <vector>

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using Perm = std::vector<std::int64_t>;

bool works_on_images(Op op) {
  return ir::has_trait(op, ir::kImages) || op == Op::affine || op == Op::resize_nearest || op == Op::grid_sample ||
         op == Op::roi_align || op == Op::deform_conv;
}

/// Is dimension 1 of the results dimension 1 of the operands?
bool keeps_dimensions(Op op) {
  return op != Op::transpose && op != Op::reshape && op != Op::expand && op != Op::matmul && op != Op::gemm && op != Op::gather &&
         op != Op::gather_nd && op != Op::gather_elements;
}

bool turns_rows(const Node& n) {
  return n.op == Op::transpose && ir::get_ints(n.attrs, "perm") == Perm{0, 2, 1};
}

/// Is `rows` an image N C H W as N C HW?
bool flat(const ir::Shape& image, const ir::Shape& rows) {
  return image.size() == 4 && rows.size() == 3 && image[0] == rows[0] && image[1] == rows[1];
}

/// Which side of a move is an image, because the other one has the channels last: N H W C, or N HW C behind a Reshape. kNone: neither.
ValueId image_side(const Graph& g, const Node& n) {
  if (n.op == Op::transpose) {
    const Perm perm = ir::get_ints(n.attrs, "perm");
    return perm == Perm{0, 2, 3, 1} ? n.inputs[0] : perm == Perm{0, 3, 1, 2} ? n.outputs[0] : ir::kNone;
  }
  if (n.op != Op::reshape) return ir::kNone;
  const ir::Shape &from = g.type(n.inputs[0]).shape, &to = g.type(n.outputs[0]).shape;
  const auto& users = g.users(n.outputs[0]);
  if (flat(from, to) && std::any_of(users.begin(), users.end(), [&](const auto& u) { return turns_rows(g.node(u.first)); }))
    return n.inputs[0];
  return flat(to, from) && turns_rows(g.producer(n.inputs[0])) ? n.outputs[0] : ir::kNone;
}

}  // namespace

std::set<ValueId> find_images(const Graph& g) {
  std::set<ValueId> images;
  const std::vector<NodeId> order = g.order();
  for (const NodeId id : order) {
    if (const ValueId v = image_side(g, g.node(id)); v != ir::kNone) images.insert(v);
  }
  const auto visit = [&](const Node& n) {  // whether something was new
    if (!keeps_dimensions(n.op)) return false;
    std::vector<ValueId> beside;
    for (const auto* values : {&n.inputs, &n.outputs}) {
      for (const ValueId v : *values) {
        if (v != ir::kNone && !g.is_constant(v) && g.type(v).shape.size() == 4) beside.push_back(v);
      }
    }
    const bool image =
        works_on_images(n.op) || std::any_of(beside.begin(), beside.end(), [&](ValueId v) { return images.contains(v); });
    const std::size_t before = images.size();
    if (image) images.insert(beside.begin(), beside.end());
    return images.size() != before;
  };
  for (bool more = true; more;) {
    more = false;
    for (const NodeId id : order) more = visit(g.node(id)) || more;
    for (std::size_t i = order.size(); i-- > 0;) more = visit(g.node(order[i])) || more;
  }
  return images;
}

}  // namespace octavo::plan
