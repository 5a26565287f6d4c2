// Every kernel of a text waits for the one before it, and none twice.
#include "cuda/text/early_start.h"

#include <gtest/gtest.h>

namespace octavo::cuda {
namespace {

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(EarlyStart, KernelsWaitFirstOrWhereTheySay) {
  const std::string text =
      "OCTAVO_KERNEL(256, 1) one(const unsigned char* x) {\n  if (*x) return;\n}\n"
      "OCTAVO_KERNEL(kThreads, 2) two(int y) {\n  prepare();\n  octavo_wait_for_previous();\n}\n"
      "OCTAVO_KERNEL(32, 1) three() {}\n";
  const std::string out = waiting_for_previous(text);
  EXPECT_EQ(count(out, "octavo_wait_for_previous();"), 3) << out;
  EXPECT_LT(out.find("octavo_wait_for_previous();"), out.find("if (*x) return;"));
  EXPECT_GT(out.rfind("octavo_wait_for_previous();"), out.find("three()"));
  EXPECT_NE(out.find("two(int y) {\n  prepare();"), std::string::npos) << "it may read constants first";
  EXPECT_EQ(waiting_for_previous(out), out);
}

TEST(EarlyStart, FromHopperOn) {
  for (const char* no : {"sm_75", "sm_80", "sm_89", ""}) EXPECT_FALSE(can_start_early(no)) << no;
  for (const char* yes : {"sm_90", "sm_90a", "sm_100", "sm_120a"}) EXPECT_TRUE(can_start_early(yes)) << yes;
}

}  // namespace
}  // namespace octavo::cuda
