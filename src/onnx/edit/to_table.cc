#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/quantizer.h"
#include "onnx/edit/convert.h"
#include "onnx/edit/edit.h"

namespace octavo::onnx {
namespace {

std::int64_t attribute(const pb::NodeProto& n, const char* name, std::int64_t fallback) {
  for (const auto& a : n.attribute()) {
    if (a.name() == name) return a.i();
  }
  return fallback;
}

/// Operators whose result has the scale of their operand.
bool keeps_scale(const std::string& op) {
  return op == "Reshape" || op == "Transpose" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze" || op == "MaxPool" ||
         op == "Identity" || op == "Dropout";
}

class Remover {
 public:
  Remover(Editor& model, bool approximate) : m_(model), approximate_(approximate) {}

  Result<TableResult> run() {
    for (int i = 0; i < m_.graph().node_size(); ++i) {
      const pb::NodeProto& n = m_.graph().node(i);
      for (const auto& o : n.output()) producer_[o] = i;
      if (n.op_type().starts_with("QLinear") || n.op_type() == "DynamicQuantizeLinear" || n.op_type() == "ConvInteger" ||
          n.op_type() == "MatMulInteger") {
        return fail(ErrorKind::unsupported,
                    fmt::format("node \"{}\" is {}: a table describes float models\n  export the model with "
                                "QuantizeLinear and DequantizeLinear pairs (QDQ format)",
                                m_.node_name(i), n.op_type()));
      }
    }
    const int count = m_.graph().node_size();
    for (int i = 0; i < count; ++i) {
      if (m_.graph().node(i).op_type() == "DequantizeLinear") OCTAVO_CHECK(dequantize(i));
    }
    for (int i = 0; i < count; ++i) {
      if (m_.graph().node(i).op_type() == "QuantizeLinear" && !gone_.contains(i)) {
        return fail(ErrorKind::unsupported, fmt::format("QuantizeLinear \"{}\" is not followed by DequantizeLinear: its codes are "
                                                        "a result of the model, which a table cannot express",
                                                        m_.node_name(i)));
      }
    }
    OCTAVO_CHECK(codes_are_not_read());
    m_.remove_nodes(gone_);
    OCTAVO_CHECK(m_.sort());
    propagate();
    return std::move(result_);
  }

 private:
  /// Nothing but DequantizeLinear may read what a QuantizeLinear that goes makes.
  Status codes_are_not_read() const {
    std::map<std::string, int> codes;
    for (const int q : gone_) {
      const pb::NodeProto& n = m_.graph().node(q);
      if (n.op_type() == "QuantizeLinear") codes[n.output(0)] = q;
    }
    const auto refuse = [&](const std::string& tensor, const std::string& reader) {
      return fail(
          ErrorKind::unsupported,
          fmt::format(
              "codes \"{}\" of QuantizeLinear \"{}\" are read by {} too: a table describes float models, which have no codes",
              tensor, m_.node_name(codes.at(tensor)), reader));
    };
    for (int i = 0; i < m_.graph().node_size(); ++i) {
      if (gone_.contains(i)) continue;
      for (const auto& in : m_.graph().node(i).input()) {
        if (codes.contains(in)) return refuse(in, fmt::format("{} \"{}\"", m_.graph().node(i).op_type(), m_.node_name(i)));
      }
    }
    for (const auto& o : m_.graph().output()) {
      if (codes.contains(o.name())) return refuse(o.name(), "the model's user, as an output");
    }
    return {};
  }

  /// The tensor behind all pairs in front of `name`.
  std::string root(std::string name) const {
    for (;;) {
      const auto at = renamed_.find(name);
      if (at == renamed_.end()) return name;
      name = at->second;
    }
  }

  Result<ir::Quantizer> quantizer(int index) {
    const pb::NodeProto& n = m_.graph().node(index);
    const ir::Tensor* scale = m_.constant(n.input(1));
    const ir::Tensor* zero = n.input_size() > 2 && !n.input(2).empty() ? m_.constant(n.input(2)) : nullptr;
    if (scale == nullptr || (n.input_size() > 2 && !n.input(2).empty() && zero == nullptr)) {
      return fail(ErrorKind::unsupported, fmt::format("{} \"{}\" has a scale or zero point that is computed at run time",
                                                      n.op_type(), m_.node_name(index)));
    }
    if (!ir::is_float(scale->dtype()))
      return fail(ErrorKind::bad_model, fmt::format("{} \"{}\": its scale is not float", n.op_type(), m_.node_name(index)));
    ir::Quantizer q;
    q.type = zero != nullptr ? zero->dtype() : ir::DType::u8;
    if (scale->size() == 0 || scale->shape().size() > 1 || (zero != nullptr && zero->size() != scale->size())) {
      return fail(
          ErrorKind::unsupported,
          fmt::format("{} \"{}\" has {} scales in {} dimensions and {} zero points: one for the tensor, or one each for the "
                      "indices of one axis, can be read",
                      n.op_type(), m_.node_name(index), scale->size(), scale->shape().size(),
                      zero == nullptr ? scale->size() : zero->size()));
    }
    q.scale.clear();
    q.zero_point.clear();
    for (std::int64_t i = 0; i < scale->size(); ++i) {
      q.scale.push_back(static_cast<float>(scale->at(i)));
      q.zero_point.push_back(zero != nullptr && i < zero->size() ? static_cast<std::int32_t>(zero->at(i)) : 0);
    }
    q.axis = scale->size() == 1 && scale->shape().empty() ? -1 : static_cast<int>(attribute(n, "axis", 1));
    if (q.scale.size() == 1) q.axis = -1;
    return q;
  }

  Status dequantize(int dq) {
    const pb::NodeProto n = m_.graph().node(dq);
    OCTAVO_TRY(const ir::Quantizer given, quantizer(dq));
    if (const ir::Tensor* codes = m_.constant(n.input(0))) return fold(dq, *codes, given);
    const auto made = producer_.find(n.input(0));
    if (made == producer_.end() || m_.graph().node(made->second).op_type() != "QuantizeLinear") {
      return fail(ErrorKind::unsupported,
                  fmt::format("DequantizeLinear \"{}\" reads \"{}\", which no QuantizeLinear makes: a table cannot express integer "
                              "inputs, and codes that pass through other operators",
                              m_.node_name(dq), n.input(0)));
    }
    const int quantize = made->second;
    const std::string source = m_.graph().node(quantize).input(0);
    OCTAVO_TRY(const ir::Quantizer front, quantizer(quantize));
    if (!(front == given)) {
      return fail(ErrorKind::unsupported,
                  fmt::format("tensor \"{}\" is quantized by {} and dequantized by {}: a table cannot express that", source,
                              ir::to_string(front), ir::to_string(given)));
    }
    if (const ir::Tensor* weights = m_.constant(source)) {  // float weights with a pair
      if (!ir::is_int8(given.type)) {
        return fail(ErrorKind::unsupported,
                    fmt::format("weights \"{}\" are quantized to {}: int8 and uint8 are known", source, ir::name_of(given.type)));
      }
      OCTAVO_TRY(const ir::Quantizer q, on_shape(quantize, given, weights->shape()));
      ir::Tensor codes(q.type, weights->shape());
      const auto step = q.per_tensor() ? 1 : ir::dense_strides(weights->shape())[static_cast<std::size_t>(q.axis)];
      for (std::int64_t i = 0; i < weights->size(); ++i) {
        const std::int64_t c = q.per_tensor() ? 0 : i / step % weights->shape()[static_cast<std::size_t>(q.axis)];
        const auto code = ir::quantize_one(static_cast<float>(weights->at(i)), q.scale_at(c), q.zero_at(c), q.lo(), q.hi());
        codes.mutable_bytes()[static_cast<std::size_t>(i)] = static_cast<std::byte>(code);
      }
      gone_.insert(quantize);
      return fold(dq, codes, q);
    }
    OCTAVO_CHECK(note_scale(root(source), given));
    gone_.insert(quantize);
    return take_out(dq, source);
  }

  /// q for a constant of this shape: ONNX counts negative axes from the end.
  Result<ir::Quantizer> on_shape(int index, ir::Quantizer q, const ir::Shape& shape) const {
    if (q.scale.size() <= 1) return q;
    const int rank = static_cast<int>(shape.size()), axis = q.axis;
    q.axis = axis < 0 ? axis + rank : axis;
    if (q.axis < 0 || q.axis >= rank || shape[static_cast<std::size_t>(q.axis)] != static_cast<std::int64_t>(q.scale.size())) {
      return fail(ErrorKind::bad_model,
                  fmt::format("{} \"{}\" has {} scales along axis {} of a constant of shape [{}]", m_.graph().node(index).op_type(),
                              m_.node_name(index), q.scale.size(), axis, fmt::join(shape, ",")));
    }
    return q;
  }

  /// Weights become what they are dequantized to.
  Status fold(int dq, const ir::Tensor& codes, const ir::Quantizer& given) {
    OCTAVO_TRY(const ir::Quantizer q, on_shape(dq, given, codes.shape()));
    const std::string name = m_.graph().node(dq).output(0);
    ir::Tensor values(ir::DType::f32, codes.shape());
    const auto step = q.per_tensor() ? 1 : ir::dense_strides(codes.shape())[static_cast<std::size_t>(q.axis)];
    std::vector<std::int32_t> most(q.entries(), 0);
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      const std::int64_t c = q.per_tensor() ? 0 : i / step % codes.shape()[static_cast<std::size_t>(q.axis)];
      const auto code = static_cast<std::int32_t>(codes.at(i));
      auto& m = most[q.per_tensor() ? 0 : static_cast<std::size_t>(c)];
      m = std::max(m, std::abs(code - q.zero_at(c)));
      values.mutable_data<float>()[static_cast<std::size_t>(i)] = ir::dequantize_one(code, q.scale_at(c), q.zero_at(c));
    }
    if (ir::is_int8(q.type)) {
      const auto drifting = std::count_if(most.begin(), most.end(), [](std::int32_t m) { return m != 127; });
      if (drifting > 0) {
        result_.notes.push_back(fmt::format(
            "weights \"{}\": {} of {} channels have no code of magnitude 127, so TensorRT's own max / 127 gives them another "
            "scale (Octavo finds the old one where the values allow it)",
            name, drifting, most.size()));
      }
    }
    gone_.insert(dq);
    m_.set_constant(name, values);
    return {};
  }

  Status note_scale(const std::string& tensor, const ir::Quantizer& q) {
    if (!ir::is_int8(q.type))
      return fail(ErrorKind::unsupported,
                  fmt::format("tensor \"{}\" is quantized to {}: a table means int8", tensor, ir::name_of(q.type)));
    const auto [least, most] = std::minmax_element(q.scale.begin(), q.scale.end());
    float scale = *most;
    if (*least != *most) {
      if (!approximate_)
        return fail(ErrorKind::unsupported, fmt::format("pass --approximate to convert this model: a table holds one scale for "
                                                        "each tensor, and tensor \"{}\" has {} along axis {}, "
                                                        "from {} to {}\n  --approximate takes the largest",
                                                        tensor, q.scale.size(), q.axis, *least, *most));
      result_.notes.push_back(
          fmt::format("\"{}\": {} scales along axis {} became the largest, {}: steps up to {:.3g} times as wide", tensor,
                      q.scale.size(), q.axis, scale, scale / *least));
    }
    const std::int32_t middle = q.type == ir::DType::u8 ? 128 : 0;
    float bound = 0;
    std::int32_t zero = middle;
    for (std::size_t i = 0; i < q.scale.size(); ++i) {
      const std::int32_t z = q.zero_point[i];
      if (z != middle) zero = z;
      bound = std::max(bound, q.scale[i] * static_cast<float>(std::max(z - q.lo(), q.hi() - z)));
    }
    if (zero != middle) {
      if (!approximate_) {
        return fail(ErrorKind::unsupported, fmt::format("pass --approximate to convert this model: a table holds symmetric int8 "
                                                        "ranges (zero point {} of {}), and tensor \"{}\" has zero "
                                                        "point {}\n  --approximate gives each such tensor the symmetric range of "
                                                        "its largest magnitude (here {}), and lists what that costs",
                                                        middle, ir::name_of(q.type), tensor, zero, bound));
      }
      result_.notes.push_back(
          fmt::format("\"{}\": zero point {} given up; scale {} became {} (amax {}): errors up to {} instead of {}", tensor, zero,
                      scale, bound / 127.0F, bound, bound / 254.0F, scale / 2));
      scale = bound / 127.0F;
    }
    const auto [at, fresh] = result_.scales.emplace(tensor, scale);
    if (!fresh && at->second != scale) {
      if (!approximate_)
        return fail(ErrorKind::unsupported, fmt::format("pass --approximate to convert this model: a table holds one scale for "
                                                        "each tensor, and tensor \"{}\" is quantized with scale {} and "
                                                        "with scale {}\n  --approximate takes the larger",
                                                        tensor, at->second, scale));
      result_.notes.push_back(fmt::format("\"{}\": scales {} and {}: the larger was taken", tensor, at->second, scale));
      at->second = std::max(at->second, scale);
    }
    return {};
  }

  /// Readers of the DequantizeLinear read the source; an output of the model keeps its name through an Identity.
  Status take_out(int dq, const std::string& source) {
    const std::string name = m_.graph().node(dq).output(0);
    renamed_[name] = source;
    m_.rename_uses(name, source);
    gone_.insert(dq);
    for (const auto& o : m_.graph().output()) {
      if (o.name() != name) continue;
      pb::NodeProto* keep = m_.graph().add_node();
      keep->set_op_type("Identity");
      keep->set_name(m_.fresh(name + "_identity"));
      keep->add_input(source);
      keep->add_output(name);
    }
    return {};
  }

  void propagate() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const pb::NodeProto& n : m_.graph().node()) {
        if (!keeps_scale(n.op_type()) || n.input_size() == 0 || n.output_size() == 0) continue;
        const auto from = result_.scales.find(n.input(0)), to = result_.scales.find(n.output(0));
        const auto give = [&](const std::string& name, float scale, const std::string& by) {
          result_.scales[name] = scale;
          result_.notes.push_back(fmt::format("\"{}\": scale {} of \"{}\", through {}", name, scale, by, n.op_type()));
          changed = true;
        };
        if (from != result_.scales.end() && to == result_.scales.end())
          give(n.output(0), from->second, n.input(0));
        else if (from == result_.scales.end() && to != result_.scales.end() && n.op_type() != "MaxPool")
          give(n.input(0), to->second, n.output(0));
      }
    }
  }

  Editor& m_;
  bool approximate_;
  std::map<std::string, int> producer_;
  std::map<std::string, std::string> renamed_;
  std::set<int> gone_;
  TableResult result_;
};

}  // namespace

Result<TableResult> to_table(Editor& model, bool approximate) {
  return Remover(model, approximate).run();
}

Result<TableResult> table_of(const Parsed& parsed, bool approximate, const std::string& float_path) {
  OCTAVO_TRY(auto model, Editor::open(parsed));
  OCTAVO_TRY(auto result, to_table(model, approximate));
  if (!float_path.empty() && !result.scales.empty()) OCTAVO_CHECK(model.save(float_path));
  return result;
}

}  // namespace octavo::onnx
