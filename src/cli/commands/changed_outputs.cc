#include "cli/commands/changed_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "api/check.h"
#include "engine/engine.h"
#include "plan/candidates/registry.h"
#include "quantize/metrics/output_error.h"
#include "report/costs.h"

namespace octavo::cli {
namespace {

using Kept = plan::PermittedPairs::Kept;

std::string_view text_of(Kept::Why why) {
  switch (why) {
    case Kept::Why::channels: return "it has a scale for each channel, and a range is one scale";
    case Kept::Why::type: return "it is not an 8-bit pair of float32";
    case Kept::Why::other_scale: return "the tensor is read through several scales";
  }
  return "";
}

/// The planner's decision about the pairs (plan/precision/choose_pairs.h); null where --force decided.
const region::Decision* decision_of(const region::Plan& plan) {
  const auto at = std::ranges::find(plan.decisions, "pairs", &region::Decision::choice);
  return at == plan.decisions.end() ? nullptr : &*at;
}

/// What a run takes with each candidate: "pairs as permissions: measured 812 us".
std::string times_text(const region::Decision& d, std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    const auto& c = d.candidates[i];
    if (c.seconds < 0) continue;
    text += fmt::format("  {}: {} {:.4g} us{}\n", plan::description_of(d.choice, c.name), source, c.seconds * 1e6,
                        i == d.chosen ? " (taken)" : "");
  }
  return text;
}

std::string pairs_text(const plan::PermittedPairs& pairs) {
  std::string text;
  std::map<Kept::Why, std::vector<std::string>> kept;
  for (const Kept& k : pairs.kept) kept[k.why].push_back(k.tensor);
  for (const auto& [why, tensors] : kept) {
    text += fmt::format("{} tensor{} keep{} the rounding of the pairs: {}\n", tensors.size(), tensors.size() == 1 ? "" : "s",
                        tensors.size() == 1 ? "s" : "", text_of(why));
    constexpr std::size_t kMost = 6;
    for (std::size_t k = 0; k < std::min(tensors.size(), kMost); ++k) text += fmt::format("  {}\n", tensors[k]);
    if (tensors.size() > kMost) text += fmt::format("  and {} more\n", tensors.size() - kMost);
  }
  return text;
}

/// Of one output over all samples.
struct Difference {
  quantize::OutputError error;
  double largest = 0, magnitude = 0;
  void add(const ir::Tensor& demanded, const ir::Tensor& permitted) {
    for (std::int64_t i = 0; i < demanded.size(); ++i) {
      const double x = demanded.at(i), y = permitted.at(i);
      error.add(x, y);
      largest = std::max(largest, std::abs(y - x));
      magnitude = std::max(magnitude, std::abs(x));
    }
  }
  [[nodiscard]] std::string text() const {
    if (error.noise == 0) return "equal";
    if (!std::isfinite(error.noise)) return "not finite in both at the same places";
    return fmt::format("signal to noise {:.1f} dB, largest difference {:.2g} % of the largest magnitude", error.sqnr(),
                       magnitude > 0 ? 100 * largest / magnitude : 100.0);
  }
};

/// The model with every pair, on the CPU, which computes its floats in float32 alone: types that only a GPU computes in are not allowed or demanded.
Result<api::Built> with_pairs(const ModelOptions& model) {
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(model));
  build.plan.permit_pairs = false;
  build.plan.effort = 0;
  build.plan.allowed = plan::default_types();
  build.plan.precisions.clear();
  build.device = "cpu";
  OCTAVO_TRY(const auto session, session_of(model));
  onnx::LateValues none;
  return session->build(build, none);
}

}  // namespace

Result<std::string> changed_outputs(const ModelOptions& model, const Loaded& loaded, const quantize::Data* data) {
  const plan::PermittedPairs& pairs = loaded.built->permitted.pairs;
  const region::Decision* decision = decision_of(loaded.engine->plan());
  std::string text = decision != nullptr && decision->chosen == 0
                         ? "pairs: all stay, because the model is not faster without them\n"
                         : fmt::format("pairs: {} taken as permissions\n", pairs.taken);
  if (decision != nullptr) text += times_text(*decision, report::measured(loaded.engine->plan()) ? "measured" : "estimated");
  if (decision != nullptr && decision->chosen == 0) return text + "the outputs are those that the pairs of the model define\n";
  text += pairs_text(pairs);
  if (!model.bindings.empty() || !model.input_formats.empty() || !model.output_formats.empty())
    return text + "the change of the outputs was not measured, because inputs or outputs are bound to other types or layouts\n";
  OCTAVO_TRY(const api::Built demanded, with_pairs(model));
  const region::Plan& plan = loaded.engine->plan();
  OCTAVO_TRY(const auto exact, engine::Context::create(demanded.engine, loaded.threads));
  const auto permitted = engine::Context::create(loaded.engine, loaded.threads);
  if (!permitted && permitted.error().kind == ErrorKind::unsupported)  // built for a GPU that is not here
    return text + fmt::format("the change of the outputs was not measured: {}\n", permitted.error().message);
  if (!permitted) return tl::unexpected(permitted.error());
  constexpr std::size_t kMost = 32, kSeeded = 4;
  std::optional<quantize::Part> part;
  if (data != nullptr) part.emplace(*data, kMost);
  const std::size_t samples = part ? part->size() : kSeeded;
  std::vector<Difference> differences(plan.outputs.size());
  for (std::size_t i = 0; i < samples; ++i) {
    quantize::Sample sample;
    if (part) {
      OCTAVO_TRY(sample, part->at(i));
    } else {
      sample.inputs = api::random_inputs(plan, i + 1);
    }
    OCTAVO_TRY(const auto a, api::run(*exact, sample.inputs));
    OCTAVO_TRY(const auto b, api::run(**permitted, sample.inputs));
    for (std::size_t k = 0; k < differences.size(); ++k) differences[k].add(a[k], b[k]);
  }
  text += fmt::format("difference from the outputs with every pair, {}:\n",
                      part ? fmt::format("on {} sample{}", samples, samples == 1 ? "" : "s")
                           : fmt::format("estimated on {} seeded inputs (--data FOLDER measures it)", samples));
  for (std::size_t k = 0; k < differences.size(); ++k)
    text += fmt::format("  {}: {}\n", plan.outputs[k].name, differences[k].text());
  return text;
}

}  // namespace octavo::cli
