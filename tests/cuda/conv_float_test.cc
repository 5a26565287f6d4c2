// Convolutions of bfloat16 and of float32 with products in tf32, under emulation: shapes around tiles, borders, few channels, several
// epilogues, beside the contract element by element; and mistakes planted in their text.
#include <gtest/gtest.h>

#include "cuda/conv_mma.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

struct FloatCase {
  DType type = DType::bf16;
  std::int64_t n = 1, c = 32, h = 7, w = 9, o = 40, k = 3, stride = 1, pad = 1;
  bool codes = false;  ///< stores codes instead of floats: what an int8 region behind it reads
};

void build(Scene& s, const FloatCase& c) {
  auto& st = s.stage();
  const auto out = [&](std::int64_t v) { return (v + 2 * c.pad - c.k) / c.stride + 1; };
  st.space = {c.n, c.o, out(c.h), out(c.w)};
  st.anchor.op = ir::Op::conv;
  st.anchor.attrs = {{"strides", std::vector<std::int64_t>{c.stride, c.stride}},
                     {"pads", std::vector<std::int64_t>{c.pad, c.pad, c.pad, c.pad}}};
  if (c.type == DType::f32) st.anchor.attrs["compute"] = std::string("tf32");
  st.anchor.inputs = {s.nhwc(c.type, {c.n, c.c, c.h, c.w}, BufferKind::input)};
  st.anchor.weights = s.tensor(c.type, {c.o, c.c, c.k, c.k}, BufferKind::constant);
  auto& p = st.program;
  const int y = p.push(Op::max, p.push(Op::acc_f), p.imm_f(-4));
  if (c.codes) {
    const int q = p.push(Op::div, y, p.imm_f(0.5F));
    p.outputs = {{p.push(Op::f2i, p.push(Op::min, p.push(Op::max, q, p.imm_f(0)), p.imm_f(255))), DType::u8}};
    st.stores = {s.nhwc(DType::u8, st.space)};
  } else {
    p.outputs = {{y, c.type}};
    st.stores = {s.nhwc(c.type, st.space)};
  }
}

std::string run(const FloatCase& c, const cuda::Parameters& parameters, const Edit& edit = {}) {
  Scene s(11);
  build(s, c);
  const cuda::Family& family = c.type == DType::bf16 ? cuda::conv_bf16_family() : cuda::conv_tf32_family();
  // bfloat16: exact products, sums in another order. tf32: operands rounded.
  const float tolerance = c.type == DType::bf16 ? 1e-4F : 0.2F;
  return run_emulated(s, family, parameters, tolerance, edit, scalar_region, kTarget);
}

cuda::Parameters tile(int slices = 1, bool resident = false, int k = 32) {
  cuda::ConvTile t;
  t.m = 32, t.n = 32, t.k = k, t.warps_m = 2, t.warps_n = 1, t.stages = 2, t.slices = slices, t.blocks = 1, t.resident = resident;
  return cuda::spell(t);
}

class ConvFloatEmulated : public EmulatedTest {};

TEST_F(ConvFloatEmulated, ShapesAroundTiles) {
  for (const DType type : {DType::bf16, DType::f32}) {
    FloatCase c;
    c.type = type;
    EXPECT_EQ(run(c, tile()), "") << "3x3";
    c.stride = 2, c.h = 8, c.n = 2;
    EXPECT_EQ(run(c, tile(2)), "") << "3x3/2, depth in two slices";
    c = {type, 1, 48, 5, 7, 33, 1, 1, 0};
    EXPECT_EQ(run(c, tile(1, true)), "") << "1x1, a resident filter, channels beyond the tile";
    c.codes = true;
    if (type == DType::bf16) EXPECT_EQ(run(c, tile(1, false, 64)), "") << "codes";  // tf32 may round some the other way
    c = {type, 1, 3, 9, 8, 32, 3, 2, 1};
    EXPECT_EQ(run(c, tile()), "") << "three channels";
    c = {type, 1, 5, 6, 8, 16, 3, 1, 1};
    EXPECT_EQ(run(c, tile()), "") << "five channels";
  }
}

TEST_F(ConvFloatEmulated, MistakesAreFound) {
  FloatCase c;
  c.n = 9;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, tile(), [&](std::string text) {
      const auto at = text.find(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  EXPECT_NE(planted("        octavo_barrier();\n        copy_next();", "        copy_next();"), "") << "missing barrier";
  EXPECT_NE(planted("kPadTop = 1", "kPadTop = 0"), "") << "wrong border";
  EXPECT_NE(planted("typedef float octavo_sum", "typedef int octavo_sum"), "") << "sums of floats as integers";
}

TEST(ConvFloat, RefusesWhatItCannot) {
  Scene s(3);
  build(s, {DType::f32, 1, 32, 7, 9, 32, 3, 1, 1});
  s.stage().anchor.attrs.erase("compute");
  EXPECT_FALSE(cuda::conv_tf32_family().about(s.region())) << "float32 stays float32 unless tf32 is allowed";
  s.stage().anchor.attrs["compute"] = std::string("tf32");
  s.stage().anchor.attrs["group"] = std::int64_t{1};
  EXPECT_TRUE(cuda::conv_tf32_family().about(s.region()));
  EXPECT_TRUE(cuda::conv_tf32_family().why_not(s.region(), s.plan(), kTarget).empty());
  EXPECT_FALSE(cuda::conv_tf32_family().why_not(s.region(), s.plan(), cuda::Target{"sm_75"}).empty());
}

}  // namespace
}  // namespace octavo::testing
