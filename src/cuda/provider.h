// The GPU's provider: what the families offer for a region, as tactics.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "cuda/compile_plan.h"
#include "cuda/family.h"
#include "region/provider.h"

namespace octavo::cuda {

/// Offers come from the families, for one GPU architecture. `compile` gives the texts of the kernels as Artifact::code; `finish` has them
/// turned into machine code by `compiler`, which is asked for each text once.
[[nodiscard]] std::unique_ptr<const region::Provider> make_provider(const Target& target, Compiler compiler);

/// PlanOptions::usual on a GPU: the first convolution reads the caller's planes, results are stored where they are wanted, and a convolution whose
/// parts are read apart is computed by parts. Each was faster on every network it was measured on (docs/lab/performance-gpu.md).
[[nodiscard]] std::set<std::string, std::less<>> usual_choices();

/// PlanOptions::priced on a GPU: a first layer with its pooling computes rows and columns twice that tiles share, a depthwise convolution in the kernel of the
/// 1x1 convolution behind it has fewer threads, and whether that costs more than what lies between the two depends on the shapes.
[[nodiscard]] std::set<std::string, std::less<>> priced_choices();

/// For GPU number `ordinal` of this machine. Without a GPU for sm_90a; always for what OCTAVO_CUDA_ARCHITECTURE names ("sm_80"):
/// engines can be built on machines that have no GPU.
[[nodiscard]] Target target(int ordinal = 0);
[[nodiscard]] const region::Provider& provider(int ordinal = 0);

}  // namespace octavo::cuda
