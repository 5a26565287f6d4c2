#include "quant/normal_form.h"

#include <algorithm>

#include "ir/canonical.h"
#include "quant/rules.h"

namespace octavo::quant {

const std::vector<const MovingLaw*>& moving_laws() {
  static const std::vector<const MovingLaw*> list{
      &move_view_transpose(),
      &move_view_reshape(),
      &move_view_slice(),
      &move_view_concat(),
      &move_view_pad(),
      &move_view_resize_nearest(),
      &move_view_gather(),
      &move_view_gather_elements(),
      &move_view_gather_nd(),
      &move_view_expand(),
      &move_view_tile(),
      &move_view_depth_to_space(),
      &move_view_space_to_depth(),
      &move_view_max_pool(),
      &move_view_reduce_max(),
      &move_view_reduce_min(),
      &move_view_max(),
      &move_view_min(),
      &move_view_where(),
      &move_view_relu(),
      &move_view_clip(),
  };
  return list;
}

const std::vector<const rewrite::Rule*>& laws() {
  static const std::vector<const rewrite::Rule*> list = [] {
    std::vector<const rewrite::Rule*> all{
        &pair_quantize_dequantize(), &code_constant(), &fold_coded_move(), &spell_quantizer(), &merge_view(),   &drop_relu(),
        &drop_leaky_relu(),          &drop_clip(),     &drop_requantize(), &narrow_concat(),   &number_values()};
    all.insert(all.end(), moving_laws().begin(), moving_laws().end());
    all.insert(all.end(), {&move_dequantize(), &move_recode(), &sink_quantize(), &view_before_quantize(), &merge_quantize()});
    return all;
  }();
  return list;
}

Result<rewrite::RunReport> normalize(ir::Graph& g, const rewrite::RunOptions& options) {
  // Two phases, because view-before-quantize and merge-quantize are inverses: everything else comes to rest in between.
  std::vector<const rewrite::Rule*> first = laws(), last{first.back()};
  first.pop_back();
  rewrite::RunOptions first_options = options, last_options = options;
  first_options.disabled.erase(std::string(last[0]->name()));
  last_options.disabled.clear();
  if (options.disabled.contains(last[0]->name())) last_options.disabled.emplace(last[0]->name());

  OCTAVO_TRY(rewrite::RunReport report, rewrite::run(g, first, first_options));
  OCTAVO_TRY(const rewrite::RunReport rest, rewrite::run(g, last, last_options));
  report.stats.insert(report.stats.end(), rest.stats.begin(), rest.stats.end());
  report.refusals.insert(report.refusals.end(), rest.refusals.begin(), rest.refusals.end());
  report.applied.insert(report.applied.end(), rest.applied.begin(), rest.applied.end());
  if (!options.disabled.contains(number_values().name())) ir::number_values(g);
  g = ir::compact(g);
  return report;
}

}  // namespace octavo::quant
