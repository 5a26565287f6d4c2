// Plans that run image by image: the same bits as the whole batch, in any number of threads, saved and loaded.
#include <gtest/gtest.h>

#include <filesystem>

#include "api/check.h"
#include "cpu/provider.h"
#include "engine/engine.h"
#include "plan/search/by_image.h"
#include "reference/evaluate.h"
#include "region/key.h"
#include "support/feeds.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

using testing::has_float_sum;

/// Prices by which whole batches are dear.
class DearBatches final : public plan::Costs {
 public:
  explicit DearBatches(bool dear) : dear_(dear) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region& r, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    const bool batch = !r.stages[0].space.empty() && r.stages[0].space[0] > 1;
    for (const region::Offer& o : offers)
      out.push_back({o.refusal.empty() ? (batch == dear_ ? 1e-3 : 1e-5) : -1, plan::TimeSource::measured});
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  bool dear_;
};

std::string run(engine::Context& context, const std::vector<ir::Tensor>& feeds, const std::vector<ir::Tensor>& want) {
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<ir::Tensor> got;
  for (const ir::Tensor& t : feeds) in.push_back(t.bytes().data());
  for (const auto& b : context.engine().plan().outputs) got.emplace_back(b.type);
  for (ir::Tensor& t : got) out.push_back(t.mutable_bytes().data());
  const auto status = context.run(in, out);
  return status ? testing::first_difference(want, got) : status.error().message;
}

TEST(Images, SameBitsAsTheWholeBatch) {
  int divided = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const ir::Graph g = testing::random_network(seed);
    const std::int64_t images = g.type(g.inputs[0]).shape[0];
    if (images < 2) continue;
    const auto one = plan::one_image(g);
    if (!one) {
      ++refused;
      continue;
    }
    auto planned = plan::make_plan(*one, cpu::providers(), {});
    ASSERT_TRUE(planned) << "seed " << seed << ": " << planned.error().message;
    plan::repeat(planned->plan, images, 1 + static_cast<int>(seed % 3));
    ASSERT_TRUE(region::verify(planned->plan)) << "seed " << seed << ": " << region::verify(planned->plan).error().message;
    ++divided;
    if (has_float_sum(planned->plan)) continue;
    const auto feeds = testing::seeded_feeds(g, seed);
    const auto want = reference::evaluate(g, feeds);
    ASSERT_TRUE(want);
    const auto made = engine::Engine::create(planned->plan, cpu::providers());
    ASSERT_TRUE(made) << made.error().message;
    for (const int threads : {0, 1, 2, 5}) {
      auto context = engine::Context::create(*made, threads);
      ASSERT_TRUE(context);
      for (int again = 0; again < 2; ++again)
        ASSERT_EQ(run(**context, feeds, *want), "") << "seed " << seed << ", " << threads << " threads";
    }
  }
  std::printf("%d networks divided, %d refused\n", divided, refused);
  EXPECT_GT(divided, 40);
}

TEST(Images, PricesDecide) {
  int chosen = 0, kept = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const ir::Graph g = testing::random_network(seed);
    if (!plan::one_image(g)) continue;
    for (const bool dear : {true, false}) {
      DearBatches costs(dear);
      plan::PlanOptions options;
      options.costs = &costs;
      options.effort = 2;
      options.threads = 2;
      const auto planned = plan::make_plan(g, cpu::providers(), options);
      ASSERT_TRUE(planned) << "seed " << seed << ": " << planned.error().message;
      const auto& d = planned->plan.decisions.back();
      ASSERT_EQ(d.choice, "by-image") << "seed " << seed;
      const bool by_image = planned->plan.images > 1;
      EXPECT_EQ(d.candidates[d.chosen].name, by_image ? "image-by-image" : "whole-batch");
      (by_image ? chosen : kept)++;
      EXPECT_LE(by_image && !dear, d.candidates[1].seconds < d.candidates[0].seconds) << "seed " << seed;
      options.disabled = {"by-image"};
      DearBatches again(dear);
      options.costs = &again;
      EXPECT_EQ(plan::make_plan(g, cpu::providers(), options)->plan.images, 1);
    }
  }
  EXPECT_GT(chosen, 5);
  EXPECT_GT(kept, 5);
}

TEST(Images, SavedLoadedCheckedAndDamaged) {
  std::uint64_t seed = 0;
  ir::Graph g;
  region::Plan plan;
  ir::Graph graph;
  do {
    g = testing::random_network(++seed);
    auto one = plan::one_image(g);
    if (!one) continue;
    auto planned = plan::make_plan(*one, cpu::providers(), {});
    ASSERT_TRUE(planned);
    plan = planned->plan;
    graph = planned->graph;
  } while (plan.regions.size() < 3 || has_float_sum(plan));
  plan::repeat(plan, 2, 2);
  const auto made = engine::Engine::create(plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  const auto feeds = testing::seeded_feeds(g, seed);
  const auto want = reference::evaluate(g, feeds);
  ASSERT_TRUE(want);
  const std::string path = std::filesystem::temp_directory_path() / "octavo_images_test.octavo";
  ASSERT_TRUE((*made)->save(path));
  const auto loaded = engine::Engine::load(path, cpu::providers());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->plan_hash(), (*made)->plan_hash());
  EXPECT_EQ((*loaded)->plan().images, 2);
  auto context = engine::Context::create(*loaded);
  ASSERT_TRUE(context);
  EXPECT_EQ((*context)->threads(), 2);
  EXPECT_EQ(run(**context, feeds, *want), "");
  std::filesystem::remove(path);

  const auto report = api::check(*made, graph, feeds, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok());
  std::int64_t elements = 0;
  for (const auto& r : report->regions) elements += r.elements;
  EXPECT_GT(elements, 0);

  for (const auto& [images, lanes] : std::vector<std::pair<std::int64_t, int>>{{0, 1}, {3, 1}, {2, 0}, {2, 3}, {1, 1}, {-2, 1}}) {
    region::Plan damaged = plan;
    damaged.images = images, damaged.lanes = lanes;
    EXPECT_FALSE(region::verify(damaged)) << images << " images, " << lanes << " lanes";
  }
  EXPECT_NE(region::plan_hash(plan), [&] {
    region::Plan other = plan;
    other.lanes = 1;
    return region::plan_hash(other);
  }());
}

}  // namespace
}  // namespace octavo
