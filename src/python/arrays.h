// NumPy arrays as the engine's inputs and outputs, without copies where the layout allows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/nearest.h"
#include "octavo/octavo.h"

namespace octavo::python {

namespace nb = nanobind;
using namespace nb::literals;

/// NumPy's name of an element type, or ml_dtypes'.
struct Names {
  DType type;
  const char* numpy;
};
inline constexpr std::array<Names, 23> kNames = {{{DType::f32, "float32"},
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
                                                  {DType::boolean, "bool"},
                                                  {DType::s4, "int4"},
                                                  {DType::u4, "uint4"},
                                                  {DType::s2, "int2"},
                                                  {DType::u2, "uint2"},
                                                  {DType::f8e4m3fn, "float8_e4m3fn"},
                                                  {DType::f8e4m3fnuz, "float8_e4m3fnuz"},
                                                  {DType::f8e5m2, "float8_e5m2"},
                                                  {DType::f8e5m2fnuz, "float8_e5m2fnuz"},
                                                  {DType::f8e8m0, "float8_e8m0fnu"},
                                                  {DType::f4e2m1, "float4_e2m1fn"}}};

/// Types that NumPy has only with ml_dtypes; without it their bits are seen as uint16 or uint8.
inline bool needs_ml_dtypes(DType t) {
  return t == DType::bf16 || t > DType::boolean;
}
inline const char* bits_of(DType t) {
  return t == DType::bf16 ? "uint16" : "uint8";
}

inline const char* numpy_name(DType type) {
  return kNames[static_cast<std::size_t>(type)].numpy;
}

inline nb::object numpy_dtype(DType type) {
  const nb::object numpy = nb::module_::import_("numpy");
  if (!needs_ml_dtypes(type)) {
    static std::array<PyObject*, kNames.size()> known{};  // with the GIL; they live as long as the interpreter
    PyObject*& dtype = known[static_cast<std::size_t>(type)];
    if (dtype == nullptr) dtype = nb::object(numpy.attr("dtype")(numpy_name(type))).release().ptr();
    return nb::borrow(dtype);
  }
  try {
    return numpy.attr("dtype")(nb::module_::import_("ml_dtypes").attr(numpy_name(type)));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    return numpy.attr("dtype")(bits_of(type));
  }
}

[[noreturn]] inline void bad_input(const std::string& message) {
  throw Exception(Exception::Kind::bad_input, message);
}

/// `bad_input` for a key that is no input, with the nearest name. Call it before what is missing is looked for: the key may be a misspelled name.
inline void refuse_unknown(const std::string& who, const std::set<std::string>& inputs, const nb::dict& given) {
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(nb::str(key));
    if (!inputs.contains(name)) bad_input(who + ": the model has no input \"" + name + "\"" + nearest_text(inputs, name));
  }
}

inline std::string shape_text(const octavo::Shape& shape) {
  std::string out = "(";
  for (const auto d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + ")";
}

/// The element type of a buffer of numbers in native byte order, by its format in terms of Python's `struct`. Nothing: it is another one.
inline std::optional<DType> type_of_format(const char* format, Py_ssize_t bytes) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const auto whole = [&](DType one, DType two, DType four, DType eight) -> std::optional<DType> {
    return bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : bytes == 8 ? std::optional(eight) : std::nullopt;
  };
  switch (format[0]) {
    case 'f': return DType::f32;
    case 'd': return DType::f64;
    case 'e': return DType::f16;
    case '?': return DType::boolean;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q': return whole(DType::s8, DType::s16, DType::s32, DType::s64);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q': return whole(DType::u8, DType::u16, DType::u32, DType::u64);
    default: return std::nullopt;
  }
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
    if (take_as_it_is(numpy, value)) return;
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
    if (needs_ml_dtypes(view.dtype)) array = array.attr("view")(bits_of(view.dtype));
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    have = true;
    view.data = buffer.buf;
  }

 private:
  /// An ndarray that needs no conversion, without asking Python for anything: a few inputs otherwise take longer than a small model.
  bool take_as_it_is(const nb::object& numpy, const nb::handle& value) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())) != numpy.attr("ndarray").ptr()) return false;
    if (PyObject_GetBuffer(value.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      return false;
    }
    const auto type = type_of_format(buffer.format, buffer.itemsize);
    if (!type || reinterpret_cast<std::uintptr_t>(buffer.buf) % static_cast<std::uintptr_t>(buffer.itemsize) != 0) {
      PyBuffer_Release(&buffer);
      return false;
    }
    have = true;
    array = nb::borrow(value);
    view.data = buffer.buf;
    view.dtype = *type;
    view.shape.assign(buffer.shape, buffer.shape + buffer.ndim);
    return true;
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
    nb::object raw = numpy.attr("empty")(nb::tuple(nb::cast(info.shape)),
                                         needs_ml_dtypes(info.dtype) ? nb::object(nb::str(bits_of(info.dtype))) : dtype);
    if (PyObject_GetBuffer(raw.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) throw nb::python_error();
    have = true;
    array = needs_ml_dtypes(info.dtype) ? nb::object(raw.attr("view")(dtype)) : raw;
  }
};

/// An array of the caller that the engine writes into.
struct Lent {
  nb::object array;
  Py_buffer buffer{};
  bool have = false;

  Lent() = default;
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (have) PyBuffer_Release(&buffer);
  }

  /// Errors: bad_input for one that is not C-contiguous, writable, aligned, or not what the model has there.
  void take(const nb::object& numpy, const octavo::TensorInfo& info, const nb::object& value) {
    array = numpy.attr("asarray")(value);  // of memory that it can share no copy
    const std::string type = nb::cast<std::string>(array.attr("dtype").attr("name"));
    const auto shape = nb::cast<octavo::Shape>(array.attr("shape"));
    if (type != numpy_name(info.dtype) && !(needs_ml_dtypes(info.dtype) && type == bits_of(info.dtype))) {
      bad_input("run: output \"" + info.name + "\" is " + numpy_name(info.dtype) + ", the array given for it " + type);
    }
    if (shape != info.shape) {
      bad_input("run: output \"" + info.name + "\" has shape " + shape_text(info.shape) + ", the array given for it " +
                shape_text(shape));
    }
    const bool shared = nb::cast<bool>(numpy.attr("may_share_memory")(array, value));
    if (!shared || !nb::cast<bool>(array.attr("flags").attr("carray"))) {
      bad_input("run: the array given for output \"" + info.name +
                "\" cannot be written where it is: it must be a C-contiguous, aligned, "
                "writable array in the memory of the host");
    }
    const nb::object raw = needs_ml_dtypes(info.dtype) ? nb::object(array.attr("view")(bits_of(info.dtype))) : array;
    if (PyObject_GetBuffer(raw.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) throw nb::python_error();
    have = true;
    array = value;
  }
};

}  // namespace octavo::python
