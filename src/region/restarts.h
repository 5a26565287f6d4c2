// Kernels that are loaded again and again for other extents: what is the same each time is read once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "region/provider.h"

namespace octavo::region {

/// What a provider has read, in a form that only it knows. Immutable.
class Read {
 public:
  virtual ~Read() = default;
};

/// What providers are beside Provider where their kernels take extents when they are started (Provider::restart). Thread-safe.
class Restarts {
 public:
  virtual ~Restarts() = default;
  /// `form`: a Region::launch in which each number that is not quoted is an index into the `numbers` of load_read. Errors: bad_engine.
  [[nodiscard]] virtual Result<std::shared_ptr<const Read>> read_launch(std::string_view form) const = 0;
  /// Artifact::code, checked as far as no launch is needed. It outlives the result. Errors: bad_engine.
  [[nodiscard]] virtual Result<std::shared_ptr<const Read>> read_code(std::span<const std::byte> code) const = 0;
  /// As Provider::load of a region whose tactic it has loaded before, with the same checks of what depends on extents; it trusts neither `numbers` nor how
  /// many there are. `code` null: there is none.
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> load_read(const Region& region, const Plan& plan, const Read& launch,
                                                                  std::span<const std::int64_t> numbers,
                                                                  const Read* code) const = 0;
};

/// What providers of the host are beside Provider where packed constants are taken over from regions of other extents.
class LoadsAs {
 public:
  virtual ~LoadsAs() = default;
  /// Provider::load, where Provider::packed_layout is `layout`; the region is read once for both. Errors also: `unsupported` where it is another one.
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> load_as(const Region& region, const Plan& plan,
                                                                const ArtifactView& artifact, std::string_view layout) const = 0;
};

}  // namespace octavo::region
