#include "cpu/stages/staged_rows.h"

#include <algorithm>

#include "base/machine.h"
#include "region/forwarded.h"
#include "region/host_kernel.h"

namespace octavo::cpu::staged {

using region::Region;
using region::Stage;

Vertical vertical(const Stage& s) {
  if (s.anchor.none()) return {s.space[2], s.space[2], 1, 1, 1, 0};
  const auto kernel = s.anchor.weights ? ir::Shape(s.anchor.weights->dims.begin() + 2, s.anchor.weights->dims.end())
                                       : ir::get_ints(s.anchor.attrs, "kernel");
  const auto first = [&](const char* key, std::int64_t fallback) {
    const auto v = ir::get_ints(s.anchor.attrs, key);
    return v.empty() ? fallback : v[0];
  };
  return {s.anchor.inputs[0].dims[2], s.space[2], kernel[0], first("strides", 1), first("dilations", 1), first("pads", 0)};
}

std::int64_t first_input(const Vertical& v, std::int64_t begin) {
  return std::clamp<std::int64_t>(begin * v.stride - v.pad, 0, v.in);
}

namespace {

// Bytes of all rows between stages: half of the smallest second-level cache that processors with AVX2 have; the rows read and
// stored and the weights need the rest. The same on every machine: the packed constants are listed by the heights of the row tiles, so
// the row tiles are part of the engine file, which may be loaded where the cache has another size (docs/lab/kernels.md).
constexpr std::int64_t kSmallestL2 = standard_machine().l2_bytes / 4;
constexpr std::int64_t kRowTileBytes = kSmallestL2 / 2;
// Where a stage is read by an epilogue the rows are mostly float32, and two sets of weights are read again for every row tile: the rows
// are then as many bytes as the weights, within these (docs/lab/kernels.md).
constexpr std::int64_t kLeastWithEpilogue = kSmallestL2, kMostWithEpilogue = 2 * kSmallestL2;

// How stage k reads the rows of the one before it: its anchor's window, or each row as it is.
Vertical link(const Region& r, std::size_t k) {
  const Stage& s = r.stages[k];
  return region::read_by_epilogue(r, k) ? Vertical{s.space[2], s.space[2], 1, 1, 1, 0} : vertical(s);
}

std::int64_t last_input(const Vertical& v, std::int64_t begin, std::int64_t end) {
  return std::clamp<std::int64_t>((end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1, first_input(v, begin), v.in);
}

bool by_epilogue(const Region& r) {
  bool any = false;
  for (std::size_t k = 1; k < r.stages.size(); ++k) any = any || region::read_by_epilogue(r, k);
  return any;
}

std::int64_t row_tile_bytes(const Region& r) {
  std::int64_t weights = 0;
  for (const Stage& s : r.stages) {
    const auto& w = s.anchor.weights;
    if (w) weights += ir::count(w->dims) * static_cast<std::int64_t>(ir::size_of(w->dtype));
  }
  return by_epilogue(r) ? std::clamp(weights, kLeastWithEpilogue, kMostWithEpilogue) : kRowTileBytes;
}

}  // namespace

Slab slab_of(const Vertical& v, std::int64_t begin, std::int64_t end) {
  const std::int64_t from = begin * v.stride - v.pad, to = (end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1;
  return {end - begin, last_input(v, begin, end) - first_input(v, begin), first_input(v, begin) - from,
          to - last_input(v, begin, end)};
}

Schedule schedule_of(const Region& r, int threads) {
  const std::size_t n = r.stages.size();
  std::vector<Vertical> v;
  for (std::size_t k = 0; k < n; ++k) v.push_back(link(r, k));
  std::int64_t row_bytes = 0, down = 1;  // of everything between, for one row of the result
  for (std::size_t k = n - 1; k-- > 0;) {
    down *= v[k + 1].stride;
    const auto& space = r.stages[k].space;
    row_bytes += down * space[1] * space[3] * static_cast<std::int64_t>(ir::size_of(r.stages[k].stores[0].dtype));
  }
  const Vertical& last = v.back();
  const std::int64_t rows = std::clamp<std::int64_t>(row_tile_bytes(r) / std::max<std::int64_t>(row_bytes, 1), 1, last.out);
  const std::int64_t images = r.stages[0].space[0];
  // Of more threads than two, those that are done take tasks from others: twice as many, as far as two rows are left for each.
  const bool sharing = threads >= region::kSharingWorkers;
  const std::int64_t most = sharing ? (last.out + 1) / 2 : last.out;
  const std::int64_t count =
      threads <= 1 || images >= threads ? 1 : std::clamp<std::int64_t>(sharing ? 2 * threads : threads, 1, most);
  Schedule s;
  s.between_rows.assign(n - 1, 1);
  for (std::int64_t t = 0; t < count; ++t) {
    std::vector<RowTile> task;
    const std::int64_t first = last.out * t / count, own = last.out * (t + 1) / count - first, row_tiles = (own + rows - 1) / rows;
    for (std::int64_t b = 0; b < row_tiles; ++b) {
      RowTile row_tile(n);
      const std::int64_t begin = first + own * b / row_tiles, end = first + own * (b + 1) / row_tiles;
      row_tile[n - 1] = {begin, begin, end};
      for (std::size_t k = n - 1; k-- > 0;) {
        const Rows& above = row_tile[k + 1];
        if (above.new_begin == above.end) {  // nothing new above: what is there stays
          row_tile[k] = task.back()[k];
          row_tile[k].new_begin = row_tile[k].end;
          continue;
        }
        const std::int64_t from = first_input(v[k + 1], above.new_begin), to = last_input(v[k + 1], above.new_begin, above.end);
        row_tile[k] = {from, task.empty() ? from : std::clamp(task.back()[k].end, from, to), to};
        s.between_rows[k] = std::max(s.between_rows[k], to - from);
      }
      task.push_back(std::move(row_tile));
    }
    s.tasks.push_back(std::move(task));
  }
  return s;
}

std::set<Slab> slabs_of(const Region& r, const Schedule& schedule, std::size_t stage) {
  std::set<Slab> out;
  const Vertical v = vertical(r.stages[stage]);
  for (const auto& task : schedule.tasks) {
    for (const RowTile& b : task) {
      if (b[stage].new_begin < b[stage].end) out.insert(slab_of(v, b[stage].new_begin, b[stage].end));
    }
  }
  return out;
}

}  // namespace octavo::cpu::staged
