#include "cuda/families/families.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {

double SingleFamily::seconds(const Region& region) const {
  constexpr double kLaunch = 2e-6, kBytesPerSecond = 2.5e12;
  std::int64_t bytes = 0;
  const auto add = [&](const region::TensorRef& r) { bytes += tensor_bytes(r); };
  for (const Stage& s : region.stages) {
    for (const region::TensorRef& r : s.anchor.inputs) add(r);
    if (s.anchor.weights) add(*s.anchor.weights);
    for (const region::Operand& o : s.operands) add(o.ref);
    for (const region::TensorRef& r : s.stores) add(r);
  }
  return kLaunch + static_cast<double>(bytes) / kBytesPerSecond;
}

}  // namespace octavo::cuda
