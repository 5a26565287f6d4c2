// Placement: where every value that crosses a region boundary lives, in which type, with which strides.
//
// Reads pull: slice, transpose, reshape and expand are other strides on their source's memory. Writes push: a concat (and an output
// binding) tells its operands where to store, through transposes and reshapes. What fits neither way becomes a copy, with the
// reason.
//
// Placing concat-buffer:  concat(a, b...) ==> a buffer whose slices a, b... are stored by the regions that make them
//   Why    a concatenation is not computed, and no byte moves.
//   Exact  bit for bit: elements keep their bits.
//   Needs  operands that some region computes. A second concatenation of the same value is a second store of its region.
//   Order  when memory is planned. No switch: what does not fit becomes a copy.
//
// Placing copy:  what neither strides nor stores can express ==> a region "copy", listed by `octavo explain --copies`
//   Why    there is no other way. Each copy names its cause and the ONNX nodes that need it.
//   Exact  bit for bit: elements keep their bits.
//   Needs  one of the causes below.
//   Order  when memory is planned.
//   Says   settle, read_channel_last
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "plan/regions/epilogue.h"
#include "plan/regions/group.h"
#include "region/region.h"

namespace octavo::plan {

using Key = std::pair<ir::ValueId, Repr>;

/// A copy that placement could not avoid: `from` (where a key's value lies) into `to`, element by element in the same logical dims.
struct Copy {
  Key source;  ///< whose data it is (must be ready first)
  region::TensorRef from, to;
  Reason reason;
};

/// Where a value lies in one representation.
struct Allocation {
  std::vector<region::TensorRef>
      refs;                  ///< refs[0]: where readers look. Group results are stored to all; others are copied to the rest
  std::vector<Key> after;    ///< keys that must be ready before this one is (sources of aliases, concat operands)
  std::vector<Copy> copies;  ///< to run once `after` is ready
};

struct Placement {
  std::map<Key, Allocation> allocations;
  std::vector<region::Buffer> buffers;
  std::vector<region::Binding> inputs, outputs;
  std::vector<ir::OutputSize> sizes;
  std::map<std::uint64_t, region::BufferId> constants;  ///< by content hash
  std::set<ir::ValueId> in_rows;                        ///< stored in another order than what they are made from (row_order.h)

  region::BufferId add_arena(std::int64_t bytes, std::string name);
  region::BufferId add_constant(const ir::Tensor& t, std::string name);  ///< equal contents share one buffer
};

/// Which (value, representation) pairs cross a region boundary.
[[nodiscard]] std::map<Key, int> find_requests(const ir::Graph& g, const ir::Grids& grids, const Grouping& grouping);
/// In which representation an anchor reads its data input.
[[nodiscard]] Repr anchor_input(const ir::Graph& g, const ir::Grids& grids, ir::NodeId anchor, std::size_t slot);

/// Values in `direct` are stored where they are wanted even if channels do not lie side by side there; values in `as_made` in the order of what
/// they are made from, whatever products read (row_order.h).
[[nodiscard]] Result<Placement> place(const ir::Graph& g, const ir::Grids& grids, const Grouping& grouping,
                                      const std::set<ir::ValueId>& direct = {}, const std::set<ir::ValueId>& as_made = {});

}  // namespace octavo::plan
