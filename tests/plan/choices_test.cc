// Comparisons, logic, selections, float16 arithmetic and casts to integers and back in programs: the bits of the reference evaluator, and as few
// regions as there are reasons for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "cpu/isa.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/stage_graph.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

using ir::DType;
using ir::Op;
using ir::ValueId;

ir::Tensor random_tensor(const ir::TensorType& type, std::uint32_t seed) {
  std::mt19937 rng(seed);
  ir::Tensor t(type);
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const float some[] = {kNan,   kInf,   -kInf,  0.0F,    -0.0F,    1.0F,     -1.0F,     0.49F,
                        -0.49F, 127.5F, 255.9F, -129.0F, 40000.0F, 65535.5F, -40000.0F, 1e30F};
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const float v = rng() % 3 == 0 ? some[rng() % 16] : static_cast<float>(static_cast<int>(rng() % 4001) - 2000) / 8;
    const auto at = static_cast<std::size_t>(i);
    if (type.dtype == DType::f32) t.mutable_data<float>()[at] = v;
    if (type.dtype == DType::f16) t.mutable_data<std::uint16_t>()[at] = f32_to_f16(v);
    if (type.dtype == DType::bf16) t.mutable_data<std::uint16_t>()[at] = f32_to_bf16(v);
    if (type.dtype == DType::boolean)
      t.mutable_data<std::uint8_t>()[at] = static_cast<std::uint8_t>(rng() % 2 * (rng() % 2 + 1));  // 2 is true too
  }
  return t;
}

/// Plans the graph, runs it, compares every output with the reference evaluator; returns the plan.
region::Plan run(const ir::Graph& g, double tolerance = 0) {
  std::vector<ir::Tensor> feeds;
  for (const ValueId v : g.inputs) feeds.push_back(random_tensor(g.type(v), static_cast<std::uint32_t>(v + 1)));
  const auto expected = reference::evaluate(g, feeds);
  const auto planned = plan::make_plan(g, cpu::providers(), {});
  if (!expected || !planned) {
    ADD_FAILURE() << (expected ? planned.error().message : expected.error().message);
    return {};
  }
  const auto valid = region::verify(planned->plan);
  EXPECT_TRUE(valid) << valid.error().message;
  for (const region::Region& r : planned->plan.regions) {
    EXPECT_EQ(region::reads_of(r).size(), r.graph_inputs.size()) << r.name;
    EXPECT_EQ(region::results_of(r).size(), r.graph_outputs.size()) << r.name;
  }
  const auto got = testing::run_plan(planned->plan, cpu::providers(), feeds);
  if (!got) {
    ADD_FAILURE() << got.error().message;
    return planned->plan;
  }
  for (std::size_t i = 0; i < got->size(); ++i) {
    EXPECT_EQ((*got)[i].type(), (*expected)[i].type());
    for (std::int64_t k = 0; k < (*got)[i].size(); ++k) {
      const double a = (*got)[i].at(k), b = (*expected)[i].at(k);
      const bool same = a == b || std::abs(a - b) <= tolerance || (std::isnan(a) && std::isnan(b));
      EXPECT_TRUE(same) << "output " << i << " element " << k << ": " << a << " instead of " << b;
      if (!same) return planned->plan;
    }
  }
  return planned->plan;
}

ValueId node(ir::Graph& g, Op op, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
  return add_inferred(g, op, std::move(inputs), std::move(attrs), {"node" + std::to_string(g.node_capacity())});
}

void output(ir::Graph& g, ValueId v) {
  g.outputs.push_back(v);
  g.output_names.push_back("out" + std::to_string(g.outputs.size()));
}

// What PyTorch's exporter writes behind a softmax whose rows may be masked as a whole.
TEST(Choices, NansBehindSoftmaxAreReplacedInItsRegion) {
  if (cpu::best_isa() == cpu::Isa::portable) GTEST_SKIP() << "no vectors here";
  ir::Graph g;
  const ValueId x = g.add_input("x", {DType::f32, {2, 6, 40}});
  const ValueId s = node(g, Op::softmax, {x}, {{"axis", std::int64_t{2}}});
  const ValueId nan = node(g, Op::logical_not, {node(g, Op::equal, {s, s})});
  output(g, node(g, Op::where, {nan, g.add_constant(ir::Tensor::scalar<float>(0)), s}));
  const region::Plan p = run(g, 1e-6);
  ASSERT_EQ(p.regions.size(), 1U);
  EXPECT_EQ(p.regions[0].stages[0].anchor.op, Op::softmax);
  EXPECT_TRUE(p.regions[0].tactic.vector) << p.regions[0].tactic.name();
}

TEST(Choices, EveryComparisonOfFloatsAndItsLogicAreOnePass) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    ir::Graph g;
    const ValueId a = g.add_input("a", {t, {7, 60}}), b = g.add_input("b", {t, {60}}),
                  given = g.add_input("c", {DType::boolean, {7, 1}});
    ValueId all = given, any = given;
    for (const Op op : {Op::equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal}) {
      const ValueId c = node(g, op, {a, b});
      output(g, c);
      all = node(g, Op::logical_and, {all, node(g, Op::logical_not, {c})});
      any = node(g, Op::logical_or, {any, c});
      output(g, node(g, Op::where, {c, b, a}));
      output(g, node(g, Op::where, {given, a, b}));
    }
    output(g, all), output(g, any);
    const region::Plan p = run(g);
    for (const region::Region& r : p.regions)
      EXPECT_TRUE(r.tactic.family.starts_with("pointwise")) << ir::name_of(t) << " " << r.tactic.name();
  }
}

TEST(Choices, HalvesAreRoundedBehindEveryOperator) {
  for (const DType t : {DType::f16, DType::bf16}) {
    ir::Graph g;
    const ValueId a = g.add_input("a", {t, {5, 70}}), b = g.add_input("b", {t, {5, 70}});
    const ValueId sum = node(g, Op::add, {a, b}), product = node(g, Op::mul, {sum, b});
    const ValueId y = node(g, Op::sigmoid, {node(g, Op::sub, {product, a})});
    output(g, node(g, Op::div, {y, sum}));
    output(g, node(g, Op::relu, {product}));
    const region::Plan p = run(g);
    EXPECT_EQ(p.regions.size(), 1U);
  }
}

/// QuantizeLinear to `type` and DequantizeLinear as the importer writes them out.
ValueId there_and_back(ir::Graph& g, ValueId x, DType type, bool bounded, ValueId* codes = nullptr) {
  const auto number = [&](float v) { return g.add_constant(ir::Tensor::scalar<float>(v)); };
  ValueId v = node(g, Op::div, {x, number(0.37F)});
  if (bounded) v = node(g, Op::clip, {node(g, Op::round, {v})}, {{"min", 3.0}, {"max", 120.0}});
  v = node(g, Op::cast, {v}, {{"to", std::string(ir::name_of(type))}});
  if (codes != nullptr) *codes = v;
  return node(g, Op::mul, {node(g, Op::cast, {v}, {{"to", std::string("f32")}}), number(0.37F)});
}

TEST(Choices, IntegersBetweenFloatsAreNowhereInMemory) {
  for (const DType t : {DType::u16, DType::s16, DType::u8, DType::s8}) {
    for (const bool bounded : {false, true}) {
      ir::Graph g;
      const ValueId x = g.add_input("x", {DType::f32, {3, 100}});
      output(g, node(g, Op::relu, {there_and_back(g, there_and_back(g, x, t, bounded), DType::u16, true)}));
      EXPECT_EQ(run(g).regions.size(), 1U) << ir::name_of(t);
    }
  }
}

TEST(Choices, IntegersThatSomebodyElseReadsAreStored) {
  if (cpu::best_isa() == cpu::Isa::portable) GTEST_SKIP() << "no vectors here";
  for (const DType t : {DType::u16, DType::s16, DType::u8, DType::s8}) {
    ir::Graph g;
    const ValueId x = g.add_input("x", {DType::f32, {3, 100}});
    ValueId codes = ir::kNone;
    output(g, there_and_back(g, x, t, false, &codes));
    output(g, codes);
    for (const region::Region& r : run(g).regions) EXPECT_TRUE(r.tactic.vector) << ir::name_of(t) << " " << r.tactic.name();
  }
}

// A scatter changes some elements of its result in place: what follows is computed behind it.
TEST(Choices, NothingJoinsAScatter) {
  ir::Graph g;
  const ValueId x = g.add_input("x", {DType::f32, {9, 70}}), u = g.add_input("u", {DType::f32, {4, 70}});
  const ValueId ids = g.add_constant(ir::Tensor::of<std::int64_t>({4, 1}, {3, 0, -1, 3}));
  const ValueId y = node(g, Op::scatter, {x, ids, u}, {{"kind", std::string("nd")}, {"reduction", std::string("none")}});
  output(g, node(g, Op::relu, {y}));
  const region::Plan p = run(g);
  ASSERT_EQ(p.regions.size(), 2U);
  EXPECT_EQ(p.regions[0].tactic.family, "indexed.scatter");
}

}  // namespace
}  // namespace octavo
