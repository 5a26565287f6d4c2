// The CPU's ways to run a region. Every kernel of this module is reached through these providers.
#pragma once

#include <vector>

#include "region/provider.h"

namespace octavo::cpu {

/// Generated AVX-512 kernels first (when built), then the block kernels of `cpu_provider()`. Static storage; never empty.
[[nodiscard]] const std::vector<const region::Provider*>& providers();

/// Everything outside jit/: pointwise, copies, index-mapped moves, pooling, reductions, convolutions, float anchors, softmax,
/// two-stage row tiles, and the reference evaluator for what is left. Each family in portable C++, AVX2 and AVX-512 from one source.
///   offers        one a (family, instruction set), refused with the processor's or OCTAVO_CPU's reason; the last one,
///                 "cpu.reference.<op>", is never refused for an instruction set.
///   pack          weights widened to 16 bits (int8) or blocked (float); empty for everything without weights.
///   instantiate   the tactic must be one that `offers` names without refusal for this region.
[[nodiscard]] const region::Provider& cpu_provider();

}  // namespace octavo::cpu
