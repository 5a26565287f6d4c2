// Permitted views: which edges get one, what stays float and why, and which rules are refused.
#include "plan/precision/permit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/causes/plan_precision.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "plan/precision/permit_error.h"
#include "reference/oracle_provider.h"
#include "report/sentences.h"

namespace octavo {
namespace {

ir::Graph parse(const std::string& text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}

plan::Planned planned(const std::string& text, const plan::PlanOptions& options = {}) {
  auto p = plan::make_plan(parse(text), {&reference::oracle_provider()}, options);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  return p ? std::move(*p) : plan::Planned{};
}

std::string failure(const std::string& text, const plan::PlanOptions& options) {
  const auto p = plan::make_plan(parse(text), {&reference::oracle_provider()}, options);
  EXPECT_FALSE(p);
  return p ? "" : p.error().message;
}

std::string hash(const plan::Planned& p) {
  return region::plan_hash(p.plan);
}

/// Precision and reason of the convolution that an ONNX node became.
std::string reason(const plan::Planned& p, const std::string& node) {
  for (const region::Region& r : p.plan.regions) {
    if (r.onnx_nodes.contains(node) && r.stages[0].anchor.weights)
      return to_string(r.precision) + " | " + report::sentences(r.reasons);
  }
  return "no region";
}

constexpr const char* kConv = "{dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";

// conv1 -> relu1 -> conv2 -> add(., relu1) -> relu2 -> conv3, all float.
std::string residual() {
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\n";
  for (const char* w : {"w1", "w2", "w3"}) t += std::string(w) + " = constant f32[4,4,3,3] seed:" + w[1] + "\n";
  t += std::string("c1 = conv x w1 ") + kConv + " from {\"conv1\"}\nr1 = relu c1 from {\"relu1\"}\n";
  t += std::string("c2 = conv r1 w2 ") + kConv + " from {\"conv2\"}\na = add c2 r1 from {\"add\"}\nr2 = relu a from {\"relu2\"}\n";
  return t + "c3 = conv r2 w3 " + kConv + " from {\"conv3\"}\noutput c3\n";
}

plan::PlanOptions with(const std::map<std::string, float>& ranges) {
  plan::PlanOptions o;
  o.ranges = ir::symmetric(ranges);
  return o;
}
const std::map<std::string, float> kAll{{"x", 0.03F}, {"r1", 0.05F}, {"r2", 0.07F}};

int views(const ir::Graph& g) {
  int n = 0;
  for (const ir::NodeId id : g.order()) n += g.node(id).op == ir::Op::view;
  return n;
}

TEST(Permit, EveryLayerWithARangeIsInt8AndSaysSo) {
  const auto p = planned(residual(), with(kAll));
  EXPECT_EQ(p.permitted.int8_layers, 3);
  EXPECT_EQ(p.permitted.float_layers, 0);
  for (const char* node : {"conv1", "conv2", "conv3"}) {
    EXPECT_TRUE(reason(p, node).starts_with("int8 | the range of its input permits int8")) << reason(p, node);
  }
  EXPECT_EQ(views(p.graph), 3);  // one a tensor: the residual reads the codes that conv2 reads
}

/// Two convolutions concatenated, their channels shuffled, and each half convolved.
std::string shuffle() {
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\n";
  for (const char* w : {"w1", "w2", "w3", "w4"}) t += std::string(w) + " = constant f32[4,4,3,3] seed:" + w[1] + "\n";
  for (const char* n : {"1", "2"}) t += std::string("c") + n + " = conv x w" + n + " " + kConv + " from {\"conv" + n + "\"}\n";
  t += "k = concat c1 c2 {axis=1} from {\"concat\"}\na = reshape k {shape=[1,2,4,6,6]} from {\"split\"}\n";
  t += "b = transpose a {perm=[0,2,1,3,4]} from {\"turn\"}\ny = reshape b {shape=[1,8,6,6]} from {\"join\"}\n";
  t += "p = slice y {starts=[0,0,0,0], ends=[1,4,6,6], steps=[1,1,1,1]} from {\"first\"}\n";
  t += "q = slice y {starts=[0,4,0,0], ends=[1,8,6,6], steps=[1,1,1,1]} from {\"second\"}\n";
  t += std::string("c3 = conv p w3 ") + kConv + " from {\"conv3\"}\nc4 = conv q w4 " + kConv + " from {\"conv4\"}\n";
  return t + "z = add c3 c4 from {\"add\"}\noutput z\n";
}

float scale_of(const plan::Planned& p, const std::string& node) {
  for (const region::Region& r : p.plan.regions) {
    if (!r.onnx_nodes.contains(node) || !r.stages[0].anchor.weights || !r.stages[0].anchor.inputs[0].quantizer) continue;
    return r.stages[0].anchor.inputs[0].quantizer->scale[0];
  }
  return 0;
}

/// A range holds for the whole shuffle, on whichever of its tensors the table has it; one of the halves' own comes before it.
TEST(Permit, RangesTravelThroughAShuffle) {
  std::vector<std::map<std::string, float>> cases;
  for (const char* tensor : {"k", "a", "b", "y"}) cases.push_back({{"x", 0.03F}, {tensor, 0.05F}});
  cases.push_back({{"x", 0.03F}, {"p", 0.05F}, {"q", 0.05F}});
  cases.push_back({{"x", 0.03F}, {"y", 0.02F}, {"p", 0.05F}, {"q", 0.05F}});
  cases.push_back({{"x", 0.03F}, {"y", 0.09F}, {"p", 0.05F}, {"q", 0.05F}});
  for (const auto& ranges : cases) {
    const auto p = planned(shuffle(), with(ranges));
    EXPECT_EQ(p.permitted.int8_layers, 4) << ranges.rbegin()->first;
    for (const char* node : {"conv3", "conv4"}) EXPECT_EQ(scale_of(p, node), 0.05F) << ranges.rbegin()->first << ", " << node;
    auto options = with(ranges);
    options.disabled = {"merge-shuffle"};
    const auto without = planned(shuffle(), options);
    EXPECT_EQ(without.permitted.int8_layers, 4);
    EXPECT_EQ(scale_of(without, "conv3"), 0.05F);
    int gathers = 0, copies = 0, copies_without = 0;
    for (const region::Region& r : p.plan.regions) {
      gathers += r.stages[0].anchor.op == ir::Op::gather ? 1 : 0;
      copies += r.precision == region::Work::move ? 1 : 0;
    }
    for (const region::Region& r : without.plan.regions) copies_without += r.precision == region::Work::move ? 1 : 0;
    EXPECT_EQ(gathers, 2);
    EXPECT_LT(copies, copies_without);
    for (const char* node : {"split", "turn", "join", "first", "second"}) {  // nothing is unexplained
      EXPECT_TRUE(std::ranges::any_of(p.plan.regions, [&](const auto& r) { return r.onnx_nodes.contains(node); })) << node;
    }
  }
}

TEST(Permit, WithoutRangesNothingChanges) {
  const auto p = planned(residual());
  EXPECT_EQ(views(p.graph), 0);
  EXPECT_EQ(p.permitted.int8_layers, 0);
}

TEST(Permit, NoViewInsideAnEpilogue) {
  auto ranges = kAll;
  ranges["c1"] = 0.04F;  // in front of relu1
  ranges["c2"] = 0.04F;  // in front of the add
  ranges["a"] = 0.04F;   // in front of relu2
  EXPECT_EQ(hash(planned(residual(), with(ranges))), hash(planned(residual(), with(kAll))));
}

TEST(Permit, AMissingRangeKeepsTheLayerFloatAndIsNamed) {
  const auto p = planned(residual(), with({{"x", 0.03F}, {"r2", 0.07F}}));
  EXPECT_EQ(p.permitted.int8_layers, 2);
  EXPECT_EQ(p.permitted.float_layers, 1);
  EXPECT_EQ(p.permitted.missing, std::vector<std::string>{"r1"});
  EXPECT_NE(reason(p, "conv2").find("tensor \"r1\" has no range"), std::string::npos) << reason(p, "conv2");
}

TEST(Permit, UnmatchedAndUnusableRangesAreNamed) {
  auto ranges = kAll;
  ranges["ghost"] = 1;
  ranges["r1"] = 0;
  ranges["r2"] = std::numeric_limits<float>::infinity();
  const auto p = planned(residual(), with(ranges));
  EXPECT_EQ(p.permitted.unmatched, std::vector<std::string>{"ghost"});
  EXPECT_EQ(p.permitted.unusable, (std::vector<std::string>{"r1", "r2"}));
  EXPECT_EQ(p.permitted.int8_layers, 1);
}

TEST(Permit, RangesTravelThroughRelu) {
  const auto p = planned(residual(), with({{"x", 0.03F}, {"c1", 0.05F}, {"a", 0.07F}}));
  EXPECT_EQ(hash(p), hash(planned(residual(), with(kAll))));
}

TEST(Permit, TheScaleIsPartOfThePlan) {
  auto ranges = kAll;
  ranges["r2"] = std::nextafter(0.07F, 1.0F);
  EXPECT_NE(hash(planned(residual(), with(ranges))), hash(planned(residual(), with(kAll))));
}

TEST(Permit, ANodeKeptFloatByRule) {
  auto o = with(kAll);
  o.precisions = {{"conv2", "float32"}, {"conv*", "int8"}};
  const auto p = planned(residual(), o);
  EXPECT_EQ(p.permitted.int8_layers, 2);
  EXPECT_NE(reason(p, "conv2").find("kept float32 by the rule \"conv2=float32\""), std::string::npos) << reason(p, "conv2");
}

TEST(Permit, ATensorKeptFloatByRule) {
  auto o = with(kAll);
  o.precisions = {{"r1", "float32"}};
  const auto p = planned(residual(), o);
  EXPECT_NE(reason(p, "conv2").find("\"r1\" is kept float32 by the rule"), std::string::npos) << reason(p, "conv2");
  EXPECT_EQ(views(p.graph), 2);
}

TEST(Permit, RulesThatCannotBeKeptAreErrors) {
  auto o = with({{"x", 0.03F}, {"r2", 0.07F}});
  o.precisions = {{"conv2", "int8"}};
  EXPECT_NE(failure(residual(), o).find("tensor \"r1\" has no range"), std::string::npos);
  o.precisions = {{"r1", "int8"}};
  EXPECT_NE(failure(residual(), o).find("\"r1\", which has no range"), std::string::npos);
  o.precisions = {{"nowhere*", "float32"}};
  EXPECT_NE(failure(residual(), o).find("matches no ONNX node"), std::string::npos);
}

TEST(Permit, TypesAreParsedOnce) {
  for (const auto& [name, type] : plan::LayerType::kNames) {
    ASSERT_TRUE(plan::LayerType::parse(name)) << name;
    EXPECT_EQ(*plan::LayerType::parse(name), type);
    EXPECT_EQ(plan::LayerType(type).name(), name);
  }
  for (const char* name : {"int4", "fp16", "", "float16-", "Float16"}) EXPECT_FALSE(plan::LayerType::parse(name)) << name;
  plan::LayerTypes types{"float16", "int8"};
  EXPECT_TRUE(types.contains("int8") && types.contains("float16") && !types.contains("float32"));
  EXPECT_EQ(types.names(), (std::set<std::string>{"float16", "int8"}));
  types.erase("float16");
  EXPECT_EQ(types, plan::LayerTypes({"int8"}));
}

TEST(Permit, AllowedTypes) {
  auto o = with(kAll);
  o.allowed = {"float32"};
  const auto p = planned(residual(), o);
  EXPECT_EQ(views(p.graph), 0);
  EXPECT_NE(reason(p, "conv1").find("int8 is not among the allowed types"), std::string::npos) << reason(p, "conv1");
}

// conv1 -> SiLU -> conv2, a range on every tensor.
std::string silu() {
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\n";
  for (const char* w : {"w1", "w2"}) t += std::string(w) + " = constant f32[4,4,3,3] seed:" + w[1] + "\n";
  t += std::string("c1 = conv x w1 ") + kConv +
       " from {\"conv1\"}\ns = sigmoid c1 from {\"sigmoid\"}\nm = mul c1 s from {\"mul\"}\n";
  return t + "c2 = conv m w2 " + kConv + " from {\"conv2\"}\noutput c2\n";
}
const std::map<std::string, float> kSilu{{"x", 0.03F}, {"c1", 0.02F}, {"s", 0.0078F}, {"m", 0.04F}};

TEST(Permit, InnerViewsOnlyWhereTheChoicesAskForThem) {
  const auto run = [](const plan::PermitChoices& choices) {
    auto g = parse(silu());
    (void)plan::set_ranges(g, ir::symmetric(kSilu));
    auto report = plan::permit(g, with(kSilu), choices);
    EXPECT_TRUE(report);
    return std::pair{views(g), report->inner};
  };
  const auto [standard, none] = run({});
  const auto [named, one] = run({{}, {"conv1"}, false});
  const auto [other, nobody] = run({{}, {"conv2"}, false});
  const auto [every, all] = run({{}, {}, true});
  EXPECT_EQ(named, standard + 1) << "one view, read by the sigmoid and by the product";
  EXPECT_EQ(every, named);
  EXPECT_EQ(other, standard);
  EXPECT_EQ(one, std::set<std::string>{"conv1"});
  EXPECT_EQ(all, one);
  EXPECT_TRUE(none.empty() && nobody.empty());
}

TEST(Permit, LayersAboveTheErrorLimitStayFloatAndSayWhy) {
  auto o = with(kSilu);
  o.max_error = 1e-9;  // nothing in int8 is as exact
  const auto p = planned(silu(), o);
  EXPECT_EQ(p.permitted.int8_layers, 0);
  EXPECT_EQ(views(p.graph), 0);
  for (const char* node : {"conv1", "conv2"}) {
    const std::string why = reason(p, node);
    EXPECT_TRUE(why.starts_with("float32 | kept float32 for --max-error 1e-09: in int8 it alone changes the outputs by ")) << why;
  }
  int decided = 0;
  for (const region::Decision& d : p.plan.decisions) {
    if (d.choice != "precision") continue;
    ++decided;
    EXPECT_EQ(d.candidates[d.chosen].name, "float32") << d.where;
    EXPECT_NE(report::sentences(d.reasons).find("with every permitted layer in int8, 0 as chosen; "), std::string::npos)
        << report::sentences(d.reasons);
  }
  EXPECT_GE(decided, 2);
  o.max_error = 1e9;
  EXPECT_EQ(planned(silu(), o).permitted.int8_layers, 2);
}

TEST(Permit, AnErrorThatNoChoiceKeepsIsRefusedWithTheFigure) {
  auto o = with(kSilu);
  o.max_error = 1e-9;
  o.precisions = {{"conv1", "bfloat16"}};  // demanded: the search may not take it back
  const std::string message = failure(silu(), o);
  EXPECT_NE(message.find("--max-error 1e-09: with no permitted layer in int8 an output still differs by "), std::string::npos)
      << message;
  EXPECT_NE(message.find("bfloat16 makes this error"), std::string::npos) << message;
}

TEST(Permit, KeepFloatTurnsOneLayerOff) {
  auto g = parse(residual());
  (void)plan::set_ranges(g, ir::symmetric(kAll));
  auto all = g, but_one = g;
  const auto a = plan::permit(all, with(kAll));
  const auto b = plan::permit(but_one, with(kAll), {{"conv3"}, {}, false});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->permitted, (std::set<std::string>{"conv1", "conv2", "conv3"}));
  EXPECT_EQ(b->permitted, (std::set<std::string>{"conv1", "conv2"}));
  EXPECT_EQ(b->why_float.at("conv3"), because<cause::left_out_for_comparison>());
}

TEST(Permit, TheErrorOfPermittedViewsIsMeasured) {
  const auto plain = planned(residual()).graph;
  const auto none = plan::estimated_error(plain, plain);
  const auto fine = plan::estimated_error(plain, planned(residual(), with({{"x", 1.0F / 127}, {"r1", 0.05F}, {"r2", 0.2F}})).graph);
  const auto coarse = plan::estimated_error(plain, planned(residual(), with({{"x", 0.2F}, {"r1", 0.5F}, {"r2", 2.0F}})).graph);
  ASSERT_TRUE(none && fine && coarse);
  EXPECT_EQ(*none, 0);
  EXPECT_GT(*fine, 0);
  EXPECT_GT(*coarse, *fine);
}

}  // namespace
}  // namespace octavo
