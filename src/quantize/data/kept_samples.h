// Samples that come once and are asked for again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quantize/data/data.h"

namespace octavo::quantize {

/// In memory up to `most` bytes; what is more lies in a file without a name, which is gone with this object or its process.
class KeptSamples final : public Data {
 public:
  static constexpr std::size_t kInMemory = std::size_t{256} << 20;
  explicit KeptSamples(std::size_t most = kInMemory) : most_(most) {}
  ~KeptSamples() override;
  KeptSamples(const KeptSamples&) = delete;
  KeptSamples& operator=(const KeptSamples&) = delete;

  /// Not while others ask. Errors: io, where the file cannot be written.
  [[nodiscard]] Status add(Sample sample);
  [[nodiscard]] std::size_t size() const override { return samples_.size(); }
  [[nodiscard]] Result<Sample> at(std::size_t index) const override;

 private:
  struct Kept {
    std::string name;
    std::vector<ir::Tensor> tensors;    ///< in memory; otherwise empty
    std::vector<ir::TensorType> types;  ///< in the file, one behind the other
    std::int64_t offset = 0;
  };
  [[nodiscard]] Status write(const Sample& sample, Kept& kept);

  std::vector<Kept> samples_;
  std::size_t most_, in_memory_ = 0;
  int file_ = -1;
  std::int64_t end_ = 0;
};

}  // namespace octavo::quantize
