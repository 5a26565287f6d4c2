// NVRTC, NVIDIA's run-time compiler, opened when it is first asked for: Octavo builds and runs without it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo::cuda {

struct Compiled {
  std::string cubin;               ///< machine code for the architecture in the options
  std::string log;                 ///< warnings; empty when there were none
  double processor_elsewhere = 0;  ///< seconds of a processor that another process took for it
};
/// Compiles CUDA C++ text. Errors: `unsupported` when no NVRTC library is found (names what was tried; set OCTAVO_NVRTC to its
/// path), `internal` with the compiler's log when the text does not compile. Thread-safe; several at a time: cuda/device/compile_pool.h.
[[nodiscard]] Result<Compiled> compile(std::string_view text, const std::vector<std::string>& options);
/// "13.0", or the reason why there is none.
[[nodiscard]] Result<std::string> compiler_version();
/// Where the library of compiler_version() lies.
[[nodiscard]] Result<std::string> compiler_path();

}  // namespace octavo::cuda
