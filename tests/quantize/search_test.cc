// The search of precisions on networks that exist in arithmetic only: noises add up, and so do times.
#include "quantize/search/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace octavo::quantize {
namespace {

/// Layers with a noise each in int8, and maybe one in bfloat16; `measured` counts how often it was asked. A run takes `seconds` in
/// int8, twice that in float32, and `part` of the difference more in bfloat16.
struct Additive {
  std::map<std::string, double> noise, seconds, small = {};
  double part = 0.5;
  int measured = 0;

  [[nodiscard]] double sqnr(const WideLayers& wide) const {
    double sum = 0;
    for (const auto& [node, n] : noise) sum += wide.float32.contains(node) ? 0 : wide.bfloat16.contains(node) ? small.at(node) : n;
    return sum > 0 ? -10 * std::log10(sum) : INFINITY;
  }
  Laboratory laboratory() {
    Laboratory lab;
    for (const auto& [node, n] : noise) lab.layers.push_back(node);
    lab.gain = seconds;
    for (const auto& [node, n] : small) {
      lab.may_bfloat16.insert(node);
      lab.gain_over_bfloat16[node] = part * seconds.at(node);
    }
    lab.noise = [this](const WideLayers& wide) -> Result<double> { return sqnr(wide); };
    lab.measure = [this](const WideLayers& wide) -> Result<CurvePoint> {
      ++measured;
      CurvePoint p;
      p.wide = wide;
      p.sqnr = sqnr(wide);
      for (const auto& [node, s] : seconds)
        p.seconds += s * (wide.float32.contains(node) ? 2 : wide.bfloat16.contains(node) ? 1 + part : 1);
      return p;
    };
    return lab;
  }
};

WideLayers chosen(const PrecisionSearch& s) {
  WideLayers out;
  for (const Sensitivity& l : s.layers) {
    if (l.type == "float32") out.float32.insert(l.node);
    if (l.type == "bfloat16") out.bfloat16.insert(l.node);
  }
  for (const CurvePoint& p : s.curve) {
    if (p.chosen) {
      EXPECT_EQ(p.wide, out);
    }
  }
  return out;
}
WideLayers in_float(const std::set<std::string>& nodes) {
  return {nodes, {}};
}

Additive network() {
  return {{{"a", 1e-3}, {"b", 1e-1}, {"c", 1e-2}, {"d", 1e-4}}, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}};
}

TEST(Search, NothingGoesToFloatWhereTheBoundHolds) {
  Additive n = network();
  const auto found = search_precision(n.laboratory(), {5.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(chosen(*found).empty());
  EXPECT_TRUE(found->curve.front().chosen);
}

TEST(Search, TheFewestNoisyLayersGoAndTheBoundHolds) {
  Additive n = network();
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), in_float({"b", "c"}));
  EXPECT_GE(n.sqnr(chosen(*found)), 25.0);
  EXPECT_EQ(found->layers.front().node, "b");
}

TEST(Search, ALayerThatSavesMuchTimeStaysInt8AndOneThatIsNotNeededComesBack) {
  Additive n = network();
  n.seconds["b"] = 1e4;  // noise a second: c, then a, d, b
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), in_float({"b", "c"}));  // only with b the bound holds; a and d came back
}

TEST(Search, ABoundThatFloatLayersDoNotMeetIsAnError) {
  Additive n = network();
  Laboratory lab = n.laboratory();
  const auto measure = lab.measure;
  lab.measure = [&](const WideLayers& wide) -> Result<CurvePoint> {
    auto p = measure(wide);
    p->sqnr = std::min(p->sqnr, 30.0);  // additions round, too
    return p;
  };
  const auto found = search_precision(lab, {40.0, {}});
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("all 4 layers in float"), std::string::npos);
}

TEST(Search, ADropOfRightAnswersIsABoundToo) {
  Additive n = network();
  Laboratory lab = n.laboratory();
  lab.float_score = 0.8;
  const auto measure = lab.measure;
  lab.measure = [&](const WideLayers& wide) -> Result<CurvePoint> {
    auto p = measure(wide);
    p->score = wide.contains("b") ? 0.8 : 0.7;
    return p;
  };
  const auto found = search_precision(lab, {{}, 0.01});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), in_float({"b"}));
}

/// As network(), each layer a thousandth as noisy in bfloat16.
Additive with_bfloat16() {
  Additive n = network();
  for (const auto& [node, noise] : n.noise) n.small[node] = noise / 1000;
  return n;
}

TEST(Search, LayersGoToBfloat16FirstWhereTheyMay) {
  Additive n = with_bfloat16();
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), (WideLayers{{}, {"b", "c"}}));
  EXPECT_DOUBLE_EQ(found->layers.front().gain, 0.5) << "over bfloat16, not over float32";
  n.small.erase("b");
  const auto mixed = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(mixed.has_value());
  EXPECT_EQ(chosen(*mixed), (WideLayers{{"b"}, {"c"}})) << "b cannot be bfloat16";
}

TEST(Search, BfloatOnlyWhereItIsBetterThanInt8) {
  Additive n = with_bfloat16();
  n.small["b"] = 0.2;  // in int8 0.1
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), (WideLayers{{"b"}, {"c"}}));
  for (const CurvePoint& p : found->curve) EXPECT_FALSE(p.wide.bfloat16.contains("b"));
  Laboratory lab = n.laboratory();
  lab.may_float32 = false;
  EXPECT_FALSE(search_precision(lab, {25.0, {}}).has_value()) << "b has to stay int8";
}

TEST(Search, OnlyLayersThatAreTooNoisyInBfloat16GoToFloat32) {
  Additive n = with_bfloat16();
  n.small["c"] = 5e-3;  // as good as int8
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  // With all in bfloat16 the noise is 5.1e-3, 22.9 dB; with c in float32 1e-4, and then a and d may be int8 again.
  EXPECT_EQ(chosen(*found), (WideLayers{{"c"}, {"b"}}));
  EXPECT_GE(n.sqnr(chosen(*found)), 25.0);
  for (const Sensitivity& s : found->layers) {
    ASSERT_TRUE(s.sqnr_bfloat16) << s.node;
    EXPECT_NEAR(*s.sqnr_bfloat16, -10 * std::log10(n.small.at(s.node)), 1e-9) << "alone: the others were exact";
  }
}

TEST(Search, ALayerThatLosesMuchTimeInFloat32StaysBfloat16WhereAnotherWillDo) {
  Additive n = with_bfloat16();
  n.small = {{"a", 0}, {"b", 2e-3}, {"c", 2e-3}, {"d", 0}};
  n.seconds = {{"a", 1}, {"b", 100}, {"c", 1}, {"d", 1}};
  const auto found = search_precision(n.laboratory(), {24.5, {}});  // noise 3.5e-3: b and c in bfloat16 alone make 4e-3
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(chosen(*found).bfloat16.contains("b"));
  EXPECT_TRUE(chosen(*found).float32.contains("c"));
  EXPECT_GE(n.sqnr(chosen(*found)), 24.5);
}

TEST(Search, WithoutFloat32TheBoundMayBeBeyondBfloat16) {
  Additive n = with_bfloat16();
  Laboratory lab = n.laboratory();
  lab.may_float32 = false;
  const auto found = search_precision(lab, {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), (WideLayers{{}, {"b", "c"}}));
  const auto beyond = search_precision(lab, {60.0, {}});
  ASSERT_FALSE(beyond.has_value());
  EXPECT_NE(beyond.error().message.find("all 4 layers in bfloat16 either"), std::string::npos) << beyond.error().message;
  EXPECT_NE(beyond.error().message.find("allow float32 as well"), std::string::npos) << beyond.error().message;
  lab.may_bfloat16.erase("b");
  const auto stays = search_precision(lab, {9.0, {}});
  ASSERT_TRUE(stays.has_value());
  EXPECT_FALSE(chosen(*stays).contains("b")) << "it has no other type";
}

/// Networks by seed: the bound holds, no layer of a bfloat16 that keeps it is in float32 without need, and nothing is measured often.
TEST(Search, WhateverTheNoiseTheBoundHoldsAndEachWideLayerIsNeeded) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> power(-6, -1), ratio(-4, 0.5);
    Additive n;
    for (int i = 0; i < 12; ++i) {
      const std::string node = fmt::format("n{}", i);
      n.noise[node] = std::pow(10, power(random));
      n.seconds[node] = std::pow(10, power(random));
      if (i % 4 != 3) n.small[node] = n.noise[node] * std::pow(10, ratio(random));
    }
    const double bound = 10 + static_cast<double>(seed % 50);
    const auto found = search_precision(n.laboratory(), {bound, {}});
    ASSERT_TRUE(found.has_value()) << "seed " << seed;
    const WideLayers wide = chosen(*found);
    EXPECT_GE(n.sqnr(wide), bound) << "seed " << seed;
    EXPECT_LT(n.measured, 80) << "seed " << seed;
    for (const std::string& node : wide.float32) {
      WideLayers less = wide;
      less.float32.erase(node);
      EXPECT_LT(n.sqnr(less), bound) << "seed " << seed << ": " << node << " may be int8";
    }
    for (const std::string& node : wide.bfloat16) {
      WideLayers less = wide;
      less.bfloat16.erase(node);
      EXPECT_LT(n.sqnr(less), bound) << "seed " << seed << ": " << node << " may be int8";
    }
    // Each layer in float32 that is better in bfloat16 than in int8 is there because all of these in bfloat16 do not keep the bound.
    const auto better = [&](const std::string& node) { return n.small.contains(node) && n.small.at(node) < n.noise.at(node); };
    WideLayers all;
    for (const auto& [node, noise] : n.noise) (better(node) ? all.bfloat16 : all.float32).insert(node);
    const bool spared = std::none_of(wide.float32.begin(), wide.float32.end(), better);
    EXPECT_TRUE(spared || n.sqnr(all) < bound) << "seed " << seed;
  }
}

TEST(Search, ThePictureShowsEveryPoint) {
  Additive n = network();
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  const std::string svg = curve_svg(*found);
  std::size_t circles = 0, finite = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++circles;
  for (const CurvePoint& p : found->curve) finite += std::isfinite(p.sqnr) ? 1U : 0U;
  EXPECT_EQ(circles, finite);
  EXPECT_NE(svg.find("2 float"), std::string::npos);
  Additive small = with_bfloat16();
  const auto mixed = search_precision(small.laboratory(), {25.0, {}});
  ASSERT_TRUE(mixed.has_value());
  EXPECT_NE(curve_svg(*mixed).find("2 bfloat16, 0 float"), std::string::npos);
}

}  // namespace
}  // namespace octavo::quantize
