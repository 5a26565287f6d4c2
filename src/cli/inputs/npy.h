// NumPy's .npy and .npz files.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::cli {

using Arrays = std::map<std::string, ir::Tensor>;

/// One array. Little-endian bool, int, uint and float types of 1 to 8 bytes, C or Fortran order (returned row-major); versions 1
/// to 3. The bytes are not trusted. Fails with `bad_input`; `what` names the source in the text. Source: NEP 1 (the format's
/// description in numpy's documentation).
[[nodiscard]] Result<ir::Tensor> parse_npy(std::span<const std::byte> bytes, std::string_view what);
/// A version 1 .npy file. bf16 has no NumPy type and is written as f32.
[[nodiscard]] std::vector<std::byte> format_npy(const ir::Tensor& tensor);

/// The arrays of an .npz file (a ZIP archive of .npy files, stored or deflated, below 4 GiB), by name without ".npy".
[[nodiscard]] Result<Arrays> parse_npz(std::span<const std::byte> bytes, std::string_view what);
/// An array of strings (NumPy's type U); bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::vector<std::byte> format_npy(const std::vector<std::string>& texts);
/// An uncompressed .npz; the same bytes for the same arrays. `names`, if any, become the array "names" ("_names" where an array of
/// that name is there). Fails with `bad_input` from 4 GiB on.
[[nodiscard]] Result<std::vector<std::byte>> format_npz(const Arrays& arrays, const std::vector<std::string>& names = {});

}  // namespace octavo::cli
