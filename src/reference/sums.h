// The order in which long float sums are added up. Errors grow with the logarithm of the number of blocks, not with the number of terms.
#pragma once

#include <array>
#include <cstdint>

namespace octavo::reference {

/// Terms of a block are added one after the other, from 0. Sums of up to one block are therefore sums in order.
inline constexpr std::int64_t kSumBlock = 128;

/// Sums of blocks, added in pairs: the first with the second, the third with the fourth, then the sums of those, and so on. A sum without a partner waits.
/// At the end the waiting sums are added, the latest first.
class PairwiseSum {
 public:
  void push(float sum) {
    int level = 0;
    for (std::uint64_t n = count_++; (n & 1) != 0; n >>= 1, ++level) sum = waiting_[static_cast<std::size_t>(level)] + sum;
    waiting_[static_cast<std::size_t>(level)] = sum;
  }
  /// 0 without a block.
  [[nodiscard]] float total() const {
    float sum = 0;
    bool any = false;
    for (std::size_t level = 0; level < waiting_.size(); ++level) {
      if ((count_ >> level & 1) == 0) continue;
      sum = any ? waiting_[level] + sum : waiting_[level];
      any = true;
    }
    return sum;
  }

 private:
  std::array<float, 64> waiting_{};  ///< [k]: of 2^k blocks
  std::uint64_t count_ = 0;
};

/// Folds the terms 0 .. n with next(sum, i), which adds term i to the sum of its block.
template <class Next>
[[nodiscard]] float sum_in_blocks(std::int64_t n, Next&& next) {
  PairwiseSum blocks;
  for (std::int64_t from = 0; from < n; from += kSumBlock) {
    float sum = 0;
    for (std::int64_t i = from; i < n && i < from + kSumBlock; ++i) sum = next(sum, i);
    blocks.push(sum);
  }
  return blocks.total();
}

}  // namespace octavo::reference
