// The model of a quantization as it is so far.
#include <nlohmann/json.hpp>

#include "quantize/run.h"

namespace octavo::quantize {

Result<onnx::QuantizedResult> Run::write() {
  if (!options_.pairs) return write_float();
  OCTAVO_TRY(const auto editor, open());
  onnx::QuantizedModel q;
  q.keep_float = made_.keep_float;
  q.activations = made_.quantizers;
  for (const auto& [alias, of] : model_.aliases) {
    if (const auto at = made_.quantizers.find(of); at != made_.quantizers.end()) q.activations.emplace(alias, at->second);
  }
  for (std::size_t l = 0; l < made_.fits.size(); ++l) {
    const onnx::Layer& layer = inputs_.layers[l];
    if (made_.fits[l].codes.empty() || layer.shared || made_.keep_float.contains(layer.node)) continue;
    onnx::CodedWeights& w = q.weights[layer.weights];
    w.codes = inputs_.rows[l].codes(made_.fits[l].codes);
    w.scale = made_.fits[l].scale;
    w.axis = layer.axis;
  }
  for (std::size_t l = 0; l < made_.fits.size(); ++l) {
    if (!made_.fits[l].codes.empty() && options_.fit.correct_bias && !made_.keep_float.contains(inputs_.layers[l].node))
      onnx::add_to_bias(*editor, inputs_.layers[l], made_.fits[l].bias_change);
  }
  OCTAVO_TRY(auto put, onnx::put_pairs(*editor, q, options_.placement));
  made_.out.model = onnx::parsed_of(std::move(*editor));
  return put;
}

Result<onnx::QuantizedResult> Run::write_float() {
  OCTAVO_TRY(const auto editor, open());
  onnx::QuantizedResult all;
  for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
    const onnx::Layer& layer = inputs_.layers[l];
    if (!made_.quantizers.contains(input_name(l)) || made_.dropped.contains(input_name(l))) continue;
    all.quantized.insert(layer.node);
    if (l >= made_.fits.size() || made_.fits[l].codes.empty()) continue;
    onnx::set_weights(*editor, layer, inputs_.rows[l].values(made_.fits[l].codes, made_.fits[l].scale));
    if (options_.fit.correct_bias) onnx::add_to_bias(*editor, layer, made_.fits[l].bias_change);
  }
  OCTAVO_CHECK(onnx::sort_nodes(*editor));
  made_.out.model = onnx::parsed_of(std::move(*editor));
  return all;
}

Status Run::note_float_layers() {
  nlohmann::json why;
  for (const LayerResult& l : made_.out.layers) {
    if (!l.int8) why[l.node] = l.why_float;
  }
  if (why.empty()) return {};
  OCTAVO_TRY(const auto editor, onnx::open_model(*made_.out.model));
  onnx::set_metadata(*editor, kKeptFloat, why.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  made_.out.model = onnx::parsed_of(std::move(*editor));
  return {};
}

}  // namespace octavo::quantize
