// Parameters of tactics that searches try: every set of every family gives the same bits, each of what can be cut or fetched otherwise
// has several settings, and a set that is asked for is what is compiled and loaded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/amx_emulated.h"
#include "cpu/cap.h"
#include "cpu/depthwise_scene.h"
#include "cpu/isa.h"
#include "cpu/provider.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Settings = std::map<std::string, std::set<std::string>>;  ///< by parameter

struct Shape {
  std::int64_t c, o, h, w, kernel;
};

/// A convolution of one group in two spatial dimensions, with Gemm given as one of 1x1 pixels.
void conv(Scene& s, const Shape& k, int threads, bool integer = true) {
  auto& st = s.stage();
  const std::int64_t pad = k.kernel / 2, n = k.h == 1 ? 20 : 1;
  const DType type = integer ? DType::u8 : DType::f32;
  st.space = {n, k.o, k.h, k.w};
  st.anchor.op = ir::Op::conv;
  st.anchor.integer = integer;
  st.anchor.facts = testing::facts(
      st.anchor.op,
      {{"strides", Ints{1, 1}}, {"pads", Ints{pad, pad, pad, pad}}, {"dilations", Ints{1, 1}}, {"group", std::int64_t{1}}});
  st.anchor.inputs = {s.nhwc(type, {n, k.c, k.h, k.w})};
  st.anchor.weights = s.tensor(integer ? DType::s8 : DType::f32, {k.o, k.c, k.kernel, k.kernel}, BufferKind::constant);
  s.plan().threads = threads;
  if (integer) {
    st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, 7);
    s.requantize(1, 2e-4F);
  } else {
    st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
  }
  st.stores = {s.nhwc(type, st.space)};
}

void depthwise(Scene& s, int threads) {
  Depthwise k;
  k.c = 144, k.h = 13, k.w = 20, k.threads = threads;
  build(s, k);
}

void conv_of_floats(Scene& s, int threads) {
  conv(s, {3, 100, 8, 9, 3}, threads, false);
}

void depthwise_of_floats(Scene& s, int threads) {
  conv(s, {1, 144, 13, 20, 3}, threads, false);
  s.stage().anchor.as<ir::Window>().group = 144;
  s.stage().anchor.inputs = {s.nhwc(DType::f32, {1, 144, 13, 20})};
}

/// Runs every set of parameters that the provider has for tactics whose family begins so; what it tried, by parameter.
template <class Make>
Settings try_all(std::string_view family, const Make& make, float tolerance = 0) {
  Settings tried;
  for (const int threads : {1, 4}) {
    Scene scene(1);
    make(scene, threads);
    for (const region::Provider* p : cpu::providers()) {
      for (const region::Offer& o : p->variants(scene.region(), scene.plan())) {
        if (o.tactic.family.rfind(family, 0) != 0) continue;
        EXPECT_EQ(spelled(o.refusal), "");
        EXPECT_GT(o.cost, 0) << o.tactic.name();
        Scene s(1);
        make(s, threads);
        region::Tactic bare = o.tactic;
        bare.parameters.clear();
        s.parameters = o.tactic.parameters;
        EXPECT_EQ(s.compare(*p, bare.name(), tolerance), "") << o.tactic.name();
        EXPECT_EQ(s.region().tactic.name(), o.tactic.name());  // what was loaded
        for (const auto& [name, value] : o.tactic.parameters) tried[name].insert(value);
      }
    }
  }
  return tried;
}

/// Beside the default, which has no such parameter, there are so many settings of each.
void expect_settings(const Settings& tried, std::size_t least, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = tried.find(name);
    EXPECT_GE(found == tried.end() ? 0 : found->second.size(), least) << name;
  }
}

bool has_vnni() {
  return cpu::why_lacking({"avx512vnni"}).empty();
}

TEST(Parameters, Convolutions) {
  if (!has_vnni()) GTEST_SKIP() << "needs avx512vnni";
  const auto tried = try_all("conv.u8s8.avx512vnni", [](Scene& s, int t) { conv(s, {20, 130, 8, 9, 3}, t); });
  expect_settings(tried, 2, {"pixels", "row_tiles", "prefetch"});
  expect_settings(tried, 1, {"order"});
}

TEST(Parameters, MatrixProductsOfCodes) {
  if (!has_vnni()) GTEST_SKIP() << "needs avx512vnni";
  const auto tried = try_all("conv.u8s8.avx512vnni", [](Scene& s, int t) { conv(s, {100, 200, 1, 1, 1}, t); });
  expect_settings(tried, 2, {"pixels", "prefetch"});
  expect_settings(tried, 1, {"row_tiles"});
}

TEST(Parameters, Depthwise) {
  if (!has_vnni()) GTEST_SKIP() << "needs avx512vnni";
  for (const char* family : {"depthwise.u8s8.avx512vnni.jit", "depthwise.u8s8.avx512vnni.sliding_window"}) {
    const auto tried = try_all(family, depthwise);
    expect_settings(tried, 2, {"prefetch"});
    expect_settings(tried, 1, {"rows", "row_tiles", "order"});
  }
}

TEST(Parameters, Pairs) {
  if (!cpu::why_lacking({"avx2"}).empty()) GTEST_SKIP() << "needs avx2";
  const cpu::CapScope cap(cpu::Isa::avx2);
  const auto whole = try_all("conv.u8s8.avx2.jit", [](Scene& s, int t) { conv(s, {20, 130, 8, 9, 3}, t); });
  expect_settings(whole, 2, {"pixels", "prefetch", "vectors"});
  expect_settings(whole, 1, {"row_tiles"});
  const auto products = try_all("conv.u8s8.avx2.jit", [](Scene& s, int t) { conv(s, {100, 200, 1, 1, 1}, t); });
  expect_settings(products, 2, {"pixels", "prefetch"});
  const auto channels = try_all("depthwise.u8s8.avx2.jit", depthwise);
  expect_settings(channels, 2, {"prefetch"});
  expect_settings(channels, 1, {"rows", "row_tiles", "order"});
}

class FloatParameters : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isas, FloatParameters, ::testing::Values("avx2", "avx512"), [](const auto& test) { return test.param; });

TEST_P(FloatParameters, AllRun) {
  if (!cpu::why_lacking({GetParam()}).empty()) GTEST_SKIP() << "needs " << GetParam();
  const cpu::CapScope cap(*cpu::find_isa(GetParam()));
  const auto whole = try_all(
      "conv.f32." + GetParam() + ".jit",
      [](Scene& s, int t) {
        conv(s, {20, 130, 8, 9, 3}, t, false);
      },
      1e-4F);
  expect_settings(whole, 2, {"pixels", "row_tiles", "prefetch", "vectors"});
  expect_settings(whole, 1, {"order"});
  const auto depthwise = try_all("depthwise.f32." + GetParam() + ".jit", depthwise_of_floats, 1e-4F);
  expect_settings(depthwise, 2, {"prefetch"});
  expect_settings(depthwise, 1, {"rows", "row_tiles", "order"});
}

TEST(Parameters, OnTiles) {
  for (const int threads : {1, 4}) {
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"row_tiles", "1"},
                                                                                      {"row_tiles", "5"},
                                                                                      {"order", "rows"},
                                                                                      {"order", "blocks"},
                                                                                      {"prefetch", "0"},
                                                                                      {"prefetch", "2"}}) {
      Scene s(1);
      conv(s, {32, 200, 5, 6, 3}, threads);
      s.parameters = {{name, value}};
      const std::string why = s.compare(emulated_amx_provider(), "cpu.conv.u8s8.amx");
      if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
      EXPECT_EQ(why, "") << name << "=" << value << ", " << threads << " threads";
    }
  }
}

TEST(Parameters, BlocksOfEveryInstructionSet) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    if (std::string_view(isa) != "portable" && !cpu::why_lacking({isa}).empty()) continue;
    setenv("OCTAVO_CPU", isa, 1);
    const std::string suffix = std::string(".block.") + isa;
    // Elsewhere generated code takes these regions; floats with AVX-512 too.
    const bool codes = cpu::name_of(cpu::best_isa()) == isa && std::string_view(isa) != "avx2";
    const bool of_floats = std::string_view(isa) == "portable";
    const auto whole = try_all("conv.u8s8" + suffix, [](Scene& s, int t) { conv(s, {3, 100, 8, 9, 3}, t); });
    const auto products = try_all("conv.u8s8" + suffix, [](Scene& s, int t) { conv(s, {30, 200, 1, 1, 1}, t); });
    const auto floats = try_all("conv.f32" + suffix, conv_of_floats, 1e-4F);
    const auto channels = try_all("depthwise.u8s8" + suffix, depthwise);
    unsetenv("OCTAVO_CPU");
    EXPECT_EQ(floats.empty(), !of_floats) << isa;
    if (of_floats) expect_settings(floats, 2, {"row_tiles", "pixels", "prefetch"});
    if (!codes) {
      EXPECT_TRUE(whole.empty() && products.empty() && channels.empty()) << isa;
      continue;
    }
    expect_settings(whole, 2, {"row_tiles", "pixels", "prefetch"});
    expect_settings(whole, 1, {"splits"});
    expect_settings(products, 1, {"splits", "pixels", "prefetch"});
    expect_settings(channels, 1, {"row_tiles", "prefetch"});
  }
}

TEST(Parameters, OthersAreRefused) {
  Scene s(1);
  conv(s, {3, 100, 8, 9, 3}, 1);
  for (const std::string_view text : {"cpu.conv.u8s8.block.portable{rows=3}", "cpu.conv.u8s8.avx512vnni.jit{splits=2}",
                                      "cpu.conv.u8s8.avx512vnni.jit{prefetch=-1}", "cpu.conv.u8s8.avx512vnni.jit{row_tiles=x}"}) {
    const auto tactic = region::parse_tactic(text);
    ASSERT_TRUE(tactic) << text;
    for (const region::Provider* p : cpu::providers()) {
      if (p->knows(*tactic)) {
        EXPECT_FALSE(p->compile(s.region(), s.plan(), *tactic)) << text;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
