// An ONNX file opened for editing. Parts that are not edited do not change.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"
#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {

/// The top-level graph of one model. `open` refuses models whose subgraphs read the edited tensors (If, Loop). External data is read
/// in, and the model is saved as one file. Large constants are shared with what it was opened from.
class Editor {
 public:
  [[nodiscard]] static Result<Editor> open(const Parsed& model);
  /// The model as it is now, to be imported or opened again without being written. Nothing is left here.
  [[nodiscard]] Parsed parsed() &&;
  [[nodiscard]] Result<std::vector<std::byte>> bytes() const;
  /// A temporary file beside `path`, then renamed: an existing file survives any failure.
  [[nodiscard]] Status save(const std::string& path) const;

  [[nodiscard]] pb::ModelProto& model() { return model_; }
  [[nodiscard]] const pb::ModelProto& model() const { return model_; }
  [[nodiscard]] pb::GraphProto& graph() { return *model_.mutable_graph(); }
  [[nodiscard]] const pb::GraphProto& graph() const { return model_.graph(); }
  [[nodiscard]] std::int64_t opset() const;              ///< of the default domain
  void set_opset(std::int64_t version);                  ///< the caller sees to it that the nodes mean the same
  [[nodiscard]] std::string node_name(int index) const;  ///< its name, or "op #index"

  /// The value of an initializer or Constant node; nullptr for other tensors.
  [[nodiscard]] const ir::Tensor* constant(const std::string& name) const;
  void set_constant(const std::string& name, const ir::Tensor& value);  ///< adds or replaces an initializer
  /// Every node input that reads `from` reads `to`.
  void rename_uses(const std::string& from, const std::string& to);
  /// Removes marked nodes and the initializers that nothing reads any more.
  void remove_nodes(const std::set<int>& nodes);
  /// Puts the nodes into an order in which producers come first. `bad_model` when there is a cycle.
  [[nodiscard]] Status sort();
  [[nodiscard]] std::string fresh(const std::string& wish) const;  ///< a tensor or node name that is not in use

 private:
  /// The bytes of an initializer: into the message, or beside it.
  void put(pb::TensorProto& t, const ir::Tensor& value);

  pb::ModelProto model_;
  Constants large_;                              ///< initializers whose bytes are not in the message
  std::map<std::string, ir::Tensor> constants_;  ///< all, and those of Constant nodes
  std::string name_, folder_;
};

struct AddedPair;
/// Puts these pairs in; the nodes are not in order after it. Gives the tensors that none of the named readers reads by that name.
/// Errors: `unsupported` below opset 13, naming the way out.
[[nodiscard]] Result<std::vector<std::string>> add_pairs(Editor& model, const std::vector<AddedPair>& pairs);

}  // namespace octavo::onnx
