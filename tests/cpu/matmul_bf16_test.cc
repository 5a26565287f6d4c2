// Products of two matrices of bfloat16, by name on each level, against the reference within the tolerance of float sums: shapes around the tiles (12
// rows by 32 columns in registers, 16 rows and columns of AMX, pairs of a dword, 32 elements of a tile), all layouts that packing tells apart, and what is no
// number beside the elements of a sum.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/half.h"
#include "cpu/matmul_scene.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

using namespace matmul;

class MatmulBf16 : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.matmul.bf16.rows.") + GetParam(); }
  static std::string compare(Scene& s) { return s.compare(cpu::cpu_provider(), tactic(), 1e-5F); }
};
INSTANTIATE_TEST_SUITE_P(Level, MatmulBf16, ::testing::Values("avx512bf16", "amx"));

/// A product whose sums are scaled, and stored as floats or rounded to bfloat16.
void set(Scene& s, const Sizes& n, const Layout& layout, bool rounds, int gap = 0, BufferKind right = BufferKind::arena) {
  region::Stage& st = s.stage();
  const Shape space = st.space = product_space(n);
  st.anchor.op = ir::Op::matmul;
  st.anchor.inputs = {s.tensor(DType::bf16, n.left, BufferKind::arena, layout.left, gap, 1.0F),
                      s.tensor(DType::bf16, n.right, right, layout.right, gap, 1.0F)};
  auto& p = st.program;
  const int v = p.push(Op::mul, p.push(Op::acc_f), p.imm_f(0.25F));
  p.outputs = {{v, rounds ? DType::bf16 : DType::f32}};
  st.stores = {s.tensor(rounds ? DType::bf16 : DType::f32, space)};
}

TEST_P(MatmulBf16, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t rows : {1, 4, 5, 12, 13, 16, 17, 33, 49}) {
    for (const std::int64_t depth : {1, 2, 3, 31, 32, 33, 64, 65, 197}) {
      const std::int64_t columns = std::array{1, 15, 16, 17, 32, 48, 70}[seed % 7];
      Scene s(seed++);
      set(s, {{2, rows, depth}, {2, depth, columns}}, {}, seed % 2 == 0);
      EXPECT_RUNS(compare(s));
    }
  }
}

TEST_P(MatmulBf16, Layouts) {
  const std::vector<int> rows{0, 1, 2, 3}, turned{0, 1, 3, 2}, between{0, 2, 1, 3}, apart{2, 3, 0, 1}, turned_between{0, 3, 1, 2};
  std::uint32_t seed = 100;
  for (const auto& left : {rows, turned, between, apart, turned_between}) {
    for (const auto& right : {rows, turned, between, apart, turned_between}) {
      for (const std::int64_t depth : {30, 35, 1}) {
        for (const std::int64_t columns : {37, 1}) {
          Scene s(seed++);
          set(s, {{2, 3, 21, depth}, {2, 3, depth, columns}}, {left, right}, seed % 2 == 0, static_cast<int>(seed % 3));
          EXPECT_RUNS(compare(s));
        }
      }
    }
  }
}

TEST_P(MatmulBf16, BroadcastBatchesAndConstants) {
  std::uint32_t seed = 300;
  for (const Sizes& n :
       {Sizes{{3, 1, 9, 20}, {4, 20, 18}}, {{9, 20}, {2, 2, 20, 18}}, {{1, 5, 9, 20}, {20, 18}}, {{9, 20}, {20, 18}}}) {
    Scene s(seed++);
    set(s, n, {}, false, 0, seed % 2 == 0 ? BufferKind::constant : BufferKind::arena);
    EXPECT_RUNS(compare(s));
  }
}

/// A right matrix that scratch holds in several blocks of columns, and tasks of other sizes.
TEST_P(MatmulBf16, BlocksOfColumnsAndRows) {
  std::uint32_t seed = 400;
  for (const char* rows : {"16", "96"}) {
    Scene s(seed++);
    set(s, {{20, 6000}, {6000, 150}}, {}, false);
    s.parameters["rows"] = rows;
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(), 1e-3F));  // sums of 6000, of either sign
  }
}

/// Between the rows of both matrices lies what is no number: nothing of it may join a sum. And an infinity is multiplied with the elements of its own sums
/// alone.
TEST_P(MatmulBf16, NothingElseJoinsASum) {
  std::uint32_t seed = 500;
  for (const std::int64_t depth : {1, 5, 31, 33}) {
    for (const bool turned : {false, true}) {
      Scene s(seed++);
      const std::vector<int> order = turned ? std::vector<int>{1, 0} : std::vector<int>{};
      set(s, {{19, depth}, {depth, 21}}, {order, order}, false, 3);
      for (const region::TensorRef& t : s.stage().anchor.inputs) {
        const std::int64_t inner = t.strides[0] == 1 ? t.dims[0] : t.dims[1], outer = t.strides[0] == 1 ? t.dims[1] : t.dims[0];
        auto* const words = s.memory[static_cast<std::size_t>(t.buffer)].data() + 64;
        const std::uint16_t nan = 0x7fc0;
        for (std::int64_t r = 0; r + 1 < outer; ++r) {
          for (std::int64_t i = inner; i < inner + 3; ++i) std::memcpy(words + (r * (inner + 3) + i) * 2, &nan, 2);
        }
        const std::uint16_t most = f32_to_bf16(3e38F);
        std::memcpy(words, &most, 2);
      }
      EXPECT_RUNS(compare(s));
    }
  }
}

TEST_P(MatmulBf16, Refusals) {
  Scene s(7);
  set(s, {{4, 8}, {8, 16}}, {}, false);
  s.stage().anchor.inputs[1] = s.tensor(DType::f32, {8, 16});
  const std::string why = s.compare(cpu::cpu_provider(), tactic());
  if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
  EXPECT_NE(why.find("types of the matrices"), std::string::npos) << why;
}

}  // namespace
}  // namespace octavo::testing
