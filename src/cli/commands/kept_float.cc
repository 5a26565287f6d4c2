#include "cli/commands/kept_float.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "quantize/quantize.h"

namespace octavo::cli {

engine::Notes kept_float_note(const api::Built& built) {
  const auto at = built.model.metadata.find(quantize::kKeptFloat);
  return at == built.model.metadata.end() ? engine::Notes() : engine::Notes{{quantize::kKeptFloat, at->second}};
}

std::string kept_float_text(const Loaded& loaded, const std::string& node) {
  engine::Notes notes = loaded.engine->notes();
  if (loaded.built) notes = kept_float_note(*loaded.built);
  const auto at = notes.find(quantize::kKeptFloat);
  if (at == notes.end()) return "";
  const auto why = nlohmann::json::parse(at->second, nullptr, false);
  if (!why.is_object()) return "";  // a text of somebody else's
  std::string text;
  for (const auto& [name, reason] : why.items()) {
    if (reason.is_string() && (node.empty() || node == name)) text += fmt::format("  {}: {}\n", name, reason.get<std::string>());
  }
  return text.empty() ? text : "left in float when the model was quantized:\n" + text;
}

}  // namespace octavo::cli
