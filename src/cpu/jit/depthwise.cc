#include "cpu/jit/depthwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/machine.h"
#include "cpu/code_shelf.h"
#include "cpu/jit/constants.h"
#include "cpu/jit/division.h"
#include "cpu/jit/fetch.h"
#include "cpu/jit/generated.h"
#include "cpu/jit/generated_family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace jit {
namespace {

/// Clocks for 64 channels of one output pixel, without the epilogue.
double clocks_per_pixel(const DepthwiseSetting& d) {
  double dots = 0;
  for (std::int64_t r = 0; r < d.rows; ++r) {
    for (std::int64_t q = 0; q < d.quads; ++q) dots += d.geometry().uses(r, q) ? 4.0 * static_cast<double>(d.shape.kw) : 0;
  }
  const double shuffles = 12.0 * static_cast<double>(d.quads * d.shape.stride[1]);
  return (dots / 2 + shuffles / 2) / static_cast<double>(d.rows);
}

/// `only`: so many, if that is not 0.
void choose_rows(DepthwiseSetting& d, std::int64_t only) {
  double best = 1e300;
  DepthwiseSetting chosen = d;
  for (std::int64_t rows : {1, 2, 4}) {
    if (rows > d.shape.out_h) break;
    if (only > 0 && rows != only) continue;
    d.rows = rows;
    d.input_rows = (rows - 1) * d.shape.stride[0] + (d.shape.kh - 1) * d.shape.dilation[0] + 1;
    d.quads = ceil_div(d.input_rows, 4);
    if (const double c = clocks_per_pixel(d); c < best)
      best = c, chosen.rows = rows, chosen.input_rows = d.input_rows, chosen.quads = d.quads;
  }
  d.rows = chosen.rows, d.input_rows = chosen.input_rows, d.quads = chosen.quads;
}

/// Everything a strip call needs for one block, resolved when the code is generated.
struct StripCode {
  InterleaveFn interleave = nullptr;
  TileFn big = nullptr, small = nullptr;
  Tiling tiling;
  const std::int32_t* table = nullptr;
};

/// Of the thread's shelf where there is one.
std::shared_ptr<const DepthwiseCode> code_of(const DepthwiseCodeKey& key) {
  const auto make = [&]() -> std::shared_ptr<const DepthwiseCode> {
    auto out = std::make_shared<DepthwiseCode>();
    ConstantPool pool(out->code);
    for (const DepthwisePiece& p : key.pieces)
      out->at.push_back(p.interleaves ? emit_interleave(out->code, pool, p.tile.vectors, p.tile.tail)
                                      : emit_depthwise_tile(out->code, pool, key.geometry, key.epilogue, p.tile, key.vbmi));
    pool.emit();
    out->code.finish();
    return out;
  };
  CodeShelf* const shelf = ShelfScope::shelf();
  if (shelf == nullptr) return make();
  std::uint64_t hash = static_cast<std::uint64_t>(key.geometry.rows * 31 + key.geometry.stride[1]);
  for (const auto& [interleaves, t] : key.pieces)
    hash = hash * 1099511628211U + static_cast<std::uint64_t>(t.columns * 97 + t.rows * 31 + t.vectors * 7 + t.tail) +
           static_cast<std::uint64_t>(t.strip_columns);
  for (const Instr& i : key.epilogue.code) hash = hash * 1099511628211U + static_cast<std::uint32_t>(i.imm);
  return shelf->get(key, hash, make);
}

class DepthwiseKernel final : public region::HostKernel {
 public:
  DepthwiseKernel(DepthwiseSetting plan, Packed packed)
      : d_(std::move(plan)), weights_(packed[0].data()), init_(reinterpret_cast<const std::int32_t*>(packed[1].data())) {
    padding_.fill(static_cast<std::byte>(d_.zero));
    generate();
    // One strip for the full blocks, one for the last block: where the padding columns are differs with the vector count.
    for (std::size_t i : {std::size_t{0}, d_.blocks.size() - 1}) {
      strip_bytes_.push_back(static_cast<std::size_t>(d_.quads * d_.input_columns(d_.strip) * d_.blocks[i].vectors * 64));
    }
  }

  [[nodiscard]] int tasks() const override { return d_.tasks.count; }
  [[nodiscard]] std::size_t scratch_bytes() const override { return strip_bytes_[0] + strip_bytes_[1]; }

  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    const bool one_strip = d_.strip == d_.shape.out_w;
    const std::size_t last_block = d_.blocks.size() - 1;
    const auto strip_of = [&](std::size_t b) { return b == last_block ? worker.scratch + strip_bytes_[0] : worker.scratch; };
    if (one_strip) {
      for (std::size_t b : {std::size_t{0}, last_block}) pad_columns(0, d_.strip, d_.blocks[b], strip_of(b));
    }
    each_call(d_.tasks, d_.shape, d_.rows, static_cast<std::int64_t>(d_.blocks.size()), begin, end,
              [&](std::int64_t image, std::int64_t y, std::int64_t rows, std::size_t b) {
                if (d_.ahead > 0) fetch_after(memory, image, y + rows, d_.blocks[b]);
                for (std::int64_t x = 0; x < d_.shape.out_w; x += d_.strip) {
                  const std::int64_t columns = std::min(d_.strip, d_.shape.out_w - x);
                  if (!one_strip) pad_columns(x, columns, d_.blocks[b], strip_of(b));
                  const auto& code = code_of_[static_cast<std::size_t>(rows)][columns == d_.strip ? 0 : 1][b];
                  run_strip(memory, image, y, x, columns, d_.blocks[b], code, strip_of(b));
                }
              });
  }

 private:
  /// What output rows from y on read and those before them do not.
  void fetch_after(const region::Memory& memory, std::int64_t image, std::int64_t y, const Block& block) const {
    const auto& x = d_.streams.input;
    const std::int64_t from = (y - 1) * d_.shape.stride[0] - d_.shape.pads[0] + (d_.shape.kh - 1) * d_.shape.dilation[0] + 1;
    fetch_rows(memory.at(x) + image * x.strides[0] + block.first_channel, x, from, from + d_.ahead, block.channels);
  }

  void generate() {
    DepthwiseCodeKey key{.geometry = d_.geometry(), .epilogue = d_.epilogue, .vbmi = d_.options.vbmi};
    std::map<DepthwisePiece, std::size_t> pieces;
    const auto add = [&](const DepthwisePiece& piece) {
      if (pieces.try_emplace(piece, key.pieces.size()).second) key.pieces.push_back(piece);
    };
    const auto interleave_of = [](const Block& b) {
      return DepthwisePiece{true, {.columns = 0, .rows = 0, .vectors = b.vectors, .tail = b.tail, .strip_columns = 0}};
    };
    std::set<std::int64_t> row_counts;  // of any run of tasks; of many tasks any number may be
    for (std::int64_t rows = 1; d_.tasks.count > 16 && rows <= d_.rows; ++rows) row_counts.insert(rows);
    for (int begin = 0; d_.tasks.count <= 16 && begin < d_.tasks.count; ++begin) {
      for (int end = begin + 1; end <= d_.tasks.count; ++end) {
        each_call(d_.tasks, d_.shape, d_.rows, 1, begin, end,
                  [&](std::int64_t, std::int64_t, std::int64_t rows, std::size_t) { row_counts.insert(rows); });
      }
    }
    const std::array<std::int64_t, 2> strips{d_.strip, d_.shape.out_w % d_.strip};
    const auto each = [&](auto f) {
      for (std::size_t i = 0; i < strips.size(); ++i) {
        for (const std::int64_t rows : row_counts) {
          for (std::size_t b = 0; b < d_.blocks.size() && strips[i] > 0; ++b) f(i, rows, d_.blocks[b], b);
        }
      }
    };
    const auto tile_of = [&](const Block& b, int width, std::int64_t rows, std::size_t i) {
      return DepthwisePiece{false, {width, static_cast<int>(rows), b.vectors, b.tail, strips[i]}};
    };
    each([&](std::size_t i, std::int64_t rows, const Block& b, std::size_t) {
      add(interleave_of(b));
      const Tiling t = tile_pixels(strips[i], DepthwiseSetting::most_columns(rows, b.vectors));
      for (int width : {t.big, t.small_count > 0 ? t.small : t.big}) add(tile_of(b, width, rows, i));
      auto& table = tables_[{rows, strips[i], b.vectors}];
      if (table.empty()) table = make_table(rows, t, b.vectors);
    });
    code_ = code_of(key);
    const auto function = [&](const DepthwisePiece& piece) {
      return reinterpret_cast<std::uintptr_t>(code_->code.getCode()) + code_->at[pieces.at(piece)];
    };
    each([&](std::size_t i, std::int64_t rows, const Block& b, std::size_t n) {
      auto& list = code_of_[static_cast<std::size_t>(rows)][i];
      list.resize(d_.blocks.size());
      StripCode& code = list[n];
      const auto tile = [&](int width) { return reinterpret_cast<TileFn>(function(tile_of(b, width, rows, i))); };
      code.interleave = reinterpret_cast<InterleaveFn>(function(interleave_of(b)));
      code.tiling = tile_pixels(strips[i], DepthwiseSetting::most_columns(rows, b.vectors));
      code.big = tile(code.tiling.big);
      code.small = code.tiling.small_count > 0 ? tile(code.tiling.small) : nullptr;
      code.table = tables_.at({rows, strips[i], b.vectors}).data();
    });
  }

  [[nodiscard]] std::vector<std::int32_t> make_table(std::int64_t rows, const Tiling& t, int vectors) const {
    std::vector<std::int32_t> table;
    std::int64_t first = 0;
    for (int i = 0; i < t.big_count + t.small_count; ++i) {
      const int width = i < t.big_count ? t.big : t.small;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t k = first; k < first + width; ++k) {
          table.push_back(static_cast<std::int32_t>(first * d_.shape.stride[1] * vectors * 64));
          table.resize(table.size() + static_cast<std::size_t>(d_.epilogue.columns - 1));
          d_.streams.fill_columns(table.data() + table.size() - static_cast<std::size_t>(d_.epilogue.columns), d_.epilogue, r, k);
        }
      }
      first += width;
    }
    return table;
  }

  /// Input columns [x0, x1) that a strip reads, of which [from, until) exist.
  struct Columns {
    std::int64_t x0, x1, from, until;
  };
  [[nodiscard]] Columns input_range(std::int64_t first, std::int64_t columns) const {
    const std::int64_t x0 = first * d_.shape.stride[1] - d_.shape.pads[1], x1 = x0 + d_.input_columns(columns);
    const std::int64_t from = std::clamp<std::int64_t>(0, x0, x1);
    return {x0, x1, from, std::clamp<std::int64_t>(d_.shape.w, from, x1)};
  }

  void pad_columns(std::int64_t first, std::int64_t columns, const Block& block, std::byte* strip) const {
    const Columns c = input_range(first, columns);
    const auto bytes = static_cast<std::size_t>(block.vectors) * 64;
    for (std::int64_t q = 0; q < d_.quads; ++q, strip += static_cast<std::size_t>(c.x1 - c.x0) * bytes) {
      std::memset(strip, d_.zero, static_cast<std::size_t>(c.from - c.x0) * bytes);
      std::memset(strip + static_cast<std::size_t>(c.until - c.x0) * bytes, d_.zero,
                  static_cast<std::size_t>(c.x1 - c.until) * bytes);
    }
  }

  void run_strip(const region::Memory& memory, std::int64_t image, std::int64_t y, std::int64_t first, std::int64_t columns,
                 const Block& block, const StripCode& code, std::byte* strip) const {
    const auto& x = d_.streams.input;
    const Conv2d& s = d_.shape;
    const Columns c = input_range(first, columns);
    const auto column_bytes = static_cast<std::size_t>(block.vectors) * 64;
    const std::byte* corner = memory.at(x) + image * x.strides[0] + block.first_channel + c.from * x.strides[3];
    for (std::int64_t q = 0; q < d_.quads && c.until > c.from; ++q) {
      InterleaveArgs args;
      for (std::int64_t b = 0; b < 4; ++b) {
        const std::int64_t row = y * s.stride[0] - s.pads[0] + 4 * q + b;
        const bool inside = row >= 0 && row < s.h && 4 * q + b < d_.input_rows;
        args.row[static_cast<std::size_t>(b)] = inside ? corner + row * x.strides[2] : padding_.data();
        args.step[static_cast<std::size_t>(b)] = inside ? x.strides[3] : 0;
      }
      args.to = strip + static_cast<std::size_t>(q * (c.x1 - c.x0) + c.from - c.x0) * column_bytes;
      args.count = c.until - c.from;
      code.interleave(&args);
    }
    TileArgs args;
    args.table = code.table;
    args.x = strip;
    args.weights = weights_ + block.weights;
    args.init = init_ + block.init;
    d_.streams.place(args.stream, d_.epilogue, memory, image, y, first, block.first_channel);
    args.tiles = code.tiling.big_count;
    code.big(&args);
    if (code.tiling.small_count == 0) return;
    args.tiles = code.tiling.small_count;  // the table goes on where the last call left it
    code.small(&args);
  }

  DepthwiseSetting d_;
  const std::byte* weights_;
  const std::int32_t* init_;
  alignas(64) std::array<std::byte, 64> padding_{};
  std::shared_ptr<const DepthwiseCode> code_;
  std::array<std::array<std::vector<StripCode>, 2>, 5> code_of_;  ///< [rows][0: full strip, 1: the last][block]
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::vector<std::int32_t>> tables_;  ///< by rows, strip columns, vectors
  std::vector<std::size_t> strip_bytes_;
};

}  // namespace

std::int64_t DepthwiseGeometry::kernel_row(std::int64_t r, std::int64_t q, std::int64_t b) const {
  const std::int64_t from = 4 * q + b - r * stride[0];
  if (from < 0 || from % dilation[0] != 0 || from / dilation[0] >= kernel_rows) return -1;
  return from / dilation[0];
}

bool DepthwiseGeometry::uses(std::int64_t r, std::int64_t q) const {
  for (std::int64_t b = 0; b < 4; ++b) {
    if (kernel_row(r, q, b) >= 0) return true;
  }
  return false;
}

int DepthwiseSetting::most_columns(std::int64_t tile_rows, int vectors) {
  return std::clamp(24 / (static_cast<int>(tile_rows) * vectors), 1, 6);
}

Result<DepthwiseSetting> match_depthwise(const region::Region& region, const region::Plan& plan, const CodeOptions& options) {
  DepthwiseSetting d;
  if (auto why = read_conv(region, d.shape, true); !why.empty()) return refuse(std::move(why));
  const Conv2d& s = d.shape;
  if (s.transposed) return refuse("operator", "ConvTranspose", "Conv");
  if (s.ic() != 1 || s.oc() != 1) return refuse("channels a group", fmt::format("{} to {}", s.ic(), s.oc()), "1 to 1");
  if (s.kh * s.kw > 121) return refuse("kernel taps", s.kh * s.kw, "at most 121");
  const auto& stage = region.stages.front();
  if (auto why = why_repeated(stage); !why.empty()) return refuse(std::move(why));
  d.options = options;
  d.divides = divides(region);
  d.streams = Streams(stage);
  d.weights = Constant(*stage.anchor.weights, plan);
  d.weight_zero = stage.anchor.weight_zero;
  if (auto why = lower(stage, false, options.vbmi, d.epilogue); !why.empty()) return refuse(std::move(why));
  if (options.multiply) multiply_where_exact(d.epilogue);
  d.zero = stage.anchor.inputs.front().quantizer->zero_point.front();
  d.halves = weight_halves(d.weight_zero);
  if (options.rows > 0 && (options.rows > std::min<std::int64_t>(4, s.out_h) || options.rows == 3))
    return refuse("rows together", options.rows, "1, 2 or 4, and no more than there are");
  choose_rows(d, options.rows);
  d.ahead = std::max(0, options.prefetch);
  d.strip = ceil_div(s.out_w, ceil_div(s.out_w, 96));
  for (std::int64_t c = 0; c < s.c; c += 64) {
    Block b = block_at(c, s.c);
    b.weights = d.weight_bytes;
    b.init = d.init_count;
    d.weight_bytes += d.quads * s.kw * b.vectors * d.rows * d.halves * 64;
    d.init_count += b.vectors * 16;
    d.blocks.push_back(b);
  }
  double clocks = 0;
  for (const Block& b : d.blocks) {
    clocks += b.vectors * (clocks_per_pixel(d) / 4 + 1.5 + 0.25 * static_cast<double>(d.epilogue.code.size())) + 3;
  }
  clocks *= static_cast<double>(s.n * s.out_h * s.out_w);
  d.seconds = clocks / standard_machine().clock_hz + 3e-7;
  d.tasks = split_rows(s, d.rows, static_cast<std::int64_t>(d.blocks.size()), d.seconds, plan.threads, options);
  return d;
}

Result<std::vector<ir::Tensor>> pack_depthwise(const DepthwiseSetting& d) {
  OCTAVO_TRY(const auto* w, d.weights.data<std::int8_t>("weights"));
  ir::Tensor weights(ir::DType::s8, {d.weight_bytes}), init(ir::DType::s32, {d.init_count});
  auto* wp = weights.mutable_data<std::int8_t>().data();
  auto* ip = init.mutable_data<std::int32_t>().data();
  const Conv2d& s = d.shape;
  const DepthwiseGeometry geometry = d.geometry();
  for (const Block& b : d.blocks) {
    std::int8_t* to = wp + b.weights;
    for (std::int64_t q = 0; q < d.quads; ++q) {
      for (std::int64_t k = 0; k < s.kw; ++k) {
        for (std::int64_t v = 0; v < b.vectors; ++v) {
          for (std::int64_t r = 0; r < d.rows; ++r) {
            for (std::int64_t i = 0; i < 64 * d.halves; ++i, ++to) {
              const std::int64_t c = v * 16 + i % 64 / 4, ky = geometry.kernel_row(r, q, i % 4);
              if (c >= b.channels || ky < 0) continue;
              const std::int32_t weight = w[((b.first_channel + c) * s.kh + ky) * s.kw + k];
              *to = static_cast<std::int8_t>(
                  d.halves == 1 ? weight : half_of_weight(weight - weight_zero_of(d.weight_zero, b.first_channel + c), i < 64));
            }
          }
        }
      }
    }
    for (std::int64_t c = 0; c < b.channels; ++c) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < s.kh * s.kw; ++k)
        sum += w[(b.first_channel + c) * s.kh * s.kw + k] - weight_zero_of(d.weight_zero, b.first_channel + c);
      ip[b.init + c] = static_cast<std::int32_t>(-d.zero * sum);
    }
  }
  return std::vector<ir::Tensor>{std::move(weights), std::move(init)};
}

namespace {

class DepthwiseFamily final : public GeneratedFamily<DepthwiseSetting> {
 public:
  DepthwiseFamily()
      : GeneratedFamily({.name = "depthwise.u8s8.avx512vnni.jit", .levels = kLevels, .parameters = kCodeParameters, .rank = 0}) {}
  bool about(const Region& r) const override { return is_one(r, ir::Op::conv) && only(r).anchor.as<ir::Window>().group > 1; }
  Match<DepthwiseSetting> match(const Request& q) const override { return match_depthwise(q.region, q.plan, options_of(q)); }
  Parameters parameters(const DepthwiseSetting& d, const Parameters& given) const override {
    return with_effect(given, !d.epilogue.tables.empty(), d.divides);
  }
  std::vector<Parameters> variants(const DepthwiseSetting& d) const override {
    return depthwise_variants(d.tasks, d.rows, {1, 2, 4}, d.options);
  }
  std::vector<std::int64_t> packed_bytes(const DepthwiseSetting& d) const override { return {d.weight_bytes, d.init_count * 4}; }
  Result<std::vector<ir::Tensor>> pack(const DepthwiseSetting& d) const override { return pack_depthwise(d); }
  std::optional<std::string> layout(const DepthwiseSetting& d) const override {
    return fmt::format("{} halves, {} quads, {} rows, zero {}, stride {} dilation {}:", d.halves, d.quads, d.rows, d.zero,
                       d.shape.stride[0], d.shape.dilation[0]) +
           layout_of_blocks(d.blocks);
  }
  Result<std::unique_ptr<Kernel>> load(DepthwiseSetting d, Packed packed) const override {
    return make_generated<DepthwiseKernel>(std::move(d), packed);
  }

 private:
  static constexpr std::array kLevels{Isa::avx512vnni};
};

}  // namespace
}  // namespace jit

OCTAVO_DEFINE_FAMILY(generated_depthwise, jit::DepthwiseFamily)

}  // namespace octavo::cpu
