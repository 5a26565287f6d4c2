// A hostile writer of engine files: changes fields of a plan and bytes of constants, from a seed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "region/region.h"

namespace octavo::testing {

using nlohmann::json;

/// Every tactic of some networks, as in the plans' JSON, so that a region can be given another's; and families that nobody knows.
struct ForgedTactics {
  std::vector<json> whole;
  std::vector<std::string> families{"none", "", "staged", "grouped", "staged.row_tiles"};
  void add(const region::Plan& of) {
    const json plan = json::parse(region::to_json(of));
    for (const json& r : plan["regions"]) {
      if (!seen.insert(r["tactic"].dump()).second) continue;
      whole.push_back(r["tactic"]);
      families.push_back(r["tactic"]["family"]);
    }
  }
  std::set<std::string> seen;
};

/// One engine file taken apart: the plan's JSON and the constants' bytes.
struct ForgedParts {
  json plan;
  std::string summary;
  std::map<std::uint32_t, std::string> constants;
};

class Forger {
 public:
  Forger(std::uint64_t seed, const ForgedTactics& tactics) : random_(seed), tactics_(tactics) {}

  std::string forge(ForgedParts& p) {
    const std::size_t edits = 1 + below(3);
    for (std::size_t i = 0; i < edits; ++i) edit(p);
    return said_;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % std::max<std::size_t>(1, n)); }
  void say(const std::string& what) { said_ += (said_.empty() ? "" : "; ") + what; }

  std::int64_t extreme(std::int64_t was) {
    const auto u = static_cast<std::uint64_t>(was);  // it may be at an end of the range: these wrap
    const std::uint64_t near[] = {
        u + 1, u - 1, u * 2, static_cast<std::uint64_t>(was / 2), u + 64, 0 - u, u * 3, 0, 1, 2, ~std::uint64_t{0}, 7,
        64,    255,   1000};
    const std::int64_t far[] = {65536,    1L << 20, (1L << 31) - 1, 1L << 31,  1L << 32,  -(1L << 31), 1L << 40,
                                1L << 47, 1L << 48, (1L << 62) + 1, INT64_MAX, INT64_MIN, 4096,        1L << 24};
    return below(3) == 0 ? far[below(std::size(far))] : static_cast<std::int64_t>(near[below(std::size(near))]);
  }

  /// A random place, deeper ones as likely as shallow ones.
  static void collect(json& j, const std::string& path, std::vector<std::pair<std::string, json*>>& out) {
    if (j.is_structured()) {
      std::size_t i = 0;
      for (auto it = j.begin(); it != j.end(); ++it, ++i) {
        const std::string key = j.is_object() ? it.key() : std::to_string(i);
        if (key == "decisions" || key == "alternatives" || key == "reasons" || key == "onnx_nodes" || key == "name") continue;
        out.emplace_back(path + "/" + key, &*it);
        collect(*it, path + "/" + key, out);
      }
    }
  }

  void edit(ForgedParts& p) {
    if (below(5) == 0 && !p.constants.empty()) return edit_constant(p);
    std::vector<std::pair<std::string, json*>> places;
    collect(p.plan, "", places);
    const auto& [path, at] = places[below(places.size())];
    if (path.ends_with("/tactic") && below(2) == 0) {
      *at = tactics_.whole[below(tactics_.whole.size())];
      say(path + ": of another region");
    } else if (at->is_number_integer()) {
      const std::int64_t to = extreme(at->get<std::int64_t>());
      say(fmt::format("{}: {} -> {}", path, at->dump(), to));
      *at = to;
    } else if (at->is_number()) {
      *at = below(2) == 0 ? 1e38 : -1.0;
      say(path + ": a float");
    } else if (at->is_boolean()) {
      *at = !at->get<bool>();
      say(path + ": flipped");
    } else if (at->is_string() && path.ends_with("/launch") && below(4) != 0 && json::accept(at->get<std::string>())) {
      *at = launch_for(path, json::parse(at->get<std::string>())).dump();
    } else if (at->is_string()) {
      const std::string was = *at;
      *at = text_for(path, was, places);
      say(fmt::format("{}: \"{}\" -> \"{}\"", path, was.substr(0, 80), at->get<std::string>().substr(0, 80)));
    } else if (at->is_array() && !at->empty()) {
      edit_list(path, *at);
    } else if (at->is_object() && !at->empty()) {
      auto it = at->begin();
      std::advance(it, static_cast<std::ptrdiff_t>(below(at->size())));
      say(path + "/" + it.key() + ": removed");
      at->erase(it);
    }
  }

  /// Launches of a GPU with one place changed: a number (of a grid, a parameter, an image), or the form.
  json launch_for(const std::string& path, json launch) {
    std::vector<std::pair<std::string, json*>> places;
    collect(launch, path, places);
    const auto& [inner, at] = places[below(places.size())];
    const std::string was = at->dump();
    if (at->is_number_integer() && below(8) != 0)
      *at = extreme(at->get<std::int64_t>());
    else if (at->is_array() && !at->empty() && below(2) == 0)
      at->erase(below(at->size()));
    else
      *at = below(2) == 0 ? json(*places[below(places.size())].second) : json();
    say(fmt::format("{}: {} -> {}", inner, was.substr(0, 80), at->dump().substr(0, 80)));
    return launch;
  }

  std::string text_for(const std::string& path, const std::string& was, const std::vector<std::pair<std::string, json*>>& places) {
    static const char* kTypes[] = {"f32", "u8", "s8", "s16", "s32", "s64", "bool", "f64", "f16", "bf16", "u16", "u64"};
    if (path.ends_with("/dtype") || path.ends_with("/type")) return kTypes[below(std::size(kTypes))];
    if (path.ends_with("/family")) return tactics_.families[below(tactics_.families.size())];
    if (below(2) == 0) {  // a text of the same field elsewhere
      const std::string field = path.substr(path.rfind('/'));
      std::vector<const json*> same;
      for (const auto& [other, value] : places) {
        if (value->is_string() && other.ends_with(field)) same.push_back(value);
      }
      return same[below(same.size())]->get<std::string>();
    }
    std::string text = was;
    if (text.empty()) return "x";
    const std::size_t at = below(text.size());
    switch (below(3)) {
      case 0: text[at] = "0123456789-,:[]{}e. %"[below(21)]; break;
      case 1: text.erase(at, 1 + below(4)); break;
      default: text.insert(at, std::to_string(extreme(3)));
    }
    return text;
  }

  void edit_list(const std::string& path, json& list) {
    const std::size_t i = below(list.size()), j = below(list.size());
    switch (below(4)) {
      case 0:
        list.erase(i);
        say(fmt::format("{}: entry {} removed", path, i));
        break;
      case 1:
        list.push_back(json(list[i]));
        say(fmt::format("{}: entry {} repeated", path, i));
        break;
      case 2:
        std::swap(list[i], list[j]);  // of regions: an order in which one reads what a later one writes
        say(fmt::format("{}: entries {} and {} swapped", path, i, j));
        break;
      default: list[i] = json(list[j]); say(fmt::format("{}: entry {} is entry {}", path, i, j));
    }
  }

  void edit_constant(ForgedParts& p) {
    auto it = p.constants.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(below(p.constants.size())));
    auto& [id, bytes] = *it;
    const std::size_t size = bytes.size();
    switch (below(4)) {
      case 0: bytes.resize(below(2) == 0 ? below(size) : size / 2); break;
      case 1: bytes.resize(size - std::min<std::size_t>(size, 1 + below(64))); break;
      case 2: bytes.resize(size + 1 + below(64)); break;
      default:
        for (std::size_t k = 0; k < 1 + below(8) && size >= 4; ++k) {
          const auto v = static_cast<std::int32_t>(extreme(1));
          bytes.replace(below(size - 3), 4, reinterpret_cast<const char*>(&v), 4);
        }
    }
    if (id < p.plan["buffers"].size()) p.plan["buffers"][id]["bytes"] = bytes.size();
    say(fmt::format("constant {} has {} bytes, had {}", id, bytes.size(), size));
  }

  std::mt19937_64 random_;
  const ForgedTactics& tactics_;
  std::string said_;
};

}  // namespace octavo::testing
