// Which values of a program are program::sigmoid of another value, operation by operation: they are between 0 and 1, unless that
// value is NaN.
#pragma once

#include <vector>

#include "program/program.h"

namespace octavo::cuda {

class Sigmoids {
 public:
  /// `p` must verify, and stay as it is.
  explicit Sigmoids(const program::Program& p);
  /// The value whose sigmoid `v` is; -1: it is none.
  [[nodiscard]] int of(int v) const;

 private:
  /// Is `v` what `pattern` is, by values of the pattern already found?
  bool same(int pattern, int v, std::vector<int>& bound) const;

  const program::Program& p_;
  program::Program pattern_;
  int x_ = -1, result_ = -1;
};

}  // namespace octavo::cuda
