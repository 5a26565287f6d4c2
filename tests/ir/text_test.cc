#include "ir/text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/canonical.h"
#include "ir/random_graph.h"
#include "ir/verify.h"

namespace octavo::ir {
namespace {

TEST(Text, RandomGraphsComeBackEqual) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    const Graph g = RandomGraph(seed).make();
    ASSERT_TRUE(verify(g)) << "seed " << seed << ": " << verify(g).error().message;
    const std::string text = print(g);
    const auto back = parse(text);
    ASSERT_TRUE(back) << "seed " << seed << ": " << back.error().message << "\n" << text;
    EXPECT_EQ(print(*back), text) << "seed " << seed;
    EXPECT_EQ(graph_hash(*back), graph_hash(g)) << "seed " << seed << "\n" << text;
    EXPECT_TRUE(verify(*back)) << "seed " << seed << ": " << verify(*back).error().message;
    EXPECT_EQ(back->output_names, g.output_names);
  }
}

TEST(Text, PrintsOneLineANode) {
  const auto g = parse(R"(graph "net"   # a comment
x = input : f32[1,2,2,2] range=2.5
w = constant s8[2,2,1,1] q=s8[axis=0](0.1,0.25;0,-3) (1,-2,3,-4)
b = constant f32[2] (0.1, -0)

"/conv:0" = conv x w b {strides=[1,1], group=1} from {"Conv_0", "Bn_0"}
v = clip "/conv:0" {min=-1, max=6.5}
none_like = relu v
output none_like as "y"
output none_like as "again"
)");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_EQ(print(*g), R"(graph "net"
x = input : f32[1,2,2,2] range=2.5
w = constant s8[2,2,1,1] q=s8[axis=0](0.1,0.25;0,-3) (1,-2,3,-4)
b = constant f32[2] (0.1,-0)
"/conv:0" = conv x w b {group=1, strides=[1,1]} : f32[1,2,2,2]  from {"Bn_0", "Conv_0"}
v = clip "/conv:0" {max=6.5, min=-1.0} : f32[1,2,2,2]  from {"v"}
none_like = relu v : f32[1,2,2,2]  from {"none_like"}
output none_like as "y"
output none_like as "again"
)");
  const std::string brief = print(*g, {.full_constants = false, .origins = false});
  EXPECT_EQ(brief.find("from"), std::string::npos);
}

TEST(Text, LargeConstantsAreHexOrADigest) {
  Graph g;
  std::vector<float> values(17, 1);
  g.outputs = {g.add_constant(Tensor::of<float>({17}, values), "c")};
  g.output_names = {"c"};
  EXPECT_NE(print(g).find("hex:0000803f0000803f"), std::string::npos);
  const std::string brief = print(g, {.full_constants = false});
  EXPECT_NE(brief.find("digest:"), std::string::npos);
  const auto back = parse(brief);
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().message.find("print it with full_constants"), std::string::npos);
}

TEST(Text, FloatsKeepTheirBits) {
  RandomGraph random(5);
  for (int i = 0; i < 3000; ++i) {
    const float f = random.real();
    Graph g;
    const ValueId c = g.add_constant(Tensor::of<float>({1}, {f}), "c");
    g.outputs = {add_inferred(g, Op::leaky_relu, {c}, {{"alpha", static_cast<double>(f)}}, {"n"}, "y")};
    g.output_names = {"y"};
    const auto back = parse(print(g));
    ASSERT_TRUE(back) << back.error().message;
    const Node& n = back->producer(back->outputs[0]);
    EXPECT_EQ(hash_attrs(n.attrs), hash_attrs(g.producer(g.outputs[0]).attrs)) << print(g);
    EXPECT_TRUE(same_bytes(back->payload(n.inputs[0]), g.payload(c))) << print(g);
  }
}

TEST(Text, SeedsAreDeterministicAndHoldExtremes) {
  const auto g = parse(
      "a = constant s8[4,64] seed:7\nb = constant s8[4,64] seed:7\nc = constant s8[4,64] seed:8\noutput a\noutput b\noutput c\n");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_TRUE(same_bytes(g->payload(g->outputs[0]), g->payload(g->outputs[1])));
  EXPECT_FALSE(same_bytes(g->payload(g->outputs[0]), g->payload(g->outputs[2])));
  int extremes = 0;
  for (const std::int8_t v : g->payload(g->outputs[0]).data<std::int8_t>()) extremes += v == 127 || v == -128;
  EXPECT_GT(extremes, 32);
}

TEST(Text, MistakesNameTheLine) {
  struct Bad {
    const char *text, *why;
  };
  const Bad cases[] = {
      {"x = input", "line 1: an input needs a type"},
      {"x = input : f32[1,2", "line 1"},
      {"x = input : f99[1]", "expected a type"},
      {"x = input : f32[-1]", "a dimension is not a number >= 0"},
      {"x = input : f32[1099511627776,1099511627776]", "more than 2^40"},
      {"\nx = input : f32[2]\nx = input : f32[2]", "line 3: value"},
      {"y = relu x", "is not defined above"},
      {"x = input : f32[2]\ny = rleu x", "\"rleu\" is not an operator"},
      {"x = input : f32[2]\ny = relu x x", "2 operands, needs 1"},
      {"x = input : f32[2]\ny = relu x }", "expected a value"},
      {"x = input : f32[2]\ny = relu x {a=}", "expected a number"},
      {"x = input : f32[2]\ny = relu x {a=1, a=2}", "given twice"},
      {"x = input : f32[2]\ny = relu x {a=[1,", "expected a number"},
      {"x = input : f32[2]\ny = relu x {a=\"1}", "expected a number"},
      {"x = input : f32[2]\ny = relu x {alpha=1e99}", "outside the range of f32"},
      {"x = input : f32[2]\ny = view x q=u9(1,2)", "is not a quantizer"},
      {"x = input : f32[2]\ny = relu x : f32[2], f32[2]", "1 results and 2 types"},
      {"x = input : f32[2]\ny, z = relu x", "2 results and 1 types"},
      {"x = input : f32[2]\ny = relu x from \"a\"", "from needs"},
      {"c = constant f32[2] (1)", "1 elements listed"},
      {"c = constant s8[1] (128)", "element 0 is not a s8"},
      {"c = constant bool[1] (2)", "element 0 is not a bool"},
      {"c = constant s8[1] (0.5)", "element 0 is not a s8"},
      {"c = constant s64[1] fill:1e30", "is not a s64"},
      {"c = constant f32[1] hex:00", "2 hex digits for 1 elements"},
      {"c = constant f32[1] hex:0000000g", "hexadecimal"},
      {"c = constant f32[1000000000] fill:0", "larger than 2^30 bytes"},
      {"c = constant f32[2]", "expected the elements"},
      {"output x", "is not defined above"},
      {"graph net", "needs a name in quotes"},
      {"x = input : f32[2] junk", "unexpected \"junk\""},
  };
  for (const Bad& c : cases) {
    const auto g = parse(c.text);
    ASSERT_FALSE(g) << c.text;
    EXPECT_NE(g.error().message.find(c.why), std::string::npos) << c.text << "\n  said: " << g.error().message;
    EXPECT_EQ(g.error().kind, ErrorKind::usage);
  }
}

/// Mutated text: an error or a graph, never a crash. What parses and passes the verifier must print and parse again.
TEST(Text, HostileTextIsRefused) {
  int accepted = 0, refused = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = print(RandomGraph(seed % 40 + 1).make(8));
    for (unsigned k = 0; k < 1 + seed % 4; ++k) {
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 12); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
        case 3: text.insert(at, std::string(1, "0123456789-{}[]()\"=,:.%eqx"[random() % 26])); break;
        default: text.resize(at); break;
      }
      if (text.empty()) break;
    }
    const auto g = parse(text);
    if (!g) {
      ++refused;
      continue;
    }
    ++accepted;
    if (!verify(*g)) continue;
    const auto again = parse(print(*g));
    EXPECT_TRUE(again) << "seed " << seed << ": " << again.error().message;
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace octavo::ir
