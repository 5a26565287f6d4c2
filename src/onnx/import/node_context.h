// What an operator handler sees: one ONNX node, its operands as IR values, its attributes, and the graph it emits into.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Quantizer;
using ir::Shape;
using ir::Tensor;
using ir::TensorType;
using ir::ValueId;
using Ints = std::vector<std::int64_t>;

class Importer;

/// One node while it is lowered. Operands and required attributes are checked before the handler runs (registry row: input counts).
/// Attribute getters never fail by themselves: a wrong type is remembered and comes out of the next `emit`, or after the handler.
/// An attribute that no getter asked for is an error afterwards, so that nothing in the file is ignored silently.
class NodeContext {
 public:
  NodeContext(Importer& importer, const pb::NodeProto& proto, std::string name, int index, std::int64_t opset);

  [[nodiscard]] const pb::NodeProto& proto() const { return proto_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] std::int64_t opset() const { return opset_; }
  [[nodiscard]] ir::Graph& graph();
  [[nodiscard]] Importer& importer() { return importer_; }
  /// node "conv1" (Conv, index 5)
  [[nodiscard]] std::string where() const;

  // Operands
  [[nodiscard]] std::size_t operands() const { return inputs_.size(); }
  [[nodiscard]] bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i] != ir::kNone; }
  [[nodiscard]] ValueId in(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : ir::kNone; }
  [[nodiscard]] const TensorType& type(std::size_t i) const { return type_of(inputs_[i]); }
  [[nodiscard]] const Shape& shape(std::size_t i) const { return type(i).shape; }
  [[nodiscard]] std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(shape(i).size()); }
  [[nodiscard]] const TensorType& type_of(ValueId v) const;
  [[nodiscard]] const Shape& shape_of(ValueId v) const { return type_of(v).shape; }
  [[nodiscard]] std::string input_name(std::size_t i) const;
  /// The float type the file gives operand i (the IR holds all of them as f32), or its IR type.
  [[nodiscard]] DType declared(std::size_t i) const;
  /// The elements of operand i if they are known now, else nullptr. Valid until the next emit.
  [[nodiscard]] const Tensor* constant(std::size_t i) const;
  /// Operand i as integers; an error (unsupported, saying `role`) if it is not constant.
  [[nodiscard]] Result<Ints> constant_ints(std::size_t i, std::string_view role) const;
  /// Operand i as one integer; an error if it is of floats.
  [[nodiscard]] Result<std::int64_t> constant_integer(std::size_t i, std::string_view role) const;
  /// Operand i as one number, which need not fit an integer.
  [[nodiscard]] Result<double> constant_scalar(std::size_t i, std::string_view role) const;
  /// True if v depends on constants alone, through Q, DQ and data-movement operators: a weight.
  [[nodiscard]] bool is_weight(ValueId v) const;
  [[nodiscard]] Status need_rank(std::size_t i, std::int64_t least, std::int64_t most = 32) const;
  /// axis in [-rank, rank) -> [0, rank).
  [[nodiscard]] Result<std::int64_t> axis(std::int64_t value, std::int64_t rank) const;
  /// Sorted, non-negative, without repeats.
  [[nodiscard]] Result<Ints> axes(Ints values, std::int64_t rank) const;

  // Attributes
  [[nodiscard]] bool has_attr(std::string_view key);
  [[nodiscard]] std::int64_t attr_int(std::string_view key, std::int64_t fallback);
  [[nodiscard]] float attr_float(std::string_view key, float fallback);
  [[nodiscard]] std::string attr_text(std::string_view key, std::string_view fallback);
  [[nodiscard]] Ints attr_ints(std::string_view key, Ints fallback = {});
  [[nodiscard]] std::vector<float> attr_floats(std::string_view key);
  [[nodiscard]] std::vector<std::string> attr_texts(std::string_view key);
  [[nodiscard]] const pb::TensorProto* attr_tensor(std::string_view key);
  [[nodiscard]] const pb::GraphProto* attr_graph(std::string_view key);
  /// Attributes that are known and have no effect in this case.
  void ignore(std::initializer_list<std::string_view> keys);
  /// After the handler: the remembered error, or one that names an attribute nobody asked for.
  [[nodiscard]] Status finish_attributes() const;

  // Results
  /// Adds a node that stands for this ONNX node; evaluated at once when all operands are constant (not Q and DQ).
  [[nodiscard]] Result<ValueId> emit(Op op, std::vector<ValueId> inputs, Attrs attrs = {});
  /// quantize or dequantize; of a constant: its codes, or a coded constant.
  [[nodiscard]] Result<ValueId> emit_quantizer(Op op, ValueId input, Quantizer q);
  [[nodiscard]] Result<std::vector<ValueId>> emit_many(Op op, std::vector<ValueId> inputs, Attrs attrs = {});
  [[nodiscard]] ValueId add_constant(Tensor t);
  /// A constant that stands for this ONNX node: what reads it names the node too.
  [[nodiscard]] ValueId add_own_constant(Tensor t);
  [[nodiscard]] ValueId scalar(float v) { return add_constant(Tensor::scalar(v)); }
  [[nodiscard]] Result<ValueId> reshape(ValueId v, Shape shape);
  [[nodiscard]] Result<ValueId> cast(ValueId v, DType to);
  [[nodiscard]] std::size_t output_count() const { return static_cast<std::size_t>(proto_.output_size()); }
  /// Output i has a name and something reads it.
  [[nodiscard]] bool wants(std::size_t i) const;
  void set(std::size_t i, ValueId v);
  [[nodiscard]] ValueId out(std::size_t i) const { return i < outputs_.size() ? outputs_[i] : ir::kNone; }
  /// set(0, *v) or the error.
  [[nodiscard]] Status result(Result<ValueId> v);
  /// The float type the file gives output i, when it is not that of the first float operand.
  void declare(std::size_t i, DType type);
  void note(std::string text);

  template <class... A>
  [[nodiscard]] tl::unexpected<Error> bad(fmt::format_string<A...> format, A&&... args) const {
    return fail(ErrorKind::bad_model, where() + ": " + fmt::format(format, std::forward<A>(args)...));
  }
  /// The importer collects these; the text says what is not covered and the way out.
  template <class... A>
  [[nodiscard]] tl::unexpected<Error> unsupported(fmt::format_string<A...> format, A&&... args) const {
    return fail(ErrorKind::unsupported, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  friend class Importer;
  const pb::AttributeProto* find(std::string_view key, pb::AttributeProto::AttributeType type);

  Importer& importer_;
  const pb::NodeProto& proto_;
  std::string name_;
  int index_;
  std::int64_t opset_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::vector<std::optional<DType>> declared_;
  std::set<std::string, std::less<>> asked_;
  std::optional<Error> error_;
};

}  // namespace octavo::onnx
