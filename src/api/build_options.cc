#include "api/build_options.h"

#include <fmt/format.h>

#include <cmath>

#include "api/convert.h"
#include "api/layer_types.h"
#include "plan/layout/bind.h"

namespace octavo::api {

PipelineOptions pipeline_of(const BuildOptions& options, const std::string& name) {
  PipelineOptions p;
  p.device = options.device;
  p.cpu = options.cpu;
  p.keep_model = options.keep_model;
  p.import.shapes = options.shapes;
  p.import.default_batch = options.default_batch;
  p.import.display_name = name;
  p.import.max_elements = options.max_elements;
  for (const auto& [tensor, most] : options.max_elements) {
    if (most < 1 || most > onnx::kMostElements)
      raise(ErrorKind::usage,
            fmt::format("max_elements: the bound of \"{}\" is {}; give 1 to {}", tensor, most, onnx::kMostElements));
  }
  p.plan.threads = options.threads;
  p.plan.disabled = options.disabled;
  p.plan.effort = options.effort;
  p.timing.cache = options.timing_cache;
  p.timing.strict = options.strict_timing;
  for (const auto& [tensor, given] : options.ranges) {
    const auto type = static_cast<ir::DType>(given.type);
    const ir::Quantizer q{type, given.scale, given.zero_point, given.axis, ir::DType::f32};
    if (q.scale.size() != 1 || q.zero_point.size() != 1 || q.axis >= 0 || !ir::is_int8(type) || std::isnan(q.scale[0]) ||
        q.scale[0] < 0 || q.zero_point[0] < q.lo() || q.zero_point[0] > q.hi())
      raise(ErrorKind::usage,
            fmt::format("the range of \"{}\" is {}: needs an 8-bit type, a scale of 0 or more, and a zero point among the codes",
                        tensor, ir::to_string(q)));
    p.plan.ranges[tensor] = q;
  }
  p.ranges_by_hand = options.ranges_by_hand;
  p.plan.permit_pairs = take(permits_pairs(options.qdq));
  for (const auto& [pattern, type] : options.precisions) p.plan.precisions.push_back(take(precision_rule(pattern, type)));
  p.plan.allowed = take(allowed_types(options.allowed));
  p.plan.max_error = options.max_error;
  for (const auto& [tensor, format] : options.bindings) p.plan.bindings[tensor] = take(plan::parse_format(format));
  take(check_options(p));
  return p;
}

}  // namespace octavo::api
