// Constants of a plan as settings keep them.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "region/region.h"

namespace octavo::cpu {

/// The zero point of the weights of an output channel. `zero`: region::Anchor::weight_zero; groups of a transposed convolution share entries.
[[nodiscard]] inline std::int32_t weight_zero_of(const std::vector<std::int32_t>& zero, std::int64_t channel) {
  return zero.empty() ? 0 : zero[static_cast<std::size_t>(channel) % zero.size()];
}

/// A constant tensor. Its bytes are shared with the plan; there are none where the plan is an engine file's.
class Constant {
 public:
  Constant() = default;
  Constant(const region::TensorRef& ref, const region::Plan& plan)
      : bytes_(plan.buffers[static_cast<std::size_t>(ref.buffer)].data), offset_(ref.offset) {}
  [[nodiscard]] bool has_data() const { return !bytes_.empty(); }
  /// The first element, where there is data.
  template <class T>
  [[nodiscard]] const T* first() const {
    return reinterpret_cast<const T*>(bytes_.bytes().data() + offset_);
  }
  /// For packing. `what`: how the error calls it, "weights". Error: `internal`, where there is no data.
  template <class T>
  [[nodiscard]] Result<const T*> data(std::string_view what) const {
    if (!has_data()) return fail(ErrorKind::internal, fmt::format("the {} have no data", what));
    return first<T>();
  }

  /// What `pack` of a kernel returns that reads the tensor as it is: a copy. `ref`: the tensor, dense.
  [[nodiscard]] Result<std::vector<ir::Tensor>> copied(const region::TensorRef& ref) const {
    OCTAVO_TRY(const std::byte* from, data<std::byte>("weights"));
    ir::Tensor t(ref.dtype, ref.dims);
    std::memcpy(t.mutable_bytes().data(), from, t.bytes().size());
    return std::vector<ir::Tensor>{std::move(t)};
  }

 private:
  ir::Tensor bytes_;
  std::int64_t offset_ = 0;
};

}  // namespace octavo::cpu
