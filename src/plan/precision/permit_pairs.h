// --qdq permit: the model's own Q/DQ pairs on activations become ranges.
//
//   y = dequantize(quantize(x; q))   ->   y = x, and x may be read through q (ir::Value::range)
//   y = dequantize(quantize(x; u8, zero point 0))   ->   y = clip(x; 0, 255 * scale), which may be read through q, where x may be negative: the pair stands
//                                                        for a Relu that the exporter left out
//
// An explicit model demands each of its roundings, wherever the exporter put it. As permissions they are what a calibration table says: `permit` then
// rounds where regions exchange tensors, and nowhere else. Pays where pairs stand inside regions or before outputs. Not exact: roundings that the
// model has are left out, so only on request. Coded weights stay as they are. Must come before the laws: they let saturating pairs stand for the clips
// around them, and those pairs are gone afterwards. `permit` must follow.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace octavo::plan {

struct PermittedPairs {
  int taken = 0;  ///< pairs that became ranges
  /// A pair that still demands its rounding, and why a range cannot say what it says.
  struct Kept {
    enum class Why { channels, type, other_scale };
    std::string tensor;
    Why why = Why::type;
  };
  std::vector<Kept> kept;
};

/// A range is one scale and one zero point: pairs with scales by channel, or types other than float32 stay, as do those of a tensor that is read through
/// several quantizers, and codes that other operators read. Of a pair behind a pair the wider one counts. A range that the value has already stays.
[[nodiscard]] PermittedPairs permit_pairs(ir::Graph& g);

}  // namespace octavo::plan
