#include "engine/set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/hash.h"
#include "ir/text.h"
#include "region/bound_value.h"
#include "region/sizes.h"

namespace octavo::engine {
namespace {

using region::Binding;
using region::BufferKind;

/// What one engine of a set differs in from the others; its order is the order in the file.
std::vector<std::pair<ir::Shape, std::string>> key_of(const region::Plan& plan) {
  std::vector<std::pair<ir::Shape, std::string>> key;
  for (const Binding& b : plan.inputs) key.emplace_back(b.type.shape, region::has_value(b) ? b.format : "");
  key.emplace_back(ir::Shape{plan.images}, "");  // a range may have the plan of a batch beside the one of its images
  return key;
}

std::string why_other_bindings(std::string_view what, const std::vector<Binding>& a, const std::vector<Binding>& b) {
  if (a.size() != b.size()) return fmt::format("one has {} {}s, another {}", a.size(), what, b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name) return fmt::format("{} {} is \"{}\" and \"{}\"", what, i, a[i].name, b[i].name);
    if (a[i].type.dtype != b[i].type.dtype) {
      return fmt::format("{} \"{}\" is {} and {}", what, a[i].name, ir::name_of(a[i].type.dtype), ir::name_of(b[i].type.dtype));
    }
  }
  return "";
}

/// Without the outputs that say sizes: there may be others at other shapes.
std::vector<Binding> results_of_model(const region::Plan& plan) {
  return {plan.outputs.begin(), plan.outputs.begin() + static_cast<std::ptrdiff_t>(region::shown_outputs(plan))};
}

/// "1, 2, 8", "1 to 8".
std::string list(const std::set<std::int64_t>& numbers) {
  if (numbers.size() > 2 && *numbers.rbegin() - *numbers.begin() + 1 == static_cast<std::int64_t>(numbers.size()))
    return fmt::format("{} to {}", *numbers.begin(), *numbers.rbegin());
  return fmt::format("{}", fmt::join(numbers, ", "));
}

const Binding* input_of(const Engine& e, const std::string& name) {
  const auto& inputs = e.plan().inputs;
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Binding& b) { return b.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

constexpr std::string_view kWayOut =
    "\n  to do: give one of these, or build the engine again with this one among its shapes and values";

tl::unexpected<Error> no_shape(const Engines& left, const std::string& name, const ir::Shape& shape) {
  std::string why;
  bool same_rank = true;
  for (const auto& e : left) same_rank = same_rank && input_of(*e, name)->type.shape.size() == shape.size();
  for (std::size_t k = 0; same_rank && k < shape.size() && why.empty(); ++k) {
    std::set<std::int64_t> there;
    for (const auto& e : left) there.insert(input_of(*e, name)->type.shape[k]);
    if (!there.contains(shape[k])) why = fmt::format("dimension {} is {}, the engine was built for {}", k, shape[k], list(there));
  }
  if (why.empty()) why = "the engine was built for\n  " + shapes_text(left);
  return fail(ErrorKind::bad_input, fmt::format("input \"{}\" has shape {}: {}{}", name, ir::to_string(shape), why, kWayOut));
}

}  // namespace

std::string shapes_text(const region::Plan& plan) {
  std::string text;
  for (const Binding& b : plan.inputs) {
    text += text.empty() ? "" : ", ";
    text += region::has_value(b) ? fmt::format("{} = {}", b.name, b.format.substr(1))
                                 : fmt::format("{} {}", b.name, ir::to_string(b.type.shape));
  }
  return text;
}

std::string shapes_text(const Engines& engines) {
  constexpr std::size_t kShown = 10;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(engines.size(), kShown); ++i) lines.push_back(shapes_text(engines[i]->plan()));
  if (engines.size() > kShown) lines.push_back(fmt::format("and {} more", engines.size() - kShown));
  return fmt::format("{}", fmt::join(lines, "\n  "));
}

std::string why_no_set(const Engines& engines) {
  std::set<std::vector<std::pair<ir::Shape, std::string>>> keys;
  for (const auto& e : engines) {
    const region::Plan &plan = e->plan(), &first = engines.front()->plan();
    std::string why = why_other_bindings("input", first.inputs, plan.inputs);
    if (why.empty()) why = why_other_bindings("output", results_of_model(first), results_of_model(plan));
    if (!why.empty()) return why;
    if (!keys.insert(key_of(plan)).second) return "two are for " + shapes_text(plan);
    if (plan.devices.size() != first.devices.size()) return "they are for different devices";
    for (std::size_t d = 0; d < plan.devices.size(); ++d) {
      if (plan.devices[d].name != first.devices[d].name)
        return fmt::format("one is for device \"{}\", another for \"{}\"", first.devices[d].name, plan.devices[d].name);
    }
  }
  return "";
}

Result<Engines> fitting(const Engines& engines, const Wanted& wanted) {
  Engines left = engines;
  for (const auto& [name, shape] : wanted.shapes) {
    if (input_of(*engines.front(), name) == nullptr)
      return fail(ErrorKind::bad_input, fmt::format("the engine has no input \"{}\"", name));
    Engines fit;
    for (const auto& e : left) {
      if (input_of(*e, name)->type.shape == shape) fit.push_back(e);
    }
    if (fit.empty()) return no_shape(left, name, shape);
    left = std::move(fit);
  }
  for (std::size_t i = 0; wanted.value && i < engines.front()->plan().inputs.size(); ++i) {
    const std::string& name = engines.front()->plan().inputs[i].name;
    if (std::none_of(left.begin(), left.end(), [i](const auto& e) { return region::has_value(e->plan().inputs[i]); })) continue;
    const auto value = wanted.value(name);
    if (!value) continue;
    const std::string text = region::value_format(value->type(), value->bytes().data());
    Engines fit;
    std::vector<std::string> there;
    for (const auto& e : left) {
      const Binding& b = e->plan().inputs[i];
      const bool same = b.type == value->type() && b.format == text;
      if (same || !region::has_value(b)) fit.push_back(e);
      if (std::find(there.begin(), there.end(), b.format.substr(b.format.empty() ? 0 : 1)) == there.end() && there.size() < 10)
        there.push_back(b.format.substr(b.format.empty() ? 0 : 1));
    }
    if (fit.empty()) {
      return fail(ErrorKind::bad_input, fmt::format("input \"{}\" is [{}], the engine was built for [{}]{}", name, text.substr(1),
                                                    fmt::join(there, "], ["), kWayOut));
    }
    left = std::move(fit);
  }
  return left;
}

Result<std::shared_ptr<const Engine>> choose(const Engines& engines, const Wanted& wanted) {
  OCTAVO_TRY(const Engines left, fitting(engines, wanted));
  if (left.size() == 1) return left.front();
  return fail(ErrorKind::bad_input, fmt::format("the engine holds plans for several shapes, and {} fit:\n  {}\n  to do: say which "
                                                "shapes and values",
                                                left.size(), shapes_text(left)));
}

Result<std::vector<Part>> parts_of(std::span<const Section> sections, std::string_view name) {
  const auto bad = [&](const std::string& fact) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", name, fact));
  };
  const Section* set = nullptr;
  std::size_t constants = 0;
  for (const Section& s : sections) {
    if (s.name == section::kSet) set = &s;
    constants += s.name == section::kConstant ? 1 : 0;
  }
  nlohmann::json table;
  std::size_t plans = 1;
  if (set != nullptr) {
    table = nlohmann::json::parse(set->bytes.begin(), set->bytes.end(), nullptr, /*allow_exceptions=*/false);
    if (set->id != 0 || !table.is_object() || !table.contains("plans") || !table["plans"].is_array())
      return bad("the set section lists no plans");
    table = table["plans"];
    plans = table.size();
    if (plans < 2 || plans > kMostPlans)
      return bad(fmt::format("{} plans in the set section, 2 to {} are known", plans, kMostPlans));
  }
  std::vector<Part> parts(plans);
  std::vector<std::span<const std::byte>> shared(constants);
  for (const Section& s : sections) {
    if (s.name == section::kSet || s.name == section::kModel || s.name == section::kModelFiles || s.name == section::kModelFile ||
        s.name == section::kOpen || s.name == section::kOpenData)
      continue;
    if (s.name == section::kConstant) {
      if (set == nullptr) {
        parts[0].constants.emplace_back(s.id, s.bytes);
      } else if (s.id < constants) {
        shared[s.id] = s.bytes;
      } else {
        return bad(fmt::format("constant section {}: there are {}, numbered from 0", s.id, constants));
      }
      continue;
    }
    std::span<const std::byte> Part::*where = s.name == section::kPlan      ? &Part::plan
                                              : s.name == section::kSummary ? &Part::summary
                                              : s.name == section::kGraph   ? &Part::graph
                                              : s.name == section::kBuild   ? &Part::build
                                                                            : nullptr;
    if (where == nullptr) return bad(fmt::format("section \"{}\" is not known", s.name));
    if (s.id >= plans) {
      return bad(plans == 1 ? fmt::format("section \"{}\" has id {}, expected 0", s.name, s.id)
                            : fmt::format("section \"{}\" has id {}, there are {} plans", s.name, s.id, plans));
    }
    parts[s.id].*where = s.bytes;
  }
  std::vector<char> used(constants);
  for (std::size_t k = 0; set != nullptr && k < plans; ++k) {
    if (!table[k].is_object() || !table[k].contains("constants") || !table[k]["constants"].is_array())
      return bad(fmt::format("the set section lists no constants of plan {}", k));
    std::set<std::uint64_t> buffers;
    for (const auto& pair : table[k]["constants"]) {
      const bool numbers = pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() && pair[1].is_number_unsigned();
      const auto buffer = numbers ? pair[0].get<std::uint64_t>() : 0, at = numbers ? pair[1].get<std::uint64_t>() : 0;
      if (!numbers || at >= constants || buffer > UINT32_MAX || !buffers.insert(buffer).second) {
        return bad(fmt::format("plan {}: {} is no pair of a buffer, each once, and one of {} constant sections", k, pair.dump(),
                               constants));
      }
      parts[k].constants.emplace_back(static_cast<std::uint32_t>(buffer), shared[at]);
      used[at] = 1;
    }
  }
  if (set != nullptr && std::find(used.begin(), used.end(), 0) != used.end())
    return bad(fmt::format("constant section {} belongs to no plan", std::find(used.begin(), used.end(), 0) - used.begin()));
  for (const Part& part : parts) {
    if (part.plan.empty() || part.summary.empty()) return bad(fmt::format("no {} section", part.plan.empty() ? "plan" : "summary"));
  }
  return parts;
}

Status save_set(const std::string& path, Engines engines, const Notes& notes, const std::string& private_key) {
  if (engines.size() == 1) return engines.front()->save(path, notes, private_key);
  std::sort(engines.begin(), engines.end(), [](const auto& a, const auto& b) { return key_of(a->plan()) < key_of(b->plan()); });
  return save_open(path, engines, {}, notes, private_key);
}

Status save_open(const std::string& path, const Engines& engines, std::span<const Section> open, const Notes& notes,
                 const std::string& private_key) {
  if (engines.empty() || engines.size() > kMostPlans)
    return fail(ErrorKind::usage, fmt::format("save \"{}\": {} engines, a file takes 1 to {}", path, engines.size(), kMostPlans));
  if (const std::string why = why_no_set(engines); !why.empty())
    return fail(ErrorKind::usage, fmt::format("save \"{}\": the engines do not belong in one file: {}", path, why));
  const bool several = engines.size() > 1;
  std::vector<std::string> texts;  // plan and summary of each
  texts.reserve(2 * engines.size());
  std::vector<Section> sections(several ? 1 : 0), constants;
  std::unordered_multimap<std::uint64_t, std::uint32_t> known;  // constants written so far, by their hashes
  nlohmann::json table = nlohmann::json::array();
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  for (std::size_t k = 0; k < engines.size(); ++k) {
    const Engine& e = *engines[k];
    const auto id = static_cast<std::uint32_t>(k);
    texts.push_back(region::to_json(e.plan()));
    sections.push_back({section::kPlan, id, bytes_of(texts.back())});
    texts.push_back(e.summary(notes));
    sections.push_back({section::kSummary, id, bytes_of(texts.back())});
    if (!e.graph_text().empty()) sections.push_back({section::kGraph, id, bytes_of(e.graph_text())});
    if (!e.origin().build.empty()) sections.push_back({section::kBuild, id, bytes_of(e.origin().build)});
    nlohmann::json mine = nlohmann::json::array();
    for (std::size_t i = 0; i < e.plan().buffers.size(); ++i) {
      if (e.plan().buffers[i].kind != BufferKind::constant) continue;
      const auto bytes = e.constant(static_cast<region::BufferId>(i));
      if (!several) {
        constants.push_back({section::kConstant, static_cast<std::uint32_t>(i), bytes});
        continue;
      }
      const std::uint64_t hash = hash64(bytes);
      auto at = static_cast<std::uint32_t>(constants.size());
      const auto [begin, end] = known.equal_range(hash);
      const auto same =
          std::find_if(begin, end, [&](const auto& c) { return std::ranges::equal(constants[c.second].bytes, bytes); });
      if (same != end) {
        at = same->second;
      } else {
        known.emplace(hash, at);
        constants.push_back({section::kConstant, at, bytes});
      }
      mine.push_back({i, at});
    }
    table.push_back({{"constants", std::move(mine)}});
  }
  const std::string set = nlohmann::json{{"plans", std::move(table)}}.dump();
  if (several) sections.front() = {section::kSet, 0, bytes_of(set)};
  sections.insert(sections.end(), constants.begin(), constants.end());
  sections.insert(sections.end(), open.begin(), open.end());
  ModelBytes model;
  std::string names;
  if (const auto& source = engines.front()->origin().model; source != nullptr) {
    OCTAVO_TRY(model, source->read());
    add_model(model, names, sections);
  }
  return write_file(path, sections, engines.front()->made_by(), private_key);
}

}  // namespace octavo::engine
