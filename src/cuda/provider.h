// The GPU's provider: what the families offer for a region, as tactics.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "cuda/device/compile_plan.h"
#include "cuda/device/cubin.h"
#include "cuda/device/gpu_device.h"
#include "cuda/family.h"
#include "region/provider.h"

namespace octavo::cuda {

/// Error, with the way out: this program was built without kernels for GPUs.
[[nodiscard]] Status check_has_kernels();

/// Offers come from the families, for one GPU architecture. `compile` gives the texts of the kernels as Artifact::source; `finish` has them
/// turned into machine code by `compiler`, which is asked for each text once. `check`: in `load`; nothing for compilers whose results no driver gets.
[[nodiscard]] std::unique_ptr<const region::Provider> make_provider(const Target& target, Compiler compiler, CodeCheck check = {});

/// How often this process has emitted the kernels of a region: their texts, their packed constants, and the hashes of both.
[[nodiscard]] std::uint64_t emissions();

/// Emits the kernels of the plan's GPU regions anew, for their tactics, and has them compiled: nothing of the code in the
/// plan is used, and of Region::launch only what its texts depend on (cuda/unknown_weights.h). A tactic must be one that its family offers for the region here. The plan (verified, with the bytes of its constants) keeps its packed
/// constants: they are data. Errors: bad_engine for tactics or constants that are not what the families make; unsupported for another architecture or
/// version; the compiler's. The plan may then be changed in part.
[[nodiscard]] Status remake_kernels(region::Plan& plan, const Target& target, const Compiler& compiler, int threads);
/// The same for GPU `ordinal` with NVRTC, whose results are kept on disk.
[[nodiscard]] Status remake_kernels(region::Plan& plan, int ordinal, int threads);

/// PlanOptions::usual on a GPU: the first convolution reads the caller's planes, results are stored where they are wanted, a convolution whose
/// parts are read apart is computed by parts, and what follows moves of a linear layer's result is in its epilogue. Layers of one input, in 16 bits or of
/// codes, are one product (of ViT-B/16 at batch 1 5.9 us instead of 12.3). Each was faster on every network it was measured on (docs/lab/performance-gpu.md).
[[nodiscard]] std::set<std::string, std::less<>> usual_choices();

/// PlanOptions::priced on a GPU: a first layer with its pooling computes rows and columns twice that tiles share, a depthwise convolution in the kernel of the
/// 1x1 convolution behind it has fewer threads, and whether that costs more than what lies between the two depends on the shapes; so does whether a first layer that quantizes its input by itself is worth a slower kernel (not for patches of 16 x 16 pixels). A convolution of parts on grids of their own is one float
/// convolution, or an int8 convolution for each part with the sums between them as floats in memory. bfloat16, where it is
/// allowed, multiplies ten times as fast as float32 does, but small layers wait for memory.
[[nodiscard]] std::set<std::string, std::less<>> priced_choices();

/// For GPU number `ordinal` of this machine; without a GPU for sm_90a.
[[nodiscard]] Target target(int ordinal = 0);
[[nodiscard]] const region::Provider& provider(int ordinal = 0);
/// For a GPU that need not be here (device/absent_gpu.h).
[[nodiscard]] const region::Provider& provider(const GpuFacts& facts);

}  // namespace octavo::cuda
