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
#include <set>

#include "cpu/stages/parts.h"
#include "cpu/stages/piece.h"
#include "cpu/stages/schedule.h"
#include "cpu/stages/staged_kernel.h"
#include "cpu/table.h"

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

using Pieces = std::map<Slab, Piece>;  ///< of one stage

// The cheapest tactic of the least rank that takes every height.
std::optional<Choice> choose(const Pieces& pieces, std::size_t calls) {
  struct Taken {
    std::size_t pieces = 0;
    Choice choice;
  };
  for (const int rank : kRanks) {
    std::map<std::string, Taken> taken;
    for (const auto& [slab, piece] : pieces) {
      for (Offer& o : offers_of_rank(piece.region, piece.plan, rank)) {
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
      best->seconds *= static_cast<double>(calls) / static_cast<double>(std::max<std::size_t>(pieces.size(), 1));
      return best;
    }
  }
  return std::nullopt;
}

/// The parts are matched piece by piece, and the kernel that joins them reads the whole: both are kept.
struct StagedSetting {
  Region whole = {};
  int threads = 1;
  Schedule schedule = {};
  std::vector<Pieces> pieces = {};  ///< by stage
  std::vector<Tactic> parts = {};
  double seconds = 0;
};

std::size_t tiles_of(const Schedule& schedule) {
  std::size_t n = 0;
  for (const auto& task : schedule.tasks) n += task.size();
  return n;
}

class StagedFamily final : public FamilyOf<StagedSetting> {
 public:
  StagedFamily()
      : FamilyOf({.name = "staged.row_tiles",
                  .version = 2,
                  .levels = kAnyIsa,
                  .parameters = kParameters,
                  .forwards_stages = true,
                  .composed = true}) {}
  bool about(const Region& r) const override {
    if (r.independent || r.stages.size() < 2) return false;
    return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
      const region::Anchor& a = s.anchor;
      const bool window = (a.op == ir::Op::conv && a.weights) || a.op == ir::Op::max_pool || a.op == ir::Op::avg_pool;
      return !s.stores.empty() && (a.none() || (window && !a.inputs.empty()));
    });
  }

  Match<StagedSetting> match(const Request& q) const override {
    const Region& r = q.region;
    if (Reasons why = staged::why_no_row_tiles(r); !why.empty()) return refuse(std::move(why));
    StagedSetting t{r, q.plan.threads, schedule_of(r, q.parameters, q.plan.threads), {}, {q.parts.begin(), q.parts.end()}};
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      Pieces& pieces = t.pieces.emplace_back();
      for (const Slab& slab : slabs_of(r, t.schedule, k)) pieces.emplace(slab, piece_of(r, q.plan, k, slab));
      if (!q.parts.empty()) continue;
      auto c = choose(pieces, calls_of(t.schedule, k));
      if (!c) return refuse(fmt::format("tactics for row tiles of stage {}", k), 0, "1");
      t.parts.push_back(std::move(c->tactic));
      t.seconds += c->seconds * static_cast<double>(r.stages.back().space[0]);
    }
    OCTAVO_CHECK(check_parts(t.parts, r.stages.size()));
    return t;
  }
  double cost(const StagedSetting& t, Isa) const override { return t.seconds; }
  std::vector<Tactic> parts(const StagedSetting& t) const override { return t.parts; }

  /// Row tiles of other sizes, where they are not the same rows.
  std::vector<Parameters> variants(const StagedSetting& t) const override {
    std::vector<Parameters> out;
    std::set<std::size_t> seen{tiles_of(t.schedule)};
    for (const char* kib : {"64", "512"}) {
      Parameters set{{std::string(staged::kTile.name), kib}};
      if (seen.insert(tiles_of(schedule_of(t.whole, set, t.threads))).second) out.push_back(std::move(set));
    }
    return out;
  }

  // packed[0]: s32 pairs (first, count) of the tensors behind it, for each height of each stage in order; equal tensors of a stage
  // are stored once.
  std::vector<std::int64_t> packed_bytes(const StagedSetting& t) const override {
    std::int64_t heights = 0;
    for (const Pieces& pieces : t.pieces) heights += static_cast<std::int64_t>(pieces.size());
    return {heights * 8};
  }
  Result<std::vector<ir::Tensor>> pack(const StagedSetting& t) const override {
    std::vector<std::int32_t> table;
    std::vector<ir::Tensor> out{ir::Tensor()};
    for (std::size_t k = 0; k < t.pieces.size(); ++k) {
      std::vector<std::pair<std::int32_t, std::vector<ir::Tensor>>> seen;  // with where they begin
      for (const auto& [slab, piece] : t.pieces[k]) {
        OCTAVO_TRY(std::vector<ir::Tensor> packed, pack_part(piece.region, piece.plan, t.parts[k]));
        auto found = std::find_if(seen.begin(), seen.end(), [&](const auto& other) {
          return std::equal(packed.begin(), packed.end(), other.second.begin(), other.second.end(), ir::same_bytes);
        });
        if (found == seen.end()) {
          const auto first = static_cast<std::int32_t>(out.size());
          out.insert(out.end(), packed.begin(), packed.end());
          found = seen.insert(seen.end(), {first, std::move(packed)});
        }
        table.push_back(found->first);
        table.push_back(static_cast<std::int32_t>(found->second.size()));
      }
    }
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table);
    return out;
  }

  std::optional<std::string> layout(const StagedSetting& t) const override {
    std::string out;
    for (std::size_t k = 0; k < t.pieces.size(); ++k) {
      for (const auto& [slab, piece] : t.pieces[k]) {
        const auto part = layout_of_part(piece.region, piece.plan, t.parts[k]);
        if (!part) return std::nullopt;
        out += *part + " ; ";
      }
    }
    return out;
  }

  Result<std::unique_ptr<Kernel>> load(StagedSetting t, Packed packed) const override {
    std::vector<staged::Kernels> kernels(t.pieces.size());
    const auto* table = reinterpret_cast<const std::int32_t*>(packed[0].data());
    for (std::size_t k = 0; k < t.pieces.size(); ++k) {
      for (const auto& [slab, piece] : t.pieces[k]) {
        const auto first = static_cast<std::size_t>(table[0]), count = static_cast<std::size_t>(table[1]);
        table += 2;
        if (first > packed.size() || count > packed.size() - first)
          return fail(ErrorKind::bad_engine, fmt::format("stage {}: packed constants {}.. ({} of them), the region has {}", k,
                                                         table[-2], table[-1], packed.size()));
        OCTAVO_TRY(auto kernel, load_part(piece.region, piece.plan, t.parts[k], packed.subspan(first, count)));
        kernels[k].emplace(slab, std::move(kernel));
      }
    }
    return staged::staged_kernel(t.whole, t.schedule, std::move(kernels));
  }

 private:
  static constexpr std::array kParameters{staged::kTile};
};

}  // namespace

OCTAVO_DEFINE_FAMILY(staged, StagedFamily)

}  // namespace octavo::cpu
