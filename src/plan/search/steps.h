// The progress of a loop over similar pieces, as the watcher of a build sees it: "plan: choice 3 of 96, about 4 s more".
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/result.h"

namespace octavo::plan {

class Steps {
 public:
  Steps(std::string what, std::size_t count) : what_(std::move(what)), count_(count), start_(std::chrono::steady_clock::now()) {}
  /// The next piece begins. Fails as begin_step does, when the build is not wanted any more.
  [[nodiscard]] Status next();

 private:
  std::string what_;
  std::size_t count_, begun_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// "plan: regions, 5 of 54" and, once the pieces before took a second, how long the rest takes if it goes on like that.
[[nodiscard]] std::string step_text(const std::string& what, std::size_t begun, std::size_t count, double seconds_so_far);

}  // namespace octavo::plan
