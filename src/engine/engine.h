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
#include "engine/host_executor.h"
#include "engine/run_resources.h"
#include "engine/source.h"
#include "engine/thread_pool.h"
#include "region/device.h"
#include "region/host_kernel.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::engine {

using Providers = std::vector<const region::Provider*>;
/// Devices beside the host; looked up by name. They outlive the engines that use them.
using Devices = std::vector<const region::Device*>;

class Engine;
/// Of one model, for several shapes (engine/set.h).
using Engines = std::vector<std::shared_ptr<const Engine>>;

/// Memory that is there once for several plans which never run at the same time, as those that are compared: constants that are the same tensors
/// in them, and an arena that is large enough for the first.
struct SharedMemory {
  std::map<const std::byte*, std::byte*> constants;  ///< by where the tensor's bytes are
  std::vector<ir::Tensor> tensors;                   ///< those: their places are not taken by others
  std::vector<std::shared_ptr<region::DeviceMemory>> blocks;
  std::shared_ptr<AlignedBytes> arena;
};

/// A plan ready to run on this machine. Immutable: any number of threads may use one engine, each through contexts of its own.
/// Constants are 64-byte aligned with 64 readable bytes on both sides: in one block, or in the mapped engine file (never copied).
class Engine {
 public:
  /// Verifies the plan, moves its constants into one block (Buffer::data is empty afterwards: kernels see the same thing whether
  /// the engine was built or loaded) and loads one kernel a region, on several cores, by the provider
  /// that knows its tactic. `graph_text` is kept for `explain`. The providers are not used after the call. `shared`: constants that another
  /// engine has put there are not copied again. `origin`: what `save` writes beside the plan, and notes.
  /// Errors: `internal` for a plan that does not verify or names an unknown tactic; `unsupported` when the machine lacks what it
  /// needs.
  [[nodiscard]] static Result<std::shared_ptr<const Engine>> create(region::Plan plan, const Providers& providers,
                                                                    std::string graph_text = {}, const Devices& devices = {},
                                                                    SharedMemory* shared = nullptr, Origin origin = {});
  /// An engine for other extents: `plan` has the buffers of `base`, whose constants it uses where they are, but for `others`, which `keeps`
  /// keeps alive (as create wants constants); behind them it may have further constants, all in `others`. Nothing is packed, and only `others` of another
  /// device are copied, but for those that are in its memory already: `placed`, which `keeps` keeps alive too. Errors: as create.
  [[nodiscard]] static Result<std::shared_ptr<const Engine>> resized(
      const std::shared_ptr<const Engine>& base, region::Plan plan, const Providers& providers,
      const std::map<region::BufferId, std::span<const std::byte>>& others, std::shared_ptr<const void> keeps, Origin origin,
      const std::map<region::BufferId, std::byte*>& placed = {});
  /// Maps the file and checks all of it. Errors: `io`; `bad_engine` (damaged, truncated, foreign, other version); `unsupported`, also
  /// for a file that holds several engines.
  [[nodiscard]] static Result<std::shared_ptr<const Engine>> load(const std::string& path, const Providers& providers,
                                                                  const Devices& devices = {});
  /// Those of the file, one or several, in its order. They share the mapped constants; every one of them is checked and made ready.
  [[nodiscard]] static Result<Engines> load_all(const std::string& path, const Providers& providers, const Devices& devices = {});
  /// The same of a file that is open. Errors also: bad_engine for one that is outdated; is_outdated tells these, and engines whose
  /// kernels are of an earlier version, from other errors.
  [[nodiscard]] static Result<Engines> load_all(const std::shared_ptr<const EngineFile>& file, const Providers& providers,
                                                const Devices& devices = {});
  [[nodiscard]] static bool is_outdated(const EngineFile& file, const Error& error);
  /// Writes the engine; equal plans, constants, graph texts, notes and origins give equal bytes. `more`: notes beside those that this
  /// engine has. `private_key`: signs it. See write_file. Errors also: those of reading the model again.
  [[nodiscard]] Status save(const std::string& path, const Notes& more = {}, const std::string& private_key = {}) const;

  /// JSON of the file's summary section: what `save` writes beside the plan.
  [[nodiscard]] std::string summary(const Notes& more = {}) const;

  [[nodiscard]] const region::Plan& plan() const { return plan_; }
  /// Computed from the contents of the engine; for a loaded engine at the first call, by one pass over its constants.
  [[nodiscard]] const std::string& plan_hash() const;
  /// Who built it: this Octavo, or the one that wrote the file.
  [[nodiscard]] const MadeBy& made_by() const { return made_by_; }
  /// The model and the options that it was built from.
  [[nodiscard]] const Origin& origin() const { return origin_; }
  [[nodiscard]] const std::string& graph_text() const { return graph_text_; }
  /// Notes of the program that built the engine file for the program that runs it ("preprocess"). This module does not read them.
  [[nodiscard]] const Notes& notes() const { return origin_.notes; }
  /// Metadata of the model as JSON (api/description.h); empty: unknown. Kept in the file's summary section. This module does not read it.
  [[nodiscard]] const std::string& about() const { return origin_.about; }
  [[nodiscard]] const region::Kernel& kernel(std::size_t region) const { return *kernels_[region]; }
  /// Null for a region of another device.
  [[nodiscard]] const region::HostKernel* host_kernel(std::size_t region) const { return host_kernels_[region]; }
  /// Of a counted region (region/counted.h): its kernels for fewer elements, rising. Empty: it always computes all.
  [[nodiscard]] const ShorterKernels& shorter_kernels(std::size_t region) const { return shorter_[region]; }
  /// Of Plan::devices; not of the host.
  [[nodiscard]] const region::Device& device(region::DeviceId id) const { return *devices_[static_cast<std::size_t>(id)]; }
  /// Where a constant buffer is in the memory of its device.
  [[nodiscard]] std::byte* constant_address(region::BufferId id) const { return constant_at_[static_cast<std::size_t>(id)]; }
  /// Bytes of a constant buffer; empty for others.
  [[nodiscard]] std::span<const std::byte> constant(region::BufferId id) const { return constants_[static_cast<std::size_t>(id)]; }
  /// Was it made of another engine, whose constants it uses?
  [[nodiscard]] bool is_resized() const { return base_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<CoreLoad>& core_load() const { return core_load_; }

 private:
  Engine() = default;
  [[nodiscard]] static Result<Engines> load_parts(const std::shared_ptr<const EngineFile>& file, const Providers& providers,
                                                  const Devices& devices);
  [[nodiscard]] Status adopt_constants(SharedMemory* shared);
  [[nodiscard]] Status read(const Part& part, const std::string& name);
  [[nodiscard]] Status fits(const std::string& name) const;
  [[nodiscard]] Status load_kernels(const Providers& providers, std::string_view who);
  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> kernel_for(const Providers& providers, std::size_t region,
                                                                   std::string_view who) const;
  void load_shorter(const Providers& providers, std::size_t region);
  [[nodiscard]] Status find_devices(const Devices& devices, std::string_view who);
  [[nodiscard]] Status place_constants(const std::map<region::BufferId, std::span<const std::byte>>* others = nullptr,
                                       const std::map<region::BufferId, std::byte*>& placed = {});

  region::Plan plan_;
  mutable std::string plan_hash_;  ///< under fork_safe_mutex(); once it is there it stays
  std::string graph_text_;
  Origin origin_;
  MadeBy made_by_ = MadeBy::here();
  std::vector<std::span<const std::byte>> constants_;  ///< by BufferId
  AlignedBytes owned_;                                 ///< created engines, and these blocks
  std::vector<std::shared_ptr<region::DeviceMemory>> blocks_;
  std::shared_ptr<const EngineFile> file_;  ///< loaded engines
  std::shared_ptr<const Engine> base_;      ///< resized engines: it has the constants
  std::shared_ptr<const void> keeps_;       ///< resized engines: others
  std::vector<std::unique_ptr<const region::Kernel>> kernels_;
  std::vector<const region::HostKernel*> host_kernels_;
  std::vector<const region::Device*> devices_;                        ///< by DeviceId; of the host: null
  std::vector<std::unique_ptr<region::DeviceMemory>> device_memory_;  ///< constants, by DeviceId
  std::vector<std::byte*> constant_at_;                               ///< by BufferId
  std::shared_ptr<CoreLoad> core_load_;
  std::vector<ShorterKernels> shorter_;  ///< by region
};

/// Called around each region of a run, on the calling thread, with the addresses of all buffers, each in the memory of its device; a
/// plan of several images then runs one after the other, all regions of an image before the next. `before` sees the region's inputs,
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

/// Memory of the caller: where it is, and in whose memory (an index into Plan::devices).
struct Address {
  void* at = nullptr;
  region::DeviceId space = region::kHost;
};

/// The default number of threads for a context of a loaded engine: the number that it was planned for, but at most
/// available_cores().
[[nodiscard]] int threads_here(const region::Plan& plan);

/// The state that one thread needs to run an engine: arenas, and an executor for each device. Not for two threads at once; keeps its engine
/// alive.
class Context {
 public:
  /// `threads` of the host, 0: as many as the plan was built for. Any number runs any engine, with the same results. A plan of several
  /// images has an arena for each thread, at most one an image. `shared`: the arena is there, if it is large enough, or is put there. `resources`: arenas of
  /// other devices are taken there for the time of a run, or from the first run in a caller's stream on until the context goes. Of plans that run on the host alone, each run takes its arena and its threads from there and gives them back; what an arena holds between runs is anything.
  [[nodiscard]] static Result<std::unique_ptr<Context>> create(std::shared_ptr<const Engine> engine, int threads = 0,
                                                               SharedMemory* shared = nullptr,
                                                               std::shared_ptr<RunResources> resources = nullptr);

  /// Runs once. `inputs` and `outputs` are parallel to Plan::inputs and Plan::outputs: dense tensors of the bindings' types,
  /// aligned to their element size, exactly as many bytes; outputs overlap nothing. The outputs that say sizes of others, which are last
  /// (region::shown_outputs), may be left out: `shape_of` tells what they say. Allocates nothing. `bad_input` on a wrong count
  /// or a null address, and where data need more elements than somebody gave as a bound (ir::OutputSize).
  [[nodiscard]] Status run(std::span<const void* const> inputs, std::span<void* const> outputs, const Observer* observer = nullptr);
  /// The same with memory of any device. Where a binding is copied to or from a device, memory of that device takes the place of the
  /// copy if it is aligned as the plan wants, and is copied within the device otherwise; `bad_input` where the engine takes a binding
  /// from another device. `stream`: a queue of the device's own kind (a CUstream), in which its work is then put without waiting for
  /// the end; null: everything is done on return.
  [[nodiscard]] Status run(std::span<const Address> inputs, std::span<const Address> outputs, void* stream,
                           const Observer* observer = nullptr);

  /// Returns when what runs in callers' streams put there is done. Errors: what went wrong in it; bad_input where data needed more elements than somebody
  /// gave as a bound, which a run in a caller's stream cannot check, because it does not wait.
  [[nodiscard]] Status wait();

  /// Seconds of regions first..last-1, the mean of `runs` runs one behind the other by the clocks of their devices, with the bindings of the
  /// run before; transfers that it left out are left out. For plans of one image.
  [[nodiscard]] Result<double> time(std::size_t first, std::size_t last, int runs);
  /// Runs `runs` times (at least 1) after one that does not count, and times each region: on the host while the network runs, on another
  /// device by its own clock, some launches of the one region behind each other.
  [[nodiscard]] Result<Profile> profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs);

  /// Region `region` once more, in an observer's `after` and with its `memory`: for looking at what a kernel writes.
  [[nodiscard]] Status repeat(std::size_t region, const region::Memory& memory);
  /// From now on all elements of counted regions are computed (region/counted.h), those behind the count too, whose values are those of the graph.
  void compute_all() {
    host_->compute_all();
    for (const auto& e : executors_) {
      if (e) e->compute_all();
    }
  }
  /// How many elements of its counted dimension the region's last run computed; -1: all of them.
  [[nodiscard]] std::int64_t computed(std::size_t region) const { return host_->computed(region); }
  /// Every byte of the host threads' scratch; kernels may not depend on what it holds.
  void fill_scratch(std::byte value) { host_->fill_scratch(value); }

  /// The shape of output `output` of the plan after a run that has ended: smaller than its binding's where data decide (Plan::sizes). Of runs that
  /// gave the outputs without counts.
  [[nodiscard]] ir::Shape shape_of(std::size_t output) const;

  [[nodiscard]] const Engine& engine() const { return *engine_; }
  [[nodiscard]] int threads() const { return host_->threads(); }
  [[nodiscard]] std::size_t arena_bytes() const { return memory_.size() * arena_stride_; }  ///< of all lanes, in host memory
  /// Working memory (zeros at first), of the host that of lane 0: what a run reads without writing it stays, for regions that are timed
  /// alone. Not to be read or written by the host where it is another device's. Not of a context with a pool.
  [[nodiscard]] std::byte* arena(region::DeviceId device = region::kHost) {
    return device == region::kHost ? arena_at_ : device_at_[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return host_->scratch_bytes(); }
  /// Of a context with a pool: what a run takes from there is there from now on, if it is not more than `most` bytes (ArenaPool::expect).
  void expect_run(std::size_t most) const;

 private:
  /// A transfer that is left out when the caller's memory can be the device's buffer.
  struct Bridge {
    std::size_t transfer = 0;  ///< region
    region::BufferId bound = -1, inner = -1;
    bool input = true;
  };

  Context() = default;
  [[nodiscard]] Status bind(std::span<const Address> inputs, std::span<const Address> outputs);
  [[nodiscard]] bool crosses(region::BufferId buffer, region::DeviceId device) const;
  [[nodiscard]] std::byte* place_in_arena(const region::Buffer& buffer, std::size_t lane_offset) const;
  void place_buffers();
  [[nodiscard]] Status rent();
  [[nodiscard]] Status rent_devices();
  void give_devices();
  [[nodiscard]] region::Executor& executor(region::DeviceId device);
  [[nodiscard]] Status wait_for_others(region::DeviceId device);
  [[nodiscard]] Status run_regions(void* stream);
  [[nodiscard]] Status run_observed(const Observer& observer);
  [[nodiscard]] Status within_bounds() const;
  void run_image(std::int64_t image, int worker, const Observer* observer);
  void run_images(const Observer* observer);

  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<HostExecutor> host_;
  std::vector<std::unique_ptr<region::Executor>> executors_;          ///< by DeviceId; of the host: null
  std::vector<std::unique_ptr<region::DeviceMemory>> device_arenas_;  ///< by DeviceId
  std::shared_ptr<AlignedBytes> arena_;                               ///< null with resources_
  std::shared_ptr<RunResources> resources_;
  std::shared_ptr<RunResources> device_resources_;  ///< of arenas of other devices; null: device_arenas_
  std::vector<DeviceArenas::Lease> device_leases_;  ///< by DeviceId, during a run
  std::vector<std::byte*> device_at_;               ///< by DeviceId: where its arena was last
  bool keeps_devices_ = false;     ///< device_leases_ stay: nobody waits for the end of a run here, or something went wrong in one
  ArenaPool::Lease lease_;         ///< during a run
  std::byte* arena_at_ = nullptr;  ///< where buffers were placed last
  std::size_t arena_stride_ = 0;   ///< of a lane
  std::vector<region::Memory> memory_;  ///< by lane; of a plan of one image: one, which all threads share
  std::vector<std::byte*> first_;       ///< of bindings' buffers: the first image's part
  std::vector<Bridge> bridges_;
  std::vector<std::size_t>
      for_kernels_;  ///< transfers of counts that kernels alone read, which are left out where the caller has no memory for them
  std::vector<char> skipped_;  ///< by region: a transfer that this run leaves out
  std::vector<Address> in_, out_;
  std::vector<std::int64_t> counts_;  ///< outputs that say sizes, where the caller has no memory for them
  ArenaPool::Lease scratch_lease_;    ///< as lease_: scratch of the host's threads
  ThreadPools::Lease threads_lease_;  ///< as lease_: these threads
};

}  // namespace octavo::engine
