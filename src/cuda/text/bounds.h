// What is known of the floats of a program, whatever its sources are.
#pragma once

#include <limits>
#include <vector>

#include "program/program.h"

namespace octavo::cuda {

/// A value that is no NaN lies within. NaN is possible everywhere.
struct Bounds {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
};
/// One a value; of integers what an int32 can be.
[[nodiscard]] std::vector<Bounds> bounds_of(const program::Program& p);

}  // namespace octavo::cuda
