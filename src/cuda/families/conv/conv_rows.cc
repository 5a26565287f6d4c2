// conv.u8s8.rows: convolutions of few channels, a network's first layer (conv_rows.inc). A stage before it may make its input out of planes.
// conv.u8s8.rows_pool: the same with the maximum over windows that alone reads the result, which never is in memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "cuda/families/conv/conv_rows_pool.h"
#include "cuda/families/planar.h"
#include "cuda/text/elements.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_rows.inc"
    ;

/// Estimates without a pooling are 1.5 to 1.7 times what large layers take on an H200; what they are compared with must be wrong alike, where blocks fill the GPU. Of codes by groups of 32
/// pixels nothing was measured: 0.8 of the time by 16, as without a pooling.
constexpr double kSumsScale = 1.5, kCodesScale = 1.75, kCodesGroupsScale = 1.4;

enum PoolOf : int { kNothing, kCodes, kSums };  ///< the words of "pool"
struct RowsTile {
  int rows = 8, columns = 112, channels = 64, warps = 4, group = 2, blocks = 2, pool = kNothing;
  [[nodiscard]] bool sums() const { return pool == kSums; }
  static constexpr std::array<TileParameter<RowsTile>, 6> kParameters{
      {{{"tile", "", "rows x columns of a block: of output pixels, or of pooled ones"}, {&RowsTile::rows, &RowsTile::columns}},
       {{"channels", "", "of a block: 16, 32 or 64"}, {&RowsTile::channels}},
       {{"warps", "", "of a block"}, {&RowsTile::warps}},
       {{"group", "", "times 16 pixels that a warp computes at a time"}, {&RowsTile::group}},
       {{"blocks", "", "of a multiprocessor"}, {&RowsTile::blocks}},
       {{"pool", "|codes|sums", "maxima of codes in shared memory, or of sums in registers; without a pooling nothing"},
        {&RowsTile::pool}}}};
};

/// The convolution, what lies before it and behind it.
struct RowsSetting {
  ConvSetting conv;
  std::optional<Planar> planes;  ///< what makes its input
  std::optional<Pooling> pool;
  Tail pool_tail;
  Reasons not_sums;  ///< why the pooling's maxima cannot be of sums
  [[nodiscard]] const region::TensorRef& input() const { return planes ? planes->source : conv.input; }
};

/// As the text computes it.
struct RowsSizes {
  PoolCover cover;  ///< the convolution's rows and columns of a tile
  std::int64_t halves, steps, filter, pitch, in_rows, shared, tiles_n, grid;
};
RowsSizes sizes_of(const RowsSetting& setting, const RowsTile& t) {
  const ConvShape& s = setting.conv.shape;
  RowsSizes z{};
  z.cover = setting.pool ? cover_of(*setting.pool, s, t.rows, t.columns) : PoolCover{t.rows, t.columns, 0};
  const std::int64_t step = s.stride_w * s.channels, phases = step % 4 == 0 ? 1 : step % 2 == 0 ? 2 : 4;
  z.halves = s.tap_chunks();
  z.steps = (s.kernel_h * z.halves + 1) / 2;
  z.filter = z.steps * t.channels * 32;
  z.pitch = up((z.cover.columns - 1) * step + z.halves * 16, 4);
  z.in_rows = s.in_rows(z.cover.rows);
  z.shared =
      z.filter + phases * (up(z.in_rows * z.pitch, 128) + 64) + (t.sums() ? 0 : z.cover.rows * z.cover.row_pixels * t.channels);
  z.tiles_n = parts(s.out_channels, t.channels);
  z.grid = z.tiles_n * s.batch * parts(setting.pool ? setting.pool->out_h : s.out_h, t.rows) *
           parts(setting.pool ? setting.pool->out_w : s.out_w, t.columns);
  return z;
}

Reasons why_not_tile(const RowsSetting& s, const RowsTile& t, const Target& target) {
  if (s.pool && (t.rows < 1 || t.rows > 64 || t.columns < 1 || t.columns > 512))
    return unmet("tile", fmt::format("{}x{}", t.rows, t.columns), "1 to 64 rows of 1 to 512 pixels");
  if (!s.pool && (t.rows < 1 || t.rows > 64 || t.columns < 16 || t.columns > 512 || t.columns % 16 != 0))
    return unmet("tile", fmt::format("{}x{}", t.rows, t.columns), "1 to 64 rows of 16 to 512 pixels, by 16");
  if ((t.channels != 16 && t.channels != 32 && t.channels != 64) || t.warps < 1 || t.warps > 16 || t.group < 1 || t.group > 4 ||
      t.blocks < 1 || t.blocks > 16)
    return unmet("channels, warps, group, blocks", fmt::format("{}, {}, {}, {}", t.channels, t.warps, t.group, t.blocks),
                 "16, 32 or 64; up to 16; up to 4; up to 16");
  if (s.pool.has_value() != (t.pool != kNothing))
    return unmet("pool", s.pool ? "nothing" : "codes or sums", s.pool ? "codes or sums" : "nothing without a pooling");
  if (t.sums() && t.group != 2) return unmet("group where sums are pooled", t.group, "2");
  if (t.sums() && !s.not_sums.empty()) return s.not_sums;
  return why_not_shared(sizes_of(s, t).shared, t.blocks, target);
}

class ConvRows final : public FamilyOf<RowsSetting, RowsTile> {
 public:
  /// `pooled`: of regions that end with a maximum over windows of the convolution's result.
  explicit ConvRows(bool pooled) : pooled_(pooled) {}
  std::string_view name() const override { return pooled_ ? "conv.u8s8.rows_pool" : "conv.u8s8.rows"; }
  int version() const override { return pooled_ ? 1 : 2; }
  bool about(const region::Region& r) const override {
    const std::size_t own = pooled_ ? 2 : 1;
    if (r.independent || r.stages.size() < own || r.stages.size() > own + 1) return false;
    const region::Anchor& a = conv_of(r).anchor;
    if (a.op != ir::Op::conv || !a.integer || !a.weights) return false;
    if (pooled_ && !pools(r.stages.back(), conv_of(r))) return false;
    if (from_planes(r)) {
      if (!about_planar(r.stages[0]) || a.inputs[0].buffer != r.stages[0].stores[0].buffer) return false;
      for (const region::Operand& o : conv_of(r).operands) {
        if (o.ref.buffer == a.inputs[0].buffer) return false;  // codes are not in memory
      }
    }
    const ir::Shape& w = a.weights->dims;
    return w.size() == 4 && w[1] * w[3] <= 64 && w[2] * w[3] > 1;
  }
  Result<RowsSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    RowsSetting out;
    OCTAVO_TRY(out.conv, read_conv(conv_of(r), plan));
    ConvShape& s = out.conv.shape;
    if (from_planes(r)) {
      OCTAVO_TRY(const Planar p, read_planar(r.stages[0], plan));
      if (out.conv.input.dims != r.stages[0].space)
        return refuse("input", ir::to_string(out.conv.input.dims),
                      fmt::format("{}, all that is computed before", ir::to_string(r.stages[0].space)));
      if (s.in_w % 4 != 0 || p.row % (4 * p.element) != 0)
        return refuse("pixels and bytes a row of the planes", fmt::format("{}, {}", s.in_w, p.row), "multiples of 4 elements");
      out.planes = p;
    }
    if (s.groups != 1) return refuse("groups", s.groups, "1");
    if (s.pixel != s.channels || s.dilation_w != 1)
      return refuse("channels, bytes a pixel, dilation", fmt::format("{}, {}, {}", s.channels, s.pixel, s.dilation_w),
                    "dense pixels without dilation");
    if (s.channels * s.kernel_w > 64) return refuse("bytes a kernel row", s.channels * s.kernel_w, "at most 64");
    if (s.batch * s.out_h * s.out_w > INT32_MAX / 4) return refuse("pixels", s.pixels(), "less than 2^29");
    s.packed_rows = true, s.flat = false;
    if (pooled_) {
      OCTAVO_TRY(out.pool, read_pooling(r.stages.back(), conv_of(r), out.conv.tail));
      out.pool_tail = tail_of(r.stages.back(), plan);
      out.not_sums = why_not_sums(*out.pool, s, out.conv.tail, out.pool_tail, read_weights(out.conv).largest_sum);
    }
    if (auto why = why_not_tile(out, least(out), target); !why.empty()) return refuse(std::move(why));
    return out;
  }
  std::vector<Choice<RowsTile>> tactics(const RowsSetting& s, const Target& target) const override {
    const auto bytes = [](const region::TensorRef& t) { return static_cast<double>(tensor_bytes(t)); };
    double traffic = bytes(s.input());
    for (const region::TensorRef& t : s.pool ? s.pool_tail.stores : s.conv.tail.stores) traffic += bytes(t);
    std::vector<Choice<RowsTile>> out;
    for (const RowsTile& t : tiles_of(s)) {
      const int sums = t.group * t.channels / 2, threads = t.warps * t.blocks;
      if (!why_not_tile(s, t, target).empty() || sums > 128 || (sums > 64 && threads > 8) || (sums > 32 && threads > 16)) continue;
      const RowsSizes z = sizes_of(s, t);
      const double blocks = static_cast<double>(z.grid) / target.multiprocessors;
      double pixels = blocks * static_cast<double>(z.cover.rows * z.cover.columns), programs = pixels, pool = 0;
      if (t.sums()) {
        const std::int64_t strips = parts(t.columns, strip_of(*s.pool));
        const double turns = static_cast<double>(up(strips, t.warps)) * kPoolSlots * blocks;
        pixels = 4 * turns * static_cast<double>(t.rows + (s.pool->kernel_h - 2));
        programs = turns * t.rows;
        pool = programs * t.channels * 8 / 128;
      } else if (z.cover.rows * z.cover.columns / 16 < t.warps * t.group) {
        continue;
      } else if (s.pool) {
        pool = pool_clocks(*s.pool, blocks * t.rows * t.columns, t.channels);
      }
      const double products = pixels * t.channels * static_cast<double>(z.steps) * 32 / 2000;
      const double read = blocks * static_cast<double>(z.in_rows * z.pitch) * (s.planes ? 14 : 7.5) / 128;
      const double program = programs * t.channels * 14 / cost::kLanes;
      const double waves = blocks / t.blocks;
      const double scale = !s.pool || waves < 1 ? 1 : t.sums() ? kSumsScale : t.group == 1 ? kCodesScale : kCodesGroupsScale;
      const double work = (products + read + program + pool) * scale;
      const double clocks = work * (1 + 2.4 / threads) * std::max(1.0, std::ceil(waves) / waves) + 3000;
      out.push_back({t, cost::seconds(clocks, traffic) + cost::kStart});
    }
    if (out.empty()) out.push_back({least(s), 1});
    if (!pooled_) {
      fastest_first(out);
      return out;
    }
    // Sums and codes in turn, two of sums for one of codes: the first few are timed, and estimates of the two do not compare well.
    put_in_order(out, [](const RowsTile& t) { return std::array{t.rows, t.columns, t.pool}; });
    const auto codes = std::stable_partition(out.begin(), out.end(), [](const auto& c) { return c.tile.sums(); });
    std::vector<Choice<RowsTile>> mixed;
    auto sums = out.begin(), code = codes;
    while (sums != codes || code != out.end()) {
      const bool of_codes = sums == codes || (code != out.end() && mixed.size() % 3 == 2);
      mixed.push_back(std::move(*(of_codes ? code++ : sums++)));
    }
    return mixed;
  }
  Result<KernelText> emit(const RowsSetting& setting, const RowsTile& t, const Target& target) const override {
    if (auto why = why_not_tile(setting, t, target); !why.empty()) return refuse(std::move(why));
    const ConvShape& s = setting.conv.shape;
    const RowsSizes z = sizes_of(setting, t);
    const bool codes = t.pool == kCodes;
    const Tail tail = codes      ? into_tile(setting.conv.tail, z.cover, t.channels)
                      : t.sums() ? on_pooled_sums(setting.conv.tail, setting.pool_tail)
                                 : setting.conv.tail;
    const ConvWeights weights = read_weights(setting.conv);
    EpilogueShape shape =
        conv_epilogue(tail, weights.largest_sum, t.sums() ? 1 : 2 * t.group, t.channels / 4, z.tiles_n * t.channels);
    shape.stores_padding = codes;
    EmittedEpilogue e = emit_epilogue(tail, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text = text_for(kText, s.open), numbers;
    OpenNumbers open;
    if (s.open) open.name("kBatch", s.batch);
    const std::string pointers = e.pointers;
    out.constants = {of_weights(pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, 32, shape.run, shape.piece})),
                     of_weights(constants_with_start(weights.start, e, shape.padded_channels))};
    if (codes) {
      const EmittedEpilogue p = pool_epilogue(setting.pool_tail, shape.padded_channels);
      if (!p.refusal.empty()) return refuse(p.refusal);
      numbers = pool_numbers(*setting.pool, t.rows, t.columns, &p);
      replace_mark(text, "@POOLED_POINTERS@", p.pointers);
      // The convolution's result has no parameter; the pooling's constants are one more.
      e.parameters = ", const unsigned char* pooled_constants" + p.parameters;
      e.arguments = {{Argument::Kind::constant, 2, 0}};
      e.arguments.insert(e.arguments.end(), p.arguments.begin(), p.arguments.end());
      out.constants.push_back(constants_with_start({}, p, kPoolConstantsAt / 4));
    } else if (t.sums()) {
      numbers = pool_numbers(*setting.pool, t.rows, t.columns, nullptr);
    }
    replace_mark(text, "@POOL@", setting.pool ? pool_functions() : "");
    replace_mark(text, "@PARAMETERS@", conv_parameter_list(e) + open.parameters());
    replace_mark(text, "@POINTERS@", pointers);
    out.text = fmt::format("#define OCTAVO_POOL {}\n", t.pool) + conv_parameters(s) +
               declare({{"kHalves", z.halves},
                        {"kTileRows", z.cover.rows},
                        {"kTileColumns", z.cover.columns},
                        {"kTileN", t.channels},
                        {"kWarps", t.warps},
                        {"kBlocksPerProcessor", t.blocks}}) +
               e.text + numbers + fmt::format("#define OCTAVO_PLANES {}\n", setting.planes ? 1 : 0);
    if (const auto& p = setting.planes) {
      out.text +=
          fmt::format("constexpr long long kPlaneImage = {}, kPlaneRow = {}, kPlaneElement = {};\n", p->image, p->row, p->element);
      out.text += std::string(elements_functions()) + p->text;
    }
    out.text += text;
    Launch launch = launch_of("octavo_conv_rows", z.grid, 32 * t.warps, z.shared);
    add_conv_arguments(launch, setting.input(), 0, e);
    open.add_to(launch);
    out.launches.push_back(std::move(launch));
    return out;
  }

 private:
  /// The convolution's stage. A stage before it makes its input out of planes.
  [[nodiscard]] const region::Stage& conv_of(const region::Region& r) const {
    return r.stages[r.stages.size() - (pooled_ ? 2 : 1)];
  }
  [[nodiscard]] bool from_planes(const region::Region& r) const { return r.stages.size() == (pooled_ ? 3 : 2); }

  static RowsTile least(const RowsSetting& s) { return {1, s.pool ? 1 : 16, 16, 1, 1, 1, s.pool ? kCodes : kNothing}; }

  static std::vector<RowsTile> tiles_of(const RowsSetting& setting) {
    const ConvShape& s = setting.conv.shape;
    const std::int64_t high = setting.pool ? setting.pool->out_h : s.out_h, wide = setting.pool ? setting.pool->out_w : s.out_w;
    const int channels = s.out_channels <= 16 ? 16 : s.out_channels <= 32 ? 32 : 64;
    std::set<int> columns;
    for (const std::int64_t n : {1, 2, 3, 4})
      columns.insert(static_cast<int>(setting.pool ? parts(wide, n) : up(parts(wide, n), 16)));
    std::vector<RowsTile> out;
    for (auto column = columns.rbegin(); column != columns.rend(); ++column) {
      for (const int rows : {1, 2, 4, 7, 8, 14, 16}) {
        if (rows > high || (!setting.pool && rows % 7 == 0)) continue;
        for (const int group : {1, 2, 4}) {
          for (const int blocks : {2, 3, 4, 6}) {
            if (!setting.pool) out.push_back({rows, *column, channels, 4, group, blocks, kNothing});
            for (const int warps : {4, 8}) {
              if (setting.pool) out.push_back({rows, *column, channels, warps, group, blocks, kCodes});
              if (setting.pool && group == 2) out.push_back({rows, *column, channels, warps, group, blocks, kSums});
            }
          }
        }
      }
    }
    return out;
  }

  bool pooled_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_rows, ConvRows, false)
OCTAVO_DEFINE_FAMILY(conv_rows_pool, ConvRows, true)

}  // namespace octavo::cuda
