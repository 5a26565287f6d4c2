#include "cuda/text/sums.h"

#include <fmt/format.h>

namespace octavo::cuda {
namespace {

/// The sum of `count` blocks from `from` on, a power of two, in pairs.
std::string in_pairs(std::int64_t from, std::int64_t count) {
  if (count == 1) return fmt::format("p[{}]", from);
  return fmt::format("__fadd_rn({}, {})", in_pairs(from, count / 2), in_pairs(from + count / 2, count / 2));
}

}  // namespace

// Powers of two from the first block on, the greatest first, and their sums from the last one on.
std::string total_of_blocks(std::int64_t blocks) {
  std::string sum;
  std::int64_t end = blocks;
  for (std::int64_t power = 1; power <= blocks; power *= 2) {
    if ((blocks & power) == 0) continue;
    end -= power;
    const std::string part = in_pairs(end, power);
    sum = sum.empty() ? part : fmt::format("__fadd_rn({}, {})", part, sum);
  }
  return fmt::format("OCTAVO_DEVICE float octavo_total(const float* p) {{ return {}; }}\n", sum);
}

}  // namespace octavo::cuda
