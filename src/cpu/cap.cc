#include "cpu/cap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace octavo::cpu {
namespace {

constexpr std::string_view kNative = "native";
constexpr const char* kVariable = "OCTAVO_CPU";
constexpr Isa kLevels[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512vnni, Isa::amx};

}  // namespace

Result<Isa> cap_named(std::string_view name) {
  if (name.empty() || name == kNative) return Isa::amx;
  const auto isa = find_isa(name);
  if (!isa) return fail(ErrorKind::usage, fmt::format("cpu \"{}\": known are {}", name, known_caps()));
  if (*isa > detected_isa()) {
    return fail(ErrorKind::unsupported,
                fmt::format("cpu \"{}\": this processor has {}, and kernels are timed where they are built\n"
                            "  build on a machine that has it",
                            name, name_of(detected_isa())));
  }
  return *isa;
}

Status set_cap(std::string_view name) {
  OCTAVO_CHECK(cap_named(name));
  if (name == kNative) {
    ::unsetenv(kVariable);
  } else {
    ::setenv(kVariable, std::string(name).c_str(), 1);
  }
  return {};
}

CapScope::CapScope(Isa most) : outer_(thread_cap()) {
  thread_cap() = std::min(outer_, most);
}
CapScope::~CapScope() {
  thread_cap() = outer_;
}

std::vector<LevelState> level_states() {
  std::vector<LevelState> states;
  for (const Isa isa : kLevels) states.push_back({std::string(name_of(isa)), why_not(isa)});
  return states;
}

std::string known_caps() {
  std::string names;
  for (const Isa isa : kLevels) names += fmt::format("{}, ", name_of(isa));
  return names + std::string(kNative);
}

}  // namespace octavo::cpu
