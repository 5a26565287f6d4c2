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
#include "api/open_model.h"
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
    const auto emitted = cuda::emissions();
    const auto resized = (*resizer)->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " images: a kernel of this number alone";
    EXPECT_EQ(cuda::emissions(), emitted) << n << " images: launches are not those of the table";
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
    const auto emitted = cuda::emissions();
    const auto resized = (*resizer)->at(tokens(n, length));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
    EXPECT_EQ(cuda::emissions(), emitted) << n << " texts of " << length;
    PipelineOptions like = o;  // the same tactics: sums of floats in one order
    like.plan.follow = base->decided;
    const auto own = gpu.build(**session, like, tokens(n, length));
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
  constexpr int kSeeds = 24;
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
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
  EXPECT_GT(compared, kSeeds);
}

/// A height and a width are numbers of a convolution's text: such a region is emitted and compiled when a shape comes, and says so.
TEST_F(OpenGpu, KernelsWithAnOpenHeightAsANumberSayThatTheyAreCompiled) {
  onnx::testing::ModelBuilder m;
  m.input("x", {1, 8, -2, -3}).output("y").ramp("w", {8, 8, 3, 3});
  m.node("Conv", {"x", "w"}, {"c"}).ints("pads", {1, 1, 1, 1}).name("conv");
  m.node("Relu", {"c"}, {"y"}).name("relu");
  const std::string bytes = m.bytes();
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "picture");
  ASSERT_TRUE(session) << session.error().message;
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  const auto picture = [](std::int64_t h, std::int64_t w) { return Shapes{{"x", {1, 8, h, w}}}; };
  EmulatedGpu gpu;
  const PipelineOptions o = options();
  const auto base = gpu.build(**session, o, picture(8, 12));
  ASSERT_TRUE(base) << base.error().message;
  const api::ShapeRanges ranges{{"x", {{1, 8, 4, 4}, {1, 8, 8, 12}, {1, 8, 20, 20}}}};
  const auto resizer =
      Resizer::create(**session, o, *inputs, ranges, picture(8, 12), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  const int compiled = gpu.compiled;
  const auto resized = (*resizer)->at(picture(11, 13));
  ASSERT_TRUE(resized) << resized.error().message;
  EXPECT_GT(gpu.compiled, compiled);
  EXPECT_NE(late_kernels((*resized)->plan()).find("conv"), std::string::npos);
  const int then = gpu.compiled;
  ASSERT_TRUE((*resizer)->at(picture(11, 13)));
  EXPECT_EQ(gpu.compiled, then) << "its code is kept";
  PipelineOptions like = o;
  like.plan.follow = base->decided;
  const auto own = gpu.build(**session, like, picture(11, 13));
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
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "encoder");
  ASSERT_TRUE(session) << session.error().message;
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu;
  const PipelineOptions o = options();
  const auto base = gpu.build(**session, o, tokens(2, 24));
  ASSERT_TRUE(base) << base.error().message;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {2, 24, 64}, {3, 40, 64}}},
                                {"mask", {{1, 1, 1, 1}, {2, 1, 1, 24}, {3, 1, 1, 40}}}};
  const auto resizer =
      Resizer::create(**session, o, *inputs, ranges, tokens(2, 24), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  Reread kept;
  kept.text = nlohmann::json::parse((*resizer)->to_json(kept.data, kept.codes).dump());
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("octavo-open-{}.engine", ::getpid())).string();
  ASSERT_TRUE(base->engine->save(path));
  const auto loaded = engine::Engine::load_all(path, {gpu.provider.get()}, {gpu.device.get()});
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto engine = loaded->front();
  auto decided = std::make_shared<plan::Decided>(*base->decided);
  const Resizer::Kept file{kept.data, &kept.codes, {gpu.provider.get()}};
  const int compiled = gpu.compiled;
  const auto emitted = cuda::emissions();
  const auto read = Resizer::from_json(kept.text, file, o, engine, decided);
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
    const auto same = (*resizer)->at(tokens(x[0], x[1]));
    ASSERT_TRUE(same);
    expect_equal(one, *same, ir::to_string(x));
  }
  // A launch may start any code with any number, as in every engine file for a GPU: but all is read within its bounds.
  std::mt19937_64 random(36);
  int refused = 0;
  constexpr int kTries = 300;
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
    const auto forged = Resizer::from_json(j, {data, &kept.codes, {gpu.provider.get()}}, o, engine, decided);
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
        const auto emitted = cuda::emissions();
        const auto begin = std::chrono::steady_clock::now();
        const auto resized = (*resizer)->at(of(n));
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
        EXPECT_EQ(gpu.compiled, before) << file << ", tuned for " << tuned << ", " << n << " images";
        EXPECT_EQ(cuda::emissions(), emitted) << file << ", tuned for " << tuned << ", " << n << " images";
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
  std::vector<double> times;
  for (int i = 0; i < 60; ++i) {
    const auto n = static_cast<std::int64_t>(random() % 8 + 1), length = static_cast<std::int64_t>(random() % 512 + 1);
    const int before = gpu.compiled;
    const auto emitted = cuda::emissions();
    const auto begin = std::chrono::steady_clock::now();
    const auto resized = (*resizer)->at(tokens(n, length));
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_TRUE(resized) << n << " x " << length << ": " << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
    EXPECT_EQ(cuda::emissions(), emitted) << n << " texts of " << length;
  }
  std::sort(times.begin(), times.end());
  std::printf("%zu layers of an encoder: new shapes take %.1f ms, at most %.1f\n", std::size_t{2}, times[times.size() / 2],
              times.back());
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
  const auto compiled = cuda::compilations(), emitted = cuda::emissions();
  const auto timed = tune::measurements();
  for (const std::int64_t n : {1, 3, 8, 64}) {
    const auto resized = (*resizer)->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ((*resized)->plan().inputs.front().type.shape, images(n).at("image"));
  }
  EXPECT_EQ(cuda::compilations(), compiled);
  EXPECT_EQ(cuda::emissions(), emitted);
  EXPECT_EQ(tune::measurements(), timed);
}

/// A file for a range keeps the kernels of the range: it serves every shape of it without emitting or compiling, and without its model.
TEST(OpenAbsentGpu, AFileServesItsRangeAndCompilesNothing) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  o.keep_model = false;
  const auto model = api::OpenModel::create(*session, nullptr, o, up_to(64));
  ASSERT_TRUE(model) << model.error().message;
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("octavo-range-{}.engine", ::getpid())).string();
  const Status saved = (*model)->save(path);
  ASSERT_TRUE(saved) << saved.error().message;
  api::LoadRequest request;
  request.looks_only = true;
  const auto compiled = cuda::compilations(), emitted = cuda::emissions();
  const auto file = api::open_engine_file(path, request);
  std::filesystem::remove(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto loaded = api::load_open(*file, request);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->why_planned(), "");
  for (const std::int64_t n : {1, 2, 3, 7, 33, 64}) {
    const auto engine = (*loaded)->at(images(n));
    ASSERT_TRUE(engine) << n << " images: " << engine.error().message;
    EXPECT_EQ((*engine)->plan().inputs.front().type.shape, images(n).at("image"));
    EXPECT_FALSE((*engine)->plan().decided_for.empty() && n != 1) << n << " images: planned";
  }
  EXPECT_EQ(cuda::compilations(), compiled);
  EXPECT_EQ(cuda::emissions(), emitted);
}

}  // namespace
}  // namespace octavo::testing
