// A kernel family on one region, under emulation: what it wrote against what the contract in region/region.h says, element by
// element.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "cpu/scalar_region.h"
#include "cuda/emulation/emulator.h"
#include "cuda/family.h"

namespace octavo::testing {

/// Changes the text before it is compiled, to plant a mistake.
using Edit = std::function<std::string(std::string)>;

/// What a region's stores should hold; scalar_region by default.
using Truth = std::function<void(const region::Region&, const region::Memory&)>;
/// The reference evaluator's region: for anchors that scalar_region does not have.
void reference_region(const region::Region& region, const region::Memory& memory);

/// The buffers through which one stage of the region hands its result to another: a kernel need not write them.
[[nodiscard]] std::set<region::BufferId> handed_over(const region::Region& region);

/// A region with its plan and what its buffers hold at first: `memory[b]` has `guard` bytes in front of buffer b.
struct EmulatedCase {
  const region::Region& region;
  const region::Plan& plan;
  const std::vector<std::vector<std::byte>>& memory;
  std::size_t guard = 0;
  unsigned seed = 0;  ///< for messages, and for the order of blocks
  /// Of a region whose elements are counted (region::Region::count, whose buffer does not matter then): how many there are. Rows that count are compared; those behind
  /// the last item of the family that has one must be as they were; between them, anything. -1: all are compared.
  std::int64_t count = -1;
};

/// Runs the family's text for the region with these parameters; every buffer lies alone, with nothing readable around it. "" or what
/// is wrong: a refusal, a text that does not read a count that there is, a finding of the emulation, the first element that differs. `tolerance`: as Scene::compare.
[[nodiscard]] std::string run_emulated(const EmulatedCase& c, const cuda::Family& family, const cuda::Parameters& parameters,
                                       float tolerance, const Edit& edit, const Truth& truth, const cuda::Target& target);
[[nodiscard]] std::string run_emulated(Scene& scene, const cuda::Family& family, const cuda::Parameters& parameters = {},
                                       float tolerance = 0, const Edit& edit = {}, const Truth& truth = scalar_region,
                                       const cuda::Target& target = {});

}  // namespace octavo::testing
