// The facts of an anchor that a test builds by hand, from attributes as an ONNX reader would write them.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "ir/facts.h"

namespace octavo::testing {

/// ir::facts_of. `rank` of the first operand; 0: what the attributes' lists say, or 8. Throws where the attributes are wrong: the test is.
[[nodiscard]] inline ir::Facts facts(ir::Op op, const ir::Attrs& attrs, std::size_t rank = 0) {
  const auto entries = [&](const char* key) { return ir::get_ints(attrs, key).size(); };
  if (rank == 0 && ir::has_trait(op, ir::kMove) && op != ir::Op::max_pool)
    rank = std::max({entries("starts"), entries("pads") / 2, entries("repeats"), entries("perm")});
  if (rank == 0) {
    const std::size_t spatial = std::max({entries("strides"), entries("pads") / 2, entries("kernel")});
    rank = spatial > 0 ? spatial + 2 : 0;
  }
  auto made = ir::facts_of(op, attrs, rank > 0 ? rank : 8);
  if (!made) throw std::invalid_argument(made.error().message);
  return std::move(*made);
}

}  // namespace octavo::testing
