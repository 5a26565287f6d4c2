// Bound inputs and outputs: each format against the model's own, bit for bit; no copies where none are needed; what cannot be bound
// says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "api/pipeline.h"
#include "base/half.h"
#include "ir/text.h"
#include "plan/layout/bind.h"

namespace octavo {
namespace {

constexpr const char* kNet = R"(
graph "g"
image = input : f32[1,3,8,6]
q = view image q=s8(0.03,0) from {"q"}
w = constant s8[8,3,3,3] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
v = view y q=s8(0.05,0) from {"v"}
output v as "out"
)";

Result<api::Built> build(const std::map<std::string, std::string>& formats, const char* text = kNet) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  api::PipelineOptions o;
  o.plan.threads = 1;
  for (const auto& [name, format] : formats) {
    auto f = plan::parse_format(format);
    if (!f) return tl::unexpected<Error>(f.error());
    o.plan.bindings[name] = *f;
  }
  return api::build_graph(*g, o);
}

std::string failure(const std::map<std::string, std::string>& formats, const char* text = kNet) {
  const auto b = build(formats, text);
  EXPECT_FALSE(b);
  return b ? "" : b.error().message;
}

int moves(const region::Plan& plan) {
  return static_cast<int>(std::count_if(plan.regions.begin(), plan.regions.end(),
                                        [](const region::Region& r) { return r.precision == region::Work::move; }));
}

ir::Tensor run(const api::Built& b, const ir::Tensor& input) {
  auto context = engine::Context::create(b.engine, 1);
  EXPECT_TRUE(context);
  auto out = api::run(**context, {input});
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? (*out)[0] : ir::Tensor();
}

/// Codes -128..127 and some more, as the floats they stand for.
constexpr std::int64_t kC = 3, kH = 8, kW = 6;
int code_at(std::int64_t i) {
  return static_cast<int>((i * 37 + 11) % 256) - 128;
}
ir::Tensor floats() {
  ir::Tensor t(ir::DType::f32, {1, kC, kH, kW});
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(code_at(i)) * 0.03F;
  return t;
}

/// floats() as the binding wants it, padding filled with rubbish.
ir::Tensor given(const region::Binding& b) {
  ir::Tensor t(b.type);
  const ir::Shape& d = b.type.shape;
  const bool last = d[1] == kH;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    std::int64_t c = i / (kH * kW), at = i % (kH * kW);
    if (last) {
      c = i % d[3];
      at = i / d[3];
    }
    const int code = c < kC ? code_at(c * kH * kW + at) : 77;
    const auto k = static_cast<std::size_t>(i);
    switch (b.type.dtype) {
      case ir::DType::u8: t.mutable_data<std::uint8_t>()[k] = static_cast<std::uint8_t>(code + 128); break;
      case ir::DType::s8: t.mutable_data<std::int8_t>()[k] = static_cast<std::int8_t>(code); break;
      default: t.mutable_data<float>()[k] = static_cast<float>(code) * 0.03F;
    }
  }
  return t;
}

struct Row {
  const char* format;
  int regions, moves;
};
class InputFormat : public ::testing::TestWithParam<Row> {};

TEST_P(InputFormat, SameBitsAndNoCopiesThatCanBeSpared) {
  const auto plain = build({}), bound = build({{"image", GetParam().format}});
  ASSERT_TRUE(plain);
  ASSERT_TRUE(bound) << bound.error().message;
  const region::Plan& plan = bound->engine->plan();
  EXPECT_EQ(plan.inputs[0].format, GetParam().format);
  EXPECT_EQ(static_cast<int>(plan.regions.size()) - moves(plan), GetParam().regions);
  EXPECT_EQ(moves(plan) - moves(plain->engine->plan()), GetParam().moves);
  const ir::Tensor want = run(*plain, floats()), got = run(*bound, given(plan.inputs[0]));
  EXPECT_TRUE(ir::same_bytes(want, got));
  ir::Tensor other = given(plan.inputs[0]);
  for (int i = 0; i < 40; ++i) other.mutable_bytes()[static_cast<std::size_t>(i)] ^= std::byte{0x40};
  EXPECT_FALSE(ir::same_bytes(want, run(*bound, other))) << "the comparison sees nothing";
  const bool codes = ir::is_int8(plan.inputs[0].type.dtype);
  EXPECT_EQ(plan.inputs[0].quantizer.has_value(), codes);
  if (codes) EXPECT_EQ(plan.inputs[0].quantizer->zero_point[0], plan.inputs[0].type.dtype == ir::DType::u8 ? 128 : 0);
}

// Regions that compute: the convolution, and a pass that quantizes or shifts where the binding does not hold u8 codes. The NCHW u8
// input is transposed once; channels last needs no copy.
INSTANTIATE_TEST_SUITE_P(All, InputFormat,
                         ::testing::Values(Row{"float32:chw", 2, 0}, Row{"float32:hwc", 2, 0}, Row{"float32:hwc8", 2, 0},
                                           Row{"uint8:hwc", 1, 0}, Row{"uint8:hwc8", 1, 0}, Row{"uint8:chw4", 1, 0},
                                           Row{"uint8:chw", 1, 1}, Row{"int8:hwc", 2, 0}, Row{"int8:hwc16", 2, 0},
                                           Row{"int8:chw", 2, 0}),
                         [](const auto& info) {
                           std::string name = info.param.format;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST(Bindings, HalfFloatsAreReadByTheFirstRegionAndStoredByTheLast) {
  const auto plain = build({}), bound = build({{"image", "fp16"}, {"out", "fp16"}});
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ(bound->engine->plan().regions.size(), plain->engine->plan().regions.size()) << "no region that only converts";
  EXPECT_EQ(bound->engine->plan().outputs[0].type.dtype, ir::DType::f16);
  ir::Tensor halves(ir::DType::f16, {1, kC, kH, kW}), rounded(ir::DType::f32, {1, kC, kH, kW});
  const ir::Tensor source = floats();
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const std::uint16_t h = f32_to_f16(static_cast<float>(source.at(i)));
    std::memcpy(halves.mutable_bytes().data() + 2 * i, &h, 2);
    rounded.mutable_data<float>()[static_cast<std::size_t>(i)] = f16_to_f32(h);
  }
  const ir::Tensor want = run(*plain, rounded), got = run(*bound, halves);
  for (std::int64_t i = 0; i < want.size(); ++i) {
    std::uint16_t h = 0;
    std::memcpy(&h, got.bytes().data() + 2 * i, 2);
    ASSERT_EQ(h, f32_to_f16(static_cast<float>(want.at(i)))) << i;
  }
}

TEST(Bindings, OutputsAsCodesAndChannelsLast) {
  const auto plain = build({}), bound = build({{"out", "uint8:hwc"}});
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ(moves(bound->engine->plan()), 0);
  const region::Binding& b = bound->engine->plan().outputs[0];
  EXPECT_EQ(b.type.shape, (ir::Shape{1, kH, kW, 8}));
  ASSERT_TRUE(b.quantizer);
  const ir::Tensor want = run(*plain, floats()), got = run(*bound, floats());
  for (std::int64_t c = 0; c < 8; ++c) {
    for (std::int64_t at = 0; at < kH * kW; ++at) {
      const auto code = static_cast<std::int32_t>(got.at(at * 8 + c));
      ASSERT_EQ(ir::dequantize_one(code, b.quantizer->scale[0], b.quantizer->zero_point[0]),
                static_cast<float>(want.at(c * kH * kW + at)));
    }
  }
}

TEST(Bindings, SurviveTheEngineFile) {
  const auto bound = build({{"image", "uint8:hwc8"}});
  ASSERT_TRUE(bound);
  const std::string path = ::testing::TempDir() + "bindings.octavo";
  ASSERT_TRUE(bound->engine->save(path));
  const auto loaded = engine::Engine::load(path, api::all_providers());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->plan().inputs[0].format, "uint8:hwc8");
  EXPECT_EQ((*loaded)->plan().inputs[0].type, bound->engine->plan().inputs[0].type);
}

TEST(Bindings, RefusalsNameWhatStandsInTheWay) {
  EXPECT_NE(failure({{"picture", "uint8"}}).find("the model has no such input or output; it has image, out"), std::string::npos);
  EXPECT_NE(failure({{"image", "int7"}}).find("known are float32"), std::string::npos);
  EXPECT_NE(failure({{"image", "uint8:nhwc"}}).find("known are chw, hwc"), std::string::npos);
  EXPECT_NE(failure({{"image", "uint8:chw2"}}).find("3 channels make several groups of 2"), std::string::npos);
  EXPECT_NE(failure({{"out", "uint8:hwc32"}}).find("8 channels are no multiple of 32"), std::string::npos);
  std::string text = kNet;
  text.replace(text.find("output v"), 8, "r = relu image from {\"relu\"}\noutput r\noutput v");
  EXPECT_NE(failure({{"image", "uint8"}}, text.c_str()).find("\"relu\" reads the input in float"), std::string::npos);
  text = kNet;
  text.replace(text.find("output v"), 8, "output y");
  EXPECT_NE(failure({{"out", "int8"}}, text.c_str()).find("the output is not quantized"), std::string::npos);
}

}  // namespace
}  // namespace octavo
