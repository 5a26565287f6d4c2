// Kernels for sm_75, which has other products of matrices and no asynchronous copies (text/turing.inc), under the emulation against the reference. No run on such a
// GPU stands behind them.
#include <gtest/gtest.h>

#include "cuda/conv_scene.h"
#include "cuda/conv_tiles.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/families/matmul/matmul_mma.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"

namespace octavo::testing {
namespace {

const cuda::Target kTuring{"sm_75", 40, 64 * 1024};  // a T4

class Turing : public EmulatedTest {};

/// The first sets of parameters that a family offers there.
std::string run_conv(const ConvCase& k, const cuda::Family& family, const Edit& edit = {}) {
  ConvScene s(k, 7);
  s.plan.regions = {};
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  const auto all = family.candidates(s.region, s.plan, kTuring);
  for (std::size_t i = 0; i < all.size() && i < 2; ++i) {
    const std::string wrong = run_emulated({s.region, s.plan, s.memory, 0, 7}, family, all[i].parameters, 0, edit, truth, kTuring);
    if (!wrong.empty()) return wrong;
  }
  return all.empty() ? "nothing is offered" : "";
}

ConvCase shape(std::int64_t c, std::int64_t h, std::int64_t o, std::int64_t k, int zero, const char* style) {
  ConvCase out;
  out.n = 1, out.c = c, out.h = h, out.w = h + 2, out.o = o, out.kh = out.kw = k, out.pad = k / 2, out.zero = zero,
  out.style = style;
  return out;
}

TEST_F(Turing, ConvolutionsOfCodes) {
  EXPECT_EQ(run_conv(shape(32, 7, 48, 3, 128, "relu"), cuda::conv_mma_family()), "");
  EXPECT_EQ(run_conv(shape(64, 6, 33, 1, 9, "residual"), cuda::conv_mma_family()), "");
  EXPECT_EQ(run_conv(shape(3, 20, 32, 3, 5, "bias"), cuda::conv_rows_family()), "");
  EXPECT_EQ(run_conv(shape(32, 16, 32, 3, 7, "float"), cuda::conv_window_family()), "");
  ConvCase grouped = shape(64, 8, 64, 3, 5, "relu");
  grouped.groups = 4;
  EXPECT_EQ(run_conv(grouped, cuda::conv_mma_family()), "");
}

std::string run_product(const ProductCase& c, const Edit& edit = {}) {
  Scene s(11);
  build(s, c);
  const auto& family = cuda::matmul_mma_family(c.type);
  const auto all = family.candidates(s.region(), s.plan(), kTuring);
  return run_emulated(s, family, all.at(0).parameters, tolerance_of(c), edit, reference_region, kTuring);
}

TEST_F(Turing, ProductsOfCodesAndFloat16) {
  for (const cuda::ProductType type : {cuda::ProductType::u8, cuda::ProductType::f16}) {
    for (const std::int64_t k : {15, 32, 65}) {
      ProductCase c{type, {2}, 33, 31, k};
      c.zero_left = 9, c.zero_right = 128;
      EXPECT_EQ(run_product(c), "") << c.text();
      c.left = "columns", c.right = "rows", c.gap = 3;
      EXPECT_EQ(run_product(c), "") << c.text();
    }
  }
}

// The functions stand in front of a text, so a mistake in them is another definition.
TEST_F(Turing, MistakesAreFound) {
  const ConvCase k = shape(32, 7, 48, 3, 128, "relu");
  const auto with = [&](std::string_view definition) {
    return run_conv(k, cuda::conv_mma_family(), [&](const std::string& text) { return std::string(definition) + text; });
  };
  EXPECT_EQ(with(""), "") << "nothing planted";
  EXPECT_NE(with("#undef octavo_mma_u8s8\n#define octavo_mma_u8s8(c, a, b0, b1) octavo_parts_u8s8(c, a, b1, b0)\n"), "")
      << "the halves of the depth exchanged on one side";
  EXPECT_NE(with("#undef octavo_mma_u8s8\n#define octavo_mma_u8s8(c, a, b0, b1) octavo_mma_part_u8s8(c[0], c[1], a[0], b0)\n"), "")
      << "three parts of four left out";
}

}  // namespace
}  // namespace octavo::testing
