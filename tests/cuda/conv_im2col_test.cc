// Convolutions whose rows the copying unit gathers (conv.*.im2col), under emulation: shapes around tiles, images, borders and strides, bit-equal to the
// reference; mistakes planted in the text; what is refused; and how engine files hold the images.
#include <gtest/gtest.h>

#include <set>
#include <span>

#include "cuda/conv_scene.h"
#include "cuda/device/cubin.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/image_map.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

/// A GPU with warpgroups, of few multiprocessors: blocks have several tiles.
cuda::Target hopper(int processors) {
  return {"sm_90a", processors, 227 * 1024};
}

ConvCase conv(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t o, std::int64_t kh, std::int64_t kw,
              std::int64_t stride, std::int64_t pad, const std::string& style = "relu") {
  ConvCase k;
  k.n = n, k.c = c, k.h = h, k.w = w, k.o = o, k.kh = kh, k.kw = kw, k.stride = stride, k.pad = pad, k.style = style;
  return k;
}

/// `groups`: "2", or "2 in turns". `filter`: 1: resident.
cuda::Parameters tile(const std::string& tile, const std::string& groups, int stages, int filter) {
  return {{"tile", tile},
          {"groups", groups.substr(0, 1)},
          {"tiles", groups.size() > 1 ? "turns" : "shared"},
          {"stages", std::to_string(stages)},
          {"filter", filter == 1 ? "resident" : "streamed"},
          {"blocks", "1"}};
}

std::string run(const ConvCase& k, const cuda::Parameters& parameters, int processors, const Edit& edit = {}) {
  ConvScene s(k, 7);
  const auto truth = [](const region::Region& r, const region::Memory& m) { reference_region(r, m); };
  return run_emulated({s.region, s.plan, s.memory, 0, 7}, cuda::conv_im2col_family(), parameters, 0, edit, truth,
                      hopper(processors));
}

class ConvIm2col : public EmulatedTest {};

TEST_F(ConvIm2col, TilesOverRowsAndImages) {
  EveryOther some;
  for (const int stride : {1, 2}) {
    for (const int filter : {0, 1}) {
      ConvCase k = conv(3, 64, 9, 7, 72, 3, 3, stride, 1, "residual");  // tiles over images, two tiles of channels
      k.gap = 32;
      EXPECT_EQ(run(k, tile("64x64x64", "1", 3, filter), 2), "") << k.text();
      if (!some.takes(stride, filter)) continue;
      EXPECT_EQ(run(k, tile("128x64x32", "2", 2, filter), 1), "") << k.text();
      EXPECT_EQ(run(k, tile("64x64x32", "2 in turns", 3, filter), 1), "") << k.text() << ", in turns";
    }
  }
  EXPECT_EQ(run(conv(5, 128, 6, 5, 130, 1, 1, 1, 0, "mixed"), tile("128x128x128", "2", 2, 0), 1), "");
  EXPECT_EQ(run(conv(4, 128, 9, 9, 64, 1, 1, 2, 0, "float"), tile("64x64x128", "1", 3, 1), 1), "") << "a projection with a stride";
  EXPECT_EQ(run(conv(2, 128, 7, 11, 40, 2, 3, 1, 2, "bias"), tile("64x64x128", "3 in turns", 4, 0), 1), "")
      << "more padding than the kernel needs";
  EXPECT_EQ(run(conv(70, 32, 1, 1, 128, 3, 3, 1, 1, "mixed"), tile("64x128x32", "1", 3, 0), 1), "") << "images of one pixel";
  EXPECT_EQ(run(conv(1, 64, 20, 3, 256, 7, 1, 3, 3, "silu"), tile("64x256x64", "1", 2, 0), 1), "") << "a stride of three";
  ConvCase k = conv(2, 64, 12, 13, 64, 3, 3, 1, 2, "rest");
  k.dilation = 2;
  EXPECT_EQ(run(k, tile("192x64x64", "3", 2, 0), 2), "") << k.text();
  k = conv(2, 64, 9, 9, 64, 3, 3, 1, 0), k.zero = 77;
  EXPECT_EQ(run(k, tile("64x64x64", "1", 3, 0), 2), "") << "nothing outside is read";
}

TEST_F(ConvIm2col, ZeroPointsOutsideOfTheImage) {
  EveryOther some;
  for (const char* style : {"bias", "residual", "relu"}) {
    ConvCase k = conv(3, 64, 9, 7, 72, 3, 3, 2, 1, style);
    k.zero = 128;
    if (some.takes(0, style)) EXPECT_EQ(run(k, tile("64x64x64", "1", 3, 0), 2), "") << k.text();
    if (some.takes(1, style)) EXPECT_EQ(run(k, tile("128x64x32", "2 in turns", 3, 1), 1), "") << k.text();
    k = conv(2, 64, 6, 8, 40, 5, 2, 1, 3, style), k.zero = 255, k.dilation = 2;  // rows that lie outside as a whole
    if (some.takes(2, style)) EXPECT_EQ(run(k, tile("64x64x32", "1", 3, 0), 1), "") << k.text();
    k = conv(9, 32, 1, 2, 130, 3, 3, 1, 1, style), k.zero = 1;
    if (some.takes(3, style)) EXPECT_EQ(run(k, tile("64x128x32", "1", 3, 0), 1), "") << k.text();
  }
}

TEST_F(ConvIm2col, EveryKindOfTileThatIsOffered) {
  for (const ConvCase& k : {conv(2, 128, 10, 10, 256, 3, 3, 2, 1), conv(1, 64, 9, 30, 96, 3, 3, 1, 1)}) {
    const ConvScene s(k, 7);
    const auto all = cuda::conv_im2col_family().candidates(s.region, s.plan, hopper(132));
    ASSERT_GT(all.size(), 4U);
    std::set<std::string> seen;  // each kind once: emulation takes seconds
    for (const auto& c : all) {
      if (seen.insert(c.parameters.at("groups") + c.parameters.at("tiles") + c.parameters.at("filter")).second)
        EXPECT_EQ(run(k, c.parameters, 2), "") << k.text();
    }
  }
}

TEST_F(ConvIm2col, MistakesAreFound) {
  ConvCase k = conv(3, 64, 13, 13, 72, 3, 3, 2, 1, "residual");
  const auto planted = [&](std::string_view from, std::string_view to, int filter = 0, const char* groups = "1") {
    return run(k, tile("64x64x32", groups, 4, filter), 1, [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFree + next.at), next.parity);", ""), "") << "overwrites a step in use";
  EXPECT_NE(planted("octavo_signal_wait(signal(kFull + now.at), now.parity);", ""), "") << "multiplies what has not come";
  EXPECT_NE(planted("if (kTurns) octavo_signal_wait(signal(kTurn + group), turn);", "", 0, "2 in turns"), "")
      << "does not wait for its turn";
  EXPECT_NE(planted("kStrideH - kPadTop", "kStrideH"), "") << "rows that begin elsewhere";
  EXPECT_NE(planted("right * kDilationW, down", "down * kDilationW, right"), "") << "taps exchanged";
  EXPECT_NE(planted("octavo_advance(now, group * kSteps);", ";", 0, "2 in turns"), "") << "both groups begin with the same steps";
  EXPECT_NE(planted("octavo_advance(now, (kGroups - 1) * kSteps);", ";", 0, "2 in turns"), "") << "takes the other group's steps";
  EXPECT_NE(planted("p < kPixels ? p : -1", "p"), "") << "pixels behind the last one";
  k.zero = 128;
  EXPECT_EQ(planted("kStages", "kStages"), "") << "nothing planted";
  EXPECT_NE(planted("* kColumnBorders + octavo_column_border[rest % kOutW]", "* kColumnBorders"), "") << "columns have no border";
  EXPECT_NE(planted("octavo_border(pixel[i]) * kPadded", "0"), "") << "all pixels are of one kind";
}

TEST(ConvIm2colRefuses, WhatTheCopyingUnitCannot) {
  const auto why = [](const ConvCase& k) {
    ConvScene s(k, 7, false);
    return !cuda::conv_im2col_family().why_not(s.region, s.plan, hopper(132)).empty();
  };
  EXPECT_FALSE(why(conv(1, 64, 9, 9, 64, 3, 3, 1, 1)));
  ConvCase k = conv(1, 64, 40, 40, 64, 17, 17, 1, 8);
  k.zero = 3;
  EXPECT_TRUE(why(k)) << "too many kinds of borders";
  EXPECT_TRUE(why(conv(1, 48, 9, 9, 64, 3, 3, 1, 1))) << "no whole steps";
  EXPECT_TRUE(why(conv(1, 64, 40, 40, 64, 3, 3, 9, 1))) << "a stride of nine";
  EXPECT_TRUE(why(conv(1, 64, 300, 300, 64, 3, 3, 1, 129))) << "a corner too far outside";
  k = conv(1, 64, 9, 9, 64, 3, 3, 1, 1), k.groups = 2;
  EXPECT_TRUE(why(k)) << "groups";
  k = conv(1, 64, 9, 9, 64, 3, 3, 1, 1);
  ConvScene s(k, 7, false);
  EXPECT_FALSE(cuda::conv_im2col_family().why_not(s.region, s.plan, {"sm_80", 108, 163 * 1024}).empty()) << "no warpgroups";
}

/// Without weights, and with their largest sum alone, the text is the same (tests/cuda/open_texts_test.cc says of other families why).
TEST(ConvIm2colWithoutWeights, IsTheSameText) {
  ConvCase k = conv(2, 64, 9, 7, 64, 3, 3, 2, 1, "bias");
  k.zero = 128;
  ConvScene s(k, 7);
  const auto whole = cuda::conv_im2col_family().emit(s.region, s.plan, tile("64x64x64", "1", 3, 0), hopper(132));
  ASSERT_TRUE(whole) << whole.error().message;
  const region::TensorRef& w = *s.region.stages[0].anchor.weights;
  const auto* codes = s.plan.buffers[static_cast<std::size_t>(w.buffer)].data.data<std::int8_t>().data();
  std::int64_t most = 0;
  for (std::int64_t o = 0; o < k.o; ++o) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < w.strides[0]; ++i) sum += std::abs(codes[o * w.strides[0] + i]);
    most = std::max(most, sum);
  }
  s.region.stages[0].anchor.weight_sum = most;
  s.plan.buffers[static_cast<std::size_t>(w.buffer)].data = {};
  const auto without = cuda::conv_im2col_family().emit(s.region, s.plan, tile("64x64x64", "1", 3, 0), hopper(132));
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->text, whole->text);
  EXPECT_EQ(without->launches, whole->launches);
}

TEST(ConvIm2colCompiles, WithoutMessages) {
  if (!cuda::compiler_version()) GTEST_SKIP() << "no NVRTC";
  for (const auto& [k, parameters] : {std::pair{conv(4, 128, 28, 28, 128, 3, 3, 2, 1), tile("256x128x128", "2", 3, 0)},
                                      {conv(4, 128, 28, 28, 128, 3, 3, 2, 1), tile("128x128x128", "2 in turns", 3, 1)},
                                      {conv(4, 256, 28, 28, 256, 3, 3, 2, 1, "residual"), tile("128x256x128", "2", 4, 0)}}) {
    ConvScene s(k, 1, false);
    const auto text = cuda::conv_im2col_family().emit(s.region, s.plan, parameters, hopper(132));
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options("sm_90a"));
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_EQ(code->log, "");
    // A file's launch is held against its machine code.
    const auto bytes = std::as_bytes(std::span(code->cubin));
    const cuda::Launch* launches[] = {text->launches.data()};
    const auto fits = cuda::check_machine_code(bytes, "sm_90a", launches);
    EXPECT_TRUE(fits) << fits.error().message;
    cuda::Launch without = text->launches[0];
    for (cuda::Argument& argument : without.arguments) argument.image = -1;
    launches[0] = &without;
    EXPECT_FALSE(cuda::check_machine_code(bytes, "sm_90a", launches)) << "an address in the place of an image";
  }
}

TEST(ConvIm2colInFiles, ImagesAreReadBackAndHeldAgainstTheirBuffers) {
  ConvScene s(conv(2, 64, 9, 7, 64, 3, 3, 2, 1), 7, false);
  const auto text = cuda::conv_im2col_family().emit(s.region, s.plan, tile("64x64x64", "1", 3, 0), hopper(132));
  ASSERT_TRUE(text) << text.error().message;
  const cuda::Launch& launch = text->launches.at(0);
  ASSERT_EQ(launch.images.size(), 1U);
  cuda::RegionKernels kernels;
  kernels.starts.push_back({0, launch});
  for (std::size_t k = 0; k < text->constants.size(); ++k) s.region.packed.push_back(static_cast<int>(k));
  const auto written = cuda::write_launches(kernels, s.region);
  ASSERT_TRUE(written) << written.error().message;
  const auto read = cuda::read_launches(*written, s.region);
  ASSERT_TRUE(read) << read.error().message;
  cuda::Launch expected = launch;
  expected.counted = {};  // what is done with it is in the text and the arguments; files do not hold it
  EXPECT_EQ(read->starts.at(0).launch, expected);
  const std::string& json = *written;
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = json;
    changed.replace(changed.find(from), from.size(), to);
    return cuda::read_launches(changed, s.region);
  };
  EXPECT_FALSE(with("\"images\"", "\"pictures\"")) << "a parameter without its image";
  EXPECT_FALSE(with("\"images\":[[64", "\"images\":[[true"));
  const std::string parameter = "[\"image\",\"input\",0,0,0,";
  ASSERT_TRUE(with(parameter + "0]", parameter + "0]"));
  for (const char* number : {"1]", "-1]", "4294967295]", "4294967296]", "2147483648]", "18446744073709551615]"})
    EXPECT_FALSE(with(parameter + "0]", parameter + number)) << number << ": an image that is not there";
  s.region.stages[0].anchor.inputs[0].offset = 64;
  EXPECT_FALSE(with(parameter + "0]", "[\"image\",\"input\",0,0,9223372036854775807,0]")) << "behind all addresses";

  cuda::ImageMap m = launch.images[0];
  const std::int64_t bytes = s.plan.buffers[static_cast<std::size_t>(s.region.stages[0].anchor.inputs[0].buffer)].bytes;
  EXPECT_TRUE(cuda::check_image(m, bytes));
  EXPECT_FALSE(cuda::check_image(m, bytes - 1));
  const auto changed = [&](const auto& change) {
    cuda::ImageMap other = m;
    change(other);
    return cuda::check_image(other, INT64_MAX).has_value();
  };
  EXPECT_TRUE(changed([](cuda::ImageMap&) {}));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.dims[2] = INT64_MAX; }));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.strides[0] = 8; }));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.lower[0] = -129; }));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.steps[1] = 0; }));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.pixels = 257; }));
  EXPECT_FALSE(changed([](cuda::ImageMap& x) { x.bytes = 48; }));
}

}  // namespace
}  // namespace octavo::testing
