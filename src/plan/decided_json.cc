#include "plan/decided_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "region/reason_json.h"

namespace octavo::plan {
namespace {

using nlohmann::json;

json write(const PermitChoices& c) {
  json why = json::object();
  for (const auto& [node, reason] : c.why) why[node] = region::to_json(reason);
  json out{{"keep_float", c.keep_float}, {"inner", c.inner}, {"all_inner", c.all_inner}, {"bfloat16", c.bfloat16}, {"why", why}};
  if (!c.large.empty()) out["large"] = c.large;
  return out;
}

json write(const Selection& s) {
  json j{{"staged", s.staged},     {"attention", s.attention},     {"grouped", s.grouped},         {"apart", json::array()},
         {"segments", s.segments}, {"split_views", s.split_views}, {"split_convs", s.split_convs}, {"direct", s.direct},
         {"as_made", s.as_made},   {"above_moves", s.above_moves}};
  for (const auto& [node, choice] : s.apart) j["apart"].push_back({node, choice});
  if (s.small) j["small"] = *s.small;
  return j;
}

template <class T>
void read(const json& j, const char* key, T& to) {
  to = j.at(key).get<T>();
}

}  // namespace

json to_json(const Decided& d) {
  return {{"from", d.from}, {"permit_pairs", d.permit_pairs}, {"inner_pairs", d.inner_pairs}, {"choices", write(d.choices)},
          {"form", d.form}, {"selection", write(d.selection)}};
}

Result<Decided> decided_from_json(const json& j) {
  try {
    Decided d;
    read(j, "from", d.from), read(j, "form", d.form);
    read(j, "permit_pairs", d.permit_pairs), read(j, "inner_pairs", d.inner_pairs);
    const json &choices = j.at("choices"), &selection = j.at("selection");
    read(choices, "keep_float", d.choices.keep_float), read(choices, "inner", d.choices.inner);
    read(choices, "all_inner", d.choices.all_inner), read(choices, "bfloat16", d.choices.bfloat16);
    if (choices.contains("large")) read(choices, "large", d.choices.large);
    for (const auto& [node, reason] : choices.at("why").items()) {
      OCTAVO_TRY(d.choices.why[node], region::reason_from_json(reason));
    }
    Selection& s = d.selection;
    read(selection, "staged", s.staged), read(selection, "attention", s.attention), read(selection, "grouped", s.grouped);
    read(selection, "segments", s.segments), read(selection, "split_views", s.split_views);
    read(selection, "split_convs", s.split_convs), read(selection, "direct", s.direct), read(selection, "as_made", s.as_made);
    read(selection, "above_moves", s.above_moves);
    for (const json& pair : selection.at("apart")) s.apart[pair.at(0).get<ir::NodeId>()] = pair.at(1).get<std::string>();
    if (selection.contains("small")) s.small = selection["small"].get<std::set<ir::NodeId>>();
    return d;
  } catch (const json::exception& e) {
    return fail(ErrorKind::bad_engine, fmt::format("the decisions of a plan cannot be read: {}", e.what()));
  }
}

}  // namespace octavo::plan
