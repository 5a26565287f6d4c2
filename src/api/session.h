// One model of a command or a caller: parsed once, and asked by everything that wants to know something about it, import it, change it or
// build it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "onnx/diagnosis/diagnose.h"
#include "onnx/edit/convert.h"
#include "onnx/import/import.h"
#include "onnx/import/late_values.h"
#include "onnx/model/graph_nodes.h"
#include "onnx/model/parsed.h"
#include "onnx/model/tensor_uses.h"

namespace octavo::api {

/// Immutable but for the graph that it keeps; for any number of threads.
class Session {
 public:
  /// A file. `name`: how errors call it; empty: the path. Errors: those of onnx::Parsed.
  [[nodiscard]] static Result<std::shared_ptr<const Session>> open(const std::string& path, const std::string& name = {});
  /// A model in memory, whose external data lies in `folder`; the engines built from it hold `bytes` as their model.
  [[nodiscard]] static Result<std::shared_ptr<const Session>> of(const std::shared_ptr<const std::vector<std::byte>>& bytes,
                                                                 const std::string& folder, const std::string& name);
  /// The same without a copy that engines could hold.
  [[nodiscard]] static Result<std::shared_ptr<const Session>> of(std::span<const std::byte> bytes, const std::string& folder,
                                                                 const std::string& name);
  /// A model that was made from another one, in memory; its file is written where engines are to hold it. Errors: those of writing it.
  [[nodiscard]] static Result<std::shared_ptr<const Session>> made(onnx::Parsed parsed);

  [[nodiscard]] const onnx::Parsed& parsed() const { return parsed_; }
  [[nodiscard]] Result<std::vector<onnx::InputInfo>> inputs() const { return onnx::inputs_of(parsed_); }
  [[nodiscard]] onnx::GraphNodes nodes() const { return onnx::nodes_of(parsed_); }
  [[nodiscard]] onnx::TensorUses uses_of(const std::string& tensor) const { return onnx::uses_of_tensor(parsed_, tensor); }
  [[nodiscard]] std::vector<std::string> tensor_names() const { return onnx::tensor_names(parsed_); }
  [[nodiscard]] Result<onnx::Diagnosis> diagnose(const onnx::DiagnoseOptions& options) const {
    return onnx::diagnose(parsed_, options);
  }
  [[nodiscard]] Result<onnx::EditedPairs> edit_pairs(const onnx::PairEdits& edits, const std::string& out) const {
    return onnx::edit_pairs(parsed_, edits, out);
  }

  /// With ranges_by_hand: usage for the first range of no tensor, with the name that is nearest.
  [[nodiscard]] Status check_ranges(const PipelineOptions& options) const;
  /// The graph for these shapes; the last one is kept for whoever asks for the same, a build among them.
  [[nodiscard]] Result<std::shared_ptr<const onnx::Model>> imported(const onnx::ImportOptions& options) const;
  /// import -> make_plan -> Engine::create. Bindings of inputs that `late` gives say their values (region/bound_value.h). The engine holds the
  /// model, unless the options name another source. Errors: those of the three, and `usage` for the options.
  [[nodiscard]] Result<Built> build(const PipelineOptions& options, onnx::LateValues& late) const;
  /// plan::outline of the model for the shapes of the options, by PlanOptions::follow. Errors: those of import and of outline.
  [[nodiscard]] Result<region::Plan> outline(const PipelineOptions& options) const;

 private:
  explicit Session(onnx::Parsed parsed) : parsed_(std::move(parsed)) {}
  [[nodiscard]] std::shared_ptr<const onnx::Model> kept(const onnx::ImportOptions& options) const;

  onnx::Parsed parsed_;
  std::optional<Result<std::shared_ptr<const engine::ModelSource>>> source_;  ///< none: engines do not hold the model
  mutable std::mutex mutex_;
  mutable std::optional<std::pair<onnx::ImportOptions, std::shared_ptr<const onnx::Model>>> last_;
};

}  // namespace octavo::api
