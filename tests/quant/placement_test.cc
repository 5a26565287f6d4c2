// Placement does not matter: graphs whose Q/DQ are placed otherwise, with the same meaning, normalize to the same graph; a change
// of meaning does not. OCTAVO_SEED=n runs one network and prints both normal forms when they differ; OCTAVO_GRAPHS=n sets how many
// networks.
#include "support/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "base/hash.h"
#include "ir/canonical.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "quant/normal_form.h"
#include "reference/evaluate.h"
#include "support/feeds.h"
#include "support/fuzz_setting.h"

namespace octavo {
namespace {

using testing::random_network;

constexpr int kPlacements = 3, kSteps = 16;

std::uint64_t number(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}
bool single() {
  return std::getenv("OCTAVO_SEED") != nullptr;
}
std::uint64_t first_seed() {
  return number("OCTAVO_SEED", 1);
}
std::uint64_t last_seed(std::uint64_t graphs) {
  return single() ? first_seed() : number("OCTAVO_GRAPHS", graphs);
}
std::string repeat(std::uint64_t seed) {
  return fmt::format("repeat: OCTAVO_SEED={} test_quant --gtest_filter=Placement.*", seed);
}

/// graph_hash does not tell one node from two equal ones; their number does.
std::uint64_t identity(const ir::Graph& g) {
  return mix(ir::graph_hash(g), g.order().size());
}

std::string text(const ir::Graph& g) {
  return ir::print(g, {.full_constants = false, .origins = false});
}

ir::Graph normalized(ir::Graph g, std::map<std::string, int>* hits = nullptr, const rewrite::RunOptions& options = {}) {
  const auto report = quant::normalize(g, options);
  EXPECT_TRUE(report) << report.error().message;
  if (report && hits) {
    for (const rewrite::RuleStats& s : report->stats) (*hits)[s.rule] += s.applied;
  }
  return g;
}

TEST(Placement, SameMeaningSameNormalFormSameValues) {
  std::map<std::string, int> hits;
  testing::PlacementCounts ways;
  std::uint64_t nodes = 0, compared = 0;
  for (std::uint64_t seed = first_seed(); seed <= last_seed(testing::rounds(400, 1000)); ++seed) {
    SCOPED_TRACE(repeat(seed));
    const ir::Graph original = random_network(seed);
    nodes += original.order().size();
    const Status valid = ir::verify(original);
    ASSERT_TRUE(valid) << valid.error().message;
    const auto feeds = testing::seeded_feeds(original, seed);
    const auto expected = reference::evaluate(original, feeds);
    ASSERT_TRUE(expected) << expected.error().message;

    const ir::Graph normal = normalized(original, &hits, {.disabled = {}, .verify = seed <= first_seed() + 60, .dump = {}});
    if (single()) fmt::print("original\n{}\nnormal form\n{}\n", text(original), text(normal));
    const auto values = reference::evaluate(normal, feeds);
    ASSERT_TRUE(values) << values.error().message;
    ASSERT_EQ(testing::first_difference(*expected, *values), "") << "the normal form computes other values";
    ASSERT_EQ(identity(normalized(normal)), identity(normal)) << "normalizing twice is not normalizing once";

    for (int i = 0; i < kPlacements; ++i) {
      const ir::Graph placed = testing::place_otherwise(original, seed * 16 + static_cast<std::uint64_t>(i), kSteps, ways);
      const Status placed_valid = ir::verify(placed);
      ASSERT_TRUE(placed_valid) << placed_valid.error().message;
      const ir::Graph other = normalized(placed, &hits);
      if (identity(other) != identity(normal)) {
        if (single()) fmt::print("placed otherwise\n{}\nits normal form\n{}\n", text(placed), text(other));
        FAIL() << "placement " << i << " has another normal form";
      }
      const auto placed_values = reference::evaluate(other, feeds);
      ASSERT_TRUE(placed_values) << placed_values.error().message;
      ASSERT_EQ(testing::first_difference(*expected, *placed_values), "") << "placement " << i;
      ++compared;
    }
  }
  fmt::print("{} placements compared, {} nodes in the originals\n", compared, nodes);
  for (const auto& [way, count] : ways) fmt::print("  {:6} {}\n", count, way);
  fmt::print("laws applied\n");
  for (const auto& [law, count] : hits) fmt::print("  {:6} {}\n", count, law);
  if (single() || std::getenv("OCTAVO_GRAPHS")) return;
  const int least = static_cast<int>(last_seed(testing::rounds(400, 1000)) / 50);
  for (const auto& [way, count] : ways) EXPECT_GE(count, least) << way;
  for (const rewrite::Rule* law : quant::laws()) EXPECT_GE(hits[std::string(law->name())], least) << law->name();
}

std::set<std::string> origins(const ir::Graph& g) {
  std::set<std::string> all;
  for (const ir::NodeId id : g.order()) all.insert(g.node(id).origin.begin(), g.node(id).origin.end());
  return all;
}

/// Every node of the model stays accounted for, but those that leave nothing between an input and an output.
TEST(Placement, NoNodeOfTheModelIsForgotten) {
  int forgotten = 0, nodes = 0;
  for (std::uint64_t seed = first_seed(); seed <= last_seed(300); ++seed) {
    SCOPED_TRACE(repeat(seed));
    const ir::Graph original = random_network(seed, {.typed_edges = false});
    const std::set<std::string> kept = origins(normalized(original));
    for (const std::string& name : origins(original)) {
      ++nodes;
      forgotten += kept.contains(name) ? 0 : 1;
      EXPECT_TRUE(kept.contains(name)) << name;
    }
  }
  fmt::print("{} of {} nodes forgotten\n", forgotten, nodes);
}

TEST(Placement, AChangeOfMeaningChangesTheNormalForm) {
  std::map<std::string, int> done;
  for (std::uint64_t seed = first_seed(); seed <= last_seed(300); ++seed) {
    SCOPED_TRACE(repeat(seed));
    const ir::Graph original = random_network(seed);
    const std::uint64_t normal = identity(normalized(original));
    for (const testing::Change change : testing::kChanges) {
      const auto changed = testing::change_meaning(original, change, seed);
      if (!changed) continue;
      ++done[testing::name_of(change)];
      if (single() && identity(normalized(*changed)) == normal)
        fmt::print("{}\n{}\nnormal form\n{}\n", testing::name_of(change), text(*changed), text(normalized(*changed)));
      EXPECT_NE(identity(normalized(*changed)), normal) << testing::name_of(change);
    }
  }
  for (const testing::Change change : testing::kChanges) {
    fmt::print("  {:6} {}\n", done[testing::name_of(change)], testing::name_of(change));
    EXPECT_TRUE(single() || done[testing::name_of(change)] >= 20);
  }
}

/// Networks and placements that long fuzzing found: parts of a concat that a slice or gather leaves out.
constexpr std::pair<std::uint64_t, std::uint64_t> kFound[] = {{1007633, 1}, {1010089, 0}, {1017562, 4}, {1075108, 4}};

TEST(Placement, FoundByFuzzing) {
  for (const auto& [seed, k] : kFound) {
    const ir::Graph original = random_network(seed);
    testing::PlacementCounts counts;
    EXPECT_EQ(identity(normalized(testing::place_otherwise(original, seed * 31 + k, 12, counts))), identity(normalized(original)))
        << seed;
  }
}

/// The suite would notice a missing law: with one law off, some placement keeps another normal form, or the normal form is larger.
TEST(Placement, EachLawIsNeeded) {
  for (const rewrite::Rule* law : quant::laws()) {
    rewrite::RunOptions options;
    options.disabled.emplace(law->name());
    std::string noticed;
    for (const auto& [seed, k] : kFound) {
      const ir::Graph original = random_network(seed);
      testing::PlacementCounts counts;
      const ir::Graph placed = testing::place_otherwise(original, seed * 31 + k, 12, counts);
      if (identity(normalized(placed, nullptr, options)) != identity(normalized(original, nullptr, options))) noticed = "placement";
    }
    for (std::uint64_t seed = 1; seed <= 400 && noticed.empty(); ++seed) {
      const ir::Graph original = random_network(seed);
      testing::PlacementCounts counts;
      const ir::Graph without = normalized(original, nullptr, options);
      for (int i = 0; i < kPlacements && noticed.empty(); ++i) {
        const ir::Graph placed = testing::place_otherwise(original, seed * 16 + static_cast<std::uint64_t>(i), kSteps, counts);
        if (identity(normalized(placed, nullptr, options)) != identity(without)) noticed = "placement";
      }
      // merge-quantize only shortens what every placement has become already, and no way of re-placing adds a leaky_relu.
      const bool shortens = law->name() == "merge-quantize" || law->name() == "drop-leaky-relu";
      if (shortens && without.order().size() > normalized(original).order().size()) noticed = "size";
    }
    EXPECT_NE(noticed, "") << law->name() << " can be switched off without any placement noticing";
  }
}

/// The laws in another order, at nodes in another order, one application at a time.
ir::Graph normalized_at_random(ir::Graph g, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<const rewrite::Rule*> first = quant::laws(), last{first.back()};
  first.pop_back();
  for (const auto& rules : {first, last}) {
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<std::pair<ir::NodeId, const rewrite::Rule*>> moves;
      for (const ir::NodeId id : g.order()) {
        for (const rewrite::Rule* rule : rules) moves.emplace_back(id, rule);
      }
      std::shuffle(moves.begin(), moves.end(), random);
      ir::Grids grids = ir::find_grids(g);
      for (const auto& [id, rule] : moves) {
        if (g.node(id).dead || rule->apply(g, id, grids).kind != rewrite::Outcome::Kind::applied) continue;
        changed = true;
        g.touch();
        g.remove_dead();
        grids = ir::find_grids(g);
      }
    }
  }
  ir::number_values(g);
  return ir::compact(g);
}

TEST(Placement, TheOrderOfLawsDoesNotMatter) {
  for (std::uint64_t seed = first_seed(); seed <= last_seed(testing::rounds(100, 300)); ++seed) {
    SCOPED_TRACE(repeat(seed));
    testing::PlacementCounts counts;
    const ir::Graph placed = testing::place_otherwise(random_network(seed), seed * 16, kSteps, counts);
    const ir::Graph normal = normalized(placed);
    for (std::uint64_t order = 0; order < 3; ++order) {
      const ir::Graph other = normalized_at_random(placed, seed * 16 + order);
      if (single() && identity(other) != identity(normal))
        fmt::print("placed\n{}\nusual order\n{}\nother order\n{}\n", text(placed), text(normal), text(other));
      ASSERT_EQ(identity(other), identity(normal)) << "order " << order;
    }
  }
}

}  // namespace
}  // namespace octavo
