// Inputs that shapes depend on: a plan is made for one value of such an input. Its binding says which in its format, as "=3,1", and every
// run must bring it again.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::region {

/// "=3,1": dense elements in order; equal texts are equal values.
[[nodiscard]] std::string value_format(const ir::TensorType& type, const std::byte* elements);
/// Is the binding bound to a value?
[[nodiscard]] inline bool has_value(const Binding& b) {
  return b.format.starts_with('=');
}
/// The value that the binding is bound to; nothing when there is none, or its text does not fit its type.
[[nodiscard]] std::optional<ir::Tensor> value_of(const Binding& b);

}  // namespace octavo::region
