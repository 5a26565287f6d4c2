// Regions of which data count the elements (region::Region::count): their kernels read the count where it lies in the GPU's memory, once, when they begin. Blocks
// and items behind it return at once. The text of the family stays as it is; this puts lines in front of it.
#pragma once

#include "cuda/text/kernel_text.h"
#include "region/region.h"

namespace octavo::cuda {

/// Do the elements of the counted dimension lie outside of all others in the region's spaces and results, so that CountedItems are about them?
[[nodiscard]] bool counts_outermost(const region::Region& region);

/// Changes the kernels of launches whose items the family names (Launch::counted), if the region is counted. Texts of other regions stay as they are.
void leave_out_uncounted(KernelText& text, const region::Region& region);

}  // namespace octavo::cuda
