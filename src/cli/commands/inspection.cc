#include "cli/commands/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/file.h"
#include "quantize/quantize.h"

namespace octavo::cli {
namespace {

/// Below it a layer is named.
double lossy() {
  return quantize::Options{}.least_layer_sqnr;
}

std::string db(double x) {
  return std::isfinite(x) ? fmt::format("{:.1f} dB", x) : std::string("exact");
}

nlohmann::json number(double x) {
  return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(nullptr);
}

nlohmann::json json_of(const quantize::RoundedTensor& t) {
  return {{"name", t.name},
          {"scale", t.quantizer.scale[0]},
          {"zero_point", t.quantizer.zero_point[0]},
          {"type", ir::name_of(t.quantizer.type)},
          {"saturated", t.saturation()},
          {"codes_used", t.codes},
          {"sqnr_db_of_this_rounding", number(t.alike_sqnr())},
          {"sqnr_db_of_roundings_before", number(t.own_sqnr())}};
}

}  // namespace

bool rounds(const ModelOptions& model, const api::Built& built) {
  if (!model.calibration.empty()) return built.permitted.int8_layers > 0;
  const ir::Graph& g = built.model.graph;
  const auto order = g.order();
  return std::any_of(order.begin(), order.end(), [&](ir::NodeId id) { return g.node(id).quantizer.has_value(); });
}

Result<quantize::Inspection> inspect_on(const ModelOptions& model, const api::Built& built, const quantize::Data& data,
                                        Progress& progress) {
  OCTAVO_TRY(const api::PipelineOptions build, pipeline_options(model));
  const int threads = build.plan.threads > 0 ? build.plan.threads : engine::available_cores();
  quantize::Implicit implicit;
  if (!model.calibration.empty()) implicit = {&built.graph, built.permitted.permitted, api::planner_options(build, built.model)};
  return quantize::inspect(built.model, implicit, data, threads, [&](std::size_t done, std::size_t count) {
    progress.step(fmt::format("sample {} of {}", done, count));
  });
}

std::string outputs_text(const quantize::Inspection& inspection, std::size_t samples) {
  std::string text = fmt::format("signal to noise at the outputs by the rounding of activations, on {} sample{}: {}\n", samples,
                                 samples == 1 ? "" : "s", db(quantize::sqnr_of(inspection.outputs)));
  constexpr std::size_t kMost = 8;
  const auto& outputs = inspection.outputs;
  for (std::size_t i = 0; outputs.size() > 1 && i < std::min(outputs.size(), kMost); ++i)
    text += fmt::format("  {}: {}\n", outputs[i].name, db(outputs[i].sqnr()));
  if (outputs.size() > kMost) text += fmt::format("  and {} more\n", outputs.size() - kMost);
  return text;
}

std::string tensors_text(const quantize::Inspection& inspection, std::size_t samples) {
  const auto& tensors = inspection.tensors;
  std::string text = fmt::format(
      "rounded tensors on {} sample{}; signal to noise of this rounding alone, and of all roundings before it\n{:>9}  {:>5}  "
      "{:>8}  {:>8}  tensor\n",
      samples, samples == 1 ? "" : "s", "saturated", "codes", "alone", "before");
  for (const auto& t : tensors) {
    std::string remark;
    const int all = t.quantizer.hi() - t.quantizer.lo() + 1;
    if (t.saturation() > 0.01) remark = "  <- clips more than 1 %: a wider range";
    if (t.codes * 4 < all && all <= 256) remark += fmt::format("  <- {} of {} codes are used: a narrower range", t.codes, all);
    text += fmt::format("{:>8.3f}%  {:>5}  {:>8}  {:>8}  {}{}\n", 100 * t.saturation(), t.codes, db(t.alike_sqnr()),
                        db(t.own_sqnr()), t.name, remark);
  }
  const auto worst = std::min_element(tensors.begin(), tensors.end(),
                                      [](const auto& a, const auto& b) { return a.alike_sqnr() < b.alike_sqnr(); });
  auto layers = inspection.layers;
  std::stable_sort(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return a.sqnr() < b.sqnr(); });
  if (layers.size() > 12) layers.resize(12);
  if (!layers.empty())
    text += fmt::format("\nlayers whose results lose most when each alone is rounded, of {}\n", inspection.layers.size());
  for (const auto& l : layers) {
    text += fmt::format(
        "{:>9}  {} (reads {}){}\n", db(l.sqnr()), l.node, l.tensor,
        l.sqnr() < lossy() ? fmt::format("  <- keep it float: --precision {}=float32, or octavo quantize", l.node) : "");
  }
  return text + fmt::format("most is lost where \"{}\" is rounded: {}\n", worst->name, db(worst->alike_sqnr()));
}

void add_json(const quantize::Inspection& inspection, nlohmann::json& out) {
  for (const auto& t : inspection.tensors) out["tensors"].push_back(json_of(t));
  for (const auto& l : inspection.layers)
    out["layers"].push_back({{"node", l.node}, {"reads", l.tensor}, {"sqnr_db_alone", number(l.sqnr())}});
  for (const auto& o : inspection.outputs) out["outputs"].push_back({{"name", o.name}, {"sqnr_db", number(o.sqnr())}});
}

Status write_picture(const quantize::Inspection& inspection, const std::string& file) {
  const std::string svg = quantize::inspection_svg(inspection);
  return write_file(file, std::as_bytes(std::span(svg.data(), svg.size())));
}

}  // namespace octavo::cli
