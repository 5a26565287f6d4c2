#include "cli/commands/float_share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "api/pipeline.h"
#include "report/costs.h"
#include "report/float_tensors.h"

namespace octavo::cli {
namespace {

/// A convolution or product of float32.
bool wide_layer(const region::Region& r) {
  return r.precision == ir::DType::f32 && std::any_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) {
           return s.anchor.weights.has_value() || s.anchor.op == ir::Op::matmul;
         });
}

/// The value of --allow that adds float16 to the types that are allowed now.
std::string with_float16(const plan::PlanOptions& options) {
  plan::LayerTypes allowed = options.allowed;
  allowed.insert("float16");
  std::vector<std::string_view> types;
  for (const plan::LayerType type : allowed.all()) types.push_back(type.name());
  return fmt::format("{}", fmt::join(types, ","));
}

}  // namespace

std::string float_share(const region::Plan& plan, const plan::PlanOptions& options, const std::set<std::string>& kept_float32) {
  constexpr double kMuch = 1.0 / 3;
  if (api::device_of(plan) != "cuda" || options.allowed.contains(plan::LayerType::float16)) return "";
  const auto kept = [&](const region::Region& r) {
    return std::ranges::any_of(r.onnx_nodes, [&](const std::string& node) { return kept_float32.contains(node); });
  };
  double all = 0, wide = 0;
  for (const region::Region& r : plan.regions) {
    const double seconds = std::max(r.seconds, 0.0);
    all += r.precision.computes_here() ? seconds : 0;
    wide += wide_layer(r) && !kept(r) ? seconds : 0;
  }
  if (!(wide > kMuch * all)) return "";
  return fmt::format(
      "{:.0f} % of the {} time on the GPU is spent in layers in float32; --allow {} computes them in float16, which rounds more "
      "(docs/precision.md)\n",
      100 * wide / all, report::measured(plan) ? "measured" : "estimated", with_float16(options));
}

std::string placement_cost(const region::Plan& plan, const plan::PlanOptions& options) {
  report::WaysOut ways;
  ways.permit = !options.permit_pairs;
  if (api::device_of(plan) == "cuda" && !options.allowed.contains(plan::LayerType::float16))
    ways.allow = with_float16(options), ways.type = "float16";  // no device stores results of int8 layers in bfloat16
  return report::text(report::float_tensors_of(plan), ways);
}

}  // namespace octavo::cli
