// The executor of the host: a pool of threads that share the tasks of a region, or the images of a batch.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/aligned.h"
#include "engine/thread_pool.h"
#include "region/device.h"
#include "region/host_kernel.h"

namespace octavo::engine {

/// A region's kernel for the first `extent` elements of its counted dimension (region/counted.h).
struct ShorterKernel {
  std::int64_t extent = 0;
  std::unique_ptr<const region::HostKernel> kernel;
};
using ShorterKernels = std::vector<ShorterKernel>;

/// Runs regions whose kernels are region::HostKernel, each on all threads; `start` returns when they are done.
class HostExecutor final : public region::Executor {
 public:
  /// `kernels`: by region of `plan`, those of other devices null. `shorter`: by region, kept alive by the caller. `plan` as well.
  /// `lent`: it has neither threads nor scratch of its own, and gets both for each run (lend). Errors: those of ThreadPool::create; `io` when there is no memory for scratch or for what
  /// workers share.
  [[nodiscard]] static Result<std::unique_ptr<HostExecutor>> create(const region::Plan& plan,
                                                                    std::vector<const region::HostKernel*> kernels,
                                                                    std::vector<const ShorterKernels*> shorter, int threads,
                                                                    std::shared_ptr<CoreLoad> load, bool lent = false);
  /// Scratch of scratch_bytes(), 64-byte aligned, with what it holds, and `threads()` threads; until the next call.
  void lend(std::byte* scratch, ThreadPool* pool) { scratch_at_ = scratch, pool_ = pool; }

  [[nodiscard]] Status start(std::size_t first, std::size_t last, const region::Memory& memory, void* stream) override;
  [[nodiscard]] Status wait() override { return {}; }

  /// Region `index` of one image on the calling thread, which is worker `worker` of the pool.
  void run_alone(std::size_t index, const region::Memory& memory, int worker);

  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_stride_ * static_cast<std::size_t>(threads_); }
  /// Context::compute_all, Context::computed.
  void compute_all() override { counts_ = false; }
  [[nodiscard]] std::int64_t computed(std::size_t region) const { return chosen_[region].extent; }
  /// Of all threads; not during a run.
  void fill_scratch(std::byte value) {
    if (scratch_at_ != nullptr) std::memset(scratch_at_, static_cast<int>(value), scratch_bytes());
  }

 private:
  /// Worker::kept of a worker, and of which run of a region.
  struct alignas(64) Kept {
    std::int64_t region_run = 0, what = -1;
  };

  /// What a run of a region takes, written by the worker that begins it; null: nothing is to be computed.
  struct Chosen {
    const region::HostKernel* kernel = nullptr;
    std::int64_t extent = -1;
    int tasks = 0;
    bool listed = false;  ///< those of `some_[region]`, not the first ones
  };
  void leave_out(std::size_t region, std::int64_t wanted);
  /// Calls run(begin, end) for each stretch of tasks that lie behind each other, of those chosen from `begin` to `end`.
  template <class Run>
  void stretches(std::size_t region, int begin, int end, const Run& run) const {
    if (!chosen_[region].listed) return run(begin, end);
    const std::vector<int>& list = some_[region];
    for (int i = begin; i < end;) {
      int k = i + 1;
      while (k < end && list[static_cast<std::size_t>(k)] == list[static_cast<std::size_t>(k - 1)] + 1) ++k;
      run(list[static_cast<std::size_t>(i)], list[static_cast<std::size_t>(k - 1)] + 1);
      i = k;
    }
  }
  void choose(std::size_t region, const region::Memory& memory);

  static constexpr std::size_t kNone = ~std::size_t{0};

  HostExecutor() = default;
  [[nodiscard]] std::byte* shared_of(std::size_t region) {
    return shared_at_[region] == kNone ? nullptr : shared_.data() + shared_at_[region];
  }
  [[nodiscard]] const std::byte* read_after(std::size_t region, int worker, int workers) const;
  [[nodiscard]] std::byte* scratch_of(int worker) const { return scratch_at_ + static_cast<std::size_t>(worker) * scratch_stride_; }

  std::vector<const region::HostKernel*> kernels_;  ///< by region
  int threads_ = 1;
  std::unique_ptr<ThreadPool> own_pool_;  ///< null: one is lent
  ThreadPool* pool_ = nullptr;            ///< own_pool_, or what was lent
  std::vector<Kept> kept_;
  std::int64_t region_run_ = 0;  ///< of all regions so far
  AlignedBytes scratch_;
  AlignedBytes shared_;                  ///< Worker::shared of all regions
  std::vector<std::size_t> shared_at_;   ///< where that of each region begins; kNone: it has none
  std::size_t scratch_stride_ = 0;       ///< bytes from one worker's scratch to the next
  std::vector<const std::byte*> ahead_;  ///< Worker::ahead of each region for each worker; of several images: for the only one
  int workers_ = 1;                      ///< of a region
  std::vector<const ShorterKernels*> shorter_;  ///< by region
  std::vector<Chosen> chosen_;                  ///< by region
  std::vector<std::vector<int>> some_;          ///< by region: tasks that a run takes, where they are not the first ones
  const region::Plan* plan_ = nullptr;
  bool counts_ = true;               ///< not: all elements are computed
  std::byte* scratch_at_ = nullptr;  ///< scratch_, or what was lent
};

}  // namespace octavo::engine
