// cpu.staged.row_tiles(<tactic>,<tactic>,...): 2 to 8 stages, each of which reads results of earlier ones (conv + pooling, 1x1 +
// depthwise + 1x1, a bottleneck with the convolution of its residual branch, ...), row tile by row tile, the rows between them in the
// worker's scratch instead of memory. A stage reads others by its anchor's window, or row by row as operands of its epilogue; results
// may leave from any stage.
// The stages are ordinary kernels of any provider, made for regions that are some rows high; every tensor of such a region is a
// buffer of its own, so that a row tile is reached by moving base addresses. Rows that a later row tile needs again are carried over;
// only the first row tile of a task computes its halo anew.
#include <algorithm>
#include <map>
#include <optional>

#include "cpu/family.h"
#include "cpu/provider.h"
#include "cpu/stages/piece.h"
#include "cpu/stages/schedule.h"
#include "cpu/stages/staged_kernel.h"

namespace octavo::cpu {
namespace {

using staged::Piece;
using staged::Schedule;
using staged::schedule_of;
using staged::Slab;

struct Choice {
  Tactic tactic;
  double seconds = 0;  // for all row tiles of an image
};

/// How often the stage's kernel runs for an image.
std::size_t calls_of(const Schedule& schedule, std::size_t stage) {
  std::size_t n = 0;
  for (const auto& task : schedule.tasks) {
    for (const staged::Tile& tile : task) {
      for (const staged::Call& c : tile[stage].calls()) n += c.begin < c.end ? 1 : 0;
    }
  }
  return n;
}

// The first provider's cheapest tactic that takes every height.
std::optional<Choice> choose(const Region& r, const Plan& plan, const Schedule& schedule, std::size_t stage) {
  std::vector<Piece> pieces;
  for (const Slab& slab : slabs_of(r, schedule, stage)) pieces.push_back(piece_of(r, plan, stage, slab));
  struct Taken {
    std::size_t pieces = 0;
    Choice choice;
  };
  for (const region::Provider* p : providers()) {
    std::map<std::string, Taken> taken;
    for (const Piece& piece : pieces) {
      for (Offer& o : p->offers(piece.region, piece.plan)) {
        if (!o.refusal.empty()) continue;
        Taken& t = taken[o.tactic.name()];
        ++t.pieces;
        t.choice.seconds += o.cost;
        t.choice.tactic = std::move(o.tactic);
      }
    }
    std::optional<Choice> best;
    for (auto& [name, t] : taken) {
      if (t.pieces == pieces.size() && (!best || t.choice.seconds < best->seconds)) best = std::move(t.choice);
    }
    if (best) {
      best->seconds *=
          static_cast<double>(calls_of(schedule, stage)) / static_cast<double>(std::max<std::size_t>(pieces.size(), 1));
      return best;
    }
  }
  return std::nullopt;
}

class StagedFamily final : public Family {
 public:
  std::string_view name() const override { return "staged.row_tiles"; }
  bool per_isa() const override { return false; }
  int version() const override { return 2; }
  bool about(const Region& r) const override {
    if (r.independent || r.stages.size() < 2) return false;
    return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
      const region::Anchor& a = s.anchor;
      const bool window = (a.op == ir::Op::conv && a.weights) || a.op == ir::Op::max_pool || a.op == ir::Op::avg_pool;
      return !s.stores.empty() && (a.none() || (window && !a.inputs.empty()));
    });
  }
  bool forwards_stages() const override { return true; }
  Reasons why_not(const Region& r, const Plan&) const override { return staged::why_no_row_tiles(r); }
  double cost(const Region& r, const Plan& plan, Isa) const override { return compose(r, plan).cost; }

  Composed compose(const Region& r, const Plan& plan) const override {
    const Schedule schedule = schedule_of(r, plan.threads);
    Composed out;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      auto c = choose(r, plan, schedule, k);
      if (!c) return {{}, 0, unmet(fmt::format("tactics for row tiles of stage {}", k), 0, "1")};
      out.parts.push_back(std::move(c->tactic));
      out.cost += c->seconds * static_cast<double>(r.stages.back().space[0]);
    }
    return out;
  }

  /// Row tiles of other sizes, where they are not the same rows.
  std::vector<std::map<std::string, std::string>> parameter_sets(const Region& r, const Plan& plan, Isa) const override {
    std::vector<std::map<std::string, std::string>> out;
    std::set<std::size_t> seen{tiles_in(r, plan)};
    for (const char* kib : {"64", "512"}) {
      Region other = r;
      other.tactic.parameters = {{staged::kTile, kib}};
      if (seen.insert(tiles_in(other, plan)).second) out.push_back(other.tactic.parameters);
    }
    return out;
  }
  bool takes_parameter(std::string_view name) const override { return name == staged::kTile; }

  // packed[0]: s32 pairs (first, count) of the tensors behind it, for each height of each stage in order; equal tensors of a stage
  // are stored once.
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    const Schedule schedule = schedule_of(r, plan.threads);
    std::vector<std::int32_t> table;
    std::vector<ir::Tensor> out{ir::Tensor()};
    for (std::size_t k = 0; k < made_by.size(); ++k) {
      std::vector<std::vector<ir::Tensor>> seen;
      std::vector<std::int32_t> first;
      for (const Slab& slab : slabs_of(r, schedule, k)) {
        const Piece piece = piece_of(r, plan, k, slab);
        OCTAVO_TRY(auto made, made_by[k]->compile(piece.region, piece.plan, r.tactic.parts[k]));
        std::vector<ir::Tensor>& packed = made.constants;
        const auto same = [&](const std::vector<ir::Tensor>& other) {
          return std::equal(packed.begin(), packed.end(), other.begin(), other.end(), ir::same_bytes);
        };
        const auto found = std::find_if(seen.begin(), seen.end(), same);
        if (found == seen.end()) {
          first.push_back(static_cast<std::int32_t>(out.size()));
          out.insert(out.end(), packed.begin(), packed.end());
          seen.push_back(std::move(packed));
          table.push_back(first.back());
          table.push_back(static_cast<std::int32_t>(seen.back().size()));
        } else {
          table.push_back(first[static_cast<std::size_t>(found - seen.begin())]);
          table.push_back(static_cast<std::int32_t>(found->size()));
        }
      }
    }
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table);
    return out;
  }

  Result<std::vector<std::int64_t>> packed_bytes(const Region& r, const Plan& plan, Isa) const override {
    const Schedule schedule = schedule_of(r, plan.threads);
    std::int64_t heights = 0;
    for (std::size_t k = 0; k < r.stages.size(); ++k) heights += static_cast<std::int64_t>(slabs_of(r, schedule, k).size());
    return std::vector<std::int64_t>{heights * 8};
  }
  bool packs_parts() const override { return true; }

  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan& plan, Isa, Packed packed) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    const Schedule schedule = schedule_of(r, plan.threads);
    std::vector<staged::Kernels> kernels(r.stages.size());
    const auto* table = reinterpret_cast<const std::int32_t*>(packed[0]);
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      for (const Slab& slab : slabs_of(r, schedule, k)) {
        Piece piece = piece_of(r, plan, k, slab);
        piece.region.tactic = r.tactic.parts[k];
        const auto first = static_cast<std::size_t>(table[0]), count = static_cast<std::size_t>(table[1]);
        table += 2;
        if (first > packed.size() || count > packed.size() - first)
          return fail(ErrorKind::bad_engine, fmt::format("stage {}: packed constants {}.. ({} of them), the region has {}", k,
                                                         table[-2], table[-1], packed.size()));
        for (std::size_t i = first; i < first + count; ++i) {
          piece.region.packed.push_back(static_cast<region::BufferId>(piece.plan.buffers.size()));
          piece.plan.buffers.push_back(plan.buffers[static_cast<std::size_t>(r.packed[i])]);
        }
        OCTAVO_TRY(auto kernel,
                   region::as_host_kernel(made_by[k]->load(piece.region, piece.plan, {packed.subspan(first, count), {}, {}})));
        kernels[k].emplace(slab, std::move(kernel));
      }
    }
    return staged::staged_kernel(r, schedule, std::move(kernels));
  }

 private:
  static std::size_t tiles_in(const Region& r, const Plan& plan) {
    std::size_t n = 0;
    for (const auto& task : schedule_of(r, plan.threads).tasks) n += task.size();
    return n;
  }
};

}  // namespace

const Family& staged_family() {
  static const StagedFamily family;
  return family;
}

}  // namespace octavo::cpu
