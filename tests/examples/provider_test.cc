// examples/provider, as its README says: beside the CPU's providers it is handed to the planner and to the engine, and its regions give
// the reference's bytes. The model is examples/digits.
#include "cpu/provider.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/engine.h"
#include "examples/provider/loops_provider.h"
#include "onnx/import/import.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "reference/oracle_provider.h"
#include "region/refusal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using engine::Context;
using engine::Engine;
using engine::Providers;

const std::string kModel = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

region::Plan planned(const Providers& providers, plan::Costs* costs = nullptr) {
  onnx::ImportOptions import;
  import.default_batch = 3;
  auto model = onnx::import_file(kModel, import);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  plan::PlanOptions options;
  options.threads = 2;
  options.costs = costs;
  options.effort = costs == nullptr ? 0 : 1;
  options.disabled = {"fuse-conv-pool"};  // the pools are regions of their own, which the example takes
  auto made = plan::make_plan(std::move(model->graph), providers, options);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made->plan);
}

/// Regions of the plan that the example computes, by anchor: how many elementwise ones, how many pools.
std::pair<int, int> taken(const region::Plan& plan) {
  std::pair<int, int> n{0, 0};
  for (const region::Region& r : plan.regions) {
    if (r.tactic.provider == "example") ++(r.stages[0].anchor.none() ? n.first : n.second);
  }
  return n;
}

std::vector<std::vector<std::byte>> outputs(const std::shared_ptr<const Engine>& engine) {
  auto context = Context::create(engine, 2);
  EXPECT_TRUE(context) << (context ? "" : context.error().message);
  const region::Plan& p = engine->plan();
  std::vector<std::vector<std::byte>> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  const auto bytes = [](const auto& binding) {
    return static_cast<std::size_t>(ir::count(binding.type.shape)) * ir::size_of(binding.type.dtype);
  };
  for (const auto& b : p.inputs) {
    in.emplace_back(bytes(b));
    auto* values = reinterpret_cast<float*>(in.back().data());
    for (std::size_t i = 0; i < in.back().size() / 4; ++i) values[i] = static_cast<float>(i * 2654435761U % 1000U) / 1000.0F;
    from.push_back(in.back().data());
  }
  for (const auto& b : p.outputs) {
    out.emplace_back(bytes(b));
    to.push_back(out.back().data());
  }
  const auto done = (*context)->run(from, to);
  EXPECT_TRUE(done) << (done ? "" : done.error().message);
  return out;
}

class ExampleProvider : public ::testing::Test {
 protected:
  ExampleProvider() : file_(fs::temp_directory_path() / ("octavo_example_provider." + std::to_string(getpid()) + ".engine")) {}
  ~ExampleProvider() override { fs::remove(file_); }

  /// The example's provider before the CPU's.
  Providers both() const {
    Providers all{&loops_};
    all.insert(all.end(), cpu::providers().begin(), cpu::providers().end());
    return all;
  }

  example::LoopsProvider loops_;
  fs::path file_;
};

TEST_F(ExampleProvider, IsPlannedSavedLoadedAndGivesTheReferencesBytes) {
  const region::Plan plan = planned(both());
  const auto [elementwise, pools] = taken(plan);
  EXPECT_GE(elementwise, 1);
  EXPECT_EQ(pools, 2);
  EXPECT_LT(static_cast<std::size_t>(elementwise + pools), plan.regions.size()) << "the CPU's providers have the convolutions";
  {
    const auto built = Engine::create(plan, both());
    ASSERT_TRUE(built) << built.error().message;
    const auto saved = (*built)->save(file_.string());
    ASSERT_TRUE(saved) << saved.error().message;
  }
  const auto loaded = Engine::load(file_.string(), both());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(taken((*loaded)->plan()), taken(plan));
  const Providers reference{&reference::oracle_provider()};
  const auto expected = Engine::create(planned(reference), reference);
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_EQ(outputs(*loaded), outputs(*expected));
}

/// The example takes this long for every region, everything else a microsecond.
class ExampleTakes final : public plan::Costs {
 public:
  explicit ExampleTakes(double seconds) : seconds_(seconds) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region&, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers)
      out.push_back({!o.refusal.empty() ? -1 : o.tactic.provider == "example" ? seconds_ : 1e-6, plan::TimeSource::measured});
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  double seconds_;
};

TEST_F(ExampleProvider, WithoutTimesTheFirstProviderIsTakenWithThemTheFastest) {
  Providers behind = cpu::providers();
  behind.push_back(&loops_);
  EXPECT_EQ(taken(planned(behind)), std::pair(0, 0));
  EXPECT_NE(taken(planned(both())), std::pair(0, 0));
  ExampleTakes slow(1e-3), fast(1e-7);
  EXPECT_EQ(taken(planned(both(), &slow)), std::pair(0, 0));
  EXPECT_EQ(taken(planned(behind, &fast)), taken(planned(both())));
}

TEST_F(ExampleProvider, AnEngineIsRefusedByNameWithoutIt) {
  const auto built = Engine::create(planned(both()), both());
  ASSERT_TRUE(built) << built.error().message;
  ASSERT_TRUE((*built)->save(file_.string()));
  const auto loaded = Engine::load(file_.string(), cpu::providers());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().kind, ErrorKind::unsupported);
  EXPECT_NE(loaded.error().message.find("no provider for tactic \"example.loops\" (providers: cpu"), std::string::npos)
      << loaded.error().message;
}

TEST_F(ExampleProvider, RefusesByReasonsAndIsSilentAboutOtherKinds) {
  region::Region r;
  r.stages.emplace_back();
  region::Stage& s = r.stages[0];
  s.anchor.op = ir::Op::conv;
  EXPECT_TRUE(loops_.offers(r, {}).empty());
  s.anchor.op = ir::Op::max_pool;
  s.anchor.inputs.emplace_back();
  s.program.outputs.emplace_back();
  const auto offers = loops_.offers(r, {});
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_EQ(spelled(offers[0].refusal), spelled(region::unmet("type of the input", "f32", "u8")));
}

}  // namespace
}  // namespace octavo
