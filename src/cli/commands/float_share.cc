#include "cli/commands/float_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/pipeline.h"
#include "report/costs.h"

namespace octavo::cli {
namespace {

/// A convolution or product of float32.
bool wide_layer(const region::Region& r) {
  return r.precision == ir::DType::f32 && std::any_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) {
           return s.anchor.weights.has_value() || s.anchor.op == ir::Op::matmul;
         });
}

}  // namespace

std::string float_share(const region::Plan& plan, const plan::PlanOptions& options) {
  constexpr double kMuch = 1.0 / 3;
  if (api::device_of(plan) != "cuda" || options.allowed.contains(plan::LayerType::float16)) return "";
  double all = 0, wide = 0;
  for (const region::Region& r : plan.regions) {
    const double seconds = std::max(r.seconds, 0.0);
    all += seconds;
    wide += wide_layer(r) ? seconds : 0;
  }
  if (!(wide > kMuch * all)) return "";
  return fmt::format(
      "{:.0f} % of the {} time is spent in layers in float32; --allow int8,float32,float16 computes them in float16, which rounds "
      "more (docs/precision.md)\n",
      100 * wide / all, report::measured(plan) ? "measured" : "estimated");
}

}  // namespace octavo::cli
