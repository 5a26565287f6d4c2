// Two convolutions in one kernel, the first one's floats an operand of the second one's program: a residual branch with a convolution.
#include <gtest/gtest.h>

#include "cuda/architectures.h"
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

/// One convolution of the pair.
struct Branch {
  std::int64_t channels, high, wide, kernel, stride;
  int zero;
};
struct Pair {
  std::int64_t batch, outputs;
  Branch first, second;
  bool residual = false;  ///< codes are added as well
};

class Block {
 public:
  explicit Block(const Pair& k) : scene(static_cast<std::uint32_t>(k.outputs)) {
    region::Stage first = conv(k, k.first), second = conv(k, k.second);
    const region::TensorRef between = scene.nhwc(DType::f32, first.space);
    first.stores = {between};
    int y = affine(first);
    first.program.outputs = {{y, DType::f32}};
    second.stores = {scene.nhwc(DType::u8, second.space, BufferKind::output, 16)};
    auto& p = second.program;
    y = p.push(Op::add, affine(second), p.load(Op::load_f, operand(second, between)));
    if (k.residual) {
      const int code = p.load(Op::load_i, operand(second, scene.nhwc(DType::u8, second.space)));
      y = p.push(Op::add, y, p.push(Op::mul, p.push(Op::i2f, code), p.imm_f(0.03F)));
    }
    y = p.push(Op::div, p.push(Op::max, y, p.imm_f(0)), p.imm_f(0.037F));
    p.outputs = {{p.push(Op::f2i, p.push(Op::min, y, p.imm_f(255))), DType::u8}};
    buffer = between;
    scene.region().stages = {std::move(first), std::move(second)};
  }

  std::string run(const cuda::ConvTile& tile, const Edit& edit = {}, const cuda::Target& target = {"sm_80", 108, 163 * 1024}) {
    const auto truth = [&](const region::Region& r, const region::Memory& m) {  // the floats are not to be in memory
      const auto bytes = static_cast<std::size_t>(4 * ir::count(buffer.dims));
      const std::vector<std::byte> before(m.at(buffer), m.at(buffer) + bytes);
      scalar_region(r, m);
      std::copy(before.begin(), before.end(), m.at(buffer));
    };
    return run_emulated(scene, cuda::conv_mma_family(), cuda::spell(tile), 0, edit, truth, target);
  }

  Scene scene;
  region::TensorRef buffer;  ///< between the two

 private:
  region::Stage conv(const Pair& k, const Branch& b) {
    const std::int64_t pad = b.kernel / 2;
    region::Stage st;
    st.space = {k.batch, k.outputs, (b.high + 2 * pad - b.kernel) / b.stride + 1, (b.wide + 2 * pad - b.kernel) / b.stride + 1};
    st.anchor.op = ir::Op::conv;
    st.anchor.integer = true;
    st.anchor.facts = ir::Window{.strides = {b.stride, b.stride}, .dilations = {1, 1}, .pads = {pad, pad, pad, pad}};
    st.anchor.inputs = {scene.nhwc(DType::u8, {k.batch, b.channels, b.high, b.wide}, BufferKind::input, 16)};
    st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, b.zero);
    st.anchor.weights = scene.tensor(DType::s8, {k.outputs, b.channels, b.kernel, b.kernel}, BufferKind::constant);
    return st;
  }
  static int operand(region::Stage& st, const region::TensorRef& ref) {
    st.operands.push_back({ref, {}});
    st.program.operand_count = static_cast<int>(st.operands.size());
    return st.program.operand_count - 1;
  }
  int affine(region::Stage& st) {
    const int scale = operand(st, scene.along(DType::f32, st.space, 1, 0.0003F)),
              bias = operand(st, scene.along(DType::f32, st.space, 1));
    auto& p = st.program;
    const int acc = p.push(Op::i2f, p.push(Op::acc_i));
    const int loaded = p.load(Op::load_f, scale);
    return p.push(Op::fma, acc, loaded, p.load(Op::load_f, bias));
  }
};

cuda::ConvTile tile(int m, int n, int warps_m, int warps_n) {
  cuda::ConvTile t;
  t.m = m, t.n = n, t.k = 32, t.warps_m = warps_m, t.warps_n = warps_n, t.stages = 3, t.blocks = 1;
  return t;
}

constexpr Pair kProjection{1, 72, {32, 9, 11, 1, 2, 3}, {48, 5, 6, 1, 1, 0}};      // as in a bottleneck
constexpr Pair kBasic{2, 40, {16, 7, 5, 1, 1, 255}, {32, 7, 5, 3, 1, 128}, true};  // as in a basic block, and codes added

class TwoConvs : public EmulatedTest {};

TEST_F(TwoConvs, OneKernelForBoth) {
  EXPECT_EQ(Block(kProjection).run(tile(32, 64, 2, 1)), "");
  EXPECT_EQ(Block(kBasic).run(tile(32, 32, 1, 2)), "");
}

TEST_F(TwoConvs, Warpgroups) {
  cuda::ConvTile t = tile(64, 64, 4, 1);
  t.groups = true;
  EXPECT_EQ(Block(kProjection).run(t, {}, {}), "");
}

TEST_F(TwoConvs, WhatIsNotTakenSaysWhy) {
  Block b(kProjection);
  b.scene.region().stages[0].program.outputs[0].type = b.scene.region().stages[0].stores[0].dtype = DType::f16;
  EXPECT_EQ(cuda::conv_mma_family().why_not(b.scene.region(), b.scene.plan(), {}),
            region::unmet("result that one convolution forwards to another", "f16", "one of f32"));
}

TEST_F(TwoConvs, PlantedMistakesAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to) {
    return Block(kProjection).run(tile(32, 64, 2, 1), [&](std::string text) {
      const auto at = text.rfind(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  EXPECT_NE(planted("next_step = -before::kSteps;", "next_step = 0;"), "") << "the first convolution is never read";
  EXPECT_NE(planted("(last ? constants : OCTAVO_BEFORE_CONSTANTS)", "constants"), "") << "the other convolution's constants";
}

TEST(TwoConvsText, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const cuda::Architecture architecture : architectures()) {
    Block b(kBasic);
    cuda::ConvTile t = architecture == "sm_90a" ? tile(128, 64, 8, 1) : tile(64, 64, 2, 2);
    t.groups = architecture == "sm_90a";
    const auto text = cuda::conv_mma_family().emit(b.scene.region(), b.scene.plan(), cuda::spell(t), {architecture});
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(architecture));
    ASSERT_TRUE(code) << architecture << ": " << code.error().message;
    // A remark that the compiler adds a fence of its own in front of products of warpgroups.
    EXPECT_TRUE(code->log.empty() || (t.groups && code->log.find("C7519") != std::string::npos)) << architecture << code->log;
  }
}

}  // namespace
}  // namespace octavo::testing
