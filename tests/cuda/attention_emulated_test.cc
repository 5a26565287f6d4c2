// Attention on codes under emulation, against its three operators one after the other in the reference: shapes around its tiles, layouts, zero points,
// programs with operands; and mistakes planted in its text.
#include <gtest/gtest.h>

#include <set>

#include "cpu/attention_scene.h"
#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/attention/attention.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using cuda::AttentionTile;

const cuda::Target kSm80{"sm_80", 108, 163 * 1024};

std::string attend(const attention::Sizes& n, const attention::Forms& forms, const AttentionTile& t, bool between = true,
                   unsigned seed = 3, const Edit& edit = {}) {
  Scene s(seed);
  attention::set(s, n, forms, between);
  whole_words(s);
  return run_emulated(s, cuda::attention_family(), cuda::spell(t), 0, edit, reference_region, kSm80);
}

class AttentionEmulated : public EmulatedTest {};

TEST_F(AttentionEmulated, ExtentsAroundTiles) {
  unsigned seed = 1;
  EveryOther some;
  for (const std::int64_t queries : {1, 15, 17, 33}) {
    for (const std::int64_t keys : {1, 16, 33, 66, 130}) {
      const std::int64_t features = std::array{1, 8, 19, 64, 65}[seed % 5], columns = std::array{16, 17, 64, 15, 1, 70}[seed % 6];
      attention::Forms forms;
      forms.unit = 0.02F / static_cast<float>(features);
      forms.step = seed % 2 == 0 ? 0.05F : 0;
      forms.after = seed % 3 == 0 ? attention::Forms::quotient : attention::Forms::nothing;
      forms.by = 5.6568542F;
      const AttentionTile t{seed % 3 == 0 ? 32 : 16, seed % 6 == 0 ? 2 : 1, std::array{32, 64, 128}[seed % 3]};
      if (t.queries / t.warps == 32 && columns > 64) continue;
      if (some.takes(queries, keys, features, columns, seed % 6)) {
        EXPECT_EQ(attend({2, 3, queries, keys, features, columns}, forms, t, seed % 3 != 0, seed), "")
            << queries << " queries, " << keys << " keys, " << features << " features, " << columns << " columns";
      }
      ++seed;
    }
  }
}

TEST_F(AttentionEmulated, ZeroPoints) {
  unsigned seed = 40;
  for (const std::array<std::int32_t, 4> zero :
       {std::array{128, 128, 0, 128}, {0, 0, 0, 0}, {7, 128, 128, 250}, {128, 9, 255, 128}, {255, 3, 1, 77}}) {
    attention::Forms forms;
    forms.zero = zero, forms.unit = 0.0005F;
    EXPECT_EQ(attend({1, 2, 20, 37, 40, 24}, forms, {32, 2, 32}, true, seed++), "")
        << zero[0] << " " << zero[1] << " " << zero[2] << " " << zero[3];
  }
}

TEST_F(AttentionEmulated, ProgramsWithOperands) {
  unsigned seed = 60;
  for (const float step : {0.0F, 0.03F}) {
    for (const auto after : {attention::Forms::nothing, attention::Forms::product, attention::Forms::quotient}) {
      attention::Forms forms;
      forms.step = step, forms.after = after, forms.by = 8;
      forms.mask = true, forms.scaled = after == attention::Forms::product, forms.probability = 0.0078125F;
      forms.unit = 0.0004F;
      EXPECT_EQ(attend({2, 2, 21, 40, 24, 18}, forms, {16, 1, 64}, true, seed++), "");
    }
  }
}

TEST_F(AttentionEmulated, EveryTileThatIsOffered) {
  Scene s(5);
  attention::set(s, {1, 2, 130, 70, 64, 64}, {}, true);
  std::set<std::string> seen;
  for (const cuda::EstimatedTactic& c : cuda::attention_family().candidates(s.region(), s.plan(), kSm80)) {
    const auto t = cuda::parse<AttentionTile>(c.parameters, "attention.u8.mma");
    ASSERT_TRUE(t);
    seen.insert(c.parameters.at("queries") + " " + c.parameters.at("warps"));
    EXPECT_EQ(attend({1, 1, 130, 70, 64, 64}, {}, *t), "")
        << c.parameters.at("queries") << " queries, " << c.parameters.at("depth") << " keys a step";
  }
  EXPECT_EQ(seen.size(), 6U);
}

TEST_F(AttentionEmulated, OneDimensionOfTheBatchAndNone) {
  EXPECT_EQ(attend({1, 3, 18, 20, 16, 16}, {}, {16, 1, 32}), "");
  EXPECT_EQ(attend({1, 1, 18, 20, 16, 16}, {}, {16, 1, 32}), "");
}

/// Scores far apart: exponentials down to the least subnormal number, by programs that round them away and by ones that do not.
TEST_F(AttentionEmulated, ExponentialsOfFarScores) {
  attention::Forms forms;
  forms.unit = 0.0007F, forms.mask = true;
  for (const float probability : {1.0F / 255, 1e-30F, 1e-20F}) {
    forms.probability = probability;
    EXPECT_EQ(attend({1, 2, 33, 70, 40, 24}, forms, {32, 2, 32}, true, 21), "") << probability;
  }
  const auto planted = [&](std::string_view from, std::string_view to) {
    return attend({1, 2, 33, 70, 40, 24}, forms, {32, 2, 32}, true, 21,
                  [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_NE(planted("e[0] >= -86.0f && e[1] >= -86.0f && e[2] >= -86.0f && e[3] >= -86.0f", "true"), "")
      << "the short exponential everywhere";
  EXPECT_NE(planted("most[i][half] = fmaxf(most[i][half], score)", "most[i][half] = score"), "") << "not the largest score";
}

TEST_F(AttentionEmulated, RefusalsSayWhat) {
  Scene s(5);
  attention::set(s, {1, 2, 20, 20, 300, 16}, {}, true);
  EXPECT_NE(spelled(cuda::attention_family().why_not(s.region(), s.plan(), kSm80)).find("300"), std::string::npos);
  Scene wide(5);
  attention::set(wide, {1, 1, 20, 4000, 64, 64}, {}, true);
  EXPECT_NE(spelled(cuda::attention_family().why_not(wide.region(), wide.plan(), kSm80)).find("shared memory"), std::string::npos);
}

TEST(Attention, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  Scene s(5);
  attention::set(s, {1, 2, 197, 197, 64, 64}, {}, true);
  for (const cuda::Architecture architecture : architectures()) {
    const cuda::Target target{architecture, 108, 99 * 1024};
    const auto all = cuda::attention_family().candidates(s.region(), s.plan(), target);
    ASSERT_FALSE(all.empty());
    const auto text = cuda::attention_family().emit(s.region(), s.plan(), all[0].parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(architecture));
    EXPECT_TRUE(code) << architecture << ": " << code.error().message;
  }
}

TEST_F(AttentionEmulated, MistakesAreFound) {
  attention::Forms forms;
  forms.zero = {127, 130, 3, 120}, forms.unit = 0.00002F, forms.step = 0.05F;  // scores near 0: every exponential counts
  const auto planted = [&](std::string_view from, std::string_view to) {
    return attend({1, 2, 37, 71, 40, 24}, forms, {32, 2, 32}, true, 9,
                  [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kTogether", "kTogether"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_barrier();  // the tile is complete", "// the tile is complete"), "");
  EXPECT_NE(planted("octavo_barrier();  // the scores are complete", "// the scores are complete"), "");
  EXPECT_NE(planted("octavo_barrier();  // behind the exponentials", "// behind the exponentials"), "");
  EXPECT_NE(planted("octavo_barrier();  // behind the sums\n", "// behind the sums\n"), "");
  EXPECT_NE(planted("octavo_barrier();  // the values are complete", "// the values are complete"), "");
  const auto long_row = [&](std::string_view from, std::string_view to) {  // of two blocks
    return attend({1, 1, 20, 150, 32, 16}, forms, {32, 2, 32}, true, 9,
                  [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(long_row("kTogether", "kTogether"), "") << "nothing planted";
  EXPECT_NE(long_row("octavo_barrier();  // behind the sums of blocks", "// behind the sums of blocks"), "");
  EXPECT_NE(planted("&& i == kPadded - 4 ? 0.0f : e[v]", "&& false ? 0.0f : e[v]"), "") << "sums the padding";
  EXPECT_NE(planted("sum -= S::kZeroRight * totals.rows", "sum -= 0 * totals.rows"), "");
  EXPECT_NE(planted("out[i][j] -= V::kZeroLeft * totals.columns", "out[i][j] -= 0 * totals.columns"), "");
  EXPECT_NE(planted("&& i == kPadded - 4) code[v] = 0;", "&& false) code[v] = 0;"), "") << "codes behind the keys";
}

}  // namespace
}  // namespace octavo::testing
