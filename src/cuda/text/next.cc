#include "cuda/text/next.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace octavo::cuda {

void take_next(KernelText& t) {
  constexpr std::string_view kCall = "octavo_let_next_begin()", kName = "octavo_lets_next";
  std::set<std::string> changed;
  for (Launch& l : t.launches) {
    const std::size_t name = t.text.find(") " + l.function + "("),
                      parameters = t.text.find(") {\n", name == std::string::npos ? name : name + 2);
    if (name == std::string::npos || parameters == std::string::npos) continue;
    std::size_t end = std::min(t.text.find("OCTAVO_KERNEL(", parameters), t.text.size());  // of the kernel
    const std::string_view kernel = std::string_view(t.text).substr(name, end - name);
    const bool known = changed.contains(l.function);
    if (!known && kernel.find(kCall) == std::string_view::npos) continue;
    l.arguments.push_back({Argument::Kind::next, 0, 0});
    if (!changed.insert(l.function).second) continue;
    for (std::size_t at = t.text.find(kCall, parameters); at < end; at = t.text.find(kCall, at + 1)) {
      t.text.insert(at + kCall.size() - 1, kName);
      end += kName.size();
    }
    t.text.insert(parameters, ", int " + std::string(kName));
  }
}

}  // namespace octavo::cuda
