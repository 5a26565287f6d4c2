// The float rules, one a file in rules/. `float_rules` (passes.h) lists them in order.
#pragma once

#include "rewrite/rule.h"

namespace octavo::passes {

[[nodiscard]] const rewrite::Rule& drop_identity();
[[nodiscard]] const rewrite::Rule& drop_integer_cast();
[[nodiscard]] const rewrite::Rule& sink_transpose();
[[nodiscard]] const rewrite::Rule& merge_transpose();
[[nodiscard]] const rewrite::Rule& sink_reshape();
[[nodiscard]] const rewrite::Rule& merge_reshape();
[[nodiscard]] const rewrite::Rule& merge_shuffle();
[[nodiscard]] const rewrite::Rule& merge_roll();
[[nodiscard]] const rewrite::Rule& merge_split();
[[nodiscard]] const rewrite::Rule& merge_gather();
[[nodiscard]] const rewrite::Rule& merge_pad();
[[nodiscard]] const rewrite::Rule& fold_constants();
[[nodiscard]] const rewrite::Rule& fold_batch_norm();
[[nodiscard]] const rewrite::Rule& drop_tiny_weights();
[[nodiscard]] const rewrite::Rule& conv_transpose_as_conv();
[[nodiscard]] const rewrite::Rule& matmul_as_gemm();
[[nodiscard]] const rewrite::Rule& sink_split();
[[nodiscard]] const rewrite::Rule& sink_scale();
[[nodiscard]] const rewrite::Rule& sink_rows();
[[nodiscard]] const rewrite::Rule& fuse_layer_norm();

}  // namespace octavo::passes
