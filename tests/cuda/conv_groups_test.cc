// Grouped convolutions whose groups no tile holds whole, as the widths of RegNetY: padded groups under the emulation against the reference, codes and float16.
#include <gtest/gtest.h>

#include "cuda/conv_scene.h"
#include "cuda/conv_tiles.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

class ConvGroups : public EmulatedTest {};

ConvCase grouped(std::int64_t groups, std::int64_t of_group, std::int64_t stride, int zero, const char* style) {
  ConvCase k;
  k.n = 1, k.c = k.o = groups * of_group, k.groups = groups, k.h = 6, k.w = 5, k.kh = k.kw = 3, k.pad = 1, k.stride = stride;
  k.zero = zero, k.style = style;
  return k;
}

/// The first sets of parameters that the family offers.
std::string run_codes(const ConvCase& k, const Edit& edit = {}) {
  ConvScene s(k, 7);
  s.plan.regions = {};
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  const cuda::Family& family = cuda::conv_mma_family();
  const auto all = family.candidates(s.region, s.plan, kTarget);
  for (std::size_t i = 0; i < all.size() && i < 3; ++i) {
    const std::string wrong = run_emulated({s.region, s.plan, s.memory, 0, 7}, family, all[i].parameters, 0, edit, truth, kTarget);
    if (!wrong.empty()) return wrong;
  }
  return all.empty() ? "nothing is offered" : "";
}

TEST_F(ConvGroups, CodesOfEveryWidth) {
  EXPECT_EQ(run_codes(grouped(2, 24, 1, 128, "relu")), "");
  EXPECT_EQ(run_codes(grouped(5, 24, 2, 0, "bias")), "");
  EXPECT_EQ(run_codes(grouped(2, 56, 1, 9, "silu")), "");
  EXPECT_EQ(run_codes(grouped(3, 12, 1, 7, "float")), "");
  EXPECT_EQ(run_codes(grouped(2, 40, 2, 255, "relu")), "");
}

TEST_F(ConvGroups, OperandsOfThePixelsAreRefused) {
  const ConvCase k = grouped(2, 24, 1, 3, "residual");
  ConvScene s(k, 7);
  EXPECT_FALSE(cuda::conv_mma_family().why_not(s.region, s.plan, kTarget).empty());
}

/// A convolution of float16, with the sums as floats and as float16.
void build(Scene& s, std::int64_t groups, std::int64_t of_group) {
  auto& st = s.stage();
  const std::int64_t c = groups * of_group;
  st.space = {1, c, 6, 5};
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::Window{.strides = {1, 1}, .dilations = {1, 1}, .pads = {1, 1, 1, 1}, .group = groups};
  st.anchor.inputs = {s.nhwc(DType::f16, {1, c, 6, 5}, BufferKind::input)};
  st.anchor.weights = s.tensor(DType::f16, {c, of_group, 3, 3}, BufferKind::constant);
  auto& p = st.program;
  const int y = p.push(program::Op::mul, p.push(program::Op::acc_f), p.imm_f(0.125F));
  p.outputs = {{y, DType::f32}, {y, DType::f16}};
  st.stores = {s.nhwc(DType::f32, st.space), s.nhwc(DType::f16, st.space)};
}

std::string run_halves(std::int64_t groups, std::int64_t of_group, const Edit& edit = {}) {
  Scene s(11);
  build(s, groups, of_group);
  const cuda::Family& family = cuda::conv_f16_family();
  const auto all = family.candidates(s.region(), s.plan(), kTarget);
  if (all.empty()) return "nothing is offered: " + spelled(family.why_not(s.region(), s.plan(), kTarget));
  return run_emulated(s, family, all[0].parameters, 2e-3F, edit, reference_region, kTarget);
}

TEST_F(ConvGroups, Float16) {
  EXPECT_EQ(run_halves(2, 24), "");
  EXPECT_EQ(run_halves(2, 56), "");
  EXPECT_EQ(run_halves(3, 8), "");
}

TEST_F(ConvGroups, MistakesAreFound) {
  const auto planted = [](std::string_view from, std::string_view to) {
    return [=](std::string text) {
      for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
      return text;
    };
  };
  const ConvCase k = grouped(2, 24, 1, 128, "relu");
  EXPECT_NE(run_codes(k, planted("24 - (", "32 - (")), "") << "channels that were added are stored over those of the next group";
  EXPECT_NE(run_codes(k, planted("% 32) * 1 + (octavo_offset)(c / 32 / 1) * 24", "% 32) * 1 + (octavo_offset)(c / 32 / 1) * 32")),
            "")
      << "groups as far apart as they are padded";
  EXPECT_NE(run_halves(2, 24, planted("24 - (", "32 - (")), "");
}

}  // namespace
}  // namespace octavo::testing
