// Operators that read or write at computed positions: Scatter*, TopK, cumulative sums, ReverseSequence, MaxUnpool, Col2Im, Trilu,
// ...
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/registry.h"
#include "onnx/import/sizes.h"
#include "onnx/model/held.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

Attrs scatter_attrs(const char* kind, std::string reduction, std::int64_t axis) {
  return {{"kind", std::string(kind)}, {"reduction", std::move(reduction)}, {"axis", axis}};
}

Status scatter_elements(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  return n.result(
      n.emit(Op::scatter, {n.in(0), n.in(1), n.in(2)}, scatter_attrs("elements", n.attr_text("reduction", "none"), axis)));
}
Status scatter_nd(NodeContext& n) {
  return n.result(n.emit(Op::scatter, {n.in(0), n.in(1), n.in(2)}, scatter_attrs("nd", n.attr_text("reduction", "none"), 0)));
}

/// The update goes to positions write_indices[batch] + 0, 1, ... along the axis; circular: modulo its extent.
Status tensor_scatter(NodeContext& n) {
  Compose c(n);
  const std::string mode = n.attr_text("mode", "linear");
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -2), n.rank(0)));
  const Shape cache = n.shape(0), update = n.shape(1);
  if (mode != "linear" && mode != "circular") return n.bad("mode \"{}\" is not linear or circular", mode);
  if (axis == 0 || update.size() != cache.size())
    return n.bad("cache {}, update {}, axis {}", ir::to_string(cache), ir::to_string(update), axis);
  const auto a = static_cast<std::size_t>(axis);
  ValueId at = c.counting(update[a], axis, n.rank(0));
  if (n.has(2)) {
    if (n.shape(2) != Shape{cache[0]}) return n.bad("write_indices are {}, need [{}]", ir::to_string(n.shape(2)), cache[0]);
    Shape along(cache.size(), 1);
    along[0] = cache[0];
    at = c.add(c.reshape(c.cast(n.in(2), DType::s64), along), at);
  }
  if (mode == "circular") at = c.op(Op::mod, {at, c.integers({}, {cache[a]})});
  return c.finish(c.op(Op::scatter, {n.in(0), c.expand(at, update), n.in(1)}, scatter_attrs("elements", "none", axis)));
}

/// k: an attribute up to opset 9, an input from 10.
Status top_k(NodeContext& n) {
  if (sized_by_data(n, {1})) return sized_top_k(n);
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), n.rank(0)));
  std::int64_t k = 0;
  if (n.opset() < 10) {
    k = n.attr_int("k", 0);
  } else {
    OCTAVO_TRY(k, n.constant_integer(1, "k"));
  }
  const Attrs attrs{{"axis", axis}, {"k", k}, {"largest", n.attr_int("largest", 1)}, {"sorted", n.attr_int("sorted", 1)}};
  OCTAVO_TRY(const std::vector<ValueId> out, n.emit_many(Op::top_k, {n.in(0)}, attrs));
  n.set(0, out[0]);
  n.set(1, out[1]);
  return {};
}

/// CumSum, CumProd: the axis is an input.
Status cumulate(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t given, n.constant_integer(1, "the axis"));
  OCTAVO_TRY(const std::int64_t axis, n.axis(given, n.rank(0)));
  return n.result(n.emit(Op::cumulate, {n.in(0)},
                         {{"axis", axis},
                          {"exclusive", n.attr_int("exclusive", 0)},
                          {"reverse", n.attr_int("reverse", 0)},
                          {"function", std::string(n.proto().op_type() == "CumSum" ? "sum" : "prod")}}));
}

/// Element t of a sequence of length L comes from L - 1 - t while t < L.
Status reverse_sequence(NodeContext& n) {
  Compose c(n);
  const std::int64_t time = n.attr_int("time_axis", 0), batch = n.attr_int("batch_axis", 1), rank = n.rank(0);
  if (rank < 2 || time < 0 || time > 1 || batch < 0 || batch > 1 || time == batch)
    return n.bad("time_axis {} and batch_axis {} for data {}", time, batch, ir::to_string(n.shape(0)));
  const Shape x = n.shape(0);
  if (n.shape(1) != Shape{x[static_cast<std::size_t>(batch)]}) return n.bad("sequence_lens are {}", ir::to_string(n.shape(1)));
  Shape along(x.size(), 1);
  along[static_cast<std::size_t>(batch)] = x[static_cast<std::size_t>(batch)];
  const ValueId lens = c.reshape(c.cast(n.in(1), DType::s64), along);
  const ValueId t = c.counting(x[static_cast<std::size_t>(time)], time, rank);
  const ValueId from = c.where(c.less(t, lens), c.sub(c.sub(lens, c.integers({}, {1})), t), t);
  return c.finish(c.op(Op::gather_elements, {n.in(0), c.expand(from, x)}, {{"axis", time}}));
}

/// The elements of X go to the positions I of a tensor of zeros.
Status max_unpool(NodeContext& n) {
  Compose c(n);
  const Ints kernel = n.attr_ints("kernel_shape");
  const std::size_t spatial = kernel.size();
  const Ints strides = n.attr_ints("strides", Ints(spatial, 1)), pads = n.attr_ints("pads", Ints(2 * spatial, 0));
  const Shape x = n.shape(0);
  if (spatial + 2 != x.size() || strides.size() != spatial || pads.size() != 2 * spatial || n.shape(1) != x)
    return n.bad("kernel, strides, pads or indices do not fit the data {}", ir::to_string(x));
  Shape inferred{x[0], x[1]};
  for (std::size_t d = 0; d < spatial; ++d) {
    for (const std::int64_t v : {kernel[d], strides[d]}) {
      if (v < 1 || v > 65536) return n.bad("kernel or stride {} is out of range", v);
    }
    for (const std::int64_t v : {pads[d], pads[spatial + d]}) {
      if (v < 0 || v > 65536) return n.bad("pad {} is out of range", v);
    }
    inferred.push_back((x[d + 2] - 1) * strides[d] - (pads[d] + pads[spatial + d]) + kernel[d]);
  }
  OCTAVO_TRY(const std::int64_t elements, checked_count(inferred, n.where()));
  const std::int64_t count = ir::count(x);
  const ValueId flat =
      c.op(Op::scatter, {c.expand(c.number(0, n.in(0)), {elements}), c.reshape(n.in(1), {count}), c.reshape(n.in(0), {count})},
           scatter_attrs("elements", "none", 0));
  ValueId y = c.reshape(flat, inferred);
  if (n.has(2)) {
    OCTAVO_TRY(const Ints want, n.constant_ints(2, "output_shape"));
    if (want.size() != x.size()) return n.bad("output_shape {} for data {}", ir::to_string(want), ir::to_string(x));
    Ints grow(2 * x.size(), 0);
    for (std::size_t d = 0; d < x.size(); ++d) {
      if (want[d] >= inferred[d]) grow[x.size() + d] = want[d] - inferred[d];
      if (want[d] < inferred[d]) return n.bad("output_shape {} is smaller than {}", ir::to_string(want), ir::to_string(inferred));
    }
    if (want != inferred) y = c.op(Op::pad, {y}, {{"pads", grow}, {"mode", std::string("constant")}, {"value", 0.0}});
  }
  return c.finish(y);
}

/// Columns [N, C * block, L] are added into an image padded by `pads`, which is then cut.
Status col2im(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const Ints image, n.constant_ints(1, "image_shape"));
  OCTAVO_TRY(const Ints block, n.constant_ints(2, "block_shape"));
  const std::size_t spatial = image.size();
  const Ints dilations = n.attr_ints("dilations", Ints(spatial, 1)), strides = n.attr_ints("strides", Ints(spatial, 1)),
             pads = n.attr_ints("pads", Ints(2 * spatial, 0));
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  const Shape x = n.shape(0);
  if (spatial == 0 || block.size() != spatial || dilations.size() != spatial || strides.size() != spatial ||
      pads.size() != 2 * spatial)
    return n.bad("image_shape, block_shape and attributes differ in length");
  Shape padded, steps;
  for (std::size_t d = 0; d < spatial; ++d) {
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    for (const std::int64_t v : {image[d], block[d], dilations[d], strides[d]}) {
      if (v < 1 || v > kMost) return n.bad("a size of dimension {} is {}", d, v);
    }
    for (const std::int64_t v : {pads[d], pads[spatial + d]}) {
      if (v < 0 || v > kMost) return n.bad("a pad of dimension {} is {}", d, v);
    }
    padded.push_back(image[d] + pads[d] + pads[spatial + d]);
    const std::int64_t span = padded[d] - (dilations[d] * (block[d] - 1) + 1);
    if (span < 0) return n.bad("the block does not fit the image");
    steps.push_back(span / strides[d] + 1);
  }
  OCTAVO_TRY(const std::int64_t plane, checked_count(padded, n.where()));
  const std::int64_t taps = ir::count(block), places = ir::count(steps);
  if (x[1] % taps != 0 || x[2] != places)
    return n.bad("columns {} do not fit {} taps at {} places", ir::to_string(x), taps, places);
  OCTAVO_CHECK(checked_constant({taps, places}, n.where()));
  Ints index;
  for (std::int64_t k = 0; k < taps; ++k) {
    for (std::int64_t l = 0; l < places; ++l) {
      std::int64_t at = 0, rest_k = k, rest_l = l, stride = 1;
      for (std::size_t d = spatial; d-- > 0;) {
        at += stride * (rest_k % block[d] * dilations[d] + rest_l % steps[d] * strides[d]);
        rest_k /= block[d];
        rest_l /= steps[d];
        stride *= padded[d];
      }
      index.push_back(at);
    }
  }
  const std::int64_t planes = x[0] * (x[1] / taps), columns = taps * places;
  ValueId y = c.op(Op::scatter,
                   {c.expand(c.number(0, n.in(0)), {planes, plane}), c.expand(c.integers({1, columns}, index), {planes, columns}),
                    c.reshape(n.in(0), {planes, columns})},
                   scatter_attrs("elements", "add", 1));
  Shape whole{x[0], x[1] / taps};
  whole.insert(whole.end(), padded.begin(), padded.end());
  y = c.reshape(y, whole);
  for (std::size_t d = 0; d < spatial; ++d) y = c.slice(y, static_cast<std::int64_t>(d) + 2, pads[d], pads[d] + image[d]);
  return c.finish(y);
}

/// The upper or lower triangle from diagonal k on, 0 elsewhere.
Status trilu(NodeContext& n) {
  Compose c(n);
  const bool upper = n.attr_int("upper", 1) != 0;
  std::int64_t k = 0;
  if (n.has(1)) {
    OCTAVO_TRY(k, n.constant_integer(1, "k"));
  }
  OCTAVO_CHECK(n.need_rank(0, 2));
  const Shape x = n.shape(0);
  const std::int64_t rows = x[x.size() - 2], columns = x.back();
  OCTAVO_CHECK(checked_constant({rows, columns}, n.where()));
  std::vector<bool> keep;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t col = 0; col < columns; ++col) keep.push_back(upper ? col - r >= k : col - r <= k);
  }
  return c.finish(c.where(c.mask({rows, columns}, keep), n.in(0), c.number(0, n.in(0))));
}

Status eye_like(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 1, 2));
  const std::int64_t rows = n.shape(0)[0], columns = n.shape(0).back(), k = n.attr_int("k", 0), code = n.attr_int("dtype", 0);
  const auto type = code == 0 ? n.declared(0) : dtype_of(static_cast<std::int32_t>(code));
  if (!type) return n.unsupported("dtype {}", onnx_type_name(static_cast<std::int32_t>(code)));
  OCTAVO_CHECK(checked_constant({rows, columns}, n.where()));
  n.declare(0, *type);
  Tensor t(DType::f32, {rows, columns});
  for (std::int64_t r = 0; r < rows && k > -rows && k < columns; ++r) {
    if (r + k >= 0 && r + k < columns) t.mutable_data<float>()[static_cast<std::size_t>(r * columns + r + k)] = 1;
  }
  return c.finish(c.cast(c.constant(std::move(t)), held(*type)));
}

/// Each named dimension is cut or padded with zeros around its middle; the odd element goes behind.
Status center_crop_pad(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const Ints target, n.constant_ints(1, "the shape"));
  Ints axes = n.attr_ints("axes");
  if (axes.empty()) {
    for (std::int64_t d = 0; d < n.rank(0); ++d) axes.push_back(d);
  }
  if (axes.size() != target.size()) return n.bad("{} sizes for {} axes", target.size(), axes.size());
  const Shape x = n.shape(0);
  Ints grow(2 * x.size(), 0);
  ValueId y = n.in(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    OCTAVO_TRY(const std::int64_t axis, n.axis(axes[i], n.rank(0)));
    const auto a = static_cast<std::size_t>(axis);
    if (target[i] < 0 || target[i] > (std::int64_t{1} << 40)) return n.bad("size {} of axis {}", target[i], axis);
    const std::int64_t extra = target[i] - x[a];
    if (extra < 0) y = c.slice(y, axis, -extra / 2, -extra / 2 + target[i]);
    if (extra > 0) grow[a] = extra / 2, grow[a + x.size()] = extra - extra / 2;
  }
  if (std::any_of(grow.begin(), grow.end(), [](std::int64_t g) { return g != 0; }))
    y = c.op(Op::pad, {y}, {{"pads", grow}, {"mode", std::string("constant")}, {"value", 0.0}});
  return c.finish(y);
}

/// The rows where the condition holds.
Status compress_rows(NodeContext& n) {
  Compose c(n);
  const Tensor* condition = n.constant(1);
  if (!condition || sized_operands(n)) return compress(n);
  Ints keep;
  for (std::int64_t i = 0; i < condition->size(); ++i) {
    if (condition->at(i) != 0) keep.push_back(i);
  }
  ValueId x = n.in(0);
  std::int64_t axis = 0;
  if (n.has_attr("axis")) {
    OCTAVO_TRY(axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  } else {
    x = c.reshape(x, {ir::count(n.shape(0))});
  }
  return c.finish(c.gather(x, c.integers({static_cast<std::int64_t>(keep.size())}, keep), axis));
}

constexpr std::array kIndexRows{
    OpRow{"Scatter", "", 9, 10, 3, 3, scatter_elements},
    OpRow{"ScatterElements", "", 11, 0, 3, 3, scatter_elements},
    OpRow{"ScatterND", "", 11, 0, 3, 3, scatter_nd},
    OpRow{"TensorScatter", "", 24, 0, 2, 3, tensor_scatter},
    OpRow{"TopK", "", 1, 0, 1, 2, top_k},
    OpRow{"CumSum", "", 11, 0, 2, 2, cumulate},
    OpRow{"CumProd", "", 26, 0, 2, 2, cumulate},
    OpRow{"ReverseSequence", "", 10, 0, 2, 2, reverse_sequence},
    OpRow{"MaxUnpool", "", 9, 0, 2, 3, max_unpool},
    OpRow{"Col2Im", "", 18, 0, 3, 3, col2im},
    OpRow{"Trilu", "", 14, 0, 1, 2, trilu},
    OpRow{"EyeLike", "", 9, 0, 1, 1, eye_like},
    OpRow{"CenterCropPad", "", 18, 0, 2, 2, center_crop_pad},
    OpRow{"Compress", "", 9, 0, 2, 2, compress_rows},
    OpRow{"Unique", "", 11, 0, 1, 1, unique},
};

}  // namespace

Family index_ops() {
  return kIndexRows;
}

}  // namespace octavo::onnx
