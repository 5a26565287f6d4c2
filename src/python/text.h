// Text for Python from files that may hold any bytes: names of tensors, lines of tables.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace octavo::python {

/// A str; bytes that are no UTF-8 are written as "\\xff".
inline nanobind::str text_of(std::string_view bytes) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
}

}  // namespace octavo::python
