// Measured costs for the planner: from the timing cache, or measured now and added to it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "plan/cost.h"
#include "plan/effort.h"
#include "tune/compile_ahead.h"
#include "tune/measure.h"
#include "tune/timing_cache.h"

namespace octavo::tune {

struct TuneOptions {
  /// The devices on which regions are timed that do not run on the host, and Where::device of these times; empty: plans are the host's.
  engine::Devices devices;
  std::string device;
  int effort = plan::kDefaultEffort;  ///< what is timed, and how long (plan/effort.h)
  double compile_seconds = 0;         ///< of one core, for a kernel of a device other than the host; 0: not bounded by time
  int cores = engine::available_cores();
  int threads = 1;
  bool strict = false;                          ///< a time that is missing in the cache is an error
  std::function<void(const std::string&)> log;  ///< a line for every key and tactic as used, under the cache's own key
  /// Instead of running tactics, seconds for each: what a build would time can be listed on a machine without the device. Nothing is compiled then.
  std::function<Result<std::vector<TacticSeconds>>(const region::Region&, const region::Plan&, const std::vector<ProvidedTactic>&)>
      measure;
};

/// Not for two threads at once. `providers` must be those that the planner asks.
class MeasuredCosts final : public plan::Costs {
 public:
  MeasuredCosts(TimingCache cache, const std::vector<const region::Provider*>& providers, TuneOptions options)
      : cache_(std::move(cache)),
        providers_(providers),
        options_(std::move(options)),
        effort_(plan::effort_at(options_.effort)),
        where_(place(options_)) {}

  [[nodiscard]] Result<std::vector<plan::TacticTime>> price(const region::Region& region, const region::Plan& plan,
                                                            const std::vector<region::Offer>& offers) override;
  [[nodiscard]] std::optional<std::string> pinned(const region::Region& region, const region::Plan& plan) override;
  [[nodiscard]] Result<std::optional<Pair>> compare(const region::Plan& first, const region::Plan& second) override;
  [[nodiscard]] bool wants_notice() const override { return !options_.device.empty(); }
  void begin(const region::Plan& plan) override;
  void notice(const region::Plan& plan, bool last) override;
  [[nodiscard]] bool tries_variants() const override { return effort_.variants; }
  [[nodiscard]] plan::CostSource source() const override { return plan::CostSource::measured; }

  /// The times that this object measured, to be merged into the file. Pins that were set in the file meanwhile stay.
  [[nodiscard]] const TimingCache& fresh() const { return fresh_; }
  [[nodiscard]] int measured() const { return measured_; }  ///< times taken by this object

 private:
  [[nodiscard]] static Where place(const TuneOptions& options) {
    return options.device.empty() ? here(options.threads) : Where{options.device, 1};
  }
  void say(const std::string& key, const std::string& tactic, const plan::TacticTime& t);

  [[nodiscard]] Where at(int threads) const {
    Where where = where_;
    if (options_.device.empty()) where.threads = threads;  // a GPU has no number of threads
    return where;
  }
  void remember(const Where& where, const std::string& key, const std::string& tactic, double seconds, bool disturbed);
  [[nodiscard]] std::vector<std::size_t> missing(const region::Region& region, const region::Plan& plan,
                                                 const std::vector<region::Offer>& offers) const;
  [[nodiscard]] Result<std::vector<TacticSeconds>> time_part_or_all(const region::Region& region, const region::Plan& plan,
                                                                    const std::vector<region::Offer>& offers,
                                                                    const std::vector<std::size_t>& slots,
                                                                    const std::vector<ProvidedTactic>& candidates) const;
  void note_first(const region::Plan& plan);
  [[nodiscard]] std::vector<region::Offer> offers_of(const region::Region& region, const region::Plan& plan) const;
  [[nodiscard]] Status time_leaders(const region::Plan& plan);
  [[nodiscard]] Status time_missing(const region::Region& region, const region::Plan& plan, const std::string& key,
                                    const std::vector<region::Offer>& offers, const std::vector<std::size_t>& slots);
  [[nodiscard]] bool waits_for_leader(const std::string& key) const;
  [[nodiscard]] std::vector<char> as_leader(const std::string& leader, const std::vector<region::Offer>& offers,
                                            const std::vector<char>& allowed) const;
  void compile_ahead(const region::Plan& plan);
  void add_ahead(const region::Region& region, const std::shared_ptr<const region::Plan>& plan);
  [[nodiscard]] std::vector<char> among_first(const region::Region& region, const std::string& key,
                                              const std::vector<region::Offer>& offers) const;
  [[nodiscard]] bool usable(const Timing& timing) const;

  TimingCache cache_, fresh_;
  const std::vector<const region::Provider*>& providers_;
  TuneOptions options_;
  const plan::Effort& effort_;
  Where where_;
  std::map<std::pair<int, std::string>, std::vector<plan::TacticTime>> answered_;  ///< by threads and key: one answer a build
  std::set<std::string> compiled_;  ///< keys of regions whose tactics ahead_ has compiled, or will
  /// Regions that `notice` saw for the first time, each with a plan that has its buffers.
  std::vector<std::pair<region::Region, std::shared_ptr<const region::Plan>>> noticed_;
  std::set<std::string> noticed_keys_;
  std::set<std::string>
      first_;  ///< keys of the plan that was priced first, the default one, but for transfers and the host's regions
  /// Where their kernels are too many: of the first plan's regions, by key, the one of their kind that is timed for them. What was fastest there,
  /// the best first, by the key of that one.
  std::map<std::string, std::string> leader_;
  std::map<std::string, std::vector<region::Tactic>> found_;
  double sets_of_first_ = 0;  ///< sets of parameters of a region of the first plan that are timed, at most; 0: not bounded
  bool leaders_timed_ = false;
  int of_family_ = 0;  ///< sets of parameters of a family that are timed now; 0: what the effort says
  int measured_ = 0;
  std::int64_t now_ = seconds_since_1970();  ///< one time for a whole build
  /// Last: it ends before what it reads. One core is left to the thread that times kernels.
  CompileAhead ahead_{providers_, std::max(1, engine::available_cores() - 1)};
};

}  // namespace octavo::tune
