// Where a function stands in the text of a kernel: for the stages of emission that add a parameter or lines to what a family wrote.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::cuda {

struct KernelSpan {
  std::size_t name;        ///< where ") FUNCTION(" begins
  std::size_t parameters;  ///< behind the last parameter: one more goes here
  std::size_t body;        ///< the first line
  std::size_t end;         ///< the next kernel, or the end of the text
};

/// Nothing: the text has no kernel of this name.
[[nodiscard]] inline std::optional<KernelSpan> kernel_span(std::string_view text, const std::string& function) {
  constexpr std::string_view kOpens = ") {\n", kNext = "OCTAVO_KERNEL(";
  const std::size_t name = text.find(") " + function + "(");
  if (name == std::string_view::npos) return std::nullopt;
  const std::size_t parameters = text.find(kOpens, name + 2);
  if (parameters == std::string_view::npos) return std::nullopt;
  const std::size_t next = text.find(kNext, parameters);
  return KernelSpan{name, parameters, parameters + kOpens.size(), next == std::string_view::npos ? text.size() : next};
}

}  // namespace octavo::cuda
