#include "report/roundings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/explain.h"

namespace octavo::report {
namespace {

constexpr const char* kNone = "no Q/DQ pair costs a rounding inside a region: regions read or store the 8-bit codes of each pair\n";

using Kind = plan::Rounding::Kind;

/// What is demanded, by whom, and where.
std::string described(const plan::PricedRounding& p) {
  const plan::Rounding& r = p.rounding;
  if (r.kind == Kind::inside) {
    return fmt::format("rounding of \"{}\" to {}, between {} and {}, inside region \"{}\"\n  required by {}\n", r.tensor,
                       brief(r.quantizer), r.source, fmt::join(r.readers, ", "), p.region, fmt::join(r.onnx_nodes, ", "));
  }
  return fmt::format(
      "\"{}\" is stored as {} and in float32, because {} reads it without a pair{}\n  required by {}; the 8-bit codes are those of "
      "{}\n",
      r.tensor, brief(r.quantizer), fmt::join(r.readers, ", "), p.region.empty() ? "" : fmt::format(" in region \"{}\"", p.region),
      fmt::join(r.onnx_nodes, ", "), fmt::join(r.pair, ", "));
}

/// "3 roundings inside regions, 1 tensor stored in float32 as well as in 8 bits"
std::string counted(std::size_t inside, std::size_t left_out) {
  std::string out;
  if (inside > 0) out = fmt::format("{} rounding{} inside regions", inside, inside == 1 ? "" : "s");
  if (left_out > 0)
    out += fmt::format("{}{} tensor{} stored in float32 as well as in 8 bits", out.empty() ? "" : ", ", left_out,
                       left_out == 1 ? "" : "s");
  return out;
}

std::string compared(double with, double without, bool same_plan, const char* source) {
  if (without < 0) return fmt::format("{} {:.4g} us with it; without it, a region cannot run", source, with * 1e6);
  if (same_plan)
    return fmt::format("{} {:.4g} us with or without it: a table lookup does the rounding as well", source, with * 1e6);
  return fmt::format("{} {:.4g} us with it, {:.4g} us without it ({:+.1f} %)", source, with * 1e6, without * 1e6,
                     100 * (without - with) / with);
}

}  // namespace

std::string text(const plan::Roundings& roundings, bool measured) {
  if (roundings.each.empty()) return kNone;
  const char* source = measured ? "measured" : "estimated";
  std::string out;
  for (const plan::PricedRounding& p : roundings.each) {
    out += fmt::format("{}  {}{}\n", described(p), compared(p.with, p.without, p.same_plan, source),
                       p.costs_time() ? fmt::format("; costs time {}", name_of(p.cost)) : "");
  }
  const auto together = [&](const plan::Roundings::Together& t) {
    std::string text = compared(t.with, t.without, t.same_plan, source);
    if (t.whole_with >= 0) text += "; whole runs in turn: " + compared(t.whole_with, t.whole_without, false, source);
    return text;
  };
  out += fmt::format("{} in all; if all are left out, the regions that change take {}\n", roundings.each.size(),
                     together(roundings.all));
  if (roundings.costly == 0) return out + "none costs time\n";
  return out + fmt::format("{} cost{} time; if {} left out, the regions that change take {}\n", roundings.costly,
                           roundings.costly == 1 ? "s" : "", roundings.costly == 1 ? "it is" : "these are",
                           together(roundings.without_costly));
}

std::string to_json(const plan::Roundings& roundings, bool measured) {
  using nlohmann::json;
  json out = {{"cost_source", measured ? "measured" : "estimates"}, {"roundings", json::array()}};
  const auto times = [](json& j, double with, double without, bool same_plan) {
    j["same_plan"] = same_plan;
    j["seconds_with"] = with;
    if (without >= 0) j["seconds_without"] = without;
  };
  for (const plan::PricedRounding& p : roundings.each) {
    const plan::Rounding& r = p.rounding;
    json j = {{"kind", r.kind == Kind::inside ? "inside" : "left out"},
              {"tensor", r.tensor},
              {"quantizer", brief(r.quantizer)},
              {"onnx_nodes", r.onnx_nodes},
              {"source", r.source},
              {"readers", r.readers},
              {"region", p.region},
              {"costs_time", p.costs_time()}};
    if (r.kind == Kind::left_out) j["pair"] = r.pair;
    if (p.costs_time()) j["costs_time_seen"] = name_of(p.cost);
    times(j, p.with, p.without, p.same_plan);
    out["roundings"].push_back(std::move(j));
  }
  const auto together = [&](json& j, const plan::Roundings::Together& t) {
    times(j, t.with, t.without, t.same_plan);
    if (t.whole_with < 0) return;
    j["whole_seconds_with"] = t.whole_with;
    j["whole_seconds_without"] = t.whole_without;
  };
  together(out, roundings.all);
  out["costly"] = {{"count", roundings.costly}};
  together(out["costly"], roundings.without_costly);
  return out.dump(2) + "\n";
}

std::string summary(const std::vector<plan::Rounding>& roundings) {
  if (roundings.empty()) return kNone;
  constexpr std::size_t most = 3;
  const auto inside = static_cast<std::size_t>(std::ranges::count(roundings, Kind::inside, &plan::Rounding::kind));
  std::string names;
  for (std::size_t i = 0; i < roundings.size() && i < most; ++i)
    names += fmt::format("{}\"{}\" ({})", i == 0 ? "" : ", ", roundings[i].tensor, fmt::join(roundings[i].onnx_nodes, ", "));
  if (roundings.size() > most) names += fmt::format(" and {} more", roundings.size() - most);
  return fmt::format("the placement of Q/DQ requires {}: {}; --roundings shows what each costs\n",
                     counted(inside, roundings.size() - inside), names);
}

}  // namespace octavo::report
