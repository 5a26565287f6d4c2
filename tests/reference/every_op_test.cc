// One small case with hand-computed results for every operator of ir/ops.def; a new operator without a case fails.
#include <cmath>
#include <limits>
#include <set>

#include "reference/one_node.h"

namespace octavo::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  Op op;
  std::vector<Tensor> inputs;
  ir::Attrs attrs;
  std::vector<double> expected;
  double tolerance = 0;
  std::optional<ir::Quantizer> quantizer{};
  std::vector<std::vector<double>> others{};  ///< further results, where they are stated
};

Tensor u8(ir::Shape shape, const std::vector<std::uint8_t>& v) {
  return Tensor::of<std::uint8_t>(std::move(shape), v);
}
Tensor row(const std::vector<float>& v) {
  return f32({static_cast<std::int64_t>(v.size())}, v);
}

std::vector<Case> quantization_cases() {
  const ir::Quantizer q = ir::per_tensor(ir::DType::u8, 0.5F, 1);
  return {
      {Op::view, {row({0.25F, 0.75F, -9, 200, NAN})}, {}, {0, 1, -0.5, 127, 0}, 0, q},
      {Op::quantize, {row({0.25F, 0.75F, -9, 200, NAN})}, {}, {1, 3, 0, 255, 1}, 0, q},
      {Op::dequantize, {u8({3}, {0, 1, 255})}, {}, {-0.5, 0, 127}, 0, q},
      {Op::quantize_rt, {row({0.25F, 0.75F}), row({0.5F}), u8({1}, {1})}, {}, {1, 3}},
      {Op::dequantize_rt, {u8({2}, {0, 255}), row({0.5F}), u8({1}, {1})}, {}, {-0.5, 127}},
      {Op::dynamic_quantize, {row({-1, 0, 254})}, {}, {0, 1, 255}},
  };
}

std::vector<Case> anchor_cases() {
  const Tensor image = f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor kernel = f32({1, 1, 2, 2}, {1, 0, 0, -1});
  const Tensor pair = f32({2, 2}, {1, 2, 3, 4});
  return {
      {Op::conv, {image, kernel, row({10})}, {}, {6, 6, 6, 6}},
      {Op::conv, {image, kernel}, {{"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}}, {-1, -3, -7, -4}},
      {Op::conv_transpose,
       {f32({1, 1, 1, 2}, {1, 2}), f32({1, 1, 1, 3}, {1, 10, 100})},
       {{"strides", Ints{1, 2}}},
       {1, 10, 102, 20, 200}},
      {Op::gemm, {pair, pair, row({0.5F, 1})}, {}, {7.5, 11, 15.5, 23}},
      {Op::matmul, {f32({2, 1, 2}, {1, 2, 3, 4}), pair}, {}, {7, 10, 15, 22}},
      {Op::matmul, {row({1, 2}), row({3, 4})}, {}, {11}},
      {Op::max_pool, {image}, {{"kernel", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}}, {1, 3, 7, 9}},
      {Op::avg_pool, {image}, {{"kernel", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}}, {1, 2.5, 5.5, 7}},
      {Op::avg_pool,
       {image},
       {{"kernel", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}, {"count_include_pad", std::int64_t{1}}},
       {0.25, 1.25, 2.75, 7}},
      {Op::reduce_mean, {pair}, {{"axes", Ints{0}}}, {2, 3}},
      {Op::reduce_sum, {pair}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}}, {3, 7}},
      {Op::reduce_sum, {s64({2}, {5, -7})}, {{"axes", Ints{0}}}, {-2}},
      {Op::reduce_max, {pair}, {{"axes", Ints{0, 1}}}, {4}},
      {Op::reduce_min, {pair}, {{"axes", Ints{0}}}, {1, 2}},
      {Op::reduce_prod, {s64({3}, {2, 3, -4})}, {{"axes", Ints{0}}}, {-24}},
      {Op::reduce_l2, {row({3, 4})}, {{"axes", Ints{0}}}, {5}},
      {Op::softmax, {f32({2, 2}, {0, 0, 1000, 1000})}, {{"axis", std::int64_t{1}}}, {0.5, 0.5, 0.5, 0.5}},
      {Op::log_softmax, {row({0, 0})}, {{"axis", std::int64_t{0}}}, {-std::log(2.0), -std::log(2.0)}, 1e-7},
      {Op::arg_max, {f32({2, 3}, {1, 5, 5, 9, 2, 3})}, {{"axis", std::int64_t{1}}}, {1, 0}},
      {Op::arg_max, {f32({2, 3}, {1, 5, 5, 9, 2, 3})}, {{"axis", std::int64_t{1}}, {"select_last_index", std::int64_t{1}}}, {2, 0}},
      {Op::resize_linear,
       {f32({1, 1, 1, 2}, {0, 4})},
       {{"scales", std::vector<double>{1, 1, 1, 2}}, {"coordinate_mode", std::string("half_pixel")}},
       {0, 1, 3, 4}},
      {Op::resize_linear,
       {f32({1, 1, 1, 2}, {0, 4})},
       {{"scales", std::vector<double>{1, 1, 1, 2}}, {"coordinate_mode", std::string("asymmetric")}},
       {0, 2, 4, 4}},
      {Op::resize_linear,
       {f32({1, 1, 1, 2}, {0, 3})},
       {{"scales", std::vector<double>{1, 1, 1, 2}}, {"coordinate_mode", std::string("align_corners")}},
       {0, 1, 2, 3}},
      // The next four: values of the ONNX reference implementation.
      {Op::resize_cubic,
       {f32({1, 1, 1, 4}, {1, 2, 3, 4})},
       {{"scales", std::vector<double>{1, 1, 1, 1.5}}, {"coordinate_mode", std::string("asymmetric")}},
       {1, 1.5740737, 2.3703694, 3, 3.74074, 4.1111097},
       2e-6},
      {Op::resize_cubic,
       {f32({1, 1, 1, 4}, {1, 2, 3, 4})},
       {{"scales", std::vector<double>{1, 1, 1, 1.5}},
        {"coordinate_mode", std::string("half_pixel")},
        {"exclude_outside", std::int64_t{1}},
        {"cubic_coeff_a", -0.5}},
       {0.9342108, 1.4117647, 2.166666, 2.833334, 3.5882354, 4.065789},
       2e-6},
      {Op::resize_linear,
       {f32({1, 1, 2, 4}, {1, 2, 3, 4, 8, 6, 7, 5})},
       {{"scales", std::vector<double>{1, 1, 1.5, 0.8F}}, {"coordinate_mode", std::string("half_pixel_symmetric")}},
       {1.25, 2.5, 3.75, 4.375, 4.5, 4.625, 7.5, 6.5, 5.5},
       2e-6},
      {Op::resize_linear,
       {f32({1, 1, 2, 4}, {1, 2, 3, 4, 8, 6, 7, 5})},
       {{"scales", std::vector<double>{1, 1, 0.5, 0.8F}}, {"coordinate_mode", std::string("pytorch_half_pixel")}},
       {1.125, 2.375, 3.625},
       2e-6},
      {Op::instance_norm, {f32({1, 1, 2}, {1, 3}), row({2}), row({10})}, {{"epsilon", 0.0}}, {8, 12}},
      {Op::layer_norm, {f32({1, 2}, {1, 3}), row({2, 2}), row({10, 20})}, {{"axis", std::int64_t{1}}, {"epsilon", 0.0}}, {8, 22}},
      {Op::lrn,
       {f32({1, 3, 1, 1}, {1, 2, 3})},
       {{"size", std::int64_t{3}}, {"alpha", 3.0}, {"beta", 1.0}, {"bias", 0.0}},
       {0.2, 2.0 / 14, 3.0 / 13},
       1e-6},
  };
}

ir::Attrs function(const char* name) {
  return {{"function", std::string(name)}};
}

std::vector<Case> index_cases() {
  const Tensor three = s64({3}, {1, 2, 3});
  const auto scatter = [](const char* kind, const char* reduction) {
    return ir::Attrs{{"kind", std::string(kind)}, {"reduction", std::string(reduction)}, {"axis", std::int64_t{0}}};
  };
  std::vector<Case> cases{
      {Op::bitwise, {s64({1}, {12}), s64({1}, {10})}, function("and"), {8}},
      {Op::bitwise, {s64({1}, {12}), s64({1}, {10})}, function("or"), {14}},
      {Op::bitwise, {s64({1}, {12}), s64({1}, {10})}, function("xor"), {6}},
      {Op::bitwise, {u8({2}, {5, 255})}, function("not"), {250, 0}},
      {Op::bitwise, {u8({2}, {1, 255}), u8({1}, {3})}, function("left"), {8, 248}},
      {Op::bitwise, {u8({2}, {200, 7}), u8({1}, {3})}, function("right"), {25, 0}},
      {Op::bit_cast, {row({1, -2})}, {{"to", std::string("s32")}}, {0x3f800000, -0x40000000}},
      {Op::scatter, {three, s64({2}, {0, -1}), s64({2}, {9, 8})}, scatter("elements", "none"), {9, 2, 8}},
      {Op::scatter, {three, s64({2}, {0, 0}), s64({2}, {5, 7})}, scatter("elements", "add"), {13, 2, 3}},
      {Op::scatter, {row({1, 2, 3}), s64({2}, {1, 1}), row({5, 7})}, scatter("elements", "mul"), {1, 70, 3}},
      {Op::scatter, {three, s64({2}, {2, 2}), s64({2}, {5, 4})}, scatter("elements", "max"), {1, 2, 5}},
      {Op::scatter, {three, s64({2}, {2, 2}), s64({2}, {5, -4})}, scatter("elements", "min"), {1, 2, -4}},
      {Op::scatter, {s64({2, 2}, {1, 2, 3, 4}), s64({1, 1}, {1}), s64({1, 2}, {7, 8})}, scatter("nd", "none"), {1, 2, 7, 8}},
      {Op::scatter, {three, s64({2}, {0, 9}), s64({2}, {9, 8}), s64({}, {1})}, scatter("elements", "none"), {9, 2, 3}},
      {Op::scatter, {three, s64({2, 1}, {2, 0}), s64({2}, {9, 8}), s64({}, {0})}, scatter("nd", "add"), {1, 2, 3}},
      {Op::scatter, {three, s64({2, 1}, {2, 0}), s64({2}, {9, 8}), s64({}, {5})}, scatter("nd", "add"), {9, 2, 12}},
      {Op::non_zero, {row({0, -2, 0, 0.5F, 0})}, {}, {1, 3, 0, 0, 0}, 0, {}, {{2}}},
      {Op::non_zero, {row({0, -2, 0, 0.5F, 0}), s64({}, {3})}, {}, {1, 0, 0, 0, 0}, 0, {}, {{1}}},
      {Op::top_k, {row({1, 9, 9, 3})}, {{"k", std::int64_t{2}}, {"axis", std::int64_t{0}}}, {9, 9}, 0, {}, {{1, 2}}},
      {Op::top_k,
       {s64({2, 3}, {3, 1, 2, 5, 4, 6})},
       {{"k", std::int64_t{1}}, {"axis", std::int64_t{1}}, {"largest", std::int64_t{0}}},
       {1, 4},
       0,
       {},
       {{1, 1}}},
      {Op::cumulate, {row({1, 2, 3})}, {}, {1, 3, 6}},
      {Op::cumulate, {three}, {{"exclusive", std::int64_t{1}}}, {0, 1, 3}},
      {Op::cumulate, {three}, {{"reverse", std::int64_t{1}}}, {6, 5, 3}},
      {Op::cumulate, {three}, {{"function", std::string("prod")}, {"exclusive", std::int64_t{1}}}, {1, 1, 2}},
      {Op::det, {f32({2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0})}, {}, {-2, -1}},
      {Op::max_pool_index, {f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})}, {{"kernel", Ints{2, 2}}}, {4, 5, 7, 8}},
      {Op::max_pool_index,
       {f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})},
       {{"kernel", Ints{2, 2}}, {"column_major", std::int64_t{1}}},
       {4, 7, 5, 8}},
  };
  const double kPi = std::acos(-1.0);
  struct {
    const char* name;
    float x;
    double y;
  } const maths[] = {{"tan", 0.5F, 0.5463024898}, {"asin", 1, kPi / 2},       {"acos", 0, kPi / 2},
                     {"atan", 1, kPi / 4},        {"sinh", 1, 1.1752011936},  {"cosh", 1, 1.5430806348},
                     {"asinh", 1, 0.8813735870},  {"acosh", 2, 1.3169578969}, {"atanh", 0.5F, 0.5493061443}};
  for (const auto& m : maths) cases.push_back({Op::math, {row({m.x})}, function(m.name), {m.y}, 2e-7});
  return cases;
}

std::vector<Case> sample_cases() {
  const Tensor square = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  const auto at = [](float x, float y) { return f32({1, 1, 1, 2}, {x, y}); };
  const auto mode = [](const char* m, const char* padding, bool align) {
    return ir::Attrs{{"mode", std::string(m)}, {"padding_mode", std::string(padding)}, {"align_corners", std::int64_t{align}}};
  };
  const auto roi = [](const char* m) { return ir::Attrs{{"mode", std::string(m)}, {"sampling_ratio", std::int64_t{2}}}; };
  // Boxes 0 and 1 overlap by 0.9, box 2 lies apart.
  const Tensor boxes = f32({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 0.9F, 5, 5, 6, 6});
  return {
      {Op::grid_sample, {square, at(0, 0)}, {}, {2.5}},
      {Op::grid_sample, {square, at(-1, -1)}, {}, {0.25}},  // a quarter of the 1, the rest is outside
      {Op::grid_sample, {square, at(-1, 0)}, mode("linear", "border", false), {2}},
      {Op::grid_sample, {square, at(1, -1)}, mode("linear", "zeros", true), {2}},
      {Op::grid_sample, {square, at(0.9F, 0.9F)}, mode("nearest", "zeros", false), {4}},
      {Op::grid_sample, {square, at(3, -1)}, mode("nearest", "reflection", true), {1}},
      {Op::roi_align, {square, f32({1, 4}, {0, 0, 2, 2}), s64({1}, {0})}, roi("avg"), {2.5}},
      {Op::roi_align, {square, f32({1, 4}, {0, 0, 2, 2}), s64({1}, {0})}, roi("max"), {4}},
      // One tap of weight 2, half a pixel to the right; the mask hides the last; bias 1.
      {Op::deform_conv,
       {f32({1, 1, 1, 3}, {1, 2, 3}), f32({1, 1, 1, 1}, {2}), f32({1, 2, 1, 3}, {0, 0, 0, 0.5F, 0.5F, 0.5F}), row({1}),
        f32({1, 1, 1, 3}, {1, 1, 0})},
       {},
       {4, 6, 1}},
      {Op::non_max_suppression,
       {boxes, f32({1, 1, 3}, {0.8F, 0.9F, 0.7F}), row({0.5F}), row({0})},
       {{"count", std::int64_t{3}}},
       {0, 0, 1, 0, 0, 2, -1, -1, -1}},
      {Op::non_max_suppression,
       {boxes, f32({1, 1, 3}, {0.8F, 0.9F, 0.7F}), row({0.95F}), row({0.75F})},
       {{"count", std::int64_t{3}}},
       {0, 0, 1, 0, 0, 0, -1, -1, -1}},
  };
}

/// One hidden unit, one input, three steps; every weight is `w`.
Case recurrent_case(const char* cell, std::int64_t gates, float w, float h0, float c0, const char* activations,
                    std::vector<double> y, std::vector<std::vector<double>> others, std::int64_t steps = 3) {
  const Tensor weights = f32({1, gates, 1}, std::vector<float>(static_cast<std::size_t>(gates), w));
  const Tensor zeros = f32({1, 2 * gates}, std::vector<float>(static_cast<std::size_t>(2 * gates), 0));
  return {Op::recurrent,
          {f32({3, 1, 1}, {1, 2, 3}), weights, weights, zeros, s64({1}, {steps}), f32({1, 1, 1}, {h0}), f32({1, 1, 1}, {c0}),
           f32({1, 3}, {0, 0, 0})},
          {{"cell", std::string(cell)}, {"activations", std::string(activations)}},
          std::move(y),
          2e-7,
          {},
          std::move(others)};
}

std::vector<Case> recurrent_cases() {
  const double t1 = 0.5 * std::tanh(1.0), t2 = 0.5 * std::tanh(0.5), t3 = 0.5 * std::tanh(0.25);
  return {
      recurrent_case("rnn", 1, 1, 0, 0, "Relu", {1, 3, 6}, {{6}}),
      recurrent_case("rnn", 1, 1, 4, 0, "Relu", {5, 7, 0}, {{7}}, 2),  // the sequence ends after two steps
      // Without weights every gate is a half and the candidate 0.
      recurrent_case("gru", 3, 0, 8, 0, "Sigmoid,Tanh", {4, 2, 1}, {{1}}),
      recurrent_case("lstm", 4, 0, 9, 2, "Sigmoid,Tanh,Tanh", {t1, t2, t3}, {{t3}, {0.25}}),
      // i = f = o = candidate = s with s = x + h: c = s c + s s, h = s c
      recurrent_case("lstm", 4, 1, 0, 1, "Relu,Relu,Relu", {2, 96, 1205523}, {{1205523}, {12177}}),
  };
}

std::vector<Case> unary_cases() {
  return {
      {Op::relu, {row({-1, 2})}, {}, {0, 2}},
      {Op::relu, {s64({2}, {-5, 5})}, {}, {0, 5}},
      {Op::clip, {row({-9, 0.5F, 9})}, {{"min", -1.0}, {"max", 6.0}}, {-1, 0.5, 6}},
      {Op::leaky_relu, {row({-2, 2})}, {{"alpha", 0.25}}, {-0.5, 2}},
      {Op::elu, {row({-1, 2})}, {{"alpha", 2.0}}, {2 * std::expm1(-1.0), 2}, 1e-6},
      {Op::selu, {row({-1, 2})}, {}, {1.0507010 * 1.6732632 * std::expm1(-1.0), 2.1014020}, 1e-6},
      {Op::sigmoid, {row({0, 100, -100})}, {}, {0.5, 1, 0}},
      {Op::hard_sigmoid, {row({-9, 0, 1, 9})}, {{"alpha", 0.25}, {"beta", 0.5}}, {0, 0.5, 0.75, 1}},
      {Op::hard_swish, {row({-4, 3, 6})}, {}, {0, 3, 6}},
      {Op::tanh, {row({0, 50, -50})}, {}, {0, 1, -1}},
      {Op::erf, {row({0, 1, -9})}, {}, {0, std::erf(1.0), -1}, 2e-7},
      {Op::gelu, {row({0, 1, -20})}, {}, {0, 0.8413447461, 0}, 2e-7},
      {Op::gelu, {row({1})}, {{"approximate", std::string("tanh")}}, {0.8411919906}, 2e-7},
      {Op::mish, {row({0, 1})}, {}, {0, 0.8650983882}, 2e-7},
      {Op::softplus, {row({0, 100})}, {}, {std::log(2.0), 100}, 1e-7},
      {Op::softsign, {row({1, -3})}, {}, {0.5, -0.75}},
      {Op::exp, {row({0, 1})}, {}, {1, std::exp(1.0)}, 3e-7},
      {Op::log, {row({1, 2})}, {}, {0, std::log(2.0)}, 1e-7},
      {Op::sqrt, {row({4, 2})}, {}, {2, std::sqrt(2.0F)}},
      {Op::reciprocal, {row({4, -0.5F})}, {}, {0.25, -2}},
      {Op::abs, {row({-1, 2})}, {}, {1, 2}},
      {Op::neg, {s64({2}, {-1, 2})}, {}, {1, -2}},
      {Op::floor, {row({-1.5F, 1.5F})}, {}, {-2, 1}},
      {Op::ceil, {row({-1.5F, 1.5F})}, {}, {-1, 2}},
      {Op::round, {row({0.5F, 1.5F, -2.5F})}, {}, {0, 2, -2}},
      {Op::sign, {row({-3, 0, 2})}, {}, {-1, 0, 1}},
      {Op::sin, {row({0, 1})}, {}, {0, std::sin(1.0)}, 1e-7},
      {Op::cos, {row({0, 1})}, {}, {1, std::cos(1.0)}, 1e-7},
      {Op::logical_not, {boolean({2}, {0, 1})}, {}, {1, 0}},
      {Op::cast, {row({-1.9F, 300, 2.5F})}, {{"to", std::string("u8")}}, {0, 255, 2}},
      {Op::cast, {s64({2}, {257, -1})}, {{"to", std::string("u8")}}, {1, 255}},
      {Op::cast, {row({65520, 1.00048828125F})}, {{"to", std::string("f16")}}, {kInf, 1}},
  };
}

std::vector<Case> several_cases() {
  const Tensor a = f32({2, 1}, {6, -7}), b = row({2, 4});
  const Tensor m = s64({2}, {7, -7}), n = s64({2}, {2, 2});
  return {
      {Op::add, {a, b}, {}, {8, 10, -5, -3}},
      {Op::add, {s64({1}, {40}), s64({2}, {2, 3})}, {}, {42, 43}},
      {Op::sub, {a, b}, {}, {4, 2, -9, -11}},
      {Op::mul, {a, b}, {}, {12, 24, -14, -28}},
      {Op::div, {a, b}, {}, {3, 1.5, -3.5, -1.75}},
      {Op::div, {m, n}, {}, {3, -3}},
      {Op::pow, {row({3, -2}), row({2, 3})}, {}, {9, -8}},
      {Op::pow, {s64({2}, {3, -2}), s64({2}, {4, 3})}, {}, {81, -8}},
      {Op::mod, {m, n}, {}, {1, 1}},
      {Op::mod, {m, n}, {{"fmod", std::int64_t{1}}}, {1, -1}},
      {Op::max, {a, b}, {}, {6, 6, 2, 4}},
      {Op::min, {a, b}, {}, {2, 4, -7, -7}},
      {Op::prelu, {f32({2, 2}, {-1, -1, 3, 3}), b}, {}, {-2, -4, 3, 3}},
      {Op::affine, {f32({1, 2, 1}, {3, 5}), row({2, 10}), row({1, 0.5F})}, {}, {7, 50.5}},
      {Op::equal, {s64({2}, {1, 2}), s64({1}, {2})}, {}, {0, 1}},
      {Op::less, {b, row({4, 4})}, {}, {1, 0}},
      {Op::less_equal, {b, row({1, 4})}, {}, {0, 1}},
      {Op::greater, {b, row({1, 4})}, {}, {1, 0}},
      {Op::greater_equal, {b, row({3, 4})}, {}, {0, 1}},
      {Op::logical_and, {boolean({2}, {1, 1}), boolean({2}, {0, 1})}, {}, {0, 1}},
      {Op::logical_or, {boolean({2}, {0, 0}), boolean({2}, {0, 1})}, {}, {0, 1}},
      {Op::where, {boolean({2}, {1, 0}), s64({1}, {5}), s64({2}, {6, 7})}, {}, {5, 7}},
  };
}

std::vector<Case> moving_cases() {
  const Tensor x = s64({2, 3}, {0, 1, 2, 3, 4, 5});
  const Tensor chan = s64({1, 4, 1, 1}, {0, 1, 2, 3});
  return {
      {Op::transpose, {x}, {{"perm", Ints{1, 0}}}, {0, 3, 1, 4, 2, 5}},
      {Op::reshape, {x}, {{"shape", Ints{3, 2}}}, {0, 1, 2, 3, 4, 5}},
      {Op::slice, {x}, {{"starts", Ints{1, 2}}, {"ends", Ints{2, -1}}, {"steps", Ints{1, -2}}}, {5, 3}},
      {Op::concat, {x, s64({2, 1}, {8, 9})}, {{"axis", std::int64_t{1}}}, {0, 1, 2, 8, 3, 4, 5, 9}},
      {Op::pad, {s64({2}, {1, 2})}, {{"pads", Ints{1, 2}}, {"value", 7.0}}, {7, 1, 2, 7, 7}},
      {Op::pad, {s64({3}, {1, 2, 3})}, {{"pads", Ints{2, 1}}, {"mode", std::string("reflect")}}, {3, 2, 1, 2, 3, 2}},
      {Op::pad, {s64({2}, {1, 2})}, {{"pads", Ints{1, 1}}, {"mode", std::string("edge")}}, {1, 1, 2, 2}},
      {Op::resize_nearest, {x}, {{"index1", Ints{0, 0, 2}}}, {0, 0, 2, 3, 3, 5}},
      {Op::gather, {x, s64({2}, {-1, 0})}, {{"axis", std::int64_t{1}}}, {2, 0, 5, 3}},
      {Op::gather_elements, {x, s64({2, 2}, {2, 0, -3, 1})}, {{"axis", std::int64_t{1}}}, {2, 0, 3, 4}},
      {Op::gather_nd, {x, s64({2, 2}, {1, 2, 0, -2})}, {}, {5, 1}},
      {Op::gather_nd, {x, s64({2, 1}, {1, 0})}, {{"batch_dims", std::int64_t{1}}}, {1, 3}},
      {Op::expand, {s64({2, 1}, {1, 2})}, {{"shape", Ints{2, 2, 2}}}, {1, 1, 2, 2, 1, 1, 2, 2}},
      {Op::tile, {s64({2}, {1, 2})}, {{"repeats", Ints{2}}}, {1, 2, 1, 2}},
      {Op::depth_to_space, {chan}, {{"blocksize", std::int64_t{2}}}, {0, 1, 2, 3}},
      {Op::depth_to_space,
       {s64({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7})},
       {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}},
       {0, 1, 2, 3, 4, 5, 6, 7}},
      {Op::depth_to_space,
       {s64({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7})},
       {{"blocksize", std::int64_t{2}}},
       {0, 2, 4, 6, 1, 3, 5, 7}},
      {Op::space_to_depth, {s64({1, 1, 2, 2}, {0, 1, 2, 3})}, {{"blocksize", std::int64_t{2}}}, {0, 1, 2, 3}},
  };
}

TEST(Reference, EveryOperatorHasACaseWithKnownResults) {
  std::set<Op> covered{Op::input, Op::constant};  // these two are evaluated by the graph walk
  for (const auto& group : {quantization_cases(), anchor_cases(), index_cases(), sample_cases(), recurrent_cases(), unary_cases(),
                            several_cases(), moving_cases()}) {
    for (const Case& c : group) {
      covered.insert(c.op);
      const Tensor y = run(c.op, c.inputs, c.attrs, c.quantizer);
      ASSERT_FALSE(y.empty()) << ir::name_of(c.op);
      ASSERT_EQ(static_cast<std::size_t>(y.size()), c.expected.size()) << ir::name_of(c.op) << " " << ir::to_string(y.type());
      for (std::size_t i = 0; i < c.expected.size(); ++i) {
        const double v = y.at(static_cast<std::int64_t>(i));
        if (std::isinf(c.expected[i])) {
          EXPECT_EQ(v, c.expected[i]) << ir::name_of(c.op) << " element " << i;
        } else {
          EXPECT_NEAR(v, c.expected[i], c.tolerance) << ir::name_of(c.op) << " element " << i;
        }
      }
      if (c.others.empty()) continue;
      const auto all = run_all(c.op, c.inputs, c.attrs, c.quantizer);
      ASSERT_EQ(all->size(), 1 + c.others.size()) << ir::name_of(c.op);
      for (std::size_t r = 0; r < c.others.size(); ++r) {
        const std::vector<double> got = values((*all)[r + 1]);
        ASSERT_EQ(got.size(), c.others[r].size()) << ir::name_of(c.op);
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i], c.others[r][i], c.tolerance) << ir::name_of(c.op) << " result " << r + 1 << " element " << i;
        }
      }
    }
  }
#define OP(id, text, min_in, max_in, traits) EXPECT_TRUE(covered.contains(Op::id)) << "no case for " << text;
#include "ir/ops.def"
}

}  // namespace
}  // namespace octavo::reference
