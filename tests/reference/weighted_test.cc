// conv, conv_transpose, gemm, matmul: integer anchors against the formula element by element in every form; float ones against
// double.
#include <cmath>

#include "reference/one_node.h"

namespace octavo::reference {
namespace {

struct Shape2 {
  std::int64_t n = 1, c = 4, o = 4, group = 1;
  Ints in{5, 6}, kernel{3, 3}, strides{1, 1}, dilations{1, 1}, pads{1, 1, 1, 1}, extra{0, 0};
  bool transposed = false;
};

/// The mathematical definition, written once more and differently: every (input element, weight) pair is scattered or gathered in
/// double.
template <class Get, class Weight>
std::vector<double> by_definition(const Shape2& s, const ir::Shape& out, Get x, Weight w) {
  const std::size_t r = s.in.size();
  std::vector<double> y(static_cast<std::size_t>(ir::count(out)), 0.0);
  const std::int64_t gi = s.c / s.group, go = s.o / s.group;
  const std::int64_t in_size = ir::count(s.in), taps = ir::count(s.kernel),
                     out_size = ir::count(ir::Shape(out.begin() + 2, out.end()));
  const auto split = [r](std::int64_t flat, const Ints& extent) {
    Ints index(r);
    for (std::size_t d = r; d-- > 0; flat /= extent[d]) index[d] = flat % extent[d];
    return index;
  };
  for (std::int64_t p = 0; p < in_size; ++p) {
    for (std::int64_t t = 0; t < taps; ++t) {
      const Ints i = split(p, s.in), k = split(t, s.kernel);
      std::int64_t q = 0;
      for (std::size_t d = 0; d < r && q >= 0; ++d) {
        std::int64_t o;
        if (s.transposed) {
          o = i[d] * s.strides[d] + k[d] * s.dilations[d] - s.pads[d];
        } else {
          const std::int64_t scaled = i[d] + s.pads[d] - k[d] * s.dilations[d];
          o = scaled >= 0 && scaled % s.strides[d] == 0 ? scaled / s.strides[d] : -1;
        }
        q = o < 0 || o >= out[d + 2] ? -1 : q * out[d + 2] + o;
      }
      if (q < 0) continue;
      for (std::int64_t n = 0; n < s.n; ++n) {
        for (std::int64_t o = 0; o < s.o; ++o) {
          for (std::int64_t c = 0; c < gi; ++c) {
            const std::int64_t channel = o / go * gi + c;
            const std::int64_t at = s.transposed ? (channel * go + o % go) * taps + t : (o * gi + c) * taps + t;
            y[static_cast<std::size_t>((n * s.o + o) * out_size + q)] += x((n * s.c + channel) * in_size + p) * w(at, o);
          }
        }
      }
    }
  }
  return y;
}

ir::Attrs attrs_of(const Shape2& s) {
  ir::Attrs a{{"strides", s.strides}, {"dilations", s.dilations}, {"pads", s.pads}, {"group", s.group}};
  if (s.transposed) a["output_padding"] = s.extra;
  return a;
}
ir::Shape x_shape(const Shape2& s) {
  ir::Shape x{s.n, s.c};
  x.insert(x.end(), s.in.begin(), s.in.end());
  return x;
}
ir::Shape w_shape(const Shape2& s) {
  ir::Shape w = s.transposed ? ir::Shape{s.c, s.o / s.group} : ir::Shape{s.o, s.c / s.group};
  w.insert(w.end(), s.kernel.begin(), s.kernel.end());
  return w;
}

std::vector<Shape2> shapes() {
  std::vector<Shape2> all(10);
  all[1] = {2, 3, 5, 1, {7, 4}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, {0, 0}, false};
  all[2] = {1, 6, 6, 6, {5, 5}, {3, 3}, {2, 1}, {1, 2}, {1, 2, 0, 2}, {0, 0}, false};  // depthwise, dilated, uneven pads
  all[3] = {1, 4, 6, 2, {6, 6}, {2, 3}, {1, 2}, {2, 1}, {2, 1, 2, 0}, {0, 0}, false};  // grouped
  all[4] = {2, 3, 4, 1, {9}, {4}, {3}, {2}, {3, 2}, {0}, false};                       // one dimension
  all[5] = {1, 2, 3, 1, {3, 4, 5}, {2, 2, 3}, {1, 2, 1}, {1, 1, 1}, {1, 0, 1, 0, 1, 1}, {0, 0, 0}, false};  // three
  all[6] = {1, 4, 6, 1, {4, 3}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {1, 1}, true};
  all[7] = {2, 4, 6, 2, {3, 4}, {2, 3}, {3, 1}, {2, 2}, {0, 1, 1, 0}, {2, 0}, true};    // groups, dilations, output padding
  all[8] = {1, 3, 3, 3, {5}, {4}, {2}, {1}, {1, 1}, {1}, true};                         // depthwise transposed, one dimension
  all[9] = {1, 64, 8, 1, {2, 2}, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}, {0, 0}, false};  // window wider than the image
  return all;
}

struct Coding {
  ir::DType x, w;
  std::int32_t zx;
  bool per_channel, weight_zero;
  int bias;  ///< 0 none, 1 float, 2 codes in the accumulator's unit, 3 codes in another unit
};

class IntegerAnchors : public ::testing::TestWithParam<int> {};

TEST_P(IntegerAnchors, EqualTheFormulaBitForBit) {
  const Shape2 s = shapes()[static_cast<std::size_t>(GetParam())];
  for (const Coding& k :
       {Coding{ir::DType::u8, ir::DType::s8, 0, false, false, 0}, Coding{ir::DType::u8, ir::DType::s8, 128, true, false, 1},
        Coding{ir::DType::s8, ir::DType::s8, -5, true, true, 2}, Coding{ir::DType::u8, ir::DType::u8, 255, true, true, 3},
        Coding{ir::DType::s8, ir::DType::u8, 127, false, true, 2}}) {
    const unsigned seed = static_cast<unsigned>(GetParam()) * 16 + static_cast<unsigned>(k.bias);
    std::mt19937 rng(seed);
    SCOPED_TRACE("shape " + std::to_string(GetParam()) + " bias form " + std::to_string(k.bias) + " seed " + std::to_string(seed));
    const ir::Quantizer qx = ir::per_tensor(k.x, 0.037F, k.zx);
    const std::int64_t entries = s.transposed ? s.o / s.group : s.o;
    ir::Quantizer qw = ir::per_tensor(k.w, 0.011F, k.weight_zero ? 3 : 0);
    if (k.per_channel) {
      qw.axis = s.transposed ? 1 : 0;
      qw.scale.clear();
      qw.zero_point.clear();
      for (std::int64_t c = 0; c < entries; ++c) {
        qw.scale.push_back(0.01F + 0.003F * static_cast<float>(c));
        qw.zero_point.push_back(k.weight_zero ? static_cast<std::int32_t>(c % 7) : 0);
      }
    }
    const auto scale_of = [&](std::int64_t o) { return 0.037F * qw.scale_at(qw.per_tensor() ? 0 : o % entries); };
    ir::Graph g;
    const Tensor x_codes = random_codes(k.x, x_shape(s), rng), w_codes = random_codes(k.w, w_shape(s), rng);
    const ir::ValueId in = g.add_input("x", x_codes.type());
    const ir::ValueId x = g.add_quantizer(Op::dequantize, in, qx, {ir::DType::f32, x_shape(s)});
    std::vector<ir::ValueId> inputs{x, g.add_constant(w_codes, "w", qw)};
    std::vector<float> bias;
    std::vector<std::int32_t> bias_codes;
    if (k.bias == 1) {
      const Tensor b = random_f32({s.o}, rng);
      bias.assign(b.data<float>().begin(), b.data<float>().end());
      inputs.push_back(g.add_constant(b));
    } else if (k.bias >= 2) {
      ir::Quantizer qb{ir::DType::s32, {}, {}, 0, ir::DType::f32};
      for (std::int64_t o = 0; o < s.o; ++o) {
        bias_codes.push_back(static_cast<std::int32_t>(rng() % 20001) - 10000);
        qb.scale.push_back(k.bias == 2 ? scale_of(o) : 1.25F * scale_of(o));
        qb.zero_point.push_back(0);
        if (k.bias == 3) bias.push_back(static_cast<float>(bias_codes.back()) * qb.scale.back());
      }
      inputs.push_back(g.add_constant(Tensor::of<std::int32_t>({s.o}, bias_codes), "b", qb));
    }
    g.outputs = {ir::add_inferred(g, s.transposed ? Op::conv_transpose : Op::conv, inputs, attrs_of(s))};
    const auto kind = ir::classify_anchor(g, ir::find_grids(g), g.value(g.outputs[0]).producer);
    ASSERT_TRUE(kind.integer) << name_of(kind.why_float.value_or(Reason{}).cause);
    ASSERT_EQ(kind.bias_in_acc, k.bias == 2);
    const auto result = evaluate(g, {x_codes});
    ASSERT_TRUE(result) << result.error().message;
    const Tensor& y = (*result)[0];
    const auto acc = by_definition(
        s, y.shape(), [&](std::int64_t i) { return x_codes.at(i) - k.zx; },
        [&](std::int64_t i, std::int64_t o) { return w_codes.at(i) - qw.zero_at(qw.per_tensor() ? 0 : o % entries); });
    const std::int64_t plane = y.size() / (s.n * s.o);
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const std::int64_t o = i / plane % s.o;
      const double with_bias = acc[static_cast<std::size_t>(i)] + (k.bias == 2 ? bias_codes[static_cast<std::size_t>(o)] : 0);
      const auto value = static_cast<float>(static_cast<std::int32_t>(with_bias));
      const float expected = bias.empty() ? value * scale_of(o) : std::fma(value, scale_of(o), bias[static_cast<std::size_t>(o)]);
      ASSERT_EQ(y.data<float>()[static_cast<std::size_t>(i)], expected) << "element " << i;
    }
  }
}

TEST_P(IntegerAnchors, FloatOnesAreCloseToDouble) {
  const Shape2 s = shapes()[static_cast<std::size_t>(GetParam())];
  std::mt19937 rng(static_cast<unsigned>(GetParam()));
  const Tensor x = random_f32(x_shape(s), rng), w = random_f32(w_shape(s), rng), b = random_f32({s.o}, rng);
  const Tensor y = run(s.transposed ? Op::conv_transpose : Op::conv, {x, w, b}, attrs_of(s));
  ASSERT_FALSE(y.empty());
  const auto exact = by_definition(
      s, y.shape(), [&](std::int64_t i) { return x.at(i); }, [&](std::int64_t i, std::int64_t) { return w.at(i); });
  const std::int64_t plane = y.size() / (s.n * s.o);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    ASSERT_NEAR(y.at(i), exact[static_cast<std::size_t>(i)] + b.at(i / plane % s.o), 2e-3)
        << "shape " << GetParam() << " element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, IntegerAnchors, ::testing::Range(0, 10));

TEST(Weighted, GemmIntegerWithEveryBiasShape) {
  std::mt19937 rng(3);
  const std::int64_t m = 3, k = 70, n = 5;
  const ir::Quantizer qx = ir::per_tensor(ir::DType::u8, 0.02F, 7),
                      qw{ir::DType::s8, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F}, {0, 0, 0, 0, 0}, 1, ir::DType::f32};
  const Tensor xc = random_codes(ir::DType::u8, {m, k}, rng), wc = random_codes(ir::DType::s8, {k, n}, rng);
  for (const ir::Shape& shape : {ir::Shape{n}, ir::Shape{1, n}, ir::Shape{m, n}, ir::Shape{m, 1}, ir::Shape{}}) {
    const Tensor b = random_f32(shape, rng);
    ir::Graph g;
    const auto x = g.add_quantizer(Op::dequantize, g.add_input("x", xc.type()), qx, {ir::DType::f32, {m, k}});
    g.outputs = {ir::add_inferred(g, Op::gemm, {x, g.add_constant(wc, "w", qw), g.add_constant(b)})};
    ASSERT_TRUE(ir::classify_anchor(g, ir::find_grids(g), g.value(g.outputs[0]).producer).integer);
    const auto y = evaluate(g, {xc});
    ASSERT_TRUE(y) << y.error().message;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        std::int32_t acc = 0;
        for (std::int64_t l = 0; l < k; ++l)
          acc += (static_cast<std::int32_t>(xc.at(i * k + l)) - 7) * static_cast<std::int32_t>(wc.at(l * n + j));
        const std::int64_t rows = shape.size() == 2 ? shape[0] : 1, columns = shape.empty() ? 1 : shape.back();
        const auto bias = static_cast<float>(b.at((rows == 1 ? 0 : i) * columns + (columns == 1 ? 0 : j)));
        EXPECT_EQ((*y)[0].data<float>()[static_cast<std::size_t>(i * n + j)],
                  std::fma(static_cast<float>(acc), 0.02F * qw.scale[static_cast<std::size_t>(j)], bias))
            << ir::to_string(shape) << " at " << i << "," << j;
      }
    }
  }
}

TEST(Weighted, Float16ActivationsReadTheirCodes) {
  // The product (code - zp) * s is rounded to f16, so the values are not multiples of s; the accumulator is exact all the same.
  ir::Quantizer qx = ir::per_tensor(ir::DType::u8, 0.0371F, 3);
  qx.arith = ir::DType::f16;
  Tensor codes(ir::DType::u8, {1, 1, 16, 16});
  for (std::size_t i = 0; i < 256; ++i) codes.mutable_data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
  ir::Graph g;
  const auto x = g.add_quantizer(Op::dequantize, g.add_input("x", codes.type()), qx, {ir::DType::f32, {1, 1, 16, 16}});
  const auto w = g.add_constant(Tensor::of<std::int8_t>({1, 1, 1, 1}, {-7}), "w", ir::per_tensor(ir::DType::s8, 0.5F));
  g.outputs = {ir::add_inferred(g, Op::conv, {x, w})};
  const auto y = evaluate(g, {codes});
  ASSERT_TRUE(y) << y.error().message;
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ((*y)[0].data<float>()[i], static_cast<float>((static_cast<int>(i) - 3) * -7) * (0.0371F * 0.5F)) << i;
  }
}

/// Both matrices on grids: sums of codes, exact, times the product of the scales.
TEST(Weighted, MatmulOfCodesIsExact) {
  const ir::Quantizer qx = ir::per_tensor(ir::DType::u8, 0.0371F, 3), qw = ir::per_tensor(ir::DType::s8, 0.017F, -9);
  std::mt19937 rng(5);
  Tensor x(ir::DType::u8, {2, 1, 3, 300}), w(ir::DType::s8, {5, 300, 2});
  for (auto& c : x.mutable_data<std::uint8_t>()) c = static_cast<std::uint8_t>(rng() % 2 == 0 ? rng() : 255);
  for (auto& c : w.mutable_data<std::int8_t>()) c = static_cast<std::int8_t>(rng() % 2 == 0 ? rng() : 127);
  ir::Graph g;
  const auto a = g.add_quantizer(Op::dequantize, g.add_input("x", x.type()), qx, {ir::DType::f32, x.shape()});
  const auto b = g.add_quantizer(Op::dequantize, g.add_input("w", w.type()), qw, {ir::DType::f32, w.shape()});
  g.outputs = {ir::add_inferred(g, Op::matmul, {a, b})};
  const auto y = evaluate(g, {x, w});
  ASSERT_TRUE(y) << y.error().message;
  for (std::int64_t n = 0; n < 10; ++n) {
    for (std::int64_t i = 0; i < 6; ++i) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < 300; ++k) {
        sum += (static_cast<std::int64_t>(x.at((n / 5 * 3 + i / 2) * 300 + k)) - 3) *
               (static_cast<std::int64_t>(w.at((n % 5 * 300 + k) * 2 + i % 2)) + 9);
      }
      EXPECT_EQ((*y)[0].data<float>()[static_cast<std::size_t>(n * 6 + i)], static_cast<float>(sum) * (0.0371F * 0.017F))
          << n << " " << i;
    }
  }
}

TEST(Weighted, MatmulBroadcastsBatches) {
  std::mt19937 rng(4);
  const Tensor x = random_f32({2, 1, 3, 4}, rng), w = random_f32({5, 4, 2}, rng);
  const Tensor y = run(Op::matmul, {x, w});
  ASSERT_EQ(y.shape(), (ir::Shape{2, 5, 3, 2}));
  for (std::int64_t b = 0; b < 10; ++b) {
    for (std::int64_t i = 0; i < 6; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < 4; ++k) sum += x.at((b / 5 * 3 + i / 2) * 4 + k) * w.at((b % 5 * 4 + k) * 2 + i % 2);
      EXPECT_NEAR(y.at(b * 6 + i), sum, 1e-5);
    }
  }
}

}  // namespace
}  // namespace octavo::reference
