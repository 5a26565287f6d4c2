// Engine::layers: the time that the planner counted with, where it comes from, and what other types of the layer were priced at.
#include <gtest/gtest.h>

#include "api/convert.h"
#include "plan/cost.h"

namespace octavo {
namespace {

/// Two convolutions that are one layer each, the second without a time.
region::Plan two_layers() {
  region::Plan plan;
  for (const char* node : {"conv1", "conv2"}) {
    region::Region r;
    r.name = node;
    r.onnx_nodes = {node, std::string(node) + "_relu"};
    r.stages.emplace_back();
    plan.regions.push_back(std::move(r));
  }
  plan.regions[0].seconds = 3e-6;
  region::Decision d;
  d.choice = "precision";
  d.where = "conv1";
  d.onnx_nodes = {"conv1"};
  d.candidates = {{"int8", 3e-6}, {"float32", 9e-6}, {"bfloat16", -1}};
  plan.decisions.push_back(d);
  d.choice = "concat";
  d.candidates = {{"in-place", 1e-6}, {"own-pass", 2e-6}};
  plan.decisions.push_back(std::move(d));
  return plan;
}

TEST(Layers, SayTheirTimeAndWhereItComesFrom) {
  region::Plan plan = two_layers();
  EXPECT_EQ(api::layers_of(plan)[0].seconds, 3e-6);
  EXPECT_EQ(api::layers_of(plan)[0].from, TimeFrom::estimate);
  EXPECT_EQ(api::layers_of(plan)[1].seconds, -1);
  EXPECT_EQ(api::layers_of(plan)[1].from, TimeFrom::nothing);
  plan.cost_source = plan::name_of(plan::CostSource::measured);
  EXPECT_EQ(api::layers_of(plan)[0].from, TimeFrom::measurement);
  plan.decided_for = "x [1,3]";  // it follows a measured plan, and was not measured itself
  EXPECT_EQ(api::layers_of(plan)[0].from, TimeFrom::estimate);
  plan.decided_for.clear();
  plan.regions[0].alternatives = {{plan.regions[0].tactic.name(), {}, -1, 3e-6}};
  EXPECT_EQ(api::layers_of(plan)[0].from, TimeFrom::estimate) << "nobody timed this one";
}

TEST(Layers, SayWhatOtherTypesWerePricedAt) {
  region::Plan plan = two_layers();
  const auto layers = api::layers_of(plan);
  ASSERT_EQ(layers[0].other_types.size(), 1U) << "neither the type that was taken, nor one that was not priced, nor another choice";
  const LayerInfo::OtherType& other = layers[0].other_types[0];
  EXPECT_EQ(other.type, "float32");
  EXPECT_EQ(other.node, "conv1");
  EXPECT_EQ(other.seconds, 9e-6);
  EXPECT_EQ(other.from, TimeFrom::estimate);
  EXPECT_TRUE(layers[1].other_types.empty());
  plan.decisions[0].chosen = 1;
  EXPECT_EQ(api::layers_of(plan)[0].other_types[0].type, "int8");
}

}  // namespace
}  // namespace octavo
