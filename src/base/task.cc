#include "base/task.h"

#include <chrono>
#include <utility>

namespace octavo {

using Clock = std::chrono::steady_clock;

struct TaskScope::State {
  TaskWatcher watcher;
  std::string step;
  Clock::time_point asked;
  State* outer = nullptr;
  bool cancelled = false;  // stays so: whoever asks again after an error must not go on
};

namespace {

constexpr auto kPause = std::chrono::milliseconds(50);

thread_local TaskScope::State* current = nullptr;

Status ask(TaskScope::State& task) {
  task.asked = Clock::now();
  if (!task.cancelled) task.cancelled = !task.watcher(task.step);
  if (!task.cancelled) return {};
  return fail(ErrorKind::usage, "cancelled at step \"" + task.step + "\"");
}

}  // namespace

TaskScope::TaskScope(TaskWatcher watcher) {
  if (!watcher) return;
  mine_ = new State{std::move(watcher), {}, {}, current, false};
  current = mine_;
}

TaskScope::~TaskScope() {
  if (mine_ == nullptr) return;
  current = mine_->outer;
  delete mine_;
}

bool TaskScope::cancelled() const {
  return mine_ != nullptr && mine_->cancelled;
}

Status begin_step(std::string text) {
  if (current == nullptr) return {};
  current->step = std::move(text);
  return ask(*current);
}

Status check_cancelled() {
  if (current == nullptr || (!current->cancelled && Clock::now() - current->asked < kPause)) return {};
  return ask(*current);
}

}  // namespace octavo
