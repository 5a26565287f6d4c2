// Grouped convolutions whose groups no tile holds whole.
#pragma once

#include <optional>

#include "cuda/families/conv/conv_mma.h"

namespace octavo::cuda {

/// The convolution with more channels in each group, up to what tiles hold: 24 become 32, 56 become 64. Their weights are zero, and their results are not
/// stored. Nothing where an operand of the program is not one value a channel.
[[nodiscard]] std::optional<ConvProducts> with_padded_groups(const region::Region& region, const region::Plan& plan,
                                                             const Target& target, ConvType type);

}  // namespace octavo::cuda
