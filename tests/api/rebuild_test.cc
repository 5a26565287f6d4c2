// Engine files of an earlier version: built again from the model that they hold, with the options that they were built with.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "api/check.h"
#include "api/load.h"
#include "api/model_source.h"
#include "base/read_file.h"
#include "engine/set.h"
#include "engine/version.h"
#include "octavo/octavo.h"
#include "plan/effort.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;
using engine::Section;

const std::string kModel = OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx";

class Rebuild : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octavo_rebuild_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = (folder_ / "e.octavo").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static PipelineOptions options() {
    PipelineOptions o;
    o.plan.effort = 0;
    o.plan.threads = 1;
    return o;
  }
  std::shared_ptr<const engine::Engine> save(const std::string& model, PipelineOptions o = options()) const {
    o.notes = {{"preprocess", "kept"}};
    const auto built = build_file(model, o);
    EXPECT_TRUE(built) << built.error().message;
    if (!built) return nullptr;
    const Status saved = built->engine->save(file_);
    EXPECT_TRUE(saved) << saved.error().message;
    return built->engine;
  }
  /// The file as an earlier version, or an earlier one of a kernel family, would have written it.
  void rewrite(const engine::MadeBy& by, const std::function<void(nlohmann::json& plan)>& change = {}) const {
    const auto bytes = read_file(file_);
    ASSERT_TRUE(bytes);
    auto all = engine::read_container(*bytes, file_);
    ASSERT_TRUE(all) << all.error().message;
    std::string plan;
    for (Section& s : all->sections) {
      if (s.name != engine::section::kPlan || !change) continue;
      auto j = nlohmann::json::parse(s.bytes.begin(), s.bytes.end());
      change(j);
      plan = j.dump();
      s.bytes = std::as_bytes(std::span(plan));
    }
    ASSERT_TRUE(engine::write_file(file_, all->sections, by));
  }
  /// Loads with upgrades, and says what was warned of.
  Result<engine::Engines> load(LoadRequest request = {}) const {
    warned_.clear();
    request.warn = [this](const std::string& s) { warned_.push_back(s); };
    request.timing_cache = std::string(kNoCache);
    return load_engines(file_, request);
  }
  fs::path folder_;
  std::string file_;
  mutable std::vector<std::string> warned_;
};

void run_both(const std::shared_ptr<const engine::Engine>& a, const std::shared_ptr<const engine::Engine>& b) {
  auto one = engine::Context::create(a, 1), other = engine::Context::create(b, 1);
  ASSERT_TRUE(one && other);
  const auto inputs = random_inputs(a->plan(), 3);
  const auto x = run(**one, inputs), y = run(**other, inputs);
  ASSERT_TRUE(x && y);
  ASSERT_EQ(x->size(), y->size());
  for (std::size_t k = 0; k < x->size(); ++k) EXPECT_TRUE(ir::same_bytes((*x)[k], (*y)[k]));
}

TEST_F(Rebuild, ACurrentFileIsLoadedAsItIs) {
  const auto was = save(kModel);
  const auto all = load();
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_TRUE(warned_.empty());
  EXPECT_EQ(all->front()->plan_hash(), was->plan_hash());
}

TEST_F(Rebuild, AFileOfAnEarlierVersionIsBuiltAgain) {
  const auto was = save(kModel);
  rewrite({engine::kFormat, 0, 0, 9}, [](nlohmann::json& plan) { plan = {{"of another", "format"}}; });
  const auto all = load();
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(warned_.size(), 1U);
  EXPECT_EQ(
      warned_[0],
      fmt::format("engine \"{0}\" was built by Octavo 0.0.9 (file format {1}) with kernels that this Octavo {2} does not have: "
                  "the engine is built again from its model at each load; octavo rebuild {0} builds it once",
                  file_, engine::kFormat, engine::kVersion));
  const auto& is = all->front();
  EXPECT_EQ(is->plan_hash(), was->plan_hash());
  EXPECT_EQ(is->notes(), (engine::Notes{{"preprocess", "kept"}}));
  EXPECT_EQ(is->made_by().version(), engine::kVersion);
  run_both(was, is);
  ASSERT_TRUE(engine::save_set(file_, *all));
  EXPECT_TRUE(load()) << "it is current now";
  EXPECT_TRUE(warned_.empty());

  LoadRequest strict;
  strict.upgrade = false;
  rewrite({engine::kFormat, 0, 0, 9});
  const auto refused = load(strict);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::bad_engine);
  EXPECT_NE(refused.error().message.find("octavo rebuild"), std::string::npos) << refused.error().message;
}

TEST_F(Rebuild, AFileWithAnEarlierKernelIsBuiltAgain) {
  const auto was = save(kModel);
  const auto version = [](nlohmann::json& plan, int by) {
    int changed = 0;
    for (auto& r : plan["regions"]) {
      auto& tactic = r["tactic"];
      const int now = tactic.value("version", 1);
      tactic["version"] = now + by;
      ++changed;
    }
    EXPECT_GT(changed, 0);
  };
  rewrite(engine::MadeBy::here(), [&](nlohmann::json& plan) { version(plan, -1); });
  const auto all = load();
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(warned_.size(), 1U);
  EXPECT_EQ(all->front()->plan_hash(), was->plan_hash());
  run_both(was, all->front());
  const auto alone = engine::Engine::load(file_, all_providers());  // the runtime has no planner
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("this Octavo has version"), std::string::npos) << alone.error().message;
  EXPECT_NE(alone.error().message.find("octavo rebuild"), std::string::npos) << alone.error().message;

  rewrite(engine::MadeBy::here(), [&](nlohmann::json& plan) { version(plan, +2); });  // of a later one: nothing to do here
  EXPECT_FALSE(load());
  EXPECT_TRUE(warned_.empty());
}

TEST_F(Rebuild, DamageIsNoReasonToBuildAgain) {
  save(kModel);
  rewrite(engine::MadeBy::here(), [](nlohmann::json& plan) { plan["regions"][0]["tactic"]["family"] = "conjured"; });
  const auto refused = load();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(warned_.empty());
  EXPECT_NE(refused.error().message.find(fmt::format("the engine was built by this version of Octavo, {}", engine::kVersion)),
            std::string::npos)
      << refused.error().message;
}

TEST_F(Rebuild, OptionsComeBack) {
  PipelineOptions o = options();
  o.cpu = "avx2";
  o.device = "reference";
  o.import.shapes = {{"image", {4, 1, 8, 8}}};
  o.import.default_batch = 0;
  o.plan.threads = 3, o.plan.effort = 1;
  o.plan.disabled = {"stages"}, o.plan.forced = {"split-conv"};
  o.plan.max_error = 0.02;
  o.plan.permit_pairs = true;
  o.plan.allowed = {"int8", "bfloat16"};
  o.plan.ranges = {{"a", ir::symmetric(0.1F)}, {"b", ir::covering(-1, 2)}, {"zero", ir::symmetric(0.0F)}};
  o.plan.precisions = {{"conv*", "float32"}, {"*", "int8"}};
  o.plan.bindings["image"] = {ir::DType::u8, "hwc"};
  onnx::LateValues late;
  late.given["k"] = ir::Tensor::of<std::int64_t>({2}, {-3, 1LL << 40});
  const std::string text = build_text(o, late);
  const auto back = read_build(text, "e");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(build_text(back->options, back->late), text);
  EXPECT_EQ(back->options.plan.ranges, o.plan.ranges);
  EXPECT_EQ(back->options.import.shapes, o.import.shapes);
  EXPECT_TRUE(ir::same_bytes(back->late.given.at("k"), late.given.at("k")));
  // Any text: options or an error.
  for (std::size_t cut = 0; cut < text.size(); ++cut) EXPECT_FALSE(read_build(text.substr(0, cut), "e"));
  const std::vector<std::string> lies{R"j({"ranges":{"a":"u8(-1,0)"}})j",
                                      R"j({"ranges":{"a":7}})j",
                                      R"j({"values":{"k":{"dtype":"s64","shape":[2],"bytes":"00"}}})j",
                                      R"j({"values":{"k":{"dtype":"s64","shape":[1048576,1048576,1048576],"bytes":""}}})j",
                                      R"j({"bindings":{"a":"nonsense"}})j",
                                      R"j({"threads":"many"})j",
                                      R"j({"allowed":["int8","float8"]})j",
                                      R"j({"precisions":[["conv*","float8"]]})j",
                                      "[]",
                                      "7"};
  for (const std::string& lie : lies) {
    auto j = nlohmann::json::parse(text);
    const auto change = nlohmann::json::parse(lie);
    if (change.is_object()) j.update(change);
    const auto read = read_build(change.is_object() ? j.dump() : lie, "e");
    ASSERT_FALSE(read) << lie;
    EXPECT_EQ(read.error().kind, ErrorKind::bad_engine) << lie << ": " << read.error().message;
  }
}

TEST_F(Rebuild, FilesOfSeveralShapesComeBack) {
  BuildOptions b;
  b.effort = 0, b.threads = 1, b.timing_cache = "none";
  const Engine open = Engine::build(kModel, b);
  ASSERT_TRUE(open.open());
  const std::string input = open.inputs()[0].name;
  Shape shape = open.inputs()[0].shape;
  for (const std::int64_t n : {1, 3}) {
    shape[0] = n;
    (void)open.at({{input, shape}});
  }
  open.save(file_);
  const auto file = engine::EngineFile::open(file_);
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->builds().size(), 2U);
  EXPECT_EQ((*file)->model_bytes(), fs::file_size(kModel)) << "the model is there once";
  rewrite({engine::kFormat, 0, 0, 9});
  const auto all = load();
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2U);
  for (const auto& e : *all) {
    Shape s = e->plan().inputs[0].type.shape;
    EXPECT_EQ(e->plan_hash(), open.at({{input, s}}).plan_hash());
  }
}

TEST_F(Rebuild, WithoutItsModelAFileIsSmallerAndRefused) {
  save(kModel);
  const auto with = fs::file_size(file_);
  PipelineOptions o = options();
  o.keep_model = false;
  save(kModel, o);
  EXPECT_LE(fs::file_size(file_) + fs::file_size(kModel), with);
  EXPECT_LE(with, fs::file_size(file_) + fs::file_size(kModel) + 2048) << "the model, and some bytes for options";
  rewrite({engine::kFormat, 0, 0, 9});
  const auto refused = load();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("built without its model"), std::string::npos) << refused.error().message;
}

/// The engine file must hold the model that the engine was built from.
TEST_F(Rebuild, AModelThatWasWrittenToIsNotKept) {
  const std::string model = (folder_ / "m.onnx").string();
  fs::copy_file(kModel, model);
  const auto built = build_file(model, options());
  ASSERT_TRUE(built);
  ASSERT_TRUE(built->engine->save(file_));
  fs::remove(model);
  EXPECT_TRUE(built->engine->save(file_)) << "a deleted file is still open";

  fs::copy_file(kModel, model);
  const auto again = build_file(model, options());
  ASSERT_TRUE(again);
  std::ofstream(model, std::ios::binary | std::ios::app) << "x";
  const Status refused = again->engine->save(file_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::io);
  EXPECT_NE(refused.error().message.find("changed after the engine was built from it"), std::string::npos)
      << refused.error().message;
}

TEST_F(Rebuild, SignedFilesAreVerifiedBeforeAnythingElse) {
  save(kModel);
  LoadRequest request;
  request.public_key =
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAMLxBEOJHFYeR8pii+XU2Nge/uKepYTi4r6tEHN55XDE=\n-----END PUBLIC KEY-----\n";
  rewrite({engine::kFormat, 0, 0, 9});
  const auto refused = load(request);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("it is not signed"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(warned_.empty()) << "nothing was built";
}

/// The options of a caller, which the file keeps.
TEST(BuildOptions, DefaultEffortIsThatOfTheTable) {
  EXPECT_EQ(octavo::BuildOptions().effort, plan::kDefaultEffort);
}

}  // namespace
}  // namespace octavo::api
