// Every float rule against its text test (tests/passes/rules/*.irt), and the bounds of those that are not exact.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "ir/text.h"
#include "passes/passes.h"
#include "reference/evaluate.h"
#include "support/irt.h"

namespace octavo {
namespace {

class FloatRuleText : public ::testing::TestWithParam<std::string> {};

TEST_P(FloatRuleText, Holds) {
  testing::run_irt(GetParam(), passes::float_rules());
}

INSTANTIATE_TEST_SUITE_P(Passes, FloatRuleText, ::testing::ValuesIn(testing::irt_files("tests/passes/rules")),
                         [](const auto& test) {
                           const std::string stem = test.param.substr(test.param.rfind('/') + 1);
                           return stem.substr(0, stem.rfind('.'));
                         });

TEST(FloatRuleNames, EachHasItsTextTest) {
  const std::vector<std::string> files = testing::irt_files("tests/passes/rules");
  for (const rewrite::Rule* rule : passes::float_rules()) {
    std::string stem(rule->name());
    std::replace(stem.begin(), stem.end(), '-', '_');
    EXPECT_TRUE(std::count(files.begin(), files.end(), "tests/passes/rules/" + stem + ".irt"))
        << rule->name() << " has no text test";
  }
  EXPECT_EQ(files.size(), passes::float_rules().size());
}

/// Inputs and constants have no provenance: what is folded into them is accounted for by its readers.
TEST(FloatRules, KeepEveryOnnxNode) {
  auto g = ir::parse(R"(
x = input : f32[2,2]
i = reshape x {shape=[2,2]} from {"Reshape_0"}
a = constant f32[2,2] (1, 2, 3, 4)
e = exp a from {"Exp_1"}
t = transpose i {perm=[1,0]} from {"Transpose_2"}
u = transpose t {perm=[1,0]} from {"Transpose_3"}
y = add u e from {"Add_4"}
output y as "y"
)");
  ASSERT_TRUE(g) << g.error().message;
  ASSERT_TRUE(rewrite::run(*g, passes::float_rules(), {}));
  EXPECT_EQ(g->order().size(), 3U) << ir::print(*g);
  EXPECT_EQ(g->producer(g->outputs[0]).origin,
            (std::set<std::string>{"Add_4", "Exp_1", "Reshape_0", "Transpose_2", "Transpose_3"}));
}

ir::Tensor random_tensor(const ir::TensorType& type, std::mt19937& random) {
  ir::Tensor t(type);
  for (float& v : t.mutable_data<float>())
    v = std::ldexp(static_cast<float>(random()) * 0x1p-31F - 1, static_cast<int>(random() % 5) - 2);
  return t;
}

/// Products of matrices among reshapes, transposes and sums, as attention and MLP blocks have them: the rules that move operators come to an end, and
/// move them exactly. Control: most graphs change, and each rule that moves rows is applied.
TEST(FloatRules, RandomRowsAndTransposesComeToAnEnd) {
  int changed = 0;
  std::map<std::string, int> times;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    std::string text =
        "x0 = input : f32[6,4]\nx1 = input : f32[2,3,4]\nw = constant f32[4,4] seed:1\nc = constant f32[4] seed:2\n"
        "m = constant f32[3,1,2] seed:3\nn = constant f32[2,1,2,1] seed:4\n";
    std::vector<std::pair<std::string, ir::Shape>> values{{"x0", {6, 4}}, {"x1", {2, 3, 4}}};
    const auto add = [&](const std::string& node, ir::Shape shape) {
      const std::string name = fmt::format("v{}", values.size());
      text += fmt::format("{} = {}\n", name, node);
      values.emplace_back(name, std::move(shape));
    };
    for (int step = 0; step < 24; ++step) {
      const auto [name, shape] = values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), 5)];
      switch (random() % 9) {
        case 0: {  // a linear layer, whose rows become a tensor again
          if (shape.back() != 4) break;
          if (shape.size() != 2) add(fmt::format("reshape {} {{shape=[6,4]}}", name), {6, 4});
          add(fmt::format("gemm {} w", shape.size() == 2 ? name : values.back().first), {6, 4});
          add(fmt::format("reshape {} {{shape=[3,2,4]}}", values.back().first), {3, 2, 4});
          break;
        }
        case 1: {
          static const std::vector<ir::Shape> kShapes{{2, 3, 4}, {3, 2, 4}, {1, 2, 3, 4}, {6, 4}};
          const ir::Shape to = kShapes[random() % kShapes.size()];
          add(fmt::format("reshape {} {{shape=[{}]}}", name, fmt::join(to, ",")), to);
          break;
        }
        case 2: {
          ir::Shape perm(shape.size()), to;
          std::iota(perm.begin(), perm.end(), 0);
          if (perm.size() > 2 && random() % 2 == 0) {
            std::swap(perm[0], perm[1]);
          } else {
            std::shuffle(perm.begin(), perm.end(), random);
          }
          for (const std::int64_t d : perm) to.push_back(shape[static_cast<std::size_t>(d)]);
          add(fmt::format("transpose {} {{perm=[{}]}}", name, fmt::join(perm, ",")), to);
          break;
        }
        case 3: add(fmt::format("relu {}", name), shape); break;
        case 8: {  // a constant for parts of a dimension that is split for it
          if (shape != ir::Shape{6, 4}) break;
          add(fmt::format("reshape {} {{shape=[2,3,2,2]}}", name), {2, 3, 2, 2});
          add(fmt::format("add {} {}", values.back().first, random() % 2 == 0 ? "m" : "n"), {2, 3, 2, 2});
          add(fmt::format("reshape {} {{shape=[6,4]}}", values.back().first), {6, 4});
          break;
        }
        case 7: {  // a module that computes with the sequence in front of the batch, and splits its columns
          if (shape.size() != 3 || shape.back() != 4) break;
          add(fmt::format("transpose {} {{perm=[1,0,2]}}", name), {shape[1], shape[0], 4});
          add(fmt::format("reshape {} {{shape=[6,4]}}", values.back().first), {6, 4});
          add(fmt::format("gemm {} w", values.back().first), {6, 4});
          if (random() % 2 == 0) add(fmt::format("mul {} c", values.back().first), {6, 4});
          add(fmt::format("reshape {} {{shape=[{},{},2]}}", values.back().first, shape[1], 2 * shape[0]),
              {shape[1], 2 * shape[0], 2});
          add(fmt::format("transpose {} {{perm=[1,0,2]}}", values.back().first), {2 * shape[0], shape[1], 2});
          if (random() % 2 == 0)
            add(fmt::format("reshape {} {{shape=[{},2,{},2]}}", values.back().first, shape[0], shape[1]),
                {shape[0], 2, shape[1], 2});
          if (random() % 2 == 0) add(fmt::format("reshape {} {{shape=[6,4]}}", values.back().first), {6, 4});
          break;
        }
        case 4:
          if (shape.back() == 4) add(fmt::format("mul {} c", name), shape);
          break;
        default: {
          std::vector<std::string> others;
          for (const auto& [other, own] : values) {
            if (own == shape && other != name) others.push_back(other);
          }
          if (!others.empty()) add(fmt::format("add {} {}", name, others[random() % others.size()]), shape);
        }
      }
    }
    text += fmt::format("output {}\n", values.back().first);
    auto parsed = ir::parse(text);
    ASSERT_TRUE(parsed) << parsed.error().message << "\n" << text;
    ir::Graph moved = *parsed;
    const auto report = rewrite::run(moved, passes::float_rules(), {});
    ASSERT_TRUE(report) << "seed " << seed << ": " << report.error().message << "\n" << text;
    changed += report->applied.empty() ? 0 : 1;
    for (const rewrite::LogEntry& entry : report->applied) ++times[entry.rule];
    std::vector<ir::Tensor> inputs;
    for (const ir::ValueId v : parsed->inputs) inputs.push_back(random_tensor(parsed->type(v), random));
    const auto before = reference::evaluate(*parsed, inputs), after = reference::evaluate(moved, inputs);
    ASSERT_TRUE(before && after) << text;
    for (std::int64_t i = 0; i < before->at(0).size(); ++i)
      ASSERT_EQ(before->at(0).at(i), after->at(0).at(i)) << "seed " << seed << ", element " << i << "\n" << text;
  }
  EXPECT_GT(changed, 200);
  for (const char* rule : {"sink-rows", "merge-split", "sink-split", "sink-reshape", "merge-transpose"})
    EXPECT_GT(times[rule], 10) << rule;
}

/// The same graph with the absolute value of everything: what the bound of fold-batch-norm is measured in.
ir::Graph magnitudes(ir::Graph g) {
  for (ir::NodeId id = 0; id < g.node_capacity(); ++id) {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::constant) continue;
    n.payload = n.payload.clone();
    for (float& v : n.payload.mutable_data<float>()) v = std::fabs(v);
  }
  return g;
}

TEST(FoldBatchNorm, StaysWithinItsBound) {
  struct Case {
    const char *x, *w, *b, *node;
    int products, channels;
  };
  const Case cases[] = {{"f32[1,6,7,7]", "f32[8,6,3,3]", "b", "conv x w b {pads=[1,1,1,1]}", 54, 8},
                        {"f32[1,6,7,7]", "f32[6,1,3,3]", "", "conv x w {group=6}", 9, 6},
                        {"f32[1,6,5,5]", "f32[6,4,3,3]", "b", "conv_transpose x w b {group=2, strides=[2,2]}", 27, 8},
                        {"f32[9,40]", "f32[40,5]", "b", "gemm x w b", 40, 5}};
  for (const Case& c : cases) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      std::mt19937 random(seed);
      auto parsed = ir::parse(
          fmt::format("x = input : {}\nw = constant {} seed:{}\nb = constant f32[{}] seed:{}\ns = constant f32[{}] seed:{}\n"
                      "t = constant f32[{}] seed:{}\nc = {}\ny = affine c s t\noutput y\n",
                      c.x, c.w, seed, c.channels, seed + 10, c.channels, seed + 20, c.channels, seed + 30, c.node));
      ASSERT_TRUE(parsed) << parsed.error().message;
      ir::Graph folded = *parsed;
      const auto report = rewrite::run(folded, passes::float_rules(), {});
      ASSERT_TRUE(report) << report.error().message;
      ASSERT_EQ(ir::print(folded).find("affine"), std::string::npos);

      const ir::Tensor x = random_tensor(parsed->type(parsed->inputs[0]), random);
      ir::Tensor positive = x.clone();
      for (float& v : positive.mutable_data<float>()) v = std::fabs(v);
      const auto before = reference::evaluate(*parsed, {x}), after = reference::evaluate(folded, {x});
      const auto scale = reference::evaluate(magnitudes(*parsed), {positive});
      ASSERT_TRUE(before && after && scale);
      bool differs = false;
      for (std::int64_t i = 0; i < before->at(0).size(); ++i) {
        const double bound = 2 * (c.products + 2) * 0x1p-24 * scale->at(0).at(i) * 1.001;
        EXPECT_LE(std::fabs(before->at(0).at(i) - after->at(0).at(i)), bound) << c.node << ", element " << i << ", seed " << seed;
        differs = differs || before->at(0).at(i) != after->at(0).at(i);
      }
      EXPECT_TRUE(differs) << "a rule that never rounds differently should say it is exact";
    }
  }
}

/// What is dropped is less than K 2^-100 max|x|, and shows where a sum has nothing else.
TEST(DropTinyWeights, StaysWithinItsBound) {
  auto parsed = ir::parse(
      "x = input : f32[1,3,4,4]\nw = constant f32[4,3,1,1] (7e-31,1e-39,-5e-31, 1,1e-31,2, 0,0,1e-40, 9e-31,3,4)\n"
      "y = conv x w\noutput y\n");
  ASSERT_TRUE(parsed) << parsed.error().message;
  ir::Graph dropped = *parsed;
  ASSERT_TRUE(rewrite::run(dropped, passes::float_rules(), {}));
  std::mt19937 random(1);
  const ir::Tensor x = random_tensor(parsed->type(parsed->inputs[0]), random);
  const auto before = reference::evaluate(*parsed, {x}), after = reference::evaluate(dropped, {x});
  ASSERT_TRUE(before && after);
  bool differs = false;
  for (std::int64_t i = 0; i < before->at(0).size(); ++i) {
    EXPECT_LE(std::fabs(before->at(0).at(i) - after->at(0).at(i)), 3 * 0x1p-100 * 8) << i;
    differs = differs || before->at(0).at(i) != after->at(0).at(i);
  }
  EXPECT_TRUE(differs);
}

TEST(FuseLayerNorm, StaysWithinItsBound) {
  for (const int n : {1, 3, 64, 700}) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
      std::mt19937 random(seed);
      auto parsed = ir::parse(fmt::format(
          "x = input : f32[5,{0}]\ns = constant f32[{0}] seed:{1}\nb = constant f32[{0}] seed:{2}\ne = constant f32[] (0.001)\n"
          "m = reduce_mean x {{axes=[1]}}\nc = sub x m\nq = mul c c\nv = reduce_mean q {{axes=[1]}}\na = add v e\n"
          "r = sqrt a\nd = div c r\nt = mul d s\ny = add t b\noutput y\n",
          n, seed, seed + 10));
      ASSERT_TRUE(parsed) << parsed.error().message;
      ir::Graph fused = *parsed;
      ASSERT_TRUE(rewrite::run(fused, passes::float_rules(), {}));
      ASSERT_NE(ir::print(fused).find("layer_norm"), std::string::npos);
      ASSERT_EQ(ir::print(fused).find("reduce_mean"), std::string::npos) << ir::print(fused);
      const ir::Tensor x = random_tensor(parsed->type(parsed->inputs[0]), random);
      const auto before = reference::evaluate(*parsed, {x}), after = reference::evaluate(fused, {x});
      ASSERT_TRUE(before && after);
      const ir::Node& add = parsed->producer(parsed->outputs[0]);
      const ir::Tensor& bias = parsed->payload(add.inputs[1]);
      for (std::int64_t i = 0; i < before->at(0).size(); ++i) {
        const double y = before->at(0).at(i), b = bias.at(i % n);
        const double bound = (n + 10) * 0x1p-24 * (std::fabs(y - b) + std::fabs(b)) * 1.001;
        EXPECT_LE(std::fabs(y - after->at(0).at(i)), bound) << n << " elements, element " << i << ", seed " << seed;
      }
    }
  }
}

/// sum |x a y b|, with the roundings of both orders: each term at most 2 more, the result at most 1 more.
TEST(SinkScale, StaysWithinItsBound) {
  constexpr int kDepth = 40;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    auto parsed = ir::parse(fmt::format(
        "x = input : f32[2,9,{0}]\ny = input : f32[2,{0},7]\na = constant f32[] (0.35355338)\nb = constant f32[1] (0.7)\n"
        "s = mul x a\nt = mul b y\nz = matmul s t\noutput z\n",
        kDepth));
    ASSERT_TRUE(parsed) << parsed.error().message;
    ir::Graph sunk = *parsed;
    ASSERT_TRUE(rewrite::run(sunk, passes::float_rules(), {}));
    ASSERT_EQ(sunk.producer(sunk.outputs[0]).op, ir::Op::mul) << ir::print(sunk);
    std::vector<ir::Tensor> inputs, positive;
    for (const ir::ValueId v : parsed->inputs) {
      inputs.push_back(random_tensor(parsed->type(v), random));
      positive.push_back(inputs.back().clone());
      for (float& value : positive.back().mutable_data<float>()) value = std::fabs(value);
    }
    const auto before = reference::evaluate(*parsed, inputs), after = reference::evaluate(sunk, inputs),
               scale = reference::evaluate(*parsed, positive);
    ASSERT_TRUE(before && after && scale);
    bool differs = false;
    for (std::int64_t i = 0; i < before->at(0).size(); ++i) {
      EXPECT_LE(std::fabs(before->at(0).at(i) - after->at(0).at(i)), (kDepth + 3) * 0x1p-23 * scale->at(0).at(i) * 1.001)
          << "element " << i << ", seed " << seed;
      differs = differs || before->at(0).at(i) != after->at(0).at(i);
    }
    EXPECT_TRUE(differs) << "a rule that never rounds differently should say it is exact";
  }
}

/// Random splits and transposes: what merge-shuffle takes is the same bits, and it takes what permutes one axis alone. Control:
/// with two indices exchanged the bits differ.
TEST(MergeShuffle, TakesWhatPermutesOneAxis) {
  const auto& rules = passes::float_rules();
  const auto* const shuffle = *std::ranges::find(rules, "merge-shuffle", &rewrite::Rule::name);
  int applied = 0, refused = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
    ir::Shape x, split;
    for (std::int64_t d = 2 + below(3); d > 0; --d) {
      std::int64_t extent = 1;
      for (std::int64_t k = below(3); k >= 0; --k) {
        split.push_back(1 + below(3));
        extent *= split.back();
      }
      x.push_back(extent);
    }
    std::vector<std::int64_t> perm(split.size());
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
    const auto first = below(perm.size()), last = first + 1 + below(perm.size() - static_cast<std::size_t>(first));
    std::shuffle(perm.begin() + first, perm.begin() + last, random);
    ir::Graph g;
    const ir::ValueId in = g.add_input("x", {ir::DType::f32, x});
    const ir::ValueId a = ir::add_inferred(g, ir::Op::reshape, {in}, {{"shape", split}});
    const ir::ValueId b = ir::add_inferred(g, ir::Op::transpose, {a}, {{"perm", perm}});
    g.outputs = {ir::add_inferred(g, ir::Op::reshape, {b}, {{"shape", x}})};
    g.output_names = {"y"};
    ir::Tensor counted(g.type(in));
    for (std::int64_t i = 0; i < counted.size(); ++i)
      counted.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i);
    const auto before = reference::evaluate(g, {counted});
    ASSERT_TRUE(before);
    // One axis: every index but one stays what it is.
    std::size_t moving = 0;
    const auto strides = ir::dense_strides(x);
    for (std::size_t d = 0; d < x.size(); ++d) {
      bool moves = false;
      for (std::int64_t i = 0; i < counted.size(); ++i) {
        const auto from = static_cast<std::int64_t>(before->at(0).at(i));
        moves = moves || from / strides[d] % x[d] != i / strides[d] % x[d];
      }
      moving += moves ? 1 : 0;
    }
    const auto report = rewrite::run(g, {shuffle}, {});
    ASSERT_TRUE(report) << report.error().message;
    const bool taken = report->stats[0].applied > 0;
    if (moving <= 1 || taken) {
      EXPECT_EQ(taken && moving <= 1, true) << "seed " << seed << ", " << moving << " axes move, taken " << taken << "\n"
                                            << ir::print(g);
    }
    ++(taken ? applied : refused);
    const auto after = reference::evaluate(g, {counted});
    ASSERT_TRUE(after);
    EXPECT_TRUE(std::ranges::equal(before->at(0).bytes(), after->at(0).bytes())) << "seed " << seed;
    if (!taken || g.producer(g.outputs[0]).op != ir::Op::gather) continue;
    ir::Node& indices = g.node(g.value(g.producer(g.outputs[0]).inputs[1]).producer);
    if (indices.payload.size() < 2) continue;
    indices.payload = indices.payload.clone();
    const auto list = indices.payload.mutable_data<std::int64_t>();
    std::swap(list[0], list[static_cast<std::size_t>(1 + below(list.size() - 1))]);
    const auto wrong = reference::evaluate(g, {counted});
    ASSERT_TRUE(wrong);
    EXPECT_FALSE(std::ranges::equal(before->at(0).bytes(), wrong->at(0).bytes())) << "seed " << seed;
  }
  EXPECT_GT(applied, 100);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace octavo
