// What the C++ interface tells, as dicts and lists of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "octavo/octavo.h"

namespace octavo::python {

[[nodiscard]] nanobind::dict describe(const ModelInfo& model);
/// Inputs or outputs of an engine: with "symbols", the model's names of their dimensions.
[[nodiscard]] nanobind::list describe_bindings(const std::vector<TensorInfo>& tensors);
/// The plan, one dict a layer.
[[nodiscard]] nanobind::list layers(const Engine& engine);
[[nodiscard]] nanobind::list findings(const std::vector<Finding>& found);

}  // namespace octavo::python
