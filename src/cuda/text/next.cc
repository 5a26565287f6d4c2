#include "cuda/text/next.h"

#include <set>
#include <string>
#include <string_view>

#include "cuda/text/kernel_span.h"

namespace octavo::cuda {

void take_next(KernelText& t) {
  constexpr std::string_view kCall = "octavo_let_next_begin()", kName = "octavo_lets_next";
  std::set<std::string> changed;
  for (Launch& l : t.launches) {
    const auto span = kernel_span(t.text, l.function);
    if (!span) continue;
    std::size_t end = span->end;
    const std::string_view kernel = std::string_view(t.text).substr(span->name, end - span->name);
    const bool known = changed.contains(l.function);
    if (!known && kernel.find(kCall) == std::string_view::npos) continue;
    l.arguments.push_back({Argument::Kind::next, 0, 0});
    if (!changed.insert(l.function).second) continue;
    for (std::size_t at = t.text.find(kCall, span->body); at < end; at = t.text.find(kCall, at + 1)) {
      t.text.insert(at + kCall.size() - 1, kName);
      end += kName.size();
    }
    t.text.insert(span->parameters, ", int " + std::string(kName));
  }
}

}  // namespace octavo::cuda
