// Weights that a plan does not hold any more, since every reader has packed them: what stands in their place where kernels are made anew.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/text/kernel_text.h"
#include "region/region.h"

namespace octavo::cuda {

/// What the texts of a region depend on beside the region and its tactic, kept with its launches. It is data: a wrong one makes a wrong result,
/// or none, and no access out of bounds.
struct TextFacts {
  std::vector<std::int64_t>
      sums;           ///< by stage: the largest sum of |weight less its zero point| over a channel of s8 weights; 0: none
  std::string texts;  ///< hash of the texts, which are to come out the same
  std::vector<std::int64_t> open;  ///< open_marks
};
/// The region's marks of open extents (region::OpenExtents), by stage and tensor; empty: none. And the region with these.
[[nodiscard]] std::vector<std::int64_t> open_marks(const region::Region& region);
[[nodiscard]] Status set_open_marks(region::Region& region, const std::vector<std::int64_t>& marks);
[[nodiscard]] std::vector<std::int64_t> weight_sums(const region::Region& region, const region::Plan& plan);

/// Puts the facts into Region::launch, and reads them. Error: bad_engine.
[[nodiscard]] std::string with_facts(const std::string& launch, const TextFacts& facts);
[[nodiscard]] Result<TextFacts> read_facts(std::string_view launch);

/// Sets Anchor::weight_sum of the region's stages from its launch. Error: bad_engine.
[[nodiscard]] Status give_sums(region::Region& region);

/// Gives the region's weights without bytes some in `plan`, with these sums, so that the families say what they would read. What is packed of them is not
/// used. Errors: bad_engine for weights that are not about as large as the packed constants, or sums that they cannot have.
[[nodiscard]] Status give_weights(const region::Region& region, region::Plan& plan, const std::vector<std::int64_t>& sums);

/// The region's packed constants in `plan`, which a file brought, against `made`, what its family packs. All bytes have to agree: tables say
/// where a kernel reads, without limits of its own. Of weights that the plan lacks, only the size can; PackedConstant says why that is enough. `made` is there
/// anyway, with the texts, so this costs one pass over the constants. Error: bad_engine.
[[nodiscard]] Status check_packed(const region::Region& region, const region::Plan& plan, std::span<const PackedConstant> made);

}  // namespace octavo::cuda
