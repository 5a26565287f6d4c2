#include "api/layer_types.h"

#include <fmt/format.h>

namespace octavo::api {

Result<plan::LayerTypes> allowed_types(const std::set<std::string>& names) {
  plan::LayerTypes out;
  for (const std::string& name : names) {
    const auto type = plan::LayerType::parse(name);
    if (!type || type->emulated()) {
      return fail(ErrorKind::usage,
                  fmt::format("allowed type \"{}\": known are int8, float32 and bfloat16, and on a GPU float16 and tf32", name));
    }
    out.insert(*type);
  }
  return out;
}

Result<plan::PrecisionRule> precision_rule(const std::string& pattern, const std::string& type) {
  const auto known = plan::LayerType::parse(type);
  if (!known || *known == plan::LayerType::tf32) {
    return fail(
        ErrorKind::usage,
        fmt::format("precision rule \"{}={}\": known are int8, float32, bfloat16 and, on a GPU, float16, and bfloat16-emulated "
                    "and float16-emulated",
                    pattern, type));
  }
  return plan::PrecisionRule{pattern, *known};
}

}  // namespace octavo::api
