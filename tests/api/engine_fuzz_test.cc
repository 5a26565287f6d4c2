// Whole engines over random networks of uneven shapes: every region against the reference, every result written, nothing written elsewhere,
// and the same bits from a run with other threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "api/check.h"
#include "api/pipeline.h"
#include "engine/memory_check.h"
#include "ir/text.h"
#include "support/costs.h"
#include "support/feeds.h"
#include "support/fuzz_setting.h"
#include "support/wide_network.h"

namespace octavo::api {
namespace {

std::string tactics_of(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions) out += "  " + r.name + " [" + r.tactic.name() + "]\n";
  return out;
}

/// Runs in memory filled with patterns; the faults it found.
std::string faults_of(const std::shared_ptr<const engine::Engine>& engine, int threads, const std::vector<ir::Tensor>& feeds,
                      std::vector<ir::Tensor>& results) {
  auto context = engine::Context::create(engine, threads);
  if (!context) return context.error().message;
  engine::MemoryReport memory;
  auto outputs = run(**context, feeds, nullptr, &memory);
  if (!outputs) return outputs.error().message;
  results = std::move(*outputs);
  const auto plain = run(**context, feeds);  // all regions in one list of jobs, not watched one by one
  if (!plain) return plain.error().message;
  if (const std::string text = testing::first_difference(results, *plain); !text.empty()) return "a plain run: " + text;
  std::string text;
  for (const engine::MemoryFault& f : memory.faults) text += engine::describe(f, engine->plan()) + "\n";
  return text;
}

constexpr std::uint64_t kLarge = 100;  // one network of so many has a product that is large in all three extents

// OCTAVO_FULL and OCTAVO_LONG widen the run (support/fuzz_setting.h); OCTAVO_FUZZ_GRAPHS and OCTAVO_FUZZ_SEED repeat a part of it.
TEST(EngineFuzz, WideNetworksOnAnyThreadsGiveTheReferencesBits) {
  const std::uint64_t graphs = testing::fuzz_setting("OCTAVO_FUZZ_GRAPHS", testing::rounds(500, 2000)),
                      first = testing::fuzz_setting("OCTAVO_FUZZ_SEED", 1);
  std::map<std::string, int> families;
  for (std::uint64_t seed = first; seed < first + graphs && !HasFatalFailure(); ++seed) {
    const testing::WideOptions wide{.products = seed % 10 == 0 ? 600e3 : 60e3, .least_columns = seed % kLarge == 0 ? 16384 : 1};
    const ir::Graph graph = testing::wide_network(seed, wide);
    testing::ArbitraryCosts costs(seed);
    PipelineOptions o;
    o.plan.threads = 1 + static_cast<int>(seed / 3 % 8);
    o.plan.effort = seed % 4 == 3 ? static_cast<int>(seed / 4 % 6) : 0;
    if (o.plan.effort > 0) o.plan.costs = &costs;
    const int threads = seed % 5 == 0 ? 1 + static_cast<int>(seed / 5 % 8) : o.plan.threads;
    const std::string where = "seed " + std::to_string(seed) + ", planned for " + std::to_string(o.plan.threads) +
                              " threads, run on " + std::to_string(threads) + ", effort " + std::to_string(o.plan.effort) +
                              "\n  repeat: OCTAVO_FUZZ_GRAPHS=1 OCTAVO_FUZZ_SEED=" + std::to_string(seed) +
                              " test_api --gtest_filter=EngineFuzz.*\n";
    const auto built = build_graph(graph, o);
    ASSERT_TRUE(built) << where << built.error().message;
    const std::vector<ir::Tensor> feeds = random_inputs(built->engine->plan(), seed);
    std::vector<ir::Tensor> results;
    ASSERT_EQ(faults_of(built->engine, threads, feeds, results), "") << where << tactics_of(built->engine->plan());
    CheckOptions options;
    options.threads = threads;
    const auto report = check(built->engine, built->graph, feeds, options);
    ASSERT_TRUE(report) << where << report.error().message;
    ASSERT_TRUE(report->ok()) << where << report->first_divergence() << "\n"
                              << ir::print(graph, {false}) << tactics_of(built->engine->plan());
    ASSERT_EQ(testing::first_difference(report->outputs, results), "") << where << tactics_of(built->engine->plan());
    for (const region::Region& r : built->engine->plan().regions) ++families[r.tactic.provider + "." + r.tactic.family];
  }
  for (const auto& [name, count] : families) std::printf("%s %d\n", name.c_str(), count);
  if (graphs >= 500) EXPECT_GT(families.size(), 8U);
}

}  // namespace
}  // namespace octavo::api
