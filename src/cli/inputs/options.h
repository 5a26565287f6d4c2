// Text of command-line options to values; errors say which option and what it should look like.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::cli {

using Shapes = std::map<std::string, ir::Shape>;

/// "x:1x3x224x224,y=1x10" (as trtexec's --shapes). The name ends at the last colon or equals sign.
[[nodiscard]] Result<Shapes> parse_shapes(std::string_view option, std::string_view text);
/// "224" -> {224, 0}; "224x320" -> {224, 320} (height x width). `option` is for messages.
[[nodiscard]] Result<std::array<int, 2>> parse_size(std::string_view option, std::string_view text);
/// "0.5", "1/255", "0.485,0.456,0.406".
[[nodiscard]] Result<std::vector<float>> parse_numbers(std::string_view option, std::string_view text);

}  // namespace octavo::cli
