// Workers that take each step of a task together, for work whose steps follow one another (recurrent layers). The first worker that comes
// leads. Others help with the steps that begin after they came; a step waits for nobody else, so tasks still run in any order, on any threads, alone too.
// State is in Worker::shared: zeros before a run and behind it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace octavo::cpu {

class Team {
 public:
  static constexpr int kMost = 32;                                   ///< members
  static constexpr std::int64_t kMostSteps = std::int64_t{1} << 23;  ///< of a run

  /// Of Worker::shared, of which a Team takes the first bytes.
  [[nodiscard]] static constexpr std::size_t bytes() { return sizeof(State); }

  Team(std::byte* shared, int tasks) : s_(*reinterpret_cast<State*>(shared)), tasks_(tasks) {}

  /// The worker's number in this run; 0 leads.
  int join() { return static_cast<int>(word(s_.joined).fetch_add(1, std::memory_order_acq_rel)); }

  /// The leader's: body(what, step, member, members) of every member that is here, `what` from 1 to 3. Returns when all are done; then all see what
  /// the others wrote.
  template <class Body>
  void together(int what, std::int64_t step, const Body& body) {
    const int members = static_cast<int>(word(s_.joined).load(std::memory_order_acquire));
    if (members == 1) return body(what, step, 0, 1);
    ++number_;
    word(s_.order).store(spelled(what, step, members), std::memory_order_release);
    body(what, step, 0, members);
    for (int i = 1; i < members; ++i) wait([&] { return word(s_.done[i].number).load(std::memory_order_acquire) == number_; });
  }
  /// The leader's last.
  void end() { word(s_.order).store(spelled(kEnd, 0, 0), std::memory_order_release); }

  /// A helper's, until the leader ends.
  template <class Body>
  void help(int member, const Body& body) {
    std::uint64_t seen = 0;
    while (true) {
      std::uint64_t order = 0;
      wait([&] { return (order = word(s_.order).load(std::memory_order_acquire)) != seen; });
      seen = order;
      const int what = static_cast<int>(order & 3), members = static_cast<int>(order >> 2 & 63);
      if (what == kEnd) return;
      if (member >= members) continue;
      body(what, static_cast<std::int64_t>(order >> 8 & (kMostSteps - 1)), member, members);
      word(s_.done[member].number).store(static_cast<std::uint32_t>(order >> 31), std::memory_order_release);
    }
  }

  /// Everybody's last: for so many of the run's tasks. The last one leaves zeros.
  void leave(int tasks) {
    const auto all = static_cast<std::uint32_t>(tasks_), mine = static_cast<std::uint32_t>(tasks);
    if (word(s_.left).fetch_add(mine, std::memory_order_acq_rel) + mine != all) return;
    word(s_.joined).store(0, std::memory_order_relaxed);
    word(s_.left).store(0, std::memory_order_relaxed);
    word(s_.order).store(0, std::memory_order_relaxed);
    for (Done& d : s_.done) word(d.number).store(0, std::memory_order_release);
  }

 private:
  static constexpr int kEnd = 0;  ///< of an order that is not 0
  struct alignas(64) Done {
    std::uint32_t number;
  };
  struct State {
    alignas(64) std::uint32_t joined;
    std::uint32_t left;
    alignas(64) std::uint64_t order;  ///< what, members, step, number: 2, 6, 23 and 33 bits
    Done done[kMost];                 ///< by member: the number of its last step
  };

  template <class T>
  static std::atomic_ref<T> word(T& at) {
    return std::atomic_ref<T>(at);
  }
  [[nodiscard]] std::uint64_t spelled(int what, std::int64_t step, int members) const {
    const std::uint64_t number = what == kEnd ? number_ + 1 : number_;
    return number << 31 | static_cast<std::uint64_t>(step) << 8 | static_cast<std::uint64_t>(members) << 2 |
           static_cast<std::uint64_t>(what);
  }
  /// Spins at first: a step takes microseconds. Then the core is left to others, whom the awaited worker may be waiting behind.
  template <class Ready>
  static void wait(const Ready& ready) {
    for (int turns = 0; !ready(); ++turns) {
      if (turns < 4096) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      } else {
        std::this_thread::yield();
      }
    }
  }

  State& s_;
  int tasks_;
  std::uint64_t number_ = 0;  ///< the leader's
};

}  // namespace octavo::cpu
