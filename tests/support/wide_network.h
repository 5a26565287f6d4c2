// Random networks of uneven shapes for running whole engines: products and convolutions with very many columns or rows, whose results have
// several readers.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace octavo::testing {

struct WideOptions {
  /// Products of one operator, about: the reference takes some nanoseconds for each.
  double products = 60e3;
  std::int64_t least_columns = 1;  ///< of the first product: above 16384 it is only rarely so wide
};

/// One to five operators with weights (products of matrices, convolutions of one to three taps a side, depthwise ones) over floats and
/// 8-bit codes, each with a bias, an activation or a residual behind it or none; a value is read by one to three operators and is often an
/// output too, before and behind its bias. Rows and columns from 1 to 20000. Softmax, means, transposes and concatenations between them.
/// Determined by the seed; passes ir::verify; values stay finite.
[[nodiscard]] ir::Graph wide_network(std::uint64_t seed, const WideOptions& options = {});

}  // namespace octavo::testing
