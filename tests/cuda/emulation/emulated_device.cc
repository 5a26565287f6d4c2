#include "cuda/emulation/emulated_device.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "cuda/device/gpu_kernel.h"
#include "cuda/emulation/emulator.h"
#include "cuda/emulation/image.h"

namespace octavo::testing {
namespace {

class Bytes final : public region::DeviceMemory {
 public:
  explicit Bytes(std::byte* at) : at_(at) {}
  std::byte* address() const override { return at_; }

 private:
  std::byte* at_;  ///< of the device's memory, which goes as a whole
};

class Emulated final : public region::Device {
 public:
  std::string_view name() const override { return "cuda"; }
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    return std::make_unique<Bytes>(memory_.allocate("memory of the emulated GPU", bytes, true));
  }
  Status write(std::byte* to, std::span<const std::byte> from) const override {
    std::memcpy(to, from.data(), from.size());
    return {};
  }
  Status read(std::span<std::byte> to, const std::byte* from) const override {
    std::memcpy(to.data(), from, to.size());
    return {};
  }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte>) const override { return std::shared_ptr<const void>(); }
  void expect_transfers(std::span<const std::size_t>) const override {}
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                     std::span<const region::Kernel* const> kernels) const override;
  GlobalMemory& memory() const { return memory_; }

 private:
  mutable GlobalMemory memory_;
};

class EmulatedExecutor final : public region::Executor {
 public:
  EmulatedExecutor(const Emulated& device, const region::Plan& plan, std::span<const region::Kernel* const> kernels)
      : device_(device), plan_(plan), kernels_(kernels.begin(), kernels.end()), workspaces_(kernels.size()) {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const auto* k = dynamic_cast<const cuda::GpuKernel*>(kernels_[i]);
      if (k == nullptr || k->workspace_bytes() == 0) continue;
      workspaces_[i] = device.memory().allocate("a workspace", static_cast<std::size_t>(k->workspace_bytes()), true);
    }
  }

  Status start(std::size_t first, std::size_t last, const region::Memory& memory, void*) override {
    for (std::size_t i = first; i < last; ++i) {
      const region::Region& r = plan_.regions[i];
      if (region::is_transfer(r, plan_)) {
        const region::TensorRef &from = r.stages[0].anchor.inputs[0], &to = r.stages[0].stores[0];
        std::memcpy(memory.at(to), memory.at(from), static_cast<std::size_t>(ir::count(to.dims)) * ir::size_of(to.dtype));
        continue;
      }
      const auto* k = dynamic_cast<const cuda::GpuKernel*>(kernels_[i]);
      if (k == nullptr) return fail(ErrorKind::internal, "region \"" + r.name + "\" has no kernel of a GPU");
      for (const cuda::RegionKernels::Start& s : k->starts()) OCTAVO_CHECK(run(*k, s, memory, i));
    }
    return {};
  }
  Status wait() override { return {}; }
  void compute_all() override {
    constexpr std::int64_t kBeyond = std::int64_t{1} << 40;
    all_ = true;
    beyond_ = device_.memory().allocate("a count beyond all", sizeof kBeyond, true);
    std::memcpy(beyond_, &kBeyond, sizeof kBeyond);
  }

 private:
  Status run(const cuda::GpuKernel& k, const cuda::RegionKernels::Start& s, const region::Memory& memory, std::size_t region) {
    const auto code = k.modules()[static_cast<std::size_t>(s.module)];
    auto& library = libraries_[code.data()];
    if (library == nullptr) {
      OCTAVO_TRY(library, emulate({reinterpret_cast<const char*>(code.data()), code.size()}));
    }
    OCTAVO_TRY(const HostKernel kernel, library->find(s.launch.function));
    std::vector<void*> parameters;
    std::deque<OctavoImage> images;
    for (const cuda::Argument& p : s.launch.arguments) {
      if (p.kind == cuda::Argument::Kind::number || p.kind == cuda::Argument::Kind::next) {
        parameters.push_back(reinterpret_cast<void*>(p.offset));  // NOLINT: eight bytes
        continue;
      }
      if (p.kind == cuda::Argument::Kind::count && all_) {
        parameters.push_back(beyond_);
        continue;
      }
      std::byte* base =
          p.kind == cuda::Argument::Kind::workspace ? workspaces_[region] : memory.base[static_cast<std::size_t>(p.index)];
      if (p.image >= 0) {
        images.push_back(emulated_image(s.launch.images[static_cast<std::size_t>(p.image)], base + p.offset));
        parameters.push_back(&images.back());
        continue;
      }
      parameters.push_back(base + p.offset);
    }
    const Grid grid{s.launch.grid, s.launch.block, static_cast<std::size_t>(s.launch.shared_bytes)};
    const std::string wrong = run_grid(kernel, grid, parameters, device_.memory());
    if (wrong.empty()) return {};
    return fail(ErrorKind::internal, "region \"" + plan_.regions[region].name + "\": " + wrong);
  }

  const Emulated& device_;
  const region::Plan& plan_;
  std::vector<const region::Kernel*> kernels_;
  std::vector<std::byte*> workspaces_;
  bool all_ = false;
  std::byte* beyond_ = nullptr;  ///< a count beyond all, for compute_all
  std::map<const std::byte*, std::shared_ptr<const EmulatedLibrary>> libraries_;
};

Result<std::unique_ptr<region::Executor>> Emulated::executor(const region::Plan& plan,
                                                             std::span<const region::Kernel* const> kernels) const {
  return std::make_unique<EmulatedExecutor>(*this, plan, kernels);
}

}  // namespace

std::unique_ptr<const region::Device> emulated_device() {
  return std::make_unique<Emulated>();
}

}  // namespace octavo::testing
