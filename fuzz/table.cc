// Calibration tables and JSON ranges.
#include <cstdlib>
#include <string_view>

#include "api/ranges.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto ranges = octavo::api::parse_ranges({reinterpret_cast<const char*>(data), size}, "table");
  if (!ranges && (ranges.error().message.empty() || ranges.error().kind != octavo::ErrorKind::bad_input)) std::abort();
  if (ranges) {
    for (const auto& [name, scale] : *ranges) {
      if (!(scale >= 0)) std::abort();
    }
  }
  return 0;
}
