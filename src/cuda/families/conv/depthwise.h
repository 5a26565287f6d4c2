// The family "conv.u8s8.depthwise": convolutions with one input channel a group and as many groups as channels (depthwise.inc).
#pragma once

#include <string_view>

#include "cuda/families/conv/conv_shape.h"

namespace octavo::cuda {

// What texts with depthwise_window.inc share. A thread computes rows x columns pixels of four channels.

/// Error: why no such text takes the stage, with the values.
[[nodiscard]] Result<ConvSetting> read_depthwise(const region::Stage& stage, const region::Plan& plan);
/// Registers of weights and sums, about; and the instructions of a thread.
[[nodiscard]] std::int64_t depthwise_registers(const ConvShape& shape, int rows, int columns);
[[nodiscard]] double depthwise_instructions(const ConvShape& shape, int rows, int columns);
constexpr std::int64_t kMostDepthwiseRegisters = 180;
/// The weights as the text reads them.
[[nodiscard]] ir::Tensor pack_depthwise(const ConvShape& shape, const ConvWeights& weights, int columns);
/// depthwise_window.inc
[[nodiscard]] std::string_view depthwise_window_text();

}  // namespace octavo::cuda
