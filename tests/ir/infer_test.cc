// Types of every operator: one line a case. The verifier infers again what the text states.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/text.h"
#include "ir/verify.h"

namespace octavo::ir {
namespace {

/// Operands that the cases name by their letters.
constexpr const char* kInputs = R"(
x = input : f32[2,6,8,10]
y = input : f32[6,1,10]
h = input : f16[2,6,8,10]
b = input : bool[2,6,8,10]
i = input : s64[3,4]
j = input : s32[2,6,8,3]
n = input : s64[2,2]
u = input : u8[2,6,8,10]
m = input : f32[5,7]
k = input : f32[7,9]
v = input : f32[7]
c = input : f32[6]
d = input : f32[6]
w = input : f32[12,3,3,3]
t = input : f32[6,4,3,3]
o = input : f32[12]
s = input : f32[]
z = input : u8[]
q = input : f32[2,6,5]
e = input : f32[0,4]
g3 = input : f32[2,6,8,3]
p3 = input : f32[2,8,10]
grid = input : f32[2,4,5,2]
rois = input : f32[3,4]
ids = input : s64[3]
off = input : f32[2,18,6,8]
mask = input : f32[2,9,6,8]
mat = input : f32[2,5,5]
boxes = input : f32[1,6,4]
scores = input : f32[1,2,6]
rx = input : f32[5,2,3]
rw = input : f32[1,16,3]
rr = input : f32[1,16,4]
rb = input : f32[1,32]
rl = input : s64[2]
rh = input : f32[1,2,4]
rp = input : f32[1,12]
)";

struct Good {
  const char* node;  ///< after "r = "
  const char* type;  ///< of the result(s)
};

constexpr Good kGood[] = {
    {"view x q=u8(0.1,3)", "f32[2,6,8,10]"},
    {"view x q=s8[axis=1](1,2,3,4,5,6;0,0,0,0,0,0)", "f32[2,6,8,10]"},
    {"view h q=u8(0.1,3)@f16", "f16[2,6,8,10]"},
    {"quantize x q=s8(0.1,-3)", "s8[2,6,8,10]"},
    {"quantize h q=u8(0.1,3)@f16", "u8[2,6,8,10]"},
    {"dequantize u q=u8(0.1,3)", "f32[2,6,8,10]"},
    {"dequantize u q=u8(0.1,3)@bf16", "f32[2,6,8,10]"},
    {"quantize_rt x s z", "u8[2,6,8,10]"},
    {"dequantize_rt u s z", "f32[2,6,8,10]"},
    {"conv x w {group=2}", "f32[2,12,6,8]"},
    {"conv x w o {group=2, pads=[1,1,1,1], strides=[2,2]}", "f32[2,12,4,5]"},
    {"conv x w o {group=2, pads=[0,2,1,1], dilations=[2,3]}", "f32[2,12,5,7]"},
    {"conv_transpose x t", "f32[2,4,10,12]"},
    {"conv_transpose x t {group=2, strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]}", "f32[2,8,16,20]"},
    {"gemm m k", "f32[5,9]"},
    {"matmul m k", "f32[5,9]"},
    {"matmul v k", "f32[9]"},
    {"matmul m v", "f32[5]"},
    {"matmul v v", "f32[]"},
    {"matmul q q2", "f32[2,6,6]"},
    {"max_pool x {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}", "f32[2,6,4,5]"},
    {"avg_pool x {kernel=[8,10]}", "f32[2,6,1,1]"},
    {"reduce_mean x {axes=[2,3]}", "f32[2,6,1,1]"},
    {"reduce_mean x {axes=[2,3], keepdims=0}", "f32[2,6]"},
    {"reduce_sum i {axes=[0]}", "s64[1,4]"},
    {"reduce_max x {axes=[1]}", "f32[2,1,8,10]"},
    {"reduce_min x {axes=[0,1,2,3], keepdims=0}", "f32[]"},
    {"reduce_prod x {axes=[]}", "f32[2,6,8,10]"},
    {"reduce_l2 x {axes=[3]}", "f32[2,6,8,1]"},
    {"softmax x {axis=1}", "f32[2,6,8,10]"},
    {"log_softmax x", "f32[2,6,8,10]"},
    {"arg_max x {axis=1, keepdims=0}", "s64[2,8,10]"},
    {"resize_linear x {scales=[1.0,1.0,2.0,0.5]}", "f32[2,6,16,5]"},
    {"resize_cubic x {sizes=[2,6,9,9], scales=[1,1,1.1,0.9]}", "f32[2,6,9,9]"},
    {"instance_norm x c d", "f32[2,6,8,10]"},
    {"layer_norm m v v {axis=1}", "f32[5,7]"},
    {"layer_norm m v", "f32[5,7]"},
    {"lrn x {size=5, alpha=0.1}", "f32[2,6,8,10]"},
    {"math x {function=\"tan\"}", "f32[2,6,8,10]"},
    {"bitwise i i {function=\"and\"}", "s64[3,4]"},
    {"bitwise u {function=\"not\"}", "u8[2,6,8,10]"},
    {"bit_cast x {to=\"s32\"}", "s32[2,6,8,10]"},
    {"scatter x j g3 {kind=\"elements\", axis=3}", "f32[2,6,8,10]"},
    {"scatter x n p3 {kind=\"nd\", reduction=\"add\"}", "f32[2,6,8,10]"},
    {"top_k x {axis=1, k=3}", "f32[2,3,8,10], s64[2,3,8,10]"},
    {"cumulate x {axis=3, exclusive=1}", "f32[2,6,8,10]"},
    {"max_pool_index x {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}", "s64[2,6,4,5]"},
    {"grid_sample x grid {mode=\"cubic\"}", "f32[2,6,4,5]"},
    {"roi_align x rois ids {output_height=2, output_width=3}", "f32[3,6,2,3]"},
    {"deform_conv x w off o mask {group=2}", "f32[2,12,6,8]"},
    {"recurrent rx rw rr rb rl rh rh rp {cell=\"lstm\"}", "f32[5,1,2,4], f32[1,2,4], f32[1,2,4]"},
    {"det mat", "f32[2]"},
    {"non_zero v", "s64[7], s64[]"},
    {"non_max_suppression boxes scores s s {count=5}", "s64[5,3]"},
    {"relu x", "f32[2,6,8,10]"},
    {"relu i", "s64[3,4]"},
    {"clip x {min=0, max=6}", "f32[2,6,8,10]"},
    {"leaky_relu h {alpha=0.1}", "f16[2,6,8,10]"},
    {"not b", "bool[2,6,8,10]"},
    {"cast x {to=\"s32\"}", "s32[2,6,8,10]"},
    {"add x y", "f32[2,6,8,10]"},
    {"add x s", "f32[2,6,8,10]"},
    {"sub y x", "f32[2,6,8,10]"},
    {"div s s", "f32[]"},
    {"max x y", "f32[2,6,8,10]"},
    {"mod i i", "s64[3,4]"},
    {"prelu x y", "f32[2,6,8,10]"},
    {"affine x c d", "f32[2,6,8,10]"},
    {"equal x y", "bool[2,6,8,10]"},
    {"less x s", "bool[2,6,8,10]"},
    {"and b b", "bool[2,6,8,10]"},
    {"where b x s", "f32[2,6,8,10]"},
    {"where b s s", "f32[2,6,8,10]"},
    {"transpose x {perm=[0,2,3,1]}", "f32[2,8,10,6]"},
    {"transpose s {perm=[]}", "f32[]"},
    {"reshape x {shape=[2,480]}", "f32[2,480]"},
    {"reshape e {shape=[3,0]}", "f32[3,0]"},
    {"slice x {starts=[0,1,7,0], ends=[2,6,-1,10], steps=[1,2,-1,3]}", "f32[2,3,8,4]"},
    {"slice x {starts=[0,0,8,3], ends=[2,6,8,3]}", "f32[2,6,0,0]"},
    {"concat x x x {axis=1}", "f32[2,18,8,10]"},
    {"concat x {axis=3}", "f32[2,6,8,10]"},
    {"pad x {pads=[0,0,1,2,0,0,3,4], value=1}", "f32[2,6,12,16]"},
    {"pad x {pads=[0,0,7,0,0,0,0,9], mode=\"reflect\"}", "f32[2,6,15,19]"},
    {"pad u {pads=[0,0,9,0,0,0,0,9], mode=\"edge\"}", "u8[2,6,17,19]"},
    {"resize_nearest x {index2=[0,0,1,1,7], index3=[9]}", "f32[2,6,5,1]"},
    {"gather x i {axis=2}", "f32[2,6,3,4,10]"},
    {"gather_elements x j {axis=3}", "f32[2,6,8,3]"},
    {"gather_nd x n", "f32[2,8,10]"},
    {"gather_nd x n {batch_dims=1}", "f32[2,10]"},
    {"expand y {shape=[2,6,8,10]}", "f32[2,6,8,10]"},
    {"expand s {shape=[3,3]}", "f32[3,3]"},
    {"tile y {repeats=[1,8,2]}", "f32[6,8,20]"},
    {"depth_to_space d4 {blocksize=2}", "f32[1,2,8,6]"},
    {"depth_to_space d4 {blocksize=2, mode=\"CRD\"}", "f32[1,2,8,6]"},
    {"space_to_depth x {blocksize=2}", "f32[2,24,4,5]"},
};

std::string graph_of(const std::string& node, const std::string& type) {
  std::string results = "r";
  int open = 0, count = 1;
  for (const char ch : type) {
    open += ch == '[' ? 1 : ch == ']' ? -1 : 0;
    if (ch == ',' && open == 0) results += fmt::format(", r{}", ++count);
  }
  return fmt::format("{}q2 = input : f32[2,5,6]\nd4 = input : f32[1,8,4,3]\n{} = {}{}\noutput r\n", kInputs, results, node,
                     type.empty() ? "" : " : " + type);
}

TEST(Infer, EveryOperator) {
  std::set<std::string> covered;
  for (const Good& c : kGood) {
    const auto g = parse(graph_of(c.node, c.type));
    ASSERT_TRUE(g) << c.node << ": " << g.error().message;
    const Status status = verify(*g);
    EXPECT_TRUE(status) << c.node << ": " << status.error().message;
    covered.insert(std::string(c.node).substr(0, std::string(c.node).find(' ')));
  }
  const auto dynamic = parse(graph_of("dynamic_quantize x", "u8[2,6,8,10], f32[], u8[]"));
  ASSERT_TRUE(dynamic);
  EXPECT_TRUE(verify(*dynamic));
  covered.insert("dynamic_quantize");
  // Pointwise operators of one float, or of two operands, share their rule: each must at least be accepted.
  for (int op = 0; op <= static_cast<int>(Op::space_to_depth); ++op) {
    const OpInfo& row = info(static_cast<Op>(op));
    if (covered.contains(std::string(row.name)) || row.max_inputs == 0) continue;
    ASSERT_TRUE(row.traits & kPointwise) << row.name << " has no case";
    const bool logical = row.op == Op::logical_or;
    const std::string node = fmt::format("{} {}", row.name, row.max_inputs == 1 ? "x" : logical ? "b b" : "x y");
    const auto g = parse(graph_of(node, ""));
    ASSERT_TRUE(g) << node << ": " << g.error().message;
    EXPECT_EQ(g->type(g->outputs[0]).shape, (Shape{2, 6, 8, 10})) << node;
  }
}

struct Bad {
  const char* node;
  const char* why;  ///< part of the message
};

constexpr Bad kBad[] = {
    {"view x", "no quantizer"},
    {"view x q=u8(0,3)", "not positive"},
    {"view x q=u8(-0.1,3)", "not positive"},
    {"view x q=u8(inf,3)", "not positive and finite"},
    {"view x q=u8(nan,3)", "not positive and finite"},
    {"view x q=u8(0.1,256)", "zero point 256 outside 0..255"},
    {"view x q=s8(0.1,-129)", "outside -128..127"},
    {"view x q=s8[axis=4](1;0)", "axis 4 outside rank 4"},
    {"view x q=s8[axis=1](1,2;0,0)", "2 entries, needs 6"},
    {"view x q=s8[axis=1](1,2;0)", "2 scales, 1 zero points"},
    {"view x q=s32(1,0)", "8- or 16-bit"},
    {"view x q=bool(1,0)", "not a type of codes"},
    {"view u q=u8(1,0)", "needs a float type"},
    {"quantize i q=u8(1,0)", "needs a float type or s32"},
    {"dequantize u q=s8(1,0)", "the quantizer says s8"},
    {"conv x", "1 operands, needs 2 to 3"},
    {"conv none w", "operand 0 is absent"},
    {"conv x w", "the weights expect 3 input channels"},
    {"conv x w {group=0}", "group 0"},
    {"conv x w {group=4}", "does not divide"},
    {"conv x w c {group=2}", "the bias is [6], needs [12]"},
    {"conv x w {group=2, strides=[0,1]}", "strides must be at least 1"},
    {"conv x w {group=2, strides=[1]}", "strides has 1 entries, needs 2"},
    {"conv x w {group=2, strides=1}", "not a list of integers"},
    {"conv x w {group=2, pads=[1,1,1]}", "pads has 3 entries"},
    {"conv x w {group=2, pads=[-1,1,1,1]}", "must not be negative"},
    {"conv x w {group=2, dilations=[9,1]}", "does not fit"},
    {"conv x w {group=2, dilations=[9223372036854775807,1]}", "dilations"},
    {"conv x w {group=9223372036854775807}", "group"},
    {"conv m k", "rank 2"},
    {"conv_transpose x w", "expect 12 input channels"},
    {"conv_transpose x t {pads=[9,9,9,9]}", "leave no result"},
    {"conv_transpose x t {strides=[1099511627776,1099511627776], output_padding=[1,1]}", "leave no result"},
    {"gemm m m", "the K differ"},
    {"gemm m k v", "do not broadcast"},
    {"gemm x k", "rank 4, needs 2"},
    {"matmul m m", "inner dimensions 7 and 5 differ"},
    {"matmul s m", "rank 0"},
    {"max_pool x", "kernel is missing"},
    {"max_pool x {kernel=[3]}", "kernel has 1 entries"},
    {"max_pool x {kernel=[0,3]}", "must be at least 1"},
    {"max_pool x {kernel=[9,9]}", "does not fit"},
    {"avg_pool u {kernel=[2,2]}", "needs a float type"},
    {"reduce_mean x", "axes is missing"},
    {"reduce_mean x {axes=[4]}", "axes must be ascending"},
    {"reduce_mean x {axes=[-1]}", "axes must be ascending"},
    {"reduce_mean x {axes=[1,1]}", "axes must be ascending"},
    {"reduce_mean x {axes=[1], keepdims=2}", "keepdims is 2"},
    {"reduce_max e {axes=[0]}", "is empty"},
    {"softmax x {axis=-1}", "must be in [0, 4)"},
    {"softmax s", "must be in [0, 0)"},
    {"arg_max s", "must be in"},
    {"resize_linear x", "scales has 0 entries"},
    {"resize_linear x {scales=[1.0,1.0,0.01,1.0]}", "leaves no result"},
    {"resize_linear x {scales=[1.0,1.0,nan,1.0]}", "leaves no result"},
    {"resize_linear x {scales=[1.0,1.0,1e30,1.0]}", "leaves no result"},
    {"instance_norm x v c", "must be [6]"},
    {"layer_norm m m v", "must broadcast to [7]"},
    {"lrn x", "size must be at least 1"},
    {"tanh i", "needs a float type"},
    {"math x {function=\"sin\"}", "is not known"},
    {"bitwise x x {function=\"and\"}", "needs an integer"},
    {"bitwise i {function=\"and\"}", "1 operands for"},
    {"bit_cast x {to=\"s64\"}", "not a type of 4 bytes"},
    {"scatter x j x {kind=\"elements\", axis=3}", "must have one shape"},
    {"scatter x n x {kind=\"nd\"}", "need [2,8,10]"},
    {"top_k x {axis=1, k=7}", "k is 7, axis 1 has 6"},
    {"cumulate x {axis=4}", "must be in [0, 4)"},
    {"grid_sample x rois", "rank 4"},
    {"roi_align x rois rl", "batch indices [n]"},
    {"deform_conv x w mask o mask {group=2}", "do not fit the result"},
    {"recurrent rx rw rr rb rl rh rh rp {cell=\"gru\"}", "operand 1 is [1,16,3], needs [1,12,3]"},
    {"det m", "not square"},
    {"non_max_suppression scores boxes s s", "needs boxes"},
    {"relu b", "must be a number"},
    {"clip x {min=\"a\"}", "min is not a number"},
    {"not x", "must be bool"},
    {"cast x {to=\"f31\"}", "not the name of a type"},
    {"cast x {to=5}", "not a text"},
    {"add x h", "operands are f32 and f16"},
    {"add x m", "do not broadcast"},
    {"add b b", "must be numbers"},
    {"prelu y x", "must broadcast to the data"},
    {"affine x v c", "one entry a channel"},
    {"affine c c c", "channel axis"},
    {"and x x", "must be bool"},
    {"where x x x", "condition must be bool"},
    {"transpose x", "perm is missing"},
    {"transpose x {perm=[0,1]}", "perm has 2 entries"},
    {"transpose x {perm=[0,1,2,2]}", "not a permutation"},
    {"transpose x {perm=[0,1,2,4]}", "not a permutation"},
    {"reshape x {shape=[-1]}", "outside 0..2^40"},
    {"reshape x {shape=[5,5]}", "25 elements, the data 960"},
    {"reshape x {shape=[1099511627776,1099511627776]}", "more than 2^40"},
    {"slice x {starts=[0,0,0,0]}", "ends is missing"},
    {"slice x {starts=[0,0,0,9223372036854775807], ends=[1,1,1,1]}", "start 9223372036854775807 outside"},
    {"slice x {starts=[0,0,0,-1], ends=[1,1,1,1]}", "start -1 outside"},
    {"slice x {starts=[0,0,0,0], ends=[1,1,1,11]}", "end 11 outside -1..10"},
    {"slice x {starts=[0,0,0,0], ends=[1,1,1,1], steps=[1,1,1,0]}", "step 0"},
    {"slice x {starts=[0,0,0,0], ends=[1,1,1,1], steps=[1,1,1,-9223372036854775808]}", "is not allowed"},
    {"slice x {starts=[0,0,0,10], ends=[1,1,1,-1], steps=[1,1,1,-1]}", "start 10 outside 0..9"},
    {"concat x y {axis=1}", "must agree outside axis"},
    {"concat x h {axis=1}", "operand 1 is f16"},
    {"concat x x", "axis"},
    {"pad x {pads=[0,0,0,0,0,0,0,-1]}", "must not be negative"},
    {"pad x {pads=[0,0,8,0,0,0,0,0], mode=\"reflect\"}", "reflecting 8 elements"},
    {"pad x {pads=[0,0,1,0,0,0,0,0], mode=\"wrap\"}", "not constant, reflect or edge"},
    {"pad e {pads=[1,0,0,0], mode=\"edge\"}", "no edge"},
    {"pad x {pads=[0,0,1099511627776,1099511627776,0,0,0,0]}", "2^40"},
    {"resize_nearest x {index2=[8]}", "element 8 of a dimension of 8"},
    {"resize_nearest x {index4=[0]}", "not a dimension"},
    {"gather x x", "must be s32 or s64"},
    {"gather x i {axis=4}", "must be in [0, 4)"},
    {"gather_elements x i", "one rank"},
    {"gather_nd x n {batch_dims=2}", "batch_dims 2"},
    {"gather_nd m i", "index tuples of 4 for 2"},
    {"expand x {shape=[6,8,10]}", "does not expand"},
    {"expand y {shape=[2,5,8,10]}", "do not broadcast"},
    {"tile y {repeats=[1,-1,1]}", "repeated -1 times"},
    {"tile y {repeats=[1,4611686018427387904,4]}", "repeated"},
    {"depth_to_space x {blocksize=2}", "not a multiple of 4"},
    {"depth_to_space x {blocksize=0}", "blocksize 0"},
    {"depth_to_space x {blocksize=4294967296}", "blocksize"},
    {"space_to_depth x {blocksize=3}", "not a multiple of the block 3"},
};

TEST(Infer, RefusesWithAReason) {
  for (const Bad& c : kBad) {
    const auto g = parse(graph_of(c.node, ""));
    ASSERT_FALSE(g) << c.node << " was accepted";
    EXPECT_NE(g.error().message.find(c.why), std::string::npos)
        << c.node << "\n  said: " << g.error().message << "\n  wanted: " << c.why;
  }
}

}  // namespace
}  // namespace octavo::ir
