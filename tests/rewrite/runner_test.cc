#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/causes/passes.h"
#include "ir/text.h"
#include "rewrite/rule.h"

namespace octavo::rewrite {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::Op;

/// A rule from a lambda.
class Made final : public Rule {
 public:
  using Body = std::function<Outcome(Graph&, NodeId, const ir::Grids&)>;
  Made(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string_view name() const override { return name_; }
  std::string_view equation() const override { return "made ==> for a test"; }
  Outcome apply(Graph& g, NodeId id, const ir::Grids& grids) const override { return body_(g, id, grids); }

 private:
  std::string name_;
  Body body_;
};

/// a(x) ==> b(x)
Made turns(std::string name, Op a, Op b) {
  return Made(std::move(name), [=](Graph& g, NodeId id, const ir::Grids&) {
    if (g.node(id).op != a) return no_match();
    g.node(id).op = b;
    return applied();
  });
}

Graph chain() {
  auto g = ir::parse("x = input : f32[4]\na = sin x\nb = cos a\nc = sin b\noutput c as \"y\"\n");
  EXPECT_TRUE(g) << g.error().message;
  return std::move(*g);
}

TEST(Runner, ReachesAFixedPointAndCounts) {
  Graph g = chain();
  const Made one = turns("sin-to-cos", Op::sin, Op::cos), two = turns("cos-to-tanh", Op::cos, Op::tanh);
  const auto report = run(g, {&one, &two}, {.verify = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(ir::print(g, {.origins = false}),
            "x = input : f32[4]\na = tanh x : f32[4]\nb = tanh a : f32[4]\nc = tanh b : f32[4]\noutput c as \"y\"\n");
  ASSERT_EQ(report->stats.size(), 2U);
  EXPECT_EQ(report->stats[0].rule, "sin-to-cos");
  EXPECT_EQ(report->stats[0].applied, 2);
  EXPECT_EQ(report->stats[1].applied, 3);
  EXPECT_GE(report->stats[0].seconds, 0);
  EXPECT_TRUE(report->refusals.empty());
}

TEST(Runner, LeavesDisabledRulesOut) {
  Graph g = chain();
  const Made one = turns("sin-to-cos", Op::sin, Op::cos), two = turns("cos-to-tanh", Op::cos, Op::tanh);
  const auto report = run(g, {&one, &two}, {.disabled = {"sin-to-cos"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->stats[0].applied, 0);
  EXPECT_EQ(report->stats[1].applied, 1);
}

TEST(Runner, AnUnknownNameIsAnError) {
  Graph g = chain();
  const Made one = turns("sin-to-cos", Op::sin, Op::cos);
  const auto report = run(g, {&one}, {.disabled = {"sin-to-coz"}});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::usage);
  EXPECT_EQ(report.error().message, "disabling rule \"sin-to-coz\": there is no such rule; the rules are: sin-to-cos");
}

TEST(Runner, KeepsTheLastReasonOfEachRefusal) {
  Graph g = chain();
  int asked = 0;
  const Made shy("shy", [&](Graph& graph, NodeId id, const ir::Grids&) {
    if (graph.node(id).op != Op::sin) return no_match();
    return refuse(because<cause::several_readers>("x", ++asked));
  });
  const Made once = turns("cos-to-tanh", Op::cos, Op::tanh);  // makes a second sweep happen
  const auto report = run(g, {&shy, &once}, {});
  ASSERT_TRUE(report);
  ASSERT_EQ(report->refusals.size(), 2U);
  EXPECT_EQ(report->stats[0].refused, 2);
  EXPECT_EQ(report->refusals[0].node, "a");
  EXPECT_EQ(report->refusals[0].refusal, because<cause::several_readers>("x", 3));
  EXPECT_EQ(report->refusals[1].refusal, because<cause::several_readers>("x", 4));
  EXPECT_EQ(report->refusals[1].origin, (std::set<std::string>{"c"}));
}

TEST(Runner, ForgetsRefusalsThatNoLongerHold) {
  Graph g = chain();
  bool ready = false;
  const Made waits("waits", [&](Graph& graph, NodeId id, const ir::Grids&) {
    if (graph.node(id).op != Op::sin) return no_match();
    if (!ready) return refuse(because<cause::gathered_is_output>());
    graph.node(id).op = Op::neg;
    return applied();
  });
  const Made opens("opens", [&](Graph& graph, NodeId id, const ir::Grids&) {
    if (graph.node(id).op != Op::cos) return no_match();
    graph.node(id).op = Op::tanh;
    ready = true;
    return applied();
  });
  const auto report = run(g, {&waits, &opens}, {});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->refusals.empty());
  EXPECT_EQ(report->stats[0].refused, 0);
}

TEST(Runner, GridsAreCurrentAfterEveryChange) {
  auto parsed = ir::parse("x = input : f32[4]\nv = view x q=u8(0.5,3)\na = relu v\nb = relu a\noutput b as \"y\"\n");
  ASSERT_TRUE(parsed);
  Graph g = std::move(*parsed);
  std::vector<bool> seen;
  const Made drops("drops", [&](Graph& graph, NodeId id, const ir::Grids& grids) {
    if (graph.node(id).op == Op::view) {
      graph.replace_uses(graph.node(id).outputs[0], graph.node(id).inputs[0]);
      return applied();
    }
    if (graph.node(id).op == Op::relu) seen.push_back(grids.get(graph.node(id).outputs[0]) != nullptr);
    return no_match();
  });
  ASSERT_TRUE(run(g, {&drops}, {}));
  EXPECT_EQ(seen, (std::vector<bool>{false, false, false, false})) << "the view was gone before the first relu was looked at";
}

TEST(Runner, RulesThatUndoEachOtherAreNamed) {
  Graph g = chain();
  const Made there = turns("there", Op::sin, Op::cos), back = turns("back", Op::cos, Op::sin),
             quiet = turns("quiet", Op::tanh, Op::exp);
  const auto report = run(g, {&there, &back, &quiet}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::internal);
  EXPECT_NE(report.error().message.find("still changing"), std::string::npos) << report.error().message;
  EXPECT_NE(report.error().message.find("there at"), std::string::npos) << report.error().message;
  EXPECT_NE(report.error().message.find("back at"), std::string::npos) << report.error().message;
  EXPECT_EQ(report.error().message.find("quiet"), std::string::npos) << report.error().message;
}

TEST(Runner, VerifiesAndDumpsAfterEachApplication) {
  Graph g = chain();
  const Made breaks("breaks", [](Graph& graph, NodeId id, const ir::Grids&) {
    if (graph.node(id).op != Op::cos) return no_match();
    graph.value(graph.node(id).outputs[0]).type.shape = {5};
    graph.node(id).op = Op::exp;
    return applied();
  });
  const auto report = run(g, {&breaks}, {.verify = true});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message.find("after rule breaks (made ==> for a test): verifying graph"), 0U) << report.error().message;

  Graph h = chain();
  std::vector<std::string> dumps;
  const Made one = turns("sin-to-cos", Op::sin, Op::cos);
  const auto ok =
      run(h, {&one},
          {.dump = [&](std::string_view rule, const std::string& text) { dumps.push_back(std::string(rule) + "\n" + text); }});
  ASSERT_TRUE(ok);
  ASSERT_EQ(dumps.size(), 2U);
  EXPECT_EQ(dumps[1].find("sin-to-cos\nx = input"), 0U) << dumps[1];
}

TEST(Runner, DeadNodesAreNotVisited) {
  auto parsed = ir::parse("x = input : f32[4]\na = sin x\nb = cos x\noutput b as \"y\"\n");
  ASSERT_TRUE(parsed);
  const Made sees("sees", [](Graph& graph, NodeId id, const ir::Grids&) {
    EXPECT_NE(graph.node(id).op, Op::sin) << "nothing reads it";
    return no_match();
  });
  EXPECT_TRUE(run(*parsed, {&sees}, {}));
}

}  // namespace
}  // namespace octavo::rewrite
