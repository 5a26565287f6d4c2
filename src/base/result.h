// Errors are values. A Result<T> holds a T or an Error; nothing in the core throws.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/out_of_line.h"
#include "base/reason.h"

namespace octavo {

/// What went wrong, for exit codes and for the Python exception type. The text is for people.
enum class ErrorKind {
  usage,        ///< the caller asked for something that cannot be (exit code 2)
  bad_model,    ///< the ONNX file is corrupt or contradicts itself (3)
  unsupported,  ///< valid, but not covered; the text names the node and the way out (4)
  bad_input,    ///< image, .npy, shapes or types that do not fit (5)
  bad_engine,   ///< engine file damaged, foreign, or of another version (6)
  io,           ///< a file cannot be read or written (7)
  internal,     ///< our own mistake (70)
};

/// One error: what was being done, the fact that stopped it with both values, where it came from, what to do next.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;
  Reasons reasons;  ///< the same as data, where somebody decides by it or shows it as a reason (region/refusal.h)
  OCTAVO_OUT_OF_LINE(Error);
  Error(ErrorKind what, std::string text, Reasons why = {});
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

[[nodiscard]] tl::unexpected<Error> fail(ErrorKind kind, std::string message);

/// The process exit code of an error kind.
[[nodiscard]] int exit_code(ErrorKind kind);

}  // namespace octavo

#define OCTAVO_CONCAT_(a, b) a##b
#define OCTAVO_CONCAT(a, b) OCTAVO_CONCAT_(a, b)
/// Returns the error from the enclosing function if `expr` failed.
#define OCTAVO_CHECK(expr)                                                                                                     \
  do {                                                                                                                         \
    if (auto octavo_status = (expr); !octavo_status) return tl::unexpected<::octavo::Error>(std::move(octavo_status).error()); \
  } while (false)
/// `OCTAVO_TRY(auto x, f())`: x = value of f(), or return its error.
#define OCTAVO_TRY_(tmp, decl, expr)                                        \
  auto tmp = (expr);                                                        \
  if (!tmp) return tl::unexpected<::octavo::Error>(std::move(tmp).error()); \
  decl = std::move(*tmp)
#define OCTAVO_TRY(decl, expr) OCTAVO_TRY_(OCTAVO_CONCAT(octavo_try_, __LINE__), decl, expr)
