// The search of precisions on networks that exist in arithmetic only: noises add up, and so do times.
#include "quantize/search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace octavo::quantize {
namespace {

/// Layers with a noise each; `measure` counts how often it was asked.
struct Additive {
  std::map<std::string, double> noise, seconds;
  int measured = 0;

  [[nodiscard]] double sqnr(const std::set<std::string>& in_float) const {
    double sum = 0;
    for (const auto& [node, n] : noise) sum += in_float.contains(node) ? 0 : n;
    return sum > 0 ? -10 * std::log10(sum) : INFINITY;
  }
  Laboratory laboratory() {
    Laboratory lab;
    for (const auto& [node, n] : noise) lab.layers.push_back(node);
    lab.gain = seconds;
    lab.noise = [this](const std::set<std::string>& in_float) -> Result<double> { return sqnr(in_float); };
    lab.measure = [this](const std::set<std::string>& in_float) -> Result<CurvePoint> {
      ++measured;
      CurvePoint p;
      p.in_float = in_float;
      p.sqnr = sqnr(in_float);
      for (const auto& [node, s] : seconds) p.seconds += in_float.contains(node) ? 2 * s : s;
      return p;
    };
    return lab;
  }
};

std::set<std::string> chosen(const PrecisionSearch& s) {
  std::set<std::string> out;
  for (const Sensitivity& l : s.layers) {
    if (l.in_float) out.insert(l.node);
  }
  return out;
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
  EXPECT_EQ(chosen(*found), (std::set<std::string>{"b", "c"}));
  EXPECT_GE(n.sqnr(chosen(*found)), 25.0);
  EXPECT_EQ(found->layers.front().node, "b");
}

TEST(Search, ALayerThatSavesMuchTimeStaysInt8AndOneThatIsNotNeededComesBack) {
  Additive n = network();
  n.seconds["b"] = 1e4;  // noise a second: c, then a, d, b
  const auto found = search_precision(n.laboratory(), {25.0, {}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), (std::set<std::string>{"b", "c"}));  // only with b the bound holds; a and d came back
}

TEST(Search, ABoundThatFloatLayersDoNotMeetIsAnError) {
  Additive n = network();
  Laboratory lab = n.laboratory();
  const auto measure = lab.measure;
  lab.measure = [&](const std::set<std::string>& in_float) -> Result<CurvePoint> {
    auto p = measure(in_float);
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
  lab.measure = [&](const std::set<std::string>& in_float) -> Result<CurvePoint> {
    auto p = measure(in_float);
    p->score = in_float.contains("b") ? 0.8 : 0.7;
    return p;
  };
  const auto found = search_precision(lab, {{}, 0.01});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(chosen(*found), (std::set<std::string>{"b"}));
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
}

}  // namespace
}  // namespace octavo::quantize
