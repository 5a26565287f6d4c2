// Attention on bfloat16 in tiles of queries, by name on each level, against its three operators one after the other by their own tactics (bit for bit)
// and against the reference, over shapes around the tiles: 16, 32 and 64 queries, 12 and 16 rows of a product, 32 elements of a tile's depth.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

class AttentionBf16 : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.bf16.queries.") + GetParam(); }
  /// The same bits as the three apart.
  static std::string apart(Scene& s) {
    const std::string product = std::string("cpu.matmul.bf16.rows.") + GetParam();
    s.apart = {product, "cpu.softmax.block.avx512", product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
  /// A score in another order of its sum may round a probability to the next bfloat16.
  static std::string by_reference(Scene& s) {
    s.apart.clear();
    return s.compare(cpu::cpu_provider(), tactic(), 5e-3F);
  }
};
INSTANTIATE_TEST_SUITE_P(Level, AttentionBf16, ::testing::Values("avx512bf16", "amx"));

const std::vector<int> kHeadsBetween{0, 2, 1, 3}, kTurned{0, 1, 3, 2}, kTurnedBetween{0, 3, 1, 2};

struct Sizes {
  std::int64_t batch, heads, queries, keys, features, columns;
};
/// What the programs do: sums are scaled by `scale` (1: not), a mask [keys] or [queries, keys] is added, probabilities are multiplied with a number where
/// `scaled` or rounded where `rounded`, as the planner writes it, and results are stored in bfloat16 where `small`.
struct Programs {
  float scale = 0.125F;
  bool divides = false;
  enum { none, keys, whole } mask = none;
  bool scaled = false, small = false, rounded = false;
};

/// Strides as exporters leave them where `between`: heads lie between rows, and the keys are stored like the queries.
void set(Scene& s, const Sizes& n, const Programs& programs, bool between, float scale = 2.0F) {
  const std::vector<int> plain;
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const auto matrix = [&](DType type, Shape dims, const std::vector<int>& order) {
    return s.tensor(type, std::move(dims), BufferKind::arena, order, 0, scale);
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.inputs = {matrix(DType::bf16, {n.batch, n.heads, n.queries, n.features}, between ? kHeadsBetween : plain),
                          matrix(DType::bf16, {n.batch, n.heads, n.features, n.keys}, between ? kTurnedBetween : plain)};
  auto& p = scores.program;
  int v = p.push(Op::acc_f);
  if (programs.scale != 1) v = p.push(programs.divides ? Op::div : Op::mul, v, p.imm_f(programs.scale));
  if (programs.mask != Programs::none) {
    const bool whole = programs.mask == Programs::whole;
    region::TensorRef mask = matrix(DType::f32, whole ? Shape{n.batch, 1, n.queries, n.keys} : Shape{n.batch, 1, 1, n.keys}, plain);
    mask.dims = scores.space;
    mask.strides = {whole ? n.queries * n.keys : n.keys, 0, whole ? n.keys : 0, 1};
    scores.operands.push_back({mask, {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  p.outputs = {{v, DType::f32}};
  scores.stores = {matrix(DType::f32, scores.space, plain)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& q = softmax.program;
  int e = q.push(Op::acc_f);
  if (programs.scaled) e = q.push(Op::mul, e, q.imm_f(0.7F));
  if (programs.rounded) e = q.push(Op::to_bf16, e);
  q.outputs = {{e, DType::bf16}};
  softmax.stores = {matrix(DType::bf16, scores.space, plain)};

  product.anchor.inputs = {softmax.stores[0],
                           matrix(DType::bf16, {n.batch, n.heads, n.keys, n.columns}, between ? kHeadsBetween : plain)};
  auto& o = product.program;
  const DType stored = programs.small ? DType::bf16 : DType::f32;
  o.outputs = {{o.push(Op::acc_f), stored}};
  product.stores = {matrix(stored, product.space, between ? kHeadsBetween : plain)};
}

/// Overwrites element `at` of a tensor's buffer.
void put(Scene& s, const region::TensorRef& t, std::int64_t at, float value) {
  std::byte* const bytes = s.memory[static_cast<std::size_t>(t.buffer)].data() + 64;
  const std::uint16_t small = f32_to_bf16(value);
  if (t.dtype == DType::bf16) std::memcpy(bytes + at * 2, &small, 2);
  if (t.dtype == DType::f32) std::memcpy(bytes + at * 4, &value, 4);
}

TEST_P(AttentionBf16, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65, 197}) {
    for (const std::int64_t keys : {1, 12, 15, 16, 17, 197}) {
      for (const std::int64_t features : {1, 31, 32, 33, 64}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        set(s, {1, 2, queries, keys, features, columns},
            {seed % 2 == 0 ? 8.0F : 0.3F, seed % 4 < 2, Programs::none, false, seed % 3 == 0, seed % 2 == 0}, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
        if (seed % 4 == 0) EXPECT_RUNS(by_reference(s));
      }
    }
  }
}

TEST_P(AttentionBf16, ProgramsRunWhereTheyRan) {
  std::uint32_t seed = 300;
  for (const auto mask : {Programs::none, Programs::keys, Programs::whole}) {
    for (const bool scaled : {false, true}) {
      for (const float scale : {1.0F, 0.125F, 0.3F, -8.0F}) {
        for (const std::int64_t queries : {5, 16, 37}) {
          Scene s(seed++);
          set(s, {2, 2, queries, 41, 24, 32}, {scale, scale != 1 && seed % 2 == 0, mask, scaled, seed % 3 == 0, seed % 4 == 1},
              true, 1.0F);
          EXPECT_RUNS(apart(s));
          EXPECT_RUNS(by_reference(s));
        }
      }
    }
  }
}

TEST_P(AttentionBf16, TilesOfOtherSizes) {
  std::uint32_t seed = 400;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, {1, 2, queries, 50, 16, 80}, {0.125F, false, seed % 2 == 0 ? Programs::whole : Programs::none}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// Keys that a mask forbids, rows where it forbids all, what is no number, and scores so far apart that probabilities are 0.
TEST_P(AttentionBf16, Extremes) {
  std::uint32_t seed = 500;
  for (const std::int64_t queries : {16, 19}) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      for (const std::int64_t keys : {39, 40}) {
        Scene s(seed++);
        const Sizes n{1, 2, queries, keys, 9, 16};
        set(s, n, {0.125F, false, Programs::whole}, true, kind == 4 ? 3e18F : kind == 5 ? 40.0F : 2.0F);
        const auto& stages = s.region().stages;
        const region::TensorRef& mask = stages[0].operands[0].ref;
        for (std::int64_t q = 0; q < n.queries && kind <= 1; ++q) {
          for (std::int64_t k = kind == 1 && q == 3 ? 0 : q + 1; k < n.keys; ++k)
            put(s, mask, q * n.keys + k, -kInf);  // causal; nothing for query 3
        }
        if (kind == 2) put(s, stages[0].anchor.inputs[0], 21, kNan), put(s, stages[2].anchor.inputs[1], 5, kInf);
        if (kind == 3) put(s, stages[0].anchor.inputs[1], 7, kInf), put(s, mask, 2, -1e30F), put(s, mask, 50, kInf);
        EXPECT_RUNS(apart(s));
      }
    }
  }
}

/// Probabilities of 1 / keys, and of small numbers of equal scores: many are ties of bfloat16 or close to one.
TEST_P(AttentionBf16, TiesOfProbabilities) {
  std::uint32_t seed = 600;
  for (const std::int64_t keys : {1, 2, 3, 5, 7, 10, 34, 102, 129, 170, 255, 256, 257, 258, 514, 771}) {
    Scene s(seed++);
    set(s, {1, 1, 18, keys, 4, 16}, {}, false);
    const region::TensorRef& k = s.region().stages[0].anchor.inputs[1];
    for (std::int64_t i = 0; i < ir::count(k.dims); ++i) put(s, k, i, 0.25F);
    EXPECT_RUNS(apart(s));
  }
}

/// What it is not made for is refused with the reason.
TEST_P(AttentionBf16, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, {1, 2, 20, 24, 8, 16}, {}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[2].anchor.inputs[1] = s.tensor(DType::f32, {1, 2, 24, 16});
            }).find("type of a matrix"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { set(s, {1, 1, 2, 20000, 1, 1}, {}, false); }).find("which scratch holds"), std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
