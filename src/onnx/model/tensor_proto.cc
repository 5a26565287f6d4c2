#include "onnx/model/tensor_proto.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "onnx/model/held.h"

namespace octavo::onnx {
namespace {

namespace fs = std::filesystem;
using ir::DType;
using ir::Shape;
using ir::Tensor;

std::string describe(const pb::TensorProto& proto) {
  return fmt::format("tensor \"{}\" ({}{})", proto.name(), onnx_type_name(proto.data_type()),
                     ir::to_string(Shape(proto.dims().begin(), proto.dims().end())));
}

Result<std::uint64_t> parse_number(const std::string& text, const std::string& key, const std::string& what) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorKind::bad_model, fmt::format("external data of {}: {} is \"{}\", not a number", what, key, text));
  }
  return value;
}

/// One element a byte from packed bits, the lowest first; integers sign-extended.
Tensor unpacked(DType type, const Shape& dims, const std::uint8_t* packed) {
  Tensor out(type, dims);
  auto to = out.mutable_data<std::uint8_t>();
  const auto bits = static_cast<std::size_t>(ir::small_bits(type)), each = 8 / bits;
  const unsigned mask = (1U << bits) - 1, sign = ir::small_lo(type) < 0 ? 1U << (bits - 1) : 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const unsigned code = (packed[i / each] >> (i % each * bits)) & mask;
    to[i] = static_cast<std::uint8_t>((code & sign) != 0 ? code | ~mask : code);
  }
  return out;
}

/// Bytes of a tensor in a file.
std::uint64_t file_bytes(DType type, const Shape& dims) {
  const auto n = static_cast<std::uint64_t>(ir::count(dims));
  if (!is_small(type)) return n * ir::size_of(type);
  const auto each = static_cast<std::uint64_t>(8 / ir::small_bits(type));
  return (n + each - 1) / each;
}

Result<Tensor> read_external(const pb::TensorProto& proto, DType type, const Shape& dims, const std::string& base_dir) {
  const std::string what = describe(proto);
  std::string location;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") {
      OCTAVO_TRY(offset, parse_number(entry.value(), "offset", what));
    }
    if (entry.key() == "length") {
      OCTAVO_TRY(length, parse_number(entry.value(), "length", what));
    }
  }
  if (location.empty()) return fail(ErrorKind::bad_model, fmt::format("external data of {}: no location", what));
  if (location.find('\0') != std::string::npos) {  // the system would open another file than the one judged below
    return fail(ErrorKind::bad_model,
                fmt::format("external data of {}: the location \"{}\" holds a zero byte", what, location.c_str()));
  }
  if (base_dir.empty()) {
    return fail(ErrorKind::bad_model,
                fmt::format("{} lies in the external file \"{}\", but the model was given as bytes without a folder to look in; "
                            "pass the path of the model instead",
                            what, location));
  }
  std::error_code code;
  const fs::path relative(location);
  const fs::path base = fs::weakly_canonical(fs::path(base_dir), code);
  const fs::path full = fs::weakly_canonical(base / relative, code);
  const fs::path inside = full.lexically_relative(base);
  if (code || relative.is_absolute() || inside.empty() || *inside.begin() == "..") {
    return fail(ErrorKind::bad_model, fmt::format("external data of {}: location \"{}\" leads out of the folder of the model; "
                                                  "external data must lie in or below it",
                                                  what, location));
  }
  if (!fs::is_regular_file(full, code)) {
    return fail(ErrorKind::io, fmt::format("external data of {}: \"{}\" is not a file in the folder of the model", what, location));
  }
  const std::uint64_t file_size = fs::file_size(full, code);
  const std::uint64_t want = file_bytes(type, dims);
  if (length && *length != want) {
    return fail(ErrorKind::bad_model,
                fmt::format("external data of {}: length is {} bytes, the shape needs {}", what, *length, want));
  }
  if (offset > file_size || file_size - offset < want) {
    return fail(ErrorKind::bad_model, fmt::format("external data of {}: needs {} bytes at offset {}, but \"{}\" has {} bytes", what,
                                                  want, offset, location, file_size));
  }
  const bool packed = is_small(type);
  Tensor out = packed ? Tensor(DType::u8, {static_cast<std::int64_t>(want)}) : Tensor(type, dims);
  std::ifstream in(full, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(out.mutable_bytes().data()), static_cast<std::streamsize>(want));
  if (!in) return fail(ErrorKind::io, fmt::format("external data of {}: reading \"{}\" failed", what, location));
  return packed ? unpacked(type, dims, out.data<std::uint8_t>().data()) : out;
}

template <class To, class Field>
Result<Tensor> from_field(const pb::TensorProto& proto, DType type, const Shape& dims, const Field& field) {
  const auto want = ir::count(dims);
  if (field.size() != want) {
    return fail(ErrorKind::bad_model,
                fmt::format("{} has {} elements of data, its shape needs {}", describe(proto), field.size(), want));
  }
  Tensor out(type, dims);
  auto to = out.mutable_data<To>();
  for (int i = 0; i < field.size(); ++i) to[static_cast<std::size_t>(i)] = static_cast<To>(field.Get(i));
  return out;
}

}  // namespace

std::optional<DType> dtype_of(std::int32_t onnx_type) {
  switch (onnx_type) {
    case pb::TensorProto::FLOAT: return DType::f32;
    case pb::TensorProto::UINT8: return DType::u8;
    case pb::TensorProto::INT8: return DType::s8;
    case pb::TensorProto::UINT16: return DType::u16;
    case pb::TensorProto::INT16: return DType::s16;
    case pb::TensorProto::INT32: return DType::s32;
    case pb::TensorProto::INT64: return DType::s64;
    case pb::TensorProto::BOOL: return DType::boolean;
    case pb::TensorProto::FLOAT16: return DType::f16;
    case pb::TensorProto::DOUBLE: return DType::f64;
    case pb::TensorProto::UINT32: return DType::u32;
    case pb::TensorProto::UINT64: return DType::u64;
    case pb::TensorProto::BFLOAT16: return DType::bf16;
    case pb::TensorProto::FLOAT8E4M3FN: return DType::f8e4m3fn;
    case pb::TensorProto::FLOAT8E4M3FNUZ: return DType::f8e4m3fnuz;
    case pb::TensorProto::FLOAT8E5M2: return DType::f8e5m2;
    case pb::TensorProto::FLOAT8E5M2FNUZ: return DType::f8e5m2fnuz;
    case 21: return DType::u4;  // numbers: older schemas lack the names
    case 22: return DType::s4;
    case 23: return DType::f4e2m1;
    case 24: return DType::f8e8m0;
    case 25: return DType::u2;
    case 26: return DType::s2;
    default: return std::nullopt;
  }
}

std::string onnx_type_name(std::int32_t onnx_type) {
  constexpr std::string_view kNames[] = {
      "undefined",  "float",        "uint8",          "int8",       "uint16",         "int16",  "int32",     "int64",
      "string",     "bool",         "float16",        "double",     "uint32",         "uint64", "complex64", "complex128",
      "bfloat16",   "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",  "int4",      "float4e2m1",
      "float8e8m0", "uint2",        "int2",           "float6e2m3", "float6e3m2"};
  if (onnx_type >= 0 && static_cast<std::size_t>(onnx_type) < std::size(kNames)) return std::string(kNames[onnx_type]);
  return fmt::format("type {}", onnx_type);
}

std::string type_advice(std::int32_t onnx_type) {
  switch (onnx_type) {
    case pb::TensorProto::STRING: return "do text processing outside the model";
    case pb::TensorProto::COMPLEX64:
    case pb::TensorProto::COMPLEX128: return "split complex values into real and imaginary tensors before export";
    case pb::TensorProto::UNDEFINED: return "the file does not say the type; export it again";
    default: return "export with 8-bit (int8, uint8) quantization or in float";
  }
}

Result<std::int64_t> checked_count(const Shape& dims, const std::string& what) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t n = 1;
  bool zero = false;
  for (const std::int64_t d : dims) {
    if (d < 0) return fail(ErrorKind::bad_model, fmt::format("{} has a negative dimension: {}", what, ir::to_string(dims)));
    if (d == 0) zero = true;
  }
  for (const std::int64_t d : dims) {
    if (d == 0) continue;
    if (d > kMost || n > kMost / d) {
      return fail(ErrorKind::bad_model, fmt::format("{} is too large: {} has more than 2^40 elements", what, ir::to_string(dims)));
    }
    n *= d;
  }
  return zero ? 0 : n;
}

Result<std::int64_t> checked_constant(const Shape& dims, const std::string& what) {
  OCTAVO_TRY(const std::int64_t count, checked_count(dims, what));
  if (count > (std::int64_t{1} << 26)) {
    return fail(ErrorKind::unsupported, fmt::format("{} needs a constant of {}, {} elements; at most 2^26 are supported", what,
                                                    ir::to_string(dims), count));
  }
  return count;
}

Result<Tensor> read_tensor(const pb::TensorProto& proto, const std::string& base_dir) {
  const Shape dims(proto.dims().begin(), proto.dims().end());
  const std::string what = describe(proto);
  OCTAVO_TRY(const std::int64_t want, checked_count(dims, what));
  const auto type = dtype_of(proto.data_type());
  if (!type) {
    return fail(ErrorKind::unsupported, fmt::format("{}: element type {} is not supported; {}", what,
                                                    onnx_type_name(proto.data_type()), type_advice(proto.data_type())));
  }
  if (proto.has_segment())
    return fail(ErrorKind::unsupported, fmt::format("{} is stored in segments; save it as one tensor", what));
  if (proto.data_location() == pb::TensorProto::EXTERNAL) return read_external(proto, *type, dims, base_dir);
  if (proto.has_raw_data() && (!proto.raw_data().empty() || want == 0)) {
    const std::size_t bytes = static_cast<std::size_t>(file_bytes(*type, dims));
    if (proto.raw_data().size() != bytes) {
      return fail(ErrorKind::bad_model, fmt::format("{} has {} bytes of data, its shape needs {}; the file is damaged", what,
                                                    proto.raw_data().size(), bytes));
    }
    if (is_small(*type)) return unpacked(*type, dims, reinterpret_cast<const std::uint8_t*>(proto.raw_data().data()));
    Tensor out(*type, dims);
    if (bytes) std::memcpy(out.mutable_bytes().data(), proto.raw_data().data(), bytes);
    return out;
  }
  if (is_small(*type)) {  // each entry is one byte of packed elements
    const auto bytes = static_cast<int>(file_bytes(*type, dims));
    if (proto.int32_data().size() != bytes) {
      return fail(ErrorKind::bad_model,
                  fmt::format("{} has {} bytes of data, its shape needs {}", what, proto.int32_data().size(), bytes));
    }
    std::vector<std::uint8_t> packed;
    for (const std::int32_t v : proto.int32_data()) packed.push_back(static_cast<std::uint8_t>(v));
    return unpacked(*type, dims, packed.data());
  }
  switch (*type) {
    case DType::f32: return from_field<float>(proto, *type, dims, proto.float_data());
    case DType::f64: return from_field<double>(proto, *type, dims, proto.double_data());
    case DType::f16:
    case DType::bf16:
    case DType::u16: return from_field<std::uint16_t>(proto, *type, dims, proto.int32_data());
    case DType::s16: return from_field<std::int16_t>(proto, *type, dims, proto.int32_data());
    case DType::s8: return from_field<std::int8_t>(proto, *type, dims, proto.int32_data());
    case DType::u8: return from_field<std::uint8_t>(proto, *type, dims, proto.int32_data());
    case DType::boolean: {
      OCTAVO_TRY(Tensor out, from_field<std::uint8_t>(proto, *type, dims, proto.int32_data()));
      for (std::uint8_t& b : out.mutable_data<std::uint8_t>()) b = b != 0;
      return out;
    }
    case DType::s32: return from_field<std::int32_t>(proto, *type, dims, proto.int32_data());
    case DType::s64: return from_field<std::int64_t>(proto, *type, dims, proto.int64_data());
    case DType::u32: return from_field<std::uint32_t>(proto, *type, dims, proto.uint64_data());
    case DType::u64: return from_field<std::uint64_t>(proto, *type, dims, proto.uint64_data());
    default: break;
  }
  return fail(ErrorKind::internal, "read_tensor: unhandled element type");
}

}  // namespace octavo::onnx
