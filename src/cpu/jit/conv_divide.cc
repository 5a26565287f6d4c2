// How a convolution's work is cut: channels into blocks, rows into row tiles, both into the tasks that threads share (docs/threads.md).
#include <algorithm>
#include <numeric>

#include "base/machine.h"
#include "cpu/cost_model.h"
#include "cpu/jit/conv_plan.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {
namespace {

constexpr std::int64_t kL2 = standard_machine().l2_bytes;

/// Blocks of up to `most` vectors of channels, behind the constants of the phases before.
void make_blocks(ConvSetting& p, Phase& ph, std::int64_t most, std::int64_t weights, std::int64_t inits) {
  const std::int64_t lanes = p.epilogue.lanes, vectors = ceil_div(p.oc, lanes), blocks = ceil_div(vectors, most);
  p.weight_bytes = weights;
  p.init_count = inits;
  ph.blocks.clear();
  for (std::int64_t g = 0; g < p.groups; ++g) {
    std::int64_t first = 0;
    for (std::int64_t b = 0; b < blocks; ++b) {
      Block k;
      k.group = g;
      k.vectors = static_cast<int>((vectors * (b + 1)) / blocks - (vectors * b) / blocks);
      k.first_channel = g * p.oc + first;
      k.channels = std::min<std::int64_t>(k.vectors * lanes, p.oc - first);
      k.tail = static_cast<int>(k.channels - (k.vectors - 1) * lanes);
      k.weights = p.weight_bytes;
      k.init = p.init_count;
      first += k.channels;
      p.weight_bytes += static_cast<std::int64_t>(ph.segments.size()) * ph.quads * k.vectors * lanes * 4;
      p.init_count += k.vectors * lanes;
      ph.blocks.push_back(k);
    }
  }
}

/// Vectors of a block. Floats of a long reduction take four times the bytes of codes: where those of four vectors leave no room in L2,
/// blocks of two pass half as many bytes for the same products, with twice the pixels a tile.
int most_vectors(const ConvSetting& p, const Phase& ph) {
  if (p.epilogue.lanes == 8) return std::min(3, p.options.vectors > 0 ? p.options.vectors : 2);  // of 16 registers
  if (p.options.vectors > 0) return p.options.vectors;
  return of_floats(p.dots) && !on_tiles(p.dots) && ph.all_quads() * 256 > kL2 / 2 ? 2 : 4;
}

/// The phase's rows in `row tiles` row tiles that differ by at most `unit` rows.
void split_row_tiles(Phase& ph, std::int64_t row_tiles, std::int64_t unit) {
  const std::int64_t units = ceil_div(ph.rows, unit);
  ph.row_tiles = std::min(row_tiles, units);
  ph.row_tile_unit = unit;
  ph.rows_per_tile = ceil_div(units, ph.row_tiles) * unit;
  ph.long_row_tiles = units % ph.row_tiles == 0 ? ph.row_tiles : units % ph.row_tiles;
}

/// What `threads` workers need when tasks are single blocks, in clocks: dots and epilogue, the weights they read, rows that another
/// worker's core has, or will read, if neighbours in the plan are split by rows. Two workers: the slower. More take tasks from
/// each other, so it is the mean, and a task that a core of a third of the others' speed has begun.
double slowest_worker(const ConvSetting& p, const Phase& ph, double clocks_per_vector, int threads) {
  const auto blocks = static_cast<std::int64_t>(ph.blocks.size()), tasks = p.images * ph.row_tiles * blocks;
  const double block_weights = static_cast<double>(ph.segments.size()) * static_cast<double>(ph.quads) * 256;
  const double in_bytes = static_cast<double>(ph.x.step * ph.y.step * p.bytes(p.shape.c));
  const bool sharing = threads >= region::kSharingWorkers;
  const double start = sharing ? 300 : 60;  // of a task: tiles are set up for each call
  // Of each row tile, for one worker: the part of its rows that belongs to others, and what it costs a task of one block.
  struct Rows {
    double pixels = 0, share = 0, foreign = 0;
  };
  std::vector<Rows> rows(static_cast<std::size_t>(ph.row_tiles));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].pixels = static_cast<double>(ph.pixels_of(static_cast<std::int64_t>(i)));
  const bool again = !sharing && block_weights * static_cast<double>(blocks) > static_cast<double>(kL2 / 2);
  const std::int64_t an_image = ph.row_tiles * blocks;
  double worst = 0, sum = 0, longest = 0;
  std::vector<char> read(static_cast<std::size_t>(blocks));
  for (std::int64_t w = 0; w < threads; ++w) {
    double clocks = 0, bytes = 0, foreign = 0;
    std::int64_t row_tile = -1;
    std::fill(read.begin(), read.end(), 0);
    for (std::int64_t i = 0; p.images == 1 && i < ph.row_tiles; ++i) {
      Rows& r = rows[static_cast<std::size_t>(i)];
      const std::int64_t first = std::max(ph.first_row(i), ph.rows * w / threads);
      const std::int64_t last = std::min(ph.first_row(i + 1), ph.rows * (w + 1) / threads);
      r.share = 1 - static_cast<double>(std::max<std::int64_t>(0, last - first)) / static_cast<double>(ph.rows_of(i));
      r.foreign = r.share * r.pixels * static_cast<double>(p.bytes(p.shape.o)) / static_cast<double>(blocks);
    }
    const std::int64_t from = tasks * w / threads, until = tasks * (w + 1) / threads;
    // Of the task's two numbers the inner one goes on with each task, the outer one with each round of it.
    const std::int64_t inner_count = ph.parts_first ? ph.row_tiles : blocks;
    std::int64_t inner = from % an_image % inner_count, outer = from % an_image / inner_count;
    const std::int64_t outer_count = an_image / std::max<std::int64_t>(1, inner_count);
    for (std::int64_t t = from; t < until; ++t) {
      const std::int64_t next = ph.parts_first ? inner : outer;
      const auto block = static_cast<std::size_t>(ph.parts_first ? outer : inner);
      if (++inner == inner_count) {
        inner = 0;
        if (++outer == outer_count) outer = 0;
      }
      const Rows& r = rows[static_cast<std::size_t>(next)];
      clocks += r.pixels * ph.blocks[block].vectors * clocks_per_vector + start;
      if (read[block] == 0 || again) bytes += block_weights;
      read[block] = 1;
      foreign += r.foreign;
      if (next == row_tile) continue;
      foreign += r.pixels * in_bytes * r.share;
      if (ph.copies) {  // narrow row tiles copy the rows between them twice
        bytes += sharing ? static_cast<double>(ph.y.extent(ph.rows_of(next)) * ph.strip_row_bytes()) : r.pixels * in_bytes;
      }
      row_tile = next;
    }
    const double all = clocks + bytes / kBytesAClock + foreign / kForeignBytesAClock;
    worst = std::max(worst, all);
    sum += all;
    if (until > from) longest = std::max(longest, all / static_cast<double>(until - from));
  }
  return sharing ? sum / threads + 2 * longest : worst;
}

}  // namespace

void divide(ConvSetting& p, Phase& ph, std::int64_t phases, int threads) {
  const bool tiles = on_tiles(p.dots), sharing = threads >= region::kSharingWorkers;
  std::int64_t align =
      1;  // row tile starts at which every divided operand starts a new element, so one pixel table serves all row tiles
  for (const auto& o : p.streams.operands) {
    if (o.div.size() != 4 || o.ref.strides[2] == 0) continue;
    align = std::lcm(align, o.div[2] / std::gcd(o.div[2], ph.y.stride));
  }
  if (tiles && !ph.flat && ph.row_pixels <= 16 && threads > 1) align = std::lcm(align, std::int64_t{2});  // two blocks a tile
  std::int64_t out_bytes = 0;
  for (const auto& s : p.streams.stores) out_bytes += static_cast<std::int64_t>(ir::size_of(s.dtype));
  const std::int64_t row_bytes = (ph.joined ? ph.strip_row_bytes() : 0) +
                                 ph.row_pixels * (ph.x.step * ph.y.step * p.factor_bytes(p.shape.c) + out_bytes * p.shape.o);
  const std::int64_t all_weights = static_cast<std::int64_t>(ph.segments.size()) * ph.quads * p.epilogue.vector_bytes() *
                                   ceil_div(p.oc, p.epilogue.lanes) * p.groups;
  // All weights pass once a row tile: heavy weights want few row tiles, light ones want row tiles that stay in L2 together with their outputs.
  const std::int64_t room = all_weights > kL2 / 4 ? kL2 / 4 * 3 : kL2 / 16 * 3;
  const std::int64_t rows = std::clamp<std::int64_t>(room / std::max<std::int64_t>(1, row_bytes), 1, ph.rows);
  const std::int64_t least = p.options.row_tiles > 0 ? std::min(p.options.row_tiles, ceil_div(ph.rows, align))
                                                     : ceil_div(ph.rows, ceil_div(rows, align) * align);
  // A line is cut anywhere for the threads, into more row tiles where tiles end.
  const std::int64_t tile = ph.flat && ph.row_pixels == 1 ? most_pixels(4, ph.all_quads(), p.epilogue, p.options.pixels) : align;
  const auto unit = [&](std::int64_t row_tiles) { return row_tiles <= 2 * threads ? align : tile; };
  const std::int64_t weights = p.weight_bytes, inits = p.init_count;
  const int widest = most_vectors(p, ph);
  make_blocks(p, ph, widest, weights, inits);
  split_row_tiles(ph, least, unit(least));
  // Threads are worth their start from about 2 us on: what the regions around share out lies in several caches.
  const double speed = tiles ? 8 : 1;
  const double work = std::max(p.shape.macs() * static_cast<double>(p.element) / speed / static_cast<double>(phases),
                               5.0 * static_cast<double>(all_weights)) +
                      static_cast<double>(p.images * ph.pixels * p.shape.o) * 20;
  if (threads <= 1 || work < 1e6) return;
  threads = std::min(threads, kMostThreads);
  const double clocks_per_vector =
      static_cast<double>(ph.all_quads()) / 1.7 / speed + 1.5 + 0.25 * static_cast<double>(p.epilogue.code.size());
  Phase best;
  double fewest = 1e300;
  const std::int64_t step = ceil_div(threads, 16);
  const std::int64_t most =
      p.options.row_tiles > 0 ? least : std::min(ceil_div(ph.rows, unit(least)), least + (sharing ? 4 : 2) * threads);
  for (const int vectors : {widest, 2}) {  // tiles take two at a time: blocks of two cost them nothing
    if (vectors != widest && !(tiles && sharing)) continue;
    make_blocks(p, ph, vectors, weights, inits);
    ph.parts = static_cast<int>(ph.blocks.size());
    // `least` counts tiles of any height, `most` tiles of whole units: of long rows there may be fewer units than tiles asked for.
    for (std::int64_t row_tiles = std::min(least, most); row_tiles <= most; row_tiles = (row_tiles / step + 1) * step) {
      for (const bool parts_first : {false, true}) {
        if (p.options.blocks_first >= 0 && parts_first != (p.options.blocks_first == 1)) continue;
        split_row_tiles(ph, row_tiles, unit(row_tiles));
        ph.parts_first = parts_first;
        const double clocks = slowest_worker(p, ph, clocks_per_vector, threads);
        if (clocks >= fewest) continue;
        fewest = clocks;
        best = ph;
      }
    }
  }
  ph = std::move(best);
}

}  // namespace octavo::cpu::jit
