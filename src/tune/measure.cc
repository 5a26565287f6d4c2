#include "tune/measure.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "base/machine.h"
#include "base/task.h"
#include "engine/engine.h"
#include "tune/one_region.h"
#include "tune/runner.h"

namespace octavo::tune {
namespace {

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// What else a machine does only adds to a time.
double lower_quartile(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 4), v.end());
  return v[v.size() / 4];
}

/// Bytes that the constants of all copies have: more than a core's second-level cache.
std::size_t cold_bytes() {
  return static_cast<std::size_t>(std::max(standard_machine().l2_bytes, this_machine().l2_bytes)) * 3;
}

/// Turns that agree lie close together from the least on: a quarter of them, within so much of it. Where they do not, even the least
/// may have been disturbed.
bool disturbed(std::vector<double> v) {
  constexpr double kApart = 1.25, kFloor = 0.5e-6;  // seconds: clocks are not finer
  if (v.size() < 4) return false;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2] > v.front() * kApart + kFloor;
}

/// A tactic made ready: its mean or median of so many runs.
using Run = std::function<Result<double>(int runs)>;

constexpr int kMostCopies = 16;
constexpr int kRounds = 7, kMostRounds = 2 * kRounds;
constexpr double kHopeless = 3, kMostRuns = 16000;

/// On the host: a plan of each tactic. Empty functions for those that are refused after all.
std::vector<Run> ready_on_host(const region::Region& region, const region::Plan& plan, const std::vector<Candidate>& candidates) {
  const std::size_t constants = std::max<std::size_t>(constant_bytes(region, plan), 1);
  const int copies = static_cast<int>(std::clamp<std::size_t>(cold_bytes() / constants, 2, kMostCopies));
  std::vector<Run> out(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    region::Region r = region;
    r.tactic = candidates[i].tactic;
    auto cut = one_region(r, plan, *candidates[i].provider, copies);
    if (!cut) continue;
    auto made = Runner::create(std::move(*cut), {candidates[i].provider}, {});
    if (!made) continue;
    out[i] = [copies, runner = std::shared_ptr<Runner>(std::move(*made))](int runs) -> Result<double> {
      // A median: one run of which another process had the core for milliseconds would be most of a mean.
      std::vector<double> times;
      for (int k = 0; k < std::max(1, runs / copies); ++k) {
        OCTAVO_TRY(const double t, runner->run());
        times.push_back(t / copies);
      }
      return median(std::move(times));
    };
  }
  return out;
}

/// On another device: one plan of all tactics, which share its memory; where one of them cannot be made ready, a plan each.
Result<std::vector<Run>> ready_on_device(const region::Region& region, const region::Plan& plan,
                                         const std::vector<Candidate>& candidates, const engine::Devices& devices) {
  std::vector<Run> out(candidates.size());
  OCTAVO_TRY(EveryTactic all, every_tactic(region, plan, candidates, engine::available_cores()));
  if (all.candidates.empty()) return out;
  engine::Providers providers;
  for (const Candidate& c : candidates) {
    if (std::find(providers.begin(), providers.end(), c.provider) == providers.end()) providers.push_back(c.provider);
  }
  auto made = Runner::create(std::move(all.plan), providers, devices);
  if (made && (*made)->run()) {
    const std::shared_ptr<Runner> runner = std::move(*made);
    for (std::size_t k = 0; k < all.candidates.size(); ++k)
      out[all.candidates[k]] = [runner, k](int runs) { return runner->time(k, runs); };
    return out;
  }
  if (candidates.size() == 1) return out;
  made = fail(ErrorKind::internal, "");  // its memory goes first
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    OCTAVO_TRY(auto one, ready_on_device(region, plan, {candidates[i]}, devices));
    out[i] = std::move(one[0]);
  }
  return out;
}

}  // namespace

Result<std::vector<TacticSeconds>> measure(const region::Region& region, const region::Plan& plan,
                                           const std::vector<Candidate>& candidates, double seconds_each,
                                           const engine::Devices& devices) {
  std::vector<Run> ready;
  if (region.device == region::kHost) {
    ready = ready_on_host(region, plan, candidates);
  } else {
    OCTAVO_TRY(ready, ready_on_device(region, plan, candidates, devices));
  }
  struct Entry {
    std::vector<double> times;
    double best = 0;
    int repeats = 1;
    bool disturbed = false;
  };
  std::vector<Entry> entries(candidates.size());
  double least = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!ready[i]) continue;  // refused after all: it has no time
    OCTAVO_CHECK(check_cancelled());
    Entry& e = entries[i];
    OCTAVO_TRY(const double cold, ready[i](1));
    OCTAVO_TRY(const double warm, ready[i](1));
    e.best = std::min(cold, warm);
    e.repeats = static_cast<int>(std::clamp(seconds_each / kRounds / std::max(e.best, 1e-7), 1.0, kMostRuns));
    e.times.push_back(e.best);
    if (least == 0 || e.best < least) least = e.best;
  }
  for (int round = 0; round < kMostRounds; ++round) {
    const bool again = round >= kRounds;  // only those whose turns are far apart
    bool any = false;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      Entry& e = entries[i];
      if (!ready[i]) continue;
      OCTAVO_CHECK(check_cancelled());
      if (again && round % kRounds == 0) e.disturbed = disturbed(e.times);
      if (again && !e.disturbed) continue;
      if (e.best > kHopeless * least && round == 0) {  // the first two runs may have been unlucky
        OCTAVO_TRY(const double t, ready[i](1));
        e.best = std::min(e.best, t);
        e.times[0] = e.best;
      }
      if (e.best > kHopeless * least) continue;
      any = true;
      OCTAVO_TRY(const double middle, ready[i](e.repeats));
      if (round == 0) e.times.clear();
      e.times.push_back(middle);
      e.best = std::min(e.best, middle);
      least = std::min(least, e.best);
    }
    if (!any) break;
  }
  std::vector<TacticSeconds> out;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Entry& e = entries[i];
    out.push_back(ready[i] ? TacticSeconds{lower_quartile(e.times), disturbed(e.times)} : TacticSeconds());
  }
  return out;
}

constexpr double kPairSeconds = 0.1;
constexpr int kMostPairs = 500;

Result<PairTime> measure_pair(const region::Plan& first, const region::Plan& second, const engine::Providers& providers, int pairs,
                              const engine::Devices& devices) {
  OCTAVO_TRY(const auto a, Runner::create(first, providers, devices));
  OCTAVO_TRY(const auto b, Runner::create(second, providers, devices));
  std::vector<double> x, ratios;
  double sum = 0;
  for (int i = 0; i < pairs + 2 || (sum < kPairSeconds && i < kMostPairs); ++i) {
    OCTAVO_TRY(const double s, a->run());
    OCTAVO_TRY(const double t, b->run());
    if (i < 2) continue;
    sum += s + t;
    x.push_back(s);
    ratios.push_back(t / s);
  }
  const double base = median(x);
  return PairTime{base, base * median(ratios)};
}

}  // namespace octavo::tune
