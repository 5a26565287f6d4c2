// The choices of the planner that a GPU takes or prices without being asked: a name that the planner does not know would be no choice at all, without an error.
#include <gtest/gtest.h>

#include "cuda/provider.h"
#include "plan/candidates/neighbours.h"
#include "plan/candidates/registry.h"
#include "plan/candidates/stages.h"

namespace octavo {
namespace {

/// A choice, or a kind of the choice "stages" or of "horizontal".
bool known(std::string_view name) {
  if (plan::find_choice(name) != nullptr || name == plan::kHorizontalLayers) return true;
  for (int kind = 1; kind <= static_cast<int>(plan::LinkKind::attention); ++kind) {
    if (plan::name_of(static_cast<plan::LinkKind>(kind)) == name) return true;
  }
  return false;
}

TEST(GpuChoices, ThePlannerKnowsEveryOne) {
  for (const auto& names : {cuda::usual_choices(), cuda::priced_choices()}) {
    EXPECT_FALSE(names.empty());
    for (const std::string& name : names) EXPECT_TRUE(known(name)) << name;
  }
  EXPECT_FALSE(known("horizontal-layer"));
}

TEST(GpuChoices, NoneIsTakenAndPriced) {
  const auto priced = cuda::priced_choices();
  for (const std::string& name : cuda::usual_choices()) EXPECT_FALSE(priced.contains(name)) << name;
}

}  // namespace
}  // namespace octavo
