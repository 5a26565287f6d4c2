// Calibration tables and JSON ranges.
#include <cstdlib>
#include <string_view>

#include "api/ranges.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto ranges = octavo::api::parse_ranges({reinterpret_cast<const char*>(data), size}, "table");
  if (!ranges && (ranges.error().message.empty() || ranges.error().kind != octavo::ErrorKind::bad_input)) std::abort();
  if (ranges) {
    for (const auto& [name, q] : *ranges) {
      if (!q.per_tensor() || q.entries() != 1 || !(q.scale_at(0) >= 0) || q.zero_at(0) < q.lo() || q.zero_at(0) > q.hi())
        std::abort();
    }
  }
  return 0;
}
