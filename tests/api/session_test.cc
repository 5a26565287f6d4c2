// A model is parsed once, whatever is asked about it and however many engines are built from it.
#include "api/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "api/load.h"
#include "engine/part_plan.h"
#include "engine/set.h"
#include "octavo/octavo.h"
#include "onnx/edit/layers.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

const std::string kModel = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";
const std::string kFloat = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_fp32.onnx";

PipelineOptions options() {
  PipelineOptions o;
  o.plan.effort = 0;
  o.plan.threads = 1;
  return o;
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = fs::temp_directory_path() / ("octavo-session-" + std::to_string(::getpid()) + ".octavo"); }
  void TearDown() override { fs::remove(file_); }
  [[nodiscard]] std::uint64_t parses() const { return onnx::parses() - before_; }
  fs::path file_;
  const std::uint64_t before_ = onnx::parses();
};

TEST_F(SessionTest, EverythingIsAskedOfOneParse) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session) << session.error().message;
  const Session& s = **session;
  ASSERT_TRUE(s.inputs());
  EXPECT_EQ(s.inputs()->front().name, "image");
  EXPECT_FALSE(s.nodes().nodes.empty());
  EXPECT_TRUE(s.uses_of("image").maker_type == "input");
  EXPECT_FALSE(s.tensor_names().empty());
  EXPECT_TRUE(s.diagnose({}));
  const auto first = s.imported({}), again = s.imported({});
  ASSERT_TRUE(first && again);
  EXPECT_EQ(*first, *again) << "the graph for these shapes is kept";
  onnx::ImportOptions other;
  other.shapes = {{"image", {3, 1, 16, 16}}};
  const auto third = s.imported(other);
  ASSERT_TRUE(third);
  EXPECT_NE(*first, *third);
  onnx::LateValues none;
  const auto built = s.build(options(), none);
  ASSERT_TRUE(built) << built.error().message;
  ASSERT_TRUE(built->engine->save(file_.string()));
  EXPECT_EQ(parses(), 1U);
}

TEST_F(SessionTest, AnEngineOfThePublicInterfaceAndOneForManyShapes) {
  BuildOptions o;
  o.effort = 0;
  o.threads = 1;
  o.default_batch = 1;
  Engine::build(kModel, o).save(file_.string());
  EXPECT_EQ(parses(), 1U);
  o.default_batch = 0;
  const Engine open = Engine::build(kModel, o);
  ASSERT_TRUE(open.open());
  for (const std::int64_t batch : {1, 2, 3}) (void)open.at({{"image", {batch, 1, 16, 16}}});
  open.save(file_.string());
  EXPECT_EQ(parses(), 2U);
  const auto file = engine::EngineFile::open(file_.string());
  ASSERT_TRUE(file);
  const auto engines = rebuild(*file, {});
  ASSERT_TRUE(engines) << engines.error().message;
  EXPECT_EQ(engines->size(), 3U);
  EXPECT_EQ(parses(), 3U) << "three plans, one model";
}

TEST_F(SessionTest, PlansOfAFileAreReadWithoutItsKernels) {
  const auto built = build_file(kModel, options());
  ASSERT_TRUE(built) << built.error().message;
  ASSERT_TRUE(built->engine->save(file_.string()));
  const std::uint64_t loads = engine::loads();
  const auto file = engine::EngineFile::open(file_.string());
  ASSERT_TRUE(file);
  const auto parts = (*file)->parts();
  ASSERT_TRUE(parts);
  const auto plan = engine::plan_of(parts->front(), "e");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->inputs.front().name, "image");
  EXPECT_EQ(plan->inputs.front().type, built->engine->plan().inputs.front().type);
  EXPECT_EQ(engine::loads(), loads);
  ASSERT_TRUE(load_engines(file_.string()));
  EXPECT_EQ(engine::loads(), loads + 1);
}

/// What an editor gives without a file is what its file would give, and the model that it was opened from stays as it was.
TEST_F(SessionTest, AModelThatWasEditedInMemoryIsTheOneOfItsFile) {
  const auto session = Session::open(kFloat);
  ASSERT_TRUE(session);
  const auto before = onnx::model_bytes((*session)->parsed());
  ASSERT_TRUE(before);
  const auto editor = onnx::open_model((*session)->parsed());
  ASSERT_TRUE(editor) << editor.error().message;
  const auto layers = onnx::weighted_layers(**editor);
  ASSERT_FALSE(layers.empty());
  ir::Tensor weights = layers[0].weight_values.clone();
  for (float& w : weights.mutable_data<float>()) w *= 2;
  onnx::set_weights(**editor, layers[0], weights);
  ASSERT_TRUE(onnx::sort_nodes(**editor));
  const onnx::Parsed edited = onnx::parsed_of(std::move(**editor));
  const auto direct = onnx::import_model(edited);
  const auto bytes = onnx::model_bytes(edited);
  ASSERT_TRUE(direct && bytes);
  const auto through = onnx::import_bytes(*bytes);
  ASSERT_TRUE(through);
  EXPECT_EQ(direct->graph.order().size(), through->graph.order().size());
  for (const ir::NodeId id : direct->graph.order()) {
    if (direct->graph.node(id).op != ir::Op::constant) continue;
    EXPECT_TRUE(ir::same_bytes(direct->graph.node(id).payload, through->graph.node(id).payload)) << direct->graph.node(id).name;
  }
  EXPECT_NE(*bytes, *before);
  EXPECT_EQ(*onnx::model_bytes((*session)->parsed()), *before);
}

}  // namespace
}  // namespace octavo::api
