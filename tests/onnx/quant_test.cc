// Quantization operators: what becomes of scales, zero points and codes, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/grid.h"
#include "onnx/build_model.h"
#include "reference/evaluate.h"

namespace octavo::onnx {
namespace {

using namespace testing;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// x f32[2,3] -> QuantizeLinear with the given scales on axis 1.
ModelBuilder quantize(const std::vector<float>& scales, const Dims& shape, const std::vector<std::uint8_t>& zeros = {},
                      int opset = 13) {
  ModelBuilder b(opset);
  b.input("x", {2, 3}).output("q", kU8).floats("s", shape, scales);
  if (!zeros.empty()) b.constant("z", shape, zeros, kU8);
  b.node("QuantizeLinear", {"x", "s", zeros.empty() ? "" : "z"}, {"q"}).name("Q");
  return b;
}

TEST(Quant, ScaleShapes) {
  for (const Dims& shape : {Dims{}, Dims{1}}) {
    const auto m = quantize({0.5F}, shape, {3}).import();
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ(ir::to_string(*nodes_of(m->graph)[0]->quantizer), "u8(0.5,3)");
  }
  const auto m = quantize({0.5F, 1.0F, 2.0F}, {3}, {1, 2, 3}).import();
  ASSERT_TRUE(m) << m.error().message;
  const ir::Quantizer& q = *nodes_of(m->graph)[0]->quantizer;
  EXPECT_EQ(q.axis, 1);
  EXPECT_EQ(q.scale, (std::vector<float>{0.5F, 1.0F, 2.0F}));
  EXPECT_EQ(q.zero_point, (std::vector<std::int32_t>{1, 2, 3}));
}

TEST(Quant, BadScalesNameNodeChannelAndValue) {
  for (const float s : {0.0F, -0.0F, std::nanf(""), kInf, -kInf}) {
    const auto m = quantize({0.5F, s, 2.0F}, {3}).import();
    ASSERT_FALSE(m) << s;
    EXPECT_EQ(m.error().kind, ErrorKind::bad_model);
    EXPECT_NE(m.error().message.find("node \"Q\" (QuantizeLinear, index 0): scale \"s\" of channel 1 is"), std::string::npos)
        << m.error().message;
  }
  EXPECT_NE(quantize({0.5F, 0.5F}, {2})
                .error()
                .find("has 2 entries, but dimension 1 of [2,3] is 3; likely the exporter quantized along another axis"),
            std::string::npos);
  EXPECT_NE(quantize({0.5F, 0.5F}, {2, 1}, {}, 21).error().find("blocks need block_size"), std::string::npos);
}

TEST(Quant, ZeroScaleOfAnAllZeroWeightChannelBecomesOne) {
  ModelBuilder b(13);
  b.input("x", {1, 2}).output("y");
  b.constant<std::int8_t>("w", {2, 2}, {1, -2, 0, 0}, kS8).floats("s", {2}, {0.5F, 0.0F});
  b.node("DequantizeLinear", {"w", "s"}, {"wd"}).i("axis", 0).name("DQ");
  b.node("Gemm", {"x", "wd"}, {"y"}).i("transB", 1);
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->notes, std::vector<std::string>{"node \"DQ\" (DequantizeLinear, index 0): scale \"s\" is 0 for 1 of 2 channels, "
                                               "which hold only zeros; 1 is used instead"});
  b.proto.mutable_graph()->mutable_initializer(0)->mutable_raw_data()->assign("\1\2\0\3", 4);
  EXPECT_NE(b.error().find("scale \"s\" of channel 1 is 0"), std::string::npos) << b.error();
}

TEST(Quant, NegativeScalesTurnTheCodesRound) {
  ModelBuilder b(13);
  b.input("x", {1, 3}).output("y");
  // Around 0 where no code is -128, which has no negation; else around -1/2: the code c becomes -1 - c, the zero point 0 becomes -1.
  b.constant<std::int8_t>("w", {3, 3}, {1, -2, 3, 4, -127, 127, -128, 0, 127}, kS8).floats("s", {3}, {0.5F, -0.25F, -2.0F});
  b.node("DequantizeLinear", {"w", "s"}, {"wd"}).i("axis", 0).name("DQ");
  b.node("Mul", {"x", "wd"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  const ir::Node& w = m->graph.producer(nodes_of(m->graph)[0]->inputs[1]);
  EXPECT_EQ(ir::to_string(*w.quantizer), "s8[axis=0](0.5,0.25,2;0,0,-1)");
  const auto codes = w.payload.data<std::int8_t>();
  EXPECT_EQ((std::vector<int>(codes.begin(), codes.end())), (std::vector<int>{1, -2, 3, -4, 127, -127, 127, -1, -128}));
  EXPECT_EQ(m->notes,
            std::vector<std::string>{
                "node \"DQ\" (DequantizeLinear, index 0): 2 of 3 scales are negative: their codes are reversed, which is exact"});
  const auto y = reference::evaluate(m->graph, {ir::Tensor::of<float>({1, 3}, {1, 1, 1})});
  ASSERT_TRUE(y) << y.error().message;
  for (std::size_t i = 0; i < 9; ++i) {
    const double given[] = {1, -2, 3, 4, -127, 127, -128, 0, 127}, scale[] = {0.5, -0.25, -2};
    EXPECT_EQ((*y)[0].at(static_cast<std::int64_t>(i)), given[i] * scale[i / 3]) << i;
  }
}

TEST(Quant, NegativeScalesOfValuesGiveTheCodesOfTheFormula) {
  for (const bool is_signed : {false, true}) {
    const float scale = -0.3F;
    const std::int32_t zero = is_signed ? -5 : 3, lo = is_signed ? -128 : 0, hi = lo + 255;
    ModelBuilder b(13);
    b.input("x", {400}).output("q", is_signed ? kS8 : kU8).output("y").floats("s", {}, {scale});
    if (is_signed) b.constant<std::int8_t>("z", {}, {static_cast<std::int8_t>(zero)}, kS8);
    if (!is_signed) b.constant<std::uint8_t>("z", {}, {static_cast<std::uint8_t>(zero)}, kU8);
    b.node("QuantizeLinear", {"x", "s", "z"}, {"q"});
    b.node("DequantizeLinear", {"q", "s", "z"}, {"y"});
    const auto m = b.import();
    ASSERT_TRUE(m) << m.error().message;
    std::vector<float> x;
    for (int i = 0; i < 400; ++i) x.push_back(static_cast<float>(i - 200) * 0.3F);
    const auto y = reference::evaluate(m->graph, {ir::Tensor::of<float>({400}, x)});
    ASSERT_TRUE(y) << y.error().message;
    for (std::int64_t i = 0; i < 400; ++i) {
      const std::int32_t code = ir::quantize_one(x[static_cast<std::size_t>(i)], scale, zero, lo, hi);
      EXPECT_EQ((*y)[0].at(i), code) << i;
      EXPECT_EQ((*y)[1].at(i), ir::dequantize_one(code, scale, zero)) << i;
    }
  }
}

TEST(Quant, HalfScalesRoundTheirQuotientsUnlessTheOptionSaysFloat) {
  for (const bool rounds : {true, false}) {
    ModelBuilder b(19);
    constexpr int kHalf = 10;
    b.input("x", {1}, kHalf)
        .output("q", kU8)
        .constant<std::uint16_t>("s", {}, {0x2e66}, kHalf)
        .constant<std::uint8_t>("z", {}, {0}, kU8);
    b.node("QuantizeLinear", {"x", "s", "z"}, {"q"});
    ImportOptions options;
    options.round_to_scale_type = rounds;
    const auto m = b.import(options);
    ASSERT_TRUE(m) << m.error().message;
    for (const ir::Node* n : nodes_of(m->graph)) {
      if (n->quantizer) EXPECT_EQ(n->quantizer->arith, rounds ? ir::DType::f16 : ir::DType::f32);
    }
  }
}

TEST(Quant, WeightsAreCodedConstantsAndFollowTheTranspose) {
  ModelBuilder b(13);
  b.input("x", {1, 3}).output("y");
  b.constant<std::int8_t>("w", {2, 3}, {1, 2, 3, 4, 5, 6}, kS8).floats("s", {2}, {0.5F, 0.25F});
  b.node("DequantizeLinear", {"w", "s"}, {"wd"}).i("axis", 0).name("DQ");
  b.node("Gemm", {"x", "wd"}, {"y"}).i("transB", 1).name("fc");
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "gemm");
  const ir::Node& w = m->graph.producer(nodes_of(m->graph)[0]->inputs[1]);
  EXPECT_EQ(ir::to_string(*w.quantizer), "s8[axis=1](0.5,0.25;0,0)");
  const auto codes = w.payload.data<std::int8_t>();
  EXPECT_EQ((std::vector<int>(codes.begin(), codes.end())), (std::vector<int>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(w.origin, (std::set<std::string>{"DQ", "fc"}));
}

TEST(Quant, OneInitializerServesTwoDequantizers) {
  ModelBuilder b(13);
  b.input("x", {2}).output("y");
  b.constant<std::int8_t>("w", {2}, {10, 20}, kS8).floats("s", {}, {0.5F}).floats("t", {}, {0.25F});
  b.node("DequantizeLinear", {"w", "s"}, {"a"});
  b.node("DequantizeLinear", {"w", "t"}, {"c"});
  b.node("Mul", {"x", "a"}, {"p"});
  b.node("Add", {"p", "c"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  const auto y = reference::evaluate(m->graph, {ir::Tensor::of<float>({2}, {1, 1})});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ((*y)[0].at(0), 5 + 2.5);
  EXPECT_EQ((*y)[0].at(1), 10 + 5.0);
}

TEST(Quant, FloatWeightsThroughQAndDqBecomeCodes) {
  ModelBuilder b(13);
  b.input("x", {1, 2}).output("y");
  b.floats("w", {2, 2}, {0.24F, 0.26F, -200.0F, 1.0F}).floats("s", {}, {0.5F}).constant<std::int8_t>("z", {}, {0}, kS8);
  b.node("QuantizeLinear", {"w", "s", "z"}, {"wq"}).name("Q");
  b.node("DequantizeLinear", {"wq", "s", "z"}, {"wd"}).name("DQ");
  b.node("MatMul", {"x", "wd"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "gemm");
  const ir::Node& w = m->graph.producer(nodes_of(m->graph)[0]->inputs[1]);
  const auto codes = w.payload.data<std::int8_t>();
  EXPECT_EQ((std::vector<int>(codes.begin(), codes.end())), (std::vector<int>{0, 1, -128, 2}));
  EXPECT_EQ(w.origin, (std::set<std::string>{"DQ", "Q"}));
}

/// What an imported model gives for one input.
std::vector<double> evaluated(const ModelBuilder& b, ir::Tensor x) {
  const auto m = b.import();
  EXPECT_TRUE(m) << (m ? "" : m.error().message);
  if (!m) return {};
  const auto y = reference::evaluate(m->graph, {std::move(x)});
  EXPECT_TRUE(y) << (y ? "" : y.error().message);
  std::vector<double> out;
  for (std::int64_t i = 0; y && i < (*y)[0].size(); ++i) out.push_back((*y)[0].at(i));
  return out;
}

TEST(Quant, OtherWidthsAreWrittenOut) {
  const ir::Tensor x = ir::Tensor::of<float>({4}, {0.75F, 10, -1e9F, 1.25F});
  ModelBuilder b(21);
  b.input("x", {4}).output("q", kS16).floats("s", {}, {0.5F}).constant<std::int16_t>("z", {}, {100}, kS16);
  b.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).name("wide");
  EXPECT_EQ(evaluated(b, x), (std::vector<double>{102, 120, -32768, 102}));
  ModelBuilder four(21);
  four.input("x", {4}).output("q", pb::TensorProto::UINT4).floats("s", {}, {0.5F});
  four.node("QuantizeLinear", {"x", "s"}, {"q"}).i("output_dtype", pb::TensorProto::UINT4);
  EXPECT_EQ(evaluated(four, x), (std::vector<double>{2, 15, 0, 2}));
  ModelBuilder eight(21);
  eight.input("x", {4}).output("q", pb::TensorProto::FLOAT8E4M3FN).floats("s", {}, {0.5F});
  eight.node("QuantizeLinear", {"x", "s"}, {"q"}).i("output_dtype", pb::TensorProto::FLOAT8E4M3FN);
  EXPECT_EQ(evaluated(eight, x), (std::vector<double>{1.5, 20, -448, 2.5}));
  ModelBuilder codes(21);  // two elements a byte, the lower bits first
  codes.input("x", {4}).output("y").constant<std::uint8_t>("k", {4}, {}, pb::TensorProto::INT4).floats("s", {}, {0.5F});
  codes.proto.mutable_graph()->mutable_initializer(0)->set_raw_data(std::string("\x8f\x70", 2));
  codes.node("DequantizeLinear", {"k", "s"}, {"d"});
  codes.node("Mul", {"x", "d"}, {"y"});
  EXPECT_EQ(evaluated(codes, ir::Tensor::of<float>({4}, {1, 1, 1, 1})), (std::vector<double>{-0.5, -4, 0, 3.5}));
}

TEST(Quant, BlocksHaveAScaleEach) {
  ModelBuilder b(21);
  b.input("x", {3, 2}, kU8).output("y").floats("s", {2, 2}, {0.5F, 1, 2, 4});
  b.node("DequantizeLinear", {"x", "s"}, {"y"}).i("block_size", 2).i("axis", 0);
  EXPECT_EQ(evaluated(b, ir::Tensor::of<std::uint8_t>({3, 2}, {2, 3, 4, 5, 6, 7})), (std::vector<double>{1, 3, 2, 5, 12, 28}));
  ModelBuilder wrong(21);
  wrong.input("x", {4, 2}, kU8).output("y").floats("s", {3, 2}, std::vector<float>(6, 0.5F));
  wrong.node("DequantizeLinear", {"x", "s"}, {"y"}).i("block_size", 2).i("axis", 0);
  EXPECT_NE(wrong.error().find("for blocks of 2 along axis 0 of [4,2], needs [2,2]"), std::string::npos) << wrong.error();
}

TEST(Quant, OutputTypeComesFromTheZeroPointOrTheAttribute) {
  ModelBuilder b(21);
  b.input("x", {4}).output("q", kS8).floats("s", {}, {0.1F});
  auto node = b.node("QuantizeLinear", {"x", "s"}, {"q"}).i("output_dtype", kS8);
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->graph.type(m->graph.outputs[0]).dtype, ir::DType::s8);
  b.constant<std::uint8_t>("z", {}, {5}, kU8);
  node.proto()->add_input("z");
  EXPECT_NE(b.error().find("output_dtype is s8, the zero point u8"), std::string::npos) << b.error();
}

TEST(Quant, RunTimeScales) {
  ModelBuilder b(13);
  b.input("x", {4}).input("s", {}).output("y");
  b.node("QuantizeLinear", {"x", "s"}, {"q"});
  b.node("DequantizeLinear", {"q", "s"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "quantize_rt dequantize_rt");
}

ModelBuilder qlinear_conv() {
  ModelBuilder b(13);
  b.input("x", {1, 2, 4, 4}, kU8).output("y", kU8);
  b.floats("xs", {}, {0.05F}).constant<std::uint8_t>("xz", {}, {120}, kU8);
  std::vector<std::int8_t> w(3 * 2 * 3 * 3);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::int8_t>(i * 37 % 255 - 127);
  b.constant("w", {3, 2, 3, 3}, w, kS8).floats("ws", {3}, {0.01F, 0.02F, 0.03F}).constant<std::int8_t>("wz", {3}, {0, 0, 0}, kS8);
  b.floats("ys", {}, {0.2F}).constant<std::uint8_t>("yz", {}, {10}, kU8).constant<std::int32_t>("b", {3}, {5, -7, 900}, kS32);
  b.node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"}).ints("pads", {1, 1, 1, 1}).name("qc");
  return b;
}

TEST(QLinear, ConvIsAnIntegerAnchorWithItsBiasInTheAccumulator) {
  const auto m = qlinear_conv().import();
  ASSERT_TRUE(m) << m.error().message;
  const ir::Graph& g = m->graph;
  EXPECT_EQ(ops_of(g), "dequantize conv quantize");
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op != ir::Op::conv) continue;
    const ir::IntegerAnchor a = ir::classify_anchor(g, ir::find_grids(g), id);
    EXPECT_TRUE(a.integer) << name_of(a.why_float.value_or(Reason{}).cause);
    EXPECT_TRUE(a.bias_in_acc);
    const ir::Quantizer& bias = *g.producer(g.node(id).inputs[2]).quantizer;
    EXPECT_EQ(bias.scale[1], 0.05F * 0.02F);
  }
  for (const ir::Node* n : nodes_of(g)) EXPECT_EQ(n->origin, std::set<std::string>{"qc"});
}

TEST(QLinear, MatchesTheFormula) {
  const auto m = qlinear_conv().import();
  ASSERT_TRUE(m) << m.error().message;
  ir::Tensor x(ir::DType::u8, {1, 2, 4, 4});
  for (std::size_t i = 0; i < 32; ++i) x.mutable_data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 83 % 256);
  const auto y = reference::evaluate(m->graph, {x});
  ASSERT_TRUE(y) << y.error().message;
  const float ws[3] = {0.01F, 0.02F, 0.03F};
  const std::int32_t bias[3] = {5, -7, 900};
  for (int o = 0; o < 3; ++o) {
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 4; ++c) {
        std::int32_t acc = bias[o];
        for (int i = 0; i < 2; ++i) {
          for (int dr = -1; dr <= 1; ++dr) {
            for (int dc = -1; dc <= 1; ++dc) {
              if (r + dr < 0 || r + dr > 3 || c + dc < 0 || c + dc > 3) continue;
              const int w = ((o * 2 + i) * 3 + dr + 1) * 3 + dc + 1;
              acc += (x.data<std::uint8_t>()[static_cast<std::size_t>((i * 4 + r + dr) * 4 + c + dc)] - 120) *
                     static_cast<std::int8_t>(w * 37 % 255 - 127);
            }
          }
        }
        const float value = static_cast<float>(acc) * (0.05F * ws[o]);
        const float code = std::min(255.0F, std::max(0.0F, std::nearbyint(value / 0.2F) + 10.0F));
        EXPECT_EQ((*y)[0].data<std::uint8_t>()[static_cast<std::size_t>((o * 4 + r) * 4 + c)], static_cast<int>(code))
            << o << " " << r << " " << c;
      }
    }
  }
}

TEST(QLinear, ChannelsLastIsRefused) {
  ModelBuilder b = qlinear_conv();
  b.proto.mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  NodeRef(b.proto.mutable_graph()->mutable_node(0)).i("channels_last", 1);
  EXPECT_NE(b.error().find("channels_last=1"), std::string::npos) << b.error();
}

TEST(Integer, SumsBeyond24BitsAreAddedInParts) {
  for (const std::int64_t depth : {518, 519, 2000}) {  // 518 * 127 * 255 is the last below 2^24
    ModelBuilder b(13);
    b.input("a", {1, depth}, kU8).output("y", kS32);
    b.constant("b", {depth, 1}, std::vector<std::int8_t>(static_cast<std::size_t>(depth), 127), kS8);
    b.node("MatMulInteger", {"a", "b"}, {"y"});
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(depth), 255);
    codes.back() = 254;
    const double want = static_cast<double>((depth * 255 - 1) * 127);
    EXPECT_EQ(evaluated(b, ir::Tensor::of<std::uint8_t>({1, depth}, codes)), (std::vector<double>{want}));
    ModelBuilder image(13);
    image.input("a", {1, depth, 1, 1}, kU8).output("y", kS32);
    image.constant("b", {1, depth, 1, 1}, std::vector<std::int8_t>(static_cast<std::size_t>(depth), 127), kS8);
    image.node("ConvInteger", {"a", "b"}, {"y"});
    EXPECT_EQ(evaluated(image, ir::Tensor::of<std::uint8_t>({1, depth, 1, 1}, codes)), (std::vector<double>{want}));
  }
}

}  // namespace
}  // namespace octavo::onnx
