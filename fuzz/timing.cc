// Timing caches: what parses is written so that it parses to the same text again.
#include <cstdlib>
#include <string>

#include "tune/timing_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using octavo::tune::TimingCache;
  const auto cache = TimingCache::parse({reinterpret_cast<const char*>(data), size});
  if (!cache) {
    if (cache.error().message.empty()) std::abort();
    return 0;
  }
  const std::string text = cache->text();
  const auto again = TimingCache::parse(text);
  if (!again || again->text() != text) std::abort();
  return 0;
}
