#include "region/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace octavo::region {
namespace {

std::string tensor(const TensorRef& r) {
  return fmt::format("{}[{}]({})", ir::name_of(r.dtype), fmt::join(r.dims, ","), fmt::join(r.strides, ","));
}

}  // namespace

std::string key(const Region& region, const Plan&) {
  std::string out = region.independent ? "side-by-side" : "";
  for (const Stage& s : region.stages) {
    out += fmt::format("{}{} {}", out.empty() ? "" : " | ", ir::name_of(s.anchor.op), s.anchor.integer ? "int" : "float");
    for (const auto& [name, value] : s.anchor.attrs) {
      out += " " + name + "=";
      if (const auto* i = std::get_if<std::int64_t>(&value)) out += std::to_string(*i);
      if (const auto* l = std::get_if<std::vector<std::int64_t>>(&value)) out += fmt::format("{}", fmt::join(*l, ","));
      if (const auto* t = std::get_if<std::string>(&value)) out += *t;
    }
    for (const TensorRef& in : s.anchor.inputs) out += " " + tensor(in);
    if (s.anchor.weights) out += " w" + tensor(*s.anchor.weights);
    if (!s.anchor.weight_zero.empty()) out += fmt::format(" wz{}", s.anchor.weight_zero.size());
    out += " :";
    for (const auto& i : s.program.code) out += fmt::format(" {}", static_cast<int>(i.op));
    for (const Operand& o : s.operands) out += fmt::format(" {}/{}", tensor(o.ref), fmt::join(o.div, ","));
    out += " >";
    for (const TensorRef& t : s.stores) out += " " + tensor(t);
  }
  return out;
}

}  // namespace octavo::region
