// Open models on a GPU: kernels for new shapes are those of the range, with other numbers. Run by the emulation; compiled for a GPU that need not be here.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>

#include "api/check.h"
#include "api/pipeline.h"
#include "api/resizer.h"
#include "api/session.h"
#include "base/half.h"
#include "cuda/device/compile_plan.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "onnx/build_model.h"
#include "plan/plan.h"
#include "tune/measure.h"

namespace octavo::testing {
namespace {

using api::PipelineOptions;
using api::Resizer;
using api::Session;
using api::Shapes;

const std::string kModel = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

Shapes images(std::int64_t n) {
  return {{"image", {n, 1, 16, 16}}};
}
api::ShapeRanges up_to(std::int64_t most) {
  return {{"image", {images(1).at("image"), images(1).at("image"), images(most).at("image")}}};
}

/// A GPU whose kernels the emulation runs; counts what it compiles.
struct EmulatedGpu {
  std::atomic<int> compiled{0};
  cuda::Target target{"sm_80", 108, 163 * 1024};
  std::unique_ptr<const region::Device> device = emulated_device();
  std::unique_ptr<const region::Provider> provider =
      cuda::make_provider(target, [this](std::string_view text) -> Result<std::string> {
        ++compiled;
        return std::string(text);  // the emulation runs texts
      });

  EmulatedGpu() = default;
  explicit EmulatedGpu(cuda::Target t) : target(std::move(t)) {}

  struct Made {
    std::shared_ptr<const engine::Engine> engine;
    std::shared_ptr<const plan::Decided> decided;
  };
  Result<Made> build(const Session& session, PipelineOptions o, const Shapes& shapes) {
    o.import.shapes = shapes;
    OCTAVO_TRY(const auto model, session.imported(o.import));
    plan::PlanOptions how = api::planner_options(o, *model);
    OCTAVO_TRY(auto planned, plan::make_plan(model->graph, {provider.get()}, how));
    region::Plan* const plan = &planned.plan;
    OCTAVO_CHECK(provider->finish({&plan, 1}, 1));
    auto decided = std::make_shared<plan::Decided>(std::move(planned.decided));
    OCTAVO_TRY(auto engine, engine::Engine::create(std::move(planned.plan), {provider.get()}, "", {device.get()}));
    return Made{std::move(engine), std::move(decided)};
  }
};

PipelineOptions options() {
  PipelineOptions o;
  o.device = "cuda:sm_80";
  o.plan.effort = 0;
  o.import.default_batch = 0;
  return o;
}

void expect_equal(const std::shared_ptr<const engine::Engine>& a, const std::shared_ptr<const engine::Engine>& b,
                  const std::string& what) {
  const auto x = engine::Context::create(a, 1), y = engine::Context::create(b, 1);
  ASSERT_TRUE(x && y) << (x ? y.error().message : x.error().message);
  const auto inputs = api::random_inputs(a->plan(), 5);
  const auto got = api::run(**x, inputs), want = api::run(**y, inputs);
  ASSERT_TRUE(got && want) << what << ": " << (got ? want.error().message : got.error().message);
  ASSERT_EQ(got->size(), want->size());
  for (std::size_t i = 0; i < got->size(); ++i) EXPECT_TRUE(ir::same_bytes((*got)[i], (*want)[i])) << what << ", output " << i;
}

class OpenGpu : public EmulatedTest {};

TEST_F(OpenGpu, NewBatchesCompileNothingAndGiveTheBitsOfTheCpu) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu;
  const PipelineOptions o = options();
  const auto base = gpu.build(**session, o, images(4));
  ASSERT_TRUE(base) << base.error().message;
  const auto resizer =
      Resizer::create(**session, o, *inputs, up_to(32), images(4), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  for (const std::int64_t n : {1, 2, 7, 32}) {
    const int before = gpu.compiled;
    const auto resized = (*resizer)->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " images: a kernel of this number alone";
    const region::Plan& plan = (*resized)->plan();
    EXPECT_EQ(plan.inputs.front().type.shape, images(n).at("image"));
    for (std::size_t i = 0; i < base->engine->plan().buffers.size(); ++i) {  // constants are where they were
      const auto id = static_cast<region::BufferId>(i);
      EXPECT_EQ((*resized)->constant_address(id), base->engine->constant_address(id));
    }
    PipelineOptions on_cpu;
    on_cpu.plan.effort = 0;
    on_cpu.import.shapes = images(n);
    onnx::LateValues none;
    const auto cpu = (*session)->build(on_cpu, none);
    ASSERT_TRUE(cpu) << cpu.error().message;
    expect_equal(*resized, cpu->engine, fmt::format("{} images", n));
  }
}

/// Layers of a transformer in float16, with an open batch and an open length, and a mask of keys.
std::string encoder(int layers) {
  using onnx::testing::Dims;
  constexpr std::int64_t n = 64, heads = 2;
  onnx::testing::ModelBuilder m;
  std::mt19937 random(3);
  m.input("x", {-1, -2, n}, onnx::testing::kHalf)
      .input("mask", {-1, 1, 1, -2}, onnx::testing::kHalf)
      .output("y", onnx::testing::kHalf);
  int next = 0;
  const auto constant = [&](const Dims& dims, float around, float width) {
    std::vector<std::uint16_t> v(static_cast<std::size_t>(ir::count(dims)));
    for (auto& e : v) e = f32_to_f16(around + width * (static_cast<float>(random() % 2001) / 1000 - 1));
    const std::string name = fmt::format("c{}", next++);
    m.constant(name, dims, v, onnx::testing::kHalf);
    return name;
  };
  const auto node = [&](const std::string& op, std::initializer_list<std::string> in) {
    const std::string out = fmt::format("v{}", next++);
    return std::pair{m.node(op, in, {out}).name(fmt::format("n_{}_{}", op, out)), out};
  };
  const auto linear = [&](const std::string& x, std::int64_t a, std::int64_t b) {
    const std::string product = node("MatMul", {x, constant({a, b}, 0, 0.2F)}).second;
    return node("Add", {product, constant({b}, 0, 0.1F)}).second;
  };
  m.ints("split", {0, 0, heads, n / heads}).ints("join", {0, 0, n});
  const auto turned = [&](const std::string& x, const Dims& perm) {
    auto [ref, out] = node("Transpose", {x});
    ref.ints("perm", perm);
    return out;
  };
  std::string x = "x";
  for (int layer = 0; layer < layers; ++layer) {
    const auto head = [&](const Dims& perm) { return turned(node("Reshape", {linear(x, n, n), "split"}).second, perm); };
    const std::string q = head({0, 2, 1, 3}), k = head({0, 2, 3, 1}), v = head({0, 2, 1, 3});
    const std::string scores = node("Mul", {node("MatMul", {q, k}).second, constant({}, 0.18F, 0)}).second;
    auto [softmax, shares] = node("Softmax", {node("Add", {scores, "mask"}).second});
    softmax.i("axis", -1);
    const std::string mixed = turned(node("MatMul", {shares, v}).second, {0, 2, 1, 3});
    const auto normal = [&](const std::string& sum) {
      auto [norm, out] = node("LayerNormalization", {sum, constant({n}, 1, 0.1F), constant({n}, 0, 0.1F)});
      norm.i("axis", -1);
      return out;
    };
    x = normal(node("Add", {linear(node("Reshape", {mixed, "join"}).second, n, n), x}).second);
    x = normal(node("Add", {linear(node("Relu", {linear(x, n, 2 * n)}).second, 2 * n, n), x}).second);
  }
  m.node("Identity", {x}, {"y"});
  return m.bytes();
}

Shapes tokens(std::int64_t n, std::int64_t length) {
  return {{"x", {n, length, 64}}, {"mask", {n, 1, 1, length}}};
}

TEST_F(OpenGpu, NewBatchesAndLengthsGiveTheBitsOfEnginesForThem) {
  const std::string bytes = encoder(1);
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "encoder");
  ASSERT_TRUE(session) << session.error().message;
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu;
  const PipelineOptions o = options();
  const auto base = gpu.build(**session, o, tokens(2, 48));
  ASSERT_TRUE(base) << base.error().message;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {2, 48, 64}, {4, 80, 64}}},
                                {"mask", {{1, 1, 1, 1}, {2, 1, 1, 48}, {4, 1, 1, 80}}}};
  const auto resizer =
      Resizer::create(**session, o, *inputs, ranges, tokens(2, 48), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  for (const auto& [n, length] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {3, 17}, {2, 50}, {4, 80}, {2, 5}}) {
    const int before = gpu.compiled;
    const auto resized = (*resizer)->at(tokens(n, length));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
    PipelineOptions like = o;  // the same tactics: sums of floats in one order
    like.plan.follow = base->decided;
    const auto own = gpu.build(**session, like, tokens(n, length));
    ASSERT_TRUE(own) << own.error().message;
    expect_equal(*resized, own->engine, fmt::format("{} texts of {}", n, length));
  }
}

/// Whole networks on an H100 that is not here: all batches from 1 to 32 are launches of the same texts. Prints what a new shape costs, apart from what the GPU does.
TEST(OpenNetworks, EveryBatchIsOfTheSameTexts) {
  const char* folder = std::getenv("OCTAVO_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "OCTAVO_TEST_DATA is not set";
  for (const auto& [file, input] :
       {std::pair<std::string, std::string>{"mobilenetv2-12-qdq.onnx", "input"}, {"resnet56_cifar10_fp32.onnx", "input"}}) {
    const auto session = Session::open(std::string(folder) + "/models/" + file);
    ASSERT_TRUE(session) << session.error().message;
    const auto inputs = (*session)->inputs();
    ASSERT_TRUE(inputs);
    const auto of = [&, name = input](std::int64_t n) {
      ir::Shape shape = (*inputs)[0].dims;
      shape[0] = n;
      return Shapes{{name, shape}};
    };
    EmulatedGpu gpu(cuda::Target{"sm_90a", 132, 227 * 1024});
    PipelineOptions o = options();
    o.device = "cuda:sm_90";
    for (const std::int64_t tuned : {1, 8, 32}) {
      const auto base = gpu.build(**session, o, of(tuned));
      ASSERT_TRUE(base) << base.error().message;
      const api::ShapeRanges ranges{{input, {of(1).at(input), of(1).at(input), of(32).at(input)}}};
      const auto resizer =
          Resizer::create(**session, o, *inputs, ranges, of(tuned), base->engine, base->decided, {gpu.provider.get()});
      ASSERT_TRUE(resizer) << file << ": " << resizer.error().message;
      std::vector<double> times;
      int refused = 0;
      for (std::int64_t n = 1; n <= 32; ++n) {
        const int before = gpu.compiled;
        const auto begin = std::chrono::steady_clock::now();
        const auto resized = (*resizer)->at(of(n));
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
        EXPECT_EQ(gpu.compiled, before) << file << ", tuned for " << tuned << ", " << n << " images";
        if (!resized)
          std::printf("  %s, tuned for %d, %d images: %s\n", file.c_str(), static_cast<int>(tuned), static_cast<int>(n),
                      resized.error().message.c_str());
        refused += resized ? 0 : 1;
      }
      std::sort(times.begin(), times.end());
      std::printf("%s, tuned for %d: a new batch takes %.1f ms, at most %.1f; %d refused\n", file.c_str(), static_cast<int>(tuned),
                  times[times.size() / 2], times.back(), refused);
      EXPECT_EQ(refused, 0);
    }
  }
}

TEST(OpenNetworks, EveryLengthIsOfTheSameTexts) {
  const std::string bytes = encoder(2);
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "encoder");
  ASSERT_TRUE(session) << session.error().message;
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu(cuda::Target{"sm_90a", 132, 227 * 1024});
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  const auto base = gpu.build(**session, o, tokens(4, 128));
  ASSERT_TRUE(base) << base.error().message;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {4, 128, 64}, {8, 512, 64}}},
                                {"mask", {{1, 1, 1, 1}, {4, 1, 1, 128}, {8, 1, 1, 512}}}};
  const auto resizer =
      Resizer::create(**session, o, *inputs, ranges, tokens(4, 128), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    const auto n = static_cast<std::int64_t>(random() % 8 + 1), length = static_cast<std::int64_t>(random() % 512 + 1);
    const int before = gpu.compiled;
    const auto resized = (*resizer)->at(tokens(n, length));
    EXPECT_TRUE(resized) << n << " x " << length << ": " << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
  }
}

/// For a GPU that is not here: machine code by NVRTC, and the launches of an engine that was built for exactly the shape.
TEST(OpenAbsentGpu, NewBatchesCompileNothing) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  o.import.shapes = images(2);
  onnx::LateValues none;
  const auto base = (*session)->build(o, none);
  ASSERT_TRUE(base) << base.error().message;
  const auto resizer = Resizer::create(**session, o, *inputs, up_to(64), images(2), base->engine, base->decided.front());
  ASSERT_TRUE(resizer) << resizer.error().message;
  const auto compiled = cuda::compilations();
  const auto timed = tune::measurements();
  for (const std::int64_t n : {1, 3, 8, 64}) {
    const auto resized = (*resizer)->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ((*resized)->plan().inputs.front().type.shape, images(n).at("image"));
  }
  EXPECT_EQ(cuda::compilations(), compiled);
  EXPECT_EQ(tune::measurements(), timed);
}

}  // namespace
}  // namespace octavo::testing
