// One HTML page that shows plans: the data of each as `octavo explain --json` gives it, the page's own code, and the library that lays
// out and draws graphs (docs/dependencies.md), all inlined: the page loads nothing, from nowhere.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "onnx/model/graph_nodes.h"

namespace octavo::cli {

/// What a page can show beyond the plan.
struct ViewExtras {
  const api::Built* built = nullptr;              ///< laws, roundings, nodes that went into no region; null: an engine file
  const onnx::GraphNodes* nodes = nullptr;        ///< the ONNX graph; null: not shown
  bool ranges = false;                            ///< ranges permit int8: then no placement demands roundings
  std::set<std::string, std::less<>> disabled{};  ///< switches that were off when it was built
  int threads = 0;                                ///< to time it with; 0: the engine's
  std::string file{};                             ///< the name that the page shows the plan under; empty: the name of the graph
  int runs = 0;                                   ///< number of timed runs on random inputs (seed 1); 0: none
};
/// report::document of the whole plan and the fields "file", "onnx", "roundings" and "profile" (docs/schema.md). Errors: those of running.
[[nodiscard]] Result<nlohmann::json> view_document(const std::shared_ptr<const engine::Engine>& engine, const ViewExtras& extras);

/// The field "onnx": the nodes of a model; `built`: names those that went into no region, and why.
[[nodiscard]] nlohmann::json onnx_document(const onnx::GraphNodes& nodes, const api::Built* built = nullptr);

/// A saved document. Errors: `bad_input` if it is not JSON, has another version of the schema, or lacks a field that
/// the page needs; the error names the field.
[[nodiscard]] Result<nlohmann::json> read_document(std::string_view text, const std::string& name);

/// Adds the field "accuracy": signal to noise of layers from a file of `octavo quantize --report`. Errors: `bad_input` for another
/// file, and for a report that names none of the plan's nodes.
[[nodiscard]] Status add_accuracy(nlohmann::json& document, std::string_view report, const std::string& name);

/// The page, of one plan or two side by side. Names are data in it, never markup. What only programs read (reasons as data) is left
/// out, and of more than 16 scales the least and the greatest stay.
[[nodiscard]] std::string view_page(std::vector<nlohmann::json> documents);
/// Writes it to a file, or to stdout for "-"; says on stderr how large it is. Gives the exit code, 0. Errors: `io`.
[[nodiscard]] Result<int> write_page(std::vector<nlohmann::json> documents, const std::string& path);

}  // namespace octavo::cli
