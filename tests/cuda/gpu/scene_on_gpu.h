// The memory of a scene's region on a GPU: what a kernel wrote there, and what it should have written.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>
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

/// "" or the first element of the region's stores that is not what it should be, by more than `tolerance` times 1 and its magnitude and one step of a type of
/// 16 bits; all other bytes must be equal but those that stages hand over.
inline std::string difference(testing::Scene& s, const std::vector<std::vector<std::byte>>& got,
                              const std::vector<std::vector<std::byte>>& want, float tolerance) {
  const std::set<region::BufferId> within = testing::handed_over(s.region());
  for (std::size_t b = 0; b < want.size(); ++b) {
    if (within.contains(static_cast<region::BufferId>(b))) continue;
    ir::DType type = ir::DType::u8;
    for (const auto& r : s.region().stages.back().stores) {
      if (r.buffer == static_cast<region::BufferId>(b)) type = r.dtype;
    }
    const std::size_t size = ir::size_of(type), n = static_cast<std::size_t>(s.plan().buffers[b].bytes) / size * size;
    if (std::memcmp(got[b].data(), want[b].data(), n) == 0) continue;
    for (std::size_t i = 0; i < n; i += size) {
      if (std::memcmp(&got[b][i], &want[b][i], size) == 0) continue;
      const double x = value(&got[b][i], type), y = value(&want[b][i], type);
      const double step = type == ir::DType::bf16 ? std::abs(y) / 128 : type == ir::DType::f16 ? std::abs(y) / 1024 : 0;
      if (ir::is_float(type) && tolerance > 0 && std::abs(x - y) <= static_cast<double>(tolerance) * (1 + std::abs(y)) + step)
        continue;
      if (ir::is_float(type) && std::isnan(x) && std::isnan(y)) continue;  // a GPU has one pattern for NaN
      return fmt::format("buffer {} element {}: {} instead of {}", b, i / size, x, y);
    }
  }
  return "";
}

/// The family's kernels for the scene, `most` at most, the best estimate first. None where it refuses the region, which is printed and counted.
inline std::vector<Attempt> attempts(testing::Scene& s, const Family& f, const Target& target, std::size_t most, int& failures) {
  std::vector<Attempt> out;
  if (const auto why = f.why_not(s.region(), s.plan(), target); !why.empty()) {
    fmt::print("REFUSED {}: {}\n", f.name(), spelled(why));
    ++failures;
    return out;
  }
  for (const EstimatedTactic& x : f.candidates(s.region(), s.plan(), target)) {
    if (out.size() == most) break;
    Attempt a;
    a.family = &f, a.parameters = x.parameters, a.estimate = x.seconds;
    if (auto text = f.emit(s.region(), s.plan(), x.parameters, target))
      a.text = std::move(*text);
    else
      a.trouble = text.error().message;
    out.push_back(std::move(a));
  }
  return out;
}

inline std::vector<std::vector<std::byte>> read(const Gpu& gpu, const OnDevice& device) {
  std::vector<std::vector<std::byte>> out;
  for (std::size_t b = 0; b < device.bytes.size(); ++b) {
    out.emplace_back(device.bytes[b]);
    must(gpu.to_host(out.back().data(), device.sets[0][b], device.bytes[b]), "reading");
  }
  return out;
}

/// Runs a kernel once, alone with its memory; and measures it, if asked for.
inline std::vector<std::vector<std::byte>> results(const Gpu& gpu, testing::Scene& s, const Attempt& a, double* seconds) {
  const OnDevice device(gpu, s.plan(), s.memory, kGuard, 1);
  const Loaded kernel(gpu, a);
  kernel.launch(device.sets[0]);
  must(gpu.synchronize(), name_of(a).c_str());
  auto got = read(gpu, device);
  if (seconds != nullptr) *seconds = time_of(gpu, kernel, device);
  return got;
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
