#include "tune/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/build_work.h"
#include "base/machine.h"
#include "base/task.h"
#include "engine/engine.h"
#include "region/artifact.h"
#include "tune/first_runs.h"
#include "tune/one_region.h"
#include "tune/runner.h"

namespace octavo::tune {
namespace {

std::atomic<std::uint64_t>& measurement_count() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Other work of the machine can only lengthen a time.
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
  if (v.size() < 3) return false;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2] > v.front() * kApart + kFloor;
}

/// A tactic that is ready to run. It returns the mean or median of a number of runs.
using Run = std::function<Result<double>(int runs)>;

constexpr int kMostCopies = 16;
constexpr int kRounds = 7, kMostRounds = 2 * kRounds;
constexpr int kFewRounds = 3;        // after which slow tactics, and what is behind the fastest, are not run again
constexpr double kBehind = 1.25;     // times the fastest after kFewRounds turns: not run again
constexpr double kMostOfBudget = 4;  // times what was asked for a tactic: what its turns may take, after kFewRounds
constexpr int kMostRuns = 16000;

/// From here on, constants are packed, and are held only while they are timed, because they are most of the memory of a build.
constexpr std::size_t kLargeConstants = std::size_t{1} << 20;

/// A tactic of the host: compiled, and its runner, of one region first and of several copies later. Either may be gone for a while.
class OnHost {
 public:
  OnHost(const region::Region& region, const region::Plan& plan, const ProvidedTactic& candidate)
      : region_(region), plan_(plan), candidate_(candidate) {
    region_.tactic = candidate.tactic;
  }

  /// False: refused after all.
  bool compile() {
    if (artifact_) return true;
    auto made = candidate_.provider->compile(region_, plan_, region_.tactic);
    if (!made) return false;
    artifact_ = std::move(*made);
    return true;
  }
  /// Makes the runner: of `copies` of the region, with constants of their own.
  Status ready(int copies) {
    if (runner_ != nullptr && copies_ == copies) return {};
    runner_ = nullptr;  // its memory goes first
    if (!compile()) return fail(ErrorKind::internal, "timing: a tactic that was compiled before is refused");
    region::Plan copied = one_region(region_, plan_, *artifact_, copies);
    if (last_) artifact_.reset();
    OCTAVO_TRY(runner_, Runner::create(std::move(copied), {candidate_.provider}, {}));
    copies_ = copies;
    return {};
  }
  /// From now on, the next runner is the last one, so the objects that it is made of are not kept.
  void last(int copies) { last_ = true, last_copies_ = copies; }
  /// Frees its memory. It is made again when it runs again.
  void release() { runner_ = nullptr, artifact_.reset(); }
  void release_runner() { runner_ = nullptr; }

  Result<double> run() { return runner_->run(); }
  /// A median: one run of which another process had the core for milliseconds would be most of a mean.
  Result<double> run_last(int runs) {
    OCTAVO_CHECK(ready(last_copies_));
    std::vector<double> times;
    for (int k = 0; k < std::max(1, runs / copies_); ++k) {
      OCTAVO_TRY(const double t, runner_->run());
      times.push_back(t / copies_);
    }
    return median(std::move(times));
  }

 private:
  region::Region region_;
  const region::Plan& plan_;
  const ProvidedTactic& candidate_;
  std::optional<region::Artifact> artifact_;
  std::unique_ptr<Runner> runner_;
  int copies_ = 0, last_copies_ = 1;
  bool last_ = false;
};

/// The number of copies of constants that have this many bytes together, so that the caches do not hold all of them from one run to the next.
int cold_copies(std::size_t constants, int threads) {
  if (constants >= cold_bytes() * static_cast<std::size_t>(std::max(threads, 1)) * 2 / 3) return 1;
  return static_cast<int>(std::clamp<std::size_t>(cold_bytes() / constants, 2, kMostCopies));
}

/// On the host: a plan of each tactic. The first runs are of one region; several copies are made only of what is not hopeless then. Empty functions
/// for those that are refused after all; `first`: seconds of the first runs.
Result<std::vector<Run>> ready_on_host(const region::Region& region, const region::Plan& plan,
                                       const std::vector<ProvidedTactic>& candidates, double seconds_each,
                                       std::vector<double>& first) {
  const std::size_t constants = std::max<std::size_t>(constant_bytes(region, plan), 1);
  std::vector<std::shared_ptr<OnHost>> tactics(candidates.size());
  double least = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    OCTAVO_CHECK(check_cancelled());
    const auto t = std::make_shared<OnHost>(region, plan, candidates[i]);
    if (!t->compile() || !t->ready(1)) continue;
    tactics[i] = t;
    OCTAVO_TRY(const FirstRuns runs, first_runs([&] { return t->run(); }, least, seconds_each));
    first[i] = runs.seconds;
    if (!runs.hopeless && (least == 0 || first[i] < least)) least = first[i];
    if (runs.hopeless) {
      t->release();
    } else if (constants >= kLargeConstants) {
      t->release_runner();
    }
  }
  std::vector<Run> out(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto& t = tactics[i];
    if (t == nullptr) continue;
    int copies = 1;
    if (first[i] <= kHopeless * least) {
      const double turn = 2 * seconds_each / kRounds;
      const int cold = cold_copies(constants, region::threads_of(plan));
      copies = static_cast<int>(std::clamp(turn / std::max(first[i], 1e-7), 1.0, static_cast<double>(cold)));
      t->last(copies);
      OCTAVO_CHECK(t->ready(copies));
    } else {
      t->release();
    }
    out[i] = [t](int runs) { return t->run_last(runs); };
  }
  return out;
}

/// On another device: one plan of all tactics, which share its memory; where one of them cannot be made ready, a plan each.
Result<std::vector<Run>> ready_on_device(const region::Region& region, const region::Plan& plan,
                                         const std::vector<ProvidedTactic>& candidates, const engine::Devices& devices) {
  std::vector<Run> out(candidates.size());
  const BuildTimer timer(&BuildWork::prepare);
  OCTAVO_TRY(EveryTactic all, every_tactic(region, plan, candidates, engine::available_cores()));
  if (all.candidates.empty()) return out;
  engine::Providers providers;
  for (const ProvidedTactic& c : candidates) {
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

std::uint64_t measurements() {
  return measurement_count().load(std::memory_order_relaxed);
}

Result<std::vector<TacticSeconds>> measure(const region::Region& region, const region::Plan& plan,
                                           const std::vector<ProvidedTactic>& candidates, double seconds_each,
                                           const engine::Devices& devices) {
  ++measurement_count();
  const BuildTimer timer(&BuildWork::time);
  std::vector<Run> ready;
  std::vector<double> first(candidates.size(), 0);
  const bool on_host = region.device == region::kHost;
  if (on_host) {
    OCTAVO_TRY(ready, ready_on_host(region, plan, candidates, seconds_each, first));
  } else {
    OCTAVO_TRY(ready, ready_on_device(region, plan, candidates, devices));
  }
  BuildWork counted;
  counted.timed = candidates.size();
  add_build_work(counted);
  struct Entry {
    std::vector<double> times;
    double best = 0, spent = 0;
    int repeats = 1;
    bool disturbed = false;
  };
  std::vector<Entry> entries(candidates.size());
  double least = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!ready[i]) continue;  // refused after all: it has no time
    OCTAVO_CHECK(check_cancelled());
    Entry& e = entries[i];
    e.best = first[i];
    if (!on_host) {
      OCTAVO_TRY(const double cold, ready[i](1));
      OCTAVO_TRY(const double warm, ready[i](1));
      e.best = std::min(cold, warm);
    }
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
      if (!on_host && e.best > kHopeless * least && round == 0) {  // the first two runs may have been unlucky
        OCTAVO_TRY(const double t, ready[i](1));
        e.best = std::min(e.best, t);
        e.times[0] = e.best;
      }
      if (e.best > kHopeless * least) continue;
      if (on_host && round >= (e.best > kLong * seconds_each ? 1 : kFewRounds) &&
          (e.best > kBehind * least || e.spent > kMostOfBudget * seconds_each))
        continue;
      any = true;
      if (round == 0)
        e.repeats =
            static_cast<int>(std::clamp(seconds_each / kRounds / std::max(e.best, 1e-7), 1.0, static_cast<double>(kMostRuns)));
      const auto begin = std::chrono::steady_clock::now();
      OCTAVO_TRY(const double middle, ready[i](e.repeats));
      e.spent += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (round == 0) e.times.clear();
      e.times.push_back(middle);
      e.best = std::min(e.times.size() == 1 ? middle : e.best, middle);
    }
    if (round == 0) {  // times of one copy, which finds its constants in caches, do not compare with those of several
      double cold = 0, warm = 0;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (ready[i] && entries[i].spent > 0 && (cold == 0 || entries[i].best < cold)) cold = entries[i].best, warm = first[i];
      }
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        Entry& e = entries[i];
        if (on_host && ready[i] && e.spent == 0) e.best = e.times[0] = first[i] * std::max(1.0, cold / warm);
      }
      least = cold;
    }
    for (const Entry& e : entries) least = e.spent > 0 ? std::min(least, e.best) : least;
    if (!any) break;
  }
  std::vector<TacticSeconds> out;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Entry& e = entries[i];
    out.push_back(ready[i] ? TacticSeconds{lower_quartile(e.times), disturbed(e.times)} : TacticSeconds());
  }
  return out;
}

constexpr double kPairSeconds = 0.1, kMostPairSeconds = 1;
constexpr int kMostPairs = 500, kFewPairs = 3;

Result<PairTime> measure_pair(const region::Plan& first, const region::Plan& second, const engine::Providers& providers, int pairs,
                              const engine::Devices& devices) {
  ++measurement_count();
  const BuildTimer timer(&BuildWork::time);
  const bool on_host = first.devices.size() < 2 && second.devices.size() < 2;
  const auto arena = [](const region::Plan& p) { return p.devices.empty() ? 0 : p.devices.front().arena_bytes; };
  const bool turned = arena(second) > arena(first);  // the larger arena first, which both can have
  Runner::Together together;
  OCTAVO_TRY(auto a, Runner::create(turned ? second : first, providers, devices, on_host ? &together : nullptr));
  OCTAVO_TRY(auto b, Runner::create(turned ? first : second, providers, devices, on_host ? &together : nullptr));
  if (turned) std::swap(a, b);
  std::vector<double> x, ratios;
  double sum = 0;
  for (int i = 0; i < pairs + 2 || (sum < kPairSeconds && i < kMostPairs); ++i) {
    OCTAVO_TRY(const double s, a->run());
    OCTAVO_TRY(const double t, b->run());
    if (i == 0 || (i == 1 && s + t < kMostPairSeconds / kFewPairs)) continue;
    sum += s + t;
    if (static_cast<int>(x.size()) >= kFewPairs && sum > kMostPairSeconds) break;
    x.push_back(s);
    ratios.push_back(t / s);
  }
  const double base = median(x);
  return PairTime{base, base * median(ratios)};
}

}  // namespace octavo::tune
