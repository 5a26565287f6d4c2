// Which oneDNN this build has, if any. The families over it are in this folder alone.
#pragma once

#include <string>

#include "base/reason.h"

namespace octavo::cpu {

/// "2.6.0"; empty in a build without oneDNN.
[[nodiscard]] std::string onednn_version();

/// oneDNN chooses its instruction set itself, so under a cap below the processor's own it cannot be used. Empty: it can.
[[nodiscard]] Reasons why_no_onednn();

}  // namespace octavo::cpu
