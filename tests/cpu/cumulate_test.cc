// cpu.cumulate.* against the reference evaluator, bit for bit: sums and products of floats and integers along every dimension, over sizes around its
// blocks of 256 columns (16 where columns lie apart) and around vectors.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

class Cumulate : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic() { return std::string("cpu.cumulate.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Cumulate, ::testing::Values("portable", "avx2", "avx512"));

struct Case {
  ir::Shape x;
  std::int64_t axis = 0;
  bool product = false, exclusive = false, reverse = false;
  std::vector<int> order = {}, result_order = {};
  int gap = 0;
};

void set(Scene& s, const Case& c, DType type) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::cumulate;
  st.anchor.facts = testing::facts(st.anchor.op, {{"axis", c.axis},
                                                  {"exclusive", std::int64_t{c.exclusive}},
                                                  {"reverse", std::int64_t{c.reverse}},
                                                  {"function", std::string(c.product ? "prod" : "sum")}});
  st.anchor.inputs = {s.tensor(type, c.x, BufferKind::arena, c.order, c.gap, c.product ? 1.2F : 4.0F)};
  st.space = c.x;
  st.stores = {s.tensor(type, c.x, BufferKind::arena, c.result_order)};
  if (type != DType::f32) return;
  int v = st.program.push(program::Op::acc_f);
  if (s.pick(0, 1) != 0) {
    st.operands.push_back({s.along(DType::f32, st.space, static_cast<int>(c.x.size()) - 1), {}});
    v = st.program.push(program::Op::add, v, st.program.load(program::Op::load_f, 0));
    st.program.operand_count = 1;
  }
  st.program.outputs = {{v, DType::f32}};
}

TEST_P(Cumulate, EveryDimensionAndForm) {
  std::uint32_t seed = 1;
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    for (int form = 0; form < 8; ++form) {
      for (const DType type : {DType::f32, DType::s64, DType::s32, DType::u8, DType::s16}) {
        for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}}) {
          Scene s(seed++);
          set(s, {{2, 17, 5, 9}, axis, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0, order, {}, static_cast<int>(seed % 3)},
              type);
          EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
        }
      }
    }
  }
}

TEST_P(Cumulate, SizesAroundBlocksAndVectors) {
  std::uint32_t seed = 1;
  for (const std::int64_t cols : {1, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 600}) {
    for (const std::int64_t rows : {1, 2, 15, 16, 17, 40}) {
      for (const std::int64_t axis : {0, 1}) {
        for (const bool reverse : {false, true}) {
          Scene s(seed++);
          set(s, {{axis == 0 ? rows : cols, axis == 0 ? cols : rows}, axis, seed % 5 == 0, seed % 3 == 0, reverse}, DType::f32);
          EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
        }
      }
    }
  }
}

TEST_P(Cumulate, OneDimensionAndOrdersOfTheResult) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::f32, DType::s64}) {
    for (const std::int64_t n : {1, 16, 17, 1000}) {
      Scene s(seed++);
      set(s, {.x = {n}}, type);
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
    }
    Scene turned(seed++);
    set(turned, {.x = {33, 20, 3}, .axis = 1, .result_order = {2, 0, 1}}, type);
    EXPECT_RUNS(turned.compare(cpu::cpu_provider(), tactic()));
  }
}

}  // namespace
}  // namespace octavo::testing
