// Placement does not matter, through the whole compiler: random networks whose Q/DQ pairs are placed otherwise give the same plan
// hash, and every plan gives the bits of the reference on the original network, on every instruction set this processor has.
#include "support/placement.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ir/canonical.h"
#include "ir/grid.h"
#include "plan/plan.h"
#include "quant/normal_form.h"
#include "reference/evaluate.h"
#include "report/sentences.h"
#include "support/feeds.h"
#include "support/fuzz_setting.h"
#include "support/run_plan.h"
#include "support/tier.h"

namespace octavo {
namespace {

using testing::Tier;

constexpr std::uint64_t kPlacements = 5;

std::string listing(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions)
    out += "  " + r.name + " [" + r.tactic.name() + "] " + report::sentences(r.reasons) + "\n";
  return out;
}

bool has_table(const region::Plan& plan) {
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      if (!s.program.tables.empty()) return true;
    }
  }
  return false;
}

// Summation order is free in float convolutions, so graphs with one are only compared among their placements.
bool has_float_sum(const region::Plan& plan) {
  using ir::Op;
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      const Op op = s.anchor.op;
      const bool sums = s.anchor.weights || op == Op::avg_pool || op == Op::reduce_mean || op == Op::reduce_sum;
      if (sums && !s.anchor.integer) return true;
    }
  }
  return false;
}

/// A sum of floats in the graph as written: codes may be seen only in its normal form, when a clip that does nothing is gone.
bool sums_floats(const ir::Graph& g) {
  using ir::Op;
  const ir::Grids grids = ir::find_grids(g);
  for (const ir::NodeId id : g.order()) {
    const Op op = g.node(id).op;
    const bool sums = op == Op::conv || op == Op::conv_transpose || op == Op::gemm || op == Op::matmul || op == Op::avg_pool ||
                      op == Op::reduce_mean || op == Op::reduce_sum;
    if (sums && !ir::classify_anchor(g, grids, id).integer) return true;
  }
  return false;
}

struct Coverage {
  std::map<std::string, int> laws, operators, anchors, stores, tiers;
  void add(const plan::Planned& p, Tier tier) {
    for (const auto& report : p.reports) {
      for (const auto& s : report.stats) laws[s.rule] += s.applied;
    }
    for (const ir::NodeId id : p.graph.order()) ++operators[std::string(ir::name_of(p.graph.node(id).op))];
    for (const region::Region& r : p.plan.regions) {
      for (const region::Stage& s : r.stages) {
        std::string kind(s.anchor.none() ? "none" : ir::name_of(s.anchor.op));
        const auto group = s.anchor.op == ir::Op::conv ? s.anchor.as<ir::Window>().group : 1;
        if (s.anchor.op == ir::Op::conv && group > 1)
          kind = group == s.anchor.inputs[0].dims[1] ? "conv depthwise" : "conv grouped";
        ++anchors[kind];
        ++stores[std::to_string(s.stores.size())];
      }
    }
    ++tiers[testing::name_of(tier)];
  }
};

constexpr std::uint64_t kSearched = 8;

// The planner's search (effort 2, estimated costs) cannot tell placements apart either, and its plan computes the same bits. A
// float sum may be taken in another order, so then the outputs of placements are compared with each other.
int search_too(const ir::Graph& original, std::uint64_t seed, const std::vector<const region::Provider*>& providers,
               const std::vector<ir::Tensor>& feeds, const std::vector<ir::Tensor>& want, bool float_sum,
               const std::string& where) {
  plan::PlanOptions options;
  options.effort = 2;
  const auto planned = plan::make_plan(original, providers, options);
  EXPECT_TRUE(planned) << where << " effort 2\n" << planned.error().message;
  if (!planned) return 0;
  const auto got = testing::run_plan(planned->plan, providers, feeds);
  EXPECT_TRUE(got) << where << " effort 2\n" << got.error().message;
  if (got && !float_sum) EXPECT_EQ(testing::first_difference(want, *got), "") << where << " effort 2\n" << listing(planned->plan);
  testing::PlacementCounts moves;
  for (std::uint64_t k = 0; k < 2; ++k) {
    const auto other = plan::make_plan(testing::place_otherwise(original, seed * 37 + k, 12, moves), providers, options);
    EXPECT_TRUE(other) << where << " effort 2, placement " << k;
    if (other)
      EXPECT_EQ(region::plan_hash(planned->plan), region::plan_hash(other->plan)) << where << " effort 2, placement " << k << "\n"
                                                                                  << listing(planned->plan) << "other:\n"
                                                                                  << listing(other->plan);
  }
  return 1;
}

// OCTAVO_FULL and OCTAVO_LONG widen the run (support/fuzz_setting.h); OCTAVO_FUZZ_GRAPHS and OCTAVO_FUZZ_SEED repeat a part of it, or give each core a
// share (scripts/fuzz_shares.sh: 40000 graphs).
TEST(Placement, SamePlanAndSameBits) {
  const std::uint64_t graphs = testing::fuzz_setting("OCTAVO_FUZZ_GRAPHS", testing::rounds(500, 2000, 8000)),
                      first = testing::fuzz_setting("OCTAVO_FUZZ_SEED", 1);
  Coverage coverage;
  testing::PlacementCounts moves;
  int loose = 0, changed_hash = 0, same_table = 0, float_sums = 0, summed_codes = 0, unavailable = 0, searched = 0;
  for (std::uint64_t seed = first; seed < first + graphs && !HasFatalFailure(); ++seed) {
    Tier tier = testing::kTiers[seed % 4];
    if (!testing::available(tier)) {
      ++unavailable;
      tier = Tier::portable;
    }
    const std::string where = "seed " + std::to_string(seed) + ", " + testing::name_of(tier) +
                              "\n  repeat: OCTAVO_FUZZ_GRAPHS=1 OCTAVO_FUZZ_SEED=" + std::to_string(seed) +
                              " test_api --gtest_filter=Placement.*";
    const ir::Graph original = testing::random_network(seed, {.shuffles = seed % 2 == 0});
    const std::vector<const region::Provider*> providers{&testing::tier_provider(tier)};
    const auto planned = plan::make_plan(original, providers, {});
    ASSERT_TRUE(planned) << where << "\n" << planned.error().message;
    ASSERT_TRUE(region::verify(planned->plan)) << where << "\n" << region::verify(planned->plan).error().message;
    coverage.add(*planned, tier);
    const std::string hash = region::plan_hash(planned->plan);
    const auto feeds = testing::seeded_feeds(original, seed);
    auto want = reference::evaluate(original, feeds);
    ASSERT_TRUE(want) << where << "\n" << want.error().message;
    const auto got = testing::run_plan(planned->plan, providers, feeds, seed % 3 == 0);
    ASSERT_TRUE(got) << where << "\n" << got.error().message;
    const bool float_sum = has_float_sum(planned->plan);
    float_sums += float_sum;
    if (!float_sum && testing::first_difference(*want, *got) != "" && sums_floats(original)) {
      ++summed_codes;  // floats in the reference's order there, codes here: the normal form's bits count
      want = reference::evaluate(planned->graph, feeds);
      ASSERT_TRUE(want) << where << "\n" << want.error().message;
    }
    if (!float_sum) ASSERT_EQ(testing::first_difference(*want, *got), "") << where << "\n" << listing(planned->plan);

    for (std::uint64_t k = 0; k < kPlacements; ++k) {
      const ir::Graph placed = testing::place_otherwise(original, seed * 31 + k, 12, moves);
      const auto other = plan::make_plan(placed, providers, {});
      ASSERT_TRUE(other) << where << " placement " << k << "\n" << other.error().message;
      if (hash != region::plan_hash(other->plan) && testing::has_loose_codes(original)) {  // the same bits, by another plan
        ++loose;
        const auto same = testing::run_plan(other->plan, providers, feeds);
        ASSERT_TRUE(same) << where << "\n" << same.error().message;
        if (!float_sum && !has_float_sum(other->plan))
          ASSERT_EQ(testing::first_difference(*want, *same), "") << where << " placement " << k;
        continue;
      }
      ASSERT_EQ(hash, region::plan_hash(other->plan)) << where << " placement " << k << "\n"
                                                      << listing(planned->plan) << "other:\n"
                                                      << listing(other->plan);
      for (const auto& report : other->reports) {
        for (const auto& s : report.stats) coverage.laws[s.rule] += s.applied;
      }
      if (k > 0) continue;
      const auto same = testing::run_plan(other->plan, providers, feeds);
      ASSERT_TRUE(same) << where << "\n" << same.error().message;
      ASSERT_EQ(testing::first_difference(float_sum ? *got : *want, *same), "") << where << " placement " << k;
    }
    if (seed % kSearched == 0) searched += search_too(original, seed, providers, feeds, float_sum ? *got : *want, float_sum, where);
    const testing::Change change = testing::kChanges[seed % 4];
    if (const auto control = testing::change_meaning(original, change, seed)) {
      const auto other = plan::make_plan(*control, providers, {});
      ASSERT_TRUE(other) << where << " control " << testing::name_of(change) << "\n" << other.error().message;
      if (hash != region::plan_hash(other->plan)) {
        ++changed_hash;
      } else {  // only a table can hide a change: when its 256 entries come out the same, so does the plan
        ASSERT_TRUE(has_table(other->plan)) << where << " control " << testing::name_of(change) << "\n" << listing(planned->plan);
        ++same_table;
      }
    }
  }
  const auto show = [](const char* what, const std::map<std::string, int>& counts) {
    std::printf("%s:", what);
    for (const auto& [name, n] : counts) std::printf(" %s=%d", name.c_str(), n);
    std::printf("\n");
  };
  show("laws", coverage.laws);
  show("operators of the normal forms", coverage.operators);
  show("anchors", coverage.anchors);
  show("stores per region", coverage.stores);
  show("graphs per instruction set", coverage.tiers);
  show("placements moved by", moves);
  std::printf(
      "controls that changed the hash: %d, that left a table and the plan as they were: %d; graphs run on portable for lack of an "
      "instruction set: %d\n",
      changed_hash, same_table, unavailable);
  std::printf("graphs also searched at effort 2 with estimated costs: %d\n", searched);
  std::printf("placements of networks whose half-precision codes do not all come back, with another plan and the same bits: %d\n",
              loose);
  EXPECT_LE(loose, static_cast<int>(3 + graphs / 200));
  std::printf("graphs with a float convolution, compared among placements only: %d\n", float_sums);
  std::printf("graphs whose sums of floats are sums of codes in the normal form, and came out otherwise: %d\n", summed_codes);
  EXPECT_LE(summed_codes, static_cast<int>(3 + graphs / 1000));
  if (graphs < 500) return;  // a single repeated seed covers nothing
  for (const rewrite::Rule* law : quant::laws()) {
    const std::string name(law->name());
    EXPECT_GE(coverage.laws[name], 20) << "law " << name;
  }
  for (const char* op : {"conv", "conv_transpose", "gemm", "max_pool", "avg_pool", "reduce_mean", "reduce_max"}) {
    EXPECT_GE(coverage.operators[op], 20) << "operator " << op;
  }
  for (const char* anchor : {"none", "conv", "conv depthwise", "conv grouped", "conv_transpose", "max_pool", "avg_pool"}) {
    EXPECT_GE(coverage.anchors[anchor], 20) << "anchor " << anchor;
  }
  for (const char* n : {"1", "2", "3"}) EXPECT_GE(coverage.stores[n], 20) << n << " stores";
  EXPECT_GE(changed_hash, static_cast<int>(graphs / 4));
  EXPECT_GE(static_cast<int>(graphs) - float_sums, static_cast<int>(graphs / 2));
  EXPECT_LE(same_table * 10, changed_hash);
  EXPECT_GE(searched, static_cast<int>(graphs / 14));
}

// Different meaning, different hash, over all graphs of one run and one changed counterpart of each. Only equal tables may hide a change:
// then both graphs compute the same bits, which is looked at.
TEST(Placement, NoTwoMeaningsShareAHash) {
  const std::uint64_t graphs = testing::fuzz_setting("OCTAVO_FUZZ_GRAPHS", testing::rounds(700, 2000, 40000)),
                      first = testing::fuzz_setting("OCTAVO_FUZZ_SEED", 1);
  const std::vector<const region::Provider*> providers{&testing::tier_provider(Tier::portable)};
  const auto network = [](std::uint64_t seed, bool changed) {
    const ir::Graph graph = testing::random_network(seed, {.shuffles = seed % 2 == 0});
    return changed ? testing::change_meaning(graph, testing::kChanges[seed % 4], seed) : std::optional<ir::Graph>(graph);
  };
  struct Known {
    std::uint64_t meaning, seed;  ///< digest of the normal form
    bool changed;
  };
  std::map<std::string, Known> known;  // by plan hash
  int plans = 0, equal = 0, tables = 0;
  for (std::uint64_t seed = first; seed < first + graphs && !HasFailure(); ++seed) {
    for (const bool changed : {false, true}) {
      const auto graph = network(seed, changed);
      if (!graph) continue;
      const auto planned = plan::make_plan(*graph, providers, {});
      ASSERT_TRUE(planned) << "seed " << seed << "\n" << planned.error().message;
      ++plans;
      const Known now{ir::graph_hash(planned->graph), seed, changed};
      const auto [it, fresh] = known.try_emplace(region::plan_hash(planned->plan), now);
      if (fresh) continue;
      const Known& before = it->second;
      if (before.meaning == now.meaning) {
        ++equal;
        continue;
      }
      ++tables;
      const std::string where = "seeds " + std::to_string(before.seed) + (before.changed ? " changed" : "") + " and " +
                                std::to_string(seed) + (changed ? " changed" : "") + "\n" + listing(planned->plan);
      ASSERT_TRUE(has_table(planned->plan)) << where;
      const auto other = network(before.seed, before.changed);
      const auto feeds = testing::seeded_feeds(*graph, seed);
      const auto a = reference::evaluate(*other, feeds), b = reference::evaluate(*graph, feeds);
      ASSERT_TRUE(a && b) << where;
      if (!has_float_sum(planned->plan)) EXPECT_EQ(testing::first_difference(*a, *b), "") << where;
    }
  }
  std::printf("plans: %d; of the same meaning as an earlier one: %d; of equal tables: %d\n", plans, equal, tables);
  EXPECT_LE(tables * 20, plans);
}

}  // namespace
}  // namespace octavo
