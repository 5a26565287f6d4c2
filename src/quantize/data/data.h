// Calibration data: samples that can be asked for one by one, so that memory does not grow with their number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::quantize {

/// One run's inputs, and what messages call it.
struct Sample {
  std::string name;
  std::vector<ir::Tensor> inputs;  ///< parallel to the model's inputs, of exactly their types
};

/// Samples in a fixed order. Two calls of `at` with one index give the same sample.
class Data {
 public:
  virtual ~Data() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Thread-safe; decodes or copies, and keeps nothing. Errors: those of reading the sample, naming it.
  [[nodiscard]] virtual Result<Sample> at(std::size_t index) const = 0;
};

/// At most `count` samples of `whole`, evenly spread.
class Part final : public Data {
 public:
  Part(const Data& whole, std::size_t count) : whole_(whole), count_(std::min(count, whole.size())) {}
  [[nodiscard]] std::size_t size() const override { return count_; }
  [[nodiscard]] Result<Sample> at(std::size_t index) const override { return whole_.at(index * whole_.size() / count_); }

 private:
  const Data& whole_;
  std::size_t count_;
};

}  // namespace octavo::quantize
