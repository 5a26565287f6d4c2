// Products of two computed matrices under emulation: shapes around tiles, every layout and type, zero points, epilogues, against the reference
// evaluator; and mistakes planted in their text.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/families/matmul/matmul_mma.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using cuda::MatmulTile;
using cuda::ProductType;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

MatmulTile tile(int m = 32, int n = 32, int k = 32, int warps_m = 2, int warps_n = 1, int stages = 2) {
  return {m, n, k, warps_m, warps_n, stages, 1};
}

std::string run(const ProductCase& c, const MatmulTile& t, const Edit& edit = {}) {
  Scene s(11);
  build(s, c);
  return run_emulated(s, cuda::matmul_mma_family(c.type), cuda::spell(t), tolerance_of(c), edit, reference_region, kTarget);
}

class MatmulEmulated : public EmulatedTest {};

TEST_F(MatmulEmulated, CodesOfEveryZeroPoint) {
  ProductCase c{ProductType::u8, {2}, 33, 31, 70};
  for (const auto& [left, right] : {std::pair{0, 0}, {128, 128}, {0, 128}, {128, 0}, {255, 3}, {128, 77}, {130, 128}}) {
    c.zero_left = left, c.zero_right = right;
    EXPECT_EQ(run(c, tile()), "") << c.text();
  }
}

TEST_F(MatmulEmulated, ExtentsAroundTiles) {
  const ProductType types[] = {ProductType::u8, ProductType::bf16, ProductType::f16, ProductType::f32};
  int turn = 0;
  EveryOther some;
  for (const std::int64_t m : {1, 31, 32, 33}) {
    for (const std::int64_t k : {1, 15, 32, 65}) {
      ProductCase c{types[turn % 4], {3}, m, m == 32 ? 64 : 66 - m, k};
      c.zero_left = 9, c.zero_right = 128, c.style = turn % 3 == 0 ? "codes" : "channel";
      if (some.takes(m, k, c.type, c.style)) EXPECT_EQ(run(c, tile(32, 32, 32, 2, 1, 2 + turn % 3)), "") << c.text();
      ++turn;
    }
  }
}

TEST_F(MatmulEmulated, LayoutsOfAttention) {
  for (const ProductType type : {ProductType::u8, ProductType::bf16, ProductType::f32}) {
    ProductCase c{type, {2, 3}, 37, 37, 64};  // Q K^T: heads between rows and columns
    c.left = "heads", c.right = "heads-columns", c.zero_left = 128, c.zero_right = 128, c.style = "codes";
    EXPECT_EQ(run(c, tile(32, 32, 64)), "") << c.text();
    c = {type, {2, 3}, 37, 64, 37};  // P V: rows of any length, vectors of neighbouring columns
    c.right = "heads", c.stored = "heads", c.zero_right = 128;
    EXPECT_EQ(run(c, tile(32, 64, 64, 2, 1, 3)), "") << c.text();
  }
}

TEST_F(MatmulEmulated, EveryLayoutOfBothSides) {
  for (const ProductType type : {ProductType::u8, ProductType::f16, ProductType::tf32}) {
    for (const char* left : {"rows", "columns", "heads", "heads-columns"}) {
      ProductCase c{type, {2, 3}, 20, 24, 36};
      c.left = left, c.right = left[0] == 'c' ? "rows" : "heads", c.gap = left[0] == 'h' ? 4 : 1, c.zero_left = 5,
      c.zero_right = 200;
      EXPECT_EQ(run(c, tile(32, 16, 64, 2, 1, 2)), "") << c.text();
    }
  }
}

TEST_F(MatmulEmulated, BatchesThatJoinOrAreShared) {
  ProductCase c{ProductType::u8, {2, 3}, 5, 40, 48};
  c.shared_right = true, c.zero_left = 128, c.zero_right = 128, c.style = "residual";
  Scene s(1);
  build(s, c);
  const auto shape = cuda::read_product(s.stage(), s.plan(), c.type);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->m(), 30) << "all rows meet one right matrix";
  EXPECT_EQ(shape->batch(), 1);
  EXPECT_EQ(run(c, tile()), "") << c.text();
  c.shared_right = false, c.shared_left = true, c.type = ProductType::bf16;
  EXPECT_EQ(run(c, tile()), "") << c.text();
  c = {ProductType::f32, {2, 2, 2, 3}, 9, 9, 20};
  c.left = "heads";
  EXPECT_EQ(run(c, tile()), "") << c.text() << ": dimensions that lie evenly are one";
}

TEST_F(MatmulEmulated, ResultsAlongTheRowsOfTheLeftMatrix) {
  for (const ProductType type : {ProductType::u8, ProductType::bf16}) {
    ProductCase c{type, {2}, 48, 21, 40};
    c.stored = "columns", c.style = "residual", c.zero_left = 128, c.zero_right = 9;
    EXPECT_EQ(run(c, tile()), "") << c.text();
    c = {type, {3}, 40, 1, 33};
    c.zero_left = 3;
    EXPECT_EQ(run(c, tile()), "") << c.text() << ": a vector";
  }
}

TEST_F(MatmulEmulated, EveryTileThatIsOffered) {
  ProductCase c{ProductType::u8, {1}, 130, 132, 200};
  c.zero_left = 128, c.zero_right = 100, c.style = "codes";
  Scene s(1);
  build(s, c);
  const auto all = cuda::matmul_mma_family(c.type).candidates(s.region(), s.plan(), kTarget);
  std::set<std::string> seen;
  for (const cuda::EstimatedTactic& x : all) {
    const auto t = cuda::parse<cuda::MatmulTile>(x.parameters, "matmul");
    ASSERT_TRUE(t);
    if (!seen.insert(fmt::format("{}x{} {}x{}", t->m, t->n, t->warps_m, t->warps_n)).second) continue;
    EXPECT_EQ(run(c, *t), "") << c.text() << " tile " << x.parameters.at("tile");
  }
  EXPECT_GE(seen.size(), 8U);
  EXPECT_FALSE(cuda::parse<cuda::MatmulTile>({{"tile", "64x64"}}, "matmul"));
}

TEST_F(MatmulEmulated, MistakesAreFound) {
  ProductCase c{ProductType::u8, {2}, 45, 40, 150};
  c.left = "rows", c.right = "rows", c.zero_left = 77, c.zero_right = 3, c.gap = 10;  // aligned rows; the right side turned
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, tile(), [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_barrier();  // behind", "// behind"), "") << "missing barrier";
  EXPECT_NE(planted("octavo_copy_wait<kAhead - 1>();", "octavo_copy_wait<kAhead>();"), "") << "waits for one copy too few";
  EXPECT_NE(planted("kZeroRight * totals.rows", "0 * totals.rows"), "") << "no sums of rows";
  EXPECT_NE(planted("kZeroLeft * totals.columns", "0 * totals.columns"), "") << "no sums of columns";
  EXPECT_NE(planted("const int left = inside ? kDepth - byte - piece : 0;", "const int left = inside ? 16 : 0;"), "")
      << "reads behind the depth";
  EXPECT_NE(planted("const bool inside = at < Side::kCount;", "const bool inside = at <= Side::kCount + 4;"), "")
      << "reads behind the rows";
  EXPECT_NE(planted("Side::kPermuted ? octavo_row_of(row) : row, word / 4", "row, word / 4"), "") << "columns in another order";
  EXPECT_NE(planted("0x5140u", "0x5410u"), "") << "bytes turned the wrong way";
  EXPECT_NE(planted("right += matrix / kInner * kRightOuter + matrix % kInner * kRightInner;", ""), "")
      << "one right matrix for all";
  EXPECT_NE(planted("row < kM ? matrix * kM + row : -1", "row <= kM ? matrix * kM + row : -1"), "") << "a row too many";
  c.gap = 1, c.zero_left = 128;  // rows from any byte on
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("word & ((1u << (8 * left)) - 1u)", "word"), "") << "bytes behind the depth";
  EXPECT_NE(planted("0x1111u * (unsigned)turn", "0u"), "") << "not shifted into place";
  EXPECT_NE(planted("kFlipLeft = 0x80808080u", "kFlipLeft = 0u"), "") << "codes that are not flipped";
}

TEST_F(MatmulEmulated, MistakesInWholeFloatsAreFound) {
  ProductCase c{ProductType::f32, {2}, 45, 40, 150};
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, tile(), [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_mma_tf32(part, low[i], right_meets[2 * c], right_meets[2 * c + 1]);", ""), "")
      << "one product of three is left out";
  EXPECT_NE(planted("octavo_mma_tf32(part, meets_low[i], right_low[2 * c], right_low[2 * c + 1]);", ""), "") << "another one";
}

TEST(Matmul, RefusesWhatItCannot) {
  const auto refused = [](const ProductCase& c, const std::function<void(Scene&)>& change, const cuda::Target& target = kTarget) {
    Scene s(3);
    build(s, c);
    change(s);
    const auto& f = cuda::matmul_mma_family(c.type);
    return f.about(s.region()) ? spelled(f.why_not(s.region(), s.plan(), target)) : "silent";
  };
  const ProductCase codes{ProductType::u8, {2}, 16, 16, 32};
  EXPECT_EQ(refused(codes, [](Scene&) {}), "");
  EXPECT_NE(refused(codes, [](Scene& s) { s.stage().anchor.inputs[1].quantizer.reset(); }), "");
  EXPECT_NE(refused(codes, [](Scene& s) { s.stage().anchor.inputs[1].dims[1] = 31; }), "");
  EXPECT_EQ(refused(codes, [](Scene& s) { s.stage().anchor.integer = false; }), "silent");
  const ProductCase floats{ProductType::f32, {2}, 16, 16, 32};
  EXPECT_NE(refused(
                floats, [](Scene&) {}, cuda::Target{"sm_75"}),
            "")
      << "no products of tf32";
  EXPECT_EQ(refused(floats, [](Scene& s) { s.stage().anchor.as<ir::Product>().arithmetic = ir::Arithmetic::tf32; }), "silent")
      << "what may be rounded is rounded";
}

TEST(Matmul, TakesAttentionBeforeAThreadAnElement) {
  ProductCase c{ProductType::f32, {64, 12}, 197, 197, 64};
  c.m = 50, c.n = 50, c.batch = {4, 12};
  Scene s(1);
  build(s, c);
  const double here = cuda::matmul_mma_family(c.type).candidates(s.region(), s.plan(), kTarget).at(0).seconds;
  EXPECT_LT(here, cuda::matmul_family().candidates(s.region(), s.plan(), kTarget).at(0).seconds);
}

/// The rows of the table: a family each for the types that products have.
TEST(MatmulFamilies, EachTypeHasItsRow) {
  EXPECT_EQ(&cuda::matmul_mma_family(ProductType::u8), &cuda::matmul_u8_family());
  EXPECT_EQ(&cuda::matmul_mma_family(ProductType::bf16), &cuda::matmul_bf16_family());
  EXPECT_EQ(&cuda::matmul_mma_family(ProductType::f16), &cuda::matmul_f16_family());
  EXPECT_EQ(&cuda::matmul_mma_family(ProductType::tf32), &cuda::matmul_tf32_family());
  EXPECT_EQ(&cuda::matmul_mma_family(ProductType::f32), &cuda::matmul_f32_family());
}

class MatmulTexts : public ::testing::TestWithParam<cuda::Architecture> {
 protected:
  void SetUp() override {
    if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(MatmulTexts, Compile) {
  for (const ProductType type : {ProductType::u8, ProductType::bf16, ProductType::f16, ProductType::tf32, ProductType::f32}) {
    if (GetParam() == cuda::Architecture("sm_75") && type != ProductType::u8 && type != ProductType::f16)
      continue;  // no such products
    ProductCase c{type, {2, 3}, 197, 64, 197};
    c.right = "heads", c.zero_left = 3, c.zero_right = 128;
    Scene s(1);
    build(s, c);
    const cuda::Target target{GetParam()};
    const auto& family = cuda::matmul_mma_family(type);
    const auto text = family.emit(s.region(), s.plan(), family.candidates(s.region(), s.plan(), target).at(0).parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    EXPECT_TRUE(code) << family.name() << ": " << code.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(For, MatmulTexts, ::testing::ValuesIn(architectures()));

}  // namespace
}  // namespace octavo::testing
