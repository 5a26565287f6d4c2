#include "plan/regions/narrow_marks.h"

#include "ir/facts.h"

namespace octavo::plan {

bool can_be_marked(ir::Op op) {
  return op == ir::Op::conv || op == ir::Op::conv_transpose || op == ir::Op::gemm || op == ir::Op::matmul;
}
std::optional<ir::DType> narrow_type(const ir::Node& node) {
  if (!can_be_marked(node.op)) return std::nullopt;
  const std::string mark = ir::get_text(node.attrs, kArithmeticMark);
  if (mark == ir::spelled(ir::Arithmetic::bf16)) return ir::DType::bf16;
  if (mark == ir::spelled(ir::Arithmetic::f16)) return ir::DType::f16;
  return std::nullopt;
}
bool is_narrow_cast(const ir::Node& node) {
  return node.op == ir::Op::cast && node.attrs.contains(kCastMark);
}
bool is_held(const ir::Node& node) {
  return is_narrow_cast(node) && ir::get_text(node.attrs, "to") == "f32";
}
ir::ValueId held(const ir::Graph& g, ir::ValueId v) {
  return v != ir::kNone && is_held(g.producer(v)) ? g.producer(v).inputs[0] : v;
}
bool may_tf32(const ir::Attrs& attrs) {
  return ir::get_text(attrs, kArithmeticMark) == ir::spelled(ir::Arithmetic::tf32);
}

}  // namespace octavo::plan
