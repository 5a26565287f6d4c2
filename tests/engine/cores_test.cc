#include "engine/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace octavo::engine {
namespace {

TEST(AvailableCores, WithinTheMachine) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), cores_of_mask());
  EXPECT_LE(cores_of_mask(), static_cast<int>(std::thread::hardware_concurrency()));
}

// So many threads can run at the same moment, whatever a quota grants.
TEST(AvailableCores, OfTheMask) {
  std::thread([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(cores_of_mask(), CPU_COUNT(&set));
    for (unsigned i = 0; i < CPU_SETSIZE && CPU_COUNT(&set) > 1; ++i) CPU_CLR(i, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(cores_of_mask(), 1);
    EXPECT_EQ(available_cores(), 1);
  }).join();
}

TEST(AvailableCores, QuotaOfOneLine) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("100000 100000"), 1);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("1000 100000"), 1);
  for (const char* other : {"", "0 0", "-1 100000", "5", "x y"}) EXPECT_EQ(cores_of_quota(other), 0) << other;
}

class Groups : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "octavo_groups_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::string root_;
};

TEST_F(Groups, Version2TakesTheLeastOfTheParents) {
  write("cpu.max", "max 100000");
  write("a/cpu.max", "300000 100000");
  write("a/b/cpu.max", "max 100000");
  EXPECT_EQ(cores_of_groups(root_, "0::/a/b\n"), 3);
  EXPECT_EQ(cores_of_groups(root_, "0::/\n"), 0);
  write("a/b/cpu.max", "50000 100000");
  EXPECT_EQ(cores_of_groups(root_, "0::/a/b\n"), 1);
}

TEST_F(Groups, InsideAContainerTheMountIsTheGroup) {
  write("cpu.max", "200000 100000");
  EXPECT_EQ(cores_of_groups(root_, "0::/system.slice/of-the-host.scope\n"), 2);
  EXPECT_EQ(cores_of_groups(root_, "0::/../../elsewhere\n"), 2);
}

TEST_F(Groups, Version1HasAFolderForTheController) {
  write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "250000");
  write("cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
  write("memory/docker/x/cpu.cfs_quota_us", "100000");  // not the controller's folder
  write("memory/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores_of_groups(root_, "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"), 3);
  write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cores_of_groups(root_, "3:cpu,cpuacct:/docker/x\n"), 0);
}

TEST_F(Groups, OtherTextsHaveNoLimit) {
  for (const char* text : {"", "0:", "::", "nothing", "2:cpuset:/a"}) EXPECT_EQ(cores_of_groups(root_, text), 0) << text;
}

}  // namespace
}  // namespace octavo::engine
