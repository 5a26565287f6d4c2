// What a kernel's run reads besides weights and activations: its code, and what says where things are. Other regions' weights have
// taken its place in the caches since the last run; wanted one after the other, each line would come when the one before is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "region/region.h"

namespace octavo::cpu::jit {

/// `channels` bytes of each pixel of the rows [from, until), as far as the image has them, into L1.
inline void fetch_rows(const std::byte* image, const region::TensorRef& x, std::int64_t from, std::int64_t until,
                       std::int64_t channels) {
  for (std::int64_t y = std::max<std::int64_t>(0, from); y < std::min(until, x.dims[2]); ++y) {
    for (std::int64_t i = 0; i < x.dims[3]; ++i) {
      const std::byte* pixel = image + y * x.strides[2] + i * x.strides[3];
      __builtin_prefetch(pixel, 0, 3);
      __builtin_prefetch(pixel + channels - 1, 0, 3);
    }
  }
}

class Fetched {
 public:
  void add(const void* at, std::size_t bytes) {
    if (bytes > 0) parts_.emplace_back(static_cast<const std::byte*>(at), bytes);
  }
  template <class V>
  void add(const V& elements) {
    add(elements.data(), elements.size() * sizeof(elements[0]));
  }
  /// Into L2. Some 0.1 us where it is there.
  void fetch() const {
    for (const auto& part : parts_) {
      for (std::size_t i = 0; i < part.size(); i += 64) __builtin_prefetch(part.data() + i, 0, 2);
    }
  }

 private:
  std::vector<std::span<const std::byte>> parts_;
};

}  // namespace octavo::cpu::jit
