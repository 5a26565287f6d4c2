// The text form of a graph; prints and parses back to an equal graph. Grammar in the .cc file and docs/ir.md.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::ir {

struct PrintOptions {
  bool full_constants = true;  ///< false: constants above 16 elements print as a digest (readable, does not parse back)
  bool origins = true;         ///< "from {conv1, bn1}" after each node
};
/// One line a node, in `order()`:
///   graph "name"
///   x = input : f32[1,3,8,8]
///   w = constant s8[8,3,3,3] q=s8[axis=0](0.1,...) hex:0011...     (or `seed:7` in tests: deterministic random payload)
///   y = conv x w b {group=1, pads=[1,1,1,1], strides=[1,1]} : f32[1,8,8,8]  from {"Conv_0"}
///   v = view y q=u8(0.02,128) : f32[1,8,8,8]
///   output v as "logits"
[[nodiscard]] std::string print(const Graph& g, const PrintOptions& options = {});
[[nodiscard]] Result<Graph> parse(std::string_view text);

}  // namespace octavo::ir
