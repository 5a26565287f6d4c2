// What errors say where a layer cannot have a type: one that a rule asks for, or all that are allowed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "plan/layer_type.h"

namespace octavo::plan {

/// A cause of plan_precision.def as a part of an error's sentence, with the value that was found and its limit.
[[nodiscard]] std::string stated(const Reason& why);

/// The layer can be none of the allowed types, and float32 is not among them; `refused`: each type with its reason.
[[nodiscard]] Error no_allowed_type(const std::string& node, const LayerTypes& allowed,
                                    const std::vector<std::pair<LayerType, Reason>>& refused);

}  // namespace octavo::plan
