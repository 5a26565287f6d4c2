// float16 on a GPU, through the emulation of its kernels: models whose tensors are float16, and float16 allowed; every region against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "api/check.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/provider.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "support/placement.h"

namespace octavo::testing {
namespace {

struct Emulated {
  std::unique_ptr<const region::Provider> provider =
      cuda::make_provider({"sm_80", 108, 163 * 1024}, [](std::string_view t) -> Result<std::string> {
        return std::string(t);  // the emulation runs texts
      });
  std::unique_ptr<const region::Device> device = emulated_device();
  std::shared_ptr<const engine::Engine> engine;
  ir::Graph graph;  ///< as planned
};

/// Plans and makes the engine; the message of what failed, or "".
std::string build(Emulated& e, const ir::Graph& graph, plan::PlanOptions how) {
  how.usual = cuda::usual_choices(), how.priced = cuda::priced_choices();
  auto planned = plan::make_plan(graph, {e.provider.get()}, how);
  if (!planned) return planned.error().message;
  region::Plan* const plan = &planned->plan;
  if (const auto done = e.provider->finish({&plan, 1}, 1); !done) return done.error().message;
  auto engine = engine::Engine::create(std::move(planned->plan), {e.provider.get()}, "", {e.device.get()});
  if (!engine) return engine.error().message;
  e.engine = std::move(*engine), e.graph = std::move(planned->graph);
  return "";
}

std::string checked(const Emulated& e, std::uint64_t seed) {
  const auto report = api::check(e.engine, e.graph, api::random_inputs(e.engine->plan(), seed));
  if (!report) return report.error().message;
  return report->ok() ? "" : report->first_divergence();
}

/// Regions that a family is made for: its operands are of its types.
int regions_for(const cuda::Family& family, const region::Plan& plan) {
  return static_cast<int>(
      std::count_if(plan.regions.begin(), plan.regions.end(), [&](const region::Region& r) { return family.about(r); }));
}

bool reads_float32_between_regions(const region::Plan& plan, const std::string& tensor) {
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      const auto wide = [&](const region::TensorRef& t) { return t.value == tensor && t.dtype == ir::DType::f32; };
      for (const auto& t : s.anchor.inputs) {
        if (wide(t)) return true;
      }
      for (const auto& o : s.operands) {
        if (wide(o.ref)) return true;
      }
    }
  }
  return false;
}

class EmulatedFloat16 : public EmulatedTest {};

constexpr const char* kNetwork = R"(graph "g"
x = input : f32[1,16,8,8]
w1 = constant f32[32,16,3,3] seed:1
w2 = constant f32[32,32,3,3] seed:2
w3 = constant f32[32,1,3,3] seed:3
g = constant f32[64] seed:4
w4 = constant f32[64,48] seed:5
w5 = constant f32[64,48] seed:6
a = conv x w1 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv1"}
b = relu a from {"relu"}
c = conv b w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
d = add c b from {"add"}
e = conv d w3 {dilations=[1,1], group=32, pads=[1,1,1,1], strides=[1,1]} from {"depthwise"}
s = sigmoid e from {"sigmoid"}
m = mul e s from {"mul"}
p = max_pool m {kernel=[2,2], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} from {"pool"}
k = pad p {pads=[0,0,1,0,0,0,0,1], mode="constant", value=0} from {"pad"}
r = reshape k {shape=[32,64]} from {"reshape"}
n = layer_norm r g g {axis=1, epsilon=1e-5} from {"norm"}
q = gemm n w4 from {"q"}
v = gemm n w5 from {"v"}
t = transpose v {perm=[1,0]} from {"turn"}
o = matmul q t from {"scores"}
z = softmax o {axis=1} from {"softmax"}
y = matmul z v from {"mixed"}
output y
)";

TEST_F(EmulatedFloat16, AModelOfFloat16RunsOnMatrixUnitsWithoutPermission) {
  const auto graph = ir::parse(kNetwork);
  ASSERT_TRUE(graph) << graph.error().message;
  plan::PlanOptions how;
  how.disabled = {"attention"};
  for (const ir::NodeId id : graph->order()) {
    for (const std::string& node : graph->node(id).origin) how.model_types[node] = ir::DType::f16;
  }
  Emulated e;
  ASSERT_EQ(build(e, *graph, how), "");
  EXPECT_EQ(regions_for(cuda::conv_f16_family(), e.engine->plan()), 5) << "three convolutions and two linear layers";
  EXPECT_EQ(regions_for(cuda::matmul_f16_family(), e.engine->plan()), 2);
  for (const char* tensor : {"b", "d", "m", "p", "k", "r", "n", "q", "v", "z"})
    EXPECT_FALSE(reads_float32_between_regions(e.engine->plan(), tensor)) << tensor;
  EXPECT_TRUE(reads_float32_between_regions(e.engine->plan(), "o")) << "Softmax reads scores in float32";
  EXPECT_EQ(checked(e, 1), "");
}

TEST_F(EmulatedFloat16, AllowedItIsTakenAndWithoutItNothingIs) {
  const auto graph = ir::parse(kNetwork);
  ASSERT_TRUE(graph) << graph.error().message;
  plan::PlanOptions how;
  how.disabled = {"attention"};
  Emulated plain, e;
  ASSERT_EQ(build(plain, *graph, how), "");
  EXPECT_EQ(regions_for(cuda::conv_f16_family(), plain.engine->plan()), 0);
  EXPECT_TRUE(reads_float32_between_regions(plain.engine->plan(), "d"));
  how.allowed.insert("float16");
  ASSERT_EQ(build(e, *graph, how), "");
  EXPECT_EQ(regions_for(cuda::conv_f16_family(), e.engine->plan()), 5);
  EXPECT_FALSE(reads_float32_between_regions(e.engine->plan(), "d"));
  EXPECT_EQ(checked(e, 2), "");
}

TEST_F(EmulatedFloat16, AllowedBfloat16IsTakenAtEveryEffort) {
  // Large enough that estimates prefer the matrix units' 16 bits to float32 as three products in tf32.
  const auto graph = ir::parse(R"(graph "g"
x = input : f32[512,512]
w1 = constant f32[512,512] seed:1
w2 = constant f32[512,512] seed:2
a = gemm x w1 from {"first"}
b = relu a from {"relu"}
c = gemm b w2 from {"second"}
output c
)");
  ASSERT_TRUE(graph) << graph.error().message;
  plan::PlanOptions how;
  how.effort = 0;
  Emulated plain, e;
  ASSERT_EQ(build(plain, *graph, how), "");
  EXPECT_EQ(regions_for(cuda::conv_bf16_family(), plain.engine->plan()), 0);
  how.allowed.insert("bfloat16");
  ASSERT_EQ(build(e, *graph, how), "");
  EXPECT_EQ(regions_for(cuda::conv_bf16_family(), e.engine->plan()), 2);
}

/// Networks of the placement tests, mostly of int8 layers, whose float tensors between regions are float16: the bits of codes, and floats.
TEST_F(EmulatedFloat16, RandomNetworksWithFloat16AllowedAreEqualRegionByRegion) {
  const char* text = std::getenv("OCTAVO_FUZZ_GRAPHS");
  std::vector<std::uint64_t> seeds = {5, 10};  // networks that have such tensors
  if (text != nullptr || std::getenv("OCTAVO_LONG") != nullptr) {
    seeds.resize(text != nullptr ? std::strtoull(text, nullptr, 10) : 100);
    std::iota(seeds.begin(), seeds.end(), 1);
  }
  int built = 0, narrow = 0;  // stores of float16
  for (const std::uint64_t seed : seeds) {
    const ir::Graph graph = random_network(seed, {.shuffles = seed % 2 == 0});
    plan::PlanOptions how;
    how.allowed.insert("float16");
    Emulated e;
    if (const std::string why = build(e, graph, how); !why.empty()) {
      EXPECT_NE(why.find("no kernel"), std::string::npos) << "seed " << seed << ": " << why;
      continue;
    }
    ++built;
    for (const region::Region& r : e.engine->plan().regions) {
      for (const region::Stage& s : r.stages) {
        for (const region::TensorRef& t : s.stores) narrow += t.dtype == ir::DType::f16;
      }
    }
    EXPECT_EQ(checked(e, seed), "") << "seed " << seed;
  }
  EXPECT_GT(built, 0);
  EXPECT_GT(narrow, 0) << "no float16 tensor: nothing was tested";
}

}  // namespace
}  // namespace octavo::testing
