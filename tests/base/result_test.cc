#include "base/result.h"

#include <gtest/gtest.h>

#include <set>

#include "base/hash.h"

namespace octavo {
namespace {

Result<int> half_of(int x) {
  if (x % 2 != 0) return fail(ErrorKind::usage, "odd: " + std::to_string(x));
  return x / 2;
}
Result<int> quarter_of(int x) {
  OCTAVO_TRY(const int half, half_of(x));
  OCTAVO_TRY(const int quarter, half_of(half));
  return quarter;
}
Status check(int x) {
  OCTAVO_CHECK(half_of(x));
  return {};
}

TEST(Result, TryPassesValuesAndErrorsOn) {
  EXPECT_EQ(quarter_of(8).value(), 2);
  EXPECT_EQ(quarter_of(6).error().message, "odd: 3");
  EXPECT_EQ(quarter_of(7).error().message, "odd: 7");
  EXPECT_TRUE(check(2));
  EXPECT_EQ(check(3).error().kind, ErrorKind::usage);
}

TEST(Result, ExitCodesAreDistinctAndNotZero) {
  std::set<int> codes;
  for (const ErrorKind kind : {ErrorKind::usage, ErrorKind::bad_model, ErrorKind::unsupported, ErrorKind::bad_input,
                               ErrorKind::bad_engine, ErrorKind::io, ErrorKind::internal}) {
    EXPECT_GT(exit_code(kind), 1);  // 1 is what a shell gives for much else
    EXPECT_TRUE(codes.insert(exit_code(kind)).second);
  }
}

/// Hashes are written in engine files and compared across machines: they may never change.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2ULL);  // XXH3-64 of nothing, seed 0
  EXPECT_EQ(hash128_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash64("a"), hash64("a", 1));
  EXPECT_NE(mix(1, 2), mix(2, 1));
  EXPECT_EQ(hash128_hex("octavo").size(), 32U);
}

}  // namespace
}  // namespace octavo
