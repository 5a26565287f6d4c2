// Behind a float sum a code may be its neighbour where the value lies at a rounding tie, and nowhere else; 8 and 16 bits alike.
#include "api/ties.h"

#include <gtest/gtest.h>

#include "api/check.h"
#include "api/pipeline.h"
#include "ir/text.h"
#include "support/planted.h"

namespace octavo::api {
namespace {

/// y = q(x * w), one product an element: what is rounded is x itself.
std::string rounded(const std::string& quantizer, const std::string& more = "output y\n") {
  return "x = input : f32[4,1]\nw = constant f32[1,1] (1)\np = matmul x w from {\"product\"}\ny = view p q=" + quantizer +
         " from {\"q\"}\n" + more;
}

AtTies ties_of(const std::string& text, const std::vector<float>& x, const std::string& wanted = "y") {
  const auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  ir::ValueId v = ir::kNone;
  for (ir::ValueId id = 0; id < g->value_capacity(); ++id) v = g->value(id).name == wanted ? id : v;
  if (v == ir::kNone) v = g->outputs[0];
  const auto found = at_ties(*g, ir::find_grids(*g), {{g->inputs[0], ir::Tensor::of<float>({4, 1}, x)}}, v, kSumTolerance);
  EXPECT_TRUE(found) << found.error().message;
  return *found;
}

std::vector<double> spread(const AtTies& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; t.decided && i < t.between.least.size(); ++i)
    out.push_back(t.between.most.at(i) - t.between.least.at(i));
  return out;
}

TEST(Ties, EightBitsHaveTwoCodesWithinAThousandthOfAStepAndOneElsewhere) {
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)"), {2.5F, 2.4996F, 2.49F, 2.0F})), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)"), {2.5F, 2.4996F, 2.49F, 100000.0F})), (std::vector<double>{1, 1, 1, 0}))
      << "another element is so large that sums of its size differ by more";
}

TEST(Ties, SixteenBitsTooByTheMagnitudeOfTheTensor) {
  EXPECT_EQ(spread(ties_of(rounded("s16(1,0)"), {100.3F, 100.1F, 99.9F, 32000.0F})), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(spread(ties_of(rounded("s16(1,0)"), {100.3F, 100.499F, 99.9F, 200.0F})), (std::vector<double>{0, 1, 0, 0}));
}

TEST(Ties, MovesSelectionsAndDifferencesBehindTheRoundingAreFollowed) {
  const std::string more = "t = transpose y {perm=[1,0]}\nn = neg t\noutput n\n";
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)", more), {2.5F, 2.49F, 3.5F, 2.0F}, "none")), (std::vector<double>{1, 0, 1, 0}));
  const std::string both = "p2 = matmul p w\ny2 = view p2 q=u8(1,0)\nd = sub y y2\noutput d\n";
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)", both), {2.5F, 2.49F, 3.5F, 2.0F}, "none")), (std::vector<double>{2, 0, 2, 0}));
}

/// 0.5 lies at a tie of the first grid: its codes 0 and 1 are 0 and 2 codes of the second one.
TEST(Ties, ARoundingBehindARoundingIsFollowed) {
  const std::string more = "z = view y q=u8(0.5,0)\noutput z\n";
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)", more), {2.5F, 2.49F, 3.5F, 2.0F}, "z")), (std::vector<double>{1, 0, 1, 0}));
  const std::string coarse = "z = view y q=u8(2,0)\noutput z\n";  // 2 and 3 are both nearest to 2 or 4
  EXPECT_EQ(spread(ties_of(rounded("u8(1,0)", coarse), {2.5F, 2.49F, 4.5F, 4.0F}, "z")), (std::vector<double>{2, 0, 2, 0}));
}

TEST(Ties, WhatIsSummedAgainIsNotDecided) {
  const std::string more = "s = matmul y w\nz = view s q=u8(2,0)\noutput z\n";
  EXPECT_FALSE(ties_of(rounded("u8(1,0)", more), {1, 2, 3, 4}, "none").decided);
}

/// Adds one to the first code that the region of a float product stores.
testing::Planted with_one_more(const region::Provider& real) {
  return {real, [](const region::Region& r, std::unique_ptr<region::HostKernel> kernel) -> std::unique_ptr<region::HostKernel> {
            const ir::Op op = r.stages[0].anchor.op;  // matmul-as-gemm makes a linear layer of it
            if (op != ir::Op::matmul && op != ir::Op::gemm && op != ir::Op::conv) return kernel;
            return std::make_unique<testing::Then>(std::move(kernel),
                                                   [&victim = r.stages.back().stores[0]](const region::Memory& m) {
                                                     std::byte* at = m.at(victim);
                                                     *at = static_cast<std::byte>(static_cast<int>(*at) + 1);
                                                   });
          }};
}

/// The report about an engine whose product of floats stores one code too much first; `x`: what is rounded to it.
CheckReport one_more(float x) {
  const std::string text =
      "x = input : f32[4,1]\nw = constant f32[1,1] (1)\np = matmul x w from {\"product\"}\ny = quantize p q=u8(1,0) from "
      "{\"q\"}\noutput y\n";
  PipelineOptions o;
  o.plan.threads = 1;
  o.device = "reference";
  auto built = build_graph(*ir::parse(text), o);
  EXPECT_TRUE(built) << built.error().message;
  const std::string file = ::testing::TempDir() + "octavo_ties_engine";
  EXPECT_TRUE(built->engine->save(file));
  const testing::Planted spoiled = with_one_more(*providers("reference")->front());
  const auto engine = engine::Engine::load(file, {&spoiled});
  std::remove(file.c_str());
  EXPECT_TRUE(engine) << engine.error().message;
  auto report = check(*engine, built->graph, {ir::Tensor::of<float>({4, 1}, {x, 3, 4, 5})});
  EXPECT_TRUE(report) << report.error().message;
  return std::move(*report);
}

TEST(Ties, CheckExcusesACodeAtATieAndNoOther) {
  const CheckReport tie = one_more(2.4998F);  // rounded to 2
  EXPECT_TRUE(tie.ok()) << tie.first_divergence();
  std::int64_t allowed = 0;
  for (const RegionCheck& r : tie.regions) allowed += r.allowed;
  EXPECT_GT(allowed, 0);
  const CheckReport wrong = one_more(2.2F);
  EXPECT_FALSE(wrong.ok());
  EXPECT_NE(wrong.first_divergence().find("engine code 3 (3), reference code 2 (2)"), std::string::npos)
      << wrong.first_divergence();
}

}  // namespace
}  // namespace octavo::api
