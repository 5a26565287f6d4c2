// The CPU's ways to run a region. Every kernel of this module is reached through this provider.
#pragma once

#include <vector>

#include "region/provider.h"

namespace octavo::cpu {

/// The families of table.h, each of which reads a region once a call:
///   offers    one for each family and level, refused for what the region is or for what the processor or OCTAVO_CPU does not allow.
///             Generated code has rank 0. The last one, "cpu.reference.<op>", is never refused for an instruction set.
///   variants  further sets of parameters.
///   compile   the family's packed constants.
///   load      the kernel. The tactic must be one that this version makes, and the constants those that it packs.
[[nodiscard]] const region::Provider& cpu_provider();

/// The provider, as lists of them are handed on. Never empty.
[[nodiscard]] const std::vector<const region::Provider*>& providers();

}  // namespace octavo::cpu
