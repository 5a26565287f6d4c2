#include "cuda/text/pieces.h"

#include <fmt/format.h>

namespace octavo::cuda {
namespace {

constexpr std::string_view kShare =
#include "cuda/text/share.inc"
    ;

}  // namespace

std::string_view share_text() {
  return kShare;
}

std::string declare(std::initializer_list<std::pair<std::string_view, std::int64_t>> numbers) {
  std::string out;
  for (const auto& [name, value] : numbers) out += fmt::format("constexpr int {} = {};\n", name, value);
  return out;
}

void replace_mark(std::string& text, std::string_view mark, std::string_view by) {
  text.replace(text.find(mark), mark.size(), by);
}

}  // namespace octavo::cuda
