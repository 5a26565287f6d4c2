// Kernels that run on the threads of the host: those of the CPU's providers and of the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "region/provider.h"

namespace octavo::region {

/// From so many workers on, those that are done take tasks from the others' shares: divisions for so many cut finer.
inline constexpr int kSharingWorkers = 3;

/// Worker::kept: nothing yet; nothing, but the kernel has run in this run of the region, so that its code is in the caches.
inline constexpr std::int64_t kNothingKept = -1, kRanBefore = -2;

/// One worker thread and its scratch: at least HostKernel::scratch_bytes(), 64-byte aligned, contents undefined.
struct Worker {
  int index = 0, count = 1;
  std::byte* scratch = nullptr;
  /// What the thread may read next, in this region or a later one: to be fetched into cache, never read.
  const std::byte* ahead = nullptr;
  /// What the scratch holds since an earlier call for the same run of the region, in the kernel's own numbers; kNothingKept at first. Null: nothing.
  std::int64_t* kept = nullptr;
  /// Memory of the region that all workers of a context see: HostKernel::shared_bytes(), 64-byte aligned. Zeros at first, and kept from run to
  /// run as the kernel leaves it. Null: there is none, and tasks cannot help each other.
  std::byte* shared = nullptr;
};

/// A kernel cut into tasks. Immutable and shared by contexts; `run` is reentrant.
class HostKernel : public Kernel {
 public:
  /// How many independent pieces of work there are (>= 1); the engine spreads 0..tasks-1 over workers, any order, any grouping.
  [[nodiscard]] virtual int tasks() const { return 1; }
  [[nodiscard]] virtual std::size_t scratch_bytes() const { return 0; }  ///< per worker
  [[nodiscard]] virtual std::size_t shared_bytes() const { return 0; }   ///< Worker::shared
  /// Where the constants begin that the task reads first; null: too few to fetch ahead, or none.
  [[nodiscard]] virtual const std::byte* first_read(int /*task*/) const { return nullptr; }
  virtual void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const = 0;
};

/// The kernel as one that host threads run. Error: `internal` when another device runs it.
[[nodiscard]] inline Result<std::unique_ptr<HostKernel>> as_host_kernel(Result<std::unique_ptr<Kernel>> kernel) {
  if (!kernel) return tl::unexpected(std::move(kernel.error()));
  auto* host = dynamic_cast<HostKernel*>(kernel->get());
  if (host == nullptr) return fail(ErrorKind::internal, "the kernel is not one that host threads run");
  (void)kernel->release();
  return std::unique_ptr<HostKernel>(host);
}

}  // namespace octavo::region
