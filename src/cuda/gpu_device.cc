#include "cuda/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cuda/driver_api.h"
#include "cuda/gpu_kernel.h"

namespace octavo::cuda {
namespace {

// CU_DEVICE_ATTRIBUTE_*, CU_FUNC_ATTRIBUTE_*, CU_STREAM_*
constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16, kSharedBytes = 97, kMaxDynamicShared = 8;
constexpr unsigned kNonBlocking = 1;
constexpr int kCaptureThread = 1;
constexpr std::int64_t kStaticShared = 48 << 10;  ///< more must be asked for
constexpr std::size_t kMostGraphs = 16;

std::byte* pointer(CuAddress a) {
  return reinterpret_cast<std::byte*>(a);  // NOLINT: an address of the device, never read here
}
CuAddress address(const std::byte* p) {
  return reinterpret_cast<CuAddress>(p);
}

class Gpu;

class GpuMemory final : public region::DeviceMemory {
 public:
  GpuMemory(const Gpu& gpu, CuAddress at) : gpu_(gpu), at_(at) {}
  ~GpuMemory() override;
  std::byte* address() const override { return pointer(at_); }

 private:
  const Gpu& gpu_;
  CuAddress at_;
};

class Gpu final : public region::Device {
 public:
  static Result<std::unique_ptr<Gpu>> open(int ordinal) {
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
    g->facts_.architecture = fmt::format("sm_{}{}{}", major, minor, major == 9 && minor == 0 ? "a" : "");
    g->facts_.shared_bytes = shared;
    OCTAVO_CHECK(g->enter());
    std::size_t free = 0, total = 0;
    OCTAVO_CHECK(api->check(api->memory_info(&free, &total), "reading the GPU's memory"));
    g->facts_.memory_bytes = static_cast<std::int64_t>(total);
    return g;
  }
  explicit Gpu(const DriverApi& api) : api_(api) {}

  [[nodiscard]] const GpuFacts& facts() const { return facts_; }
  [[nodiscard]] const DriverApi& api() const { return api_; }
  /// Makes the GPU's context current on this thread.
  [[nodiscard]] Status enter() const { return api_.check(api_.set_current(context_), "entering the GPU's context"); }

  std::string_view name() const override { return "cuda"; }

  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    OCTAVO_CHECK(enter());
    CuAddress at = 0;
    const std::size_t size = std::max<std::size_t>(bytes, 256);
    if (const int code = api_.allocate(&at, size); code != 0) {
      std::size_t free = 0, total = 0;
      api_.memory_info(&free, &total);
      const Status why = api_.check(code, "");
      return fail(ErrorKind::io,
                  fmt::format("allocating {:.1f} MiB on {}: {:.1f} of {:.1f} MiB are free{}",
                              static_cast<double>(bytes) / (1 << 20), facts_.name, static_cast<double>(free) / (1 << 20),
                              static_cast<double>(total) / (1 << 20), why.error().message));
    }
    auto memory = std::make_unique<GpuMemory>(*this, at);
    OCTAVO_CHECK(api_.check(api_.fill(at, 0, size), "clearing memory of the GPU"));
    return memory;
  }

  Status write(std::byte* to, std::span<const std::byte> from) const override {
    if (from.empty()) return {};
    OCTAVO_CHECK(enter());
    return api_.check(api_.to_device(cuda::address(to), from.data(), from.size()), "copying to the GPU");
  }
  Status read(std::span<std::byte> to, const std::byte* from) const override {
    if (to.empty()) return {};
    OCTAVO_CHECK(enter());
    return api_.check(api_.to_host(to.data(), cuda::address(from), to.size()), "copying from the GPU");
  }
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                     std::span<const region::Kernel* const> kernels) const override;

 private:
  const DriverApi& api_;
  CuContext context_ = nullptr;
  GpuFacts facts_;
};

GpuMemory::~GpuMemory() {
  if (gpu_.enter()) gpu_.api().release(at_);
}

/// A launch with its function found.
struct Ready {
  CuFunction function = nullptr;
  const Launch* launch = nullptr;
  CuAddress workspace = 0;
};

class GpuExecutor final : public region::Executor {
 public:
  explicit GpuExecutor(const Gpu& gpu, const region::Plan& plan)
      : gpu_(gpu), api_(gpu.api()), plan_(plan), ready_(plan.regions.size()) {}
  ~GpuExecutor() override {
    if (!gpu_.enter()) return;
    if (stream_ != nullptr) api_.synchronize(stream_);
    for (const Captured& c : graphs_) api_.destroy_exec(c.exec);
    for (const CuModule m : modules_) api_.unload(m);
    if (stream_ != nullptr) api_.destroy_stream(stream_);
  }

  Status prepare(std::span<const region::Kernel* const> kernels) {
    OCTAVO_CHECK(gpu_.enter());
    OCTAVO_CHECK(api_.check(api_.create_stream(&stream_, kNonBlocking), "making a stream"));
    std::map<const std::byte*, CuModule> loaded;  // regions of equal texts share their machine code
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const auto* k = dynamic_cast<const GpuKernel*>(kernels[i]);
      if (k == nullptr) continue;
      if (!k->architecture().empty() && k->architecture() != gpu_.facts().architecture)
        return fail(ErrorKind::unsupported, fmt::format("region \"{}\" needs {}, {} is {}", plan_.regions[i].name,
                                                        k->architecture(), gpu_.facts().name, gpu_.facts().architecture));
      CuAddress workspace = 0;
      if (k->workspace_bytes() > 0) {
        OCTAVO_TRY(auto memory, gpu_.allocate(static_cast<std::size_t>(k->workspace_bytes())));
        workspace = address(memory->address());
        workspaces_.push_back(std::move(memory));
      }
      for (const RegionKernels::Start& s : k->starts()) {
        const auto code = k->modules()[static_cast<std::size_t>(s.module)];
        CuModule& module = loaded[code.data()];
        if (module == nullptr) {
          OCTAVO_CHECK(api_.check(api_.load(&module, code.data()),
                                  fmt::format("loading the machine code of \"{}\"", plan_.regions[i].name)));
          modules_.push_back(module);
        }
        Ready r{nullptr, &s.launch, workspace};
        OCTAVO_CHECK(api_.check(api_.function(&r.function, module, s.launch.function.c_str()),
                                fmt::format("finding kernel {}", s.launch.function)));
        if (s.launch.shared_bytes > kStaticShared)
          OCTAVO_CHECK(api_.check(api_.set_attribute(r.function, kMaxDynamicShared, static_cast<int>(s.launch.shared_bytes)),
                                  fmt::format("asking for {} bytes of shared memory", s.launch.shared_bytes)));
        ready_[i].push_back(r);
      }
    }
    return {};
  }

  /// Transfers go into the stream one by one, what lies between them as a captured graph.
  Status start(std::size_t first, std::size_t last, const region::Memory& memory, void* stream) override {
    OCTAVO_CHECK(gpu_.enter());
    used_ = stream != nullptr ? stream : stream_;
    for (std::size_t i = first; i < last;) {
      if (region::is_transfer(plan_.regions[i], plan_)) {
        OCTAVO_CHECK(transfer(plan_.regions[i], memory));
        ++i;
        continue;
      }
      std::size_t end = i + 1;
      while (end < last && !region::is_transfer(plan_.regions[end], plan_)) ++end;
      OCTAVO_CHECK(replay(i, end, memory));
      i = end;
    }
    return {};
  }

  Status wait() override {
    OCTAVO_CHECK(gpu_.enter());
    return api_.check(api_.synchronize(used_ != nullptr ? used_ : stream_), "waiting for the GPU");
  }

 private:
  struct Key {
    std::size_t first, last;
    std::vector<std::byte*> addresses;
    bool operator==(const Key&) const = default;
  };
  struct Captured {
    Key key;
    CuGraphExec exec = nullptr;  ///< null: the regions launch nothing
  };

  Status transfer(const region::Region& r, const region::Memory& memory) const {
    const region::TensorRef &from = r.stages[0].anchor.inputs[0], &to = r.stages[0].stores[0];
    const auto bytes = static_cast<std::size_t>(ir::count(to.dims)) * ir::size_of(to.dtype);
    if (bytes == 0) return {};
    const bool up = plan_.buffers[static_cast<std::size_t>(from.buffer)].space == region::kHost;
    return up ? api_.check(api_.to_device_async(address(memory.at(to)), memory.at(from), bytes, used_), "copying to the GPU")
              : api_.check(api_.to_host_async(memory.at(to), address(memory.at(from)), bytes, used_), "copying from the GPU");
  }

  Status replay(std::size_t first, std::size_t last, const region::Memory& memory) {
    Key key{first, last, {}};
    for (std::size_t i = first; i < last; ++i) {
      for (const Ready& r : ready_[i]) {
        for (const Parameter& p : r.launch->parameters) {
          if (p.kind == Parameter::Kind::buffer) key.addresses.push_back(memory.base[static_cast<std::size_t>(p.index)]);
        }
      }
    }
    auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Captured& c) { return c.key == key; });
    if (found == graphs_.end()) {
      OCTAVO_CHECK(capture(key, memory));
      found = std::prev(graphs_.end());
    }
    if (found->exec == nullptr) return {};
    return api_.check(api_.launch_graph(found->exec, used_), "starting the captured graph");
  }

  Status capture(const Key& key, const region::Memory& memory) {
    if (graphs_.size() == kMostGraphs) {  // the oldest goes, when what it runs is done
      OCTAVO_CHECK(wait());
      if (graphs_.front().exec != nullptr) api_.destroy_exec(graphs_.front().exec);
      graphs_.erase(graphs_.begin());
    }
    Captured c{key, nullptr};
    std::size_t launches = 0;
    for (std::size_t i = key.first; i < key.last; ++i) launches += ready_[i].size();
    if (launches > 0) {
      CuGraph graph = nullptr;
      OCTAVO_CHECK(api_.check(api_.begin_capture(stream_, kCaptureThread), "beginning a captured graph"));
      Status launched;
      for (std::size_t i = key.first; i < key.last && launched; ++i) {
        for (const Ready& r : ready_[i]) {
          if (launched) launched = launch(r, memory, plan_.regions[i].name);
        }
      }
      const Status ended = api_.check(api_.end_capture(stream_, &graph), "ending a captured graph");
      OCTAVO_CHECK(launched);
      OCTAVO_CHECK(ended);
      const Status made = api_.check(api_.instantiate(&c.exec, graph, 0), "making a captured graph ready");
      api_.destroy_graph(graph);
      OCTAVO_CHECK(made);
    }
    graphs_.push_back(std::move(c));
    return {};
  }

  Status launch(const Ready& r, const region::Memory& memory, const std::string& name) const {
    std::vector<CuAddress> values;
    std::vector<void*> parameters;
    for (const Parameter& p : r.launch->parameters) {
      const CuAddress base =
          p.kind == Parameter::Kind::workspace ? r.workspace : address(memory.base[static_cast<std::size_t>(p.index)]);
      values.push_back(base + static_cast<CuAddress>(p.offset));
    }
    for (CuAddress& v : values) parameters.push_back(&v);
    const auto part = [](int v) { return static_cast<unsigned>(v); };
    const auto &g = r.launch->grid, &b = r.launch->block;
    return api_.check(api_.launch(r.function, part(g[0]), part(g[1]), part(g[2]), part(b[0]), part(b[1]), part(b[2]),
                                  static_cast<unsigned>(r.launch->shared_bytes), stream_, parameters.data(), nullptr),
                      fmt::format("launching {} of \"{}\"", r.launch->function, name));
  }

  const Gpu& gpu_;
  const DriverApi& api_;
  const region::Plan& plan_;
  CuStream stream_ = nullptr, used_ = nullptr;
  std::vector<std::vector<Ready>> ready_;  ///< by region
  std::vector<CuModule> modules_;
  std::vector<std::unique_ptr<region::DeviceMemory>> workspaces_;
  std::vector<Captured> graphs_;
};

Result<std::unique_ptr<region::Executor>> Gpu::executor(const region::Plan& plan,
                                                        std::span<const region::Kernel* const> kernels) const {
  auto e = std::make_unique<GpuExecutor>(*this, plan);
  OCTAVO_CHECK(e->prepare(kernels));
  return e;
}

Result<const Gpu*> opened(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Result<std::unique_ptr<Gpu>>> all;
  const std::lock_guard lock(mutex);
  auto at = all.find(ordinal);
  if (at == all.end()) at = all.emplace(ordinal, Gpu::open(ordinal)).first;
  if (!at->second) return tl::unexpected(at->second.error());
  return at->second->get();
}

/// Opens the GPU when something is asked of it: who only loads engines of the host never starts the driver.
class LazyGpu final : public region::Device {
 public:
  explicit LazyGpu(int ordinal) : ordinal_(ordinal) {}
  std::string_view name() const override { return "cuda"; }
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

}  // namespace octavo::cuda
