// Kernels that let the next one begin take a parameter that says whether they do (cuda/text/next.h).
#include "cuda/text/next.h"

#include <gtest/gtest.h>

namespace octavo::testing {
namespace {

using cuda::Argument;

TEST(LetNextBegin, KernelsWithCallsTakeTheParameter) {
  cuda::KernelText t;
  t.text =
      "OCTAVO_KERNEL(32, 1) first(const unsigned char* x) {\n  octavo_wait_for_previous();\n}\n"
      "OCTAVO_KERNEL(32, 1) second(const unsigned char* x) {\n  if (a) octavo_let_next_begin();\n  octavo_let_next_begin();\n}\n"
      "OCTAVO_KERNEL(32, 1) third(const unsigned char* x) {\n  octavo_let_next_begin();\n}\n";
  for (const char* name : {"first", "second", "second", "third"}) {
    t.launches.push_back(cuda::launch_of(name, 1, 32));
    t.launches.back().arguments = {{Argument::Kind::buffer, 0, 0}};
  }
  cuda::take_next(t);
  EXPECT_EQ(t.text,
            "OCTAVO_KERNEL(32, 1) first(const unsigned char* x) {\n  octavo_wait_for_previous();\n}\n"
            "OCTAVO_KERNEL(32, 1) second(const unsigned char* x, int octavo_lets_next) {\n  if (a) "
            "octavo_let_next_begin(octavo_lets_next);\n  octavo_let_next_begin(octavo_lets_next);\n}\n"
            "OCTAVO_KERNEL(32, 1) third(const unsigned char* x, int octavo_lets_next) {\n  "
            "octavo_let_next_begin(octavo_lets_next);\n}\n");
  EXPECT_EQ(t.launches[0].arguments.size(), 1U);
  for (const std::size_t i : {1, 2, 3}) {
    ASSERT_EQ(t.launches[i].arguments.size(), 2U) << i;
    EXPECT_EQ(t.launches[i].arguments[1].kind, Argument::Kind::next) << i;
  }
}

}  // namespace
}  // namespace octavo::testing
