// NumPy arrays as the engine's inputs and outputs, without copies where the layout allows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>

#include "octavo/octavo.h"

namespace octavo::python {

namespace nb = nanobind;
using namespace nb::literals;

/// NumPy's name of an element type; bfloat16 is ml_dtypes' where that package is installed, else its bits as uint16.
struct Names {
  DType type;
  const char* numpy;
};
inline constexpr std::array<Names, 13> kNames = {{{DType::f32, "float32"},
                                                  {DType::f16, "float16"},
                                                  {DType::bf16, "bfloat16"},
                                                  {DType::f64, "float64"},
                                                  {DType::s8, "int8"},
                                                  {DType::u8, "uint8"},
                                                  {DType::s16, "int16"},
                                                  {DType::u16, "uint16"},
                                                  {DType::s32, "int32"},
                                                  {DType::u32, "uint32"},
                                                  {DType::s64, "int64"},
                                                  {DType::u64, "uint64"},
                                                  {DType::boolean, "bool"}}};

inline const char* numpy_name(DType type) {
  return kNames[static_cast<std::size_t>(type)].numpy;
}

inline nb::object numpy_dtype(DType type) {
  const nb::object numpy = nb::module_::import_("numpy");
  if (type != DType::bf16) return numpy.attr("dtype")(numpy_name(type));
  try {
    return numpy.attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    return numpy.attr("dtype")("uint16");
  }
}

[[noreturn]] inline void bad_input(const std::string& message) {
  throw Exception(Exception::Kind::bad_input, message);
}

inline std::string shape_text(const octavo::Shape& shape) {
  std::string out = "(";
  for (const auto d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + ")";
}

/// One array as NumPy sees it, held for the length of a run. No copy when it is C-contiguous, aligned and in native byte order.
struct Held {
  nb::object array;
  Py_buffer buffer{};
  bool have = false;
  octavo::ConstView view;

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (have) PyBuffer_Release(&buffer);
  }

  void take(const nb::object& numpy, const std::string& name, const nb::handle& value) {
    const bool exchange =
        !nb::hasattr(value, "__array__") && !nb::hasattr(value, "__array_interface__") && nb::hasattr(value, "__dlpack__");
    const nb::object source = exchange ? nb::object(numpy.attr("from_dlpack")(value)) : nb::borrow(value);
    array = numpy.attr("require")(source, "requirements"_a = "CA");  // asarray with order C and alignment, 0-d kept
    nb::object dtype = array.attr("dtype");
    if (!nb::cast<bool>(dtype.attr("isnative"))) {
      array = array.attr("astype")(dtype.attr("newbyteorder")("="));
      dtype = array.attr("dtype");
    }
    const std::string type = nb::cast<std::string>(dtype.attr("name"));
    bool known = false;
    for (const Names& n : kNames) {
      if (type != n.numpy) continue;
      view.dtype = n.type;
      known = true;
    }
    if (!known) bad_input("run: input \"" + name + "\" has dtype " + type + ", which no model input can have");
    view.shape = nb::cast<octavo::Shape>(array.attr("shape"));
    if (view.dtype == DType::bf16) array = array.attr("view")("uint16");
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    have = true;
    view.data = buffer.buf;
  }
};

/// A new array that the engine writes into.
struct Made {
  nb::object array;
  Py_buffer buffer{};
  bool have = false;

  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    if (have) PyBuffer_Release(&buffer);
  }

  void make(const nb::object& numpy, const octavo::TensorInfo& info) {
    const nb::object dtype = numpy_dtype(info.dtype);
    nb::object raw =
        numpy.attr("empty")(nb::tuple(nb::cast(info.shape)), info.dtype == DType::bf16 ? nb::object(nb::str("uint16")) : dtype);
    if (PyObject_GetBuffer(raw.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) throw nb::python_error();
    have = true;
    array = info.dtype == DType::bf16 ? nb::object(raw.attr("view")(dtype)) : raw;
  }
};

}  // namespace octavo::python
