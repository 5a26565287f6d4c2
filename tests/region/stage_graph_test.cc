// The graph of a region's stages: edges with their halos, what leaves, what needs no memory, which graphs are refused, also as JSON.
#include "region/stage_graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "region/toy_plan.h"
#include "support/facts.h"

namespace octavo::region {
namespace {

/// The toy's convolution, which stores codes alone, and the pass that decodes them, as one region; the codes have no place.
Plan chain(bool forwards) {
  Plan p = toy_plan();
  Stage& first = p.regions[0].stages[0];
  first.stores.resize(1);
  first.program.outputs.resize(1);
  p.regions[0].stages.push_back(p.regions[1].stages[0]);
  p.regions[0].tactic.forwards_stages = forwards;
  p.regions.pop_back();
  p.buffers[4].arena_offset = 1 << 20;
  p.regions[0].graph_inputs = {0, ir::kNone, 1};
  p.regions[0].graph_outputs = {6};
  // The convolution's own float result is an output of the network still: the second stage stores it in its place.
  Stage& second = p.regions[0].stages[1];
  second.stores.push_back(channels_last(5, ir::DType::f32, {1, 8, 6, 6}));
  second.program.outputs.push_back(second.program.outputs[0]);
  p.regions[0].graph_outputs = {6, 5};
  return p;
}

/// A 3x3 convolution of stride 2 over the codes as a third stage; the codes are read by both.
Plan graph() {
  Plan p = chain(true);
  p.outputs.push_back({"c", {ir::DType::f32, {1, 8, 3, 3}}, std::nullopt, {}, 0, {}});
  p.buffers.push_back({BufferKind::output, 288, 0, 2, {}, "c"});
  p.buffers.push_back({BufferKind::constant, 576, 0, -1, {}, "w2"});
  Region& r = p.regions[0];
  r.packed.clear();
  Stage s;
  s.space = {1, 8, 3, 3};
  s.anchor.op = ir::Op::conv;
  s.anchor.integer = true;
  s.anchor.facts =
      testing::facts(s.anchor.op, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}, {"strides", std::vector<std::int64_t>{2, 2}}});
  s.anchor.inputs = {r.stages[0].stores[0]};
  s.anchor.weights = TensorRef{8, 0, ir::DType::s8, {8, 8, 3, 3}, {72, 9, 3, 1}, std::nullopt, "w2"};
  s.program.outputs = {{s.program.push(program::Op::i2f, s.program.push(program::Op::acc_i)), ir::DType::f32}};
  s.stores = {channels_last(7, ir::DType::f32, {1, 8, 3, 3})};
  r.stages.push_back(std::move(s));
  r.graph_outputs.push_back(7);
  return p;
}

TEST(StageGraph, EdgesSayWhoReadsWhatAndWhichRows) {
  const Plan p = graph();
  const Region& r = p.regions[0];
  EXPECT_TRUE(verify(p)) << verify(p).error().message;
  const std::vector<StageEdge> edges{{{0, 0}, 1, 0, {1, 0, 1}}, {{0, 0}, 2, 0, {2, 1, 3}}};
  EXPECT_EQ(edges_of(r), edges);
  EXPECT_FALSE(leaves(r, {0, 0}));
  EXPECT_TRUE(leaves(r, {1, 1}));
  EXPECT_EQ(results_of(r).size(), 3U);
  EXPECT_EQ(reads_of(r).size(), r.graph_inputs.size());
  EXPECT_EQ(kept_from_memory(r), std::set<BufferId>{4});
  Region beside = r;
  beside.independent = true;
  EXPECT_TRUE(edges_of(beside).empty());
  EXPECT_EQ(results_of(beside).size(), 4U);
}

TEST(StageGraph, OnlyWhatRowTilesForwardNeedsNoMemory) {
  const Plan p = chain(true);
  EXPECT_TRUE(forwarded(p.regions[0], 1, p.regions[0].stages[1].operands[0].ref));
  EXPECT_TRUE(read_by_epilogue(p.regions[0], 1));
  EXPECT_FALSE(read_by_epilogue(p.regions[0], 0));
  EXPECT_EQ(kept_from_memory(p.regions[0]), std::set<BufferId>{4});
  EXPECT_TRUE(verify(p)) << verify(p).error().message;
  EXPECT_FALSE(verify(chain(false))) << "other tactics write it";
  Plan twice = p;  // by one stage twice
  twice.regions[0].stages[1].operands.push_back(twice.regions[0].stages[1].operands[0]);
  ++twice.regions[0].stages[1].program.operand_count;
  EXPECT_TRUE(verify(twice)) << verify(twice).error().message;
  Plan later = p;  // another region reads it
  later.regions.push_back(toy_plan().regions[1]);
  EXPECT_FALSE(verify(later));
}

std::string refused(const std::function<void(Plan&)>& change) {
  Plan p = graph();
  change(p);
  const auto status = verify(p);
  return status ? "accepted" : status.error().message;
}

TEST(StageGraph, BadGraphsAreRefused) {
  const auto says = [](const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  EXPECT_EQ(refused([](Plan&) {}), "accepted");
  says(refused([](Plan& p) { p.regions[0].stages[0].operands[1].ref = p.regions[0].stages[0].stores[0]; }), "stage 0");
  says(refused([](Plan& p) { std::swap(p.regions[0].stages[0], p.regions[0].stages[1]); }),
       "stage 0 reads what stage 1 stores: stages read results of those before them");
  says(refused([](Plan& p) {
         auto& x = p.regions[0].stages[2].anchor.inputs[0];
         x.dims[1] = 4;  // half of the channels
         p.regions[0].stages[2].anchor.weights->dims[1] = 4;
       }),
       "stage 2 reads buffer 4, which stage 0 stores, at another place than it is stored");
  says(refused([](Plan& p) { p.regions[0].stages[1].operands[0].ref.dtype = ir::DType::s8; }),
       "stage 1 reads as s8 what stage 0 stores as u8");
  says(refused([](Plan& p) {
         Stage& s = p.regions[0].stages[1];
         s.stores.push_back(p.regions[0].stages[0].stores[0]);
         s.program.outputs.push_back({s.program.push(program::Op::f2i, s.program.outputs[0].value), ir::DType::u8});
       }),
       "store the same elements of buffer 4");
  says(refused([](Plan& p) {
         p.buffers[4].kind = BufferKind::output;
         p.buffers[4].binding = 3;
         p.outputs.push_back({"codes", {ir::DType::u8, {1, 8, 6, 6}}, std::nullopt, {}, 0, {}});
       }),
       "it is not an arena buffer");
  says(refused([](Plan& p) { p.regions[0].stages.resize(65, p.regions[0].stages[2]); }), "65 stages, at most 64");
}

TEST(StageGraph, FilesStateTheEdges) {
  const std::string text = to_json(graph());
  const auto json = nlohmann::json::parse(text);
  const auto& reads = json["regions"][0]["stages"][2]["reads"];
  EXPECT_EQ(reads.dump(), R"([{"halo":{"before":1,"rows":3,"step":2},"input":0,"stage":0,"store":0}])");
  const auto back = from_json(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(edges_of(back->regions[0]), edges_of(graph().regions[0]));
  const auto forged = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json j = json;
    change(j["regions"][0]["stages"][2]);
    const auto read = from_json(j.dump());
    EXPECT_FALSE(read);
    return read ? "accepted" : read.error().message;
  };
  const char* const differs = "what its stages say they read of each other (\"reads\") is not what their tensors say";
  EXPECT_NE(forged([](auto& s) { s["reads"][0]["stage"] = 1; }).find(differs), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["reads"][0]["halo"]["rows"] = 1; }).find(differs), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["reads"][0].erase("halo"); }).find(differs), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s.erase("reads"); }).find(differs), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["anchor"]["attrs"]["strides"] = {1, 1}; }).find(differs), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["reads"][0]["stage"] = -1; }).find("stage"), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["reads"] = "all"; }).find("reads"), std::string::npos);
  EXPECT_NE(forged([](auto& s) { s["anchor"]["attrs"]["strides"] = {9223372036854775807, 1}; }).find(differs), std::string::npos);
}

}  // namespace
}  // namespace octavo::region
