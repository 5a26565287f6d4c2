// The families "conv.f16.depthwise", "conv.bf16.depthwise" and "conv.f32.depthwise": convolutions of floats with one input channel a group or with
// groups that fill no product of matrices (depthwise_float.inc). Sums are taken tap after tap in float32, tf32 is never rounded to.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/depthwise_float.inc"
    ;
constexpr std::int64_t kMostKept = 180, kMostStreamed = 200;  ///< registers of weights, sums and pixels, about
constexpr std::int64_t kMostKeptTaps = 25;

struct VectorTile {
  int rows = 1, columns = 4, threads = 128;
  static constexpr std::array<TileParameter<VectorTile>, 3> kParameters{
      {{{"rows", "", "of output pixels of a thread"}, {&VectorTile::rows}},
       {{"columns", "", "of output pixels of a thread"}, {&VectorTile::columns}},
       {{"threads", "", "of a block"}, {&VectorTile::threads}}}};
};

/// A convolution whose groups have few channels. ConvShape counts its channels in bytes.
struct GroupedFloats {
  ConvSetting conv;
  std::int64_t in = 1, out = 1;  ///< channels of a group
  [[nodiscard]] bool own() const { return in == 1 && out == 1; }
  /// Input channels that are read together where they are not its own.
  [[nodiscard]] std::int64_t step() const { return in % 4 == 0 ? 4 : in % 2 == 0 ? 2 : 1; }
};

/// Are the weights of all taps kept in registers?
bool keeps(const GroupedFloats& g, const VectorTile& t) {
  const ConvShape& s = g.conv.shape;
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  return g.own() && taps <= kMostKeptTaps && 4 * (taps + t.rows * t.columns) + 2 * s.in_columns(t.columns) <= kMostKept;
}

Reasons why_not_tile(const GroupedFloats& g, const VectorTile& t) {
  const ConvShape& s = g.conv.shape;
  if (t.rows < 1 || t.rows > 16 || t.columns < 1 || t.columns > 16 || t.threads < 32 || t.threads > 512 || t.threads % 32 != 0)
    return unmet("pixels and threads", fmt::format("{}x{}, {}", t.rows, t.columns, t.threads),
                 "up to 16x16, whole warps up to 512");
  const std::int64_t registers = 4 * (s.kernel_w * (g.own() ? 1 : g.step()) + t.rows * t.columns) + 2 * s.in_columns(t.columns);
  if (!keeps(g, t) && registers > kMostStreamed)
    return unmet("registers for weights, sums and pixels", registers, fmt::format("at most {}", kMostStreamed));
  return {};
}

std::int64_t items_of(const ConvShape& s, const VectorTile& t) {
  return s.batch * parts(s.out_h, t.rows) * parts(s.out_w, t.columns) * parts(s.out_channels, 4);
}

/// Instructions of a thread, and how often it waits for memory.
std::array<double, 2> work_of(const GroupedFloats& g, const VectorTile& t) {
  const ConvShape& s = g.conv.shape;
  const double outputs = static_cast<double>(t.rows) * t.columns, taps = static_cast<double>(s.kernel_h * s.kernel_w);
  const double steps = g.own() ? 1 : static_cast<double>(g.in / g.step()), step = g.own() ? 1 : static_cast<double>(g.step());
  const double read = g.own() ? 4 : step;
  const bool kept = keeps(g, t);
  const auto rows = static_cast<double>(kept ? s.in_rows(t.rows) : s.kernel_h * t.rows);
  const double pixels = rows * static_cast<double>(s.in_columns(t.columns)) * (4 + read * (bytes_of(s.type) == 2 ? 1.5 : 0));
  const double products = outputs * taps * 4 * step, weights = taps * step * 1.5;
  return {steps * (pixels + products + weights) + outputs * 40 + 60, kept ? 2 : 1 + steps * static_cast<double>(s.kernel_h)};
}

/// [step][kernel row][kernel column][input channel of the step][channel] in float32, zeros behind the last channel.
ir::Tensor pack(const GroupedFloats& g, const ConvWeights& w) {
  const ConvShape& s = g.conv.shape;
  const std::int64_t step = g.own() ? 1 : g.step(), steps = g.in / step, channels = up(s.out_channels, 4), size = bytes_of(s.type);
  if (w.values.empty()) return layout_mark({steps, s.kernel_h, s.kernel_w, step, channels});
  const ir::DType type = s.type == ConvType::f16 ? ir::DType::f16 : s.type == ConvType::bf16 ? ir::DType::bf16 : ir::DType::f32;
  ir::Tensor packed(ir::DType::f32, {steps, s.kernel_h, s.kernel_w, step, channels});
  auto to = packed.mutable_data<float>();
  std::size_t n = 0;
  for (std::int64_t k = 0; k < steps; ++k) {
    for (std::int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
      for (std::int64_t j = 0; j < step; ++j) {
        for (std::int64_t c = 0; c < channels; ++c, ++n) {
          if (c >= s.out_channels) continue;
          const auto* from = &w.values[s.place(c, (k * step + j) * size, tap / s.kernel_w, tap % s.kernel_w)];
          to[n] = float_at(from, type);
        }
      }
    }
  }
  return packed;
}

class DepthwiseFloat final : public FamilyOf<GroupedFloats, VectorTile> {
 public:
  explicit DepthwiseFloat(ir::DType type) : type_(type), name_(fmt::format("conv.{}.depthwise", ir::name_of(type))) {}
  std::string_view name() const override { return name_; }
  int version() const override { return type_ == ir::DType::f32 ? 1 : 2; }
  bool about(const region::Region& r) const override {
    return is_single(r) && !only(r).anchor.integer && conv_type(only(r)) && only(r).anchor.inputs[0].dtype == type_ &&
           only(r).anchor.as<ir::Window>().group > 1;
  }
  Result<GroupedFloats> match(const region::Region& r, const region::Plan& plan, const Target&) const override {
    GroupedFloats g;
    // tf32 is a permission: products of float32 keep what read_conv would round.
    region::Stage stage = only(r);
    if (stage.anchor.as<ir::Window>().arithmetic == ir::Arithmetic::tf32) {
      auto window = stage.anchor.as<ir::Window>();
      window.arithmetic = ir::Arithmetic::exact;
      stage.anchor.facts = window;
    }
    OCTAVO_TRY(g.conv, read_conv(stage, plan, *conv_type(stage)));
    const ConvShape& s = g.conv.shape;
    g.in = s.channels / bytes_of(s.type), g.out = s.out_channels / s.groups;
    if (!g.own() && g.out % 4 != 0)
      return refuse("channels a group", fmt::format("{} to {}", g.in, g.out), "1 to 1, or to a multiple of 4");
    if (!why_not_tile(g, {1, 1, 64}).empty())
      return refuse("kernel", fmt::format("{}x{}", s.kernel_h, s.kernel_w), "one whose rows fit in registers");
    return g;
  }
  std::vector<Choice<VectorTile>> tactics(const GroupedFloats& g, const Target& target) const override {
    const ConvShape& s = g.conv.shape;
    constexpr double kWait = 800;
    std::vector<Choice<VectorTile>> out;
    for (const int rows : {1, 2, 4}) {
      for (const int columns : {1, 2, 4, 7, 8}) {
        for (const int threads : {64, 128, 256}) {
          const VectorTile t{rows, columns, threads};
          if (!why_not_tile(g, t).empty() || rows >= 2 * s.out_h || columns >= 2 * s.out_w) continue;
          const auto [instructions, waits] = work_of(g, t);
          const double threads_of_all = static_cast<double>(up(items_of(s, t), t.threads));
          const double clocks = std::max(instructions * threads_of_all / (target.multiprocessors * cost::kLanes) * 1.2,
                                         instructions * 3 + waits * kWait);
          out.push_back({t, cost::seconds(clocks, g.conv.traffic()) + cost::kLaunch + (threads == 128 ? 0 : 1e-9)});
        }
      }
    }
    put_in_order(out, [](const VectorTile& t) { return std::array{t.rows, t.columns}; });
    return out;
  }
  Result<KernelText> emit(const GroupedFloats& g, const VectorTile& t, const Target&) const override {
    const ConvShape& s = g.conv.shape;
    if (auto why = why_not_tile(g, t); !why.empty()) return refuse(std::move(why));
    const std::int64_t size = bytes_of(s.type), read = g.own() ? 4 : g.step();
    // Bytes that every run of channels begins at a multiple of, and consists of.
    const std::int64_t vector = std::gcd(std::gcd(s.aligned, read * size), g.own() ? s.out_channels * size : std::int64_t{16});
    ConvKernel k{"octavo_depthwise", conv_parameters(s), {}, parts(items_of(s, t), t.threads), t.threads};
    if (s.open) k.open.name("kItems", items_of(s, t), "long long");
    k.counted = {s.batch, 1, items_of(s, t) / s.batch, "(long long)octavo_block() * kThreads"};
    k.numbers += declare({{"kOutRows", t.rows},
                          {"kOutColumns", t.columns},
                          {"kThreads", t.threads},
                          {"kSize", size},
                          {"kVector", vector},
                          {"kGroupIn", g.in},
                          {"kGroupOut", g.out},
                          {"kStep", g.step()}}) +
                 fmt::format("constexpr bool kOwn = {}, kKept = {};\n", g.own(), keeps(g, t));
    k.text = fmt::format("OCTAVO_DEVICE float octavo_element(const unsigned* w, int j) {{ return {}; }}\n",
                         element_text(type_, "w", "j")) +
             std::string(kText);
    k.rows = t.rows * t.columns, k.run = 4, k.padded_channels = up(s.out_channels, 4);
    return emit_conv_kernel(g.conv, std::move(k),
                            [&](const ConvWeights& weights, const EpilogueShape&) { return pack(g, weights); });
  }

 private:
  ir::DType type_;
  std::string name_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(depthwise_f16, DepthwiseFloat, ir::DType::f16)
OCTAVO_DEFINE_FAMILY(depthwise_bf16, DepthwiseFloat, ir::DType::bf16)
OCTAVO_DEFINE_FAMILY(depthwise_f32, DepthwiseFloat, ir::DType::f32)

}  // namespace octavo::cuda
