// Which IR nodes an ONNX operator becomes. Values are compared with ONNX Runtime by compare_ort.py; here the shape of the result
// counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>

#include "onnx/build_model.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

using namespace testing;

/// One node over x; the other operands are constants that the caller has added.
Result<Model> lowered(ModelBuilder& b) {
  return b.import();
}

const ir::Node& only(const Model& m) {
  EXPECT_EQ(nodes_of(m.graph).size(), 1U) << ops_of(m.graph);
  return *nodes_of(m.graph)[0];
}

TEST(Lower, SplitBecomesSlices) {
  ModelBuilder b(13);
  b.input("x", {2, 6}).output("p").output("q").ints("s", {2, 4});
  b.node("Split", {"x", "s"}, {"p", "q"}).i("axis", -1);
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "slice slice");
  EXPECT_EQ(ir::get_ints(nodes_of(m->graph)[1]->attrs, "starts"), (Dims{0, 2}));
  EXPECT_EQ(ir::get_ints(nodes_of(m->graph)[1]->attrs, "ends"), (Dims{2, 6}));
}

TEST(Lower, AveragesOverTheImageAreAveragePools) {
  for (const bool keep : {true, false}) {
    ModelBuilder b(18);
    b.input("x", {1, 3, 5, 4}).output("y").ints("axes", {3, -2});
    b.node("ReduceMean", {"x", "axes"}, {"y"}).i("keepdims", keep);
    const auto m = lowered(b);
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ(ops_of(m->graph), keep ? "avg_pool" : "avg_pool reshape");
    EXPECT_EQ(ir::get_ints(nodes_of(m->graph)[0]->attrs, "kernel"), (Dims{5, 4}));
  }
  ModelBuilder other(18);
  other.input("x", {1, 3, 5, 4}).output("y").ints("axes", {1, 2});
  other.node("ReduceMean", {"x", "axes"}, {"y"});
  EXPECT_EQ(ops_of(lowered(other)->graph), "reduce_mean");
}

TEST(Lower, BatchNormIsComputedInDoubleAndRoundedOnce) {
  ModelBuilder b(15);
  const float scale = 1.1F, bias = 0.3F, mean = 0.7F, var = 0.9F, eps = 1e-3F;
  b.input("x", {1, 1, 2, 2})
      .output("y")
      .floats("s", {1}, {scale})
      .floats("b", {1}, {bias})
      .floats("m", {1}, {mean})
      .floats("v", {1}, {var});
  b.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}).f("epsilon", eps);
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  const ir::Node& n = only(*m);
  EXPECT_EQ(n.op, ir::Op::affine);
  const double a = static_cast<double>(scale) / std::sqrt(static_cast<double>(var) + static_cast<double>(eps));
  EXPECT_EQ(m->graph.payload(n.inputs[1]).data<float>()[0], static_cast<float>(a));
  EXPECT_EQ(m->graph.payload(n.inputs[2]).data<float>()[0],
            static_cast<float>(static_cast<double>(bias) - static_cast<double>(mean) * a));
}

TEST(Lower, CeilModeBecomesEndPads) {
  ModelBuilder b(12);
  b.input("x", {1, 1, 6, 6}).output("y");
  b.node("MaxPool", {"x"}, {"y"}).ints("kernel_shape", {3, 3}).ints("strides", {2, 2}).i("ceil_mode", 1);
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ir::get_ints(only(*m).attrs, "pads"), (Dims{0, 0, 1, 1}));
  // With padding at both ends, a window that would start in the end padding is dropped.
  ModelBuilder clipped(12);
  clipped.input("x", {1, 1, 4, 4}).output("y");
  clipped.node("MaxPool", {"x"}, {"y"})
      .ints("kernel_shape", {2, 2})
      .ints("strides", {3, 3})
      .ints("pads", {1, 1, 1, 1})
      .i("ceil_mode", 1);
  const auto c = lowered(clipped);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(ir::to_string(c->graph.type(c->graph.outputs[0])), "f32[1,1,2,2]");
}

TEST(Lower, AveragePoolCountsItsOwnPaddingButNotWhatCeilModeAdds) {
  ModelBuilder b(19);
  b.input("x", {1, 1, 6, 6}).output("y");
  b.node("AveragePool", {"x"}, {"y"})
      .ints("kernel_shape", {3, 3})
      .ints("strides", {2, 2})
      .ints("pads", {1, 1, 0, 0})
      .i("ceil_mode", 1)
      .i("count_include_pad", 1);
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "avg_pool");  // 6 + 1 = 3 + 2 * 2: nothing to add
  b.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(2)->set_dim_value(
      7);
  const auto longer = lowered(b);
  ASSERT_TRUE(longer) << longer.error().message;
  EXPECT_EQ(ops_of(longer->graph), "pad avg_pool");
}

TEST(Lower, GemmFactorsAndTransposesAreFoldedIntoConstants) {
  ModelBuilder b(13);
  b.input("x", {2, 3}).output("y").floats("w", {1, 3}, {1, 2, 3}).floats("c", {1, 1}, {4});
  b.node("Gemm", {"x", "w", "c"}, {"y"}).i("transB", 1).f("alpha", 0.5F).f("beta", 2.0F);
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  const ir::Node& n = only(*m);
  EXPECT_EQ(n.op, ir::Op::gemm);
  EXPECT_EQ(m->graph.type(n.inputs[1]).shape, (ir::Shape{3, 1}));
  EXPECT_EQ(m->graph.payload(n.inputs[1]).at(2), 1.5);
  EXPECT_EQ(m->graph.type(n.inputs[2]).shape, (ir::Shape{1}));
  EXPECT_EQ(m->graph.payload(n.inputs[2]).at(0), 8.0);
}

TEST(Lower, MatMulWithWeightsIsAGemmOverAllRows) {
  for (const bool batched : {false, true}) {
    ModelBuilder b;
    b.input("x", batched ? Dims{5, 2, 3} : Dims{2, 3}).output("y").ramp("w", {3, 4});
    b.node("MatMul", {"x", "w"}, {"y"});
    EXPECT_EQ(ops_of(lowered(b)->graph), batched ? "reshape gemm reshape" : "gemm");
  }
  ModelBuilder product;  // of two computed operands
  product.input("x", {5, 2, 3}).input("w", {3, 4}).output("y").node("MatMul", {"x", "w"}, {"y"});
  EXPECT_EQ(ops_of(lowered(product)->graph), "matmul");
}

TEST(Lower, OldSoftmaxFlattens) {
  ModelBuilder tail(11);
  tail.input("x", {2, 10, 1, 1}).output("y");
  tail.node("Softmax", {"x"}, {"y"});
  EXPECT_EQ(ops_of(lowered(tail)->graph), "softmax");
  ModelBuilder wide(11);
  wide.input("x", {2, 3, 4}).output("y");
  wide.node("Softmax", {"x"}, {"y"});
  EXPECT_EQ(ops_of(lowered(wide)->graph), "reshape softmax reshape");
}

TEST(Lower, NearestResizeIsAnIndexTable) {
  ModelBuilder b(13);
  b.input("x", {1, 1, 2, 3}).output("y").floats("roi", {0}, {}).floats("s", {4}, {1, 1, 2, 1});
  b.node("Resize", {"x", "roi", "s"}, {"y"})
      .s("mode", "nearest")
      .s("coordinate_transformation_mode", "asymmetric")
      .s("nearest_mode", "floor");
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ir::get_ints(only(*m).attrs, "index2"), (Dims{0, 0, 1, 1}));
  EXPECT_FALSE(only(*m).attrs.contains("index3"));
}

TEST(Lower, NegativePadsCut) {
  ModelBuilder b(13);
  b.input("x", {4, 4}).output("y").ints("p", {-1, 2, 0, 0});
  b.node("Pad", {"x", "p"}, {"y"});
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "slice pad");
  EXPECT_EQ(ir::to_string(m->graph.type(m->graph.outputs[0])), "f32[3,6]");
}

TEST(Lower, ExpandingALittleFileIntoAHugeConstantIsLeftToRunTime) {
  ModelBuilder b(13);
  b.input("x", {1}).output("y").ints("s", {1L << 38});
  b.node("ConstantOfShape", {"s"}, {"z"});
  b.node("Add", {"x", "z"}, {"y"});
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "expand add");
}

TEST(Lower, EveryRowOfTheTableIsReachable) {
  for (const std::string& op : supported_operators()) {
    const std::size_t dot = op.rfind('.');
    const std::string domain = dot == std::string::npos ? "" : op.substr(0, dot),
                      type = dot == std::string::npos ? op : op.substr(dot + 1);
    bool found = false;
    for (int opset = kOldestOpset; opset <= kNewestOpset; ++opset) {
      const OpRow* row = find_row(domain, type, opset);
      found = found || row;
      // Two rows of one operator must not claim one opset.
      int claims = 0;
      for (const Family family :
           {conv_ops(), gemm_ops(), pool_ops(), activation_ops(), elementwise_ops(), move_ops(), slice_ops(), reduce_ops(),
            resize_ops(), norm_ops(), shape_ops(), control_ops(), quant_ops(), qlinear_ops(), integer_ops()}) {
        for (const OpRow& r : family)
          claims += r.type == type && r.domain == domain && opset >= r.since && (r.until == 0 || opset <= r.until);
      }
      EXPECT_LE(claims, 1) << op << " at opset " << opset;
    }
    EXPECT_TRUE(found) << op;
  }
}

TEST(Lower, TheDocumentationListsEveryOperator) {
  std::ifstream file(std::string(OCTAVO_SOURCE_DIR) + "/docs/operators.md");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, ' ');
  for (const std::string& op : supported_operators()) {
    const std::string name = op.substr(op.rfind('.') + 1);
    EXPECT_NE(text.find(" " + name + " "), std::string::npos)
        << name << " is missing in docs/operators.md; scripts/operators_doc.py writes it";
  }
}

/// my.twice(x) {k} = my.once(x) + once(x), once(x) = LeakyRelu(x, alpha = k)
ModelBuilder with_functions() {
  ModelBuilder b(17);
  b.input("x", {2}).output("y");
  b.proto.add_opset_import()->set_domain("my");
  const auto function = [&](const char* name) {
    auto* f = b.proto.add_functions();
    f->set_name(name);
    f->set_domain("my");
    f->add_input("a");
    f->add_output("r");
    f->add_attribute("k");
    f->add_opset_import()->set_version(17);
    return f;
  };
  const auto add = [](pb::FunctionProto* f, const char* type, const char* domain, std::initializer_list<const char*> in,
                      const char* out) {
    auto* n = f->add_node();
    n->set_op_type(type);
    n->set_domain(domain);
    for (const char* i : in) n->add_input(i);
    n->add_output(out);
    return n;
  };
  const auto refer = [](pb::NodeProto* n, const char* key) {
    auto* a = n->add_attribute();
    a->set_name(key);
    a->set_type(pb::AttributeProto::FLOAT);
    a->set_ref_attr_name("k");
  };
  auto* once = function("once");
  refer(add(once, "LeakyRelu", "", {"a"}, "r"), "alpha");
  auto* twice = function("twice");
  refer(add(twice, "once", "my", {"a"}, "t"), "k");
  add(twice, "Add", "", {"t", "t"}, "r");
  b.node("twice", {"x"}, {"m"}).domain("my").f("k", 0.25F).name("first");
  b.node("twice", {"m"}, {"y"}).domain("my").f("k", 0.5F).name("second");
  return b;
}

TEST(Functions, AreInlinedWithTheirAttributes) {
  const auto m = with_functions().import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "leaky_relu add leaky_relu add");
  EXPECT_EQ(ir::get_float(nodes_of(m->graph)[0]->attrs, "alpha"), 0.25);
  EXPECT_EQ(ir::get_float(nodes_of(m->graph)[2]->attrs, "alpha"), 0.5);
  EXPECT_EQ(nodes_of(m->graph)[0]->origin, std::set<std::string>{"first/once_0/LeakyRelu_0"});
  EXPECT_EQ(nodes_of(m->graph)[3]->origin, std::set<std::string>{"second/Add_1"});
}

TEST(Functions, ThatCallThemselvesOrGrowWithoutEndAreRefused) {
  ModelBuilder loop = with_functions();
  loop.proto.mutable_functions(0)->mutable_node(0)->set_op_type("twice");
  loop.proto.mutable_functions(0)->mutable_node(0)->set_domain("my");
  EXPECT_NE(loop.error().find("calls itself"), std::string::npos) << loop.error();
  ModelBuilder other = with_functions();
  other.proto.mutable_functions(1)->mutable_opset_import(0)->set_version(9);
  EXPECT_NE(other.error().find("written for opset 9 while the model uses 17"), std::string::npos) << other.error();
  // Ten functions, each calling the next ten times: 10^10 nodes from a few hundred bytes.
  ModelBuilder bomb(17);
  bomb.input("x", {2}).output("y");
  for (int i = 0; i < 10; ++i) {
    auto* f = bomb.proto.add_functions();
    f->set_name("f" + std::to_string(i));
    f->set_domain("my");
    f->add_input("a");
    f->add_output("r9");
    for (int k = 0; k < 10; ++k) {
      auto* n = f->add_node();
      n->set_op_type(i == 9 ? "Relu" : "f" + std::to_string(i + 1));
      n->set_domain(i == 9 ? "" : "my");
      n->add_input(k == 0 ? "a" : "r" + std::to_string(k - 1));
      n->add_output("r" + std::to_string(k));
    }
  }
  bomb.node("f0", {"x"}, {"y"}).domain("my");
  // Found before a node is copied: it names the call in the graph.
  EXPECT_NE(bomb.error().find("node \"f0_0\" calls function my.f0: more than 20"), std::string::npos) << bomb.error();
}

TEST(Lower, AKnownConditionTakesItsBranch) {
  ModelBuilder b(13);
  b.input("x", {2}).output("y").constant<std::uint8_t>("c", {}, {1}, kBool);
  auto node = b.node("If", {"c"}, {"y"}).name("choice");
  for (const char* key : {"then_branch", "else_branch"}) {
    auto* a = node.proto()->add_attribute();
    a->set_name(key);
    a->set_type(pb::AttributeProto::GRAPH);
    auto* n = a->mutable_g()->add_node();
    n->set_op_type(std::string(key) == "then_branch" ? "Relu" : "Neg");
    n->add_input("x");
    n->add_output("r");
    a->mutable_g()->add_output()->set_name("r");
  }
  const auto m = lowered(b);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "relu");
  EXPECT_EQ(only(*m).origin, std::set<std::string>{"choice/Relu_0"});
}

}  // namespace
}  // namespace octavo::onnx
