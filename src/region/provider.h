// Providers offer tactics for a region, or refuse with a reason. The planner picks one and compiles it into an artifact, which the
// engine file stores; the engine loads kernels from artifacts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "region/family.h"
#include "region/region.h"
#include "region/tactic.h"

namespace octavo::region {

/// One answer to "can you run this region?". `cost` is the provider's own estimate in seconds on one thread, used until a time was
/// measured.
struct Offer {
  Tactic tactic;
  Reasons refusal;  ///< the condition that failed, with the values (region/refusal.h); empty: the tactic can be taken
  double cost = 0;
  int rank =
      0;  ///< among the provider's: without measured times one of the least rank is taken, whatever others are estimated to cost
};

/// Text that a compiler has not seen yet, in a form that only its provider knows.
struct Source {
  std::string text;
  [[nodiscard]] bool empty() const { return text.empty(); }
};

/// What a tactic needs at run time, made once, when an engine is built. The engine file stores all of it, the code that `finish` compiles
/// instead of the source.
struct Artifact {
  std::vector<ir::Tensor>
      constants;       ///< weights as the kernel reads them, tables: become Region::packed, in the region's memory space
  std::string code;    ///< machine code for the device, or empty
  Source source;       ///< or what Provider::finish makes it of
  std::string launch;  ///< how the code is started, as JSON, or empty
  std::vector<std::string> required;  ///< capabilities beside Tactic::required that the code turned out to need, sorted
};

/// The artifact as an engine holds it. `constants` are addresses in host memory, 64-byte aligned, of the buffers Region::packed
/// names, whose sizes Buffer::bytes says; like `code` and `launch` they stay valid as long as the kernel.
struct ArtifactView {
  std::span<const std::byte* const> constants;
  std::span<const std::byte> code;
  std::string_view launch;
};

/// Addresses of a plan's buffers for one run, each in the memory space of its buffer.
struct Memory {
  std::vector<std::byte*> base;  ///< indexed by BufferId; constants are not to be written
  [[nodiscard]] std::byte* at(const TensorRef& r) const { return base[static_cast<std::size_t>(r.buffer)] + r.offset; }
};

/// A region made ready on one machine. How it is run is a matter between the device's provider and its executor: host threads run
/// those of region/host_kernel.h.
class Kernel {
 public:
  virtual ~Kernel() = default;
};

class Provider {
 public:
  virtual ~Provider() = default;
  /// Tactic::provider of what it offers, and how messages call it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Is this one of the provider's tactics, by provider and family? Asked before `load`; two providers may share a name.
  [[nodiscard]] virtual bool knows(const Tactic& tactic) const { return tactic.provider == name(); }
  /// DeviceUse::name of the device that its kernels run on.
  [[nodiscard]] virtual std::string_view device() const { return "host"; }
  /// What the parameters of one of its tactics mean, those of its parts apart. Empty: it has none, or is not one of them.
  [[nodiscard]] virtual std::vector<ParameterRow> parameters_of(const Tactic&) const { return {}; }
  /// Every tactic this provider knows for the kind of region, each taken or refused with a reason; of a family's sets of parameters
  /// those that it prefers, without having measured any. Must not depend on addresses or time.
  [[nodiscard]] virtual std::vector<Offer> offers(const Region& region, const Plan& plan) const = 0;
  /// Further sets of parameters of the same families, for searches that take their time (effort 3 and above) and for pins. Only such
  /// as can be taken.
  [[nodiscard]] virtual std::vector<Offer> variants(const Region&, const Plan&) const { return {}; }
  /// A planning has ended: what was kept to answer `offers` again may go. Another one that goes on meanwhile has the same answers, later.
  virtual void forget() const {}
  /// Build time: makes everything the kernel needs beside the region. What depends on the machine is in the tactic's parameters.
  [[nodiscard]] virtual Result<Artifact> compile(const Region& region, const Plan& plan, const Tactic& tactic) const = 0;
  /// Build time, once the tactics of whole plans are chosen: compiles what `compile` left as Artifact::source, for many regions at a time on up
  /// to `threads` threads, and keeps the code (keep_code of region/artifact.h). The same for every plan, whichever it is finished with.
  /// Errors: the compiler's, naming the region.
  [[nodiscard]] virtual Status finish(std::span<Plan* const>, int /*threads*/) const { return {}; }
  /// For a plan that is set to other extents: how Region::tactic runs for these. The text is that for any values of the extents that are marked as open
  /// (OpenExtents), as far as the kernels can take them when they are started; the launch has them. `constants` are not for use: equal ones say
  /// that the constants which `compile` packs are equal too. Weights need not be there where Anchor::weight_sum is. Errors: `unsupported` for a provider
  /// that makes kernels for exact extents alone, or a tactic that cannot be used for these.
  [[nodiscard]] virtual Result<Artifact> restart(const Region& region, const Plan&) const {
    return fail(ErrorKind::unsupported, std::string(name()) + ": kernels of " + region.tactic.family + " are for exact extents");
  }
  /// The code of such a source. Errors: the compiler's.
  [[nodiscard]] virtual Result<std::string> code_of(const Source&) const {
    return fail(ErrorKind::unsupported, std::string(name()) + " compiles nothing");
  }
  /// Load time: a kernel for Region::tactic out of the artifact. Errors: `unsupported`, naming the capability that this machine
  /// lacks; `bad_engine` when the tactic or the artifact is not what this provider makes.
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> load(const Region& region, const Plan& plan,
                                                             const ArtifactView& artifact) const = 0;
  /// What the tactic's packed constants are beside the values of the region's constants, as text: equal ones say that regions of equal constants have
  /// equal packed ones, whatever the extents of their activations are. Nothing: it is not known.
  [[nodiscard]] virtual std::optional<std::string> packed_layout(const Region&, const Plan&) const { return std::nullopt; }
};

}  // namespace octavo::region
