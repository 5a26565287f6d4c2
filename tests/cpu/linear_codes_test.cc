// cpu.linear.f32.codes.* against brute force on the floats that the codes stand for: rows around those that are multiplied while codes are unpacked
// (8) and around those of a task (192), columns around a group (16) and a tile of four, depths around a step of two codes, a block and
// the 64 rows of weights that are unpacked at a time. Sums are in another order than the brute force's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "ir/block_codes.h"
#include "support/facts.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

constexpr float kTolerance = 2e-5F;
constexpr std::size_t kGuard = 64;

struct Case {
  std::int64_t m = 1, n = 16, k = 32;
  int bits = 4;
  std::int64_t block = 32;
  enum Zeros { usual, several, fractions } zeros = usual;
  bool bias = false, gap = false;
};

std::string text(const Case& c) {
  return fmt::format("m{} n{} k{} {} bits, blocks of {}, zeros {}, bias {}, gap {}", c.m, c.n, c.k, c.bits, c.block,
                     static_cast<int>(c.zeros), c.bias, c.gap);
}

ir::BlockCodes random_codes(Scene& s, const Case& c) {
  const std::int64_t blocks = (c.k + c.block - 1) / c.block;
  ir::BlockCodes out{c.bits, c.block, ir::Tensor(DType::u8, {c.n, c.k}), ir::Tensor(DType::f32, {c.n, blocks}),
                     ir::Tensor(DType::f32, {c.n, blocks})};
  const int most = (1 << c.bits) - 1;
  for (std::uint8_t& code : out.codes.mutable_data<std::uint8_t>()) {
    const int kind = s.pick(0, 5);
    code = static_cast<std::uint8_t>(kind == 0 ? 0 : kind == 1 ? most : s.pick(0, most));
  }
  for (float& scale : out.scales.mutable_data<float>()) scale = static_cast<float>(s.pick(-100, 100)) * 0.0004F;
  for (float& zero : out.zeros.mutable_data<float>()) {
    zero = c.zeros == Case::usual     ? static_cast<float>((most + 1) / 2)
           : c.zeros == Case::several ? static_cast<float>(s.pick(0, most))
                                      : static_cast<float>(s.pick(-100, 100 + 100 * most)) * 0.01F;
  }
  return out;
}

void build(Scene& s, const Case& c) {
  region::Stage& st = s.stage();
  region::Anchor& a = st.anchor;
  a.op = ir::Op::conv;
  a.facts = testing::facts(a.op, {});
  a.inputs = {s.tensor(DType::f32, {c.m, c.k, 1, 1}, BufferKind::arena, {0, 2, 3, 1}, c.gap ? 3 : 0, 1.0F)};
  if (c.gap) a.inputs[0].strides[0] = c.k + 3;
  a.weights = s.tensor(DType::f32, {c.n, c.k, 1, 1}, BufferKind::constant);
  const auto codes = std::make_shared<const ir::BlockCodes>(random_codes(s, c));
  a.weight_codes = region::WeightCodes{c.bits, c.block, codes->one_zero()};
  const ir::Tensor values = ir::values_of(codes);
  ir::Tensor turned(DType::f32, {c.n, c.k, 1, 1});
  for (std::int64_t j = 0; j < c.n; ++j) {
    for (std::int64_t i = 0; i < c.k; ++i)
      turned.mutable_data<float>()[static_cast<std::size_t>(j * c.k + i)] =
          values.data<float>()[static_cast<std::size_t>(i * c.n + j)];
  }
  const auto buffer = static_cast<std::size_t>(a.weights->buffer);
  std::memcpy(s.memory[buffer].data() + kGuard, turned.bytes().data(), turned.bytes().size());
  turned.set_codes(codes);
  s.plan().buffers[buffer].data = turned;
  st.space = {c.m, c.n, 1, 1};
  program::Program& p = st.program;
  int v = p.push(Op::acc_f);
  if (c.bias) {
    st.operands.push_back({s.along(DType::f32, st.space, 1), {}});
    p.operand_count = 1;
    v = p.push(Op::max, p.imm_f(0), p.push(Op::add, v, p.load(Op::load_f, 0)));
  }
  p.outputs = {{v, DType::f32}};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::arena, {0, 2, 3, 1}, c.gap ? 5 : 0)};
}

class LinearCodes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string run(const Case& c, std::uint32_t seed) {
    Scene s(seed);
    build(s, c);
    const std::string why = s.compare(cpu::cpu_provider(), std::string("cpu.linear.f32.codes.") + GetParam(), kTolerance);
    return why.empty() ? why : why + "; " + text(c);
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, LinearCodes, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(LinearCodes, RowsAndColumns) {
  std::uint32_t seed = 1;
  for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 191, 192, 193}) {
    for (const std::int64_t n : {1, 15, 16, 17, 32, 33, 48, 63, 64, 65, 112, 129}) {
      if (m > 100 && n > 65) continue;
      EXPECT_RUNS(run({.m = m,
                       .n = n,
                       .k = 66,
                       .bits = seed % 3 == 0 ? 8 : 4,
                       .zeros = static_cast<Case::Zeros>(seed % 2),
                       .bias = seed % 5 < 2,
                       .gap = seed % 7 < 3},
                      seed));
      ++seed;
    }
  }
}

TEST_P(LinearCodes, DepthsAndBlocks) {
  std::uint32_t seed = 1000;
  for (const std::int64_t m : {1, 8, 9}) {
    for (const int bits : {2, 4, 8}) {
      for (const std::int64_t block : {2, 16, 32, 128}) {
        for (const std::int64_t k : {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
          const bool all = block >= k;
          EXPECT_RUNS(run({.m = m,
                           .n = 33,
                           .k = k,
                           .bits = bits,
                           .block = all ? k : block,
                           .zeros = static_cast<Case::Zeros>(seed % 3),
                           .bias = seed % 2 == 0},
                          seed));
          ++seed;
        }
      }
    }
  }
}

TEST_P(LinearCodes, ManyTasks) {
  for (const std::int64_t m : {1, 3, 200})
    EXPECT_RUNS(run({.m = m, .n = 784, .k = 512, .zeros = Case::several}, static_cast<std::uint32_t>(m)));
}

TEST_P(LinearCodes, Random) {
  for (std::uint32_t seed = 1; seed <= rounds(60, 200); ++seed) {
    Scene r(seed + 7777);
    Case c{.m = r.pick(1, 12), .n = r.pick(1, 150), .k = r.pick(1, 300)};
    const int all_bits[] = {2, 4, 8};
    c.bits = all_bits[r.pick(0, 2)], c.zeros = static_cast<Case::Zeros>(r.pick(0, 2)), c.bias = r.pick(0, 1) == 1,
    c.gap = r.pick(0, 2) == 0;
    c.block = r.pick(0, 3) == 0 ? c.k : std::min<std::int64_t>(c.k, 2 * r.pick(1, 40));
    EXPECT_RUNS(run(c, seed));
  }
}

/// What the kernel relies on, and the way that a refusal says it. The portable one refuses for these reasons alone, whatever the processor has.
TEST(LinearCodesRefusals, AreNamed) {
  const auto refusal = [](const Case& c, auto change) {
    Scene s(1);
    build(s, c);
    change(s);
    for (const region::Offer& o : cpu::cpu_provider().offers(s.region(), s.plan())) {
      if (o.tactic.family == "linear.f32.codes.portable") return spelled(o.refusal);
    }
    return std::string("not asked");
  };
  EXPECT_EQ(refusal({}, [](Scene& s) { s.stage().anchor.weight_codes.reset(); }), "not asked");
  EXPECT_NE(
      refusal({.m = 2}, [](Scene& s) { s.stage().anchor.inputs[0].strides[1] = 2; }).find("step between the elements of a row"),
      std::string::npos);
  EXPECT_NE(refusal({.k = 9, .block = 3}, [](Scene&) {}).find("channels that share a scale"), std::string::npos);
  EXPECT_EQ(refusal({.k = 9, .bits = 8, .block = 3}, [](Scene&) {}), "");
}

}  // namespace
}  // namespace octavo::testing
