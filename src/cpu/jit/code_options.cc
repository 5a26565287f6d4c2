#include "cpu/jit/code_options.h"

#include <charconv>
#include <string>

#include "cpu/isa.h"

namespace octavo::cpu::jit {

region::Parameters CodeOptions::here() {
  return CodeOptions{.vbmi = has_vbmi(), .multiply = slow_division()}.parameters();
}

CodeOptions CodeOptions::of(const region::Parameters& p, int lanes) {
  CodeOptions out{.lanes = lanes, .vbmi = p.contains("vbmi"), .multiply = p.contains("division")};
  const auto number = [&](const char* name, auto& to) {
    if (const auto found = p.find(name); found != p.end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), to);
  };
  number("pixels", out.pixels);
  number("vectors", out.vectors);
  number("rows", out.rows);
  number("row_tiles", out.row_tiles);
  number("prefetch", out.prefetch);
  if (const auto order = p.find("order"); order != p.end()) out.blocks_first = order->second == "blocks" ? 1 : 0;
  return out;
}

region::Parameters CodeOptions::parameters() const {
  region::Parameters p;
  if (vbmi) p.emplace("vbmi", "1");
  if (multiply) p.emplace("division", "multiply");
  if (pixels > 0) p.emplace("pixels", std::to_string(pixels));
  if (vectors > 0) p.emplace("vectors", std::to_string(vectors));
  if (rows > 0) p.emplace("rows", std::to_string(rows));
  if (prefetch >= 0) p.emplace("prefetch", std::to_string(prefetch));
  if (row_tiles > 0) p.emplace("row_tiles", std::to_string(row_tiles));
  if (blocks_first >= 0) p.emplace("order", blocks_first == 1 ? "blocks" : "rows");
  return p;
}

region::Parameters with_effect(region::Parameters parameters, bool looks_up, bool divides) {
  if (!looks_up) parameters.erase("vbmi");
  if (!divides) parameters.erase("division");
  return parameters;
}

std::vector<std::string> required_by_options(const region::Parameters& parameters) {
  if (parameters.contains("vbmi")) return {"avx512vbmi"};
  return {};
}

}  // namespace octavo::cpu::jit
