// Engine files for a GPU that was named at their build ("cuda:A100"), or had another number there, built again where they are loaded: they run on the GPU of the load. What
// `octavo rebuild` writes stays an engine for the GPU that was named.
#include <nlohmann/json.hpp>

#include "api/device_name.h"
#include "api/gpu_here_scene.h"
#include "api/load.h"
#include "api/open_model.h"
#include "engine/engine.h"
#include "engine/set.h"

namespace octavo::testing {
namespace {

using api::LoadRequest;
using nlohmann::json;

class RebuildGpu : public GpuHereTest {
 protected:
  /// As if an earlier Octavo had written it, whose kernels had another version.
  void age() const {
    rewrite([](std::string_view name, std::string& bytes) {
      if (name != engine::section::kPlan) return;
      json plan = json::parse(bytes);
      for (json& r : plan["regions"]) {
        if (r["tactic"].value("provider", "") == "cuda" || r.value("code", -1) >= 0)
          r["tactic"]["version"] = r["tactic"].value("version", 1) - 1;
      }
      bytes = plan.dump();
    });
  }
  LoadOptions loads() {
    LoadOptions o;
    o.warn = [this](const std::string& sentence) { warned_.push_back(sentence); };
    return o;
  }
  static std::string device_of_build(const engine::Engine& engine) {
    return json::parse(engine.origin().build).at("device").get<std::string>();
  }
  Result<std::shared_ptr<const engine::EngineFile>> opened() const { return engine::EngineFile::open(file_); }

  std::vector<std::string> warned_;
};

TEST(DeviceToRun, IsTheGpuOfTheLoad) {
  EXPECT_EQ(api::device_to_run("cuda:H100", "cuda"), "cuda");
  EXPECT_EQ(api::device_to_run("cuda:H100,cpu", "cuda"), "cuda,cpu");
  EXPECT_EQ(api::device_to_run("cuda:H100", "cuda:1"), "cuda:1");
  EXPECT_EQ(api::device_to_run("cuda:1,cpu", "cuda:2,cpu"), "cuda:2,cpu");
  EXPECT_EQ(api::device_to_run("cuda:3", "cpu"), "cuda") << "the default of --device says nothing of GPUs";
  EXPECT_EQ(api::device_to_run("cuda:H100", "cuda:A100"), "cuda:A100");
  EXPECT_EQ(api::device_to_run("cpu", "cuda:1"), "cpu");
  EXPECT_EQ(api::device_to_run("reference", "cuda"), "reference");
}

TEST_F(RebuildGpu, OneShapeRunsOnTheGpuOfTheLoad) {
  for (const char* device : {"cuda:A100", "cuda:1", "cuda:A100,cpu"}) {
    BuildOptions o = options(device);
    o.shapes["image"] = {2, 1, 16, 16};
    Engine::build(kDigits, o).save(file_);
    age();
    warned_.clear();
    const Engine again = Engine::load(file_, loads());
    ASSERT_EQ(warned_.size(), 1U) << device << ": it was not built again";
    expect_runs(again, 2);
    const auto all = api::load_engines(file_);
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(device_of_build(*all->front()), api::takes_cpu_too(device) ? "cuda,cpu" : "cuda");
  }
}

TEST_F(RebuildGpu, ASetRunsOnTheGpuOfTheLoad) {
  save_set("cuda:A100");
  age();
  const Engine again = Engine::load(file_, loads());
  EXPECT_EQ(warned_.size(), 1U);
  for (const std::int64_t n : {1, 3}) expect_runs(again, n);
}

TEST_F(RebuildGpu, ARangeRunsOnTheGpuOfTheLoad) {
  for (const bool of_a_version : {true, false}) {
    Engine::build(kDigits, ranged("cuda:A100")).save(file_);
    if (of_a_version) {
      const auto bytes = read_file(file_);
      ASSERT_TRUE(bytes);
      const auto all = engine::read_container(*bytes, file_);
      ASSERT_TRUE(all) << all.error().message;
      ASSERT_TRUE(engine::write_file(file_, all->sections, {engine::kFormat, 0, 0, 9}));
    } else {
      age();
    }
    warned_.clear();
    const Engine again = Engine::load(file_, loads());
    EXPECT_EQ(warned_.size(), 1U);
    for (const std::int64_t n : {4, 7}) expect_runs(again, n);
  }
}

/// A current file of a range, whose plans do not become those of other shapes by extents: the model is planned when a shape comes.
TEST_F(RebuildGpu, ANewShapeOfARangeIsPlannedForTheGpuOfTheLoad) {
  Engine::build(kDigits, ranged("cuda:A100")).save(file_);
  rewrite([](std::string_view name, std::string& bytes) {
    if (name != engine::section::kOpen) return;
    json open = json::parse(bytes);
    for (json& plan : open["plans"]) {
      plan.erase("follows");
      plan["why"] = "the test says so";
    }
    bytes = open.dump();
  });
  const Engine loaded = Engine::load(file_, loads());
  EXPECT_TRUE(warned_.empty());
  expect_runs(loaded, 4);
  const auto before = loaded.builds();
  expect_runs(loaded, 7);
  EXPECT_EQ(loaded.builds(), before + 1);
}

/// Nothing runs on a device that is not here: what a rebuild of the command made is for the GPU that was named.
TEST_F(RebuildGpu, WhatIsOnlyWrittenKeepsTheNameOfTheGpu) {
  const auto expect_absent = [](const std::shared_ptr<const engine::Engine>& engine) {
    EXPECT_EQ(device_of_build(*engine), "cuda:A100");
    const auto context = engine::Context::create(engine, 1);
    ASSERT_FALSE(context);
    EXPECT_NE(context.error().message.find("the engine was built for A100"), std::string::npos) << context.error().message;
  };
  LoadRequest writes;
  writes.looks_only = true;
  save_set("cuda:A100");
  age();
  auto file = opened();
  ASSERT_TRUE(file) << file.error().message;
  const auto set = api::rebuild(*file, writes);
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->size(), 2U);
  for (const auto& engine : *set) expect_absent(engine);
  ASSERT_TRUE(engine::save_set(file_, *set));
  warned_.clear();
  expect_runs(Engine::load(file_, loads()), 3);
  EXPECT_TRUE(warned_.empty()) << "it is current now";

  Engine::build(kDigits, ranged("cuda:A100")).save(file_);
  file = opened();
  ASSERT_TRUE(file) << file.error().message;
  const auto open = api::rebuild_open(*file, writes);
  ASSERT_TRUE(open) << open.error().message;
  for (const auto& engine : (*open)->tuned()) expect_absent(engine);
}

}  // namespace
}  // namespace octavo::testing
