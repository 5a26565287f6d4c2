// Between the modules' types and the public ones.
#pragma once

#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "ir/tensor.h"
#include "octavo/octavo.h"
#include "region/region.h"

namespace octavo::api {

[[nodiscard]] inline DType to_public(ir::DType t) {
  return static_cast<DType>(t);
}
static_assert(static_cast<int>(DType::boolean) == static_cast<int>(ir::DType::boolean));
static_assert(static_cast<int>(DType::f4e2m1) == static_cast<int>(ir::DType::f4e2m1));
static_assert(static_cast<int>(Exception::Kind::internal) == static_cast<int>(ErrorKind::internal));

[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise(ErrorKind kind, const std::string& message);
/// The value, or its error as an exception: the edge where errors stop being values.
template <class T>
T take(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void take(const Status& status) {
  if (!status) raise(status.error());
}

[[nodiscard]] std::optional<Quantization> to_public(const std::optional<ir::Quantizer>& q);
[[nodiscard]] TensorInfo to_public(const region::Binding& b);
/// What the plan's region is: its anchor's name; "copy", "move" or "pointwise" when it has none.
[[nodiscard]] std::string kind_of(const region::Region& r);
[[nodiscard]] std::vector<LayerInfo> layers_of(const region::Plan& plan);

}  // namespace octavo::api
