// Kernels on a GPU (under emulation) behind a count: they compute what counts, `check` judges them whole, and damaged counts are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "api/check.h"
#include "api/counted_scene.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "engine/engine.h"
#include "ir/output_sizes.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/counted.h"
#include "region/sizes.h"

namespace octavo::testing {
namespace {

class CountedOnGpu : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    device_ = emulated_device();
    provider_ =
        cuda::make_provider({"sm_80", 108, 163 * 1024}, [](std::string_view t) -> Result<std::string> { return std::string(t); });
  }
  /// A plan with its kernels as texts, which the emulation runs.
  Result<plan::Planned> planned(const ir::Graph& g) {
    OCTAVO_TRY(plan::Planned out, plan::make_plan(g, {provider_.get()}, {}));
    region::Plan* const plan = &out.plan;
    OCTAVO_CHECK(provider_->finish({&plan, 1}, 1));
    OCTAVO_CHECK(region::verify(out.plan));
    return out;
  }
  std::unique_ptr<const region::Device> device_;
  std::unique_ptr<const region::Provider> provider_;
};

/// Rows of counted regions that a run wrote, seen by what was in the memory before: of each, those that count and those that its last tile has beside them.
TEST_F(CountedOnGpu, KernelsReadTheCountAndWriteNothingBehindIt) {
  const ir::Graph g = head();
  const auto made_plan = planned(g);
  ASSERT_TRUE(made_plan) << made_plan.error().message;
  const region::Plan& plan = made_plan->plan;
  std::set<std::string> ops;
  for (const region::Region& r : plan.regions) {
    if (r.count >= 0) ops.insert(ir::name_of(r.stages[0].anchor.op).data());
  }
  for (const char* op : {"gather", "conv", "softmax", "avg_pool"}) EXPECT_TRUE(ops.contains(op)) << op;
  const auto read = region::from_json(region::to_json(plan));
  ASSERT_TRUE(read) << read.error().message;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) EXPECT_EQ(read->regions[i].count, plan.regions[i].count);
  const auto engine = engine::Engine::create(plan, {provider_.get()}, "", {device_.get()});
  ASSERT_TRUE(engine) << engine.error().message;
  auto context = engine::Context::create(*engine, 1);
  ASSERT_TRUE(context) << context.error().message;
  for (const std::int64_t count : {std::int64_t{300}, std::int64_t{0}, std::int64_t{1}, std::int64_t{150}, std::int64_t{299}}) {
    const auto feeds = feeds_of(g, count, static_cast<std::uint64_t>(count) + 7);
    auto want = reference::evaluate(g, feeds);
    ASSERT_TRUE(want) << want.error().message;
    std::int64_t regions = 0;
    constexpr std::byte kPoison{0xA5};
    engine::Observer observer;
    const auto each = [&](std::size_t i, const auto& f) {
      const region::Region& r = plan.regions[i];
      if (r.count < 0) return;
      const region::TensorRef& t = r.stages.back().stores.front();
      const auto k = static_cast<std::size_t>(r.stages.back().counted);
      f(r, t, static_cast<std::size_t>(t.strides[k]) * ir::size_of(t.dtype));
    };
    observer.before = [&](std::size_t i, const region::Memory& memory) {
      each(i, [&](const region::Region& r, const region::TensorRef& t, std::size_t step) {
        for (const region::Operand& o : r.stages.back().operands) {
          if (memory.at(o.ref) == memory.at(t)) return;  // in place
        }
        std::memset(memory.at(t), static_cast<int>(kPoison), step * static_cast<std::size_t>(region::room_of(r)));
      });
    };
    observer.after = [&](std::size_t i, const region::Memory& memory) {
      each(i, [&](const region::Region& r, const region::TensorRef& t, std::size_t step) {
        const std::byte* at = memory.at(t);
        std::int64_t written = 0;
        for (std::int64_t row = 0; row < region::room_of(r); ++row) {
          const std::byte* from = at + static_cast<std::size_t>(row) * step;
          if (std::any_of(from, from + step, [&](std::byte b) { return b != kPoison; })) written = row + 1;
        }
        const std::int64_t extent = region::counted_extent(r, memory);
        constexpr std::int64_t kTile = 128;
        EXPECT_GE(written, extent) << r.name << ", " << r.tactic.name();
        EXPECT_LE(written, (extent + kTile - 1) / kTile * kTile) << r.name << ", " << r.tactic.name();
        ++regions;
      });
    };
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<ir::Tensor> results;
    for (const ir::Tensor& t : feeds) in.push_back(t.bytes().data());
    for (const auto& b : plan.outputs) results.emplace_back(b.type);
    for (ir::Tensor& t : results) out.push_back(t.mutable_bytes().data());
    const Status status = (*context)->run(in, out, &observer);
    ASSERT_TRUE(status) << status.error().message;
    ir::cut_results(results, plan.sizes);
    ir::cut_results(*want, g.sizes);
    EXPECT_LT(difference(results, *want), 1e-4) << count << " boxes";
    EXPECT_GE(regions, 5);
  }
}

TEST_F(CountedOnGpu, RegionsAreCheckedWhole) {
  const ir::Graph g = head();
  const auto made_plan = planned(g);
  ASSERT_TRUE(made_plan) << made_plan.error().message;
  const auto engine = engine::Engine::create(made_plan->plan, {provider_.get()}, "", {device_.get()});
  ASSERT_TRUE(engine) << engine.error().message;
  const auto report = api::check(*engine, made_plan->graph, feeds_of(g, 20, 5), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << report->first_divergence();
  EXPECT_TRUE(report->complete());
}

/// A count is what an earlier region of the same device stores; anything else is refused.
TEST_F(CountedOnGpu, DamagedCountsAreRefused) {
  const ir::Graph g = head();
  const auto made_plan = planned(g);
  ASSERT_TRUE(made_plan) << made_plan.error().message;
  int tried = 0;
  for (std::size_t i = 0; i < made_plan->plan.regions.size(); ++i) {
    if (made_plan->plan.regions[i].count < 0) continue;
    for (std::size_t b = 0; b < made_plan->plan.buffers.size(); ++b) {
      region::Plan damaged = made_plan->plan;
      damaged.regions[i].count = static_cast<region::BufferId>(b);
      const region::Buffer& buffer = damaged.buffers[b];
      if (buffer.kind == region::BufferKind::arena && buffer.space == damaged.regions[i].device && buffer.bytes == 8) continue;
      EXPECT_FALSE(region::verify(damaged)) << damaged.regions[i].name << ", " << buffer.name;
      ++tried;
    }
  }
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace octavo::testing
