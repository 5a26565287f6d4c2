// Long work with a watcher, which is told the current step and can stop the work. The watcher belongs to the calling thread, so
// that the planner, the measurements and the reference evaluator need not hand a callback to one another.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo {

/// Called in the working thread with the present step; false: stop. It must not throw.
using TaskWatcher = std::function<bool(std::string_view step)>;

/// Watches what this thread does from here to the end of the scope. An empty watcher leaves an outer one in place. Scopes nest.
class TaskScope {
 public:
  explicit TaskScope(TaskWatcher watcher);
  ~TaskScope();
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

  [[nodiscard]] bool cancelled() const;  ///< the watcher has answered false

  struct State;  ///< of task.cc

 private:
  State* mine_ = nullptr;
};

/// Says what is done from now on ("plan"), and asks the watcher at once. When it is not wanted any more, fails (with `usage`:
/// whoever set the scope asks it whether the reason was this).
[[nodiscard]] Status begin_step(std::string text);
/// Asks the watcher whether the work is still wanted, at most 20 times a second; cheap otherwise. Long loops call it between pieces
/// of some milliseconds. Fails as begin_step does; succeeds where nobody watches.
[[nodiscard]] Status check_cancelled();

}  // namespace octavo
