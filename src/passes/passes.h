// The float rules: folding and cleaning that does not concern quantization. Run after the laws, before regions are formed.
#pragma once

#include <vector>

#include "rewrite/rule.h"

namespace octavo::passes {

/// In the order they are tried. Static storage.
[[nodiscard]] const std::vector<const rewrite::Rule*>& float_rules();

}  // namespace octavo::passes
