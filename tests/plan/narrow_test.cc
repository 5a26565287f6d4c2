// bfloat16 written into the graph: where the casts go, which readers take the small tensor, and that the plan computes the same
// bits.
#include "plan/candidates/narrow.h"

#include <gtest/gtest.h>

#include <set>

#include "base/half.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

constexpr const char* kConv = " {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";

ir::Graph parsed(const std::string& text) {
  auto g = ir::parse("graph \"g\"\n" + text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}

ir::Graph narrowed(const std::string& text, const std::set<std::string>& marked) {
  ir::Graph g = parsed(text);
  for (const ir::NodeId id : g.order()) {
    if (!g.node(id).origin.empty() && marked.contains(*g.node(id).origin.begin())) plan::mark_narrow(g.node(id));
  }
  plan::narrow(g);
  const auto fine = ir::verify(g);
  EXPECT_TRUE(fine) << (fine ? "" : fine.error().message);
  return g;
}

/// The nodes, a line each: result, operator, operands, type. Constants and attributes are left out.
std::string listing(const ir::Graph& g) {
  std::string out;
  for (const ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    if (n.op == ir::Op::constant || n.op == ir::Op::input) continue;
    out += g.value(n.outputs[0]).name + (plan::is_held(n) ? "'" : "") + " = " + std::string(ir::name_of(n.op));
    for (const ir::ValueId v : n.inputs) {
      if (!g.is_constant(v)) out += " " + g.value(v).name + (plan::is_held(g.producer(v)) ? "'" : "");
    }
    out += " : " + std::string(ir::name_of(g.type(n.outputs[0]).dtype)) + "\n";
  }
  return out;
}

std::string weights(const std::vector<std::string>& names) {
  std::string t;
  for (const std::string& w : names) t += w + " = constant f32[4,4,3,3] seed:" + w.substr(1) + "\n";
  return t;
}

std::string conv(const std::string& to, const std::string& x, const std::string& w, const std::string& node) {
  return to + " = conv " + x + " " + w + kConv + " from {\"" + node + "\"}\n";
}

const std::string kChain = "x = input : f32[1,4,5,5]\n" + weights({"w1", "w2"}) + conv("a", "x", "w1", "conv1") +
                           "b = relu a from {\"relu\"}\n" + conv("c", "b", "w2", "conv2") + "output c\n";

TEST(Narrow, TheCastStandsBehindWhatMakesTheValue) {
  EXPECT_EQ(listing(narrowed(kChain, {"conv2"})),
            "a = conv x : f32\n"
            "b = relu a : f32\n"
            "b = cast b : bf16\n"
            "b' = cast b : f32\n"
            "c = conv b' : f32\n");
}

/// Emulated: other casts, and no mark is left; the values are those of bfloat16, bit for bit.
TEST(Narrow, EmulatedLayersComputeTheSameValuesInFloats) {
  const std::string text = "x = input : f32[1,4,5,5]\n" + weights({"w1", "w2", "w3"}) + conv("a", "x", "w1", "conv1") +
                           "b = relu a from {\"relu\"}\n" + "k = concat b x {axis=1} from {\"cat\"}\n" +
                           "w4 = constant f32[4,8,3,3] seed:4\n" + conv("c", "b", "w2", "conv2") + conv("d", "k", "w4", "conv3") +
                           "e = add b c from {\"add\"}\n" + conv("f", "e", "w3", "conv4") + "output d\noutput f\n";
  for (const std::set<std::string>& marked : std::vector<std::set<std::string>>{
           {"conv1"}, {"conv2"}, {"conv3"}, {"conv4"}, {"conv2", "conv3"}, {"conv1", "conv2", "conv3", "conv4"}}) {
    ir::Graph small = narrowed(text, marked), emulated = parsed(text);
    for (const ir::NodeId id : emulated.order()) {
      if (!emulated.node(id).origin.empty() && marked.contains(*emulated.node(id).origin.begin()))
        plan::mark_narrow(emulated.node(id), ir::DType::bf16, true);
    }
    plan::narrow(emulated);
    ASSERT_TRUE(ir::verify(emulated));
    for (const ir::NodeId id : emulated.order()) {
      EXPECT_FALSE(plan::is_narrow(emulated.node(id)) || plan::is_narrow_cast(emulated.node(id))) << *marked.begin();
      EXPECT_FALSE(emulated.node(id).attrs.contains("compute"));
    }
    const auto feeds = testing::seeded_feeds(small, 7);
    const auto plain = reference::evaluate(parsed(text), feeds), want = reference::evaluate(small, feeds),
               got = reference::evaluate(emulated, feeds);
    ASSERT_TRUE(plain && want && got);
    EXPECT_EQ(testing::first_difference(*want, *got), "") << *marked.begin();
    EXPECT_NE(testing::first_difference(*plain, *got), "") << *marked.begin() << ": nothing was rounded";
  }
}

TEST(Narrow, WithoutMarksNothingChanges) {
  EXPECT_EQ(ir::print(narrowed(kChain, {})), ir::print(parsed(kChain)));
}

TEST(Narrow, OnlyMarkedWeightsAreRounded) {
  const ir::Graph before = parsed(kChain), after = narrowed(kChain, {"conv2"});
  int rounded = 0;
  for (const ir::NodeId id : after.order()) {
    const ir::Node& n = after.node(id);
    if (n.op != ir::Op::conv) continue;
    const ir::Tensor& w = after.payload(n.inputs[1]);
    for (const ir::NodeId other : before.order()) {
      const ir::Node& m = before.node(other);
      if (m.op != ir::Op::conv || m.origin != n.origin) continue;
      const ir::Tensor& was = before.payload(m.inputs[1]);
      for (std::size_t i = 0; i < static_cast<std::size_t>(w.size()); ++i) {
        const float f = was.data<float>()[i];
        ASSERT_EQ(w.data<float>()[i], plan::is_narrow(n) ? bf16_to_f32(f32_to_bf16(f)) : f);
        rounded += w.data<float>()[i] != f;
      }
    }
  }
  EXPECT_GT(rounded, 100) << "the random weights were bfloat16 already: the test cannot fail";
}

TEST(Narrow, AWeightThatTwoLayersShareIsRoundedForTheMarkedOne) {
  const std::string text = "x = input : f32[1,4,5,5]\n" + weights({"w1"}) + conv("a", "x", "w1", "conv1") +
                           "b = relu a from {\"relu\"}\n" + conv("c", "b", "w1", "conv2") + "output c\n";
  const ir::Graph g = narrowed(text, {"conv2"});
  std::vector<const ir::Tensor*> used;
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op == ir::Op::conv) used.push_back(&g.payload(g.node(id).inputs[1]));
  }
  ASSERT_EQ(used.size(), 2U);
  EXPECT_NE(used[0]->data<float>()[0], used[1]->data<float>()[0]);
}

TEST(Narrow, CastsMoveAboveConcatenations) {
  const std::string text = "x = input : f32[1,4,5,5]\n" + weights({"w1", "w2"}) + "w3 = constant f32[4,8,3,3] seed:3\n" +
                           conv("a", "x", "w1", "conv1") + conv("b", "x", "w2", "conv2") +
                           "m = concat a b {axis=1} from {\"concat\"}\n" + conv("c", "m", "w3", "conv3") + "output c\n";
  EXPECT_EQ(listing(narrowed(text, {"conv3"})),
            "a = conv x : f32\n"
            "a = cast a : bf16\n"
            "b = conv x : f32\n"
            "b = cast b : bf16\n"
            "m = concat a b : bf16\n"
            "m' = cast m : f32\n"
            "c = conv m' : f32\n");
}

const std::string kResidual = "x = input : f32[1,4,5,5]\n" + weights({"w1", "w2"}) + conv("a", "x", "w1", "conv1") +
                              "b = relu a from {\"relu\"}\n" + conv("c", "b", "w2", "conv2") + "d = add c b from {\"add\"}\n";

TEST(Narrow, AResidualReadsTheSmallTensorWhereNobodyElseNeedsTheFloats) {
  EXPECT_EQ(listing(narrowed(kResidual + "output d\n", {"conv2"})),
            "a = conv x : f32\n"
            "b = relu a : f32\n"
            "b = cast b : bf16\n"
            "b' = cast b : f32\n"
            "c = conv b' : f32\n"
            "d = add c b' : f32\n");
}

TEST(Narrow, AResidualReadsTheFloatsThatAreStoredAnyway) {
  const std::string text = listing(narrowed(kResidual + "output d\noutput b\n", {"conv2"}));
  EXPECT_NE(text.find("d = add c b : f32\n"), std::string::npos) << text;
}

TEST(Narrow, AnInputIsRoundedForItsReader) {
  const ir::Graph g = narrowed(kChain, {"conv1"});
  for (const ir::NodeId id : g.order()) {
    if (plan::is_narrow_cast(g.node(id))) {
      EXPECT_EQ(g.node(id).origin, std::set<std::string>{"conv1"});
    }
  }
}

TEST(Narrow, MarksThatCannotBeKeptAreTakenAway) {
  const std::string text = "x = input : f32[1,4,5,5]\nw = input : f32[4,4,3,3]\n" + conv("a", "x", "w", "conv1") + "output a\n";
  EXPECT_EQ(ir::print(narrowed(text, {"conv1"})), ir::print(parsed(text)));
}

constexpr const char* kProducts = R"(q = input : f32[1,2,5,8]
k = input : f32[1,2,7,8]
v = input : f32[1,2,7,4]
a = relu q from {"a"}
b = relu k from {"b"}
t = transpose b {perm=[0,1,3,2]} from {"turn"}
c = relu v from {"c"}
s = matmul a t from {"scores"}
n = constant f32[] (0.5)
d = mul s n from {"scale"}
p = softmax d {axis=3} from {"softmax"}
o = matmul p c from {"product"}
output o
)";

TEST(Narrow, BothMatricesOfAProductAreReadInBfloat16) {
  EXPECT_EQ(listing(narrowed(kProducts, {"scores", "product"})),
            "a = relu q : f32\n"
            "a = cast a : bf16\n"
            "a' = cast a : f32\n"
            "b = relu k : f32\n"
            "b = cast b : bf16\n"
            "t = transpose b : bf16\n"
            "t' = cast t : f32\n"
            "s = matmul a' t' : f32\n"
            "d = mul s : f32\n"
            "p = softmax d : f32\n"
            "p = cast p : bf16\n"
            "p' = cast p : f32\n"
            "c = relu v : f32\n"
            "c = cast c : bf16\n"
            "c' = cast c : f32\n"
            "o = matmul p' c' : f32\n");
  const std::string one = listing(narrowed(kProducts, {"product"}));
  EXPECT_NE(one.find("s = matmul a t : f32\n"), std::string::npos) << one;
  EXPECT_NE(one.find("o = matmul p' c' : f32\n"), std::string::npos) << one;
}

TEST(Narrow, AConstantMatrixIsRoundedOnce) {
  const std::string text =
      "x = input : f32[3,4]\nw = constant f32[3,3] seed:1\na = relu x from {\"a\"}\ny = matmul w a from {\"m\"}\noutput y\n";
  const ir::Graph g = narrowed(text, {"m"});
  int held = 0;
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op != ir::Op::matmul) continue;
    for (const ir::ValueId v : g.node(id).inputs) {
      held += plan::is_held(g.producer(v));
      EXPECT_EQ(g.type(plan::held(g, v)).dtype, ir::DType::bf16);
    }
    EXPECT_TRUE(g.is_constant(plan::held(g, g.node(id).inputs[0])));
  }
  EXPECT_EQ(held, 2);
}

TEST(Narrow, AProductOfOtherTypesLosesItsMark) {
  const std::string text = "x = input : f64[3,4]\ny = input : f64[4,2]\nz = matmul x y from {\"m\"}\noutput z\n";
  EXPECT_EQ(ir::print(narrowed(text, {"m"})), ir::print(parsed(text)));
}

/// The products in one region or apart, by rules: the bits of the graph, and in float32 what a rule leaves out.
TEST(Narrow, PlansOfProductsComputeWhatTheGraphSays) {
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  for (const char* pattern : {"scores", "product", "p", "*"}) {
    for (const plan::LayerType type : {plan::LayerType("bfloat16"), plan::LayerType("bfloat16-emulated"),
                                       plan::LayerType("float16"), plan::LayerType("float16-emulated")}) {
      const ir::DType narrow = *type.narrow();
      for (const bool apart : {false, true}) {
        plan::PlanOptions o;
        o.precisions = {{pattern, type}};
        if (apart) o.disabled = {"attention"};
        const auto planned = plan::make_plan(parsed(kProducts), providers, o);
        ASSERT_TRUE(planned) << pattern << ": " << planned.error().message;
        ASSERT_TRUE(region::verify(planned->plan));
        int small = 0;
        for (const region::Region& r : planned->plan.regions) {
          for (const region::Stage& s : r.stages) {
            if (s.anchor.op != ir::Op::matmul) continue;
            ASSERT_EQ(s.anchor.inputs[0].dtype, s.anchor.inputs[1].dtype) << r.name;
            const bool is = s.anchor.inputs[0].dtype == narrow;
            small += is;
            if (apart) EXPECT_EQ(r.precision, is ? narrow : ir::DType::f32) << r.name;
          }
        }
        const bool emulated = type.emulated();
        EXPECT_EQ(small, emulated ? 0 : std::string(pattern) == "*" ? 2 : 1) << pattern;
        const auto& list = narrow == ir::DType::f16 ? planned->permitted.float16 : planned->permitted.bfloat16;
        EXPECT_EQ(list.size(), static_cast<std::size_t>(small)) << pattern;
        const auto feeds = testing::seeded_feeds(planned->graph, 7);
        const auto want = reference::evaluate(planned->graph, feeds);
        const auto got = testing::run_plan(planned->plan, providers, feeds, false);
        ASSERT_TRUE(want && got) << pattern;
        EXPECT_EQ(testing::first_difference(*want, *got), "") << pattern << " " << type.name();
        const auto plain = reference::evaluate(parsed(kProducts), feeds);
        ASSERT_TRUE(plain);
        EXPECT_NE(testing::first_difference(*want, *plain), "") << pattern << ": nothing was rounded";
      }
    }
  }
}

/// Planned with rules that ask for bfloat16, run by the oracle; compared with the reference's evaluation of the same graph, bit for
/// bit.
TEST(Narrow, ThePlanComputesWhatTheGraphSays) {
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  const std::string more = weights({"w3"}) + conv("e", "d", "w3", "conv3") + "output e\n";
  for (const char* pattern : {"conv1", "conv2", "conv3", "*"}) {
    plan::PlanOptions o;
    o.precisions = {{pattern, "bfloat16"}};
    const auto planned = plan::make_plan(parsed(kResidual + more), providers, o);
    ASSERT_TRUE(planned) << pattern << ": " << planned.error().message;
    int small = 0, passes = 0;
    for (const region::Region& r : planned->plan.regions) {
      passes += r.precision == region::Work::narrow;
      if (r.precision != ir::DType::bf16) continue;
      ++small;
      EXPECT_EQ(r.stages[0].anchor.inputs[0].dtype, ir::DType::bf16) << r.name;
      EXPECT_EQ(r.stages[0].anchor.weights->dtype, ir::DType::bf16) << r.name;
    }
    EXPECT_EQ(small, std::string(pattern) == "*" ? 3 : 1) << pattern;
    EXPECT_EQ(passes, std::string(pattern) == "*" || std::string(pattern) == "conv1" ? 1 : 0) << "the input's own rounding";
    const auto feeds = testing::seeded_feeds(planned->graph, 7);
    const auto want = reference::evaluate(planned->graph, feeds);
    const auto got = testing::run_plan(planned->plan, providers, feeds, false);
    ASSERT_TRUE(want && got) << pattern;
    EXPECT_EQ(testing::first_difference(*want, *got), "") << pattern;
    const auto plain = reference::evaluate(parsed(kResidual + more), feeds);
    ASSERT_TRUE(plain);
    EXPECT_NE(testing::first_difference(*want, *plain), "") << pattern << ": nothing was rounded";
  }
}

}  // namespace
}  // namespace octavo
