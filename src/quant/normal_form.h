// The normal form: all placements with the same meaning become the same graph (docs/semantics.md, "laws").
#pragma once

#include <vector>

#include "ir/graph.h"
#include "rewrite/rule.h"

namespace octavo::quant {

/// The laws in the order they are tried. Static storage; never empty.
[[nodiscard]] const std::vector<const rewrite::Rule*>& laws();

/// Runs the laws to a fixed point, then value numbering and canonical order. Outputs keep their bits.
/// Afterwards: views sit directly on compute ops, inputs or dequantize; activation quantizers are u8; coded 8-bit weights are s8;
/// Split is slices; no two nodes compute the same thing.
[[nodiscard]] Result<rewrite::RunReport> normalize(ir::Graph& g, const rewrite::RunOptions& options = {});

}  // namespace octavo::quant
