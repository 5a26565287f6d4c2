// A run in memory filled with patterns. It finds results that a region leaves unwritten, and writes outside of its results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace octavo::engine {

/// One fault of one region.
struct MemoryFault {
  enum class Kind : std::uint8_t { unwritten, outside };
  Kind kind = Kind::unwritten;
  std::size_t region = 0;
  std::string value;                ///< unwritten: the tensor's name
  std::int64_t count = 0;           ///< unwritten: its elements that still held the pattern; outside: bytes that changed
  std::int64_t of = 0;              ///< unwritten: elements of the tensor
  std::vector<std::int64_t> first;  ///< unwritten: index of the first such element; outside: its byte in the arena
};

struct MemoryReport {
  std::vector<MemoryFault> faults;
  std::int64_t elements = 0;  ///< that were judged
  std::int64_t in_place = 0;  ///< results that lie where the region reads: they hold its input before and are not judged
};

/// Runs once like Context::run, with all working memory, scratch of host threads and outputs filled with a pattern whose floats are NaN.
/// Before each region its results are filled again; behind it they must have been overwritten, and nothing but what its stages store
/// (with 64 bytes on both sides) may have changed. Where a result equals the pattern, the region runs a second time over another pattern:
/// only what equals both was not written. Outputs are those of a run. In working memory of any device; a plan of several images runs one
/// after the other. Cost: several copies of the working memory for each region. Errors: those of Context::run and of the devices.
[[nodiscard]] Result<MemoryReport> check_memory(Context& context, std::span<const void* const> inputs,
                                                std::span<void* const> outputs);

/// "region 3 \"fc\" (cpu.conv.f32...): 20 of 400 elements of its result \"y\" were not written, the first is [0, 12]"
[[nodiscard]] std::string describe(const MemoryFault& fault, const region::Plan& plan);

}  // namespace octavo::engine
