// Runs of an engine on arrays of Python.
#pragma once

#include <nanobind/nanobind.h>

#include "octavo/octavo.h"

namespace octavo::python {

/// {output: array}, as the docstring of Engine.run says.
[[nodiscard]] nanobind::dict run(const Engine& engine, const nanobind::object& inputs, const nanobind::object& outputs,
                                 const nanobind::object& stream);
/// One run that counts: [{"tensor", "nodes", "nan", "infinite", "elements"}].
[[nodiscard]] nanobind::list nonfinite(const Engine& engine, const nanobind::object& inputs);

}  // namespace octavo::python
