// Products of two matrices of codes, by name on each level, against the reference, bit for bit: shapes around the tiles (12 and 6 rows in registers, 16
// rows of AMX, 16 columns, 4 codes of a dword, 64 of a tile), all layouts that packing tells apart, zero points at both ends and codes at their extremes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "cpu/matmul_scene.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

using namespace matmul;

class MatmulCodes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.matmul.u8u8.rows.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, MatmulCodes, ::testing::Values("portable", "avx2", "avx512vnni", "amx"));

region::TensorRef codes(Scene& s, Shape dims, const std::vector<int>& order, std::int32_t zero, int gap) {
  region::TensorRef t = s.tensor(DType::u8, std::move(dims), BufferKind::arena, order, gap);
  t.quantizer = ir::Quantizer{};
  t.quantizer->type = DType::u8;
  t.quantizer->scale = {0.05F};
  t.quantizer->zero_point = {zero};
  return t;
}

/// A product whose sums are scaled and stored as floats, or rounded to codes.
void set(Scene& s, const Sizes& n, const Layout& layout, std::array<std::int32_t, 2> zero, bool rounds, int gap = 0) {
  region::Stage& st = s.stage();
  const Shape space = st.space = product_space(n);
  st.anchor.op = ir::Op::matmul;
  st.anchor.integer = true;
  st.anchor.inputs = {codes(s, n.left, layout.left, zero[0], gap), codes(s, n.right, layout.right, zero[1], gap)};
  auto& p = st.program;
  int v = p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(0.0025F));
  if (rounds) {
    v = p.push(Op::min, p.push(Op::max, p.push(Op::div, v, p.imm_f(0.7F)), p.imm_f(-128)), p.imm_f(127));
    v = p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(128));
  }
  p.outputs = {{v, rounds ? DType::u8 : DType::f32}};
  st.stores = {s.tensor(rounds ? DType::u8 : DType::f32, space)};
}

TEST_P(MatmulCodes, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t rows : {1, 4, 5, 12, 13, 16, 17, 33, 49}) {
    for (const std::int64_t depth : {1, 3, 4, 19, 64, 65, 130}) {
      const std::int64_t columns = std::array{1, 15, 16, 17, 32, 48, 70}[seed % 7];
      Scene s(seed++);
      set(s, {{2, rows, depth}, {2, depth, columns}}, {}, {128, 128}, seed % 2 == 0);
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
    }
  }
}

TEST_P(MatmulCodes, LayoutsAndZeroPoints) {
  const std::vector<int> rows{0, 1, 2, 3}, turned{0, 1, 3, 2}, between{0, 2, 1, 3}, apart{2, 3, 0, 1}, turned_between{0, 3, 1, 2};
  std::uint32_t seed = 100;
  for (const auto& left : {rows, turned, between, apart, turned_between}) {
    for (const auto& right : {rows, turned, between, apart, turned_between}) {
      for (const auto zero : {std::array{128, 128}, {0, 255}, {255, 0}, {3, 128}, {128, 77}}) {
        Scene s(seed++);
        set(s, {{2, 3, 21, 30}, {2, 3, 30, 37}}, {left, right}, zero, seed % 2 == 0, static_cast<int>(seed % 3));
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
      }
    }
  }
}

TEST_P(MatmulCodes, BroadcastBatches) {
  std::uint32_t seed = 300;
  for (const Sizes& n :
       {Sizes{{3, 1, 9, 20}, {4, 20, 18}}, {{9, 20}, {2, 2, 20, 18}}, {{1, 5, 9, 20}, {20, 18}}, {{9, 20}, {20, 18}}}) {
    Scene s(seed++);
    set(s, n, {}, {100, 130}, false);
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
  }
}

/// A right matrix that scratch holds in several blocks of columns, and tasks of other sizes.
TEST_P(MatmulCodes, BlocksOfColumnsAndRows) {
  std::uint32_t seed = 400;
  for (const char* rows : {"16", "96"}) {
    Scene s(seed++);
    set(s, {{20, 12000}, {12000, 100}}, {}, {128, 60}, false);
    s.parameters["rows"] = rows;
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
  }
}

TEST_P(MatmulCodes, Refusals) {
  Scene s(7);
  set(s, {{4, 8}, {8, 16}}, {}, {128, 128}, false);
  s.stage().anchor.inputs[1] = s.tensor(DType::f32, {8, 16});
  const std::string why = s.compare(cpu::cpu_provider(), tactic());
  if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
  EXPECT_NE(why.find("u8 codes with one scale"), std::string::npos) << why;
}

}  // namespace
}  // namespace octavo::testing
