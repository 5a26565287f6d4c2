// What Graph::settle and ir::update_grids keep up to date while a graph is edited, against the same found anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "ir/random_graph.h"

namespace octavo::ir {
namespace {

class Editor {
 public:
  Editor(Graph& g, unsigned seed) : g_(g), random_(seed) {}

  /// One edit as rules make them: through references, new nodes, new readers, new outputs.
  void edit() {
    const std::vector<NodeId> order = std::as_const(g_).order();
    place_.assign(static_cast<std::size_t>(g_.node_capacity()), 0);
    for (std::size_t i = 0; i < order.size(); ++i) place_[static_cast<std::size_t>(order[i])] = i;
    const std::size_t at = below(order.size());
    const NodeId id = order[at];
    const ValueId v = std::as_const(g_).node(id).outputs[0],
                  before = std::as_const(g_).node(order[below(std::max<std::size_t>(at, 1))]).outputs[0];
    switch (below(7)) {
      case 0: g_.replace_uses(v, before); break;
      case 1: {
        const ValueId added = g_.add(Op::relu, {v}, std::as_const(g_).type(v));
        if (below(2) == 0) g_.outputs[below(g_.outputs.size())] = added;
        break;  // or nobody reads it
      }
      case 2: {
        const ValueId added = g_.add_quantizer(Op::view, before, per_tensor(DType::u8, 0.5F, 3), std::as_const(g_).type(before));
        if (at > 0) g_.replace_uses(v, added);  // `before` does not depend on v
        break;
      }
      case 3: {  // in place, by a reference
        Node& n = g_.node(id);
        if (n.inputs.empty()) break;
        ValueId& in = n.inputs[below(n.inputs.size())];
        if (in == kNone) break;
        in = earlier(id);
        g_.touch();
        if (below(2) == 0) (void)g_.users(in);
        break;
      }
      case 4: {  // without telling anybody
        Node& n = g_.node(id);
        if (n.quantizer)
          n.quantizer =
              per_tensor(below(2) ? DType::u8 : DType::s8, below(2) ? 0.5F : 0.25F, static_cast<std::int32_t>(below(100)));
        break;
      }
      case 5: g_.value(v).type.dtype = below(2) ? DType::f32 : DType::f16; break;
      default: g_.outputs[below(g_.outputs.size())] = v; break;
    }
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  ValueId earlier(NodeId id) {
    const std::vector<NodeId> order = std::as_const(g_).order();
    return std::as_const(g_).node(order[below(std::max<std::size_t>(place_[static_cast<std::size_t>(id)], 1))]).outputs[0];
  }

  Graph& g_;
  std::mt19937 random_;
  std::vector<std::size_t> place_;
};

/// The graph as it is without notes: everything is found anew.
Graph fresh(const Graph& g) {
  Graph out = g;
  out.note_edits(false);
  out.touch();
  return out;
}

TEST(GraphEdits, SettleGivesWhatIsFoundAnew) {
  int removed = 0, grids_changed = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Graph g = RandomGraph(seed).make(25);
    g.note_edits(true);
    Grids grids = find_grids(g);
    Editor editor(g, seed);
    for (int round = 0; round < 40; ++round) {
      for (unsigned n = 1 + round % 3; n > 0; --n) editor.edit();
      Graph expected = fresh(g);
      removed += expected.remove_dead();
      const Grids before = grids;
      update_grids(g, g.settle(), grids);
      const Graph& now = g;
      for (NodeId id = 0; id < now.node_capacity(); ++id)
        ASSERT_EQ(now.node(id).dead, std::as_const(expected).node(id).dead) << "node " << id;
      for (ValueId v = 0; v < now.value_capacity(); ++v) ASSERT_EQ(now.users(v), expected.users(v)) << "value " << v;
      ASSERT_EQ(grids.of, find_grids(expected).of);
      grids_changed += before.of != grids.of ? 1 : 0;
    }
    g.note_edits(false);
    const Graph without = fresh(g);
    for (ValueId v = 0; v < g.value_capacity(); ++v) ASSERT_EQ(std::as_const(g).users(v), without.users(v));
  }
  EXPECT_GT(removed, 1000);
  EXPECT_GT(grids_changed, 200);
}

TEST(GraphEdits, WhatWasOnlyReadIsForgotten) {
  Graph g = RandomGraph(7).make(25);
  g.note_edits(true);
  EXPECT_TRUE(g.settle().all) << "nothing is known of a graph before";
  const NodeId some = std::as_const(g).order().back();
  (void)g.node(some);
  g.drop_edits();
  const Edits none = g.settle();
  EXPECT_FALSE(none.all);
  EXPECT_TRUE(none.nodes.empty() && none.values.empty());
  (void)g.node(some);
  (void)g.value(g.outputs[0]);
  const Edits one = g.settle();
  EXPECT_EQ(one.nodes, std::vector<NodeId>{some});
  EXPECT_EQ(one.values, std::vector<ValueId>{g.outputs[0]});
}

}  // namespace
}  // namespace octavo::ir
