#include "cpu/stages/staged_kernel.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

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
  std::optional<Place> input;
  std::vector<Place> operands, stores;
  std::optional<TensorRef> weights;
};

/// One run of a stage's kernel, in the order in which a task makes them. Between two runs of a region other regions' data have passed
/// through the caches, so what is read here lies side by side.
struct Step {
  const region::HostKernel* kernel = nullptr;
  const std::byte* ahead = nullptr;  ///< the constants that the next step reads first; null where nobody says
  std::size_t stage = 0;
  int tasks = 0;
  bool owned = true, again = false, last = false;         ///< again: the task has run this kernel before; last: of the task
  std::size_t move = 0, moves_end = 0;                    ///< rows that are carried over before
  std::int64_t begin = 0, input = 0;                      ///< the first row of the result, and of the anchor's input
  std::array<std::int64_t, kMostStages> first_rows = {};  ///< that scratch holds, by stage
};
/// Rows that are read again move to the beginning of where scratch holds them.
struct Move {
  std::size_t to = 0, from = 0, bytes = 0;
};

class StagedKernel final : public Kernel {
 public:
  StagedKernel(const Region& r, const Schedule& schedule, std::vector<Kernels> kernels)
      : kernels_(std::move(kernels)), images_(r.stages.back().space[0]) {
    std::map<std::pair<std::size_t, std::size_t>, Place> between;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      for (const auto& [slab, kernel] : kernels_[k]) inner_scratch_ = std::max(inner_scratch_, kernel->scratch_bytes());
      const Stage& s = r.stages[k];
      StagePlaces& p = stages_.emplace_back();
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
          if (const std::int64_t rows = schedule.alone_rows[k]; rows > 0)
            place.at = take((rows - 1) * place.row_bytes + bytes_of_row(s.stores[j]));
        } else {
          place.ref = between_of(r, {k, j});
          place.scratch = StoreId{k, j};
          place.row_bytes = place.ref.strides[2] * static_cast<std::int64_t>(ir::size_of(place.ref.dtype));
          place.at = take(schedule.held_rows[k] * place.row_bytes);
          between[{k, j}] = place;
        }
        p.stores.push_back(std::move(place));
      }
    }
    for (const auto& task : schedule.tasks) list_steps(r, task);
  }

  int tasks() const override { return static_cast<int>(images_ * static_cast<std::int64_t>(tasks_.size())); }
  std::size_t scratch_bytes() const override { return own_scratch_ + inner_scratch_; }
  const std::byte* first_read(int task) const override { return steps_[tasks_[of_image(task)].first].kernel->first_read(0); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    Memory own;  // of a piece
    for (int t = task_begin; t < task_end; ++t) {
      const std::int64_t image = t / static_cast<std::int64_t>(tasks_.size());
      const auto [first, end] = tasks_[of_image(t)];
      for (std::size_t i = first; i < end; ++i) {
        const Step& step = steps_[i];
        for (std::size_t m = step.move; m < step.moves_end; ++m)
          std::memmove(worker.scratch + moves_[m].to, worker.scratch + moves_[m].from, moves_[m].bytes);
        find_places(memory, worker, image, step, own);
        std::int64_t kept = region::kRanBefore;
        const std::byte* ahead = !step.last ? step.ahead : t + 1 < task_end ? first_read(t + 1) : worker.ahead;
        step.kernel->run(own, 0, step.tasks,
                         Worker{worker.index, worker.count, worker.scratch + own_scratch_, ahead, step.again ? &kept : nullptr});
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

  /// The steps of one task of an image.
  void list_steps(const Region& r, const std::vector<Tile>& tiles) {
    const std::size_t first = steps_.size();
    unmoved_ = moves_.size();
    std::set<const region::HostKernel*> ran;
    for (std::size_t b = 0; b < tiles.size(); ++b) {
      for (std::size_t k = 0; k < stages_.size(); ++k) {
        if (b > 0) list_moves(k, tiles[b - 1][k], tiles[b][k]);
        const Vertical v = vertical(r.stages[k]);
        for (const Call& call : tiles[b][k].calls()) {
          if (call.begin >= call.end) continue;
          Step& step = steps_.emplace_back();
          step.kernel = kernels_[k].at(slab_of(v, call.begin, call.end)).get();
          step.stage = k;
          step.tasks = step.kernel->tasks();
          step.begin = call.begin;
          step.input = first_input(v, call.begin);
          step.move = unmoved_;
          step.moves_end = unmoved_ = moves_.size();
          step.owned = call.owned;
          step.again = !ran.insert(step.kernel).second;
          for (std::size_t i = 0; i < stages_.size(); ++i) step.first_rows[i] = tiles[b][i].begin;
        }
      }
    }
    for (std::size_t i = first; i + 1 < steps_.size(); ++i) steps_[i].ahead = steps_[i + 1].kernel->first_read(0);
    steps_.back().last = true;
    tasks_.emplace_back(first, steps_.size());
  }

  void list_moves(std::size_t k, const Rows& before, const Rows& now) {
    if (now.begin == before.begin || before.end <= now.begin) return;
    for (const Place& p : stages_[k].stores) {
      if (!p.scratch) continue;
      moves_.push_back({p.at, p.at + static_cast<std::size_t>((now.begin - before.begin) * p.row_bytes),
                        static_cast<std::size_t>((before.end - now.begin) * p.row_bytes)});
    }
  }

  /// The addresses of a step's tensors, in piece_of's order.
  void find_places(const Memory& memory, const Worker& worker, std::int64_t image, const Step& step, Memory& own) const {
    const StagePlaces& s = stages_[step.stage];
    own.base.clear();
    const auto add = [&](const Place& p, std::int64_t row) {
      own.base.push_back(p.scratch ? worker.scratch + p.at + (row - step.first_rows[p.scratch->stage]) * p.row_bytes
                                   : memory.at(p.ref) + image * p.image_bytes + row * p.row_bytes);
    };
    if (s.input) add(*s.input, step.input);
    for (const Place& p : s.operands) add(p, step.begin);
    for (const Place& p : s.stores) {
      if (p.scratch || step.owned) {
        add(p, step.begin);
      } else {
        own.base.push_back(worker.scratch + p.at);
      }
    }
    if (s.weights) own.base.push_back(memory.base[static_cast<std::size_t>(s.weights->buffer)]);
  }

  [[nodiscard]] std::size_t of_image(int task) const { return static_cast<std::size_t>(task) % tasks_.size(); }

  std::vector<Kernels> kernels_;
  std::vector<StagePlaces> stages_;
  std::vector<Step> steps_;
  std::vector<Move> moves_;
  std::vector<std::pair<std::size_t, std::size_t>> tasks_;  ///< of one image: their steps
  std::size_t unmoved_ = 0;                                 ///< the first move that no step makes yet
  std::int64_t images_;
  std::size_t own_scratch_ = 0, inner_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> staged_kernel(const Region& r, const Schedule& schedule, std::vector<Kernels> kernels) {
  return std::make_unique<StagedKernel>(r, schedule, std::move(kernels));
}

}  // namespace octavo::cpu::staged
