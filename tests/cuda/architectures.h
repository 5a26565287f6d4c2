// The GPUs that texts of kernels are compiled for.
#pragma once

#include <ostream>
#include <vector>

#include "cuda/text/architecture.h"
#include "support/fuzz_setting.h"

namespace octavo::cuda {

inline std::ostream& operator<<(std::ostream& to, const Architecture& a) {
  return to << a.text();
}

}  // namespace octavo::cuda

namespace octavo::testing {

/// With OCTAVO_FULL (make test-all) every architecture; else one of each kind of texts. sm_86, sm_89 and sm_100 get those of sm_80 and sm_120, with tiles for
/// another size of shared memory.
inline std::vector<cuda::Architecture> architectures() {
  if (full_run()) return {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"};
  return {"sm_75", "sm_80", "sm_90a", "sm_120"};
}

}  // namespace octavo::testing
