// Runs the GPU's regions of a plan: captured graphs on one stream.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cuda/device/gpu.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/device/host_copies.h"

namespace octavo::cuda {

class GpuExecutor final : public region::Executor {
 public:
  GpuExecutor(const Gpu& gpu, const region::Plan& plan)
      : gpu_(gpu), api_(gpu.api()), plan_(plan), copies_(gpu), ready_(plan.regions.size()) {}
  ~GpuExecutor() override;

  /// Loads machine code and finds functions; takes workspaces. Errors: `unsupported` for code of another architecture, the driver's.
  [[nodiscard]] Status prepare(std::span<const region::Kernel* const> kernels);

  /// Transfers go into the stream one by one, what lies between them as a captured graph.
  Status start(std::size_t first, std::size_t last, const region::Memory& memory, void* stream) override;
  Status wait() override;
  /// By events around graphs that hold the regions several times, so that starting a graph is not in the time.
  Result<double> time(std::size_t first, std::size_t last, const region::Memory& memory, int runs) override;
  void compute_all() override { all_ = true; }

 private:
  /// A launch with its function found.
  struct Ready {
    CuFunction function = nullptr;
    const Launch* launch = nullptr;
    CuAddress workspace = 0;
  };
  struct Key {
    std::size_t first, last;
    int copies;  ///< the regions so often, one behind the other
    std::vector<std::byte*> addresses;
    bool operator==(const Key&) const = default;
  };
  struct Captured {
    Key key;
    CuGraphExec exec = nullptr;  ///< null: the regions launch nothing
  };

  /// Where a kernel's parameter of these kinds is in this run: of a buffer or a count.
  [[nodiscard]] std::byte* place(const Argument& p, const region::Memory& memory) const;
  [[nodiscard]] Status transfer(const region::Region& r, const region::Memory& memory);
  [[nodiscard]] Result<CuGraphExec> graph(std::size_t first, std::size_t last, int copies, const region::Memory& memory);
  [[nodiscard]] Status capture(const Key& key, const region::Memory& memory);
  [[nodiscard]] Status launch(const Ready& r, const region::Memory& memory, const std::string& name, bool lets_next) const;

  const Gpu& gpu_;
  const DriverApi& api_;
  const region::Plan& plan_;
  HostCopies copies_;
  CuStream stream_ = nullptr, used_ = nullptr;
  CuEvent from_ = nullptr, to_ = nullptr;
  bool waited_ = true;                     ///< nothing was started since the last wait
  std::vector<std::vector<Ready>> ready_;  ///< by region
  std::vector<std::shared_ptr<const LoadedModule>> modules_;
  std::unique_ptr<region::DeviceMemory> workspaces_;  ///< of all regions; null: none has one
  std::unique_ptr<region::DeviceMemory> beyond_;      ///< a count beyond all, for compute_all; null: no kernel reads one
  bool all_ = false;
  std::vector<Captured> graphs_;
};

}  // namespace octavo::cuda
