// sink-rows:  gemm(reshape(transpose(x, p)), w) ==> rows of gemm(reshape(transpose(x, p')), w) in the order p wants
//   Why    attention modules that compute sequence first exchange batch and sequence in front of a linear layer and again behind it. Behind the layer
//          the exchange meets the other one, or becomes strides of attention's operands; in front of it, it is a pass over memory.
//   Exact  bit for bit: each row of a product is computed from the same row; rows only move.
//   Needs  the rows are two groups of x's axes that change places; codes in between have one quantizer for all; what stands behind
//          the product, after pointwise operators with one operand a column, is reshaped and moved until a transpose stands there, and is no output;
//          nothing else reads what stands between the transpose and the product.
//   Order  after matmul-as-gemm has made a gemm of a linear layer; before merge-transpose, merge-split and drop-identity, which join what is left.
#include <algorithm>
#include <optional>
#include <vector>

#include "passes/behind_gemm.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;

constexpr int kFarthest = 8;  // operators that may stand between the product and a transpose

/// Codes and numbers with one quantizer for all.
bool recodes(const ir::Node& n) {
  return (n.op == Op::quantize || n.op == Op::dequantize || n.op == Op::view) && n.quantizer && n.quantizer->per_tensor();
}

/// One operand of `n` is `v`, and each other one has one element, or one a column of `v`'s matrix.
bool works_on_rows(const ir::Graph& g, const ir::Node& n, ir::ValueId v) {
  if (recodes(n)) return true;
  if (!moves_freely(n.op) || n.outputs.size() != 1 || g.type(n.outputs[0]).shape != g.type(v).shape) return false;
  const std::int64_t columns = g.type(v).shape.back();
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId other) {
    if (other == v || other == ir::kNone) return true;
    const ir::Shape& own = g.type(other).shape;
    return ir::count(own) == 1 || one_a_column(own, columns);
  });
}

/// True if everything that reads `v` moves it until a transpose stands there.
bool is_transposed_later(const ir::Graph& g, ir::ValueId v, int far) {
  if (far == 0 || g.output_uses(v) > 0 || g.users(v).empty()) return false;
  return std::all_of(g.users(v).begin(), g.users(v).end(), [&](const auto& user) {
    const ir::Node& n = g.node(user.first);
    if (n.op == Op::transpose) return true;
    const bool moves = n.op == Op::reshape || n.op == Op::slice || (n.op == Op::gather && g.is_constant(n.inputs[1])) ||
                       (!g.type(v).shape.empty() && works_on_rows(g, n, v));
    return moves && n.outputs.size() == 1 && is_transposed_later(g, n.outputs[0], far - 1);
  });
}

/// How many of the transposed axes the rows are, if the last ones make up `depth` columns.
std::optional<std::size_t> rows_of(const ir::Shape& transposed, std::int64_t depth) {
  std::size_t rows = transposed.size();
  for (std::int64_t columns = 1; columns < depth && rows > 0;) columns *= transposed[--rows];
  std::int64_t columns = 1;
  for (std::size_t d = rows; d < transposed.size(); ++d) columns *= transposed[d];
  return columns == depth ? std::optional(rows) : std::nullopt;
}

/// Two groups of axes, each in order, that changed places. Axes of one element are nowhere.
bool change_places(const Ints& axes, const ir::Shape& of) {
  int descents = 0;
  Ints wide;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(wide),
               [&](std::int64_t d) { return of[static_cast<std::size_t>(d)] != 1; });
  for (std::size_t i = 1; i < wide.size(); ++i) descents += wide[i] < wide[i - 1] ? 1 : 0;
  return descents == 1 && wide.front() > wide.back();
}

struct SinkRows final : rewrite::Rule {
  std::string_view name() const override { return "sink-rows"; }
  std::string_view equation() const override {
    return "gemm(reshape(transpose(x, p)), w) ==> rows of gemm(reshape(transpose(x, p')), w) in the order p wants";
  }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::gemm) return rewrite::no_match();
    ir::ValueId read = n.inputs[0];
    while (recodes(g.producer(read)) && g.use_count(read) == 1) read = g.producer(read).inputs[0];
    if (g.producer(read).op != Op::reshape || g.use_count(read) != 1) return rewrite::no_match();
    const ir::NodeId rows = g.value(read).producer;
    const ir::ValueId transposed = g.node(rows).inputs[0];
    if (g.producer(transposed).op != Op::transpose || g.use_count(transposed) != 1) return rewrite::no_match();
    const ir::Node turn = g.producer(transposed);
    const ir::Shape matrix = g.type(read).shape, product = g.type(n.outputs[0]).shape, x = g.type(turn.inputs[0]).shape;
    if (matrix.size() != 2 || product.size() != 2 || product[0] != matrix[0] || ir::count(product) == 0) return rewrite::no_match();
    const Ints p = ir::get_ints(turn.attrs, "perm");
    const auto count = rows_of(g.type(transposed).shape, matrix[1]);
    if (!count) return rewrite::no_match();
    const Ints wanted(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(*count));
    if (!change_places(wanted, x)) return rewrite::no_match();
    if (n.inputs.size() > 2 && n.inputs[2] != ir::kNone) {  // a bias that differs by row would have to move too
      const std::int64_t elements = ir::count(g.type(n.inputs[2]).shape);
      if (elements != product[1] && elements != 1) return rewrite::no_match();
    }
    // The last of the pointwise operators that compute row by row.
    ir::ValueId last = n.outputs[0];
    while (g.use_count(last) == 1 && g.users(last).size() == 1) {
      const ir::Node& next = g.node(g.users(last)[0].first);
      if (!works_on_rows(g, next, last)) break;
      last = next.outputs[0];
    }
    const auto reshaped = [&](const auto& user) { return g.node(user.first).op == Op::reshape; };
    if (!is_transposed_later(g, last, kFarthest) || !std::all_of(g.users(last).begin(), g.users(last).end(), reshaped))
      return rewrite::no_match();

    Ints sorted = wanted, order = wanted, dims;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < wanted.size(); ++i) order[i] = std::find(sorted.begin(), sorted.end(), wanted[i]) - sorted.begin();
    for (const std::int64_t d : sorted) dims.push_back(x[static_cast<std::size_t>(d)]);
    order.push_back(static_cast<std::int64_t>(sorted.size()));
    dims.push_back(product[1]);
    Ints inner = sorted;
    inner.insert(inner.end(), p.begin() + static_cast<std::ptrdiff_t>(*count), p.end());
    const ir::ValueId turned = ir::add_inferred(g, Op::transpose, {turn.inputs[0]}, {{"perm", inner}}, turn.origin);
    g.value(turned).range = g.value(transposed).range;
    g.node(rows).inputs[0] = turned;
    const auto readers = g.users(last);
    const ir::ValueId split = ir::add_inferred(g, Op::reshape, {last}, {{"shape", dims}}, turn.origin);
    const ir::ValueId moved = ir::add_inferred(g, Op::transpose, {split}, {{"perm", order}}, turn.origin);
    g.value(split).range = g.value(moved).range = g.value(last).range;
    for (const auto& [user, slot] : readers) g.node(user).inputs[0] = moved;  // reshapes
    g.touch();
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_rows() {
  static const SinkRows rule;
  return rule;
}

}  // namespace octavo::passes
