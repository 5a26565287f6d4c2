#include "plan/precision/error_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/task.h"

namespace octavo::plan {
namespace {

/// Error a second; what gains nothing goes first, what makes no error last.
double weight(const ErrorUnit& u) {
  if (u.alone <= 0) return 0;
  return u.gain > 0 ? u.alone / u.gain : std::numeric_limits<double>::infinity();
}

}  // namespace

Result<ErrorLimit> limit_error(std::vector<ErrorUnit>& units, double limit,
                               const std::function<Result<double>(const std::set<std::string>&)>& error) {
  ErrorLimit out;
  const int most = 2 * static_cast<int>(units.size()) + std::bit_width(units.size()) + 3;
  const auto evaluate = [&](const auto& in_float) -> Result<double> {
    std::set<std::string> nodes;
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (in_float(i)) nodes.insert(units[i].nodes.begin(), units[i].nodes.end());
    }
    ++out.evaluations;
    OCTAVO_CHECK(begin_step(fmt::format("max error: evaluation {} of at most {}", out.evaluations, most)));
    return error(nodes);
  };
  OCTAVO_TRY(out.before, evaluate([](std::size_t) { return false; }));
  out.after = out.before;
  if (out.before <= limit) return out;
  for (std::size_t u = 0; u < units.size(); ++u) {
    OCTAVO_TRY(units[u].alone, evaluate([&](std::size_t i) { return i != u; }));
  }
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double x = weight(units[a]), y = weight(units[b]);
    return x != y ? x > y : units[a].alone > units[b].alone;
  });
  std::vector<char> kept(units.size(), 0);
  const auto prefix = [&](std::size_t n) {
    std::fill(kept.begin(), kept.end(), char{0});
    for (std::size_t k = 0; k < n; ++k) kept[order[k]] = 1;
    return evaluate([&](std::size_t i) { return kept[i] != 0; });
  };
  OCTAVO_TRY(out.after, prefix(units.size()));
  if (out.after > limit) {
    return fail(ErrorKind::usage,
                fmt::format("--max-error {}: with no permitted layer in int8 an output still differs by {:.4g} of its largest "
                            "magnitude (seeded inputs)\n  float16 or bfloat16 makes this error: allow float32 without it, drop the "
                            "rules that ask for "
                            "it, or allow a larger error",
                            limit, out.after));
  }
  std::size_t low = 0, high = units.size();  // `low` exceeds the limit, `high` keeps it
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    OCTAVO_TRY(const double e, prefix(middle));
    if (e <= limit) {
      high = middle;
      out.after = e;
    } else {
      low = middle;
    }
  }
  std::fill(kept.begin(), kept.end(), char{0});
  for (std::size_t k = 0; k < high; ++k) kept[order[k]] = 1;
  // What went in early for its price may not be needed any more: the smallest errors come back first.
  std::vector<std::size_t> back(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(high));
  std::stable_sort(back.begin(), back.end(), [&](std::size_t a, std::size_t b) { return units[a].alone < units[b].alone; });
  for (const std::size_t u : back) {
    if (high == 1) break;
    kept[u] = 0;
    OCTAVO_TRY(const double e, evaluate([&](std::size_t i) { return kept[i] != 0; }));
    if (e <= limit) {
      out.after = e;
    } else {
      kept[u] = 1;
    }
  }
  for (std::size_t k = 0; k < high; ++k) {
    if (kept[order[k]] != 0) out.kept.push_back(order[k]);
  }
  return out;
}

}  // namespace octavo::plan
