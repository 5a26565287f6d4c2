// If with a condition that is known at import: the branch taken is lowered in place of the node.
#include <array>

#include "onnx/importer.h"
#include "onnx/registry.h"

namespace octavo::onnx {
namespace {

Status branch(NodeContext& n) {
  const pb::GraphProto* yes = n.attr_graph("then_branch");
  const pb::GraphProto* no = n.attr_graph("else_branch");
  if (!yes || !no) return n.bad("then_branch or else_branch is missing");
  if (!n.constant(0)) {
    return n.unsupported(
        "its condition \"{}\" is computed at run time; fix the input shapes, or export without data-dependent branches",
        n.input_name(0));
  }
  OCTAVO_TRY(const double condition, n.constant_scalar(0, "the condition"));
  OCTAVO_TRY(const std::vector<ValueId> values, n.importer().inline_graph(condition != 0 ? *yes : *no, n.name() + "/"));
  if (values.size() != n.output_count()) return n.bad("the branch has {} outputs, the node {}", values.size(), n.output_count());
  for (std::size_t i = 0; i < values.size(); ++i) n.set(i, values[i]);
  n.note(condition != 0 ? "the condition is true: then_branch is taken" : "the condition is false: else_branch is taken");
  return {};
}

constexpr std::array kRows{OpRow{"If", "", 1, 0, 1, 1, branch}};

}  // namespace

Family control_ops() {
  return kRows;
}

}  // namespace octavo::onnx
