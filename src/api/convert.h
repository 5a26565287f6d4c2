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
// The public header stands alone where it is installed, so it lists the element types once more. Lists that differ do not compile.
#define OCTAVO_SAME(type) static_assert(static_cast<int>(DType::type) == static_cast<int>(ir::DType::type))
OCTAVO_SAME(f32);
OCTAVO_SAME(f16);
OCTAVO_SAME(bf16);
OCTAVO_SAME(f64);
OCTAVO_SAME(s8);
OCTAVO_SAME(u8);
OCTAVO_SAME(s16);
OCTAVO_SAME(u16);
OCTAVO_SAME(s32);
OCTAVO_SAME(u32);
OCTAVO_SAME(s64);
OCTAVO_SAME(u64);
OCTAVO_SAME(boolean);
OCTAVO_SAME(s4);
OCTAVO_SAME(u4);
OCTAVO_SAME(s2);
OCTAVO_SAME(u2);
OCTAVO_SAME(f8e4m3fn);
OCTAVO_SAME(f8e4m3fnuz);
OCTAVO_SAME(f8e5m2);
OCTAVO_SAME(f8e5m2fnuz);
OCTAVO_SAME(f8e8m0);
OCTAVO_SAME(f4e2m1);
#undef OCTAVO_SAME
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
/// A copy of somebody's elements.
[[nodiscard]] ir::Tensor to_tensor(const ConstView& view);
[[nodiscard]] ir::Tensor to_tensor(const Array& array);
/// What the plan's region is: its anchor's name; "copy", "move" or "pointwise" when it has none.
[[nodiscard]] std::string kind_of(const region::Region& r);
[[nodiscard]] std::vector<LayerInfo> layers_of(const region::Plan& plan);

}  // namespace octavo::api
