// change_meaning (negative controls) and shuffled.
#include <algorithm>
#include <cmath>
#include <random>

#include "support/placement.h"

namespace octavo::testing {
namespace {

using Random = std::mt19937_64;

bool applies(const ir::Graph& g, ir::NodeId id, Change change) {
  const ir::Node& n = g.node(id);
  switch (change) {
    case Change::scale_ulp: return n.quantizer.has_value();
    case Change::zero_point: return n.quantizer.has_value() && n.quantizer->type != ir::DType::s32;
    case Change::weight_code:
      return n.op == ir::Op::constant && n.quantizer && n.payload.dtype() == ir::DType::s8 && n.payload.size() > 0;
    case Change::pad: {
      const auto pads = ir::get_ints(n.attrs, "pads");
      return std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p > 0; });
    }
  }
  return false;
}

void apply(ir::Node& n, Change change, Random& random) {
  const auto pick = [&](std::size_t size) { return static_cast<std::size_t>(random() % size); };
  switch (change) {
    case Change::scale_ulp: {
      float& s = n.quantizer->scale[pick(n.quantizer->entries())];
      s = std::nextafter(s, 1e9F);
      return;
    }
    case Change::zero_point: {
      std::int32_t& zp = n.quantizer->zero_point[pick(n.quantizer->entries())];
      zp += zp < n.quantizer->hi() ? 1 : -1;
      return;
    }
    case Change::weight_code: {
      ir::Tensor codes = n.payload.clone();
      std::int8_t& c = codes.mutable_data<std::int8_t>()[pick(static_cast<std::size_t>(codes.size()))];
      c = static_cast<std::int8_t>(c < 127 ? c + 1 : c - 1);
      n.payload = std::move(codes);
      return;
    }
    case Change::pad: {  // one element from the end of a dimension to its beginning or back: shapes stay
      auto pads = ir::get_ints(n.attrs, "pads");
      const std::size_t half = pads.size() / 2;
      std::size_t d = pick(half);
      while (pads[d] + pads[d + half] == 0) d = (d + 1) % half;
      const bool forwards = pads[d + half] > 0;
      pads[d] += forwards ? 1 : -1;
      pads[d + half] -= forwards ? 1 : -1;
      n.attrs["pads"] = pads;
      return;
    }
  }
}

}  // namespace

std::string name_of(Change change) {
  switch (change) {
    case Change::scale_ulp: return "one ulp of a scale";
    case Change::zero_point: return "a zero point by one";
    case Change::weight_code: return "one weight code by one";
    case Change::pad: return "padding by one";
  }
  return "";
}

std::optional<ir::Graph> change_meaning(const ir::Graph& g, Change change, std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15ULL + 11);
  std::vector<ir::NodeId> list;
  for (const ir::NodeId id : g.order()) {
    if (applies(g, id, change)) list.push_back(id);
  }
  if (list.empty()) return std::nullopt;
  ir::Graph changed = g;
  apply(changed.node(list[random() % list.size()]), change, random);
  return changed;
}

ir::Graph shuffled(const ir::Graph& g, std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15ULL + 13);
  ir::Graph out;
  out.name = g.name;
  std::vector<ir::ValueId> of(static_cast<std::size_t>(g.value_capacity()), ir::kNone);
  const auto at = [&](ir::ValueId v) -> ir::ValueId& { return of[static_cast<std::size_t>(v)]; };
  for (const ir::ValueId in : g.inputs) at(in) = out.add_input(g.value(in).name, g.type(in));

  std::vector<ir::NodeId> waiting = g.order();
  std::erase_if(waiting, [&](ir::NodeId id) { return g.node(id).op == ir::Op::input; });
  while (!waiting.empty()) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const auto& inputs = g.node(waiting[i]).inputs;
      if (std::all_of(inputs.begin(), inputs.end(), [&](ir::ValueId v) { return v == ir::kNone || at(v) != ir::kNone; }))
        ready.push_back(i);
    }
    const std::size_t chosen = ready[random() % ready.size()];
    ir::Node n = g.node(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(chosen));
    const std::vector<ir::ValueId> old = n.outputs;
    for (ir::ValueId& v : n.inputs) v = v == ir::kNone ? v : at(v);
    std::vector<ir::TensorType> types;
    std::vector<std::string> names;
    for (const ir::ValueId v : old) {
      types.push_back(g.type(v));
      names.push_back("r" + std::to_string(random() % 100000) + "_" + std::to_string(v));
    }
    n.name.clear();
    const ir::NodeId id = out.add_node(std::move(n), types, names);
    for (std::size_t i = 0; i < old.size(); ++i) at(old[i]) = out.node(id).outputs[i];
  }
  for (const ir::ValueId v : g.outputs) out.outputs.push_back(at(v));
  out.output_names = g.output_names;
  return out;
}

}  // namespace octavo::testing
