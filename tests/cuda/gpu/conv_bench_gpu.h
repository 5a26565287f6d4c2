// The GPU as conv_bench.cc and matmul_bench.cc use it: the driver's functions, kernels that are compiled and loaded, buffers on the device, times.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/conv_scene.h"
#include "cuda/device/encoded_image.h"
#include "cuda/device/library.h"
#include "cuda/device/nvrtc.h"
#include "cuda/family.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::cuda {

using testing::ConvCase;
using testing::ConvScene;

inline void must(int code, const char* what) {
  if (code == 0) return;
  fmt::print(stderr, "{}: CUDA error {}\n", what, code);
  std::exit(3);
}

/// The driver, as far as it is used here.
struct Gpu {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(std::uint64_t*, std::size_t);
  int (*release)(std::uint64_t);
  int (*to_device)(std::uint64_t, const void*, std::size_t);
  int (*to_host)(void*, std::uint64_t, std::size_t);
  int (*fill)(std::uint64_t, unsigned char, std::size_t);
  int (*load)(void**, const void*);
  int (*unload)(void*);
  int (*function)(void**, void*, const char*);
  int (*set_attribute)(void*, int, int);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*synchronize)();
  int (*stream)(void**, unsigned);
  int (*begin)(void*, int);
  int (*end)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*graph_launch)(void*, void*);
  int (*graph_destroy)(void*);
  int (*exec_destroy)(void*);
  int (*event)(void**, unsigned);
  int (*record)(void*, void*);
  int (*event_wait)(void*);
  int (*elapsed)(float*, void*, void*);
  int (*driver)(int*);
  void* queue = nullptr;
  void *from = nullptr, *to = nullptr;
  std::string name;
  Architecture architecture;
  int processors = 0, driver_version = 0;

  bool open() {
    static const Library l({"libcuda.so.1"});
    const bool all = l.get("cuInit", init) && l.get("cuDeviceGet", device_get) && l.get("cuDeviceGetName", device_name) &&
                     l.get("cuDeviceGetAttribute", attribute) && l.get("cuDevicePrimaryCtxRetain", retain) &&
                     l.get("cuCtxSetCurrent", set_current) && l.get("cuMemAlloc_v2", allocate) && l.get("cuMemFree_v2", release) &&
                     l.get("cuMemcpyHtoD_v2", to_device) && l.get("cuMemcpyDtoH_v2", to_host) && l.get("cuMemsetD8_v2", fill) &&
                     l.get("cuModuleLoadData", load) && l.get("cuModuleUnload", unload) && l.get("cuModuleGetFunction", function) &&
                     l.get("cuFuncSetAttribute", set_attribute) && l.get("cuLaunchKernel", launch) &&
                     l.get("cuCtxSynchronize", synchronize) && l.get("cuStreamCreate", stream) &&
                     l.get("cuStreamBeginCapture_v2", begin) && l.get("cuStreamEndCapture", end) &&
                     l.get("cuGraphInstantiateWithFlags", instantiate) && l.get("cuGraphLaunch", graph_launch) &&
                     l.get("cuGraphDestroy", graph_destroy) && l.get("cuGraphExecDestroy", exec_destroy) &&
                     l.get("cuEventCreate", event) && l.get("cuEventRecord", record) && l.get("cuEventSynchronize", event_wait) &&
                     l.get("cuEventElapsedTime", elapsed) && l.get("cuDriverGetVersion", driver);
    if (!all) return false;
    int device = 0, major = 0, minor = 0;
    char text[256] = {};
    void* context = nullptr;
    if (init(0) != 0 || device_get(&device, 0) != 0) return false;
    device_name(text, sizeof text, device);
    attribute(&major, 75, device), attribute(&minor, 76, device), attribute(&processors, 16, device);
    must(retain(&context, device), "context");
    must(set_current(context), "context");
    must(stream(&queue, 1), "stream");
    must(event(&from, 0), "event");
    must(event(&to, 0), "event");
    driver(&driver_version);
    name = text, architecture = {major * 10 + minor, major >= 9};
    return true;
  }
  std::uint64_t make(std::size_t bytes) const {
    std::uint64_t p = 0;
    must(allocate(&p, std::max<std::size_t>(bytes, 256)), "allocating");
    return p;
  }
};

/// Opens the GPU and prints what it is; its target. Nothing, with the reason on stderr, where there is no GPU or no compiler: programs then end with code 3.
inline std::optional<Target> open_and_say(Gpu& gpu) {
  if (!gpu.open()) {
    fmt::print(stderr, "no GPU, or its driver lacks a function\n");
    return std::nullopt;
  }
  const auto version = compiler_version();
  if (!version) {
    fmt::print(stderr, "{}\n", version.error().message);
    return std::nullopt;
  }
  fmt::print("{} ({}, {} multiprocessors), driver {}, NVRTC {}\n", gpu.name, gpu.architecture.text(), gpu.processors,
             gpu.driver_version, *version);
  Target target;
  target.architecture = gpu.architecture, target.multiprocessors = gpu.processors;
  return target;
}

struct Attempt {
  const Family* family = nullptr;
  Parameters parameters;
  double estimate = 0, seconds = -1;
  KernelText text;
  std::string cubin, trouble;
};

inline std::string name_of(const Attempt& a) {
  std::string out(a.family->name());
  for (const auto& [name, value] : a.parameters) out += " " + name + "=" + value;
  return out;
}

/// Compiles all on all cores.
inline void compile_all(std::vector<Attempt>& all, Architecture architecture) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < all.size();) {
      if (!all[i].trouble.empty()) continue;
      auto code = compile(emit_prelude() + all[i].text.text, compile_options(architecture));
      if (code)
        all[i].cubin = std::move(code->cubin);
      else
        all[i].trouble = code.error().message;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
  for (auto& t : threads) t.join();
}

/// Device copies of a scene's buffers; `sets` of them.
struct OnDevice {
  const Gpu& gpu;
  std::vector<std::vector<std::uint64_t>> sets;
  std::vector<std::size_t> bytes;
  OnDevice(const Gpu& g, const ConvScene& s, int count) : OnDevice(g, s.plan, s.memory, 0, count) {}
  /// `memory[b]` has `guard` bytes in front of buffer b, and 64 bytes or more behind it; or is empty.
  OnDevice(const Gpu& g, const region::Plan& plan, const std::vector<std::vector<std::byte>>& memory, std::size_t guard, int count)
      : gpu(g) {
    for (const auto& b : plan.buffers) bytes.push_back(static_cast<std::size_t>(b.bytes) + 64);
    for (int k = 0; k < count; ++k) {
      sets.emplace_back();
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        sets.back().push_back(gpu.make(bytes[i]));
        if (!memory[i].empty()) must(gpu.to_device(sets.back()[i], memory[i].data() + guard, bytes[i]), "copying");
      }
    }
  }
  ~OnDevice() {
    for (auto& set : sets) {
      for (auto p : set) gpu.release(p);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

/// A loaded attempt.
class Loaded {
 public:
  Loaded(const Gpu& g, const Attempt& a) : gpu_(g), text_(a.text) {
    must(gpu_.load(&module_, a.cubin.data()), "loading");
    for (const auto& t : text_.constants) {
      constants_.push_back(gpu_.make(t.bytes().size()));
      must(gpu_.to_device(constants_.back(), t.bytes().data(), t.bytes().size()), "constants");
    }
    workspace_ = gpu_.make(static_cast<std::size_t>(text_.workspace_bytes));
    must(gpu_.fill(workspace_, 0, std::max<std::size_t>(static_cast<std::size_t>(text_.workspace_bytes), 256)), "workspace");
    for (const Launch& l : text_.launches) {
      void* f = nullptr;
      must(gpu_.function(&f, module_, l.function.c_str()), "function");
      must(gpu_.set_attribute(f, 8, static_cast<int>(l.shared_bytes)), "shared memory");
      functions_.push_back(f);
    }
  }
  ~Loaded() {
    for (auto p : constants_) gpu_.release(p);
    gpu_.release(workspace_);
    gpu_.unload(module_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  void launch(const std::vector<std::uint64_t>& buffers) const {
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const Launch& l = text_.launches[i];
      std::vector<std::uint64_t> values;
      for (const Argument& p : l.arguments) {
        const std::uint64_t base = p.kind == Argument::Kind::number     ? 0
                                   : p.kind == Argument::Kind::buffer   ? buffers[static_cast<std::size_t>(p.index)]
                                   : p.kind == Argument::Kind::constant ? constants_[static_cast<std::size_t>(p.index)]
                                                                        : workspace_;
        values.push_back(base + static_cast<std::uint64_t>(p.offset));
      }
      std::vector<void*> arguments;
      std::deque<EncodedImage> images;
      for (std::size_t k = 0; k < values.size(); ++k) {
        const std::int32_t image = l.arguments[k].image;
        if (image < 0) {
          arguments.push_back(&values[k]);
          continue;
        }
        const auto encoded = encode(l.images[static_cast<std::size_t>(image)], values[k], **driver_api());
        if (!encoded) fmt::print(stderr, "{}\n", encoded.error().message), std::exit(3);
        arguments.push_back(&images.emplace_back(*encoded));
      }
      const auto u = [](int v) { return static_cast<unsigned>(v); };
      must(gpu_.launch(functions_[i], u(l.grid[0]), u(l.grid[1]), u(l.grid[2]), u(l.block[0]), u(l.block[1]), u(l.block[2]),
                       static_cast<unsigned>(l.shared_bytes), gpu_.queue, arguments.data(), nullptr),
           "launching");
    }
  }

 private:
  const Gpu& gpu_;
  const KernelText& text_;
  void* module_ = nullptr;
  std::vector<void*> functions_;
  std::vector<std::uint64_t> constants_;
  std::uint64_t workspace_ = 0;
};

inline double time_of(const Gpu& gpu, const Loaded& kernel, const OnDevice& device) {
  const int launches = 16;
  void *graph = nullptr, *exec = nullptr;
  must(gpu.begin(gpu.queue, 2), "capture");
  for (int i = 0; i < launches; ++i) kernel.launch(device.sets[static_cast<std::size_t>(i) % device.sets.size()]);
  must(gpu.end(gpu.queue, &graph), "capture");
  must(gpu.instantiate(&exec, graph, 0), "graph");
  std::vector<float> times;
  for (int r = 0; r < 7; ++r) {
    must(gpu.record(gpu.from, gpu.queue), "event");
    must(gpu.graph_launch(exec, gpu.queue), "graph");
    must(gpu.record(gpu.to, gpu.queue), "event");
    must(gpu.event_wait(gpu.to), "event");
    float ms = 0;
    gpu.elapsed(&ms, gpu.from, gpu.to);
    if (r >= 2) times.push_back(ms);
  }
  gpu.exec_destroy(exec);
  gpu.graph_destroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3 / launches;
}

}  // namespace octavo::cuda
