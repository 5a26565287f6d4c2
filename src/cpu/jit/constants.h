// Constants of channels while they are packed.
#pragma once

#include <vector>

#include "base/result.h"
#include "cpu/constant.h"
#include "region/region.h"
#include "region/tensor_ref.h"

namespace octavo::cpu::jit {

/// An operand of constants that is one number a channel, or one for all.
class ChannelOperand {
 public:
  ChannelOperand() = default;
  /// `operand` -1: none.
  ChannelOperand(const region::Stage& s, const region::Plan& plan, int operand) : given_(operand >= 0) {
    if (!given_) return;
    const region::TensorRef& ref = s.operands[static_cast<std::size_t>(operand)].ref;
    data_ = Constant(ref, plan);
    step_ = region::broadcast_stride(ref, s.space, 1);
  }
  /// Without data there are no values. Error: `internal`.
  [[nodiscard]] Status check() const {
    if (given_ && !data_.has_data()) return fail(ErrorKind::internal, "constants of channels have no data");
    return {};
  }
  /// Of a channel; 0 without an operand.
  template <class T>
  [[nodiscard]] T at(std::int64_t channel) const {
    return given_ ? data_.first<T>()[channel * step_] : T{0};
  }
  /// Of so many channels; empty without an operand.
  template <class T>
  [[nodiscard]] Result<std::vector<T>> values(std::int64_t channels) const {
    OCTAVO_CHECK(check());
    std::vector<T> out(given_ ? static_cast<std::size_t>(channels) : 0);
    for (std::size_t c = 0; c < out.size(); ++c) out[c] = at<T>(static_cast<std::int64_t>(c));
    return out;
  }

 private:
  bool given_ = false;
  Constant data_;
  std::int64_t step_ = 0;
};

}  // namespace octavo::cpu::jit
