#include "cuda/conv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cuda/conv_text.h"
#include "cuda/conv_tiles.h"
#include "cuda/elements.h"
#include "cuda/planar.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/conv_rows.inc"
    ;

struct Tile {
  int rows = 8, columns = 112, channels = 64, warps = 4, group = 2, blocks = 2;
};

Parameters spell(const Tile& t) {
  return {{"tile", fmt::format("{}x{}", t.rows, t.columns)},
          {"channels", std::to_string(t.channels)},
          {"warps", std::to_string(t.warps)},
          {"group", std::to_string(t.group)},
          {"blocks", std::to_string(t.blocks)}};
}

Result<Tile> parse(const Parameters& parameters) {
  Tile t;
  const auto get = [&](const char* name) { return value_of(parameters, name); };
  const bool numbers =
      std::sscanf(get("tile").c_str(), "%dx%d", &t.rows, &t.columns) == 2 &&
      std::sscanf(get("channels").c_str(), "%d", &t.channels) == 1 && std::sscanf(get("warps").c_str(), "%d", &t.warps) == 1 &&
      std::sscanf(get("group").c_str(), "%d", &t.group) == 1 && std::sscanf(get("blocks").c_str(), "%d", &t.blocks) == 1;
  if (!numbers || spell(t) != parameters)
    return fail(ErrorKind::bad_input, "conv.u8s8.rows: parameters are tile (rows x columns), channels, warps, group and blocks");
  return t;
}

std::int64_t up(std::int64_t v, std::int64_t to) {
  return (v + to - 1) / to * to;
}

/// As the text computes it.
struct Sizes {
  std::int64_t halves, steps, filter, pitch, in_rows, shared, tiles_n, grid;
};
Sizes sizes_of(const ConvShape& s, const Tile& t) {
  Sizes z{};
  const std::int64_t step = s.stride_w * s.channels, phases = step % 4 == 0 ? 1 : step % 2 == 0 ? 2 : 4;
  z.halves = s.tap_chunks();
  z.steps = (s.kernel_h * z.halves + 1) / 2;
  z.filter = z.steps * t.channels * 32;
  z.pitch = up((t.columns - 1) * step + z.halves * 16, 4);
  z.in_rows = (t.rows - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1;
  z.shared = z.filter + phases * (up(z.in_rows * z.pitch, 128) + 64);
  z.tiles_n = (s.out_channels + t.channels - 1) / t.channels;
  z.grid = z.tiles_n * s.batch * ((s.out_h + t.rows - 1) / t.rows) * ((s.out_w + t.columns - 1) / t.columns);
  return z;
}

Reasons why_not_tile(const ConvShape& s, const Tile& t, const Target& target) {
  if (t.rows < 1 || t.rows > 64 || t.columns < 16 || t.columns > 512 || t.columns % 16 != 0)
    return unmet("tile", fmt::format("{}x{}", t.rows, t.columns), "1 to 64 rows of 16 to 512 pixels, by 16");
  if ((t.channels != 16 && t.channels != 32 && t.channels != 64) || t.warps < 1 || t.warps > 16 || t.group < 1 || t.group > 4 ||
      t.blocks < 1 || t.blocks > 16)
    return unmet("channels, warps, group, blocks", fmt::format("{}, {}, {}, {}", t.channels, t.warps, t.group, t.blocks),
                 "16, 32 or 64; up to 16; up to 4; up to 16");
  const Sizes z = sizes_of(s, t);
  if ((z.shared + 1024) * t.blocks > target.shared_bytes + 1024)
    return unmet("bytes of shared memory", z.shared * t.blocks, fmt::format("at most {}", target.shared_bytes));
  return {};
}

/// The convolution's stage. Where there is a stage before it, that one makes its input out of planes.
const region::Stage& conv_of(const region::Region& r) {
  return r.stages.back();
}
region::Region alone(const region::Region& r) {
  region::Region one;
  one.stages = {conv_of(r)};
  return one;
}
bool from_planes(const region::Region& r) {
  return r.stages.size() == 2;
}

class ConvRows final : public Family {
 public:
  [[nodiscard]] std::string_view name() const override { return "conv.u8s8.rows"; }
  [[nodiscard]] int version() const override { return 2; }
  [[nodiscard]] bool about(const region::Region& r) const override {
    if (r.independent || r.stages.empty() || r.stages.size() > 2) return false;
    const region::Anchor& a = conv_of(r).anchor;
    if (a.op != ir::Op::conv || !a.integer || !a.weights) return false;
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
    ConvShape s;
    return why_not(r, plan, target, s);
  }
  [[nodiscard]] std::vector<Candidate> candidates(const region::Region& r, const region::Plan& plan,
                                                  const Target& target) const override {
    ConvShape s;
    if (!why_not(r, plan, target, s).empty()) return {};
    const auto bytes = [](const region::TensorRef& t) { return static_cast<double>(tensor_bytes(t)); };
    double traffic = bytes(from_planes(r) ? read_planar(r.stages[0], plan).source : conv_of(r).anchor.inputs[0]);
    for (const region::TensorRef& t : conv_of(r).stores) traffic += bytes(t);
    std::vector<Candidate> out;
    const int channels = s.out_channels <= 16 ? 16 : s.out_channels <= 32 ? 32 : 64;
    std::vector<int> columns;
    for (const std::int64_t parts : {1, 2, 3, 4}) {
      const auto c = static_cast<int>(up((s.out_w + parts - 1) / parts, 16));
      if (std::find(columns.begin(), columns.end(), c) == columns.end()) columns.push_back(c);
    }
    for (const int column : columns) {
      for (const int rows : {1, 2, 4, 8, 16}) {
        for (const int group : {1, 2, 4}) {
          for (const int blocks : {2, 3, 4, 6}) {
            const Tile t{rows, column, channels, 4, group, blocks};
            const int sums = group * channels / 2;
            if (!why_not_tile(s, t, target).empty() || sums > 128 || (sums > 64 && blocks > 2) || (sums > 32 && blocks > 4))
              continue;
            if (rows > s.out_h || rows * column / 16 < 4 * group) continue;
            const Sizes z = sizes_of(s, t);
            const double pixels = static_cast<double>(z.grid) / static_cast<double>(target.multiprocessors) * rows * column;
            const double products = pixels * channels * static_cast<double>(z.steps) * 32 / 2000;
            const double read = static_cast<double>(z.grid) / target.multiprocessors * static_cast<double>(z.in_rows * z.pitch) *
                                (from_planes(r) ? 14 : 7.5) / 128;
            const double program = pixels * channels * 14 / 128;
            const double waves = static_cast<double>(z.grid) / (target.multiprocessors * blocks);
            const double clocks = (products + read + program) * (1 + 0.6 / blocks) * std::max(1.0, std::ceil(waves) / waves) + 3000;
            const double busy = clocks / 1.7e9, memory = traffic / 2.8e12;
            out.push_back({spell(t), std::max(busy, memory) + 0.3 * std::min(busy, memory) + 1.5e-6});
          }
        }
      }
    }
    if (out.empty()) out.push_back({spell({1, 16, 16, 1, 1, 1}), 1});
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
    return out;
  }
  [[nodiscard]] Result<KernelText> emit(const region::Region& r, const region::Plan& plan, const Parameters& parameters,
                                        const Target& target) const override {
    ConvShape s;
    if (auto why = why_not(r, plan, target, s); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(const Tile t, parse(parameters));
    if (auto why = why_not_tile(s, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(s, t);
    const ConvWeights weights = read_weights(alone(r), plan, s);
    EpilogueShape shape;
    shape.rows = 2 * t.group, shape.run = t.channels / 4, shape.padded_channels = z.tiles_n * t.channels, shape.takes_bias = true;
    shape.piece = piece_for(conv_of(r), plan, shape.run);
    shape.accumulator = std::min(weights.largest_sum, 2147483648.0);
    const Epilogue e = emit_epilogue(conv_of(r), plan, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text(kText);
    replace_mark(text, "@PARAMETERS@", conv_parameter_list(e));
    replace_mark(text, "@POINTERS@", e.pointers);
    out.text = define(s, t, z) + e.text;
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
    out.constants = {pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, 32, shape.run, shape.piece}),
                     constants_with_start(weights.start, e, shape.padded_channels)};
    return out;
  }

 private:
  static Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target, ConvShape& s) {
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
    return why_not_tile(s, {1, 16, 16, 1, 1, 1}, target);
  }

  static std::string define(const ConvShape& s, const Tile& t, const Sizes& z) {
    std::string out = conv_parameters(s);
    const auto number = [&out](const char* name, std::int64_t v) { out += declare(name, v); };
    number("kHalves", z.halves), number("kTileRows", t.rows), number("kTileColumns", t.columns), number("kTileN", t.channels);
    number("kWarps", t.warps), number("kBlocksPerProcessor", t.blocks);
    return out;
  }
};

}  // namespace

const Family& conv_rows_family() {
  static const ConvRows family;
  return family;
}

}  // namespace octavo::cuda
