// The spelling of tactics, written and read:
//   tactic     = provider "." family ["@" version] ["{" key "=" value {"," key "=" value} "}"] ["(" tactic {"," tactic} ")"]
#include "region/tactic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

namespace octavo::region {
namespace {

constexpr int kMostDepth = 4;
constexpr std::size_t kMostParts = 64, kMostLetters = 4096;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '+';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), rest_(text) {}

  Result<Tactic> all() {
    if (text_.size() > kMostLetters) return bad(fmt::format("it has {} letters, at most {}", text_.size(), kMostLetters));
    OCTAVO_TRY(Tactic t, tactic(1));
    if (!rest_.empty()) return bad(fmt::format("\"{}\" follows its end", rest_));
    return t;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is not a tactic: {}", text_.substr(0, 200), what));
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view word() {
    const auto* end = std::find_if_not(rest_.begin(), rest_.end(), is_letter);
    const std::string_view found = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(found.size());
    return found;
  }

  Result<Tactic> tactic(int depth) {
    if (depth > kMostDepth) return bad(fmt::format("parts nest more than {} deep", kMostDepth));
    Tactic t;
    const std::string_view name = word();
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size())
      return bad(fmt::format("\"{}\" is not a provider and a family with a dot between them", name));
    t.provider = name.substr(0, dot);
    t.family = name.substr(dot + 1);
    if (take('@')) {
      const std::string_view digits = word();
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), t.version);
      if (error != std::errc() || end != digits.data() + digits.size() || t.version < 0 || t.version == 1)
        return bad(fmt::format("version \"{}\" is not a number from 2 on", digits));
    }
    if (take('{')) {
      do {
        const std::string_view key = word();
        if (key.empty() || !take('=')) return bad("a parameter is not a name, \"=\" and a value");
        const std::string_view value = word();
        if (value.empty()) return bad(fmt::format("parameter \"{}\" has no value", key));
        if (!t.parameters.emplace(key, value).second) return bad(fmt::format("parameter \"{}\" is given twice", key));
      } while (take(','));
      if (!take('}')) return bad("the parameters are not closed by \"}\"");
    }
    if (take('(')) {
      do {
        OCTAVO_TRY(t.parts.emplace_back(), tactic(depth + 1));
        if (t.parts.size() > kMostParts) return bad(fmt::format("more than {} parts", kMostParts));
      } while (take(','));
      if (!take(')')) return bad("the parts are not closed by \")\"");
    }
    return t;
  }

  std::string_view text_, rest_;
};

}  // namespace

OCTAVO_DEFINE_OUT_OF_LINE(Tactic);
namespace {

/// As many names as Tactic has fields: with another one this does not compile. (Clang 14 crashes on a defaulted comparison of what has a vector of itself.)
auto fields_of_tactic(const Tactic& t) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k] = t;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}

}  // namespace
bool Tactic::operator==(const Tactic& other) const {
  return fields_of_tactic(*this) == fields_of_tactic(other);
}

std::string Tactic::name() const {
  std::string out = provider + "." + family;
  if (version != 1) out += fmt::format("@{}", version);
  char before = '{';
  for (const auto& [key, value] : parameters) {
    out += before + key + "=" + value;
    before = ',';
  }
  if (!parameters.empty()) out += '}';
  before = '(';
  for (const Tactic& part : parts) {
    out += before + part.name();
    before = ',';
  }
  if (!parts.empty()) out += ')';
  return out;
}

Result<Tactic> parse_tactic(std::string_view name) {
  return Parser(name).all();
}

bool selects(const Tactic& wanted, const Tactic& tactic) {
  if (wanted.provider != tactic.provider || wanted.family != tactic.family || wanted.version != tactic.version) return false;
  for (const auto& [key, value] : wanted.parameters) {
    const auto found = tactic.parameters.find(key);
    if (found == tactic.parameters.end() || found->second != value) return false;
  }
  return wanted.parts.empty() ||
         std::equal(wanted.parts.begin(), wanted.parts.end(), tactic.parts.begin(), tactic.parts.end(), selects);
}

std::vector<std::string> required_by(const std::vector<Tactic>& tactics) {
  std::set<std::string> all;
  for (const Tactic& t : tactics) all.insert(t.required.begin(), t.required.end());
  return {all.begin(), all.end()};
}

}  // namespace octavo::region
