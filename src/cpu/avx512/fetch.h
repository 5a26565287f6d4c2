// What a kernel's run reads besides weights and activations: its code, and what says where things are. Other regions' weights have
// taken its place in the caches since the last run; wanted one after the other, each line would come when the one before is there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace octavo::cpu::avx512 {

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

}  // namespace octavo::cpu::avx512
