// Kernels that generate their code when they are made: Xbyak throws, and errors here are values.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <utility>

#include "base/result.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {

/// Kernel(args...). Errors: `internal`, with what the code generator says.
template <class Kernel, class Base = region::HostKernel, class... Args>
Result<std::unique_ptr<Base>> make_generated(Args&&... args) {
  try {
    return std::make_unique<Kernel>(std::forward<Args>(args)...);
  } catch (const std::exception& e) {
    return fail(ErrorKind::internal, fmt::format("generating code: {}", e.what()));
  }
}

}  // namespace octavo::cpu::jit
