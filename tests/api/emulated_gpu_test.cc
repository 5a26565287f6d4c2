// Networks built for a GPU and run by the emulation of its kernels: the same bits as the engine of the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "api/check.h"
#include "api/pipeline.h"
#include "cpu/provider.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "cuda/text/emit_cuda.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "support/feeds.h"
#include "support/fuzz_setting.h"
#include "support/placement.h"
#include "support/run_plan.h"
#include "tune/measured_costs.h"

namespace octavo::testing {
namespace {

std::unique_ptr<const region::Provider> emulated_provider(const cuda::Target& target = {"sm_80", 108, 163 * 1024}) {
  const std::string functions(target.architecture == "sm_75" ? cuda::turing_functions() : "");
  return cuda::make_provider(target, [functions](std::string_view t) -> Result<std::string> {
    return functions + std::string(t);  // the emulation runs texts
  });
}

/// A plan for an emulated GPU, its kernels as text.
Result<std::shared_ptr<const engine::Engine>> emulated_engine(const ir::Graph& graph, const region::Provider& provider,
                                                              const region::Device& device, const plan::PlanOptions& how = {}) {
  plan::PlanOptions as_usual = how;
  as_usual.usual = cuda::usual_choices(), as_usual.priced = cuda::priced_choices();
  OCTAVO_TRY(auto planned, plan::make_plan(graph, {&provider}, as_usual));
  region::Plan* const plan = &planned.plan;
  OCTAVO_CHECK(provider.finish({&plan, 1}, 1));
  for (const region::Region& r : planned.plan.regions)
    EXPECT_EQ(planned.plan.devices[static_cast<std::size_t>(r.device)].name, "cuda");
  return engine::Engine::create(std::move(planned.plan), {&provider}, "", {&device});
}

class EmulatedGpu : public EmulatedTest {};

void digits_are_the_cpus(const cuda::Target& target) {
  const std::string model = OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx";
  const auto cpu = api::build_file(model);
  ASSERT_TRUE(cpu) << cpu.error().message;

  const auto device = emulated_device();
  const auto provider = emulated_provider(target);
  auto imported = onnx::import_file(model, {});
  ASSERT_TRUE(imported) << imported.error().message;
  const auto gpu = emulated_engine(imported->graph, *provider, *device);
  ASSERT_TRUE(gpu) << gpu.error().message;

  auto on_cpu = engine::Context::create(cpu->engine, 1), on_gpu = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(on_cpu && on_gpu) << (on_gpu ? on_cpu.error().message : on_gpu.error().message);
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const auto inputs = api::random_inputs(cpu->engine->plan(), seed);
    const auto expected = api::run(**on_cpu, inputs), actual = api::run(**on_gpu, inputs);
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(actual) << actual.error().message;
    ASSERT_EQ(expected->size(), actual->size());
    for (std::size_t k = 0; k < expected->size(); ++k) EXPECT_TRUE(ir::same_bytes((*expected)[k], (*actual)[k])) << "output " << k;
  }
}
TEST_F(EmulatedGpu, DigitsGiveTheBitsOfTheCpu) {
  digits_are_the_cpus({"sm_80", 108, 163 * 1024});
}
TEST_F(EmulatedGpu, DigitsGiveTheBitsOfTheCpuOnSm75) {
  digits_are_the_cpus({"sm_75", 40, 64 * 1024});
}

/// An operator without a GPU kernel between two that have one: there, to the host and back. Without the host's kernels the plan is refused.
TEST_F(EmulatedGpu, AMissingKernelRunsOnTheHostWhereThatIsGiven) {
  const auto graph = ir::parse(R"(
x = input : f32[5,3,3]
y = matmul x x from {"square"}
w = cast y {to="f64"} from {"widened"}
d = softmax w {axis=1} from {"shares"}
z = cast d {to="f32"} from {"narrowed"}
output z as "z"
)");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const auto refused = plan::make_plan(*graph, {provider.get()}, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no kernel for operator"), std::string::npos) << refused.error().message;

  engine::Providers both{provider.get()};
  for (const region::Provider* p : cpu::providers()) both.push_back(p);
  auto planned = plan::make_plan(*graph, both, {});
  ASSERT_TRUE(planned) << planned.error().message;
  region::Plan* const plan = &planned->plan;
  ASSERT_TRUE(provider->finish({&plan, 1}, 1));
  std::map<std::string, region::DeviceId> where;
  for (const region::Region& r : plan->regions) {
    for (const std::string& node : r.onnx_nodes) where[node] = r.device;
  }
  EXPECT_EQ(where,
            (std::map<std::string, region::DeviceId>{{"narrowed", 1}, {"shares", region::kHost}, {"square", 1}, {"widened", 1}}));
  const auto engine = engine::Engine::create(std::move(planned->plan), both, "", {device.get()});
  ASSERT_TRUE(engine) << engine.error().message;
  auto context = engine::Context::create(*engine, 1);
  ASSERT_TRUE(context) << context.error().message;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto inputs = api::random_inputs((*engine)->plan(), seed);
    const auto expected = reference::evaluate(*graph, inputs);
    const auto actual = api::run(**context, inputs);
    ASSERT_TRUE(expected && actual) << (actual ? expected.error().message : actual.error().message);
    for (std::int64_t i = 0; i < 45; ++i) EXPECT_NEAR(expected->at(0).at(i), actual->at(0).at(i), 1e-4) << i;
  }
}

/// Results of 16 bits that nothing follows: a program of the provider's own rounds them once.
TEST_F(EmulatedGpu, HalvesWithoutAnEpilogueAreRoundedOnce) {
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  for (const char* type : {"f16", "bf16"}) {
    for (const char* op : {"softmax x {axis=3}", "reduce_max x {axes=[2]}", "reduce_mean x {axes=[1,2]}", "lrn x {size=3}",
                           "max_pool x {kernel=[2,2],strides=[1,1],pads=[0,0,0,0]}"}) {
      const auto graph = ir::parse(fmt::format("x = input : {}[2,3,4,5]\ny = {} from {{\"it\"}}\noutput y as \"y\"\n", type, op));
      ASSERT_TRUE(graph) << graph.error().message;
      const auto gpu = emulated_engine(*graph, *provider, *device);
      ASSERT_TRUE(gpu) << op << " on " << type << ": " << gpu.error().message;
      auto context = engine::Context::create(*gpu, 1);
      ASSERT_TRUE(context) << context.error().message;
      const auto feeds = seeded_feeds(*graph, 3);
      const auto want = reference::evaluate(*graph, feeds);
      const auto got = api::run(**context, feeds);
      ASSERT_TRUE(want && got) << (want ? got.error().message : want.error().message);
      EXPECT_EQ((*want)[0].type(), (*got)[0].type());
      const double step = std::string_view(type) == "f16" ? 1.0 / 1024 : 1.0 / 128;
      for (std::int64_t i = 0; i < (*want)[0].size(); ++i)
        EXPECT_NEAR((*want)[0].at(i), (*got)[0].at(i), step * (1e-3 + std::abs((*want)[0].at(i))))
            << op << " on " << type << ", " << i;
    }
  }
}

// Random networks as the placement tests make them: every operator, border and epilogue that these hold, through the kernels' texts.
TEST_F(EmulatedGpu, RandomNetworksGiveTheBitsOfTheReference) {
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const auto setting = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t count = setting("OCTAVO_FUZZ_GRAPHS", rounds(3, 6, 200)), first = setting("OCTAVO_FUZZ_SEED", 1);
  int equal = 0, refused = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const ir::Graph graph = random_network(seed, {.shuffles = seed % 2 == 0});
    const auto gpu = emulated_engine(graph, *provider, *device);
    if (!gpu) {  // an operator that no kernel computes yet is an error by name, and nothing else is
      EXPECT_NE(gpu.error().message.find("no kernel"), std::string::npos) << "seed " << seed << ": " << gpu.error().message;
      ++refused;
      continue;
    }
    auto context = engine::Context::create(*gpu, 1);
    ASSERT_TRUE(context) << "seed " << seed << ": " << context.error().message;
    const auto feeds = seeded_feeds(graph, seed);
    const auto want = reference::evaluate(graph, feeds);
    const auto got = api::run(**context, feeds);
    ASSERT_TRUE(want && got) << "seed " << seed << ": " << (want ? got.error().message : want.error().message);
    if (has_float_sum((*gpu)->plan())) continue;  // in the kernel's own order
    EXPECT_EQ(first_difference(*want, *got), "") << "seed " << seed;
    ++equal;
  }
  std::printf("networks equal to the reference: %d, refused: %d\n", equal, refused);
  if (count > 1) {
    EXPECT_GE(equal, count >= 6 ? 2 : 1);
  }
}

/// The way of a measured build with real kernels: every tactic of a region in one plan, finished, run and timed; then whole plans.
TEST_F(EmulatedGpu, MeasuredBuildsRunTheKernelsThatTheyTime) {
  constexpr const char* kNet = R"(
graph "g"
x = input : f32[1,16,6,6]
q = view x q=u8(0.03,128) from {"q"}
p = max_pool q {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} from {"pool"}
output p
)";
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const engine::Providers providers{provider.get()};
  tune::TuneOptions options;
  options.devices = {device.get()};
  options.device = "emulated";
  tune::MeasuredCosts costs({}, providers, options);
  plan::PlanOptions how;
  how.effort = 2;
  how.costs = &costs;
  auto graph = ir::parse(kNet);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto cpu = api::build_graph(*graph);
  ASSERT_TRUE(cpu) << cpu.error().message;
  auto planned = plan::make_plan(std::move(*graph), providers, how);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_GT(costs.measured(), 0);
  for (const region::Region& r : planned->plan.regions) EXPECT_GT(r.seconds, 0) << r.name;
  region::Plan* const plan = &planned->plan;
  ASSERT_TRUE(provider->finish({&plan, 1}, 1));
  const auto gpu = engine::Engine::create(std::move(planned->plan), providers, "", {device.get()});
  ASSERT_TRUE(gpu) << gpu.error().message;
  auto on_cpu = engine::Context::create(cpu->engine, 1), on_gpu = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(on_cpu && on_gpu);
  const auto inputs = api::random_inputs(cpu->engine->plan(), 1);
  const auto expected = api::run(**on_cpu, inputs), actual = api::run(**on_gpu, inputs);
  ASSERT_TRUE(expected && actual);
  EXPECT_TRUE(ir::same_bytes((*expected)[0], (*actual)[0]));
}

/// Planes of floats become codes, sums, codes and maxima of codes in one kernel.
TEST_F(EmulatedGpu, FirstLayersPoolInTheirKernel) {
  constexpr const char* kNet = R"(
graph "g"
x = input : f32[2,3,20,28]
q = view x q=u8(0.03,109) from {"q"}
w = constant s8[24,3,7,7] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[3,3,3,3], strides=[2,2]} from {"conv"}
r = relu y from {"relu"}
v = view r q=u8(0.05,0) from {"v"}
p = max_pool v {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], dilations=[1,1]} from {"pool"}
output p
)";
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const auto graph = ir::parse(kNet);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto gpu = emulated_engine(*graph, *provider, *device);
  ASSERT_TRUE(gpu) << gpu.error().message;
  const auto& regions = (*gpu)->plan().regions;
  EXPECT_TRUE(std::any_of(regions.begin(), regions.end(), [](const region::Region& r) {
    return r.stages.size() == 3 && r.tactic.family == "conv.u8s8.rows_pool";
  }));
  const auto context = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(context) << context.error().message;
  const auto feeds = seeded_feeds(*graph, 1);
  const auto want = reference::evaluate(*graph, feeds);
  const auto got = api::run(**context, feeds);
  ASSERT_TRUE(want && got) << (want ? got.error().message : want.error().message);
  EXPECT_EQ(first_difference(*want, *got), "");
}

/// An inverted residual block whose depthwise convolution is in the kernel of the 1x1 convolution behind it; the codes between them have no place in memory.
TEST_F(EmulatedGpu, DepthwiseConvolutionsInTheKernelOfWhatReadsThem) {
  constexpr const char* kNet = R"(
graph "g"
x = input : f32[2,8,9,7]
q = view x q=u8(0.03,109) from {"q"}
w1 = constant s8[40,8,1,1] q=s8(0.01,0) seed:1
y = conv q w1 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"expand"}
v = view y q=s8(0.04,-17) from {"v"}
w2 = constant s8[40,1,3,3] q=s8(0.02,0) seed:2
d = conv v w2 {dilations=[1,1], group=40, pads=[1,1,1,1], strides=[1,1]} from {"depthwise"}
r = relu d from {"relu"}
u = view r q=u8(0.05,0) from {"u"}
w3 = constant s8[8,40,1,1] q=s8(0.01,0) seed:3
p = conv u w3 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"project"}
z = view p q=u8(0.06,120) from {"z"}
a = add q z from {"add"}
output a
)";
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const auto graph = ir::parse(kNet);
  ASSERT_TRUE(graph) << graph.error().message;
  plan::PlanOptions how;
  how.forced = {"stages"};
  const auto gpu = emulated_engine(*graph, *provider, *device, how);
  ASSERT_TRUE(gpu) << gpu.error().message;
  const auto& regions = (*gpu)->plan().regions;
  EXPECT_TRUE(std::any_of(regions.begin(), regions.end(), [](const region::Region& one) {
    return one.stages.size() == 2 && one.tactic.family == "conv.u8s8.depthwise_pointwise";
  }));
  const auto context = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(context) << context.error().message;
  const auto feeds = seeded_feeds(*graph, 1);
  const auto want = reference::evaluate(*graph, feeds);
  const auto got = api::run(**context, feeds);
  ASSERT_TRUE(want && got) << (want ? got.error().message : want.error().message);
  EXPECT_EQ(first_difference(*want, *got), "");
}

/// The output is stored with its channels apart and its images side by side, in four bytes each.
TEST_F(EmulatedGpu, ConvolutionsStoreFloatsWhoseChannelsAreApart) {
  constexpr const char* kNet = R"(
graph "g"
x = input : f32[2,40,1,1]
q = view x q=u8(0.03,109) from {"q"}
w = constant s8[5,40,1,1] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv"}
v = view y q=u8(0.01,3) from {"v"}
f = reshape v {shape=[2,5]} from {"flatten"}
t = transpose f {perm=[1,0]} from {"transpose"}
output t
)";
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  const auto graph = ir::parse(kNet);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto gpu = emulated_engine(*graph, *provider, *device);  // "direct-store" is usual on a GPU
  plan::PlanOptions how;
  how.disabled.insert("direct-store");
  const auto copied = emulated_engine(*graph, *provider, *device, how);
  ASSERT_TRUE(gpu && copied) << (gpu ? copied.error().message : gpu.error().message);
  const auto apart = [](const region::Plan& plan) {
    return std::any_of(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) {
      return r.stages[0].anchor.op == ir::Op::conv && r.stages[0].stores[0].strides[1] == 2;
    });
  };
  EXPECT_TRUE(apart((*gpu)->plan())) << "no convolution stores its channels two elements apart";
  EXPECT_FALSE(apart((*copied)->plan()));
  const auto context = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(context) << context.error().message;
  const auto feeds = seeded_feeds(*graph, 1);
  const auto want = reference::evaluate(*graph, feeds);
  const auto got = api::run(**context, feeds);
  ASSERT_TRUE(want && got) << (want ? got.error().message : want.error().message);
  EXPECT_EQ(first_difference(*want, *got), "");
}

/// The caller's memory of the device takes the place of the engine's: no copy.
TEST_F(EmulatedGpu, MemoryOfTheDeviceIsUsedWhereItIs) {
  const auto device = emulated_device();
  const auto provider = emulated_provider();
  auto graph = ir::parse("graph \"g\"\nx = input : f32[1,16,6,6]\nr = relu x from {\"relu\"}\noutput r\n");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto gpu = emulated_engine(*graph, *provider, *device);
  ASSERT_TRUE(gpu) << gpu.error().message;
  const auto context = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(context) << context.error().message;
  constexpr std::size_t kBytes = std::size_t{16} * 6 * 6 * 4;
  const auto in = device->allocate(kBytes), out = device->allocate(kBytes);
  ASSERT_TRUE(in && out);
  std::vector<float> values(kBytes / 4, -1.0F);
  values[5] = 2.0F;
  ASSERT_TRUE(device->write((*in)->address(), std::as_bytes(std::span(values))));
  const engine::Address from{(*in)->address(), 1}, to{(*out)->address(), 1};
  bool seen = false;
  engine::Observer look;
  look.before = [&](std::size_t i, const region::Memory& memory) {
    const region::Region& r = (*gpu)->plan().regions[i];
    if (region::is_transfer(r, (*gpu)->plan())) return;
    seen = true;
    const region::Stage& s = r.stages[0];
    const region::TensorRef& read = s.anchor.inputs.empty() ? s.operands[0].ref : s.anchor.inputs[0];
    EXPECT_EQ(memory.at(read), from.at);
    EXPECT_EQ(memory.at(s.stores[0]), to.at);
  };
  const Status ran = (*context)->run({&from, 1}, {&to, 1}, nullptr, &look);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_TRUE(seen);
  ASSERT_TRUE(device->read(std::as_writable_bytes(std::span(values)), (*out)->address()));
  EXPECT_EQ(values[5], 2.0F);
  EXPECT_EQ(values[6], 0.0F);
}

}  // namespace
}  // namespace octavo::testing
