// Convolutions of one and of three spatial dimensions on matrix units, under emulation: float16 and codes, strides, borders and dilations in every
// dimension, packed rows, beside the contract element by element; and mistakes planted in the text.
#include <gtest/gtest.h>

#include <string>

#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

struct FramesCase {
  ir::Shape x{2, 32, 4, 5, 6};
  std::int64_t o = 20;
  std::vector<std::int64_t> kernel{3, 3, 3}, strides{1, 1, 1}, pads{1, 1, 1}, dilations{1, 1, 1};
  bool residual = true;
};

/// Channels innermost.
region::TensorRef channels_last(Scene& s, DType type, const ir::Shape& dims, BufferKind kind) {
  std::vector<int> order{0};
  for (int d = 2; d < static_cast<int>(dims.size()); ++d) order.push_back(d);
  order.push_back(1);
  return s.tensor(type, dims, kind, order);
}

void build(Scene& s, const FramesCase& c, DType type) {
  auto& st = s.stage();
  const std::size_t spatial = c.kernel.size();
  st.space = {c.x[0], c.o};
  for (std::size_t d = 0; d < spatial; ++d)
    st.space.push_back((c.x[d + 2] + 2 * c.pads[d] - c.dilations[d] * (c.kernel[d] - 1) - 1) / c.strides[d] + 1);
  std::vector<std::int64_t> pads = c.pads;
  pads.insert(pads.end(), c.pads.begin(), c.pads.end());
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::Window{.strides = c.strides, .dilations = c.dilations, .pads = pads};
  st.anchor.integer = type == DType::u8;
  st.anchor.inputs = {channels_last(s, type, c.x, BufferKind::input)};
  if (type == DType::u8) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 77);
  ir::Shape weights{c.o, c.x[1]};
  weights.insert(weights.end(), c.kernel.begin(), c.kernel.end());
  st.anchor.weights = s.tensor(type == DType::u8 ? DType::s8 : type, weights, BufferKind::constant);
  auto& p = st.program;
  int y = type == DType::u8 ? p.push(Op::i2f, p.push(Op::acc_i)) : p.push(Op::acc_f);
  st.operands.push_back({s.along(DType::f32, st.space, 1), {}});
  y = p.push(Op::add, y, p.load(Op::load_f, 0));
  p.operand_count = 1;
  if (c.residual) {
    st.operands.push_back({channels_last(s, DType::f32, st.space, BufferKind::input), {}});
    y = p.push(Op::add, y, p.load(Op::load_f, 1));
    p.operand_count = 2;
  }
  p.outputs = {{p.push(Op::max, y, p.imm_f(-3)), DType::f32}};
  st.stores = {channels_last(s, DType::f32, st.space, BufferKind::output)};
}

cuda::Parameters tile() {
  cuda::ConvTile t;
  t.m = 32, t.n = 32, t.k = 64, t.warps_m = 2, t.warps_n = 1, t.stages = 2, t.slices = 1, t.blocks = 1;
  return cuda::spell(t);
}

std::string run(const FramesCase& c, DType type, const Edit& edit = {}) {
  Scene s(11);
  build(s, c, type);
  const cuda::Family& family = type == DType::u8 ? cuda::conv_mma_family() : cuda::conv_f16_family();
  return run_emulated(s, family, tile(), type == DType::u8 ? 0 : 2e-4F, edit, scalar_region, {"sm_80", 108, 163 * 1024});
}

class ConvFrames : public EmulatedTest {};

TEST_F(ConvFrames, ThreeDimensions) {
  EveryOther some;
  for (const DType type : {DType::f16, DType::u8}) {
    FramesCase c;
    if (some.takes(0, type)) EXPECT_EQ(run(c, type), "") << "3x3x3";
    c.strides = {2, 2, 2};
    if (some.takes(1, type)) EXPECT_EQ(run(c, type), "") << "strides";
    c.strides = {1, 2, 1}, c.pads = {2, 0, 1}, c.dilations = {2, 1, 1};
    if (some.takes(2, type)) EXPECT_EQ(run(c, type), "") << "each dimension another border and step";
    c = {};
    c.x = {1, 3, 5, 9, 8}, c.kernel = {3, 7, 7}, c.strides = {1, 2, 2}, c.pads = {1, 3, 3};
    if (some.takes(3, type)) EXPECT_EQ(run(c, type), "") << "three channels: packed rows";
    c = {};
    c.kernel = {1, 1, 1}, c.pads = {0, 0, 0};
    if (some.takes(4, type)) EXPECT_EQ(run(c, type), "") << "1x1x1";
    c.strides = {2, 2, 2};
    if (some.takes(5, type)) EXPECT_EQ(run(c, type), "") << "1x1x1 with strides";
    c = {};
    c.kernel = {3, 1, 1}, c.pads = {1, 0, 0}, c.x = {2, 32, 3, 1, 1};
    if (some.takes(6, type)) EXPECT_EQ(run(c, type), "") << "frames of one pixel";
    c = {};
    c.kernel = {1, 3, 3}, c.pads = {0, 1, 1}, c.x = {3, 32, 1, 4, 4};
    if (some.takes(7, type)) EXPECT_EQ(run(c, type), "") << "one frame";
  }
}

TEST_F(ConvFrames, OneDimension) {
  for (const DType type : {DType::f16, DType::u8}) {
    FramesCase c{{2, 32, 19}, 20, {3}, {1}, {1}, {1}};
    EXPECT_EQ(run(c, type), "") << "3";
    c.strides = {2}, c.dilations = {2}, c.pads = {3};
    EXPECT_EQ(run(c, type), "") << "stride and dilation";
    c = {{2, 5, 20}, 20, {7}, {2}, {3}, {1}};
    EXPECT_EQ(run(c, type), "") << "five channels: packed rows";
    c = {{3, 32, 1}, 20, {1}, {1}, {0}, {1}};
    EXPECT_EQ(run(c, type), "") << "one pixel an image";
  }
}

TEST_F(ConvFrames, MistakesAreFound) {
  FramesCase c;
  c.strides = {2, 1, 1};
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, DType::f16, [&](std::string text) {
      const auto at = text.find(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  EXPECT_EQ(planted("kOutD", "kOutD"), "") << "nothing planted";
  EXPECT_NE(planted("kPadFront = 1", "kPadFront = 0"), "") << "the border in front";
  EXPECT_NE(planted("kStrideD = 2", "kStrideD = 1"), "") << "the stride of frames";
  EXPECT_NE(planted("image % kOutD * kStrideD", "image * kStrideD"), "") << "frames of the image before";
  EXPECT_NE(planted("(row % kPlaneRows)", "(row)"), "") << "rows beyond the kernel's frame";
  EXPECT_NE(planted("(unsigned)(front + k / kPlaneRows * kDilationD) < (unsigned)kInD", "true"), "")
      << "frames outside of the image";
}

TEST(ConvFramesRefused, FramesApartInTheStore) {
  Scene s(11);
  FramesCase c;
  build(s, c, DType::f16);
  s.stage().stores[0].strides[0] += 20;
  EXPECT_FALSE(cuda::conv_f16_family().why_not(s.region(), s.plan(), {}).empty());
}

}  // namespace
}  // namespace octavo::testing
