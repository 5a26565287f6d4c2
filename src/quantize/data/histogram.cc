#include "quantize/data/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo::quantize {
namespace {

constexpr int kSideBits = 14;
static_assert(Histogram::kSide == 1 << kSideBits);
constexpr int kLeastExponent = -126;  // smaller magnitudes share the bins next to zero; 2^126 is still a float

/// The least exponent of a bin width with which a side holds `magnitude`.
int exponent_for(float magnitude) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  return std::max(exponent - kSideBits, kLeastExponent);
}

}  // namespace

double Histogram::largest() const {
  return std::max(std::abs(static_cast<double>(min_)), std::abs(static_cast<double>(max_)));
}

double Histogram::width() const {
  return std::ldexp(1.0, exponent_);
}

void Histogram::widen(int exponent) {
  if (exponent <= exponent_) return;
  const int shift = std::min(exponent - exponent_, 30);
  std::vector<std::uint64_t> wide(bins_.size());
  for (int k = 0; k < kSide; ++k) {
    wide[static_cast<std::size_t>(kSide + (k >> shift))] += bins_[static_cast<std::size_t>(kSide + k)];
    wide[static_cast<std::size_t>(kSide - 1 - (k >> shift))] += bins_[static_cast<std::size_t>(kSide - 1 - k)];
  }
  bins_ = std::move(wide);
  exponent_ = exponent;
}

void Histogram::add(std::span<const float> values) {
  float lo = std::numeric_limits<float>::infinity(), hi = -lo;
  std::uint64_t odd = 0, nan = 0;
  for (const float x : values) {
    if (!(std::abs(x) <= std::numeric_limits<float>::max())) {
      ++odd;
      nan += std::isnan(x) ? 1 : 0;
      continue;
    }
    lo = std::min(lo, x);
    hi = std::max(hi, x);
  }
  nan_ += nan;
  infinite_ += odd - nan;
  if (odd == values.size()) return;
  const int needed = exponent_for(std::max(std::abs(lo), std::abs(hi)));
  if (bins_.empty()) {
    bins_.assign(2 * static_cast<std::size_t>(kSide), 0);
    exponent_ = needed;
    min_ = lo;
    max_ = hi;
  } else {
    widen(needed);
    min_ = std::min(min_, lo);
    max_ = std::max(max_, hi);
  }
  count_ += values.size() - odd;
  const float inverse = std::ldexp(1.0F, -exponent_);
  for (const float x : values) {
    const float magnitude = std::abs(x);
    if (!(magnitude <= std::numeric_limits<float>::max())) continue;
    const int k = static_cast<int>(magnitude * inverse);  // exact: a power of two
    ++bins_[static_cast<std::size_t>(x < 0 ? kSide - 1 - k : kSide + k)];
  }
}

void Histogram::merge(const Histogram& other) {
  nan_ += other.nan_;
  infinite_ += other.infinite_;
  if (other.bins_.empty()) return;
  if (bins_.empty()) {
    const std::uint64_t nan = nan_, infinite = infinite_;
    *this = other;
    nan_ = nan;
    infinite_ = infinite;
    return;
  }
  widen(other.exponent_);
  if (exponent_ == other.exponent_) {  // nearly always
    for (std::size_t i = 0; i < bins_.size(); ++i) bins_[i] += other.bins_[i];
  } else {
    const int shift = std::min(exponent_ - other.exponent_, 30);
    for (int k = 0; k < kSide; ++k) {
      bins_[static_cast<std::size_t>(kSide + (k >> shift))] += other.above(k);
      bins_[static_cast<std::size_t>(kSide - 1 - (k >> shift))] += other.below(k);
    }
  }
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

}  // namespace octavo::quantize
