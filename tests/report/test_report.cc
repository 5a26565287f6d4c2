// Counts, text, JSON and selection on a plan made by hand: a convolution in two stages with pooling, and a portable transposed one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/causes/ir.h"
#include "base/causes/kernels.h"
#include "base/causes/plan_layout.h"
#include "base/causes/plan_regions.h"
#include "base/causes/plan_search.h"
#include "report/costs.h"
#include "report/decisions.h"
#include "report/explain.h"
#include "report/schema.h"

namespace octavo::report {
namespace {

region::TensorRef ref(region::BufferId buffer, ir::DType type, ir::Shape dims, std::string value) {
  region::TensorRef r;
  r.buffer = buffer;
  r.dtype = type;
  r.strides = ir::dense_strides(dims);
  r.dims = std::move(dims);
  r.value = std::move(value);
  return r;
}

/// Of every tactic: what "vbmi" means.
std::vector<region::ParameterRow> meanings(const region::Tactic&) {
  return {{"vbmi", "1", "of byte permutes"}};
}

region::Plan plan() {
  region::Plan p;
  p.model_name = "small.onnx";
  p.devices[0].arena_bytes = 1536;
  region::Region conv;
  conv.name = "conv1 + relu1 + pool1";
  conv.onnx_nodes = {"conv1", "relu1", "pool1"};
  conv.precision = region::Work::int8;
  conv.tactic = *region::parse_tactic("cpu.conv.u8s8.avx512vnni.jit");
  conv.reasons = {because<cause::integer_anchor>("u8(0.5,3)", "s8", "per tensor"),
                  because<cause::stages_joined>("conv-pool", "pool1")};
  conv.alternatives = {{"cpu.conv.u8s8.amx", {because<cause::tactic_refused>(), because<cause::capability_missing>("amx", "avx2")}},
                       {"cpu.conv.u8s8.avx2", {because<cause::tactic_possible>()}, 0.00025}};
  region::Stage first;
  first.anchor.op = ir::Op::conv;
  first.anchor.facts = ir::default_facts(ir::Op::conv);
  first.anchor.integer = true;
  first.anchor.inputs = {ref(0, ir::DType::u8, {1, 4, 8, 8}, "image")};
  first.anchor.inputs[0].quantizer = ir::per_tensor(ir::DType::u8, 0.5F, 3);
  first.anchor.weights = ref(1, ir::DType::s8, {16, 4, 3, 3}, "w");
  first.space = {1, 16, 8, 8};
  region::Operand bias{ref(2, ir::DType::f32, {1, 16, 8, 8}, "b"), {}};
  bias.ref.strides = {0, 1, 0, 0};
  first.operands = {bias};
  first.stores = {ref(3, ir::DType::u8, {1, 16, 8, 8}, "relu1")};
  region::Stage pool;
  pool.anchor.op = ir::Op::max_pool;
  pool.anchor.facts = ir::Window{.kernel = {2, 2}, .strides = {2, 2}, .dilations = {1, 1}, .pads = {0, 0, 0, 0}};
  pool.anchor.inputs = {first.stores[0]};
  pool.space = {1, 16, 4, 4};
  pool.stores = {ref(4, ir::DType::u8, {1, 16, 4, 4}, "pool1")};
  conv.stages = {first, pool};
  region::Region up;
  up.name = "up";
  up.onnx_nodes = {"up"};
  up.precision = ir::DType::f32;
  up.tactic = *region::parse_tactic("cpu.conv_transpose.portable");
  up.tactic.vector = false;
  up.reasons = {because<cause::input_not_quantized>("pool1")};
  region::Stage stage;
  stage.anchor.op = ir::Op::conv_transpose;
  stage.anchor.facts = ir::default_facts(ir::Op::conv_transpose);
  stage.anchor.inputs = {ref(4, ir::DType::f32, {1, 16, 4, 4}, "pool1")};
  stage.anchor.weights = ref(5, ir::DType::f32, {16, 2, 2, 2}, "wu");
  stage.space = {1, 2, 8, 8};
  stage.stores = {ref(6, ir::DType::f32, {1, 2, 8, 8}, "up")};
  up.stages = {stage};
  conv.seconds = 0.0001;
  conv.key = "conv u8[1,4,8,8]";
  p.regions = {conv, up};
  p.cost_source = "measured";
  for (int i = 0; i < 8; ++i) {
    region::Buffer b;
    b.kind = i == 1 || i == 2 || i == 5 ? region::BufferKind::constant : region::BufferKind::arena;
    b.bytes = i == 4 ? 1000 : 1;
    b.arena_offset = i * 2048;
    b.name = "buffer " + std::to_string(i);
    p.buffers.push_back(b);
  }
  region::Decision d;
  d.choice = "fuse-conv-pool";
  d.where = "relu1";
  d.onnx_nodes = {"relu1"};
  d.reasons = {because<cause::not_cheaper>(2)};
  d.candidates = {{"row-tiles", 0.0001}, {"separate", 0.00012}};
  p.decisions = {d};
  return p;
}

TEST(Explain, SaysWhatWasWeighed) {
  const auto p = plan();
  EXPECT_EQ(decisions_about(p.regions[0], p),
            (std::vector<std::string>{"fuse-conv-pool at relu1: one region, in row tiles (not more than 2 % cheaper than the "
                                      "default); one region, in row tiles: measured 100 us; two regions: measured 120 us"}));
  EXPECT_TRUE(decisions_about(p.regions[1], p).empty());
  const std::string text = details(p, {0}, meanings);
  EXPECT_NE(text.find("  time          100 us, measured\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  key           conv u8[1,4,8,8]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  weighed       fuse-conv-pool at relu1"), std::string::npos) << text;
}

TEST(Explain, ExtrasNameCauseAndTheWayOut) {
  auto p = plan();
  EXPECT_NE(extras(p).find("float 1: up, measured not priced\n  because   the data input \"pool1\" is not quantized to 8 bits"),
            std::string::npos)
      << extras(p);
  region::Region copy;
  copy.name = "copy t";
  copy.precision = region::Work::move;
  copy.reasons = {because<cause::store_needs_channels_last>(64)};
  copy.onnx_nodes = {"transpose3"};
  copy.seconds = 5e-6;
  copy.stages.resize(1);
  p.regions.push_back(copy);
  const std::string text = extras(p);
  EXPECT_NE(text.find("copy 2: copy t, measured 5 us\n"), std::string::npos) << text;
  EXPECT_NE(text.find("caused by transpose3\n  change it a reader or a network output needs another order"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2 in all, measured 5 us together"), std::string::npos) << text;
}

TEST(Explain, TensorsSayWhereTheyLie) {
  const auto p = plan();
  const auto text = tensor(p, "pool1");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_NE(text->find("made by region 0 (conv1 + relu1 + pool1) as u8, in working memory at byte 8192, a part of the 1000 bytes "
                       "of \"buffer 4\" from byte 0 on, NCHW, dense"),
            std::string::npos)
      << "1000 bytes are not a whole number of channels of 16 bytes: " << *text;
  EXPECT_NE(text->find("read by region 1 (up) as f32"), std::string::npos) << *text;
  const auto none = tensor(p, "poo");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("for example: pool1"), std::string::npos) << none.error().message;
}

TEST(Explain, PartsOfATensorSayWhichChannels) {
  auto p = plan();
  auto t = ref(4, ir::DType::u8, {1, 16, 4, 4}, "part");
  p.buffers[4].bytes = 64 * 16;
  t.offset = 32 * 16;
  EXPECT_EQ(place_of(t, p), "working memory at byte 8704, channels 32 to 47 of 64 of \"buffer 4\", NCHW, dense");
  t.offset += 1;  // between two channels
  EXPECT_EQ(place_of(t, p), "working memory at byte 8705, a part of the 1024 bytes of \"buffer 4\" from byte 513 on, NCHW, dense");
  t.strides = {1024, 1, 4 * 64, 64};
  t.offset = 48;
  EXPECT_EQ(place_of(t, p), "working memory at byte 8240, channels 48 to 63 of 64 of \"buffer 4\", NHWC");
  p.buffers[4].bytes = 16 * 16;
  t = ref(4, ir::DType::u8, {1, 16, 4, 4}, "whole");
  EXPECT_EQ(place_of(t, p), "working memory at byte 8192, NCHW, dense");
}

TEST(Costs, CountsMacsAndBytes) {
  const auto p = plan();
  const Costs conv = costs_of(p.regions[0], p);
  EXPECT_EQ(conv.macs, 16 * 8 * 8 * 4 * 9);
  EXPECT_TRUE(conv.integer);
  EXPECT_EQ(conv.bytes, 4 * 64 + 16 * 4 * 9 + 16 * 4 + 16 * 16)
      << "what passes between the stages is not counted, nor is the bias twice";
  const Costs up = costs_of(p.regions[1], p);
  EXPECT_EQ(up.macs, 16 * 4 * 4 * 2 * 4) << "each input element meets O * kh * kw weights";
  EXPECT_FALSE(up.integer);
  EXPECT_EQ(up.bytes, 4 * (256 + 128 + 128));
}

TEST(Costs, WeightsThatAKernelKeepsAsCodesCountAsThese) {
  auto p = plan();
  region::Region& r = p.regions[1];
  const std::int64_t floats = costs_of(r, p).bytes;
  r.stages[0].anchor.weight_codes = region::WeightCodes{4, 2, true};
  EXPECT_EQ(costs_of(r, p).bytes, floats) << "nothing is packed";
  for (const std::int64_t bytes : {40, 24}) {
    r.packed.push_back(static_cast<region::BufferId>(p.buffers.size()));
    p.buffers.push_back({.kind = region::BufferKind::constant, .bytes = bytes});
  }
  EXPECT_EQ(costs_of(r, p).bytes, floats - 4 * 128 + 64);
  p.buffers.back().bytes = 4096;
  EXPECT_EQ(costs_of(r, p).bytes, floats) << "another kernel packed floats";
}

TEST(Costs, UpsampledOperandCountsItsOwnElements) {
  auto p = plan();
  auto& operand = p.regions[1].stages[0].operands.emplace_back();
  operand.ref = ref(7, ir::DType::u8, {1, 2, 8, 8}, "small");
  operand.div = {1, 1, 2, 2};
  EXPECT_EQ(costs_of(p.regions[1], p).bytes, 4 * (256 + 128 + 128) + 2 * 4 * 4);
}

TEST(Costs, VectorIsWhatTheTacticSays) {
  auto p = plan();
  p.regions[1].tactic.vector = false;
  const Totals portable = totals_of(p);
  EXPECT_GT(portable.int8_macs_vector, 0);
  EXPECT_GT(portable.float_macs, 0);
  EXPECT_EQ(portable.float_macs_vector, 0);
  p.regions[1].tactic.vector = true;
  EXPECT_EQ(totals_of(p).float_macs_vector, portable.float_macs);
}

TEST(Table, OneLineARegion) {
  EXPECT_EQ(
      table(plan()),
      "   #  precision  tactic                        ONNX nodes             reason\n"
      "   0  int8       cpu.conv.u8s8.avx512vnni.jit  conv1 + relu1 + pool1  int8: input u8(0.5,3), weights s8 per tensor; "
      "conv-pool: "
      "one region computes this operator and \"pool1\", which reads each tile of rows while it is in cache\n"
      "   1  float32    cpu.conv_transpose.portable   up                     the data input \"pool1\" is not quantized to 8 bits\n"
      "2 regions: 1 int8, 1 float, 0 other; planned for 1 thread; 1.5 kB of working memory\n"
      "in vector kernels: 100.0 % of 36.9 k int8 MAC, 0.0 % of 2.0 k float MAC, 36.0 % of 3.2 kB moved\n");
}

TEST(Details, ShowTensorsAndAlternatives) {
  region::Plan p = plan();
  p.regions[0].tactic = *region::parse_tactic("cpu.conv.u8s8.avx512vnni.jit{other=2,vbmi=1}");
  const auto text = details(p, {0}, meanings);
  EXPECT_NE(text.find("  parameter     other=2\n  parameter     vbmi=1: of byte permutes\n"), std::string::npos) << text;
  EXPECT_NE(text.find("region 0: conv1 + relu1 + pool1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  reads         \"image\" u8[1,4,8,8] through u8(0.5,3), in working memory at byte 0"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  alternative   cpu.conv.u8s8.amx: refused: needs amx, this processor has avx2\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  alternative   cpu.conv.u8s8.avx2: possible, measured 250 us\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  anchor        stage 1: max_pool over [1,16,4,4]\n"), std::string::npos) << text;
}

TEST(Json, HasTheSameFacts) {
  const auto j = nlohmann::json::parse(to_json(plan(), "abc", {0, 1}));
  EXPECT_EQ(j["plan_hash"], "abc");
  EXPECT_EQ(j["totals"]["int8_macs_vector"], 16 * 8 * 8 * 4 * 9);
  EXPECT_EQ(j["regions"][0]["onnx_nodes"], nlohmann::json({"conv1", "pool1", "relu1"}));
  EXPECT_EQ(j["regions"][0]["stages"][0]["inputs"][0]["scale"][0], 0.5);
  EXPECT_EQ(j["regions"][0]["alternatives"][1]["seconds"], 0.00025);
  EXPECT_FALSE(j["regions"][0]["alternatives"][0].contains("seconds"));
  EXPECT_EQ(j["regions"][1]["vector"], false);
  EXPECT_EQ(j["schema"], kSchema);
  const nlohmann::json why = {{"cause", "input_not_quantized"}, {"tensor", "pool1"}};
  EXPECT_EQ(j["regions"][1]["reasons"], nlohmann::json::array({why}));
  EXPECT_EQ(j["regions"][1]["reason"], "the data input \"pool1\" is not quantized to 8 bits");
  EXPECT_EQ(j["decisions"][0]["chosen"], "row-tiles");
  EXPECT_EQ(j["decisions"][0]["candidates"][1]["description"], "two regions");
}

TEST(Select, ByRegionTensorAndNode) {
  using Chosen = std::vector<std::size_t>;
  const auto p = plan();
  EXPECT_EQ(*select(p, {}), (Chosen{0, 1}));
  EXPECT_EQ(*select(p, {.region = "up"}), Chosen{1});
  EXPECT_EQ(*select(p, {.region = "0"}), Chosen{0});
  EXPECT_EQ(*select(p, {.tensor = "pool1"}), (Chosen{0, 1}));
  EXPECT_EQ(*select(p, {.node = "relu1"}), Chosen{0});
  const auto none = select(p, {.node = "relu2"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::usage);
  EXPECT_EQ(none.error().message,
            "the plan of \"small.onnx\" has no ONNX node \"relu2\"\n  nearest: \"relu1\", \"up\", \"conv1\"\n  list all: octavo "
            "explain MODEL");
  EXPECT_EQ(select(p, {.tensor = "pool1", .node = "nobody"}).error().kind, ErrorKind::usage);
}

}  // namespace
}  // namespace octavo::report
