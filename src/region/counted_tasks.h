// What kernels of the host may know of their tasks beside HostKernel: which elements of a counted dimension each computes.
#pragma once

#include <cstdint>

namespace octavo::region {

/// A kernel is one of these as well where a run can leave out tasks of which no element is wanted (region/counted.h). The kernel for 192 rows then computes 150 of them
/// with the tasks of about 150.
class CountedTasks {
 public:
  virtual ~CountedTasks() = default;
  /// Of the elements along dimension `dim` of the region's space, `extent` of them, one before which the task computes none. 0: it may compute any.
  [[nodiscard]] virtual std::int64_t first_element(int task, int dim, std::int64_t extent) const = 0;
};

}  // namespace octavo::region
