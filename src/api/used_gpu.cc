#include "api/used_gpu.h"

#include <atomic>
#include <charconv>
#include <utility>

#include "api/device_name.h"
#include "cuda/device/absent_gpu.h"
#include "cuda/provider.h"
#include "engine/cores.h"

namespace octavo::api {
namespace {

std::atomic<const GpuHere*>& in_place() {
  static std::atomic<const GpuHere*> gpu = nullptr;
  return gpu;
}

}  // namespace

Result<std::optional<UsedGpu>> UsedGpu::named(std::string_view device) {
  device = preferred_device(device);
  UsedGpu gpu;
  gpu.in_place_ = in_place();
  if (device == "cuda") return gpu;
  if (!device.starts_with("cuda:")) return std::nullopt;
  const std::string_view name = device.substr(5);
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), gpu.ordinal_);
  if (error == std::errc() && end == name.data() + name.size() && gpu.ordinal_ >= 0) return gpu;
  gpu.ordinal_ = 0;
  OCTAVO_TRY(gpu.absent_, cuda::find_gpu(name));
  return gpu;
}

std::optional<UsedGpu> UsedGpu::of(std::string_view device) {
  auto gpu = named(device);
  return gpu ? *std::move(gpu) : std::nullopt;
}

UsedGpu UsedGpu::or_first(std::string_view device) {
  if (auto gpu = of(device)) return *std::move(gpu);
  UsedGpu first;
  first.in_place_ = in_place();
  return first;
}

const region::Provider& UsedGpu::planner() const {
  return absent_ && in_place_ == nullptr ? cuda::provider(*absent_) : loader();
}

const region::Provider& UsedGpu::loader() const {
  return in_place_ != nullptr ? *in_place_->provider : cuda::provider(ordinal_);
}

const region::Device& UsedGpu::device() const {
  if (absent_) return cuda::absent_gpu(*absent_);
  return in_place_ != nullptr ? *in_place_->device : cuda::gpu(ordinal_);
}

Status UsedGpu::check() const {
  return absent_ || in_place_ != nullptr ? Status() : cuda::check_gpu_for_builds(ordinal_);
}

Status UsedGpu::remake(region::Plan& plan) const {
  return in_place_ != nullptr ? in_place_->remake(plan) : cuda::remake_kernels(plan, ordinal_, engine::available_cores());
}

GpuScope::GpuScope(GpuHere gpu) : gpu_(std::move(gpu)) {
  in_place() = &gpu_;
}

GpuScope::~GpuScope() {
  in_place() = nullptr;
}

}  // namespace octavo::api
