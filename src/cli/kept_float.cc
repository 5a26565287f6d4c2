#include "cli/kept_float.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/file.h"
#include "onnx/edit/layers.h"
#include "quantize/quantize.h"

namespace octavo::cli {

Result<engine::Notes> kept_float_note(const ModelOptions& model) {
  if (is_engine_file(model.path)) return engine::Notes();
  std::vector<std::byte> file;
  if (!model.made) {
    OCTAVO_TRY(file, read_file(model.path));
  }
  const std::string folder = std::filesystem::path(model.path).parent_path().string();
  const auto editor = onnx::open_model(model.made ? *model.made : file, folder, model.path);
  if (!editor) return engine::Notes();  // import has judged the file; what cannot be edited was not written by quantize
  const std::string text = onnx::metadata(**editor, quantize::kKeptFloat);
  return text.empty() ? engine::Notes() : engine::Notes{{quantize::kKeptFloat, text}};
}

Result<std::string> kept_float_text(const ModelOptions& model, const Loaded& loaded, const std::string& node) {
  engine::Notes notes = loaded.engine->notes();
  if (loaded.built) {
    OCTAVO_TRY(notes, kept_float_note(model));
  }
  const auto at = notes.find(quantize::kKeptFloat);
  if (at == notes.end()) return std::string();
  const auto why = nlohmann::json::parse(at->second, nullptr, false);
  if (!why.is_object()) return std::string();  // a text of somebody else's
  std::string text;
  for (const auto& [name, reason] : why.items()) {
    if (reason.is_string() && (node.empty() || node == name)) text += fmt::format("  {}: {}\n", name, reason.get<std::string>());
  }
  return text.empty() ? text : "left in float when the model was quantized:\n" + text;
}

}  // namespace octavo::cli
