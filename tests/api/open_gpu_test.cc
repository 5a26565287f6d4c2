// Open models on a GPU: kernels for new shapes are those of the range, with other numbers. Run by the emulation; compiled for a GPU that need not be here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "api/check.h"
#include "api/load.h"
#include "api/open_gpu_scene.h"
#include "cuda/device/compile_plan.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "ir/output_sizes.h"
#include "support/fuzz_setting.h"
#include "tune/measure.h"

namespace octavo::testing {
namespace {

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

/// The emulation, and what it was told to expect.
class ExpectingGpu final : public region::Device {
 public:
  explicit ExpectingGpu(std::unique_ptr<const region::Device> gpu) : gpu_(std::move(gpu)) {}
  std::string_view name() const override { return gpu_->name(); }
  Result<std::string> description() const override { return gpu_->description(); }
  bool is_here() const override { return gpu_->is_here(); }
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    ++allocations;
    return gpu_->allocate(bytes);
  }
  Status write(std::byte* to, std::span<const std::byte> from) const override { return gpu_->write(to, from); }
  Status read(std::span<std::byte> to, const std::byte* from) const override { return gpu_->read(to, from); }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte> code) const override { return gpu_->hold(code); }
  void expect_transfers(std::span<const std::size_t> bytes) const override { expected.assign(bytes.begin(), bytes.end()); }
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                     std::span<const region::Kernel* const> kernels) const override {
    return gpu_->executor(plan, kernels);
  }
  mutable std::vector<std::size_t> expected;
  mutable int allocations = 0;

 private:
  std::unique_ptr<const region::Device> gpu_;
};

TEST_F(OpenGpu, CopiesOfTheLargestShapeAreExpectedBeforeItRuns) {
  for (const bool declared : {true, false}) {
    EmulatedGpu gpu;
    auto device = std::make_unique<ExpectingGpu>(std::move(gpu.device));
    const ExpectingGpu& told = *device;
    gpu.device = std::move(device);
    const auto open = opened(gpu, Session::open(kModel), images(4), declared ? up_to(32) : api::ShapeRanges{});
    ASSERT_TRUE(open) << open.error().message;
    std::vector<std::size_t> want;  // nothing where no range was declared: there is no largest shape
    if (declared) want = {32 * 256 * sizeof(float), 32 * 10 * sizeof(float)};
    EXPECT_EQ(told.expected, want);
  }
}

/// The first run of a shape in the declared range, in a context of its own, takes an arena that is there; so do runs at the same time as soon as there were as many.
TEST_F(OpenGpu, ShapesOfTheRangeAllocateNoMemoryOfTheGpu) {
  EmulatedGpu gpu;
  auto device = std::make_unique<ExpectingGpu>(std::move(gpu.device));
  const ExpectingGpu& told = *device;
  gpu.device = std::move(device);
  const auto open = opened(gpu, Session::open(kModel), images(4), up_to(32));
  ASSERT_TRUE(open) << open.error().message;
  const auto resources = std::make_shared<engine::RunResources>();
  open->resizer->expect_arenas(resources->devices);
  const int before = told.allocations;
  std::vector<std::unique_ptr<engine::Context>> contexts;
  for (const std::int64_t n : {3, 32, 1, 17}) {
    const auto resized = open->resizer->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    auto pooled = engine::Context::create(*resized, 1, nullptr, resources);
    ASSERT_TRUE(pooled) << pooled.error().message;
    const auto given = api::random_inputs((*resized)->plan(), static_cast<unsigned>(n));
    const auto got = api::run(**pooled, given), again = api::run(**pooled, given);
    ASSERT_TRUE(got && again) << (got ? again.error().message : got.error().message);
    EXPECT_EQ(told.allocations, before) << n << " images";
    const auto own = engine::Context::create(*resized, 1);  // which has an arena of its own
    ASSERT_TRUE(own);
    EXPECT_EQ(told.allocations, before + 1);
    told.allocations = before;
    const auto want = api::run(**own, given);
    ASSERT_TRUE(want);
    for (std::size_t i = 0; i < want->size(); ++i) {
      EXPECT_TRUE(ir::same_bytes((*got)[i], (*want)[i])) << n << " images, output " << i;
      EXPECT_TRUE(ir::same_bytes((*again)[i], (*want)[i])) << n << " images, output " << i;
    }
    contexts.push_back(std::move(*pooled));
  }
}

TEST_F(OpenGpu, NewBatchesCompileNothingAndGiveTheBitsOfTheCpu) {
  EmulatedGpu gpu;
  const auto open = opened(gpu, Session::open(kModel), images(4), up_to(32));
  ASSERT_TRUE(open) << open.error().message;
  for (const std::int64_t n : {1, 2, 7, 32}) {
    const int before = gpu.compiled;
    const auto emitted = cuda::emissions();
    const auto resized = open->resizer->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " images: a kernel of this number alone";
    EXPECT_EQ(cuda::emissions(), emitted) << n << " images: launches are not those of the table";
    const region::Plan& plan = (*resized)->plan();
    EXPECT_EQ(plan.inputs.front().type.shape, images(n).at("image"));
    for (std::size_t i = 0; i < open->base.engine->plan().buffers.size(); ++i) {  // constants are where they were
      const auto id = static_cast<region::BufferId>(i);
      EXPECT_EQ((*resized)->constant_address(id), open->base.engine->constant_address(id));
    }
    PipelineOptions on_cpu;
    on_cpu.plan.effort = 0;
    on_cpu.import.shapes = images(n);
    onnx::LateValues none;
    const auto cpu = open->session->build(on_cpu, none);
    ASSERT_TRUE(cpu) << cpu.error().message;
    expect_equal(*resized, cpu->engine, fmt::format("{} images", n));
  }
}

TEST_F(OpenGpu, NewBatchesAndLengthsGiveTheBitsOfEnginesForThem) {
  const std::string bytes = encoder(1);
  EmulatedGpu gpu;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {2, 48, 64}, {4, 80, 64}}},
                                {"mask", {{1, 1, 1, 1}, {2, 1, 1, 48}, {4, 1, 1, 80}}}};
  const auto open = opened(gpu, session_of(bytes, "encoder"), tokens(2, 48), ranges);
  ASSERT_TRUE(open) << open.error().message;
  EveryOther some;
  for (const auto& [n, length] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {3, 17}, {2, 50}, {4, 80}, {2, 5}}) {
    if (!some.takes(n, length)) continue;
    const int before = gpu.compiled;
    const auto emitted = cuda::emissions();
    const auto resized = open->resizer->at(tokens(n, length));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
    EXPECT_EQ(cuda::emissions(), emitted) << n << " texts of " << length;
    PipelineOptions like = options();  // the same tactics: sums of floats in one order
    like.plan.follow = open->base.decided;
    const auto own = gpu.build(*open->session, like, tokens(n, length));
    ASSERT_TRUE(own) << own.error().message;
    expect_equal(*resized, own->engine, fmt::format("{} texts of {}", n, length));
  }
}

/// A network of random layers with an open batch and, but for images, an open length; float32 or float16.
struct RandomOpen {
  std::string bytes;
  std::map<std::string, ir::Shape> least, most;
  [[nodiscard]] Shapes at(std::int64_t n, std::int64_t length) const {
    Shapes out;
    for (const auto& [name, shape] : most) {
      ir::Shape s = shape;
      s[0] = n;
      if (s.size() == 3) s[1] = length;
      out[name] = s;
    }
    return out;
  }
};
RandomOpen random_open(std::uint64_t seed) {
  using onnx::testing::Dims;
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ULL + 36);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
  onnx::testing::ModelBuilder m;
  const bool half = below(2) == 0, image = below(3) == 0;
  const int type = half ? onnx::testing::kHalf : onnx::testing::kFloat;
  int next = 0;
  const auto constant = [&](const Dims& dims) {
    std::vector<std::uint16_t> halves;
    std::vector<float> floats;
    for (std::int64_t i = 0; i < ir::count(dims); ++i) {
      floats.push_back(0.2F * (static_cast<float>(below(2001)) / 1000 - 1));
      halves.push_back(f32_to_f16(floats.back()));
    }
    const std::string name = fmt::format("c{}", next++);
    if (half)
      m.constant(name, dims, halves, type);
    else
      m.constant(name, dims, floats, type);
    return name;
  };
  const auto node = [&](const std::string& op, std::initializer_list<std::string> in) {
    const std::string out = fmt::format("v{}", next++);
    return std::pair{m.node(op, in, {out}).name(fmt::format("n_{}_{}", op, out)), out};
  };
  std::int64_t channels = 4 * (1 + below(5));
  RandomOpen out;
  const Dims declared = image ? Dims{-1, channels, 8, 8} : Dims{-1, -2, channels};
  out.least["x"] = image ? ir::Shape{1, channels, 8, 8} : ir::Shape{1, 1, channels};
  out.most["x"] = image ? ir::Shape{6, channels, 8, 8} : ir::Shape{4, 20, channels};
  m.input("x", declared, type).output("y", type).ints("zero", {0}).ints("ones", {1});
  m.constant("one", {}, std::vector<std::int64_t>{1}, onnx::testing::kS64);
  std::string x = "x";
  for (std::int64_t layer = 0, layers = 2 + below(4); layer < layers; ++layer) {
    if (image) {
      const std::int64_t to = 4 * (1 + below(5));
      switch (below(5)) {
        case 0:
        case 1: {
          const std::int64_t k = below(2) == 0 ? 1 : 3;
          auto [ref, y] = node("Conv", {x, constant({to, channels, k, k}), constant({to})});
          ref.ints("pads", Dims(4, k / 2));
          x = y, channels = to;
          break;
        }
        case 2: x = node("Relu", {x}).second; break;
        case 3: {
          auto [ref, y] = node("MaxPool", {x});
          ref.ints("kernel_shape", {3, 3}).ints("pads", {1, 1, 1, 1});
          x = node("Add", {x, y}).second;
          break;
        }
        default: x = node("Mul", {x, node("GlobalAveragePool", {x}).second}).second; break;
      }
      continue;
    }
    switch (below(8)) {
      case 7: {  // as many rows of a table as the sequence has
        const std::string length = node("Unsqueeze", {node("Gather", {node("Shape", {x}).second, "one"}).second, "zero"}).second;
        x = node("Add", {x, node("Slice", {constant({1, 20, channels}), "zero", length, "ones"}).second}).second;
        break;
      }
      case 0:
      case 1: {
        const std::int64_t to = 4 * (1 + below(6));
        x = node("Add", {node("MatMul", {x, constant({channels, to})}).second, constant({to})}).second;
        channels = to;
        break;
      }
      case 2: x = node(below(2) == 0 ? "Relu" : "Sigmoid", {x}).second; break;
      case 3: {
        auto [ref, y] = node("Softmax", {x});
        ref.i("axis", -1);
        x = y;
        break;
      }
      case 4: {
        auto [ref, y] = node("LayerNormalization", {x, constant({channels}), constant({channels})});
        ref.i("axis", -1);
        x = y;
        break;
      }
      case 5: {  // of all pairs of a sequence
        auto [turn, turned] = node("Transpose", {x});
        turn.ints("perm", {0, 2, 1});
        auto [softmax, shares] = node("Softmax", {node("MatMul", {x, turned}).second});
        softmax.i("axis", -1);
        x = node("MatMul", {shares, x}).second;
        break;
      }
      default: {
        auto [ref, y] = node("Concat", {x, node("Tanh", {x}).second});
        ref.i("axis", 2);
        x = y, channels *= 2;
        break;
      }
    }
  }
  m.node("Identity", {x}, {"y"});
  out.bytes = m.bytes();
  return out;
}

/// Regions whose kernels were compiled for these shapes alone.
std::string late_kernels(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions) {
    for (const region::Alternative& a : r.alternatives) {
      if (a.reasons.size() > 1) out += fmt::format("\n  {}, {}", r.name, r.tactic.name());
    }
  }
  return out;
}

TEST_F(OpenGpu, RandomNetworksGiveTheBitsOfEnginesForTheirShapes) {
  const std::uint64_t seeds = rounds(6, 24);
  std::uint64_t compared = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const RandomOpen net = random_open(seed);
    const auto session = Session::of(std::as_bytes(std::span(net.bytes)), "", "random");
    ASSERT_TRUE(session) << "seed " << seed << ": " << session.error().message;
    const auto inputs = (*session)->inputs();
    ASSERT_TRUE(inputs);
    EmulatedGpu gpu;
    const PipelineOptions o = options();
    const auto base = gpu.build(**session, o, net.at(3, 12));
    if (!base) continue;  // a layer that no kernel computes
    const api::ShapeRanges ranges{{"x", {net.least.at("x"), net.at(3, 12).at("x"), net.most.at("x")}}};
    const auto resizer =
        Resizer::create(**session, o, *inputs, ranges, net.at(3, 12), base->engine, base->decided, {gpu.provider.get()});
    ASSERT_TRUE(resizer) << "seed " << seed << ": " << resizer.error().message;
    for (const auto& [n, length] : {std::pair<std::int64_t, std::int64_t>{2, 7}, {4, 20}, {2, 16}}) {
      const auto before = cuda::emissions();
      const int compiled = gpu.compiled;
      const auto resized = (*resizer)->at(net.at(n, length));
      if (!resized) continue;  // outside of what the extents hold for
      EXPECT_EQ(cuda::emissions(), before) << "seed " << seed << ", " << n << " x " << length;
      EXPECT_EQ(gpu.compiled, compiled) << "seed " << seed << ", " << n << " x " << length << late_kernels((*resized)->plan());
      PipelineOptions like = o;
      like.plan.follow = base->decided;
      const auto own = gpu.build(**session, like, net.at(n, length));
      ASSERT_TRUE(own) << own.error().message;
      expect_equal(*resized, own->engine, fmt::format("seed {}, {} x {}", seed, n, length));
      ++compared;
    }
  }
  EXPECT_GT(compared, seeds);
}

/// A height and a width are numbers of a convolution's text: such a region is emitted and compiled when a shape comes, and says so.
TEST_F(OpenGpu, KernelsWithAnOpenHeightAsANumberSayThatTheyAreCompiled) {
  onnx::testing::ModelBuilder m;
  m.input("x", {1, 8, -2, -3}).output("y").ramp("w", {8, 8, 3, 3});
  m.node("Conv", {"x", "w"}, {"c"}).ints("pads", {1, 1, 1, 1}).name("conv");
  m.node("Relu", {"c"}, {"y"}).name("relu");
  const std::string bytes = m.bytes();
  const auto picture = [](std::int64_t h, std::int64_t w) { return Shapes{{"x", {1, 8, h, w}}}; };
  EmulatedGpu gpu;
  const api::ShapeRanges ranges{{"x", {{1, 8, 4, 4}, {1, 8, 8, 12}, {1, 8, 20, 20}}}};
  const auto open = opened(gpu, session_of(bytes, "picture"), picture(8, 12), ranges);
  ASSERT_TRUE(open) << open.error().message;
  const int compiled = gpu.compiled;
  const auto resized = open->resizer->at(picture(11, 13));
  ASSERT_TRUE(resized) << resized.error().message;
  EXPECT_GT(gpu.compiled, compiled);
  EXPECT_NE(late_kernels((*resized)->plan()).find("conv"), std::string::npos);
  const int then = gpu.compiled;
  ASSERT_TRUE(open->resizer->at(picture(11, 13)));
  EXPECT_EQ(gpu.compiled, then) << "its code is kept";
  PipelineOptions like = options();
  like.plan.follow = open->base.decided;
  const auto own = gpu.build(*open->session, like, picture(11, 13));
  ASSERT_TRUE(own) << own.error().message;
  expect_equal(*resized, own->engine, "11 x 13");
}

/// What a file keeps of a plan for a range, written and read again, with the engine of the file.
struct Reread {
  nlohmann::json text;
  std::vector<std::byte> data;
  api::KeptCodes codes;
};

TEST_F(OpenGpu, WhatAFileKeepsServesItsRangeAndForgedOnesAreRefused) {
  const std::string bytes = encoder(1);
  EmulatedGpu gpu;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {2, 24, 64}, {3, 40, 64}}},
                                {"mask", {{1, 1, 1, 1}, {2, 1, 1, 24}, {3, 1, 1, 40}}}};
  const auto open = opened(gpu, session_of(bytes, "encoder"), tokens(2, 24), ranges);
  ASSERT_TRUE(open) << open.error().message;
  Reread kept;
  kept.text = nlohmann::json::parse(open->resizer->to_json(kept.data, kept.codes).dump());
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("octavo-open-{}.engine", ::getpid())).string();
  ASSERT_TRUE(open->base.engine->save(path));
  const auto loaded = engine::Engine::load_all(path, {gpu.provider.get()}, {gpu.device.get()});
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto engine = loaded->front();
  auto decided = std::make_shared<plan::Decided>(*open->base.decided);
  const Resizer::Kept file{kept.data, &kept.codes, {gpu.provider.get()}};
  const int compiled = gpu.compiled;
  const auto emitted = cuda::emissions();
  const auto read = Resizer::from_json(kept.text, file, options(), engine, decided);
  ASSERT_TRUE(read) << read.error().message;
  std::vector<std::shared_ptr<const engine::Engine>> resized;
  for (const auto& [n, length] : {std::pair<std::int64_t, std::int64_t>{1, 33}, {3, 5}}) {
    const auto one = (*read)->at(tokens(n, length));
    ASSERT_TRUE(one) << one.error().message;
    resized.push_back(*one);
  }
  EXPECT_EQ(gpu.compiled, compiled);
  EXPECT_EQ(cuda::emissions(), emitted);
  for (const auto& one : resized) {
    const ir::Shape& x = one->plan().inputs.front().type.shape;
    const auto same = open->resizer->at(tokens(x[0], x[1]));
    ASSERT_TRUE(same);
    expect_equal(one, *same, ir::to_string(x));
  }
  // A launch may start any code with any number, as in every engine file for a GPU: but all is read within its bounds.
  std::mt19937_64 random(36);
  int refused = 0;
  const int kTries = static_cast<int>(rounds(100, 300));
  for (int i = 0; i < kTries; ++i) {
    nlohmann::json j = kept.text;
    std::vector<std::byte> data = kept.data;
    nlohmann::json& kernels = j["kernels"];
    nlohmann::json& rows = kernels["launches"]["rows"];
    nlohmann::json& form = rows[random() % rows.size()][2][0];
    const auto any = static_cast<std::int64_t>(random() % 300) - 40;
    switch (random() % 8) {
      case 0: kernels["at"] = any * any; break;
      case 1: kernels["codes"][random() % kernels["codes"].size()] = any; break;
      case 2: kernels["layouts"].push_back(""); break;
      case 3: form[0] = form[0].get<std::string>().substr(0, random() % 40); break;
      case 4: form[1] = any; break;
      case 5: j.erase("kernels"); break;
      case 6: kernels["launches"]["most"][random() % 2] = any; break;
      default:
        if (!data.empty()) data.resize(random() % data.size());
        break;
    }
    const auto forged = Resizer::from_json(j, {data, &kept.codes, {gpu.provider.get()}}, options(), engine, decided);
    if (forged) {
      (void)(*forged)->at(tokens(3, 7));
      continue;
    }
    EXPECT_EQ(forged.error().kind, ErrorKind::bad_engine) << forged.error().message;
    ++refused;
  }
  std::printf("%d of %d refused when they are read\n", refused, kTries);
  EXPECT_GT(refused, kTries / 2);
}

/// A run in a caller's stream does not wait, so it is `wait` that says that data needed more than a bound.
TEST_F(OpenGpu, WaitChecksBoundsOfARunInACallersStream) {
  onnx::testing::ModelBuilder m;
  m.input("x", {8}).output("y", onnx::testing::kS64).floats("half", {}, {0.5F}).ints("axes", {0});
  m.constant("zero", {}, std::vector<std::int64_t>{0}, onnx::testing::kS64);
  m.constant("two", {}, std::vector<std::int64_t>{2}, onnx::testing::kS64);
  m.node("Greater", {"x", "half"}, {"is"});
  m.node("Cast", {"is"}, {"one"}).i("to", onnx::testing::kFloat);
  m.node("ReduceSum", {"one", "axes"}, {"sum"}).i("keepdims", 0);
  m.node("Cast", {"sum"}, {"n"}).i("to", onnx::testing::kS64);
  m.node("Range", {"zero", "n", "two"}, {"y"});
  const std::string bytes = m.bytes();
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "counted");
  ASSERT_TRUE(session) << session.error().message;
  EmulatedGpu gpu;
  PipelineOptions o = options();
  o.import.max_elements["n"] = 5;
  const auto made = gpu.build(**session, o, {{"x", {8}}});
  ASSERT_TRUE(made) << made.error().message;
  const auto context = engine::Context::create(made->engine, 1);
  ASSERT_TRUE(context) << context.error().message;
  int stream = 0;  // the emulation only hands it on
  for (const int count : {3, 5, 6, 8, 2}) {
    std::vector<float> x(8, 0);
    std::fill_n(x.begin(), count, 1.0F);
    std::vector<std::int64_t> y(8);
    const engine::Address in{x.data()}, out{y.data()};
    const Status put = (*context)->run({&in, 1}, {&out, 1}, &stream);
    EXPECT_TRUE(put) << "a run in a caller's stream checks nothing: " << put.error().message;
    const Status done = (*context)->wait();
    EXPECT_EQ(static_cast<bool>(done), count <= 5) << count;
    if (done) {
      EXPECT_EQ((*context)->shape_of(0), (ir::Shape{(count + 1) / 2})) << count;
      continue;
    }
    EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
    EXPECT_NE(done.error().message.find(fmt::format("\"n\" {}, the engine was built for at most 5", count)), std::string::npos)
        << done.error().message;
  }
}

/// Kernels behind a count serve all shapes of the range: what the count is of, and its bound, are parameters like other extents.
TEST_F(OpenGpu, KernelsBehindACountServeEveryShape) {
  onnx::testing::ModelBuilder m;
  m.input("x", {-1, 24}).input("keep", {-1}).output("y");
  m.ints("flat", {-1}).ramp("w", {24, 40}).ramp("u", {40, 8});
  m.node("NonZero", {"keep"}, {"where"});
  m.node("Reshape", {"where", "flat"}, {"at"});
  m.node("Gather", {"x", "at"}, {"rows"}).i("axis", 0);
  m.node("MatMul", {"rows", "w"}, {"h"});
  m.node("Relu", {"h"}, {"a"});
  m.node("MatMul", {"a", "u"}, {"b"});
  m.node("Softmax", {"b"}, {"y"}).i("axis", -1);
  const std::string bytes = m.bytes();
  const auto rows = [](std::int64_t n) { return Shapes{{"x", {n, 24}}, {"keep", {n}}}; };
  EmulatedGpu gpu;
  api::ShapeRanges range;
  for (const char* name : {"x", "keep"}) range[name] = {rows(2).at(name), rows(150).at(name), rows(400).at(name)};
  const auto open = opened(gpu, session_of(bytes, "counted"), rows(150), range);
  ASSERT_TRUE(open) << open.error().message;
  for (const std::int64_t n : {400, 150, 2, 129}) {
    const auto resized = open->resizer->at(rows(n));
    ASSERT_TRUE(resized) << resized.error().message;
    const auto& regions = (*resized)->plan().regions;
    EXPECT_GE(std::count_if(regions.begin(), regions.end(), [](const region::Region& r) { return r.count >= 0; }), 3);
    const auto exact = gpu.build(*open->session, options(), rows(n));
    ASSERT_TRUE(exact) << exact.error().message;
    const auto one = engine::Context::create(*resized, 1), other = engine::Context::create(exact->engine, 1);
    ASSERT_TRUE(one && other);
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, n / 2, n}) {
      auto given = api::random_inputs((*resized)->plan(), 5);
      auto keep = given[1].mutable_data<float>();
      for (std::int64_t i = 0; i < n; ++i) keep[static_cast<std::size_t>(i)] = (i + 1) * count / n > i * count / n ? 1.0F : 0.0F;
      auto got = api::run(**one, given), want = api::run(**other, given);
      ASSERT_TRUE(got && want) << (got ? want.error().message : got.error().message);
      ir::cut_results(*got, (*resized)->plan().sizes);
      ir::cut_results(*want, exact->engine->plan().sizes);
      EXPECT_EQ((*got)[0].shape(), (ir::Shape{count, 8})) << n;
      EXPECT_TRUE(ir::same_bytes((*got)[0], (*want)[0])) << count << " of " << n;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
