#include "cuda/families/attention/attention_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

bool product(const region::Stage& s) {
  return s.anchor.op == ir::Op::matmul && !s.anchor.weights && s.anchor.inputs.size() == 2 && !s.program.outputs.empty() &&
         !s.stores.empty();
}

}  // namespace

std::array<std::int64_t, 2> AttentionShape::batch_strides(const region::TensorRef& t) const {
  const auto along = [&](std::size_t d) { return d < rank ? stride_along(t, rank, d) : 0; };
  return {along(batch[0]), along(batch[1])};
}

bool AttentionShape::wide_offsets() const {
  const auto reach = [](const region::TensorRef& t) {
    std::int64_t end = 16;
    for (std::size_t d = 0; d < t.dims.size(); ++d) end += (t.dims[d] - 1) * std::abs(t.strides[d]) * region::element_bytes(t);
    return end;
  };
  std::int64_t most = 0;
  for (const region::TensorRef* t : {&q, &k, &v}) most = std::max(most, reach(*t));
  for (const region::TensorRef& t : product.stores) most = std::max(most, reach(t));
  for (const region::Operand& o : product.operands) most = std::max(most, reach(o.ref));
  return most > INT32_MAX;
}

bool is_attention(const region::Region& r) {
  return !r.independent && r.stages.size() == 3 && product(r.stages[0]) && product(r.stages[2]) &&
         r.stages[1].anchor.op == ir::Op::softmax && r.stages[1].anchor.inputs.size() == 1 &&
         !r.stages[1].program.outputs.empty() && !r.stages[1].stores.empty();
}

bool product_of_halves(const region::Region& attention) {
  const region::Anchor& a = attention.stages[0].anchor;
  return !a.integer && (a.inputs[0].dtype == ir::DType::f16 || a.inputs[0].dtype == ir::DType::bf16);
}

Result<AttentionShape> read_attention(const region::Region& r, const region::Plan& plan) {
  const region::Stage &scores = r.stages[0], &softmax = r.stages[1], &last = r.stages[2];
  const auto reads = [&](std::size_t stage, std::size_t from) {
    const auto id = region::forwarded_from(r, stage, r.stages[stage].anchor.inputs[0]);
    return id && *id == region::StoreId{from, 0} && r.stages[from].stores.size() == 1;
  };
  if (!reads(1, 0) || !reads(2, 1) || region::edges_of(r).size() != 2)
    return refuse("what is read within", "something else",
                  "the scores by softmax alone, its result by the left side of the product alone");
  const region::TensorRef &q = scores.anchor.inputs[0], &k = scores.anchor.inputs[1], &p = last.anchor.inputs[0],
                          &v = last.anchor.inputs[1];
  const std::size_t rank = scores.space.size();
  for (const region::TensorRef* t : {&q, &k, &v}) {
    if (rank < 2 || t->dims.size() < 2 || t->dims.size() > rank || last.space.size() != rank || softmax.space != scores.space)
      return refuse("shapes", fmt::format("{} and {}", ir::to_string(scores.space), ir::to_string(last.space)),
                    "equally many dimensions");
  }
  if (!std::equal(scores.space.begin(), scores.space.end() - 1, last.space.begin()))
    return refuse("batches of the scores", ir::to_string(scores.space), ir::to_string(last.space));
  if (const std::int64_t axis = softmax.anchor.as<ir::Along>().axis; axis != static_cast<std::int64_t>(rank) - 1)
    return refuse("axis of softmax", axis, "the last");
  AttentionShape a;
  a.rank = rank;
  a.open = (scores.open >> (rank - 2) & 3) != 0;
  a.queries = scores.space[rank - 2], a.keys = scores.space[rank - 1], a.columns = last.space[rank - 1], a.features = q.dims.back();
  const auto extents = [](const region::TensorRef& m, std::int64_t rows, std::int64_t columns) {
    return m.dims[m.dims.size() - 2] == rows && m.dims.back() == columns;
  };
  if (!extents(q, a.queries, a.features) || !extents(k, a.features, a.keys) || !extents(v, a.keys, a.columns))
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  if (ir::count(scores.space) == 0 || a.features == 0 || a.columns == 0) return refuse("elements", 0, "some");
  std::vector<std::size_t> batch;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    if (scores.space[d] != 1 || (scores.open >> d & 1) != 0) batch.push_back(d);
  }
  if (batch.size() > 2) return refuse("dimensions of the batch", batch.size(), "at most 2");
  a.batch = {rank, rank};
  // The number of outer ones is in no text.
  const bool outer_alone = batch.size() == 1 && (scores.open >> batch[0] & 1) != 0;
  for (std::size_t i = 0; i < batch.size(); ++i) a.batch[outer_alone ? 0 : 2 - batch.size() + i] = batch[i];
  if (a.batch[0] < rank) a.outer = scores.space[a.batch[0]];
  if (a.batch[1] < rank) a.inner = scores.space[a.batch[1]];
  for (const std::int64_t n : {a.matrices() * a.queries, a.matrices() * a.keys, a.features, a.columns}) {
    if (n > INT32_MAX / 4) return refuse("rows, columns or bytes of depth", n, "less than 2^29");
  }
  a.q = q, a.k = k, a.p = p, a.v = v;
  const auto element = [&](const region::Stage& of, ElementProgram& to) -> Reasons {
    to.program = of.program;
    const std::vector<char> used = loaded(of.program);
    for (std::size_t i = 0; i < of.operands.size(); ++i) {
      to.operands.push_back(access_of(of.operands[i].ref, of.operands[i].div, of.space, of.open));
      const ElementAccess& at = to.operands.back();
      if (used[i] == 0) continue;
      if (std::any_of(at.div.begin(), at.div.end(), [](std::int64_t d) { return d != 1; }))
        return unmet("an operand that repeats", ir::to_string(at.div),
                     "one element for each of the space, or for all of a dimension");
      if (load_function(at.dtype).empty())
        return unmet("type of an operand", ir::name_of(at.dtype), "one that the GPU's programs read");
    }
    return {};
  };
  if (Reasons why = element(scores, a.scores); !why.empty()) return refuse(std::move(why));
  if (Reasons why = element(softmax, a.softmax); !why.empty()) return refuse(std::move(why));

  region::Stage tail = last;
  tail.space = {a.outer, a.columns, a.inner, a.queries};
  const std::array<std::size_t, 4> from{a.batch[0], rank - 1, a.batch[1], rank - 2};
  const auto place = [&](region::TensorRef& t, const std::vector<std::int64_t>& strides) {
    t.dims = tail.space;
    t.strides.clear();
    for (const std::size_t d : from) t.strides.push_back(d < rank ? strides[d] : 0);
    const std::uint32_t open = t.open.strides;
    t.open.strides = 0;
    for (std::size_t i = 0; i < 4; ++i) t.open.strides |= from[i] < rank ? (open >> from[i] & 1) << i : 0;
  };
  tail.open = 0;
  for (std::size_t i = 0; i < 4; ++i) tail.open |= from[i] < rank ? (last.open >> from[i] & 1) << i : 0;
  for (region::Operand& o : tail.operands) {
    const ElementAccess at = access_of(o.ref, o.div, last.space, last.open);
    place(o.ref, at.strides);
    o.div.clear();
    for (const std::size_t d : from) o.div.push_back(d < rank ? at.div[d] : 1);
  }
  for (region::TensorRef& t : tail.stores) place(t, access_of(t, {}, last.space, last.open).strides);
  a.product = tail_of(tail, plan);
  return a;
}

}  // namespace octavo::cuda
