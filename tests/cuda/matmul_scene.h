// One product of two computed matrices with an epilogue, its plan and its memory: for tests under the emulation and for the program on a GPU.
#pragma once

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "cpu/scalar_region.h"
#include "cuda/families/matmul/matmul_mma.h"

namespace octavo::testing {

struct ProductCase {
  cuda::ProductType type = cuda::ProductType::u8;
  ir::Shape batch;  ///< of the result
  std::int64_t m = 1, n = 1, k = 1;
  std::string left = "rows", right = "columns";  ///< layouts, see ordered()
  std::string style = "float";                   ///< see program_of()
  int zero_left = 0, zero_right = 0;
  int gap = 0;                                     ///< elements of other data behind innermost rows of both
  bool shared_left = false, shared_right = false;  ///< one matrix for all of the batch
  std::string stored = "rows";                     ///< layout of the results
  [[nodiscard]] std::string text() const {
    return fmt::format("type {} batch {} {}x{}x{} left {} right {} {} zeros {} {} gap {} shared {}{} stored {}",
                       static_cast<int>(type), ir::to_string(batch), m, n, k, left, right, style, zero_left, zero_right, gap,
                       shared_left ? "left " : "", shared_right ? "right" : "", stored);
  }
};

/// The layout as an order of dimensions, the last one innermost. rows: as the dimensions are. columns: the last two turned. heads: the last dimension of
/// the batch lies between the matrix's rows and columns. heads-columns: the same, with the columns outermost.
inline std::vector<int> ordered(const std::string& layout, std::size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout == "columns") std::swap(order[rank - 1], order[rank - 2]);
  if (layout == "heads" && rank > 2) std::swap(order[rank - 2], order[rank - 3]);
  if (layout == "heads-columns" && rank > 2)
    order[rank - 3] = static_cast<int>(rank) - 1, order[rank - 2] = static_cast<int>(rank) - 3,
                 order[rank - 1] = static_cast<int>(rank) - 2;
  return order;
}

/// Buffers of whole words: kernels read those that hold a byte of a tensor.
inline void whole_words(Scene& s) {
  for (std::size_t b = 0; b < s.plan().buffers.size(); ++b) {
    auto& bytes = s.plan().buffers[b].bytes;
    if (bytes % 4 == 0 || !s.plan().buffers[b].data.empty()) continue;
    s.memory[b].insert(s.memory[b].end(), static_cast<std::size_t>(4 - bytes % 4), std::byte{7});
    bytes += 4 - bytes % 4;
  }
}

inline int quantized(program::Program& p, int y, float scale) {
  using program::Op;
  const int q = p.push(Op::div, y, p.imm_f(scale));
  return p.push(Op::add_i, p.push(Op::f2i, p.push(Op::min, p.push(Op::max, q, p.imm_f(-117)), p.imm_f(138))), p.imm_i(117));
}

/// float: a multiple of the sums. codes: those as codes. channel: with a constant for each column. residual: with another tensor added, as floats and codes;
/// sums: the sums as they are.
inline void program_of(Scene& s, const ProductCase& c) {
  using program::Op;
  region::Stage& st = s.stage();
  auto& p = st.program;
  const bool codes = c.type == cuda::ProductType::u8;
  const int acc = p.push(codes ? Op::acc_i : Op::acc_f);
  int y = codes                              ? p.push(Op::i2f, acc)
          : c.type == cuda::ProductType::f16 ? p.push(Op::to_f16, acc)
                                             : acc;  // the type of the result
  const float unit = codes ? 1.0F / 4096 / 16 : 0.125F;
  const std::size_t rank = st.space.size();
  const auto order = ordered(c.stored, rank);
  const auto store = [&](ir::DType type, int value) {
    p.outputs.push_back({value, type});
    st.stores.push_back(s.tensor(type, st.space, region::BufferKind::arena, order));
  };
  if (c.style == "sums") return store(codes ? ir::DType::s32 : ir::DType::f32, acc);
  y = p.push(Op::mul, y, p.imm_f(unit));
  if (c.style == "channel") {
    st.operands.push_back({s.along(ir::DType::f32, st.space, static_cast<int>(rank) - 1), {}});
    y = p.push(Op::mul, y, p.load(Op::load_f, 0));
  }
  if (c.style == "residual") {
    st.operands.push_back({s.tensor(ir::DType::f32, st.space, region::BufferKind::arena, order), {}});
    y = p.push(Op::add, y, p.load(Op::load_f, 0));
  }
  p.operand_count = static_cast<int>(st.operands.size());
  const bool exact = codes;  // codes of float sums may round the other way
  if (c.style == "codes" && exact) return store(ir::DType::u8, quantized(p, y, 0.0371F));
  store(ir::DType::f32, y);
  if (c.style == "residual" && exact) store(ir::DType::u8, quantized(p, y, 0.0371F));
}

inline void build(Scene& s, const ProductCase& c) {
  region::Stage& st = s.stage();
  st.space = c.batch;
  st.space.insert(st.space.end(), {c.m, c.n});
  st.anchor.op = ir::Op::matmul;
  const bool codes = c.type == cuda::ProductType::u8;
  st.anchor.integer = codes;
  st.anchor.facts = ir::Product{c.type == cuda::ProductType::tf32 ? ir::Arithmetic::tf32 : ir::Arithmetic::exact};
  const ir::DType type = codes                               ? ir::DType::u8
                         : c.type == cuda::ProductType::bf16 ? ir::DType::bf16
                         : c.type == cuda::ProductType::f16  ? ir::DType::f16
                                                             : ir::DType::f32;
  const auto matrix = [&](bool shared, std::int64_t rows, std::int64_t columns, const std::string& layout, int zero) {
    ir::Shape dims = shared ? ir::Shape{} : c.batch;
    dims.insert(dims.end(), {rows, columns});
    region::TensorRef r = s.tensor(type, dims, region::BufferKind::arena, ordered(layout, dims.size()), c.gap, 2.0F);
    if (codes) r.quantizer = ir::per_tensor(ir::DType::u8, 0.1F, zero);
    return r;
  };
  st.anchor.inputs = {matrix(c.shared_left, c.m, c.k, c.left, c.zero_left)};
  st.anchor.inputs.push_back(matrix(c.shared_right, c.k, c.n, c.right, c.zero_right));
  program_of(s, c);
  whole_words(s);
}

/// What sums of floats may differ by, times 1 + the value: products are exact or rounded by the type, and sums are in another order.
inline float tolerance_of(const ProductCase& c) {
  switch (c.type) {
    case cuda::ProductType::u8: return 0;
    case cuda::ProductType::tf32: return 2e-2F;
    case cuda::ProductType::f16: return 1e-3F;  // rounded to it
    default: return 2e-5F;
  }
}

}  // namespace octavo::testing
