// What regions read while they are timed: a kernel may take longer for some values than for others.
#pragma once

#include <cstddef>

#include "ir/tensor.h"

namespace octavo::tune {

/// Fills memory as layers of networks fill it, the same every time: 8-bit codes around the middle of their range (64 to 190, mostly
/// near 127; as s8, the same bytes less 128), floats from -1 to 1, of 16 bits from 1/16 to
/// 1 with either sign. Types that may be indices or conditions are left alone.
void fill_activations(std::byte* at, std::size_t bytes, ir::DType type);

}  // namespace octavo::tune
