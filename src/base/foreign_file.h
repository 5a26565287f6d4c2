// What a file is that is none of ours, told from its first bytes (of archives from the names in them): for messages about the wrong file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

struct ForeignFile {
  std::string_view name;  ///< "a PyTorch checkpoint": to follow "it is"
  std::string_view help;  ///< what to do, with the page that says more: "export it with torch.onnx.export (docs/from-pytorch.md)"
};

/// Nothing for ONNX models, for Octavo's engines and for what is not known. Never fails, whatever the bytes.
[[nodiscard]] std::optional<ForeignFile> foreign_file(std::span<const std::byte> bytes);
/// The same of a file, of which only the beginning is read, and the directory of an archive. Nothing for what cannot be read.
[[nodiscard]] std::optional<ForeignFile> foreign_file(const std::string& path);

}  // namespace octavo
