// A first layer with the MaxPool behind it in one kernel: bits under the emulation, planted mistakes, machine code.
#include "cuda/families/conv/conv_rows_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

struct Window {
  std::int64_t high = 3, wide = 3, down = 2, right = 2, top = 1, left = 1, bottom = 1, behind = 1, apart = 1;
};
struct Stem {
  ir::Shape x;
  std::int64_t outputs, kernel, stride;
  Window pool;
  int zero = 0;         ///< of the input
  bool planes = false;  ///< the input comes as planes of floats
  int gap = 0;          ///< of the pooled pixels
  bool more = false;    ///< the pooling's program requantizes, and stores floats as well
};

class Built {
 public:
  explicit Built(const Stem& k) : scene(static_cast<std::uint32_t>(k.zero + 7)) {
    Scene& s = scene;
    auto& conv = s.stage();
    const std::int64_t pad = k.kernel / 2;
    const auto size = [](std::int64_t in, std::int64_t pads, std::int64_t extent, std::int64_t stride) {
      return (in + pads - extent) / stride + 1;
    };
    conv.space = {k.x[0], k.outputs, size(k.x[2], 2 * pad, k.kernel, k.stride), size(k.x[3], 2 * pad, k.kernel, k.stride)};
    conv.anchor.op = ir::Op::conv;
    conv.anchor.integer = true;
    conv.anchor.facts = ir::Window{.strides = {k.stride, k.stride}, .dilations = {1, 1}, .pads = {pad, pad, pad, pad}};
    const region::TensorRef x = s.nhwc(DType::u8, k.x, k.planes ? BufferKind::arena : BufferKind::input);
    auto& memory = s.plan().buffers[static_cast<std::size_t>(x.buffer)];
    memory.bytes = (memory.bytes + 3) / 4 * 4;  // it comes in whole words
    conv.anchor.inputs = {x};
    conv.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.043F, k.zero);
    conv.anchor.weights = s.tensor(DType::s8, {k.outputs, k.x[1], k.kernel, k.kernel}, BufferKind::constant);
    s.requantize(1, 0.01F);
    const region::TensorRef codes = s.nhwc(DType::u8, conv.space);
    conv.stores = {codes};
    between = {codes};

    region::Stage pool;
    const Window& w = k.pool;
    pool.space = {k.x[0], k.outputs, size(conv.space[2], w.top + w.bottom, (w.high - 1) * w.apart + 1, w.down),
                  size(conv.space[3], w.left + w.behind, (w.wide - 1) * w.apart + 1, w.right)};
    pool.anchor.op = ir::Op::max_pool;
    pool.anchor.integer = true;
    pool.anchor.inputs = {codes};
    pool.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.05F, 117);
    pool.anchor.facts = ir::Window{.kernel = {w.high, w.wide},
                                   .strides = {w.down, w.right},
                                   .dilations = {w.apart, w.apart},
                                   .pads = {w.top, w.left, w.bottom, w.behind}};
    auto& p = pool.program;
    const int acc = p.push(Op::acc_i);
    pool.stores = {s.nhwc(DType::u8, pool.space, BufferKind::output, k.gap)};
    p.outputs = {{acc, DType::u8}};
    if (k.more) {
      pool.operands = {{s.along(DType::f32, pool.space, 1), {}}};
      p.operand_count = 1;
      const int y = p.push(Op::mul, p.push(Op::i2f, p.push(Op::sub_i, acc, p.imm_i(117))), p.load(Op::load_f, 0));
      const int code = p.push(Op::f2i, p.push(Op::min, p.push(Op::max, y, p.imm_f(-9)), p.imm_f(246)));
      p.outputs = {{p.push(Op::add_i, code, p.imm_i(9)), DType::u8}, {y, DType::f32}};
      pool.stores.push_back(s.nhwc(DType::f32, pool.space, BufferKind::output));
    }
    s.region().stages.push_back(std::move(pool));
    if (k.planes) {
      s.region().stages.insert(s.region().stages.begin(), codes_of_planes(k, x));
      between.push_back(x);
    }
  }

  std::string run(std::string_view tile, int warps = 2, int group = 1, const Edit& edit = {}) {
    const int channels = tile.ends_with('w') ? 64 : 16;
    const cuda::Parameters parameters{{"tile", std::string(tile.substr(0, tile.find('w')))},
                                      {"channels", std::to_string(channels)},
                                      {"warps", std::to_string(warps)},
                                      {"group", std::to_string(group)},
                                      {"blocks", "1"},
                                      {"pool", "codes"}};
    return run(parameters, edit);
  }
  /// Sums pooled in registers.
  std::string sums(std::string_view tile, int warps = 2, const Edit& edit = {}) {
    const int channels = tile.ends_with('w') ? 64 : 16;
    const cuda::Parameters parameters{{"tile", std::string(tile.substr(0, tile.find('w')))},
                                      {"channels", std::to_string(channels)},
                                      {"warps", std::to_string(warps)},
                                      {"group", "2"},
                                      {"blocks", "1"},
                                      {"pool", "sums"}};
    return run(parameters, edit);
  }
  std::string run(const cuda::Parameters& parameters, const Edit& edit) {
    const auto truth = [&](const region::Region& r, const region::Memory& m) {  // what is forwarded is not to be in memory
      std::vector<std::vector<std::byte>> before;
      for (const auto& t : between) before.emplace_back(m.at(t), m.at(t) + ir::count(t.dims));
      scalar_region(r, m);
      for (std::size_t i = 0; i < between.size(); ++i) std::copy(before[i].begin(), before[i].end(), m.at(between[i]));
    };
    return run_emulated(scene, cuda::conv_rows_pool_family(), parameters, 0, edit, truth, {"sm_80", 108, 163 * 1024});
  }

  Scene scene;
  std::vector<region::TensorRef> between;

 private:
  region::Stage codes_of_planes(const Stem& k, const region::TensorRef& codes) {
    region::Stage st;
    st.space = k.x;
    st.operands = {{scene.tensor(DType::f32, k.x, BufferKind::input), {}}};
    st.stores = {codes};
    auto& p = st.program;
    p.operand_count = 1;
    const int x = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(0.043F));
    const int low = p.push(Op::max, x, p.imm_f(static_cast<float>(-k.zero)));
    const int code = p.push(Op::f2i, p.push(Op::min, low, p.imm_f(static_cast<float>(255 - k.zero))));
    p.outputs = {{p.push(Op::add_i, code, p.imm_i(k.zero)), DType::u8}};
    return st;
  }
};

constexpr Window kUsual;  // 3x3/2, one pixel of padding

class RowsPool : public EmulatedTest {};

TEST_F(RowsPool, TilesBordersAndZeroPoints) {
  const Stem seven{{1, 3, 26, 30}, 20, 7, 2, kUsual, 114};  // 13x15 -> 7x8, no whole tile of channels
  for (const char* tile : {"1x8", "2x3", "7x8", "8x5"}) EXPECT_EQ(Built(seven).run(tile), "") << tile;
  EXPECT_EQ(Built({{2, 3, 17, 19}, 70, 3, 2, kUsual, 0}).run("2x5w", 4), "");     // two blocks of channels
  EXPECT_EQ(Built({{2, 1, 9, 21}, 16, 5, 1, kUsual, 255}).run("3x4", 1, 2), "");  // odd sizes, one channel
}

TEST_F(RowsPool, Windows) {
  const Stem base{{1, 3, 13, 22}, 16, 3, 1, kUsual, 9};
  for (const Window& w : {Window{2, 2, 2, 2, 0, 0, 0, 0}, Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{5, 5, 1, 1, 2, 2, 2, 2},
                          Window{3, 2, 2, 3, 0, 1, 1, 0}, Window{3, 3, 3, 3, 0, 0, 0, 0}, Window{2, 2, 3, 4, 1, 1, 1, 1},
                          Window{3, 3, 2, 2, 1, 2, 2, 1, 2}, Window{1, 1, 2, 2, 0, 0, 0, 0}, Window{6, 6, 2, 2, 5, 5, 5, 5}}) {
    Stem k = base;
    k.pool = w;
    EXPECT_EQ(Built(k).run("2x4"), "") << w.high << "x" << w.wide << "/" << w.down << "," << w.right;
  }
}

TEST_F(RowsPool, WindowsWhollyInPaddingGiveTheLeastCode) {
  Stem k{{1, 3, 6, 8}, 16, 3, 1, {2, 2, 2, 2, 0, 0, 4, 5}, 3};
  EXPECT_EQ(Built(k).run("5x6"), "");
  k.pool = {2, 2, 2, 2, 4, 5, 0, 0};
  EXPECT_EQ(Built(k).run("2x2"), "");
}

TEST_F(RowsPool, Planes) {
  Stem k{{2, 3, 14, 20}, 16, 7, 2, kUsual, 77, true};
  EXPECT_EQ(Built(k).run("2x3"), "");
  EXPECT_EQ(Built(k).run("4x5", 4, 2), "");
  k = {{1, 3, 6, 36}, 12, 3, 1, {3, 3, 1, 3, 1, 1, 1, 1}, 128, true};
  EXPECT_EQ(Built(k).run("3x5"), "");
}

TEST_F(RowsPool, ProgramsBehindThePooling) {
  Stem k{{1, 3, 9, 17}, 19, 3, 1, kUsual, 50, false, 13, true};
  EXPECT_EQ(Built(k).run("2x4"), "");
  k.outputs = 64, k.gap = 64;
  EXPECT_EQ(Built(k).run("2x4w"), "");
}

TEST_F(RowsPool, SumsInRegisters) {
  const Stem seven{{1, 3, 26, 78}, 20, 7, 2, kUsual, 114};  // 13x39 -> 7x20: strips of seven and a part
  for (const char* tile : {"2x9", "7x20", "8x7"}) EXPECT_EQ(Built(seven).sums(tile), "") << tile;
  EXPECT_EQ(Built({{2, 3, 17, 19}, 70, 3, 2, kUsual, 0}).sums("2x5w", 4), "");  // two blocks of channels
  EXPECT_EQ(Built({{2, 1, 9, 21}, 16, 5, 1, kUsual, 255}).sums("3x4", 1), "");
  EXPECT_EQ(Built({{2, 3, 14, 36}, 16, 7, 2, kUsual, 77, true}).sums("2x9"), "");
  for (const Window& w : {Window{2, 2, 2, 2, 0, 0, 0, 0}, Window{3, 3, 2, 2, 0, 0, 0, 0}, Window{3, 3, 2, 2, 2, 2, 2, 2},
                          Window{3, 2, 2, 2, 1, 1, 0, 0}, Window{2, 3, 2, 2, 1, 0, 1, 2}}) {
    const Stem k{{1, 3, 13, 42}, 16, 3, 1, w, 9};
    EXPECT_EQ(Built(k).sums("3x10"), "") << w.high << "x" << w.wide << ", " << w.top;
  }
}

// Any shapes, windows and tiles; by sums where they are taken.
TEST_F(RowsPool, RandomShapes) {
  std::mt19937 rng(11);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  int of_sums = 0;
  for (int i = 0; i < (std::getenv("OCTAVO_LONG") ? 200 : 4); ++i) {
    Window w{pick(2, 3), pick(2, 3), 2, 2, 0, 0, 0, 0, 1};
    if (pick(0, 1) == 0) w = {pick(1, 5), pick(1, 5), pick(1, 3), pick(1, 3), 0, 0, 0, 0, pick(1, 2)};
    w.top = pick(0, w.high - 1), w.left = pick(0, w.wide - 1), w.bottom = pick(0, w.high - 1), w.behind = pick(0, w.wide - 1);
    const bool planes = pick(0, 2) == 0;
    const std::int64_t wide = pick(12, 44), kernel = 1 + 2 * pick(1, 3);
    const Stem k{{pick(1, 2), pick(1, 4), pick(10, 24), planes ? wide / 4 * 4 : wide},
                 pick(1, 40),
                 kernel,
                 pick(1, 2),
                 w,
                 static_cast<int>(pick(0, 255)),
                 planes,
                 0,
                 false};
    const std::string tile = fmt::format("{}x{}{}", pick(1, 7), pick(1, 12), pick(0, 1) == 0 ? "w" : "");
    const std::string codes = Built(k).run(tile, static_cast<int>(pick(1, 4)), static_cast<int>(pick(1, 2)));
    EXPECT_EQ(codes.substr(0, codes.find('\n')), "") << "shape " << i << ", tile " << tile;
    const std::string sums = Built(k).sums(tile, static_cast<int>(pick(1, 4)));
    if (sums.find("emit: ") == 0) continue;
    ++of_sums;
    EXPECT_EQ(sums.substr(0, sums.find('\n')), "") << "shape " << i << ", tile " << tile << " of sums";
  }
  EXPECT_GT(of_sums, 0);
}

TEST_F(RowsPool, SumsOfProgramsThatRiseAlone) {
  const auto refused = [](Built& b) { return b.sums("2x4").find("emit: ") == 0; };
  Built falls({{1, 3, 9, 17}, 16, 3, 1, kUsual, 50});
  EXPECT_FALSE(refused(falls));
  program::Program& p = falls.scene.stage().program;
  p.outputs[0].value = p.push(Op::sub_i, p.imm_i(255), p.outputs[0].value);
  EXPECT_TRUE(refused(falls));
  EXPECT_EQ(falls.run("2x4"), "") << "codes are pooled behind any program";
  Built more({{1, 3, 9, 17}, 19, 3, 1, kUsual, 50, false, 13, true});
  EXPECT_TRUE(refused(more));
  Built wide({{1, 3, 9, 17}, 16, 3, 1, {5, 5, 2, 2, 2, 2, 2, 2}, 50});
  EXPECT_TRUE(refused(wide));
}

TEST_F(RowsPool, MistakesWithSumsAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to) {
    return Built({{1, 3, 18, 21}, 16, 3, 1, kUsual, 77}).sums("2x8", 2, [&](std::string text) {
      return edited(std::move(text), from, to);
    });
  };
  EXPECT_EQ(planted("OCTAVO_POOL 2", "OCTAVO_POOL 2"), "");
  EXPECT_NE(planted("pooled_above : pooled_above - kRowBefore;", "pooled_above : pooled_above;"), "") << "the row above a tile";
  EXPECT_NE(planted("kStrip = 8 - kColumnBefore", "kStrip = 8"), "") << "a window without its left column";
  EXPECT_NE(planted("octavo_shuffle_from(right, lane - 4)", "octavo_shuffle_from(greatest[k], lane - 4)"), "")
      << "the neighbour's other column";
  EXPECT_NE(planted("last_row[e] = greatest[1];", "last_row[e] = values[0][e];"), "") << "a row too many";
  EXPECT_NE(planted("(int)0x80000000u", "(int)0x7fffffffu"), "") << "what is not there wins";
  EXPECT_NE(planted("within < kPoolColumns && x < kPooledW", "within < kPoolColumns"), "") << "a pooled column too many";
  EXPECT_NE(planted("- kPoolPadTop + kRowBefore + i / 2, kOutH)", "- kPoolPadTop + i / 2, kOutH)"), "") << "one row off";
  EXPECT_NE(planted("octavo_copy_wait<0>();\n  octavo_barrier();", "octavo_copy_wait<0>();"), "") << "missing barrier";
}

TEST_F(RowsPool, WhatIsNotTakenSaysWhy) {
  Built b({{1, 3, 9, 17}, 16, 3, 1, kUsual, 50});
  const auto why_not = [&] { return cuda::conv_rows_pool_family().why_not(b.scene.region(), b.scene.plan(), {}); };
  auto& pool = b.scene.region().stages[1];
  pool.anchor.as<ir::Window>().pads[0] = -1;
  EXPECT_EQ(why_not(), region::unmet("padding", "-1, 1", "0 or more"));
  pool.anchor.op = ir::Op::avg_pool;
  EXPECT_FALSE(cuda::conv_rows_pool_family().about(b.scene.region()));
}

TEST_F(RowsPool, PlantedMistakesAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to) {
    return Built({{1, 3, 18, 21}, 16, 3, 1, kUsual, 77}).run("2x4", 2, 1, [&](std::string text) {
      return edited(std::move(text), from, to);
    });
  };
  EXPECT_EQ(planted("OCTAVO_POOL 1", "OCTAVO_POOL 1"), "");
  EXPECT_NE(planted("octavo_inside(pooled * kPoolStrideH - kPoolPadTop, kOutH)", "octavo_inside(pooled * kPoolStrideH, kOutH)"), "")
      << "wrong halo above";
  EXPECT_NE(planted("octavo_inside(pooled * kPoolStrideW - kPoolPadLeft, kOutW)", "octavo_inside(pooled * kPoolStrideW, kOutW)"),
            "")
      << "wrong halo to the left";
  EXPECT_NE(planted("octavo_barrier();\n  const pooled", "const pooled"), "") << "missing barrier";
  EXPECT_NE(planted("i < kPoolRows * kItems", "i < (kPoolRows - 1) * kItems"), "") << "one pooled row too few";
  EXPECT_NE(planted("(y >= kPooledH ||", "(y > kPooledH ||"), "") << "one pooled row too many";
  EXPECT_NE(planted("pooled + kPoolRows - 1 : kPooledH - 1", "pooled + kPoolRows - 2 : kPooledH - 1"), "")
      << "a row is not computed";
  EXPECT_NE(planted("(unsigned)column >= (unsigned)kOutW", "(unsigned)column > (unsigned)kOutW"), "") << "padding takes part";
  EXPECT_NE(planted("words[w] & 0x00ff00ffu", "words[w]"), "") << "bytes beside the byte";
}

TEST(RowsPoolText, CompilesForEveryArchitecture) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const cuda::Architecture architecture : architectures()) {
    Built b({{2, 3, 56, 56}, 64, 7, 2, kUsual, 77, true});
    const cuda::Target target{architecture};
    const auto& family = cuda::conv_rows_pool_family();
    for (const char* pool : {"codes", "sums"}) {
      const auto all = family.candidates(b.scene.region(), b.scene.plan(), target);
      const auto first = std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.parameters.at("pool") == pool; });
      ASSERT_NE(first, all.end()) << pool;
      const auto text = family.emit(b.scene.region(), b.scene.plan(), first->parameters, target);
      ASSERT_TRUE(text) << text.error().message;
      const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(architecture));
      ASSERT_TRUE(code) << architecture << ": " << code.error().message;
      EXPECT_EQ(code->log, "") << architecture;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
