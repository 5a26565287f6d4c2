// Programs made shorter for a GPU give the same bits: the epilogues of convolutions over random accumulators and operands, evaluated
// by the interpreter as written and as shortened.
#include "cuda/text/shorten.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "cuda/conv_scene.h"

namespace octavo::testing {
namespace {

using program::Op;
using program::Program;
using program::Scalar;

/// Runs both forms on random inputs; `special`: float operands are NaN and infinities too.
void compare(const Program& p, double largest_acc, double largest_float, bool special, std::mt19937& rng) {
  cuda::Magnitudes sources{largest_acc, {}};
  std::vector<char> kinds(static_cast<std::size_t>(p.operand_count), 0), is_byte;
  for (const auto& i : p.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) kinds[static_cast<std::size_t>(i.imm)] = i.op == Op::load_i ? 'i' : 'f';
  }
  for (const char k : kinds) {
    sources.operands.push_back(k == 'i' ? 255 : special ? std::numeric_limits<double>::infinity() : largest_float);
    is_byte.push_back(k == 'i');
  }
  const cuda::Shortened s = cuda::shorten(p, sources, is_byte);
  const auto real = [&](double limit) { return static_cast<float>(std::uniform_real_distribution<double>(-limit, limit)(rng)); };
  std::vector<Scalar> in(kinds.size()), changed(kinds.size()), out(p.outputs.size()), got(p.outputs.size()), scratch;
  for (int round = 0; round < 20000; ++round) {
    Scalar acc{}, moved{};
    acc.i = static_cast<std::int32_t>(real(round % 3 == 0 ? largest_acc : largest_acc / 500));
    moved.i = acc.i + s.acc_offset;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      constexpr float kSpecial[] = {NAN, INFINITY, -INFINITY, 3e38F, -3e38F};
      if (kinds[k] == 'i') {
        in[k].i = static_cast<std::int32_t>(rng() % 256);
      } else {
        in[k].f = special && rng() % 8 == 0 ? kSpecial[rng() % 5] : real(largest_float);
      }
      changed[k] = in[k];
      if (s.byte_floats[k] != 0) changed[k].f = 8388608.0F + static_cast<float>(in[k].i);
    }
    program::interpret(p, acc, in, out, scratch);
    program::interpret(s.program, moved, changed, got, scratch);
    for (std::size_t j = 0; j < out.size(); ++j)
      ASSERT_EQ(out[j].i, got[j].i) << "acc " << acc.i << "\n" << program::print(s.program);
  }
}

TEST(Shorten, EpiloguesOfConvolutions) {
  std::mt19937 rng(3);
  for (const char* style : {"relu", "bias", "residual", "silu"}) {
    for (const std::int64_t channels : {16, 64, 2048}) {
      ConvCase k;
      k.c = channels, k.style = style;
      ConvScene s(k, 1);
      SCOPED_TRACE(std::string(style) + " " + std::to_string(channels));
      compare(s.region.stages[0].program, 255.0 * 127 * static_cast<double>(channels), 2, false, rng);
      if (HasFatalFailure()) return;
      compare(program::simplify(s.region.stages[0].program), 255.0 * 127 * static_cast<double>(channels), 2, false, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Shorten, NaNAndInfinityReachTheCodesThatTheyReachAsWritten) {
  std::mt19937 rng(4);
  // NaN becomes 0, the lower bound, the upper bound's or relu's zero, by which step it meets first.
  for (const std::string steps : {"dnaA", "daA", "dAa", "rdaA", "ndaA"}) {
    Program p;
    program::ProgramOps m{p};
    int y = p.load(Op::load_f, 0);
    for (const char step : steps) {
      switch (step) {
        case 'd': y = m.div(y, m.imm(0.02F)); break;
        case 'n': y = p.push(Op::nan0, y); break;
        case 'r': y = m.max(y, m.imm(0)); break;
        case 'a': y = m.max(y, m.imm(-110)); break;
        default: y = m.min(y, m.imm(145)); break;
      }
    }
    p.outputs = {{m.add_i(m.f2i(y), m.imm_i(110)), ir::DType::u8}};
    program::mark(p);
    ASSERT_TRUE(program::verify(p));
    SCOPED_TRACE(steps);
    compare(p, 0, 4, true, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(Shorten, CostsFewOperations) {
  ConvCase k;
  k.style = "residual";
  ConvScene s(k, 1);
  const Program& p = s.region.stages[0].program;
  const auto count = [](const Program& q) {
    return std::count_if(q.code.begin(), q.code.end(), [](const auto& i) { return program::info(i.op).operands.size() > 0; });
  };
  const cuda::Shortened shortened = cuda::shorten(p, {2e6, {2000, 1e-3, 255}}, {0, 0, 1});
  EXPECT_TRUE(std::none_of(shortened.program.code.begin(), shortened.program.code.end(), [](const auto& i) {
    return i.op == Op::div || i.op == Op::f2i;
  })) << program::print(shortened.program);
  EXPECT_LT(count(cuda::without_store_clamps(shortened.program)), count(p));
}

// What follows on a code's own bounds, a Relu say, leaves one bound from below and none from above: the store has the others.
TEST(Shorten, BoundsBehindBoundsAreOne) {
  using Bounds = std::vector<std::pair<Op, std::int32_t>>;
  struct Case {
    ir::DType type;
    Bounds bounds;
    std::ptrdiff_t left;
  };
  const Case cases[] = {{ir::DType::u8, {{Op::max_i, 0}, {Op::min_i, 255}, {Op::max_i, 128}}, 1},
                        {ir::DType::u8, {{Op::max_i, 128}, {Op::min_i, 255}, {Op::max_i, 0}}, 1},
                        {ir::DType::u8, {{Op::max_i, -5}, {Op::min_i, 300}, {Op::max_i, 0}}, 0},
                        {ir::DType::u8, {{Op::min_i, 200}, {Op::max_i, 128}, {Op::min_i, 180}}, 2},
                        {ir::DType::u8, {{Op::min_i, 100}, {Op::max_i, 128}}, 2},
                        {ir::DType::s8, {{Op::max_i, -128}, {Op::min_i, 127}, {Op::max_i, 0}}, 1},
                        {ir::DType::s8, {{Op::max_i, -100}, {Op::min_i, 90}}, 2}};
  for (const Case& c : cases) {
    Program p;
    int v = p.push(Op::acc_i);
    for (const auto& [op, bound] : c.bounds) v = p.push(op, p.imm_i(bound), v);
    p.outputs = {{v, c.type}};
    ASSERT_TRUE(program::verify(p));
    const Program q = cuda::without_store_clamps(p);
    EXPECT_EQ(std::count_if(q.code.begin(), q.code.end(), [](const auto& i) { return i.op == Op::max_i || i.op == Op::min_i; }),
              c.left)
        << program::print(q);
    const std::int32_t lo = c.type == ir::DType::u8 ? 0 : -128;
    std::vector<Scalar> scratch, want(1), got(1);
    for (std::int32_t acc = -400; acc <= 400; ++acc) {
      Scalar a{};
      a.i = acc;
      program::interpret(p, a, {}, want, scratch);
      program::interpret(q, a, {}, got, scratch);
      ASSERT_EQ(std::clamp(want[0].i, lo, lo + 255), std::clamp(got[0].i, lo, lo + 255)) << acc << "\n" << program::print(q);
    }
  }
}

TEST(Shorten, SigmoidsOfFiniteValuesNeedNoGuards) {
  ConvCase k;
  k.style = "silu";
  const ConvScene s(k, 1);
  const auto guards = [&](const Program& p, double acc, double scale) {
    const Program q = cuda::without_store_clamps(cuda::shorten(p, {acc, {scale, 1}}, {0, 0}).program);
    return std::count_if(q.code.begin(), q.code.end(),
                         [](const auto& i) { return i.op == Op::nan0 || i.op == Op::max || i.op == Op::min || i.op == Op::f2i; });
  };
  const Program& written = s.region.stages[0].program;
  for (const Program& p : {written, program::simplify(written)}) {  // as planned, operands that commute are in another order
    EXPECT_EQ(guards(p, 2e6, 1e-3), 2) << "the two bounds of the exponential\n" << program::print(p);
    EXPECT_GT(guards(p, 2e6, std::numeric_limits<double>::infinity()), 2) << "NaN is possible";
  }
}

}  // namespace
}  // namespace octavo::testing
