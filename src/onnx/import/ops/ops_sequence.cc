// Sequences of tensors. Import knows which tensors a sequence holds, so that it is no value of the graph: reading an element gives the tensor itself.
// Positions must be known at import. Sequences as inputs or outputs of a model are not supported.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

using Sequence = Importer::Sequence;

/// `whole`: data must not decide how many tensors it holds.
Result<Sequence> sequence(NodeContext& n, int i, bool whole = true) {
  if (i < n.proto().input_size()) {
    const Sequence* found = n.importer().sequence(n.proto().input(i));
    if (found != nullptr && whole && found->length != ir::kNone)
      return n.unsupported("data decide how many tensors the sequence \"{}\" holds; join them first (ConcatFromSequence)",
                           n.proto().input(i));
    if (found != nullptr) return *found;
  }
  return n.unsupported("its operand {} is a sequence that is not made in the same graph", i);
}

/// Operand i, or `fallback`: in [0, most].
Result<std::size_t> place(NodeContext& n, std::size_t i, std::size_t fallback, std::size_t most) {
  if (!n.has(i)) return fallback;
  OCTAVO_TRY(const std::int64_t at, n.constant_integer(i, "the position"));
  const auto count = static_cast<std::int64_t>(most);
  if (at < -count || at > count) return n.bad("position {} of {}", at, count);
  return static_cast<std::size_t>(at < 0 ? at + count : at);
}

Status give(NodeContext& n, Sequence s) {
  n.importer().set_sequence(n.proto().output(0), std::move(s));
  return {};
}

Status construct(NodeContext& n) {
  Sequence s;
  for (std::size_t i = 0; i < n.operands(); ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
    s.push_back({n.in(i), n.declared(i)});
  }
  return give(n, std::move(s));
}

Status empty(NodeContext& n) {
  n.ignore({"dtype"});
  return give(n, {});
}

Status insert(NodeContext& n) {
  OCTAVO_TRY(Sequence s, sequence(n, 0));
  if (!n.has(1)) return n.unsupported("it inserts something that is no tensor");
  OCTAVO_TRY(const std::size_t at, place(n, 2, s.size(), s.size()));
  s.insert(s.begin() + static_cast<std::ptrdiff_t>(at), {n.in(1), n.declared(1)});
  return give(n, std::move(s));
}

Status erase(NodeContext& n) {
  OCTAVO_TRY(Sequence s, sequence(n, 0));
  if (s.empty()) return n.bad("the sequence is empty");
  OCTAVO_TRY(const std::size_t at, place(n, 1, s.size() - 1, s.size()));
  if (at >= s.size()) return n.bad("position {} of {}", at, s.size());
  s.erase(s.begin() + static_cast<std::ptrdiff_t>(at));
  return give(n, std::move(s));
}

Status element(NodeContext& n) {
  OCTAVO_TRY(const Sequence s, sequence(n, 0));
  OCTAVO_TRY(const std::size_t at, place(n, 1, 0, s.size()));
  if (at >= s.size()) return n.bad("position {} of {}", at, s.size());
  n.set(0, s[at].value);
  n.declare(0, s[at].type);
  return {};
}

Status length(NodeContext& n) {
  OCTAVO_TRY(const Sequence s, sequence(n, 0, false));
  n.set(0, s.length != ir::kNone ? s.length : n.add_constant(Tensor::scalar(static_cast<std::int64_t>(s.size()))));
  n.declare(0, DType::s64);
  return {};
}

Status concat(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const Sequence s, sequence(n, 0, false));
  if (s.empty()) return n.unsupported("it joins a sequence without elements");
  const bool fresh = n.attr_int("new_axis", 0) != 0;
  const auto rank = static_cast<std::int64_t>(n.shape_of(s[0].value).size()) + (fresh ? 1 : 0);
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), rank));
  std::vector<ValueId> parts;
  for (const Importer::Given& g : s) {
    Shape shape = n.shape_of(g.value);
    if (fresh) shape.insert(shape.begin() + axis, 1);
    parts.push_back(c.reshape(g.value, shape));
  }
  n.declare(0, s[0].type);
  const ValueId all = c.concat(parts, axis);
  OCTAVO_CHECK(c.status());
  if (s.length == ir::kNone) return n.result(all);
  // The first ones are there: the first elements of the result.
  Sizes& sizes = n.importer().sizes();
  const std::int64_t extent = n.shape_of(parts[0])[static_cast<std::size_t>(axis)];
  for (const ValueId part : parts) {
    if (sizes.open(part) || n.shape_of(part) != n.shape_of(parts[0]))
      return n.unsupported("data decide how many tensors it joins, and their shapes differ");
  }
  const Number count = sizes.count(s.length, 0, static_cast<double>(s.size()));
  n.set(0, sizes.sized(n, all, static_cast<std::size_t>(axis), sizes.mul(n, count, Sizes::number(extent))));
  return {};
}

/// Parts of one element, which is left out unless keepdims, or of the sizes that operand 1 gives.
Status split(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  const bool keep = n.attr_int("keepdims", 1) != 0 || n.has(1);
  const std::int64_t extent = n.shape(0)[static_cast<std::size_t>(axis)];
  if (n.importer().sizes().open(n.in(0), static_cast<std::size_t>(axis)))
    return n.unsupported("it splits dimension {}, whose size data decide", axis);
  Ints sizes{1};
  if (n.has(1)) {
    OCTAVO_TRY(sizes, n.constant_ints(1, "the sizes"));
    if (sizes.empty() || std::any_of(sizes.begin(), sizes.end(), [](std::int64_t v) { return v < 0; }))
      return n.bad("sizes {}", ir::to_string(sizes));
  }
  const bool equal = !n.has(1) || n.shape(1).empty();
  if (equal && sizes[0] < 1) return n.bad("parts of {} elements", sizes[0]);
  constexpr std::int64_t kMost = 4096;
  if (equal && extent / sizes[0] > kMost) return n.unsupported("{} parts; at most {} are supported", extent / sizes[0], kMost);
  Sequence s;
  std::int64_t at = 0;
  for (std::size_t i = 0; equal ? at < extent : i < sizes.size(); ++i) {
    const std::int64_t size = sizes[equal ? 0 : i], left = extent - at;
    if (!equal && size > left) return n.bad("sizes {} of {} elements", ir::to_string(sizes), extent);
    const std::int64_t end = at + std::min(size, left);
    ValueId part = c.slice(n.in(0), axis, at, end);
    if (!keep) {
      Shape shape = c.shape(part);
      shape.erase(shape.begin() + axis);
      part = c.reshape(part, shape);
    }
    s.push_back({part, n.declared(0)});
    at = end;
  }
  if (at != extent) return n.bad("sizes {} of {} elements", ir::to_string(sizes), extent);
  OCTAVO_CHECK(c.status());
  return give(n, std::move(s));
}

constexpr std::array kSequenceRows{
    OpRow{"SequenceConstruct", "", 11, 0, 1, -1, construct}, OpRow{"SequenceEmpty", "", 11, 0, 0, 0, empty},
    OpRow{"SequenceInsert", "", 11, 0, 0, 3, insert},        OpRow{"SequenceErase", "", 11, 0, 0, 2, erase},
    OpRow{"SequenceAt", "", 11, 0, 0, 2, element},           OpRow{"SequenceLength", "", 11, 0, 0, 1, length},
    OpRow{"ConcatFromSequence", "", 11, 0, 0, 1, concat},    OpRow{"SplitToSequence", "", 11, 0, 1, 2, split},
};

}  // namespace

Family sequence_ops() {
  return kSequenceRows;
}

}  // namespace octavo::onnx
