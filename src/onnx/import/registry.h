// The table of operators: one row each, in the file of its family.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/import/node_context.h"

namespace octavo::onnx {

using Handler = Status (*)(NodeContext&);

inline constexpr std::string_view kMicrosoft = "com.microsoft";

/// One operator in a range of opset versions (of the default domain; other domains are not versioned here).
struct OpRow {
  std::string_view type;
  std::string_view domain;     ///< "" is ai.onnx
  int since, until;            ///< opsets, both included; until 0: no end
  int min_inputs, max_inputs;  ///< max -1: any number
  Handler handler;
};

using Family = std::span<const OpRow>;
[[nodiscard]] Family conv_ops();
[[nodiscard]] Family gemm_ops();
[[nodiscard]] Family pool_ops();
[[nodiscard]] Family activation_ops();
[[nodiscard]] Family elementwise_ops();
[[nodiscard]] Family move_ops();
[[nodiscard]] Family slice_ops();
[[nodiscard]] Family reduce_ops();
[[nodiscard]] Family resize_ops();
[[nodiscard]] Family norm_ops();
[[nodiscard]] Family shape_ops();
[[nodiscard]] Family control_ops();
[[nodiscard]] Family sequence_ops();
[[nodiscard]] Family quant_ops();
[[nodiscard]] Family qlinear_ops();
[[nodiscard]] Family integer_ops();
[[nodiscard]] Family math_ops();
[[nodiscard]] Family index_ops();
[[nodiscard]] Family sample_ops();
[[nodiscard]] Family recurrent_ops();
[[nodiscard]] Family signal_ops();
[[nodiscard]] Family einsum_ops();
[[nodiscard]] Family attention_ops();
[[nodiscard]] Family loss_ops();
[[nodiscard]] Family microsoft_ops();
[[nodiscard]] Family transformer_ops();
[[nodiscard]] Family language_ops();

/// The row for an operator at an opset; nullptr if there is none.
[[nodiscard]] const OpRow* find_row(std::string_view domain, std::string_view type, std::int64_t opset);
/// Every row, in no particular order.
[[nodiscard]] std::vector<const OpRow*> all_rows();
/// Why an operator without a row is not covered and what can be done, in a few words.
[[nodiscard]] std::string advice(std::string_view domain, std::string_view type);

}  // namespace octavo::onnx
