#include "cli/changed_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "api/check.h"
#include "engine/engine.h"
#include "quantize/statistics.h"

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

std::string pairs_text(const plan::PermittedPairs& pairs) {
  std::string text = fmt::format("pairs: {} taken as permissions", pairs.taken);
  std::map<Kept::Why, std::vector<std::string>> kept;
  for (const Kept& k : pairs.kept) kept[k.why].push_back(k.tensor);
  for (const auto& [why, tensors] : kept) {
    text += fmt::format("\n{} still demand their rounding: {}", tensors.size(), text_of(why));
    constexpr std::size_t kMost = 6;
    for (std::size_t i = 0; i < std::min(tensors.size(), kMost); ++i) text += fmt::format("\n  {}", tensors[i]);
    if (tensors.size() > kMost) text += fmt::format("\n  and {} more", tensors.size() - kMost);
  }
  return text + "\n";
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

Result<api::Built> with_pairs(const ModelOptions& model) {
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(model));
  build.plan.permit_pairs = false;
  build.plan.effort = 0;
  build.device = "cpu";
  if (model.made) return api::build_bytes(*model.made, build, std::filesystem::path(model.path).parent_path().string());
  return api::build_file(model.path, build);
}

}  // namespace

Result<std::string> changed_outputs(const ModelOptions& model, const Loaded& loaded, const quantize::Data* data) {
  std::string text = pairs_text(loaded.built->permitted.pairs);
  if (!model.bindings.empty() || !model.input_formats.empty() || !model.output_formats.empty())
    return text + "what that changes at the outputs was not measured: inputs or outputs are bound to other types or layouts\n";
  OCTAVO_TRY(const api::Built demanded, with_pairs(model));
  const region::Plan& plan = loaded.engine->plan();
  OCTAVO_TRY(const auto exact, engine::Context::create(demanded.engine, loaded.threads));
  OCTAVO_TRY(const auto permitted, engine::Context::create(loaded.engine, loaded.threads));
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
    OCTAVO_TRY(const auto b, api::run(*permitted, sample.inputs));
    for (std::size_t k = 0; k < differences.size(); ++k) differences[k].add(a[k], b[k]);
  }
  text += fmt::format("the outputs against those with every pair where it stands, {}:\n",
                      part ? fmt::format("on {} sample{}", samples, samples == 1 ? "" : "s")
                           : fmt::format("estimated on {} seeded inputs (--data FOLDER measures it)", samples));
  for (std::size_t k = 0; k < differences.size(); ++k)
    text += fmt::format("  {}: {}\n", plan.outputs[k].name, differences[k].text());
  return text;
}

}  // namespace octavo::cli
