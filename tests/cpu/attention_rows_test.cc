// AttentionRows::pack_codes against its definition, one number after the other, and against the terms of the products that read it: e around the middle
// between every two codes, where the kernel must divide as written, behind the clamp, NaN, and steps at the ends of the range of floats.
#include "cpu/rows/attention_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/isa.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kColumns = 32;

class AttentionRowsTest : public ::testing::TestWithParam<const char*> {
 protected:
  /// Null where the level cannot be used.
  static const cpu::AttentionRows* rows() {
    const cpu::Isa isa = *cpu::find_isa(GetParam());
    if (cpu::best_isa() < isa) return nullptr;
#if defined(__x86_64__)
    if (isa == cpu::Isa::avx512) return &cpu::avx512_attention();
    if (isa == cpu::Isa::avx2) return &cpu::avx2_attention();
#endif
    return &cpu::portable_attention();
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionRowsTest, ::testing::Values("portable", "avx2", "avx512"));

std::int32_t code_as_written(float e, float sum, const cpu::ProbabilityForm& f) {
  float t = e / sum / f.step;
  if (f.nan_is_zero && std::isnan(t)) t = 0;
  t = t > f.lo ? t : f.lo;
  t = t < f.hi ? t : f.hi;
  return static_cast<std::int32_t>(std::nearbyint(t)) + f.zero;
}

struct Codes {
  std::vector<float> e, sums;  ///< [i][column]
  std::int64_t n = 0;
};

/// Exponentials next to the middle between codes, on both sides and a few units of the last place away, and others.
Codes near_ties(const cpu::ProbabilityForm& f, std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  Codes c{std::vector<float>(static_cast<std::size_t>(n * kColumns)), std::vector<float>(kColumns), n};
  std::uniform_real_distribution<float> sum(1, 300), any(0, 1);
  for (float& s : c.sums) s = random() % 4 == 0 ? std::round(sum(random)) : sum(random);
  for (std::size_t i = 0; i < c.e.size(); ++i) {
    const float s = c.sums[i % kColumns];
    const auto code = static_cast<float>(random() % 257);
    float e = random() % 8 == 0 ? any(random) : (code + 0.5F) * f.step * s;
    for (unsigned step = random() % 6; step > 0; --step) e = std::nextafter(e, seed % 2 == 0 ? 0.0F : 1e38F);
    c.e[i] = e;
  }
  return c;
}

void expect_codes(const cpu::AttentionRows& rows, const Codes& c, const cpu::ProbabilityForm& f, int group) {
  const std::int64_t groups = (c.n + group - 1) / group + 3, step = kColumns + 16;
  const std::int32_t zero = f.zero, other = 77;
  std::vector<std::uint32_t> to(static_cast<std::size_t>(groups * step), 0xdeadbeef);
  std::vector<std::int32_t> terms(kColumns);
  rows.pack_codes({to.data(), step, groups, group, zero, other, terms.data()}, c.e.data(), kColumns, c.n, kColumns, c.sums.data(),
                  f);
  for (std::int64_t column = 0; column < kColumns; ++column) {
    std::int32_t total = 0;
    for (std::int64_t i = 0; i < groups * group; ++i) {
      const std::uint32_t dword = to[static_cast<std::size_t>(i / group * step + column)];
      const auto bits = static_cast<int>(i % group) * (32 / group);
      const std::int32_t packed = group == 4 ? static_cast<std::int8_t>(dword >> bits) : static_cast<std::int16_t>(dword >> bits);
      std::int32_t want = 0;
      if (i < c.n) {
        const float e = c.e[static_cast<std::size_t>(i * kColumns + column)], sum = c.sums[static_cast<std::size_t>(column)];
        const std::int32_t code = code_as_written(e, sum, f);
        want = code - (group == 4 ? 128 : zero), total += code - zero;
        ASSERT_EQ(packed, want) << "e " << e << ", sum " << sum << ", step " << f.step << ", row " << i << ", group " << group;
      }
      ASSERT_EQ(packed, want) << "row " << i << " of " << c.n;
    }
    ASSERT_EQ(terms[static_cast<std::size_t>(column)], group == 4 ? -other * total : 0) << "column " << column;
  }
  for (std::int64_t g = 0; g < groups; ++g) ASSERT_EQ(to[static_cast<std::size_t>(g * step + kColumns)], 0xdeadbeef);
}

TEST_P(AttentionRowsTest, CodesNextToTies) {
  if (rows() == nullptr) GTEST_SKIP() << "needs " << GetParam();
  unsigned seed = 1;
  for (const float step : {1.0F / 255, 1.0F / 127, 0.00392F, 0.0078125F, 0.00046258303F, 1e-17F, 1e-30F, 1e-44F, 1e30F}) {
    for (const std::int32_t zero : {0, 128, 3, 255}) {
      for (const std::int64_t n : {1, 2, 3, 4, 7, 197}) {
        for (const int group : {4, 2}) {
          cpu::ProbabilityForm f{step, static_cast<float>(-zero), static_cast<float>(255 - zero), zero, true};
          if (seed % 5 == 0) f.lo = std::min(f.lo + 1, 0.0F), f.hi = std::max(f.hi - 1, 0.0F);
          ASSERT_NO_FATAL_FAILURE(expect_codes(*rows(), near_ties(f, n, seed++), f, group));
        }
      }
    }
  }
}

/// A column with a NaN in it, whose payload must not be taken for a code, and one of nothing else.
TEST_P(AttentionRowsTest, NanBecomesZero) {
  if (rows() == nullptr) GTEST_SKIP() << "needs " << GetParam();
  const cpu::ProbabilityForm f{1.0F / 255, -5, 250, 5, true};
  Codes c = near_ties(f, 11, 3);
  const float nan = std::nanf("0x2a5a5a");
  c.sums[3] = c.sums[20] = nan;
  for (std::int64_t i = 0; i < c.n; ++i) c.e[static_cast<std::size_t>(i * kColumns + 20)] = nan;
  for (const int group : {4, 2}) expect_codes(*rows(), c, f, group);
}

}  // namespace
}  // namespace octavo::testing
