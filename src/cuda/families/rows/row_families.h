// Families that take a row of elements together: see cuda/families/rows/rows.h.
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

// Static storage.
[[nodiscard]] const Family& row_softmax_family();
[[nodiscard]] const Family& row_norm_family();

}  // namespace octavo::cuda
