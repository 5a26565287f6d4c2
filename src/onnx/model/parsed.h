// An ONNX model, parsed once: whoever asks about a file, imports it or edits it begins here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace octavo::onnx {

struct ParsedParts;  // parsed_parts.h

/// Immutable; copies share everything. For any number of threads.
class Parsed {
 public:
  /// Parsed as it is read: the file's bytes and the message are never in memory both. `name`: how errors call the model; empty: the path.
  /// Errors: io; bad_model for what is no ONNX model, saying what it is where that is known.
  [[nodiscard]] static Result<Parsed> file(const std::string& path, const std::string& name = {});
  /// `folder`: where external data lies; empty: nowhere.
  [[nodiscard]] static Result<Parsed> bytes(std::span<const std::byte> bytes, const std::string& folder,
                                            const std::string& name = "the model");
  explicit Parsed(std::shared_ptr<const ParsedParts> parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const ParsedParts& parts() const { return *parts_; }
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::string& folder() const;

 private:
  std::shared_ptr<const ParsedParts> parts_;
};

/// How many models this process has parsed: tests hold a command to one.
[[nodiscard]] std::uint64_t parses();

}  // namespace octavo::onnx
