// What the regions of a plan pass to each other through memory: for reports that draw it.
#pragma once

#include <string>
#include <vector>

#include "region/region.h"

namespace octavo::report {

/// Where something that a region reads comes from: an earlier region's store, or an input of the network.
struct Source {
  int region = -1;     ///< index into Plan::regions; -1: an input of the network
  int input = -1;      ///< index into Plan::inputs; -1: a region
  std::string tensor;  ///< as the reader names it; may be empty
  bool operator==(const Source&) const = default;
};

/// For each region, in order: what it reads and does not make itself, each source once, in the order of reading. Constants have no
/// source. Two slices of one buffer are told apart where both are channels of the same pixels or do not overlap in bytes; else the
/// earlier store counts as a source. Cost: reads of a buffer times stores to it.
[[nodiscard]] std::vector<std::vector<Source>> sources_of(const region::Plan& plan);
/// The regions that store each output of the network, parallel to Plan::outputs.
[[nodiscard]] std::vector<std::vector<int>> makers_of_outputs(const region::Plan& plan);

}  // namespace octavo::report
