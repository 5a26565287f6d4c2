// The machine code that kernels generate while they are made, for tools that compare two versions of the project.
#pragma once

#include <cstddef>
#include <string>

namespace octavo::cpu::jit {

/// While it lives, keeps a copy of all code that this thread generates (Code::finish). Code has no absolute addresses, so that equal
/// kernels give equal bytes in any process. Scopes nest; the innermost one gets the code.
class RecordCode {
 public:
  RecordCode();
  ~RecordCode();
  RecordCode(const RecordCode&) = delete;
  RecordCode& operator=(const RecordCode&) = delete;
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  /// Called when code is finished.
  static void finished(const std::byte* code, std::size_t bytes);

 private:
  std::string bytes_;
  RecordCode* outer_;
};

}  // namespace octavo::cpu::jit
