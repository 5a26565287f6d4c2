// Shapes that occur for the first time in a run: planned by the decisions of shapes that were tuned, never timed, with the results of an engine that
// was built for them alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "api/check.h"
#include "api/open_model.h"
#include "octavo/octavo.h"
#include "support/threads.h"
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

// One context, every shape: results equal those of an engine for exactly that shape, lie in memory of the context, and no shape needs Engine::at.
TEST(OpenShapes, AContextTakesEveryShape) {
  const Engine open = Engine::build(kModel, options(0));
  Context context(open, 2);
  const auto bytes = [](const ConstView& v) {
    std::size_t n = size_of(v.dtype);
    for (const std::int64_t d : v.shape) n *= static_cast<std::size_t>(d);
    return std::vector<std::byte>(static_cast<const std::byte*>(v.data), static_cast<const std::byte*>(v.data) + n);
  };
  std::vector<std::int64_t> order{3, 1, 8, 3, 2};
  for (std::int64_t n = 1; n <= 20; ++n) order.push_back(n);  // more than the context keeps
  order.insert(order.end(), {1, 20, 3});
  for (const std::int64_t n : order) {
    const std::vector<float> x = pictures(n, static_cast<unsigned>(n));
    const auto found = context.run({view(x, shapes(n).at("image"))});
    const std::map<std::string, Array> want = open.at(shapes(n)).run({{"image", view(x, shapes(n).at("image"))}});
    ASSERT_EQ(found.size(), want.size());
    const Array& one = want.begin()->second;
    EXPECT_EQ(found[0].shape, one.shape);
    EXPECT_EQ(context.shape_of(0), one.shape);
    EXPECT_EQ(bytes(found[0]), one.bytes) << n;
  }
  const std::vector<float> x = pictures(2, 1);
  const Engine fixed = open.at(shapes(2));
  Context of_fixed(fixed);
  const std::span<const ConstView> same = of_fixed.run({view(x, shapes(2).at("image"))});
  EXPECT_EQ(bytes(same[0]), fixed.run({{"image", view(x, shapes(2).at("image"))}}).begin()->second.bytes);
  EXPECT_THROW((void)of_fixed.run({view(pictures(3, 1), shapes(3).at("image"))}), Exception);
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

/// As many as there are lengths of a text: none is made twice, and none has threads of its own.
TEST(OpenShapes, HundredsOfShapesAreKeptAndShareThreads) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  PipelineOptions o;
  o.plan.effort = 1;
  o.plan.threads = 3;
  o.import.default_batch = 0;
  o.timing.cache = "none";
  const auto made = OpenModel::create(*session, nullptr, o);
  ASSERT_TRUE(made) << made.error().message;
  const OpenModel& model = **made;
  ASSERT_TRUE(model.tune(shapes(4)));
  constexpr std::int64_t kShapes = 300;
  std::vector<std::unique_ptr<engine::Context>> contexts;
  const std::size_t before = testing::threads_now();
  std::uint64_t builds = 0;
  int resized = 0;
  for (const bool again : {false, true}) {
    for (std::int64_t n = 2; n <= kShapes; ++n) {
      const auto engine = model.at(shapes(n));
      ASSERT_TRUE(engine) << engine.error().message;
      resized += !again && (*engine)->is_resized() ? 1 : 0;
      if (again) continue;
      auto context = engine::Context::create(*engine, 3, nullptr, model.resources());
      ASSERT_TRUE(context);
      ASSERT_TRUE(api::run(**context, api::random_inputs((*engine)->plan(), 1)));
      contexts.push_back(std::move(*context));
    }
    if (!again) builds = model.builds();
  }
  EXPECT_GE(resized, kShapes - 10);  // few numbers that threads cannot share are planned
  EXPECT_EQ(model.builds(), builds) << "a shape was made again";
  EXPECT_LE(testing::threads_within(before + 2), before + 2);
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

TEST(OpenShapes, AResizedEngineIsNotPlannedAndHasTheConstantsOfItsBase) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  PipelineOptions o;
  o.plan.effort = 0;
  o.plan.disabled = {"fuse-conv-pool"};  // row tiles of joined stages depend on the batch
  o.import.default_batch = 0;
  const auto engine_for = [&](std::int64_t n) {
    o.import.shapes = shapes(n);
    onnx::LateValues none;
    return (*session)->build(o, none);
  };
  const auto base = engine_for(4);
  ASSERT_TRUE(base) << base.error().message;
  const auto resizer = Resizer::create(**session, o, *inputs, {}, shapes(4), base->engine, base->decided.front());
  ASSERT_TRUE(resizer) << resizer.error().message;
  for (const std::int64_t n : {1, 2, 7, 40}) {
    const auto resized = (*resizer)->at(shapes(n));
    ASSERT_TRUE(resized) << resized.error().message;
    const region::Plan& plan = (*resized)->plan();
    EXPECT_EQ(plan.inputs.front().type.shape, shapes(n).at("image"));
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const auto id = static_cast<region::BufferId>(i);
      EXPECT_EQ((*resized)->constant(id).data(), base->engine->constant(id).data());
    }
    const auto own = engine_for(n);
    ASSERT_TRUE(own);
    const std::vector<ir::Tensor> x{ir::Tensor::of<float>(shapes(n).at("image"), pictures(n, 9))};
    const auto a = engine::Context::create(*resized), b = engine::Context::create(own->engine);
    ASSERT_TRUE(a && b);
    const auto y = api::run(**a, x), z = api::run(**b, x);
    ASSERT_TRUE(y && z);
    for (std::size_t i = 0; i < y->size(); ++i) EXPECT_TRUE(ir::same_bytes((*y)[i], (*z)[i])) << "batch " << n;
  }
}

/// `most`: of the batch.
BuildOptions ranged(int effort, std::int64_t most, bool keep_model = true) {
  BuildOptions o = options(effort);
  o.profiles["image"] = {shapes(1).at("image"), shapes(4).at("image"), shapes(most).at("image")};
  o.keep_model = keep_model;
  return o;
}

TEST(OpenShapes, AFileServesItsRangeAndTimesNothing) {
  for (const int effort : {0, 1}) {
    for (const bool keep_model : {true, false}) {
      const Engine built = Engine::build(kModel, ranged(effort, 16, keep_model));
      const std::vector<std::byte> file = built.bytes();
      BuildOptions one = options(effort);
      one.shapes = shapes(4);
      one.keep_model = keep_model;
      const std::size_t single = Engine::build(kModel, one).bytes().size();
      std::printf("effort %d, model %d: %zu bytes, for one shape %zu\n", effort, keep_model ? 1 : 0, file.size(), single);
      const Engine loaded = Engine::load(file, 2);
      EXPECT_TRUE(loaded.open());
      EXPECT_EQ(loaded.inputs().at(0).shape, (Shape{-1, 1, 16, 16}));
      const std::uint64_t before = tune::measurements();
      for (const std::int64_t n : {1, 2, 3, 4, 5, 9, 16}) {
        BuildOptions own = options(0);
        own.shapes = shapes(n);
        expect_equal(run(loaded, n, static_cast<unsigned>(n)), run(Engine::build(kModel, own), n, static_cast<unsigned>(n)), n);
      }
      EXPECT_EQ(tune::measurements(), before) << "a run has timed something";
      for (const std::int64_t n : {0, 17}) {
        try {
          (void)run(loaded, n, 1);
          ADD_FAILURE() << "a batch of " << n << " is out of range";
        } catch (const Exception& e) {
          EXPECT_EQ(e.kind(), Exception::Kind::bad_input);
          EXPECT_NE(std::string(e.what()).find("its profile goes from 1 to 16"), std::string::npos) << e.what();
          EXPECT_NE(std::string(e.what()).find("to do: widen the range"), std::string::npos) << e.what();
        }
      }
      EXPECT_EQ(loaded.bytes(), file);  // what was run in between leaves nothing behind
    }
  }
}

TEST(OpenShapes, DamagedRangesAreRefused) {
  const std::vector<std::byte> file = Engine::build(kModel, ranged(0, 8, false)).bytes();
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const std::size_t open = text.find("\"follows\"");
  ASSERT_NE(open, std::string_view::npos);
  int refused = 0;
  for (std::size_t at = open; at < std::min(file.size(), open + 4000); at += 37) {
    std::vector<std::byte> other = file;
    other[at] ^= std::byte{1};
    try {
      (void)Engine::load(other, 1);
    } catch (const Exception& e) {
      EXPECT_EQ(e.kind(), Exception::Kind::bad_engine) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(OpenShapes, ForgedExtentsAreRefused) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  PipelineOptions o;
  o.plan.effort = 0;
  o.plan.disabled = {"fuse-conv-pool"};
  o.import.default_batch = 0;
  o.import.shapes = shapes(4);
  onnx::LateValues none;
  const auto base = (*session)->build(o, none);
  ASSERT_TRUE(base);
  const ShapeRanges range{{"image", {shapes(1).at("image"), shapes(4).at("image"), shapes(16).at("image")}}};
  const auto inputs = (*session)->inputs();
  const auto made = Resizer::create(**session, o, *inputs, range, shapes(4), base->engine, base->decided.front());
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::byte> data;
  api::KeptCodes codes;
  const nlohmann::json sound = (*made)->to_json(data, codes);
  const Resizer::Kept kept{data, &codes, {}};
  ASSERT_TRUE(Resizer::from_json(sound, kept, o, base->engine, base->decided.front()));
  std::mt19937 random(36);
  int refused = 0, later = 0;
  for (int i = 0; i < 300; ++i) {
    nlohmann::json forged = sound;
    auto& sums = forged["extents"]["sums"];
    auto& which = forged["extents"]["which"];
    switch (random() % 4) {
      case 0: sums[random() % sums.size()][0][0] = static_cast<std::int64_t>(random()) - (std::int64_t{1} << 31); break;
      case 1: sums[random() % sums.size()][0][1][0] = static_cast<int>(random() % 4); break;
      case 2: which[random() % which.size()] = random() % (sums.size() + 1); break;
      default: sums[random() % sums.size()].push_back({-(std::int64_t{1} << (random() % 62)), {1}}); break;
    }
    const auto read = Resizer::from_json(forged, kept, o, base->engine, base->decided.front());
    if (!read) {
      EXPECT_EQ(read.error().kind, ErrorKind::bad_engine) << read.error().message;
      ++refused;
      continue;
    }
    for (const std::int64_t n : {1, 3, 16}) later += (*read)->at(shapes(n)) ? 0 : 1;  // an error or a sound plan, never a crash
  }
  std::printf("%d of 300 refused when they are read, %d shapes of the others\n", refused, later);
  EXPECT_GT(refused, 100);
}

TEST(OpenShapes, MemoryOfTheLargestShapesIsThereBeforeTheyRun) {
  BuildOptions o = ranged(1, 32);
  const Engine e = Engine::build(kModel, o);
  const MemoryUse before = e.memory();
  EXPECT_EQ(before.working, 0U);
  EXPECT_GT(before.held, 0U);
  EXPECT_LE(before.held, before.working_most);
  (void)run(e, 32, 1);
  EXPECT_EQ(e.memory().held, before.held);
  EXPECT_EQ(e.memory().scratch, before.scratch);
  const std::vector<std::byte> file = e.bytes();
  EXPECT_GT(Engine::load(file).memory().held, 0U);
  EXPECT_EQ(Engine::load(file, LoadOptions{.reserve = false}).memory().held, 0U);
  o.reserve = false;
  EXPECT_EQ(Engine::build(kModel, o).memory().held, 0U);
}

TEST(OpenShapes, AllShapesShareTheirWorkingMemory) {
  const Engine e = Engine::build(kModel, ranged(1, 32));
  (void)run(e, 32, 1);
  const MemoryUse largest = e.memory();
  EXPECT_GT(largest.working, 0U);
  EXPECT_GE(largest.working_most, largest.working);
  for (std::int64_t n = 1; n <= 32; ++n) (void)run(e, n, 1);
  const MemoryUse after = e.memory();
  EXPECT_LE(after.held, largest.working_most);
  EXPECT_LE(after.working, after.working_most);
  e.trim();
  EXPECT_EQ(e.memory().held, 0U);
  EXPECT_EQ(run(e, 3, 7).begin()->second.bytes, run(e, 3, 7).begin()->second.bytes);
}

/// Random sequences of shapes in four threads, which share arenas while a thread tunes what occurs often; for the sanitizers. OCTAVO_SEQUENCES: how many the threads
/// take together. OCTAVO_SEED: of another part of many sequences, which run in several processes at a time (scripts/sequences.sh).
TEST(OpenShapes, FourThreadsWithAnyShapes) {
  const char* given = std::getenv("OCTAVO_SEQUENCES");
  const int sequences = given == nullptr ? 80 : std::atoi(given);
  const char* seed_given = std::getenv("OCTAVO_SEED");
  const unsigned seed = seed_given == nullptr ? 1 : static_cast<unsigned>(std::atoi(seed_given));
  BuildOptions o = options(1);
  o.most_engines = 4;  // engines come and go
  BuildOptions tuning = ranged(1, 12);
  tuning.late = "background";
  tuning.most_engines = 12;
  const Engine open = Engine::build(kModel, o), background = Engine::build(kModel, tuning);
  (void)open.tune(shapes(1));
  (void)open.tune(shapes(4));
  const Engine loaded = Engine::load(background.bytes(), 2);
  std::map<std::int64_t, std::map<std::string, Array>> expected;
  for (std::int64_t n = 1; n <= 12; ++n) expected[n] = run(open, n, 3);
  std::atomic<int> wrong{0}, next{0}, done{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < sequences; i = next++, ++done) {
        std::mt19937 random(seed * 1000003U + static_cast<unsigned>(i));
        for (int k = 0; k < 5; ++k) {
          const auto n = static_cast<std::int64_t>(random() % 12 + 1);
          const unsigned which = random() % 3;
          const Engine& engine = which == 0 ? open : which == 1 ? background : loaded;
          const auto got = run(engine, n, 3);
          for (const auto& [name, array] : got) wrong += array.bytes == expected[n].at(name).bytes ? 0 : 1;
          if (random() % 64 == 0) engine.trim();
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0) << "OCTAVO_SEED=" << seed << " OCTAVO_SEQUENCES=" << sequences;
  EXPECT_EQ(done.load(), sequences);
}

}  // namespace
}  // namespace octavo::api
