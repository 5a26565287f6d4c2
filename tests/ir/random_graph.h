// Random small graphs for tests of the IR: every structure that the text form, the verifier and the hashes must carry. Not meant to
// be evaluated. The same seed gives the same graph everywhere.
#pragma once

#include <cstring>
#include <random>
#include <string>

#include "ir/graph.h"

namespace octavo::ir {

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  Graph make(int nodes = 20) {
    g_.name = pick({"", "net", "a \"quoted\" name\\"});
    const Shape shape{1, 4, 6, 6};
    for (int i = 0; i < 2; ++i) values_.push_back(g_.add_input(name(), {DType::f32, shape}));
    for (int i = 0; i < nodes; ++i) values_.push_back(add(values_[below(static_cast<unsigned>(values_.size()))]));
    for (int i = 0; i < 3; ++i) {
      g_.outputs.push_back(values_[values_.size() - 1 - below(4)]);
      g_.output_names.push_back("out" + std::to_string(i));
    }
    if (below(2)) g_.value(values_[2]).range = symmetric(0.37F);
    return std::move(g_);
  }

  float real() {  // any bits but NaN: denormals, infinities, -0
    float f = 0;
    do {
      const auto bits = static_cast<std::uint32_t>(random_());
      std::memcpy(&f, &bits, sizeof f);
    } while (f != f);
    return f;
  }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_()) % n; }
  std::string pick(std::initializer_list<const char*> list) { return list.begin()[below(static_cast<unsigned>(list.size()))]; }
  std::string name() {
    ++count_;
    switch (below(5)) {
      case 0: return "";
      case 1: return "/layer." + std::to_string(count_) + "/Conv:0";
      case 2: return "from";  // a keyword, and not unique
      case 3: return "n\xc3\xa9" + std::to_string(count_) + "\n\"";
      default: return "v" + std::to_string(count_);
    }
  }
  std::set<std::string> origin() {
    std::set<std::string> out{"node" + std::to_string(count_)};
    if (below(3) == 0) out.insert("x, \"y\" }");
    return out;
  }
  float scale() { return std::ldexp(1 + static_cast<float>(below(1U << 23)) * 0x1p-23F, static_cast<int>(below(20)) - 15); }
  Quantizer quantizer(std::int64_t channels) {
    Quantizer q = per_tensor(below(2) ? DType::u8 : DType::s8, scale(), static_cast<std::int32_t>(below(128)));
    if (below(3) == 0) {
      q.axis = 1;
      for (std::int64_t i = 1; i < channels; ++i) {
        q.scale.push_back(scale());
        q.zero_point.push_back(static_cast<std::int32_t>(below(128)));
      }
    }
    return q;
  }
  Tensor payload(DType type, Shape shape) {
    Tensor t(type, std::move(shape));
    for (std::byte& b : t.mutable_bytes()) b = static_cast<std::byte>(random_());
    return t;
  }

  ValueId add(ValueId x) {
    const Shape shape = g_.type(x).shape;
    switch (below(9)) {
      case 0: return g_.add_quantizer(Op::view, x, quantizer(shape[1]), g_.type(x), origin(), name());
      case 1: {
        Tensor codes = payload(DType::s8, {shape[1], shape[1], 1, 1});
        const ValueId w = g_.add_constant(codes, name(), per_tensor(DType::s8, scale(), -3));
        return add_inferred(g_, Op::conv, {x, w}, {{"strides", std::vector<std::int64_t>{1, 1}}, {"group", std::int64_t{1}}},
                            origin(), name());
      }
      case 2: {
        const ValueId w = g_.add_constant(payload(DType::f32, {shape[1], shape[1], 3, 3}), name());
        const ValueId b = below(2) ? kNone : g_.add_constant(payload(DType::f32, {shape[1]}), name());
        return add_inferred(g_, Op::conv, {x, w, b}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}, origin(), name());
      }
      case 3:
        return add_inferred(g_, Op::clip, {x}, {{"min", static_cast<double>(real())}, {"max", static_cast<double>(real())}},
                            origin(), name());
      case 4: return add_inferred(g_, Op::add, {x, values_[below(static_cast<unsigned>(values_.size()))]}, {}, origin(), name());
      case 5: return add_inferred(g_, Op::gelu, {x}, {{"approximate", pick({"none", "tanh", "a\"b"})}}, origin(), name());
      case 6: return add_inferred(g_, Op::max, {values_[below(static_cast<unsigned>(values_.size()))], x}, {}, origin(), name());
      case 7: {
        const std::vector<double> scales{1, 1, 1, 1};
        return add_inferred(g_, Op::resize_linear, {x}, {{"scales", scales}, {"coordinate_mode", std::string("half_pixel")}},
                            origin(), name());
      }
      default: {
        Node n;
        n.op = Op::dynamic_quantize;
        n.inputs = {x};
        n.origin = origin();
        const NodeId id =
            g_.add_node(std::move(n), {{DType::u8, shape}, {DType::f32, {}}, {DType::u8, {}}}, {name(), name(), name()});
        const auto& outs = g_.node(id).outputs;
        return add_inferred(g_, Op::dequantize_rt, {outs[0], outs[1], outs[2]}, {}, origin(), name());
      }
    }
  }

  std::mt19937 random_;
  Graph g_;
  std::vector<ValueId> values_;
  int count_ = 0;
};

}  // namespace octavo::ir
