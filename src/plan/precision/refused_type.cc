#include "plan/precision/refused_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/causes/plan_precision.h"

namespace octavo::plan {

std::string stated(const Reason& why) {
  const auto tensor = [&] { return std::get<std::string>(why.values[0]); };
  switch (why.cause) {
    case cause::tensor_without_range: return fmt::format("tensor \"{}\" has no range", tensor());
    case cause::tensor_kept_by_rule: return fmt::format("a rule keeps tensor \"{}\" in another type", tensor());
    case cause::weights_not_float_constant: return fmt::format("its weights \"{}\" are not a float32 constant", tensor());
    case cause::input_not_float_activation: return fmt::format("its input \"{}\" is not a float32 activation", tensor());
    case cause::type_not_allowed: return "int8 is not among the allowed types";
    case cause::weights_beyond_float16:
      return fmt::format("its weights \"{}\" reach {}, and float16 ends at {}", tensor(), std::get<double>(why.values[1]),
                         std::get<double>(why.values[2]));
    case cause::range_near_float16_end:
      return fmt::format(
          "the range of tensor \"{}\" reaches {}, and layers keep a wider type where a range reaches {}, about half of the largest "
          "float16 value",
          tensor(), std::get<double>(why.values[1]), std::get<double>(why.values[2]));
    case cause::random_near_float16_end:
      return fmt::format(
          "tensor \"{}\" reaches {} on one random input, and layers keep a wider type where a tensor reaches {}, about half of the "
          "largest float16 value; ranges of real data (--calibration) or a rule that demands float16 for the layer decide "
          "otherwise",
          tensor(), std::get<double>(why.values[1]), std::get<double>(why.values[2]));
    default: return std::string(name_of(why.cause));
  }
}

Error no_allowed_type(const std::string& node, const LayerTypes& allowed,
                      const std::vector<std::pair<LayerType, Reason>>& refused) {
  std::string list;
  for (const auto& [type, why] : refused) list += fmt::format("\n  {}: {}", type.name(), stated(why));
  return {ErrorKind::usage,
          fmt::format("allowed types {0}: layer \"{1}\" can have none of them{2}\n  allow float32 as well, or let a rule give this "
                      "layer its type: --precision \"{1}=float32\"",
                      fmt::join(allowed.names(), ", "), node, list)};
}

}  // namespace octavo::plan
