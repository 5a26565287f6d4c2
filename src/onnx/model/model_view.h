// A parsed model as the diagnosis looks at it: who makes and reads what, constants by name, quantizers behind tensors.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/tensor.h"
#include "onnx/diagnosis/diagnose.h"
#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {

/// Where a scale is: its tensor, its zero point's, the codes' or values' tensor, and the axis for several entries.
struct ScaleUse {
  int node = 0;
  std::string scale, zero_point, data;
  std::int64_t axis = 1;
};

class ModelView {
 public:
  /// `constants` as in ParsedParts.
  ModelView(const pb::ModelProto& model, const Constants& constants, std::string folder);

  [[nodiscard]] const pb::GraphProto& graph() const { return model_.graph(); }
  [[nodiscard]] bool live(int node) const { return live_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const std::string& name_of(int node) const { return names_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const pb::NodeProto* producer(const std::string& tensor) const;
  [[nodiscard]] bool knows(const std::string& tensor) const;  ///< an input, initializer or result
  /// Initializers and Constant nodes, looking through Identity; nullptr for other tensors and for damaged ones.
  [[nodiscard]] const ir::Tensor* constant(const std::string& tensor) const;
  /// Every scale of live nodes, in their order.
  [[nodiscard]] const std::vector<ScaleUse>& scales() const { return scales_; }
  [[nodiscard]] static std::int64_t attribute(const pb::NodeProto& n, const char* key, std::int64_t fallback);

 private:
  void find_scales(int node);

  const pb::ModelProto& model_;
  const Constants& large_;
  std::string folder_;
  std::map<std::string, int> producer_;
  std::map<std::string, const pb::TensorProto*> initializers_;
  std::set<std::string> inputs_;
  std::vector<bool> live_;
  std::vector<std::string> names_;
  std::vector<ScaleUse> scales_;
  mutable std::map<std::string, std::optional<ir::Tensor>> constants_;
};

using Report = std::function<void(Finding)>;
void diagnose_scales(const ModelView& m, const Report& report);
void diagnose_weights(const ModelView& m, const Report& report);
void diagnose_biases(const ModelView& m, const Report& report);
void diagnose_ranges(const ModelView& m, const DiagnoseOptions& options, const Report& report);

}  // namespace octavo::onnx
