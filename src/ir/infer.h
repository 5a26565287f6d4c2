// Inside of ir::infer: what the families of operators share. Attributes and shapes come from files, so nothing here trusts them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::ir::detail {

using Types = std::vector<TensorType>;

/// A node being typed: its operands' types and its attributes, read with checks.
class Inference {
 public:
  Inference(const Graph& g, const Node& n) : graph_(g), node_(n) {}

  [[nodiscard]] Op op() const { return node_.op; }
  [[nodiscard]] const Node& node() const { return node_; }
  [[nodiscard]] std::size_t operands() const { return node_.inputs.size(); }
  [[nodiscard]] bool has(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNone; }
  [[nodiscard]] const TensorType& in(std::size_t i) const { return graph_.type(node_.inputs[i]); }
  [[nodiscard]] const Shape& shape(std::size_t i) const { return in(i).shape; }
  [[nodiscard]] std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(shape(i).size()); }

  /// A list attribute of exactly `size` entries, or all `fallback` when absent.
  [[nodiscard]] Result<std::vector<std::int64_t>> ints(std::string_view key, std::size_t size, std::int64_t fallback) const;
  /// A list attribute that must be there, of any length.
  [[nodiscard]] Result<std::vector<std::int64_t>> ints(std::string_view key) const;
  [[nodiscard]] Result<std::int64_t> integer(std::string_view key, std::int64_t fallback) const;
  [[nodiscard]] Result<std::string> text(std::string_view key, std::string_view fallback) const;
  /// Attribute `key` as a dimension of a tensor of this rank: 0 <= axis < rank.
  [[nodiscard]] Result<std::int64_t> axis(std::string_view key, std::int64_t rank, std::int64_t fallback) const;
  /// An attribute is of the kind its operator declares: numbers where numbers belong.
  [[nodiscard]] Status number(std::string_view key) const;

  template <class... A>
  [[nodiscard]] tl::unexpected<Error> error(fmt::format_string<A...> format, A&&... args) const {
    return fail(ErrorKind::bad_model, where() + fmt::format(format, std::forward<A>(args)...));
  }
  [[nodiscard]] Status need(bool condition, std::string_view what) const {
    if (!condition) return error("{}", what);
    return {};
  }
  [[nodiscard]] Status need_rank(std::size_t i, std::int64_t least, std::int64_t most) const;
  [[nodiscard]] Status need_float(std::size_t i) const;
  /// Dimensions may not be negative and the tensor may not exceed 2^40 bytes.
  [[nodiscard]] Status check_size(const TensorType& t) const;

 private:
  [[nodiscard]] std::string where() const;
  const Graph& graph_;
  const Node& node_;
};

/// Numpy broadcasting of two shapes.
[[nodiscard]] Result<Shape> broadcast(const Inference& at, const Shape& a, const Shape& b);
/// scale > 0 and finite, zero points within the type, one entry or D[axis] entries, axis within the rank.
[[nodiscard]] Status check_quantizer(const Quantizer& q, const Shape& shape);

[[nodiscard]] Result<Types> infer_other(const Inference& at);  ///< operators that only the reference evaluator computes
[[nodiscard]] Result<Types> infer_quantization(const Inference& at);
[[nodiscard]] Result<Types> infer_pointwise(const Inference& at);
[[nodiscard]] Result<Types> infer_weighted(const Inference& at);   ///< conv, conv_transpose, gemm, matmul
[[nodiscard]] Result<Types> infer_window(const Inference& at);     ///< pooling
[[nodiscard]] Result<Types> infer_reduction(const Inference& at);  ///< reductions, softmax, norms, float resizes
[[nodiscard]] Result<Types> infer_moving(const Inference& at);

}  // namespace octavo::ir::detail
