// What a region is apart from where its buffers stand in a plan. The hash of whole plans is in region/region.h.
#pragma once

#include <string>

#include "region/region.h"

namespace octavo::region {

/// 128 bits in hexadecimal, of all that Provider::compile may read of a region that has no tactic yet: stages with their programs and attributes, the
/// tensors' windows, the bytes of constants, kinds and sizes of buffers, threads. Buffers count in the order in which the region names them, so
/// equal regions of two plans have equal hashes. Names and reasons do not enter.
[[nodiscard]] std::string content_hash(const Region& region, const Plan& plan);

}  // namespace octavo::region
