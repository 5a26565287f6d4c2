// Tactics of a device other than the host: timed by its own clock, kept in the cache under its description, bounded by the effort. The
// device here has a clock that tells what the test wants.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "base/build_work.h"
#include "engine/engine.h"
#include "ir/text.h"
#include "plan/effort.h"
#include "plan/plan.h"
#include "region/artifact.h"
#include "tune/measured_costs.h"

namespace octavo {
namespace {

constexpr double kBusy = 0.65;  ///< the part of the cores that is taken to compile

constexpr const char* kNet = R"(
graph "g"
x = input : f32[1,16,10,10]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[32,16,3,3] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
v = view y q=u8(0.05,0) from {"v"}
output v
)";

using region::Offer;
using region::Plan;
using region::Region;
using region::Tactic;

Tactic tactic(const std::string& family, int tile) {
  Tactic t;
  t.provider = "fake";
  t.family = family;
  t.parameters = {{"tile", std::to_string(tile)}};
  return t;
}
int tile_of(const Tactic& t) {
  return std::stoi(t.parameters.at("tile"));
}

/// Offers tiles 1 to 12 and, as variants, to 60: the first by its estimates is the best.
class Fake final : public region::Provider {
 public:
  std::string_view name() const override { return "fake"; }
  std::string_view device() const override { return "fake gpu"; }
  std::vector<Offer> offers(const Region& r, const Plan& plan) const override {
    if (region::is_transfer(r, plan)) return {{tactic("transfer", 0), {}, 1e-6}};
    std::vector<Offer> out = tiles(1, 12);
    for (int t = 13; t <= 24 && families > 1; ++t) out.push_back({tactic("late", t), {}, 3e-6 * (1 + t * 0.01)});
    for (int t = 25; t <= 36 && families > 2; ++t) out.push_back({tactic("soon", t), {}, 2e-6 * (1 + t * 0.01)});
    return out;
  }
  std::vector<Offer> variants(const Region& r, const Plan& plan) const override {
    return region::is_transfer(r, plan) ? std::vector<Offer>() : tiles(13, 60);
  }
  Result<region::Artifact> compile(const Region&, const Plan&, const Tactic& t) const override {
    region::Artifact made;
    made.source = {"text " + t.name()};
    return made;
  }
  Status finish(std::span<Plan* const> plans, int) const override {
    int regions = 0;
    for (const Plan* plan : plans) regions += static_cast<int>(plan->regions.size());
    {
      const std::lock_guard lock(mutex);
      finished.push_back(regions);
    }
    for (Plan* plan : plans) {
      for (const Region& r : plan->regions) {
        if (tile_of(r.tactic) == broken) return fail(ErrorKind::internal, "the compiler fails");
        region::keep_code("code", r, *plan);  // copies of a plan share their constants
      }
    }
    return {};
  }
  Result<std::unique_ptr<region::Kernel>> load(const Region&, const Plan&, const region::ArtifactView& artifact) const override {
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(artifact.code.data()), 4), "code") << "loaded before it was finished";
    return std::make_unique<region::Kernel>();
  }
  int broken = -1;   ///< the tile that does not compile
  int families = 1;  ///< up to 3: "conv", "late" from tile 13 on, "soon" from 25 on; of the latter the first estimate is less
  /// Regions that were finished so far.
  [[nodiscard]] int compiled() const {
    const std::lock_guard lock(mutex);
    return std::accumulate(finished.begin(), finished.end(), 0);
  }
  mutable std::mutex mutex;
  mutable std::vector<int> finished;  ///< regions of each call of finish; under mutex

 private:
  static std::vector<Offer> tiles(int from, int to) {
    std::vector<Offer> out;
    for (int t = from; t <= to; ++t) out.push_back({tactic("conv", t), {}, 1e-6 * (1 + t * 0.1)});
    return out;
  }
};

class FakeGpu final : public region::Device {
 public:
  std::string_view name() const override { return "fake gpu"; }
  Result<std::string> description() const override { return described; }
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    return std::make_unique<Bytes>(bytes);
  }
  Status write(std::byte* to, std::span<const std::byte> from) const override {
    std::copy(from.begin(), from.end(), to);
    return {};
  }
  Status read(std::span<std::byte> to, const std::byte* from) const override {
    std::copy_n(from, to.size(), to.begin());
    return {};
  }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte>) const override { return std::shared_ptr<const void>(); }
  void expect_transfers(std::span<const std::size_t>) const override {}
  Result<std::unique_ptr<region::Executor>> executor(const Plan& plan, std::span<const region::Kernel* const>) const override {
    return std::make_unique<Clock>(*this, plan);
  }

  std::string described = "FAKE 1; clocks 1000 MHz";
  std::map<int, double> microseconds;  ///< by tile; others: 50
  mutable std::map<int, int> timed;    ///< by tile: how often the clock was read

 private:
  class Bytes final : public region::DeviceMemory {
   public:
    explicit Bytes(std::size_t bytes) : bytes_(bytes + 256) {}
    std::byte* address() const override {
      const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
      return reinterpret_cast<std::byte*>((at + 255) / 256 * 256);
    }

   private:
    mutable std::vector<std::byte> bytes_;
  };
  class Clock final : public region::Executor {
   public:
    Clock(const FakeGpu& gpu, const Plan& plan) : gpu_(gpu), plan_(plan) {}
    Status start(std::size_t, std::size_t, const region::Memory&, void*) override { return {}; }
    Status wait() override { return {}; }
    Result<double> time(std::size_t first, std::size_t last, const region::Memory&, int) override {
      double sum = 0;
      for (std::size_t i = first; i < last; ++i) {
        const int tile = tile_of(plan_.regions[i].tactic);
        ++gpu_.timed[tile];
        const auto at = gpu_.microseconds.find(tile);
        sum += 1e-6 * (tile == 0 ? 1 : at != gpu_.microseconds.end() ? at->second : 50);
      }
      return sum;
    }

   private:
    const FakeGpu& gpu_;
    const Plan& plan_;
  };
};

class DeviceCosts : public ::testing::Test {
 protected:
  struct Made {
    Plan plan;
    std::string hash, file;
    tune::TimingCache fresh;
    [[nodiscard]] const Region& conv() const {
      return *std::ranges::find_if(plan.regions, [](const Region& r) { return r.onnx_nodes.contains("conv"); });
    }
  };

  Result<Made> build(const tune::TimingCache& cache, int effort = 2, bool strict = false, double compile_seconds = 0) {
    gpu.timed.clear();
    const std::vector<const region::Provider*> providers{&provider};
    tune::TuneOptions options;
    options.devices = {&gpu};
    options.device = *gpu.description();
    options.effort = effort;
    options.threads = 3;
    options.strict = strict;
    options.compile_seconds = compile_seconds, options.cores = 3;
    tune::MeasuredCosts costs(cache, providers, options);
    plan::PlanOptions p;
    p.effort = effort;
    p.threads = 3;
    p.costs = &costs;
    OCTAVO_TRY(ir::Graph g, ir::parse(kNet));
    OCTAVO_TRY(plan::Planned planned, plan::make_plan(std::move(g), providers, p));
    Made made{planned.plan, region::plan_hash(planned.plan), {}, costs.fresh()};
    Plan* const one = &planned.plan;
    OCTAVO_CHECK(provider.finish({&one, 1}, 1));
    OCTAVO_TRY(const auto engine, engine::Engine::create(std::move(planned.plan), providers, "", {&gpu}));
    const std::string path = (std::filesystem::temp_directory_path() / ("octavo_device_" + std::to_string(::getpid()))).string();
    OCTAVO_CHECK(engine->save(path));
    std::ifstream in(path, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    made.file = bytes.str();
    std::filesystem::remove(path);
    return made;
  }

  Fake provider;
  FakeGpu gpu;
};

TEST_F(DeviceCosts, TheFastestIsTakenNotTheFirstByEstimate) {
  gpu.microseconds = {{1, 40}, {3, 21}, {5, 12}, {6, 30}};
  const auto made = build({});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(tile_of(made->conv().tactic), 5);
  EXPECT_NEAR(made->conv().seconds, 12e-6, 1e-9);
  std::map<std::string, double> times;
  for (const auto& a : made->conv().alternatives) times[a.tactic] = a.seconds;
  EXPECT_NEAR(times.at(tactic("conv", 3).name()), 21e-6, 1e-9) << "what explain shows";
}

TEST_F(DeviceCosts, OneCacheOneEngine) {
  gpu.microseconds = {{4, 20}};
  const auto first = build({});
  ASSERT_TRUE(first) << first.error().message;
  gpu.microseconds = {{2, 1}};  // what the device would say now does not count
  const auto second = build(first->fresh), strict = build(first->fresh, 2, true);
  ASSERT_TRUE(second) << second.error().message;
  ASSERT_TRUE(strict) << strict.error().message;
  EXPECT_EQ(second->file, first->file);
  EXPECT_EQ(strict->file, first->file);
  EXPECT_TRUE(gpu.timed.empty());
}

TEST_F(DeviceCosts, TimesAreOneDevices) {
  const auto first = build({});
  ASSERT_TRUE(first);
  for (const auto& [entry, t] : first->fresh.entries) {
    EXPECT_EQ(std::get<0>(entry).device, "FAKE 1; clocks 1000 MHz");
    EXPECT_EQ(std::get<0>(entry).threads, 1) << "the threads of the host are no matter";
  }
  gpu.described = "FAKE 1; clocks 1200 MHz";
  const auto refused = build(first->fresh, 2, true);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("strict timing: the timing cache has no time for tactic fake.conv"), std::string::npos)
      << refused.error().message;
  ASSERT_TRUE(build(first->fresh));
  EXPECT_FALSE(gpu.timed.empty());
}

TEST_F(DeviceCosts, EffortBoundsHowManyAreCompiled) {
  gpu.microseconds = {{60, 2}};
  const auto tiles = [&] { return std::ranges::count_if(gpu.timed, [](const auto& t) { return t.first > 0; }); };
  ASSERT_TRUE(build({}, 1));
  EXPECT_EQ(tiles(), 8);
  ASSERT_TRUE(build({}, 2));
  EXPECT_EQ(tiles(), 12);
  ASSERT_TRUE(build({}, 3));
  EXPECT_EQ(tiles(), 24);
  const auto all = build({}, 5);
  ASSERT_TRUE(all);
  EXPECT_EQ(tile_of(all->conv().tactic), 60);
}

// Quantizing the input, the convolution and the store of the output are three regions: 120 s of three cores are so many kernels for each.
// What only other plans have is bounded apart.
TEST_F(DeviceCosts, TheSecondsOfAnEffortBoundTheFirstPlan) {
  const auto tiles = [](const Result<Made>& made) -> std::set<int> {  // how many were timed, of each kind of convolution
    if (!made) return {};
    std::map<std::string, int> of;
    for (const auto& [entry, t] : made->fresh.entries) {
      if (std::get<1>(entry).starts_with("conv ")) ++of[std::get<1>(entry)];
    }
    std::set<int> counts;
    for (const auto& [key, n] : of) counts.insert(n);
    return counts;
  };
  EXPECT_EQ(tiles(build({}, 3, false, kBusy * 120 / 17.5)), (std::set{17, 24}));
  EXPECT_EQ(tiles(build({}, 3, false, 1e6)), (std::set{8, 24})) << "never fewer than at effort 1";
  EXPECT_EQ(tiles(build({}, 4, false, kBusy * 600 / 33.5)), (std::set{33, 48}));
  EXPECT_EQ(tiles(build({}, 5, false, 10)), std::set{60});
  EXPECT_EQ(tiles(build({}, 2, false, 1e6)), std::set{12}) << "the counts of efforts 1 and 2 are bounds already";
  const auto rich = build({}, 4);
  ASSERT_TRUE(rich);
  const auto poor = build(rich->fresh, 4, false, 1e6), strict = build(rich->fresh, 4, true, 1e6);
  ASSERT_TRUE(poor && strict);
  EXPECT_EQ(poor->file, strict->file);
  EXPECT_EQ(poor->file, rich->file) << "a full cache gives the same engine on fewer cores";
}

// Where seconds bound the kernels of a region, no family is left out for another one's second set; the least estimates go first.
TEST_F(DeviceCosts, ABoundedRegionHasEveryFamilyBeforeSecondSets) {
  provider.families = 3;
  const auto timed = [&](double kernels) {  // of each of the three regions, a core each for the seconds of the effort
    std::set<int> tiles;
    if (const auto made = build({}, 1, false, kBusy * plan::effort_at(1).first_seconds / (kernels + 0.1))) {
      for (const auto& [tile, times] : gpu.timed) {
        if (tile > 0) tiles.insert(tile);
      }
    }
    return tiles;
  };
  EXPECT_EQ(timed(1), (std::set{1, 13, 25})) << "three in any case";
  EXPECT_EQ(timed(4), (std::set{1, 2, 13, 25}));
  EXPECT_EQ(timed(5), (std::set{1, 2, 13, 25, 26}));
  EXPECT_EQ(timed(7), (std::set{1, 2, 3, 13, 14, 25, 26}));
}

// Convolutions of one kind, of which two have other input channels: where kernels are few, all sets are timed for the first alone. The others get
// what was fastest there and their own first estimate.
TEST_F(DeviceCosts, RegionsOfAKindShareWhatIsFound) {
  constexpr const char* kThree = R"(
graph "g"
x = input : f32[1,33,10,10]
y = input : f32[1,40,10,10]
z = input : f32[1,44,10,10]
a = view x q=u8(0.03,128)
b = view y q=u8(0.03,128)
c = view z q=u8(0.03,128)
w1 = constant s8[32,33,3,3] q=s8(0.01,0) seed:1
w2 = constant s8[32,40,3,3] q=s8(0.01,0) seed:2
w3 = constant s8[32,44,3,3] q=s8(0.01,0) seed:3
d = conv a w1 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv1"}
e = conv b w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
f = conv c w3 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv3"}
output d
output e
output f
)";
  gpu.microseconds = {{5, 12}};
  const auto timed = [&](double compile_seconds, const tune::TimingCache& cache, bool strict) {
    const std::vector<const region::Provider*> providers{&provider};
    tune::TuneOptions options;
    options.devices = {&gpu};
    options.device = *gpu.description();
    options.effort = 1, options.cores = 1, options.strict = strict;
    options.compile_seconds = compile_seconds;
    tune::MeasuredCosts costs(cache, providers, options);
    plan::PlanOptions p;
    p.effort = 1, p.costs = &costs;
    const auto planned = plan::make_plan(*ir::parse(kThree), providers, p);
    std::map<std::string, std::set<int>> tiles;  // by ONNX node; the one that is taken is negative
    EXPECT_TRUE(planned) << planned.error().message;
    if (!planned) return std::pair(tiles, costs.fresh());
    for (const Region& r : planned->plan.regions) {
      if (r.stages.empty() || r.stages.front().anchor.op != ir::Op::conv) continue;
      auto& of = tiles[*r.onnx_nodes.begin()];
      of.insert(-tile_of(r.tactic));
      for (const region::Alternative& a : r.alternatives) {
        if (a.seconds >= 0) of.insert(std::stoi(a.tactic.substr(a.tactic.find("tile=") + 5)));
      }
    }
    return std::pair(tiles, costs.fresh());
  };
  const std::set<int> all{-5, 1, 2, 3, 4, 5, 6, 7, 8}, few{-5, 1, 5};
  const auto [rich, cache] = timed(1e-3, {}, false);
  EXPECT_EQ(rich.at("conv1"), all);
  EXPECT_EQ(rich.at("conv2"), all) << "enough seconds for all";
  EXPECT_EQ(rich.at("conv3"), all);
  std::set<std::string> keys;
  for (const auto& [entry, t] : cache.entries) {
    if (!std::get<2>(entry).starts_with("fake.transfer")) keys.insert(std::get<1>(entry));
  }
  const double scarce = kBusy * plan::effort_at(1).first_seconds / (5 * static_cast<double>(keys.size()));  // five kernels for each
  const auto [poor, poor_cache] = timed(scarce, {}, false);
  EXPECT_EQ(poor.at("conv1"), all);
  EXPECT_EQ(poor.at("conv2"), few);
  EXPECT_EQ(poor.at("conv3"), few);
  EXPECT_EQ(timed(scarce, poor_cache, true).first, poor) << "the cache has all times that are asked for";
  EXPECT_EQ(timed(scarce, cache, true).first, rich) << "times that the cache has count in any case";
}

// What a build would time is listed where the device is not: nothing is compiled.
TEST_F(DeviceCosts, GivenTimesStandForTheDevice) {
  const std::vector<const region::Provider*> providers{&provider};
  tune::TuneOptions options;
  options.device = "FAKE", options.effort = 1;
  std::set<int> listed;
  options.measure = [&](const Region&, const Plan&, const std::vector<tune::ProvidedTactic>& candidates) {
    std::vector<tune::TacticSeconds> out;
    for (const tune::ProvidedTactic& c : candidates) {
      listed.insert(tile_of(c.tactic));
      out.push_back({tile_of(c.tactic) == 4 ? 1e-6 : 2e-6, false});
    }
    return Result<std::vector<tune::TacticSeconds>>(out);
  };
  tune::MeasuredCosts costs({}, providers, options);
  plan::PlanOptions p;
  p.effort = 1, p.costs = &costs;
  const auto planned = plan::make_plan(*ir::parse(kNet), providers, p);
  ASSERT_TRUE(planned) << planned.error().message;
  listed.erase(0);
  EXPECT_EQ(listed, (std::set{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(provider.compiled(), 0);
  for (const Region& r : planned->plan.regions) {
    if (r.onnx_nodes.contains("conv")) {
      EXPECT_EQ(tile_of(r.tactic), 4);
    }
  }
}

// A build can say where its time went.
TEST_F(DeviceCosts, TimingIsCounted) {
  const BuildWork before = build_work();
  ASSERT_TRUE(build({}, 1));
  const BuildWork work = build_work() - before;
  EXPECT_EQ(work.timed, 3 * 8U + 2) << "three regions, two transfers";
  EXPECT_GT(work.prepare, 0);
  EXPECT_GT(work.time, 0);
  EXPECT_EQ(work.kernels, 0U) << "no compiler that counts was asked";
}

// A search says beforehand what it will price: all of it is compiled beside what follows, and the effort bounds the sum.
TEST_F(DeviceCosts, CandidatesAreCompiledAheadAndShareABound) {
  const std::vector<const region::Provider*> providers{&provider};
  tune::TuneOptions options;
  options.devices = {&gpu};
  options.device = *gpu.description();
  options.effort = 2;
  const auto plan_of = [&](int channels) {
    std::string net = kNet;
    net.replace(net.find("s8[32,"), 6, "s8[" + std::to_string(channels) + ",");
    plan::PlanOptions p;
    p.effort = 0;
    return plan::make_plan(*ir::parse(net), providers, p)->plan;
  };
  const auto conv_of = [](const Plan& plan) {
    return std::ranges::find_if(plan.regions, [](const Region& r) { return r.onnx_nodes.contains("conv"); });
  };
  for (const int count : {3, 50, 400}) {
    tune::MeasuredCosts costs({}, providers, options);
    provider.finished.clear(), gpu.timed.clear();
    std::vector<Plan> plans;
    for (int i = 0; i < count; ++i) plans.push_back(plan_of(16 + i));
    ASSERT_TRUE(costs.wants_notice());
    for (const Plan& plan : plans) costs.notice(plan, false);
    EXPECT_EQ(provider.compiled(), 0);
    costs.notice({}, true);
    const int regions = 2 * count + 1;  // the convolution and the output of each, the input of all
    const int each = std::clamp(400 / regions, 2, 12);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (provider.compiled() < regions * each && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(provider.compiled(), regions * each) << "without being asked for a price";
    const auto conv = conv_of(plans.back());
    ASSERT_TRUE(costs.price(*conv, plans.back(), provider.offers(*conv, plans.back())));
    EXPECT_EQ(static_cast<int>(gpu.timed.size()), each);
  }
}

TEST_F(DeviceCosts, APinDecides) {
  const auto before = build({}, 1);
  ASSERT_TRUE(before);
  tune::TimingCache cache = before->fresh;
  const std::string wanted = tactic("conv", 17).name();  // a variant, which this effort would not try
  cache.pin({gpu.described, 1}, before->conv().key, wanted);
  const auto after = build(cache, 1);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->conv().tactic.name(), wanted);
}

TEST_F(DeviceCosts, OneThatDoesNotCompileIsLeftOut) {
  gpu.microseconds = {{2, 10}, {3, 5}};
  provider.broken = 3;
  const auto made = build({});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(tile_of(made->conv().tactic), 2);
}

// What has not begun when the times are no longer wanted is not compiled.
TEST_F(DeviceCosts, TheQueueEndsWithItsOwner) {
  const std::vector<const region::Provider*> providers{&provider};
  plan::PlanOptions p;
  p.effort = 0;
  const auto plan = std::make_shared<const Plan>(plan::make_plan(*ir::parse(kNet), providers, p)->plan);
  provider.finished.clear();
  auto ahead = std::make_unique<tune::CompileAhead>(providers, 2);
  std::thread owner;
  {
    const std::lock_guard lock(provider.mutex);  // both threads wait in their first region
    for (int i = 0; i < 1000; ++i) ahead->add(plan->regions[1], plan, {{tactic("conv", 1), &provider}});
    owner = std::thread([&] { ahead.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  owner.join();
  EXPECT_LT(provider.compiled(), 1000);
}

}  // namespace
}  // namespace octavo
