// TensorProto -> ir::Tensor, in every encoding (raw, typed fields, external file), and the names of ONNX element types.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "ir/tensor.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {

/// ONNX element type -> ours; nullopt for those the IR does not have (strings, complex, 6-bit floats).
[[nodiscard]] std::optional<ir::DType> dtype_of(std::int32_t onnx_type);
/// "float16", "int4", ...: as ONNX spells it; "type 77" for a number it does not know.
[[nodiscard]] std::string onnx_type_name(std::int32_t onnx_type);
/// What can be done about an element type that dtype_of does not have.
[[nodiscard]] std::string type_advice(std::int32_t onnx_type);

/// Element count of `dims`; an error if one is negative or the tensor would pass 2^40 elements.
[[nodiscard]] Result<std::int64_t> checked_count(const ir::Shape& dims, const std::string& what);
/// The same for a constant that import itself makes (a mask, a grid, a table): at most 2^26 elements, else unsupported.
[[nodiscard]] Result<std::int64_t> checked_constant(const ir::Shape& dims, const std::string& what);

/// The elements in their declared type. `base_dir` holds external data; the file must lie in it ("..", absolute paths and links
/// that lead out are refused). Errors: bad_model (sizes disagree, data missing), unsupported (element type), io.
[[nodiscard]] Result<ir::Tensor> read_tensor(const pb::TensorProto& proto, const std::string& base_dir);

}  // namespace octavo::onnx
