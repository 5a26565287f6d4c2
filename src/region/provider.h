// Providers list ways to run a region, or refuse with a reason. The planner picks; the engine instantiates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// One answer to "can you run this region?". `refusal` empty: yes. `cost` is the provider's own estimate in seconds on one thread
/// (used until a timing exists); `vector` says whether it is a vector kernel (reported; portable ones are a committed list).
struct Offer {
  std::string tactic;   ///< "cpu.conv.u8s8.avx512vnni.jit"
  std::string refusal;  ///< the condition that failed, with the values
  double cost = 0;
  bool vector = true;
};

/// Addresses of a plan's buffers for one run.
struct Memory {
  std::vector<std::byte*> base;  ///< indexed by BufferId; constants are not to be written
  [[nodiscard]] std::byte* at(const TensorRef& r) const { return base[static_cast<std::size_t>(r.buffer)] + r.offset; }
};

/// From so many workers on, those that are done take tasks from the others' shares: divisions for so many cut finer.
inline constexpr int kSharingWorkers = 3;

/// Scratch of one worker thread: at least Kernel::scratch_bytes(), 64-byte aligned, contents undefined.
struct Worker {
  int index = 0, count = 1;
  std::byte* scratch = nullptr;
  const std::byte* ahead =
      nullptr;  ///< what the thread may read next, in this region or a later one: to be fetched into cache, never read
  /// What the scratch holds since an earlier call for the same run of the region, in the kernel's own numbers; -1 at first. Null:
  /// nothing.
  std::int64_t* kept = nullptr;
};

/// A region made ready on one machine (code generated, descriptors resolved). Immutable and shared by contexts; `run` is reentrant.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// How many independent pieces of work there are (>= 1); the engine spreads 0..tasks-1 over workers, any order, any grouping.
  [[nodiscard]] virtual int tasks() const { return 1; }
  [[nodiscard]] virtual std::size_t scratch_bytes() const { return 0; }  ///< per worker
  /// Where the constants begin that the task reads first; null: too few to fetch ahead, or none.
  [[nodiscard]] virtual const std::byte* first_read(int /*task*/) const { return nullptr; }
  virtual void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const = 0;
};

class Provider {
 public:
  virtual ~Provider() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Every tactic this provider knows for the kind of region, each taken or refused with a reason. Must not depend on addresses or
  /// time.
  [[nodiscard]] virtual std::vector<Offer> offers(const Region& region, const Plan& plan) const = 0;
  /// Build time: rearranges constants for the tactic; the result becomes Region::packed. May be empty.
  [[nodiscard]] virtual Result<std::vector<ir::Tensor>> pack(const Region& region, const Plan& plan,
                                                             std::string_view tactic) const = 0;
  /// Load time: `packed` are the addresses of Region::packed. Fails with `unsupported` when the machine lacks the ISA.
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> instantiate(const Region& region, const Plan& plan,
                                                                    std::span<const std::byte* const> packed) const = 0;
};

}  // namespace octavo::region
