// Engines: a plan with its constants and kernels, immutable and shared; and contexts, which run one, each in one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/aligned.h"
#include "engine/file.h"
#include "engine/thread_pool.h"
#include "region/host_kernel.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::engine {

using Providers = std::vector<const region::Provider*>;
using Notes = std::map<std::string, std::string>;

/// A plan ready to run on this machine. Immutable: any number of threads may use one engine, each through contexts of its own.
/// Constants are 64-byte aligned with 64 readable bytes on both sides: in one block, or in the mapped engine file (never copied).
class Engine {
 public:
  /// Verifies the plan, moves its constants into one block (Buffer::data is empty afterwards: kernels see the same thing whether
  /// the engine was built or loaded) and loads one kernel a region, on several cores, by the provider
  /// that knows its tactic. `graph_text` is kept for `explain`. The providers are not used after the call.
  /// Errors: `internal` for a plan that does not verify or names an unknown tactic; `unsupported` when the machine lacks what it
  /// needs.
  [[nodiscard]] static Result<std::shared_ptr<const Engine>> create(region::Plan plan, const Providers& providers,
                                                                    std::string graph_text = {});
  /// Maps the file and checks all of it. Errors: `io`; `bad_engine` (damaged, truncated, foreign, other version); `unsupported`.
  [[nodiscard]] static Result<std::shared_ptr<const Engine>> load(const std::string& path, const Providers& providers);
  /// Writes the engine; equal plans, constants, graph texts and notes give equal bytes. `more`: notes beside those that this engine
  /// was loaded with. See write_file.
  [[nodiscard]] Status save(const std::string& path, const Notes& more = {}) const;

  [[nodiscard]] const region::Plan& plan() const { return plan_; }
  [[nodiscard]] const std::string& plan_hash() const { return plan_hash_; }
  [[nodiscard]] const std::string& graph_text() const { return graph_text_; }
  /// What whoever built the engine file wrote down for whoever runs it ("preprocess"); nothing here reads it.
  [[nodiscard]] const Notes& notes() const { return notes_; }
  [[nodiscard]] const region::HostKernel& kernel(std::size_t region) const { return *kernels_[region]; }
  /// Bytes of a constant buffer; empty for others.
  [[nodiscard]] std::span<const std::byte> constant(region::BufferId id) const { return constants_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const std::shared_ptr<CoreLoad>& core_load() const { return core_load_; }

 private:
  Engine() = default;
  [[nodiscard]] Status adopt_constants();
  [[nodiscard]] Status read(std::span<const std::byte> file, const std::string& name);
  [[nodiscard]] Status fits(const std::string& name) const;
  [[nodiscard]] Status load_kernels(const Providers& providers, std::string_view who);
  [[nodiscard]] Result<std::unique_ptr<region::HostKernel>> kernel_for(const Providers& providers, std::size_t region,
                                                                       std::string_view who) const;

  region::Plan plan_;
  std::string plan_hash_, graph_text_;
  Notes notes_;
  std::vector<std::span<const std::byte>> constants_;  ///< by BufferId
  AlignedBytes owned_;                                 ///< created engines
  std::unique_ptr<MappedFile> file_;                   ///< loaded engines
  std::vector<std::unique_ptr<const region::HostKernel>> kernels_;
  std::shared_ptr<CoreLoad> core_load_;
};

/// Called around each region of a run, on the calling thread, with the addresses of all buffers; a plan of several images then runs
/// one after the other, all regions of an image before the next. `before` sees the region's inputs,
/// `after` its outputs; either may be empty.
struct Observer {
  std::function<void(std::size_t region, const region::Memory&)> before, after;
};

struct RegionTime {
  double median = 0, least = 0;  ///< seconds
};
struct Profile {
  std::vector<RegionTime> regions;
  RegionTime total;
};

/// What one thread needs to run an engine: arena, scratch, thread pool. Not for two threads at once; keeps its engine alive.
class Context {
 public:
  /// `threads` 0: as many as the plan was built for. Any number runs any engine, with the same results. A plan of several images
  /// has an arena for each thread, at most one an image.
  [[nodiscard]] static Result<std::unique_ptr<Context>> create(std::shared_ptr<const Engine> engine, int threads = 0);

  /// Runs once. `inputs` and `outputs` are parallel to Plan::inputs and Plan::outputs: dense tensors of the bindings' types,
  /// aligned to their element size, exactly as many bytes; outputs overlap nothing. Allocates nothing. `bad_input` on a wrong count
  /// or a null address.
  [[nodiscard]] Status run(std::span<const void* const> inputs, std::span<void* const> outputs, const Observer* observer = nullptr);

  /// Runs `runs` times (at least 1) after one that does not count, and times each region.
  [[nodiscard]] Result<Profile> profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs);

  [[nodiscard]] const Engine& engine() const { return *engine_; }
  [[nodiscard]] int threads() const { return pool_->size(); }
  [[nodiscard]] std::size_t arena_bytes() const { return arena_.size(); }  ///< of all lanes
  /// Working memory of lane 0 (zeros at first): what a run reads without writing it stays, for regions that are timed alone.
  [[nodiscard]] std::byte* arena() { return arena_.data(); }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_.size(); }

 private:
  Context() = default;
  [[nodiscard]] Status bind(std::span<const void* const> inputs, std::span<void* const> outputs);
  [[nodiscard]] const std::byte* read_after(std::size_t region, int worker, int workers) const;
  void run_region(std::size_t index);
  void run_image(std::int64_t image, int worker, const Observer* observer);
  void run_images(const Observer* observer);

  /// Worker::kept of a worker, and of which run of a region.
  struct alignas(64) Kept {
    std::int64_t region_run = 0, what = -1;
  };

  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<Kept> kept_;
  std::int64_t region_run_ = 0;  ///< of all regions so far
  AlignedBytes arena_, scratch_;
  std::size_t scratch_stride_ = 0;       ///< bytes from one worker's scratch to the next
  std::vector<region::Memory> memory_;   ///< by lane; of a plan of one image: one, which all threads share
  std::vector<std::byte*> first_;        ///< of bindings' buffers: the first image's part
  std::vector<const std::byte*> ahead_;  ///< Worker::ahead of each region for each worker; of a lane: for its only one
};

}  // namespace octavo::engine
