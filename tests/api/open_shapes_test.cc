// Shapes that occur for the first time in a run: planned by the decisions of shapes that were tuned, never timed, with the results of an engine that
// was built for them alone.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "api/open_model.h"
#include "octavo/octavo.h"
#include "tune/measure.h"

namespace octavo::api {
namespace {

const std::string kModel = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

std::vector<float> pictures(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> out(static_cast<std::size_t>(n) * 256);
  for (float& x : out) x = static_cast<float>(random() % 256) / 255.0F;
  return out;
}

std::map<std::string, Shape> shapes(std::int64_t n) {
  return {{"image", {n, 1, 16, 16}}};
}

BuildOptions options(int effort, const std::string& late = "nearest") {
  BuildOptions o;
  o.effort = effort;
  o.threads = 2;
  o.timing_cache = "none";
  o.late = late;
  return o;
}

std::map<std::string, Array> run(const Engine& e, std::int64_t n, unsigned seed) {
  const std::vector<float> x = pictures(n, seed);
  return e.run({{"image", view(x, shapes(n).at("image"))}});
}

void expect_equal(const std::map<std::string, Array>& a, const std::map<std::string, Array>& b, std::int64_t n) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, array] : a) {
    EXPECT_EQ(array.shape, b.at(name).shape) << name;
    EXPECT_EQ(array.bytes, b.at(name).bytes) << name << " of batch " << n;
  }
}

TEST(OpenShapes, RunsTimeNothingAndGiveTheResultsOfEnginesForTheirShapes) {
  const Engine open = Engine::build(kModel, options(2));
  (void)open.tune(shapes(1));
  (void)open.tune(shapes(4));
  const std::uint64_t before = tune::measurements();
  EXPECT_GT(before, 0U);
  std::map<std::int64_t, std::map<std::string, Array>> results;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 13, 32}) results[n] = run(open, n, static_cast<unsigned>(n));
  EXPECT_EQ(tune::measurements(), before) << "a run has timed something";
  for (const auto& [n, result] : results) {
    BuildOptions own = options(0);
    own.shapes = shapes(n);
    expect_equal(result, run(Engine::build(kModel, own), n, static_cast<unsigned>(n)), n);
  }
}

TEST(OpenShapes, AnEngineSaysWhoseDecisionsItTookOver) {
  const Engine open = Engine::build(kModel, options(1));
  (void)open.tune(shapes(4));
  for (const bool json : {false, true}) {
    EXPECT_EQ(open.at(shapes(4)).explain(json).find("image [4,1,16,16]"), std::string::npos);
    const std::string text = open.at(shapes(6)).explain(json);
    EXPECT_NE(text.find("image [4,1,16,16]"), std::string::npos) << text.substr(0, 2000);
  }
}

TEST(OpenShapes, TuningMakesTheEngineAnew) {
  const Engine open = Engine::build(kModel, options(1));
  (void)run(open, 4, 1);
  const auto followed = run(open, 6, 6);
  const std::uint64_t before = tune::measurements();
  (void)open.tune(shapes(6));
  EXPECT_GT(tune::measurements(), before);
  expect_equal(run(open, 6, 6), followed, 6);
}

TEST(OpenShapes, LateTuneTimesEveryShape) {
  const Engine open = Engine::build(kModel, options(1, "tune"));
  (void)run(open, 4, 1);
  const std::uint64_t before = tune::measurements();
  (void)run(open, 6, 1);
  EXPECT_GT(tune::measurements(), before);
  EXPECT_THROW((void)Engine::build(kModel, options(1, "soon")), Exception);
}

TEST(OpenShapes, AThreadTunesWhatOccursOften) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  PipelineOptions o;
  o.plan.effort = 1;
  o.timing.cache = kNoCache;
  o.import.default_batch = 0;
  const auto model = OpenModel::create(*session, nullptr, o, {}, {}, kEnginesKept, Late::background);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE((*model)->at({{"image", {4, 1, 16, 16}}}));
  const auto first = (*model)->at({{"image", {6, 1, 16, 16}}});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE((*first)->plan().decided_for.empty());
  for (std::uint64_t i = 0; i < kOften; ++i) (void)(*model)->at({{"image", {6, 1, 16, 16}}});
  (*model)->wait_for_background();
  const auto later = (*model)->at({{"image", {6, 1, 16, 16}}});
  ASSERT_TRUE(later);
  EXPECT_TRUE((*later)->plan().decided_for.empty());
  EXPECT_NE(*later, *first);
}

/// Random sequences of shapes in four threads; for the sanitizers. OCTAVO_SEQUENCES: how many.
TEST(OpenShapes, FourThreadsWithAnyShapes) {
  const char* given = std::getenv("OCTAVO_SEQUENCES");
  const int sequences = given == nullptr ? 20 : std::atoi(given);
  BuildOptions o = options(1);
  o.most_engines = 4;  // engines come and go
  const Engine open = Engine::build(kModel, o);
  (void)open.tune(shapes(1));
  (void)open.tune(shapes(4));
  std::map<std::int64_t, std::map<std::string, Array>> expected;
  for (std::int64_t n = 1; n <= 12; ++n) expected[n] = run(open, n, 3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t + 1);
      for (int i = 0; i < sequences; ++i) {
        for (int k = 0; k < 5; ++k) {
          const auto n = static_cast<std::int64_t>(random() % 12 + 1);
          const auto got = run(open, n, 3);
          for (const auto& [name, array] : got) wrong += array.bytes == expected[n].at(name).bytes ? 0 : 1;
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace octavo::api
