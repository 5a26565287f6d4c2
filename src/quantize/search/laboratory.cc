#include "quantize/search/laboratory.h"

#include "quantize/metrics/output_error.h"

namespace octavo::quantize {
namespace {

constexpr std::size_t kNoiseSamples = 8;

}  // namespace

plan::PlanOptions emulating(const std::set<std::string>& nodes) {
  plan::PlanOptions options;
  options.precisions = rules_for(nodes, "bfloat16-emulated");
  return options;
}

Result<PrecisionSearch> search_layers(const Searched& s) {
  const auto report = [&](const std::string& step, std::size_t done, std::size_t count) {
    if (s.progress) s.progress(step, done, count);
  };
  Laboratory lab;
  lab.layers = s.layers;
  lab.may_float32 = s.may_float32;
  for (const std::string& node : s.layers) {
    if (s.bfloat16 == nullptr || !s.bfloat16->possible.contains(node)) continue;
    if (!s.needs_kernels || !s.bfloat16->without_kernel.contains(node)) lab.may_bfloat16.insert(node);
  }
  const std::set<std::string> all(s.layers.begin(), s.layers.end());
  OCTAVO_TRY(const Network exact, Network::create(s.exact, {}));
  if (s.bound.max_drop) {
    OCTAVO_TRY(lab.float_score, s.score(exact));
  }
  struct Made {
    onnx::Model model;
    Network network;
  };
  const auto make = [&](const WideLayers& wide) -> Result<Made> {
    std::set<std::string> in_float = wide.float32;
    in_float.insert(wide.bfloat16.begin(), wide.bfloat16.end());
    OCTAVO_TRY(onnx::Model now, s.make(in_float));
    OCTAVO_TRY(Network network, Network::create(now, {}, emulating(wide.bfloat16)));
    return Made{std::move(now), std::move(network)};
  };
  {
    OCTAVO_TRY(const onnx::Model integer, s.make({}));
    OCTAVO_TRY(const onnx::Model in_float, s.make(all));
    OCTAVO_TRY(const RunTime fast, estimated_time(integer, all));
    const auto gains = [&](const std::set<std::string>& bfloat16, std::map<std::string, double>& out) -> Status {
      OCTAVO_TRY(const RunTime slow, estimated_time(in_float, all, bfloat16));
      for (const auto& [node, seconds] : fast.nodes) {
        if (const auto other = slow.nodes.find(node); other != slow.nodes.end()) out[node] = other->second - seconds;
      }
      return {};
    };
    OCTAVO_CHECK(gains({}, lab.gain));
    if (!lab.may_bfloat16.empty()) OCTAVO_CHECK(gains(lab.may_bfloat16, lab.gain_over_bfloat16));
  }
  const Part few(s.data, kNoiseSamples);
  const auto compared = [&](const Made& made, const Data& data, const Progress& progress) -> Result<double> {
    OCTAVO_TRY(const auto errors, compare(exact, made.network, data, s.threads, progress));
    return sqnr_of(errors);
  };
  std::size_t done = 0;
  lab.noise = [&](const WideLayers& wide) -> Result<double> {
    report("measuring layers one by one", done++, lab.layers.size() + lab.may_bfloat16.size());
    OCTAVO_TRY(const Made made, make(wide));
    return compared(made, few, {});
  };
  lab.measure = [&](const WideLayers& wide) -> Result<CurvePoint> {
    OCTAVO_TRY(const Made made, make(wide));
    CurvePoint p;
    p.wide = wide;
    Progress progress;
    if (s.progress)
      progress = [&](std::size_t n, std::size_t count) { report("searching types of layers, comparing samples", n, count); };
    OCTAVO_TRY(p.sqnr, compared(made, s.data, progress));
    if (s.bound.max_drop) {
      OCTAVO_TRY(p.score, s.score(made.network));
    }
    OCTAVO_TRY(RunTime time, estimated_time(made.model, {}, wide.bfloat16));
    p.seconds = time.seconds;
    p.without_kernel = std::move(time.without_kernel);
    return p;
  };
  return search_precision(lab, s.bound);
}

}  // namespace octavo::quantize
