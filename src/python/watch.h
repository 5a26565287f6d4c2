// Long work watched from Python: Ctrl-C and a caller's progress function.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/task.h"
#include "octavo/octavo.h"

namespace octavo::python {

namespace nb = nanobind;

/// What watches long work for Python: signals that have come (Ctrl-C), and the caller's own function, which is called when the step
/// changes. The first Python error stops the work and is raised in its place; a function that returns False cancels it.
class Watch {
 public:
  explicit Watch(nb::object progress) : progress_(std::move(progress)) {}

  /// `work`, without the GIL. `now`: the present step, where the work does not say it by begin_step.
  template <class Work>
  auto over(const Work& work, const std::function<std::string()>& now = {}) {
    const TaskScope task([this, &now](std::string_view step) { return wanted(now ? now() : std::string(step)); });
    try {
      const nb::gil_scoped_release release;
      return work();
    } catch (const Exception& e) {
      if (error_) throw *error_;
      if (task.cancelled()) throw Exception(Exception::Kind::cancelled, e.what());
      throw;
    }
  }

  /// Asks at once, in a loop of the caller's own that holds the GIL or not; raises what stops it.
  void check() {
    if (wanted(step_)) return;
    const nb::gil_scoped_acquire acquire;
    if (error_) throw *error_;
    throw Exception(Exception::Kind::cancelled, "cancelled");
  }

 private:
  bool wanted(std::string_view step) {
    const nb::gil_scoped_acquire acquire;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (progress_.is_none() || step == step_) return true;
      step_ = step;
      return !progress_(nb::str(step_.c_str())).is(nb::bool_(false));
    } catch (const nb::python_error& e) {
      error_.emplace(e);
      return false;
    }
  }

  nb::object progress_;
  std::string step_;
  std::optional<nb::python_error> error_;
};

}  // namespace octavo::python
