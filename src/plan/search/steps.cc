#include "plan/search/steps.h"

#include <fmt/format.h>

#include <cmath>

#include "base/task.h"

namespace octavo::plan {

std::string step_text(const std::string& what, std::size_t begun, std::size_t count, double seconds_so_far) {
  std::string text = fmt::format("plan: {} {} of {}", what, begun, count);
  if (seconds_so_far < 1 || begun < 2) return text;
  const double done = static_cast<double>(begun - 1), left = seconds_so_far / done * (static_cast<double>(count) - done);
  if (left < 1) return text;
  return text + (left < 90 ? fmt::format(", about {:.0f} s more", left) : fmt::format(", about {:.0f} min more", left / 60));
}

Status Steps::next() {
  ++begun_;
  const double so_far = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return begin_step(step_text(what_, begun_, count_, so_far));
}

}  // namespace octavo::plan
