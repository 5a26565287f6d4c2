// In place of families/: a build without kernels for GPUs (OCTAVO_GPU_KERNELS=OFF).
#include "cuda/families/families.h"

namespace octavo::cuda {

std::span<const Family* const> families() {
  return {};
}

}  // namespace octavo::cuda
