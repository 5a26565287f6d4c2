// Normalizations, products of computed matrices and run-time quantization against the reference evaluator, over shapes
// around the vectors, row tiles and column blocks of cpu/rows (16 columns, 4 rows, 8 steps, 32 rows of a product).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cpu/families/row_families.h"
#include "cpu/isa.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "program/math.h"
#include "reference/sums.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

class Rows : public ::testing::TestWithParam<const char*> {
 protected:
  /// "cpu.matmul.f32.rows" for this instruction set.
  static std::string tactic(const std::string& family) { return "cpu." + family + ".rows." + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Rows, ::testing::Values("portable", "avx2", "avx512"));

/// acc * 0.5 + another tensor, stored like it.
void add_epilogue(Scene& s, const region::TensorRef& like, const std::vector<int>& order) {
  region::Stage& st = s.stage();
  auto& p = st.program;
  st.operands.push_back({s.tensor(DType::f32, like.dims, BufferKind::arena, order), {}});
  p.operand_count = 1;
  p.outputs = {{p.push(Op::fma, p.push(Op::acc_f), p.imm_f(0.5F), p.load(Op::load_f, 0)), DType::f32}};
  st.stores = {s.tensor(DType::f32, like.dims, BufferKind::arena, order)};
}

void set_norm(Scene& s, ir::Op op, const ir::Shape& x, const std::vector<int>& order, std::int64_t axis) {
  region::Stage& st = s.stage();
  st.space = x;
  st.anchor.op = op;
  st.anchor.facts = testing::facts(st.anchor.op, {{"epsilon", 1e-3}, {"axis", axis}}, x.size());
  const bool layer = op == ir::Op::layer_norm;
  const ir::Shape inner = layer ? ir::Shape(x.begin() + axis, x.end()) : ir::Shape{x[1]};
  st.anchor.inputs = {s.tensor(DType::f32, x, BufferKind::arena, order), s.tensor(DType::f32, inner, BufferKind::constant),
                      s.tensor(DType::f32, inner, BufferKind::constant)};
  add_epilogue(s, st.anchor.inputs[0], order);
}

/// The same bits as the function that programs and the reference compute, over all exponents and around where results end.
TEST_P(Rows, ExponentialsAreTheReferences) {
  if (!cpu::why_lacking({GetParam()}).empty() && std::string(GetParam()) != "portable") GTEST_SKIP() << "needs " << GetParam();
  const cpu::RowKernels& rows = cpu::row_kernels(*cpu::find_isa(GetParam()));
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0xff000000U; bits += 0x00012345U) x.push_back(std::bit_cast<float>(bits));
  for (int i = -10500; i < 9000; ++i) x.push_back(static_cast<float>(i) * 0.01F);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  x.insert(x.end(), {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), -0.0F});
  for (const float less : {0.0F, 3.25F, -80.0F}) {
    std::vector<float> y(x.size() + 1, 7.0F);
    rows.exp_differences(y.data(), x.data(), less, static_cast<std::int64_t>(x.size()));
    EXPECT_EQ(y.back(), 7.0F) << "wrote past the end";
    for (std::size_t i = 0; i < x.size(); ++i) {
      program::FloatOps m;
      const float expected = program::exp(m, x[i] - less);
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(y[i]) ||
                  (std::isnan(expected) && std::isnan(y[i])))
          << x[i] << " - " << less << ": " << y[i] << " instead of " << expected;
    }
  }
}

/// Sums of neighbouring rows are each row's, in the reference's blocks; what is no NaN wins.
TEST_P(Rows, SumsInBlocksAndTheLargest) {
  if (!cpu::why_lacking({GetParam()}).empty() && std::string(GetParam()) != "portable") GTEST_SKIP() << "needs " << GetParam();
  const cpu::RowKernels& kernels = cpu::row_kernels(*cpu::find_isa(GetParam()));
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const std::int64_t rows : {1, 7, 8, 9, 20}) {
    for (const std::int64_t n : {1, 15, 16, 63, 64, 65, 127, 128, 129, 256, 257, 640, 1000}) {
      std::vector<float> x(static_cast<std::size_t>(rows * n)), sums(static_cast<std::size_t>(rows));
      for (float& v : x) v = normal(rng);
      kernels.sums_in_blocks(sums.data(), x.data(), rows, n, n);
      for (std::int64_t r = 0; r < rows; ++r) {
        float* row = x.data() + r * n;
        float best = -std::numeric_limits<float>::infinity();
        row[r % n] = std::numeric_limits<float>::quiet_NaN();
        for (std::int64_t i = 0; i < n; ++i) best = row[i] > best ? row[i] : best;
        EXPECT_EQ(kernels.largest(row, n), best) << rows << " rows of " << n;
        row[r % n] = 0.5F;
        const float sum = reference::sum_in_blocks(n, [&](float so_far, std::int64_t i) { return so_far + row[i]; });
        kernels.sums_in_blocks(sums.data() + r, row, 1, n, n);
        EXPECT_EQ(sums[static_cast<std::size_t>(r)], sum);
      }
      std::vector<float> together(sums);
      kernels.sums_in_blocks(together.data(), x.data(), rows, n, n);
      EXPECT_EQ(together, sums) << rows << " rows of " << n;
    }
  }
}

/// Statistics of rows side by side have the bits of one row's.
TEST_P(Rows, StatisticsOfRowsAreThoseOfOne) {
  if (!cpu::why_lacking({GetParam()}).empty() && std::string(GetParam()) != "portable") GTEST_SKIP() << "needs " << GetParam();
  const cpu::RowKernels& kernels = cpu::row_kernels(*cpu::find_isa(GetParam()));
  constexpr float kEpsilon = 1e-5F;
  for (const std::int64_t rows : {1, 2, 7, 8, 9, 15, 16}) {
    for (const std::int64_t n : {1, 7, 8, 15, 16, 17, 63, 64, 192, 197, 1030}) {
      const std::int64_t step = n + 3;
      std::vector<float> x(static_cast<std::size_t>(rows * step));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919 + 13) % 2003) * 0.0137F - 9.0F;
      std::vector<float> mean(17, 5.0F), inverse(17, 5.0F);
      kernels.statistics(mean.data(), inverse.data(), x.data(), rows, step, n, kEpsilon);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* row = x.data() + r * step;
        const auto count = static_cast<float>(n);
        const float m = kernels.sum(row, n) / count, f = 1.0F / std::sqrt(kernels.squares(row, m, n) / count + kEpsilon);
        EXPECT_EQ(mean[static_cast<std::size_t>(r)], m) << "row " << r << " of " << rows << ", " << n << " elements";
        EXPECT_EQ(inverse[static_cast<std::size_t>(r)], f) << "row " << r << " of " << rows << ", " << n << " elements";
      }
      for (auto r = static_cast<std::size_t>(rows); r < mean.size(); ++r)
        EXPECT_TRUE(mean[r] == 5.0F && inverse[r] == 5.0F) << "wrote past the last row";
    }
  }
}

TEST_P(Rows, InstanceNorm) {
  std::uint32_t seed = 1;
  for (const std::int64_t channels : {1, 3, 8, 15, 16, 17, 40, 70}) {
    for (const auto& [h, w] : {std::pair{1, 1}, {3, 5}, {7, 33}, {40, 40}}) {
      for (const bool planar : {false, true}) {
        Scene s(seed++);
        s.plan().threads = 1 + static_cast<int>(seed % 3);
        set_norm(s, ir::Op::instance_norm, {2, channels, h, w}, planar ? std::vector<int>{} : std::vector<int>{0, 2, 3, 1}, 0);
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("instance_norm"), 2e-5F));
      }
    }
  }
}

TEST_P(Rows, LayerNorm) {
  std::uint32_t seed = 1;
  for (const std::int64_t extent : {1, 7, 16, 31, 64, 257, 1030}) {
    for (const std::int64_t rows : {1, 5, 17, 33}) {
      for (const auto& order : {std::vector<int>{}, {0, 2, 1}}) {  // elements, or rows, are neighbours in memory
        Scene s(seed++);
        s.plan().threads = 1 + static_cast<int>(seed % 3);
        set_norm(s, ir::Op::layer_norm, {2, rows, extent}, order, 2);
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("layer_norm"), 2e-5F));
      }
      Scene stored(seed++);  // nothing behind it: rows are stored as they are computed
      set_norm(stored, ir::Op::layer_norm, {2, rows, extent}, {}, 2);
      region::Stage& st = stored.stage();
      st.operands.clear();
      st.program = {};
      st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
      EXPECT_RUNS(stored.compare(cpu::cpu_provider(), tactic("layer_norm"), 2e-5F));
    }
  }
  Scene s(seed);
  set_norm(s, ir::Op::layer_norm, {3, 4, 5, 6}, {}, 1);
  EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("layer_norm"), 2e-5F));
}

TEST_P(Rows, NormOfScatteredElementsIsRefused) {
  Scene s(1);
  set_norm(s, ir::Op::layer_norm, {2, 3, 4, 5}, {3, 1, 0, 2}, 2);
  const std::string why = s.compare(cpu::cpu_provider(), tactic("layer_norm"));
  EXPECT_NE(why.find("apart in memory"), std::string::npos) << why;
}

TEST_P(Rows, Matmul) {
  std::uint32_t seed = 1;
  for (const std::int64_t m : {1, 3, 4, 31, 32, 33}) {
    for (const std::int64_t n : {1, 15, 16, 65, 300}) {
      for (const std::int64_t k : {1, 9}) {
        Scene s(seed++);
        region::Stage& st = s.stage();
        st.space = {2, 3, m, n};
        st.anchor.op = ir::Op::matmul;
        const std::vector<int> heads_innermost{0, 2, 3, 1}, turned{0, 1, 3, 2};
        st.anchor.inputs = {s.tensor(DType::f32, {2, 3, m, k}, BufferKind::arena, seed % 2 == 0 ? heads_innermost : turned),
                            s.tensor(DType::f32, seed % 3 == 0 ? ir::Shape{1, 3, k, n} : ir::Shape{2, 3, k, n}, BufferKind::arena,
                                     seed % 2 == 0 ? turned : heads_innermost)};
        region::TensorRef out = st.anchor.inputs[0];
        out.dims = st.space;
        add_epilogue(s, out, heads_innermost);
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("matmul.f32") + "@2", 1e-4F));
      }
    }
  }
}

/// Sums that are stored as they are go to their places at once where whole vectors fit there; rows that lie together are not gathered.
TEST_P(Rows, MatmulStoresItsSums) {
  std::uint32_t seed = 1;
  for (const std::int64_t m : {1, 5, 33}) {
    for (const std::int64_t n : {16, 20, 64, 208}) {
      for (const int gap : {0, 7}) {
        for (const bool between : {false, true}) {  // heads lie between rows, as attention has them
          Scene s(seed++);
          region::Stage& st = s.stage();
          const std::vector<int> order = between ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{};
          st.space = {2, 3, m, n};
          st.anchor.op = ir::Op::matmul;
          st.anchor.inputs = {s.tensor(DType::f32, {2, 3, m, 21}, BufferKind::arena, order, gap),
                              s.tensor(DType::f32, {2, 3, 21, n}, BufferKind::arena, order, gap)};
          st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
          st.stores = {s.tensor(DType::f32, st.space, BufferKind::arena, order, gap)};
          EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("matmul.f32") + "@2", 1e-4F));
        }
      }
    }
  }
}

TEST_P(Rows, DynamicQuantize) {
  std::uint32_t seed = 1;
  for (const std::int64_t channels : {1, 5, 16, 33}) {
    for (const std::int64_t width : {1, 7, 33, 700}) {
      for (int variant = 0; variant < 4; ++variant) {
        Scene s(seed++);
        region::Stage& st = s.stage();
        const ir::Shape x{1, channels, 3, width};
        const std::vector<int> innermost{0, 2, 3, 1};
        st.space = x;
        st.anchor.op = ir::Op::dynamic_quantize;
        st.anchor.inputs = {s.tensor(DType::f32, x, BufferKind::arena, (variant & 1) != 0 ? innermost : std::vector<int>{})};
        st.stores = {s.tensor(DType::u8, x, BufferKind::arena, (variant & 2) != 0 ? innermost : std::vector<int>{}),
                     s.tensor(DType::f32, {}), s.tensor(DType::u8, {})};
        float* values = reinterpret_cast<float*>(s.memory[0].data() + 64);
        const std::int64_t n = ir::count(x);
        for (std::int64_t i = 0; i < n; ++i) {
          if (seed % 5 == 1) values[i] = std::abs(values[i]);  // 0 is below all
          if (seed % 5 == 2) values[i] = 0;
          if (seed % 5 == 3 && i % 11 == 3) values[i] = std::numeric_limits<float>::quiet_NaN();
        }
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("dynamic_quantize")));
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
