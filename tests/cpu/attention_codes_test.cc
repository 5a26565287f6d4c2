// Attention on 8-bit codes in tiles of queries, by name on each level, against its three operators one after the other by their own tactics: bit for bit, over
// shapes around the tiles (16, 32 and 64 queries, 16 rows and 64 codes of an AMX tile), zero points, ties of both roundings, and every form of program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

struct Sizes {
  std::int64_t batch, heads, queries, keys, features, columns;
};
/// What the programs do: sums count in `unit`, may be rounded in steps of `step`, may be divided by or multiplied with a number, and a mask may be added;
/// probabilities are rounded in steps of `probability`, after a product with a number where `scaled`.
struct Forms {
  float unit = 0.01F, step = 0;
  enum { nothing, product, quotient } after = nothing;
  float by = 1;
  bool mask = false, scaled = false;
  float probability = 1.0F / 255;
  std::array<std::int32_t, 4> zero{128, 128, 128, 128};  ///< of queries, keys, probabilities, values
};

class AttentionCodes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.u8u8.queries.") + GetParam(); }
  static std::string apart(Scene& s) {
    const std::string isa = GetParam(), product = "cpu.matmul.u8u8.rows." + isa;
    const std::string block = isa == "amx" || isa == "avx512vnni" ? "avx512" : isa;
    s.apart = {product, "cpu.softmax.block." + block, product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionCodes, ::testing::Values("portable", "avx2", "avx512vnni", "amx"));

int clamped(program::Program& p, int v, float step, float lo, float hi) {
  v = p.push(Op::nan0, p.push(Op::div, v, p.imm_f(step)));
  return p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(lo)), p.imm_f(hi)));
}

void set(Scene& s, const Sizes& n, const Forms& forms, bool between) {
  const std::vector<int> heads_between = between ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{},
                         turned_between = between ? std::vector<int>{0, 3, 1, 2} : std::vector<int>{};
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const auto codes = [&](Shape dims, const std::vector<int>& order, std::int32_t zero) {
    region::TensorRef t = s.tensor(DType::u8, std::move(dims), BufferKind::arena, order);
    t.quantizer = ir::Quantizer{};
    t.quantizer->type = DType::u8;
    t.quantizer->scale = {0.1F};
    t.quantizer->zero_point = {zero};
    return t;
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.integer = product.anchor.integer = true;
  scores.anchor.inputs = {codes({n.batch, n.heads, n.queries, n.features}, heads_between, forms.zero[0]),
                          codes({n.batch, n.heads, n.features, n.keys}, turned_between, forms.zero[1])};
  auto& p = scores.program;
  int v = p.push(Op::mul, p.imm_f(forms.unit), p.push(Op::i2f, p.push(Op::acc_i)));
  if (forms.step > 0) {
    v = p.push(Op::sub_i, p.push(Op::add_i, clamped(p, v, forms.step, -128, 127), p.imm_i(128)), p.imm_i(128));
    v = p.push(Op::mul, p.imm_f(forms.step), p.push(Op::i2f, v));
  }
  if (forms.after != Forms::nothing) v = p.push(forms.after == Forms::product ? Op::mul : Op::div, v, p.imm_f(forms.by));
  if (forms.mask) {
    region::TensorRef mask = s.tensor(DType::f32, {n.batch, 1, n.queries, n.keys});
    mask.dims = scores.space;
    mask.strides = {n.queries * n.keys, 0, n.keys, 1};
    scores.operands.push_back({mask, {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  p.outputs = {{v, DType::f32}};
  scores.stores = {s.tensor(DType::f32, scores.space)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& q = softmax.program;
  int e = q.push(Op::acc_f);
  if (forms.scaled) e = q.push(Op::mul, e, q.imm_f(0.7F));
  const std::int32_t zero = forms.zero[2];
  e = clamped(q, e, forms.probability, static_cast<float>(-zero), static_cast<float>(255 - zero));
  q.outputs = {{zero == 0 ? e : q.push(Op::add_i, e, q.imm_i(zero)), DType::u8}};
  softmax.stores = {codes(scores.space, {}, zero)};

  product.anchor.inputs = {softmax.stores[0], codes({n.batch, n.heads, n.keys, n.columns}, heads_between, forms.zero[3])};
  auto& o = product.program;
  const int sum = o.push(Op::mul, o.imm_f(0.001F), o.push(Op::i2f, o.push(Op::acc_i)));
  o.outputs = {{o.push(Op::add_i, clamped(o, sum, 0.05F, -128, 127), o.imm_i(128)), DType::u8}};
  product.stores = {codes(product.space, heads_between, 128)};
}

void fill(Scene& s, const region::TensorRef& t, int code) {
  std::memset(s.memory[static_cast<std::size_t>(t.buffer)].data() + 64, code, static_cast<std::size_t>(ir::count(t.dims)));
}

TEST_P(AttentionCodes, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65}) {
    for (const std::int64_t keys : {1, 5, 16, 17, 66}) {
      for (const std::int64_t features : {1, 8, 19, 64, 65}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        Forms forms;
        forms.unit = 0.01F / static_cast<float>(features);
        forms.step = seed % 2 == 0 ? 0.05F : 0;
        forms.after = seed % 3 == 0 ? Forms::quotient : Forms::nothing;
        forms.by = seed % 4 == 0 ? 8.0F : 5.6568542F;
        set(s, {2, 3, queries, keys, features, columns}, forms, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
      }
    }
  }
}

TEST_P(AttentionCodes, EveryForm) {
  std::uint32_t seed = 200;
  for (const float step : {0.0F, 0.03F, 0.0625F}) {
    for (const auto after : {Forms::nothing, Forms::product, Forms::quotient}) {
      for (const float by : {8.0F, 0.17677669F, -3.0F}) {
        for (const int more : {0, 1, 2}) {
          for (const float probability : {1.0F / 255, 0.00046258303F, 0.0078125F}) {
            Scene s(seed++);
            Forms forms;
            forms.unit = seed % 2 == 0 ? 0.0004F : step / 2;  // the second: every other sum is a tie
            if (forms.unit == 0) forms.unit = 0.0004F;
            forms.step = step, forms.after = after, forms.by = by;
            forms.mask = more == 1, forms.scaled = more == 2, forms.probability = probability;
            set(s, {1, 2, 21, 40, 24, 18}, forms, true);
            EXPECT_RUNS(apart(s));
          }
        }
      }
    }
  }
}

TEST_P(AttentionCodes, ZeroPoints) {
  std::uint32_t seed = 400;
  for (const auto& zero : {std::array{0, 255, 0, 255}, {255, 0, 255, 0}, {128, 3, 0, 128}, {7, 128, 1, 250}}) {
    for (const std::int64_t queries : {16, 19}) {
      Scene s(seed++);
      Forms forms;
      forms.unit = 0.0001F;
      forms.zero = zero;
      set(s, {2, 2, queries, 70, 33, 20}, forms, seed % 2 == 0);
      EXPECT_RUNS(apart(s));
    }
  }
}

/// All keys alike: probabilities of 1 / keys, which are ties of codes for two, and none but one key.
TEST_P(AttentionCodes, TiesOfProbabilities) {
  std::uint32_t seed = 500;
  for (const std::int64_t keys : {1, 2, 3, 4, 6, 10, 34, 102, 170}) {
    for (const float probability : {1.0F / 255, 1.0F / 127, 2.0F / 255, 1e-30F, 1e30F}) {
      Scene s(seed++);
      Forms forms;
      forms.probability = probability;
      forms.zero[2] = seed % 2 == 0 ? 0 : 128;
      set(s, {1, 1, 18, keys, 16, 16}, forms, false);
      fill(s, s.region().stages[0].anchor.inputs[1], 128);
      EXPECT_RUNS(apart(s));
    }
  }
}

TEST_P(AttentionCodes, TilesOfOtherSizes) {
  std::uint32_t seed = 600;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, {1, 2, queries, 50, 16, 80}, {0.0003F}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// What it is not made for is refused with the reason.
TEST_P(AttentionCodes, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, {1, 2, 20, 24, 8, 16}, {}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { s.region().stages[0].anchor.inputs[0].quantizer.reset(); }).find("u8 codes with one scale"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { s.region().stages[0].anchor.integer = false; }).find("the probabilities are codes too"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
