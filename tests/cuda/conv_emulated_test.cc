// The convolution families under emulation: shapes around their tiles, borders, zero points and epilogues, bit-equal to the
// reference; and mistakes planted in their text, each of which is found.
#include <gtest/gtest.h>

#include "cuda/conv_scene.h"
#include "cuda/conv_tiles.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/conv/depthwise.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

/// A GPU whose kernels the emulation has all instructions of.
const cuda::Target kTarget{"sm_80", 108, 163 * 1024};

/// Of n images, c channels, h x w pixels, o results, a kernel of kh x kw.
ConvCase conv(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t o, std::int64_t kh, std::int64_t kw,
              std::int64_t stride, std::int64_t pad, std::int64_t groups = 1) {
  ConvCase k;
  k.n = n, k.c = c, k.h = h, k.w = w, k.o = o, k.kh = kh, k.kw = kw, k.stride = stride, k.pad = pad, k.groups = groups;
  return k;
}

std::string run_conv(const ConvCase& k, const cuda::Family& family, const cuda::Parameters& parameters, const Edit& edit = {}) {
  ConvScene s(k, 7);
  s.plan.regions = {};
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  return run_emulated({s.region, s.plan, s.memory, 0, 7}, family, parameters, 0, edit, truth, kTarget);
}

class ConvEmulated : public EmulatedTest {};

TEST_F(ConvEmulated, SmallTilesWithEveryBorderAndZeroPoint) {
  ConvCase k = conv(1, 32, 7, 9, 48, 3, 3, 1, 1);
  for (const int zero : {0, 128, 255}) {
    k.zero = zero;
    EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(3, 1, false)), "") << k.text();
  }
  k = conv(2, 48, 6, 5, 33, 3, 2, 2, 1);
  k.zero = 7, k.style = "bias";
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(2, 1, false)), "") << k.text();
  k = conv(1, 64, 5, 7, 40, 1, 1, 1, 0);
  k.zero = 3, k.style = "residual", k.gap = 16;
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(4, 1, true)), "") << k.text();
  k = conv(1, 64, 4, 4, 32, 3, 3, 1, 1);
  k.zero = 130, k.style = "float";
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(3, 3, false)), "") << k.text();
}

// Few channels are read by words of four bytes, whatever byte the tensor begins at.
TEST_F(ConvEmulated, FewChannelsFromAnyByteOn) {
  for (const int lead : {1, 2, 7}) {
    ConvCase k = conv(2, 2, 5, 6, 12, 3, 3, 1, 1);
    k.zero = 77, k.lead = lead;
    EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(3, 1, false)), "") << k.text() << " behind " << lead;
    k.c = 3;
    EXPECT_EQ(run_conv(k, cuda::conv_rows_family(), best(k, cuda::conv_rows_family(), kTarget)), "")
        << k.text() << " behind " << lead;
  }
}

/// 16 channels a thread: bytes are exchanged among the lanes that share a pixel, so that floats can be stored 64 bytes at a time.
cuda::Parameters wide_tile(int splits = 1) {
  cuda::ConvTile t;
  t.m = 32, t.n = 64, t.k = 32, t.warps_m = 2, t.warps_n = 1, t.stages = 2, t.splits = splits, t.blocks = 1;
  return cuda::spell(t);
}

TEST_F(ConvEmulated, FloatsAndBytesOfOnePixel) {
  ConvCase k = conv(1, 32, 5, 9, 80, 1, 1, 1, 0);
  for (const char* style : {"mixed", "float", "rest"}) {
    k.zero = 77, k.style = style, k.gap = 16;
    EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), wide_tile()), "") << k.text();
  }
  k.o = 45, k.gap = 0, k.style = "mixed";  // vectors of a byte
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), wide_tile()), "") << k.text();
  k = conv(1, 64, 3, 5, 64, 1, 1, 1, 0), k.style = "mixed";
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), wide_tile(2)), "") << k.text();
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), small_tile(2, 1, true)), "") << k.text();  // 8 channels a thread
  k = conv(1, 3, 6, 20, 64, 3, 3, 1, 1), k.style = "mixed", k.zero = 9;
  EXPECT_EQ(run_conv(k, cuda::conv_rows_family(),
                     {{"tile", "2x16"}, {"channels", "64"}, {"warps", "2"}, {"group", "1"}, {"blocks", "1"}}),
            "")
      << k.text();
}

/// Depth shared by groups of warps of a block.
cuda::Parameters sliced(int slices, int stages, int m = 16, int warps_n = 1) {
  cuda::ConvTile t;
  t.m = m, t.n = 32, t.k = 32, t.warps_m = 1, t.warps_n = warps_n, t.stages = stages, t.slices = slices, t.blocks = 1;
  return cuda::spell(t);
}

TEST_F(ConvEmulated, SlicesOfOneBlockShareDepth) {
  const auto& family = cuda::conv_mma_family();
  ConvCase k = conv(1, 32, 7, 5, 48, 3, 3, 1, 1);  // nine steps
  k.zero = 130, k.style = "residual", k.gap = 16;
  for (const int slices : {2, 3, 4, 8})
    EXPECT_EQ(run_conv(k, family, sliced(slices, 2)), "") << slices << " slices of " << k.text();
  k = conv(2, 144, 5, 4, 40, 1, 1, 1, 0);  // five steps, the last one half
  k.zero = 7, k.style = "float";
  EXPECT_EQ(run_conv(k, family, sliced(2, 3)), "") << k.text();
  EXPECT_EQ(run_conv(k, family, sliced(4, 4, 32, 2)), "") << k.text();
  k = conv(1, 3, 6, 8, 33, 3, 3, 1, 1);  // packed rows, fewer steps than slices
  k.zero = 77, k.style = "mixed";
  EXPECT_EQ(run_conv(k, family, sliced(4, 2)), "") << k.text();
}

TEST_F(ConvEmulated, MistakesInSlicesAreFound) {
  ConvCase k = conv(1, 32, 13, 11, 48, 3, 3, 1, 1);
  k.n = 26;  // several tiles a block
  k.zero = 130;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_conv(k, cuda::conv_mma_family(), sliced(2, 2), [&](std::string text) {
      const auto at = text.find(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  EXPECT_EQ(planted("kSlices", "kSlices"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_barrier();  // the next one", "// the next one"), "") << "missing barrier";
  EXPECT_NE(planted("next_step * kSlices + slice, thread", "next_step * kSlices, thread"), "")
      << "all slices copy the first one's step";
  EXPECT_NE(planted("if (kSplits == 1 && slice == 0) {", "if (kSplits == 1) {"), "") << "every slice begins with the bias";
  EXPECT_NE(planted("other < kSlices - 1", "other < kSlices - 2"), "") << "the last slice is left out";
}

cuda::Parameters window(const std::string& tile, const std::string& warps, int stages) {
  return {{"tile", tile}, {"warps", warps}, {"stages", std::to_string(stages)}, {"blocks", "1"}};
}

TEST_F(ConvEmulated, WindowsOverTilesInSharedMemory) {
  const auto& family = cuda::conv_window_family();
  ConvCase k = conv(2, 32, 11, 13, 48, 3, 3, 1, 1);
  k.zero = 130, k.style = "residual", k.gap = 32;
  EXPECT_EQ(run_conv(k, family, window("4x8x32", "2x1", 2)), "") << k.text();
  k = conv(1, 16, 9, 21, 32, 3, 3, 2, 1), k.zero = 255, k.style = "silu";
  EXPECT_EQ(run_conv(k, family, window("2x8x32", "1x1", 3)), "") << k.text();
  k = conv(1, 48, 6, 7, 20, 2, 3, 1, 1), k.zero = 7, k.dilation = 2, k.style = "bias";
  EXPECT_EQ(run_conv(k, family, window("2x16x16", "2x1", 2)), "") << k.text();
  k = conv(1, 64, 7, 9, 64, 3, 3, 1, 1), k.zero = 114, k.style = "mixed";
  EXPECT_EQ(run_conv(k, family, window("4x8x64", "1x2", 2)), "") << k.text();
  EXPECT_EQ(run_conv(k, family, best(k, family, kTarget)), "") << k.text();
}

TEST_F(ConvEmulated, MistakesInWindowsAreFound) {
  ConvCase k = conv(2, 32, 9, 21, 16, 3, 3, 2, 1);
  k.zero = 77;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_conv(k, cuda::conv_window_family(), window("2x8x16", "1x1", 2),
                    [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_NE(planted("octavo_barrier();\n    copy_next();", "copy_next();"), "") << "missing barrier";
  EXPECT_NE(planted("octavo_copy_wait<kStages - 2>();", "octavo_copy_wait<kStages - 1>();"), "") << "waits for one copy too few";
  EXPECT_NE(planted("< (unsigned)kInW) {", "<= (unsigned)kInW) {"), "") << "wrong halo";
  EXPECT_NE(planted("0x01010101u * kFillCode", "0x01010101u * (kFillCode - 1)"), "") << "wrong zero point";
  EXPECT_NE(planted("right % kStrideW * kSide", "right % kStrideW"), "") << "columns of the other residue";
  EXPECT_NE(planted("column < kOutW ?", "column <= kOutW ?"), "") << "a pixel too many";
}

const cuda::Target kHopper{"sm_90a", 132, 227 * 1024};

std::string run_shift(const ConvCase& k, const std::string& tile, int groups, int unit, int stages, const Edit& edit = {},
                      int processors = 132) {
  ConvScene s(k, 7);
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  cuda::Target target = kHopper;
  target.multiprocessors = processors;
  const cuda::Parameters p{{"tile", tile},
                           {"groups", std::to_string(groups)},
                           {"unit", std::to_string(unit)},
                           {"stages", std::to_string(stages)},
                           {"blocks", "1"}};
  return run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_shift_family(), p, 0, edit, truth, target);
}

TEST_F(ConvEmulated, EveryTapReadsOneTileFromAnotherByteOn) {
  ConvCase k = conv(2, 32, 11, 13, 48, 3, 3, 1, 1);
  k.zero = 130, k.style = "residual", k.gap = 32;
  EXPECT_EQ(run_shift(k, "4x13x32", 2, 64, 2, {}, 2), "") << k.text();   // shared padding, tiles behind the last row
  EXPECT_EQ(run_shift(k, "11x13x64", 3, 64, 2, {}, 1), "") << k.text();  // whole images, more groups than units
  EXPECT_EQ(run_shift(k, "5x6x32", 1, 128, 1, {}, 4), "") << k.text();   // parts of rows, one group, one stage
  k = conv(1, 16, 9, 21, 32, 3, 3, 2, 1), k.zero = 255, k.style = "silu";
  EXPECT_EQ(run_shift(k, "2x11x32", 2, 64, 3, {}, 1), "") << k.text();  // strides: a plane a residue; taps in pairs, the last alone
  k = conv(1, 48, 6, 7, 20, 2, 3, 1, 1), k.zero = 7, k.dilation = 2, k.style = "bias";
  EXPECT_EQ(run_shift(k, "2x5x32", 4, 64, 2, {}, 1), "") << k.text();
  k = conv(3, 64, 1, 1, 128, 3, 3, 1, 1), k.zero = 114, k.style = "mixed";  // one pixel: padding alone around it
  EXPECT_EQ(run_shift(k, "1x1x128", 2, 64, 2, {}, 1), "") << k.text();
  k = conv(2, 16, 5, 70, 32, 1, 5, 1, 2), k.zero = 9, k.style = "float";  // more columns than a unit has positions
  EXPECT_EQ(run_shift(k, "2x70x32", 2, 64, 2, {}, 2), "") << k.text();
  k = conv(1, 16, 10, 4, 7, 2, 2, 1, 2), k.zero = 63;  // more padding than the kernel has columns
  EXPECT_EQ(run_shift(k, "3x7x32", 1, 64, 2, {}, 1), "") << k.text();
  k = conv(2, 16, 8, 9, 32, 5, 5, 1, 0), k.zero = 200;  // no padding
  EXPECT_EQ(run_shift(k, "3x5x32", 2, 64, 2, {}, 2), "") << k.text();
}

TEST_F(ConvEmulated, TheTilesOfWarpgroupsThatEstimatesPrefer) {
  ConvCase k = conv(1, 64, 9, 12, 64, 3, 3, 1, 1);
  k.zero = 114, k.style = "mixed";
  for (const int stride : {1, 2}) {
    k.stride = stride;
    const ConvScene s(k, 7);
    const auto all = cuda::conv_shift_family().candidates(s.region, s.plan, kHopper);
    ASSERT_FALSE(all.empty());
    const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
    EXPECT_EQ(run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_shift_family(), all[0].parameters, 0, {}, truth, kHopper),
              "")
        << k.text();
  }
  const ConvScene s(k, 7);
  EXPECT_FALSE(cuda::conv_shift_family().why_not(s.region, s.plan, kTarget).empty()) << "needs sm_90a";
}

TEST_F(ConvEmulated, MistakesInShiftedTilesAreFound) {
  ConvCase k = conv(4, 32, 9, 13, 40, 3, 3, 1, 1);
  k.zero = 77;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_shift(
        k, "4x13x32", 2, 64, 2, [&](std::string text) { return edited(std::move(text), from, to); }, 2);
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_meet(kFull + stage * kGroups + group, 256);", ""), "") << "does not wait for the tile";
  EXPECT_NE(planted("octavo_copy_wait<0>();\n      octavo_group_publish();", ""), "") << "gives the tile away while it is copied";
  EXPECT_NE(planted("if (tiles++ >= kStages) octavo_meet", "if (tiles++ < 0) octavo_meet"), "") << "overwrites a tile in use";
  EXPECT_NE(planted("octavo_group_wait<0>();\n", "\n"), "") << "reads sums under way";
  EXPECT_NE(planted("octavo_meet(kTurn + group, 256);", ";"), "") << "takes no turns";
  EXPECT_NE(planted("octavo_copy_wait<0>();\n  octavo_group_publish();", ""), "") << "does not wait for the filter";
  EXPECT_NE(planted("row < kPlaneRows && (unsigned)(top + down) < (unsigned)kInH", "(unsigned)(top + down) <= (unsigned)kInH"), "")
      << "a row too many";
  EXPECT_NE(planted("0x01010101u * kFillCode", "0x01010101u * (kFillCode - 1)"), "") << "wrong zero point";
  EXPECT_NE(planted("octavo_half(2 * step + 1) - octavo_half(2 * step)", "16"), "") << "second half at the wrong place";
  EXPECT_NE(planted("octavo_arrive(kEmpty + stage, 128 * kGroups + 128);\n      OCTAVO_UNROLL", "OCTAVO_UNROLL"), "")
      << "frees no stage";
}

std::string run_stream(const ConvCase& k, const std::string& tile, const std::string& filter, const std::string& input,
                       const Edit& edit = {}, int processors = 132) {
  ConvScene s(k, 7);
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  cuda::Target target = kHopper;
  target.multiprocessors = processors;
  const cuda::Parameters p{{"tile", tile}, {"filter", filter}, {"input", input}, {"blocks", "1"}};
  return run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_stream_family(), p, 0, edit, truth, target);
}

TEST_F(ConvEmulated, TilesOfPixelsWhereverTheyLie) {
  ConvCase k = conv(3, 64, 7, 7, 80, 3, 3, 1, 1);  // tiles over images, two tiles of channels, two slabs
  k.zero = 130, k.style = "residual", k.gap = 32;
  EXPECT_EQ(run_stream(k, "64x64x32", "4x3", "2x1", {}, 2), "") << k.text();
  EXPECT_EQ(run_stream(k, "128x128x64", "3x2", "1x3", {}, 1), "") << k.text();  // an odd number of batches, one slab
  k = conv(2, 32, 9, 21, 32, 3, 3, 2, 1), k.zero = 255, k.style = "silu";       // strides: a plane a residue
  EXPECT_EQ(run_stream(k, "64x64x32", "4x3", "2x2", {}, 1), "") << k.text();
  k = conv(2, 64, 8, 6, 150, 2, 1, 1, 0), k.zero = 7, k.style = "mixed";
  EXPECT_EQ(run_stream(k, "128x256x64", "5x1", "2x1", {}, 1), "") << k.text();
  k = conv(2, 64, 7, 9, 64, 1, 2, 2, 0), k.zero = 3, k.style = "float";  // two residues of four
  EXPECT_EQ(run_stream(k, "64x64x32", "6x1", "3x1", {}, 1), "") << k.text();
  k = conv(1, 96, 6, 7, 20, 2, 3, 1, 1), k.zero = 7, k.dilation = 2, k.style = "bias";
  EXPECT_EQ(run_stream(k, "64x64x32", "4x2", "2x1", {}, 1), "") << k.text();
  k = conv(70, 32, 1, 1, 128, 3, 3, 1, 1), k.zero = 114, k.style = "mixed";  // images of one pixel
  EXPECT_EQ(run_stream(k, "64x128x32", "3x3", "2x1", {}, 1), "") << k.text();
  k = conv(1, 32, 10, 4, 7, 2, 2, 1, 2), k.zero = 63;  // more padding than the kernel has columns
  EXPECT_EQ(run_stream(k, "64x64x32", "3x2", "2x1", {}, 1), "") << k.text();
  k = conv(2, 32, 3, 11, 4, 1, 3, 1, 1), k.style = "float";  // rows that are padding alone
  EXPECT_EQ(run_stream(k, "64x64x32", "3x3", "2x1", {}, 1), "") << k.text();
  k = conv(3, 32, 3, 2, 4, 1, 2, 1, 2), k.zero = 9;
  EXPECT_EQ(run_stream(k, "64x64x32", "6x1", "2x1", {}, 1), "") << k.text();
  k = conv(2, 32, 8, 9, 32, 5, 5, 1, 0), k.zero = 200;  // no padding
  EXPECT_EQ(run_stream(k, "64x64x32", "3x1", "2x1", {}, 2), "") << k.text();
  k = conv(70, 64, 1, 1, 64, 3, 3, 1, 1), k.zero = 3;  // more positions than a copying thread holds places
  EXPECT_EQ(run_stream(k, "64x64x64", "6x1", "1x1", {}, 1), "") << k.text();
  k = conv(1, 64, 9, 12, 64, 3, 3, 1, 1), k.zero = 114;
  const ConvScene s(k, 7);
  const auto all = cuda::conv_stream_family().candidates(s.region, s.plan, kHopper);
  ASSERT_FALSE(all.empty());
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  EXPECT_EQ(run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_stream_family(), all[0].parameters, 0, {}, truth, kHopper),
            "");
  EXPECT_FALSE(cuda::conv_stream_family().why_not(s.region, s.plan, kTarget).empty()) << "needs sm_90a";
}

TEST_F(ConvEmulated, PlanesOfResiduesAreCopiedWithTheirPadding) {
  ConvCase k = conv(3, 64, 15, 14, 72, 3, 3, 2, 1);  // padding of zeros, tiles over images, two of channels
  k.style = "residual", k.gap = 32;
  EXPECT_EQ(run_stream(k, "128x64x32", "4x3", "3x3", {}, 1), "") << k.text();
  k.zero = 77;
  EXPECT_EQ(run_stream(k, "192x128x64", "3x3", "1x3", {}, 2), "") << k.text();
  k = conv(1, 32, 9, 10, 7, 2, 3, 3, 2);  // six residues
  EXPECT_EQ(run_stream(k, "128x64x32", "3x2", "2x1", {}, 1), "") << k.text();
  k = conv(2, 64, 9, 13, 40, 3, 3, 2, 1);
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_stream(
        k, "64x64x64", "4x3", "1x3", [&](std::string text) { return edited(std::move(text), from, to); }, 1);
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("from + residue, inside);", "from + residue, true);"), "") << "reads padding";
  EXPECT_NE(planted("at <= last + octavo_reach(r)", "at < last + octavo_reach(r)"), "") << "a position too few";
  EXPECT_NE(planted("/ kStrideW * kInRow +", "/ kStrideW * kInPixel +"), "") << "a residue of rows at the wrong place";
  EXPECT_NE(planted("(r * kPlane + i * kAtOnce)", "(r * (kPlane - 1) + i * kAtOnce)"), "") << "planes of residues over each other";
  EXPECT_NE(planted("right = left + octavo_residue(r) % kStrideW", "right = left"), "") << "the wrong columns are padding";
}

TEST_F(ConvEmulated, MistakesInGatheredTilesAreFound) {
  ConvCase k = conv(3, 64, 7, 9, 40, 3, 3, 1, 1);
  k.zero = 77;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_stream(
        k, "64x64x32", "2x3", "2x1", [&](std::string text) { return edited(std::move(text), from, to); }, 1);
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_signal_wait(signal(kSlabFull + tile), tile_parity);", ""), "") << "does not wait for the input";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFilterFull + stage), parity);", ""), "") << "does not wait for the filter";
  EXPECT_NE(planted("octavo_signal_wait(signal(kSlabFree + tile), parity);", ""), "") << "overwrites input in use";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFilterFree + stage), parity);", ""), "") << "overwrites a filter in use";
  EXPECT_NE(planted("octavo_group_wait<1>();", ""), "") << "frees a filter and changes rows under way";
  EXPECT_NE(planted("octavo_group_wait<0>();\n    octavo_signal_arrive", "octavo_signal_arrive"), "") << "reads sums under way";
  EXPECT_NE(planted("if (kRounds % 2 != 0) octavo_group_wait<0>();", ""), "") << "the last batch's rows are overwritten";
  EXPECT_NE(planted("octavo_signal_arrive_each(signal(kSlabFree + tile));", ""), "") << "frees no input";
  EXPECT_NE(planted("octavo_signal_arrive_each(signal(kSlabFull + tile));", "octavo_signal_arrive_each(signal(kSlabFull));"), "")
      << "says of another slab that it is there";
  EXPECT_NE(planted("at <= last + octavo_reach(r) && ", ""), "") << "reads behind the last image";
  EXPECT_NE(planted("kStrideH - kPadTop", "kStrideH"), "") << "a row too low";
  EXPECT_NE(planted("0x01010101u * kFillCode", "0x01010101u * (kFillCode - 1)"), "") << "wrong zero point";
  EXPECT_NE(planted("(lane >> 4) * (kResidues * kPlane)", "(lane >> 4) * kPositions"), "") << "second half at the wrong place";
  EXPECT_NE(planted("row = rest / kPitch,", "row = rest / (kPitch + 1),"), "") << "a row's end";
  EXPECT_NE(planted("position + i * kAtOnce >= kPositions) continue;", "false) continue;"), "") << "writes behind a plane";
  EXPECT_NE(planted("p < kPixels ? p : -1", "p <= kPixels ? p : -1"), "") << "a pixel too many";
  k = conv(70, 64, 1, 1, 64, 3, 3, 1, 1);
  const auto parts = [](std::string text) { return edited(std::move(text), "(turn + i) * kAtOnce;", "i * kAtOnce;"); };
  EXPECT_NE(run_stream(k, "64x64x64", "6x1", "1x1", parts, 1), "") << "the same places for every part";
}

TEST_F(ConvEmulated, GroupsOfATileAreOneProduct) {
  const auto& family = cuda::conv_mma_family();
  ConvCase k = conv(1, 64, 6, 7, 64, 3, 3, 1, 1, 4);  // two groups a tile
  k.zero = 130, k.style = "residual";
  EXPECT_EQ(run_conv(k, family, small_tile(3, 1, false)), "") << k.text();
  k = conv(2, 32, 5, 4, 128, 1, 1, 1, 0, 2), k.zero = 5;  // two tiles a group
  EXPECT_EQ(run_conv(k, family, small_tile(2, 1, true)), "") << k.text();
  k = conv(1, 96, 5, 7, 96, 3, 3, 2, 1, 12), k.zero = 255, k.style = "bias";  // four groups of eight a tile
  EXPECT_EQ(run_conv(k, family, small_tile(2, 1, false)), "") << k.text();
  EXPECT_EQ(run_conv(k, family, best(k, family, kTarget)), "") << k.text();
  const auto planted = run_conv(k, family, small_tile(2, 1, false), [](std::string text) {
    const std::string_view from = "tile_n * kTileN / kGroupOut * kGroupIn";
    return text.replace(text.find(from), from.size(), "0");
  });
  EXPECT_NE(planted, "") << "every tile reads the first groups";
  k = conv(1, 72, 5, 7, 72, 3, 3, 1, 1, 3), k.style = "residual";  // whose groups cannot be padded (conv_groups_test.cc)
  const ConvScene s(k, 7);
  EXPECT_EQ(family.why_not(s.region, s.plan, kTarget),
            region::unmet("channels a group", "24 to 24", "groups that tiles hold whole, or a program that reads constants alone"));
}

TEST_F(ConvEmulated, MistakesInTheExchangeAreFound) {
  ConvCase k = conv(1, 32, 5, 9, 80, 1, 1, 1, 0);
  k.style = "mixed";
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_conv(k, cuda::conv_mma_family(), wide_tile(), [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_NE(planted("upper ? w[k] : w[k + step]", "upper ? w[k + step] : w[k]"), "") << "keeps what it should give";
  EXPECT_NE(planted("e / kNeighbours * (4 * kNeighbours)", "e / kNeighbours * kNeighbours"), "") << "pieces at each other's place";
  EXPECT_NE(planted("octavo_exchange(out1[i]);", ""), "") << "bytes not exchanged";
}

TEST_F(ConvEmulated, TheTilesThatEstimatesPrefer) {
  ConvCase k = conv(1, 64, 8, 8, 64, 3, 3, 1, 1);
  k.zero = 5, k.style = "silu";
  EXPECT_EQ(run_conv(k, cuda::conv_mma_family(), best(k, cuda::conv_mma_family(), kTarget)), "") << k.text();
  k = conv(2, 40, 7, 6, 40, 3, 3, 2, 1, 40);
  k.zero = 9;
  EXPECT_EQ(run_conv(k, cuda::depthwise_family(), best(k, cuda::depthwise_family(), kTarget)), "") << k.text();
  k = conv(1, 3, 12, 20, 32, 7, 7, 2, 3);
  k.zero = 114;
  EXPECT_EQ(run_conv(k, cuda::conv_rows_family(), best(k, cuda::conv_rows_family(), kTarget)), "") << k.text();
}

TEST_F(ConvEmulated, PlantedMistakesAreFound) {
  ConvCase k = conv(1, 32, 7, 9, 48, 3, 3, 1, 1);
  k.zero = 130, k.gap = 16;
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run_conv(k, cuda::conv_mma_family(), small_tile(3, 1, false),
                    [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kFillCode", "kFillCode"), "") << "nothing planted";
  EXPECT_NE(planted("#else\n        octavo_barrier();\n        copy_next();", "#else\n        copy_next();"), "")
      << "missing barrier";
  EXPECT_NE(planted("octavo_copy_wait<kAhead - 1>();", "octavo_copy_wait<kAhead>();"), "") << "waits for one copy too few";
  EXPECT_NE(planted("< (unsigned)kInW) columns", "<= (unsigned)kInW) columns"), "") << "wrong halo";
  EXPECT_NE(planted("0x01010101u * kFillCode", "0x01010101u * 0"), "") << "wrong zero-point fill";
  EXPECT_NE(planted("store0}", "store0 + 1}"), "") << "slice off by one";
}

}  // namespace
}  // namespace octavo::testing
