#include "passes/passes.h"

#include "passes/rules.h"

namespace octavo::passes {

const std::vector<const rewrite::Rule*>& float_rules() {
  static const std::vector<const rewrite::Rule*> list{
      &drop_identity(),  &drop_integer_cast(), &sink_transpose(),    &merge_transpose(),
      &sink_reshape(),   &sink_split(),        &merge_reshape(),     &merge_split(),
      &merge_shuffle(),  &merge_roll(),        &merge_gather(),      &merge_pad(),
      &fold_constants(), &fold_batch_norm(),   &drop_tiny_weights(), &conv_transpose_as_conv(),
      &sink_scale(),     &matmul_as_gemm(),    &sink_rows(),         &fuse_layer_norm()};
  return list;
}

}  // namespace octavo::passes
