// The quotient of a softmax under emulation, beside the division of the host: exponentials of every magnitude, subnormal ones among them, and
// quotients of subnormal numbers that lie next to the middle of two.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "cuda/emulation/emulated_test.h"
#include "cuda/text/pieces.h"

namespace octavo::testing {
namespace {

constexpr int kCount = 256 * 1024;

class Share : public EmulatedTest {};

TEST_F(Share, IsTheDivisionOfTheHost) {
  const auto library = emulate(std::string(cuda::share_text()) + R"(
OCTAVO_KERNEL(256, 1) octavo_shares(const unsigned char* e, const unsigned char* sum, unsigned char* out) {
  const int i = octavo_block() * 256 + octavo_thread();
  unsigned a, b;
  octavo_read<4>(&a, e + 4 * i);
  octavo_read<4>(&b, sum + 4 * i);
  const float s = __int_as_float((int)b);
  const unsigned r = (unsigned)__float_as_int(octavo_share(__int_as_float((int)a), s, __fdiv_rn(1.0f, s)));
  octavo_write<4>(out + 4 * i, &r);
})");
  ASSERT_TRUE(library) << library.error().message;
  const auto kernel = (*library)->find("octavo_shares");
  ASSERT_TRUE(kernel) << kernel.error().message;
  std::vector<float> e(kCount), sum(kCount);
  std::mt19937 engine(7);
  const auto rng = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::uint32_t mantissa = rng() & 0x7fffff, exponent = rng() % 128;
    sum[at] = 1 + static_cast<float>(rng() % 5000) * (rng() % 2 == 0 ? 1.0F : 0.37F);
    e[at] = std::bit_cast<float>(exponent << 23 | mantissa);         // all magnitudes up to 2
    if (i % 4 == 1) e[at] = std::bit_cast<float>(rng() & 0x7fffff);  // subnormal
    if (i % 4 == 2) e[at] = std::bit_cast<float>(rng() % 64);        // the least ones
    if (i % 4 == 3) {                                                // quotients next to a half
      sum[at] = static_cast<float>(1 + rng() % 255);
      const double middle = (static_cast<double>(rng() % 30000) + 0.5) * sum[at];
      e[at] = std::bit_cast<float>(static_cast<std::uint32_t>(middle) + rng() % 3 - 1);
    }
  }
  e[0] = 1, e[4] = 0, e[8] = std::nanf(""), e[12] = 0x1p-60F, e[16] = std::nextafterf(0x1p-60F, 0), e[20] = 0x1p-126F;
  GlobalMemory memory;
  std::byte* const in = memory.allocate("e", kCount * 4, false);
  std::byte* const by = memory.allocate("sum", kCount * 4, false);
  std::byte* const out = memory.allocate("out", kCount * 4, true);
  std::memcpy(in, e.data(), kCount * 4);
  std::memcpy(by, sum.data(), kCount * 4);
  ASSERT_EQ(run_grid(*kernel, {{kCount / 256, 1, 1}, {256, 1, 1}, 0}, {in, by, out}, memory, 1), "");
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    float got = 0;
    std::memcpy(&got, out + 4 * i, 4);
    const float want = e[at] / sum[at];
    if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want) || (std::isnan(got) && std::isnan(want))) continue;
    if (++wrong < 4) ADD_FAILURE() << fmt::format("{:a} / {:a}: {:a} instead of {:a}", e[at], sum[at], got, want);
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace octavo::testing
