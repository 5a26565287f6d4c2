// The CPU's ways to run a region. Every kernel of this module is reached through this provider.
#pragma once

#include <optional>
#include <string>
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

/// How a region's tactic packs its constants (FamilyOf::layout): where it is the same text for a region with other extents, the packed constants are the
/// same. Nothing: not known, or the tactic refuses the region.
[[nodiscard]] std::optional<std::string> packed_layout(const region::Region& region, const region::Plan& plan);

/// The provider, as lists of them are handed on. Never empty.
[[nodiscard]] const std::vector<const region::Provider*>& providers();

}  // namespace octavo::cpu
