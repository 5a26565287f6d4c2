// The few calls of the CUDA driver needed to run a kernel, opened at run time: Octavo builds and runs without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "cuda/text/architecture.h"

namespace octavo::cuda {

/// One GPU with its primary context current on the calling thread. Not thread-safe.
class Device {
 public:
  /// Errors: `unsupported` when there is no driver or no GPU (the reason is in the text).
  [[nodiscard]] static Result<Device> open(int ordinal = 0);
  [[nodiscard]] const std::string& name() const { return name_; }
  /// sm_90a on compute capability 9.0, else sm_XY.
  [[nodiscard]] Architecture architecture() const { return architecture_; }

  [[nodiscard]] Result<std::uint64_t> allocate(std::size_t bytes) const;
  void release(std::uint64_t address) const;
  [[nodiscard]] Status copy_in(std::uint64_t to, const void* from, std::size_t bytes) const;
  [[nodiscard]] Status copy_out(void* to, std::uint64_t from, std::size_t bytes) const;
  /// Loads machine code; the module stays loaded.
  [[nodiscard]] Result<void*> load(const std::string& cubin) const;
  /// Runs kernel `function` of the module over `threads` threads with one argument of any trivially copyable type, and waits for
  /// it.
  template <class Argument>
  [[nodiscard]] Status run(void* module, const std::string& function, std::int64_t threads, Argument& argument) const {
    return launch(module, function, threads, &argument);
  }

 private:
  struct Api;
  Status launch(void* module, const std::string& function, std::int64_t threads, void* argument) const;
  std::shared_ptr<const Api> api_;
  std::string name_;
  Architecture architecture_;
};

}  // namespace octavo::cuda
