// Implicit quantization of whole networks: a float model with ranges is the plan of the model with Q/DQ on the same tensors, and
// every region of it is judged against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "api/check.h"
#include "api/pipeline.h"
#include "api/ranges.h"
#include "quant/weight_scales.h"
#include "reference/evaluate.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

bool weighted(Op op) {
  return op == Op::conv || op == Op::conv_transpose || op == Op::gemm;
}

/// Scales of what weighted operators read, as a calibration on one seeded input gives them.
ir::Ranges ranges_of(const Graph& g, std::uint64_t seed, bool zero_points) {
  std::vector<ir::Tensor> feeds;
  for (const ValueId v : g.inputs) {
    ir::Tensor t(g.type(v));
    std::uint64_t state = seed;
    for (float& x : t.mutable_data<float>()) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      x = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1.0);
    }
    feeds.push_back(std::move(t));
  }
  std::vector<ValueId> values;
  for (const NodeId id : g.order()) {
    if (weighted(g.node(id).op)) values.push_back(g.node(id).inputs[0]);
  }
  const std::vector<ValueId> inputs = g.inputs;
  std::map<ValueId, ir::Tensor> bound;
  for (std::size_t i = 0; i < inputs.size(); ++i) bound.emplace(inputs[i], feeds[i]);
  const auto results = reference::evaluate_between(g, bound, values);
  EXPECT_TRUE(results) << (results ? "" : results.error().message);
  ir::Ranges ranges;
  for (std::size_t i = 0; results && i < values.size(); ++i) {
    float lo = 0, hi = 1e-6F;
    for (const float x : (*results)[i].data<float>()) lo = std::min(lo, x), hi = std::max(hi, x);
    ranges[g.value(values[i]).name] =
        zero_points ? ir::covering(static_cast<double>(lo), static_cast<double>(hi)) : ir::symmetric(std::max(-lo, hi) / 127.0F);
  }
  return ranges;
}

/// The explicit form, written independently of the permit pass: a pair on each data input of a weighted operator, on its weights,
/// and on operands of additions that have a range.
Graph with_pairs(Graph g, const ir::Ranges& ranges) {
  for (const NodeId id : g.order()) {
    const Node n = g.node(id);
    const auto read_through = [&](std::size_t slot) {
      ValueId named = n.inputs[slot];  // a range holds behind what moves elements, too
      while (!ranges.contains(g.value(named).name) && (g.producer(named).op == Op::pad || g.producer(named).op == Op::slice)) {
        named = g.producer(named).inputs[0];
      }
      const auto r = ranges.find(g.value(named).name);
      if (r == ranges.end()) return;
      const ValueId view = g.add_quantizer(Op::view, n.inputs[slot], r->second, g.type(n.inputs[slot]), {"pair"});
      g.node(id).inputs[slot] = view;
    };
    if (n.op == Op::add) {
      read_through(0);
      read_through(1);
    }
    if (!weighted(n.op)) continue;
    read_through(0);
    ir::Quantizer q;
    q.type = ir::DType::s8;
    q.axis = n.op == Op::conv ? 0 : 1;
    ValueId source = n.inputs[1];
    if (!g.is_constant(source)) {  // Gemm with transB: the pair sits on the model's initializer
      source = g.producer(source).inputs[0];
      q.axis = 0;
    }
    q.scale = quant::weight_scales(g.payload(source), q.axis);
    q.zero_point.assign(q.scale.size(), 0);
    const ValueId view = g.add_quantizer(Op::view, source, q, g.type(source), {"pair"});
    if (source == n.inputs[1]) {
      g.node(id).inputs[1] = view;
    } else {
      g.node(g.value(n.inputs[1]).producer).inputs[0] = view;
    }
  }
  g.touch();
  return g;
}

class ImplicitModel : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(ImplicitModel, IsTheExplicitPlanAndBitEqual) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const fs::path path = (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "models" / std::get<0>(GetParam());
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  const auto model = onnx::import_file(path.string());
  ASSERT_TRUE(model) << model.error().message;
  const auto ranges = ranges_of(model->graph, 7, std::get<1>(GetParam()));

  PipelineOptions o;
  o.plan.threads = 1;
  o.plan.effort = 0;
  const auto explicit_form = build_graph(with_pairs(model->graph, ranges), o);
  ASSERT_TRUE(explicit_form) << explicit_form.error().message;
  o.plan.ranges = ranges;
  const auto implicit_form = build_file(path.string(), o);
  ASSERT_TRUE(implicit_form) << implicit_form.error().message;
  EXPECT_EQ(implicit_form->engine->plan_hash(), explicit_form->engine->plan_hash());
  EXPECT_EQ(implicit_form->permitted.float_layers, 0);
  EXPECT_GT(implicit_form->permitted.int8_layers, 10);
  EXPECT_TRUE(implicit_form->permitted.unmatched.empty());

  const auto inputs = random_inputs(implicit_form->engine->plan(), 1);
  const auto report = check(implicit_form->engine, implicit_form->graph, inputs);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << report->first_divergence();

  o.plan.ranges.begin()->second.scale[0] *= 1.01F;  // control: the hash sees each scale
  const auto other = build_file(path.string(), o);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_NE(other->engine->plan_hash(), explicit_form->engine->plan_hash());
}

INSTANTIATE_TEST_SUITE_P(Implicit, ImplicitModel,
                         ::testing::Combine(::testing::Values("resnet20_cifar10_fp32.onnx", "mobilenetv1_025_224_fp32.onnx",
                                                              "unet_small.onnx"),
                                            ::testing::Bool()),
                         [](const auto& p) {
                           std::string name =
                               std::string(std::get<0>(p.param)) + (std::get<1>(p.param) ? "_zero_points" : "_symmetric");
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

TEST(Ranges, TableLines) {
  const auto r = parse_ranges(
      "TRT-8501-EntropyCalibration2\r\ndata: 3c008912\r\n(Unnamed Layer* 4) [Conv]: out: 3c010204\nz: 0\ninf: 7f800000\nlast: 1",
      "t");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->size(), 5U);
  EXPECT_FLOAT_EQ(r->at("data").scale[0], 0.00784518F);
  EXPECT_EQ(r->at("(Unnamed Layer* 4) [Conv]: out"), ir::symmetric(1.0F / 127.0F));
  EXPECT_EQ(r->at("z").scale[0], 0);
  EXPECT_TRUE(std::isinf(r->at("inf").scale[0]));
  EXPECT_EQ(r->at("last").scale[0], std::numeric_limits<float>::denorm_min());
}

TEST(Ranges, JsonIsTheLargestMagnitude) {
  const auto r = parse_ranges(R"({"a": 1, "b": 2.54})", "t");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->at("a"), ir::symmetric(1.0F / 127.0F));
  EXPECT_EQ(r->at("b"), ir::symmetric(2.54F / 127.0F));
}

TEST(Ranges, BadTextIsRefusedByLine) {
  for (const char* text : {"TRT-1-X\nno colon", "TRT-1-X\na: ", "TRT-1-X\na: 123456789", "TRT-1-X\na: 0x12", "TRT-1-X\na: 7fc00000",
                           "TRT-1-X\na: bf800000", "TRT-1-X\na: 3c010204\na: 3c010205", "TRT-1-X\n: 3c010204", "[1]",
                           "{\"a\": \"1\"}", "{\"a\": -1}", "{\"a\": 1e300}", "", "nonsense"}) {
    const auto r = parse_ranges(text, "table.cache");
    ASSERT_FALSE(r) << text;
    EXPECT_EQ(r.error().kind, ErrorKind::bad_input) << text;
    EXPECT_NE(r.error().message.find("table.cache"), std::string::npos) << text;
  }
}

TEST(Ranges, EveryTableOfTheTestDataParses) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const fs::path folder = (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "caches";
  if (!fs::exists(folder)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << folder;
  int tables = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".cache") continue;
    const auto r = read_ranges(file.path().string());
    ASSERT_TRUE(r) << r.error().message;
    EXPECT_FALSE(r->empty()) << file.path();
    ++tables;
  }
  EXPECT_GE(tables, 1);
}

}  // namespace
}  // namespace octavo::api
