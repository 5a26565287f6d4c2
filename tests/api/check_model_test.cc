// `check` against the model as imported (octavo check --from-model): the plan's graph is one that a wrong rule would have made of the model, which differs from it in a
// constant. The plan is computed as it stands, so only the comparison with the model can find it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/check.h"
#include "api/pipeline.h"
#include "ir/text.h"

namespace octavo::api {
namespace {

/// Two layers; `between`: the name of what is between them. What the model and the plan's graph call differently is judged with what reads it.
std::string layers(std::string_view first, std::string_view weight, std::string_view between) {
  return fmt::format(R"(x = input : f32[3,4]
q = {0} from {{"q"}}
w = constant s8[4,4] q=s8(0.02,0) ({1},-7,90,33,12,64,-28,51,-90,17,-44,8,25,-61,70,-13)
a = matmul q w from {{"first"}}
{2} = view a q=u8(0.02,128) from {{"between"}}
v = constant s8[4,4] q=s8(0.02,0) (31,-52,9,77,-18,40,-66,23,58,-35,14,-80,6,49,-27,63)
b = matmul {2} v from {{"second"}}
y = view b q=u8(0.03,128) from {{"last"}}
output y as "y"
)",
                     first, weight, between);
}

/// The plan of `rewritten`, judged by itself, and against `model`.
struct Judged {
  CheckReport plain, from_model;
};
Judged judged(const std::string& rewritten, const std::string& model) {
  PipelineOptions o;
  o.plan.threads = 1, o.plan.effort = 0;
  Judged out;
  auto graph = ir::parse(rewritten), imported = ir::parse(model);
  EXPECT_TRUE(graph && imported) << (graph ? imported.error().message : graph.error().message);
  if (!graph || !imported) return out;
  const auto built = build_graph(std::move(*graph), o);
  EXPECT_TRUE(built) << built.error().message;
  if (!built) return out;
  CheckOptions options;
  options.threads = 1;
  std::vector<float> x;
  for (int i = 0; i < 12; ++i) x.push_back(static_cast<float>(i * 5 % 12) / 6 - 0.9F);
  for (CheckReport* report : {&out.plain, &out.from_model}) {
    auto made = check(built->engine, built->graph, {ir::Tensor::of<float>({3, 4}, x)}, options);
    EXPECT_TRUE(made) << made.error().message;
    if (made) *report = std::move(*made);
    options.model = &*imported;
  }
  EXPECT_TRUE(out.plain.ok() && out.plain.complete()) << out.plain.first_divergence();
  return out;
}

const std::string kCodes = "view x q=u8(0.01,128)";  // what follows is summed in integers
const std::string kFloats = "add x x";               // and here in floats

TEST(CheckFromModel, TheModelItselfIsEqual) {
  for (const std::string& first : {kCodes, kFloats}) {
    for (const char* between : {"m", "of_the_model"}) {
      const Judged j = judged(layers(first, "40", "m"), layers(first, "40", between));
      EXPECT_TRUE(j.from_model.ok() && j.from_model.complete()) << j.from_model.first_divergence();
    }
  }
}

TEST(CheckFromModel, AnotherConstantIsFoundAndItsRegionNamed) {
  for (const std::string& first : {kCodes, kFloats}) {
    const Judged j = judged(layers(first, "40", "m"), layers(first, "44", "m"));
    EXPECT_FALSE(j.from_model.ok());
    EXPECT_NE(j.from_model.first_divergence().find("\"first"), std::string::npos) << j.from_model.first_divergence();
  }
}

/// Codes that are summed in integers have no ties, whatever lies between the tensors that the model names: one code that differs by one is a difference.
TEST(CheckFromModel, IntegersAreHeldToTheBitAcrossRegions) {
  const Judged j = judged(layers(kCodes, "40", "m"), layers(kCodes, "41", "of_the_model"));
  EXPECT_FALSE(j.from_model.ok());
  EXPECT_NE(j.from_model.first_divergence().find("\"second"), std::string::npos) << j.from_model.first_divergence();
  std::int64_t off_by_one = 0, different = 0;
  for (const RegionCheck& r : j.from_model.regions) off_by_one += r.off_by_one, different += r.different;
  EXPECT_EQ(off_by_one, different) << "the test wants a difference that a tolerance of one code would accept";
}

/// Codes that a float sum was rounded to, summed again: nobody can tell which results lie at ties, so nothing may say that all was compared.
TEST(CheckFromModel, WhatTiesDoNotDecideIsNotFullyJudged) {
  const Judged j = judged(layers(kFloats, "40", "m"), layers(kFloats, "42", "of_the_model"));
  EXPECT_TRUE(j.from_model.ok()) << j.from_model.first_divergence();
  EXPECT_FALSE(j.from_model.complete());
  std::string why;
  for (const RegionCheck& r : j.from_model.regions) why += r.skipped;
  EXPECT_NE(why.find("codes of \"y\" that differ by one were accepted"), std::string::npos) << why;
}

}  // namespace
}  // namespace octavo::api
