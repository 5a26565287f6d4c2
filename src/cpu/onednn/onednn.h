// Float anchors through oneDNN, when the build has it. All of oneDNN stays behind these functions.
#pragma once

#include <vector>

#include "cpu/family.h"

namespace octavo::cpu {

/// "cpu.conv.f32.onednn", "cpu.matmul.f32.onednn"; empty in a build without oneDNN. Primitives are created for one thread and
/// run inside the engine's own threads: no other thread is started. Weights are packed as they are and reordered at load, so that
/// engine files do not depend on the library's version.
[[nodiscard]] const std::vector<const Family*>& onednn_families();

/// "2.6.0"; empty in a build without oneDNN.
[[nodiscard]] std::string onednn_version();

}  // namespace octavo::cpu
