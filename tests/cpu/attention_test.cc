// Attention in tiles of queries, against its three operators one after the other by their own tactics (bit for bit) and against the
// reference (within the tolerance of float sums), over shapes around the tiles: 16, 32 and 64 queries, 6 rows of a product, 16 columns of a panel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

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

class Attention : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.f32.queries.") + GetParam(); }
  /// The same bits as the three apart.
  static std::string apart(Scene& s) {
    const std::string isa = GetParam(), product = "cpu.matmul.f32.rows." + isa + "@2";
    s.apart = {product, "cpu.softmax.block." + isa, product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
  static std::string by_reference(Scene& s) {
    s.apart.clear();
    return s.compare(cpu::cpu_provider(), tactic(), 1e-4F);
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, Attention, ::testing::Values("portable", "avx2", "avx512"));

const std::vector<int> kHeadsBetween{0, 2, 1, 3}, kTurned{0, 1, 3, 2}, kTurnedBetween{0, 3, 1, 2};

struct Sizes {
  std::int64_t batch, heads, queries, keys, features, columns;
};
/// What the programs do beside passing on: sums are scaled by `scale` (1: not), a mask [keys] or [queries, keys] is added, and the
/// probabilities are rounded to codes.
struct Programs {
  float scale = 1;
  bool divides = false;
  enum { none, keys, whole } mask = none;
  bool rounds = false;
};

int rounded(program::Program& p, int v, float scale) {
  v = p.push(Op::nan0, p.push(Op::div, v, p.imm_f(scale)));
  v = p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(-128)), p.imm_f(127)));
  return p.push(Op::mul, p.imm_f(scale), p.push(Op::i2f, v));
}

/// Strides as exporters leave them where `between`: heads lie between rows, and the keys are stored like the queries.
void set(Scene& s, const Sizes& n, const Programs& programs, bool between, float scale = 2.0F) {
  const std::vector<int> plain;
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const auto matrix = [&](Shape dims, const std::vector<int>& order) {
    return s.tensor(DType::f32, std::move(dims), BufferKind::arena, order, 0, scale);
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.inputs = {matrix({n.batch, n.heads, n.queries, n.features}, between ? kHeadsBetween : plain),
                          matrix({n.batch, n.heads, n.features, n.keys}, between ? kTurnedBetween : plain)};
  auto& p = scores.program;
  int v = p.push(Op::acc_f);
  if (programs.scale != 1) v = p.push(programs.divides ? Op::div : Op::mul, v, p.imm_f(programs.scale));
  if (programs.rounds) v = rounded(p, v, 0.05F);
  if (programs.mask != Programs::none) {
    const bool whole = programs.mask == Programs::whole;
    region::TensorRef mask = matrix(whole ? Shape{n.batch, 1, n.queries, n.keys} : Shape{n.batch, 1, 1, n.keys}, plain);
    mask.dims = scores.space;
    mask.strides = {whole ? n.queries * n.keys : n.keys, 0, whole ? n.keys : 0, 1};
    scores.operands.push_back({mask, {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  p.outputs = {{v, DType::f32}};
  scores.stores = {matrix(scores.space, plain)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& q = softmax.program;
  q.outputs = {{programs.rounds ? rounded(q, q.push(Op::acc_f), 1.0F / 255) : q.push(Op::acc_f), DType::f32}};
  softmax.stores = {matrix(scores.space, plain)};

  product.anchor.inputs = {softmax.stores[0], matrix({n.batch, n.heads, n.keys, n.columns}, between ? kHeadsBetween : plain)};
  auto& o = product.program;
  o.outputs = {{programs.rounds ? rounded(o, o.push(Op::acc_f), 0.02F) : o.push(Op::acc_f), DType::f32}};
  product.stores = {matrix(product.space, between ? kHeadsBetween : plain)};
}

/// Overwrites element `at` of a tensor's buffer.
void put(Scene& s, const region::TensorRef& t, std::int64_t at, float value) {
  std::memcpy(s.memory[static_cast<std::size_t>(t.buffer)].data() + 64 + at * 4, &value, 4);
}

TEST_P(Attention, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65}) {
    for (const std::int64_t keys : {1, 5, 6, 7, 40}) {
      for (const std::int64_t features : {1, 8, 19}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        set(s, {2, 3, queries, keys, features, columns}, {seed % 2 == 0 ? 8.0F : 0.3F, seed % 4 < 2}, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
        if (seed % 4 == 0) EXPECT_RUNS(by_reference(s));
      }
    }
  }
}

TEST_P(Attention, ProgramsRunWhereTheyRan) {
  std::uint32_t seed = 100;
  for (const auto mask : {Programs::none, Programs::keys, Programs::whole}) {
    for (const bool rounds : {false, true}) {
      for (const float scale : {1.0F, 0.125F, 0.3F, -8.0F}) {
        for (const std::int64_t queries : {5, 16, 37}) {
          Scene s(seed++);
          set(s, {2, 2, queries, 41, 24, 32}, {scale, seed % 2 == 0, mask, rounds}, true);
          EXPECT_RUNS(apart(s));
          EXPECT_RUNS(by_reference(s));
        }
      }
    }
  }
}

TEST_P(Attention, TilesOfOtherSizes) {
  std::uint32_t seed = 200;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, {1, 2, queries, 50, 16, 80}, {2.0F, true, seed % 2 == 0 ? Programs::whole : Programs::none, false}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// Keys that a mask forbids, rows where it forbids all, and what is no number, as the three operators treat them.
TEST_P(Attention, Extremes) {
  std::uint32_t seed = 300;
  for (const std::int64_t queries : {16, 19}) {
    for (const int kind : {0, 1, 2, 3, 4}) {
      Scene s(seed++);
      const Sizes n{1, 2, queries, 40, 8, 16};
      set(s, n, {0.125F, false, Programs::whole, false}, true, kind == 4 ? 3e19F : 2.0F);
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

/// What it is not made for is refused with the reason.
TEST_P(Attention, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, {1, 2, 20, 24, 8, 16}, {}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_EQ(refused([](Scene&) {}), "");
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[2].anchor.inputs[0] = s.tensor(DType::f32, {1, 2, 20, 24});
            }).find("read within"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { set(s, {1, 1, 2, 20000, 1, 1}, {}, false); }).find("which scratch holds"), std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[0].operands.push_back({s.tensor(DType::f32, {1, 2, 5, 24}), {1, 1, 4, 1}});
            }).find("repetition of an operand"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
