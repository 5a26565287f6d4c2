// Operators that move or repeat elements: transposes, reshapes, concat, pad, gathers, tiles, and those without effect.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/registry.h"
#include "onnx/import/sizes.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

Status identity(NodeContext& n) {
  if (!n.has(0)) {
    const Importer::Sequence* s = n.proto().input_size() == 0 ? nullptr : n.importer().sequence(n.proto().input(0));
    if (s == nullptr) return n.bad("input 0 is missing");
    n.importer().set_sequence(n.proto().output(0), Importer::Sequence(*s));
    return {};
  }
  return n.result(n.in(0));
}

/// Inference form: the data passes. Training mode and a used mask are not covered.
Status dropout(NodeContext& n) {
  n.ignore({"ratio", "seed", "is_test", "consumed_inputs"});
  if (n.has(2)) {
    OCTAVO_TRY(const double training, n.constant_scalar(2, "training_mode"));
    if (training != 0) return n.unsupported("training mode; export the model for inference (model.eval())");
  }
  if (n.wants(1) && sized_operands(n)) return n.unsupported("its mask, of a tensor whose size data decide");
  if (n.wants(1)) {  // nothing is dropped
    Tensor mask(n.opset() < 10 ? DType::f32 : DType::boolean, n.shape(0));
    if (n.opset() < 10) {
      for (float& v : mask.mutable_data<float>()) v = 1;
    } else {
      for (std::uint8_t& v : mask.mutable_data<std::uint8_t>()) v = 1;
    }
    n.set(1, n.add_constant(std::move(mask)));
  }
  return n.result(n.in(0));
}

Status transpose(NodeContext& n) {
  const std::int64_t rank = n.rank(0);
  Ints perm = n.attr_ints("perm");
  if (perm.empty()) {
    for (std::int64_t i = rank; i-- > 0;) perm.push_back(i);
  }
  if (std::is_sorted(perm.begin(), perm.end()) && static_cast<std::int64_t>(perm.size()) == rank) {
    OCTAVO_CHECK(n.axes(perm, rank));
    return n.result(n.in(0));
  }
  return n.result(n.emit(Op::transpose, {n.in(0)}, {{"perm", perm}}));
}

/// 0 copies the dimension (unless allowzero), -1 takes what is left.
Status reshape(NodeContext& n) {
  if (sized_operands(n, {1})) return sized_reshape(n);
  OCTAVO_TRY(Ints shape, n.constant_ints(1, "the target shape"));
  const bool allow_zero = n.attr_int("allowzero", 0) != 0;
  const Shape from = n.shape(0);
  OCTAVO_TRY(const std::int64_t total, checked_count(from, n.where()));
  std::int64_t known = 1;
  int unknown = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allow_zero) {
      if (i >= from.size())
        return n.bad("target shape {} copies dimension {}, but the data is {}", ir::to_string(shape), i, ir::to_string(from));
      shape[i] = from[i];
    }
    if (shape[i] == -1) {
      if (unknown >= 0) return n.bad("target shape {} has two unknown dimensions", ir::to_string(shape));
      unknown = static_cast<int>(i);
    } else if (shape[i] < 0 || (shape[i] > 0 && known > (std::int64_t{1} << 40) / shape[i])) {
      return n.bad("target shape {} has an impossible dimension {}", ir::to_string(shape), shape[i]);
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0) {
    if (known == 0 || total % known != 0)
      return n.bad("{} elements do not divide into the target shape {}", total, ir::to_string(shape));
    shape[static_cast<std::size_t>(unknown)] = total / known;
  }
  return n.result(n.reshape(n.in(0), shape));
}

Status flatten(NodeContext& n) {
  const std::int64_t given = n.attr_int("axis", 1);
  const std::int64_t rank = n.rank(0);
  if (given < -rank || given > rank) return n.bad("axis {} is outside [{}, {}]", given, -rank, rank);
  const std::int64_t axis = given < 0 ? given + rank : given;
  Shape shape{1, 1};
  for (std::int64_t i = 0; i < rank; ++i) shape[i < axis ? 0 : 1] *= n.shape(0)[static_cast<std::size_t>(i)];
  return n.result(n.reshape(n.in(0), shape));
}

/// Axes are an attribute up to opset 12 and an input from 13.
Result<Ints> squeeze_axes(NodeContext& n) {
  if (n.opset() < 13) return n.attr_ints("axes");
  if (!n.has(1)) return Ints{};
  return n.constant_ints(1, "axes");
}

Status squeeze(NodeContext& n) {
  OCTAVO_TRY(Ints axes, squeeze_axes(n));
  OCTAVO_TRY(axes, n.axes(axes, n.rank(0)));
  Shape shape;
  for (std::size_t i = 0; i < n.shape(0).size(); ++i) {
    const std::int64_t d = n.shape(0)[i];
    const bool named = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    if (named && d != 1) return n.bad("axis {} of {} is {}, only dimensions of 1 can be squeezed", i, ir::to_string(n.shape(0)), d);
    if (named || (axes.empty() && d == 1)) continue;
    shape.push_back(d);
  }
  return n.result(n.reshape(n.in(0), shape));
}

Status unsqueeze(NodeContext& n) {
  OCTAVO_TRY(Ints axes, squeeze_axes(n));
  OCTAVO_TRY(axes, n.axes(axes, n.rank(0) + static_cast<std::int64_t>(axes.size())));
  Shape shape = n.shape(0);
  for (const std::int64_t a : axes) shape.insert(shape.begin() + a, 1);
  return n.result(n.reshape(n.in(0), shape));
}

Status concat(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 1), n.rank(0)));
  std::vector<ValueId> parts;
  for (std::size_t i = 0; i < n.operands(); ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
    parts.push_back(n.in(i));
  }
  if (parts.size() == 1) return n.result(parts[0]);
  return n.result(n.emit(Op::concat, parts, {{"axis", axis}}));
}

/// The data repeated beyond its borders: a gather along each dimension that grows.
Status wrapped_pad(NodeContext& n, ValueId x, const Ints& pads) {
  Compose c(n);
  const Shape from = n.shape_of(x);
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::int64_t before = pads[d], count = from[d] + before + pads[d + from.size()];
    if (count == from[d]) continue;
    if (from[d] == 0 || count > (std::int64_t{1} << 24)) return n.bad("dimension {} of {} is wrapped to {}", d, from[d], count);
    Ints index;
    for (std::int64_t i = 0; i < count; ++i) index.push_back(((i - before) % from[d] + from[d]) % from[d]);
    x = c.gather(x, c.integers({count}, index), static_cast<std::int64_t>(d));
  }
  return c.finish(x);
}

/// A pad value computed at run time: selected wherever padding with a mask says so.
Status pad_with_value(NodeContext& n, ValueId x, const Ints& pads) {
  Compose c(n);
  if (ir::count(n.shape(2)) != 1) return n.bad("the pad value is {}, needs one element", ir::to_string(n.type(2)));
  const Attrs zeros{{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}};
  const Shape from = n.shape_of(x);
  const ValueId inside = c.op(Op::pad, {c.filled(DType::u8, from, 1)}, zeros);
  return c.finish(c.where(c.cast(inside, DType::boolean), c.op(Op::pad, {x}, zeros), c.reshape(n.in(2), {})));
}

/// pads and value: attributes up to opset 10, inputs from 11; axes from 18. Negative pads cut, which is a slice.
Status pad(NodeContext& n) {
  if (sized_operands(n, {1})) return sized_pad(n);
  const std::int64_t rank = n.rank(0);
  const auto size = static_cast<std::size_t>(rank);
  const std::string mode = n.attr_text("mode", "constant");
  Ints pads;
  double value = 0;
  if (n.opset() < 11) {
    pads = n.attr_ints("pads");
    value = static_cast<double>(n.attr_float("value", 0.0F));
  } else {
    OCTAVO_TRY(pads, n.constant_ints(1, "pads"));
    if (n.has(2) && (n.constant(2) || mode != "constant")) {
      OCTAVO_TRY(value, n.constant_scalar(2, "the pad value"));
    }
  }
  if (n.has(3)) {
    OCTAVO_TRY(Ints axes, n.constant_ints(3, "axes"));
    if (pads.size() != 2 * axes.size()) return n.bad("{} pads for {} axes", pads.size(), axes.size());
    Ints all(2 * size, 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      OCTAVO_TRY(const std::int64_t axis, n.axis(axes[i], rank));
      all[static_cast<std::size_t>(axis)] = pads[i];
      all[static_cast<std::size_t>(axis) + size] = pads[i + axes.size()];
    }
    pads = all;
  }
  if (pads.size() != 2 * size) return n.bad("{} pads for data of rank {}, needs {}", pads.size(), rank, 2 * size);
  Ints starts(size, 0), ends = n.shape(0), steps(size, 1);
  bool cuts = false, grows = false;
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t d = n.shape(0)[i];
    for (const std::int64_t p : {pads[i], pads[i + size]}) {
      if (p < -d || p > (std::int64_t{1} << 40))
        return n.bad("pads {} do not fit {}", ir::to_string(pads), ir::to_string(n.shape(0)));
    }
    starts[i] = std::max<std::int64_t>(0, -pads[i]);
    ends[i] = std::max(starts[i], d - std::max<std::int64_t>(0, -pads[i + size]));
    cuts = cuts || starts[i] != 0 || ends[i] != d;
    for (std::int64_t* p : {&pads[i], &pads[i + size]}) *p = std::max<std::int64_t>(0, *p);
    grows = grows || pads[i] != 0 || pads[i + size] != 0;
  }
  ValueId x = n.in(0);
  if (cuts) {
    OCTAVO_TRY(x, n.emit(Op::slice, {x}, {{"starts", starts}, {"ends", ends}, {"steps", steps}}));
  }
  if (!grows) return n.result(x);
  if (mode == "wrap") return wrapped_pad(n, x, pads);
  if (n.opset() >= 11 && n.has(2) && !n.constant(2) && mode == "constant") return pad_with_value(n, x, pads);
  return n.result(n.emit(Op::pad, {x}, {{"pads", pads}, {"mode", mode}, {"value", value}}));
}

Status gather(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  const Shape indices = n.shape(1), data = n.shape(0);
  if (sized_operands(n)) {
    const ValueId at = sized_indices(n, n.in(0), n.in(1), static_cast<std::size_t>(axis));
    return n.result(n.emit(Op::gather, {n.in(0), at}, {{"axis", axis}}));
  }
  if (indices.size() == 1 || ir::count(indices) == 0) return n.result(n.emit(Op::gather, {n.in(0), n.in(1)}, {{"axis", axis}}));
  Shape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  if (indices.empty() && n.constant(1) != nullptr) {  // the class token of a transformer: strides alone
    OCTAVO_TRY(const Ints at, n.constant_ints(1, "the index"));
    const std::int64_t extent = data[static_cast<std::size_t>(axis)], i = at[0] < 0 ? at[0] + extent : at[0];
    if (i >= 0 && i < extent) {
      Compose c(n);
      return c.finish(c.reshape(c.slice(n.in(0), axis, i, i + 1, 1), std::move(shape)));
    }
  }
  // A list of rows, as kernels take it: tokens of a batch are looked up one after the other.
  OCTAVO_TRY(const ValueId list, n.reshape(n.in(1), {ir::count(indices)}));
  OCTAVO_TRY(const ValueId rows, n.emit(Op::gather, {n.in(0), list}, {{"axis", axis}}));
  return n.result(n.reshape(rows, std::move(shape)));
}
Status gather_elements(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  const ValueId at = sized_operands(n) ? sized_indices(n, n.in(0), n.in(1), static_cast<std::size_t>(axis)) : n.in(1);
  return n.result(n.emit(Op::gather_elements, {n.in(0), at}, {{"axis", axis}}));
}
/// Tuples of one index, as exporters write x[i], are a Gather of the first dimension, which has more kernels and rules.
Status gather_nd(NodeContext& n) {
  const Shape ids = n.shape(1);
  if (n.attr_int("batch_dims", 0) == 0 && n.rank(0) > 0 && !ids.empty() && ids.back() == 1) {
    OCTAVO_TRY(const ValueId rows, n.reshape(n.in(1), Shape(ids.begin(), ids.end() - 1)));
    return n.result(n.emit(Op::gather, {n.in(0), rows}, {{"axis", std::int64_t{0}}}));
  }
  return n.result(n.emit(Op::gather_nd, {n.in(0), n.in(1)}, {{"batch_dims", n.attr_int("batch_dims", 0)}}));
}

/// Numpy broadcasting of the data with a shape.
Status expand(NodeContext& n) {
  if (sized_by_data(n, {1})) return sized_expand(n);
  OCTAVO_TRY(const Ints target, n.constant_ints(1, "the target shape"));
  const Shape from = n.shape(0);
  Shape shape(std::max(target.size(), from.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t a = i + from.size() < shape.size() ? 1 : from[i + from.size() - shape.size()];
    const std::int64_t b = i + target.size() < shape.size() ? 1 : target[i + target.size() - shape.size()];
    if (b < 0 || (a != b && a != 1 && b != 1)) return n.bad("{} does not expand to {}", ir::to_string(from), ir::to_string(target));
    shape[i] = a == 1 ? b : a;
  }
  if (shape == from) return n.result(n.in(0));
  return n.result(n.emit(Op::expand, {n.in(0)}, {{"shape", shape}}));
}

Status tile(NodeContext& n) {
  if (sized_by_data(n, {1})) return sized_tile(n);
  OCTAVO_TRY(const Ints repeats, n.constant_ints(1, "repeats"));
  if (std::all_of(repeats.begin(), repeats.end(), [](std::int64_t r) { return r == 1; }) &&
      static_cast<std::int64_t>(repeats.size()) == n.rank(0)) {
    return n.result(n.in(0));
  }
  return n.result(n.emit(Op::tile, {n.in(0)}, {{"repeats", repeats}}));
}

Status depth_to_space(NodeContext& n) {
  return n.result(
      n.emit(Op::depth_to_space, {n.in(0)}, {{"blocksize", n.attr_int("blocksize", 0)}, {"mode", n.attr_text("mode", "DCR")}}));
}
Status space_to_depth(NodeContext& n) {
  const std::string mode = n.attr_text("mode", "DCR");
  if (mode == "CRD") {  // [n, c, h, b, w, b] -> [n, c, b, b, h, w]
    Compose c(n);
    const std::int64_t b = n.attr_int("blocksize", 0);
    OCTAVO_CHECK(n.need_rank(0, 4, 4));
    const Shape x = n.shape(0);
    if (b < 1 || x[2] % b != 0 || x[3] % b != 0) return n.bad("blocksize {} does not divide {}", b, ir::to_string(x));
    const ValueId apart = c.reshape(n.in(0), {x[0], x[1], x[2] / b, b, x[3] / b, b});
    return c.finish(c.reshape(c.transpose(apart, {0, 1, 3, 5, 2, 4}), {x[0], x[1] * b * b, x[2] / b, x[3] / b}));
  }
  if (mode != "DCR") return n.bad("mode \"{}\" is not DCR or CRD", mode);
  return n.result(n.emit(Op::space_to_depth, {n.in(0)}, {{"blocksize", n.attr_int("blocksize", 0)}}));
}

constexpr std::array kMoveRows{
    OpRow{"Identity", "", 1, 0, 0, 1, identity},
    OpRow{"Dropout", "", 1, 0, 1, 3, dropout},
    OpRow{"Transpose", "", 1, 0, 1, 1, transpose},
    OpRow{"Reshape", "", 5, 0, 2, 2, reshape},
    OpRow{"Flatten", "", 1, 0, 1, 1, flatten},
    OpRow{"Squeeze", "", 1, 0, 1, 2, squeeze},
    OpRow{"Unsqueeze", "", 1, 0, 1, 2, unsqueeze},
    OpRow{"Concat", "", 4, 0, 1, -1, concat},
    OpRow{"Pad", "", 2, 0, 1, 4, pad},
    OpRow{"Gather", "", 1, 0, 2, 2, gather},
    OpRow{"GatherElements", "", 11, 0, 2, 2, gather_elements},
    OpRow{"GatherND", "", 11, 0, 2, 2, gather_nd},
    OpRow{"Expand", "", 8, 0, 2, 2, expand},
    OpRow{"Tile", "", 6, 0, 2, 2, tile},
    OpRow{"DepthToSpace", "", 1, 0, 1, 1, depth_to_space},
    OpRow{"SpaceToDepth", "", 1, 0, 1, 1, space_to_depth},
};

}  // namespace

Family move_ops() {
  return kMoveRows;
}

}  // namespace octavo::onnx
