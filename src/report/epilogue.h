// What a convolution's epilogue does, for reports that have words for biases and activations: read off the program.
#pragma once

#include <cstdint>
#include <string>

#include "region/region.h"

namespace octavo::report {

/// Of a convolution's sum. A lower bound of 0 counts as RELU also where it is the bound of the quantization: that is what became of
/// the Relu. Functions of the sum that are not linear (sigmoid, tables, ...) are no activation that there is a word for: "NONE".
struct Epilogue {
  std::int64_t bias = 0;            ///< elements of the constant that is added, one or one a channel; 0: none is
  std::string activation = "NONE";  ///< "RELU"; "CLIPPED_RELU": an upper bound as well, before quantizing
};
[[nodiscard]] Epilogue epilogue_of(const region::Stage& stage, const region::Plan& plan);

}  // namespace octavo::report
