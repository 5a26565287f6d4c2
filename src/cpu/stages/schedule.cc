#include "cpu/stages/schedule.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/machine.h"
#include "cpu/parameters.h"
#include "region/host_kernel.h"

namespace octavo::cpu::staged {

using region::Region;
using region::Stage;
using region::StageEdge;

Vertical vertical(const Stage& s) {
  if (s.anchor.none()) return {s.space[2], s.space[2], 1, 1, 1, 0};
  const auto& w = s.anchor.as<ir::Window>();
  const std::int64_t kernel = s.anchor.weights ? s.anchor.weights->dims[2] : w.kernel[0];
  return {s.anchor.inputs[0].dims[2], s.space[2], kernel, w.strides[0], w.dilations[0], w.pads[0]};
}

std::int64_t first_input(const Vertical& v, std::int64_t begin) {
  return std::clamp<std::int64_t>(begin * v.stride - v.pad, 0, v.in);
}

namespace {

// Bytes of all rows between stages: half of the smallest second-level cache that processors with AVX2 have; the rows read and
// stored and the weights need the rest. The same on every machine: the packed constants are listed by the heights of the tiles, so
// the tiles are part of the engine file, which may be loaded where the cache has another size (docs/lab/kernels.md).
constexpr std::int64_t kSmallestL2 = standard_machine().l2_bytes / 4;
constexpr std::int64_t kTileBytes = kSmallestL2 / 2;
// Where a stage is read by an epilogue the rows are mostly float32, and two sets of weights are read again for every tile: the rows
// are then as many bytes as the weights, within these (docs/lab/kernels.md).
constexpr std::int64_t kLeastWithEpilogue = kSmallestL2, kMostWithEpilogue = 2 * kSmallestL2;

std::int64_t last_input(const Vertical& v, std::int64_t begin, std::int64_t end) {
  return std::clamp<std::int64_t>((end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1, first_input(v, begin), v.in);
}

// An edge with its geometry: the window of the reader's anchor, or each row as it is.
struct Link {
  std::size_t from, reader;
  Vertical v;
};
std::vector<Link> links_of(const Region& r) {
  std::vector<Link> out;
  for (const StageEdge& e : region::edges_of(r)) {
    const Stage& s = r.stages[e.reader];
    const bool by_anchor = e.input < s.anchor.inputs.size();
    out.push_back({e.from.stage, e.reader, by_anchor ? vertical(s) : Vertical{s.space[2], s.space[2], 1, 1, 1, 0}});
  }
  return out;
}

std::int64_t tile_bytes(const Region& r, const region::Parameters& parameters) {
  if (const std::int64_t kib = number(parameters, kTile, 1 << 20); kib > 0) return kib << 10;
  std::int64_t weights = 0;
  bool by_epilogue = false;
  for (std::size_t k = 0; k < r.stages.size(); ++k) {
    const auto& w = r.stages[k].anchor.weights;
    if (w) weights += ir::count(w->dims) * static_cast<std::int64_t>(ir::size_of(w->dtype));
    by_epilogue = by_epilogue || region::read_by_epilogue(r, k);
  }
  return by_epilogue ? std::clamp(weights, kLeastWithEpilogue, kMostWithEpilogue) : kTileBytes;
}

/// Bytes of everything between stages for one row of the last result.
std::int64_t bytes_between(const Region& r, const std::vector<Link>& links) {
  const std::size_t n = r.stages.size();
  std::vector<std::int64_t> rows(n, 0);  // of each stage for one row of the last
  std::int64_t bytes = 0;
  const std::int64_t last = r.stages.back().space[2];
  for (std::size_t k = n; k-- > 0;) {
    for (const Link& l : links) {
      if (l.from == k) rows[k] = std::max(rows[k], rows[l.reader] * l.v.stride);
    }
    rows[k] = std::min(rows[k], r.stages[k].space[2]);
    if (rows[k] == 0) rows[k] = std::max<std::int64_t>(r.stages[k].space[2] / std::max<std::int64_t>(last, 1), 1);
    const Stage& s = r.stages[k];
    for (std::size_t j = 0; j < s.stores.size(); ++j) {
      if (!region::leaves(r, {k, j}))
        bytes += rows[k] * s.space[1] * s.space[3] * static_cast<std::int64_t>(ir::size_of(s.stores[j].dtype));
    }
  }
  return std::max<std::int64_t>(bytes, 1);
}

/// The tiles of one task, of the last stage's rows [first, first + own).
class Task {
 public:
  Task(const Region& r, const std::vector<Link>& links) : r_(r), links_(links), n_(r.stages.size()) {
    for (std::size_t k = 0; k < n_; ++k) {
      bool any = false;
      for (std::size_t j = 0; j < r.stages[k].stores.size(); ++j) any = any || region::leaves(r, {k, j});
      leaves_.push_back(any);
      const auto readers = std::count_if(links.begin(), links.end(), [&](const Link& l) { return l.from == k; });
      skips_.push_back(!any && readers == 1);
    }
  }

  std::vector<Tile> run(std::int64_t first, std::int64_t own, std::int64_t most_rows) {
    computed_ = first_rows(first, first + own);
    const std::int64_t count = (own + most_rows - 1) / most_rows;
    // All but the last of one height: their kernels are then the same. An even one: depthwise kernels compute two rows at a time.
    const std::int64_t even = (own + count - 1) / count, height = even > 1 ? (even + 1) / 2 * 2 : 1;
    for (std::int64_t y = first; y < first + own; y += height) add(y, std::min(y + height, first + own));
    for (Tile& tile : tiles_) {
      for (std::size_t k = 0; k < n_; ++k) {
        tile[k].own_begin = leaves_[k] ? share(k, first) : tile[k].new_begin;
        tile[k].own_end = leaves_[k] ? share(k, first + own) : tile[k].end;
      }
    }
    hold();
    return std::move(tiles_);
  }

 private:
  struct Range {
    std::int64_t from = -1, to = -1;  // -1: nothing
    void include(std::int64_t a, std::int64_t b) {
      from = from < 0 ? a : std::min(from, a);
      to = std::max(to, b);
    }
  };

  /// The row of stage k that goes with a row of the last stage.
  [[nodiscard]] std::int64_t share(std::size_t k, std::int64_t row) const {
    const __int128 rows = r_.stages[k].space[2];  // from a file: the product may have more than 64 bits
    return static_cast<std::int64_t>(rows * row / r_.stages.back().space[2]);
  }
  [[nodiscard]] Range share(std::size_t k, std::int64_t begin, std::int64_t end) const {
    const std::int64_t a = share(k, begin), b = share(k, end);
    return leaves_[k] && a < b ? Range{a, b} : Range{};
  }
  /// What the readers of stage k need of it, whose rows `above` are to be computed.
  template <class RowsOf>
  [[nodiscard]] Range needed_by_readers(std::size_t k, const RowsOf& above) const {
    Range out;
    for (const Link& l : links_) {
      if (l.from != k) continue;
      const auto [from, to] = above(l.reader);
      if (from < to) out.include(first_input(l.v, from), last_input(l.v, from, to));
    }
    return out;
  }

  /// The first row of each stage that the task needs, in whatever tile.
  [[nodiscard]] std::vector<std::int64_t> first_rows(std::int64_t begin, std::int64_t end) const {
    std::vector<Range> all(n_);
    std::vector<std::int64_t> out(n_, 0);
    for (std::size_t k = n_; k-- > 0;) {
      all[k] = share(k, begin, end);
      const Range needed = needed_by_readers(k, [&](std::size_t q) { return std::pair(all[q].from, all[q].to); });
      if (needed.from >= 0) all[k].include(needed.from, needed.to);
      out[k] = std::max<std::int64_t>(all[k].from, 0);
    }
    return out;
  }

  void add(std::int64_t begin, std::int64_t end) {
    Tile tile(n_);
    std::vector<std::int64_t> needed(n_, -1);
    for (std::size_t k = n_; k-- > 0;) {
      const Range own = share(k, begin, end);
      const Range read = needed_by_readers(k, [&](std::size_t q) { return std::pair(tile[q].new_begin, tile[q].end); });
      needed[k] = read.from;
      const std::int64_t to = std::max(own.to, read.to);
      std::int64_t& done = computed_[k];
      Rows& rows = tile[k];
      rows.new_begin = skips_[k] ? std::max(read.from, done) : done;  // rows that its only reader leaves out are not computed
      rows.end = std::max(to, rows.new_begin);
      if (to <= done) rows.new_begin = rows.end = done;
      done = rows.end;
    }
    tiles_.push_back(std::move(tile));
    needed_.push_back(std::move(needed));
  }

  /// Scratch holds what this tile computes and what this tile or a later one reads.
  void hold() {
    std::vector<std::int64_t> from(n_, -1);
    for (std::size_t t = tiles_.size(); t-- > 0;) {
      for (std::size_t k = 0; k < n_; ++k) {
        if (needed_[t][k] >= 0) from[k] = from[k] < 0 ? needed_[t][k] : std::min(from[k], needed_[t][k]);
        Rows& rows = tiles_[t][k];
        rows.begin = from[k] < 0 ? rows.new_begin : std::min(from[k], rows.new_begin);
      }
    }
  }

  const Region& r_;
  const std::vector<Link>& links_;
  std::size_t n_;
  std::vector<bool> leaves_, skips_;
  std::vector<std::int64_t> computed_;  // the end of what earlier tiles have computed, by stage
  std::vector<Tile> tiles_;
  std::vector<std::vector<std::int64_t>> needed_;  // the first row that readers need, by tile and stage; -1: none
};

}  // namespace

Slab slab_of(const Vertical& v, std::int64_t begin, std::int64_t end) {
  const std::int64_t from = begin * v.stride - v.pad, to = (end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1;
  return {end - begin, last_input(v, begin, end) - first_input(v, begin), first_input(v, begin) - from,
          to - last_input(v, begin, end)};
}

std::array<Call, 3> Rows::calls() const {
  const std::int64_t a = std::clamp(own_begin, new_begin, end), b = std::clamp(own_end, a, end);
  return {Call{new_begin, a, false}, Call{a, b, true}, Call{b, end, false}};
}

Schedule schedule_of(const Region& r, const region::Parameters& parameters, int threads) {
  const std::vector<Link> links = links_of(r);
  const std::int64_t out = r.stages.back().space[2];
  const std::int64_t rows =
      std::clamp<std::int64_t>(tile_bytes(r, parameters) / bytes_between(r, links), 1, std::max<std::int64_t>(out, 1));
  const std::int64_t images = r.stages[0].space[0];
  // Of more threads than two, those that are done take tasks from others: twice as many, as far as two rows are left for each.
  const bool sharing = threads >= region::kSharingWorkers;
  const std::int64_t most = sharing ? (out + 1) / 2 : out;
  const std::int64_t count =
      threads <= 1 || images >= threads ? 1 : std::clamp<std::int64_t>(sharing ? 2 * threads : threads, 1, most);
  Schedule s;
  s.held_rows.assign(r.stages.size(), 0);
  s.alone_rows.assign(r.stages.size(), 0);
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t first = out * t / count, own = out * (t + 1) / count - first;
    s.tasks.push_back(Task(r, links).run(first, own, rows));
    for (const Tile& tile : s.tasks.back()) {
      for (const Link& l : links) s.held_rows[l.from] = std::max(s.held_rows[l.from], tile[l.from].end - tile[l.from].begin);
      for (std::size_t k = 0; k < tile.size(); ++k) {
        for (const Call& c : tile[k].calls()) {
          if (!c.owned) s.alone_rows[k] = std::max(s.alone_rows[k], c.end - c.begin);
        }
      }
    }
  }
  return s;
}

std::set<Slab> slabs_of(const Region& r, const Schedule& schedule, std::size_t stage) {
  std::set<Slab> out;
  const Vertical v = vertical(r.stages[stage]);
  for (const auto& task : schedule.tasks) {
    for (const Tile& tile : task) {
      for (const Call& c : tile[stage].calls()) {
        if (c.begin < c.end) out.insert(slab_of(v, c.begin, c.end));
      }
    }
  }
  return out;
}

}  // namespace octavo::cpu::staged
