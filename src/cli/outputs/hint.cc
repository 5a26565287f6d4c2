#include "cli/outputs/hint.h"

#include <algorithm>
#include <optional>

#include "cli/print.h"

namespace octavo::cli {
namespace {

struct Reach {
  double low = 0, high = 0;
};

/// What the quantizers that the model puts on an input can hold; nothing when there are none, or the model is not at hand.
std::optional<Reach> reach_of(const Loaded& loaded, const std::string& input) {
  if (!loaded.built) return std::nullopt;
  const ir::Graph& g = loaded.built->model.graph;
  std::optional<Reach> found;
  for (const ir::ValueId v : g.inputs) {
    if (g.value(v).name != input) continue;
    for (const auto& [node, slot] : g.users(v)) {
      const ir::Node& n = g.node(node);
      if (!n.quantizer || !n.quantizer->per_tensor() || (n.op != ir::Op::quantize && n.op != ir::Op::view)) continue;
      const auto value = [&](std::int64_t code) {
        return static_cast<double>(code - n.quantizer->zero_point[0]) * n.quantizer->scale[0];
      };
      const Reach r{value(n.quantizer->lo()), value(n.quantizer->hi())};
      found = found ? Reach{std::min(found->low, r.low), std::max(found->high, r.high)} : r;
    }
  }
  return found;
}

}  // namespace

void hint_preprocessing(const Loaded& loaded, const RecipeOptions& options, const std::string& stored, const std::string& input,
                        const Preprocess& used) {
  if (options.given() || !stored.empty() || used.scale != 1.0F) return;
  const auto& inputs = loaded.engine->plan().inputs;
  const auto binding = std::find_if(inputs.begin(), inputs.end(), [&](const auto& b) { return b.name == input; });
  if (binding == inputs.end() || (binding->type.dtype != ir::DType::f32 && binding->type.dtype != ir::DType::f16)) return;
  constexpr double kPixels = 128;  // half of what pixels reach: a model that wants them covers it
  const auto reach = reach_of(loaded, input);
  if (reach && reach->high >= kPixels) return;
  const std::string why =
      reach ? fmt::format(", and the model quantizes that input to {:.4g} .. {:.4g}", reach->low, reach->high) : "";
  say("hint: no preprocessing is given: pixels go into \"{}\" as 0 to 255{}\n"
      "  give the preprocessing of the training: --preset torch (or tf, caffe, cifar, yolox), or --scale 1/255; --scale 1 for "
      "pixels as "
      "they "
      "are\n",
      input, why);
}

}  // namespace octavo::cli
