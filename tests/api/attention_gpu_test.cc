// Networks with attention in bfloat16, planned for a GPU and run by the emulation of its kernels: one region, as exporters write it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "api/check.h"
#include "api/pipeline.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "ir/text.h"
#include "plan/plan.h"

namespace octavo::testing {
namespace {

/// Queries, keys and values are columns of one product.
constexpr const char* kHead = R"(graph "g"
x = input : f32[2,21,64]
m = input : bool[2,1,21,21]
w = constant f32[64,192] seed:1
c = constant f32[] (0.25)
zero = constant f32[] (0)
lowest = constant f32[] (-inf)
all = matmul x w from {"qkv"}
q0 = slice all {starts=[0,0,0], ends=[2,21,64], steps=[1,1,1]}
k0 = slice all {starts=[0,0,64], ends=[2,21,128], steps=[1,1,1]}
v0 = slice all {starts=[0,0,128], ends=[2,21,192], steps=[1,1,1]}
q1 = reshape q0 {shape=[2,21,4,16]}
k1 = reshape k0 {shape=[2,21,4,16]}
v1 = reshape v0 {shape=[2,21,4,16]}
q = transpose q1 {perm=[0,2,1,3]}
k = transpose k1 {perm=[0,2,3,1]}
v = transpose v1 {perm=[0,2,1,3]}
s = matmul q k from {"scores"}
d = mul s c from {"scale"}
)";
constexpr const char* kEnd = R"(y = matmul p v from {"values"}
t = transpose y {perm=[0,2,1,3]}
r = reshape t {shape=[2,21,64]}
output r
)";

class AttentionOnGpu : public EmulatedTest {
 protected:
  /// The tactics of all regions; the engine's own check against the reference, region by region, is expected to pass.
  static std::vector<std::string> tactics(const std::string& between, const std::set<std::string, std::less<>>& disabled = {}) {
    const auto device = emulated_device();
    const auto provider =
        cuda::make_provider({"sm_80", 108, 163 * 1024}, [](std::string_view t) -> Result<std::string> { return std::string(t); });
    const auto graph = ir::parse(kHead + between + kEnd);
    EXPECT_TRUE(graph) << graph.error().message;
    if (!graph) return {};
    plan::PlanOptions how;
    how.usual = cuda::usual_choices(), how.priced = cuda::priced_choices(), how.disabled = disabled;
    how.precisions = {{"*", "bfloat16"}};
    auto planned = plan::make_plan(*graph, {provider.get()}, how);
    EXPECT_TRUE(planned) << planned.error().message;
    region::Plan* const plan = &planned->plan;
    EXPECT_TRUE(provider->finish({&plan, 1}, 1));
    std::vector<std::string> out;
    for (const region::Region& r : planned->plan.regions) out.push_back(r.tactic.name());
    const ir::Graph normal = planned->graph;
    const auto engine = engine::Engine::create(std::move(planned->plan), {provider.get()}, "", {device.get()});
    EXPECT_TRUE(engine) << engine.error().message;
    const auto report = api::check(*engine, normal, api::random_inputs((*engine)->plan(), 3));
    EXPECT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok()) << report->first_divergence();
    return out;
  }
  static long joined(const std::vector<std::string>& tactics) {
    return std::count_if(tactics.begin(), tactics.end(),
                         [](const std::string& t) { return t.starts_with("cuda.attention.bf16.mma"); });
  }
};

TEST_F(AttentionOnGpu, IsOneRegion) {
  const std::string plain = "p = softmax d {axis=3} from {\"softmax\"}\n";
  EXPECT_EQ(joined(tactics(plain)), 1);
  EXPECT_EQ(joined(tactics(plain, {"attention"})), 0);
}

TEST_F(AttentionOnGpu, WithWhatExportersWriteAroundSoftmax) {
  EXPECT_EQ(joined(tactics("e = where m d lowest\np0 = softmax e {axis=3}\nn = equal p0 p0\np = where n p0 zero\n")), 1);
}

}  // namespace
}  // namespace octavo::testing
