// cpu.grid_sample.*: every mode, padding and number of dimensions against the reference evaluator, bit for bit, over sizes around blocks of 256 points and
// around vectors, with channels side by side and apart, and with coordinates inside, on the border, far outside, infinite and NaN.
#include <gtest/gtest.h>

#include <limits>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

class GridSample : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic() { return std::string("cpu.grid_sample.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, GridSample, ::testing::Values("portable", "avx2", "avx512"));

void set(Scene& s, const ir::Shape& x, const ir::Shape& points, const char* mode, const char* padding, bool align,
         const std::vector<int>& order, bool more) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::grid_sample;
  st.anchor.facts = testing::facts(
      st.anchor.op, {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", std::int64_t{align}}});
  ir::Shape grid{x[0]};
  grid.insert(grid.end(), points.begin(), points.end());
  grid.push_back(static_cast<std::int64_t>(x.size()) - 2);
  st.space = {x[0], x[1]};
  st.space.insert(st.space.end(), points.begin(), points.end());
  st.anchor.inputs = {s.tensor(DType::f32, x, BufferKind::arena, order),
                      s.tensor(DType::f32, grid, BufferKind::arena, {}, 0, 1.3F)};
  auto& bytes = s.memory[static_cast<std::size_t>(st.anchor.inputs[1].buffer)];
  auto* g = reinterpret_cast<float*>(bytes.data() + 64);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float some[] = {-1, 1, 0, std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 1e20F, -7.25F, 3};
  for (std::int64_t i = 0; i < ir::count(grid); ++i) {
    if (s.pick(0, 4) == 0) g[i] = some[s.pick(0, 8)];
  }
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::arena, order)};
  int v = st.program.push(program::Op::acc_f);
  if (more) v = st.program.push(program::Op::mul, v, st.program.imm_f(0.7F));
  st.program.outputs = {{v, DType::f32}};
}

TEST_P(GridSample, EveryModePaddingAndOrderOfMemory) {
  std::uint32_t seed = 1;
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const bool align : {false, true}) {
        for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}}) {
          for (const std::int64_t channels : {1, 7, 8, 17}) {
            Scene s(seed++);
            set(s, {2, channels, 6, 9}, {5, 7}, mode, padding, align, order, seed % 2 == 0);
            EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
          }
        }
      }
    }
  }
}

TEST_P(GridSample, BlocksOfPoints) {
  std::uint32_t seed = 1;
  for (const ir::Shape& points : {ir::Shape{1, 1}, {255, 1}, {1, 256}, {257, 1}, {3, 171}, {100, 4}, {2, 300}}) {
    for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}}) {
      Scene s(seed++);
      set(s, {1, 9, 11, 5}, points, "linear", "zeros", false, order, seed % 2 == 0);
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
    }
  }
}

TEST_P(GridSample, OneAndThreeDimensions) {
  std::uint32_t seed = 1;
  for (const char* mode : {"linear", "nearest"}) {
    Scene line(seed++), volume(seed++);
    set(line, {2, 3, 20}, {33}, mode, "border", true, {}, false);
    EXPECT_RUNS(line.compare(cpu::cpu_provider(), tactic()));
    set(volume, {2, 9, 4, 5, 6}, {3, 4, 5}, mode, "reflection", false, {0, 2, 3, 4, 1}, true);
    EXPECT_RUNS(volume.compare(cpu::cpu_provider(), tactic()));
  }
}

}  // namespace
}  // namespace octavo::testing
