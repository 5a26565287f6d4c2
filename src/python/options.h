// The options of octavo.build, as octavo/__init__.py has checked and completed them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "octavo/octavo.h"

namespace octavo::python {

[[nodiscard]] BuildOptions options_of(const nanobind::dict& options);
[[nodiscard]] std::string path_of(const nanobind::object& path);

/// check, bench, profile, preprocess and the command, for the module.
void add_tools(nanobind::module_& m);
/// What octavo.quantize calls.
void add_quantize(nanobind::module_& m);

}  // namespace octavo::python
