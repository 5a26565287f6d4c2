// What families offered is remembered while a network is planned, by content, and no longer.
#include "cuda/offer_memo.h"

#include <gtest/gtest.h>

#include <vector>

#include "region/toy_plan.h"

namespace octavo::cuda {
namespace {

using region::Offer;

/// Asks for region 0 of a plan; `made`: how often the memo had to ask further.
std::size_t ask(OfferMemo& memo, const region::Plan& plan, int& made) {
  return memo
      .of(plan.regions[0], plan,
          [&] {
            ++made;
            return std::vector<Offer>(static_cast<std::size_t>(made));
          })
      .size();
}

TEST(OfferMemo, EqualContentIsAskedForOnce) {
  OfferMemo memo;
  int made = 0;
  const region::Plan plan = region::toy_plan();
  region::Plan renamed = plan, other = plan;
  renamed.regions[0].name = "named otherwise";
  other.regions[0].stages[0].open = 1;
  EXPECT_EQ(ask(memo, plan, made), 1U);
  EXPECT_EQ(ask(memo, renamed, made), 1U);
  EXPECT_EQ(ask(memo, other, made), 2U);
  EXPECT_EQ(ask(memo, plan, made), 1U);
  EXPECT_EQ(made, 2);
  memo.clear();
  EXPECT_EQ(ask(memo, plan, made), 3U);
}

TEST(OfferMemo, KeepsABoundedNumber) {
  OfferMemo memo;
  int made = 0;
  region::Plan plan = region::toy_plan();
  for (std::size_t i = 0; i <= OfferMemo::kMost; ++i) {
    plan.threads = static_cast<int>(i) + 1;
    (void)ask(memo, plan, made);
  }
  const int before = made;
  plan.threads = 1;  // the first: it went with the others when there was no room
  (void)ask(memo, plan, made);
  EXPECT_EQ(made, before + 1);
  plan.threads = static_cast<int>(OfferMemo::kMost) + 1;
  (void)ask(memo, plan, made);
  EXPECT_EQ(made, before + 1) << "the last one is there";
}

}  // namespace
}  // namespace octavo::cuda
