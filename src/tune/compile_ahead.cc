#include "tune/compile_ahead.h"

#include <utility>

namespace octavo::tune {

CompileAhead::~CompileAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void CompileAhead::add(const region::Region& region, std::shared_ptr<const region::Plan> plan,
                       std::vector<ProvidedTactic> candidates) {
  const auto own = std::make_shared<const region::Region>(region);
  for (ProvidedTactic& c : candidates) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({own, plan, std::move(c)});
    }
    changed_.notify_one();
    if (static_cast<int>(workers_.size()) < threads_) workers_.emplace_back([this] { run(); });
  }
}

void CompileAhead::run() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (ends_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    auto every = every_tactic(*work.region, *work.plan, {work.candidate}, 1);
    if (!every) continue;
    region::Plan* const one = &every->plan;
    for (const region::Provider* p : providers_) {
      if (!p->finish({&one, 1}, 1)) break;
    }
  }
}

}  // namespace octavo::tune
