#include "api/description.h"

#include <nlohmann/json.hpp>

namespace octavo::api {
namespace {

using nlohmann::json;

std::string text_at(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

std::string to_json(const onnx::Description& d) {
  json out = json::object();
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  put("producer", d.producer), put("graph", d.graph_name), put("domain", d.domain), put("description", d.description);
  put("graph_description", d.graph_description);
  if (d.version != 0) out["version"] = d.version;
  if (!d.metadata.empty()) out["metadata"] = d.metadata;
  if (!d.symbols.empty()) out["symbols"] = d.symbols;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Described described(const std::string& text) {
  Described out;
  const json from = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!from.is_object()) return out;
  out.info = {text_at(from, "producer"),
              text_at(from, "graph"),
              text_at(from, "domain"),
              text_at(from, "description"),
              text_at(from, "graph_description"),
              0,
              {}};
  if (const auto at = from.find("version"); at != from.end() && at->is_number_integer()) out.info.version = at->get<std::int64_t>();
  if (const auto at = from.find("metadata"); at != from.end() && at->is_object()) {
    for (const auto& [key, value] : at->items()) {
      if (value.is_string()) out.info.metadata[key] = value.get<std::string>();
    }
  }
  if (const auto at = from.find("symbols"); at != from.end() && at->is_object()) {
    for (const auto& [tensor, names] : at->items()) {
      if (!names.is_array()) continue;
      std::vector<std::string>& of = out.symbols[tensor];
      for (const json& name : names) of.push_back(name.is_string() ? name.get<std::string>() : std::string());
    }
  }
  return out;
}

Described described(const onnx::Description& d) {
  return {{d.producer, d.graph_name, d.domain, d.description, d.graph_description, d.version, d.metadata}, d.symbols};
}

}  // namespace octavo::api
