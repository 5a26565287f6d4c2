// Generated code that kernels share: equal layers have one, and nobody gets the code of another layer.
#include "cpu/code_shelf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "cpu/amx_emulated.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

struct Layer {
  std::int64_t n = 1, c = 32, h = 9, w = 9, o = 48, kernel = 1, stride = 1;
  std::int32_t zero = 7;
  bool relu = false;
  bool depthwise = false;
};

void build(Scene& s, const Layer& k, bool floats) {
  auto& st = s.stage();
  auto& a = st.anchor;
  const std::int64_t pad = k.kernel / 2;
  a.op = ir::Op::conv;
  a.integer = !floats;
  a.facts = testing::facts(a.op, {{"strides", std::vector<std::int64_t>{k.stride, k.stride}},
                                  {"pads", std::vector<std::int64_t>{pad, pad, pad, pad}},
                                  {"dilations", std::vector<std::int64_t>{1, 1}},
                                  {"group", k.depthwise ? k.c : std::int64_t{1}}});
  auto x = s.nhwc(floats ? DType::f32 : DType::u8, {k.n, k.c, k.h, k.w}, BufferKind::arena);
  if (!floats) x.quantizer = ir::per_tensor(DType::u8, 0.02F, k.zero);
  a.inputs = {x};
  a.weights = s.tensor(floats ? DType::f32 : DType::s8, {k.depthwise ? k.c : k.o, k.depthwise ? 1 : k.c, k.kernel, k.kernel},
                       BufferKind::constant);
  const auto out = [&](std::int64_t size) { return (size + 2 * pad - k.kernel) / k.stride + 1; };
  st.space = {k.n, k.depthwise ? k.c : k.o, out(k.h), out(k.w)};
  s.plan().threads = 2;
  if (floats) {
    auto& p = st.program;
    int v = p.push(program::Op::acc_f);
    if (k.relu) v = p.push(program::Op::max, v, p.imm_f(0));
    p.outputs = {{v, DType::f32}};
  } else {
    s.requantize(1, k.relu ? 2e-4F : 3e-4F);
  }
  st.stores = {s.nhwc(floats ? DType::f32 : DType::u8, st.space)};
}

/// The kernel and what it was made of.
struct Loaded {
  region::Artifact made;
  std::unique_ptr<region::Kernel> kernel;
};

Loaded load(Scene& s, const region::Provider& provider, const std::string& tactic) {
  Loaded out;
  region::Region& r = s.region();
  const auto wanted = region::parse_tactic(tactic);
  for (const region::Offer& o : provider.offers(r, s.plan())) {
    region::Tactic offered = o.tactic;
    offered.version = wanted->version;
    if (o.refusal.empty() && region::selects(*wanted, offered)) r.tactic = o.tactic;
  }
  auto made = provider.compile(r, s.plan(), r.tactic);
  if (!made) return out;
  out.made = std::move(*made);
  std::vector<const std::byte*> at;
  region::Plan with_packed = s.plan();
  for (const ir::Tensor& t : out.made.constants) {
    region::Buffer& b = with_packed.buffers.emplace_back();
    b.kind = BufferKind::constant;
    b.bytes = static_cast<std::int64_t>(t.bytes().size());
    r.packed.push_back(static_cast<region::BufferId>(with_packed.buffers.size() - 1));
    at.push_back(t.bytes().data());
  }
  auto kernel = provider.load(r, with_packed, {at, {}, {}});
  EXPECT_TRUE(kernel) << kernel.error().message;
  if (kernel) out.kernel = std::move(*kernel);
  return out;
}

struct Case {
  const region::Provider& provider;
  std::string tactic;
  bool floats;
  bool depthwise = false;
};
std::vector<Case> cases() {
  return {{cpu::cpu_provider(), "cpu.conv.u8s8.avx512vnni.jit", false},
          {emulated_amx_provider(), "cpu.conv.u8s8.amx", false},
          {cpu::cpu_provider(), "cpu.conv.f32.avx512.jit", true},
          {cpu::cpu_provider(), "cpu.depthwise.u8s8.avx512vnni.jit", false, true}};
}
float tolerance_of(const Case& c) {
  return c.floats ? 1e-3F : 0;
}

TEST(CodeShelf, EqualLayersHaveOneCode) {
  for (const Case& c : cases()) {
    cpu::CodeShelf shelf;
    const cpu::ShelfScope sharing(shelf);
    Scene first(1), second(2), narrower(3);
    const Layer layer{.h = 20, .w = 20, .kernel = 3, .depthwise = c.depthwise};
    Layer other = layer;
    (c.depthwise ? other.c : other.o) = 40;
    build(first, layer, c.floats), build(second, layer, c.floats), build(narrower, other, c.floats);
    const Loaded kept = load(first, c.provider, c.tactic);
    if (kept.kernel == nullptr) GTEST_SKIP() << c.tactic;
    const std::size_t made = shelf.made();
    EXPECT_EQ(made, 1U) << c.tactic;
    EXPECT_EQ(second.compare(c.provider, c.tactic, tolerance_of(c)), "") << c.tactic;  // other weights
    EXPECT_EQ(shelf.made(), made) << c.tactic;
    EXPECT_EQ(narrower.compare(c.provider, c.tactic, tolerance_of(c)), "") << c.tactic;
    EXPECT_GT(shelf.made(), made) << c.tactic;
  }
}

// All kernels so far are alive, so that a layer finds any code that its key does not tell from its own.
TEST(CodeShelf, EachLayerComputesItsOwn) {
  for (const Case& c : cases()) {
    cpu::CodeShelf shelf;
    const cpu::ShelfScope sharing(shelf);
    std::vector<Loaded> kept;
    std::vector<std::unique_ptr<Scene>> scenes;
    std::size_t layers = 0;
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
      std::mt19937 random(seed);
      const auto of = [&](std::initializer_list<std::int64_t> list) { return list.begin()[random() % list.size()]; };
      Layer k{of({1, 1, 3}),         of({16, 32, 64, 200}), of({1, 4, 13, 20}), of({1, 5, 8, 20}),
              of({16, 24, 64, 112}), of({1, 1, 3}),         of({1, 1, 2}),      static_cast<std::int32_t>(of({0, 7})),
              random() % 2 == 0};
      if (c.depthwise) k.depthwise = true, k.kernel = 3;
      Scene checked(seed);
      build(checked, k, c.floats);
      const std::string why = checked.compare(c.provider, c.tactic, tolerance_of(c));
      if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
      ASSERT_EQ(why, "") << fmt::format("{}, seed {}: {}x{}x{}x{} to {}, kernel {}, stride {}, zero {}, {}", c.tactic, seed, k.n,
                                        k.c, k.h, k.w, k.o, k.kernel, k.stride, k.zero, k.relu);
      scenes.push_back(std::make_unique<Scene>(seed));
      build(*scenes.back(), k, c.floats);
      kept.push_back(load(*scenes.back(), c.provider, c.tactic));
      ASSERT_NE(kept.back().kernel, nullptr);
      layers += 2;
    }
    EXPECT_LT(shelf.made(), layers) << c.tactic;
    EXPECT_GT(shelf.made(), 20U) << c.tactic;
  }
}

TEST(CodeShelf, KeepsNothingThatNobodyHas) {
  cpu::CodeShelf shelf;
  const auto make = [] { return std::shared_ptr<const int>(std::make_shared<int>(7)); };
  auto seven = shelf.get(std::string("a"), 1, make);
  EXPECT_EQ(shelf.get(std::string("a"), 1, make), seven);
  EXPECT_NE(shelf.get(std::string("b"), 1, make), seven);  // a key of the same hash
  EXPECT_NE(shelf.get(1, 1, make), seven);                 // a key of another kind
  EXPECT_EQ(shelf.made(), 3U);
  const std::weak_ptr<const int> gone = seven;
  seven.reset();
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(*shelf.get(std::string("a"), 1, make), 7);
  EXPECT_EQ(shelf.made(), 4U);
}

}  // namespace
}  // namespace octavo::testing
