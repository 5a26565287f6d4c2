// What the planner thinks of networks with layers in bfloat16, where a kernel for it exists and where none does.
#include "quantize/search/run_time.h"

#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "reference/oracle_provider.h"

namespace octavo::quantize {
namespace {

/// Takes bfloat16 regions alone, at a price that nothing else has.
class Bfloat16Provider final : public region::Provider {
 public:
  static constexpr double kSeconds = 1.25e-9;
  std::string_view name() const override { return real().name(); }
  bool knows(const region::Tactic& t) const override { return real().knows(t); }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    if (r.precision != ir::DType::bf16) return {};
    auto out = real().offers(r, p);
    for (region::Offer& o : out) o.cost = kSeconds;
    return out;
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& p, const region::Tactic& t) const override {
    return real().compile(r, p, t);
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                               const region::ArtifactView& artifact) const override {
    return real().load(r, p, artifact);
  }

 private:
  static const region::Provider& real() { return reference::oracle_provider(); }
};

onnx::Model digits() {
  auto model = onnx::import_file(std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_fp32.onnx", {});
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? std::move(*model) : onnx::Model{};
}

const std::set<std::string> kLayers{"conv1", "dw", "pw", "res1", "res2", "down", "up", "fuse", "head"};

TEST(RunTime, LayersInBfloat16HaveThePriceOfTheirKernels) {
  const Bfloat16Provider small;
  std::vector<const region::Provider*> providers(cpu::providers());
  providers.insert(providers.begin(), &small);
  const onnx::Model model = digits();
  const auto wide = estimated_time(model, kLayers), found = estimated_time(model, kLayers, {"res1", "fuse"}, providers);
  ASSERT_TRUE(wide && found) << found.error().message;
  EXPECT_TRUE(found->without_kernel.empty());
  for (const std::string& node : kLayers) {
    if (node == "res1" || node == "fuse") {
      EXPECT_EQ(found->nodes.at(node), Bfloat16Provider::kSeconds) << node;
    } else {
      EXPECT_GT(found->nodes.at(node), Bfloat16Provider::kSeconds) << node;
    }
  }
  EXPECT_LT(found->seconds, wide->seconds);
}

TEST(RunTime, WithoutAKernelThePriceIsThatOfFloat32AndSaysSo) {
  const onnx::Model model = digits();
  const auto layers = bfloat16_layers(model);
  ASSERT_TRUE(layers) << layers.error().message;
  EXPECT_EQ(layers->possible, kLayers);
  EXPECT_EQ(layers->without_kernel.empty(), layers->why.empty());
  const auto wide = estimated_time(model, kLayers), found = estimated_time(model, kLayers, kLayers);
  ASSERT_TRUE(wide && found);
  EXPECT_EQ(found->without_kernel, layers->without_kernel);
  for (const std::string& node : found->without_kernel) EXPECT_EQ(found->nodes.at(node), wide->nodes.at(node)) << node;
}

TEST(RunTime, RulesNameOneNodeEach) {
  const auto rules = rules_for({"a/b[0]*", "c?"}, "bfloat16");
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].pattern, "a/b\\[0]\\*");
  EXPECT_EQ(rules[1].pattern, "c\\?");
  EXPECT_EQ(rules[1].type, plan::LayerType::bfloat16);
}

}  // namespace
}  // namespace octavo::quantize
