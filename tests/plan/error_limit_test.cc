// The search under --max-error, on made-up errors.
#include "plan/precision/error_limit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace octavo::plan {
namespace {

using Names = std::set<std::string>;

std::vector<ErrorUnit> units(const std::vector<double>& gains) {
  std::vector<ErrorUnit> out;
  for (std::size_t i = 0; i < gains.size(); ++i) out.push_back({{std::to_string(i)}, gains[i], 0});
  return out;
}

/// Errors that add up: `each[i]` for every unit that is not in float.
auto sum_of(std::vector<double> each, double always = 0) {
  return [each = std::move(each), always](const Names& in_float) -> Result<double> {
    double sum = always;
    for (std::size_t i = 0; i < each.size(); ++i) sum += in_float.contains(std::to_string(i)) ? 0 : each[i];
    return sum;
  };
}

TEST(ErrorLimit, OneEvaluationWhenNothingExceeds) {
  auto u = units({1, 1, 1});
  const auto r = limit_error(u, 0.75, sum_of({0.125, 0.25, 0.375}));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->evaluations, 1);
  EXPECT_TRUE(r->kept.empty());
  EXPECT_EQ(r->before, 0.75);
  EXPECT_EQ(r->after, 0.75);
}

TEST(ErrorLimit, WhatCostsLeastForItsErrorStaysFloat) {
  auto u = units({10, 1, 5});  // equal errors: the one that int8 speeds up least
  const auto r = limit_error(u, 0.25, sum_of({0.1, 0.1, 0.1}));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->kept, std::vector<std::size_t>{1});
  EXPECT_DOUBLE_EQ(r->before, 0.3);
  EXPECT_DOUBLE_EQ(r->after, 0.2);
  for (const ErrorUnit& unit : u) EXPECT_DOUBLE_EQ(unit.alone, 0.1);
}

TEST(ErrorLimit, WhatGainsNothingGoesFirst) {
  auto u = units({10, -1, 10});
  const auto r = limit_error(u, 0.375, sum_of({0.125, 0.125, 0.25}));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->kept, std::vector<std::size_t>{1});
}

TEST(ErrorLimit, WhatWentInForItsPriceComesBackWhenALaterOneSuffices) {
  auto u = units({0.001, 0.001, 1});  // the two small errors are cheap, and not enough
  const auto r = limit_error(u, 0.1, sum_of({0.02, 0.03, 1}));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->kept, std::vector<std::size_t>{2});
  EXPECT_DOUBLE_EQ(r->after, 0.05);
}

/// Errors need not fall when a layer becomes float: here 0 and 1 cancel each other, and either alone in int8 is bad.
TEST(ErrorLimit, ErrorsThatCancel) {
  const auto cancel = [](const Names& in_float) -> Result<double> {
    const bool a = !in_float.contains("0"), b = !in_float.contains("1"), c = !in_float.contains("2");
    return (a != b ? 1.0 : 0.0) + (c ? 0.5 : 0.0);
  };
  auto u = units({1, 1, 100});
  const auto r = limit_error(u, 0.1, cancel);
  ASSERT_TRUE(r);
  Names in_float;
  for (const std::size_t k : r->kept) in_float.insert(std::to_string(k));
  EXPECT_EQ(*cancel(in_float), r->after);
  EXPECT_LE(r->after, 0.1);
}

/// Any error at all for each subset, but for the empty one: what is returned keeps the limit, is what was measured, and every kept
/// unit but one is needed.
TEST(ErrorLimit, ArbitraryErrors) {
  int searched = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t n = 1 + random() % 9;
    std::vector<double> gains, table(std::size_t{1} << n);
    for (std::size_t i = 0; i < n; ++i) gains.push_back(static_cast<double>(random() % 7) - 1);
    for (double& e : table) e = static_cast<double>(random() % 1000) / 1000;
    if (seed % 5 == 0) table[0] = std::numeric_limits<double>::infinity();
    table.back() = 0;  // all in float
    int calls = 0;
    const auto error = [&](const Names& in_float) -> Result<double> {
      ++calls;
      std::size_t mask = 0;
      for (const std::string& name : in_float) mask |= std::size_t{1} << std::stoul(name);
      return table[mask];
    };
    auto u = units(gains);
    const double limit = static_cast<double>(random() % 500) / 1000;
    const auto r = limit_error(u, limit, error);
    ASSERT_TRUE(r) << "seed " << seed;
    EXPECT_EQ(r->evaluations, calls) << "seed " << seed;
    EXPECT_LE(calls, 2 * static_cast<int>(n) + static_cast<int>(std::log2(n)) + 3) << "seed " << seed;
    Names in_float;
    for (const std::size_t k : r->kept) in_float.insert(std::to_string(k));
    EXPECT_EQ(*error(in_float), r->after) << "seed " << seed;
    EXPECT_LE(r->after, limit) << "seed " << seed;
    searched += r->kept.empty() ? 0 : 1;
  }
  EXPECT_GT(searched, 200);
}

TEST(ErrorLimit, ImpossibleIsRefusedWithTheFigure) {
  auto u = units({1, 1});
  const auto r = limit_error(u, 0.01, sum_of({0.1, 0.1}, 0.02));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::usage);
  EXPECT_NE(r.error().message.find("--max-error 0.01: with no permitted layer in int8 an output still differs by 0.02 of"),
            std::string::npos)
      << r.error().message;
  std::vector<ErrorUnit> none;
  EXPECT_FALSE(limit_error(none, 0.01, sum_of({}, 0.02)));
  EXPECT_TRUE(limit_error(none, 0.02, sum_of({}, 0.02)));
}

TEST(ErrorLimit, TheErrorsOfEvaluationAreHandedOn) {
  auto u = units({1});
  const auto r = limit_error(u, 0.01, [](const Names&) -> Result<double> { return fail(ErrorKind::internal, "no such operator"); });
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message, "no such operator");
}

}  // namespace
}  // namespace octavo::plan
