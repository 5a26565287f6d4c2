// The cases' networks, built twice from one description: with Q/DQ pairs (explicit), or as a float graph with ranges on exactly the
// tensors that the pairs sit on (the implicit counterpart).
//
//   Net n(Form::explicit_qdq, 1);
//   auto x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
//   auto y = n.conv(x, 16, {.kernel = 3});
//   n.output(n.pair(n.relu(y), 0.05F));
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octavo::cases {

enum class Form {
  explicit_qdq,  ///< weights as coded constants, so that the reference sums codes
  exported,      ///< weights as codes and a DequantizeLinear
  fake_quant,    ///< weights as floats behind a pair, as pytorch-quantization exports them
  counterpart,
};

struct Weights {
  std::int64_t kernel = 3, stride = 1, pad = -1, group = 1, output_padding = 0;
  int axis = 0;           ///< quantized dimension of the weights; -1: per tensor
  bool quantized = true;  ///< false: weights stay float in both forms
};

/// Weights are seeded floats, quantized per channel with amax/127 where they are. Scales are those of s8 codes, zero point 0.
class Net {
 public:
  Net(Form form, std::uint64_t seed) : form_(form), random_(seed) { graph.name = "case"; }

  ir::ValueId input(const std::string& name, const ir::Shape& dims, ir::DType type = ir::DType::f32);
  /// The value read through s8(scale, 0). The counterpart reads the value itself and notes the scale under its name.
  ir::ValueId pair(ir::ValueId v, float scale);
  /// Pairs twice, one after the other: the same meaning.
  ir::ValueId double_pair(ir::ValueId v, float scale) { return pair(pair(v, scale), scale); }
  ir::ValueId conv(ir::ValueId x, std::int64_t channels, const Weights& w = {});
  ir::ValueId deconv(ir::ValueId x, std::int64_t channels, const Weights& w = {});
  ir::ValueId op(ir::Op op, const std::vector<ir::ValueId>& in, const ir::Attrs& attrs = {});
  ir::ValueId relu(ir::ValueId x) { return op(ir::Op::relu, {x}); }
  ir::ValueId add(ir::ValueId a, ir::ValueId b) { return op(ir::Op::add, {a, b}); }
  ir::ValueId concat(const std::vector<ir::ValueId>& in) { return op(ir::Op::concat, in, {{"axis", std::int64_t{1}}}); }
  /// Channels [from, to).
  ir::ValueId channels(ir::ValueId x, std::int64_t from, std::int64_t to);
  /// x * sigmoid(x).
  ir::ValueId silu(ir::ValueId x) { return op(ir::Op::mul, {x, op(ir::Op::sigmoid, {x})}); }
  ir::ValueId max_pool(ir::ValueId x, std::int64_t kernel, std::int64_t stride, std::int64_t pad);
  void output(ir::ValueId v);

  [[nodiscard]] const ir::Shape& shape(ir::ValueId v) const { return graph.type(v).shape; }

  ir::Graph graph;
  std::map<std::string, float> ranges;  ///< the counterpart's, as scales

 private:
  std::string name(ir::Op op);
  ir::ValueId weighted(ir::Op op, ir::ValueId x, std::int64_t channels, const Weights& w, const ir::Shape& dims);
  ir::ValueId weighted_op(ir::Op op, ir::ValueId x, ir::ValueId weights, const std::vector<float>& bias, const std::string& tag,
                          const Weights& w);

  Form form_;
  std::mt19937_64 random_;
  int next_ = 0;
};

}  // namespace octavo::cases
