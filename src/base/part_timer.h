// Counts time by parts, of which the innermost of a thread gets it.
#pragma once

#include <chrono>

namespace octavo {

/// Counts from its making to the end of its life for `part`. While another timer of the same kind and thread lives inside, only that one counts. `Part`: a type for which
/// `add_time(Part, std::chrono::nanoseconds)` in this namespace takes the time, from any thread. Costs two readings of the clock.
template <class Part>
class PartTimer {
 public:
  explicit PartTimer(Part part) : part_(part), outer_(innermost), begin_(Clock::now()) {
    if (outer_ != nullptr) outer_->stop(begin_);
    innermost = this;
  }
  ~PartTimer() {
    const Clock::time_point now = Clock::now();
    stop(now);
    innermost = outer_;
    if (outer_ != nullptr) outer_->begin_ = now;
  }
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void stop(Clock::time_point now) const { add_time(part_, std::chrono::duration_cast<std::chrono::nanoseconds>(now - begin_)); }

  static inline thread_local PartTimer* innermost = nullptr;
  Part part_;
  PartTimer* outer_;
  Clock::time_point begin_;
};

}  // namespace octavo
