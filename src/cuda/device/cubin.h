// Machine code for NVIDIA GPUs (cubin: an ELF file), read as far as the driver and a launch rely on it. The driver is given an address without
// a length and believes what stands there, and a launch reads as many arguments as the code says that its kernel takes: code in a file is held
// against its own bounds, and launches against the code, before either gets there. That makes damage an error. It does not make foreign code
// safe: what the instructions do, nothing here looks at (docs/hostile.md).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/text/architecture.h"
#include "cuda/text/kernel_text.h"

namespace octavo::cuda {

constexpr int kImageBytes = 128, kImageAlignment = 64;  ///< of a parameter that is an image (CUtensorMap)

struct CubinKernel {
  std::string name;
  int parameters = 0;  ///< that it takes
  std::int64_t parameter_bytes = 0;
  /// Of each, in bytes; empty: they do not lie one behind the other, aligned to their sizes of 4 or 8 bytes, or as images.
  std::vector<int> sizes;
  std::int64_t shared_bytes = 0;  ///< static shared memory
  std::int64_t most_threads = 0;  ///< of a block, by __launch_bounds__; 0: not said
};
struct Cubin {
  int sm = 0;  ///< 90 for sm_90 and sm_90a
  std::vector<CubinKernel> kernels;
};

/// Errors: bad_engine, for anything that is not an ELF file of 64 bits for EM_CUDA whose headers, sections, segments, symbols and kernel
/// facts lie inside of `code` and agree.
[[nodiscard]] Result<Cubin> read_cubin(std::span<const std::byte> code);

/// Machine code and the launches of it, as an engine file gives them, against each other, the architecture that the plan names and
/// what a GPU of it can start: grids, blocks, shared memory. Errors: bad_engine, naming both values.
[[nodiscard]] Status check_machine_code(std::span<const std::byte> code, Architecture architecture,
                                        std::span<const Launch* const> launches);

/// The same of code that was read before.
[[nodiscard]] Status check_read_code(const Cubin& cubin, Architecture architecture, std::span<const Launch* const> launches);

/// What an engine's machine code is held against before a driver may see it: the code of one module, the architecture that the tactic names, and the
/// launches of it.
using CodeCheck = std::function<Status(std::span<const std::byte> code, Architecture architecture, std::span<const Launch* const>)>;
/// check_machine_code, which reads the same bytes once: engines for further shapes start the same code with other launches. Keeps the bytes of some
/// thousand modules. Thread-safe.
[[nodiscard]] CodeCheck remembering_check();

}  // namespace octavo::cuda
