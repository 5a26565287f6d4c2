#include "cuda/text/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cuda/text/kernel_span.h"
#include "region/counted.h"

namespace octavo::cuda {
namespace {

/// All numbers are parameters, so that one text is that of all shapes of an open model (text/open.h). A wrong count, of an engine that is broken, is in bounds.
constexpr const char* kFunction =
    R"(// Items of which some row counts: ceil(extent * rows / unit) * items, where extent = ceil(count * times / per), at most `room`.
OCTAVO_DEVICE long long octavo_counted_items(const unsigned char* count, long long times, long long per, long long room, long long rows,
                                             long long unit, long long items) {
  const long long n = min(max(*(const long long*)count, 0ll), 1ll << 32);
  const long long extent = min((n * times + per - 1) / per, room);
  return (extent * rows + unit - 1) / unit * items;
}
)";
constexpr const char* kParameters =
    ", const unsigned char* octavo_count, long long octavo_times, long long octavo_per, long long octavo_room, long long "
    "octavo_rows_each, "
    "long long octavo_unit, long long octavo_items_of_unit";

bool outermost(const region::TensorRef& t, std::size_t k) {
  if (k >= t.dims.size()) return false;
  for (std::size_t d = 0; d < t.dims.size(); ++d) {
    if (d == k || t.dims[d] == 1) continue;
    if (d < k || t.strides[d] < 0 || t.strides[d] * t.dims[d] > t.strides[k]) return false;
  }
  return true;
}

/// The kernel's first lines. It waits for the kernels before it, of which one stores the count; the family's own wait behind it finds nothing to wait for.
std::string first_lines(const CountedItems& c) {
  std::string out =
      "  octavo_wait_for_previous();\n  const long long octavo_there = octavo_counted_items(octavo_count, octavo_times, "
      "octavo_per, octavo_room, "
      "octavo_rows_each, octavo_unit, octavo_items_of_unit);\n";
  out += fmt::format("  if ({} >= octavo_there) return;\n", c.item);
  if (c.all.empty()) return out;
  out += fmt::format("  const int octavo_all = (int)min((long long){}, octavo_there);\n", c.all);
  return out + fmt::format("  {}{} = octavo_all;\n", c.open ? "" : "const int ", c.all);
}

}  // namespace

bool counts_outermost(const region::Region& region) {
  return std::all_of(region.stages.begin(), region.stages.end(), [](const region::Stage& s) {
    const auto k = static_cast<std::size_t>(s.counted);
    if (s.counted < 0 || k >= s.space.size()) return false;
    const bool outside = std::all_of(s.space.begin(), s.space.begin() + s.counted, [](std::int64_t d) { return d == 1; });
    return outside && std::all_of(s.stores.begin(), s.stores.end(), [&](const auto& t) { return outermost(t, k); });
  });
}

void leave_out_uncounted(KernelText& t, const region::Region& region) {
  if (region.count < 0 || region::all_or_nothing(region) || !counts_outermost(region)) return;
  const std::int64_t room = region::room_of(region);
  std::set<std::string> changed;
  for (Launch& l : t.launches) {
    const CountedItems& c = l.counted;
    if (c.rows < 1 || c.rows % room != 0) continue;
    if (!changed.contains(l.function)) {
      const auto kernel = kernel_span(t.text, l.function);
      if (!kernel) continue;
      t.text.insert(kernel->body, first_lines(c));
      t.text.insert(kernel->parameters, kParameters);
      changed.insert(l.function);
    }
    l.arguments.push_back({Argument::Kind::count, region.count, 0});
    for (const std::int64_t number :
         {std::int64_t{region.count_times}, std::int64_t{region.count_per}, room, c.rows / room, c.unit, c.items})
      l.arguments.push_back({Argument::Kind::number, 0, number});
  }
  if (!changed.empty()) t.text = kFunction + t.text;
}

}  // namespace octavo::cuda
