// Kernels of a device other than the host, compiled by threads of their own while others are timed.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "region/provider.h"
#include "region/region.h"
#include "tune/one_region.h"

namespace octavo::tune {

/// The provider keeps the code, so whoever needs it later waits for it or has it (Provider::finish). A tactic is one thread's work, first come, first
/// served. Errors are not reported: the same compilation fails again where its region is timed. Ends, without what has not begun, with its owner.
class CompileAhead {
 public:
  /// `threads`: at least 1; they start with the first work.
  CompileAhead(const std::vector<const region::Provider*>& providers, int threads) : providers_(providers), threads_(threads) {}
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;
  ~CompileAhead();

  /// `plan`: has the region's buffers, and is not changed any more.
  void add(const region::Region& region, std::shared_ptr<const region::Plan> plan, std::vector<ProvidedTactic> candidates);

 private:
  struct Work {
    std::shared_ptr<const region::Region> region;
    std::shared_ptr<const region::Plan> plan;
    ProvidedTactic candidate;
  };
  void run();

  const std::vector<const region::Provider*>& providers_;
  const int threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;  ///< under mutex_
  bool ends_ = false;         ///< under mutex_
  std::vector<std::thread> workers_;
};

}  // namespace octavo::tune
