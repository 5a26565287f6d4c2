#include "cli/commands/slow_share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands/run_buffers.h"

namespace octavo::cli {

Result<std::string> slow_share(const std::shared_ptr<const engine::Engine>& engine, int threads) {
  const region::Plan& plan = engine->plan();
  const auto slow = [](const region::Region& r) { return !r.tactic.vector || r.tactic.reference; };
  if (std::none_of(plan.regions.begin(), plan.regions.end(), slow)) return std::string();
  for (std::size_t d = 1; d < plan.devices.size(); ++d) {
    if (!engine->device(static_cast<region::DeviceId>(d)).is_here()) return std::string();
  }
  constexpr int kRuns = 3;
  constexpr std::size_t kNamed = 4;
  const RunBuffers buffers(plan);
  OCTAVO_TRY(const auto context, engine::Context::create(engine, threads));
  OCTAVO_TRY(const auto profile, context->profile(buffers.in, buffers.out, kRuns));
  double all = 0, part = 0;
  std::vector<std::pair<double, std::string>> regions;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const double seconds = profile.regions[i].median;
    all += seconds;
    if (!slow(plan.regions[i])) continue;
    part += seconds;
    regions.emplace_back(seconds, plan.regions[i].name);
  }
  std::stable_sort(regions.begin(), regions.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (std::size_t k = 0; k < std::min(kNamed, regions.size()); ++k) names.push_back(regions[k].second);
  if (regions.size() > kNamed) names.push_back(fmt::format("and {} more", regions.size() - kNamed));
  return fmt::format("{:.1f} % of the time is spent in {} without vector kernels: {}\n", all > 0 ? 100 * part / all : 0.0,
                     regions.size() == 1 ? "one region" : fmt::format("{} regions", regions.size()), fmt::join(names, ", "));
}

}  // namespace octavo::cli
