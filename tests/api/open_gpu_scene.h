// Open models for a GPU in tests: the models, their shapes, and a GPU whose kernels the emulation runs.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/open_model.h"
#include "api/pipeline.h"
#include "api/resizer.h"
#include "api/session.h"
#include "base/half.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/provider.h"
#include "onnx/build_model.h"
#include "plan/plan.h"

namespace octavo::testing {

using api::PipelineOptions;
using api::Resizer;
using api::Session;
using api::Shapes;

inline const std::string kModel = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

inline Shapes images(std::int64_t n) {
  return {{"image", {n, 1, 16, 16}}};
}
inline api::ShapeRanges up_to(std::int64_t most) {
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
  explicit EmulatedGpu(const cuda::Target& t) : target(t) {}

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

inline PipelineOptions options() {
  PipelineOptions o;
  o.device = "cuda:sm_80";
  o.plan.effort = 0;
  o.import.default_batch = 0;
  return o;
}

/// An open model, its engine for usual shapes, and what makes those for others.
struct OpenOnGpu {
  std::shared_ptr<const Session> session;
  EmulatedGpu::Made base;
  std::shared_ptr<const Resizer> resizer;
};
/// `loads`: loads the kernels of other shapes; null: the GPU's provider.
inline Result<OpenOnGpu> opened(EmulatedGpu& gpu, Result<std::shared_ptr<const Session>> session, const Shapes& usual,
                                const api::ShapeRanges& ranges, const region::Provider* loads = nullptr) {
  if (!session) return tl::unexpected(session.error());
  OCTAVO_TRY(const auto inputs, (*session)->inputs());
  OCTAVO_TRY(EmulatedGpu::Made base, gpu.build(**session, options(), usual));
  OCTAVO_TRY(auto resizer, Resizer::create(**session, options(), inputs, ranges, usual, base.engine, base.decided,
                                           {loads == nullptr ? gpu.provider.get() : loads}));
  return OpenOnGpu{*session, std::move(base), std::move(resizer)};
}
inline Result<std::shared_ptr<const Session>> session_of(std::string_view bytes, const std::string& name) {
  return Session::of(std::as_bytes(std::span(bytes)), "", name);
}

/// Layers of a transformer in float16, with an open batch and an open length, and a mask of keys.
inline std::string encoder(int layers) {
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

inline Shapes tokens(std::int64_t n, std::int64_t length) {
  return {{"x", {n, length, 64}}, {"mask", {n, 1, 1, length}}};
}

}  // namespace octavo::testing
