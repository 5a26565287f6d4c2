// The memory of a scene's region on a GPU: what a kernel wrote there, and what it should have written.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/family_scene.h"
#include "cuda/gpu/conv_bench_gpu.h"

namespace octavo::cuda {

constexpr std::size_t kGuard = 64;  // of Scene::memory

inline double value(const std::byte* p, ir::DType t) {
  ir::Tensor one(t, {});
  std::memcpy(one.mutable_bytes().data(), p, ir::size_of(t));
  return one.at(0);
}

/// "" or the first element of the region's stores that is not what it should be; all other bytes must be equal.
inline std::string difference(testing::Scene& s, const std::vector<std::vector<std::byte>>& got,
                              const std::vector<std::vector<std::byte>>& want, float tolerance) {
  for (std::size_t b = 0; b < want.size(); ++b) {
    ir::DType type = ir::DType::u8;
    for (const auto& r : s.stage().stores) {
      if (r.buffer == static_cast<region::BufferId>(b)) type = r.dtype;
    }
    const std::size_t size = ir::size_of(type), n = static_cast<std::size_t>(s.plan().buffers[b].bytes) / size * size;
    if (std::memcmp(got[b].data(), want[b].data(), n) == 0) continue;
    for (std::size_t i = 0; i < n; i += size) {
      if (std::memcmp(&got[b][i], &want[b][i], size) == 0) continue;
      const double x = value(&got[b][i], type), y = value(&want[b][i], type);
      if (ir::is_float(type) && tolerance > 0 && std::abs(x - y) <= static_cast<double>(tolerance) * (1 + std::abs(y))) continue;
      return fmt::format("buffer {} element {}: {} instead of {}", b, i / size, x, y);
    }
  }
  return "";
}

inline std::vector<std::vector<std::byte>> read(const Gpu& gpu, const OnDevice& device) {
  std::vector<std::vector<std::byte>> out;
  for (std::size_t b = 0; b < device.bytes.size(); ++b) {
    out.emplace_back(device.bytes[b]);
    must(gpu.to_host(out.back().data(), device.sets[0][b], device.bytes[b]), "reading");
  }
  return out;
}

/// What the reference evaluator writes.
inline std::vector<std::vector<std::byte>> wanted(testing::Scene& s) {
  std::vector<std::vector<std::byte>> want = s.memory;
  region::Memory at;
  for (auto& bytes : want) at.base.push_back(bytes.data() + kGuard);
  testing::reference_region(s.region(), at);
  for (auto& bytes : want) bytes.erase(bytes.begin(), bytes.begin() + kGuard);
  return want;
}

}  // namespace octavo::cuda
