// Numbers of a text that depend on open dimensions of a model (region::OpenExtents): a batch, a length, and what follows from them. A kernel takes them
// when it is started, as parameters behind its pointers, so that one text is that of all shapes. Everything else, and all numbers of models with fixed
// shapes, are literals, which the compiler computes with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/text/kernel_text.h"

namespace octavo::cuda {

/// A number, and whether it is open.
struct Extent {
  std::int64_t value = 1;
  bool open = false;
};

/// The open numbers of one kernel. They are given as eight bytes each, of which a parameter of four takes the lower ones.
class OpenNumbers {
 public:
  /// The text of a number: a literal with this suffix ("", "u", "ll"), or a parameter, which in a text is an int, an unsigned or a long long by the suffix.
  [[nodiscard]] std::string put(Extent e, std::string_view suffix = "");
  /// A parameter of this name and type. The text may not declare the name in front of the kernel; functions that read it get it handed on.
  void name(std::string_view name, std::int64_t value, std::string_view type = "int");
  [[nodiscard]] bool empty() const { return values_.empty(); }

  /// Parameters as they follow others: ", int kItems, ..."; as arguments of a function that takes them likewise: ", kItems, ...".
  [[nodiscard]] std::string parameters() const;
  [[nodiscard]] std::string passed() const;
  /// Adds the values to the kernel's arguments.
  void add_to(Launch& launch) const;

 private:
  std::vector<std::pair<std::string, std::string>> parameters_;  ///< type, name
  std::vector<std::int64_t> values_;
};

/// Of a text with two forms: "@closed{...}@" stays where nothing is open and goes otherwise, "@open{...}@" the other way around.
[[nodiscard]] std::string text_for(std::string_view text, bool open);

}  // namespace octavo::cuda
