// Open models for a GPU that need not be here: a new shape emits and compiles nothing, and what it costs is printed, apart from what the GPU does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <span>

#include "api/load.h"
#include "api/open_gpu_scene.h"
#include "cuda/device/compile_plan.h"
#include "cuda/device/nvrtc.h"
#include "tune/measure.h"

namespace octavo::testing {
namespace {

/// Whole networks on an H100 that is not here: all batches from 1 to 32 are launches of the same texts. Prints what a new shape costs, apart from what the GPU does.
TEST(OpenNetworks, EveryBatchIsOfTheSameTexts) {
  const char* folder = std::getenv("OCTAVO_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "OCTAVO_TEST_DATA is not set";
  for (const auto& [file, input] :
       {std::pair<std::string, std::string>{"mobilenetv2-12-qdq.onnx", "input"}, {"resnet56_cifar10_fp32.onnx", "input"}}) {
    const auto session = Session::open(std::string(folder) + "/models/" + file);
    ASSERT_TRUE(session) << session.error().message;
    const auto inputs = (*session)->inputs();
    ASSERT_TRUE(inputs);
    const auto of = [&, name = input](std::int64_t n) {
      ir::Shape shape = (*inputs)[0].dims;
      shape[0] = n;
      return Shapes{{name, shape}};
    };
    EmulatedGpu gpu(cuda::Target{"sm_90a", 132, 227 * 1024});
    PipelineOptions o = options();
    o.device = "cuda:sm_90";
    for (const std::int64_t tuned : {1, 8, 32}) {
      const auto base = gpu.build(**session, o, of(tuned));
      ASSERT_TRUE(base) << base.error().message;
      const api::ShapeRanges ranges{{input, {of(1).at(input), of(1).at(input), of(32).at(input)}}};
      const auto resizer =
          Resizer::create(**session, o, *inputs, ranges, of(tuned), base->engine, base->decided, {gpu.provider.get()});
      ASSERT_TRUE(resizer) << file << ": " << resizer.error().message;
      std::vector<double> times;
      int refused = 0;
      for (std::int64_t n = 1; n <= 32; ++n) {
        const int before = gpu.compiled;
        const auto emitted = cuda::emissions();
        const auto begin = std::chrono::steady_clock::now();
        const auto resized = (*resizer)->at(of(n));
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
        EXPECT_EQ(gpu.compiled, before) << file << ", tuned for " << tuned << ", " << n << " images";
        EXPECT_EQ(cuda::emissions(), emitted) << file << ", tuned for " << tuned << ", " << n << " images";
        if (!resized)
          std::printf("  %s, tuned for %d, %d images: %s\n", file.c_str(), static_cast<int>(tuned), static_cast<int>(n),
                      resized.error().message.c_str());
        refused += resized ? 0 : 1;
      }
      std::sort(times.begin(), times.end());
      std::printf("%s, tuned for %d: a new batch takes %.1f ms, at most %.1f; %d refused\n", file.c_str(), static_cast<int>(tuned),
                  times[times.size() / 2], times.back(), refused);
      EXPECT_EQ(refused, 0);
    }
  }
}

TEST(OpenNetworks, EveryLengthIsOfTheSameTexts) {
  const std::string bytes = encoder(2);
  const auto session = Session::of(std::as_bytes(std::span(bytes)), "", "encoder");
  ASSERT_TRUE(session) << session.error().message;
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu(cuda::Target{"sm_90a", 132, 227 * 1024});
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  const auto base = gpu.build(**session, o, tokens(4, 128));
  ASSERT_TRUE(base) << base.error().message;
  const api::ShapeRanges ranges{{"x", {{1, 1, 64}, {4, 128, 64}, {8, 512, 64}}},
                                {"mask", {{1, 1, 1, 1}, {4, 1, 1, 128}, {8, 1, 1, 512}}}};
  const auto resizer =
      Resizer::create(**session, o, *inputs, ranges, tokens(4, 128), base->engine, base->decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  std::mt19937 random(11);
  std::vector<double> times;
  for (int i = 0; i < 60; ++i) {
    const auto n = static_cast<std::int64_t>(random() % 8 + 1), length = static_cast<std::int64_t>(random() % 512 + 1);
    const int before = gpu.compiled;
    const auto emitted = cuda::emissions();
    const auto begin = std::chrono::steady_clock::now();
    const auto resized = (*resizer)->at(tokens(n, length));
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_TRUE(resized) << n << " x " << length << ": " << resized.error().message;
    EXPECT_EQ(gpu.compiled, before) << n << " texts of " << length;
    EXPECT_EQ(cuda::emissions(), emitted) << n << " texts of " << length;
  }
  std::sort(times.begin(), times.end());
  std::printf("%zu layers of an encoder: new shapes take %.1f ms, at most %.1f\n", std::size_t{2}, times[times.size() / 2],
              times.back());
}

/// For a GPU that is not here: machine code by NVRTC, and the launches of an engine that was built for exactly the shape.
TEST(OpenAbsentGpu, NewBatchesCompileNothing) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  o.import.shapes = images(2);
  onnx::LateValues none;
  const auto base = (*session)->build(o, none);
  ASSERT_TRUE(base) << base.error().message;
  const auto resizer = Resizer::create(**session, o, *inputs, up_to(64), images(2), base->engine, base->decided.front());
  ASSERT_TRUE(resizer) << resizer.error().message;
  const auto compiled = cuda::compilations(), emitted = cuda::emissions();
  const auto timed = tune::measurements();
  for (const std::int64_t n : {1, 3, 8, 64}) {
    const auto resized = (*resizer)->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_EQ((*resized)->plan().inputs.front().type.shape, images(n).at("image"));
  }
  EXPECT_EQ(cuda::compilations(), compiled);
  EXPECT_EQ(cuda::emissions(), emitted);
  EXPECT_EQ(tune::measurements(), timed);
}

/// A file for a range keeps the kernels of the range: it serves every shape of it without emitting or compiling, and without its model.
TEST(OpenAbsentGpu, AFileServesItsRangeAndCompilesNothing) {
  if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  PipelineOptions o = options();
  o.device = "cuda:sm_90";
  o.keep_model = false;
  const auto model = api::OpenModel::create(*session, nullptr, o, up_to(64));
  ASSERT_TRUE(model) << model.error().message;
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("octavo-range-{}.engine", ::getpid())).string();
  const Status saved = (*model)->save(path);
  ASSERT_TRUE(saved) << saved.error().message;
  api::LoadRequest request;
  request.looks_only = true;
  const auto compiled = cuda::compilations(), emitted = cuda::emissions();
  const auto file = api::open_engine_file(path, request);
  std::filesystem::remove(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto loaded = api::load_open(*file, request);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->why_planned(), "");
  for (const std::int64_t n : {1, 2, 3, 7, 33, 64}) {
    const auto engine = (*loaded)->at(images(n));
    ASSERT_TRUE(engine) << n << " images: " << engine.error().message;
    EXPECT_EQ((*engine)->plan().inputs.front().type.shape, images(n).at("image"));
    EXPECT_FALSE((*engine)->plan().decided_for.empty() && n != 1) << n << " images: planned";
  }
  EXPECT_EQ(cuda::compilations(), compiled);
  EXPECT_EQ(cuda::emissions(), emitted);
}

}  // namespace
}  // namespace octavo::testing
