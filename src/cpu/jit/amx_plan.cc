#include "cpu/jit/amx_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace octavo::cpu::jit {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t tiles_of(std::int64_t bytes) {
  return ceil_div(bytes, kLine);
}

/// The smallest distance of pixels of so many bytes at which no tile row crosses a line.
std::int64_t pitch_of(std::int64_t bytes) {
  if (bytes >= kLine) return tiles_of(bytes) * kLine;
  return std::max<std::int64_t>(4, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes))));
}

/// Rows of `bytes` at multiples of all these distances lie within lines.
bool within_lines(std::int64_t bytes, std::initializer_list<std::int64_t> distances) {
  const std::int64_t unit = pitch_of(bytes);
  if (unit != bytes) return false;
  const std::int64_t grid = std::min(unit, kLine);
  return std::all_of(distances.begin(), distances.end(), [&](std::int64_t d) { return d % grid == 0; });
}

/// The largest part of `bytes` that a row of a tile holds, `bytes` being a multiple of it.
std::int64_t deepest_part(std::int64_t bytes) {
  std::int64_t depth = std::min(kLine, bytes / 4 * 4);
  while (depth > 4 && bytes % depth != 0) depth -= 4;
  return depth;
}

double product_clocks(std::int64_t rows) {
  return std::max(9.2, static_cast<double>(rows) + 0.6);
}

}  // namespace

Reasons arrange_tiles(const region::TensorRef& x, const ConvSetting& plan, bool padded, std::int64_t pixel, Phase& ph) {
  const auto taps = static_cast<std::int64_t>(ph.x.offset.size());
  const std::int64_t ic = plan.bytes(plan.ic), along_rows = plan.bytes(x.strides[2]);
  if (plan.groups > 1 && !within_lines(ic, {ic}))
    return unmet("input channels a group", plan.ic, "groups that fill parts of 64 bytes");
  const bool fewer = tiles_of(taps * ic) < taps * tiles_of(ic);
  const bool narrow = ph.x.count < 12 && ph.y.count > 1 && ph.y.step == 1;  // tiles may then go on in the next row
  ph.joined = taps > 1 && plan.groups == 1 && !plan.batch_is_pixels && ((ic < kLine && fewer) || narrow);
  const bool in_place = within_lines(ic, {pixel, along_rows, x.offset, plan.bytes(x.strides[0])});
  if (plan.batch_is_pixels && !plan.slack && ic % kLine != 0) return unmet("bytes of the caller's rows", ic, "a multiple of 64");
  ph.copies =
      taps > 0 && !plan.batch_is_pixels && (padded || ph.joined || !in_place || !plan.slack);  // callers' buffers begin anywhere
  ph.segment_bytes = taps == 0 ? 0 : (ph.joined ? taps : 1) * ic;
  // Two kernel rows side by side take one product of tiles instead of two.
  const bool rows = ph.y.highest() - ph.y.lowest() == static_cast<std::int64_t>(ph.y.offset.size()) - 1;
  if (ph.joined && rows && !of_floats(plan.dots) && ph.y.offset.size() > 1 && ph.y.step % 2 == 0 && 2 * ph.segment_bytes <= kLine)
    ph.together = 2;
  ph.segment_bytes *= ph.together;
  ph.pitch = pitch_of(ph.joined ? ph.segment_bytes : plan.bytes(plan.shape.c));
  if (of_floats(plan.dots)) {
    if (ph.segment_bytes % 4 != 0) return unmet("elements of a run of the reduction", ph.segment_bytes / 2, "an even number");
    ph.depth = std::max<std::int64_t>(4, deepest_part(ph.segment_bytes));
    ph.steps = ph.segment_bytes / ph.depth;
  } else {
    ph.steps = tiles_of(ph.segment_bytes);
    ph.depth = ph.steps > 1 ? kLine : std::max<std::int64_t>(4, ceil_div(ph.segment_bytes, 4) * 4);
  }
  ph.quads = ph.steps * ph.depth / 4;
  ph.pixel_step = ph.copies ? ph.pitch : pixel;
  ph.row_step = ph.copies ? ph.strip_row_bytes() / ph.together : along_rows;
  const std::int64_t y0 = ph.copies ? ph.y.lowest() : 0, x0 = ph.copies ? ph.x.lowest() : 0;
  for (std::size_t row = 0; row < ph.y.offset.size(); row += static_cast<std::size_t>(ph.together)) {
    const std::int64_t dy = ph.y.offset[row];
    for (std::int64_t t = 0; t < (ph.joined ? 1 : taps); ++t) {
      const std::int64_t across = ph.joined ? 0 : (ph.x.offset[static_cast<std::size_t>(t)] - x0) * ph.pixel_step;
      ph.segments.push_back((dy - y0) * ph.row_step + across);
    }
  }
  return {};
}

TileRuns tile_runs(const Phase& ph, std::int64_t row_tile_pixels) {
  TileRuns t;
  std::int64_t run = row_tile_pixels;
  const bool line = ph.flat || ph.y.step * ph.row_step == ph.x.count * ph.pixel_bytes();
  const auto even = [](std::int64_t pixels) { return ceil_div(pixels, ceil_div(pixels, std::int64_t{16})); };
  std::int64_t rows = even(run);
  if (!line) {
    const std::int64_t width = ph.x.count, ragged = even(width);
    rows = ragged;
    run = width;
    const double limit = static_cast<double>(ceil_div(width, ragged)) * product_clocks(ragged) * 1.25;
    double best = 1e300;
    for (std::int64_t r = 1; r <= 16; ++r) {  // blocks that fill a row exactly are one run from row to row
      if (width % r != 0) continue;
      const double clocks = static_cast<double>(width / r) * product_clocks(r);
      if (clocks <= limit && clocks < best) best = clocks, rows = r, run = row_tile_pixels;
    }
  }
  t.rows = static_cast<int>(rows);
  t.repeat = row_tile_pixels / run;
  const std::int64_t whole = run / rows, rest = run % rows;
  t.big_count = rest == 0 ? whole / 2 : (whole + 1) / 2 - (whole % 2 == 0 ? 0 : 1);
  t.tail = static_cast<int>(run - t.big_count * 2 * rows);
  t.skip = rest == 0 ? 0 : static_cast<int>(rows - rest);
  return t;
}

double tile_clocks(const ConvSetting& p, const Phase& ph) {
  const std::int64_t row_tile = std::min(ph.pixels, ph.rows_per_tile * ph.row_pixels);
  const TileRuns t = tile_runs(ph, row_tile);
  const std::int64_t per_run = 2 * t.big_count + ceil_div(t.tail, t.rows);
  const double blocks = static_cast<double>(per_run * t.repeat) * static_cast<double>(ph.pixels) / static_cast<double>(row_tile);
  double vectors = 0;
  for (const auto& b : ph.blocks) vectors += b.vectors;
  const double products = static_cast<double>(static_cast<std::int64_t>(ph.segments.size()) * ph.steps);
  const double epilogue = 1.5 + 0.25 * static_cast<double>(p.epilogue.code.size());
  double clocks =
      blocks * vectors * (products * product_clocks(t.rows) * 1.2 + 17) + static_cast<double>(ph.pixels) * vectors * epilogue;
  clocks += static_cast<double>(ph.row_tiles) * static_cast<double>(ph.blocks.size()) * (100 + 40 * static_cast<double>(t.repeat));
  if (ph.copies) {
    const auto rows = static_cast<double>(ph.strip_rows(ph.y.count)), width = static_cast<double>(ph.strip_width());
    clocks += rows * width *
              (ph.pitch == p.bytes(p.shape.c) ? static_cast<double>(ph.pitch) / 16 : 2 + static_cast<double>(ph.pitch) / 12);
  }
  return clocks * static_cast<double>(p.images);
}

}  // namespace octavo::cpu::jit
