#include "base/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace octavo {
namespace {

TEST(Limits, ReadsTheContainersLimit) {
  EXPECT_EQ(bytes_of_limit("1073741824\n"), 1073741824);
  EXPECT_EQ(bytes_of_limit("max\n"), 0);
  EXPECT_EQ(bytes_of_limit(""), 0);
  EXPECT_EQ(bytes_of_limit("-5"), 0);
  EXPECT_EQ(bytes_of_limit("99999999999999999999999"), 0);
}

TEST(Limits, NeverMoreThanTheAddressSpace) {
  EXPECT_GT(memory_bytes(), std::int64_t{1} << 20);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small{64 << 20, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &small) != 0) ::_exit(2);
    ::_exit(memory_bytes() <= (64 << 20) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
#endif
}

}  // namespace
}  // namespace octavo
