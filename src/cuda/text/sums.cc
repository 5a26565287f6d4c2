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

std::string total_of_open_blocks(std::string_view blocks) {
  return std::string(R"(OCTAVO_DEVICE float octavo_total(const float* p, int blocks) {
  float sum = 0.0f, waiting[10];  // waiting: sums of 1, 2, 4, ... blocks without their neighbours
  for (int power = 1, end = blocks, any = 0; power <= blocks; power *= 2) {
    if ((blocks & power) == 0) continue;
    end -= power;
    int k = 0;
    for (int i = 0; i < power; ++i) {
      float part = p[end + i];
      k = 0;
      for (int j = i; (j & 1) != 0; j /= 2) part = __fadd_rn(waiting[k++], part);
      waiting[k] = part;
    }
    sum = any != 0 ? __fadd_rn(waiting[k], sum) : waiting[k];
    any = 1;
  }
  return sum;
}
#define octavo_total(p) octavo_total(p, )") +
         std::string(blocks) + ")\n";
}

}  // namespace octavo::cuda
