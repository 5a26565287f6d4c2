#include "ir/infer.h"

#include <cmath>

namespace octavo::ir {
namespace detail {
namespace {

template <class T>
const T* find_as(const Attrs& attrs, std::string_view key, bool& present) {
  const auto it = attrs.find(key);
  present = it != attrs.end();
  return present ? std::get_if<T>(&it->second) : nullptr;
}

}  // namespace

std::string Inference::where() const {
  std::string out = fmt::format("typing {} node", name_of(node_.op));
  if (!node_.name.empty()) out += fmt::format(" \"{}\"", node_.name);
  for (std::size_t i = 0; i < operands(); ++i)
    out += fmt::format("{}{}", i == 0 ? " of " : ", ", has(i) ? to_string(in(i)) : "nothing");
  return out + ": ";
}

Result<std::vector<std::int64_t>> Inference::ints(std::string_view key, std::size_t size, std::int64_t fallback) const {
  bool present = false;
  const auto* list = find_as<std::vector<std::int64_t>>(node_.attrs, key, present);
  if (!present) return std::vector<std::int64_t>(size, fallback);
  if (list == nullptr) return error("attribute {} is not a list of integers", key);
  if (list->size() != size) return error("attribute {} has {} entries, needs {}", key, list->size(), size);
  return *list;
}

Result<std::vector<std::int64_t>> Inference::ints(std::string_view key) const {
  bool present = false;
  const auto* list = find_as<std::vector<std::int64_t>>(node_.attrs, key, present);
  if (list == nullptr) return error("attribute {} is {}", key, present ? "not a list of integers" : "missing");
  return *list;
}

Result<std::int64_t> Inference::integer(std::string_view key, std::int64_t fallback) const {
  bool present = false;
  const auto* value = find_as<std::int64_t>(node_.attrs, key, present);
  if (!present) return fallback;
  if (value == nullptr) return error("attribute {} is not an integer", key);
  return *value;
}

Result<std::string> Inference::text(std::string_view key, std::string_view fallback) const {
  bool present = false;
  const auto* value = find_as<std::string>(node_.attrs, key, present);
  if (!present) return std::string(fallback);
  if (value == nullptr) return error("attribute {} is not a text", key);
  return *value;
}

Result<std::int64_t> Inference::axis(std::string_view key, std::int64_t rank, std::int64_t fallback) const {
  OCTAVO_TRY(const std::int64_t axis, integer(key, fallback));
  if (axis < 0 || axis >= rank)
    return error("attribute {} is {}, must be in [0, {}) (count negative ones from the end first)", key, axis, rank);
  return axis;
}

Status Inference::number(std::string_view key) const {
  const auto it = node_.attrs.find(key);
  if (it == node_.attrs.end() || std::holds_alternative<double>(it->second) || std::holds_alternative<std::int64_t>(it->second))
    return {};
  return error("attribute {} is not a number", key);
}

Status Inference::need_rank(std::size_t i, std::int64_t least, std::int64_t most) const {
  if (rank(i) >= least && rank(i) <= most) return {};
  if (least == most) return error("operand {} has rank {}, needs {}", i, rank(i), least);
  return error("operand {} has rank {}, needs {} to {}", i, rank(i), least, most);
}

Status Inference::need_float(std::size_t i) const {
  if (is_float(in(i).dtype)) return {};
  return error("operand {} is {}, needs a float type", i, name_of(in(i).dtype));
}

Status Inference::check_size(const TensorType& t) const {
  constexpr std::int64_t kLimit = std::int64_t{1} << 40;
  std::int64_t elements = 1;
  for (const std::int64_t d : t.shape) {
    if (d < 0) return error("the result {} has a negative dimension", to_string(t));
    if (d > 0 && elements > kLimit / d) return error("the result {} has more than 2^40 elements", to_string(t));
    elements *= d;
  }
  if (t.shape.size() > 32) return error("the result has rank {}, at most 32 is supported", t.shape.size());
  return {};
}

Result<Shape> broadcast(const Inference& at, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t da = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const std::int64_t db = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (da != db && da != 1 && db != 1)
      return at.error("{} and {} do not broadcast: {} against {}", to_string(a), to_string(b), da, db);
    out[i] = da == 1 ? db : da;
  }
  return out;
}

Status check_quantizer(const Quantizer& q, const Shape& shape) {
  const auto bad = [&](std::string why) {
    return fail(ErrorKind::bad_model, fmt::format("quantizer {} on {}: {}", to_string(q), to_string(shape), why));
  };
  if (q.lo() == q.hi()) return bad(fmt::format("{} is not a type of codes", name_of(q.type)));
  if (q.arith != DType::f32 && q.arith != DType::f16 && q.arith != DType::bf16)
    return bad("arithmetic type must be f32, f16 or bf16");
  if (q.scale.size() != q.zero_point.size())
    return bad(fmt::format("{} scales, {} zero points", q.scale.size(), q.zero_point.size()));
  if (q.axis < -1 || q.axis >= static_cast<int>(shape.size()))
    return bad(fmt::format("axis {} outside rank {}", q.axis, shape.size()));
  const std::size_t entries = q.per_tensor() ? 1 : static_cast<std::size_t>(shape[static_cast<std::size_t>(q.axis)]);
  if (q.scale.size() != entries) return bad(fmt::format("{} entries, needs {}", q.scale.size(), entries));
  for (const float s : q.scale) {
    if (!(s > 0) || !std::isfinite(s)) return bad(fmt::format("scale {} is not positive and finite", s));
  }
  for (const std::int32_t zp : q.zero_point) {
    if (zp < q.lo() || zp > q.hi()) return bad(fmt::format("zero point {} outside {}..{}", zp, q.lo(), q.hi()));
  }
  return {};
}

}  // namespace detail

Result<std::vector<TensorType>> infer(const Graph& g, const Node& node) {
  const detail::Inference at(g, node);
  const OpInfo& row = info(node.op);
  const auto arity = static_cast<int>(node.inputs.size());
  for (const ValueId v : node.inputs) {
    if (v != kNone && (v < 0 || v >= g.value_capacity())) {
      return fail(ErrorKind::internal, fmt::format("typing {} node \"{}\": operand %{} does not exist", row.name, node.name, v));
    }
  }
  if (arity < row.min_inputs || (row.max_inputs >= 0 && arity > row.max_inputs)) {
    return at.error("{} operands, needs {}", arity,
                    row.max_inputs < 0                 ? fmt::format("{} or more", row.min_inputs)
                    : row.min_inputs == row.max_inputs ? std::to_string(row.min_inputs)
                                                       : fmt::format("{} to {}", row.min_inputs, row.max_inputs));
  }
  const std::size_t needed = row.max_inputs < 0 ? node.inputs.size() : static_cast<std::size_t>(row.min_inputs);
  for (std::size_t i = 0; i < needed; ++i) {
    if (node.inputs[i] == kNone) return at.error("operand {} is absent but required", i);
  }

  const auto types = [&]() -> Result<detail::Types> {
    switch (node.op) {
      case Op::input:
      case Op::constant: return fail(ErrorKind::internal, "the type of an input or constant is given, not inferred");
      case Op::view:
      case Op::quantize:
      case Op::dequantize:
      case Op::quantize_rt:
      case Op::dequantize_rt:
      case Op::dynamic_quantize: return detail::infer_quantization(at);
      case Op::conv:
      case Op::conv_transpose:
      case Op::gemm:
      case Op::matmul: return detail::infer_weighted(at);
      case Op::max_pool:
      case Op::avg_pool: return detail::infer_window(at);
      case Op::math:
      case Op::bitwise:
      case Op::bit_cast:
      case Op::scatter:
      case Op::top_k:
      case Op::cumulate:
      case Op::max_pool_index:
      case Op::grid_sample:
      case Op::roi_align:
      case Op::deform_conv:
      case Op::recurrent:
      case Op::det:
      case Op::non_zero:
      case Op::non_max_suppression: return detail::infer_other(at);
      default: break;
    }
    if (has_trait(node.op, kPointwise)) return detail::infer_pointwise(at);
    if (has_trait(node.op, kAnchor)) return detail::infer_reduction(at);
    return detail::infer_moving(at);
  }();
  OCTAVO_CHECK(types);
  for (const TensorType& t : *types) OCTAVO_CHECK(at.check_size(t));
  return *types;
}

}  // namespace octavo::ir
