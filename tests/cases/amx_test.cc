// Networks from end to end on emulated AMX tiles, against the reference. The cases run on them too: judge.cc.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cases/amx_first.h"
#include "onnx/import/import.h"
#include "reference/evaluate.h"
#include "support/feeds.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo::testing {
namespace {

class EmulatedAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_emulate_amx()) GTEST_SKIP() << "the emulation of AMX tiles needs avx512vnni";
  }
};

TEST_F(EmulatedAmx, DigitsGiveTheBitsOfTheReference) {
  onnx::ImportOptions options;
  options.default_batch = 2;
  const auto model = onnx::import_file(OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx", options);
  ASSERT_TRUE(model) << model.error().message;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto feeds = seeded_feeds(model->graph, seed);
    const auto want = reference::evaluate(model->graph, feeds);
    const auto got = run_on_emulated_amx(model->graph, {}, feeds);
    ASSERT_TRUE(want && got) << (want ? got.error().message : want.error().message);
    EXPECT_GE(got->layers, 2) << "of " << got->convolutions << " convolutions";
    EXPECT_GT(got->dots, 0);
    EXPECT_EQ(first_difference(*want, got->outputs), "");
  }
}

TEST_F(EmulatedAmx, RandomNetworksGiveTheBitsOfTheReference) {
  const auto setting = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t count = setting("OCTAVO_FUZZ_GRAPHS", std::getenv("OCTAVO_LONG") ? 1000 : 40),
                      first = setting("OCTAVO_FUZZ_SEED", 1);
  int equal = 0, layers = 0, convolutions = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const ir::Graph graph = random_network(seed, {.shuffles = seed % 2 == 0});
    const auto feeds = seeded_feeds(graph, seed);
    const auto want = reference::evaluate(graph, feeds);
    const auto got = run_on_emulated_amx(graph, {}, feeds);
    ASSERT_TRUE(want && got) << "OCTAVO_FUZZ_SEED=" << seed << ": " << (want ? got.error().message : want.error().message);
    layers += got->layers, convolutions += got->convolutions;
    EXPECT_EQ(got->layers > 0, got->dots > 0) << "OCTAVO_FUZZ_SEED=" << seed;
    if (got->float_sums) continue;  // in the kernel's own order
    EXPECT_EQ(first_difference(*want, got->outputs), "") << "OCTAVO_FUZZ_SEED=" << seed << " OCTAVO_FUZZ_GRAPHS=1";
    ++equal;
  }
  std::printf("networks equal to the reference: %d; of %d integer convolutions %d layers on emulated tiles\n", equal, convolutions,
              layers);
  if (count >= 40) {
    EXPECT_GE(equal, 20);
    EXPECT_GE(layers, 40);
  }
}

}  // namespace
}  // namespace octavo::testing
