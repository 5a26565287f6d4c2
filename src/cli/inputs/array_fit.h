// Whether an array fits an input of a model.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::cli {

/// f64, f32 and f16 into one another; everything else must be the input's type already.
[[nodiscard]] Status convertible(ir::DType from, ir::DType to, const std::string& name);
/// The same in every dimension but the first, where any length but 0 will do.
[[nodiscard]] bool same_rows(const ir::Shape& given, const ir::Shape& wanted);
/// The way out where the array has the model's dimensions in another layout; else nothing.
[[nodiscard]] std::string layout_hint(const ir::Shape& array, const ir::Shape& wanted);

}  // namespace octavo::cli
