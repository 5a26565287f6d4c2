#include "cuda/families/conv/conv_rows_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/cost_model.h"
#include "cuda/text/pieces.h"
#include "cuda/text/rising.h"
#include "region/in_place.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_rows_pool.inc"
    ;
constexpr std::int64_t kUnrolledTaps = 25;
constexpr int kRun = 16;  ///< channels of a thread

/// From the first to behind the last place of one dimension that results `from` to `to` - 1 read, as the text computes it.
struct Reach {
  std::int64_t first, end;
};
Reach reach(std::int64_t from, std::int64_t to, std::int64_t stride, std::int64_t pad, std::int64_t extent, std::int64_t size) {
  const auto inside = [&](std::int64_t v) { return std::clamp<std::int64_t>(v, 0, size - 1); };
  return {inside(from * stride - pad), inside((to - 1) * stride - pad + extent - 1) + 1};
}

}  // namespace

bool pools(const region::Stage& s, const region::Stage& conv) {
  const region::Anchor& a = s.anchor;
  if (a.op != ir::Op::max_pool || !a.integer || a.inputs.size() != 1 || conv.stores.size() != 1) return false;
  if (a.inputs[0].buffer != conv.stores[0].buffer || a.inputs[0].dtype != ir::DType::u8 || s.program.outputs.empty()) return false;
  return std::none_of(s.operands.begin(), s.operands.end(),
                      [&](const region::Operand& o) { return o.ref.buffer == a.inputs[0].buffer; });
}

Result<Pooling> read_pooling(const region::Stage& s, const region::Stage& conv, const Tail& tail) {
  if (s.space.size() != 4 || s.anchor.inputs[0].dims != conv.space || s.space[1] != conv.space[1])
    return refuse("what is pooled", ir::to_string(s.anchor.inputs[0].dims),
                  fmt::format("{}, all that is computed before", ir::to_string(conv.space)));
  if (!region::same_places(s.anchor.inputs[0], conv.stores[0]))
    return refuse("what is pooled", "a part of what is computed before", "all of it");
  if (std::find(tail.constants.begin(), tail.constants.end(), std::nullopt) != tail.constants.end())
    return refuse("operands of the convolution", "a tensor", "constants of its channels");
  const auto& w = s.anchor.as<ir::Window>();
  if (w.pads[0] < 0 || w.pads[1] < 0) return refuse("padding", fmt::format("{}, {}", w.pads[0], w.pads[1]), "0 or more");
  return Pooling{s.space[2],   s.space[3],     w.kernel[0],    w.kernel[1], w.strides[0],
                 w.strides[1], w.dilations[0], w.dilations[1], w.pads[0],   w.pads[1]};
}

PoolCover cover_of(const Pooling& p, const ConvShape& conv, std::int64_t rows, std::int64_t columns) {
  PoolCover c;
  for (std::int64_t y = 0; y < p.out_h; y += rows) {
    const Reach r = reach(y, std::min(y + rows, p.out_h), p.stride_h, p.pad_top, (p.kernel_h - 1) * p.dilation_h + 1, conv.out_h);
    c.rows = std::max(c.rows, r.end - r.first);
  }
  for (std::int64_t x = 0; x < p.out_w; x += columns) {
    const Reach r =
        reach(x, std::min(x + columns, p.out_w), p.stride_w, p.pad_left, (p.kernel_w - 1) * p.dilation_w + 1, conv.out_w);
    c.columns = std::max(c.columns, (r.end - r.first / 4 * 4 + 15) / 16 * 16);
  }
  c.row_pixels = p.stride_w == 2 ? 2 * (c.columns / 2 | 1) : c.columns;
  return c;
}

Tail into_tile(const Tail& conv, const PoolCover& cover, std::int64_t channels) {
  Tail s = conv;
  s.space = {1, conv.space[1], cover.rows, cover.row_pixels};
  s.open = 0;
  region::TensorRef& t = s.stores[0];
  t.dims = s.space;
  t.offset = 0;
  t.strides = {cover.rows * cover.row_pixels * channels, 1, cover.row_pixels * channels, channels};
  return s;
}

Reasons why_not_sums(const Pooling& p, const ConvShape& shape, const Tail& conv, const Tail& pool, double accumulator) {
  const auto pairs = [](std::int64_t k) { return k == 2 || k == 3; };
  if (!pairs(p.kernel_h) || !pairs(p.kernel_w) || p.stride_h != 2 || p.stride_w != 2 || p.dilation_h != 1 || p.dilation_w != 1)
    return unmet("window, strides, dilations",
                 fmt::format("{}x{}, {}x{}, {}x{}", p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w),
                 "2 or 3, 2, 1");
  const bool inside = p.pad_top < p.kernel_h && p.pad_left < p.kernel_w && (p.out_h - 1) * 2 - p.pad_top < shape.out_h &&
                      (p.out_w - 1) * 2 - p.pad_left < shape.out_w;
  if (!inside) return unmet("windows", "wholly in padding", "with a pixel of the image");
  const auto& program = pool.program;
  const bool as_they_are = pool.stores.size() == 1 && program.outputs.size() == 1 && program.outputs[0].type == ir::DType::u8 &&
                           program.code[static_cast<std::size_t>(program.outputs[0].value)].op == program::Op::acc_i;
  if (!as_they_are) return unmet("what is made of the greatest code", "something else", "the code itself, stored once");
  if (!rises(conv, accumulator)) return unmet("program of the convolution", "not seen to rise with the sum", "one that does");
  return {};
}

Tail on_pooled_sums(const Tail& conv, const Tail& pool) {
  Tail s = conv;
  s.space = pool.space;
  s.stores = pool.stores;
  return s;
}

EmittedEpilogue pool_epilogue(const Tail& tail, std::int64_t padded_channels) {
  EpilogueShape shape;
  shape.rows = 1, shape.run = shape.piece = kRun, shape.padded_channels = padded_channels;
  shape.prefix = "pooled_", shape.accumulator = 255;
  return emit_epilogue(tail, shape, kPoolConstantsAt);
}

std::string pool_numbers(const Pooling& p, std::int64_t rows, std::int64_t columns, const EmittedEpilogue* epilogue) {
  std::string out = declare({{"kPoolRows", rows},
                             {"kPoolColumns", columns},
                             {"kPooledH", p.out_h},
                             {"kPooledW", p.out_w},
                             {"kPoolKernelH", p.kernel_h},
                             {"kPoolKernelW", p.kernel_w},
                             {"kPoolStrideH", p.stride_h},
                             {"kPoolStrideW", p.stride_w},
                             {"kPoolDilationH", p.dilation_h},
                             {"kPoolDilationW", p.dilation_w},
                             {"kPoolPadTop", p.pad_top},
                             {"kPoolPadLeft", p.pad_left}});
  if (epilogue == nullptr) return out;
  out += declare({{"kPoolStart", epilogue->bias.empty() ? 0 : epilogue->bias[0]}});  // of all channels alike
  out += fmt::format("#define OCTAVO_POOL_UNROLL {}\n",
                     p.kernel_h * p.kernel_w <= kUnrolledTaps ? "OCTAVO_UNROLL" : "OCTAVO_NO_UNROLL");
  return out + "namespace pooled {\n" + epilogue->text + "}\n";
}

std::string_view pool_functions() {
  return kText;
}

double pool_clocks(const Pooling& p, double pixels, int channels) {
  constexpr double kSelect = 3.0 / 4, kProgram = 4;  // instructions a channel and tap; a channel
  const double taps = static_cast<double>(p.kernel_h * p.kernel_w), elements = pixels * channels;
  return elements * (taps * kSelect + kProgram) / cost::kLanes + elements * taps / cost::kLanes;
}

}  // namespace octavo::cuda
