// The CUDA driver's C functions as far as they are used, opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo::cuda {

// Types of the driver: its headers are not needed to build.
using CuContext = void*;
using CuModule = void*;
using CuFunction = void*;
using CuStream = void*;
using CuGraph = void*;
using CuGraphExec = void*;
using CuEvent = void*;
using CuAddress = std::uint64_t;

/// One attribute of a launch, and how a kernel is launched with some (CUlaunchAttribute, CUlaunchConfig).
struct CuLaunchAttribute {
  int id = 0;
  char gap[4] = {};
  union {
    char bytes[64] = {};
    int number;
  };
};
struct CuLaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  CuStream stream = nullptr;
  CuLaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

/// OCTAVO_CUDA_FUNCTION(member, symbol, parameters): each returns 0 for success.
#define OCTAVO_CUDA_FUNCTIONS(F)                                                                                          \
  F(init, "cuInit", (unsigned))                                                                                           \
  F(driver_version, "cuDriverGetVersion", (int*))                                                                         \
  F(device_count, "cuDeviceGetCount", (int*))                                                                             \
  F(device_get, "cuDeviceGet", (int*, int))                                                                               \
  F(device_name, "cuDeviceGetName", (char*, int, int))                                                                    \
  F(attribute, "cuDeviceGetAttribute", (int*, int, int))                                                                  \
  F(retain, "cuDevicePrimaryCtxRetain", (CuContext*, int))                                                                \
  F(set_current, "cuCtxSetCurrent", (CuContext))                                                                          \
  F(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                                                         \
  F(allocate, "cuMemAlloc_v2", (CuAddress*, std::size_t))                                                                 \
  F(release, "cuMemFree_v2", (CuAddress))                                                                                 \
  F(to_device, "cuMemcpyHtoD_v2", (CuAddress, const void*, std::size_t))                                                  \
  F(to_host, "cuMemcpyDtoH_v2", (void*, CuAddress, std::size_t))                                                          \
  F(to_device_async, "cuMemcpyHtoDAsync_v2", (CuAddress, const void*, std::size_t, CuStream))                             \
  F(to_host_async, "cuMemcpyDtoHAsync_v2", (void*, CuAddress, std::size_t, CuStream))                                     \
  F(copy_async, "cuMemcpyAsync", (CuAddress, CuAddress, std::size_t, CuStream))                                           \
  F(pin, "cuMemHostAlloc", (void**, std::size_t, unsigned))                                                               \
  F(unpin, "cuMemFreeHost", (void*))                                                                                      \
  F(pointer_attributes, "cuPointerGetAttributes", (unsigned, int*, void**, CuAddress))                                    \
  F(fill, "cuMemsetD8_v2", (CuAddress, unsigned char, std::size_t))                                                       \
  F(load, "cuModuleLoadData", (CuModule*, const void*))                                                                   \
  F(unload, "cuModuleUnload", (CuModule))                                                                                 \
  F(function, "cuModuleGetFunction", (CuFunction*, CuModule, const char*))                                                \
  F(set_attribute, "cuFuncSetAttribute", (CuFunction, int, int))                                                          \
  F(launch_with, "cuLaunchKernelEx", (const CuLaunchConfig*, CuFunction, void**, void**))                                 \
  F(create_event, "cuEventCreate", (CuEvent*, unsigned))                                                                  \
  F(destroy_event, "cuEventDestroy_v2", (CuEvent))                                                                        \
  F(record, "cuEventRecord", (CuEvent, CuStream))                                                                         \
  F(await_event, "cuEventSynchronize", (CuEvent))                                                                         \
  F(elapsed, "cuEventElapsedTime", (float*, CuEvent, CuEvent))                                                            \
  F(create_stream, "cuStreamCreate", (CuStream*, unsigned))                                                               \
  F(destroy_stream, "cuStreamDestroy_v2", (CuStream))                                                                     \
  F(synchronize, "cuStreamSynchronize", (CuStream))                                                                       \
  F(begin_capture, "cuStreamBeginCapture_v2", (CuStream, int))                                                            \
  F(end_capture, "cuStreamEndCapture", (CuStream, CuGraph*))                                                              \
  F(instantiate, "cuGraphInstantiateWithFlags", (CuGraphExec*, CuGraph, unsigned long long))                              \
  F(launch_graph, "cuGraphLaunch", (CuGraphExec, CuStream))                                                               \
  F(destroy_graph, "cuGraphDestroy", (CuGraph))                                                                           \
  F(destroy_exec, "cuGraphExecDestroy", (CuGraphExec))                                                                    \
  F(error_text, "cuGetErrorString", (int, const char**))                                                                  \
  F(encode_im2col, "cuTensorMapEncodeIm2col",                                                                             \
    (void*, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*, const int*, const int*, unsigned, unsigned, \
     const unsigned*, int, int, int, int))

struct DriverApi {
#define OCTAVO_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  OCTAVO_CUDA_FUNCTIONS(OCTAVO_MEMBER)
#undef OCTAVO_MEMBER
  /// The driver's words for a code that is not 0. `io` when memory ran out, `unsupported` otherwise.
  [[nodiscard]] Status check(int code, std::string_view doing) const;
};

/// Opened once and started. Error: `unsupported`, why there is none.
[[nodiscard]] Result<const DriverApi*> driver_api();
/// Where the driver's library lies. Error: `unsupported`, there is none.
[[nodiscard]] Result<std::string> driver_path();

}  // namespace octavo::cuda
