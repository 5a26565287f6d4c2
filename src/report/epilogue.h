// What a convolution's epilogue does, for reports that have words for biases and activations: read off the program.
#pragma once

#include <cstdint>
#include <string_view>

#include "region/region.h"

namespace octavo::report {

enum class Activation { none, relu, clipped_relu };
/// "NONE", "RELU", "CLIPPED_RELU".
[[nodiscard]] std::string_view name_of(Activation activation);

/// Of a convolution's sum. A lower bound of 0 counts as RELU also where it is the bound of the quantization: that is what became of
/// the Relu. Functions of the sum that are not linear (sigmoid, tables, ...) are no activation that there is a word for.
struct EpilogueSummary {
  std::int64_t bias = 0;                     ///< elements of the constant that is added, one or one a channel; 0: none is
  Activation activation = Activation::none;  ///< clipped_relu: an upper bound as well, before quantizing
};
[[nodiscard]] EpilogueSummary epilogue_of(const region::Stage& stage, const region::Plan& plan);

}  // namespace octavo::report
