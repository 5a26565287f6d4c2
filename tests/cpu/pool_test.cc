// Pooling and reductions: borders, windows wholly in the padding, dilations, every axis, codes and floats.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

#define EXPECT_SAME(scene, tactic)                                               \
  do {                                                                           \
    const std::string difference = (scene).compare(cpu::cpu_provider(), tactic); \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;          \
    EXPECT_EQ(difference, "");                                                   \
  } while (false)

// Codes: forwarded as u8 or requantized; floats: scaled.
void finish(Scene& s, bool codes, bool hand_on, bool planar) {
  auto& st = s.stage();
  auto& p = st.program;
  const auto store = [&](DType t) {
    return planar ? s.tensor(t, st.space, BufferKind::output) : s.nhwc(t, st.space, BufferKind::arena, 3);
  };
  if (codes && hand_on) {
    p.outputs = {{p.push(Op::acc_i), DType::u8}};
    st.stores = {store(DType::u8)};
  } else if (codes) {
    const int v = p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(0.017F));
    p.outputs = {{v, DType::f32}};
    st.stores = {store(DType::f32)};
  } else {
    p.outputs = {{p.push(Op::mul, p.push(Op::acc_f), p.imm_f(0.5F)), DType::f32}};
    st.stores = {store(DType::f32)};
  }
}

struct PoolCase {
  ir::Shape x;
  Ints kernel, strides, pads, dilations;
};

class Pool : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Pool, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(Pool, MaximumAndAverage) {
  std::vector<PoolCase> cases;
  for (const std::int64_t c : {1, 5, 16, 31, 32, 64, 65, 130, 300})
    cases.push_back({{1, c, 7, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}});
  for (const std::int64_t c : {8, 40, 64, 70, 129}) {  // windows that share columns, and rows cut off at both ends
    cases.push_back({{1, c, 6, 13}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}});
    cases.push_back({{2, c, 6, 13}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}});
    cases.push_back({{1, c, 9, 12}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}});
    cases.push_back({{1, c, 8, 15}, {3, 3}, {2, 2}, {1, 0, 1, 2}, {1, 2}});
    cases.push_back({{1, c, 8, 15}, {1, 3}, {1, 4}, {0, 0, 0, 0}, {1, 2}});
  }
  cases.push_back({{2, 20, 9, 9}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}});
  cases.push_back({{1, 70, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
  cases.push_back({{1, 1100, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}, {1, 1}});  // one window: its channels are several tasks
  cases.push_back({{1, 8, 10, 11}, {2, 3}, {3, 1}, {0, 2, 1, 0}, {2, 3}});
  cases.push_back({{1, 6, 12}, {3}, {2}, {1, 1}, {1}});
  cases.push_back({{1, 6, 4, 5, 6}, {2, 3, 2}, {2, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}});
  cases.push_back({{3, 40, 1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
  std::uint32_t seed = 1;
  for (const PoolCase& c : cases) {
    for (const bool max : {true, false}) {
      for (const bool codes : {true, false}) {
        for (const int kind : {0, 1, 2, 3}) {
          if (!max && codes && (kind & 1) != 0) continue;  // sums are not codes
          Scene s(seed++);
          auto& st = s.stage();
          const std::size_t spatial = c.kernel.size();
          st.space = {c.x[0], c.x[1]};
          for (std::size_t d = 0; d < spatial; ++d) {
            st.space.push_back(
                (c.x[2 + d] + c.pads[d] + c.pads[spatial + d] - (c.kernel[d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
          }
          st.anchor.op = max ? ir::Op::max_pool : ir::Op::avg_pool;
          st.anchor.integer = codes;
          st.anchor.facts = testing::facts(st.anchor.op, {{"kernel", c.kernel},
                                                          {"strides", c.strides},
                                                          {"pads", c.pads},
                                                          {"dilations", c.dilations},
                                                          {"count_include_pad", std::int64_t{kind >= 2}}});
          st.anchor.inputs = {s.nhwc(codes ? DType::u8 : DType::f32, c.x, BufferKind::input, kind)};
          if (codes) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, s.pick(0, 255));
          finish(s, codes, (kind & 1) != 0, kind == 3);
          EXPECT_SAME(s, std::string(max ? "cpu.max_pool.block." : "cpu.avg_pool.block.") + GetParam());
        }
      }
    }
  }
}

TEST_P(Pool, ReductionsOverAnyAxes) {
  std::uint32_t seed = 1;
  const ir::Shape x{2, 37, 5, 6};
  for (const Ints& axes : {Ints{2, 3}, Ints{1}, Ints{3}, Ints{0, 2}, Ints{-1, 1}, Ints{0}, Ints{}}) {
    for (const ir::Op op : {ir::Op::reduce_max, ir::Op::reduce_min, ir::Op::reduce_sum, ir::Op::reduce_mean, ir::Op::reduce_l2}) {
      for (const bool codes : {true, false}) {
        if (codes && op == ir::Op::reduce_l2) continue;
        for (const bool keep : {true, false}) {
          for (const bool planar : {true, false}) {
            Scene s(seed++);
            auto& st = s.stage();
            std::vector<bool> over(4, axes.empty());
            for (const auto a : axes) over[static_cast<std::size_t>((a + 4) % 4)] = true;
            for (std::size_t k = 0; k < 4; ++k) {
              if (!over[k] || keep) st.space.push_back(over[k] ? 1 : x[k]);
            }
            st.anchor.op = op;
            st.anchor.integer = codes;
            st.anchor.facts = testing::facts(st.anchor.op, {{"axes", axes}, {"keepdims", std::int64_t{keep}}}, 4);
            const DType t = codes ? DType::u8 : DType::f32;
            st.anchor.inputs = {planar ? s.tensor(t, x, BufferKind::input) : s.nhwc(t, x, BufferKind::input)};
            if (codes) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, s.pick(0, 255));
            const bool selects = op == ir::Op::reduce_max || op == ir::Op::reduce_min;
            finish(s, codes, selects && keep, true);
            EXPECT_SAME(s, std::string("cpu.reduce.block.") + GetParam());
          }
        }
      }
    }
  }
}

// One block of a sum less, equal, more; rows of neighbours, as many as a vector has lanes, and those that remain; blocks of neighbours side by side and those that remain; taps apart in memory.
TEST_P(Pool, LongSumsAreTakenInPairsOfBlocks) {
  std::uint32_t seed = 1;
  for (const auto& [height, width] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 15}, {1, 127}, {2, 64}, {3, 43}, {6, 64}, {30, 70}, {41, 67}}) {
    for (const Ints& axes : {Ints{2, 3}, Ints{1, 2, 3}, Ints{-1}}) {
      for (const ir::Op op : {ir::Op::reduce_sum, ir::Op::reduce_mean, ir::Op::reduce_l2}) {
        for (const bool planar : {true, false}) {
          Scene s(seed++);
          auto& st = s.stage();
          const ir::Shape x{1, 19, height, width};
          std::vector<bool> over(4, false);
          for (const auto a : axes) over[static_cast<std::size_t>((a + 4) % 4)] = true;
          for (std::size_t k = 0; k < 4; ++k) st.space.push_back(over[k] ? 1 : x[k]);
          st.anchor.op = op;
          st.anchor.facts = testing::facts(st.anchor.op, {{"axes", axes}, {"keepdims", std::int64_t{1}}}, 4);
          st.anchor.inputs = {planar ? s.tensor(DType::f32, x, BufferKind::input) : s.nhwc(DType::f32, x, BufferKind::input)};
          finish(s, false, false, true);
          EXPECT_SAME(s, std::string("cpu.reduce.block.") + GetParam());
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
