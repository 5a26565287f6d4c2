// erf's divisions as products (jit/erf_division.h), in generated code beside the block interpreter, which divides: every float with OCTAVO_LONG, else one of 2039 and
// those around every threshold.
#include "cpu/jit/erf_division.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/access.h"
#include "cpu/generated_epilogue.h"
#include "program/math.h"

namespace octavo::testing {
namespace {

using cpu::Isa;
using program::Op;

constexpr std::int64_t kChannels = 64, kPixels = 16, kSums = kChannels * kPixels;

/// A stage of a program over sums; each result is stored where its sum was.
region::Region region_of(program::Program p) {
  region::Region r;
  region::Stage& s = r.stages.emplace_back();
  s.space = {1, kChannels, 1, kPixels};
  s.program = std::move(p);
  program::mark(s.program);
  region::TensorRef store;
  store.buffer = 0, store.dtype = ir::DType::f32, store.dims = s.space, store.strides = {kSums, 1, kSums, kChannels};
  s.stores = {store};
  return r;
}

/// (1 + erf(x / sqrt 2)) x / 2 as exporters write it; `argument`: divided by sqrt 2, or the sum itself.
program::Program gelu(bool argument) {
  program::Program p;
  program::ProgramOps ops{p};
  const int x = p.push(Op::acc_f), y = argument ? ops.div(x, ops.imm(1.41421354F)) : x, e = program::erf(ops, y);
  const int sum = ops.add(e, ops.imm(1.0F)), product = ops.mul(x, sum), half = ops.imm(0.5F);
  p.outputs = {{ops.mul(product, half), ir::DType::f32}};
  return p;
}

TEST(ErfDivision, IsFoundWhereOneIsAdded) {
  const auto count = [](const program::Program& p) {
    cpu::jit::LoweredEpilogue e;
    EXPECT_TRUE(cpu::jit::lower(region_of(p).stages[0], false, false, e).empty());
    return cpu::jit::multiply_in_erf(e);
  };
  EXPECT_EQ(count(gelu(true)), 2);
  EXPECT_EQ(count(gelu(false)), 1);
  EXPECT_EQ(count(program::simplify(gelu(true))), 2) << "as planned, operands that commute are in another order";
  program::Program alone;  // the sign of 0 is seen
  program::ProgramOps ops{alone};
  alone.outputs = {{program::erf(ops, alone.push(Op::acc_f)), ir::DType::f32}};
  EXPECT_EQ(count(alone), 0);
}

class Both {
 public:
  explicit Both(const program::Program& p) : region_(region_of(p)) {
    auto made = cpu::generated_epilogue(region_.stages[0], Isa::avx512, {kChannels}, kPixels);
    EXPECT_TRUE(made && *made != nullptr);
    if (made) generated_ = std::move(*made);
    auto space = cpu::Space::of(region_.stages[0]);
    auto code = cpu::Code::compile(p, {}, false);
    auto epilogue = cpu::BlockEpilogue::make(*cpu::kernel_table(Isa::avx512), std::move(*code), std::move(*space), 3, 1);
    interpreted_ = std::move(*epilogue);
    scratch_.resize(interpreted_.scratch_bytes() + 64);
    base_ = scratch_.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch_.data()) % 64) % 64;
    interpreted_.prepare(base_);
  }
  /// "" or the first float whose results differ.
  std::string compare(const std::vector<float>& sums) {
    std::vector<float> one(kSums), other(kSums);
    run(sums.data(), one.data(), other.data());
    if (std::memcmp(one.data(), other.data(), kSums * 4) == 0) return "";
    for (std::size_t i = 0; i < kSums; ++i) {
      if (std::bit_cast<std::uint32_t>(one[i]) != std::bit_cast<std::uint32_t>(other[i]))
        return fmt::format("{} (0x{:08x}): {} instead of {}", sums[i], std::bit_cast<std::uint32_t>(sums[i]), one[i], other[i]);
    }
    return "";
  }

 private:
  void run(const float* sums, float* one, float* other) {
    region::Memory memory;
    memory.base = {reinterpret_cast<std::byte*>(one)};
    generated_->run(memory, sums, 0, 0, 0, 0, kPixels, kChannels);
    memory.base = {reinterpret_cast<std::byte*>(other)};
    const int rows = interpreted_.code().block() / static_cast<int>(kChannels);
    for (int r = 0; r < kPixels; r += rows) {
      std::memcpy(cpu::BlockEpilogue::acc(base_), sums + r * kChannels,
                  static_cast<std::size_t>(std::min<int>(rows, kPixels - r)) * kChannels * 4);
      cpu::Index origin{};
      origin[3] = r;
      interpreted_.run(memory, base_, origin, std::min<int>(rows, static_cast<int>(kPixels) - r), static_cast<int>(kChannels));
    }
  }
  region::Region region_;
  std::unique_ptr<cpu::GeneratedEpilogue> generated_;
  cpu::BlockEpilogue interpreted_;
  std::vector<std::byte> scratch_;
  std::byte* base_ = nullptr;
};

TEST(ErfDivision, QuotientsOfEveryFloat) {
  if (cpu::best_isa() < Isa::avx512) GTEST_SKIP() << "needs avx512";
  const bool all = std::getenv("OCTAVO_LONG") != nullptr;
  for (const program::Program& p : {gelu(true), gelu(false), program::simplify(gelu(true))}) {
    Both both(p);
    std::vector<float> sums;
    std::int64_t tried = 0;
    const auto add = [&](std::uint32_t bits) {
      sums.push_back(std::bit_cast<float>(bits));
      if (sums.size() < kSums) return;
      tried += kSums;
      const std::string why = both.compare(sums);
      sums.clear();
      ASSERT_EQ(why, "");
    };
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32) && !HasFatalFailure(); bits += all ? 1 : 2039)
      add(static_cast<std::uint32_t>(bits));
    for (const float near : {0.0F, 1e-38F, 1.0F, 4.0F, 5.65685F, 6.0F, 3e38F}) {
      for (std::int32_t i = -600; i < 600 && !HasFatalFailure(); ++i) {
        const auto bits = static_cast<std::uint32_t>(std::bit_cast<std::int32_t>(near) + i);
        add(bits & 0x7fffffffU);
        add(bits | 0x80000000U);
      }
    }
    while (!sums.empty() && !HasFatalFailure()) add(0x7fc00000U);
    EXPECT_GT(tried, all ? std::int64_t{1} << 32 : std::int64_t{2} << 20);
  }
}

}  // namespace
}  // namespace octavo::testing
