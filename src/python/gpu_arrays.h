// Arrays in a GPU's memory, as DLPack and __cuda_array_interface__ describe them: taken and made without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>

#include "octavo/octavo.h"
#include "python/arrays.h"

namespace octavo::python {

/// Is it in the memory of a GPU?
inline bool on_gpu(const nb::handle& value) {
  if (nb::hasattr(value, "__dlpack_device__")) {
    const nb::object device = value.attr("__dlpack_device__")();
    return nb::cast<int>(device[0]) == nb::device::cuda::value;
  }
  return nb::hasattr(value, "__cuda_array_interface__");
}

/// An array of another library, held for the length of a run.
struct LentGpu {
  nb::object object;
  nb::ndarray<nb::ro> exchanged;  ///< where DLPack gives it
  octavo::Memory memory;
  octavo::Shape shape;
  std::string dtype;  ///< NumPy's name

  /// `what`: "input \"x\"", for messages. Errors: bad_input for one that is not C-contiguous.
  void take(const std::string& what, const nb::handle& value) {
    object = nb::borrow(value);
    memory.on_gpu = on_gpu(value);
    bool dense = true;
    if (nb::hasattr(value, "__dlpack__")) {
      exchanged = nb::cast<nb::ndarray<nb::ro>>(value);
      memory.data = const_cast<void*>(exchanged.data());  // of inputs never written
      std::int64_t step = 1;
      for (std::size_t d = exchanged.ndim(); d-- > 0;) {
        const auto extent = static_cast<std::int64_t>(exchanged.shape(d));
        shape.insert(shape.begin(), extent);
        dense = dense && (extent == 1 || exchanged.stride(d) == step);
        step *= extent;
      }
      dtype = name_of(exchanged.dtype());
    } else {
      const nb::object about = value.attr("__cuda_array_interface__");
      memory.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(about["data"][0]));
      shape = nb::cast<octavo::Shape>(about["shape"]);
      const nb::object strides = nb::cast<nb::dict>(about).attr("get")("strides");
      dtype = nb::cast<std::string>(nb::module_::import_("numpy").attr("dtype")(about["typestr"]).attr("name"));
      dense = strides.is_none();
    }
    if (!dense) bad_input("run: " + what + " is not C-contiguous; make it so with .contiguous()");
  }

  /// Errors: bad_input when it is not what the model has there.
  void check(const std::string& what, const octavo::TensorInfo& wanted, bool open) const {
    const std::string name = numpy_name(wanted.dtype);
    if (dtype != name) bad_input("run: " + what + " is " + dtype + ", the model has " + name);
    if (!open && shape != wanted.shape)
      bad_input("run: " + what + " has shape " + shape_text(shape) + ", the engine was built for " + shape_text(wanted.shape));
  }

 private:
  static std::string name_of(const nb::dlpack::dtype& t) {
    const std::string bits = std::to_string(t.bits);
    switch (static_cast<nb::dlpack::dtype_code>(t.code)) {
      case nb::dlpack::dtype_code::Int: return "int" + bits;
      case nb::dlpack::dtype_code::UInt: return "uint" + bits;
      case nb::dlpack::dtype_code::Float: return "float" + bits;
      case nb::dlpack::dtype_code::Bfloat: return "bfloat" + bits;
      case nb::dlpack::dtype_code::Bool: return "bool";
      default: return "of a type that no model has";
    }
  }
};

inline std::size_t bits_per_element(octavo::DType type) {
  const std::string name = numpy_name(type);
  const auto digits = name.find_first_of("0123456789");
  return digits == std::string::npos ? 8 : static_cast<std::size_t>(std::stoi(name.substr(digits)));
}

/// A new array in the memory of the engine's GPU that other libraries take through DLPack (torch.from_dlpack), as often as they like.
inline nb::object new_on_gpu(const octavo::TensorInfo& info, std::shared_ptr<void> memory) {
  using Code = nb::dlpack::dtype_code;
  const auto type = [&]() -> std::pair<Code, int> {
    const std::string name = numpy_name(info.dtype);
    const auto bits = static_cast<int>(bits_per_element(info.dtype));
    if (name.starts_with("uint")) return {Code::UInt, bits};
    if (name.starts_with("int")) return {Code::Int, bits};
    if (name.starts_with("bfloat")) return {Code::Bfloat, bits};
    if (name.starts_with("bool")) return {Code::Bool, bits};
    return {Code::Float, bits};
  }();
  std::vector<std::size_t> shape(info.shape.begin(), info.shape.end());
  void* const at = memory.get();
  auto* const kept = new std::shared_ptr<void>(std::move(memory));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
  const nb::dlpack::dtype dtype{static_cast<std::uint8_t>(type.first), static_cast<std::uint8_t>(type.second), 1};
  return nb::ndarray<nb::array_api>(at, shape.size(), shape.data(), owner, nullptr, dtype, nb::device::cuda::value, 0).cast();
}

}  // namespace octavo::python
