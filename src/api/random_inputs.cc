#include <cstring>
#include <random>

#include "api/check.h"
#include "region/bound_value.h"

namespace octavo::api {

std::vector<ir::Tensor> random_inputs(const region::Plan& plan, std::uint64_t seed) {
  std::mt19937_64 random(seed);  // used directly: the standard distributions differ between libraries
  std::vector<ir::Tensor> inputs;
  for (const region::Binding& b : plan.inputs) {
    if (auto value = region::value_of(b)) {  // shapes depend on it: there is one
      inputs.push_back(std::move(*value));
      continue;
    }
    ir::Tensor t(b.type);
    const std::size_t size = ir::size_of(b.type.dtype);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      const std::uint64_t bits = random();
      std::byte* to = t.mutable_bytes().data() + static_cast<std::size_t>(i) * size;
      if (b.type.dtype == ir::DType::f32) {
        const float v = static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F;
        std::memcpy(to, &v, size);
      } else if (b.type.dtype == ir::DType::f64) {
        const double v = static_cast<double>(bits >> 11) * 0x1p-52 - 1.0;
        std::memcpy(to, &v, size);
      } else if (b.type.dtype == ir::DType::f16 || b.type.dtype == ir::DType::bf16) {
        // Sign, an exponent one to four steps below 1, random mantissa: between 1/16 and 1.
        const int mantissa = b.type.dtype == ir::DType::f16 ? 10 : 7;
        const std::uint64_t bias = b.type.dtype == ir::DType::f16 ? 15 : 127;
        const auto v = static_cast<std::uint16_t>((bits >> 63) << 15 | (bias - 1 - ((bits >> 20) & 3)) << mantissa |
                                                  (bits & ((1U << mantissa) - 1)));
        std::memcpy(to, &v, size);
      } else {
        const std::uint64_t v = size == 1 && b.type.dtype != ir::DType::boolean ? bits >> 56 : bits >> 63;
        std::memcpy(to, &v, size);
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

}  // namespace octavo::api
