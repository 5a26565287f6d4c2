// A depthwise convolution and the 1x1 convolution behind it in one kernel, under the emulation and as machine code.
#include <gtest/gtest.h>

#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

struct Pair {
  std::int64_t batch, channels, high, wide, outputs, kernel, stride;
  std::array<std::int64_t, 4> pads;
  int zero, between_zero;
  std::string style = "codes";  ///< codes; residual: codes are added; float: f32 is stored as well
};

class Block {
 public:
  explicit Block(const Pair& k) : scene(static_cast<std::uint32_t>(k.channels + 7 * k.outputs)) {
    region::Stage first, second;
    const auto out = [&](std::int64_t in, std::int64_t pads) { return (in + pads - k.kernel) / k.stride + 1; };
    first.space = {k.batch, k.channels, out(k.high, k.pads[0] + k.pads[2]), out(k.wide, k.pads[1] + k.pads[3])};
    first.anchor.op = second.anchor.op = ir::Op::conv;
    first.anchor.integer = second.anchor.integer = true;
    first.anchor.facts = ir::Window{
        .strides = {k.stride, k.stride}, .dilations = {1, 1}, .pads = {k.pads.begin(), k.pads.end()}, .group = k.channels};
    first.anchor.inputs = {scene.nhwc(DType::u8, {k.batch, k.channels, k.high, k.wide}, BufferKind::input, 16)};
    first.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, k.zero);
    first.anchor.weights = scene.tensor(DType::s8, {k.channels, 1, k.kernel, k.kernel}, BufferKind::constant);
    between = scene.nhwc(DType::u8, first.space);
    between.quantizer = ir::per_tensor(DType::u8, 0.05F, k.between_zero);
    first.stores = {between};
    codes(first, affine(first, 0.002F), 0.05F, k.between_zero);

    second.space = {k.batch, k.outputs, first.space[2], first.space[3]};
    second.anchor.facts = ir::default_facts(ir::Op::conv);
    second.anchor.inputs = {between};
    second.anchor.weights = scene.tensor(DType::s8, {k.outputs, k.channels, 1, 1}, BufferKind::constant);
    int y = affine(second, 0.0003F);
    auto& p = second.program;
    if (k.style == "residual") {
      const int code = p.load(Op::load_i, operand(second, scene.nhwc(DType::u8, second.space)));
      y = p.push(Op::add, y, p.push(Op::mul, p.push(Op::i2f, code), p.imm_f(0.03F)));
    }
    if (k.style == "float") {
      second.stores.push_back(scene.nhwc(DType::f32, second.space, BufferKind::output));
      p.outputs.push_back({y, DType::f32});
    }
    second.stores.push_back(scene.nhwc(DType::u8, second.space, BufferKind::output, 16));
    codes(second, y, 0.037F, 128);
    scene.region().stages = {std::move(first), std::move(second)};
  }

  std::string run(const cuda::Parameters& tile, const Edit& edit = {}) {
    const auto truth = [&](const region::Region& r, const region::Memory& m) {  // the codes are not to be in memory
      const auto bytes = static_cast<std::size_t>(ir::count(between.dims));
      const std::vector<std::byte> before(m.at(between), m.at(between) + bytes);
      scalar_region(r, m);
      std::copy(before.begin(), before.end(), m.at(between));
    };
    return run_emulated(scene, cuda::depthwise_pointwise_family(), tile, 0, edit, truth, {"sm_80", 108, 163 * 1024});
  }

  Scene scene;
  region::TensorRef between;

 private:
  static int operand(region::Stage& st, const region::TensorRef& ref) {
    st.operands.push_back({ref, {}});
    st.program.operand_count = static_cast<int>(st.operands.size());
    return st.program.operand_count - 1;
  }
  int affine(region::Stage& st, float largest) {
    const int scale = operand(st, scene.along(DType::f32, st.space, 1, largest)),
              bias = operand(st, scene.along(DType::f32, st.space, 1));
    auto& p = st.program;
    const int acc = p.push(Op::i2f, p.push(Op::acc_i));
    const int loaded = p.load(Op::load_f, scale);
    return p.push(Op::fma, acc, loaded, p.load(Op::load_f, bias));
  }
  static void codes(region::Stage& st, int y, float scale, int zero) {
    auto& p = st.program;
    y = p.push(Op::div, y, p.imm_f(scale));
    y = p.push(Op::min, p.push(Op::max, y, p.imm_f(static_cast<float>(-zero))), p.imm_f(static_cast<float>(255 - zero)));
    p.outputs.push_back({p.push(Op::add_i, p.push(Op::f2i, y), p.imm_i(zero)), DType::u8});
  }
};

cuda::Parameters tile(const std::string& tile, int slab, const std::string& warps, const std::string& item) {
  return {{"tile", tile}, {"slab", std::to_string(slab)}, {"warps", warps}, {"item", item}, {"blocks", "1"}};
}

class DepthwisePointwise : public EmulatedTest {};

// Borders on all sides, tiles that end beyond the last row and column, lines of two images in a tile, three slabs, the last with 8 channels.
constexpr Pair kPlain{2, 72, 5, 7, 20, 3, 1, {1, 1, 1, 1}, 77, 31};

TEST_F(DepthwisePointwise, TilesAcrossBorders) {
  EXPECT_EQ(Block(kPlain).run(tile("4x4x32", 32, "1x1", "1x2")), "");
  EXPECT_EQ(Block(kPlain).run(tile("2x8x32", 64, "1x2", "1x4")), "");
  EXPECT_EQ(Block(kPlain).run(tile("10x8x16", 32, "1x1", "5x2")), "");  // two tiles of channels, all rows of an image an item
}

TEST_F(DepthwisePointwise, StridesAndUnevenPads) {
  EXPECT_EQ(Block({1, 36, 11, 9, 40, 3, 2, {0, 0, 1, 1}, 200, 0}).run(tile("5x16x48", 64, "1x3", "5x1")), "");
  EXPECT_EQ(Block({3, 16, 8, 8, 16, 3, 2, {1, 1, 1, 1}, 0, 255}).run(tile("8x4x16", 32, "2x1", "2x2")), "");
  EXPECT_EQ(Block({1, 12, 6, 5, 17, 5, 1, {2, 2, 2, 2}, 9, 128}).run(tile("6x8x32", 32, "3x1", "3x1")), "");
}

TEST_F(DepthwisePointwise, ResidualAndFloatStores) {
  Pair k{1, 132, 7, 7, 40, 3, 1, {1, 1, 1, 1}, 3, 100, "residual"};
  EXPECT_EQ(Block(k).run(tile("14x8x64", 128, "7x1", "7x2")), "");
  k.style = "float", k.channels = 32;
  EXPECT_EQ(Block(k).run(tile("16x8x128", 32, "4x2", "1x2")), "");
}

TEST_F(DepthwisePointwise, WhatIsNotTakenSaysWhy) {
  Block b(kPlain);
  const auto why = [&] { return spelled(cuda::depthwise_pointwise_family().why_not(b.scene.region(), b.scene.plan(), {})); };
  b.scene.region().stages[1].anchor.as<ir::Window>().strides = {2, 2};
  EXPECT_NE(why().find("1x1 of one group without strides and padding"), std::string::npos) << why();
  Block s8(kPlain);
  EXPECT_NE(s8.run(tile("4x4x32", 32, "1x1", "2x2")).find("rows that divide 5"), std::string::npos);
}

TEST_F(DepthwisePointwise, PlantedMistakesAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to,
                           const cuda::Parameters& how = tile("4x4x32", 32, "1x1", "1x2")) {
    return Block(kPlain).run(how, [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_NE(planted("octavo_copy_wait<0>();\n    octavo_barrier();", "octavo_copy_wait<0>();"), "")
      << "codes are read before they are computed";
  EXPECT_NE(planted("octavo_copy_wait<0>();\n    octavo_barrier();", "octavo_barrier();"), "")
      << "the filter is read before it has arrived";
  EXPECT_NE(planted("kFillCode = 77", "kFillCode = 31"), "") << "what lies outside the image is of another zero point";
  EXPECT_NE(planted("above * before::kStrideH - before::kPadTop", "above * before::kStrideH"), "") << "the rows above a tile";
  EXPECT_NE(planted("(unsigned)(first + k) < (unsigned)kInW", "(unsigned)(first + k) <= (unsigned)kInW"), "")
      << "a column beyond the last one";
  EXPECT_NE(planted("line / kOutH, above", "first_line / kOutH, above"), "") << "a tile's lines are of two images";
  EXPECT_NE(planted("i % kOutColumns;\n  octavo_write<4>", "i;\n  octavo_write<4>", tile("10x8x16", 32, "1x1", "5x2")), "")
      << "an item's second row";
}

TEST(DepthwisePointwiseText, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const cuda::Architecture architecture : architectures()) {
    Block b({2, 144, 56, 56, 24, 3, 1, {1, 1, 1, 1}, 0, 0, "residual"});
    const auto& family = cuda::depthwise_pointwise_family();
    const auto all = family.candidates(b.scene.region(), b.scene.plan(), {architecture});
    const auto text = family.emit(b.scene.region(), b.scene.plan(), all[0].parameters, {architecture});
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(architecture));
    ASSERT_TRUE(code) << architecture << ": " << code.error().message;
    EXPECT_EQ(code->log, "") << architecture;
  }
}

}  // namespace
}  // namespace octavo::testing
