// cpu.softmax.block.*: rows of a few elements, as classes of pixels, which are computed a row in each lane, against the reference evaluator, bit for bit.
// Numbers of rows around vectors, and around the 512 that are computed at a time.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

class ShortSoftmax : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic() { return std::string("cpu.softmax.block.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, ShortSoftmax, ::testing::Values("portable", "avx2", "avx512"));

void set(Scene& s, const ir::Shape& x, const std::vector<int>& order, const std::vector<int>& stored, DType type, int gap) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::softmax;
  st.anchor.facts = testing::facts(st.anchor.op, {{"axis", std::int64_t{1}}});
  st.anchor.inputs = {s.tensor(DType::f32, x, BufferKind::arena, order, gap, 30.0F)};
  st.space = x;
  st.stores = {s.tensor(type, x, BufferKind::arena, stored, gap)};
  st.program.outputs = {{st.program.push(program::Op::acc_f), type}};
}

TEST_P(ShortSoftmax, OfEveryLengthAndOrderOfMemory) {
  std::uint32_t seed = 1;
  for (const std::int64_t classes : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17}) {
    for (const std::int64_t width : {15, 16, 17, 31, 33, 100, 255, 511, 512, 513, 1030}) {
      const std::vector<int> inner{0, 2, 3, 1}, planes{0, 1, 2, 3};
      Scene s(seed++);
      set(s, {1, classes, 2, width}, seed % 3 == 0 ? planes : inner, seed % 4 == 0 ? planes : inner,
          seed % 5 == 0 ? DType::f16 : DType::f32, seed % 7 == 0 ? 3 : 0);
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic()));
    }
  }
}

}  // namespace
}  // namespace octavo::testing
