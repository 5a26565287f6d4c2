// The laws, one function a file in rules/: each returns the one instance of its rule (static storage).
#pragma once

#include <vector>

#include "quant/moving.h"
#include "rewrite/rule.h"

namespace octavo::quant {

// Pairs, constants and spelling.
[[nodiscard]] const rewrite::Rule& pair_quantize_dequantize();
[[nodiscard]] const rewrite::Rule& code_constant();
[[nodiscard]] const rewrite::Rule& fold_coded_move();
[[nodiscard]] const rewrite::Rule& spell_quantizer();
// Labels that change nothing.
[[nodiscard]] const rewrite::Rule& merge_view();
[[nodiscard]] const rewrite::Rule& drop_relu();
[[nodiscard]] const rewrite::Rule& drop_leaky_relu();
[[nodiscard]] const rewrite::Rule& drop_clip();
[[nodiscard]] const rewrite::Rule& number_values();
// Parts that nobody reads.
[[nodiscard]] const rewrite::Rule& narrow_concat();
// Codes at the edges of the graph.
[[nodiscard]] const rewrite::Rule& move_dequantize();
[[nodiscard]] const rewrite::Rule& move_recode();
[[nodiscard]] const rewrite::Rule& sink_quantize();
[[nodiscard]] const rewrite::Rule& drop_requantize();
[[nodiscard]] const rewrite::Rule& view_before_quantize();
[[nodiscard]] const rewrite::Rule& merge_quantize();
// f(M(x)) ==> M(f(x)).
[[nodiscard]] const MovingLaw& move_view_transpose();
[[nodiscard]] const MovingLaw& move_view_reshape();
[[nodiscard]] const MovingLaw& move_view_slice();
[[nodiscard]] const MovingLaw& move_view_concat();
[[nodiscard]] const MovingLaw& move_view_pad();
[[nodiscard]] const MovingLaw& move_view_resize_nearest();
[[nodiscard]] const MovingLaw& move_view_gather();
[[nodiscard]] const MovingLaw& move_view_gather_elements();
[[nodiscard]] const MovingLaw& move_view_gather_nd();
[[nodiscard]] const MovingLaw& move_view_expand();
[[nodiscard]] const MovingLaw& move_view_tile();
[[nodiscard]] const MovingLaw& move_view_depth_to_space();
[[nodiscard]] const MovingLaw& move_view_space_to_depth();
[[nodiscard]] const MovingLaw& move_view_max_pool();
[[nodiscard]] const MovingLaw& move_view_reduce_max();
[[nodiscard]] const MovingLaw& move_view_reduce_min();
[[nodiscard]] const MovingLaw& move_view_max();
[[nodiscard]] const MovingLaw& move_view_min();
[[nodiscard]] const MovingLaw& move_view_where();
[[nodiscard]] const MovingLaw& move_view_relu();
[[nodiscard]] const MovingLaw& move_view_clip();

/// All of the last group.
[[nodiscard]] const std::vector<const MovingLaw*>& moving_laws();

}  // namespace octavo::quant
