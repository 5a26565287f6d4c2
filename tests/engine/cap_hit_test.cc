// Under the cap that OCTAVO_CPU names (without it: this processor's level), plans have tactics of exactly that level, and those give the
// bits of the portable kernels. scripts/under_cap.py runs this first, so that no run under a cap tests something lesser unnoticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "cpu/isa.h"
#include "cpu/provider.h"
#include "engine/engine.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo::engine {
namespace {

/// A 3x3 convolution that every level has a kernel for, and the rounding behind it.
constexpr const char* kModel = R"(graph "cap"
x = input : f32[1,64,14,14]
q = view x q=u8(0.03,128)
w = constant s8[64,64,3,3] q=s8(0.01,0) seed:1
c = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}
y = view c q=u8(0.05,120)
output y
)";

bool requires_level(const region::Tactic& tactic, cpu::Isa level) {
  return std::ranges::find(tactic.required, cpu::name_of(level)) != tactic.required.end();
}

region::Plan plan_of(const ir::Graph& graph) {
  auto planned = plan::make_plan(graph, cpu::providers(), {});
  EXPECT_TRUE(planned) << planned.error().message;
  return std::move(planned->plan);
}

TEST(CapHit, KernelsOfTheLevelRunAndGiveThePortableBits) {
  const auto cap = cpu::isa_cap();
  ASSERT_TRUE(cap) << cap.error().message;
  const cpu::Isa level = std::getenv("OCTAVO_CPU") == nullptr ? cpu::detected_isa() : *cap;
  if (level > cpu::detected_isa()) {
    GTEST_SKIP() << "this processor has " << cpu::name_of(cpu::detected_isa()) << ", " << cpu::name_of(level)
                 << " cannot be run on it";
  }
  const auto graph = ir::parse(kModel);
  ASSERT_TRUE(graph) << graph.error().message;
  region::Plan plan = plan_of(*graph);
  const auto of_level = [&](const region::Tactic& tactic) {
    return level == cpu::Isa::portable ? tactic.required.empty() : requires_level(tactic, level);
  };
  int hits = 0;
  for (region::Region& r : plan.regions) {
    for (const region::Provider* provider : cpu::providers()) {
      for (const region::Offer& offer : provider->offers(r, plan)) {
        if (!offer.refusal.empty()) continue;
        for (const std::string& name : offer.tactic.required) {
          const auto needed = cpu::find_isa(name);
          EXPECT_TRUE(!needed || *needed <= level) << offer.tactic.name() << " is offered above the cap";
        }
        if (!of_level(offer.tactic) || r.stages[0].anchor.none()) continue;
        if (!of_level(r.tactic)) r.tactic = offer.tactic;  // what the plan chose has its constants packed
        ++hits;
      }
    }
  }
  EXPECT_GT(hits, 0) << "no tactic of " << cpu::name_of(level) << " is offered for a convolution";
  const auto feeds = testing::seeded_feeds(*graph, 3);
  const auto got = testing::run_plan(plan, cpu::providers(), feeds);
  ASSERT_TRUE(got) << got.error().message;

  const char* set = std::getenv("OCTAVO_CPU");
  const std::string before = set == nullptr ? "" : set;
  ::setenv("OCTAVO_CPU", "portable", 1);
  const region::Plan portable = plan_of(*graph);
  const auto want = testing::run_plan(portable, cpu::providers(), feeds);
  set == nullptr ? ::unsetenv("OCTAVO_CPU") : ::setenv("OCTAVO_CPU", before.c_str(), 1);
  ASSERT_TRUE(want) << want.error().message;
  EXPECT_EQ(testing::first_difference(*want, *got), "");
}

}  // namespace
}  // namespace octavo::engine
