#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan/candidates/registry.h"
#include "program/program.h"
#include "region/counted.h"
#include "region/key.h"
#include "region/lives.h"
#include "region/reason_json.h"
#include "report/costs.h"
#include "report/decisions.h"
#include "report/document.h"
#include "report/explain.h"
#include "report/flow.h"
#include "report/laws.h"
#include "report/schema.h"
#include "report/sentences.h"

namespace octavo::report {
namespace {

using nlohmann::json;

/// The shortest decimal that reads back as the same float, not the digits of its double.
std::vector<double> shortest(const std::vector<float>& values) {
  std::vector<double> out;
  for (const float v : values) out.push_back(std::stod(fmt::format("{}", v)));
  return out;
}

json describe(const region::TensorRef& ref, const region::Plan& plan) {
  json j = {{"name", ref.value}, {"dtype", ir::name_of(ref.dtype)}, {"shape", ref.dims}, {"place", place_of(ref, plan)}};
  if (ref.quantizer) {
    j["scale"] = shortest(ref.quantizer->scale);
    j["zero_point"] = ref.quantizer->zero_point;
    if (!ref.quantizer->per_tensor()) j["axis"] = ref.quantizer->axis;
  }
  return j;
}

json describe(const region::Stage& stage, const region::Plan& plan) {
  json j = {{"anchor", stage.anchor.none() ? "none" : std::string(ir::name_of(stage.anchor.op))},
            {"shape", stage.space},
            {"program", program::print(stage.program)},
            {"inputs", json::array()},
            {"outputs", json::array()}};
  for (const auto& ref : stage.anchor.inputs) j["inputs"].push_back(describe(ref, plan));
  for (const auto& operand : stage.operands) j["inputs"].push_back(describe(operand.ref, plan));
  for (const auto& ref : stage.stores) j["outputs"].push_back(describe(ref, plan));
  if (stage.anchor.weights) j["weights"] = describe(*stage.anchor.weights, plan);
  if (const auto& codes = stage.anchor.weight_codes) j["weight_codes"] = {{"bits", codes->bits}, {"rows_of_a_scale", codes->block}};
  return j;
}

json describe(const region::Binding& binding) {
  return {{"name", binding.name}, {"dtype", ir::name_of(binding.type.dtype)}, {"shape", binding.type.shape}};
}

/// Working memory: each buffer, where it lies, and from which region to which it is in use.
json memory_of(const region::Plan& plan) {
  json out = json::array();
  const std::vector<region::Life> lives = region::lives_of(plan);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != region::BufferKind::arena || lives[i].first < 0) continue;
    out.push_back({{"name", b.name},
                   {"device", plan.devices[static_cast<std::size_t>(b.space)].name},
                   {"offset", b.arena_offset},
                   {"bytes", b.bytes},
                   {"first", lives[i].first},
                   {"last", lives[i].last}});
  }
  return out;
}

json describe(const std::vector<Source>& sources, const region::Plan& plan) {
  json out = json::array();
  for (const Source& s : sources) {
    json j = {{"tensor", s.tensor}};
    if (s.region >= 0) j["region"] = s.region;
    if (s.input >= 0) j["input"] = plan.inputs[static_cast<std::size_t>(s.input)].name;
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace

std::string to_json(const region::Plan& plan, const std::string& plan_hash, const std::vector<std::size_t>& regions,
                    const LawLog* laws, const std::string& built_by) {
  return document(plan, plan_hash, regions, laws, built_by).dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

json document(const region::Plan& plan, const std::string& plan_hash, const std::vector<std::size_t>& regions, const LawLog* laws,
              const std::string& built_by) {
  const Totals t = totals_of(plan);
  json out = {{"schema", kSchema},
              {"model", plan.model_name},
              {"plan_hash", plan_hash},
              {"built_by", built_by},
              {"threads", region::threads_of(plan)},
              {"images", plan.images},
              {"arena_bytes", plan.devices[region::kHost].arena_bytes},
              {"totals",
               {{"regions", t.regions},
                {"int8_regions", t.int8_regions},
                {"float_regions", t.float_regions},
                {"int8_macs", t.int8_macs},
                {"int8_macs_vector", t.int8_macs_vector},
                {"float_macs", t.float_macs},
                {"float_macs_vector", t.float_macs_vector},
                {"bytes", t.bytes},
                {"bytes_vector", t.bytes_vector}}},
              {"cost_source", plan.cost_source},
              {"decided_for", plan.decided_for},
              {"decisions", json::array()},
              {"devices", json::array()},
              {"inputs", json::array()},
              {"outputs", json::array()},
              {"memory", memory_of(plan)},
              {"regions", json::array()}};
  for (const region::DeviceUse& d : plan.devices) out["devices"].push_back({{"name", d.name}, {"arena_bytes", d.arena_bytes}});
  for (const region::Binding& b : plan.inputs) out["inputs"].push_back(describe(b));
  const auto makers = makers_of_outputs(plan);
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    out["outputs"].push_back(describe(plan.outputs[i]));
    out["outputs"].back()["regions"] = makers[i];
  }
  const auto sources = sources_of(plan);
  for (const region::Decision& d : plan.decisions) {
    json j = {{"choice", d.choice},
              {"where", d.where},
              {"chosen", d.candidates[d.chosen].name},
              {"reason", sentences(d.reasons)},
              {"reasons", region::to_json(d.reasons)},
              {"onnx_nodes", d.onnx_nodes},
              {"candidates", json::array()}};
    for (const auto& c : d.candidates) {
      json candidate = {{"name", c.name},
                        {"description", plan::description_of(d.choice, c.name)},
                        {"note", sentences(c.notes)},
                        {"notes", region::to_json(c.notes)}};
      if (c.seconds >= 0) candidate["seconds"] = c.seconds;
      j["candidates"].push_back(std::move(candidate));
    }
    out["decisions"].push_back(std::move(j));
  }
  for (const std::size_t i : regions) {
    const auto& r = plan.regions[i];
    const Costs costs = costs_of(r, plan);
    json j = {{"index", i},
              {"name", r.name},
              {"onnx_nodes", r.onnx_nodes},
              {"precision", to_string(r.precision)},
              {"tactic", r.tactic.name()},
              {"key", region::key_of(r, plan)},
              {"reason", sentences(r.reasons)},
              {"reasons", region::to_json(r.reasons)},
              {"macs", costs.macs},
              {"bytes", costs.bytes},
              {"vector", r.tactic.vector},
              {"reference", r.tactic.reference},
              {"device", plan.devices[static_cast<std::size_t>(r.device)].name},
              {"kind", kind_of(r, plan)},
              {"to_change", way_out(r)},
              {"sources", describe(sources[i], plan)},
              {"stages", json::array()},
              {"alternatives", json::array()}};
    if (r.seconds >= 0) j["seconds"] = r.seconds;
    if (r.count >= 0)
      j["counted"] = {{"dimension", r.stages.back().counted},
                      {"most", region::room_of(r)},
                      {"by", region::count_of(r, plan)},
                      {"times", r.count_times},
                      {"per", r.count_per}};
    for (const auto& stage : r.stages) j["stages"].push_back(describe(stage, plan));
    for (const auto& a : r.alternatives) {
      json alternative = {{"tactic", a.tactic}, {"reason", described(a)}, {"reasons", region::to_json(a.reasons)}};
      if (a.seconds >= 0) alternative["seconds"] = a.seconds;
      if (a.estimate >= 0) alternative["estimate"] = a.estimate;
      j["alternatives"].push_back(std::move(alternative));
    }
    out["regions"].push_back(std::move(j));
  }
  if (laws != nullptr) {
    json applied = json::array(), refused = json::array();
    for (const auto& a : laws->applied)
      applied.push_back({{"rule", a.rule},
                         {"equation", a.equation},
                         {"reason", place_of(a)},
                         {"op", a.op},
                         {"quantizer", a.quantizer},
                         {"operand_op", a.operand_op},
                         {"operand", a.operand},
                         {"onnx_nodes", a.onnx_nodes}});
    for (const auto& r : laws->refused) {
      refused.push_back(
          {{"rule", r.rule}, {"node", r.node}, {"reason", sentence(r.reason)}, {"reasons", region::to_json(Reasons{r.reason})}});
    }
    out["laws"] = {{"applied", std::move(applied)}, {"refused", std::move(refused)}};
  }
  return out;
}

}  // namespace octavo::report
