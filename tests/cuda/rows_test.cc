// Softmax and norms of rows under emulation: lengths around a warp, a run and a block of terms, every layout and type, extremes, against the
// reference evaluator bit for bit; and mistakes planted in their text.
#include "cuda/families/rows/rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/rows_scene.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using cuda::RowTile;
using ir::DType;
using ir::Op;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

/// Changes x behind the scene's seeded values.
using Change = std::function<void(float*, std::size_t)>;

std::string run(const RowCase& c, const RowTile& t = {4, 2}, const Edit& edit = {}, const Change& change = {}) {
  Scene s(7);
  build(s, c);
  if (change) {
    auto& bytes = s.memory[static_cast<std::size_t>(s.stage().anchor.inputs[0].buffer)];
    change(reinterpret_cast<float*>(bytes.data() + 64), (bytes.size() - 128) / 4);  // NOLINT: kGuard of family_scene.cc
  }
  return run_emulated(s, family_of(c.op), cuda::spell(t), 0, edit, reference_region, kTarget);
}

class RowsEmulated : public EmulatedTest {};

TEST_F(RowsEmulated, LengthsAroundLanesRunsAndChains) {
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    for (const std::int64_t n : {1, 7, 33, 128, 130, 197, 516, 1027})
      EXPECT_EQ(run({op, {3, n}}), "") << ir::name_of(op) << " of " << n;
  }
  for (const std::int64_t n : {1, 197}) EXPECT_EQ(run({Op::log_softmax, {3, n}}), "") << n;
}

TEST_F(RowsEmulated, TilesOfRows) {
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    for (const RowTile& t : {RowTile{1, 1}, {8, 8}, {32, 2}, {64, 4}}) {
      for (const std::int64_t rows : {1, 70})
        EXPECT_EQ(run({op, {rows, 300}}, t), "") << ir::name_of(op) << " " << t.rows << " " << rows;
    }
  }
}

TEST_F(RowsEmulated, TypesLayoutsAndStores) {
  int turn = 0;
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    for (const char* style : {"mul", "codes", "types", "residual"}) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        RowCase c{op};
        c.type = type, c.style = style, c.order = {0, 2, 1, 3};
        c.gap = std::array{0, 3, 8}[static_cast<std::size_t>(turn / 3 + turn) % 3];
        ++turn;
        c.given = turn % 2 == 0 ? type : DType::f32;
        EXPECT_EQ(run(c), "") << ir::name_of(op) << " " << ir::name_of(type) << " " << style << " gap " << c.gap;
      }
    }
  }
}

/// Eight elements of 16 bits are read and written as 16 bytes.
TEST_F(RowsEmulated, SixteenBitsInVectorsOfSixteenBytes) {
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      RowCase c{op, {3, 5, 264}};
      c.type = c.given = type, c.style = "types";
      const auto as_bytes = [](std::string text) { return edited(text, "constexpr int kRun = 8;", "constexpr int kRun = 8; "); };
      EXPECT_EQ(run(c, {4, 2}, as_bytes), "") << ir::name_of(op) << " " << ir::name_of(type);
    }
  }
}

TEST_F(RowsEmulated, OtherAxesThatLieInOnePiece) {
  RowCase c{Op::softmax, {2, 34, 3, 2}, 1};
  c.order = {0, 2, 3, 1};
  EXPECT_EQ(run(c), "");
  EXPECT_EQ(run({Op::layer_norm, {3, 2, 5, 26}, 2}), "");
  EXPECT_EQ(run({Op::instance_norm, {2, 3, 5, 28}}), "");
  RowCase plain{Op::layer_norm, {3, 140}};
  plain.bias = false;
  EXPECT_EQ(run(plain), "");
  plain.op = Op::instance_norm, plain.space = {2, 2, 300}, plain.bias = true;
  EXPECT_EQ(run(plain), "");
}

TEST_F(RowsEmulated, Extremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLargest = std::numeric_limits<float>::max();
  for (const Op op : {Op::softmax, Op::log_softmax}) {
    const RowCase c{op, {5, 70}};
    EXPECT_EQ(run(c, {4, 2}, {},
                  [&](float* x, std::size_t n) {
                    for (std::size_t i = 0; i < n; ++i) x[i] = i % 3 == 0 ? x[i] : -kInfinity;  // as masks have them
                  }),
              "");
    EXPECT_EQ(run(c, {4, 2}, {},
                  [&](float* x, std::size_t n) {
                    for (std::size_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? kLargest : -kLargest;
                  }),
              "");
    EXPECT_EQ(run(c, {4, 2}, {},
                  [&](float* x, std::size_t n) {
                    for (std::size_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
                  }),
              "");
  }
  EXPECT_EQ(run({Op::layer_norm, {5, 300}}, {4, 2}, {},
                [&](float* x, std::size_t n) {
                  for (std::size_t i = 0; i < n; ++i) x[i] = i % 7 == 0 ? 1e18F : 1e-40F;
                }),
            "");
}

TEST_F(RowsEmulated, MistakesAreFound) {
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    const RowCase c{op, {7, 3, 300}};
    const auto planted = [&](std::string_view from, std::string_view to) {
      return run(c, {8, 4}, [&](std::string text) { return edited(std::move(text), from, to); });
    };
    EXPECT_EQ(planted("kRows", "kRows"), "") << "nothing planted";
    EXPECT_NE(planted("octavo_barrier();  // behind the rows", ""), "") << "missing barrier";
    EXPECT_NE(planted("octavo_barrier();  // behind the sums", ""), "") << "missing barrier";
    EXPECT_NE(planted("kCount - first < (unsigned)kRows ? (int)(kCount - first) : kRows", "kRows"), "") << "rows behind the last";
    EXPECT_NE(planted("if (i < kExtent) octavo_load_x", "octavo_load_x"), "") << "reads behind a row";
    EXPECT_NE(planted("row += kWarps", "row += kWarps + 1"), "") << "a row is left out";
    EXPECT_NE(planted("__fadd_rn(sum, e[k])", "__fadd_rn(sum, e[kAhead - 1 - k])"), "") << "sums in another order";
  }
}

TEST(Rows, RefusesWhatItCannot) {
  const auto refused = [](const RowCase& c, const std::function<void(Scene&)>& change = {}) {
    Scene s(3);
    build(s, c);
    if (change) change(s);
    return spelled(family_of(c.op).why_not(s.region(), s.plan(), kTarget));
  };
  EXPECT_EQ(refused({Op::softmax, {4, 50}}), "");
  EXPECT_NE(refused({Op::softmax, {4, 50}, 0}), "") << "rows that do not lie in one piece";
  EXPECT_NE(refused({Op::softmax, {4, 100000}}), "") << "a row beyond the shared memory";
  EXPECT_EQ(refused({Op::softmax, {4, 64 * 128 + 1}}), "");
  EXPECT_NE(refused({Op::layer_norm, {4, 448 * 128 + 1}}), "") << "too many blocks of terms";
  RowCase turned{Op::instance_norm, {2, 8, 5, 6}};
  turned.order = {0, 2, 3, 1};
  EXPECT_NE(refused(turned), "") << "a plane whose neighbours are other channels";
  EXPECT_NE(refused({Op::softmax, {4, 50}}, [](Scene& s) { s.stage().anchor.inputs[0].dtype = DType::s32; }), "");
  EXPECT_FALSE(cuda::parse<cuda::RowTile>({{"rows", "4"}}, "norm.rows"));
}

TEST(Rows, ComeBeforeAThreadARow) {
  for (const Op op : {Op::softmax, Op::layer_norm}) {
    const RowCase c{op, {8, 12, 50, 197}};
    Scene s(1);
    build(s, c);
    const auto& other = is_softmax(op) ? cuda::softmax_family() : cuda::norm_family();
    EXPECT_LT(family_of(op).candidates(s.region(), s.plan(), kTarget).at(0).seconds,
              other.candidates(s.region(), s.plan(), kTarget).at(0).seconds);
  }
}

class RowTexts : public ::testing::TestWithParam<cuda::Architecture> {
 protected:
  void SetUp() override {
    if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(RowTexts, Compile) {
  for (const Op op : {Op::softmax, Op::log_softmax, Op::layer_norm, Op::instance_norm}) {
    for (const char* style : {"types", "residual"}) {
      RowCase c{op, op == Op::instance_norm ? ir::Shape{2, 3, 300} : ir::Shape{2, 3, 5, 300}};
      c.style = style;
      Scene s(1);
      build(s, c);
      const cuda::Target target{GetParam()};
      const auto& family = family_of(op);
      const auto text = family.emit(s.region(), s.plan(), family.candidates(s.region(), s.plan(), target).at(0).parameters, target);
      ASSERT_TRUE(text) << text.error().message;
      const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
      EXPECT_TRUE(code) << family.name() << ": " << code.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(For, RowTexts, ::testing::ValuesIn(architectures()));

}  // namespace
}  // namespace octavo::testing
