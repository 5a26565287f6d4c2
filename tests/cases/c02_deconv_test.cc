// C2: x -> Q -> DQ -> ConvTranspose -> Activation -> Q -> DQ. C3: the same with a pair between the two.
#include "cases/judge.h"

namespace octavo::cases {
namespace {

using ir::Op;
using ir::ValueId;

struct Activation {
  const char* name;
};
constexpr Activation kActivations[] = {{"Relu"}, {"LeakyRelu"}, {"SiLU"}, {"Sigmoid"}, {"HardSwish"}, {"Gelu"}, {"Clip"}};

ValueId activate(Net& n, ValueId x, const std::string& name) {
  if (name == "Relu") return n.relu(x);
  if (name == "LeakyRelu") return n.op(Op::leaky_relu, {x}, {{"alpha", static_cast<double>(0.1F)}});
  if (name == "SiLU") return n.silu(x);
  if (name == "Sigmoid") return n.op(Op::sigmoid, {x});
  if (name == "HardSwish") return n.op(Op::hard_swish, {x});
  if (name == "Gelu") return n.op(Op::gelu, {x}, {{"approximate", std::string("none")}});
  return n.op(Op::clip, {x}, {{"min", 0.0}, {"max", 6.0}});
}

struct Deconv {
  int axis = 1;
  std::int64_t group = 1, stride = 2, kernel = 3, output_padding = 0;
};

Net deconv_net(Form form, const std::string& activation, const Deconv& d, bool inner_pair, float scale = 0.02F) {
  Net n(form, 11);
  const ValueId x = n.pair(n.input("x", {1, 8, 5, 4}), 0.03F);
  ValueId y = n.deconv(
      x, 12,
      {.kernel = d.kernel, .stride = d.stride, .pad = 1, .group = d.group, .output_padding = d.output_padding, .axis = d.axis});
  if (inner_pair) y = n.pair(y, 0.025F);
  n.output(n.conv(n.pair(activate(n, y, activation), scale), 4, {.kernel = 1}));
  return n;
}

class C02Deconv : public ::testing::TestWithParam<Activation> {};

// Every activation, weights per output channel, strides, output padding, groups: one region, the reference's bits.
TEST_P(C02Deconv, IsOneRegion) {
  for (const std::int64_t stride : {1, 2, 3}) {
    for (const std::int64_t output_padding : {0, 1}) {
      for (const std::int64_t group : {1, 2, 4}) {
        if (output_padding >= stride) continue;
        const Deconv d{.axis = group == 1 ? 1 : -1, .group = group, .stride = stride, .output_padding = output_padding};
        const Facts f = judge(deconv_net(Form::explicit_qdq, GetParam().name, d, false));
        const std::string where = "stride " + std::to_string(stride) + ", output padding " + std::to_string(output_padding) +
                                  ", groups " + std::to_string(group) + "\n" + f.listing;
        EXPECT_EQ(f.difference, "") << where;
        EXPECT_EQ(f.layers, 2) << where;
        EXPECT_EQ(f.copies + f.loose + f.floats, 0) << where;
      }
    }
  }
}

// Weights quantized along the input channels cannot be summed in integers: correct, in float, and said.
TEST_P(C02Deconv, WeightsAlongAxis0) {
  for (const std::int64_t group : {1, 2}) {
    const Facts f = judge(deconv_net(Form::explicit_qdq, GetParam().name, {.axis = 0, .group = group}, false));
    EXPECT_EQ(f.layers, 2) << f.listing;
    EXPECT_EQ(f.copies, 0) << f.listing;
    EXPECT_EQ(f.floats, 1) << f.listing;
    EXPECT_NE(f.listing.find("axis"), std::string::npos) << f.listing;
  }
}

TEST_P(C02Deconv, ExplicitIsItsTwin) {
  const Facts f = same_as_counterpart([&](Form form) { return deconv_net(form, GetParam().name, {}, false); });
  EXPECT_EQ(f.difference, "");
}

TEST_P(C02Deconv, ControlsChange) {
  const Facts f = judge(deconv_net(Form::explicit_qdq, GetParam().name, {}, false));
  const Facts apart = judge(deconv_net(Form::explicit_qdq, GetParam().name, {}, false), {.disabled = {"fuse-epilogue"}});
  EXPECT_GT(apart.layers, f.layers) << apart.listing;
  const Net other = deconv_net(Form::explicit_qdq, GetParam().name, {}, false, 0.021F);
  EXPECT_NE(judge(deconv_net(Form::explicit_qdq, GetParam().name, {}, false), {.reference = &other.graph}).difference, "")
      << "another scale must not pass for this one";
}

// C3: as many kernels, one table, the arithmetic as written.
TEST_P(C02Deconv, C03PairBeforeTheActivation) {
  const Facts f = same_as_counterpart([&](Form form) { return deconv_net(form, GetParam().name, {}, true); }, Inner::rounding);
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 2) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  const Facts without = judge(deconv_net(Form::explicit_qdq, GetParam().name, {}, false));
  EXPECT_NE(f.hash, without.hash) << "the inner rounding is kept";
  EXPECT_EQ(f.layers, without.layers);
}

INSTANTIATE_TEST_SUITE_P(Activations, C02Deconv, ::testing::ValuesIn(kActivations),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace octavo::cases
