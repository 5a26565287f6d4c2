// Generated gather along the innermost axis (the channels of an image) by constant indices: channel shuffles and their parts.
//
// A row is what lies side by side in memory: the gathered axis. 64 bytes of it are made at a time, from windows of 64 bytes of the
// source row: byte permutes take from one or two windows (vpermb, vpermt2b), further ones are merged under a mask. All that differs
// among regions is in the constants of the code; nothing outside of a source row is read, nothing outside of a stored row written.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/jit/emitter.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {

inline constexpr std::size_t kGatherStores = 4, kGatherWindows = 8;
inline constexpr std::int64_t kGatherRowBytes = 8192;

/// 64 bytes of the result (fewer when the row has fewer).
struct GatherChunk {
  std::int64_t to = 0;                                 ///< first byte in the stored row
  std::vector<std::int64_t> windows;                   ///< first bytes in the source row
  std::vector<std::array<std::uint8_t, 64>> controls;  ///< of windows 0 and 1 together, then of 2, 3, ...
  std::vector<std::uint64_t> merged;                   ///< bytes taken from window 2, 3, ...
};

struct GatherSetting {
  region::TensorRef source;
  std::vector<region::TensorRef> stores;
  /// Rows: dimensions from outermost to innermost, steps in bytes of the source and of each store.
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> from;
  std::vector<std::vector<std::int64_t>> to;  ///< [store][dimension]
  std::int64_t row_bytes = 0, source_bytes = 0;
  std::vector<GatherChunk> chunks;
  double seconds = 0;

  [[nodiscard]] std::int64_t rows() const;
};

[[nodiscard]] Result<GatherSetting> match_gather(const region::Region& region);
[[nodiscard]] Result<std::unique_ptr<region::HostKernel>> load_gather(GatherSetting plan);

struct GatherArgs {
  const std::byte* from = nullptr;
  std::array<std::byte*, kGatherStores> to{};
  std::int64_t rows = 0;  ///< >= 1, along the innermost dimension
};
using GatherFn = void (*)(GatherArgs*);
std::size_t emit_gather(Code& code, ConstantPool& pool, const GatherSetting& plan);

}  // namespace octavo::cpu::jit
