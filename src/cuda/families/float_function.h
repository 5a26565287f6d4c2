// Our named functions of floats (program/math.h) as device functions.
#pragma once

#include <fmt/format.h>

#include <string>

#include "cuda/text/emit_cuda.h"
#include "program/math.h"

namespace octavo::cuda {

/// `float NAME(float)` from f(ProgramOps&, value) -> value.
template <class F>
[[nodiscard]] std::string float_function(const std::string& name, F f) {
  program::Program p;
  program::ProgramOps ops{p};
  const int y = f(ops, p.push(program::Op::acc_f));
  p.outputs = {{y, ir::DType::f32}};
  return emit_function(p, name + "_steps") +
         fmt::format("OCTAVO_DEVICE float {0}(float x) {{\n  float r;\n  {0}_steps(x, r);\n  return r;\n}}\n", name);
}

}  // namespace octavo::cuda
