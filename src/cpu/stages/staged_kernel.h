// Runs a region stage by stage, row tile by row tile, on the kernels of its stages.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "cpu/family.h"
#include "cpu/stages/schedule.h"

namespace octavo::cpu::staged {

using Kernels = std::map<Slab, std::unique_ptr<region::HostKernel>>;  ///< of one stage, by the rows they are made for

/// A task is one of the schedule's, of one image. `kernels` are by stage, one for each of slabs_of().
[[nodiscard]] std::unique_ptr<Kernel> staged_kernel(const Region& r, const Schedule& schedule, std::vector<Kernels> kernels);

}  // namespace octavo::cpu::staged
