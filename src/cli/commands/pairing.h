// Two models with the same interface: which input or output of one is which of the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::cli {

/// By name where the other model has all of the names, else by position.
struct Pairing {
  std::vector<std::size_t> to;  ///< by the first model's order: the index in the other
  bool by_position = false;
};

/// `what`: "input" or "output"; `names` of the models. Errors: usage, with both lists, for other counts, types or shapes.
[[nodiscard]] Result<Pairing> pair_up(std::string_view what, const std::vector<region::Binding>& first,
                                      const std::string& first_name, const std::vector<region::Binding>& other,
                                      const std::string& other_name);

/// "inputs are matched by position: image -> x, mask -> m"; empty where names are the same.
[[nodiscard]] std::string said(std::string_view what, const Pairing& pairing, const std::vector<region::Binding>& first,
                               const std::vector<region::Binding>& other);

}  // namespace octavo::cli
