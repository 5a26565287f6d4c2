// The version of this Octavo, from project(VERSION) in the top CMakeLists.txt.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo::engine {

inline constexpr std::uint32_t kVersionMajor = OCTAVO_VERSION_MAJOR;
inline constexpr std::uint32_t kVersionMinor = OCTAVO_VERSION_MINOR;
inline constexpr std::uint32_t kVersionPatch = OCTAVO_VERSION_PATCH;
inline constexpr std::string_view kVersion = OCTAVO_VERSION;

}  // namespace octavo::engine
