#include "plan/decided.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"

namespace octavo::plan {
namespace {

std::string type_of(const region::TensorRef& t, bool extents) {
  return extents ? fmt::format("{}{}", ir::name_of(t.dtype), ir::to_string(t.dims))
                 : fmt::format("{}/{}", ir::name_of(t.dtype), t.dims.size());
}

}  // namespace

OCTAVO_DEFINE_OUT_OF_LINE(Decided);

const Decided* followed(const PlanOptions& options) {
  return options.follow == nullptr || options.follow->prefers ? nullptr : options.follow.get();
}

const Decided* preferred(const PlanOptions& options) {
  return options.follow == nullptr || !options.follow->prefers ? nullptr : options.follow.get();
}

std::string form_of(const ir::Graph& g) {
  std::string text;
  for (const ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    text += fmt::format("{} {} {} {};", id, ir::name_of(n.op), fmt::join(n.inputs, ","), fmt::join(n.outputs, ","));
  }
  return hash128_hex(text);
}

std::string identity_of(const region::Region& r) {
  const region::Stage& last = r.stages.back();
  return fmt::format("{} -> {}", r.name, last.stores.empty() ? "" : last.stores.front().value);
}

std::string kind_of(const region::Region& r, const region::Plan& plan) {
  std::string out = plan.devices[static_cast<std::size_t>(r.device)].name;
  for (const region::Stage& s : r.stages) {
    out += r.independent ? " || " : " ; ";
    out += s.anchor.none() ? "pointwise" : ir::name_of(s.anchor.op);
    out += s.anchor.integer ? " integer" : "";
    for (const region::TensorRef& t : s.anchor.inputs) out += " " + type_of(t, false);
    if (s.anchor.weights) out += " w " + type_of(*s.anchor.weights, true);
    out += " :";
    for (const program::Instr& i : s.program.code) out += fmt::format(" {}", program::info(i.op).name);
    for (const region::Operand& o : s.operands) out += ", " + type_of(o.ref, false);
    for (const region::TensorRef& t : s.stores) out += " > " + type_of(t, false);
  }
  return out;
}

void keep_tactics(const region::Plan& plan, Decided& d) {
  d.tactics.clear(), d.of_kinds.clear();
  for (const region::Region& r : plan.regions) {
    d.tactics.emplace(identity_of(r), r.tactic);
    d.of_kinds.emplace(kind_of(r, plan), r.tactic);
  }
  d.cost_source = plan.cost_source;
  d.images = plan.images;
  d.threads = plan.threads;
}

const region::Tactic* tactic_for(const Decided& d, const region::Region& r, const region::Plan& plan) {
  if (const auto same = d.tactics.find(identity_of(r)); same != d.tactics.end()) return &same->second;
  const auto alike = d.of_kinds.find(kind_of(r, plan));
  return alike == d.of_kinds.end() ? nullptr : &alike->second;
}

}  // namespace octavo::plan
