// Bounds of sizes that data decide, as somebody gave them (ImportOptions::max_elements): numbers and results are cut to their bounds, and the graph gets what tells
// whether a run keeps them.
#include <algorithm>
#include <string>

#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

std::optional<Sizes::Bound> Sizes::given(NodeContext& n) {
  const auto& bounds = n.importer().options().max_elements;
  if (bounds.empty()) return std::nullopt;
  const auto find = [&](const std::string& name) -> std::optional<Bound> {
    const auto at = bounds.find(name);
    if (at == bounds.end()) return std::nullopt;
    bounds_taken.insert(name);
    return Bound{at->second, name};
  };
  for (const std::string& name : n.proto().output()) {
    if (auto bound = find(name)) return bound;
  }
  return find(n.name());
}

Number Sizes::limited(NodeContext& n, const Number& size, const Bound& bound) {
  if (size.least >= 0 && size.most <= static_cast<double>(bound.most)) return size;
  const auto [at, fresh] = limited_.try_emplace({size.key, bound.most});
  if (!fresh) return at->second;
  const ValueId actual = scalar(n, size);
  const Plain plain(*this);
  Compose c(n);
  const ValueId cut = c.op(Op::min, {c.op(Op::max, {actual, c.integers({}, {0})}), c.integers({}, {bound.most})});
  limits_.push_back({actual, bound});
  at->second = count(cut, std::max(size.least, 0.0), std::min(size.most, static_cast<double>(bound.most)));
  numbers_[cut] = {at->second};  // what operators make of it has bounds too
  return at->second;
}

std::optional<Numbers> Sizes::raw(NodeContext& n, ValueId v) {
  if (v == ir::kNone || open(v) || n.graph().is_constant(v)) return std::nullopt;
  const TensorType type = n.type_of(v);
  const std::int64_t total = ir::count(type.shape);
  const bool whole = type.dtype == DType::s64 || type.dtype == DType::s32;
  if (!whole || type.shape.size() > 1 || total < 1 || total > kMostNumbers) return std::nullopt;
  const auto [at, fresh] = raw_.try_emplace(v);
  if (!fresh) return at->second;
  const Plain plain(*this);
  Compose c(n);
  Numbers out;
  for (std::int64_t i = 0; i < total; ++i) {
    const ValueId flat = c.reshape(c.cast(v, DType::s64), {total});
    const ValueId one = c.reshape(total == 1 ? flat : c.slice(flat, 0, i, i + 1), {});
    if (!c.ok()) return std::nullopt;
    out.push_back(count(one, -kFar, kFar));
  }
  return raw_[v] = out;
}

bool Importer::decided_late(const NodeContext& node) const {
  std::string data;
  return !late_inputs(node, data).empty();
}

Result<ValueId> Importer::bounded(NodeContext& node, const std::string& tensor, ValueId v) {
  const auto at = options_.max_elements.find(tensor);
  if (at == options_.max_elements.end() || v == ir::kNone) return v;
  const Sizes::Bound bound{at->second, tensor};
  if (sizes_.open(v)) {
    sizes_.bounds_taken.insert(tensor);
    const Sizes::Extents extents = sizes_.extents(v);
    for (const auto& [axis, count] : extents) {
      const Number size = sizes_.extent(graph(), v, axis), cut = sizes_.limited(node, size, bound);
      if (cut.key != size.key) v = sizes_.sized(node, v, axis, cut);
    }
    return v;
  }
  auto numbers = sizes_.elements(node, v);
  if (!numbers || graph().is_constant(v)) numbers = sizes_.raw(node, v);
  if (!numbers) return v;
  sizes_.bounds_taken.insert(tensor);
  for (Number& one : *numbers) one = sizes_.limited(node, one, bound);
  const TensorType type = graph().type(v);
  Compose c(node);
  const ValueId list = type.shape.empty() ? sizes_.scalar(node, numbers->front()) : sizes_.list(node, *numbers);
  return c.value(c.cast(list, type.dtype));
}

Status Importer::bounds_used() const {
  for (const auto& [name, most] : options_.max_elements) {
    if (sizes_.bounds_taken.contains(name)) continue;
    return fail(
        ErrorKind::usage,
        fmt::format(
            "a bound of {} is given for \"{}\", but the model has no tensor or node of this name whose size or numbers data "
            "decide\n  to do: leave it out (--max-elements, max_elements)",
            most, name));
  }
  return {};
}

}  // namespace octavo::onnx
