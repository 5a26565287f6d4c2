// Requantization as one fma: every accumulator of a line against the written form; and the finder's conditions.
#include "cpu/jit/requant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace octavo::cpu::jit {
namespace {

using program::Op;

Requant written(bool fused, bool bias, float divisor, std::int32_t zero, bool is_signed, std::mt19937& rng) {
  Requant r;
  r.scale = 0, r.bias = bias ? 1 : -1, r.fused = fused;
  r.zero = zero;
  r.lo = is_signed ? -128 : 0, r.hi = is_signed ? 127 : 255;
  const auto clamps = rng() % 3;  // before the division, after it, none
  const Requant::Step relu{Op::max, 0}, six{Op::min, 6}, div{Op::div, divisor};
  if (clamps == 0) r.steps = {relu, six, div};
  if (clamps == 1) r.steps = {div, {Op::max, static_cast<float>(r.lo - zero)}, {Op::min, static_cast<float>(r.hi - zero)}};
  if (clamps == 2) r.steps = {div};
  if (rng() % 2 == 0) {  // a leaky relu, before or behind the division
    const float alphas[] = {0.1F, 0.01F, 0.2F, 0.5F, 0.999F};
    r.alpha = alphas[rng() % 5];
    r.steps.insert(r.steps.begin() + (clamps == 2 ? static_cast<int>(rng() % 2) : 0), {Op::sel_lt, r.alpha});
  }
  r.first = r.code(-16000000, 1, 0), r.last = r.code(16000000, 1, 0);
  return r;
}

TEST(Requant, OneFmaGivesEveryCode) {
  int found = 0, none = 0, leaky = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    std::mt19937 rng(seed);
    const auto uniform = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(rng); };
    const bool is_signed = rng() % 2 != 0;
    const auto zero = is_signed ? static_cast<std::int32_t>(rng() % 256) - 128 : static_cast<std::int32_t>(rng() % 256);
    const Requant r = written(rng() % 2 != 0, rng() % 4 != 0, uniform(0.01F, 0.5F), zero, is_signed, rng);
    const float scale = std::exp(uniform(-12, 2)), bias = r.bias < 0 ? 0 : uniform(-8, 8);
    const std::int64_t limit = 1 + rng() % 60000, offset = static_cast<std::int64_t>(rng() % 40001) - 20000;
    const auto line = one_fma(r, scale, bias, limit, offset);
    if (!line) {
      ++none;
      continue;
    }
    ++found;
    leaky += r.alpha < 1 ? 1 : 0;
    for (std::int64_t sum = -limit; sum <= limit; ++sum)
      ASSERT_EQ(line_code(r, *line, sum), r.code(sum + offset, scale, bias)) << "sum " << sum << ", seed " << seed;
  }
  std::printf("%d lines, %d without\n", found, none);
  EXPECT_GT(found, 300);
  EXPECT_GT(leaky, 120);
}

/// The written form in plain arithmetic, independent of Requant::code.
TEST(Requant, CodeIsTheWrittenForm) {
  std::mt19937 rng(3);
  Requant r;
  r.scale = 0, r.bias = 1, r.zero = 12, r.lo = 0, r.hi = 255;
  r.steps = {{Op::max, 0}, {Op::div, 0.031F}};
  for (int i = 0; i < 100000; ++i) {
    const auto acc = static_cast<std::int32_t>(rng() % 200001) - 100000;
    const float y = std::max(std::fma(static_cast<float>(acc), 7.7e-4F, -0.3F), 0.0F) / 0.031F;
    ASSERT_EQ(r.code(acc, 7.7e-4F, -0.3F), std::clamp(static_cast<std::int32_t>(std::nearbyint(y)) + 12, 0, 255)) << acc;
  }
}

TEST(Requant, AWrongLineIsNoticed) {
  Requant r;
  r.scale = 0, r.bias = 1, r.zero = 3, r.steps = {{Op::div, 0.02F}};
  const auto line = one_fma(r, 1.31e-4F, 0.417F, 50000);
  ASSERT_TRUE(line);
  int wrong = 0;
  const Line planted{line->m * 1.0001F, line->b};
  for (std::int64_t sum = -50000; sum <= 50000; ++sum) wrong += line_code(r, planted, sum) != r.code(sum, 1.31e-4F, 0.417F) ? 1 : 0;
  EXPECT_GT(wrong, 0);
}

TEST(Requant, NoLineWhereNoneCanBe) {
  Requant r;
  r.scale = 0, r.bias = 1;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(one_fma(r, -1e-3F, 0, 1000)) << "falls";
  EXPECT_FALSE(one_fma(r, 0, 0, 1000));
  EXPECT_FALSE(one_fma(r, inf, 0, 1000));
  EXPECT_FALSE(one_fma(r, 1e-3F, inf, 1000));
  EXPECT_FALSE(one_fma(r, 1e-3F, std::nanf(""), 1000));
  EXPECT_FALSE(one_fma(r, 1e9F, 0, 1000)) << "leaves int32";
  EXPECT_TRUE(one_fma(r, 1e-3F, 0, 1000));
}

}  // namespace
}  // namespace octavo::cpu::jit
