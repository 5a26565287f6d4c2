#include "cpu/jit/depthwise_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/half.h"
#include "base/machine.h"
#include "cpu/jit/constants.h"
#include "cpu/jit/division.h"
#include "cpu/jit/fetch.h"
#include "cpu/jit/forms.h"
#include "cpu/jit/generated.h"

namespace octavo::cpu::jit {
namespace {

/// Addresses inside code are 32 bits.
constexpr std::int64_t kMostReach = std::int64_t{1} << 30;
constexpr std::int64_t kMostKernelColumns = 11;
constexpr std::int64_t kVectors = 2;

class DepthwiseLanesKernel final : public region::HostKernel {
 public:
  DepthwiseLanesKernel(const region::Region& region, DepthwiseLanesPlan plan, std::span<const std::byte* const> packed, bool vbmi)
      : d_(std::move(plan)),
        stage_(region.stages.front()),
        weights_(packed[0]),
        init_(reinterpret_cast<const std::int32_t*>(packed[1])) {
    stage_.anchor.weights.reset();
    generate(vbmi);
  }

  [[nodiscard]] int tasks() const override { return d_.tasks.count; }
  [[nodiscard]] std::size_t scratch_bytes() const override { return 0; }

  void run(const region::Memory& memory, int begin, int end, const region::Worker&) const override {
    each_call(d_.tasks, d_.shape, d_.rows, static_cast<std::int64_t>(d_.blocks.size()), begin, end,
              [&](std::int64_t image, std::int64_t y, std::int64_t rows, std::size_t b) {
                for (std::int64_t r = 0; r < rows; ++r) run_row(memory, image, y + r, b);
              });
  }

 private:
  /// Tiles of a row that the same code computes, one after the other.
  struct Run {
    TileFn code = nullptr;
    std::int64_t tiles = 0;
  };

  void generate(bool vbmi) {
    const ConvShape& s = d_.shape;
    ConstantPool pool(code_, d_.epilogue.lanes);
    std::map<DepthwiseLanesTile, std::size_t> made;
    struct Planned {
      std::size_t code = 0;
      std::int64_t tiles = 0;
    };
    std::vector<TapRange> ranges;
    for (std::int64_t y = 0; y < s.out_h; ++y) {
      const TapRange r = d_.taps(0, y);
      const auto found = std::find(ranges.begin(), ranges.end(), r);
      range_of_.push_back(static_cast<std::size_t>(found - ranges.begin()));
      if (found == ranges.end()) ranges.push_back(r);
    }
    std::vector<std::vector<std::vector<Planned>>> planned;  // [range][block]
    for (const TapRange& rows : ranges) {
      auto& of_range = planned.emplace_back();
      for (const Block& b : d_.blocks) {
        auto& runs = of_range.emplace_back();
        const Tiling t = tile_pixels(s.out_w, d_.most_columns(b.vectors));
        std::int64_t first = 0;
        for (int i = 0; i < t.big_count + t.small_count; ++i) {
          DepthwiseLanesTile tile{
              .columns = i < t.big_count ? t.big : t.small, .vectors = b.vectors, .tail = b.tail, .rows = rows, .clipped = {}};
          for (int p = 0; p < tile.columns; ++p) tile.clipped.push_back(d_.taps(1, first + p));
          const TapRange whole{0, s.kw};
          if (std::all_of(tile.clipped.begin(), tile.clipped.end(), [&](const TapRange& r) { return r == whole; }))
            tile.clipped.clear();
          const auto [at, is_new] = made.try_emplace(tile, 0);
          if (is_new) at->second = emit_depthwise_lanes_tile(code_, pool, d_, tile, vbmi);
          if (runs.empty() || runs.back().code != at->second) runs.push_back({at->second, 0});
          ++runs.back().tiles;
          first += tile.columns;
        }
      }
    }
    make_table();
    pool.emit();
    code_.finish();
    const auto base = reinterpret_cast<std::uintptr_t>(code_.getCode());
    for (const auto& of_range : planned) {
      auto& to = runs_.emplace_back();
      for (const auto& of_block : of_range) {
        auto& list = to.emplace_back();
        for (const Planned& p : of_block) list.push_back({reinterpret_cast<TileFn>(base + p.code), p.tiles});
      }
    }
  }

  [[nodiscard]] const region::TensorRef& stream_ref(int s) const {
    const auto n = static_cast<std::size_t>(s);
    return n < stage_.operands.size() ? stage_.operands[n].ref : stage_.stores[n - stage_.operands.size()];
  }

  void make_table() {
    const auto columns = static_cast<std::size_t>(d_.epilogue.columns);
    table_.resize(static_cast<std::size_t>(d_.shape.out_w) * columns);
    for (std::int64_t k = 0; k < d_.shape.out_w; ++k) {
      std::int32_t* row = table_.data() + static_cast<std::size_t>(k) * columns;
      row[0] = static_cast<std::int32_t>((k * d_.shape.stride[1] - d_.shape.pads[1]) * d_.pixel_bytes);
      for (int s = 0; s < d_.epilogue.stream_count(); ++s) {
        const int column = d_.epilogue.stream(s).column;
        if (column < 0) continue;
        const auto& ref = stream_ref(s);
        row[column] = static_cast<std::int32_t>(k * ref.strides[3] * static_cast<std::int64_t>(ir::size_of(ref.dtype)));
      }
    }
  }

  void run_row(const region::Memory& memory, std::int64_t image, std::int64_t y, std::size_t b) const {
    const auto& x = stage_.anchor.inputs.front();
    const ConvShape& s = d_.shape;
    const Block& block = d_.blocks[b];
    const std::byte* channels = memory.at(x) + (image * x.strides[0] + block.first_channel) * d_.element();
    const std::int64_t row = y * s.stride[0] - s.pads[0];
    if (d_.ahead > 0) {
      const std::int64_t next = row + (s.kh - 1) * s.dilation[0] + 1;
      for (std::int64_t r = std::max<std::int64_t>(0, next); r < std::min(s.h, next + d_.ahead); ++r) {
        for (std::int64_t k = 0; k < s.w; ++k) __builtin_prefetch(channels + r * d_.row_bytes + k * d_.pixel_bytes, 0, 3);
      }
    }
    TileArgs args;
    args.table = table_.data();
    args.x = channels + row * d_.row_bytes;
    args.weights = weights_ + block.weights;
    args.init = init_ + block.init;
    for (int k = 0; k < d_.epilogue.stream_count(); ++k) {
      const auto& ref = stream_ref(k);
      const Stream& stream = d_.epilogue.stream(k);
      std::int64_t at = image * ref.strides[0];
      if (stream.column >= 0) at += y * ref.strides[2];
      if (stream.access == Access::channel || stream.access == Access::full) at += block.first_channel;
      args.stream[static_cast<std::size_t>(k)] = memory.at(ref) + at * static_cast<std::int64_t>(ir::size_of(ref.dtype));
    }
    for (const Run& run : runs_[range_of_[static_cast<std::size_t>(y)]][b]) {
      args.tiles = run.tiles;  // the table goes on where the last call left it
      run.code(&args);
    }
  }

  DepthwiseLanesPlan d_;
  region::Stage stage_;
  const std::byte* weights_;
  const std::int32_t* init_;  ///< or floats; TileArgs moves 32 bits
  Code code_;
  std::vector<std::size_t> range_of_;                ///< of an output row: which kernel rows are inside
  std::vector<std::vector<std::vector<Run>>> runs_;  ///< [range][block]
  std::vector<std::int32_t> table_;
};

}  // namespace

TapRange DepthwiseLanesPlan::taps(int axis, std::int64_t at) const {
  const auto a = static_cast<std::size_t>(axis);
  const std::int64_t first = at * shape.stride[a] - shape.pads[a], size = axis == 0 ? shape.h : shape.w;
  TapRange r{0, axis == 0 ? shape.kh : shape.kw};
  while (r.begin < r.end && first + r.begin * shape.dilation[a] < 0) ++r.begin;
  while (r.end > r.begin && first + (r.end - 1) * shape.dilation[a] >= size) --r.end;
  return r.begin == r.end ? TapRange{} : r;
}

int DepthwiseLanesPlan::most_columns(int vectors) const {
  const int registers = epilogue.registers() - spare_registers() - static_cast<int>(shape.kw) * vectors;
  return std::clamp(registers / vectors, 1, vectors == 1 ? 12 : 8);
}

Reasons plan_depthwise_lanes(const region::Region& region, const region::Plan& plan, const Target& target, Dots dots,
                             DepthwiseLanesPlan& d) {
  d = DepthwiseLanesPlan{};
  const bool codes = !of_floats(dots);
  d.codes = codes, d.bf16 = of_bf16(dots);
  const ir::DType type = d.bf16 ? ir::DType::bf16 : ir::DType::f32;
  if (auto why = codes ? read_conv(region, d.shape, true) : read_float_conv(region, d.shape, type); !why.empty()) return why;
  const ConvShape& s = d.shape;
  if (s.transposed) return unmet("operator", "ConvTranspose", "Conv");
  if (s.ic() != 1 || s.oc() != 1) return unmet("channels a group", fmt::format("{} to {}", s.ic(), s.oc()), "1 to 1");
  if (s.kw > kMostKernelColumns) return unmet("kernel columns", s.kw, fmt::format("at most {}", kMostKernelColumns));
  if (s.kh * s.kw > 121) return unmet("kernel taps", s.kh * s.kw, "at most 121");
  const auto& stage = region.stages.front();
  for (const auto& operand : stage.operands) {
    for (auto v : operand.div) {
      if (v != 1) return unmet("repetition of an operand", v, "1");
    }
  }
  const auto& x = stage.anchor.inputs.front();
  d.row_bytes = x.strides[2] * d.element(), d.pixel_bytes = x.strides[3] * d.element();
  d.zero = codes ? x.quantizer->zero_point.front() : 0;
  const std::int64_t reach =
      (s.kh * s.dilation[0] + 1) * d.row_bytes + (s.kw * s.dilation[1] + s.out_w * s.stride[1]) * d.pixel_bytes;
  if (reach >= kMostReach) return unmet("bytes of a window's rows", reach, fmt::format("less than {}", kMostReach));
  if (auto why = lower(stage, false, target.vbmi, d.epilogue, target.lanes); !why.empty()) return why;
  d.epilogue.narrows = d.bf16;
  d.bias_operand = take_bias(stage, plan, d.epilogue);
  if (codes) fold_zero_points(d.epilogue);
  if (target.multiply) multiply_where_exact(d.epilogue);
  d.ahead = std::max(0, target.prefetch);
  const std::int64_t lanes = target.lanes, vectors = ceil_div(s.c, lanes), blocks = ceil_div(vectors, lanes == 16 ? kVectors : 1);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t first = vectors * i / blocks * lanes;
    Block b = block_at(first, std::min(s.c, vectors * (i + 1) / blocks * lanes), target.lanes);
    b.weights = d.weight_bytes;
    b.init = d.init_count;
    d.weight_bytes += s.kh * s.kw * b.vectors * lanes * 4;
    d.init_count += b.vectors * lanes;
    d.blocks.push_back(b);
  }
  // All channels of the rows that are computed together stay in L2, so that their lines come once.
  const std::int64_t row = s.stride[0] * s.w * d.pixel_bytes + s.out_w * s.c * d.element();
  d.rows = target.rows > 0 ? target.rows
                           : std::clamp<std::int64_t>(standard_machine().l2_bytes / 3 / std::max<std::int64_t>(1, row), 1, s.out_h);
  double clocks = 0;
  for (const Block& b : d.blocks)
    clocks += b.vectors * (static_cast<double>(s.kh * s.kw) / (codes ? 1.1 : 1.6) + 1.5 +
                           0.25 * static_cast<double>(d.epilogue.code.size())) +
              1;
  clocks *= static_cast<double>(s.n * s.out_h * s.out_w);
  d.seconds = clocks / standard_machine().clock_hz + 3e-7;
  d.tasks = split_rows(s, d.rows, static_cast<std::int64_t>(d.blocks.size()), d.seconds, plan.threads, target);
  return {};
}

namespace {

/// `Weight`: in the file; `Lane`: as packed; `lane` makes one of the other, given the channel.
template <class Weight, class Lane, class Convert>
Result<std::vector<ir::Tensor>> pack_as(const region::Region& region, const region::Plan& plan, const DepthwiseLanesPlan& d,
                                        ir::DType type, const Convert& lane) {
  OCTAVO_TRY(const auto* w, constant_at<Weight>(region, plan, *region.stages.front().anchor.weights, "weights"));
  OCTAVO_TRY(const std::vector<Lane> bias, biases<Lane>(region, plan, d.bias_operand, d.shape.c));
  const std::int64_t taps = d.shape.kh * d.shape.kw;
  ir::Tensor weights(type, {d.weight_bytes / 4}), init(type, {d.init_count});
  auto* wp = weights.mutable_data<Lane>().data();
  auto* ip = init.mutable_data<Lane>().data();
  for (const Block& b : d.blocks) {
    for (std::int64_t c = 0; c < b.channels; ++c) {
      for (std::int64_t k = 0; k < taps; ++k)
        wp[b.weights / 4 + k * b.vectors * d.epilogue.lanes + c] = lane(w[(b.first_channel + c) * taps + k], b.first_channel + c);
      if (!bias.empty()) ip[b.init + c] = bias[static_cast<std::size_t>(b.first_channel + c)];
    }
  }
  return std::vector<ir::Tensor>{std::move(weights), std::move(init)};
}

}  // namespace

Result<std::vector<ir::Tensor>> pack_depthwise_lanes(const region::Region& region, const region::Plan& plan,
                                                     const DepthwiseLanesPlan& d) {
  if (d.bf16)
    return pack_as<std::uint16_t, float>(region, plan, d, ir::DType::f32,
                                         [](std::uint16_t w, std::int64_t) { return bf16_to_f32(w); });
  if (!d.codes) return pack_as<float, float>(region, plan, d, ir::DType::f32, [](float w, std::int64_t) { return w; });
  const region::Anchor& anchor = region.stages.front().anchor;
  return pack_as<std::int8_t, std::int32_t>(region, plan, d, ir::DType::s32, [&](std::int8_t w, std::int64_t channel) {
    return (std::int32_t{w} - weight_zero_of(anchor, channel)) & 0xffff;
  });
}

Result<std::unique_ptr<region::HostKernel>> make_depthwise_lanes(const region::Region& region, DepthwiseLanesPlan d,
                                                                 std::span<const std::byte* const> packed, bool vbmi) {
  return make_generated<DepthwiseLanesKernel>(region, std::move(d), packed, vbmi);
}

}  // namespace octavo::cpu::jit
