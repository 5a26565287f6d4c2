// The level of vector instructions that this process may use, set by a program instead of the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/isa.h"

namespace octavo::cpu {

/// "native": what the processor has; else one of the levels of isa.h, which caps everything that is planned, built and loaded from
/// now on. It sets the environment variable OCTAVO_CPU, so that isa_cap stays the one place that is asked; call it before other
/// threads start. Errors: usage for an unknown name; unsupported for a level that this processor lacks: kernels are timed where they
/// are built.
[[nodiscard]] Status set_cap(std::string_view name);

/// A level, and why it cannot be used now; empty: it can.
struct LevelState {
  std::string name;
  Reasons why_not;
};
/// Every level, the least first.
[[nodiscard]] std::vector<LevelState> level_states();
/// The same for the scope alone: caps what this thread plans and builds, beside OCTAVO_CPU. Scopes nest; the lowest level counts.
class CapScope {
 public:
  explicit CapScope(Isa most);
  ~CapScope();
  CapScope(const CapScope&) = delete;
  CapScope& operator=(const CapScope&) = delete;

 private:
  Isa outer_;
};
/// The level that a name of set_cap caps at; empty and "native": no cap. Errors: as set_cap.
[[nodiscard]] Result<Isa> cap_named(std::string_view name);

/// "portable, avx2, avx512, avx512vnni, amx, native", for help texts.
[[nodiscard]] std::string known_caps();

}  // namespace octavo::cpu
