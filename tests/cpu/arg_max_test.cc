// cpu.arg_max.rows.* against the reference evaluator, over shapes around its tiles: vectors of 8 and 16 lanes, 4 of them at a time, rows of
// 32 neighbours that are no longer turned into columns, 256 positions and 2^14 elements at a time, 2^14 elements a task.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

class ArgMax : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic() { return std::string("cpu.arg_max.rows.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, ArgMax, ::testing::Values("portable", "avx2", "avx512"));

struct Case {
  ir::Shape x;
  std::int64_t axis = 1;
  DType type = DType::f32;
  bool last = false, keep = true;
  std::vector<int> order = {};  ///< of the input in memory, from outermost to innermost
  int gap = 0;
  std::vector<int> result_order = {};
};

/// A few values many times, so that maxima are tied; both zeros; NaN at the start of some rows and within others.
void set_arg_max(Scene& s, const Case& c) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::arg_max;
  st.anchor.facts = testing::facts(
      st.anchor.op, {{"axis", c.axis}, {"keepdims", std::int64_t{c.keep}}, {"select_last_index", std::int64_t{c.last}}});
  st.anchor.inputs = {s.tensor(c.type, c.x, BufferKind::arena, c.order, c.gap)};
  region::TensorRef& x = st.anchor.inputs[0];
  if (c.type == DType::u8) x.quantizer = ir::Quantizer{DType::u8, {0.25F}, {128}};
  st.space = c.x;
  if (c.keep) {
    st.space[static_cast<std::size_t>(c.axis)] = 1;
  } else {
    st.space.erase(st.space.begin() + c.axis);
  }
  st.stores = {s.tensor(DType::s64, st.space, BufferKind::arena, c.result_order)};
  auto& bytes = s.memory[static_cast<std::size_t>(x.buffer)];
  const int kind = s.pick(0, 3);
  const std::int64_t n = s.plan().buffers[static_cast<std::size_t>(x.buffer)].bytes;
  constexpr std::size_t kGuard = 64;
  if (c.type == DType::u8) {
    for (std::int64_t i = 0; i < n && kind == 0; ++i) bytes[kGuard + static_cast<std::size_t>(i)] = std::byte{0};
    return;  // half of the codes are extremes
  }
  auto* v = reinterpret_cast<float*>(bytes.data() + kGuard);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const float values[4][6] = {
      {-0.0F, 0.0F, -1, -0.0F, 0.0F, -2}, {-3, -2, -1, -1, -kInf, -5}, {kInf, 1, 2, -kInf, kNan, 3}, {kNan, 1, 2, 2, 2, -1}};
  for (std::int64_t i = 0; i < n / 4; ++i) {
    if (s.pick(0, 2) != 0) v[i] = values[kind][s.pick(0, 5)];
  }
}

TEST_P(ArgMax, ReducedElementsAreNeighbours) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::f32, DType::u8}) {
    for (const std::int64_t extent : {1, 2, 7, 8, 9, 15, 16, 17, 19, 21, 31, 32, 33, 63, 64, 65, 127, 129, 1000}) {
      for (const bool last : {false, true}) {
        Scene s(seed++);
        set_arg_max(s, {.x = {2, extent, 3, 5},
                        .axis = 1,
                        .type = type,
                        .last = last,
                        .keep = seed % 2 == 0,
                        .order = {0, 2, 3, 1},
                        .gap = static_cast<int>(seed % 3)});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
      }
    }
  }
}

TEST_P(ArgMax, KeptElementsAreNeighbours) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::f32, DType::u8}) {
    for (const std::int64_t width : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 600}) {
      for (const std::int64_t extent : {1, 2, 5, 33}) {
        Scene s(seed++);
        set_arg_max(s, {.x = {2, extent, 3, width},
                        .axis = 1,
                        .type = type,
                        .last = seed % 4 < 2,
                        .keep = seed % 2 == 0,
                        .gap = static_cast<int>(seed % 3)});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
      }
    }
  }
}

TEST_P(ArgMax, EveryAxisAndOrderOfMemory) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::f32, DType::u8}) {
    for (const std::int64_t axis : {0, 1, 2, 3}) {
      for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}, {3, 2, 1, 0}, {2, 0, 1, 3}}) {
        for (const bool keep : {false, true}) {
          Scene s(seed++);
          set_arg_max(s, {.x = {3, 18, 5, 20},
                          .axis = axis,
                          .type = type,
                          .last = seed % 3 == 0,
                          .keep = keep,
                          .order = order,
                          .gap = static_cast<int>(seed % 2),
                          .result_order = keep ? order : std::vector<int>{}});
          EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
        }
      }
    }
  }
}

// Rows that are turned into columns, as many as fit 2^14 elements: 256, fewer than 16, and one.
TEST_P(ArgMax, ElementsApartInMemory) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::f32, DType::u8}) {
    for (const std::int64_t extent : {1, 63, 64, 65, 1023, 1024, 1025, 9000, 1 << 14}) {
      Scene s(seed++);
      set_arg_max(
          s,
          {.x = {2 * extent, extent < 100 ? 300 : 19}, .axis = 0, .type = type, .last = seed % 2 == 0, .order = {1, 0}, .gap = 0});
      region::TensorRef& x = s.stage().anchor.inputs[0];
      // Every other element of each row, so that none has a neighbour.
      x.dims[0] /= 2, x.strides[0] *= 2;
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
    }
  }
}

TEST_P(ArgMax, ScalarsVectorsAndTwoStores) {
  Scene vector(1);
  set_arg_max(vector, {.x = {77}, .axis = 0, .keep = false});
  EXPECT_RUNS(vector.compare(cpu::cpu_provider(), tactic()));
  Scene two(2);
  set_arg_max(two, {.x = {4, 9, 30, 2}, .axis = 1});
  two.stage().stores.push_back(two.tensor(DType::s64, two.stage().space, BufferKind::arena, {2, 0, 1, 3}));
  two.stage().anchor.store_results = {0, 0};
  EXPECT_RUNS(two.compare(cpu::cpu_provider(), tactic()));
}

TEST_P(ArgMax, RefusesByWhatTheInputIs) {
  const auto refused = [&](const Case& c, const auto& change) {
    Scene s(1);
    set_arg_max(s, c);
    change(s.stage().anchor.inputs[0]);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  EXPECT_NE(refused({.x = {2, 8}, .type = DType::s32}, [](auto&) {}).find("s32"), std::string::npos);
  // Values of f16 this small are 6e-8 apart.
  const auto rounded = [](region::TensorRef& x) { x.quantizer->arith = DType::f16, x.quantizer->scale = {1e-8F}; };
  const std::string why = refused({.x = {2, 8}, .type = DType::u8}, rounded);
  EXPECT_NE(why.find("another value for each code"), std::string::npos) << why;
  const std::string far = refused({.x = {40000, 4}, .axis = 0}, [](region::TensorRef& x) {
    x.dims = {20000, 4}, x.strides = {8, 2};
  });
  EXPECT_NE(far.find("at most 16384 elements"), std::string::npos) << far;
}

}  // namespace
}  // namespace octavo::testing
