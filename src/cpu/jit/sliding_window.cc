#include "cpu/jit/sliding_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/causes/kernels.h"
#include "base/machine.h"
#include "cpu/jit/constants.h"
#include "cpu/jit/fetch.h"
#include "cpu/jit/generated.h"
#include "cpu/jit/generated_family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace jit {
namespace {

constexpr std::int64_t kValues = 5;  ///< m, b, scale, bias, offset
/// Rows go in row tiles, all of a block one after the other: less is done for each call, and weights are read once. Where an image and
/// its result stay in L2 they are one row tile; what is farther away is read once for all blocks.
constexpr std::int64_t kNearBytes = standard_machine().l2_bytes, kRowTileBytes = standard_machine().l2_bytes / 8;

class SlidingWindowKernel final : public region::HostKernel {
 public:
  SlidingWindowKernel(SlidingWindowSetting plan, Packed packed)
      : d_(std::move(plan)),
        weights_(packed[0].data()),
        values_(reinterpret_cast<const float*>(packed[1].data())),
        has_line_(reinterpret_cast<const std::int32_t*>(packed[2].data())) {
    padding_.fill(static_cast<std::byte>(d_.zero));
    generate();
  }

  [[nodiscard]] int tasks() const override { return d_.tasks.count; }

  void run(const region::Memory& memory, int begin, int end, const region::Worker&) const override {
    const auto call = [&](std::int64_t image, std::int64_t y, std::int64_t rows, std::size_t b) {
      run_rows(memory, image, y, rows, 1, b);
    };
    if (d_.tasks.rows == 0) {
      each_call(d_.tasks, d_.shape, d_.rows, static_cast<std::int64_t>(d_.blocks.size()), begin, end, call);
      return;
    }
    const std::int64_t h = d_.shape.out_h, until = d_.tasks.rows * end / d_.tasks.count;
    for (std::int64_t r = d_.tasks.rows * begin / d_.tasks.count, next = 0; r < until; r = next) {  // a row tile each
      next = std::min({until, (r / h + 1) * h, r + d_.row_tile});
      const std::int64_t steps = (next - r) / d_.rows, rest = (next - r) % d_.rows;
      for (std::size_t b = 0; b < d_.blocks.size(); ++b) {
        if (steps > 0) run_rows(memory, r / h, r % h, d_.rows, steps, b);
        if (rest > 0) run_rows(memory, r / h, r % h + steps * d_.rows, rest, 1, b);
      }
    }
  }

 private:
  [[nodiscard]] SlidingWindowShape shape_of(const Block& b, std::int64_t rows) const {
    return {b.vectors, b.tail, static_cast<int>(rows), has_line_[b.init / 16] != 0};
  }

  void generate() {
    ConstantPool pool(code_);
    std::map<SlidingWindowShape, std::size_t> at;
    for (std::int64_t rows = 1; rows <= d_.rows; ++rows) {
      for (const Block& b : d_.blocks) {
        const SlidingWindowShape shape = shape_of(b, rows);
        if (at.count(shape) == 0) at[shape] = emit_sliding_window(code_, pool, d_, shape);
      }
    }
    pool.emit();
    code_.finish();
    const auto base = reinterpret_cast<std::uintptr_t>(code_.getCode());
    for (std::int64_t rows = 1; rows <= d_.rows; ++rows) {
      for (const Block& b : d_.blocks)
        code_of_[static_cast<std::size_t>(rows - 1)].push_back(reinterpret_cast<SlidingWindowFn>(base + at.at(shape_of(b, rows))));
    }
  }

  void run_rows(const region::Memory& memory, std::int64_t image, std::int64_t y, std::int64_t rows, std::int64_t steps,
                std::size_t b) const {
    const auto& x = d_.streams.input;
    const Block& block = d_.blocks[b];
    const std::int64_t stride = d_.stride();
    if (d_.ahead > 0) {  // of the next block, or behind the rows of this call
      const bool last = b + 1 == d_.blocks.size();
      const std::int64_t from = (last ? y + rows * steps : y) * stride - d_.shape.pads[0];
      const Block& next = d_.blocks[last ? 0 : b + 1];
      fetch_rows(memory.at(x) + image * x.strides[0] + next.first_channel, x, from, from + d_.ahead, next.channels);
    }
    SlidingWindowArgs args;
    args.y = y * stride - d_.shape.pads[0];
    args.row = memory.at(x) + (image * x.strides[0] + block.first_channel + args.y * x.strides[2]);
    args.row_bytes = x.strides[2];
    args.step_bytes = rows * stride * x.strides[2];
    args.steps = steps;
    args.padding = padding_.data();
    args.weights = weights_ + block.weights;
    args.values = values_ + block.init;
    const auto& sinks = d_.epilogue.pack.sinks;
    for (std::size_t k = 0; k < sinks.size(); ++k) {
      const auto& ref = d_.streams.stores[static_cast<std::size_t>(sinks[k].output)];
      args.out[k] = memory.at(ref) + image * ref.strides[0] + y * ref.strides[2] + block.first_channel;
    }
    code_of_[static_cast<std::size_t>(rows) - 1][b](&args);
  }

  SlidingWindowSetting d_;
  const std::byte* weights_;
  const float* values_;
  const std::int32_t* has_line_;
  alignas(64) std::array<std::byte, 64> padding_{};
  Code code_;
  std::array<std::vector<SlidingWindowFn>, 2> code_of_;  ///< [rows - 1][block]
};

}  // namespace

Result<SlidingWindowSetting> match_sliding_window(const region::Region& region, const region::Plan& plan,
                                                  const CodeOptions& options) {
  SlidingWindowSetting d;
  if (auto why = read_conv(region, d.shape); !why.empty()) return refuse(std::move(why));
  const Conv2d& s = d.shape;
  if (s.transposed) return refuse("operator", "ConvTranspose", "Conv");
  if (s.ic() != 1 || s.oc() != 1) return refuse("channels a group", fmt::format("{} to {}", s.ic(), s.oc()), "1 to 1");
  if (s.kh != 3 || s.kw != 3) return refuse("kernel", fmt::format("{}x{}", s.kh, s.kw), "3x3");
  if (s.dilation != std::array<std::int64_t, 2>{1, 1})
    return refuse("dilations", fmt::format("{}x{}", s.dilation[0], s.dilation[1]), "1x1");
  if (s.stride[0] != s.stride[1] || s.stride[0] > 2)
    return refuse("strides", fmt::format("{}x{}", s.stride[0], s.stride[1]), "1x1 or 2x2");
  if (s.pads[1] > d.first_columns()) return refuse("columns of padding", s.pads[1], fmt::format("at most {}", d.first_columns()));
  const auto& stage = region.stages.front();
  d.options = options;
  d.streams = Streams(stage);
  d.weights = Constant(*stage.anchor.weights, plan);
  if (auto why = lower(stage, false, options.vbmi, d.epilogue); !why.empty()) return refuse(std::move(why));
  d.bias = ChannelOperand(stage, plan, take_bias(stage, plan, d.epilogue));
  if (auto why = find_requant(d.epilogue, d.requant); !why.empty()) {
    why.insert(why.begin(), because<cause::epilogue_not_requantize>());
    return refuse(std::move(why));
  }
  if (!foldable(stage, plan, d.requant)) return refuse("scale and bias", "computed at run time", "constant");
  d.channels = ChannelValues(stage, plan, d.requant);
  if (d.epilogue.pack.sinks.size() > kSlidingWindowSinks)
    return refuse("stores", d.epilogue.pack.sinks.size(), fmt::format("at most {}", kSlidingWindowSinks));
  for (const auto& store : stage.stores) {  // displacements of the second row
    if (store.strides[2] > 0x3fffffff || store.strides[3] > 0x3fffffff)
      return refuse("distance of a store's rows", "beyond 2^30 bytes", "less");
  }
  d.zero = stage.anchor.inputs.front().quantizer->zero_point.front();
  d.rows = s.stride[0] == 1 ? std::min<std::int64_t>(2, s.out_h) : 1;
  double clocks = 0;
  for (std::int64_t c = 0; c < s.c; c += 64) {
    Block b = block_at(c, s.c);
    b.weights = d.weight_bytes;
    b.init = d.init_count;
    d.weight_bytes += 3 * b.vectors * d.rows * 64;
    d.init_count += b.vectors * 16;
    d.blocks.push_back(b);
    clocks += static_cast<double>(d.rows) * (3.5 * b.vectors + 2) + 4 * static_cast<double>(d.stride());
  }
  const std::int64_t near = s.c * (s.h * s.w + s.out_h * s.out_w), step = ceil_div(near, s.out_h) * d.rows;
  d.row_tile = near <= kNearBytes ? s.out_h : std::max<std::int64_t>(1, kRowTileBytes / step) * d.rows;
  if (options.rows > 0) d.row_tile = std::min(s.out_h, ceil_div(options.rows, d.rows) * d.rows);
  const std::int64_t steps = ceil_div(s.out_h, d.rows);
  d.seconds = clocks * static_cast<double>(s.n * steps * s.out_w) / standard_machine().clock_hz + 3e-7;
  d.tasks = split_rows(s, d.rows, static_cast<std::int64_t>(d.blocks.size()), d.seconds, plan.threads, options);
  d.ahead = std::max(0, options.prefetch);
  return d;
}

namespace {

Result<std::vector<ir::Tensor>> pack_sliding_window(const SlidingWindowSetting& d) {
  OCTAVO_TRY(const auto* w, d.weights.data<std::int8_t>("weights"));
  OCTAVO_TRY(const std::vector<std::int32_t> bias, d.bias.values<std::int32_t>(d.shape.c));
  ir::Tensor weights(ir::DType::s8, {d.weight_bytes}), values(ir::DType::f32, {kValues * d.init_count});
  std::vector<LineBlock> blocks;
  for (const Block& b : d.blocks) {
    auto& line = blocks.emplace_back(LineBlock{b.first_channel, b.init, {}, {}});
    for (std::int64_t c = 0; c < b.channels; ++c) {
      std::int64_t sum = 0, most = 0;
      for (std::int64_t k = 0; k < 9; ++k) {
        const std::int64_t tap = w[(b.first_channel + c) * 9 + k];
        sum += tap;
        most += 255 * std::abs(tap);
      }
      line.limits.push_back(most);
      line.offsets.push_back(-d.zero * sum + (bias.empty() ? 0 : bias[static_cast<std::size_t>(b.first_channel + c)]));
    }
  }
  OCTAVO_TRY(auto lines, pack_lines(d.channels, d.requant, blocks, d.init_count));
  const auto* natural = lines[0].data<float>().data();
  auto* to = weights.mutable_data<std::int8_t>().data();
  auto* vp = values.mutable_data<float>().data();
  for (std::size_t i = 0; i < d.blocks.size(); ++i) {
    const Block& b = d.blocks[i];
    for (std::int64_t k = 0; k < 3; ++k) {
      for (std::int64_t v = 0; v < b.vectors; ++v) {
        for (std::int64_t r = 0; r < d.rows; ++r) {
          for (std::int64_t n = 0; n < 64; ++n, ++to) {
            const std::int64_t c = SlidingWindowSetting::channel(b, v, n / 4), ky = n % 4 - r;
            if (c < b.channels && ky >= 0 && ky < 3) *to = w[((b.first_channel + c) * 3 + ky) * 3 + k];
          }
        }
      }
    }
    for (std::int64_t v = 0; v < b.vectors; ++v) {
      for (std::int64_t n = 0; n < 16; ++n) {
        const std::int64_t c = SlidingWindowSetting::channel(b, v, n), at = b.init + 16 * v + n;
        if (c >= b.channels) continue;
        vp[at] = natural[b.init + c];
        vp[d.init_count + at] = natural[d.init_count + b.init + c];
        vp[2 * d.init_count + at] = d.channels.scale(b.first_channel + c);
        vp[3 * d.init_count + at] = d.channels.bias(b.first_channel + c);
        vp[4 * d.init_count + at] = std::bit_cast<float>(
            static_cast<std::int32_t>(static_cast<std::uint32_t>(blocks[i].offsets[static_cast<std::size_t>(c)])));
      }
    }
  }
  return std::vector<ir::Tensor>{std::move(weights), std::move(values), std::move(lines[1])};
}

class SlidingWindowFamily final : public GeneratedFamily<SlidingWindowSetting> {
 public:
  SlidingWindowFamily()
      : GeneratedFamily(
            {.name = "depthwise.u8s8.avx512vnni.sliding_window", .levels = kLevels, .parameters = kCodeParameters, .rank = 0}) {}
  bool about(const Region& r) const override { return is_one(r, ir::Op::conv) && only(r).anchor.as<ir::Window>().group > 1; }
  Parameters parameters_here() const override { return with_effect(CodeOptions::here(), true, false); }
  Match<SlidingWindowSetting> match(const Request& q) const override {
    return match_sliding_window(q.region, q.plan, options_of(q));
  }
  Parameters parameters(const SlidingWindowSetting& d, const Parameters& given) const override {
    return with_effect(given, !d.epilogue.tables.empty(), false);
  }
  std::vector<Parameters> variants(const SlidingWindowSetting& d) const override {
    const std::int64_t all = d.shape.out_h, some = d.row_tile == all ? all / 2 : d.row_tile * 2;
    return depthwise_variants(d.tasks, d.row_tile, {some, d.row_tile / 2, all}, d.options);
  }
  std::vector<std::int64_t> packed_bytes(const SlidingWindowSetting& d) const override {
    return {d.weight_bytes, d.init_count * kValues * 4, d.init_count / 4};
  }
  Result<std::vector<ir::Tensor>> pack(const SlidingWindowSetting& d) const override { return pack_sliding_window(d); }
  std::optional<std::string> layout(const SlidingWindowSetting& d) const override {
    return fmt::format("{} rows, zero {}:", d.rows, d.zero) + layout_of_blocks(d.blocks);
  }
  Result<std::unique_ptr<Kernel>> load(SlidingWindowSetting d, Packed packed) const override {
    return make_generated<SlidingWindowKernel>(std::move(d), packed);
  }

 private:
  static constexpr std::array kLevels{Isa::avx512vnni};
};

}  // namespace
}  // namespace jit

OCTAVO_DEFINE_FAMILY(sliding_window, jit::SlidingWindowFamily)

}  // namespace octavo::cpu
