// One kernel, past 400 lines: tasks, strips, tables and calls of its code share how the work is divided.
#include "cpu/jit/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/machine.h"
#include "cpu/jit/amx_plan.h"
#include "cpu/jit/division.h"
#include "cpu/jit/fetch.h"
#include "cpu/jit/generated.h"
#include "cpu/jit/strip.h"
#include "cpu/jit/tile_code.h"
#include "cpu/jit/tiles.h"
#include "cpu/jit/widen.h"
#include "region/counted_tasks.h"

namespace octavo::cpu::jit {
namespace {

struct TaskItem {
  int phase = 0;
  std::int64_t image = 0, row_tile = 0;
  int first_block = 0, last_block = 0;
  std::size_t size = 0;    ///< which of the phase's sizes of row tiles
  std::int64_t strip = 0;  ///< number of the phase, image and row tile
};

class ConvKernel final : public region::HostKernel, public region::CountedTasks {
 public:
  ConvKernel(ConvSetting plan, Packed packed, const Tiles& tiles)
      : tiles_(tiles),
        plan_(std::move(plan)),
        weights_(packed[0].data()),
        init_(reinterpret_cast<const std::int32_t*>(packed[1].data())),
        constants_(plan_.forms || plan_.curve ? reinterpret_cast<const float*>(packed[2].data()) : nullptr),
        form_of_(plan_.forms || plan_.curve ? reinterpret_cast<const std::int32_t*>(packed[3].data()) : nullptr) {
    make_forms(plan_.curve ? reinterpret_cast<const float*>(packed[4].data()) : nullptr);
    generate();
    make_tables();
    make_tasks();
    list_what_runs();
  }

  [[nodiscard]] int tasks() const override { return static_cast<int>(tasks_.size()); }
  [[nodiscard]] std::int64_t first_element(int task, int dim, std::int64_t extent) const override {
    const TaskItem& t = tasks_[static_cast<std::size_t>(task)];
    if (dim != 0) return 0;
    if (!plan_.batch_is_pixels) return plan_.images == extent ? t.image : 0;
    const Phase& ph = plan_.phases[static_cast<std::size_t>(t.phase)];
    return std::min(ph.pixels, ph.first_row(t.row_tile) * ph.row_pixels) * extent / ph.pixels;
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_; }
  [[nodiscard]] const std::byte* first_read(int task) const override {
    return plan_.weight_bytes < kFewWeights ? nullptr : first_weights(task);
  }

  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    std::int64_t strip = worker.kept == nullptr ? region::kNothingKept : *worker.kept;  // in the scratch
    if (strip == region::kNothingKept) fetched_.fetch();                                // not again in the same run
    const TileConfig* configured = nullptr;
    for (int t = begin; t < end; ++t) {
      const TaskItem& task = tasks_[static_cast<std::size_t>(t)];
      const Phase& ph = plan_.phases[static_cast<std::size_t>(task.phase)];
      if (ph.copies && strip != task.strip) copy_rows(memory, ph, task, worker.scratch);
      strip = task.strip;
      if (on_tiles(plan_.dots)) {
        const TileConfig& config = configs_[static_cast<std::size_t>(task.phase)][task.size];
        if (configured == nullptr || !(*configured == config)) tiles_.configure(config);
        configured = &config;
      }
      // Weights that stay in L2 have come with the first row tile; then it is rows that are fetched ahead.
      const TaskItem &first = tasks_[static_cast<std::size_t>(begin)], &last = tasks_[static_cast<std::size_t>(end - 1)];
      const bool more = last.phase == task.phase && last.image == task.image && last.row_tile > task.row_tile;
      const bool rows = more && !ph.parts_first && task.row_tile != first.row_tile && plan_.weight_bytes <= kWeightsStay;
      run_row_tile(memory, ph, task, worker.scratch, rows ? rows_after(memory, ph, task) : std::span<const std::byte>(),
                   t + 1 < end ? first_weights(t + 1) : worker.ahead);
    }
    if (worker.kept != nullptr) *worker.kept = strip;
    if (configured != nullptr) tiles_.release();  // 8 KiB less for the system to save
  }

 private:
  static constexpr std::int64_t kFewWeights = standard_machine().l1_bytes, kWeightsStay = standard_machine().l2_bytes / 4;

  void list_what_runs() {
    fetched_.add(this, sizeof(*this));
    fetched_.add(plan_.phases);
    fetched_.add(plan_.epilogue.operands);
    fetched_.add(plan_.epilogue.stores);
    fetched_.add(plan_.streams.operands);
    fetched_.add(plan_.streams.stores);
    for (const auto& o : plan_.streams.operands) fetched_.add(o.ref.strides);
    for (const auto& t : plan_.streams.stores) fetched_.add(t.strides);
    fetched_.add(plan_.streams.input.strides);
    for (const Phase& ph : plan_.phases) fetched_.add(ph.blocks);
    for (const auto& sizes : code_of_) {
      fetched_.add(sizes);
      for (const auto& blocks : sizes) fetched_.add(blocks);
    }
    for (const auto& configs : configs_) fetched_.add(configs);
    for (const auto& table : tables_) fetched_.add(table.data(), std::min<std::size_t>(table.size() * 4, 512));
    if (form_of_ != nullptr) fetched_.add(form_of_, static_cast<std::size_t>(plan_.init_count) / 16 * sizeof(form_of_[0]));
    fetched_.add(code_->code.getCode(), code_->code.getSize());
  }

  [[nodiscard]] const std::byte* first_weights(int t) const {
    const TaskItem& task = tasks_[static_cast<std::size_t>(t)];
    return weights_ + plan_.phases[static_cast<std::size_t>(task.phase)].blocks[static_cast<std::size_t>(task.first_block)].weights;
  }

  /// What the row tile after the task's reads of the input and this one does not.
  [[nodiscard]] std::span<const std::byte> rows_after(const region::Memory& memory, const Phase& ph, const TaskItem& task) const {
    const auto& x = plan_.streams.input;
    const std::int64_t next = ph.first_row(task.row_tile + 1), rows = ph.rows_of(task.row_tile + 1);
    const std::byte* image = memory.at(x) + plan_.bytes(task.image * x.strides[0]);
    if (ph.flat) {
      const std::int64_t pixel = ph.row_pixels * ph.pixel_bytes();
      return {image + next * pixel, static_cast<std::size_t>(rows * pixel)};
    }
    const std::int64_t y = std::max<std::int64_t>(0, next * ph.y.step + ph.y.lowest() + ph.y.extent(1) - ph.y.step);
    return {image + plan_.bytes(y * x.strides[2]), static_cast<std::size_t>(plan_.bytes(rows * ph.y.step * x.strides[2]))};
  }

  /// The functions for one block over one row tile, resolved when the code is generated.
  struct BlockCode {
    TileFn big = nullptr, small = nullptr;
    std::int64_t repeat = 1, big_count = 0, small_count = 0;
  };
  /// The two tiles of a block over a row tile, and how often each runs.
  struct Shapes {
    Tile big, small;
    std::int64_t repeat = 1, big_count = 0, small_count = 0;
  };

  [[nodiscard]] Shapes shapes(const Phase& ph, const Block& b, std::int64_t pixels) const {
    const Tile tile{.pixels = 0, .vectors = b.vectors, .lanes = plan_.epilogue.lanes, .tail = b.tail};
    Shapes s{.big = tile, .small = tile};
    if (on_tiles(plan_.dots)) {
      const TileRuns t = tile_runs(ph, pixels);
      s.big.rows = s.small.rows = t.rows;
      s.big.in_memory = s.small.in_memory = true;
      s.big.pixels = 2 * t.rows, s.small.pixels = t.tail, s.small.skip = t.skip;
      s.repeat = t.repeat, s.big_count = t.big_count, s.small_count = t.tail > 0 ? 1 : 0;
      return s;
    }
    const bool one_vector =
        plan_.curve && form(b) > 0 && b.vectors == 1 && plan_.epilogue.columns <= 2 && ph.pixels >= kPixelsBehind;
    const Tiling t = tile_pixels(
        pixels, one_vector ? kPixelsOfOneVector : most_pixels(b.vectors, ph.all_quads(), plan_.epilogue, plan_.options.pixels));
    s.big.pixels = t.big, s.small.pixels = t.small;
    s.big_count = t.big_count, s.small_count = t.small_count;
    return s;
  }

  [[nodiscard]] std::size_t form(const Block& b) const {
    return form_of_ == nullptr ? 0 : static_cast<std::size_t>(form_of_[b.init / 16]);
  }

  /// The numbers of pixels that row tiles of the phase have, at most three; the first row tile's first, which is the largest.
  [[nodiscard]] static std::vector<std::int64_t> sizes(const Phase& ph) {
    std::vector<std::int64_t> out;
    for (std::int64_t row_tile : {std::int64_t{0}, std::min(ph.long_row_tiles, ph.row_tiles - 1), ph.row_tiles - 1}) {
      if (std::find(out.begin(), out.end(), ph.pixels_of(row_tile)) == out.end()) out.push_back(ph.pixels_of(row_tile));
    }
    return out;
  }

  /// The forms that blocks have. `curve`: its table, with operands as written behind its own two.
  void make_forms(const float* curve) {
    if (curve != nullptr) {
      forms_[0].epilogue = curve_epilogue(plan_.epilogue, *plan_.curve, curve);
      for (std::size_t n = 0; n < plan_.streams.operands.size(); ++n) forms_[0].operands.push_back(static_cast<int>(n));
      return;
    }
    for (const Phase& ph : plan_.phases) {
      for (const Block& b : ph.blocks) {
        if (form(b) == 0 || !forms_[form(b) - 1].epilogue.code.empty()) continue;
        FormEpilogue& f = forms_[form(b) - 1];
        f = form_epilogue(plan_.written, *plan_.forms, static_cast<Form>(form(b)));
        if (plan_.multiplies) multiply_where_exact(f.epilogue);
      }
    }
  }

  void generate() {
    TileCodeKey key{.setting = CodeSetting::of(plan_), .instructions = &tiles_};
    key.epilogues = {plan_.epilogue, forms_[0].epilogue, forms_[1].epilogue};
    for (const Phase& ph : plan_.phases) key.phases.push_back(CodePhase::of(plan_, ph));
    const auto add = [&](std::size_t phase, const Block& b, const Shapes& t, const Tile& tile) {
      return key.add({.phase = phase, .form = form(b), .tile = tile}, t.repeat * (t.big_count + t.small_count));
    };
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      for (const Block& b : ph.blocks) {
        for (const std::int64_t pixels : sizes(ph)) {
          const Shapes t = shapes(ph, b, pixels);
          if (t.big_count > 0) (void)add(i, b, t, t.big);
          if (t.small_count > 0) (void)add(i, b, t, t.small);
        }
      }
    }
    code_ = tile_code(key);
    const auto base = reinterpret_cast<std::uintptr_t>(code_->code.getCode());
    const auto function = [&](std::size_t piece) { return reinterpret_cast<TileFn>(base + code_->at[piece]); };
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      auto& configs = configs_.emplace_back();
      auto& lists = code_of_.emplace_back();
      for (const std::int64_t pixels : sizes(ph)) {
        if (on_tiles(plan_.dots)) configs.push_back(TileConfig::of(tile_runs(ph, pixels).rows, static_cast<int>(ph.depth)));
        auto& list = lists.emplace_back();
        for (const Block& b : ph.blocks) {
          const Shapes t = shapes(ph, b, pixels);
          BlockCode k{.repeat = t.repeat, .big_count = t.big_count, .small_count = t.small_count};
          if (t.big_count > 0) k.big = function(add(i, b, t, t.big));
          if (t.small_count > 0) k.small = function(add(i, b, t, t.small));
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
          row[column] = static_cast<std::int32_t>(pixel_offset(plan_, ph, s, j, k) - pixel_offset(plan_, ph, s, 0, 0));
        }
      }
      tables_.push_back(std::move(table));
    }
  }

  void make_tasks() {
    std::int64_t strips = 0;
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& ph = plan_.phases[i];
      const std::vector<std::int64_t> all = sizes(ph);
      const std::int64_t blocks = static_cast<std::int64_t>(ph.blocks.size()), each = ph.row_tiles * ph.parts;
      for (std::int64_t t = 0; t < plan_.images * each; ++t) {
        const std::int64_t list = t % each, row_tile = ph.parts_first ? list % ph.row_tiles : list / ph.parts;
        const std::int64_t part = ph.parts_first ? list / ph.row_tiles : list % ph.parts;
        const auto size = static_cast<std::size_t>(std::find(all.begin(), all.end(), ph.pixels_of(row_tile)) - all.begin());
        const std::int64_t strip = strips + t / each * ph.row_tiles + row_tile;
        tasks_.push_back({static_cast<int>(i), t / each, row_tile, static_cast<int>(blocks * part / ph.parts),
                          static_cast<int>(blocks * (part + 1) / ph.parts), size, strip});
      }
      strips += plan_.images * ph.row_tiles;
      if (ph.copies) {
        scratch_ = std::max(scratch_, static_cast<std::size_t>(ph.strip_bytes()) + 64);
      }
    }
    // Phases write interleaved pixels: from the top down, those of a row tile next to each other.
    if (plan_.phases.size() > 1) {
      const auto place = [&](const TaskItem& t) {
        return std::pair(t.image, (2 * t.row_tile + 1) * 4096 / plan_.phases[static_cast<std::size_t>(t.phase)].row_tiles);
      };
      std::stable_sort(tasks_.begin(), tasks_.end(), [&](const TaskItem& a, const TaskItem& b) { return place(a) < place(b); });
    }
  }

  /// The row tile's input rows, padded with the zero point on all sides that the taps reach.
  void copy_rows(const region::Memory& memory, const Phase& ph, const TaskItem& task, std::byte* to) const {
    const auto& x = plan_.streams.input;
    const Conv2d& s = plan_.shape;
    const std::byte* image = memory.at(x) + plan_.bytes(task.image * x.strides[0]);
    const std::int64_t first = ph.first_row(task.row_tile), rows = ph.rows_of(task.row_tile);
    const std::int64_t y0 = first * ph.y.step + ph.y.lowest(), count = ph.strip_rows(rows);
    const StripRow row{.width = s.w,
                       .channels = plan_.bytes(s.c),
                       .pixel = plan_.bytes(x.strides[3]),
                       .zero = plan_.zero,
                       .may_read_on = plan_.slack,
                       .wide = plan_.epilogue.lanes == 16};
    if (ph.line) {
      const std::int64_t step = plan_.batch_is_pixels ? x.strides[0] : x.strides[3];
      widen_pixels(image + first * ph.row_pixels * step, step, row, ph.pixels_of(task.row_tile), ph.pitch, to);
      return;
    }
    if (plan_.dots == Dots::pairs) {
      for (std::int64_t i = 0; i < count; ++i, to += ph.strip_row_bytes()) {
        const std::int64_t y = y0 + i;
        widen_strip_row(ph, row, y < 0 || y >= s.h ? nullptr : image + y * x.strides[2], to);
      }
      return;
    }
    std::array<const std::byte*, 2> from{};
    const auto together = static_cast<std::size_t>(ph.together);
    for (std::int64_t i = 0; i < count; ++i, to += ph.strip_row_bytes()) {
      for (std::size_t r = 0; r < together; ++r) {
        const std::int64_t y = y0 + i * ph.together + static_cast<std::int64_t>(r);
        from[r] = y < 0 || y >= s.h ? nullptr : image + plan_.bytes(y * x.strides[2]);
      }
      copy_strip_row(ph, row, std::span(from).first(together), to);
    }
  }

  void run_row_tile(const region::Memory& memory, const Phase& ph, const TaskItem& task, const std::byte* strip,
                    std::span<const std::byte> rows, const std::byte* after) const {
    const auto& x = plan_.streams.input;
    const std::int64_t first = ph.first_row(task.row_tile);
    const std::int64_t j = ph.flat ? 0 : first, k = ph.flat ? first * ph.row_pixels : 0;
    const std::byte* origin = strip;
    if (!ph.copies)
      origin = memory.at(x) + plan_.bytes(task.image * x.strides[0]) + j * ph.y.step * ph.row_step + k * ph.pixel_bytes();
    std::array<std::byte*, kMaxStreams> base{};
    std::array<std::int64_t, kMaxStreams> channel{};
    const int streams = plan_.epilogue.stream_count();
    for (int s = 0; s < streams; ++s) {
      const auto n = static_cast<std::size_t>(s);
      const auto& ref = plan_.streams.ref(s);
      const auto size = static_cast<std::int64_t>(ir::size_of(ref.dtype));
      const Stream& stream = plan_.epilogue.stream(s);
      base[n] = memory.at(ref) + (plan_.batch_is_pixels ? 0 : task.image * ref.strides[0] * size);
      if (stream.column >= 0) base[n] += pixel_offset(plan_, ph, s, j, k);
      channel[n] = stream.access == OperandAccess::channel || stream.access == OperandAccess::full ? size : 0;
    }
    const auto& codes = code_of_[static_cast<std::size_t>(task.phase)][task.size];
    for (int b = task.first_block; b < task.last_block; ++b) {
      const Block& block = ph.blocks[static_cast<std::size_t>(b)];
      TileArgs args;
      args.table = tables_[static_cast<std::size_t>(task.phase)].data();
      args.x = origin + plan_.factor_bytes(block.group * plan_.ic);
      args.weights = weights_ + block.weights;
      args.init = init_ + block.init;
      args.ahead = weights_ + block.weights;
      const std::int64_t before = block.weights - ph.blocks.front().weights;  // as much has been fetched in this row tile
      if (before < static_cast<std::int64_t>(rows.size())) {
        args.ahead = rows.data() + before;
      } else if (b + ph.ahead < task.last_block) {
        args.ahead = weights_ + ph.blocks[static_cast<std::size_t>(b + ph.ahead)].weights;
      } else if (after != nullptr) {
        args.ahead = after;
      }
      const auto at = [&](std::size_t n) { return base[n] + block.first_channel * channel[n]; };
      std::size_t to = 0;
      if (const std::size_t f = form(block); f > 0) {
        for (; to < 2; ++to) {
          const float* constants = constants_ + static_cast<std::int64_t>(to) * plan_.init_count + block.init;
          args.stream[to] = reinterpret_cast<std::byte*>(const_cast<float*>(constants));
        }
        for (const int n : forms_[f - 1].operands) args.stream[to++] = at(static_cast<std::size_t>(n));
        for (auto n = plan_.streams.operands.size(); n < static_cast<std::size_t>(streams); ++n) args.stream[to++] = at(n);
      } else {
        for (; to < static_cast<std::size_t>(streams); ++to) args.stream[to] = at(to);
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
  ConvSetting plan_;
  const std::byte* weights_;
  const std::int32_t* init_;
  const float* constants_;             ///< pack_forms
  const std::int32_t* form_of_;        ///< of a block, at init / 16
  std::array<FormEpilogue, 2> forms_;  ///< Form::line, Form::quotient
  std::shared_ptr<const TileCode> code_;
  std::vector<std::vector<std::vector<BlockCode>>> code_of_;  ///< [phase][size of the row tile][block]
  std::vector<std::vector<TileConfig>> configs_;              ///< [phase][size of the row tile], with tiles
  std::vector<std::vector<std::int32_t>> tables_;
  std::vector<TaskItem> tasks_;
  Fetched fetched_;  ///< when a run begins
  std::size_t scratch_ = 0;
};

}  // namespace

std::vector<std::int64_t> packed_bytes(const ConvSetting& p) {
  std::vector<std::int64_t> bytes{std::max<std::int64_t>(64, p.weight_bytes), p.init_count * 4};
  if (p.forms) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4});
  if (p.curve) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4, kCurveFloats * 4});
  return bytes;
}

Result<std::unique_ptr<Kernel>> load_conv(ConvSetting conv, Packed packed, const Tiles& tiles) {
  if (conv.forms || conv.curve) {  // packed constants come from a file
    const auto most = static_cast<std::int32_t>(conv.curve ? Form::line : Form::quotient);
    const auto* form_of = reinterpret_cast<const std::int32_t*>(packed[3].data());
    for (const Phase& ph : conv.phases) {
      for (const Block& b : ph.blocks) {
        if (const std::int32_t f = form_of[b.init / 16]; f < 0 || f > most)
          return fail(ErrorKind::bad_engine,
                      fmt::format("channels from {} have an epilogue of form {}, there are 0 to {}", b.first_channel, f, most));
      }
    }
  }
  return make_generated<ConvKernel>(std::move(conv), packed, tiles);
}

}  // namespace octavo::cpu::jit
