// Reading one line of the text form, token by token. Inside of ir/text.
#pragma once

#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace octavo::ir {

/// The text in double quotes, with \" \\ and \xHH escapes.
[[nodiscard]] std::string quoted(std::string_view s);

/// A cursor over one line. Every reader skips blanks first and leaves the cursor alone when it does not match.
class Lexer {
 public:
  explicit Lexer(std::string_view line) : rest_(line) {}

  void blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) rest_.remove_prefix(1);
  }
  [[nodiscard]] bool at_end() {
    blanks();
    return rest_.empty() || rest_[0] == '#';
  }
  [[nodiscard]] std::string_view rest() {
    blanks();
    return rest_.substr(0, 40);
  }
  [[nodiscard]] bool peek(std::string_view text) {
    blanks();
    return rest_.starts_with(text);
  }
  [[nodiscard]] bool take(std::string_view text) {
    if (!peek(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// A word that is not the beginning of a longer one.
  [[nodiscard]] bool take_word(std::string_view text) {
    if (!peek(text) || (rest_.size() > text.size() && word_char(rest_[text.size()]))) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  [[nodiscard]] std::optional<std::string> word() {
    blanks();
    std::size_t n = 0;
    while (n < rest_.size() && word_char(rest_[n])) ++n;
    if (n == 0) return std::nullopt;
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }
  [[nodiscard]] std::optional<std::string> string() {
    blanks();
    if (rest_.empty() || rest_[0] != '"') return std::nullopt;
    std::string out;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        return out;
      }
      if (rest_[i] != '\\') {
        out += rest_[i];
        continue;
      }
      if (++i >= rest_.size()) return std::nullopt;
      if (rest_[i] != 'x') {
        out += rest_[i];
        continue;
      }
      unsigned code = 0;
      if (i + 2 >= rest_.size()) return std::nullopt;
      const auto [end, error] = std::from_chars(rest_.data() + i + 1, rest_.data() + i + 3, code, 16);
      if (error != std::errc{} || end != rest_.data() + i + 3) return std::nullopt;
      out += static_cast<char>(code);
      i += 2;
    }
    return std::nullopt;
  }
  /// Everything up to a blank or one of `stops`.
  [[nodiscard]] std::string_view until(std::string_view stops) {
    blanks();
    const std::string_view out = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(out.size());
    return out;
  }
  template <class T>
  [[nodiscard]] std::optional<T> number() {
    blanks();
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

 private:
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%'; }
  std::string_view rest_;
};

}  // namespace octavo::ir
