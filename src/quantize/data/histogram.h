// How often a tensor takes which values, over any number of samples, in memory that does not grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octavo::quantize {

/// Counts in bins of equal width on both sides of zero. The width is a power of two and doubles, neighbours joined, when a larger
/// value comes; what is counted therefore depends neither on the order of the values nor on how they were split among threads. At
/// least half of the bins of the wider side lie within the largest magnitude.
class Histogram {
 public:
  static constexpr int kSide = 16384;  ///< bins a side; bin k of a side holds magnitudes in [k * width, (k + 1) * width)

  /// NaN and infinite values are counted apart and are in no bin.
  void add(std::span<const float> values);
  void merge(const Histogram& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }  ///< finite values
  [[nodiscard]] std::uint64_t not_a_number() const { return nan_; }
  [[nodiscard]] std::uint64_t infinite() const { return infinite_; }
  [[nodiscard]] float min() const { return min_; }  ///< of the finite values, exact; 0 without any
  [[nodiscard]] float max() const { return max_; }
  [[nodiscard]] double largest() const;  ///< max(|min|, |max|)
  [[nodiscard]] double width() const;
  [[nodiscard]] std::uint64_t below(int k) const { return at(kSide - 1 - k); }  ///< bin k of the negative values
  [[nodiscard]] std::uint64_t above(int k) const { return at(kSide + k); }      ///< of zero and the positive ones
  /// fn(center, count) for each bin that is not empty, in the order of the values.
  template <class Fn>
  void each(Fn&& fn) const {
    const double w = width();
    for (int i = 0; i < static_cast<int>(bins_.size()); ++i) {
      if (at(i) == 0) continue;
      const int k = i < kSide ? -(kSide - i) : i - kSide;
      fn((k + 0.5) * w, at(i));
    }
  }

 private:
  [[nodiscard]] std::uint64_t at(int i) const { return bins_.empty() ? 0 : bins_[static_cast<std::size_t>(i)]; }
  void widen(int exponent);

  std::vector<std::uint64_t> bins_;  ///< empty until a value comes; 2 * kSide
  int exponent_ = 0;                 ///< width is 2^exponent_
  std::uint64_t count_ = 0, nan_ = 0, infinite_ = 0;
  float min_ = 0, max_ = 0;
};

}  // namespace octavo::quantize
