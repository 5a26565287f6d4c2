// Small pieces of which texts of kernels are made.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace octavo::cuda {

/// "constexpr int kName = 7;" and the end of the line, for each.
[[nodiscard]] std::string declare(std::initializer_list<std::pair<std::string_view, std::int64_t>> numbers);
/// "1, 2, 3"
template <class Numbers>
[[nodiscard]] std::string listed(const Numbers& numbers) {
  std::string out;
  for (const auto n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out;
}

/// Puts `by` in the place of `mark`, which the text has once.
void replace_mark(std::string& text, std::string_view mark, std::string_view by);

/// `octavo_share(e, sum, inverse)`: the quotient of a softmax (share.inc).
[[nodiscard]] std::string_view share_text();

}  // namespace octavo::cuda
