#include "cuda/text/early_start.h"

#include <algorithm>
#include <charconv>

namespace octavo::cuda {

bool can_start_early(std::string_view architecture) {
  constexpr std::string_view kPrefix = "sm_";
  constexpr int kFirst = 90;
  if (!architecture.starts_with(kPrefix)) return false;
  architecture.remove_prefix(kPrefix.size());
  int number = 0;
  std::from_chars(architecture.data(), architecture.data() + architecture.size(), number);
  return number >= kFirst;
}

std::string waiting_for_previous(std::string text) {
  constexpr std::string_view kKernel = "OCTAVO_KERNEL(", kWait = "octavo_wait_for_previous();";
  constexpr std::string_view kBegin = "\n  octavo_wait_for_previous();";
  for (std::size_t at = text.find(kKernel); at != std::string::npos;) {
    const std::size_t next = text.find(kKernel, at + kKernel.size());
    const std::size_t wait = text.find(kWait, at), body = text.find('{', at);
    if (body == std::string::npos || body > next) return text;  // a declaration: nothing here writes one
    const bool waits = wait != std::string::npos && wait < next;
    if (!waits) text.insert(body + 1, kBegin);
    at = next == std::string::npos || waits ? next : next + kBegin.size();
  }
  return text;
}

}  // namespace octavo::cuda
