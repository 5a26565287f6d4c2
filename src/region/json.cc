// Plan -> JSON. Keys are sorted (std::map) and numbers are the shortest that read back to the same bits, so equal plans give equal
// text. Quantizers and programs are in their own text forms; a float attribute that is not finite is {"f": "inf"}.
#include "region/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "region/key.h"
#include "region/reason_json.h"
#include "region/stage_graph.h"
#include "region/store_results.h"

namespace octavo::region {
namespace {

using nlohmann::json;

json real(double v) {
  if (std::isfinite(v)) return v;
  return json{{"f", std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"}};
}

json attr(const ir::Attr& a) {
  if (const auto* i = std::get_if<std::int64_t>(&a)) return *i;
  if (const auto* d = std::get_if<double>(&a)) return real(*d);
  if (const auto* s = std::get_if<std::string>(&a)) return *s;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&a)) return *list;
  json out = json::array();
  for (const double d : std::get<std::vector<double>>(a)) out.push_back(real(d));
  if (out.empty()) return json{{"f", out}};  // [] alone is a list of integers
  return out;
}

json tensor(const TensorRef& r) {
  json out{{"buffer", r.buffer}, {"offset", r.offset}, {"dtype", ir::name_of(r.dtype)}, {"dims", r.dims}, {"strides", r.strides}};
  if (r.quantizer) out["quantizer"] = ir::to_string(*r.quantizer);
  if (!r.value.empty()) out["value"] = r.value;
  return out;
}

json tensors(const std::vector<TensorRef>& refs) {
  json out = json::array();
  for (const TensorRef& r : refs) out.push_back(tensor(r));
  return out;
}

json anchor(const Anchor& a) {
  json attrs = json::object();
  for (const auto& [key, value] : attributes_of(a)) attrs[key] = attr(value);
  json out{{"op", ir::name_of(a.op)}, {"attrs", attrs}, {"inputs", tensors(a.inputs)}, {"integer", a.integer}};
  if (a.weights) out["weights"] = tensor(*a.weights);
  if (!a.weight_zero.empty()) out["weight_zero"] = a.weight_zero;
  if (const auto& c = a.weight_codes) out["weight_codes"] = {{"bits", c->bits}, {"block", c->block}, {"one_zero", c->one_zero}};
  return out;
}

json stage(const Stage& s) {
  json operands = json::array();
  for (const Operand& o : s.operands) {
    operands.push_back({{"ref", tensor(o.ref)}, {"div", o.div}});
  }
  return {{"anchor", anchor(s.anchor)},
          {"space", s.space},
          {"program", program::print(s.program)},
          {"operands", operands},
          {"stores", tensors(s.stores)}};
}

json tactic(const Tactic& t) {
  json parts = json::array();
  for (const Tactic& part : t.parts) parts.push_back(tactic(part));
  return {{"provider", t.provider},
          {"family", t.family},
          {"version", t.version},
          {"parameters", t.parameters},
          {"parts", parts},
          {"required", t.required},
          {"vector", t.vector},
          {"reference", t.reference},
          {"stores_in_place", t.stores_in_place},
          {"forwards_stages", t.forwards_stages},
          {"workspace_bytes", t.workspace_bytes}};
}

json region(const Region& r, const Plan& plan) {
  json stages = json::array(), alternatives = json::array();
  for (const Stage& s : r.stages) stages.push_back(stage(s));
  for (const StageEdge& e : edges_of(r)) {
    json edge{{"stage", e.from.stage}, {"store", e.from.store}, {"input", e.input}};
    if (!e.halo.every_row()) edge["halo"] = {{"step", e.halo.step}, {"before", e.halo.before}, {"rows", e.halo.rows}};
    stages[e.reader]["reads"].push_back(std::move(edge));
  }
  for (const Alternative& a : r.alternatives) {
    alternatives.push_back(
        {{"tactic", a.tactic}, {"reasons", to_json(a.reasons)}, {"seconds", real(a.seconds)}, {"estimate", real(a.estimate)}});
  }
  json out{{"name", r.name},
           {"stages", stages},
           {"device", r.device},
           {"tactic", tactic(r.tactic)},
           {"packed", r.packed},
           {"code", r.code},
           {"launch", r.launch},
           {"required", r.required},
           {"reasons", to_json(r.reasons)},
           {"onnx_nodes", r.onnx_nodes},
           {"precision", to_string(r.precision)},
           {"alternatives", alternatives},
           {"independent", r.independent},
           {"seconds", real(r.seconds)},
           {"key", key_of(r, plan)},
           {"graph_inputs", r.graph_inputs},
           {"graph_outputs", r.graph_outputs}};
  if (r.count >= 0) {
    std::vector<int> dims;
    for (const Stage& s : r.stages) dims.push_back(s.counted);
    out["counted"] = {{"count", r.count}, {"times", r.count_times}, {"per", r.count_per}, {"dims", dims}};
  }
  return out;
}

json bindings(const std::vector<Binding>& list) {
  json out = json::array();
  for (const Binding& b : list) {
    json one{{"name", b.name}, {"dtype", ir::name_of(b.type.dtype)}, {"dims", b.type.shape}};
    if (b.quantizer) one["quantizer"] = ir::to_string(*b.quantizer);
    if (!b.strides.empty()) one["strides"] = b.strides;
    if (b.bytes != 0) one["bytes"] = b.bytes;
    if (!b.format.empty()) one["format"] = b.format;
    out.push_back(std::move(one));
  }
  return out;
}

json decision(const Decision& d) {
  json candidates = json::array();
  for (const Decision::Candidate& c : d.candidates)
    candidates.push_back({{"name", c.name}, {"seconds", real(c.seconds)}, {"notes", to_json(c.notes)}});
  return {{"choice", d.choice},       {"where", d.where},          {"chosen", d.chosen}, {"reasons", to_json(d.reasons)},
          {"candidates", candidates}, {"onnx_nodes", d.onnx_nodes}};
}

json buffer(const Buffer& b) {
  json out{{"kind", detail::name_of(b.kind)}, {"bytes", b.bytes}, {"name", b.name}};
  if (b.space != kHost) out["space"] = b.space;
  if (b.alignment != Buffer().alignment) out["alignment"] = b.alignment;
  if (b.kind == BufferKind::arena) out["arena_offset"] = b.arena_offset;
  if (b.binding >= 0) out["binding"] = b.binding;
  return out;
}

}  // namespace

std::string_view detail::name_of(BufferKind kind) {
  return kind == BufferKind::source ? "source" : kKinds[static_cast<std::size_t>(kind)];
}

std::string to_json(const Plan& plan) {
  json buffers = json::array(), regions = json::array();
  for (const Buffer& b : plan.buffers) buffers.push_back(buffer(b));
  for (const Region& r : plan.regions) regions.push_back(region(r, plan));
  json decisions = json::array(), devices = json::array();
  for (const DeviceUse& d : plan.devices) devices.push_back({{"name", d.name}, {"arena_bytes", d.arena_bytes}});
  for (const Decision& d : plan.decisions) decisions.push_back(decision(d));
  json out{{"format", detail::kFormat},
           {"model_name", plan.model_name},
           {"inputs", bindings(plan.inputs)},
           {"outputs", bindings(plan.outputs)},
           {"buffers", buffers},
           {"regions", regions},
           {"devices", devices},
           {"decisions", decisions},
           {"cost_source", plan.cost_source},
           {"threads", plan.threads},
           {"images", plan.images},
           {"lanes", plan.lanes}};
  if (!plan.decided_for.empty()) out["decided_for"] = plan.decided_for;
  for (const ir::OutputSize& s : plan.sizes) out["sizes"].push_back({s.output, s.axis, s.count});
  return out.dump(1, ' ', false, json::error_handler_t::replace);  // names that are not UTF-8 must not throw
}

}  // namespace octavo::region
