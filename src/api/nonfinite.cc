#include "api/nonfinite.h"

#include <cmath>

#include "base/half.h"
#include "region/stage_graph.h"

namespace octavo::api {
namespace {

using region::TensorRef;

bool is_watched(ir::DType t) {
  return t == ir::DType::f32 || t == ir::DType::f16 || t == ir::DType::bf16 || t == ir::DType::f64;
}

double number_at(const std::byte* at, ir::DType t) {
  switch (t) {
    case ir::DType::f16: return static_cast<double>(f16_to_f32(*reinterpret_cast<const std::uint16_t*>(at)));
    case ir::DType::bf16: return static_cast<double>(bf16_to_f32(*reinterpret_cast<const std::uint16_t*>(at)));
    case ir::DType::f64: return *reinterpret_cast<const double*>(at);
    default: return static_cast<double>(*reinterpret_cast<const float*>(at));
  }
}

/// f(address) for every element.
template <class F>
void each_element(const std::byte* at, const TensorRef& t, std::size_t k, F&& f) {
  if (k == t.dims.size()) return f(at);
  const std::int64_t step = t.dims[k] == 1 ? 0 : t.strides[k] * static_cast<std::int64_t>(ir::size_of(t.dtype));
  for (std::int64_t i = 0; i < t.dims[k]; ++i) each_element(at + i * step, t, k + 1, f);
}

}  // namespace

NonFiniteCounter::NonFiniteCounter(const engine::Engine& engine) : view_(engine), regions_(engine.plan().regions.size()) {
  const region::Plan& plan = engine.plan();
  input_refs_.reserve(plan.inputs.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != region::BufferKind::input) continue;
    const region::Binding& binding = plan.inputs[static_cast<std::size_t>(b.binding)];
    if (!is_watched(binding.type.dtype)) continue;
    ir::Shape dims = binding.type.shape;
    if (plan.images > 1 && !dims.empty()) dims[0] /= plan.images;
    const auto strides = binding.strides.empty() ? ir::dense_strides(dims) : binding.strides;
    input_refs_.push_back({static_cast<region::BufferId>(i), 0, binding.type.dtype, dims, strides, std::nullopt, binding.name});
    inputs_.push_back({&input_refs_.back(), {binding.name, {}}});
  }
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const region::Region& r = plan.regions[i];
    if (region::is_transfer(r, plan)) continue;
    for (const TensorRef* t : region::results_of(r)) {
      if (is_watched(t->dtype)) regions_[i].push_back({t, {t->value.empty() ? r.name : t->value, r.onnx_nodes}});
    }
  }
  observer_.before = [this](std::size_t i, const region::Memory& memory) {
    if (i != 0) return;
    for (Watched& w : inputs_) count(view_.of(memory, {w.ref}), w);
  };
  observer_.after = [this](std::size_t i, const region::Memory& memory) {
    for (Watched& w : regions_[i]) count(view_.of(memory, {w.ref}), w);
  };
}

void NonFiniteCounter::count(const region::Memory& memory, Watched& w) {
  each_element(memory.at(*w.ref), *w.ref, 0, [&](const std::byte* at) {
    const double v = number_at(at, w.ref->dtype);
    w.counts.nan += std::isnan(v) ? 1 : 0;
    w.counts.infinite += std::isinf(v) ? 1 : 0;
  });
  w.counts.elements += ir::count(w.ref->dims);
}

std::vector<NonFiniteTensor> NonFiniteCounter::found() const {
  std::vector<NonFiniteTensor> out;
  const auto add = [&out](const std::vector<Watched>& list) {
    for (const Watched& w : list) {
      if (w.counts.nan + w.counts.infinite > 0) out.push_back(w.counts);
    }
  };
  add(inputs_);
  for (const auto& list : regions_) add(list);
  return out;
}

}  // namespace octavo::api
