// The weighted layers of an ONNX file, and writing a file in which they are quantized: for callers that know no protobuf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "ir/tensor.h"
#include "onnx/model/parsed.h"

namespace octavo::onnx {

class Editor;

/// A model opened for editing.
[[nodiscard]] Result<std::shared_ptr<Editor>> open_model(const Parsed& model);
/// Editor::parsed.
[[nodiscard]] Parsed parsed_of(Editor&& model);
/// The model in one file.
[[nodiscard]] Result<std::vector<std::byte>> model_bytes(const Parsed& model);

/// What the model says of itself by a key (metadata_props).
void set_metadata(Editor& model, const std::string& key, const std::string& text);

/// A Conv, ConvTranspose, Gemm or MatMul with constant float32 weights, as the file spells it.
struct Layer {
  std::string node;  ///< its name, or "op #index"
  std::string op;
  std::string input, output, weights, bias;  ///< tensors; bias is "" without one
  ir::Tensor weight_values, bias_values;     ///< f32; bias_values is empty without one, or where it is not constant
  std::int64_t group = 1;
  std::vector<std::int64_t> strides, dilations,
      pads;                 ///< of a Conv, one (pads: two) for each spatial dimension, defaults filled in
  std::string auto_pad;     ///< of a Conv: "NOTSET", "SAME_UPPER", ...
  bool transposed = false;  ///< Gemm: transB
  bool shared = false;      ///< another node reads the same weights
  bool plain = true;        ///< y = x w + b and nothing else: no alpha, no beta, no transA
  int axis = 0;             ///< of the output channels in the weights
};
[[nodiscard]] std::vector<Layer> weighted_layers(const Editor& model);

/// New values for the weights of a layer that does not share them; same shape.
void set_weights(Editor& model, const Layer& layer, const ir::Tensor& values);
/// Puts the nodes into an order in which producers come first. `bad_model` when there is a cycle.
[[nodiscard]] Status sort_nodes(Editor& model);
/// Adds `change`, one value for each output channel, to the results of a plain Conv, ConvTranspose, Gemm or MatMul. The nodes are in
/// order again after put_pairs or sort_nodes.
void add_to_bias(Editor& model, const Layer& layer, const std::vector<float>& change);

/// Weights as codes: value = code * scale of its channel.
struct CodedWeights {
  ir::Tensor codes;          ///< s8, the shape of the weights
  std::vector<float> scale;  ///< one for each index of `axis`; one in all when it is -1
  int axis = 0;
};
struct QuantizedModel {
  ir::Ranges activations;                       ///< by tensor
  std::map<std::string, CodedWeights> weights;  ///< by tensor; others are rounded to quant::weight_scales
  std::set<std::string> keep_float;             ///< names of weighted nodes (Layer::node) that get no pairs
};
struct QuantizedResult {
  int pairs = 0;                     ///< activations that got one
  std::set<std::string> quantized;   ///< nodes (Layer::node) whose data and weights are quantized
  std::vector<std::string> missing;  ///< tensors that the placement wants and that have no quantizer
};
/// Puts pairs in. `placement`: as from_table (convert.h), or "borders": as "residual", and the data of AveragePool,
/// GlobalAveragePool and ReduceMean, which is where the planner reads codes in implicit models. Errors: `unsupported` (opset below
/// 13, naming the way out), `usage` (a placement that is not known, a model that has pairs already).
[[nodiscard]] Result<QuantizedResult> put_pairs(Editor& model, const QuantizedModel& quantized, const std::string& placement);

}  // namespace octavo::onnx
