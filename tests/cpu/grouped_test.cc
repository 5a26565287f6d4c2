// cpu.grouped: independent stages as one region, each by a kernel of its own, whose tasks run in any order.
#include <gtest/gtest.h>

#include <set>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

const ir::Shape kShape{2, 20, 9, 11};

/// Of so many parts, in turns: a pooling of codes, a quantization of floats, and a copy with a border. Parts of a kind read the same tensor.
Scene beside(std::uint32_t seed, int parts) {
  Scene s(seed);
  const region::TensorRef codes = s.nhwc(DType::u8, kShape), floats = s.nhwc(DType::f32, kShape);
  s.region().independent = true;
  s.region().stages.resize(static_cast<std::size_t>(parts));
  for (int k = 0; k < parts; ++k) {
    region::Stage& st = s.region().stages[static_cast<std::size_t>(k)];
    program::Program& p = st.program;
    st.space = kShape;
    if (k % 3 == 1) {
      st.operands = {{floats, {}}};
      p.operand_count = 1;
      const int v =
          p.push(Op::max, p.push(Op::min, p.push(Op::mul, p.load(Op::load_f, 0), p.imm_f(30)), p.imm_f(100)), p.imm_f(-20));
      p.outputs = {{p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(20 + k)), DType::u8}};
    } else {
      const bool pools = k % 3 == 0;
      st.anchor.op = pools ? ir::Op::max_pool : ir::Op::pad;
      st.anchor.integer = pools;
      st.anchor.inputs = {pools ? codes : floats};
      if (pools) {
        st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 128);
        st.anchor.facts = testing::facts(st.anchor.op, {{"kernel", Ints{3, 3}},
                                                        {"strides", Ints{1, 1}},
                                                        {"pads", Ints{1, 1, 1, 1}},
                                                        {"dilations", Ints{1, 1}},
                                                        {"count_include_pad", std::int64_t{0}}});
      } else {
        st.space[2] += 3;
        st.anchor.facts = testing::facts(
            st.anchor.op, {{"pads", Ints{0, 0, 1, 0, 0, 0, 2, 0}}, {"mode", std::string("constant")}, {"value", 1.5}}, 4);
      }
      const DType type = pools ? DType::u8 : DType::f32;
      p.outputs = {{p.push(pools ? Op::acc_i : Op::acc_f), type}};
    }
    st.stores = {s.nhwc(p.outputs[0].type, st.space)};
  }
  return s;
}

TEST(Grouped, EachPartComputesWhatItComputesAlone) {
  std::uint32_t seed = 1;
  for (const int parts : {2, 3, 5, 8}) {
    Scene s = beside(seed++, parts);
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), "cpu.grouped"));
  }
}

TEST(Grouped, OthersAreNotAskedAboutItNorIsItAboutOthers) {
  const auto offered = [](Scene s) {
    std::set<std::string> families;
    for (const region::Offer& o : cpu::cpu_provider().offers(s.region(), s.plan())) {
      if (o.refusal.empty()) families.insert(o.tactic.family);
    }
    return families;
  };
  EXPECT_TRUE(offered(beside(1, 2)).contains("grouped"));
  EXPECT_FALSE(offered(beside(1, 1)).contains("grouped")) << "one part";
  EXPECT_FALSE(offered(beside(1, 9)).contains("grouped")) << "more parts than a tactic names";
  Scene chain = beside(1, 2);
  chain.region().independent = false;
  EXPECT_FALSE(offered(chain).contains("grouped")) << "stages that may read each other's results";
}

}  // namespace
}  // namespace octavo::testing
