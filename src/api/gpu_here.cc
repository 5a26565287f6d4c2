#include "api/gpu_here.h"

#include <atomic>
#include <utility>

namespace octavo::api {
namespace {

std::atomic<const GpuHere*>& in_place() {
  static std::atomic<const GpuHere*> gpu = nullptr;
  return gpu;
}

}  // namespace

GpuScope::GpuScope(GpuHere gpu) : gpu_(std::move(gpu)) {
  in_place() = &gpu_;
}

GpuScope::~GpuScope() {
  in_place() = nullptr;
}

const GpuHere* gpu_in_place() {
  return in_place();
}

}  // namespace octavo::api
