// What Provider::compile leaves to Provider::finish stays apart from what engines hold.
#include "region/artifact.h"

#include <gtest/gtest.h>

#include "region/toy_plan.h"

namespace octavo::region {
namespace {

Artifact with_source(std::string text) {
  Artifact a;
  a.source.text = std::move(text);
  return a;
}

TEST(Artifact, ASourceIsNoCodeUntilItIsCompiled) {
  Plan plan = toy_plan();
  Region& r = plan.regions[0];
  keep_artifact(with_source("text"), r, plan);
  ASSERT_GE(r.code, 0);
  const auto buffer = [&]() -> const Buffer& { return plan.buffers[static_cast<std::size_t>(r.code)]; };
  EXPECT_EQ(buffer().kind, BufferKind::source);
  EXPECT_TRUE(verify(plan)) << "a plan in the making";
  const Status unfinished = check_compiled(plan);
  ASSERT_FALSE(unfinished);
  EXPECT_NE(unfinished.error().message.find(r.name), std::string::npos) << unfinished.error().message;
  EXPECT_FALSE(from_json(to_json(plan))) << "no file has sources";

  keep_code("machine code", r, plan);
  EXPECT_EQ(buffer().kind, BufferKind::constant);
  EXPECT_EQ(buffer().bytes, 12);
  EXPECT_TRUE(verify(plan));
  EXPECT_TRUE(check_compiled(plan));
  EXPECT_TRUE(from_json(to_json(plan)));
}

TEST(Artifact, AHashIsOfThePlanAndNotOfWhetherItIsFinished) {
  Plan source = toy_plan(), code = toy_plan();
  keep_artifact(with_source("same"), source.regions[0], source);
  Artifact made;
  made.code = "same";
  keep_artifact(std::move(made), code.regions[0], code);
  EXPECT_EQ(plan_hash(source), plan_hash(code));
}

TEST(Artifact, EqualConstantsAreKeptOnce) {
  Plan plan = toy_plan();
  ASSERT_GE(plan.regions.size(), 2U);
  const auto keep = [&](std::size_t region, float value) {
    Artifact a;
    a.constants.push_back(ir::Tensor::of<float>({2}, {1, value}));
    keep_artifact(std::move(a), plan.regions[region], plan);
    return plan.regions[region].packed.at(0);
  };
  const std::size_t before = plan.buffers.size();
  const BufferId first = keep(0, 2);
  EXPECT_EQ(keep(1, 2), first);
  EXPECT_EQ(plan.buffers.size(), before + 1);
  EXPECT_NE(keep(1, 3), first) << "other bytes";
  EXPECT_EQ(keep(1, 2), first);
}

TEST(Artifact, TensorsDoNotLieInSources) {
  Plan plan = toy_plan();
  Region& r = plan.regions[0];
  keep_artifact(with_source("text"), r, plan);
  r.packed = {r.code};
  EXPECT_FALSE(verify(plan));
}

}  // namespace
}  // namespace octavo::region
