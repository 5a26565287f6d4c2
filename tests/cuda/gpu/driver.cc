#include "cuda/gpu/driver.h"

#include <fmt/format.h>

#include "cuda/device/library.h"

namespace octavo::cuda {

// The driver's C interface as far as it is used here; 0 is success.
struct Device::Api {
  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*allocate)(std::uint64_t*, std::size_t) = nullptr;
  int (*release)(std::uint64_t) = nullptr;
  int (*to_device)(std::uint64_t, const void*, std::size_t) = nullptr;
  int (*to_host)(void*, std::uint64_t, std::size_t) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) = nullptr;
  int (*synchronize)() = nullptr;
  int (*error_text)(int, const char**) = nullptr;

  [[nodiscard]] Status check(int code, std::string_view doing) const {
    if (code == 0) return {};
    const char* text = nullptr;
    error_text(code, &text);
    return fail(ErrorKind::unsupported, fmt::format("{}: the CUDA driver says {} ({})", doing, text ? text : "nothing", code));
  }
};

Result<Device> Device::open(int ordinal) {
  static const Library library({"libcuda.so.1", "libcuda.so"});
  if (!library.found()) return fail(ErrorKind::unsupported, "opening the GPU: no CUDA driver (" + library.tried() + ")");
  auto api = std::make_shared<Api>();
  const bool complete = library.get("cuInit", api->init) && library.get("cuDeviceGet", api->device_get) &&
                        library.get("cuDeviceGetName", api->device_name) && library.get("cuDeviceGetAttribute", api->attribute) &&
                        library.get("cuDevicePrimaryCtxRetain", api->retain) && library.get("cuCtxSetCurrent", api->set_current) &&
                        library.get("cuMemAlloc_v2", api->allocate) && library.get("cuMemFree_v2", api->release) &&
                        library.get("cuMemcpyHtoD_v2", api->to_device) && library.get("cuMemcpyDtoH_v2", api->to_host) &&
                        library.get("cuModuleLoadData", api->load) && library.get("cuModuleGetFunction", api->function) &&
                        library.get("cuLaunchKernel", api->launch) && library.get("cuCtxSynchronize", api->synchronize) &&
                        library.get("cuGetErrorString", api->error_text);
  if (!complete)
    return fail(ErrorKind::unsupported, "opening the GPU: the CUDA driver lacks a function; version 11 or later is needed");
  Device d;
  int device = 0, major = 0, minor = 0;
  void* context = nullptr;
  char name[256] = {};
  OCTAVO_CHECK(api->check(api->init(0), "starting the CUDA driver"));
  OCTAVO_CHECK(api->check(api->device_get(&device, ordinal), fmt::format("opening GPU {}", ordinal)));
  OCTAVO_CHECK(api->check(api->device_name(name, sizeof name, device), "reading the GPU's name"));
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  OCTAVO_CHECK(api->check(api->attribute(&major, kMajor, device), "reading the compute capability"));
  OCTAVO_CHECK(api->check(api->attribute(&minor, kMinor, device), "reading the compute capability"));
  OCTAVO_CHECK(api->check(api->retain(&context, device), "retaining the GPU's context"));
  OCTAVO_CHECK(api->check(api->set_current(context), "entering the GPU's context"));
  d.api_ = std::move(api);
  d.name_ = name;
  d.architecture_ = {major * 10 + minor, major == 9 && minor == 0};
  return d;
}

Result<std::uint64_t> Device::allocate(std::size_t bytes) const {
  std::uint64_t address = 0;
  OCTAVO_CHECK(api_->check(api_->allocate(&address, bytes), fmt::format("allocating {} bytes on the GPU", bytes)));
  return address;
}

void Device::release(std::uint64_t address) const {
  api_->release(address);
}

Status Device::copy_in(std::uint64_t to, const void* from, std::size_t bytes) const {
  return api_->check(api_->to_device(to, from, bytes), "copying to the GPU");
}

Status Device::copy_out(void* to, std::uint64_t from, std::size_t bytes) const {
  return api_->check(api_->to_host(to, from, bytes), "copying from the GPU");
}

Result<void*> Device::load(const std::string& cubin) const {
  void* module = nullptr;
  OCTAVO_CHECK(api_->check(api_->load(&module, cubin.data()), "loading machine code"));
  return module;
}

Status Device::launch(void* module, const std::string& function, std::int64_t threads, void* argument) const {
  void* handle = nullptr;
  OCTAVO_CHECK(api_->check(api_->function(&handle, module, function.c_str()), "finding kernel " + function));
  constexpr unsigned kBlock = 256;
  const auto blocks = static_cast<unsigned>((threads + kBlock - 1) / kBlock);
  void* arguments[] = {argument};
  OCTAVO_CHECK(
      api_->check(api_->launch(handle, blocks, 1, 1, kBlock, 1, 1, 0, nullptr, arguments, nullptr), "launching " + function));
  return api_->check(api_->synchronize(), "running " + function);
}

}  // namespace octavo::cuda
