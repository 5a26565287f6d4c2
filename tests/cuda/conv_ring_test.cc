// conv.f16.stream and conv.bf16.stream under emulation: shapes around their tiles, every way to share tiles, windows, epilogues, beside the contract
// element by element; mistakes planted in their text; and what NVRTC says of them. And conv.f16.mma with products of warpgroups, and conv.u8s8.linear.
#include <gtest/gtest.h>

#include <string>

#include "cuda/conv_scene.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/linear_scene.h"
#include "cuda/text/emit_cuda.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;

/// Few multiprocessors: blocks take several tiles.
cuda::Target hopper(int multiprocessors = 2) {
  cuda::Target t;
  t.architecture = "sm_90a", t.multiprocessors = multiprocessors;
  return t;
}

const cuda::Family& family_of(DType type) {
  return type == DType::f16 ? cuda::conv_stream_f16_family() : cuda::conv_stream_bf16_family();
}

cuda::Parameters tile(const std::string& size, int warpgroups, const std::string& tiles, int stages, int blocks = 1) {
  return {{"tile", size},
          {"warpgroups", std::to_string(warpgroups)},
          {"tiles", tiles},
          {"stages", std::to_string(stages)},
          {"blocks", std::to_string(blocks)}};
}

std::string run(const LinearCase& c, const cuda::Parameters& parameters, const Edit& edit = {}, int multiprocessors = 2) {
  Scene s(17);
  build(s, c);
  const std::string wrong =
      run_emulated(s, family_of(c.type), parameters, c.tolerance(), edit, scalar_region, hopper(multiprocessors));
  return wrong.empty() ? "" : c.text() + ": " + wrong;
}

/// Linear layers of one input as one region of independent stages.
void build_side_by_side(Scene& s, const LinearCase& c, std::size_t count) {
  build(s, c);
  const region::Stage first = s.stage();
  for (std::size_t k = 1; k < count; ++k) {
    region::Stage st = first;
    st.anchor.weights = s.tensor(c.type, first.anchor.weights->dims, region::BufferKind::constant, {}, 0,
                                 LinearCase::kLargest / static_cast<float>(c.depth * c.kernel * c.kernel));
    st.operands[0].ref = s.along(ir::DType::f32, st.space, 1);
    st.stores[0] = s.tensor(c.type, st.space, region::BufferKind::arena, {0, 2, 3, 1});
    s.region().stages.push_back(st);
  }
  s.region().independent = true;
}

class ConvRing : public EmulatedTest {};

TEST_F(ConvRing, LayersOfOneInputAreOneProduct) {
  const auto run_all = [](const LinearCase& c, std::size_t count, const cuda::Parameters& parameters, const Edit& edit = {}) {
    Scene s(23);
    build_side_by_side(s, c, count);
    return run_emulated(s, family_of(c.type), parameters, c.tolerance(), edit, scalar_region, hopper());
  };
  const LinearCase c{DType::f16, 150, 72, 128, "bias"};
  for (const std::size_t count : {2, 3, 4}) EXPECT_EQ(run_all(c, count, tile("64x64", 2, "own", 3)), "") << count;
  EXPECT_EQ(run_all({DType::bf16, 70, 72, 128, "gelu"}, 3, tile("128x128", 2, "shared", 3)), "");
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_all(c, 3, tile("64x64", 2, "own", 3), [&](const std::string& text) { return edited(text, from, to); });
  };
  EXPECT_EQ(planted("kPieces;", "kPieces;"), "") << "nothing planted";
  EXPECT_NE(planted("tile_n / kPartTiles : 0", "0 : 0"), "") << "all tiles are of the first part";
  EXPECT_NE(planted("if (part == 1)", "if (part == 2)"), "") << "no program for the second part";
  const auto refused = [](std::size_t count, const auto& change, const cuda::Parameters& parameters) {
    Scene s(23);
    build_side_by_side(s, {DType::f16, 150, 72, 128, "bias"}, count);
    change(s);
    return !cuda::conv_stream_f16_family().emit(s.region(), s.plan(), parameters, hopper());
  };
  const cuda::Parameters small = tile("64x64", 2, "own", 3);
  EXPECT_FALSE(refused(
      3, [](Scene&) {}, small));
  EXPECT_TRUE(refused(
      5, [](Scene&) {}, small))
      << "too many";
  EXPECT_TRUE(refused(
      2, [](Scene& s) { s.region().stages[1].anchor.inputs[0].offset += 16; }, small))
      << "another input";
}

TEST_F(ConvRing, LayersSideBySideHaveTheirOwnPrograms) {
  const LinearCase c{DType::f16, 150, 72, 128, "residual"};
  Scene s(29);
  build_side_by_side(s, c, 2);
  Scene other(31);
  build(other, {DType::f16, 150, 72, 128, "bias"});
  region::Stage& second = s.region().stages[1];
  second.program = other.stage().program;
  second.operands.resize(1);
  second.stores[0] = s.tensor(c.type, second.space, region::BufferKind::arena, {0, 2, 3, 1}, 8);
  EXPECT_EQ(run_emulated(s, family_of(c.type), tile("64x64", 2, "own", 3), c.tolerance(), {}, scalar_region, hopper()), "");
}

TEST_F(ConvRing, ShapesAroundTiles) {
  const cuda::Parameters own = tile("64x64", 2, "own", 3), shared = tile("128x64", 2, "shared", 2);
  EveryOther some;
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const std::int64_t rows : {1, 64, 129}) {
      const std::int64_t columns = rows % 2 == 0 ? 64 : 136;
      if (some.takes(0, type, rows)) EXPECT_EQ(run({type, rows, 72, columns}, own), "");
      if (some.takes(1, type, rows)) EXPECT_EQ(run({type, rows, 72, columns}, shared), "");
    }
  }
  for (const std::int64_t depth : {8, 64, 200}) {
    EXPECT_EQ(run({DType::f16, 100, depth, 64}, own), "");
    EXPECT_EQ(run({DType::f16, 100, depth, 64}, shared), "");
  }
  EXPECT_EQ(run({DType::f16, 5, 72, 1}, own), "");
  EXPECT_EQ(run({DType::f16, 200, 192, 65}, own, {}, 1), "") << "one block has all tiles";
}

TEST_F(ConvRing, EveryWayToShareTiles) {
  const LinearCase c{DType::f16, 300, 136, 200, "residual"};
  EXPECT_EQ(run(c, tile("64x64", 1, "shared", 4)), "") << "one warpgroup";
  EXPECT_EQ(run(c, tile("64x128", 1, "shared", 3, 2)), "") << "two blocks of one warpgroup";
  EXPECT_EQ(run(c, tile("192x64", 3, "shared", 3)), "") << "three warpgroups";
  EXPECT_EQ(run(c, tile("64x64", 3, "own", 5)), "")
      << "three warpgroups with tiles of their own, more stages than a tile has steps";
  EXPECT_EQ(run(c, tile("64x64", 4, "own", 3), {}, 1), "") << "four of them";
  EXPECT_EQ(run(c, tile("128x128", 2, "own", 3)), "") << "128 pixels a warpgroup";
  EXPECT_EQ(run(c, tile("64x192", 2, "own", 4)), "") << "192 channels";
  EXPECT_EQ(run(c, tile("128x256", 2, "shared", 4)), "") << "256 channels";
  EXPECT_EQ(run(c, tile("256x128", 2, "shared", 4)), "") << "128 pixels a warpgroup of a shared tile";
}

TEST_F(ConvRing, Programs) {
  for (const char* style : {"bias", "gelu", "residual", "codes", "two"}) {
    for (const DType type : {DType::f16, DType::bf16}) EXPECT_EQ(run({type, 130, 72, 136, style}, tile("64x64", 2, "own", 3)), "");
  }
}

TEST_F(ConvRing, Windows) {
  const auto image = [](DType type, std::int64_t n, std::int64_t c, std::int64_t o, std::int64_t h, std::int64_t w, std::int64_t k,
                        std::int64_t stride, std::int64_t pad,
                        int gap = 0) { return LinearCase{type, n, c, o, "bias", h, w, k, stride, pad, gap}; };
  EXPECT_EQ(run(image(DType::f16, 1, 16, 40, 9, 11, 3, 1, 1), tile("64x64", 2, "own", 3)), "");
  EXPECT_EQ(run(image(DType::bf16, 2, 40, 72, 10, 7, 3, 2, 1), tile("128x64", 2, "shared", 2)), "")
      << "steps across taps, stride 2";
  EXPECT_EQ(run(image(DType::f16, 2, 8, 16, 9, 8, 5, 1, 2), tile("64x64", 1, "shared", 3)), "") << "25 taps: a mask of 64 bits";
  EXPECT_EQ(run(image(DType::f16, 2, 64, 64, 9, 8, 1, 2, 0), tile("64x64", 2, "own", 3)), "") << "1x1 with a stride";
  EXPECT_EQ(run(image(DType::f16, 2, 64, 64, 9, 8, 1, 1, 0, 8), tile("64x64", 2, "own", 3)), "") << "pixels with a gap";
}

TEST_F(ConvRing, ProductsOfWarpgroupsInConvMma) {
  cuda::ConvTile t;
  t.m = 64, t.n = 64, t.k = 64, t.warps_m = 4, t.warps_n = 1, t.stages = 3, t.blocks = 1, t.groups = 1;
  cuda::ConvTile deep = t;
  deep.k = 128, deep.stages = 4, deep.m = 128, deep.warps_m = 8;  // products of a step under way when the next one begins
  const auto with = [](const LinearCase& c, const cuda::ConvTile& tile, const Edit& edit = {}) {
    Scene s(19);
    build(s, c);
    const cuda::Family& family = c.type == DType::f16 ? cuda::conv_f16_family() : cuda::conv_bf16_family();
    return run_emulated(s, family, cuda::spell(tile), c.tolerance(), edit, scalar_region, hopper());
  };
  for (const DType type : {DType::f16, DType::bf16}) {
    EXPECT_EQ(with({type, 130, 200, 72, "residual"}, t), "");
    EXPECT_EQ(with({type, 130, 520, 72, "two"}, deep), "");
    EXPECT_EQ(with({type, 2, 20, 40, "bias", 9, 7, 3, 2, 1}, t), "") << "channels that are copied in pieces";
  }
  cuda::ConvTile sliced = t;
  sliced.slices = 2, sliced.stages = 2;
  EXPECT_EQ(with({DType::f16, 130, 264, 72}, sliced), "") << "depth in two slices";
  EXPECT_NE(with({DType::f16, 130, 520, 72}, deep,
                 [](const std::string& text) {
                   return edited(text, "OCTAVO_GROUP_PRODUCT octavo_group_multiply_f16",
                                 "OCTAVO_GROUP_PRODUCT octavo_group_multiply_bf16");
                 }),
            "");
}

TEST_F(ConvRing, MistakesAreFound) {
  const LinearCase c{DType::f16, 40, 48, 72, "residual", 3, 2, 3, 1, 1};  // four tiles, all of one block
  const auto planted = [&](std::string_view from, std::string_view to, const std::string& tiles = "own") {
    return run(
        c, tile("128x64", 2, tiles, 3), [&](const std::string& text) { return edited(text, from, to); }, 1);
  };
  EXPECT_EQ(planted("kPieces;", "kPieces;"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFull + stage), parity);", ""), "") << "nobody waits for the copies";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFree + stage), parity);", ""), "") << "copies do not wait for the products";
  EXPECT_NE(planted("octavo_group_wait<1>();", "octavo_group_wait<2>();"), "")
      << "a stage is free while its products are under way";
  EXPECT_NE(planted("if (kInTurn) octavo_signal_wait(signal(kTurn + group), turn), turn ^= 1;", ""), "")
      << "a stage is taken for full a round too early";
  EXPECT_NE(planted("kThreads + 1);", "kThreads);"), "") << "one arrival less";
  EXPECT_NE(planted("(kWarpgroups - 1) * kSteps : 0;", "kSteps - 1 : 0;"), "") << "a step of the other warpgroup";
  EXPECT_NE(planted("k > 0 || step > 0", "step > 0"), "") << "the first step begins four times";
  EXPECT_NE(planted("(piece + 1) % 2], pointers", "piece % 2], pointers"), "") << "operands of the next part";
  EXPECT_NE(planted("kPadTop = 1", "kPadTop = 0"), "") << "a wrong border";
  EXPECT_NE(planted("warp % 4 * 16", "warp % 2 * 16"), "") << "wrong rows";
  EXPECT_NE(planted("octavo_group_multiply_f16", "octavo_group_multiply_bf16"), "") << "the bits of another type";
  EXPECT_NE(planted("group * (kOwnTiles * 64);", "0;", "shared"), "") << "two warpgroups compute the same rows";
  EXPECT_NE(planted("4 * (kInTurn ? 1 : kWarpgroups)", "4", "shared"), "") << "free when one of two warpgroups is ready";
}

/// conv.u8s8.linear: every byte is the contract's.
ConvCase codes(std::int64_t rows, std::int64_t depth, std::int64_t columns, const std::string& style = "relu", int zero = 0) {
  ConvCase k;
  k.n = rows, k.c = depth, k.h = k.w = 1, k.o = columns, k.style = style, k.zero = zero;
  return k;
}
std::string run_codes(ConvScene& s, const cuda::Parameters& parameters, const Edit& edit = {}, int multiprocessors = 2) {
  s.plan.regions = {};
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  return run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_linear_family(), parameters, 0, edit, truth,
                      hopper(multiprocessors));
}
std::string run_codes(const ConvCase& k, const cuda::Parameters& parameters, const Edit& edit = {}, int multiprocessors = 2) {
  ConvScene s(k, 7);
  return run_codes(s, parameters, edit, multiprocessors);
}
/// Adds a layer of the same input, with weights, a program and stores of its own.
void add_layer(ConvScene& s, const ConvCase& k, unsigned seed) {
  const ConvScene other(k, seed);
  const auto base = static_cast<region::BufferId>(s.plan.buffers.size());
  s.plan.buffers.insert(s.plan.buffers.end(), other.plan.buffers.begin(), other.plan.buffers.end());
  s.memory.insert(s.memory.end(), other.memory.begin(), other.memory.end());
  region::Stage st = other.region.stages[0];
  st.anchor.weights->buffer += base;
  for (region::Operand& o : st.operands) o.ref.buffer += base;
  for (region::TensorRef& r : st.stores) r.buffer += base;
  st.anchor.inputs = s.region.stages[0].anchor.inputs;
  s.region.stages.push_back(std::move(st));
  s.region.independent = true;
}

class ConvLinear : public EmulatedTest {};

TEST_F(ConvLinear, ShapesAroundTiles) {
  const cuda::Parameters own = tile("64x64", 2, "own", 3), shared = tile("128x64", 2, "shared", 2);
  EveryOther some;
  for (const int zero : {0, 128, 255}) {
    for (const std::int64_t rows : {1, 64, 129}) {
      if (some.takes(0, zero, rows)) {
        EXPECT_EQ(run_codes(codes(rows, 144, rows % 2 == 0 ? 64 : 136, "bias", zero), own), "") << rows << ", " << zero;
      }
      if (some.takes(1, zero, rows)) {
        EXPECT_EQ(run_codes(codes(rows, 144, rows % 2 == 0 ? 64 : 136, "relu", zero), shared), "") << rows << ", " << zero;
      }
    }
  }
  for (const std::int64_t depth : {16, 128, 400}) {
    EXPECT_EQ(run_codes(codes(100, depth, 64, "bias", 3), own), "") << depth;
    EXPECT_EQ(run_codes(codes(100, depth, 64, "bias", 3), shared), "") << depth;
  }
  EXPECT_EQ(run_codes(codes(5, 144, 1), own), "");
  EXPECT_EQ(run_codes(codes(200, 384, 65, "residual", 77), own, {}, 1), "") << "one block has all tiles";
  ConvCase image = codes(2, 64, 72, "residual", 9);
  image.h = 7, image.w = 9, image.gap = 32;
  EXPECT_EQ(run_codes(image, own), "") << "a 1x1 convolution, pixels with a gap";
}

TEST_F(ConvLinear, EveryWayToShareTilesAndEveryProgram) {
  EveryOther some;
  for (const char* style : {"relu", "bias", "residual", "float", "mixed", "silu", "rest"}) {
    const ConvCase k = codes(300, 272, 200, style, 130);
    if (some.takes(0, style)) {
      EXPECT_EQ(run_codes(k, tile("64x64", 1, "shared", 4)), "") << style << ", one warpgroup";
    }
    if (some.takes(1, style)) {
      EXPECT_EQ(run_codes(k, tile("64x128", 2, "own", 4)), "") << style << ", two with tiles of their own";
    }
    if (some.takes(2, style)) {
      EXPECT_EQ(run_codes(k, tile("64x32", 1, "shared", 8)), "") << style << ", 32 channels";
    }
  }
  const ConvCase k = codes(300, 272, 200, "residual", 130);
  EXPECT_EQ(run_codes(k, tile("192x64", 3, "shared", 3)), "") << "three warpgroups";
  EXPECT_EQ(run_codes(k, tile("64x64", 3, "own", 5)), "") << "three with tiles of their own, more stages than a tile has steps";
  EXPECT_EQ(run_codes(k, tile("128x128", 2, "own", 3)), "") << "128 pixels a warpgroup";
  EXPECT_EQ(run_codes(k, tile("128x256", 2, "shared", 4)), "") << "256 channels";
}

TEST_F(ConvLinear, LayersOfOneInputAreOneProduct) {
  const ConvCase k = codes(150, 144, 128, "bias", 5);
  const auto run_all = [&](std::initializer_list<const char*> styles, const cuda::Parameters& parameters, const Edit& edit = {}) {
    ConvScene s(k, 7);
    unsigned seed = 8;
    for (const char* style : styles) add_layer(s, codes(150, 144, 128, style, 5), seed++);
    return run_codes(s, parameters, edit);
  };
  const cuda::Parameters own = tile("64x64", 2, "own", 3), shared = tile("128x128", 2, "shared", 3);
  EXPECT_EQ(run_all({"bias"}, own), "");
  EXPECT_EQ(run_all({"relu", "residual"}, own), "") << "programs of their own";
  EXPECT_EQ(run_all({"float", "rest", "silu"}, shared), "") << "stores of other types, and several";
  EXPECT_EQ(run_all({"relu", "bias"}, tile("64x256", 2, "own", 3)), "") << "a tile wider than a layer";
  EXPECT_EQ(run_all({"relu", "residual"}, tile("64x32", 1, "shared", 4, 2)), "") << "32 channels";
  ConvScene odd(codes(70, 96, 96, "bias", 5), 7);
  add_layer(odd, codes(70, 96, 96, "relu", 5), 8);
  EXPECT_EQ(run_codes(odd, own), "") << "the last tile of each layer is half empty";
  EXPECT_NE(run_all({"relu", "bias", "bias", "bias"}, own), "") << "too many";
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_all({"bias", "bias"}, own, [&](const std::string& text) { return edited(text, from, to); });
  };
  EXPECT_EQ(planted("kPieces;", "kPieces;"), "") << "nothing planted";
  EXPECT_NE(planted("part == other ? starts[other]", "part == other ? starts[1]"), "") << "sums begin as another part's do";
  EXPECT_NE(planted("- part * kPartTiles", ""), "") << "channels of all parts are counted";
}

TEST_F(ConvLinear, MistakesAreFound) {
  const auto planted = [&](std::string_view from, std::string_view to, const std::string& tiles = "own") {
    return run_codes(
        codes(260, 400, 72, "residual", 130), tile("128x64", 2, tiles, 3),
        [&](const std::string& text) { return edited(text, from, to); }, 1);
  };
  EXPECT_EQ(planted("kPieces;", "kPieces;"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFull + stage), parity);", ""), "") << "nobody waits for the copies";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFree + stage), parity);", ""), "") << "copies do not wait for the products";
  EXPECT_NE(planted("sums[i][j][1] = sums[i][j][3] = (int)start[1];", "sums[i][j][1] = sums[i][j][3] = (int)start[0];"), "")
      << "a neighbour's zero point";
  EXPECT_NE(planted("(piece + 1) % 2], pointers", "piece % 2], pointers"), "") << "operands of the next part";
  EXPECT_NE(planted("group * (kOwnTiles * 64);", "0;", "shared"), "") << "two warpgroups compute the same rows";
}

TEST(ConvLinearTexts, CompileWithoutSpills) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const char* style : {"bias", "silu", "mixed"}) {
    const ConvScene s(codes(1000, 768, 768, style, 128), 7, false);
    EXPECT_FALSE(cuda::conv_linear_family().why_not(s.region, s.plan, cuda::Target{"sm_80"}).empty());
    const auto all = cuda::conv_linear_family().candidates(s.region, s.plan, hopper(132));
    ASSERT_FALSE(all.empty());
    for (const cuda::Parameters& parameters : {all[0].parameters, tile("64x128", 2, "own", 6)}) {
      const auto text = cuda::conv_linear_family().emit(s.region, s.plan, parameters, hopper(132));
      ASSERT_TRUE(text) << text.error().message;
      auto options = cuda::compile_options("sm_90a");
      options.emplace_back("--ptxas-options=-v");
      const auto code = cuda::compile(cuda::emit_prelude() + text->text, options);
      ASSERT_TRUE(code) << code.error().message;
      EXPECT_NE(code->log.find(" 0 bytes spill stores"), std::string::npos) << style << code->log;
      EXPECT_EQ(code->log.find("serialized"), std::string::npos) << code->log;
      EXPECT_EQ(code->log.find("setmaxnreg"), std::string::npos) << code->log;
    }
  }
}

TEST(ConvRingTexts, CompileForWarpgroupsAlone) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  for (const DType type : {DType::f16, DType::bf16}) {
    Scene s(3);
    build(s, {type, 1000, 768, 768, type == DType::f16 ? "gelu" : "residual"});
    const cuda::Family& family = family_of(type);
    EXPECT_FALSE(family.why_not(s.region(), s.plan(), cuda::Target{"sm_80"}).empty());
    EXPECT_FALSE(family.why_not(s.region(), s.plan(), cuda::Target{"sm_100"}).empty());
    const auto all = family.candidates(s.region(), s.plan(), hopper(132));
    ASSERT_FALSE(all.empty());
    for (const cuda::Parameters& parameters : {all[0].parameters, tile("128x256", 2, "shared", 4)}) {
      const auto text = family.emit(s.region(), s.plan(), parameters, hopper(132));
      ASSERT_TRUE(text) << text.error().message;
      auto options = cuda::compile_options("sm_90a");
      options.emplace_back("--ptxas-options=-v");
      const auto code = cuda::compile(cuda::emit_prelude() + text->text, options);
      ASSERT_TRUE(code) << code.error().message;
      EXPECT_NE(code->log.find(" 0 bytes spill stores"), std::string::npos) << code->log;
      EXPECT_EQ(code->log.find("serialized"), std::string::npos) << code->log;
      EXPECT_EQ(code->log.find("setmaxnreg"), std::string::npos) << code->log;
    }
  }
}

TEST(ConvRingTexts, RefusesWhatItCannot) {
  Scene odd(3);
  build(odd, {DType::f16, 10, 36, 64});
  EXPECT_FALSE(cuda::conv_stream_f16_family().why_not(odd.region(), odd.plan(), hopper()).empty()) << "72 bytes a row";
  Scene s(3);
  build(s, {DType::f16, 10, 64, 64});
  EXPECT_FALSE(cuda::conv_stream_bf16_family().about(s.region()));
  for (const cuda::Parameters& p : {tile("96x64", 2, "own", 3), tile("64x64", 2, "shared", 3), tile("64x64", 1, "own", 3),
                                    tile("256x256", 2, "shared", 2), tile("128x256", 2, "shared", 6), tile("64x64", 2, "own", 1)})
    EXPECT_FALSE(cuda::conv_stream_f16_family().emit(s.region(), s.plan(), p, hopper()));
}

}  // namespace
}  // namespace octavo::testing
