#include "ir/canonical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/random_graph.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace octavo::ir {
namespace {

/// The same graph built in another order, under other names, with the operands of commutative operators swapped at random.
Graph shuffled(const Graph& g, std::mt19937& random) {
  std::vector<NodeId> pending = g.order();
  std::erase_if(pending, [&](NodeId id) { return g.node(id).op == Op::input; });
  Graph out;
  std::map<ValueId, ValueId> renamed;
  for (const ValueId v : g.inputs) renamed[v] = out.add_input("in" + std::to_string(random()), g.type(v));
  while (!pending.empty()) {
    const std::size_t k = random() % pending.size();
    const NodeId original = pending[k];
    Node n = g.node(original);
    if (!std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v == kNone || renamed.contains(v); })) continue;
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(k));
    const std::vector<ValueId> old = n.outputs;
    for (ValueId& v : n.inputs) v = v == kNone ? kNone : renamed[v];
    if (commutes(g.node(original).op) && random() % 2 == 0) std::swap(n.inputs[0], n.inputs[1]);
    n.name = "renamed" + std::to_string(random());
    n.origin = {n.name};
    std::vector<TensorType> types;
    for (const ValueId v : old) types.push_back(g.type(v));
    const NodeId id = out.add_node(std::move(n), types, {"v" + std::to_string(random())});
    for (std::size_t i = 0; i < old.size(); ++i) renamed[old[i]] = out.node(id).outputs[i];
  }
  for (const ValueId v : g.outputs) out.outputs.push_back(renamed[v]);
  out.output_names = g.output_names;
  return out;
}

/// Names aside, what the graph says: compact numbering makes it comparable.
std::string skeleton(const Graph& g) {
  Graph copy = compact(g);
  copy.name.clear();
  for (ValueId v = 0; v < copy.value_capacity(); ++v) {
    copy.value(v).name.clear();
    copy.value(v).range.reset();
  }
  return print(copy, {.full_constants = true, .origins = false});
}

TEST(Canonical, IndependentOfOrderAndNames) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    Graph a = RandomGraph(seed).make();
    Graph b = shuffled(a, random);
    ASSERT_TRUE(verify(b)) << "seed " << seed << ": " << verify(b).error().message;
    EXPECT_EQ(graph_hash(a), graph_hash(b)) << "seed " << seed;
    number_values(a);
    number_values(b);
    EXPECT_EQ(graph_hash(a), graph_hash(b)) << "after numbering, seed " << seed;
    EXPECT_EQ(skeleton(a), skeleton(b)) << "seed " << seed;
    EXPECT_TRUE(verify(a)) << "seed " << seed;
    EXPECT_EQ(number_values(a), 0) << "a second run finds more, seed " << seed;
  }
}

constexpr const char* kGraph = R"(
x = input : f32[1,2,4,4]
w = constant s8[2,2,1,1] q=s8(0.1,0) (1,2,3,4)
v = view x q=u8(0.02,128)
c = conv v w {pads=[1,1,1,1]}
l = leaky_relu c {alpha=0.1}
a = add l l
output a as "y"
)";

std::uint64_t hash_of(std::string text, std::string_view from = "", std::string_view to = "") {
  if (!from.empty()) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  const auto g = parse(text);
  EXPECT_TRUE(g) << g.error().message;
  return g ? graph_hash(*g) : 0;
}

TEST(Canonical, EveryDetailCounts) {
  const std::string text = kGraph;
  const std::uint64_t h = hash_of(text);
  EXPECT_EQ(h, hash_of(text, "output a as \"y\"", "output a as \"z\"")) << "names do not count";
  EXPECT_NE(h, hash_of(text, "u8(0.02,128)", "u8(0.020000001,128)")) << "one ulp of a scale";
  EXPECT_NE(h, hash_of(text, "u8(0.02,128)", "u8(0.02,127)"));
  EXPECT_NE(h, hash_of(text, "u8(0.02,128)", "s8(0.02,0)"));
  EXPECT_NE(h, hash_of(text, "u8(0.02,128)", "u8(0.02,128)@f16"));
  EXPECT_NE(h, hash_of(text, "(1,2,3,4)", "(1,2,3,5)")) << "one weight code";
  EXPECT_NE(h, hash_of(text, "pads=[1,1,1,1]", "pads=[1,1,2,1]")) << "one pad";
  EXPECT_EQ(h, hash_of(text, "alpha=0.1", "alpha=0.10000000149011612d")) << "the same double, spelled in full";
  EXPECT_NE(h, hash_of(text, "alpha=0.1", "alpha=0.10000001")) << "one ulp of an attribute";
  EXPECT_NE(h, hash_of(text, "add l l", "sub l l"));
  EXPECT_NE(h, hash_of(text, "output a", "output l"));
  EXPECT_NE(h, hash_of(text + "output l\n"));
  EXPECT_NE(h, hash_of("z = input : f32[1]\n" + text)) << "an unused input is part of the interface";
}

TEST(Canonical, ResultsOfOneNodeDiffer) {
  const std::string head = "y = input : f32[]\nq, a, z = dynamic_quantize y\n";  // q and z: both u8[]
  EXPECT_NE(hash_of(head + "output q\n"), hash_of(head + "output z\n"));
  EXPECT_NE(hash_of(head + "output q\noutput z\n"), hash_of(head + "output z\noutput q\n"));
}

TEST(Canonical, DefaultsMayBeSpelled) {
  const std::string head = "x = input : f32[1,4,5,5]\nw = constant f32[4,4,1,1] seed:1\n";
  EXPECT_EQ(hash_of(head + "y = conv x w\noutput y\n"),
            hash_of(head + "y = conv x w {group=1, pads=[0,0,0,0], strides=[1,1], dilations=[1,1]}\noutput y\n"));
  EXPECT_EQ(hash_of(head + "y = clip x {min=-inf, max=6}\noutput y\n"), hash_of(head + "y = clip x {max=6}\noutput y\n"));
  EXPECT_EQ(hash_of(head + "y = pad x {pads=[0,0,1,0,0,0,0,0], mode=\"constant\", value=0}\noutput y\n"),
            hash_of(head + "y = pad x {pads=[0,0,1,0,0,0,0,0]}\noutput y\n"));
  EXPECT_NE(hash_of(head + "y = pad x {pads=[0,0,1,0,0,0,0,0], value=-0.0}\noutput y\n"),
            hash_of(head + "y = pad x {pads=[0,0,1,0,0,0,0,0]}\noutput y\n"));
}

TEST(NumberValues, MergesEqualNodesAndKeepsTheirOrigins) {
  auto g = parse(R"(
x = input : f32[1,2,4,4]
z = input : f32[1,2,4,4]
w1 = constant s8[2,2,1,1] q=s8(0.1,0) (1,2,3,4)
w2 = constant s8[2,2,1,1] q=s8(0.1,0) (1,2,3,4)
a = conv x w1 {group=1} from {"A"}
b = conv x w2 from {"B"}
c = conv z w2 from {"C"}
s = add a z from {"S"}
t = add z b from {"T"}
u = sub a z
v = sub z b
output s as "s"
output t as "t"
output u as "u"
output v as "v"
output c as "c"
)");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_EQ(number_values(*g), 3);  // w1 = w2, a = b, s = t; the two subtractions differ
  ASSERT_TRUE(verify(*g)) << verify(*g).error().message;
  EXPECT_EQ(g->outputs[0], g->outputs[1]);
  EXPECT_NE(g->outputs[2], g->outputs[3]);
  EXPECT_EQ(g->producer(g->outputs[0]).origin, (std::set<std::string>{"S", "T"}));
  const ValueId conv = g->producer(g->outputs[2]).inputs[0];
  EXPECT_EQ(g->producer(conv).origin, (std::set<std::string>{"A", "B"}));
}

TEST(NumberValues, ZeroAndMinusZeroDiffer) {
  auto g = parse(
      "x = input : f32[1]\na = constant f32[1] (0)\nb = constant f32[1] (-0)\ny = div x a\nz = div x b\noutput y\noutput z\n");
  ASSERT_TRUE(g);
  EXPECT_EQ(number_values(*g), 0);
  EXPECT_NE(g->outputs[0], g->outputs[1]);
}

TEST(NumberValues, MaxOfFloatsKeepsItsOperands) {
  const std::string head = "x = input : f32[2]\nz = input : f32[2]\n";
  EXPECT_EQ(hash_of(head + "y = add x z\noutput y\n"), hash_of(head + "y = add z x\noutput y\n"));
  EXPECT_NE(hash_of(head + "y = max x z\noutput y\n"), hash_of(head + "y = max z x\noutput y\n"))
      << "max(0, -0) is -0, max(-0, 0) is 0";
}

TEST(Compact, KeepsTheInterface) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const Graph g = RandomGraph(seed).make();
    const Graph c = compact(g);
    EXPECT_TRUE(verify(c)) << seed;
    EXPECT_EQ(print(c), print(g)) << seed;
    EXPECT_EQ(c.node_capacity(), static_cast<NodeId>(g.order().size()));
  }
}

}  // namespace
}  // namespace octavo::ir
