// Attention on codes by warps, under emulation, against its three operators in the reference: extents around its tiles, zero points, programs, and mistakes
// planted in its text.
#include "cuda/families/attention/attention_warps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "cpu/attention_scene.h"
#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using cuda::AttentionWarpsTile;

const cuda::Target kSm80{"sm_80", 108, 163 * 1024};

std::string attend(const attention::Sizes& n, const attention::Forms& forms, const AttentionWarpsTile& tile, unsigned seed = 3,
                   const Edit& edit = {}) {
  Scene s(seed);
  attention::set(s, n, forms, true);
  if (forms.mask && forms.guarded) {  // the first query may attend nothing
    const region::TensorRef& mask = s.region().stages[0].operands[0].ref;
    auto& bytes = s.memory[static_cast<std::size_t>(mask.buffer)];
    const float none = -std::numeric_limits<float>::infinity();
    for (std::int64_t k = 0; k < n.keys; ++k) std::memcpy(bytes.data() + mask.offset + 4 * k, &none, 4);
  }
  whole_words(s);
  AttentionWarpsTile taken = tile;  // in order where bounds are no way
  if (!cuda::attention_warps_family().emit(s.region(), s.plan(), cuda::spell(taken), kSm80)) taken.order = 1;
  return run_emulated(s, cuda::attention_warps_family(), cuda::spell(taken), 0, edit, reference_region, kSm80);
}

std::string attend(const attention::Sizes& n, const attention::Forms& forms, int warps, unsigned seed = 3, const Edit& edit = {}) {
  return attend(n, forms, AttentionWarpsTile{warps}, seed, edit);
}

/// Scores a few apart, of which few reach the bounds of their codes where they are rounded in steps of `step`; of 0 they are far apart.
attention::Forms forms_of(std::int64_t features, float step) {
  attention::Forms forms;
  forms.unit = (step > 0 ? 0.003F : 0.02F) / static_cast<float>(features), forms.step = step;
  return forms;
}

class AttentionWarps : public EmulatedTest {};

TEST_F(AttentionWarps, ExtentsAroundTiles) {
  unsigned seed = 1;
  EveryOther some;
  for (const std::int64_t keys : {1, 2, 4, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 130, 197, 257, 400}) {
    const std::int64_t queries = std::array{1, 15, 16, 17, 33}[seed % 5], features = std::array{32, 64, 96, 128}[seed % 4];
    const std::int64_t columns = std::array{16, 64, 32, 48, 128, 80}[seed % 6];
    attention::Forms forms = forms_of(features, seed % 2 == 0 ? 0.05F : 0);
    forms.probability = seed % 3 == 0 ? 1.0F / 255 : 0.0004F;
    if (some.takes(0, keys, queries, features, columns)) {
      EXPECT_EQ(
          attend({2, 2, queries, keys, features, columns}, forms, {1 + static_cast<int>(seed % 3), 0, seed % 4 == 3 ? 1 : 0}, seed),
          "")
          << queries << " queries, " << keys << " keys, " << features << " features, " << columns << " columns";
    }
    if (some.takes(1, keys, queries, features, columns)) {
      EXPECT_EQ(attend({1, 2, queries, keys, features, columns}, forms, {2 + static_cast<int>(seed % 3), 1}, seed), "")
          << "shared by " << 2 + seed % 3 << ": " << queries << " queries, " << keys << " keys, " << features << " features, "
          << columns << " columns";
    }
    ++seed;
  }
}

TEST_F(AttentionWarps, ZeroPoints) {
  unsigned seed = 40;
  for (const std::array<std::int32_t, 4> zero :
       {std::array{128, 128, 0, 128}, {0, 0, 0, 0}, {7, 128, 128, 250}, {128, 9, 255, 128}, {255, 3, 1, 77}, {0, 255, 100, 0}}) {
    attention::Forms forms = forms_of(32, 0.05F);
    forms.zero = zero, forms.probability = 0.002F;
    EXPECT_EQ(attend({1, 2, 20, 37, 32, 32}, forms, {2, 1}, seed), "") << "shared: " << zero[0] << " " << zero[1];
    EXPECT_EQ(attend({1, 2, 20, 37, 32, 32}, forms, 2, seed++), "")
        << zero[0] << " " << zero[1] << " " << zero[2] << " " << zero[3];
  }
}

TEST_F(AttentionWarps, ProgramsOfScores) {
  unsigned seed = 60;
  EveryOther some;
  for (const float step : {0.0F, 0.03F, 0.4F}) {  // of 0.4 the scores' range is above 86
    for (const auto after : {attention::Forms::nothing, attention::Forms::product, attention::Forms::quotient}) {
      for (const bool mask : {false, true}) {
        attention::Forms forms = forms_of(32, step);
        forms.unit *= step == 0.4F ? 300 : 1;
        forms.after = after, forms.by = 8, forms.mask = mask, forms.probability = 0.0078125F;
        if (mask && some.takes(0, step, after, mask)) {
          EXPECT_EQ(attend({2, 2, 21, 40, 32, 16}, forms, {2, 1}, seed), "") << "shared: " << step;
        }
        if (some.takes(1, step, after, mask)) {
          EXPECT_EQ(attend({2, 2, 21, 40, 32, 16}, forms, 1, seed), "") << step << " " << mask;
        }
        ++seed;
      }
    }
  }
}

TEST_F(AttentionWarps, RowsThatAttendNothing) {
  for (const std::int32_t zero : {0, 128}) {
    attention::Forms forms = forms_of(64, 0.05F);
    forms.mask = forms.guarded = true, forms.zero[2] = zero, forms.probability = 0.004F;
    EXPECT_EQ(attend({2, 2, 20, 40, 64, 32}, forms, 2, 8), "") << zero;
    EXPECT_EQ(attend({2, 2, 20, 40, 64, 32}, forms, {2, 1}, 8), "") << "shared: " << zero;
  }
}

TEST_F(AttentionWarps, StepsOfProbabilities) {
  EveryOther some;
  for (const float step : {1e-6F, 1e-4F, 0.003F, 0.01F, 0.3F, 1.0F, 5.0F}) {
    for (const std::int32_t zero : {0, 128, 60}) {
      if (!some.takes(step, zero)) continue;
      attention::Forms forms = forms_of(64, 0.05F);
      forms.probability = step, forms.zero[2] = zero;
      EXPECT_EQ(attend({1, 1, 18, 150, 64, 32}, forms, 2, 7), "") << step << " " << zero;
    }
  }
}

TEST_F(AttentionWarps, EveryTileThatIsOffered) {
  Scene s(5);
  attention::set(s, {1, 2, 280, 70, 64, 64}, {}, true);
  std::set<std::string> seen;
  for (const cuda::EstimatedTactic& c : cuda::attention_warps_family().candidates(s.region(), s.plan(), kSm80)) {
    const auto t = cuda::parse<AttentionWarpsTile>(c.parameters, "attention.u8.warps");
    ASSERT_TRUE(t);
    seen.insert(c.parameters.at("warps"));
    EXPECT_EQ(attend({1, 1, 280, 70, 64, 64}, forms_of(64, 0.05F), *t), "") << t->warps << " warps, " << t->shared;
  }
  EXPECT_EQ(seen.size(), 11U);
}

/// What the text does with scores and exponentials.
enum class Way { bytes, floats, in_order };  // the first two by bounds

attention::Forms forms_by(Way way) {
  attention::Forms forms = forms_of(64, 0.05F);
  forms.probability = way == Way::in_order ? 0.00008F : 0.001F;
  if (way == Way::floats) forms.after = attention::Forms::product, forms.by = 1.25F;
  return forms;
}
constexpr std::string_view kPowerOfBytes = "octavo_exp2(__fmaf_rn(octavo_byte_value(word, v), kCodeRate, kCodeBase))",
                           kPowerOfFloats = "octavo_exp2(__fmaf_rn(e[v], kLog2E, base))";

TEST_F(AttentionWarps, WaysAreTakenAsTheyAreNamed) {
  for (const Way way : {Way::bytes, Way::floats, Way::in_order}) {
    Scene s(5);
    attention::set(s, {1, 2, 20, 150, 64, 32}, forms_by(way), true);
    const auto text = cuda::attention_warps_family().emit(
        s.region(), s.plan(), cuda::spell(AttentionWarpsTile{2, 0, way == Way::in_order ? 1 : 0}), kSm80);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->text.find("kCoded = true") != std::string::npos, way == Way::bytes);
    EXPECT_EQ(text->text.find("kBounds = true") != std::string::npos, way != Way::in_order);
  }
}

TEST_F(AttentionWarps, ScoresAsBytes) {
  unsigned seed = 80;
  EveryOther some;
  for (const bool has_sign : {false, true}) {
    for (const float step : {0.001F, 0.05F, 0.23F}) {  // of 0.23 the range is nearly the greatest that is taken
      for (const std::int64_t keys : {1, 13, 32, 49, 197, 1024}) {
        attention::Forms forms = forms_of(64, step);
        forms.signed_scores = has_sign, forms.probability = std::array{0.0004F, 1.0F / 255, 0.02F}[seed % 3];
        forms.unit *= step / 0.05F;
        if (keys % 2 == 1) forms.zero[3] = 77, forms.zero[2] = 0;
        const AttentionWarpsTile tile = keys > 32 && seed % 2 == 0 ? AttentionWarpsTile{2, 1} : AttentionWarpsTile{1};
        Scene s(seed);
        attention::set(s, {1, 1, 18, keys, 64, 16}, forms, true);
        const auto text = cuda::attention_warps_family().emit(s.region(), s.plan(), cuda::spell(tile), kSm80);
        ASSERT_TRUE(text) << text.error().message;
        EXPECT_NE(text->text.find("kCoded = true"), std::string::npos) << step << " " << keys;
        EXPECT_NE(text->text.find(has_sign ? "kCodeFlip = 0x80808080u" : "kCodeFlip = 0u"), std::string::npos);
        if (some.takes(has_sign, step, keys, forms.probability, tile.shared)) {
          EXPECT_EQ(attend({1, 1, 18, keys, 64, 16}, forms, tile, seed), "") << has_sign << " " << step << " " << keys;
        }
        ++seed;
      }
    }
  }
}

/// Where both bounds of a quotient round to different codes, the program decides: here nearly always.
TEST_F(AttentionWarps, TheLongWayGivesTheSameCodes) {
  for (const Way way : {Way::bytes, Way::floats, Way::in_order}) {
    for (const AttentionWarpsTile& tile : {AttentionWarpsTile{2}, AttentionWarpsTile{2, 1}}) {
      const auto planted = [&](bool never) {
        return attend({1, 2, 20, 150, 64, 32}, forms_by(way), tile, 9, [&](std::string text) {
          text = edited(std::move(text), "__fmul_rn(scaled, kLow)", "__fmul_rn(scaled, 0.5f)");
          if (!never) return text;
          return way == Way::in_order ? edited(std::move(text), "(other[i] | (unbounded >> i % 2 & 1u)) != 0u", "false")
                                      : edited(std::move(text), "if (octavo_ballot(undecided) != 0u)", "if (false)");
        });
      };
      EXPECT_EQ(planted(false), "") << static_cast<int>(way) << " " << tile.shared;
      EXPECT_NE(planted(true), "") << static_cast<int>(way) << " " << tile.shared;
    }
  }
}

/// The bounds hold for any power of two that is right to two units in the last place, and whatever factor a row has in common.
TEST_F(AttentionWarps, BoundsDoNotDependOnTheApproximation) {
  for (const Way way : {Way::bytes, Way::floats}) {
    const std::string_view power = way == Way::bytes ? kPowerOfBytes : kPowerOfFloats;
    for (unsigned seed = 1; seed <= rounds(2, 4); ++seed) {
      attention::Forms forms = forms_by(way);
      forms.probability = std::array{0.0003F, 0.0011F, 1.0F / 255}[seed % 3];
      const auto planted = [&](std::string_view behind) {
        return attend({2, 2, 40, 197, 64, 16}, forms, 1, seed,
                      [&](std::string text) { return edited(std::move(text), power, std::string(power) + std::string(behind)); });
      };
      EXPECT_EQ(planted(" * 1.0000002f"), "") << seed;
      EXPECT_EQ(planted(" * (v % 2 == 0 ? 0.9999998f : 1.0000002f)"), "") << seed;
      EXPECT_EQ(planted(" * 1.37f"), "") << seed;
      EXPECT_NE(planted(" * (v % 2 == 0 ? 0.99f : 1.01f)"), "") << seed;
    }
  }
}

/// Edits a text and attends; equal without an edit.
struct Planted {
  Way way;
  AttentionWarpsTile tile;
  std::array<std::int32_t, 4> zero{127, 130, 3, 120};
  std::int64_t keys = 150;
  std::string operator()(std::string_view from, std::string_view to) const {
    attention::Forms forms = forms_by(way);
    forms.zero = zero;
    return attend({1, 2, 37, keys, 64, 32}, forms, tile, 9, [&](std::string text) { return edited(std::move(text), from, to); });
  }
};
constexpr std::string_view kSameText = "constexpr int kPairs";

TEST_F(AttentionWarps, MistakesAreFound) {
  for (const Way way : {Way::bytes, Way::floats, Way::in_order}) {
    const Planted planted{way, {2}};
    EXPECT_EQ(planted(kSameText, kSameText), "") << "nothing planted";
    EXPECT_NE(planted("octavo_barrier();  // keys and values are complete", "octavo_warp_barrier();"), "");
    EXPECT_NE(planted("kScoresBeginWith - kZeroKeys * total", "kScoresBeginWith"), "");
    EXPECT_NE(planted("- kZeroValues * totals[i * 2]", ""), "");
    EXPECT_NE(planted("octavo_row_of((unsigned)(16 * chunk + c))", "(16 * chunk + c)"), "") << "columns in their order";
    const Planted shared{way, {3, 1}};
    EXPECT_EQ(shared(kSameText, kSameText), "") << "nothing planted";
    EXPECT_NE(shared("octavo_barrier();                         // behind all reads", ""), "");
    EXPECT_NE(shared("octavo_barrier();\n    if (member > 0) return;", "if (member > 0) return;"), "")
        << "sums that are not there yet";
  }
}

TEST_F(AttentionWarps, MistakesOfScoresAreFound) {
  for (const AttentionWarpsTile& tile : {AttentionWarpsTile{2}, AttentionWarpsTile{3, 1}}) {
    const Planted bytes{Way::bytes, tile}, floats{Way::floats, tile};
    for (const Planted& planted : {bytes, floats}) {
      EXPECT_NE(planted("octavo_shuffle_xor(__float_as_int(part[i % 2]), i < 2 ? 1 : 2)", "__float_as_int(part[i % 2])"), "")
          << "lanes of a row with sums of their own";
      if (tile.shared != 0) {
        EXPECT_NE(planted("octavo_barrier();  // behind the parts of sums, and codes", ""), "");
      }
    }
    EXPECT_NE(bytes("e[v] = whole || at + v < kKeys ? e[v] : 0.0f", "e[v] = e[v]"), "") << "sums the padding";
    EXPECT_NE(bytes("step == kSteps - 1) {  // what lies", "false) {  // what lies"), "") << "multiplies the padding";
    EXPECT_NE(bytes("(u / 2 * 512 + lane * 16 + u % 2 * 8)", "(u / 2 * 512 + lane * 16)"), "");
    EXPECT_NE(floats("if (at + e >= kKeys) score[e] =", "if (false) score[e] ="), "") << "sums the padding";
    if (tile.shared != 0) {
      EXPECT_NE(floats("octavo_barrier();  // behind the scores", ""), "");
      EXPECT_NE(floats("most[0] = fmaxf(most[0], largest[i * 16 + place])", "most[0] = most[0]"), "") << "largest scores of a part";
    }
  }
}

TEST_F(AttentionWarps, MistakesOfRowsThatAreSettledAreFound) {
  for (const Way way : {Way::bytes, Way::floats}) {
    const auto planted = [&](std::string_view from, std::string_view to) {
      return attend({1, 2, 37, 150, 64, 32}, forms_by(way), 2, 9, [&](std::string text) {
        return edited(edited(std::move(text), "__fmul_rn(scaled, kLow)", "__fmul_rn(scaled, 0.5f)"), from, to);
      });
    };
    EXPECT_EQ(planted(kSameText, kSameText), "") << "nothing planted";
    EXPECT_NE(planted("octavo_warp_barrier();  // behind the row's exponentials", ""), "");
    EXPECT_NE(planted("octavo_warp_barrier();  // behind the sums of the row's blocks", ""), "");
    EXPECT_NE(planted("if (group == g && second)", "if (second)"), "") << "a sum for all rows";
    EXPECT_NE(planted("a[k] = k == i ? word : a[k]", "a[k] = word"), "");
    if (way == Way::bytes) {
      EXPECT_NE(planted("vector / 4 % 2 * 8 + r / 8 * 4", "vector / 4 % 2 * 8"), "") << "another row";
      EXPECT_NE(planted("e[v] = 4 * i + v < kKeys ? e[v] : 0.0f", "e[v] = e[v]"), "") << "sums the padding";
    } else {
      EXPECT_NE(planted("(r >> 1 & 3) + r / 8 * 8", "(r >> 1 & 3)"), "") << "another row";
    }
  }
}

TEST_F(AttentionWarps, MistakesOfSumsInOrderAreFound) {
  for (const AttentionWarpsTile& tile : {AttentionWarpsTile{2}, AttentionWarpsTile{3, 1}}) {
    const Planted planted{Way::in_order, tile};
    EXPECT_NE(planted("octavo_members_barrier();  // behind the exponentials", "// behind the exponentials"), "");
    EXPECT_NE(planted("octavo_members_barrier();  // behind the sums", "// behind the sums"), "");
    EXPECT_NE(planted("if (kPadded != kKeys && quarter == (kVectors - 1) % 4 &&", "if (false &&"), "") << "sums the padding";
  }
}

TEST_F(AttentionWarps, RefusalsSayWhat) {
  const auto why = [](const attention::Sizes& n, const attention::Forms& forms = {}, bool between = true) {
    Scene s(5);
    attention::set(s, n, forms, between);
    return spelled(cuda::attention_warps_family().why_not(s.region(), s.plan(), kSm80));
  };
  EXPECT_NE(why({1, 2, 20, 20, 40, 16}).find("features"), std::string::npos);
  EXPECT_NE(why({1, 2, 20, 20, 64, 20}).find("columns of the values"), std::string::npos);
  EXPECT_NE(why({1, 2, 20, 2000, 64, 64}).find("keys"), std::string::npos);
  EXPECT_NE(why({1, 2, 20, 32, 64, 64}, {}, false).find("a row of keys"), std::string::npos);
  attention::Forms scaled;
  scaled.scaled = true;
  EXPECT_NE(why({1, 2, 20, 32, 64, 64}, scaled).find("program of the probabilities"), std::string::npos);
}

TEST(AttentionByWarps, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  Scene s(5);
  attention::set(s, {1, 2, 197, 197, 64, 64}, {}, true);
  for (const cuda::Architecture architecture : architectures()) {
    const cuda::Target target{architecture, 108, 99 * 1024};
    const auto all = cuda::attention_warps_family().candidates(s.region(), s.plan(), target);
    ASSERT_FALSE(all.empty());
    const auto text = cuda::attention_warps_family().emit(s.region(), s.plan(), all[0].parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(architecture));
    EXPECT_TRUE(code) << architecture << ": " << code.error().message;
  }
}

}  // namespace
}  // namespace octavo::testing
