// The real models of the test data folder: they import, whole, with the right shapes; the one that cannot is told why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "ir/grid.h"
#include "onnx/build_model.h"

namespace octavo::onnx {
namespace {

using namespace testing;

struct Expected {
  const char* file;
  const char* first_output;  ///< its type
  int weighted;              ///< conv, conv_transpose and gemm nodes
  int integer;               ///< of these, computed in integers as imported
};
constexpr Expected kModels[] = {
    {"mobilenetv2-12-qdq.onnx", "f32[1,1000]", 53, 53},      {"mobilenetv2_qdq_perchannel_s8.onnx", "f32[1,1000]", 53, 53},
    {"mobilenetv1_025_224_fp32.onnx", "f32[1,1000]", 28, 0}, {"resnet20_cifar10_fp32.onnx", "f32[1,10]", 20, 0},
    {"resnet56_cifar10_fp32.onnx", "f32[1,10]", 56, 0},      {"squeezenet11_fp16.onnx", "f16[1,1000,1,1]", 26, 0},
    {"tinycnn_cifar_fp32.onnx", "f32[1,10]", 14, 0},         {"tinycnn_cifar_qoperator.onnx", "f32[1,10]", 14, 14},
    {"unet_small.onnx", "f32[1,1,224,224]", 13, 0},          {"yolox_nano_416.onnx", "f32[1,3549,85]", 113, 0},
    {"nanodet_m_416.onnx", "f32[1,2704,80]", 73, 0},         {"ppocrv3_det_op14.onnx", "f32[1,1,64,96]", 74, 0},
    {"retina_lp_mnet025.onnx", "f32[1,4000,4]", 46, 0},      {"yunet_120x160.onnx", "f32[1076,14]", 43, 0},
};

class RealModel : public ::testing::TestWithParam<Expected> {};

std::filesystem::path models() {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  return (set ? std::filesystem::path(set) : std::filesystem::path(OCTAVO_SOURCE_DIR) / "../shared") / "models";
}

TEST_P(RealModel, Imports) {
  const std::filesystem::path path = models() / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  ImportOptions options;
  if (path.filename() == "ppocrv3_det_op14.onnx") options.shapes["x"] = {1, 3, 64, 96};
  const auto m = import_file(path.string(), options);
  ASSERT_TRUE(m) << m.error().message;
  const ir::Graph& g = m->graph;
  EXPECT_EQ(ir::to_string(g.type(g.outputs[0])), GetParam().first_output);
  const ir::Grids grids = ir::find_grids(g);
  int weighted = 0, integer = 0;
  std::optional<Reason> why;
  for (const ir::NodeId id : g.order()) {
    const ir::Op op = g.node(id).op;
    if (op != ir::Op::conv && op != ir::Op::conv_transpose && op != ir::Op::gemm) continue;
    ++weighted;
    const ir::IntegerAnchor a = ir::classify_anchor(g, grids, id);
    integer += a.integer;
    if (!a.integer) why = a.why_float;
  }
  EXPECT_EQ(weighted, GetParam().weighted);
  EXPECT_EQ(integer, GetParam().integer) << "the last one in float: " << (why ? name_of(why->cause) : "none");
  // Every ONNX node is accounted for: it stands in an origin or is listed with a reason.
  std::set<std::string> seen;
  for (const ir::NodeId id : g.order()) seen.insert(g.node(id).origin.begin(), g.node(id).origin.end());
  for (const auto& [node, reason] : m->absorbed) {
    EXPECT_FALSE(reason.empty()) << node;
    EXPECT_TRUE(seen.insert(node).second) << node << " stands in the graph and is listed as absorbed";
  }
  std::erase_if(seen, [](const std::string& s) { return s.starts_with("input:") || s.starts_with("output:"); });
  EXPECT_EQ(static_cast<int>(seen.size()), m->node_count);
}

INSTANTIATE_TEST_SUITE_P(All, RealModel, ::testing::ValuesIn(kModels), [](const auto& p) {
  std::string name = std::filesystem::path(p.param.file).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(RealModels, FaststyleIsRefusedByName) {
  const std::filesystem::path path = models() / "faststyle_candy.onnx";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  const auto m = import_file(path.string());
  ASSERT_FALSE(m);
  EXPECT_EQ(static_cast<int>(m.error().kind), static_cast<int>(ErrorKind::unsupported));
  for (const char* part : {"ImageScaler (opset 7)", "write it as Mul and Add", "by operator: Affine x1 Crop x7 ImageScaler x1"}) {
    EXPECT_NE(m.error().message.find(part), std::string::npos) << part << "\n" << m.error().message;
  }
}

}  // namespace
}  // namespace octavo::onnx
