// Operators on 8-bit grids other than the weighted ones: exact sums in pools and reductions, types of 16 bits, views, whole graphs.
#include <cmath>

#include "base/half.h"
#include "reference/one_node.h"

namespace octavo::reference {
namespace {

/// x = dequantize(codes), y = op(x).
Tensor on_grid(Op op, const Tensor& codes, const ir::Quantizer& q, const ir::Attrs& attrs) {
  ir::Graph g;
  const auto x = g.add_quantizer(Op::dequantize, g.add_input("x", codes.type()), q, {ir::DType::f32, codes.shape()});
  g.outputs = {ir::add_inferred(g, op, {x}, attrs)};
  const auto y = evaluate(g, {codes});
  EXPECT_TRUE(y) << (y ? "" : y.error().message);
  return y ? (*y)[0] : Tensor{};
}

TEST(GridOps, AveragePoolSumsCodesExactly) {
  std::mt19937 rng(1);
  for (const std::int64_t include : {0, 1}) {
    for (const auto type : {ir::DType::u8, ir::DType::s8}) {
      const std::int32_t zp = type == ir::DType::u8 ? 131 : -3;
      const Tensor codes = random_codes(type, {2, 3, 7, 6}, rng);
      const Tensor y =
          on_grid(Op::avg_pool, codes, ir::per_tensor(type, 0.0123F, zp),
                  {{"kernel", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 0}}, {"count_include_pad", include}});
      ASSERT_EQ(y.shape(), (ir::Shape{2, 3, 4, 6}));
      for (std::int64_t i = 0; i < y.size(); ++i) {
        const std::int64_t plane = i / 24, oy = i / 6 % 4, ox = i % 6;
        std::int32_t sum = 0, inside = 0;
        for (std::int64_t r = oy * 2 - 1; r < oy * 2 + 2; ++r) {
          for (std::int64_t c = ox - 1; c < ox + 1; ++c) {
            if (r < 0 || r >= 7 || c < 0 || c >= 6) continue;
            sum += static_cast<std::int32_t>(codes.at(plane * 42 + r * 6 + c)) - zp;
            ++inside;
          }
        }
        const float expected = static_cast<float>(sum) * 0.0123F / static_cast<float>(include ? 6 : inside);
        ASSERT_EQ(y.data<float>()[static_cast<std::size_t>(i)], expected) << "include_pad " << include << " element " << i;
      }
    }
  }
}

TEST(GridOps, SpatialMeanIsExactAndOthersAreFloat) {
  std::mt19937 rng(2);
  const Tensor codes = random_codes(ir::DType::u8, {1, 2, 7, 7}, rng);
  const ir::Quantizer q = ir::per_tensor(ir::DType::u8, 0.037F, 99);
  for (const Op op : {Op::reduce_mean, Op::reduce_sum}) {
    const Tensor y = on_grid(op, codes, q, {{"axes", Ints{2, 3}}});
    for (std::int64_t c = 0; c < 2; ++c) {
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < 49; ++i) sum += static_cast<std::int32_t>(codes.at(c * 49 + i)) - 99;
      const float scaled = static_cast<float>(sum) * 0.037F;
      EXPECT_EQ(y.data<float>()[static_cast<std::size_t>(c)], op == Op::reduce_mean ? scaled / 49.0F : scaled);
    }
  }
  const Tensor over_channels = on_grid(Op::reduce_sum, codes, q, {{"axes", Ints{1}}});
  for (std::size_t i = 0; i < 49; ++i) {
    const float a = (static_cast<float>(codes.at(static_cast<std::int64_t>(i))) - 99) * 0.037F,
                b = (static_cast<float>(codes.at(static_cast<std::int64_t>(i) + 49)) - 99) * 0.037F;
    EXPECT_EQ(over_channels.data<float>()[i], a + b);
  }
}

TEST(GridOps, MaxPoolWhollyInPaddingGivesTheLowestValue) {
  const Tensor y = run(Op::max_pool, {f32({1, 1, 2}, {1, 2})}, {{"kernel", Ints{1}}, {"strides", Ints{2}}, {"pads", Ints{2, 0}}});
  EXPECT_EQ(values(y), (std::vector<double>{-INFINITY, 1}));
  const Tensor codes = run(Op::max_pool, {Tensor::of<std::int8_t>({1, 1, 2}, {1, 2})},
                           {{"kernel", Ints{1}}, {"strides", Ints{2}}, {"pads", Ints{2, 0}}});
  EXPECT_EQ(values(codes), (std::vector<double>{-128, 1}));
}

TEST(GridOps, ViewsInEveryArithmeticTypeAndPerAxis) {
  std::mt19937 rng(3);
  for (const ir::DType arith : {ir::DType::f32, ir::DType::f16, ir::DType::bf16}) {
    ir::Quantizer q{ir::DType::s8, {0.1F, 0.02F, 3.0F}, {0, -5, 100}, 1, arith};
    for (float& s : q.scale) s = ir::round_to(arith, s);
    Tensor x = random_f32({2, 3, 50}, rng, 40);
    if (arith != ir::DType::f32) x = run(Op::cast, {x}, {{"to", std::string(ir::name_of(arith))}});
    const Tensor y = run(Op::view, {x}, {}, q);
    ASSERT_EQ(y.dtype(), arith);
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const std::int64_t c = i / 50 % 3;
      const float s = q.scale_at(c);
      const auto zp = static_cast<float>(q.zero_at(c));
      const float ratio = ir::round_to(arith, static_cast<float>(x.at(i)) / s);
      const float code = std::min(std::max(std::nearbyint(ratio) + zp, -128.0F), 127.0F);
      ASSERT_EQ(static_cast<float>(y.at(i)), ir::round_to(arith, (code - zp) * s)) << ir::name_of(arith) << " element " << i;
    }
  }
}

TEST(GridOps, QuantizeExtremes) {
  const Tensor x = f32({8}, {INFINITY, -INFINITY, NAN, 3e38F, -3e38F, -0.0F, 0.5F, 1.5F});
  EXPECT_EQ(values(run(Op::quantize, {x}, {}, ir::per_tensor(ir::DType::s8, 1.0F, 5))),
            (std::vector<double>{127, -128, 5, 127, -128, 5, 5, 7}));
  EXPECT_EQ(values(run(Op::quantize, {x}, {}, ir::per_tensor(ir::DType::u16, 1.0F, 65535))),
            (std::vector<double>{65535, 0, 65535, 65535, 0, 65535, 65535, 65535}));
  EXPECT_EQ(values(run(Op::quantize, {f32({1}, {1e-30F})}, {}, ir::per_tensor(ir::DType::u8, 1e-38F, 0))),
            (std::vector<double>{255}));
}

TEST(GridOps, DynamicQuantizeOfZerosHasScaleOne) {
  const auto r = run_all(Op::dynamic_quantize, {f32({2}, {0, 0})});
  ASSERT_TRUE(r);
  EXPECT_EQ(values((*r)[0]), (std::vector<double>{0, 0}));
  EXPECT_EQ(values((*r)[1]), (std::vector<double>{1}));
  const auto s = run_all(Op::dynamic_quantize, {f32({3}, {-1.0F, 0.25F, 1.55F})});
  ASSERT_TRUE(s);
  EXPECT_EQ((*s)[1].data<float>()[0], 2.55F / 255.0F);
  EXPECT_EQ(values((*s)[2]), (std::vector<double>{100}));
  EXPECT_EQ(values((*s)[0]), (std::vector<double>{0, 125, 255}));
}

TEST(GridOps, HalfPrecisionArithmeticRoundsOnce) {
  Tensor a(ir::DType::f16, {2}), b(ir::DType::f16, {2});
  a.mutable_data<std::uint16_t>()[0] = f32_to_f16(2048.0F);
  b.mutable_data<std::uint16_t>()[0] = f32_to_f16(1.0F);  // 2049 is a tie: to even
  a.mutable_data<std::uint16_t>()[1] = f32_to_f16(60000.0F);
  b.mutable_data<std::uint16_t>()[1] = f32_to_f16(60000.0F);
  EXPECT_EQ(values(run(Op::add, {a, b})), (std::vector<double>{2048, INFINITY}));
}

TEST(GridOps, IntegerDivisionByZeroAndBadIndicesAreErrors) {
  const auto division = run_all(Op::div, {s64({1}, {1}), s64({1}, {0})});
  ASSERT_FALSE(division);
  EXPECT_NE(division.error().message.find("division by zero"), std::string::npos);
  const auto gather = run_all(Op::gather, {s64({2}, {1, 2}), s64({1}, {2})}, {{"axis", std::int64_t{0}}});
  ASSERT_FALSE(gather);
  EXPECT_NE(gather.error().message.find("index 2 is outside a dimension of 2"), std::string::npos) << gather.error().message;
  const auto mode = run_all(Op::resize_linear, {f32({1, 1, 2}, {1, 2})},
                            {{"scales", std::vector<double>{1, 1, 2}}, {"coordinate_mode", std::string("tf_crop_and_resize")}});
  ASSERT_FALSE(mode);
  EXPECT_EQ(mode.error().kind, ErrorKind::bad_model);
}

TEST(GridOps, CastsCoverTheCorners) {
  const Tensor x = Tensor::of<double>({7}, {NAN, 1e30, -1e30, -0.9, 2.9, 9.3e18, 1.9e19});
  const auto to = [&x](const char* type) { return run(Op::cast, {x}, {{"to", std::string(type)}}); };
  EXPECT_EQ(values(to("s8")), (std::vector<double>{0, 127, -128, 0, 2, 127, 127}));
  EXPECT_EQ(values(to("u32")), (std::vector<double>{0, 4294967295.0, 0, 0, 2, 4294967295.0, 4294967295.0}));
  EXPECT_EQ(to("s64").data<std::int64_t>()[1], INT64_MAX);
  EXPECT_EQ(to("s64").data<std::int64_t>()[2], INT64_MIN);
  EXPECT_EQ(to("u64").data<std::uint64_t>()[5], 9300000000000000000ULL);
  EXPECT_EQ(to("u64").data<std::uint64_t>()[6], UINT64_MAX);
  EXPECT_EQ(values(to("bool")), (std::vector<double>{1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(values(run(Op::cast, {s64({2}, {0, -3})}, {{"to", std::string("bool")}})), (std::vector<double>{0, 1}));
}

TEST(Graphs, PartsGiveTheSameBytesAsTheWhole) {
  std::mt19937 rng(5);
  ir::Graph g;
  const auto x = g.add_input("x", {ir::DType::f32, {1, 3, 8, 8}});
  const auto v = g.add_quantizer(Op::view, x, ir::per_tensor(ir::DType::u8, 0.02F, 128), g.type(x));
  const auto w = g.add_constant(random_codes(ir::DType::s8, {4, 3, 3, 3}, rng), "w", ir::per_tensor(ir::DType::s8, 0.01F));
  const auto conv = ir::add_inferred(g, Op::conv, {v, w}, {{"pads", Ints{1, 1, 1, 1}}});
  const auto s = ir::add_inferred(g, Op::sigmoid, {conv});
  const auto y = ir::add_inferred(g, Op::mul, {conv, s});
  g.outputs = {y, conv};
  const Tensor feed = random_f32({1, 3, 8, 8}, rng, 3);
  const auto whole = evaluate(g, {feed});
  ASSERT_TRUE(whole) << whole.error().message;
  const auto first = evaluate_between(g, {{x, feed}}, {v, conv});
  ASSERT_TRUE(first);
  EXPECT_TRUE(ir::same_bytes((*first)[1], (*whole)[1]));
  const auto from_view = evaluate_between(g, {{v, (*first)[0]}}, {conv});
  ASSERT_TRUE(from_view);
  EXPECT_TRUE(ir::same_bytes((*from_view)[0], (*whole)[1])) << "a known value keeps its grid";
  const auto rest = evaluate_between(g, {{conv, (*first)[1]}}, {y, y});
  ASSERT_TRUE(rest) << "x is not needed";
  EXPECT_TRUE(ir::same_bytes((*rest)[1], (*whole)[0]));
  const auto missing = evaluate_between(g, {}, {y});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("input \"x\" is needed"), std::string::npos) << missing.error().message;
  EXPECT_FALSE(evaluate(g, {}));
  EXPECT_FALSE(evaluate(g, {f32({1}, {1})}));
}

TEST(Graphs, ValueOffItsGridIsReportedAsOurMistake) {
  ir::Graph g;
  const auto x = g.add_input("x", {ir::DType::f32, {1, 1, 2, 2}});
  const auto v = g.add_quantizer(Op::view, x, ir::per_tensor(ir::DType::u8, 0.5F, 0), g.type(x));
  g.outputs = {ir::add_inferred(g, Op::avg_pool, {v}, {{"kernel", Ints{2, 2}}})};
  const auto r = evaluate_between(g, {{v, f32({1, 1, 2, 2}, {0, 0.5F, 0.25F, 1})}}, g.outputs);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::internal);
  EXPECT_NE(r.error().message.find("0.25"), std::string::npos) << r.error().message;
}

}  // namespace
}  // namespace octavo::reference
