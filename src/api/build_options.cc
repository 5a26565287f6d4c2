#include "api/build_options.h"

#include "api/convert.h"
#include "plan/layout/bind.h"

namespace octavo::api {

PipelineOptions pipeline_of(const BuildOptions& options, const std::string& name) {
  PipelineOptions p;
  p.device = options.device;
  p.cpu = options.cpu;
  p.import.shapes = options.shapes;
  p.import.default_batch = options.default_batch;
  p.import.display_name = name;
  p.plan.threads = options.threads;
  p.plan.disabled = options.disabled;
  p.plan.effort = options.effort;
  p.timing.cache = options.timing_cache;
  p.timing.strict = options.strict_timing;
  p.plan.ranges = options.ranges;
  p.plan.permit_pairs = take(permits_pairs(options.qdq));
  for (const auto& [pattern, precision] : options.precisions) p.plan.precisions.push_back({pattern, precision});
  p.plan.allowed = options.allowed;
  p.plan.max_error = options.max_error;
  for (const auto& [tensor, format] : options.bindings) p.plan.bindings[tensor] = take(plan::parse_format(format));
  take(check_options(p));
  return p;
}

}  // namespace octavo::api
