// A plan made by hand and a provider that runs it with the oracle, so that the engine is tested without planner and kernels.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/causes/kernels.h"
#include "base/causes/plan_regions.h"
#include "engine/engine.h"
#include "program/program.h"

namespace octavo::engine::toy {

inline constexpr std::int64_t kRows = 6, kColumns = 5;

inline region::TensorRef ref(region::BufferId buffer, std::vector<std::int64_t> strides, std::string value) {
  region::TensorRef r;
  r.buffer = buffer;
  r.dtype = ir::DType::f32;
  r.dims = {kRows, kColumns};
  r.strides = std::move(strides);
  r.value = std::move(value);
  return r;
}

/// y = (x * w[column]) + b[column] in two regions: m = x * w goes through the arena. Constants: w and b.
inline region::Plan plan(float weight = 3.0F) {
  region::Plan p;
  p.model_name = "toy";
  p.inputs = {{"x", {ir::DType::f32, {kRows, kColumns}}, std::nullopt}};
  p.outputs = {{"y", {ir::DType::f32, {kRows, kColumns}}, std::nullopt}};
  const std::int64_t bytes = kRows * kColumns * 4;
  const auto buffer = [&](region::BufferKind kind, std::int64_t size, int binding, std::string name) {
    region::Buffer b;
    b.kind = kind;
    b.bytes = size;
    b.binding = binding;
    b.name = std::move(name);
    p.buffers.push_back(std::move(b));
  };
  buffer(region::BufferKind::input, bytes, 0, "x");
  buffer(region::BufferKind::output, bytes, 0, "y");
  buffer(region::BufferKind::arena, bytes, -1, "m");
  buffer(region::BufferKind::constant, kColumns * 4, -1, "w");
  buffer(region::BufferKind::constant, kColumns * 4, -1, "b");
  p.buffers[3].data = ir::Tensor::of<float>({kColumns}, {weight, 2.0F, -1.0F, 0.5F, 0.0F});
  p.buffers[4].data = ir::Tensor::of<float>({kColumns}, {1.0F, -1.0F, 0.25F, 1e6F, 7.0F});
  p.buffers[2].arena_offset = 64;
  p.devices[0].arena_bytes = 256;

  const auto region = [&](program::Op op, region::BufferId from, region::BufferId constant, region::BufferId to, std::string name) {
    region::Stage s;
    s.space = {kRows, kColumns};
    const int a = s.program.load(program::Op::load_f, 0), c = s.program.load(program::Op::load_f, 1);
    s.program.outputs = {{s.program.push(op, a, c), ir::DType::f32}};
    s.program.operand_count = 2;
    s.operands = {{ref(from, {kColumns, 1}, "in"), {}}, {ref(constant, {0, 1}, "constant"), {}}};
    s.stores = {ref(to, {kColumns, 1}, "out")};
    region::Region r;
    r.name = std::move(name);
    r.stages = {s};
    r.tactic = *region::parse_tactic("toy.oracle");
    r.onnx_nodes = {r.name};
    r.precision = ir::DType::f32;
    r.reasons = {because<cause::codes_moved>("toy")};
    p.regions.push_back(std::move(r));
  };
  region(program::Op::mul, 0, 3, 2, "mul");
  region(program::Op::add, 2, 4, 1, "add");
  return p;
}

/// Runs regions without anchor, f32 only, one task a row.
class OracleKernel final : public region::HostKernel {
 public:
  explicit OracleKernel(const region::Stage& stage) : stage_(stage) {}
  int tasks() const override { return static_cast<int>(kRows); }
  std::size_t scratch_bytes() const override { return 100; }
  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    std::memset(worker.scratch, worker.index, scratch_bytes());  // workers must not share scratch (TSan)
    std::vector<program::Scalar> scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        program::Scalar in[2], out[1];
        for (int k = 0; k < 2; ++k) {
          const region::TensorRef& r = stage_.operands[static_cast<std::size_t>(k)].ref;
          in[k].f = reinterpret_cast<const float*>(memory.at(r))[i * r.strides[0] + j * r.strides[1]];
        }
        program::interpret(stage_.program, {}, in, out, scratch);
        reinterpret_cast<float*>(memory.at(stage_.stores[0]))[i * kColumns + j] = out[0].f;
      }
    }
  }

 private:
  const region::Stage& stage_;
};

class OracleProvider final : public region::Provider {
 public:
  std::string_view name() const override { return "toy"; }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
    return {{*region::parse_tactic("toy.avx1024"), {because<cause::capability_unknown>("toy.avx1024")}, 0.5},
            {*region::parse_tactic("toy.oracle"), {}, 1.0}};
  }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& region, const region::Plan&,
                                               const region::ArtifactView&) const override {
    if (region.tactic.name() != "toy.oracle") return fail(ErrorKind::unsupported, "this machine lacks " + region.tactic.name());
    return std::make_unique<OracleKernel>(region.stages[0]);
  }
};

inline const Providers& providers() {
  static const OracleProvider provider;
  static const Providers list{&provider};
  return list;
}

inline std::vector<float> input(int seed = 0) {
  std::vector<float> x(kRows * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 7 + static_cast<std::size_t>(seed)) % 23 - 11) * 0.5F;
  return x;
}
inline std::vector<float> expected(const std::vector<float>& x, float weight = 3.0F) {
  const float w[] = {weight, 2.0F, -1.0F, 0.5F, 0.0F}, b[] = {1.0F, -1.0F, 0.25F, 1e6F, 7.0F};
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * w[i % kColumns] + b[i % kColumns];
  return y;
}
inline std::vector<float> run(Context& context, const std::vector<float>& x) {
  std::vector<float> y(x.size(), -1.0F);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  const Status status = context.run(in, out);
  if (!status) return {};
  return y;
}

}  // namespace octavo::engine::toy
