#include "api/convert.h"

#include <algorithm>
#include <cstring>

#include "plan/candidates/registry.h"
#include "region/stage_graph.h"
#include "report/costs.h"
#include "report/schema.h"
#include "report/sentences.h"

namespace octavo::api {

static_assert(kLayerSchema == report::kSchema, "include/octavo/octavo.h and report/schema.h say one version");

void raise(const Error& error) {
  throw Exception(static_cast<Exception::Kind>(error.kind), error.message);
}
void raise(ErrorKind kind, const std::string& message) {
  raise(Error{kind, message});
}

std::optional<Quantization> to_public(const std::optional<ir::Quantizer>& q) {
  if (!q) return std::nullopt;
  return Quantization{to_public(q->type), q->scale, q->zero_point, q->axis};
}

TensorInfo to_public(const region::Binding& b) {
  return {b.name, to_public(b.type.dtype), b.type.shape, to_public(b.quantizer), b.format};
}

ir::Tensor to_tensor(const ConstView& view) {
  ir::Tensor t(static_cast<ir::DType>(view.dtype), view.shape);
  if (t.size() > 0) std::memcpy(t.mutable_bytes().data(), view.data, t.bytes().size());
  return t;
}
ir::Tensor to_tensor(const Array& array) {
  const ir::TensorType type{static_cast<ir::DType>(array.dtype), array.shape};
  if (array.bytes.size() != static_cast<std::size_t>(ir::count(type.shape)) * ir::size_of(type.dtype))
    raise(ErrorKind::usage,
          "values: an array has " + std::to_string(array.bytes.size()) + " bytes, its type is " + ir::to_string(type));
  return to_tensor(ConstView{array.bytes.data(), array.dtype, array.shape});
}

namespace {

TensorInfo tensor_of(const region::TensorRef& r) {
  return {r.value, to_public(r.dtype), r.dims, to_public(r.quantizer), {}};
}

/// Constants of the epilogue (scales, biases) are part of the layer, not inputs of it.
bool is_constant(const region::Plan& plan, const region::TensorRef& r) {
  return plan.buffers[static_cast<std::size_t>(r.buffer)].kind == region::BufferKind::constant;
}

std::vector<LayerReason> to_public(const Reasons& reasons) {
  std::vector<LayerReason> out;
  for (const Reason& r : reasons) {
    LayerReason one{std::string(name_of(r.cause)), {}};
    for (std::size_t i = 0; i < r.values.size(); ++i) one.values.emplace(field_of(r.cause, i).name, r.values[i]);
    out.push_back(std::move(one));
  }
  return out;
}

/// Where the time of the region's tactic comes from. Plans that follow the decisions of measured ones have estimates in part.
TimeFrom source_of(const region::Region& r, const region::Plan& plan) {
  if (r.seconds < 0) return TimeFrom::nothing;
  const std::string taken = r.tactic.name();
  for (const region::Alternative& a : r.alternatives) {
    if (a.tactic == taken && a.seconds >= 0) return TimeFrom::measurement;
    if (a.tactic == taken && a.estimate >= 0) return TimeFrom::estimate;
  }
  return report::measured(plan) && plan.decided_for.empty() ? TimeFrom::measurement : TimeFrom::estimate;
}

std::vector<LayerInfo::OtherType> other_types(const region::Region& r, const region::Plan& plan) {
  std::vector<LayerInfo::OtherType> out;
  for (const region::Decision& d : plan.decisions) {
    if (d.choice != plan::kPrecision || !r.onnx_nodes.contains(d.where)) continue;
    for (std::size_t i = 0; i < d.candidates.size(); ++i) {
      const region::Decision::Candidate& c = d.candidates[i];
      if (i == d.chosen || c.seconds < 0) continue;
      out.push_back({c.name, d.where, c.seconds, report::measured(plan) ? TimeFrom::measurement : TimeFrom::estimate});
    }
  }
  return out;
}

}  // namespace

std::string kind_of(const region::Region& r) {
  std::string kind;
  for (const region::Stage& s : r.stages) {
    if (s.anchor.none()) continue;
    kind += (kind.empty() ? "" : "+") + std::string(ir::name_of(s.anchor.op));
  }
  if (!kind.empty()) return kind;
  return r.precision == region::Work::move ? "move" : "pointwise";
}

std::vector<LayerInfo> layers_of(const region::Plan& plan) {
  std::vector<LayerInfo> layers;
  for (const region::Region& r : plan.regions) {
    LayerInfo layer;
    layer.name = r.name;
    layer.kind = kind_of(r);
    layer.onnx_nodes = r.onnx_nodes;
    layer.tactic = r.tactic.name();
    layer.precision = to_string(r.precision);
    layer.reason = report::sentences(r.reasons);
    layer.reasons = to_public(r.reasons);
    for (const region::TensorRef* t : region::reads_of(r)) {
      if (!is_constant(plan, *t)) layer.inputs.push_back(tensor_of(*t));
    }
    for (const region::TensorRef* t : region::results_of(r)) layer.outputs.push_back(tensor_of(*t));
    for (const region::Alternative& a : r.alternatives)
      layer.alternatives.push_back({a.tactic, report::described(a), to_public(a.reasons), a.seconds, a.estimate});
    layer.seconds = r.seconds < 0 ? -1 : r.seconds;
    layer.from = source_of(r, plan);
    layer.other_types = other_types(r, plan);
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace octavo::api
