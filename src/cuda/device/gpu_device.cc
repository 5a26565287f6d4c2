#include "cuda/device/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/build_work.h"
#include "base/first_run.h"
#include "cuda/device/gpu.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/device/nvrtc.h"

namespace octavo::cuda {
namespace {

// CU_DEVICE_ATTRIBUTE_*
constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16, kSharedBytes = 97, kClock = 13, kMemoryClock = 36;

class GpuMemory final : public region::DeviceMemory {
 public:
  GpuMemory(const Gpu& gpu, CuAddress at) : gpu_(gpu), at_(at) {}
  ~GpuMemory() override {
    if (gpu_.enter()) gpu_.api().release(at_);
  }
  std::byte* address() const override { return pointer(at_); }

 private:
  const Gpu& gpu_;
  CuAddress at_;
};

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(int ordinal) {
  OCTAVO_TRY(const DriverApi* api, driver_api());
  auto g = std::make_unique<Gpu>(*api);
  int count = 0, device = 0, major = 0, minor = 0, shared = 0;
  OCTAVO_CHECK(api->check(api->device_count(&count), "counting the GPUs"));
  if (ordinal < 0 || ordinal >= count)
    return fail(ErrorKind::unsupported, fmt::format("opening GPU {}: there {} {}", ordinal, count == 1 ? "is" : "are", count));
  char name[256] = {};
  OCTAVO_CHECK(api->check(api->device_get(&device, ordinal), fmt::format("opening GPU {}", ordinal)));
  OCTAVO_CHECK(api->check(api->device_name(name, sizeof name, device), "reading the GPU's name"));
  OCTAVO_CHECK(api->check(api->attribute(&major, kMajor, device), "reading the compute capability"));
  OCTAVO_CHECK(api->check(api->attribute(&minor, kMinor, device), "reading the compute capability"));
  OCTAVO_CHECK(api->check(api->attribute(&g->facts_.multiprocessors, kMultiprocessors, device), "reading the multiprocessors"));
  OCTAVO_CHECK(api->check(api->attribute(&shared, kSharedBytes, device), "reading the shared memory"));
  OCTAVO_CHECK(api->check(api->retain(&g->context_, device), "retaining the GPU's context"));
  g->facts_.name = name;
  g->facts_.architecture = {major * 10 + minor, major == 9 && minor == 0};
  g->facts_.shared_bytes = shared;
  OCTAVO_CHECK(g->enter());
  std::size_t free = 0, total = 0;
  OCTAVO_CHECK(api->check(api->memory_info(&free, &total), "reading the GPU's memory"));
  g->facts_.memory_bytes = static_cast<std::int64_t>(total);
  int version = 0, clock = 0, memory_clock = 0;  // 1000 * major + 10 * minor; kHz
  OCTAVO_CHECK(api->check(api->driver_version(&version), "reading the driver's version"));
  OCTAVO_CHECK(api->check(api->attribute(&clock, kClock, device), "reading the clock"));
  OCTAVO_CHECK(api->check(api->attribute(&memory_clock, kMemoryClock, device), "reading the memory's clock"));
  g->facts_.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  g->facts_.clock_mhz = clock / 1000, g->facts_.memory_clock_mhz = memory_clock / 1000;
  return g;
}
Result<std::string> Gpu::description() const {
  OCTAVO_TRY(const std::string compiler, compiler_version());
  return fmt::format("{}; {}, {} multiprocessors, clocks up to {} and {} MHz; driver {}, NVRTC {}", facts_.name,
                     facts_.architecture.text(), facts_.multiprocessors, facts_.clock_mhz, facts_.memory_clock_mhz, facts_.driver,
                     compiler);
}

// Both return before the GPU is done (the memset always, the copy once the bytes are staged), on the default stream, which the executors' streams
// do not wait for: a kernel could read what was there before, and a late memset could clear an input that has arrived.
Status Gpu::finished(int code, std::string_view what) const {
  OCTAVO_CHECK(api_.check(code, what));
  return api_.check(api_.synchronize(nullptr), what);
}

Result<std::unique_ptr<region::DeviceMemory>> Gpu::allocate(std::size_t bytes) const {
  const RunPartTimer timer(RunPart::allocate);
  OCTAVO_CHECK(enter());
  CuAddress at = 0;
  const std::size_t size = std::max<std::size_t>(bytes, 256);
  if (const int code = api_.allocate(&at, size); code != 0) {
    std::size_t free = 0, total = 0;
    api_.memory_info(&free, &total);
    const Status why = api_.check(code, "");
    return fail(ErrorKind::io,
                fmt::format("allocating {:.1f} MiB on {}: {:.1f} of {:.1f} MiB are free{}", static_cast<double>(bytes) / (1 << 20),
                            facts_.name, static_cast<double>(free) / (1 << 20), static_cast<double>(total) / (1 << 20),
                            why.error().message));
  }
  auto memory = std::make_unique<GpuMemory>(*this, at);
  OCTAVO_CHECK(finished(api_.fill(at, 0, size), "clearing memory of the GPU"));
  return memory;
}

LoadedModule::~LoadedModule() {
  if (gpu_.enter()) gpu_.api().unload(module_);
}

Result<std::shared_ptr<const LoadedModule>> Gpu::load(const std::byte* code, const std::string& who) const {
  OCTAVO_CHECK(enter());
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const LoadedModule>& known = loaded_[code];
  if (auto module = known.lock()) return module;
  CuModule handle = nullptr;
  OCTAVO_CHECK(api_.check(api_.load(&handle, code), fmt::format("loading the machine code of \"{}\"", who)));
  auto module = std::make_shared<const LoadedModule>(*this, handle);
  known = module;
  std::erase_if(loaded_, [](const auto& m) { return m.second.expired(); });
  return module;
}

Result<std::shared_ptr<const void>> Gpu::hold(std::span<const std::byte> code) const {
  std::vector<std::shared_ptr<const LoadedModule>> all;
  OCTAVO_TRY(const auto modules, split_modules(code));
  for (const auto m : modules) {
    OCTAVO_TRY(all.emplace_back(), load(m.data(), "an open model"));
  }
  return std::shared_ptr<const void>(std::make_shared<decltype(all)>(std::move(all)));
}

void Gpu::expect_transfers(std::span<const std::size_t> bytes) const {
  if (enter()) pinned_.reserve(bytes);
}

Status Gpu::write(std::byte* to, std::span<const std::byte> from) const {
  if (from.empty()) return {};
  OCTAVO_CHECK(enter());
  return finished(api_.to_device(cuda::address(to), from.data(), from.size()), "copying to the GPU");
}
Status Gpu::read(std::span<std::byte> to, const std::byte* from) const {
  if (to.empty()) return {};
  OCTAVO_CHECK(enter());
  return api_.check(api_.to_host(to.data(), cuda::address(from), to.size()), "copying from the GPU");
}

namespace {

Result<const Gpu*> opened(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Result<std::unique_ptr<Gpu>>> all;
  const std::lock_guard lock(mutex);
  auto at = all.find(ordinal);
  if (at == all.end()) {
    const BuildTimer timer(&BuildWork::open);
    at = all.emplace(ordinal, Gpu::open(ordinal)).first;
  }
  if (!at->second) return tl::unexpected(at->second.error());
  return at->second->get();
}

/// Opens the GPU when something is asked of it: who only loads engines of the host never starts the driver.
class LazyGpu final : public region::Device {
 public:
  explicit LazyGpu(int ordinal) : ordinal_(ordinal) {}
  std::string_view name() const override { return "cuda"; }
  Result<std::string> description() const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->description();
  }
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->allocate(bytes);
  }
  Status write(std::byte* to, std::span<const std::byte> from) const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->write(to, from);
  }
  Status read(std::span<std::byte> to, const std::byte* from) const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->read(to, from);
  }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte> code) const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->hold(code);
  }
  void expect_transfers(std::span<const std::size_t> bytes) const override {
    if (const auto g = opened(ordinal_)) (*g)->expect_transfers(bytes);
  }
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                     std::span<const region::Kernel* const> kernels) const override {
    OCTAVO_TRY(const Gpu* g, opened(ordinal_));
    return g->executor(plan, kernels);
  }

 private:
  int ordinal_;
};

}  // namespace

const region::Device& gpu(int ordinal) {
  static std::mutex mutex;
  static std::map<int, LazyGpu> all;
  const std::lock_guard lock(mutex);
  return all.try_emplace(ordinal, ordinal).first->second;
}

Result<GpuFacts> gpu_facts(int ordinal) {
  OCTAVO_TRY(const Gpu* g, opened(ordinal));
  return g->facts();
}

Status check_gpu_for_builds(int ordinal) {
  const auto facts = gpu_facts(ordinal);
  if (facts) return {};
  return fail(
      facts.error().kind,
      facts.error().message + "\n  to build for a GPU that is not here, name it: --gpu sm_90 (device \"cuda:sm_90\"), at effort 0");
}

Result<int> gpu_count() {
  OCTAVO_TRY(const DriverApi* api, driver_api());
  int count = 0;
  OCTAVO_CHECK(api->check(api->device_count(&count), "counting the GPUs"));
  return count;
}

std::string why_unsupported(const GpuFacts& facts) {
  constexpr int kLeast = 75;  // the first with products of bytes (mma.m8n8k16) and ldmatrix
  const Architecture& have = facts.architecture;
  if (have.sm == 0) return "its architecture is not known";
  return have.sm >= kLeast ? "" : fmt::format("{}: the kernels need sm_{} or later", have.text(), kLeast);
}

}  // namespace octavo::cuda
