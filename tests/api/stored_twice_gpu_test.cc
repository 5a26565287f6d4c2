// Results that are wanted at two places: an output, and a part of a concatenation. Kernels of a GPU store them twice, or the planner copies and says why;
// no family of kernels makes a network with such a result impossible.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/check.h"
#include "base/causes/plan_layout.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "cuda/text/emit_cuda.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"

namespace octavo::testing {
namespace {

struct Network {
  std::string type, inputs, op;
  std::string more = {};
};

/// One for each kind of kernel that makes its result by itself: doubles, choose, whole numbers, moves, reductions, searches, products.
const std::vector<Network> kNetworks{
    {"f64", "x = input : f64[3,5]\nz = input : f64[3,5]\n", "add x z"},
    {"f64", "x = input : f64[3,5]\nz = input : f64[3,5]\n", "mul x z"},
    {"f64", "x = input : f32[3,5]\n", "cast x {to=\"f64\"}"},
    {"s64", "x = input : f64[3,5]\n", "cast x {to=\"s64\"}"},
    {"bool", "x = input : f64[3,5]\nz = input : f64[3,5]\n", "less x z"},
    {"bool", "x = input : f32[3,5]\nz = input : f32[3,5]\n", "less_equal x z"},
    {"bool", "x = input : s64[3,5]\nz = input : s64[3,5]\n", "equal x z"},
    {"bool", "x = input : bool[3,5]\nz = input : bool[3,5]\n", "and x z"},
    {"f32", "c = input : bool[3,5]\nx = input : f32[3,5]\nz = input : f32[3,5]\n", "where c x z"},
    {"s64", "c = input : bool[3,5]\nx = input : s64[3,5]\nz = input : s64[3,5]\n", "where c x z"},
    {"f64", "c = input : bool[3,5]\nx = input : f64[3,5]\nz = input : f64[3,5]\n", "where c x z"},
    {"s64", "x = input : s64[3,5]\nz = input : s64[3,5]\n", "add x z"},
    {"f32", "x = input : f32[3,5]\nz = input : f32[3,5]\n", "add x z"},
    {"f32", "x = input : f32[3,5]\n", "softmax x {axis=1}"},
    {"s64", "x = input : f32[3,5,4]\n", "arg_max x {axis=2,keepdims=0,select_last_index=0}"},
    {"f32", "x = input : f32[6,5]\n", "gather x i {axis=0}", "i = constant s64[3] (0, 4, 2)\n"},
    {"f32", "x = input : f32[3,4]\nz = input : f32[4,5]\n", "matmul x z"},
};

class StoredTwiceOnGpu : public EmulatedTest {};

TEST_F(StoredTwiceOnGpu, EveryKindOfKernel) {
  const auto device = emulated_device();
  const auto provider = cuda::make_provider(cuda::Target{"sm_80", 108, 163 * 1024},
                                            [](std::string_view t) -> Result<std::string> { return std::string(t); });
  int copied = 0;
  for (const Network& n : kNetworks) {
    const std::string text = fmt::format(
        "{}{}more = input : {}[3,5]\ny = {} from {{\"it\"}}\nboth = concat y more {{axis=0}} from {{\"both\"}}\noutput y as "
        "\"y\"\noutput both as \"both\"\n",
        n.inputs, n.more, n.type, n.op);
    const auto graph = ir::parse(text);
    ASSERT_TRUE(graph) << graph.error().message << "\n" << text;
    plan::PlanOptions how;
    how.usual = cuda::usual_choices(), how.priced = cuda::priced_choices();
    auto planned = plan::make_plan(*graph, {provider.get()}, how);
    ASSERT_TRUE(planned) << planned.error().message << "\n" << text;
    region::Plan* const plan = &planned->plan;
    ASSERT_TRUE(provider->finish({&plan, 1}, 1));
    for (const region::Region& r : plan->regions) {
      const bool says = has(r.reasons, cause::no_kernel_stores_twice);
      if (!says) continue;
      ++copied;
      EXPECT_TRUE(r.onnx_nodes.contains("it")) << text;
    }
    const auto engine = engine::Engine::create(std::move(planned->plan), {provider.get()}, "", {device.get()});
    ASSERT_TRUE(engine) << engine.error().message << "\n" << text;
    auto context = engine::Context::create(*engine, 1);
    ASSERT_TRUE(context) << context.error().message;
    const auto inputs = api::random_inputs((*engine)->plan(), 3);
    const auto expected = reference::evaluate(*graph, inputs);
    const auto actual = api::run(**context, inputs);
    ASSERT_TRUE(expected && actual) << (actual ? expected.error().message : actual.error().message) << "\n" << text;
    for (std::size_t k = 0; k < 2; ++k) {
      const ir::Tensor &want = (*expected)[k], &have = (*actual)[k];
      if (n.type != "f32") {
        EXPECT_TRUE(ir::same_bytes(want, have)) << "output " << k << " of\n" << text;
        continue;
      }
      for (std::int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want.at(i), have.at(i), 1e-5) << "output " << k << " of\n" << text;
    }
  }
  EXPECT_GE(copied, 4);  // doubles and comparisons at least
}

}  // namespace
}  // namespace octavo::testing
