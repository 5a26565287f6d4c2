// One function reads a convolution and divides it; past 400 lines with the small ones that it takes every number from.
#include "cpu/jit/conv_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/machine.h"
#include "cpu/family.h"
#include "cpu/isa.h"
#include "cpu/jit/amx_plan.h"
#include "cpu/jit/division.h"
#include "cpu/jit/erf_division.h"

namespace octavo::cpu::jit {
namespace {

/// Sub-grid `phase` of an axis. conv: input = out * stride + k * dilation - pad. conv_transpose: out = input * stride + k *
/// dilation - pad.
Axis make_axis(bool transposed, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t pad,
               std::int64_t phase) {
  Axis a;
  if (!transposed) {
    a.step = stride;
    a.count = out;
    for (std::int64_t k = 0; k < kernel; ++k) {
      a.offset.push_back(k * dilation - pad);
      a.tap.push_back(k);
    }
    return a;
  }
  a.first = phase;
  a.stride = stride;
  a.count = phase < out ? ceil_div(out - phase, stride) : 0;
  for (std::int64_t k = kernel; k-- > 0;) {
    const std::int64_t from = phase + pad - k * dilation;
    if (from % stride != 0) continue;
    a.offset.push_back(from / stride);
    a.tap.push_back(k);
  }
  return a;
}

bool consecutive(const Axis& a) {
  for (std::size_t i = 1; i < a.offset.size(); ++i) {
    if (a.offset[i] != a.offset[i - 1] + 1) return false;
  }
  return true;
}

bool inside(const Axis& a, std::int64_t size) {
  return a.offset.empty() || (a.lowest() >= 0 && a.step * (a.count - 1) + a.highest() < size);
}

/// How many groups to compute as one dense group with zero weights between them: small groups leave lanes empty otherwise.
/// Floats stay apart: a product of zero and infinity would reach a group that has no infinity.
std::int64_t choose_merge(const Conv2d& s, Dots dots) {
  if (of_floats(dots)) return 1;
  std::int64_t best = 1;
  double best_cost = 1e300;
  for (std::int64_t m = 1; m <= s.groups; ++m) {
    if (s.groups % m != 0) continue;
    if (m > 1 && (m * s.oc() > 64 || m * s.ic() > 256)) break;
    const double vectors = static_cast<double>(ceil_div(m * s.oc(), 16));
    const double blocks = static_cast<double>(ceil_div(m * s.oc(), 64));
    const double products = vectors * static_cast<double>(ceil_div(m * s.ic(), 4) * s.kh * s.kw);
    const double cost = static_cast<double>(s.groups / m) * (products / 2 + vectors * 4 + blocks * 4);
    if (cost < best_cost) best_cost = cost, best = m;
  }
  return best;
}

/// How the phase's pixels are read, four bytes at a time: in place or from a padded strip. Empty, or the refusal.
Reasons arrange_quads(const region::TensorRef& x, const ConvSetting& p, bool padded, std::int64_t x_pixel, Phase& ph) {
  const bool taps = !ph.y.offset.empty();
  ph.pitch = p.factor_bytes(p.shape.c);
  const std::int64_t ic = p.factor_bytes(p.ic);
  // Contiguous taps of a row are one run of bytes; only then is a ragged channel count paid once a row instead of once a tap.
  const bool run = consecutive(ph.x) && p.groups == 1;
  const std::int64_t ragged = (run && x_pixel == ic ? static_cast<std::int64_t>(ph.x.offset.size()) : 1) * ic % 4;
  const bool pairs = p.dots == Dots::pairs;
  ph.copies = taps && (pairs || ((padded || (!p.slack && ragged != 0)) && !p.batch_is_pixels));
  if (p.batch_is_pixels && !pairs && !p.slack && ragged != 0)
    return unmet("input channels of the caller's rows", p.ic, "a multiple of 4");
  ph.pixel_step = ph.copies ? ph.pitch : x_pixel;
  ph.row_step = ph.copies ? ph.strip_row_bytes() : p.bytes(x.strides[2]);
  const bool joined = run && ph.pixel_step == ic && ph.x.offset.size() > 1;
  const std::int64_t y0 = ph.copies ? ph.y.lowest() : 0, x0 = ph.copies ? ph.x.lowest() : 0;
  for (auto dy : ph.y.offset) {
    for (std::size_t t = 0; t < ph.x.offset.size(); t += joined ? ph.x.offset.size() : 1) {
      ph.segments.push_back((dy - y0) * ph.row_step + (ph.x.offset[t] - x0) * ph.pixel_step);
    }
  }
  ph.segment_bytes = taps ? (joined ? static_cast<std::int64_t>(ph.x.offset.size()) : 1) * ic : 0;
  ph.quads = ceil_div(ph.segment_bytes, 4);
  if (of_floats(p.dots) && ph.segment_bytes % 4 != 0)
    return unmet("elements of a run of the reduction", ph.segment_bytes / p.factor, "an even number");
  return {};
}

bool linear(const ConvSetting& p, const Phase& ph) {
  if (ph.y.count > 1 && ph.y.step * ph.row_step != ph.x.count * ph.x.step * ph.pixel_step) return false;
  for (int s = 0; s < p.epilogue.stream_count(); ++s) {
    if (p.epilogue.stream(s).column < 0) continue;
    const auto k = static_cast<std::size_t>(s);
    if (k < p.streams.operands.size() && !p.streams.operands[k].div.empty()) {
      for (auto d : p.streams.operands[k].div) {
        if (d != 1) return false;
      }
    }
    const std::int64_t origin = pixel_offset(p, ph, s, 0, 0);
    const std::int64_t down = pixel_offset(p, ph, s, 1, 0) - origin, right = pixel_offset(p, ph, s, 0, 1) - origin;
    if (ph.y.count > 1 && down != ph.x.count * right) return false;
  }
  return true;
}

/// Every pixel of the output reads the pixel of the input of the same number.
bool one_line(const ConvSetting& p, std::int64_t x_pixel, bool padded, const Phase& phase) {
  if (padded || phase.x.offset.size() != 1 || phase.y.offset.size() != 1 || phase.x.step != 1 || phase.y.step != 1) return false;
  if (phase.x.offset.front() != 0 || phase.y.offset.front() != 0) return false;
  Phase read = phase;
  read.row_step = p.bytes(p.streams.input.strides[2]), read.pixel_step = x_pixel;
  return linear(p, read);
}

}  // namespace

double Conv2d::macs() const {
  const std::int64_t pixels = transposed ? h * w : out_h * out_w;
  return static_cast<double>(n * pixels * o) * static_cast<double>(ic() * kh * kw);
}

std::int64_t Conv2d::weight_index(std::int64_t out, std::int64_t in, std::int64_t y, std::int64_t x) const {
  if (!transposed) return ((out * ic() + in) * kh + y) * kw + x;
  const std::int64_t g = out / oc();
  return (((g * ic() + in) * oc() + out % oc()) * kh + y) * kw + x;
}

namespace {

/// One stage, constant dense weights, two spatial dimensions.
Reasons read_anchor(const region::Region& region, Conv2d& s) {
  if (region.stages.size() != 1) return unmet("stages", region.stages.size(), "1");
  const auto& stage = region.stages.front();
  const auto& a = stage.anchor;
  s.transposed = a.op == ir::Op::conv_transpose;
  if (a.inputs.empty() || !a.weights) return unmet("weights", "not constant", "constant");
  const auto& x = a.inputs.front();
  const auto& w = *a.weights;
  if (x.dims.size() != 4 || w.dims.size() != 4 || stage.space.size() != 4) {
    return unmet("input and weights", fmt::format("{} and {}", ir::to_string(x.dims), ir::to_string(w.dims)), "rank 4");
  }
  if (w.strides != ir::dense_strides(w.dims)) return unmet("weights", "strided", "dense");
  return {};
}

/// Shapes and attributes, whatever the types; weights are dense.
Reasons read_shape(const region::Region& region, Conv2d& s) {
  const auto& stage = region.stages.front();
  const auto& a = stage.anchor;
  const auto& x = a.inputs.front();
  const auto& w = *a.weights;
  if (x.dims[1] != 1 && x.strides[1] != 1) return unmet("channel stride of the input", x.strides[1], "1");
  const auto& window = a.as<ir::Window>();
  s.groups = window.group;
  s.n = x.dims[0], s.c = x.dims[1], s.h = x.dims[2], s.w = x.dims[3];
  s.o = stage.space[1], s.out_h = stage.space[2], s.out_w = stage.space[3];
  s.kh = w.dims[2], s.kw = w.dims[3];
  s.stride = {window.strides[0], window.strides[1]};
  s.dilation = {window.dilations[0], window.dilations[1]};
  s.pads = {window.pads[0], window.pads[1], window.pads[2], window.pads[3]};
  if (stage.space[0] != s.n || s.groups < 1 || s.c % s.groups != 0 || s.o % s.groups != 0)
    return unmet("shapes", "do not fit together", "those of a convolution");
  if (ir::count(stage.space) == 0 || ir::count(x.dims) == 0) return unmet("elements", 0, "some");
  return {};
}

}  // namespace

Reasons read_conv(const region::Region& region, Conv2d& s, bool weight_zeros) {
  if (region.stages.size() == 1 && !region.stages.front().anchor.integer) return unmet("products", "float", "integer");
  if (auto why = read_anchor(region, s); !why.empty()) return why;
  const auto& a = region.stages.front().anchor;
  const auto& x = a.inputs.front();
  const auto& w = *a.weights;
  if (x.dtype != ir::DType::u8 || w.dtype != ir::DType::s8) {
    return unmet("types of input and weights", fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(w.dtype)), "u8 and s8");
  }
  if (!x.quantizer) return unmet("input", "without a quantizer", "quantized");  // its zero points are one: region/verify
  for (auto z : a.weight_zero) {
    if (z != 0 && !weight_zeros) return unmet("weight zero point", z, "0");
    if (z == -128) return unmet("weight zero point", z, "more than -128: a weight minus it must be less than 255");
  }
  return read_shape(region, s);
}

Reasons read_float_conv(const region::Region& region, Conv2d& s, ir::DType type) {
  if (region.stages.size() == 1 && region.stages.front().anchor.integer) return unmet("products", "integer", "float");
  if (auto why = read_anchor(region, s); !why.empty()) return why;
  const auto& a = region.stages.front().anchor;
  const ir::DType x = a.inputs.front().dtype, w = a.weights->dtype;
  if (x != type || w != type) {
    return unmet("types of input and weights", fmt::format("{} and {}", ir::name_of(x), ir::name_of(w)), ir::name_of(type));
  }
  return read_shape(region, s);
}

int weight_halves(const std::vector<std::int32_t>& zero) {
  return std::any_of(zero.begin(), zero.end(), [](std::int32_t z) { return z != 0; }) ? 2 : 1;
}

std::int32_t half_of_weight(std::int32_t weight, bool first) {
  const std::int32_t low = weight >> 1;
  return first ? low : weight - low;
}

Block block_at(std::int64_t first, std::int64_t channels, int lanes) {
  Block b;
  b.first_channel = first;
  b.channels = std::min<std::int64_t>(4 * lanes, channels - first);
  b.vectors = static_cast<int>(ceil_div(b.channels, lanes));
  b.tail = static_cast<int>(b.channels - (b.vectors - 1) * lanes);
  return b;
}

RowTasks split_rows(const Conv2d& s, std::int64_t together, std::int64_t blocks, double seconds, int threads,
                    const CodeOptions& options) {
  RowTasks t{s.n * s.out_h, 1};
  if (threads <= 1 || seconds < 2e-6) return t;
  threads = std::min(threads, kMostThreads);
  const bool few = ceil_div(t.rows, threads) * threads * 5 > t.rows * 6;  // too few rows for so many threads
  if (options.blocks_first < 0 ? few : options.blocks_first == 1) t.rows = 0;
  const std::int64_t usual = t.rows > 0 ? threads : 4 * threads;
  t.count =
      static_cast<int>(std::min(options.row_tiles > 0 ? options.row_tiles : usual, s.n * ceil_div(s.out_h, together) * blocks));
  return t;
}

std::vector<region::Parameters> depthwise_variants(const RowTasks& tasks, std::int64_t rows,
                                                   const std::vector<std::int64_t>& others, const CodeOptions& usual) {
  Variants out(usual);
  for (const std::int64_t r : others) {
    if (r >= 1 && r != rows) out.add([&](CodeOptions& t) { t.rows = r; });
  }
  for (const int ahead : {2, 8}) out.add([&](CodeOptions& t) { t.prefetch = ahead; });
  if (tasks.count > 1) {
    out.add([&](CodeOptions& t) { t.blocks_first = tasks.rows > 0 ? 1 : 0; });
    out.add([&](CodeOptions& t) { t.row_tiles = tasks.count * std::int64_t{2}; });
  }
  return out.take();
}

bool takes_floats(const region::Stage& stage, Dots dots) {
  const region::Anchor& a = stage.anchor;
  return !a.integer && (a.weights && a.weights->dtype == ir::DType::bf16) == of_bf16(dots);
}

bool is_outdated(int lanes) {
  return lanes == 8 && best_isa() >= Isa::avx512;
}

Tiling tile_pixels(std::int64_t pixels, int most) {
  Tiling t;
  const std::int64_t tiles = ceil_div(pixels, most), base = pixels / tiles, rest = pixels % tiles;
  t.big = static_cast<int>(rest > 0 ? base + 1 : base);
  t.big_count = static_cast<int>(rest > 0 ? rest : tiles);
  t.small = static_cast<int>(base);
  t.small_count = static_cast<int>(rest > 0 ? tiles - rest : 0);
  return t;
}

int most_pixels(int vectors, std::int64_t quads, const LoweredEpilogue& epilogue) {
  if (epilogue.lanes == 8) return 12 / vectors;  // with up to three vectors of weights, and one of pixels
  // Two sets of accumulators; what they leave free keeps the epilogue's constants, which matters more the shorter the reduction.
  const bool light = quads >= 12 && epilogue.columns <= 2;
  if (epilogue.operations() >= kManyOperations && quads * vectors * 64 <= kNearWeights) return 12 / vectors;
  if (vectors == 1 && quads <= 12) return 12;  // a pack has four pixels; six of them waste one
  if (quads <= kPipelinedQuads) return std::min(6, (light ? 12 : 10) / vectors);
  return std::min(12, (quads <= 96 ? 20 : 24) / vectors);
}

std::int64_t pixel_offset(const ConvSetting& plan, const Phase& phase, int stream, std::int64_t j, std::int64_t k) {
  const auto s = static_cast<std::size_t>(stream);
  const auto& operands = plan.streams.operands;
  const region::TensorRef& ref = plan.streams.ref(stream);
  const auto size = static_cast<std::int64_t>(ir::size_of(ref.dtype));
  if (plan.batch_is_pixels) return k * ref.strides[0] * size;
  std::int64_t y = phase.y.first + phase.y.stride * j, x = phase.x.first + phase.x.stride * k;
  if (s < operands.size() && operands[s].div.size() == 4) y /= operands[s].div[2], x /= operands[s].div[3];
  return (y * ref.strides[2] + x * ref.strides[3]) * size;
}

Result<ConvSetting> match_conv(const region::Region& region, const region::Plan& plan, const CodeOptions& options, Dots dots) {
  ConvSetting p;
  const bool floats = of_floats(dots), pairs = dots == Dots::pairs;
  const ir::DType type = of_bf16(dots) ? ir::DType::bf16 : ir::DType::f32;
  if (auto why = floats ? read_float_conv(region, p.shape, type) : read_conv(region, p.shape, dots == Dots::vnni || pairs);
      !why.empty())
    return refuse(std::move(why));
  const auto& stage = region.stages.front();
  p.dots = dots;
  p.options = options;
  p.divides = divides(region);
  p.streams = Streams(stage);
  p.weights = Constant(*stage.anchor.weights, plan);
  p.weight_zero = stage.anchor.weight_zero;
  p.element = floats ? static_cast<std::int64_t>(ir::size_of(type)) : 1;
  p.factor = pairs ? 2 : p.element;
  if (floats && p.shape.groups > 1 && p.shape.ic() == 1 && p.shape.oc() == 1)
    return refuse("channels of a group", 1, "2 or more: a vector holds channels of one group");
  p.halves = pairs ? 1 : weight_halves(p.weight_zero);
  const Conv2d& s = p.shape;
  const auto& x = stage.anchor.inputs.front();
  p.zero = floats ? 0 : x.quantizer->zero_point.front();
  p.batch_is_pixels = s.n > 1 && s.out_h == 1 && s.out_w == 1 && s.h == 1 && s.w == 1 && s.kh == 1 && s.kw == 1 &&
                      s.stride[0] == 1 && s.stride[1] == 1 && s.pads == std::array<std::int64_t, 4>{};
  if (auto why = lower(stage, p.batch_is_pixels, options.vbmi, p.epilogue, options.lanes); !why.empty())
    return refuse(std::move(why));
  p.epilogue.narrows = of_bf16(dots);
  const int bias = take_bias(stage, plan, p.epilogue);
  p.has_bias = bias >= 0;
  p.bias = ChannelOperand(stage, plan, bias);
  p.images = p.batch_is_pixels ? 1 : s.n;
  p.merge = choose_merge(s, dots);
  p.groups = s.groups / p.merge;
  p.ic = s.ic() * p.merge;
  p.oc = s.oc() * p.merge;

  const auto kind = plan.buffers[static_cast<std::size_t>(x.buffer)].kind;
  p.slack = kind == region::BufferKind::arena || kind == region::BufferKind::constant;
  const std::int64_t phases_h = s.transposed ? s.stride[0] : 1, phases_w = s.transposed ? s.stride[1] : 1;
  for (std::int64_t fy = 0; fy < phases_h; ++fy) {
    for (std::int64_t fx = 0; fx < phases_w; ++fx) {
      Phase ph;
      ph.y = make_axis(s.transposed, s.out_h, s.kh, s.stride[0], s.dilation[0], s.pads[0], fy);
      ph.x = make_axis(s.transposed, s.out_w, s.kw, s.stride[1], s.dilation[1], s.pads[1], fx);
      if (ph.y.count == 0 || ph.x.count == 0) continue;
      if (p.batch_is_pixels) ph.x.count = s.n;
      if (ph.y.offset.empty() || ph.x.offset.empty()) ph.y.offset.clear(), ph.x.offset.clear();  // no taps reach this phase
      const bool taps = !ph.y.offset.empty();
      const bool padded = taps && !p.batch_is_pixels && !(inside(ph.y, s.h) && inside(ph.x, s.w));
      const std::int64_t x_pixel = p.bytes(p.batch_is_pixels ? x.strides[0] : x.strides[3]);
      if (pairs && taps) ph.line = p.batch_is_pixels || one_line(p, x_pixel, padded, ph);
      auto why = on_tiles(dots) ? arrange_tiles(x, p, padded, x_pixel, ph) : arrange_quads(x, p, padded, x_pixel, ph);
      if (!why.empty()) return refuse(std::move(why));
      if (p.halves == 2) {
        const std::vector<std::int64_t> once = ph.segments;
        ph.segments.insert(ph.segments.end(), once.begin(), once.end());
      }
      ph.flat = p.batch_is_pixels || ph.line || (!ph.copies && linear(p, ph));
      ph.pixels = ph.y.count * ph.x.count;
      // Threads share a line of pixels to the pixel, as depthwise convolutions share its rows.
      const std::int64_t line = on_tiles(dots) ? 32 : plan.threads <= 1 ? 24 : 1;
      ph.row_pixels = ph.flat ? std::min<std::int64_t>(ph.pixels, line) : ph.x.count;
      ph.rows = ceil_div(ph.pixels, ph.row_pixels);
      divide(p, ph, phases_h * phases_w, plan.threads);
      if (options.prefetch >= 0) ph.ahead = options.prefetch;
      p.phases.push_back(std::move(ph));
    }
  }
  Forms forms;
  const bool brief = !floats && !pairs && (dots == Dots::amx || std::all_of(p.phases.begin(), p.phases.end(), [](const Phase& ph) {
                                             return ph.all_quads() <= kBriefQuads;
                                           }));
  if (brief && find_forms(p.epilogue, forms).empty() && foldable(stage, plan, forms.requant)) {
    p.channels = ChannelValues(stage, plan, forms.requant);
    p.forms = std::move(forms);
    p.written = p.epilogue;
  }
  Curve curve;
  if (!floats && !pairs && options.vbmi && p.epilogue.stream_count() + 2 <= kMaxStreams && Curve::find(p.epilogue, curve).empty()) {
    Requant channels;
    channels.scale = curve.scale, channels.bias = curve.bias;
    const bool constant = foldable(stage, plan, channels) && (!curve.coded || foldable(stage, plan, curve.coded->requant));
    // A shorter form of the code in the middle would leave the activation behind it as written.
    if (constant && (!p.forms || curve.coded)) {
      if (curve.coded) channels.scale = curve.coded->requant.scale;
      p.channels = ChannelValues(stage, plan, channels);
      p.codes = curve.coded ? ChannelValues(stage, plan, curve.coded->requant) : p.channels;
      p.curve = std::move(curve);
      p.forms.reset();
    }
  }
  fold_zero_points(p.epilogue);
  p.multiplies = on_tiles(dots) || options.multiply;
  if (p.multiplies) multiply_where_exact(p.epilogue);
  if (of_floats(dots)) multiply_in_erf(p.epilogue);
  // Estimate: dots at 85 % of two a clock (of pairs, which an addition follows, of 1.6), plus the epilogue, at the standard machine's clock; weights from beyond L2 at 20 bytes a clock.
  const double operations = p.curve ? 20.0 : static_cast<double>(p.epilogue.code.size());
  double clocks = 0;
  for (const auto& ph : p.phases) {
    if (on_tiles(dots)) {
      clocks += tile_clocks(p, ph);
      continue;
    }
    for (const auto& b : ph.blocks) {
      const double quads = static_cast<double>(ph.segments.size()) * static_cast<double>(ph.quads) * b.vectors;
      const double per_pixel = quads / (pairs ? 1.35 : 1.7) + b.vectors * (1.5 + 0.25 * operations) + 3;
      clocks += per_pixel * static_cast<double>(ph.pixels * p.images);
    }
    if (ph.copies) clocks += static_cast<double>(p.factor_bytes(p.images * s.c * s.h * s.w)) / 16;
  }
  clocks = std::max(clocks, static_cast<double>(p.weight_bytes) / 20);
  p.seconds = clocks / standard_machine().clock_hz + 3e-7;
  return p;
}

}  // namespace octavo::cpu::jit
