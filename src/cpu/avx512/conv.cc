#include "cpu/avx512/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <tuple>

#include "cpu/avx512/amx_code.h"
#include "cpu/avx512/amx_plan.h"
#include "cpu/avx512/conv_code.h"
#include "cpu/avx512/strip.h"

namespace octavo::cpu::avx512 {
namespace {

struct TaskItem {
  int phase = 0;
  std::int64_t image = 0, band = 0;
  int first_block = 0, last_block = 0;
  std::size_t size = 0;  ///< which of the phase's sizes of bands
};

class ConvKernel final : public region::Kernel {
 public:
  ConvKernel(const region::Region& region, ConvPlan plan, std::span<const std::byte* const> packed, bool vbmi, const Tiles& tiles)
      : tiles_(tiles),
        plan_(std::move(plan)),
        stage_(region.stages.front()),
        weights_(packed[0]),
        init_(reinterpret_cast<const std::int32_t*>(packed[1])),
        lines_(plan_.requant || plan_.curve ? reinterpret_cast<const float*>(packed[2]) : nullptr),
        has_line_(plan_.requant || plan_.curve ? reinterpret_cast<const std::int32_t*>(packed[3]) : nullptr) {
    stage_.anchor.weights.reset();
    if (plan_.curve) plan_.line = curve_epilogue(plan_.epilogue, reinterpret_cast<const float*>(packed[4]));
    generate(vbmi);
    make_tables();
    make_tasks();
  }

  [[nodiscard]] int tasks() const override { return static_cast<int>(tasks_.size()); }
  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_; }
  [[nodiscard]] const std::byte* first_read(int task) const override {
    return plan_.weight_bytes < kFewWeights ? nullptr : first_weights(task);
  }

  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    const TaskItem* copied = nullptr;
    const TileConfig* configured = nullptr;
    for (int t = begin; t < end; ++t) {
      const TaskItem& task = tasks_[static_cast<std::size_t>(t)];
      const Phase& ph = plan_.phases[static_cast<std::size_t>(task.phase)];
      const bool same =
          copied != nullptr && copied->phase == task.phase && copied->image == task.image && copied->band == task.band;
      if (ph.copies && !same) copy_rows(memory, ph, task, worker.scratch);
      copied = &task;
      if (plan_.dots == Dots::amx) {
        const TileConfig& config = configs_[static_cast<std::size_t>(task.phase)][task.size];
        if (configured == nullptr || !(*configured == config)) tiles_.configure(config);
        configured = &config;
      }
      run_band(memory, ph, task, worker.scratch, t + 1 < end ? first_weights(t + 1) : worker.ahead);
    }
    if (configured != nullptr) tiles_.release();  // 8 KiB less for the system to save
  }

 private:
  static constexpr std::int64_t kFewWeights = 32 << 10;

  [[nodiscard]] const std::byte* first_weights(int t) const {
    const TaskItem& task = tasks_[static_cast<std::size_t>(t)];
    return weights_ + plan_.phases[static_cast<std::size_t>(task.phase)].blocks[static_cast<std::size_t>(task.first_block)].weights;
  }

  using Key = std::tuple<int, int, int, int, bool, int, int>;  // phase, pixels, vectors, tail, line, rows, skip

  /// The functions for one block over one band, resolved when the code is generated.
  struct BlockCode {
    TileFn big = nullptr, small = nullptr;
    std::int64_t repeat = 1, big_count = 0, small_count = 0;
  };
  /// The two tiles of a block over a band, and how often each runs.
  struct Shapes {
    Tile big, small;
    std::int64_t repeat = 1, big_count = 0, small_count = 0;
  };

  [[nodiscard]] Shapes shapes(const Phase& ph, const Block& b, std::int64_t pixels) const {
    const Tile tile{.pixels = 0, .vectors = b.vectors, .tail = b.tail};
    Shapes s{.big = tile, .small = tile};
    if (plan_.dots == Dots::amx) {
      const TileRuns t = tile_runs(ph, pixels);
      s.big.rows = s.small.rows = t.rows;
      s.big.in_memory = s.small.in_memory = true;
      s.big.pixels = 2 * t.rows, s.small.pixels = t.tail, s.small.skip = t.skip;
      s.repeat = t.repeat, s.big_count = t.big_count, s.small_count = t.tail > 0 ? 1 : 0;
      return s;
    }
    const Tiling t = tile_pixels(pixels, most_pixels(b.vectors, ph.all_quads(), plan_.epilogue));
    s.big.pixels = t.big, s.small.pixels = t.small;
    s.big_count = t.big_count, s.small_count = t.small_count;
    return s;
  }

  [[nodiscard]] Key key(std::size_t phase, const Block& b, const Tile& t) const {
    return {static_cast<int>(phase), t.pixels, b.vectors, b.tail, line(b), t.rows, t.skip};
  }

  /// Whether the block's requantization is one fma.
  [[nodiscard]] bool line(const Block& b) const { return has_line_ != nullptr && has_line_[b.init / 16] != 0; }

  /// The numbers of pixels that bands of the phase have, at most three; the first band's first, which is the largest.
  [[nodiscard]] static std::vector<std::int64_t> sizes(const Phase& ph) {
    std::vector<std::int64_t> out;
    for (std::int64_t band : {std::int64_t{0}, std::min(ph.long_bands, ph.bands - 1), ph.bands - 1}) {
      if (std::find(out.begin(), out.end(), ph.pixels_of(band)) == out.end()) out.push_back(ph.pixels_of(band));
    }
    return out;
  }

  void generate(bool vbmi) {
    ConstantPool pool(code_);
    std::map<Key, std::size_t> at;
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      for (const Block& b : ph.blocks) {
        for (const std::int64_t pixels : sizes(ph)) {
          const Shapes t = shapes(ph, b, pixels);
          for (const Tile* tile : {t.big_count > 0 ? &t.big : nullptr, t.small_count > 0 ? &t.small : nullptr}) {
            if (tile == nullptr || at.count(key(i, b, *tile)) != 0) continue;
            const Epilogue& epilogue = line(b) ? plan_.line : plan_.epilogue;
            at[key(i, b, *tile)] =
                plan_.dots == Dots::amx
                    ? emit_amx_tile(code_, pool, plan_, epilogue, ph, *tile, tiles_, t.repeat * (t.big_count + t.small_count), vbmi)
                    : emit_conv_tile(code_, pool, plan_, epilogue, ph, *tile, t.big_count + t.small_count, vbmi);
          }
        }
      }
    }
    pool.emit();
    code_.ready(Xbyak::CodeArray::PROTECT_RE);
    const auto base = reinterpret_cast<std::uintptr_t>(code_.getCode());
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      auto& configs = configs_.emplace_back();
      auto& lists = code_of_.emplace_back();
      for (const std::int64_t pixels : sizes(ph)) {
        if (plan_.dots == Dots::amx) configs.push_back(TileConfig::of(tile_runs(ph, pixels).rows, static_cast<int>(ph.depth)));
        auto& list = lists.emplace_back();
        for (const Block& b : ph.blocks) {
          const Shapes t = shapes(ph, b, pixels);
          BlockCode k{.repeat = t.repeat, .big_count = t.big_count, .small_count = t.small_count};
          if (t.big_count > 0) k.big = reinterpret_cast<TileFn>(base + at.at(key(i, b, t.big)));
          if (t.small_count > 0) k.small = reinterpret_cast<TileFn>(base + at.at(key(i, b, t.small)));
          list.push_back(k);
        }
      }
    }
  }

  void make_tables() {
    for (const Phase& ph : plan_.phases) {
      std::vector<std::int32_t> table;
      const std::int64_t pixels = ph.pixels_of(0);
      const int columns = plan_.epilogue.columns;
      table.resize(static_cast<std::size_t>(pixels * columns));
      for (std::int64_t i = 0; i < pixels; ++i) {
        const std::int64_t j = ph.flat ? 0 : i / ph.row_pixels, k = ph.flat ? i : i % ph.row_pixels;
        auto* row = table.data() + i * columns;
        row[0] = static_cast<std::int32_t>(j * ph.y.step * ph.row_step + k * ph.pixel_bytes());
        for (int s = 0; s < plan_.epilogue.stream_count(); ++s) {
          const int column = plan_.epilogue.stream(s).column;
          if (column < 0) continue;
          row[column] =
              static_cast<std::int32_t>(pixel_offset(stage_, plan_, ph, s, j, k) - pixel_offset(stage_, plan_, ph, s, 0, 0));
        }
      }
      tables_.push_back(std::move(table));
    }
  }

  void make_tasks() {
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      const std::vector<std::int64_t> all = sizes(ph);
      const std::int64_t blocks = static_cast<std::int64_t>(ph.blocks.size()), each = ph.bands * ph.parts;
      for (std::int64_t t = 0; t < plan_.images * each; ++t) {
        const std::int64_t list = t % each, band = ph.parts_first ? list % ph.bands : list / ph.parts;
        const std::int64_t part = ph.parts_first ? list / ph.bands : list % ph.parts;
        const auto size = static_cast<std::size_t>(std::find(all.begin(), all.end(), ph.pixels_of(band)) - all.begin());
        tasks_.push_back({static_cast<int>(i), t / each, band, static_cast<int>(blocks * part / ph.parts),
                          static_cast<int>(blocks * (part + 1) / ph.parts), size});
      }
      if (ph.copies) {
        const auto rows = static_cast<std::size_t>(ph.y.extent(ph.band_rows));
        scratch_ = std::max(scratch_, rows * static_cast<std::size_t>(ph.strip_row_bytes()) + 64);
      }
    }
    // Phases write interleaved pixels: from the top down, those of a band next to each other.
    if (plan_.phases.size() > 1) {
      const auto place = [&](const TaskItem& t) {
        return std::pair(t.image, (2 * t.band + 1) * 4096 / plan_.phases[static_cast<std::size_t>(t.phase)].bands);
      };
      std::stable_sort(tasks_.begin(), tasks_.end(), [&](const TaskItem& a, const TaskItem& b) { return place(a) < place(b); });
    }
  }

  /// The band's input rows, padded with the zero point on all sides that the taps reach.
  void copy_rows(const region::Memory& memory, const Phase& ph, const TaskItem& task, std::byte* to) const {
    const auto& x = stage_.anchor.inputs.front();
    const ConvShape& s = plan_.shape;
    const std::byte* image = memory.at(x) + task.image * x.strides[0];
    const std::int64_t first = ph.first_row(task.band), rows = ph.rows_of(task.band);
    const std::int64_t y0 = first * ph.y.step + ph.y.lowest(), y1 = y0 + ph.y.extent(rows);
    const StripRow row{.width = s.w, .channels = s.c, .pixel = x.strides[3], .zero = plan_.zero, .may_read_on = plan_.slack};
    for (std::int64_t y = y0; y < y1; ++y, to += ph.strip_row_bytes())
      copy_strip_row(ph, row, y < 0 || y >= s.h ? nullptr : image + y * x.strides[2], to);
  }

  void run_band(const region::Memory& memory, const Phase& ph, const TaskItem& task, const std::byte* strip,
                const std::byte* after) const {
    const auto& x = stage_.anchor.inputs.front();
    const std::int64_t first = ph.first_row(task.band);
    const std::int64_t j = ph.flat ? 0 : first, k = ph.flat ? first * ph.row_pixels : 0;
    const std::byte* origin = strip;
    if (!ph.copies) origin = memory.at(x) + task.image * x.strides[0] + j * ph.y.step * ph.row_step + k * ph.pixel_bytes();
    std::array<std::byte*, kMaxStreams> base{};
    std::array<std::int64_t, kMaxStreams> channel{};
    const int streams = plan_.epilogue.stream_count();
    for (int s = 0; s < streams; ++s) {
      const auto n = static_cast<std::size_t>(s);
      const bool operand = n < stage_.operands.size();
      const auto& ref = operand ? stage_.operands[n].ref : stage_.stores[n - stage_.operands.size()];
      const auto size = static_cast<std::int64_t>(ir::size_of(ref.dtype));
      const Stream& stream = plan_.epilogue.stream(s);
      base[n] = memory.at(ref) + (plan_.batch_is_pixels ? 0 : task.image * ref.strides[0] * size);
      if (stream.column >= 0) base[n] += pixel_offset(stage_, plan_, ph, s, j, k);
      channel[n] = stream.access == Access::channel || stream.access == Access::full ? size : 0;
    }
    const auto& codes = code_of_[static_cast<std::size_t>(task.phase)][task.size];
    for (int b = task.first_block; b < task.last_block; ++b) {
      const Block& block = ph.blocks[static_cast<std::size_t>(b)];
      TileArgs args;
      args.table = tables_[static_cast<std::size_t>(task.phase)].data();
      args.x = origin + block.group * plan_.ic;
      args.weights = weights_ + block.weights;
      args.init = init_ + block.init;
      args.ahead = weights_ + block.weights;
      if (b + 1 < task.last_block) {
        args.ahead = weights_ + ph.blocks[static_cast<std::size_t>(b) + 1].weights;
      } else if (after != nullptr) {
        args.ahead = after;
      }
      const bool as_line = line(block);
      const auto operands = stage_.operands.size();
      for (auto n = as_line && !plan_.curve ? operands : 0, to = as_line ? std::size_t{2} : 0;
           n < static_cast<std::size_t>(streams); ++n, ++to) {
        args.stream[to] = base[n] + block.first_channel * channel[n];
      }
      if (as_line) {
        const float* m = lines_ + block.init;
        args.stream[0] = reinterpret_cast<std::byte*>(const_cast<float*>(m));
        args.stream[1] = reinterpret_cast<std::byte*>(const_cast<float*>(m + plan_.init_count));
      }
      const BlockCode& code = codes[static_cast<std::size_t>(b)];
      for (std::int64_t r = 0; r < code.repeat; ++r) {  // the table goes on where the last call left it
        args.tiles = code.big_count;
        if (code.big_count > 0) code.big(&args);
        args.tiles = code.small_count;
        if (code.small_count > 0) code.small(&args);
      }
    }
  }

  const Tiles& tiles_;
  ConvPlan plan_;
  region::Stage stage_;
  const std::byte* weights_;
  const std::int32_t* init_;
  const float* lines_;
  const std::int32_t* has_line_;
  Code code_;
  std::vector<std::vector<std::vector<BlockCode>>> code_of_;  ///< [phase][size of the band][block]
  std::vector<std::vector<TileConfig>> configs_;              ///< [phase][size of the band], with tiles
  std::vector<std::vector<std::int32_t>> tables_;
  std::vector<TaskItem> tasks_;
  std::size_t scratch_ = 0;
};

/// Of byte k of a segment, channel c of the block, in the block's packed weights.
std::int64_t weight_at(const Phase& ph, const Block& b, std::int64_t segment, std::int64_t k, std::int64_t c) {
  if (ph.steps == 0) return ((segment * ph.quads + k / 4) * b.vectors) * 64 + c * 4 + k % 4;
  const std::int64_t tile = (segment * ph.steps + k / ph.depth) * b.vectors + c / 16;
  return (tile * (ph.depth / 4) + k % ph.depth / 4) * 64 + c % 16 * 4 + k % 4;
}

}  // namespace

Result<std::vector<ir::Tensor>> pack_conv(const region::Region& region, const region::Plan& plan, const ConvPlan& conv) {
  const auto& ref = *region.stages.front().anchor.weights;
  const auto& constant = plan.buffers[static_cast<std::size_t>(ref.buffer)].data;
  if (constant.empty()) return fail(ErrorKind::internal, fmt::format("packing \"{}\": the weights have no data", region.name));
  const auto* w = reinterpret_cast<const std::int8_t*>(constant.bytes().data()) + ref.offset;
  ir::Tensor weights(ir::DType::s8, {std::max<std::int64_t>(64, conv.weight_bytes)}), init(ir::DType::s32, {conv.init_count});
  auto wp = weights.mutable_data<std::int8_t>();
  auto ip = init.mutable_data<std::int32_t>();
  const ConvShape& s = conv.shape;
  const std::int64_t step = (s.transposed ? 1 : s.ic()) * s.kh * s.kw;  // between the weights of a group's output channels
  std::vector<LineBlock> lines;
  for (const Phase& ph : conv.phases) {
    for (const Block& b : ph.blocks) {
      auto* to = wp.data() + b.weights;
      std::vector<std::int64_t> sums(static_cast<std::size_t>(b.vectors) * 16, 0);
      auto& limits =
          lines.emplace_back(LineBlock{.first_channel = b.first_channel, .init = b.init, .limits = {}, .offsets = {}}).limits;
      limits.resize(static_cast<std::size_t>(b.channels));
      const std::size_t taps_x = ph.x.offset.size();
      // Byte k of a segment is tap (k / ic) of its row, input channel k % ic of the merged group.
      const std::size_t per_row = ph.segments.size() / std::max<std::size_t>(1, ph.y.offset.size());
      for (std::size_t seg = 0; seg < ph.segments.size(); ++seg) {
        const std::int64_t ky = ph.y.tap[seg / per_row];
        for (std::int64_t k = 0; k < ph.quads * 4; ++k) {
          const auto column = static_cast<std::size_t>(k / conv.ic) + (per_row == taps_x ? seg % per_row : 0);
          const std::int64_t in = k % conv.ic;
          if (k >= ph.segment_bytes) break;
          // The block's channels that belong to the group of this input channel; their weights are equally far apart.
          const std::int64_t first = ((b.group * conv.merge) + in / s.ic()) * s.oc();
          const std::int64_t from = std::max<std::int64_t>(0, first - b.first_channel);
          const std::int64_t until = std::min(b.channels, first + s.oc() - b.first_channel);
          if (from >= until) continue;
          const auto* at = w + s.weight_index(b.first_channel + from, in % s.ic(), ky, ph.x.tap[column]);
          for (std::int64_t c = from; c < until; ++c, at += step) {
            to[weight_at(ph, b, static_cast<std::int64_t>(seg), k, c)] = *at;
            sums[static_cast<std::size_t>(c)] += *at;
            limits[static_cast<std::size_t>(c)] += 255 * std::abs(static_cast<std::int64_t>(*at));
          }
        }
      }
      for (std::size_t c = 0; c < sums.size(); ++c) {
        ip[static_cast<std::size_t>(b.init) + c] = static_cast<std::int32_t>(-static_cast<std::int64_t>(conv.zero) * sums[c]);
      }
    }
  }
  std::vector<ir::Tensor> packed{std::move(weights), std::move(init)};
  if (conv.requant || conv.curve) {
    OCTAVO_TRY(auto more, conv.requant ? pack_lines(region, plan, *conv.requant, lines, conv.init_count)
                                       : pack_curve(region, plan, *conv.curve, lines, conv.init_count));
    for (auto& t : more) packed.push_back(std::move(t));
  }
  return packed;
}

Result<std::unique_ptr<region::Kernel>> make_conv(const region::Region& region, ConvPlan conv,
                                                  std::span<const std::byte* const> packed, bool vbmi, const Tiles& tiles) {
  try {
    return std::make_unique<ConvKernel>(region, std::move(conv), packed, vbmi, tiles);
  } catch (const std::exception& e) {
    return fail(ErrorKind::internal, fmt::format("generating code for region \"{}\": {}", region.name, e.what()));
  }
}

}  // namespace octavo::cpu::avx512
