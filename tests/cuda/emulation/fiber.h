// Stacks of their own for the threads of a block, and the switch between them: a few instructions on x86-64, ucontext elsewhere.
#pragma once

#include <cstddef>
#include <vector>

namespace octavo::testing {

struct Stacks {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

/// As many fibers as asked for, each on its own stack. Stacks are kept for the next block, and for this thread's next fibers.
class Fibers {
 public:
  explicit Fibers(std::size_t count);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  /// Fiber i will call entry(i) when it is first resumed; entry must not return, but leave() for good.
  void start(std::size_t i, void (*entry)(std::size_t));
  void resume(std::size_t i);  ///< from outside: runs fiber i until it leaves
  void leave();                ///< from within: back to whoever resumed
  [[nodiscard]] bool on_stack(const void* p) const { return p >= base_ && p < base_ + bytes_; }

 private:
  struct Machine;
  std::vector<void*> saved_;
  void* outside_ = nullptr;
  std::size_t current_ = 0;
  Stacks mapped_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace octavo::testing
