// Tensors that a placement of Q/DQ keeps in float32 between regions that compute on 8-bit codes: how many, their bytes and time, in words.
#pragma once

#include <cstdint>
#include <string>

#include "region/region.h"

namespace octavo::report {

/// Counted from the plan: results of a region that lie in working memory as float32 and that another region reads, where at least one of the
/// two has codes. Copies and transfers neither make nor read such a tensor here: they follow from the network's inputs and outputs.
struct FloatTensors {
  int count = 0;
  int with_codes = 0;      ///< of these: the region stores 8-bit codes beside them, for readers behind a pair
  std::int64_t bytes = 0;  ///< least traffic of a run: each is written once and read once
  double share_of_bytes = 0;
  double share_of_time = -1;      ///< of the regions that store or read one, in that of all that compute; -1: the plan has no times
  bool measured = false;          ///< the times; otherwise they are estimates
  bool beside_transfers = false;  ///< the plan also copies between the host and a device, which is no part of these times
  std::string tensor;             ///< the first one, in the order of execution
  std::string maker, reader;      ///< the regions that store it and that read it first, named by their ONNX nodes
  /// Less than a hundredth of the bytes costs nothing that could be seen.
  [[nodiscard]] bool matter() const { return count > 0 && share_of_bytes >= 0.01; }
};
[[nodiscard]] FloatTensors float_tensors_of(const region::Plan& plan);

/// Options of `build` that would change it.
struct WaysOut {
  bool permit = false;  ///< --qdq permit is not given
  std::string
      allow;  ///< value of --allow with a 16-bit type that the device stores such tensors in; empty: none, or allowed already
  std::string type;  ///< that type
};
/// What the placement costs, and the ways out: one paragraph. Empty if it does not matter.
[[nodiscard]] std::string text(const FloatTensors& tensors, const WaysOut& ways);

}  // namespace octavo::report
