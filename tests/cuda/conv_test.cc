// Int8 convolution families: on the CPU under emulation against the reference, byte for byte, and as machine code for every
// architecture. tests/cuda/gpu/conv_bench.cc runs the same scenes on a GPU.
#include <gtest/gtest.h>

#include "cuda/architectures.h"
#include "cuda/conv_scene.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/conv/depthwise.h"
#include "cuda/families/families.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using cuda::Family;
using cuda::Parameters;

/// "" or what went wrong. `edit` plants a mistake.
std::string emulated(const ConvCase& k, const Family& family, const Parameters& parameters,
                     const std::pair<std::string, std::string>& edit = {}) {
  ConvScene s(k, 5);
  const cuda::Target target;
  if (const auto why = family.why_not(s.region, s.plan, target); !why.empty()) return "refused: " + spelled(why);
  auto text = family.emit(s.region, s.plan, parameters, target);
  if (!text) return text.error().message;
  if (!edit.first.empty()) {
    const auto at = text->text.find(edit.first);
    if (at == std::string::npos) return "the text has no \"" + edit.first + "\"";
    text->text.replace(at, edit.first.size(), edit.second);
  }
  const auto library = emulate(text->text);
  if (!library) return library.error().message;
  GlobalMemory memory;
  std::vector<std::byte*> buffers, constants;
  for (const auto& b : s.memory) {
    buffers.push_back(memory.allocate("a buffer", b.size(), true));
    std::copy(b.begin(), b.end(), buffers.back());
  }
  for (const auto& t : text->constants) {
    constants.push_back(memory.allocate("a packed constant", t.bytes().size(), false));
    std::copy(t.bytes().begin(), t.bytes().end(), constants.back());
  }
  std::byte* workspace = memory.allocate("the workspace", static_cast<std::size_t>(text->workspace_bytes) + 1, true);
  s.run_reference();
  for (int run = 0; run < (text->workspace_bytes > 0 ? 2 : 1); ++run) {
    for (const cuda::Launch& launch : text->launches) {
      const auto kernel = (*library)->find(launch.function);
      if (!kernel) return kernel.error().message;
      std::vector<void*> arguments;
      for (const cuda::Argument& p : launch.arguments) {
        std::byte* base = p.kind == cuda::Argument::Kind::buffer     ? buffers[static_cast<std::size_t>(p.index)]
                          : p.kind == cuda::Argument::Kind::constant ? constants[static_cast<std::size_t>(p.index)]
                                                                     : workspace;
        arguments.push_back(base + p.offset);
      }
      const auto wrong =
          run_grid(*kernel, {launch.grid, launch.block, static_cast<std::size_t>(launch.shared_bytes)}, arguments, memory, 1);
      if (!wrong.empty()) return wrong;
    }
  }
  for (std::size_t b = 0; b < s.memory.size(); ++b) {
    for (std::size_t i = 0; i < s.memory[b].size(); ++i) {
      if (buffers[b][i] != s.memory[b][i]) return fmt::format("byte {} of buffer {} differs; {}", i, b, k.text());
    }
  }
  return "";
}

Parameters tile(const std::string& tile, const std::string& warps, int stages, int splits, const std::string& filter,
                const std::string& products) {
  return {{"tile", tile},
          {"warps", warps},
          {"stages", std::to_string(stages)},
          {"splits", std::to_string(splits)},
          {"slices", "1"},
          {"blocks", "1"},
          {"filter", filter},
          {"copies", "near"},
          {"products", products}};
}

ConvCase shape(std::int64_t n, std::int64_t c, std::int64_t hw, std::int64_t o, std::int64_t kernel, std::int64_t stride, int zero,
               int gap, const std::string& style) {
  ConvCase k;
  k.n = n, k.c = c, k.h = hw, k.w = hw + 1, k.o = o, k.kh = k.kw = kernel, k.stride = stride, k.pad = kernel / 2, k.zero = zero,
  k.gap = gap;
  k.style = style;
  return k;
}

class ConvFamilies : public EmulatedTest {};

// Borders with a zero point, slices, a last tile that is not full, several tiles a block, a resident filter.
TEST_F(ConvFamilies, TensorCores) {
  const Family& f = cuda::conv_mma_family();
  EXPECT_EQ(emulated(shape(1, 32, 7, 40, 3, 1, 77, 8, "residual"), f, tile("32x32x64", "1x2", 3, 1, "streamed", "mma")), "");
  EXPECT_EQ(emulated(shape(2, 24, 6, 20, 1, 1, 3, 0, "bias"), f, tile("16x64x32", "1x4", 2, 1, "resident", "mma")), "");
  EXPECT_EQ(emulated(shape(1, 5, 6, 17, 3, 2, 200, 0, "rest"), f, tile("32x32x32", "1x2", 2, 1, "streamed", "mma")), "");
}

TEST_F(ConvFamilies, DepthSplitOverBlocks) {
  EXPECT_EQ(
      emulated(shape(1, 64, 4, 32, 3, 1, 9, 0, "float"), cuda::conv_mma_family(), tile("32x32x64", "1x2", 2, 4, "streamed", "mma")),
      "");
}

TEST_F(ConvFamilies, Warpgroups) {
  EXPECT_EQ(emulated(shape(1, 32, 7, 48, 3, 1, 30, 0, "bias"), cuda::conv_mma_family(),
                     tile("64x64x64", "4x1", 2, 1, "streamed", "wgmma")),
            "");
  // Four stages: products of two steps under way; several tiles a block.
  EXPECT_EQ(emulated(shape(140, 32, 8, 40, 3, 1, 30, 8, "relu"), cuda::conv_mma_family(),
                     tile("64x32x32", "4x1", 4, 1, "streamed", "wgmma")),
            "");
  Parameters sliced = tile("64x32x64", "4x1", 4, 1, "streamed", "wgmma");
  sliced["slices"] = "2";
  EXPECT_EQ(emulated(shape(1, 64, 7, 32, 3, 1, 3, 0, "residual"), cuda::conv_mma_family(), sliced), "");
}

TEST_F(ConvFamilies, FirstLayersFromRows) {
  EXPECT_EQ(emulated(shape(1, 3, 20, 24, 7, 2, 11, 0, "relu"), cuda::conv_rows_family(),
                     {{"tile", "4x16"}, {"channels", "32"}, {"warps", "2"}, {"group", "1"}, {"blocks", "1"}}),
            "");
}

TEST_F(ConvFamilies, Depthwise) {
  ConvCase k = shape(1, 12, 7, 12, 3, 2, 140, 8, "bias");
  k.groups = 12;
  EXPECT_EQ(emulated(k, cuda::depthwise_family(), {{"rows", "2"}, {"columns", "2"}, {"threads", "32"}}), "");
}

TEST_F(ConvFamilies, MistakesAreFound) {
  const Family& f = cuda::conv_mma_family();
  const ConvCase k = shape(1, 32, 7, 40, 3, 1, 77, 8, "relu");
  const Parameters p = tile("32x32x64", "1x2", 3, 1, "streamed", "mma");
  for (const auto& [good, bad] : std::vector<std::pair<std::string, std::string>>{
           {"octavo_copy_wait<kStages - 2>()", "octavo_copy_wait<kStages - 1>()"},     // a step is read before it has arrived
           {"kFillCode = 77", "kFillCode = 76"},                                       // what lies outside the image
           {"octavo_barrier();\n        copy_next();", "copy_next();"},                // copies are seen by their own thread only
           {"pixel[i] = p < kPixels ? p : -1;", "pixel[i] = p <= kPixels ? p : -1;"},  // one pixel too many
           {"left + k * kDilationW) < (unsigned)kInW", "left + k * kDilationW) <= (unsigned)kInW"}}) {  // one column too many
    EXPECT_NE(emulated(k, f, p, {good, bad}), "") << good;
  }
}

TEST(ConvTexts, Sm75HasNoTilesOfWarpgroups) {
  ConvScene s(ConvCase{}, 1);
  const cuda::Target target{"sm_75", 40, 64 * 1024};
  EXPECT_TRUE(cuda::conv_mma_family().why_not(s.region, s.plan, target).empty());
  for (const auto& c : cuda::conv_mma_family().candidates(s.region, s.plan, target))
    EXPECT_NE(c.parameters.at("products"), "wgmma") << "tiles of sm_90a";
}

TEST(ConvTexts, WarpgroupsNeedTheirArchitecture) {
  ConvScene s(ConvCase{}, 1);
  cuda::Target target;
  target.architecture = "sm_100";
  EXPECT_FALSE(cuda::conv_mma_family().emit(s.region, s.plan, tile("64x64x64", "4x1", 2, 1, "streamed", "wgmma"), target));
}

class ConvCompiles : public ::testing::TestWithParam<cuda::Architecture> {};

TEST_P(ConvCompiles, EveryFamily) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  cuda::Target target;
  target.architecture = GetParam();
  ConvCase narrow = shape(1, 16, 9, 16, 3, 1, 5, 0, "bias");
  narrow.groups = 16;
  ConvCase grouped = shape(1, 64, 8, 64, 3, 1, 5, 0, "relu");
  grouped.groups = 4;
  std::vector<std::tuple<const Family*, ConvCase, Parameters>> texts{
      {&cuda::conv_mma_family(), shape(1, 64, 8, 64, 3, 1, 5, 0, "residual"), tile("64x64x64", "2x2", 3, 2, "streamed", "mma")},
      {&cuda::conv_rows_family(),
       shape(1, 3, 32, 32, 3, 2, 5, 0, "relu"),
       {{"tile", "4x16"}, {"channels", "32"}, {"warps", "2"}, {"group", "1"}, {"blocks", "1"}}},
      {&cuda::conv_mma_family(), grouped, tile("64x32x64", "2x1", 3, 1, "streamed", "mma")},
      {&cuda::conv_window_family(),
       shape(1, 32, 16, 32, 3, 1, 5, 0, "relu"),
       {{"tile", "16x16x32"}, {"warps", "4x1"}, {"stages", "2"}, {"blocks", "2"}}},
      {&cuda::depthwise_family(), narrow, {{"rows", "2"}, {"columns", "2"}, {"threads", "64"}}}};
  Parameters sliced = tile("16x32x64", "1x2", 3, 1, "streamed", "mma");
  sliced["slices"] = "4";
  texts.emplace_back(&cuda::conv_mma_family(), shape(1, 256, 7, 64, 3, 1, 5, 0, "relu"), sliced);
  if (target.architecture == "sm_90a") {
    for (const int stages : {2, 4}) {
      texts.emplace_back(&cuda::conv_mma_family(), shape(1, 256, 8, 64, 3, 1, 5, 0, "relu"),
                         tile("128x64x64", "8x1", stages, 1, "streamed", "wgmma"));
    }
    for (const char* tile : {"192x128x64", "64x256x64", "256x64x32"}) {
      texts.emplace_back(&cuda::conv_stream_family(), shape(1, 64, 14, 64, 3, 1, 5, 0, "residual"),
                         Parameters{{"tile", tile}, {"filter", "4x3"}, {"input", "2x1"}, {"blocks", "1"}});
    }
    for (const int unit : {64, 128}) {
      texts.emplace_back(
          &cuda::conv_shift_family(), shape(1, 64, 14, 64, 3, 1, 5, 0, "residual"),
          Parameters{{"tile", "14x14x64"}, {"groups", "3"}, {"unit", std::to_string(unit)}, {"stages", "2"}, {"blocks", "1"}});
    }
  }
  for (const auto& [family, k, parameters] : texts) {
    ConvScene s(k, 1);
    const auto text = family->emit(s.region, s.plan, parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    ASSERT_TRUE(code) << family->name() << ": " << code.error().message;
    EXPECT_EQ(code->log, "") << family->name();
  }
}
INSTANTIATE_TEST_SUITE_P(For, ConvCompiles, ::testing::ValuesIn(architectures()));

}  // namespace
}  // namespace octavo::testing
