// The families that number elements (families/plain) under emulation against the reference evaluator: random types, shapes, layouts and programs, and
// planted mistakes, each of which some seed finds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/plain_scene.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

std::string run(const PlainCase& c, unsigned seed, const Edit& edit = {}) {
  Scene s(seed);
  c.build(s, 3);
  return run_emulated(s, c.family(), {}, c.tolerance, edit, reference_region);
}

class PlainRecurrent : public EmulatedTest {};
class Plain : public EmulatedTest, public ::testing::WithParamInterface<std::size_t> {};

/// OCTAVO_FUZZ_GRAPHS: how many seeds; OCTAVO_FUZZ_SEED: the first one.
TEST_P(Plain, RandomRegionsAreTheReferences) {
  const PlainCase& c = plain_cases()[GetParam()];
  const auto setting = [](const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
  };
  const unsigned first = setting("OCTAVO_FUZZ_SEED", 1);
  const unsigned count = setting("OCTAVO_FUZZ_GRAPHS", static_cast<unsigned>(rounds(4, 8, 60)));
  for (unsigned seed = first; seed < first + count; ++seed) ASSERT_EQ(run(c, seed), "") << c.name << ", seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Families, Plain, ::testing::Range(std::size_t{0}, plain_cases().size()), [](const auto& i) {
  std::string name(plain_cases()[i.param].name);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

/// States and gates that no block has room for, which are 4,096 floats and more: their texts with less room.
TEST_F(PlainRecurrent, WithoutRoomInSharedMemory) {
  const auto c = std::find_if(plain_cases().begin(), plain_cases().end(), [](const PlainCase& p) { return p.name == "recurrent"; });
  ASSERT_NE(c, plain_cases().end());
  for (unsigned seed = 1; seed <= 8; ++seed) {
    int places = 0;
    const std::string wrong = run(*c, seed, [&](std::string text) {
      for (const std::string_view name : {"kNearState = ", "kNearSums = "}) {
        const auto at = text.find(name);
        if (at == std::string::npos) continue;
        const auto from = at + name.size(), to = text.find_first_not_of("0123456789", from);
        text.replace(from, to - from, "1");
        ++places;
      }
      return text;
    });
    EXPECT_EQ(places, 2) << seed;
    ASSERT_EQ(wrong, "") << seed;
  }
}

class PlainMistakes : public EmulatedTest {};

/// Is the mistake found by one of so many seeds whose text has the place?
bool found(std::string_view family, std::string_view from, std::string_view to) {
  const auto c = std::find_if(plain_cases().begin(), plain_cases().end(), [&](const PlainCase& p) { return p.name == family; });
  if (c == plain_cases().end()) return false;
  for (unsigned seed = 1; seed <= 48; ++seed) {
    const std::string wrong = run(*c, seed, [&](std::string text) {
      const auto at = text.find(from);
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
    if (!wrong.empty()) return true;
  }
  return false;
}

TEST_F(PlainMistakes, AreFound) {
  EXPECT_TRUE(found("top_k", "(unsigned long long)place;", "(unsigned long long)(0xffffffffll - place);"))
      << "the later of equal elements first";
  EXPECT_TRUE(found("top_k", "return 0xffffffffu;", "return 0u;")) << "NaN is the least";
  EXPECT_TRUE(found("top_k", "if (step >= 32)", "if (step > 32)")) << "a step that reads what another warp is writing";
  EXPECT_TRUE(found("top_k", "to <= lengths[r]", "to < lengths[r]")) << "the last element of another piece is not counted";
  EXPECT_TRUE(found("top_k", "if (rank >= kTop) return;", "if (rank > kTop) return;")) << "one element too many";
  EXPECT_TRUE(found("arg_max", "(kLast ? p < place : p > place)", "(kLast ? p > place : p < place)"))
      << "another of equal elements";
  EXPECT_TRUE(found("arg_max", "(kLast && v == value)", "(!kLast && v == value)")) << "another of equal elements of a thread";
  EXPECT_TRUE(found("non_zero", "octavo_scanned(held, n) - n", "octavo_scanned(held, n)")) << "behind its own elements";
  EXPECT_TRUE(found("non_zero", "if (b < octavo_block())", "if (b <= octavo_block())")) << "behind its own piece";
  EXPECT_TRUE(found("non_zero", "    octavo_barrier();\n    if (mine >= step) held[mine]", "    if (mine >= step) held[mine]"))
      << "counts that change while others read them";
  EXPECT_TRUE(
      found("scatter", "octavo_atomic_max(chosen + row, (int)(i + 1))", "octavo_atomic_max(chosen + row, (int)(kUnits - i))"))
      << "the first update wins";
  EXPECT_TRUE(found("scatter", "k += k < 0 ?", "k += k > 0 ?")) << "indices that count from the end";
  EXPECT_TRUE(found("scatter", "q - 1 < next ?", "true ?")) << "updates of one target in another order";
  EXPECT_TRUE(found("cumulate", "        sum = next;", "        sum = held[32 * r + k];")) << "not a sum";
  EXPECT_TRUE(found("cumulate", "    octavo_warp_barrier();\n    OCTAVO_UNROLL", "    OCTAVO_UNROLL"))
      << "what other lanes have yet to read";
  EXPECT_TRUE(found("cumulate", "if (mine > 0) sum", "if (mine > 1) sum")) << "without what the thread before has";
  EXPECT_TRUE(found("grid_sample", "(turns % 2 == 0)", "(turns % 2 != 0)")) << "thrown back to the other side";
  EXPECT_TRUE(found("non_max_suppression", "(v == score && p > place)", "(v == score && p < place)")) << "the later of equal boxes";
  EXPECT_TRUE(found("non_max_suppression", "count % 2 * 32", "0")) << "the best of warps is overwritten while others read it";
  EXPECT_TRUE(found("dynamic_quantize", "lo = (float)(0 - zero)", "lo = (float)(1 - zero)")) << "no code 0";
  EXPECT_TRUE(found("quantize_rt", "- zero), v = ", "- zero + 1), v = ")) << "codes beyond the type";
  EXPECT_TRUE(found("roi_align", "weight[1] = hy * lx", "weight[1] = ly * hx")) << "weights of other neighbours";
  EXPECT_TRUE(found("recurrent", "length - 1 - step : step", "step : step")) << "backwards is forwards";
  EXPECT_TRUE(found("recurrent", "const long long step = turn /", "const long long step = 1 + turn /"))
      << "the first step is left out";
  EXPECT_TRUE(found("recurrent", "kept + step % 2 * kHidden", "kept + (1 - step % 2) * kHidden")) << "the state of another step";
  EXPECT_TRUE(found("recurrent", "int k = whole;", "int k = whole + 1;")) << "elements behind groups of 32";
  EXPECT_TRUE(found("max_pool_index", "v > value", "v >= value")) << "the last of equal elements";
  EXPECT_TRUE(found("max_pool.whole", "long long most = kLeast", "long long most = 0")) << "padding takes part";
  EXPECT_TRUE(found("reduce.whole", "half = kBlock / 2;", "half = kBlock / 4;")) << "the parts of other threads are left out";
  EXPECT_TRUE(found("det", "d = -d;", "")) << "exchanged rows";
  EXPECT_TRUE(found("affine", "octavo_x2(t, channel)", "octavo_x1(t, channel)")) << "the factor is the summand";
  EXPECT_TRUE(found("doubles", "(double)octavo_x0(t, i)", "(double)(float)(int)octavo_x0(t, i)")) << "casts through 32 bits";
  EXPECT_TRUE(found("small_floats", "const float steps = rintf(", "const float steps = floorf(")) << "towards zero";
  EXPECT_TRUE(found("deform_conv", "q / 2 != 0 ? ly", "q % 2 != 0 ? ly")) << "weights of other neighbours";
}

TEST(PlainKinds, RefuseWhatTheyCannot) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {4};
  st.anchor.op = ir::Op::cumulate;
  st.anchor.facts = ir::Cumulate{};
  st.anchor.inputs = {s.tensor(ir::DType::u8, {4}, region::BufferKind::input)};
  st.stores = {s.tensor(ir::DType::u8, {4}, region::BufferKind::output)};
  const cuda::Family& f = cuda::cumulate_family();
  EXPECT_EQ(spelled(f.why_not(s.region(), s.plan(), {})), "");
  st.anchor.inputs[0].quantizer = ir::per_tensor(ir::DType::u8, 0.1F, 3);
  EXPECT_NE(spelled(f.why_not(s.region(), s.plan(), {})), "") << "codes";
  st.anchor.inputs[0].quantizer.reset();
  st.anchor.inputs[0].dtype = ir::DType::s4;
  EXPECT_NE(spelled(f.why_not(s.region(), s.plan(), {})), "") << "a type of 4 bits";
  st.anchor.inputs[0].dtype = ir::DType::u8;
  st.anchor.as<ir::Cumulate>().axis = 1;
  EXPECT_FALSE(f.emit(s.region(), s.plan(), {}, {})) << "no such dimension";
}

}  // namespace
}  // namespace octavo::testing
