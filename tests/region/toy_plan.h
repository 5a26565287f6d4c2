// A small plan that uses everything a plan can say: an integer convolution whose epilogue adds an upsampled residual and stores
// twice, then a region without an anchor.
#pragma once

#include <cmath>

#include "base/causes/kernels.h"
#include "base/causes/plan_candidates.h"
#include "base/causes/plan_regions.h"
#include "base/causes/plan_search.h"
#include "region/region.h"
#include "support/facts.h"

namespace octavo::region {

inline TensorRef channels_last(BufferId buffer, ir::DType dtype, ir::Shape dims) {
  TensorRef r;
  r.buffer = buffer;
  r.dtype = dtype;
  r.strides = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
  r.dims = std::move(dims);
  return r;
}

inline Plan toy_plan() {
  using ir::DType;
  using program::Op;
  Plan p;
  p.model_name = "toy";
  p.threads = 2;
  p.devices[0].arena_bytes = 64 + 320 + 64;
  p.inputs = {{"x", {DType::u8, {1, 4, 6, 6}}, ir::per_tensor(DType::u8, 0.1F, 3)},
              {"r", {DType::f32, {1, 8, 3, 3}}, std::nullopt, {}, 0, {}}};
  p.outputs = {{"y", {DType::f32, {1, 8, 6, 6}}, std::nullopt, {}, 0, {}},
               {"z", {DType::f32, {1, 8, 6, 6}}, std::nullopt, {}, 0, {}}};
  const auto codes = ir::Tensor::of<std::int8_t>({8, 4, 3, 3}, std::vector<std::int8_t>(288, 5));
  const auto scales = ir::Tensor::of<float>({8}, {1, 2, 3, 4, 5, 6, 7, 0.1F});
  p.buffers = {{BufferKind::input, 144, 0, 0, {}, "x"},
               {BufferKind::input, 288, 0, 1, {}, "r"},
               {BufferKind::constant, 288, 0, -1, codes, "w"},
               {BufferKind::constant, 32, 0, -1, scales, "scale"},
               {BufferKind::arena, 288, 64, -1, {}, "conv codes"},
               {BufferKind::output, 1152, 0, 0, {}, "y"},
               {BufferKind::output, 1152, 0, 1, {}, "z"}};

  Region conv;
  conv.name = "conv + add";
  conv.tactic = *region::parse_tactic("cpu.conv.portable");
  conv.packed = {2};
  conv.onnx_nodes = {"Conv_0", "Add_1"};
  conv.precision = Work::int8;
  conv.reasons = {because<cause::integer_anchor>("u8(0.5,0)", "s8", "per tensor")};
  conv.alternatives = {{"cpu.conv.other", {because<cause::tactic_possible>()}, 1.5e-5},
                       {"cpu.none", {because<cause::tactic_refused>(), because<cause::kernel_needs>("groups", "2", "1")}, -1, -1}};
  conv.graph_inputs = {0, ir::kNone, 1};
  conv.graph_outputs = {5, 6};
  Stage s;
  s.space = {1, 8, 6, 6};
  s.anchor.op = ir::Op::conv;
  s.anchor.facts = testing::facts(
      s.anchor.op,
      {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}, {"strides", std::vector<std::int64_t>{1, 1}}, {"group", std::int64_t{1}}});
  s.anchor.integer = true;
  TensorRef x{0, 0, DType::u8, {1, 4, 6, 6}, {144, 36, 6, 1}, ir::per_tensor(DType::u8, 0.1F, 3), "x"};
  s.anchor.inputs = {x};
  s.anchor.weights = TensorRef{2, 0, DType::s8, {8, 4, 3, 3}, {36, 9, 3, 1}, std::nullopt, "w"};
  s.anchor.weight_zero = {1, 2, 3, 4, 5, 6, 7, -8};
  s.operands = {{TensorRef{3, 0, DType::f32, {1, 8, 6, 6}, {0, 1, 0, 0}, std::nullopt, "scale"}, {}},
                {TensorRef{1, 0, DType::f32, {1, 8, 3, 3}, {72, 9, 3, 1}, std::nullopt, "r"}, {1, 1, 2, 2}}};
  program::Program& e = s.program;
  e.operand_count = 2;
  const int acc = e.push(Op::i2f, e.push(Op::acc_i));
  const int first = e.load(Op::load_f, 1), second = e.load(Op::load_f, 0);  // in this order, whatever the compiler's is
  const int sum = e.push(Op::fma, acc, second, first);
  const int code = e.push(Op::f2i, e.push(Op::min, e.push(Op::max, sum, e.imm_f(0)), e.imm_f(255)));
  e.outputs = {{code, DType::u8}, {sum, DType::f32}};
  s.stores = {channels_last(4, DType::u8, {1, 8, 6, 6}), channels_last(5, DType::f32, {1, 8, 6, 6})};
  s.stores[0].quantizer = ir::per_tensor(DType::u8, 1.0F / 3, 0);
  s.stores[0].value = "codes";
  conv.stages = {s};

  Region copy;
  copy.name = "decode";
  copy.tactic = *region::parse_tactic("cpu.pointwise.portable");
  Stage c;
  c.space = {1, 8, 6, 6};
  c.operands = {{s.stores[0], {}}};
  c.program.operand_count = 1;
  c.program.outputs = {
      {c.program.push(Op::mul, c.program.push(Op::i2f, c.program.load(Op::load_i, 0)), c.program.imm_f(1.0F / 3)), DType::f32}};
  TensorRef flipped{6, 4 * 287, DType::f32, {1, 8, 6, 6}, {0, -36, -6, -1}, std::nullopt, "z"};  // stored backwards
  c.stores = {flipped};
  copy.stages = {c};
  p.regions = {conv, copy};
  Decision& d = p.decisions.emplace_back();
  d.choice = "stores", d.where = "codes", d.chosen = 1;
  d.reasons = {because<cause::cheapest>(2)};
  d.candidates = {
      {"stored-twice", 2e-5},
      {"own-pass", 1e-5, {because<cause::kernel_refused>("cpu.conv.none"), because<cause::kernel_needs>("groups", "2", "1")}}};
  d.onnx_nodes = {"Conv_0"};
  return p;
}

}  // namespace octavo::region
