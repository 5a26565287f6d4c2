// Convolutions of floats with few input channels a group, and groups on matrix units, under emulation: channels, borders, kernels and strides around
// tiles, in every type, beside the contract element by element; and mistakes planted in the text.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "base/half.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

struct GroupedCase {
  DType type = DType::f16;
  std::int64_t n = 1, groups = 12, in = 1, out = 1, h = 7, w = 9, k = 3, stride = 1, pad = 1, dilation = 1;
  int gap = 0;            ///< channels of other data between pixels of the input
  bool residual = false;  ///< another tensor of the type is added
  bool tf32 = false;
};

void build(Scene& s, const GroupedCase& c) {
  auto& st = s.stage();
  const auto out = [&](std::int64_t v) { return (v + 2 * c.pad - c.dilation * (c.k - 1) - 1) / c.stride + 1; };
  st.space = {c.n, c.groups * c.out, out(c.h), out(c.w)};
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::Window{.strides = {c.stride, c.stride},
                               .dilations = {c.dilation, c.dilation},
                               .pads = {c.pad, c.pad, c.pad, c.pad},
                               .group = c.groups,
                               .arithmetic = c.tf32 ? ir::Arithmetic::tf32 : ir::Arithmetic::exact};
  st.anchor.inputs = {s.nhwc(c.type, {c.n, c.groups * c.in, c.h, c.w}, BufferKind::input, c.gap)};
  st.anchor.weights = s.tensor(c.type, {c.groups * c.out, c.in, c.k, c.k}, BufferKind::constant);
  auto& p = st.program;
  const int bias = p.load(Op::load_f, 0);
  p.operand_count = 1;
  st.operands.push_back({s.along(DType::f32, st.space, 1), {}});
  int y = p.push(Op::add, p.push(Op::acc_f), bias);
  if (c.residual) {
    p.operand_count = 2;
    st.operands.push_back({s.nhwc(c.type, st.space, BufferKind::input), {}});
    y = p.push(Op::add, y, p.load(Op::load_f, 1));
  }
  y = p.push(Op::max, y, p.imm_f(-1));
  p.outputs = {{y, c.type}, {y, DType::f32}};
  st.stores = {s.nhwc(c.type, st.space), s.nhwc(DType::f32, st.space)};
}

const cuda::Family& family_of(DType type) {
  return type == DType::f16    ? cuda::depthwise_f16_family()
         : type == DType::bf16 ? cuda::depthwise_bf16_family()
                               : cuda::depthwise_f32_family();
}

cuda::Parameters tile(int rows, int columns, int threads = 32) {
  return {{"rows", std::to_string(rows)}, {"columns", std::to_string(columns)}, {"threads", std::to_string(threads)}};
}

std::string run(const GroupedCase& c, const cuda::Parameters& parameters, const Edit& edit = {}) {
  Scene s(11);
  build(s, c);
  // Depthwise sums are taken in the contract's order. Others go channel by channel, and sums of random signs cancel.
  return run_emulated(s, family_of(c.type), parameters, c.in == 1 ? 1e-5F : 2e-4F, edit);
}

class DepthwiseFloatEmulated : public EmulatedTest {};

TEST_F(DepthwiseFloatEmulated, EveryTypeAndTile) {
  for (const auto& [type, rows, columns] :
       {std::tuple{DType::f16, 1, 1}, {DType::f16, 1, 8}, {DType::bf16, 2, 4}, {DType::f32, 4, 2}, {DType::f16, 4, 7}}) {
    GroupedCase c;
    c.type = type;
    EXPECT_EQ(run(c, tile(rows, columns)), "") << "3x3 " << rows << "x" << columns;
    c.n = 2, c.k = 5, c.pad = 2, c.stride = 2, c.residual = true;
    EXPECT_EQ(run(c, tile(rows, columns, 64)), "") << "5x5/2 " << rows << "x" << columns;
  }
}

TEST_F(DepthwiseFloatEmulated, ChannelsAroundFour) {
  for (const std::int64_t channels : {3, 4, 5, 10, 58}) {
    GroupedCase c;
    c.type = channels == 5 ? DType::f32 : DType::f16, c.groups = channels;
    EXPECT_EQ(run(c, tile(2, 2)), "") << channels;
    c.gap = 3;
    if (channels % 2 == 0) EXPECT_EQ(run(c, tile(1, 4)), "") << channels << ", pixels that begin anywhere";
  }
}

TEST_F(DepthwiseFloatEmulated, KernelsWhoseWeightsAreReadByRows) {
  GroupedCase c;
  c.k = 7, c.pad = 3;
  EXPECT_EQ(run(c, tile(1, 8)), "") << "7x7";
  EXPECT_EQ(run(c, tile(2, 4)), "") << "7x7, two rows";
  c.k = 3, c.pad = 2, c.dilation = 2;
  EXPECT_EQ(run(c, tile(2, 4)), "") << "dilation";
  c.stride = 2;
  EXPECT_EQ(run(c, tile(2, 1)), "") << "dilation and stride";
  c = {};
  c.k = 1, c.pad = 0;
  EXPECT_EQ(run(c, tile(1, 2)), "") << "1x1";
  c = {};
  c.h = 2, c.w = 1, c.n = 3;
  EXPECT_EQ(run(c, tile(4, 4)), "") << "an image smaller than the tile";
}

TEST_F(DepthwiseFloatEmulated, GroupsOfSeveralChannels) {
  for (const auto& [type, in, out] : {std::tuple<DType, std::int64_t, std::int64_t>{DType::f16, 4, 4},
                                      {DType::f16, 8, 8},
                                      {DType::f32, 24, 24},
                                      {DType::f16, 3, 4},
                                      {DType::f32, 6, 8},
                                      {DType::f16, 1, 4}}) {
    GroupedCase c;
    c.type = type, c.groups = 3, c.in = in, c.out = out;
    if (in != 8) c.stride = 2, c.residual = true;
    EXPECT_EQ(run(c, tile(in == 8 ? 1 : 2, in == 8 ? 4 : 2)), "") << in << " to " << out;
  }
}

TEST_F(DepthwiseFloatEmulated, MistakesAreFound) {
  const auto planted = [](GroupedCase c, int rows, int columns, std::string_view from, std::string_view to) {
    return run(c, tile(rows, columns), [&](std::string text) {
      const auto at = text.find(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  GroupedCase own, rows, grouped;
  rows.k = 7, rows.pad = 3;
  grouped.groups = 3, grouped.in = grouped.out = 8;
  EXPECT_EQ(planted(own, 2, 4, "kSpan", "kSpan"), "") << "nothing planted";
  EXPECT_NE(planted(own, 2, 4, "kPadTop = 1", "kPadTop = 0"), "") << "the border above";
  EXPECT_NE(planted(own, 2, 4, "kPadLeft = 1", "kPadLeft = 2"), "") << "the border on the left";
  EXPECT_NE(planted(own, 2, 4, "(unsigned)(top + r) < (unsigned)kInH", "true"), "") << "rows outside of the image";
  EXPECT_NE(planted(own, 2, 4, "(unsigned)(first + k) < (unsigned)kInW", "true"), "") << "columns outside of the image";
  EXPECT_NE(planted(own, 2, 4, "const int right = k - x * kDilationW;", "const int right = k - x * kDilationW + 1;"), "")
      << "a tap to the right";
  EXPECT_NE(planted(own, 2, 4, "const int down = r - y * kDilationH;", "const int down = y - r;"), "") << "kernel rows turned";
  EXPECT_NE(planted(own, 2, 4, "taps[y], pixel", "taps[0], pixel"), "") << "one kernel row for all";
  EXPECT_NE(planted(own, 2, 4, "y < kOutH && column < kOutW", "column < kOutW"), "") << "pixels below the image";
  EXPECT_NE(planted(own, 2, 4, "pixel[kOwn ? e : j]", "pixel[0]"), "") << "another channel's pixel";
  EXPECT_NE(planted(rows, 1, 8, "step * kKernelH + y, channel", "step * kKernelH, channel"), "") << "weights of the first row";
  EXPECT_NE(planted(rows, 2, 4, "top + out * kStrideH + y", "top + y"), "") << "the first output row's pixels";
  EXPECT_NE(planted(grouped, 1, 4, "from += kStep * kSize;", ""), "") << "the first channels of a group again";
  EXPECT_NE(planted(grouped, 1, 4, "channel / kGroupOut * kGroupIn", "channel / kGroupOut"), "") << "another group's channels";
  GroupedCase odd = own;
  odd.groups = 10;
  EXPECT_NE(planted(odd, 2, 2, "kOutChannels % 4 == 0 ? 4 : kOutChannels - channel", "4"), "") << "reads behind the last channel";
}

TEST_F(DepthwiseFloatEmulated, GroupsOnMatrixUnits) {
  cuda::ConvTile t;
  t.m = 32, t.n = 16, t.k = 64, t.warps_m = 2, t.warps_n = 1, t.stages = 2, t.slices = 1, t.blocks = 1;
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {48, 32}}) {
      GroupedCase c;
      c.type = type, c.groups = 3, c.in = in, c.out = out, c.residual = true;
      Scene s(11);
      build(s, c);
      const cuda::Family& family = type == DType::f16    ? cuda::conv_f16_family()
                                   : type == DType::bf16 ? cuda::conv_bf16_family()
                                                         : cuda::conv_f32_family();
      EXPECT_EQ(run_emulated(s, family, cuda::spell(t), 2e-4F, {}, scalar_region, {"sm_80", 108, 163 * 1024}), "")
          << ir::name_of(type) << ", " << in << " to " << out;
      cuda::ConvTile wide = t;
      wide.n = 32;
      EXPECT_EQ(family.emit(s.region(), s.plan(), cuda::spell(wide), {"sm_80", 108, 163 * 1024}).has_value(), out % 32 == 0)
          << "zeros between groups make NaN of what is infinite in another group";
    }
  }
}

TEST(DepthwiseFloat, WhatIsRefused) {
  const auto refused = [](const GroupedCase& c) {
    Scene s(3);
    build(s, c);
    return !family_of(c.type).why_not(s.region(), s.plan(), {}).empty();
  };
  GroupedCase c;
  EXPECT_FALSE(refused(c));
  c.in = 3, c.out = 2;
  EXPECT_TRUE(refused(c)) << "a thread's channels in two groups";
  c = {};
  c.groups = 1, c.in = c.out = 16;
  Scene s(3);
  build(s, c);
  EXPECT_FALSE(cuda::depthwise_f16_family().about(s.region())) << "one group";
}

TEST(DepthwiseFloat, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    Scene s(3);
    GroupedCase c;
    c.type = type, c.groups = 64, c.tf32 = type == DType::f32;
    build(s, c);
    for (const cuda::Architecture architecture : std::initializer_list<cuda::Architecture>{"sm_75", "sm_80", "sm_90a", "sm_120"}) {
      const cuda::Target target{architecture};
      const auto all = family_of(type).candidates(s.region(), s.plan(), target);
      ASSERT_FALSE(all.empty());
      const auto text = family_of(type).emit(s.region(), s.plan(), all[0].parameters, target);
      ASSERT_TRUE(text) << text.error().message;
      const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
      EXPECT_TRUE(code) << code.error().message;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
