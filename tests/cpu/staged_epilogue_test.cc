// Row tiles whose second stage reads the first in its epilogue and has an anchor of its own: strides, windows, remainders of row tiles,
// images, threads, types between.
#include <gtest/gtest.h>

#include <functional>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "region/from_key.h"
#include "region/key.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

enum class Kind { conv, depthwise, max_pool, none };

/// A stage's own anchor; `kernel` also is the pooling's, padded by its half.
struct Made {
  Kind kind;
  std::int64_t channels_in, kernel, stride;
};
struct Case {
  std::int64_t n, c, h, w;  // of both results
  Made first, second;
  DType between;
};

/// An anchor over an input of its own whose result is `space`.
void set_anchor(Scene& s, region::Stage& stage, const Made& m, const ir::Shape& space) {
  stage.space = space;
  if (m.kind == Kind::none) return;
  const std::int64_t pad = m.kernel / 2;
  const auto extent = [&](std::int64_t out) { return (out - 1) * m.stride + m.kernel - 2 * pad; };
  const bool whole = m.kind == Kind::conv;
  const std::int64_t in = whole ? m.channels_in : space[1];
  stage.anchor.integer = true;
  stage.anchor.inputs = {s.nhwc(DType::u8, {space[0], in, extent(space[2]), extent(space[3])})};
  stage.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, s.pick(0, 255));
  stage.anchor.facts =
      ir::Window{.strides = {m.stride, m.stride}, .dilations = {1, 1}, .pads = {pad, pad, pad, pad}, .group = whole ? 1 : space[1]};
  if (m.kind == Kind::max_pool) {
    stage.anchor.op = ir::Op::max_pool;
    stage.anchor.as<ir::Window>().kernel = {m.kernel, m.kernel};
    stage.anchor.as<ir::Window>().group = 1;
    return;
  }
  stage.anchor.op = ir::Op::conv;
  stage.anchor.weights = s.tensor(DType::s8, {space[1], whole ? in : 1, m.kernel, m.kernel}, BufferKind::constant);
}

/// The accumulator, or operand 0 where there is none, as a float, scaled and shifted a channel.
int scaled(Scene& s, region::Stage& stage) {
  program::Program& p = stage.program;
  int v;
  if (stage.anchor.none()) {
    stage.operands.push_back({s.nhwc(DType::f32, stage.space), {}});
    v = p.load(Op::load_f, 0);
  } else {
    v = p.push(Op::i2f, p.push(Op::acc_i));
  }
  const auto channels = static_cast<std::size_t>(stage.space[1]);
  std::vector<float> scale(channels), bias(channels);
  for (auto& x : scale) x = 0.0005F * static_cast<float>(s.pick(1, 30));
  for (auto& x : bias) x = static_cast<float>(s.pick(-20, 20));
  const int first = static_cast<int>(stage.operands.size());
  stage.operands.push_back({s.constant_along(scale, stage.space, 1), {}});
  stage.operands.push_back({s.constant_along(bias, stage.space, 1), {}});
  return p.push(Op::fma, v, p.load(Op::load_f, first), p.load(Op::load_f, first + 1));
}

void store_codes(program::Program& p, int v) {
  v = p.push(Op::div, v, p.imm_f(0.37F));
  v = p.push(Op::min, p.push(Op::max, v, p.imm_f(-3)), p.imm_f(252));
  p.outputs.push_back({p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(3)), DType::u8});
}

/// Returns the buffer between the stages.
int set_up(Scene& s, const Case& c) {
  const ir::Shape space{c.n, c.c, c.h, c.w};
  region::Stage first, second;
  set_anchor(s, first, c.first, space);
  const int made = scaled(s, first);
  if (c.between == DType::u8) {
    store_codes(first.program, made);
  } else {
    first.program.outputs.push_back({made, DType::f32});
  }
  first.program.operand_count = static_cast<int>(first.operands.size());
  first.stores = {s.nhwc(c.between, space)};
  set_anchor(s, second, c.second, space);
  const int own = scaled(s, second);
  const int at = static_cast<int>(second.operands.size());
  second.operands.push_back({first.stores[0], {}});
  if (c.n == 1) second.operands.back().ref.strides[0] = 0;  // as the planner spells an operand
  program::Program& p = second.program;
  const int other = c.between == DType::u8 ? p.push(Op::i2f, p.load(Op::load_i, at)) : p.load(Op::load_f, at);
  store_codes(p, p.push(Op::add, own, other));
  p.operand_count = at + 1;
  second.stores = {s.nhwc(DType::u8, space, BufferKind::arena, 7)};
  s.region().stages = {first, second};
  return first.stores[0].buffer;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {1,
       256,
       9,
       56,
       {Kind::conv, 8, 1, 1},
       {Kind::conv, 16, 1, 1},
       DType::f32},  // a residual branch's convolution: 4 rows a row tile, one
                     // left
      {1, 512, 20, 14, {Kind::conv, 8, 1, 2}, {Kind::conv, 16, 1, 1}, DType::f32},  // strides on either side
      {1, 512, 20, 14, {Kind::conv, 8, 1, 1}, {Kind::conv, 16, 1, 2}, DType::f32},  // (9 rows a row tile, two left)
      {1, 100, 13, 61, {Kind::conv, 5, 3, 2}, {Kind::conv, 7, 1, 3}, DType::f32},   // windows and odd extents
      {1, 100, 13, 61, {Kind::conv, 5, 1, 1}, {Kind::conv, 7, 3, 1}, DType::f32},   // a window outside the chain
      {1, 96, 14, 64, {Kind::depthwise, 0, 3, 1}, {Kind::conv, 24, 1, 1}, DType::f32},
      {1, 96, 14, 64, {Kind::conv, 24, 1, 1}, {Kind::depthwise, 0, 5, 2}, DType::f32},
      {1, 160, 13, 40, {Kind::max_pool, 0, 3, 2}, {Kind::conv, 24, 1, 1}, DType::f32},
      {1, 160, 13, 40, {Kind::none, 0, 1, 1}, {Kind::conv, 24, 1, 1}, DType::f32},
      {1, 160, 13, 40, {Kind::conv, 24, 1, 1}, {Kind::none, 0, 1, 1}, DType::f32},  // no anchor at all above
      {3, 128, 11, 56, {Kind::conv, 8, 1, 1}, {Kind::conv, 16, 1, 2}, DType::f32},  // images
      {2, 256, 20, 56, {Kind::conv, 8, 3, 1}, {Kind::conv, 16, 1, 1}, DType::u8},   // codes between
      {1, 16, 3, 5, {Kind::conv, 8, 1, 1}, {Kind::conv, 16, 1, 1}, DType::f32},     // one row tile
  };
  return all;
}

class StagedEpilogue : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, StagedEpilogue, ::testing::Values(1, 2, 3));

TEST_P(StagedEpilogue, RowTilesEqualTheWhole) {
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    Scene s(seed++);
    const int between = set_up(s, c);
    s.plan().threads = GetParam();
    const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
    ASSERT_EQ(offers.size(), 1U) << seed;
    EXPECT_EQ(spelled(offers[0].refusal), "") << seed;
    ASSERT_EQ(offers[0].tactic.name().rfind("cpu.staged.row_tiles@2(cpu.", 0), 0U) << offers[0].tactic.name();
    EXPECT_EQ(s.compare(cpu::cpu_provider(), offers[0].tactic.name(), 0, between), "") << "case " << seed - 2;
  }
}

TEST(StagedEpilogues, EveryInstructionSet) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    setenv("OCTAVO_CPU", isa, 1);
    for (const std::size_t k : {std::size_t{1}, std::size_t{4}, std::size_t{6}}) {
      Scene s(9);
      const int between = set_up(s, cases()[k]);
      const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
      ASSERT_EQ(offers.size(), 1U);
      EXPECT_EQ(s.compare(cpu::cpu_provider(), offers[0].tactic.name(), 0, between), "") << isa << " case " << k;
    }
    unsetenv("OCTAVO_CPU");
  }
}

std::string refusal_of(Scene& s) {
  const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
  return offers.size() == 1 ? spelled(offers[0].refusal) : "no offer, or several";
}

TEST(StagedEpilogues, RefusesWhatItCannotForward) {
  const auto after = [](const std::function<void(Scene&, std::vector<region::Stage>&)>& change) {
    Scene s(3);
    set_up(s, cases()[0]);
    change(s, s.region().stages);
    return refusal_of(s);
  };
  const auto of = [](const char* property, auto has, const char* needs) { return spelled(region::unmet(property, has, needs)); };
  EXPECT_EQ(after([](auto&, auto&) {}), "");
  EXPECT_EQ(after([](Scene& s, auto& st) { st[1].operands.back().ref = s.nhwc(DType::f32, st[1].space); }),
            of("connections of a stage", "0", "1 or more: it reads another stage's result, or another stage reads its result"));
  EXPECT_EQ(after([](Scene&, auto& st) {
              st[1].operands.push_back(st[1].operands.back());
              ++st[1].program.operand_count;
            }),
            "")
      << "read twice";
  EXPECT_EQ(after([](Scene&, auto& st) {
              st[1].operands.back().div = {1, 1, 2, 1};
            }),
            of("repetition of an operand along the height", 2, "1"));
  EXPECT_EQ(after([](Scene&, auto& st) {
              st[1].operands.back().div = {1, 1, 1, 2};
            }),
            of("a result that a stage reads", "repeated", "read as it is stored"));
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(
      contains(after([](Scene&, auto& st) { st[1].operands.back().ref.offset += 4; }), "at another place than it is stored"));
  EXPECT_TRUE(contains(
      after([](Scene&, auto& st) { std::swap(st[1].operands.back().ref.strides[2], st[1].operands.back().ref.strides[3]); }),
      "at another place than it is stored"));
  EXPECT_TRUE(contains(after([](Scene&, auto& st) { st[1].operands.back().ref.dtype = DType::s32; }),
                       "stage 1 reads as s32 what stage 0 stores as f32"));
}

TEST(StagedEpilogues, TheKeyTellsWhatIsForwarded) {
  for (const Case& c : cases()) {
    Scene s(5);
    set_up(s, c);
    const std::string chain = region::key(s.region(), s.plan());
    EXPECT_NE(chain.find(", stage0:"), std::string::npos) << chain;
    region::Region other = s.region();
    other.stages[1].operands.back().ref = s.nhwc(c.between, other.stages[1].space);
    EXPECT_NE(region::key(other, s.plan()), chain);
    const auto back = region::plan_from_key(chain, 1);
    ASSERT_TRUE(back) << back.error().message;
    const auto& stages = back->regions[0].stages;
    EXPECT_EQ(stages[1].operands.back().ref.buffer, stages[0].stores[0].buffer);
    if (!stages[1].anchor.none()) {
      EXPECT_NE(stages[1].anchor.inputs[0].buffer, stages[0].stores[0].buffer);
    }
    const auto offers = cpu::cpu_provider().offers(back->regions[0], *back);
    ASSERT_EQ(offers.size(), 1U);
    EXPECT_EQ(spelled(offers[0].refusal), "");
  }
  const auto wrong = region::plan_from_key("pointwise : load_f, stage0:f32[1,4,4,4] > f32[1,4,4,4]", 1);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("is not a result of a stage before it"), std::string::npos) << wrong.error().message;
}

}  // namespace
}  // namespace octavo::testing
