// Attention in float16 and bfloat16 under emulation, against its three operators one after the other in the reference: shapes around its tiles, head sizes,
// layouts, programs with masks, queries that may attend nothing, random shapes; and mistakes planted in its text.
#include "cuda/families/attention/attention_halves.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "cuda/architectures.h"
#include "cuda/attention_halves_scene.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using cuda::HalvesTile;
using halves::Forms;
using halves::Layout;
using halves::Mask;
using halves::Sizes;
using ir::DType;

const cuda::Target kSm80{"sm_80", 108, 163 * 1024};

const cuda::Family& family_of(DType type) {
  return type == DType::f16 ? cuda::attention_f16_family() : cuda::attention_bf16_family();
}
std::string attend(const Sizes& n, const Forms& forms, const HalvesTile& t, unsigned seed = 3, const Edit& edit = {}) {
  Scene s(seed);
  halves::set(s, n, forms);
  return run_emulated(s, family_of(forms.type), cuda::spell(t), forms.tolerance(n), edit, reference_region, kSm80);
}
std::string text_of(const Sizes& n) {
  return fmt::format("{} x {} matrices, {} queries, {} keys, {} features, {} columns", n.batch, n.heads, n.queries, n.keys,
                     n.features, n.columns);
}
std::string refusal_of(const Sizes& n, const Forms& forms, const std::function<void(Scene&)>& change = {}) {
  Scene s(5);
  halves::set(s, n, forms);
  if (change) change(s);
  return spelled(family_of(forms.type).why_not(s.region(), s.plan(), kSm80));
}

class AttentionHalves : public EmulatedTest {};

TEST_F(AttentionHalves, ExtentsAroundTiles) {
  unsigned seed = 1;
  EveryOther some;
  for (const std::int64_t queries : {1, 15, 16, 17, 33}) {
    for (const std::int64_t keys : {1, 15, 16, 17, 32, 33, 66}) {
      Forms forms;
      forms.type = seed % 2 == 0 ? DType::bf16 : DType::f16, forms.stored = seed % 3 == 0 ? DType::f32 : forms.type;
      forms.scores = seed % 4 < 2 ? DType::f32 : forms.type;
      forms.scale = seed % 3 == 1 ? 1.0F : 0.125F, forms.divides = seed % 2 == 0;
      const bool wide = seed % 3 == 0;
      const HalvesTile t{wide ? 64 : 16, wide ? 2 : 1, std::array{16, 32, 64}[seed % 3]};
      const Sizes n{1, 2, queries, keys, 24, 40};
      if (some.takes(queries, keys, seed % 12)) {
        EXPECT_EQ(attend(n, forms, t, seed), "") << text_of(n);
      }
      ++seed;
    }
  }
}

TEST_F(AttentionHalves, HeadSizes) {
  unsigned seed = 40;
  for (const std::int64_t head : {8, 16, 64, 80, 128, 256}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      Forms forms;
      forms.type = forms.stored = type;
      forms.scale = 1 / std::sqrt(static_cast<float>(head));
      const Sizes n{1, 2, 18, 37, head, head};
      EXPECT_EQ(attend(n, forms, {32, head < 128 && type == DType::f16 ? 1 : 2, 32}, seed++), "") << text_of(n);
    }
  }
  EXPECT_EQ(attend({1, 1, 20, 40, 16, 128}, {}, {32, 2, 32}, seed), "") << "more columns than features";
  EXPECT_EQ(attend({1, 1, 20, 40, 136, 8}, {}, {32, 2, 32}, seed), "") << "more features than columns";
}

TEST_F(AttentionHalves, Layouts) {
  unsigned seed = 60;
  for (const Layout layout : {Layout::plain, Layout::between, Layout::one_row, Layout::turned, Layout::repeated}) {
    for (const std::int64_t keys : {37, 64}) {
      Forms forms;
      forms.layout = layout;
      forms.type = forms.stored = seed % 2 == 0 ? DType::f16 : DType::bf16;
      const Sizes n{2, 3, keys, keys, 32, 48};
      EXPECT_EQ(attend(n, forms, {64, 4, 32}, seed++), "") << static_cast<int>(layout) << ": " << text_of(n);
    }
  }
}

TEST_F(AttentionHalves, MasksAndQueriesThatAttendNothing) {
  unsigned seed = 80;
  EveryOther some;
  for (const Mask mask : {Mask::keys, Mask::whole, Mask::truth, Mask::causal}) {
    for (const bool lost : {false, true}) {
      for (const DType scores : {DType::f32, DType::f16, DType::bf16}) {
        Forms forms;
        forms.mask = mask, forms.lost = lost, forms.scores = scores;
        forms.type = scores == DType::f16 ? DType::f16 : DType::bf16;
        forms.scaled = seed % 3 == 0, forms.zeros = seed % 2 == 0, forms.divides = seed % 4 == 0, forms.counted = seed % 4 == 3;
        const Sizes n{2, 2, 21, seed % 2 == 0 ? 40 : 35, 24, 16};
        if (some.takes(mask, lost, scores, seed % 12)) {
          EXPECT_EQ(attend(n, forms, {16, 1, 32}, seed), "") << static_cast<int>(mask) << " " << lost << ": " << text_of(n);
        }
        ++seed;
      }
    }
  }
}

/// Tiles of keys that a constant mask leaves nothing of are passed over.
TEST_F(AttentionHalves, TilesThatCountForNothing) {
  for (const bool lost : {false, true}) {
    Forms forms;
    forms.mask = Mask::causal, forms.lost = lost;
    for (const auto& [queries, keys] : {std::pair{100, 100}, {33, 90}, {90, 33}}) {
      const Sizes n{1, 2, queries, keys, 16, 24};
      EXPECT_EQ(attend(n, forms, {16, 1, 16}, 90), "") << text_of(n);
      if (queries != 100) continue;
      const std::string all = attend(n, forms, {16, 1, 16}, 90, [](std::string text) {
        return edited(std::move(text), "from = (int)span[0], end = (int)span[1];", "(void)span;");
      });
      EXPECT_EQ(all, "") << "they would not change results";
      const std::string fewer = attend(n, forms, {16, 1, 16}, 90, [](std::string text) {
        return edited(std::move(text), "end = (int)span[1];", "end = (int)span[1] - 1;");
      });
      EXPECT_NE(fewer, "");
    }
  }
}

/// Scores far apart, and far from 0: the first keys, or the last ones, are all that counts.
TEST_F(AttentionHalves, FarScores) {
  for (const float scale : {8.0F, 100.0F}) {
    Forms forms;
    forms.scale = scale;
    EXPECT_EQ(attend({1, 2, 33, 130, 16, 24}, forms, {32, 2, 32}, 91), "") << scale;
  }
}

TEST_F(AttentionHalves, EveryTileThatIsOffered) {
  const Sizes n{1, 1, 130, 150, 64, 64};
  Scene s(5);
  halves::set(s, n, {});
  std::set<std::string> seen, keys;  // each division of the queries, and each number of keys
  for (const cuda::EstimatedTactic& c : cuda::attention_f16_family().candidates(s.region(), s.plan(), kSm80)) {
    const auto t = cuda::parse<HalvesTile>(c.parameters, "attention.f16.mma");
    ASSERT_TRUE(t);
    const bool other_queries = seen.insert(c.parameters.at("queries") + " " + c.parameters.at("warps")).second;
    if (!keys.insert(c.parameters.at("keys")).second && !other_queries) continue;
    EXPECT_EQ(attend(n, {}, *t), "") << c.parameters.at("queries") << " queries, " << c.parameters.at("warps") << " warps, "
                                     << c.parameters.at("keys") << " keys";
  }
  EXPECT_EQ(keys.size(), 4U);
  EXPECT_EQ(seen.size(), 8U);
}

/// OCTAVO_FUZZ_SEED and OCTAVO_FUZZ_RUNS vary and lengthen it.
TEST_F(AttentionHalves, RandomShapes) {
  const auto number = [](const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
  };
  const unsigned first = number("OCTAVO_FUZZ_SEED", 1000), runs = number("OCTAVO_FUZZ_RUNS", static_cast<unsigned>(rounds(4, 12)));
  for (unsigned seed = first; seed < first + runs; ++seed) {
    std::mt19937 rng(seed);
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    Forms forms;
    forms.type = pick(0, 1) == 0 ? DType::f16 : DType::bf16;
    forms.scores = pick(0, 1) == 0 ? DType::f32 : forms.type;
    forms.stored = pick(0, 2) == 0 ? DType::f32 : forms.type;
    forms.layout = static_cast<Layout>(pick(0, 4));
    forms.mask = static_cast<Mask>(pick(0, 4));
    forms.counted = pick(0, 4) == 0;
    forms.lost = pick(0, 1) == 0, forms.scaled = pick(0, 3) == 0, forms.zeros = pick(0, 1) == 0, forms.divides = pick(0, 1) == 0;
    Sizes n{pick(1, 2), pick(1, 3), pick(1, 70), pick(1, 140), 8 * pick(1, 12), 8 * pick(1, 12)};
    if (forms.layout == Layout::one_row) n.keys = n.queries;
    forms.scale = pick(0, 3) == 0 ? 1 / static_cast<float>(n.features) : 1 / std::sqrt(static_cast<float>(n.features));
    Scene s(seed);
    halves::set(s, n, forms);
    const auto all = family_of(forms.type).candidates(s.region(), s.plan(), kSm80);
    ASSERT_FALSE(all.empty());
    const auto& parameters = all[static_cast<std::size_t>(pick(0, static_cast<int>(all.size()) - 1))].parameters;
    EXPECT_EQ(run_emulated(s, family_of(forms.type), parameters, forms.tolerance(n), {}, reference_region, kSm80), "")
        << "OCTAVO_FUZZ_SEED=" << seed << " OCTAVO_FUZZ_RUNS=1: " << text_of(n);
  }
}

TEST_F(AttentionHalves, RefusalsSayWhat) {
  const Sizes good{1, 2, 20, 20, 64, 64};
  EXPECT_EQ(refusal_of(good, {}), "");
  EXPECT_NE(refusal_of({1, 2, 20, 20, 264, 16}, {}).find("264"), std::string::npos);
  EXPECT_NE(refusal_of({1, 2, 20, 20, 16, 20}, {}).find("columns of the values"), std::string::npos);
  EXPECT_NE(refusal_of(good, {}, [](Scene& s) { s.region().stages[2].anchor.inputs[1].dtype = DType::f32; }).find("f32"),
            std::string::npos);
  EXPECT_NE(refusal_of(good, {}, [](Scene& s) { s.region().stages[0].anchor.inputs[0].offset = 8; }).find("multiple of 16"),
            std::string::npos);
  EXPECT_NE(refusal_of(good, {}, [](Scene& s) { s.region().stages[0].anchor.inputs[0].strides[3] = 2; }).find("features"),
            std::string::npos);
  EXPECT_NE(refusal_of(good, {},
                       [](Scene& s) {
                         auto& p = s.region().stages[1].program;
                         p.outputs[0].value = p.push(program::Op::add, p.outputs[0].value, p.imm_f(1));
                       })
                .find("what follows softmax"),
            std::string::npos);
  Scene s(5);
  halves::set(s, good, {});
  EXPECT_FALSE(cuda::attention_bf16_family().about(s.region())) << "the other type's";
  EXPECT_FALSE(cuda::attention_family().about(s.region())) << "no codes";
}

TEST_F(AttentionHalves, MistakesAreFound) {
  Forms forms;
  forms.scale = 0.25F;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return attend({1, 2, 37, 71, 40, 24}, forms, {32, 2, 32}, 9,
                  [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kPartial", "kPartial"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_barrier();  // the queries", "// the queries"), "");
  EXPECT_NE(planted("octavo_barrier();  // the next tile", "// the next tile"), "");
  EXPECT_NE(planted("octavo_copy_wait<0>();\n    octavo_barrier();  // the next", "octavo_barrier();  // the next"), "");
  EXPECT_NE(planted("if (kPartial && t == kKeyTiles - 1)", "if (false)"), "") << "keys that do not exist";
  EXPECT_NE(planted("const bool inside = !checked || own + i * kPass < exist;", "const bool inside = true;"), "")
      << "lines that do not exist";
  EXPECT_NE(planted("const int left = bytes - 16 * (thread % chunks);", "const int left = 16;"), "") << "bytes behind a line";
  EXPECT_NE(planted("sums[i][j / 2][half * 2 + j % 2] = __fmul_rn(sums[i][j / 2][half * 2 + j % 2], turn);", ""), "")
      << "earlier sums in the earlier unit";
  EXPECT_NE(planted("__fmaf_rn(totals[i][half], turn, ", "__fadd_rn(totals[i][half], "), "") << "the same of the total";
  EXPECT_NE(planted("most = fmaxf(most, octavo_shuffled(most, 2));", ""), "") << "each pair of lanes its own unit";
  EXPECT_NE(planted("total = __fadd_rn(total, octavo_shuffled(total, 2));", ""), "") << "half of a row's total";
  EXPECT_NE(planted("const float got = octavo_shuffled(upper ? a : b, 2);", "const float got = octavo_shuffled(upper ? b : a, 2);"),
            "")
      << "columns in another order";
  EXPECT_NE(planted("values += outer * kValueOuter + inner * kValueInner;", ""), "") << "one matrix of values for all";
  EXPECT_NE(planted("(lane & 15) * pitch + 16 * (lane >> 4)", "(lane & 7) * pitch + 16 * (lane >> 4)"), "")
      << "half of the keys twice";

  forms.mask = Mask::whole, forms.lost = true;
  EXPECT_EQ(planted("kPartial", "kPartial"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_eq(now, __int_as_float((int)0xff800000u), 0.0f, now)", "now"), "")
      << "the unit of a row that has nothing as yet is no number";
  EXPECT_NE(planted("const int at = first_row + warp * kWarpM + i * 16 + half * 8 + (lane >> 2);\n      row",
                    "const int at = first_row + warp * kWarpM + i * 16 + (lane >> 2);\n      row"),
            "")
      << "another row's mask";
  forms.zeros = true;
  EXPECT_EQ(planted("kPartial", "kPartial"), "") << "nothing planted";
  EXPECT_NE(planted("kNanIsZero = true", "kNanIsZero = false"), "");
}

class AttentionHalvesTexts : public ::testing::TestWithParam<cuda::Architecture> {
 protected:
  void SetUp() override {
    if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(AttentionHalvesTexts, Compile) {
  for (const DType type : {DType::f16, DType::bf16}) {
    if (GetParam() == cuda::Architecture("sm_75") && type == DType::bf16) continue;  // it has no such products
    Forms forms;
    forms.type = forms.stored = type, forms.counted = type == DType::f16;
    forms.mask = type == DType::f16 ? Mask::whole : Mask::causal,
    forms.layout = type == DType::f16 ? Layout::one_row : Layout::turned;
    Scene s(1);
    halves::set(s, {2, 3, 197, 197, 64, 64}, forms);
    const cuda::Target target{GetParam()};
    const auto& family = family_of(type);
    const auto text = family.emit(s.region(), s.plan(), family.candidates(s.region(), s.plan(), target).at(0).parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    EXPECT_TRUE(code) << family.name() << ": " << code.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(For, AttentionHalvesTexts, ::testing::ValuesIn(architectures()));

}  // namespace
}  // namespace octavo::testing
