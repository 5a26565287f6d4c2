#include "cases/net.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace octavo::cases {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Quantizer;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;
using Ints = std::vector<std::int64_t>;

std::string Net::name(Op op) {
  return std::string(ir::name_of(op)) + "_" + std::to_string(next_++);
}

ValueId Net::input(const std::string& name, const Shape& dims, DType type) {
  return graph.add_input(name, {type, dims});
}

ValueId Net::pair(ValueId v, float scale) {
  if (form_ == Form::counterpart) {
    ranges[graph.value(v).name] = scale;
    return v;
  }
  const Quantizer q = ir::per_tensor(DType::s8, scale);
  const std::string tag = graph.value(v).name + "_" + std::to_string(next_++);
  const ValueId codes = graph.add_quantizer(Op::quantize, v, q, {q.type, shape(v)}, {tag + "_Q"}, tag + "_q");
  return graph.add_quantizer(Op::dequantize, codes, q, {DType::f32, shape(v)}, {tag + "_DQ"}, tag + "_dq");
}

ValueId Net::op(Op op, const std::vector<ValueId>& in, const Attrs& attrs) {
  ir::Node n;
  n.op = op;
  n.inputs = in;
  n.attrs = attrs;
  const std::string called = name(op);
  n.origin = {called};
  const auto types = ir::infer(graph, n);
  if (!types) {  // a mistake of the test, not of what is tested
    std::fprintf(stderr, "case network: %s\n", types.error().message.c_str());
    std::abort();
  }
  return graph.node(graph.add_node(std::move(n), *types, {called + "_out"})).outputs[0];
}

ValueId Net::weighted(Op op, ValueId x, std::int64_t channels, const Weights& w, const Shape& dims) {
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<std::size_t>(ir::count(dims)));
  const float fan = std::sqrt(3.0F / static_cast<float>(shape(x)[1] / w.group * w.kernel * w.kernel));
  for (float& v : values) v = uniform(random_) * fan;
  std::vector<float> bias(static_cast<std::size_t>(channels));
  for (float& v : bias) v = uniform(random_) * 0.25F;
  const std::string tag = std::string(ir::name_of(op)) + "_" + std::to_string(next_++);
  ValueId weights = graph.add_constant(Tensor::of<float>(dims, values), tag + "_w");
  if (w.quantized && form_ != Form::counterpart) {
    const std::size_t entries = w.axis < 0 ? 1 : static_cast<std::size_t>(dims[static_cast<std::size_t>(w.axis)]);
    std::size_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(w.axis) + 1; w.axis >= 0 && d < dims.size(); ++d)
      inner *= static_cast<std::size_t>(dims[d]);
    Quantizer q = ir::per_tensor(DType::s8, 1.0F);
    q.axis = w.axis;
    q.scale.assign(entries, 0.0F);
    q.zero_point.assign(entries, 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float& s = q.scale[w.axis < 0 ? 0 : i / inner % entries];
      s = std::max(s, std::abs(values[i]));
    }
    for (float& s : q.scale) s /= 127.0F;
    ValueId codes = ir::kNone;
    if (form_ == Form::fake_quant) {
      codes = graph.add_quantizer(Op::quantize, weights, q, {q.type, dims}, {tag + "_w_Q"}, tag + "_w_q");
    } else {
      Tensor table(q.type, dims);
      for (std::size_t i = 0; i < values.size(); ++i)
        table.mutable_data<std::int8_t>()[i] =
            static_cast<std::int8_t>(ir::quantize_one(values[i], q.scale[w.axis < 0 ? 0 : i / inner % entries], 0, q.lo(), q.hi()));
      if (form_ == Form::explicit_qdq) return weighted_op(op, x, graph.add_constant(std::move(table), tag + "_w", q), bias, tag, w);
      codes = graph.add_constant(std::move(table), tag + "_w_q");
    }
    weights = graph.add_quantizer(Op::dequantize, codes, q, {DType::f32, dims}, {tag + "_w_DQ"}, tag + "_w_dq");
  }
  return weighted_op(op, x, weights, bias, tag, w);
}

ValueId Net::weighted_op(Op op, ValueId x, ValueId weights, const std::vector<float>& bias, const std::string& tag,
                         const Weights& w) {
  const auto channels = static_cast<std::int64_t>(bias.size());
  const std::int64_t pad = w.pad >= 0 ? w.pad : w.kernel / 2;
  Attrs attrs{{"strides", Ints(2, w.stride)}, {"pads", Ints(4, pad)}, {"dilations", Ints(2, 1)}, {"group", w.group}};
  if (w.output_padding > 0) attrs["output_padding"] = Ints(2, w.output_padding);
  return this->op(op, {x, weights, graph.add_constant(Tensor::of<float>({channels}, bias), tag + "_b")}, attrs);
}

ValueId Net::conv(ValueId x, std::int64_t channels, const Weights& w) {
  return weighted(Op::conv, x, channels, w, {channels, shape(x)[1] / w.group, w.kernel, w.kernel});
}

ValueId Net::deconv(ValueId x, std::int64_t channels, const Weights& w) {
  return weighted(Op::conv_transpose, x, channels, w, {shape(x)[1], channels / w.group, w.kernel, w.kernel});
}

ValueId Net::channels(ValueId x, std::int64_t from, std::int64_t to) {
  Ints starts(shape(x).size(), 0), ends = shape(x);
  starts[1] = from;
  ends[1] = to;
  return op(Op::slice, {x}, {{"starts", starts}, {"ends", ends}, {"steps", Ints(shape(x).size(), 1)}});
}

ValueId Net::max_pool(ValueId x, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  return op(Op::max_pool, {x},
            {{"kernel", Ints(2, kernel)}, {"strides", Ints(2, stride)}, {"pads", Ints(4, pad)}, {"dilations", Ints(2, 1)}});
}

void Net::output(ValueId v) {
  graph.outputs.push_back(v);
  graph.output_names.push_back("output" + std::to_string(graph.outputs.size()));
}

}  // namespace octavo::cases
