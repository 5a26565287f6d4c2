// What a region is apart from where its buffers stand in a plan, and the hash of whole plans (region/region.h) whose constants lie elsewhere.
#pragma once

#include <span>
#include <string>

#include "region/region.h"

namespace octavo::region {

/// plan_hash of a plan whose constants lie elsewhere: `constants` has their bytes by BufferId.
[[nodiscard]] std::string plan_hash(const Plan& plan, std::span<const std::span<const std::byte>> constants);

/// 128 bits in hexadecimal, of all that Provider::offers and Provider::compile may read of a region that has no tactic yet: stages with their programs and
/// attributes, the tensors' windows, which extents are open or counted, the bytes of constants, kinds and sizes of buffers, threads. Buffers count in
/// the order in which the region names them, so equal regions of two plans have equal hashes. Names and reasons do not enter.
[[nodiscard]] std::string content_hash(const Region& region, const Plan& plan);

}  // namespace octavo::region
