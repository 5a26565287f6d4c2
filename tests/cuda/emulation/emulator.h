// CUDA kernels on the CPU: the text that NVRTC would compile, compiled by the host's compiler and run under checks. Finds reads of
// shared memory that no barrier orders behind the write, reads of asynchronous copies before their wait, accesses outside of
// buffers, misaligned accesses, barriers that not all threads reach, results that two threads write.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/emulation/block.h"

namespace octavo::testing {

/// A loaded library of kernels.
class EmulatedLibrary {
 public:
  ~EmulatedLibrary();
  EmulatedLibrary(const EmulatedLibrary&) = delete;
  EmulatedLibrary& operator=(const EmulatedLibrary&) = delete;
  [[nodiscard]] Result<HostKernel> find(const std::string& function) const;

 private:
  friend Result<std::shared_ptr<const EmulatedLibrary>> emulate(std::string_view text);
  EmulatedLibrary() = default;
  void* handle_ = nullptr;
  HostKernel common_;  ///< all but the entry
};

/// Compiles a text (without the prelude). Errors: the compiler's messages.
[[nodiscard]] Result<std::shared_ptr<const EmulatedLibrary>> emulate(std::string_view text);

/// Can this build emulate? Sanitizers of the test program do not know other stacks.
[[nodiscard]] bool can_emulate();

}  // namespace octavo::testing
