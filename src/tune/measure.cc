#include "tune/measure.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/machine.h"
#include "base/task.h"
#include "engine/engine.h"
#include "region/stage_graph.h"
#include "tune/activations.h"
#include "tune/one_region.h"

namespace octavo::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// A plan ready to run, with memory for its bindings.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> create(region::Plan plan, const engine::Providers& providers) {
    auto r = std::unique_ptr<Runner>(new Runner);
    const int threads = region::threads_of(plan);
    OCTAVO_TRY(auto made, engine::Engine::create(std::move(plan), providers));
    OCTAVO_TRY(r->context_, engine::Context::create(std::move(made), threads));
    const region::Plan& p = r->context_->engine().plan();
    const auto room = [&](const region::Binding& b) {
      const auto dense = static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype);
      r->memory_.push_back(std::make_unique<std::byte[]>(std::max(dense, static_cast<std::size_t>(b.bytes)) + 64));
      void* at = r->memory_.back().get();
      std::size_t space = dense + 64;
      return std::align(64, dense, at, space);
    };
    for (const region::Binding& b : p.inputs) {
      void* at = room(b);
      fill_activations(static_cast<std::byte*>(at), static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype),
                       b.type.dtype);
      r->in_.push_back(at);
    }
    for (const region::Binding& b : p.outputs) r->out_.push_back(room(b));
    const auto kept = p.regions.empty() ? std::set<region::BufferId>() : region::kept_from_memory(p.regions.front());
    const auto fill = [&](const region::TensorRef& ref) {
      if (kept.contains(ref.buffer)) return;  // it has no place
      const region::Buffer& b = p.buffers[static_cast<std::size_t>(ref.buffer)];
      if (b.kind == region::BufferKind::arena)
        fill_activations(r->context_->arena() + b.arena_offset, static_cast<std::size_t>(b.bytes), ref.dtype);
    };
    if (p.regions.empty()) return r;
    for (const region::Stage& s : p.regions.front().stages) {  // of a region alone all copies read the same
      for (const region::TensorRef& in : s.anchor.inputs) fill(in);
      for (const region::Operand& o : s.operands) fill(o.ref);
    }
    return r;
  }

  /// Seconds of one run.
  Result<double> run() {
    OCTAVO_CHECK(check_cancelled());
    const auto start = Clock::now();
    OCTAVO_CHECK(context_->run(in_, out_));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  Runner() = default;
  std::unique_ptr<engine::Context> context_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

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

constexpr int kMostCopies = 16;
constexpr int kRounds = 7, kMostRounds = 2 * kRounds;
constexpr double kHopeless = 3;

}  // namespace

Result<std::vector<TacticSeconds>> measure(const region::Region& region, const region::Plan& plan,
                                           const std::vector<Candidate>& candidates, double seconds_each) {
  const std::size_t constants = std::max<std::size_t>(constant_bytes(region, plan), 1);
  const int copies = static_cast<int>(std::clamp<std::size_t>(cold_bytes() / constants, 2, kMostCopies));
  struct Entry {
    std::unique_ptr<Runner> runner;
    std::vector<double> times;
    double best = 0;
    int repeats = 1;
    bool disturbed = false;
  };
  std::vector<Entry> entries(candidates.size());
  double least = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    region::Region r = region;
    r.tactic = candidates[i].tactic;
    auto cut = one_region(r, plan, *candidates[i].provider, copies);
    if (!cut) continue;
    auto runner = Runner::create(std::move(*cut), {candidates[i].provider});
    if (!runner) continue;  // refused after all: it has no time
    Entry& e = entries[i];
    e.runner = std::move(*runner);
    OCTAVO_TRY(const double cold, e.runner->run());
    OCTAVO_TRY(const double warm, e.runner->run());
    e.best = std::min(cold, warm);
    e.repeats = static_cast<int>(std::clamp(seconds_each / kRounds / std::max(e.best, 1e-7), 1.0, 1000.0));
    e.times.push_back(e.best / copies);
    if (least == 0 || e.best < least) least = e.best;
  }
  std::vector<double> runs;
  for (int round = 0; round < kMostRounds; ++round) {
    const bool again = round >= kRounds;  // only those whose turns are far apart
    bool any = false;
    for (Entry& e : entries) {
      if (!e.runner) continue;
      if (again && round % kRounds == 0) e.disturbed = disturbed(e.times);
      if (again && !e.disturbed) continue;
      if (e.best > kHopeless * least && round == 0) {  // the first two runs may have been unlucky
        OCTAVO_TRY(const double t, e.runner->run());
        e.best = std::min(e.best, t);
        e.times[0] = e.best / copies;
      }
      if (e.best > kHopeless * least) continue;
      any = true;
      // A median: one run of which another process had the core for milliseconds would be most of a mean.
      runs.clear();
      for (int k = 0; k < e.repeats; ++k) {
        OCTAVO_TRY(const double t, e.runner->run());
        runs.push_back(t);
      }
      const double middle = median(runs);
      if (round == 0) e.times.clear();
      e.times.push_back(middle / copies);
      e.best = std::min(e.best, middle);
      least = std::min(least, e.best);
    }
    if (!any) break;
  }
  std::vector<TacticSeconds> out;
  for (const Entry& e : entries) {
    out.push_back(e.runner ? TacticSeconds{lower_quartile(e.times), disturbed(e.times)} : TacticSeconds());
  }
  return out;
}

constexpr double kPairSeconds = 0.1;
constexpr int kMostPairs = 500;

Result<PairTime> measure_pair(const region::Plan& first, const region::Plan& second, const engine::Providers& providers,
                              int pairs) {
  OCTAVO_TRY(const auto a, Runner::create(first, providers));
  OCTAVO_TRY(const auto b, Runner::create(second, providers));
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
