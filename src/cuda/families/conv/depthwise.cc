#include "cuda/families/conv/depthwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/depthwise.inc"
    ;
constexpr std::string_view kWindow =
#include "cuda/families/conv/depthwise_window.inc"
    ;

struct DepthwiseTile {
  int rows = 4, columns = 2, threads = 128;
  static constexpr std::array<TileParameter<DepthwiseTile>, 3> kParameters{
      {{{"rows", "", "of output pixels of a thread"}, {&DepthwiseTile::rows}},
       {{"columns", "", "of output pixels of a thread"}, {&DepthwiseTile::columns}},
       {{"threads", "", "of a block"}, {&DepthwiseTile::threads}}}};
};

std::int64_t words_of(const ConvShape& s, int columns) {
  return parts(s.in_columns(columns), 4);
}

Reasons why_not_tile(const ConvShape& s, const DepthwiseTile& t) {
  if (t.rows < 1 || t.rows > 16 || t.columns < 1 || t.columns > 8 || t.threads < 32 || t.threads > 512 || t.threads % 32 != 0)
    return unmet("pixels and threads", fmt::format("{}x{}, {}", t.rows, t.columns, t.threads), "up to 16x8, whole warps up to 512");
  if (const std::int64_t registers = depthwise_registers(s, t.rows, t.columns); registers > kMostDepthwiseRegisters)
    return unmet("registers for weights and sums", registers, fmt::format("at most {}", kMostDepthwiseRegisters));
  return {};
}

/// Threads of the launch that have a share of the results.
std::int64_t items_of(const ConvShape& s, const DepthwiseTile& t) {
  return s.batch * parts(s.out_h, t.rows) * parts(s.out_w, t.columns) * (s.out_channels / 4);
}

class Depthwise final : public FamilyOf<ConvSetting, DepthwiseTile> {
 public:
  std::string_view name() const override { return "conv.u8s8.depthwise"; }
  bool about(const region::Region& r) const override {
    return r.stages.size() == 1 && r.stages[0].anchor.op == ir::Op::conv && r.stages[0].anchor.integer &&
           r.stages[0].anchor.as<ir::Window>().group > 1;
  }
  Result<ConvSetting> match(const region::Region& r, const region::Plan& plan, const Target&) const override {
    return read_depthwise(only(r), plan);
  }
  std::vector<Choice<DepthwiseTile>> tactics(const ConvSetting& conv, const Target& target) const override {
    const ConvShape& s = conv.shape;
    double bytes = static_cast<double>(s.batch * s.image);
    for (const auto& o : conv.tail.stores) bytes += static_cast<double>(tensor_bytes(o));
    std::vector<Choice<DepthwiseTile>> out;
    for (const int rows : {1, 2, 4, 7, 8}) {
      for (const int columns : {1, 2, 4}) {
        for (const int threads : {64, 128, 256}) {
          const DepthwiseTile t{rows, columns, threads};
          if (!why_not_tile(s, t).empty() || rows > 2 * s.out_h || columns > 2 * s.out_w) continue;
          const double instructions = depthwise_instructions(s, rows, columns);
          const double waves = std::max(1.0, static_cast<double>(items_of(s, t)) / (target.multiprocessors * 128.0 * 2));
          const double clocks = std::max(instructions * waves * 2 * 1.3, instructions * 4.0);
          out.push_back({t, cost::seconds(clocks, bytes) + cost::kLaunch + (threads == 128 ? 0 : 1e-9)});
        }
      }
    }
    fastest_first(out);
    return out;
  }
  Result<KernelText> emit(const ConvSetting& conv, const DepthwiseTile& t, const Target&) const override {
    const ConvShape& s = conv.shape;
    if (auto why = why_not_tile(s, t); !why.empty()) return refuse(std::move(why));
    ConvKernel k{"octavo_depthwise", conv_parameters(s), std::string(kWindow) + std::string(kText),
                 parts(items_of(s, t), t.threads), t.threads};
    k.numbers += declare({{"kOutRows", t.rows}, {"kOutColumns", t.columns}, {"kThreads", t.threads}});
    if (s.open) k.open.name("kItems", items_of(s, t), "long long");
    k.counted = {s.batch, 1, items_of(s, t) / s.batch, "(long long)octavo_block() * kThreads"};
    k.rows = t.rows * t.columns, k.run = 4, k.padded_channels = s.out_channels;
    return emit_conv_kernel(conv, std::move(k), [&](const ConvWeights& weights, const EpilogueShape&) {
      return pack_depthwise(s, weights, t.columns);
    });
  }
};

}  // namespace

Result<ConvSetting> read_depthwise(const region::Stage& stage, const region::Plan& plan) {
  OCTAVO_TRY(ConvSetting conv, read_conv(stage, plan));
  const ConvShape& s = conv.shape;
  if (s.channels != 1 || s.groups != s.out_channels)
    return refuse("channels a group", fmt::format("{} to {}", s.channels, s.out_channels / std::max<std::int64_t>(s.groups, 1)),
                  "1 to 1");
  if (s.out_channels % 4 != 0 || s.pixel % 4 != 0 || s.row % 4 != 0 || s.image % 4 != 0 || conv.input.offset % 4 != 0)
    return refuse("channels, bytes a pixel, offset", fmt::format("{}, {}, {}", s.out_channels, s.pixel, conv.input.offset),
                  "multiples of 4");
  if (s.kernel_h > 11 || s.kernel_w > 11 || !why_not_tile(s, {1, 1, 64}).empty())
    return refuse("kernel", fmt::format("{}x{}", s.kernel_h, s.kernel_w), "at most 11x11, and its weights in registers");
  return conv;
}

std::int64_t depthwise_registers(const ConvShape& s, int rows, int columns) {
  return s.kernel_h * columns * words_of(s, columns) * 4 + std::int64_t{rows} * columns * 4;
}

double depthwise_instructions(const ConvShape& s, int rows, int columns) {
  const auto in_rows = static_cast<double>(s.in_rows(rows));
  const double span = 4.0 * static_cast<double>(words_of(s, columns));
  return in_rows * span * 4 + rows * columns * 4 * (1.5 * static_cast<double>(s.kernel_h) + 14) +
         static_cast<double>(s.kernel_h * columns * words_of(s, columns)) + 60;
}

ir::Tensor pack_depthwise(const ConvShape& s, const ConvWeights& w, int columns) {
  const std::int64_t words = words_of(s, columns), c4 = s.out_channels * 4;
  if (w.values.empty()) return layout_mark({s.out_channels, s.kernel_h, s.kernel_w, s.stride_w, s.dilation_w, columns, words});
  ir::Tensor packed(ir::DType::s8, {s.kernel_h * columns * words * c4});
  auto* p = packed.mutable_data<std::int8_t>().data();
  for (std::int64_t c = 0; c < s.out_channels; ++c) {
    for (std::int64_t y = 0; y < s.kernel_h; ++y) {
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t k = 0; k < s.kernel_w; ++k) {
          const std::int64_t at = column * s.stride_w + k * s.dilation_w;
          p[((y * columns + column) * words + at / 4) * c4 + c * 4 + at % 4] =
              w.values[static_cast<std::size_t>((c * s.kernel_h + y) * s.kernel_w + k)];
        }
      }
    }
  }
  return packed;
}

std::string_view depthwise_window_text() {
  return kWindow;
}

OCTAVO_DEFINE_FAMILY(depthwise, Depthwise)

}  // namespace octavo::cuda
