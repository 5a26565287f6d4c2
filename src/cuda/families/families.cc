#include "cuda/families/families.h"

#include <fmt/format.h>

#include "cuda/cost_model.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {

std::span<const Family* const> families() {
  static const Family* const all[] = {
#define FAMILY(id) &id##_family(),
#include "cuda/families/families.def"
  };
  return all;
}

Reasons why_no_wide_products(const Target& target) {
  constexpr int kFirst = 80;
  return target.architecture.sm < kFirst
             ? unmet("architecture", target.architecture.text(), "sm_80 or later (products of bfloat16 and tf32)")
             : Reasons();
}

Reasons why_no_warpgroups(const Target& target) {
  constexpr Architecture kOnly = "sm_90a";
  return target.architecture != kOnly ? unmet("architecture", target.architecture.text(), "sm_90a (products of warpgroups)")
                                      : Reasons();
}

Reasons why_not_shared(std::int64_t bytes, int blocks, const Target& target) {
  constexpr std::int64_t kOfBlock = 1024;  // that every block takes beside its own
  if ((bytes + kOfBlock) * blocks <= target.shared_bytes + kOfBlock) return {};
  return unmet("bytes of shared memory", bytes * blocks, fmt::format("at most {}", target.shared_bytes));
}

double seconds_of_a_pass(const region::Region& region) {
  std::int64_t bytes = 0;
  const auto add = [&](const region::TensorRef& r) { bytes += tensor_bytes(r); };
  for (const region::Stage& s : region.stages) {
    for (const region::TensorRef& r : s.anchor.inputs) add(r);
    if (s.anchor.weights) add(*s.anchor.weights);
    for (const region::Operand& o : s.operands) add(o.ref);
    for (const region::TensorRef& r : s.stores) add(r);
  }
  return cost::kLaunch + static_cast<double>(bytes) / cost::kMemoryOfPasses;
}

}  // namespace octavo::cuda
