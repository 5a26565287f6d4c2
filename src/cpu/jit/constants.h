// Constants of a region while it is packed.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::cpu::jit {

/// The first element of a constant tensor. `what`: how the error calls it, "weights". Errors: `internal`, where the plan has no data.
template <class T>
Result<const T*> constant_at(const region::Region& region, const region::Plan& plan, const region::TensorRef& ref,
                             std::string_view what) {
  const ir::Tensor& data = plan.buffers[static_cast<std::size_t>(ref.buffer)].data;
  if (data.empty()) return fail(ErrorKind::internal, fmt::format("packing \"{}\": the {} have no data", region.name, what));
  return reinterpret_cast<const T*>(data.bytes().data() + ref.offset);
}

/// The elements of an operand that is one number a channel (or one for all), `channels` of them. `operand` -1: none, and an empty list.
template <class T>
Result<std::vector<T>> biases(const region::Region& region, const region::Plan& plan, int operand, std::int64_t channels) {
  if (operand < 0) return std::vector<T>();
  const region::TensorRef& ref = region.stages.front().operands[static_cast<std::size_t>(operand)].ref;
  OCTAVO_TRY(const T* first, constant_at<T>(region, plan, ref, "biases"));
  const std::int64_t step = channels == 1 ? 0 : ref.strides[1];
  std::vector<T> out(static_cast<std::size_t>(channels));
  for (std::int64_t c = 0; c < channels; ++c) out[static_cast<std::size_t>(c)] = first[c * step];
  return out;
}

}  // namespace octavo::cpu::jit
