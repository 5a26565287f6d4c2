// Images stored plane by plane that become codes: by a kernel of their own, and on their way into a first layer.
#include "cuda/families/planar.h"

#include <gtest/gtest.h>

#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

class Planes : public EmulatedTest {};

/// Codes of (x - mean[c]) / 0.043, with a zero point.
region::Stage codes_of(Scene& s, const ir::Shape& shape, DType type, const region::TensorRef& codes, int zero) {
  region::Stage st;
  st.space = shape;
  st.operands = {{s.tensor(type, shape, BufferKind::input), {}}, {s.along(DType::f32, shape, 1), {}}};
  st.stores = {codes};
  auto& p = st.program;
  p.operand_count = 2;
  int x = type == DType::u8 ? p.push(Op::mul, p.push(Op::i2f, p.load(Op::load_i, 0)), p.imm_f(0.02F)) : p.load(Op::load_f, 0);
  x = p.push(Op::div, p.push(Op::sub, x, p.load(Op::load_f, 1)), p.imm_f(0.043F));
  x = p.push(Op::min, p.push(Op::max, x, p.imm_f(static_cast<float>(-zero))), p.imm_f(static_cast<float>(255 - zero)));
  p.outputs = {{p.push(Op::add_i, p.push(Op::f2i, x), p.imm_i(zero)), DType::u8}};
  return st;
}

TEST_F(Planes, BecomeCodes) {
  std::uint32_t seed = 1;
  for (const ir::Shape& shape : {ir::Shape{2, 3, 6, 8}, ir::Shape{1, 1, 5, 12}, ir::Shape{2, 4, 33, 36}, ir::Shape{2, 3, 2, 6}}) {
    for (const DType type : {DType::f32, DType::f16, DType::u8}) {
      Scene s(seed++);
      s.stage() = codes_of(s, shape, type, s.nhwc(DType::u8, shape), 117);
      EXPECT_EQ(run_emulated(s, cuda::planar_family()), "") << ir::to_string(shape);
    }
  }
}

TEST_F(Planes, RefusalsNameTheValues) {
  Scene s(1);
  const ir::Shape shape{1, 3, 3, 5};
  s.stage() = codes_of(s, shape, DType::f32, s.nhwc(DType::u8, shape), 0);
  EXPECT_EQ(cuda::planar_family().why_not(s.region(), s.plan(), {}),
            region::unmet("bytes between planes or images", 60, "a multiple of 16"));
}

struct FirstLayer {
  ir::Shape x;
  std::int64_t outputs, kernel, stride;
  int zero;
  DType type;
};

std::string first_layer(const FirstLayer& k, const Edit& edit = {}) {
  Scene s(static_cast<std::uint32_t>(k.zero + 3));
  auto& conv = s.stage();
  const std::int64_t pad = k.kernel / 2, high = (k.x[2] + 2 * pad - k.kernel) / k.stride + 1,
                     wide = (k.x[3] + 2 * pad - k.kernel) / k.stride + 1;
  conv.space = {k.x[0], k.outputs, high, wide};
  conv.anchor.op = ir::Op::conv;
  conv.anchor.integer = true;
  conv.anchor.facts = ir::Window{.strides = {k.stride, k.stride}, .dilations = {1, 1}, .pads = {pad, pad, pad, pad}};
  const region::TensorRef codes = s.nhwc(DType::u8, k.x);
  conv.anchor.inputs = {codes};
  conv.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.043F, k.zero);
  conv.anchor.weights = s.tensor(DType::s8, {k.outputs, k.x[1], k.kernel, k.kernel}, BufferKind::constant);
  s.requantize(1, 0.01F);
  conv.stores = {s.nhwc(DType::u8, conv.space, BufferKind::output)};
  region::Stage first = codes_of(s, k.x, k.type, codes, k.zero);
  s.region().stages.insert(s.region().stages.begin(), std::move(first));
  const cuda::Parameters tile{{"tile", "2x16"}, {"channels", "16"}, {"warps", "2"}, {"group", "1"}, {"blocks", "1"}};
  const auto truth = [&](const region::Region& r, const region::Memory& m) {  // codes are not to be in memory
    const auto bytes = static_cast<std::size_t>(ir::count(k.x));
    const std::vector<std::byte> before(m.at(codes), m.at(codes) + bytes);
    scalar_region(r, m);
    std::copy(before.begin(), before.end(), m.at(codes));
  };
  return run_emulated(s, cuda::conv_rows_family(), tile, 0, edit, truth, {"sm_80", 108, 163 * 1024});
}

TEST_F(Planes, BecomeCodesInAFirstLayer) {
  for (const FirstLayer& k :
       {FirstLayer{{1, 3, 13, 40}, 16, 7, 2, 114, DType::f32}, FirstLayer{{2, 3, 6, 16}, 12, 3, 2, 0, DType::f32},
        FirstLayer{{1, 3, 5, 36}, 20, 3, 1, 255, DType::u8}, FirstLayer{{1, 1, 6, 20}, 8, 5, 1, 9, DType::f16},
        FirstLayer{{1, 4, 5, 8}, 16, 3, 1, 128, DType::f32}})
    EXPECT_EQ(first_layer(k), "") << ir::to_string(k.x);
}

TEST_F(Planes, PlantedMistakesAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to) {
    return first_layer({{1, 3, 7, 20}, 16, 3, 2, 77, DType::f32},
                       [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_NE(planted("(unsigned)column < (unsigned)kInW", "column < kInW"), "") << "columns before the first";
  EXPECT_NE(planted("< (unsigned)kInH && (unsigned)column", "<= (unsigned)kInH && (unsigned)column"), "") << "wrong halo";
  EXPECT_NE(planted("words[c] = 0x01010101u * kFillCode", "words[c] = 0x01010101u * (kFillCode - 1)"), "") << "wrong zero point";
  EXPECT_NE(planted("octavo_put_quad<kShift + 4 / kPhases>", "octavo_put_quad<kShift>"), "") << "copies alike";
}

}  // namespace
}  // namespace octavo::testing
