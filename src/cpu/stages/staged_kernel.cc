#include "cpu/stages/staged_kernel.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "cpu/stages/piece.h"

namespace octavo::cpu::staged {
namespace {

using region::StoreId;
using region::TensorRef;

/// Where the rows of one tensor are that a stage reads or stores.
struct Place {
  std::optional<StoreId> scratch;  ///< the rows that scratch holds of this store; nothing: in memory
  std::size_t at = 0;              ///< in scratch: of the rows, or of the bytes where rows go that other tasks store
  std::int64_t row_bytes = 0;      ///< between two rows, wherever they are; 0: one row for all
  std::int64_t image_bytes = 0;    ///< in memory, between two images
  TensorRef ref;
};
/// A stage's tensors in the order of piece_of.
struct StagePlaces {
  Vertical v;
  std::optional<Place> input;
  std::vector<Place> operands, stores;
  std::optional<TensorRef> weights;
};

class StagedKernel final : public Kernel {
 public:
  StagedKernel(const Region& r, Schedule schedule, std::vector<Kernels> kernels)
      : schedule_(std::move(schedule)), kernels_(std::move(kernels)), images_(r.stages.back().space[0]) {
    std::map<std::pair<std::size_t, std::size_t>, Place> between;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      for (const auto& [slab, kernel] : kernels_[k]) inner_scratch_ = std::max(inner_scratch_, kernel->scratch_bytes());
      const Stage& s = r.stages[k];
      StagePlaces& p = stages_.emplace_back();
      p.v = vertical(s);
      p.weights = s.anchor.weights;
      const auto read = [&](const TensorRef& t) {
        const auto from = region::forwarded_from(r, k, t);
        return from ? between.at({from->stage, from->store}) : in_memory(t, s);
      };
      if (!s.anchor.none()) p.input = read(s.anchor.inputs[0]);
      for (const auto& o : s.operands) p.operands.push_back(read(o.ref));
      for (std::size_t j = 0; j < s.stores.size(); ++j) {
        Place place;
        if (region::leaves(r, {k, j})) {
          place = in_memory(s.stores[j], s);
          if (const std::int64_t rows = schedule_.alone_rows[k]; rows > 0)
            place.at = take((rows - 1) * place.row_bytes + bytes_of_row(s.stores[j]));
        } else {
          place.ref = between_of(r, {k, j});
          place.scratch = StoreId{k, j};
          place.row_bytes = place.ref.strides[2] * static_cast<std::int64_t>(ir::size_of(place.ref.dtype));
          place.at = take(schedule_.held_rows[k] * place.row_bytes);
          between[{k, j}] = place;
        }
        p.stores.push_back(std::move(place));
      }
    }
  }

  int tasks() const override { return static_cast<int>(images_ * static_cast<std::int64_t>(schedule_.tasks.size())); }
  std::size_t scratch_bytes() const override { return own_scratch_ + inner_scratch_; }
  const std::byte* first_read(int task) const override { return first_of(tiles_of(task), 0, 0); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    for (int t = task_begin; t < task_end; ++t) {
      const std::int64_t image = t / static_cast<std::int64_t>(schedule_.tasks.size());
      const std::vector<Tile>& tiles = tiles_of(t);
      for (std::size_t b = 0; b < tiles.size(); ++b) {
        for (std::size_t k = 0; k < stages_.size(); ++k) {
          if (b > 0) carry_over(worker, k, tiles[b - 1][k], tiles[b][k]);
          const bool last = k + 1 == stages_.size(), end = last && b + 1 == tiles.size();
          const std::byte* ahead = !end               ? first_of(tiles, last ? b + 1 : b, last ? 0 : k + 1)
                                   : t + 1 < task_end ? first_read(t + 1)
                                                      : worker.ahead;
          for (const Call& call : tiles[b][k].calls()) {
            if (call.begin < call.end)
              run_stage(memory, {worker.index, worker.count, worker.scratch, ahead}, k, image, tiles[b], call);
          }
        }
      }
    }
  }

 private:
  static Place in_memory(const TensorRef& t, const Stage& s) {
    Place p;
    p.ref = t;
    const auto size = static_cast<std::int64_t>(ir::size_of(t.dtype));
    p.row_bytes = t.dims[2] == 1 ? 0 : t.strides[2] * size;
    p.image_bytes = s.space[0] == 1 || t.dims[0] == 1 ? 0 : t.strides[0] * size;
    return p;
  }

  /// From the first to the last byte of a row.
  static std::int64_t bytes_of_row(const TensorRef& t) {
    return ((t.dims[1] - 1) * std::abs(t.strides[1]) + (t.dims[3] - 1) * std::abs(t.strides[3]) + 1) *
           static_cast<std::int64_t>(ir::size_of(t.dtype));
  }

  /// Room for some bytes in scratch; where it begins.
  std::size_t take(std::int64_t bytes) {
    const std::size_t at = own_scratch_ + kSlack;
    own_scratch_ += (static_cast<std::size_t>(bytes) + 2 * kSlack + 63) / 64 * 64;
    return at;
  }

  /// The rows that are read again move to the beginning of where scratch holds them.
  void carry_over(const Worker& worker, std::size_t k, const Rows& before, const Rows& now) const {
    if (now.begin == before.begin || before.end <= now.begin) return;
    for (const Place& p : stages_[k].stores) {
      if (!p.scratch) continue;
      std::byte* at = worker.scratch + p.at;
      std::memmove(at, at + (now.begin - before.begin) * p.row_bytes,
                   static_cast<std::size_t>((before.end - now.begin) * p.row_bytes));
    }
  }

  void run_stage(const Memory& memory, const Worker& worker, std::size_t k, std::int64_t image, const Tile& tile,
                 const Call& call) const {
    const StagePlaces& s = stages_[k];
    Memory own;  // in piece_of's order
    const auto add = [&](const Place& p, std::int64_t row) {
      own.base.push_back(p.scratch ? worker.scratch + p.at + (row - tile[p.scratch->stage].begin) * p.row_bytes
                                   : memory.at(p.ref) + image * p.image_bytes + row * p.row_bytes);
    };
    if (s.input) add(*s.input, first_input(s.v, call.begin));
    for (const Place& p : s.operands) add(p, call.begin);
    for (const Place& p : s.stores) {
      if (p.scratch || call.owned) {
        add(p, call.begin);
      } else {
        own.base.push_back(worker.scratch + p.at);
      }
    }
    if (s.weights) own.base.push_back(memory.base[static_cast<std::size_t>(s.weights->buffer)]);
    const region::HostKernel& kernel = *kernels_[k].at(slab_of(s.v, call.begin, call.end));
    kernel.run(own, 0, kernel.tasks(), Worker{worker.index, worker.count, worker.scratch + own_scratch_, worker.ahead});
  }

  [[nodiscard]] const std::vector<Tile>& tiles_of(int task) const {
    return schedule_.tasks[static_cast<std::size_t>(task) % schedule_.tasks.size()];
  }
  /// The constants that are read first from stage k of tile b on; null where nobody says.
  [[nodiscard]] const std::byte* first_of(const std::vector<Tile>& tiles, std::size_t b, std::size_t k) const {
    for (; k < stages_.size(); ++k) {
      for (const Call& c : tiles[b][k].calls()) {
        if (c.begin < c.end) return kernels_[k].at(slab_of(stages_[k].v, c.begin, c.end))->first_read(0);
      }
    }
    return nullptr;
  }

  Schedule schedule_;
  std::vector<Kernels> kernels_;
  std::vector<StagePlaces> stages_;
  std::int64_t images_;
  std::size_t own_scratch_ = 0, inner_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> staged_kernel(const Region& r, Schedule schedule, std::vector<Kernels> kernels) {
  return std::make_unique<StagedKernel>(r, std::move(schedule), std::move(kernels));
}

}  // namespace octavo::cpu::staged
