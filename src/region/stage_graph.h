// The stages of a region as a directed graph: which stage reads what which earlier stage stores, and which rows of it.
//
// Stages are listed in an order in which they can run one after the other. A stage reads tensors from outside the region and results
// of earlier stages: it reads a result where it names the same elements of the same buffer. So the tensors say what the graph is, and
// nothing beside them could contradict them; engine files state the edges as well ("reads" of a stage) and are refused where the two
// differ. A result that no later stage reads leaves the region. A result that a later stage reads and that is wanted elsewhere is
// stored twice: into a buffer that this region alone names, and into the one that leaves.
// Independent stages (Region::independent) have no edges; all of their results leave.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// Of one region, in engine files.
inline constexpr std::size_t kMostStages = 64;

/// A store of a stage, by indices.
struct StoreId {
  std::size_t stage = 0, store = 0;
  bool operator==(const StoreId&) const = default;
};

/// The rows (dimension 2) of what is read that row r of the reader's result needs: from r * step - before on, `rows` of them, as far
/// as they exist; the others are padding. All zero: any row may need every row.
struct Halo {
  std::int64_t step = 0, before = 0, rows = 0;
  [[nodiscard]] bool every_row() const { return rows == 0; }
  bool operator==(const Halo&) const = default;
};

/// Stage `reader` reads a result of an earlier stage. `input` counts the reader's anchor inputs and then its operands.
struct StageEdge {
  StoreId from;
  std::size_t reader = 0, input = 0;
  Halo halo;
  bool operator==(const StageEdge&) const = default;
};

/// Tensor `input` of a stage, counted as StageEdge::input counts; `input` must be less than `input_count`.
[[nodiscard]] const TensorRef& input_of(const Stage& s, std::size_t input);
[[nodiscard]] std::size_t input_count(const Stage& s);

/// Which earlier stage's result is this tensor that stage `s` reads? Nothing: it comes from outside the region.
[[nodiscard]] std::optional<StoreId> forwarded_from(const Region& r, std::size_t s, const TensorRef& t);
[[nodiscard]] inline bool forwarded(const Region& r, std::size_t s, const TensorRef& t) {
  return forwarded_from(r, s, t).has_value();
}

/// By reader, then by input.
[[nodiscard]] std::vector<StageEdge> edges_of(const Region& r);

/// Does the epilogue of stage `s` read a result of an earlier stage?
[[nodiscard]] bool read_by_epilogue(const Region& r, std::size_t s);

/// Does no later stage read this store? Then it is a result of the region.
[[nodiscard]] bool leaves(const Region& r, StoreId id);
/// All that leave, in the order of stages and stores: parallel to Region::graph_outputs.
[[nodiscard]] std::vector<const TensorRef*> results_of(const Region& r);
/// What comes from outside, in the order of stages, anchor inputs before operands: parallel to Region::graph_inputs.
[[nodiscard]] std::vector<const TensorRef*> reads_of(const Region& r);

/// The buffers that no kernel of the region reads or writes, because its tactic keeps what stages forward in a worker's scratch: they
/// need no place in the arena.
[[nodiscard]] std::set<BufferId> kept_from_memory(const Region& r);

/// Is it a graph that runs in the order of its stages? Errors: `internal`, naming the stages: one reads what it stores itself or what
/// a later stage stores; one reads a part of what another stores, or reads it in another type; two store the same elements; a result
/// is forwarded and part of a buffer that something else of the region names. Buffers must exist.
[[nodiscard]] Status check_stages(const Region& r);

}  // namespace octavo::region
