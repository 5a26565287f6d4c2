#include "support/wide_network.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/graph_maker.h"

namespace octavo::testing {
namespace {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Quantizer;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;
using Ints = std::vector<std::int64_t>;

class Wide : GraphMaker {
 public:
  Wide(std::uint64_t seed, const WideOptions& options) : GraphMaker("wide_network", seed, 11), options_(options) {}

  ir::Graph build() {
    g_.name = "wide";
    const bool image = options_.least_columns == 1 && chance(45);
    ValueId x = image ? first_image() : first_matrix();
    pool_.push_back(x);
    const int operators = options_.least_columns > 1 ? 1 : 1 + below(4);
    for (int i = 0; i < operators; ++i) image ? image_block() : matrix_block(i == 0);
    outputs();
    return std::move(g_);
  }

 private:
  /// 1 to `most`, each magnitude as likely as another, multiples of vectors and their neighbours more often.
  std::int64_t extent(double most) {
    const double unit = static_cast<double>(below(1 << 20)) / (1 << 20);
    auto n = static_cast<std::int64_t>(std::exp(unit * std::log(std::max(1.0, most))));
    if (n > 8 && chance(50)) n = n / 8 * 8 + below(3) - 1;
    return std::clamp<std::int64_t>(n, 1, static_cast<std::int64_t>(std::max(1.0, most)));
  }

  float scale() { return std::ldexp(0.5F + static_cast<float>(below(1 << 20)) * 0x1p-21F, below(4) - 6); }
  ValueId pair(ValueId v) {
    const bool is_signed = chance(50);
    const Quantizer q = ir::per_tensor(is_signed ? DType::s8 : DType::u8, scale(), is_signed ? below(21) - 10 : 118 + below(21));
    const ValueId codes = g_.add_quantizer(Op::quantize, v, q, {q.type, shape(v)}, origin(), name());
    return g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, shape(v)}, origin(), name());
  }
  ValueId maybe_pair(ValueId v, int percent) { return chance(percent) ? pair(v) : v; }

  /// Floats, or codes along `axis`; small enough for sums over `depth` to stay near 1.
  ValueId weights(Shape dims, std::size_t axis, std::int64_t depth, bool coded) {
    const float size = 1.0F / std::sqrt(static_cast<float>(depth));
    if (!coded) {
      Tensor t(DType::f32, dims);
      for (float& w : t.mutable_data<float>()) w = (static_cast<float>(below(2001) - 1000) / 1000) * size;
      return g_.add_constant(std::move(t), name() + "_w");
    }
    Tensor codes(DType::s8, dims);
    for (std::int8_t& c : codes.mutable_data<std::int8_t>()) c = static_cast<std::int8_t>(below(255) - 127);
    Quantizer q = ir::per_tensor(DType::s8, size / 127, 0);
    if (dims[axis] > 1 && chance(60)) {
      q.axis = static_cast<int>(axis);
      q.scale.assign(static_cast<std::size_t>(dims[axis]), 0);
      for (float& s : q.scale) s = size / 127 * (0.5F + static_cast<float>(below(1000)) / 1000);
      q.zero_point.assign(q.scale.size(), 0);
    }
    return g_.add_constant(std::move(codes), name() + "_w", q);
  }
  ValueId constant(Shape dims) {
    Tensor t(DType::f32, std::move(dims));
    for (float& v : t.mutable_data<float>()) v = static_cast<float>(below(2001) - 1000) / 500;
    return g_.add_constant(std::move(t), name() + "_c");
  }

  ValueId pick() { return pool_[static_cast<std::size_t>(below(static_cast<std::int64_t>(pool_.size())))]; }
  ValueId keep(ValueId v) {
    pool_.push_back(v);
    if (chance(35)) outputs_.push_back(v);  // read a second time
    return v;
  }

  ValueId activation(ValueId x) {
    switch (below(7)) {
      case 0:
      case 1: return op(Op::relu, {x});
      case 2: return op(Op::clip, {x}, {{"min", 0.0}, {"max", 6.0}});
      case 3: return op(Op::mul, {x, op(Op::sigmoid, {x})});
      case 4: return op(Op::hard_swish, {x});
      default: return x;
    }
  }
  /// What follows an operator with weights; each step may be read elsewhere too.
  ValueId behind(ValueId raw, const Shape& bias) {
    ValueId y = keep(raw);
    if (chance(70)) y = keep(op(Op::add, {y, constant(bias)}));
    y = activation(y);
    for (const ValueId other : pool_) {
      if (!chance(25) || shape(other) != shape(y) || other == y) continue;
      y = op(Op::add, {y, other});
      break;
    }
    return keep(maybe_pair(y, 40));
  }

  ValueId first_matrix() {
    if (options_.least_columns > 1) return g_.add_input("x", {DType::f32, {13 + below(20), 97 + below(40)}});
    const std::int64_t depth = extent(400);
    return g_.add_input("x", {DType::f32, {extent(std::min(20000.0, options_.products / static_cast<double>(depth))), depth}});
  }
  void matrix_block(bool first) {
    const ValueId from = pick();
    const std::int64_t rows = shape(from)[0], depth = shape(from)[1];
    if (!first && chance(35)) return other_matrix(from);
    const double room = std::min(20000.0, options_.products / static_cast<double>(rows * depth));
    const std::int64_t columns = options_.least_columns > 1 ? options_.least_columns + below(3000) : extent(room);
    const bool coded = chance(50);
    const ValueId x = coded ? pair(from) : maybe_pair(from, 15);
    const ValueId w = weights({depth, columns}, 1, depth, coded);
    behind(op(Op::gemm, {x, w}), {columns});
  }
  void other_matrix(ValueId x) {
    const std::int64_t rows = shape(x)[0], columns = shape(x)[1];
    switch (below(5)) {
      case 0: keep(op(Op::softmax, {x}, {{"axis", std::int64_t{1}}})); return;
      case 1: keep(op(Op::transpose, {x}, {{"perm", Ints{1, 0}}})); return;
      case 2: keep(op(Op::reduce_mean, {x}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{1}}})); return;
      case 3: keep(maybe_pair(op(Op::concat, {x, maybe_pair(x, 50)}, {{"axis", std::int64_t{below(2)}}}), 50)); return;
      default: {  // two computed matrices
        if (static_cast<double>(rows * rows * columns) > options_.products) return void(keep(op(Op::relu, {x})));
        const ValueId turned = op(Op::transpose, {x}, {{"perm", Ints{1, 0}}});
        keep(op(Op::matmul, {maybe_pair(x, 40), maybe_pair(turned, 40)}));
      }
    }
  }

  ValueId first_image() {
    const std::int64_t channels = extent(64), height = extent(chance(30) ? 1 : 40);
    const double room = options_.products / static_cast<double>(channels * height);
    Shape dims{1 + below(2), channels, height, extent(std::min(5000.0, room))};
    if (chance(50)) std::swap(dims[2], dims[3]);
    return g_.add_input("x", {DType::f32, dims});
  }
  void image_block() {
    const ValueId from = pick();
    const Shape dims = shape(from);
    if (chance(25)) return other_image(from);
    const bool depthwise = chance(25), coded = chance(50);
    const std::int64_t kh = dims[2] > 2 && chance(50) ? 3 : 1, kw = dims[3] > 2 && chance(50) ? 3 : 1, stride = 1 + below(2);
    const double a_channel = static_cast<double>(ir::count(dims) / (depthwise ? dims[1] : 1) * kh * kw);
    const std::int64_t out = depthwise ? dims[1] : extent(std::min(600.0, options_.products / a_channel));
    const std::int64_t in = depthwise ? 1 : dims[1];
    const ValueId x = coded ? pair(from) : maybe_pair(from, 15);
    const ValueId w = weights({out, in, kh, kw}, 0, in * kh * kw, coded);
    const std::int64_t ph = kh / 2, pw = kw / 2;
    behind(op(Op::conv, {x, w},
              {{"strides", Ints{stride, stride}},
               {"pads", Ints{ph, pw, ph, pw}},
               {"dilations", Ints{1, 1}},
               {"group", depthwise ? dims[1] : std::int64_t{1}}}),
           {out, 1, 1});
  }
  void other_image(ValueId x) {
    switch (below(4)) {
      case 0: keep(op(Op::reduce_mean, {x}, {{"axes", Ints{2, 3}}, {"keepdims", std::int64_t{1}}})); return;
      case 1: keep(op(Op::max_pool, {x}, {{"kernel", Ints{1, 1}}, {"strides", Ints{2, 2}}, {"pads", Ints(4, 0)}})); return;
      case 2: keep(maybe_pair(op(Op::concat, {maybe_pair(x, 50), x}, {{"axis", std::int64_t{1}}}), 50)); return;
      default: keep(maybe_pair(activation(x), 50));
    }
  }

  void outputs() {
    for (ValueId v = 0; v < g_.value_capacity(); ++v) {
      const Op op = g_.producer(v).op;
      if (g_.use_count(v) == 0 && op != Op::input && op != Op::constant) outputs_.push_back(v);
    }
    std::sort(outputs_.begin(), outputs_.end());
    outputs_.erase(std::unique(outputs_.begin(), outputs_.end()), outputs_.end());
    for (const ValueId v : outputs_) {
      if (g_.producer(v).op == Op::input) continue;
      g_.outputs.push_back(v);
      g_.output_names.push_back("output" + std::to_string(g_.outputs.size() - 1));
    }
  }

  const WideOptions& options_;
  std::vector<ValueId> pool_, outputs_;
};

}  // namespace

ir::Graph wide_network(std::uint64_t seed, const WideOptions& options) {
  return Wide(seed, options).build();
}

}  // namespace octavo::testing
