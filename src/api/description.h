// What a model says of itself (producer, metadata, names of dimensions), as the JSON that engine files keep.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "onnx/import/import.h"

namespace octavo::api {

/// One object: "producer", "graph", "domain", "description", "graph_description", "version", "metadata", "symbols", each left out where empty. Bytes that are
/// not UTF-8 are replaced.
[[nodiscard]] std::string to_json(const onnx::Description& description);

/// The public form. Members of other types than to_json writes count as absent: the text comes from files.
struct Described {
  ModelInfo info;
  std::map<std::string, std::vector<std::string>> symbols;  ///< as onnx::Description
};
[[nodiscard]] Described described(const std::string& json);
[[nodiscard]] Described described(const onnx::Description& description);

}  // namespace octavo::api
