#include "cuda/families/conv/conv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "cuda/families/conv/conv_rows_pool.h"
#include "cuda/families/conv/conv_text.h"
#include "cuda/families/conv/conv_tiles.h"
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

/// Where there is a pooling, rows and columns are its.
struct Tile {
  int rows = 8, columns = 112, channels = 64, warps = 4, group = 2, blocks = 2;
  std::string pool;  ///< what is pooled: "codes" in shared memory, "sums" in registers; empty: nothing
  [[nodiscard]] bool sums() const { return pool == "sums"; }
};

Parameters spell(const Tile& t) {
  Parameters p{{"tile", fmt::format("{}x{}", t.rows, t.columns)},
               {"channels", std::to_string(t.channels)},
               {"warps", std::to_string(t.warps)},
               {"group", std::to_string(t.group)},
               {"blocks", std::to_string(t.blocks)}};
  if (!t.pool.empty()) p["pool"] = t.pool;
  return p;
}

Result<Tile> parse(const Parameters& parameters) {
  Tile t;
  const auto get = [&](const char* name) { return value_of(parameters, name); };
  const bool numbers =
      std::sscanf(get("tile").c_str(), "%dx%d", &t.rows, &t.columns) == 2 &&
      std::sscanf(get("channels").c_str(), "%d", &t.channels) == 1 && std::sscanf(get("warps").c_str(), "%d", &t.warps) == 1 &&
      std::sscanf(get("group").c_str(), "%d", &t.group) == 1 && std::sscanf(get("blocks").c_str(), "%d", &t.blocks) == 1;
  t.pool = get("pool");
  if (!numbers || spell(t) != parameters)
    return fail(
        ErrorKind::bad_input,
        "conv.u8s8.rows: parameters are tile (rows x columns), channels, warps, group and blocks, and pool where there is one");
  return t;
}

std::int64_t up(std::int64_t v, std::int64_t to) {
  return (v + to - 1) / to * to;
}

/// The convolution, and the pooling behind it where there is one.
struct Shapes {
  ConvShape conv;
  std::optional<Pooling> pool;
  Reasons not_sums;  ///< why its maxima cannot be of sums
};

/// As the text computes it.
struct Sizes {
  PoolCover cover;  ///< the convolution's rows and columns of a tile
  std::int64_t halves, steps, filter, pitch, in_rows, shared, tiles_n, grid;
};
Sizes sizes_of(const Shapes& shapes, const Tile& t) {
  const ConvShape& s = shapes.conv;
  Sizes z{};
  z.cover = shapes.pool ? cover_of(*shapes.pool, s, t.rows, t.columns) : PoolCover{t.rows, t.columns, 0};
  const std::int64_t step = s.stride_w * s.channels, phases = step % 4 == 0 ? 1 : step % 2 == 0 ? 2 : 4;
  z.halves = s.tap_chunks();
  z.steps = (s.kernel_h * z.halves + 1) / 2;
  z.filter = z.steps * t.channels * 32;
  z.pitch = up((z.cover.columns - 1) * step + z.halves * 16, 4);
  z.in_rows = (z.cover.rows - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1;
  z.shared =
      z.filter + phases * (up(z.in_rows * z.pitch, 128) + 64) + (t.sums() ? 0 : z.cover.rows * z.cover.row_pixels * t.channels);
  z.tiles_n = (s.out_channels + t.channels - 1) / t.channels;
  z.grid = z.tiles_n * s.batch * parts(shapes.pool ? shapes.pool->out_h : s.out_h, t.rows) *
           parts(shapes.pool ? shapes.pool->out_w : s.out_w, t.columns);
  return z;
}

Reasons why_not_tile(const Shapes& s, const Tile& t, const Target& target) {
  if (s.pool && (t.rows < 1 || t.rows > 64 || t.columns < 1 || t.columns > 512))
    return unmet("tile", fmt::format("{}x{}", t.rows, t.columns), "1 to 64 rows of 1 to 512 pixels");
  if (!s.pool && (t.rows < 1 || t.rows > 64 || t.columns < 16 || t.columns > 512 || t.columns % 16 != 0))
    return unmet("tile", fmt::format("{}x{}", t.rows, t.columns), "1 to 64 rows of 16 to 512 pixels, by 16");
  if ((t.channels != 16 && t.channels != 32 && t.channels != 64) || t.warps < 1 || t.warps > 16 || t.group < 1 || t.group > 4 ||
      t.blocks < 1 || t.blocks > 16)
    return unmet("channels, warps, group, blocks", fmt::format("{}, {}, {}, {}", t.channels, t.warps, t.group, t.blocks),
                 "16, 32 or 64; up to 16; up to 4; up to 16");
  if (s.pool ? t.pool != "codes" && !t.sums() : !t.pool.empty())
    return unmet("pool", t.pool, s.pool ? "codes or sums" : "nothing without a pooling");
  if (t.sums() && t.group != 2) return unmet("group where sums are pooled", t.group, "2");
  if (t.sums() && !s.not_sums.empty()) return s.not_sums;
  const Sizes z = sizes_of(s, t);
  if ((z.shared + 1024) * t.blocks > target.shared_bytes + 1024)
    return unmet("bytes of shared memory", z.shared * t.blocks, fmt::format("at most {}", target.shared_bytes));
  return {};
}

class ConvRows final : public Family {
 public:
  /// `pooled`: of regions that end with a maximum over windows of the convolution's result.
  explicit ConvRows(bool pooled) : pooled_(pooled) {}
  [[nodiscard]] std::string_view name() const override { return pooled_ ? "conv.u8s8.rows_pool" : "conv.u8s8.rows"; }
  [[nodiscard]] int version() const override { return pooled_ ? 1 : 2; }
  [[nodiscard]] bool about(const region::Region& r) const override {
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
  [[nodiscard]] Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    Shapes s;
    return why_not(r, plan, target, s);
  }
  [[nodiscard]] std::vector<Candidate> candidates(const region::Region& r, const region::Plan& plan,
                                                  const Target& target) const override {
    Shapes s;
    if (!why_not(r, plan, target, s).empty()) return {};
    const auto bytes = [](const region::TensorRef& t) { return static_cast<double>(tensor_bytes(t)); };
    double traffic = bytes(from_planes(r) ? read_planar(r.stages[0], plan).source : conv_of(r).anchor.inputs[0]);
    for (const region::TensorRef& t : r.stages.back().stores) traffic += bytes(t);
    std::vector<Candidate> out;
    for (const Tile& t : tiles_of(s)) {
      const int sums = t.group * t.channels / 2, threads = t.warps * t.blocks;
      if (!why_not_tile(s, t, target).empty() || sums > 128 || (sums > 64 && threads > 8) || (sums > 32 && threads > 16)) continue;
      const Sizes z = sizes_of(s, t);
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
      const double read = blocks * static_cast<double>(z.in_rows * z.pitch) * (from_planes(r) ? 14 : 7.5) / 128;
      const double program = programs * t.channels * 14 / 128;
      const double waves = blocks / t.blocks;
      const double scale = !s.pool || waves < 1 ? 1 : t.sums() ? kSumsScale : t.group == 1 ? kCodesScale : kCodesGroupsScale;
      const double work = (products + read + program + pool) * scale;
      const double clocks = work * (1 + 2.4 / threads) * std::max(1.0, std::ceil(waves) / waves) + 3000;
      const double busy = clocks / 1.7e9, memory = traffic / 2.8e12;
      out.push_back({spell(t), std::max(busy, memory) + 0.3 * std::min(busy, memory) + 1.5e-6});
    }
    if (out.empty()) out.push_back({spell(least(s)), 1});
    if (!pooled_) {
      std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
      return out;
    }
    // Sums and codes in turn, two of sums for one of codes: the first few are timed, and estimates of the two do not compare well.
    put_in_order(out, {"tile", "pool"});
    const auto codes =
        std::stable_partition(out.begin(), out.end(), [](const Candidate& c) { return c.parameters.at("pool") == "sums"; });
    std::vector<Candidate> mixed;
    auto sums = out.begin(), code = codes;
    while (sums != codes || code != out.end()) {
      const bool of_codes = sums == codes || (code != out.end() && mixed.size() % 3 == 2);
      mixed.push_back(std::move(*(of_codes ? code++ : sums++)));
    }
    return mixed;
  }
  [[nodiscard]] Result<KernelText> emit(const region::Region& r, const region::Plan& plan, const Parameters& parameters,
                                        const Target& target) const override {
    Shapes shapes;
    if (auto why = why_not(r, plan, target, shapes); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(const Tile t, parse(parameters));
    if (auto why = why_not_tile(shapes, t, target); !why.empty()) return refuse(std::move(why));
    const ConvShape& s = shapes.conv;
    const Sizes z = sizes_of(shapes, t);
    const region::Stage conv = !shapes.pool ? conv_of(r)
                               : t.sums()   ? on_pooled_sums(conv_of(r), r.stages.back())
                                            : into_tile(conv_of(r), z.cover, t.channels);
    const bool codes = shapes.pool && !t.sums();
    const ConvWeights weights = read_weights(alone(r), plan, s);
    EpilogueShape shape;
    shape.rows = t.sums() ? 1 : 2 * t.group, shape.run = t.channels / 4, shape.padded_channels = z.tiles_n * t.channels;
    shape.takes_bias = true, shape.stores_padding = codes;
    shape.piece = piece_for(conv, plan, shape.run);
    shape.accumulator = std::min(weights.largest_sum, 2147483648.0);
    Epilogue e = emit_epilogue(conv, plan, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text(kText), numbers;
    const std::string pointers = e.pointers;
    out.constants = {pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, 32, shape.run, shape.piece}),
                     constants_with_start(weights.start, e, shape.padded_channels)};
    if (codes) {
      const Epilogue p = pool_epilogue(r.stages.back(), plan, shape.padded_channels);
      if (!p.refusal.empty()) return refuse(p.refusal);
      numbers = pool_numbers(*shapes.pool, t.rows, t.columns, &p);
      replace_mark(text, "@POOLED_POINTERS@", p.pointers);
      // The convolution's result has no parameter; the pooling's constants are one more.
      e.parameters = ", const unsigned char* pooled_constants" + p.parameters;
      e.arguments = {{Parameter::Kind::constant, 2, 0}};
      e.arguments.insert(e.arguments.end(), p.arguments.begin(), p.arguments.end());
      out.constants.push_back(constants_with_start({}, p, kPoolConstantsAt / 4));
    } else if (t.sums()) {
      numbers = pool_numbers(*shapes.pool, t.rows, t.columns, nullptr);
    }
    replace_mark(text, "@POOL@", shapes.pool ? pool_functions() : "");
    replace_mark(text, "@PARAMETERS@", conv_parameter_list(e));
    replace_mark(text, "@POINTERS@", pointers);
    out.text = fmt::format("#define OCTAVO_POOL {}\n", codes ? 1 : t.sums() ? 2 : 0) + define(s, t, z) + e.text + numbers;
    region::TensorRef x = conv_of(r).anchor.inputs[0];
    if (from_planes(r)) {
      const Planar p = read_planar(r.stages[0], plan);
      x = p.source;
      out.text +=
          fmt::format("#define OCTAVO_PLANES 1\nconstexpr long long kPlaneImage = {}, kPlaneRow = {}, kPlaneElement = {};\n",
                      p.image, p.row, p.element);
      out.text += std::string(elements_functions()) + p.text;
    } else {
      out.text += "#define OCTAVO_PLANES 0\n";
    }
    out.text += text;
    Launch launch;
    launch.function = "octavo_conv_rows";
    launch.grid = {static_cast<int>(z.grid), 1, 1};
    launch.block = {32 * t.warps, 1, 1};
    launch.shared_bytes = z.shared;
    add_conv_arguments(launch, x, 0, e);
    out.launches.push_back(std::move(launch));
    return out;
  }

 private:
  /// The convolution's stage. A stage before it makes its input out of planes.
  [[nodiscard]] const region::Stage& conv_of(const region::Region& r) const {
    return r.stages[r.stages.size() - (pooled_ ? 2 : 1)];
  }
  [[nodiscard]] bool from_planes(const region::Region& r) const { return r.stages.size() == (pooled_ ? 3 : 2); }
  [[nodiscard]] region::Region alone(const region::Region& r) const {
    region::Region one;
    one.stages = {conv_of(r)};
    return one;
  }

  static Tile least(const Shapes& s) { return {1, s.pool ? 1 : 16, 16, 1, 1, 1, s.pool ? "codes" : ""}; }

  static std::vector<Tile> tiles_of(const Shapes& shapes) {
    const ConvShape& s = shapes.conv;
    const std::int64_t high = shapes.pool ? shapes.pool->out_h : s.out_h, wide = shapes.pool ? shapes.pool->out_w : s.out_w;
    const int channels = s.out_channels <= 16 ? 16 : s.out_channels <= 32 ? 32 : 64;
    std::set<int> columns;
    for (const std::int64_t n : {1, 2, 3, 4})
      columns.insert(static_cast<int>(shapes.pool ? parts(wide, n) : up(parts(wide, n), 16)));
    std::vector<Tile> out;
    for (auto column = columns.rbegin(); column != columns.rend(); ++column) {
      for (const int rows : {1, 2, 4, 7, 8, 14, 16}) {
        if (rows > high || (!shapes.pool && rows % 7 == 0)) continue;
        for (const int group : {1, 2, 4}) {
          for (const int blocks : {2, 3, 4, 6}) {
            if (!shapes.pool) out.push_back({rows, *column, channels, 4, group, blocks, ""});
            for (const int warps : {4, 8}) {
              if (shapes.pool) out.push_back({rows, *column, channels, warps, group, blocks, "codes"});
              if (shapes.pool && group == 2) out.push_back({rows, *column, channels, warps, group, blocks, "sums"});
            }
          }
        }
      }
    }
    return out;
  }

  Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target, Shapes& shapes) const {
    ConvShape& s = shapes.conv;
    if (target.architecture == "sm_75") return unmet("architecture", target.architecture, "sm_80 or later (mma.m16n8k32)");
    if (auto why = read_conv(alone(r), plan, s); !why.empty()) return why;
    if (from_planes(r)) {
      const Planar p = read_planar(r.stages[0], plan);
      if (!p.refusal.empty()) return p.refusal;
      if (conv_of(r).anchor.inputs[0].dims != r.stages[0].space)
        return unmet("input", ir::to_string(conv_of(r).anchor.inputs[0].dims),
                     fmt::format("{}, all that is computed before", ir::to_string(r.stages[0].space)));
      if (s.in_w % 4 != 0 || p.row % (4 * p.element) != 0)
        return unmet("pixels and bytes a row of the planes", fmt::format("{}, {}", s.in_w, p.row), "multiples of 4 elements");
    }
    if (s.groups != 1) return unmet("groups", s.groups, "1");
    if (s.pixel != s.channels || s.dilation_w != 1)
      return unmet("channels, bytes a pixel, dilation", fmt::format("{}, {}, {}", s.channels, s.pixel, s.dilation_w),
                   "dense pixels without dilation");
    if (s.channels * s.kernel_w > 64) return unmet("bytes a kernel row", s.channels * s.kernel_w, "at most 64");
    if (s.batch * s.out_h * s.out_w > INT32_MAX / 4) return unmet("pixels", s.pixels(), "less than 2^29");
    s.packed_rows = true, s.flat = false;
    if (pooled_) {
      if (auto why = read_pooling(r.stages.back(), conv_of(r), plan, shapes.pool.emplace()); !why.empty()) return why;
      const double largest = read_weights(alone(r), plan, s).largest_sum;
      shapes.not_sums = why_not_sums(*shapes.pool, s, conv_of(r), r.stages.back(), plan, largest);
    }
    return why_not_tile(shapes, least(shapes), target);
  }

  static std::string define(const ConvShape& s, const Tile& t, const Sizes& z) {
    std::string out = conv_parameters(s);
    const auto number = [&out](const char* name, std::int64_t v) { out += declare(name, v); };
    number("kHalves", z.halves), number("kTileRows", z.cover.rows), number("kTileColumns", z.cover.columns);
    number("kTileN", t.channels);
    number("kWarps", t.warps), number("kBlocksPerProcessor", t.blocks);
    return out;
  }

  bool pooled_;
};

}  // namespace

const Family& conv_rows_family() {
  static const ConvRows family(false);
  return family;
}

const Family& conv_rows_pool_family() {
  static const ConvRows family(true);
  return family;
}

}  // namespace octavo::cuda
