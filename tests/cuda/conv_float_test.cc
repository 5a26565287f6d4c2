// Convolutions of bfloat16, of float16, of float32 with products in tf32, and of float32 by three such products, under emulation: shapes around tiles,
// borders, few channels, several epilogues, beside the contract element by element; and mistakes planted in their text.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

struct FloatCase {
  DType type = DType::bf16;
  std::int64_t n = 1, c = 32, h = 7, w = 9, o = 40, k = 3, stride = 1, pad = 1;
  bool codes = false;  ///< stores codes instead of floats: what an int8 region behind it reads
  bool whole = false;  ///< float32 whose operands may not be rounded to tf32
  bool plain = false;  ///< stores the sums as they are
};

/// The buffer's floats (f32, f16), as the plan (constants) and the memory have them.
template <class F>
void each_float(Scene& s, int buffer, F f, DType type = DType::f32) {
  const auto b = static_cast<std::size_t>(buffer);
  constexpr std::size_t kGuard = 64;
  const std::size_t size = ir::size_of(type), n = static_cast<std::size_t>(s.plan().buffers[b].bytes) / size;
  for (std::size_t i = 0; i < n; ++i) {
    std::byte* const at = s.memory[b].data() + kGuard + size * i;
    ir::Tensor one(type, {});
    std::memcpy(one.mutable_bytes().data(), at, size);
    const float v = f(static_cast<float>(one.at(0)), i);
    if (type == DType::f16) {
      one.mutable_data<std::uint16_t>()[0] = f32_to_f16(v);
    } else {
      one.mutable_data<float>()[0] = v;
    }
    std::memcpy(at, one.bytes().data(), size);
    ir::Tensor& constant = s.plan().buffers[b].data;
    if (!constant.empty()) std::memcpy(constant.mutable_bytes().data() + size * i, one.bytes().data(), size);
  }
}

void build(Scene& s, const FloatCase& c) {
  auto& st = s.stage();
  const auto out = [&](std::int64_t v) { return (v + 2 * c.pad - c.k) / c.stride + 1; };
  st.space = {c.n, c.o, out(c.h), out(c.w)};
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::Window{.strides = {c.stride, c.stride},
                               .dilations = {1, 1},
                               .pads = {c.pad, c.pad, c.pad, c.pad},
                               .arithmetic = c.type == DType::f32 && !c.whole ? ir::Arithmetic::tf32 : ir::Arithmetic::exact};
  st.anchor.inputs = {s.nhwc(c.type, {c.n, c.c, c.h, c.w}, BufferKind::input)};
  st.anchor.weights = s.tensor(c.type, {c.o, c.c, c.k, c.k}, BufferKind::constant);
  auto& p = st.program;
  const bool scaled = c.type == DType::f16 || (c.type == DType::f32 && !c.whole);
  const float least = scaled ? -0.05F : -4;  // of sums that run_scaled scales, of others
  const int sum = p.push(Op::acc_f), y = c.plain ? sum : p.push(Op::max, sum, p.imm_f(least));
  if (c.codes) {
    const int q = p.push(Op::div, y, p.imm_f(0.5F));
    p.outputs = {{p.push(Op::f2i, p.push(Op::min, p.push(Op::max, q, p.imm_f(0)), p.imm_f(255))), DType::u8}};
    st.stores = {s.nhwc(DType::u8, st.space)};
  } else if (c.type == DType::f16) {  // the sums themselves too, which are not rounded to float16
    p.outputs = {{y, DType::f32}, {y, DType::f16}};
    st.stores = {s.nhwc(DType::f32, st.space), s.nhwc(DType::f16, st.space)};
  } else {
    p.outputs = {{y, c.type}};
    st.stores = {s.nhwc(c.type, st.space)};
  }
}

/// Changes the data before they are used.
using Prepare = std::function<void(Scene&)>;

/// As octavo_round_tf32: to the nearest of 10 bits behind the point, halves away from zero.
float rounded_to_tf32(float v) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + 0x1000U) & 0xffffe000U);
}

/// What the contract says of operands that are rounded to tf32; the operands stay as they are.
void tf32_region(const region::Region& r, const region::Memory& m) {
  const auto& anchor = r.stages.back().anchor;
  std::map<region::BufferId, std::vector<float>> kept;
  for (const region::TensorRef& t : {anchor.inputs[0], *anchor.weights}) {
    auto& floats = kept[t.buffer];
    floats.resize(static_cast<std::size_t>(std::accumulate(t.dims.begin(), t.dims.end(), std::int64_t{1}, std::multiplies<>())));
    std::byte* const at = m.base[static_cast<std::size_t>(t.buffer)];
    std::memcpy(floats.data(), at, floats.size() * 4);
    std::vector<float> rounded(floats.size());
    std::transform(floats.begin(), floats.end(), rounded.begin(), rounded_to_tf32);
    std::memcpy(at, rounded.data(), rounded.size() * 4);
  }
  scalar_region(r, m);
  for (const auto& [buffer, floats] : kept) std::memcpy(m.base[static_cast<std::size_t>(buffer)], floats.data(), floats.size() * 4);
}

/// The largest sum of the magnitudes of one result's products.
float largest_magnitude(const FloatCase& c) {
  Scene s(11);
  FloatCase plain = c;
  plain.plain = true, plain.codes = false;
  build(s, plain);
  for (const int b : {s.stage().anchor.inputs[0].buffer, s.stage().anchor.weights->buffer})
    each_float(
        s, b, [](float v, std::size_t) { return std::abs(v); }, c.type);
  region::Memory at;
  constexpr std::size_t kGuard = 64;
  for (auto& bytes : s.memory) at.base.push_back(bytes.data() + kGuard);
  scalar_region(s.region(), at);
  float most = 0;
  each_float(s, s.stage().stores[0].buffer, [&](float v, std::size_t) { return most = std::max(most, v), v; });
  return most;
}

// tf32 keeps 10 bits behind the point, so a rounded operand differs by at most 2^-11 of itself, and a sum of rounded operands from the float32 sum by up to
// 2^-10 S, where S is the sum of its products' magnitudes: a bound that hides operands that were cut off instead of rounded. Therefore what is expected has
// rounded operands too. Their products have 22 bits and are exact, and what is left are the sums: a matrix instruction adds 8 products to a sum, cuts these 9
// values off at 2^-23 of the largest, and its result likewise. Each of the 10 is at most 2^-23 S, and so is the addition of one slice to the others. There are
// k * k * ceil(channels / 8) instructions for a result. The inputs are scaled by a power of two, which changes no rounding, so that S is at most 1: then the
// bound, which is compared with the difference / (1 + |expected|), is one of the difference itself within a factor of two.
//
// Products of float16 have 22 bits as well. Their instruction adds 16 of them, in an order that nobody says, and the contract adds all terms one after the
// other in float32: each of these roundings is at most 2^-23 S.
std::string run_scaled(const FloatCase& c, const cuda::Parameters& parameters, int slices, const Edit& edit,
                       const cuda::Family& halves = cuda::conv_f16_family(), const cuda::Target& target = kTarget) {
  Scene s(11);
  build(s, c);
  int exponent = 0;
  std::frexp(largest_magnitude(c), &exponent);
  each_float(
      s, s.stage().anchor.inputs[0].buffer, [&](float v, std::size_t) { return std::ldexp(v, -exponent); }, c.type);
  if (c.type == DType::f16) {
    const auto steps = static_cast<float>(c.k * c.k * ((c.c + 15) / 16)), terms = static_cast<float>(c.k * c.k * c.c);
    const float bound = std::ldexp(18 * steps + terms + static_cast<float>(slices), -23);
    return run_emulated(s, halves, parameters, bound, edit, scalar_region, target);
  }
  const auto instructions = static_cast<float>(c.k * c.k * ((c.c + 7) / 8));
  const float tolerance = std::ldexp(10 * instructions + static_cast<float>(slices), -23);
  return run_emulated(s, cuda::conv_tf32_family(), parameters, tolerance, edit, tf32_region, kTarget);
}

std::string run(const FloatCase& c, const cuda::Parameters& parameters, const Edit& edit = {}, const Prepare& prepare = {}) {
  if (c.type == DType::f16 || (c.type == DType::f32 && !c.whole))
    return run_scaled(c, parameters, 2, edit);  // tests have one slice or two
  Scene s(11);
  build(s, c);
  if (prepare) prepare(s);
  const cuda::Family& family = c.type == DType::bf16 ? cuda::conv_bf16_family() : cuda::conv_f32_family();
  // bfloat16: exact products, sums in another order. Three products: 2e-8 of the products' magnitudes, which are a thousand where random sums cancel;
  // prepared data do not.
  const float tolerance = c.type == DType::bf16 ? 1e-4F : prepare ? 1e-5F : 5e-5F;
  return run_emulated(s, family, parameters, tolerance, edit, scalar_region, kTarget);
}

cuda::Parameters tile(int slices = 1, bool resident = false, int k = 32, int splits = 1) {
  cuda::ConvTile t;
  t.m = 32, t.n = 32, t.k = k, t.warps_m = 2, t.warps_n = 1, t.stages = 2, t.slices = slices, t.blocks = 1, t.resident = resident;
  t.splits = splits;
  return cuda::spell(t);
}

class ConvFloatEmulated : public EmulatedTest {};

TEST_F(ConvFloatEmulated, ShapesAroundTiles) {
  EveryOther some;
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    FloatCase c;
    c.type = type;
    EXPECT_EQ(run(c, tile()), "") << "3x3";
    c.stride = 2, c.h = 8, c.n = 2;
    if (some.takes(0, type)) EXPECT_EQ(run(c, tile(2)), "") << "3x3/2, depth in two slices";
    if (some.takes(1, type)) EXPECT_EQ(run(c, tile(1, false, 32, 3)), "") << "3x3/2, depth in three blocks";
    c = {type, 1, 48, 5, 7, 33, 1, 1, 0};
    if (some.takes(2, type)) EXPECT_EQ(run(c, tile(1, true)), "") << "1x1, a resident filter, channels beyond the tile";
    c.codes = true;
    if (type != DType::f32) EXPECT_EQ(run(c, tile(1, false, 64)), "") << "codes";  // tf32 may round some the other way
    c = {type, 1, 3, 9, 8, 32, 3, 2, 1};
    if (some.takes(3, type)) EXPECT_EQ(run(c, tile()), "") << "three channels";
    c = {type, 1, 5, 6, 8, 16, 3, 1, 1};
    if (some.takes(4, type)) EXPECT_EQ(run(c, tile()), "") << "five channels";
  }
}

// conv.*.im2col (sm_90a): rows that the copying unit gathers.
TEST_F(ConvFloatEmulated, RowsThatAreGathered) {
  const cuda::Target hopper{"sm_90a", 2, 227 * 1024};
  const auto gathered = [&](const FloatCase& c, const std::string& tile, const char* groups, const char* tiles,
                            const char* filter) {
    const cuda::Parameters p{{"tile", tile},  {"groups", groups}, {"tiles", tiles},
                             {"stages", "3"}, {"filter", filter}, {"blocks", "1"}};
    if (c.type == DType::f16) return run_scaled(c, p, 1, {}, cuda::conv_im2col_f16_family(), hopper);
    Scene s(11);
    build(s, c);
    return run_emulated(s, cuda::conv_im2col_bf16_family(), p, 1e-4F, {}, scalar_region, hopper);
  };
  for (const DType type : {DType::bf16, DType::f16}) {
    EXPECT_EQ(gathered({type, 2, 32, 9, 7, 40, 3, 2, 1}, "64x64x64", "1", "shared", "streamed"), "") << "3x3/2";
    EXPECT_EQ(gathered({type, 3, 64, 5, 9, 130, 3, 1, 1}, "64x128x128", "2", "turns", "resident"), "") << "3x3, in turns";
    EXPECT_EQ(gathered({type, 2, 48, 12, 11, 33, 1, 2, 0, type == DType::bf16}, "128x64x32", "2", "shared", "resident"), "")
        << "1x1/2";
  }
}

FloatCase whole(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t o, std::int64_t k, std::int64_t stride,
                std::int64_t pad) {
  return {DType::f32, n, c, h, w, o, k, stride, pad, false, true, true};
}

TEST_F(ConvFloatEmulated, WholeFloatsAroundTiles) {
  for (const std::int64_t channels : {28, 32, 36}) {
    for (const std::int64_t outputs : {31, 32, 33})
      EXPECT_EQ(run(whole(1, channels, 5, 7, outputs, 1, 1, 0), tile()), "") << channels << " to " << outputs;
  }
  EXPECT_EQ(run(whole(1, 32, 7, 9, 40, 3, 1, 1), tile(1, false, 64)), "") << "3x3";
  EXPECT_EQ(run(whole(2, 32, 8, 9, 40, 3, 2, 1), tile(2)), "") << "3x3/2, depth in two slices";
  EXPECT_EQ(run(whole(1, 48, 5, 7, 33, 1, 1, 0), tile(1, true, 128)), "") << "a resident filter";
  EXPECT_EQ(run(whole(1, 3, 9, 8, 32, 3, 2, 1), tile()), "") << "three channels";
  EXPECT_EQ(run(whole(1, 5, 6, 8, 16, 5, 1, 3), tile()), "") << "five channels, a border wider than half of the kernel";
  EXPECT_EQ(run(whole(9, 200, 1, 1, 33, 1, 1, 0), tile(4)), "") << "a product of matrices";
  cuda::ConvTile wide;
  wide.m = 64, wide.n = 128, wide.k = 32, wide.warps_m = 1, wide.warps_n = 2, wide.stages = 3, wide.blocks = 1;
  EXPECT_EQ(run(whole(1, 16, 9, 9, 130, 1, 1, 0), cuda::spell(wide)), "") << "64 channels a warp";
}

/// Positive operands: sums that grow, so that adding them within the matrix units, which truncate, would lose a part of each.
void positive(Scene& s) {
  const auto magnitude = [](float v, std::size_t) { return std::abs(v); };
  each_float(s, s.stage().anchor.inputs[0].buffer, magnitude);
  each_float(s, s.stage().anchor.weights->buffer, magnitude);
}

/// Infinities, NaN, the largest numbers and denormals here and there, weights that are 1, 0 or next to it.
void extreme(Scene& s) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  each_float(s, s.stage().anchor.inputs[0].buffer, [](float v, std::size_t i) {
    const float some[] = {kInf, -kInf, std::nanf(""), kMost, -kMost, 1e-41F, 0, -0.0F};
    return i % 97 == 3 ? some[i / 97 % 8] : v;
  });
  each_float(s, s.stage().anchor.weights->buffer, [](float v, std::size_t i) {
    const float some[] = {1, -0.5F, 0, 0.1F};
    return i % 5 < 4 ? some[i % 5] / 16 : v / 256;
  });
}

TEST_F(ConvFloatEmulated, WholeFloatsOfAllKinds) {
  EXPECT_EQ(run(whole(1, 2048, 4, 4, 16, 1, 1, 0), tile(), {}, positive), "") << "long sums of one sign";
  EXPECT_EQ(run(whole(1, 32, 9, 9, 32, 1, 1, 0), tile(), {}, extreme), "") << "1x1, inf and NaN";
  EXPECT_EQ(run(whole(1, 32, 9, 9, 32, 3, 1, 1), tile(), {}, extreme), "") << "3x3, inf and NaN";
  EXPECT_EQ(run(whole(1, 3, 17, 19, 16, 3, 2, 1), tile(), {}, extreme), "") << "three channels, inf and NaN";
}

/// With a mistake in the text, which must have what the mistake replaces.
std::string run_planted(const FloatCase& c, std::string_view from, std::string_view to) {
  return run(c, tile(), [&](std::string text) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  });
}

TEST_F(ConvFloatEmulated, MistakesInWholeFloatsAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_planted(whole(9, 32, 7, 9, 33, 3, 1, 1), from, to);
  };
  const std::string_view products[] = {"octavo_mma_tf32(part, low[i], right_high[2 * c], right_high[2 * c + 1]);",
                                       "octavo_mma_tf32(part, meets_low[i], right_low[2 * c], right_low[2 * c + 1]);",
                                       "octavo_mma_tf32(part, high[i], right_high[2 * c], right_high[2 * c + 1]);"};
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  for (const std::string_view p : products) EXPECT_NE(planted(p, ""), "") << "one product of three is left out: " << p;
  EXPECT_NE(planted("        octavo_barrier();\n        copy_next();", "        copy_next();"), "") << "missing barrier";
  EXPECT_NE(planted("kPadTop = 1", "kPadTop = 0"), "") << "wrong border";
  EXPECT_NE(planted("right_low[2 * c + 1]", "right_low[2 * c]"), "") << "a wrong fragment";
  // Added within the matrix units, which truncate, over the whole depth: too far off only where sums are long.
  EXPECT_NE(run(
                whole(1, 2048, 4, 4, 16, 1, 1, 0), tile(),
                [](std::string text) {
                  for (const auto& [from, to] : {std::pair<std::string, std::string>{"float part[4] = {0, 0, 0, 0};",
                                                                                     "float (&part)[4] = sums[i][2 * j + c];"},
                                                 {"__fadd_rn(sums[i][2 * j + c][e], part[e])", "part[e]"}})
                    text.replace(text.find(from), from.size(), to);
                  return text;
                },
                positive),
            "")
      << "one long sum in the matrix units";
  const auto of_extremes = [&](std::string_view from, std::string_view to) {
    return run(
        whole(1, 32, 9, 9, 32, 1, 1, 0), tile(), [&](std::string text) { return text.replace(text.find(from), from.size(), to); },
        extreme);
  };
  EXPECT_NE(of_extremes("meets_low = finite ? high : 0;", "meets_low = high;"), "") << "inf times a low part";
  EXPECT_NE(of_extremes("low = finite ?", "low = true ?"), "") << "inf less inf";
  EXPECT_NE(of_extremes("high = finite && ", "high = false && "), "") << "the largest float becomes inf";
}

// Both are far within 0.2 * (1 + |value|).
TEST_F(ConvFloatEmulated, WrongRoundingToTf32IsFound) {
  FloatCase c;
  c.type = DType::f32, c.n = 2;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, tile(), [&](std::string text) {
      std::size_t at = text.find(from), found = 0;
      for (; at != std::string::npos; at = text.find(from, at + to.size()), ++found) text.replace(at, from.size(), to);
      EXPECT_GT(found, 0U) << "the text has no \"" << from << "\" any more";
      return text;
    });
  };
  EXPECT_EQ(planted("octavo_round_tf32(", "octavo_round_tf32("), "") << "nothing planted";
  EXPECT_NE(planted("octavo_round_tf32(", "("), "") << "operands are cut off";
  EXPECT_NE(planted("octavo_round_tf32(", "octavo_round_tf32(0x2000u + "), "") << "operands are one step off";
}

TEST_F(ConvFloatEmulated, MistakesInFloat16AreFound) {
  FloatCase c;
  c.type = DType::f16, c.n = 9;
  const auto planted = [&](std::string_view from, std::string_view to) { return run_planted(c, from, to); };
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  EXPECT_NE(planted("OCTAVO_PRODUCT octavo_mma_f16", "OCTAVO_PRODUCT octavo_mma_bf16"), "") << "the bits as bfloat16";
  EXPECT_NE(planted("typedef float octavo_sum", "typedef int octavo_sum"), "") << "sums of floats as integers";
  EXPECT_NE(planted("        octavo_barrier();\n        copy_next();", "        copy_next();"), "") << "missing barrier";
  EXPECT_NE(planted("kPadTop = 1", "kPadTop = 0"), "") << "wrong border";
}

TEST_F(ConvFloatEmulated, MistakesInSplitFloatsAreFound) {
  FloatCase c;
  c.type = DType::f16, c.n = 3;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, tile(1, false, 32, 3), [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  EXPECT_NE(planted("other < kSplits", "other < kSplits - 1"), "") << "a part is missing";
  EXPECT_NE(planted("total[split * kPlace + k * kThreads] =", "total[k * kThreads] ="), "") << "one place for all parts";
  EXPECT_NE(planted("if (*done != kSplits - 1) continue;", ""), "") << "the program before all parts are there";
}

/// A sum that float16 could not hold: it is a float32 until the program stores it.
TEST_F(ConvFloatEmulated, SumsOfFloat16AreFloat32) {
  Scene s(11);
  FloatCase c;
  c.type = DType::f16, c.c = 48, c.k = 1, c.pad = 0, c.plain = true;
  build(s, c);
  each_float(
      s, s.stage().anchor.inputs[0].buffer, [](float, std::size_t) { return 2048.0F; }, DType::f16);
  each_float(
      s, s.stage().anchor.weights->buffer, [](float, std::size_t i) { return i % 48 < 24 ? 64.0F : -63.0F; }, DType::f16);
  EXPECT_EQ(run_emulated(s, cuda::conv_f16_family(), tile(), 0, {}, scalar_region, kTarget), "")
      << "24 * 2048 * 64 is exact in float32";
}

TEST_F(ConvFloatEmulated, MistakesAreFound) {
  FloatCase c;
  c.n = 9;
  const auto planted = [&](std::string_view from, std::string_view to) { return run_planted(c, from, to); };
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  EXPECT_NE(planted("        octavo_barrier();\n        copy_next();", "        copy_next();"), "") << "missing barrier";
  EXPECT_NE(planted("kPadTop = 1", "kPadTop = 0"), "") << "wrong border";
  EXPECT_NE(planted("typedef float octavo_sum", "typedef int octavo_sum"), "") << "sums of floats as integers";
}

TEST(ConvFloat, RefusesWhatItCannot) {
  Scene s(3);
  build(s, {DType::f32, 1, 32, 7, 9, 32, 3, 1, 1});
  s.stage().anchor.as<ir::Window>().arithmetic = ir::Arithmetic::exact;
  EXPECT_FALSE(cuda::conv_tf32_family().about(s.region())) << "float32 stays float32 unless tf32 is allowed";
  s.stage().anchor.as<ir::Window>().arithmetic = ir::Arithmetic::tf32;
  EXPECT_TRUE(cuda::conv_tf32_family().about(s.region()));
  EXPECT_TRUE(cuda::conv_tf32_family().why_not(s.region(), s.plan(), kTarget).empty());
  EXPECT_FALSE(cuda::conv_tf32_family().why_not(s.region(), s.plan(), cuda::Target{"sm_75"}).empty());
  EXPECT_FALSE(cuda::conv_f32_family().about(s.region())) << "what may be rounded is rounded";
  s.stage().anchor.as<ir::Window>().arithmetic = ir::Arithmetic::exact;
  EXPECT_TRUE(cuda::conv_f32_family().about(s.region()));
  EXPECT_TRUE(cuda::conv_f32_family().why_not(s.region(), s.plan(), kTarget).empty());
  each_float(s, s.stage().anchor.weights->buffer, [](float v, std::size_t i) { return i == 7 ? INFINITY : v; });
  EXPECT_FALSE(cuda::conv_f32_family().why_not(s.region(), s.plan(), kTarget).empty()) << "a weight that is inf";
}

TEST(ConvFloat, WholeFloatsAreThreeTimesTheWorkAndPreferred) {
  const auto least = [](const cuda::Family& family, Scene& s) {
    return family.candidates(s.region(), s.plan(), kTarget).at(0).seconds;
  };
  Scene exact(3), rounded(3);
  FloatCase c = whole(32, 256, 14, 14, 256, 3, 1, 1);
  build(exact, c);
  c.whole = false;
  build(rounded, c);
  const double three = least(cuda::conv_f32_family(), exact), one = least(cuda::conv_tf32_family(), rounded),
               direct = least(cuda::direct_conv_family(), exact);
  EXPECT_GT(three, 1.5 * one);
  EXPECT_LT(three, 5 * one);
  EXPECT_LT(three, direct);
}

TEST(ConvFloat, Float16CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  Scene s(3);
  FloatCase c;
  c.type = DType::f16, c.c = 64, c.o = 64;
  build(s, c);
  EXPECT_FALSE(cuda::conv_bf16_family().about(s.region())) << "the bits of another type";
  for (const cuda::Architecture architecture : architectures()) {
    const cuda::Target target{architecture};
    const auto all = cuda::conv_f16_family().candidates(s.region(), s.plan(), target);
    ASSERT_FALSE(all.empty());
    const auto text = cuda::conv_f16_family().emit(s.region(), s.plan(), all[0].parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    EXPECT_TRUE(code) << code.error().message;
  }
}

TEST(ConvFloat, WholeFloatsCompileForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  Scene s(3);
  build(s, whole(8, 64, 14, 14, 64, 3, 1, 1));
  for (const cuda::Architecture architecture :
       std::initializer_list<cuda::Architecture>{"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"}) {
    const cuda::Target target{architecture};
    const auto all = cuda::conv_f32_family().candidates(s.region(), s.plan(), target);
    ASSERT_FALSE(all.empty());
    const auto text = cuda::conv_f32_family().emit(s.region(), s.plan(), all[0].parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    EXPECT_TRUE(code) << code.error().message;
  }
}

}  // namespace
}  // namespace octavo::testing
