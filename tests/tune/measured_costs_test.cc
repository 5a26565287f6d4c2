// Measured costs: cache hits and misses, strict mode, pins, and engines that do not depend on anything else than the cache.
#include "tune/measured_costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/pipeline.h"
#include "base/causes/plan_search.h"
#include "cpu/isa.h"
#include "ir/text.h"
#include "region/key.h"
#include "tune/measure.h"

namespace octavo {
namespace {

constexpr const char* kNet = R"(
graph "g"
x = input : f32[1,16,20,20]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[32,16,3,3] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
r = relu y from {"relu"}
v = view r q=u8(0.05,0) from {"v"}
p = max_pool v {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} from {"pool"}
w2 = constant s8[8,32,1,1] q=s8(0.02,0) seed:3
z = conv p w2 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv2"}
output z
)";

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("octavo_tune_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(const char* name) const { return (path / name).string(); }
};

api::PipelineOptions options(const std::string& cache) {
  api::PipelineOptions o;
  o.plan.threads = 1;
  o.plan.effort = 2;
  o.timing.cache = cache.empty() ? std::string(api::kNoCache) : cache;
  return o;
}

Result<api::Built> build(const api::PipelineOptions& o) {
  auto g = ir::parse(kNet);
  EXPECT_TRUE(g) << g.error().message;
  return api::build_graph(*g, o);
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const region::Region& conv2(const region::Plan& plan) {
  for (const region::Region& r : plan.regions) {
    if (r.onnx_nodes.contains("conv2")) return r;
  }
  return plan.regions.front();
}

TEST(MeasuredCosts, OneCacheOneEngine) {
  const Folder folder;
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const auto built = build(options(folder / "times.txt"));
    ASSERT_TRUE(built) << built.error().message;
    ASSERT_TRUE(built->engine->save(folder / "a.octavo"));
    if (i == 0) first = bytes_of(folder / "a.octavo");
    EXPECT_EQ(bytes_of(folder / "a.octavo"), first) << "build " << i;
    for (const region::Region& r : built->engine->plan().regions) EXPECT_GT(r.seconds, 0) << r.name;
  }
}

TEST(MeasuredCosts, StrictModeNamesTheKeyItMisses) {
  const Folder folder;
  auto o = options(folder / "times.txt");
  o.timing.strict = true;
  const auto refused = build(o);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::usage);
  EXPECT_NE(refused.error().message.find("key: "), std::string::npos) << refused.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder / "times.txt"));
  o.timing.strict = false;
  ASSERT_TRUE(build(o));
  o.timing.strict = true;
  EXPECT_TRUE(build(o));
}

TEST(MeasuredCosts, APinDecides) {
  if (cpu::best_isa() == cpu::Isa::portable) GTEST_SKIP() << "there is one kernel alone";
  const Folder folder;
  auto o = options(folder / "times.txt");
  o.plan.effort = 1;  // from 2 on whole plans are timed, and a slow pin may lead to one that has no region with its key
  const auto before = build(o);
  ASSERT_TRUE(before) << before.error().message;
  const region::Region& r = conv2(before->engine->plan());
  std::string other;
  for (const auto& a : r.alternatives) {
    if (a.tactic != r.tactic.name() && !has(a.reasons, cause::tactic_refused)) other = a.tactic;
  }
  ASSERT_NE(other, "");
  auto cache = tune::TimingCache::read(o.timing.cache);
  ASSERT_TRUE(cache);
  cache->pin(tune::here(1), r.key, other);
  ASSERT_TRUE(cache->merge_into(o.timing.cache));
  const auto after = build(o);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(conv2(after->engine->plan()).tactic.name(), other);
  EXPECT_NE(after->engine->plan_hash(), before->engine->plan_hash());
  bool said = false;
  for (const auto& a : conv2(after->engine->plan()).alternatives)
    said = said || (a.tactic == other && has(a.reasons, cause::tactic_pinned));
  EXPECT_TRUE(said);

  cache->pin(tune::here(1), r.key, "cpu.no.such.tactic");
  ASSERT_TRUE(cache->merge_into(o.timing.cache));
  const auto refused = build(o);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("pins tactic \"cpu.no.such.tactic\", which does not apply"), std::string::npos)
      << refused.error().message;
}

TEST(MeasuredCosts, WithoutACacheItReallyMeasures) {
  std::vector<std::string> lines[2];
  for (auto& list : lines) {
    auto o = options("");
    o.timing.log = [&](const std::string& line) { list.push_back(line); };
    ASSERT_TRUE(build(o));
  }
  EXPECT_GT(lines[0].size(), 3U);
  EXPECT_NE(lines[0], lines[1]) << "two measurements never agree to the last digit";
}

/// Tactics that only take time, of which a table says how much: so many microseconds, by the number of the run among all runs of the tactic.
struct Waited {
  const char* tactic;
  int (*microseconds)(int run);
};
constexpr int kLost = 10000;  ///< as if another process had the core
constexpr Waited kWaited[] = {
    {"waiting.steady", [](int) { return 60; }},
    {"waiting.spiky", [](int run) { return run % 100 == 99 ? kLost : 15; }},
    {"waiting.slowing", [](int run) { return run < 600 ? 15 : 60; }},
};

class Waiting final : public region::Provider {
 public:
  std::string_view name() const override { return "waiting"; }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
    std::vector<region::Offer> out;
    for (const Waited& w : kWaited) out.push_back({*region::parse_tactic(w.tactic)});
    return out;
  }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan&,
                                               const region::ArtifactView&) const override {
    for (std::size_t i = 0; i < std::size(kWaited); ++i) {
      if (region::parse_tactic(kWaited[i].tactic)->family == r.tactic.family) return std::make_unique<Wait>(kWaited[i], runs_[i]);
    }
    return fail(ErrorKind::internal, "no such tactic: " + r.tactic.name());
  }

 private:
  class Wait final : public region::HostKernel {
   public:
    Wait(const Waited& of, std::atomic<int>& runs) : of_(of), runs_(runs) {}
    void run(const region::Memory&, int, int, const region::Worker&) const override {
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(of_.microseconds(runs_.fetch_add(1)));
      while (std::chrono::steady_clock::now() < until) {
      }
    }

   private:
    const Waited& of_;
    std::atomic<int>& runs_;
  };
  mutable std::array<std::atomic<int>, std::size(kWaited)> runs_{};  ///< of all instances of a tactic
};

/// What is measured of these tactics for a region of one Relu.
Result<std::vector<tune::TacticSeconds>> times_of(const std::vector<const char*>& tactics) {
  OCTAVO_TRY(const ir::Graph g, ir::parse("graph \"g\"\nx = input : f32[1,16,20,20]\nr = relu x from {\"relu\"}\noutput r\n"));
  OCTAVO_TRY(const api::Built built, api::build_graph(g, options("")));
  const Waiting provider;
  std::vector<tune::ProvidedTactic> all;
  for (const char* tactic : tactics) all.push_back({*region::parse_tactic(tactic), &provider});
  return tune::measure(built.engine->plan().regions.at(0), built.engine->plan(), all, 0.05);
}

TEST(Measure, RunsThatLostTheCoreDoNotCount) {
  const auto times = times_of({"waiting.steady", "waiting.spiky"});
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->size(), 2U);
  EXPECT_LT((*times)[1].seconds, (*times)[0].seconds) << "a mean of the second is 115 us";
  EXPECT_GT((*times)[1].seconds, 14e-6);
}

TEST(Measure, TurnsThatAreFarApartAreTold) {
  const auto times = times_of({"waiting.slowing"});
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_TRUE(times->at(0).disturbed) << "15 us in the first turn, 60 us in all others";
}

/// Disturbed times count for an hour, and are taken again then.
TEST(MeasuredCosts, DisturbedTimesAreTakenAgain) {
  const Folder folder;
  auto o = options(folder / "times.txt");
  ASSERT_TRUE(build(o));
  std::size_t measured = 0, cached = 0;
  o.timing.log = [&](const std::string& line) {
    measured += line.find(" us measured ") != std::string::npos ? 1 : 0;
    cached += line.find(" us cache ") != std::string::npos ? 1 : 0;
  };
  const auto mark = [&](std::int64_t when) {
    ASSERT_TRUE(tune::TimingCache::edit(o.timing.cache, [&](tune::TimingCache& c) -> Status {
      for (auto& [entry, t] : c.entries) t.disturbed = std::get<2>(entry).starts_with("plan.") ? 0 : when;
      return {};
    }));
    measured = cached = 0;
    ASSERT_TRUE(build(o));
  };
  mark(tune::seconds_since_1970() - 60);
  EXPECT_EQ(measured, 0U);
  EXPECT_GT(cached, 3U);
  mark(1);
  EXPECT_GT(measured, 3U);
  const auto now = tune::TimingCache::read(o.timing.cache);
  ASSERT_TRUE(now);
  std::size_t old = 0;
  for (const auto& [entry, t] : now->entries) old += t.disturbed == 1 ? 1 : 0;
  EXPECT_LT(old, now->entries.size() / 2) << "those that the plan asks about have new times";
}

/// Remembers what it was given to read.
class Reading final : public region::Provider {
 public:
  std::string_view name() const override { return "reading"; }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
    return {{*region::parse_tactic("reading.all")}};
  }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan&,
                                               const region::ArtifactView&) const override {
    return std::make_unique<Read>(r.stages[0].anchor.inputs.at(0), seen);
  }
  mutable std::vector<std::uint8_t> seen;

 private:
  class Read final : public region::HostKernel {
   public:
    Read(region::TensorRef from, std::vector<std::uint8_t>& to) : from_(std::move(from)), to_(to) {}
    void run(const region::Memory& m, int, int, const region::Worker&) const override {
      const auto* at = reinterpret_cast<const std::uint8_t*>(m.at(from_));
      to_.assign(at, at + ir::count(from_.dims));
    }

   private:
    region::TensorRef from_;
    std::vector<std::uint8_t>& to_;
  };
};

TEST(Measure, RegionsReadCodesThatVary) {
  auto o = options("");
  o.plan.disabled.insert("fuse-conv-pool");
  const auto built = build(o);
  ASSERT_TRUE(built) << built.error().message;
  const region::Plan& plan = built->engine->plan();
  const auto pool =
      std::ranges::find_if(plan.regions, [](const region::Region& r) { return r.onnx_nodes == std::set<std::string>{"pool"}; });
  ASSERT_NE(pool, plan.regions.end());
  ASSERT_EQ(plan.buffers[static_cast<std::size_t>(pool->stages[0].anchor.inputs.at(0).buffer)].kind, region::BufferKind::arena);
  const Reading provider;
  const auto times = tune::measure(*pool, plan, {{*region::parse_tactic("reading.all"), &provider}}, 1e-3);
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(provider.seen.size(), 32U * 20 * 20);
  const auto [low, high] = std::ranges::minmax(provider.seen);
  EXPECT_GE(low, 64);
  EXPECT_LT(low, 72);
  EXPECT_GT(high, 182);
  EXPECT_LE(high, 190);
}

TEST(RegionKey, SaysWhatTimeDependsOnAndNothingElse) {
  auto o = options("");
  o.plan.effort = 0;  // one plan, whatever the times are
  const auto built = build(o);
  ASSERT_TRUE(built);
  const std::string key = conv2(built->engine->plan()).key;
  const auto with = [&](const char* from, const char* to) {
    std::string text = kNet;
    text.replace(text.find(from), std::string(from).size(), to);
    auto g = ir::parse(text);
    EXPECT_TRUE(g) << g.error().message;
    auto other = api::build_graph(*g, o);
    EXPECT_TRUE(other) << other.error().message;
    return conv2(other->engine->plan()).key;
  };
  EXPECT_EQ(with("seed:3", "seed:4"), key) << "weights do not enter";
  EXPECT_EQ(with("q=u8(0.05,0)", "q=u8(0.06,0)"), key) << "scales do not enter";
  EXPECT_NE(with("s8[8,32,1,1]", "s8[9,32,1,1]"), key);
}

}  // namespace
}  // namespace octavo
