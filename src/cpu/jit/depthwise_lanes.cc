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
#include "cpu/jit/generated_family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace jit {
namespace {

/// Addresses inside code are 32 bits.
constexpr std::int64_t kMostReach = std::int64_t{1} << 30;
constexpr std::int64_t kMostKernelColumns = 11;
constexpr std::int64_t kVectors = 2;

class DepthwiseLanesKernel final : public region::HostKernel {
 public:
  DepthwiseLanesKernel(DepthwiseLanesSetting plan, Packed packed)
      : d_(std::move(plan)), weights_(packed[0].data()), init_(reinterpret_cast<const std::int32_t*>(packed[1].data())) {
    generate(d_.options.vbmi);
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
    const Conv2d& s = d_.shape;
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

  void make_table() {
    const auto columns = static_cast<std::size_t>(d_.epilogue.columns);
    table_.resize(static_cast<std::size_t>(d_.shape.out_w) * columns);
    for (std::int64_t k = 0; k < d_.shape.out_w; ++k) {
      std::int32_t* row = table_.data() + static_cast<std::size_t>(k) * columns;
      row[0] = static_cast<std::int32_t>((k * d_.shape.stride[1] - d_.shape.pads[1]) * d_.pixel_bytes);
      d_.streams.fill_columns(row, d_.epilogue, 0, k);
    }
  }

  void run_row(const region::Memory& memory, std::int64_t image, std::int64_t y, std::size_t b) const {
    const auto& x = d_.streams.input;
    const Conv2d& s = d_.shape;
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
    d_.streams.place(args.stream, d_.epilogue, memory, image, y, 0, block.first_channel);
    for (const Run& run : runs_[range_of_[static_cast<std::size_t>(y)]][b]) {
      args.tiles = run.tiles;  // the table goes on where the last call left it
      run.code(&args);
    }
  }

  DepthwiseLanesSetting d_;
  const std::byte* weights_;
  const std::int32_t* init_;  ///< or floats; TileArgs moves 32 bits
  Code code_;
  std::vector<std::size_t> range_of_;                ///< of an output row: which kernel rows are inside
  std::vector<std::vector<std::vector<Run>>> runs_;  ///< [range][block]
  std::vector<std::int32_t> table_;
};

}  // namespace

TapRange DepthwiseLanesSetting::taps(int axis, std::int64_t at) const {
  const auto a = static_cast<std::size_t>(axis);
  const std::int64_t first = at * shape.stride[a] - shape.pads[a], size = axis == 0 ? shape.h : shape.w;
  TapRange r{0, axis == 0 ? shape.kh : shape.kw};
  while (r.begin < r.end && first + r.begin * shape.dilation[a] < 0) ++r.begin;
  while (r.end > r.begin && first + (r.end - 1) * shape.dilation[a] >= size) --r.end;
  return r.begin == r.end ? TapRange{} : r;
}

int DepthwiseLanesSetting::most_columns(int vectors) const {
  const int registers = epilogue.registers() - spare_registers() - static_cast<int>(shape.kw) * vectors;
  return std::clamp(registers / vectors, 1, vectors == 1 ? 12 : 8);
}

Result<DepthwiseLanesSetting> match_depthwise_lanes(const region::Region& region, const region::Plan& plan,
                                                    const CodeOptions& options, Dots dots) {
  DepthwiseLanesSetting d;
  const bool codes = !of_floats(dots);
  d.codes = codes, d.bf16 = of_bf16(dots);
  const ir::DType type = d.bf16 ? ir::DType::bf16 : ir::DType::f32;
  if (auto why = codes ? read_conv(region, d.shape, true) : read_float_conv(region, d.shape, type); !why.empty())
    return refuse(std::move(why));
  const Conv2d& s = d.shape;
  if (s.transposed) return refuse("operator", "ConvTranspose", "Conv");
  if (s.ic() != 1 || s.oc() != 1) return refuse("channels a group", fmt::format("{} to {}", s.ic(), s.oc()), "1 to 1");
  if (s.kw > kMostKernelColumns) return refuse("kernel columns", s.kw, fmt::format("at most {}", kMostKernelColumns));
  if (s.kh * s.kw > 121) return refuse("kernel taps", s.kh * s.kw, "at most 121");
  const auto& stage = region.stages.front();
  if (auto why = why_repeated(stage); !why.empty()) return refuse(std::move(why));
  d.options = options;
  d.divides = divides(region);
  d.streams = Streams(stage);
  d.weights = Constant(*stage.anchor.weights, plan);
  d.weight_zero = stage.anchor.weight_zero;
  const auto& x = stage.anchor.inputs.front();
  d.row_bytes = x.strides[2] * d.element(), d.pixel_bytes = x.strides[3] * d.element();
  d.zero = codes ? x.quantizer->zero_point.front() : 0;
  const std::int64_t reach =
      (s.kh * s.dilation[0] + 1) * d.row_bytes + (s.kw * s.dilation[1] + s.out_w * s.stride[1]) * d.pixel_bytes;
  if (reach >= kMostReach) return refuse("bytes of a window's rows", reach, fmt::format("less than {}", kMostReach));
  if (auto why = lower(stage, false, options.vbmi, d.epilogue, options.lanes); !why.empty()) return refuse(std::move(why));
  d.epilogue.narrows = d.bf16;
  d.bias = ChannelOperand(stage, plan, take_bias(stage, plan, d.epilogue));
  if (codes) fold_zero_points(d.epilogue);
  if (options.multiply) multiply_where_exact(d.epilogue);
  d.ahead = std::max(0, options.prefetch);
  const std::int64_t lanes = options.lanes, vectors = ceil_div(s.c, lanes), blocks = ceil_div(vectors, lanes == 16 ? kVectors : 1);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t first = vectors * i / blocks * lanes;
    Block b = block_at(first, std::min(s.c, vectors * (i + 1) / blocks * lanes), options.lanes);
    b.weights = d.weight_bytes;
    b.init = d.init_count;
    d.weight_bytes += s.kh * s.kw * b.vectors * lanes * 4;
    d.init_count += b.vectors * lanes;
    d.blocks.push_back(b);
  }
  // All channels of the rows that are computed together stay in L2, so that their lines come once.
  const std::int64_t row = s.stride[0] * s.w * d.pixel_bytes + s.out_w * s.c * d.element();
  d.rows = options.rows > 0
               ? options.rows
               : std::clamp<std::int64_t>(standard_machine().l2_bytes / 3 / std::max<std::int64_t>(1, row), 1, s.out_h);
  double clocks = 0;
  for (const Block& b : d.blocks)
    clocks += b.vectors * (static_cast<double>(s.kh * s.kw) / (codes ? 1.1 : 1.6) + 1.5 +
                           0.25 * static_cast<double>(d.epilogue.code.size())) +
              1;
  clocks *= static_cast<double>(s.n * s.out_h * s.out_w);
  d.seconds = clocks / standard_machine().clock_hz + 3e-7;
  d.tasks = split_rows(s, d.rows, static_cast<std::int64_t>(d.blocks.size()), d.seconds, plan.threads, options);
  return d;
}

namespace {

/// `Weight`: in the file; `Lane`: as packed; `lane` makes one of the other, given the channel.
template <class Weight, class Lane, class Convert>
Result<std::vector<ir::Tensor>> pack_as(const DepthwiseLanesSetting& d, ir::DType type, const Convert& lane) {
  OCTAVO_TRY(const auto* w, d.weights.data<Weight>("weights"));
  OCTAVO_TRY(const std::vector<Lane> bias, d.bias.values<Lane>(d.shape.c));
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

struct DepthwiseLanesKind {
  std::string_view name;
  Dots dots;
  int lanes;
  std::array<Isa, 1> level;
};
constexpr std::array kDepthwiseLanesKinds{DepthwiseLanesKind{"depthwise.f32.avx512.jit", Dots::floats, 16, {Isa::avx512}},
                                          DepthwiseLanesKind{"depthwise.f32.avx2.jit", Dots::floats, 8, {Isa::avx2}},
                                          DepthwiseLanesKind{"depthwise.bf16.avx512.jit", Dots::bf16, 16, {Isa::avx512vnni}},
                                          DepthwiseLanesKind{"depthwise.u8s8.avx2.jit", Dots::pairs, 8, {Isa::avx2}}};

class DepthwiseLanesFamily final : public GeneratedFamily<DepthwiseLanesSetting> {
 public:
  explicit DepthwiseLanesFamily(const DepthwiseLanesKind& kind)
      : GeneratedFamily({.name = kind.name,
                         .levels = kind.level,
                         .required = capabilities_of(kind.dots),
                         .parameters = kCodeParameters,
                         .rank = 0},
                        kind.lanes),
        kind_(kind) {}
  bool about(const Region& r) const override {
    if (!is_one(r, ir::Op::conv) || only(r).anchor.as<ir::Window>().group < 2) return false;
    return !of_floats(kind_.dots) || takes_floats(only(r), kind_.dots);
  }
  Match<DepthwiseLanesSetting> match(const Request& q) const override {
    return match_depthwise_lanes(q.region, q.plan, options_of(q), kind_.dots);
  }
  Parameters parameters(const DepthwiseLanesSetting& d, const Parameters& given) const override {
    return with_effect(given, !d.epilogue.tables.empty(), d.divides);
  }
  std::vector<Parameters> variants(const DepthwiseLanesSetting& d) const override {
    return depthwise_variants(d.tasks, d.rows, {d.rows / 2, d.rows * 2, d.shape.out_h}, d.options);
  }
  std::vector<std::int64_t> packed_bytes(const DepthwiseLanesSetting& d) const override {
    return {d.weight_bytes, d.init_count * 4};
  }
  Result<std::vector<ir::Tensor>> pack(const DepthwiseLanesSetting& d) const override {
    if (d.bf16)
      return pack_as<std::uint16_t, float>(d, ir::DType::f32, [](std::uint16_t w, std::int64_t) { return bf16_to_f32(w); });
    if (!d.codes) return pack_as<float, float>(d, ir::DType::f32, [](float w, std::int64_t) { return w; });
    return pack_as<std::int8_t, std::int32_t>(d, ir::DType::s32, [&](std::int8_t w, std::int64_t channel) {
      return (std::int32_t{w} - weight_zero_of(d.weight_zero, channel)) & 0xffff;
    });
  }
  std::optional<std::string> layout(const DepthwiseLanesSetting& d) const override {
    return fmt::format("{} lanes:", d.epilogue.lanes) + layout_of_blocks(d.blocks);
  }
  Result<std::unique_ptr<Kernel>> load(DepthwiseLanesSetting d, Packed packed) const override {
    return make_generated<DepthwiseLanesKernel>(std::move(d), packed);
  }

 private:
  const DepthwiseLanesKind& kind_;
};

}  // namespace
}  // namespace jit

OCTAVO_DEFINE_FAMILIES(generated_depthwise_lanes, jit::DepthwiseLanesFamily, jit::kDepthwiseLanesKinds)

}  // namespace octavo::cpu
