// Where the work is done: the shares of vector kernels on the real models, and the list of operators that have none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "api/pipeline.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "report/costs.h"
#include "support/placement.h"
#include "support/tier.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// The names in backquotes in the first columns of docs/portable-operators.md, without what tells forms of one operator apart.
std::set<std::string> listed_operators() {
  std::ifstream in(fs::path(OCTAVO_SOURCE_DIR) / "docs/portable-operators.md");
  std::set<std::string> out;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string column = line.substr(0, line.find('|', 1));
    for (std::size_t at = column.find('`'); at != std::string::npos;) {
      const std::size_t end = column.find('`', at + 1);
      const std::string name = column.substr(at + 1, end - at - 1);
      out.insert(name.substr(0, name.find(' ')));
      at = column.find('`', end + 1);
    }
  }
  return out;
}

void expect_listed(const region::Plan& plan, const std::string& where) {
  static const std::set<std::string> listed = listed_operators();
  ASSERT_GT(listed.size(), 10U);
  for (const region::Region& r : plan.regions) {
    if (r.tactic.vector) continue;
    ASSERT_TRUE(r.tactic.reference) << where << ": region \"" << r.name << "\" runs in " << r.tactic.name();
    EXPECT_TRUE(listed.contains(r.tactic.family.substr(10)))
        << where << ": " << r.tactic.name() << " is not in docs/portable-operators.md";
  }
}

class VectorShare : public ::testing::TestWithParam<const char*> {};

TEST_P(VectorShare, OfARealModel) {
  if (!testing::available(testing::Tier::avx2)) GTEST_SKIP() << "no AVX2 on this processor";
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const fs::path path = (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "models" / GetParam();
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  api::PipelineOptions o;
  o.plan.threads = 1;
  if (path.filename() == "ppocrv3_det_op14.onnx") o.import.shapes["x"] = {1, 3, 96, 96};
  const auto built = api::build_file(path.string(), o);
  ASSERT_TRUE(built) << built.error().message;
  const region::Plan& plan = built->engine->plan();
  expect_listed(plan, GetParam());
  const report::Totals t = report::totals_of(plan);
  EXPECT_GE(static_cast<double>(t.int8_macs_vector), 0.99 * static_cast<double>(t.int8_macs));
  EXPECT_GE(static_cast<double>(t.bytes_vector), 0.95 * static_cast<double>(t.bytes));
}

INSTANTIATE_TEST_SUITE_P(SharedModels, VectorShare,
                         ::testing::Values("mobilenetv2-12-qdq.onnx", "mobilenetv2_qdq_perchannel_s8.onnx",
                                           "tinycnn_cifar_qoperator.onnx", "tinycnn_cifar_fp32.onnx",
                                           "mobilenetv1_025_224_fp32.onnx", "resnet20_cifar10_fp32.onnx",
                                           "resnet56_cifar10_fp32.onnx", "squeezenet11_fp16.onnx", "unet_small.onnx",
                                           "yolox_nano_416.onnx", "nanodet_m_416.onnx", "ppocrv3_det_op14.onnx",
                                           "retina_lp_mnet025.onnx", "yunet_120x160.onnx"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(PortableOperators, OfRandomNetworksAreListed) {
  if (!testing::available(testing::Tier::avx2)) GTEST_SKIP() << "no AVX2 on this processor";
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const auto planned = plan::make_plan(testing::random_network(seed), cpu::providers(), {});
    ASSERT_TRUE(planned) << "seed " << seed << ": " << planned.error().message;
    expect_listed(planned->plan, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace octavo
