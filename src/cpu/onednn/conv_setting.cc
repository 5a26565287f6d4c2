#ifdef OCTAVO_HAVE_ONEDNN
#include "cpu/onednn/conv_setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "region/refusal.h"

namespace octavo::cpu::onednn {

using region::refuse;
namespace {

using Dims = dnnl::memory::dims;

DataType type_of(ir::DType t) {
  return t == ir::DType::bf16 ? DataType::bf16 : kF32;
}

}  // namespace

Fused find_fused(const region::Stage& s) {
  using program::Op;
  Fused f;
  const ir::DType stored = s.stores.empty() ? ir::DType::f32 : s.stores[0].dtype;
  if (s.program.outputs.size() != 1 || (stored != ir::DType::f32 && stored != s.anchor.weights->dtype) ||
      s.stores[0].strides[1] != 1) {
    return f;
  }
  const auto at = [&](int v) -> const program::Instr& { return s.program.code[static_cast<std::size_t>(v)]; };
  const program::Instr* t = &at(s.program.outputs[0].value);
  if (t->op == Op::to_bf16 && stored == ir::DType::bf16) t = &at(t->args[0]);  // the primitive's own store rounds the same
  if (t->op == Op::max && at(t->args[0]).op == Op::imm_f && at(t->args[0]).imm == 0) {
    f.relu = true;
    t = &at(t->args[1]);
  }
  if (t->op == Op::add && at(t->args[0]).op == Op::acc_f && at(t->args[1]).op == Op::load_f) {
    f.bias = at(t->args[1]).imm;
    const region::TensorRef& b = s.operands[static_cast<std::size_t>(f.bias)].ref;
    for (std::size_t k = 0; k < b.strides.size(); ++k) {
      if (s.space[k] != 1 && b.strides[k] != (k == 1 ? 1 : 0)) return {};
    }
    if (b.dtype != ir::DType::f32) return {};
    t = &at(t->args[0]);
  }
  f.whole = t->op == Op::acc_f;
  return f;
}

Result<Setting> setting_of(const region::Stage& s, const region::Plan& plan) {
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto& w = s.anchor.weights->dims;
  const ir::DType type = s.anchor.weights->dtype;
  if ((type != ir::DType::f32 && type != ir::DType::bf16) || x.dtype != type) {
    return refuse("types of input and weights", fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(type)),
                  "one type, f32 or bf16");
  }
  if (w.size() != 3 && w.size() != 4) return refuse("spatial dimensions", static_cast<int>(w.size()) - 2, "1 or 2");
  if (s.anchor.weights->strides != ir::dense_strides(w)) return refuse("weights", "strided", "dense");
  Setting t{x, s.stores[0], *s.anchor.weights, {}, Constant(*s.anchor.weights, plan), {}, s.space};
  t.transposed = s.anchor.op == ir::Op::conv_transpose;
  t.data = type_of(type);
  const std::int64_t size = bytes_of(t.data);
  OCTAVO_TRY(t.image, Image::of(s, {w.begin() + 2, w.end()}));
  t.group = s.anchor.as<ir::Window>().group;
  t.cin = x.dims[1];
  t.cout = s.space[1];
  if (x.strides[1] != 1 && t.cin != 1) return refuse("channel stride of the input", x.strides[1], "1");
  if (t.group < 1 || t.cin % t.group != 0 || t.cout % t.group != 0)
    return fail(ErrorKind::bad_engine, "groups do not divide the channels");
  if (t.data == kF32 && t.group == t.cin && t.group > 1)
    return refuse("channels a group", 1, "more: the block kernel of depthwise convolutions is faster");
  if (ir::count(s.space) == 0 || ir::count(x.dims) == 0) return refuse("elements", 0, "some");
  t.fused = find_fused(s);
  const Image& im = t.image;
  const auto dense = [](std::int64_t along_h, std::int64_t along_w, std::int64_t rows, std::int64_t cols, std::int64_t channels) {
    return (cols == 1 || along_w == channels) && (rows == 1 || along_h == cols * channels);
  };
  t.gather = !dense(im.xh / size, im.xw / size, im.height.in, im.width.in, t.cin);
  if (t.gather && t.data == kF32)
    return refuse("input", "a slice of a wider tensor", "dense: the block kernel reads slices as they are");
  const auto along = [&](int dim) { return dim < 0 ? std::int64_t{0} : s.stores[0].strides[static_cast<std::size_t>(dim)]; };
  t.fused.whole = t.fused.whole && dense(along(im.h), along(im.w), im.height.out, im.width.out, t.cout);
  if (t.fused.whole) {
    t.stored = type_of(s.stores[0].dtype);
    if (t.fused.bias >= 0) t.bias = s.operands[static_cast<std::size_t>(t.fused.bias)].ref;
  } else {
    OCTAVO_TRY(t.epilogue, block_epilogue(s, best_isa(), static_cast<std::size_t>(im.w), static_cast<std::size_t>(im.c)));
  }
  const std::int64_t kh = im.height.kernel, kw = im.width.kernel, from = t.cin / t.group, to = t.cout / t.group;
  Dims dims{to, from, kh, kw}, along_dims{from * kh * kw, kh * kw, kw, 1};
  if (t.transposed) along_dims = {kh * kw, to * kh * kw, kw, 1};
  if (t.group > 1) {
    dims.insert(dims.begin(), t.group);
    along_dims.insert(along_dims.begin(), to * from * kh * kw);
  }
  t.plain_weights = {dims, t.data, along_dims};
  if (t.transposed) {
    t.rows_per_tile = im.height.out;
    return t;
  }
  // Row tiles whose floats fit in half of a small L2 cache; enough of them for a few threads.
  const std::int64_t row_bytes = (t.fused.whole ? 0 : im.width.out * t.cout * 4) + (t.gather ? im.width.in * t.cin * size : 0);
  t.rows_per_tile =
      std::clamp<std::int64_t>(row_bytes == 0 ? im.height.out : 262144 / std::max<std::int64_t>(row_bytes, 1), 1, im.height.out);
  if (im.batch == 1) t.rows_per_tile = std::min(t.rows_per_tile, std::max<std::int64_t>((im.height.out + 3) / 4, 1));
  t.row_tiles = (im.height.out + t.rows_per_tile - 1) / t.rows_per_tile;
  return t;
}

RowTile row_tile_of(const Setting& t, std::int64_t index) {
  const WindowAxis& h = t.image.height;
  if (t.transposed) return {h.out, h.in, h.pad, (h.in - 1) * h.stride + (h.kernel - 1) * h.dilation + 1 - h.out - h.pad};
  const std::int64_t first = index * t.rows_per_tile, rows = std::min(t.rows_per_tile, h.out - first);
  const std::int64_t begin = first * h.stride - h.pad,
                     end = (first + rows - 1) * h.stride - h.pad + (h.kernel - 1) * h.dilation + 1;
  const std::int64_t in_begin = std::clamp<std::int64_t>(begin, 0, h.in), in_end = std::clamp<std::int64_t>(end, in_begin, h.in);
  return {rows, in_end - in_begin, in_begin - begin, end - in_end};
}
std::int64_t first_input_row(const Setting& t, std::int64_t index) {
  const WindowAxis& h = t.image.height;
  return t.transposed ? 0 : std::clamp<std::int64_t>(index * t.rows_per_tile * h.stride - h.pad, 0, h.in);
}

dnnl::primitive_desc describe(const Setting& t, const RowTile& b, const dnnl::memory::desc* weights, const dnnl::engine& engine) {
  const Image& im = t.image;
  const WindowAxis &h = im.height, &w = im.width;
  const Dims x_dims{1, t.cin, b.in_rows, w.in}, y_dims{1, t.cout, b.rows, w.out};
  // The library's channel-last kernels want tensors without gaps; a row tile is one image of its own.
  const auto image = [](const Dims& d) { return Dims{d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; };
  const dnnl::memory::desc x(x_dims, t.data, image(x_dims)), y(y_dims, t.stored, image(y_dims));
  const auto any = dnnl::memory::format_tag::any;
  const dnnl::memory::desc wd = weights != nullptr ? *weights : dnnl::memory::desc(t.plain_weights.dims(), t.data, any);
  const Dims strides{h.stride, w.stride}, dilations{h.dilation - 1, w.dilation - 1}, before{b.top, w.pad};
  const std::int64_t window = (w.kernel - 1) * w.dilation + 1, right = t.transposed
                                                                           ? (w.in - 1) * w.stride + window - w.out - w.pad
                                                                           : (w.out - 1) * w.stride + window - w.in - w.pad;
  const Dims after{b.bottom, right};
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto kind = dnnl::prop_kind::forward_inference;
  // Without a bias its descriptor is empty.
  dnnl::memory::desc bias;
  if (t.fused.whole && t.fused.bias >= 0) bias = {Dims{t.cout}, kF32, dnnl::memory::format_tag::x};
  if (t.transposed) {
    using Forward = dnnl::deconvolution_forward;
    const auto algorithm = dnnl::algorithm::deconvolution_direct;
    return Forward::primitive_desc(Forward::desc(kind, algorithm, x, wd, bias, y, strides, dilations, before, after), attr, engine);
  }
  using Forward = dnnl::convolution_forward;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  return Forward::primitive_desc(Forward::desc(kind, algorithm, x, wd, bias, y, strides, dilations, before, after), attr, engine);
}

}  // namespace octavo::cpu::onednn
#endif
