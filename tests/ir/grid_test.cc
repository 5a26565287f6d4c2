#include "ir/grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "report/sentences.h"

namespace octavo::ir {
namespace {

/// q: u8(0.5,128), holds -64 .. 63.5 in halves. p: the same values spelled s8. r: another grid. a: per channel (axis 1 of 4).
constexpr const char* kInputs = R"(
x = input : f32[1,4,6,6]
z = input : f32[1,4,6,6]
h = input : f16[1,4,6,6]
o = input : f32[1,4,1,1]
k = input : bool[1,4,6,6]
codes = input : s8[1,4,6,6]
i = constant s64[2] (3,0)
j = constant s64[1,4,6,1] fill:0
n = constant s64[1,2] (0,1)
q = view x q=u8(0.5,128)
p = view z q=s8(0.5,0)
r = view z q=u8(0.25,128)
a = view x q=u8[axis=1](1,2,3,4;10,20,30,40)
d = view x q=u8[axis=1](1,2,3,4;7,7,7,7)
b = view z q=s8[axis=1](1,2,3,4;-118,-108,-98,-88)
e = view x q=u8[axis=1](0.5,0.5,0.5,0.5;128,128,128,128)
f = view o q=u8(0.5,128)
g = view o q=u8[axis=1](1,2,3,4;10,20,30,40)
c3 = view x q=u8[axis=3](1,2,3,4,5,6;1,2,3,4,5,6)
)";

struct Case {
  const char *node, *grid;  ///< "" : none
};

constexpr const char* kQ = "u8(0.5,128)";
constexpr const char* kA = "u8[axis=1](1,2,3,4;10,20,30,40)";

const Case kCases[] = {
    // Where grids come from
    {"view x q=u8(0.5,128)", kQ},
    {"view x q=s16(0.5,128)", ""},
    {"view h q=u8(0.5,128)", ""},  // f16 rounds the f32 product once more
    {"view h q=u8(0.5,128)@f16", "u8(0.5,128)@f16"},
    {"dequantize codes q=s8(0.5,3)", "s8(0.5,3)"},
    {"constant s8[2] q=s8(0.5,3) (1,2)", "s8(0.5,3)"},
    {"constant s32[2] q=s32(0.5,0) (1,2)", "s32(0.5,0)"},
    {"constant f32[2] (1,2)", ""},
    {"quantize x q=u8(0.5,128)", ""},  // codes are not values of the grid
    {"reshape e {shape=[144]}", kQ},   // equal entries are per tensor
    {"relu x", ""},
    // Moving, per tensor
    {"transpose q {perm=[0,2,3,1]}", kQ},
    {"reshape q {shape=[2,72]}", kQ},
    {"slice q {starts=[0,1,5,0], ends=[1,4,-1,6], steps=[1,2,-1,1]}", kQ},
    {"gather q i {axis=1}", kQ},
    {"gather_elements q j {axis=3}", kQ},
    {"gather_nd q n", kQ},
    {"expand f {shape=[5,4,6,6]}", kQ},
    {"tile q {repeats=[1,2,1,1]}", kQ},
    {"resize_nearest q {index2=[0,0,5]}", kQ},
    {"depth_to_space q {blocksize=2}", kQ},
    {"space_to_depth q {blocksize=2}", kQ},
    // Moving, per axis
    {"transpose a {perm=[0,2,3,1]}", "u8[axis=3](1,2,3,4;10,20,30,40)"},
    {"reshape a {shape=[4,36]}", "u8[axis=0](1,2,3,4;10,20,30,40)"},
    {"reshape a {shape=[1,1,4,6,6]}", "u8[axis=2](1,2,3,4;10,20,30,40)"},
    {"reshape a {shape=[24,6]}", ""},
    {"reshape a {shape=[2,2,36]}", ""},
    {"slice a {starts=[0,3,0,0], ends=[1,-1,6,6], steps=[1,-2,1,1]}", "u8[axis=1](4,2;40,20)"},
    {"gather a i {axis=1}", "u8[axis=1](4,1;40,10)"},
    {"gather a i {axis=2}", kA},
    {"gather a n {axis=0}", "u8[axis=2](1,2,3,4;10,20,30,40)"},
    {"gather c3 n {axis=1}", "u8[axis=4](1,2,3,4,5,6;1,2,3,4,5,6)"},
    {"gather_elements a j {axis=3}", kA},
    {"gather_elements c3 j {axis=3}", ""},
    {"gather_nd a n", ""},
    {"expand g {shape=[7,1,4,6,6]}", "u8[axis=2](1,2,3,4;10,20,30,40)"},
    {"tile a {repeats=[1,2,1,1]}", "u8[axis=1](1,2,3,4,1,2,3,4;10,20,30,40,10,20,30,40)"},
    {"resize_nearest a {index1=[0,0,3]}", "u8[axis=1](1,1,4;10,10,40)"},
    {"resize_nearest a {index2=[0,0,3]}", kA},
    {"depth_to_space a {blocksize=2}", ""},
    {"space_to_depth a {blocksize=2}", ""},
    // Concat
    {"concat q q {axis=1}", kQ},
    {"concat q p {axis=1}", kQ},  // the same values, spelled u8 and s8
    {"concat q e {axis=1}", kQ},
    {"concat q r {axis=1}", "u8[axis=1](0.5,0.5,0.5,0.5,0.25,0.25,0.25,0.25;128,128,128,128,128,128,128,128)"},
    {"concat q x {axis=1}", ""},
    {"concat a b {axis=0}", kA},
    {"concat a b {axis=1}", "u8[axis=1](1,2,3,4,1,2,3,4;10,20,30,40,10,20,30,40)"},
    {"concat a q {axis=1}", "u8[axis=1](1,2,3,4,0.5,0.5,0.5,0.5;10,20,30,40,128,128,128,128)"},
    {"concat a q {axis=2}", ""},
    {"concat a c3 {axis=1}", ""},
    // Pad: the value must be one of the grid's
    {"pad q {pads=[0,0,1,1,0,0,1,1]}", kQ},
    {"pad q {pads=[0,0,1,1,0,0,1,1], value=63.5}", kQ},
    {"pad q {pads=[0,0,1,1,0,0,1,1], value=64}", ""},
    {"pad q {pads=[0,0,1,1,0,0,1,1], value=0.25}", ""},
    {"pad q {pads=[0,0,1,1,0,0,1,1], value=-0.0}", ""},
    {"pad q {pads=[0,0,0,0,0,0,0,0], value=0.25}", kQ},
    {"pad q {pads=[0,0,1,1,0,0,1,1], value=0.25, mode=\"edge\"}", kQ},
    {"pad q {pads=[0,0,1,1,0,0,1,1], mode=\"reflect\"}", kQ},
    {"pad a {pads=[0,0,1,1,0,0,1,1]}", kA},
    {"pad a {pads=[0,0,1,1,0,0,1,1], value=3}", ""},
    {"pad a {pads=[0,1,0,0,0,0,0,0]}", ""},
    {"pad a {pads=[0,1,0,0,0,0,0,0], mode=\"edge\"}", ""},
    // Selecting
    {"max_pool q {kernel=[2,2]}", kQ},
    {"max_pool q {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}", kQ},
    {"max_pool q {kernel=[2,2], strides=[2,2], pads=[2,0,0,0]}", ""},  // the first window is padding only
    {"max_pool q {kernel=[2,2], pads=[0,0,2,0]}", ""},                 // the last one
    {"max_pool q {kernel=[2,2], pads=[3,0,0,0], dilations=[4,1]}", kQ},
    {"max_pool q {kernel=[2,2], pads=[7,0,1,0], dilations=[13,1]}", ""},  // taps at -7 and 6 miss 0..5
    {"max_pool a {kernel=[2,2]}", kA},
    {"max_pool c3 {kernel=[2,2]}", ""},
    {"avg_pool q {kernel=[2,2]}", ""},
    {"reduce_max q {axes=[2,3]}", kQ},
    {"reduce_min a {axes=[2,3]}", kA},
    {"reduce_min a {axes=[0,2,3], keepdims=0}", "u8[axis=0](1,2,3,4;10,20,30,40)"},
    {"reduce_max a {axes=[1]}", ""},
    {"reduce_mean q {axes=[2,3]}", ""},
    {"max q p", kQ},
    {"min q f", kQ},
    {"max q r", ""},
    {"max a b", kA},
    {"max a g", ""},  // broadcast along the axis
    {"where k q p", kQ},
    {"where k q r", ""},
    {"where k q x", ""},
    // Clamps
    {"relu q", kQ},
    {"relu a", kA},
    {"clip q {min=0, max=6}", kQ},
    {"clip q {min=0, max=6.25}", ""},
    {"clip q {min=-1000, max=1000}", kQ},
    {"clip q {max=63.75}", kQ},
    {"clip q {min=100}", ""},
    {"clip q {min=6, max=0}", ""},
    {"clip a {min=0, max=12}", kA},
    {"clip a {min=0, max=6}", ""},  // 6 is no multiple of 4
    {"leaky_relu q {alpha=0.5}", ""},
    {"neg q", ""},
    {"add q q", ""},
    {"resize_linear q {scales=[1,1,2,2]}", ""},
};

TEST(Grid, Propagates) {
  for (const Case& c : kCases) {
    const auto g = parse(fmt::format("{}y = {}\noutput y\n", kInputs, c.node));
    ASSERT_TRUE(g) << c.node << ": " << g.error().message;
    const Grids grids = find_grids(*g);
    const Quantizer* found = grids.get(g->outputs[0]);
    EXPECT_EQ(found ? to_string(*found) : "", c.grid) << c.node;
  }
}

TEST(Grid, Bounds) {
  const Quantizer q = per_tensor(DType::u8, 0.5F, 128);
  EXPECT_EQ(grid_min(q), -64.0F);
  EXPECT_EQ(grid_max(q), 63.5F);
  EXPECT_TRUE(on_grid(q, 63.5F));
  EXPECT_TRUE(on_grid(q, 0.0F));
  for (const float x :
       {64.0F, -64.5F, 0.25F, -0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(on_grid(q, x)) << x;
  }
}

struct Anchor {
  const char *weights, *node;
  bool integer, bias_in_acc;
  const char* why;
};

constexpr Anchor kAnchors[] = {
    {"s8[6,4,3,3] q=s8(0.25,0) seed:1", "conv q w", true, false, ""},
    {"u8[6,4,3,3] q=u8(0.25,128) seed:1", "conv q w", true, false, ""},
    {"s8[6,4,3,3] q=s8[axis=0](1,2,3,4,5,6;0,0,0,0,0,0) seed:1", "conv q w", true, false, ""},
    {"s8[6,4,3,3] q=s8[axis=1](1,2,3,4;0,0,0,0) seed:1", "conv q w", false, false,
     "along axis 1, but their output channels are axis 0"},
    {"s8[6,4,3,3] q=s8[axis=1](1,1,1,1;0,0,0,0) seed:1", "conv q w", true, false, ""},
    {"s8[4,6,3,3] q=s8[axis=1](1,2,3,4,5,6;0,0,0,0,0,0) seed:1", "conv_transpose q w", true, false, ""},
    {"s8[4,3,3,3] q=s8[axis=1](1,2,3;0,0,0) seed:1", "conv_transpose q w {group=2}", true, false, ""},
    {"s8[4,6,3,3] q=s8[axis=0](1,2,3,4;0,0,0,0) seed:1", "conv_transpose q w", false, false, "along axis 0"},
    {"s8[36,6] q=s8[axis=1](1,2,3,4,5,6;0,0,0,0,0,0) seed:1", "gemm m w", true, false, ""},
    {"s8[36,6] q=s8(0.25,0) seed:1", "matmul m w", true, false, ""},
    {"f32[36,6] seed:1", "matmul m w", false, false, "the data input \"w\" is not quantized to 8 bits"},
    // Products of computed matrices: both on grids per tensor
    {"s8[1] fill:0", "matmul q r", true, false, ""},
    {"s8[1] fill:0", "matmul p q", true, false, ""},
    {"s8[1] fill:0", "matmul x q", false, false, "the data input \"x\" is not quantized to 8 bits"},
    {"s8[1] fill:0", "matmul q x", false, false, "the data input \"x\" is not quantized to 8 bits"},
    {"s8[1] fill:0", "matmul q a", false, false, "quantized per axis (4 entries)"},
    {"s8[6,4,3,3] q=s8(0.25,0) seed:1", "conv x w", false, false, "the data input \"x\" is not quantized to 8 bits"},
    {"s8[6,4,3,3] q=s8(0.25,0) seed:1", "conv a w", false, false, "quantized per axis (4 entries)"},
    // Data per channel: depthwise convolutions with one zero point
    {"s8[8,1,3,3] q=s8(0.25,0) seed:1", "conv d w {group=4}", true, false, ""},
    {"s8[8,1,3,3] q=s8(0.25,0) seed:1\nbias = constant s32[8] q=s32[axis=0](0.25,0.25,0.5,0.5,0.75,0.75,1,1;0,0,0,0,0,0,0,0) "
     "fill:3",
     "conv d w bias {group=4}", true, true, ""},
    {"s8[8,1,3,3] q=s8(0.25,0) seed:1\nbias = constant s32[8] q=s32(0.25,0) fill:3", "conv d w bias {group=4}", true, false, ""},
    {"s8[4,1,3,3] q=s8(0.25,0) seed:1", "conv a w {group=4}", false, false, "quantized per axis with 4 zero points"},
    {"s8[4,2,3,3] q=s8(0.25,0) seed:1", "conv d w {group=2}", false, false, "quantized per axis (4 entries)"},
    {"s8[4,1,3,3] q=s8(0.25,0) seed:1", "conv_transpose d w {group=4}", false, false, "quantized per axis (4 entries)"},
    {"f32[6,4,3,3] seed:1", "conv q w", false, false, "the weights \"w\" are not quantized"},
    {"s16[6,4,3,3] q=s16(0.25,0) seed:1", "conv q w", false, false, "are s16; integer kernels need 8-bit weights"},
    // Bias: codes in units of sx * sw = 0.125
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant s32[2] q=s32(0.125,0) (1,2)", "conv q w bias", true, true, ""},
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant s32[2] q=s32[axis=0](0.125,0.125;0,0) (1,2)", "conv q w bias", true, true,
     ""},
    {"s8[2,4,1,1] q=s8[axis=0](0.25,0.5;0,0) seed:1\nbias = constant s32[2] q=s32[axis=0](0.125,0.25;0,0) (1,2)", "conv q w bias",
     true, true, ""},
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant s32[2] q=s32(0.12500001,0) (1,2)", "conv q w bias", true, false, ""},
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant s32[2] q=s32(0.125,1) (1,2)", "conv q w bias", true, false, ""},
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant s32[2] q=s32(0.125,0) (1,2147483647)", "conv q w bias", true, false, ""},
    {"s8[2,4,1,1] q=s8(0.25,0) seed:1\nbias = constant f32[2] (1,2)", "conv q w bias", true, false, ""},
    {"s8[4,1,1,1] q=s8[axis=1](0.25;0) seed:1\nbias = constant s32[4] q=s32(0.125,0) (1,2,3,4)",
     "conv_transpose q w bias {group=4}", true, true, ""},
    {"s8[36,2] q=s8(0.25,0) seed:1\nbias = constant s32[1,2] q=s32(0.125,0) (1,2)", "gemm m w bias", true, true, ""},
    {"s8[36,2] q=s8(0.25,0) seed:1\nbias = constant s32[1] q=s32(0.125,0) (1)", "gemm m w bias", true, false, ""},
    // Overflow: K * 128 * 128 reaches 2^31 at K = 131072; the actual weights decide
    {"s8[131072,1] q=s8(0.25,0) fill:-128", "gemm big w", false, false, "beyond int32"},
    {"s8[131072,1] q=s8(0.25,0) fill:127", "gemm big w", true, false, ""},
};

/// A concat of differently quantized parts, and of one that is not quantized: the reason names both.
TEST(ClassifyAnchor, NamesThePartsThatDiffer) {
  const auto why = [](const std::string& right, const std::string& between = "") {
    const auto g =
        parse("l0 = input : f32[1,4,5,5]\nr0 = input : f32[1,2,5,5]\nl = view l0 q=u8(0.05,100)\nr = " + right +
              "\nc = concat l r {axis=1}\n" + between + "w = constant s8[3,6,1,1] q=s8(0.25,0) seed:1\ny = conv c w\noutput y\n");
    EXPECT_TRUE(g) << g.error().message;
    const auto why = classify_anchor(*g, find_grids(*g), g->value(g->outputs[0]).producer).why_float;
    return why ? report::sentence(*why) : "";
  };
  EXPECT_EQ(why("view r0 q=u8(0.3,120)"),
            "parts of the data input \"c\" have different quantizers: \"l\" has u8(0.05,100), \"r\" has u8(0.3,120)");
  EXPECT_EQ(why("view r0 q=s8(0.3,-8)"),
            "parts of the data input \"c\" have different quantizers: \"l\" has u8(0.05,100), \"r\" has s8(0.3,-8)");
  EXPECT_EQ(why("view r0 q=u8(0.05,100)"), "");
  EXPECT_EQ(why("relu r0"), "part \"r\" of the data input \"c\" is not quantized to 8 bits");
}

TEST(ClassifyAnchor, TellsIntegersFromFloats) {
  for (const Anchor& c : kAnchors) {
    const auto g = parse(fmt::format(
        "{}big0 = input : f32[1,131072]\nbig = view big0 q=u8(0.5,128)\nm = reshape q {{shape=[4,36]}}\nw = constant {}\n"
        "y = {}\noutput y\n",
        kInputs, c.weights, c.node));
    ASSERT_TRUE(g) << c.node << ": " << g.error().message;
    const IntegerAnchor found = classify_anchor(*g, find_grids(*g), g->value(g->outputs[0]).producer);
    const std::string why = found.why_float ? report::sentence(*found.why_float) : "";
    EXPECT_EQ(found.integer, c.integer) << c.weights << "\n" << c.node << ": " << why;
    EXPECT_EQ(found.bias_in_acc, c.bias_in_acc) << c.weights << "\n" << c.node;
    EXPECT_NE(why.find(c.why), std::string::npos) << why << "\nwanted: " << c.why;
    EXPECT_EQ(found.integer, !found.why_float);
  }
}

}  // namespace
}  // namespace octavo::ir
