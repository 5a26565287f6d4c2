// Sizes that data decide: how many boxes NonMaxSuppression keeps, how many elements NonZero finds. The graph's shapes are fixed. A dimension whose size
// data decide has room for the most, and a scalar of the graph says how many elements there are: they come first, and what is behind them is anything.
// Operators that compute element by element need not know. Where elements behind the last one would count (a sum, a softmax, the best of a list), they are
// replaced first by what does not change the result. Every IR operator is covered by one rule here, or refused by name.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/whole_number.h"
#include "onnx/import/node_context.h"

namespace octavo::onnx {

/// A whole number: known, or between two bounds and computed by a run. It is a sum of terms, so that what cancels out is seen.
struct Number {
  double least = 0, most = 0;
  ValueId value = ir::kNone;  ///< s64[]; kNone: not asked for yet, or known
  std::uint64_t key = 0;      ///< equal keys are equal numbers
  double constant = 0;        ///< + terms, by key of a number that no sum is: how often
  std::map<std::uint64_t, double> terms = {};
  [[nodiscard]] bool known() const { return least == most; }
  [[nodiscard]] std::int64_t exact() const { return whole_number(least); }
  /// Room for all elements, and for `fewest` at least.
  [[nodiscard]] std::int64_t room(double fewest = 0) const { return whole_number(std::max(most, fewest)); }
};
using Numbers = std::vector<Number>;

class Sizes {
 public:
  /// By dimension: how many elements it has, an s64 scalar.
  using Extents = std::map<std::size_t, ValueId>;

  [[nodiscard]] bool none() const { return extents_.empty() && numbers_.empty(); }
  [[nodiscard]] const Extents& extents(ValueId v) const;
  void set(ValueId v, Extents extents);
  [[nodiscard]] bool open(ValueId v) const { return v != ir::kNone && extents_.contains(v); }
  [[nodiscard]] bool open(ValueId v, std::size_t axis) const { return open(v) && extents_.at(v).contains(axis); }
  [[nodiscard]] std::optional<ValueId> open_operand(const std::vector<ValueId>& values) const;
  /// The node that computes the number, for messages.
  [[nodiscard]] std::string source(const ir::Graph& g, ValueId count) const;

  // Numbers
  [[nodiscard]] static Number number(std::int64_t v);
  /// A scalar that a run computes.
  Number count(ValueId scalar, double least, double most);
  /// Of a dimension.
  [[nodiscard]] Number extent(const ir::Graph& g, ValueId v, std::size_t axis) const;
  /// The elements of a list of numbers that is constant or follows from sizes; nothing otherwise.
  [[nodiscard]] std::optional<Numbers> elements(NodeContext& n, ValueId v);
  Number add(NodeContext& n, const Number& a, const Number& b);
  Number sub(NodeContext& n, const Number& a, const Number& b);
  Number mul(NodeContext& n, const Number& a, const Number& b);
  Number div(NodeContext& n, const Number& a, const Number& b);  ///< towards 0; b is known and greater
  Number min(NodeContext& n, const Number& a, const Number& b);
  Number max(NodeContext& n, const Number& a, const Number& b);
  /// The number as an s64 scalar of the graph.
  ValueId scalar(NodeContext& n, const Number& a);
  /// The numbers as an s64 list of the graph.
  ValueId list(NodeContext& n, const Numbers& numbers);

  // Bounds that are given (ImportOptions::max_elements). (sizes_given.cc)
  struct Bound {
    std::int64_t most = 0;
    std::string tensor;  ///< by which it was given: of a tensor or a node
  };
  /// Of the node's results, or of the node.
  [[nodiscard]] std::optional<Bound> given(NodeContext& n);
  /// The number, at most `bound`. A run in which it is greater, or negative, is an error.
  Number limited(NodeContext& n, const Number& size, const Bound& bound);
  /// The elements of a short list of whole numbers that data decide, without bounds; nothing if it is none.
  [[nodiscard]] std::optional<Numbers> raw(NodeContext& n, ValueId v);
  struct Limit {
    ValueId count;
    Bound bound;
  };
  [[nodiscard]] const std::vector<Limit>& limits() const { return limits_; }
  /// Conditions (bool[]) by which a result is selected of what is computed in all runs: what only such a result needs is left out in the others (plan/layout/gates.h).
  /// And whether it is needed where the condition does not hold, too.
  struct Condition {
    ValueId value;
    bool both;
  };
  std::vector<Condition> conditions = {};

  /// The names of bounds that something took.
  std::set<std::string> bounds_taken = {};

  // Values
  /// The dimension has `size` elements from here on: the value itself, with room for at least two and its size noted; or cut to a known size.
  ValueId sized(NodeContext& n, ValueId v, std::size_t axis, const Number& size);
  /// bool, broadcastable to the value: which elements of the dimensions are there. kNone: all.
  ValueId there(NodeContext& n, ValueId v, const std::vector<std::size_t>& axes);
  /// The value with `fill` behind the last elements of the dimensions.
  ValueId filled(NodeContext& n, ValueId v, const std::vector<std::size_t>& axes, double fill);
  /// Less than every element, or greater.
  static double lowest(DType t);
  static double highest(DType t);
  /// The positions of elements that are not 0 of a list, and how many. Lists that are equal by their structure (and `same`) share them.
  /// `many`: how many of the first elements are there (s64[]); kNone: all.
  std::pair<ValueId, Number> positions(NodeContext& n, ValueId flags, ValueId same = ir::kNone, ValueId many = ir::kNone);
  /// A reshape to `to`, of which dimensions may be sizes: extents of `v` go to dimensions of the result. `to` has rooms, `sizes` those that are open.
  /// Both shapes with a factor of its own in place of each open dimension, so that no other dimension of the same room is taken for it.
  struct Marks {
    Shape from = {}, to = {};
  };
  Result<ValueId> reshaped(NodeContext& n, ValueId v, const Shape& to, const std::map<std::size_t, Number>& sizes,
                           const Marks& marks);

  // Around every IR node that import emits
  /// Makes the operands fit for the operator, or refuses it by name.
  Status prepare(NodeContext& n, Op op, std::vector<ValueId>& inputs, Attrs& attrs, std::optional<std::vector<ValueId>>& done);
  /// Notes the extents and numbers of what was emitted; known results become constants.
  Status follow(NodeContext& n, Op op, const std::vector<ValueId>& inputs, const Attrs& attrs, std::vector<ValueId>& results);

  /// While one lives, emitted nodes are as they are: no rule is applied.
  class Plain {
   public:
    explicit Plain(Sizes& s) : s_(s) { ++s_.plain_; }
    ~Plain() { --s_.plain_; }
    Plain(const Plain&) = delete;
    Plain& operator=(const Plain&) = delete;

   private:
    Sizes& s_;
  };
  [[nodiscard]] bool plain() const { return plain_ > 0; }

 private:
  /// A number that is no sum, with its bounds.
  Number term(std::uint64_t key, double least, double most);
  /// a * times + b * times_b
  Number sum(const Number& a, double times, const Number& b, double times_b);
  Number computed(NodeContext& n, Op op, Number out, const Number& a, const Number& b);
  /// a / by where that is a sum again.
  std::optional<Number> quotient(const Number& a, double by);
  std::uint64_t structure(const ir::Graph& g, ValueId v);
  Status pointwise(NodeContext& n, std::vector<ValueId>& inputs);
  Status concatenate(NodeContext& n, const std::vector<ValueId>& inputs, std::size_t axis,
                     std::optional<std::vector<ValueId>>& done);
  Status scatter(NodeContext& n, const std::vector<ValueId>& inputs, const Attrs& attrs, std::optional<std::vector<ValueId>>& done);
  std::optional<Numbers> numbers_of(NodeContext& n, Op op, const std::vector<ValueId>& inputs, ValueId result);

  std::unordered_map<ValueId, Extents> extents_;
  std::unordered_map<ValueId, Numbers> numbers_;                         ///< elements of short lists that follow from sizes
  std::unordered_map<ValueId, Number> counts_;                           ///< by scalar
  std::unordered_map<std::uint64_t, ValueId> by_key_;                    ///< scalars
  std::unordered_map<std::uint64_t, std::pair<double, double>> bounds_;  ///< of terms
  std::set<std::uint64_t> fractions_;                                    ///< terms that may be no whole numbers
  std::unordered_map<ValueId, std::uint64_t> structure_;                 ///< equal ones are equal values
  std::unordered_map<std::uint64_t, std::pair<ValueId, Number>> found_;  ///< positions, by the structure of the flags
  std::uint64_t next_key_ = 1;
  std::map<std::pair<std::uint64_t, std::int64_t>, Number> limited_;  ///< by key of the number, and bound
  std::unordered_map<ValueId, Numbers> raw_;
  std::vector<Limit> limits_;
  int plain_ = 0;
};

/// Some operand has a size that data decide, or one of these operands is a list of numbers that follow from one.
[[nodiscard]] bool sized_operands(NodeContext& n, std::initializer_list<std::size_t> shape_operands = {});
/// Or one of them is a list of numbers that data decide otherwise: the operator bounds them itself, or by what is given.
[[nodiscard]] bool sized_by_data(NodeContext& n, std::initializer_list<std::size_t> shape_operands);
/// May the operator read values whose size data decide?
[[nodiscard]] Status admit_sizes(NodeContext& n);

// Operators on such operands. (sized_ops.cc)
/// "give one: --max-elements y=N ...", where the node's result has no bound.
[[nodiscard]] std::string bound_advice(const NodeContext& n);
Status sized_shape(NodeContext& n, std::size_t start, std::size_t end);
Status sized_size(NodeContext& n);
Status sized_reshape(NodeContext& n);
Status sized_expand(NodeContext& n);
Status sized_tile(NodeContext& n);
Status sized_slice(NodeContext& n);
Status sized_top_k(NodeContext& n);
Status sized_pad(NodeContext& n);
/// Resize to sizes (operand 3) of these dimensions.
Status sized_resize(NodeContext& n, const Ints& axes);
Status sized_range(NodeContext& n);
Status sized_constant_of_shape(NodeContext& n, ValueId value);
/// Indices that may count from the end of a dimension whose size data decide.
[[nodiscard]] ValueId sized_indices(NodeContext& n, ValueId data, ValueId indices, std::size_t axis);
/// a where the condition (bool[]) holds, else b, of one type and rank: dimensions that differ get the size of the one that is taken.
[[nodiscard]] Result<ValueId> sized_choice(NodeContext& n, ValueId condition, ValueId a, ValueId b);
Status non_zero(NodeContext& n);
Status compress(NodeContext& n);
Status unique(NodeContext& n);

}  // namespace octavo::onnx
