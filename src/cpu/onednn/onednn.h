// Which oneDNN this build has, if any. The families over it are in this folder alone.
#pragma once

#include <string>

namespace octavo::cpu {

/// "2.6.0"; empty in a build without oneDNN.
[[nodiscard]] std::string onednn_version();

}  // namespace octavo::cpu
