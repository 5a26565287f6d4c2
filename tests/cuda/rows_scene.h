// One softmax or norm of rows with an epilogue, its plan and its memory: for tests under the emulation and for the program on a GPU.
#pragma once

#include <string>
#include <vector>

#include "cpu/scalar_region.h"
#include "cuda/families/families.h"

namespace octavo::testing {

struct RowCase {
  ir::Op op = ir::Op::softmax;
  ir::Shape space{2, 3, 5, 40};
  std::int64_t axis = -1;  ///< -1: the last one
  ir::DType type = ir::DType::f32;
  ir::DType given = ir::DType::f32;  ///< of a norm's scale and bias
  std::vector<int> order{};          ///< of x and the stores, outermost first
  int gap = 0;                       ///< elements of other data behind innermost rows of x
  float scale = 4.0F;                ///< of x
  std::string style = "mul";         ///< mul, codes, types (every type of store), residual (another tensor added, a second store)
  bool bias = true;
};

[[nodiscard]] inline bool is_softmax(ir::Op op) {
  return op == ir::Op::softmax || op == ir::Op::log_softmax;
}
[[nodiscard]] inline const cuda::Family& family_of(ir::Op op) {
  return is_softmax(op) ? cuda::row_softmax_family() : cuda::row_norm_family();
}

inline void build(Scene& s, const RowCase& c) {
  using ir::DType;
  using region::BufferKind;
  using P = program::Op;
  auto& st = s.stage();
  st.space = c.space;
  st.anchor.op = c.op;
  st.anchor.inputs = {s.tensor(c.type, c.space, BufferKind::input, c.order, c.gap, c.scale)};
  const std::int64_t axis = c.axis < 0 ? static_cast<std::int64_t>(c.space.size()) - 1 : c.axis;
  if (is_softmax(c.op)) {
    st.anchor.facts = ir::Along{axis};
  } else if (c.op == ir::Op::layer_norm) {
    st.anchor.facts = ir::LayerNorm{.axis = axis, .epsilon = 1e-3};
  } else {
    st.anchor.facts = ir::InstanceNorm{.epsilon = 1e-3};
  }
  if (!is_softmax(c.op)) {
    const ir::Shape of = c.op == ir::Op::instance_norm ? ir::Shape{c.space[1]} : ir::Shape(c.space.begin() + axis, c.space.end());
    st.anchor.inputs.push_back(s.tensor(c.given, of, BufferKind::input));
    if (c.bias) st.anchor.inputs.push_back(s.tensor(c.given, of, BufferKind::input));
  }
  auto& p = st.program;
  const auto store = [&](DType type, int value) {
    p.outputs.push_back({value, type});
    st.stores.push_back(s.tensor(type, c.space, BufferKind::output, c.order));
  };
  int y = p.push(P::acc_f);
  if (c.type != DType::f32) y = p.push(c.type == DType::f16 ? P::to_f16 : P::to_bf16, y);  // the type of the result
  y = p.push(P::mul, y, p.imm_f(0.5F));
  const auto code = [&](float unit) {
    return p.push(P::f2i,
                  p.push(P::min, p.push(P::max, p.push(P::round, p.push(P::div, y, p.imm_f(unit))), p.imm_f(0)), p.imm_f(255)));
  };
  if (c.style == "residual") {
    st.operands.push_back({s.tensor(DType::f32, c.space, BufferKind::arena, c.order), {}});
    st.operands.push_back({s.along(DType::f32, c.space, static_cast<int>(c.space.size()) - 1), {}});
    p.operand_count = 2;
    y = p.push(P::add, y, p.load(P::load_f, 0));
    store(DType::f32, y);
    y = p.push(P::mul, y, p.load(P::load_f, 1));
    return store(DType::u8, code(0.01F));
  }
  if (c.style == "codes") return store(DType::u8, code(1.0F / 510));
  store(DType::f32, y);
  if (c.style == "types") store(DType::f16, y), store(DType::bf16, y), store(DType::u8, code(0.02F));
}

}  // namespace octavo::testing
