// Which of several ranges of one tensor changes the results of the layers that read it least.
#pragma once

#include <vector>

#include "quantize/data/patches.h"
#include "quantize/ranges/ranges.h"

namespace octavo::quantize {

/// A layer that reads the tensor, with rows of it.
struct Reader {
  const RowLayer* layer = nullptr;
  const std::vector<float>* weights = nullptr;  ///< RowLayer::weights
  const Rows* rows = nullptr;
};
/// The first of `tried` for which the sum over readers of (mean squared change of the results / mean square of the results) is least;
/// without readers, the one with the least mean squared change of the tensor itself. `centered`: a change of a channel's mean does
/// not count, because the bias makes up for it. At most 2048 rows of a reader are looked at. `tried` is not empty.
[[nodiscard]] std::pair<Method, Interval> best_range(const Histogram& h, const std::vector<std::pair<Method, Interval>>& tried,
                                                     const std::vector<Reader>& readers, bool symmetric, bool centered);

}  // namespace octavo::quantize
