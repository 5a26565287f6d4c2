// Files replaced whole or not at all: what failures leave behind, permissions, links, and writers at the same time.
#include "base/write_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace octavo {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("octavo_write_" + std::to_string(::getpid()));
  std::string path_ = (folder_ / "file.txt").string();
  void SetUp() override {
    fs::create_directories(folder_);
    ASSERT_TRUE(write_file(path_, std::string_view("old")));
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// The write fails with `io`, says why, and nothing has changed.
  void expect_refused(const Status& status, const std::string& path, const std::string& why) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::io);
    EXPECT_NE(status.error().message.find("\"" + path + "\""), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(why), std::string::npos) << status.error().message;
    EXPECT_EQ(read(path_), "old");
    EXPECT_EQ(files(), 1U) << "the temporary is gone";
  }
};

/// As another user while it lives when the tests run as root, whom permissions do not stop. `why_not`: the system has no such user
/// (a container that maps root alone), or it cannot see the folder; then there is nothing to test here.
struct NotRoot {
  bool changed = ::geteuid() == 0;
  std::string why_not;
  explicit NotRoot(const fs::path& file) {
    if (changed && ::seteuid(65534) != 0) {
      changed = false;
      why_not = std::string("runs as root and cannot become another user: ") + std::strerror(errno);
    }
    struct stat info {};
    if (why_not.empty() && ::stat(file.c_str(), &info) != 0) why_not = "an unprivileged user cannot see the temporary folder";
  }
  ~NotRoot() {
    if (changed) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }
};

TEST_F(WriteFile, ReplacesAndKeepsPermissions) {
  for (const mode_t mode : {0600U, 0644U, 0755U}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    ASSERT_TRUE(write_file(path_, std::string_view("new")));
    struct stat info {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
    EXPECT_EQ(read(path_), "new");
  }
  const mode_t mask = ::umask(027);
  ASSERT_TRUE(write_file((folder_ / "fresh").string(), std::string_view("")));
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat((folder_ / "fresh").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640U);
  EXPECT_EQ(info.st_size, 0);
}

TEST_F(WriteFile, AFullDiskLeavesTheOldFile) {
  // Beyond a limit on file sizes the system takes some of the bytes and then none, as a full disk does.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto status = write_file(path_, std::string(5000, 'x'), "engine");
  const auto fits = write_file((folder_ / "fits").string(), std::string(1000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(fits) << fits.error().message;
  fs::remove(folder_ / "fits");
  expect_refused(status, path_, "cannot write engine");
  EXPECT_NE(status.error().message.find("File too large (errno 27)"), std::string::npos) << status.error().message;
}

TEST_F(WriteFile, AWriterThatFailsLeavesTheOldFile) {
  expect_refused(replace_file(path_, "",
                              [](int fd) {
                                EXPECT_TRUE(write_all(fd, "half", 4));
                                errno = ENOSPC;
                                return false;
                              }),
                 path_, "No space left on device (errno 28)");
  expect_refused(replace_file(path_, "", [](int) { return false; }), path_, "(errno ");
}

TEST_F(WriteFile, ReadOnlyFolder) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  Status status;
  {
    const NotRoot user(path_);
    if (!user.why_not.empty()) GTEST_SKIP() << user.why_not;
    status = write_file(path_, std::string_view("new"));
  }
  expect_refused(status, path_, "Permission denied (errno 13)");
}

TEST_F(WriteFile, ProtectedFile) {
  ASSERT_EQ(::chmod(path_.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  Status status;
  {
    const NotRoot user(path_);  // may make files in the folder: the rename would work
    if (!user.why_not.empty()) GTEST_SKIP() << user.why_not;
    status = write_file(path_, std::string_view("new"));
  }
  expect_refused(status, path_, "the file there is protected: Permission denied (errno 13)");
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0444U);
  if (::geteuid() == 0) {  // whom no permission stops: replaced, and as protected as before
    ASSERT_TRUE(write_file(path_, std::string_view("new")));
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0444U);
    EXPECT_EQ(read(path_), "new");
  }
}

TEST_F(WriteFile, PathsThatCannotBe) {
  const auto refused = [&](const std::string& path, const std::string& why) {
    expect_refused(write_file(path, std::string_view("new")), path, why);
  };
  refused(path_ + "/below", "no temporary file can be made");
  refused((folder_ / "absent/file").string(), "No such file or directory (errno 2)");
  refused(folder_.string(), "not a regular file");
  refused("", "cannot write");
  refused((folder_ / std::string(300, 'n')).string(), "(errno 36)");
}

TEST_F(WriteFile, DevicesAreWrittenToAsTheyAre) {
  EXPECT_TRUE(write_file("/dev/null", std::string_view("new")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  expect_refused(write_file("/dev/full", std::string_view("new")), "/dev/full", "No space left on device");
}

TEST_F(WriteFile, WhatCannotBeWrittenIsKnownBefore) {
  EXPECT_TRUE(check_writable(path_));
  EXPECT_TRUE(check_writable("/dev/stdout"));
  expect_refused(check_writable((folder_ / "absent/file").string()), (folder_ / "absent/file").string(),
                 "No such file or directory");
  expect_refused(check_writable(path_ + "/below"), path_ + "/below", "is not a folder");
  expect_refused(check_writable(folder_.string()), folder_.string(), "it is a folder");
}

TEST_F(WriteFile, TheLongestNameThatTheSystemTakes) {
  const std::string path = (folder_ / std::string(255, 'n')).string();
  ASSERT_TRUE(write_file(path, std::string_view("new")));
  EXPECT_EQ(read(path), "new");
}

TEST_F(WriteFile, LinksStay) {
  fs::create_directory(folder_ / "else");
  const fs::path real = folder_ / "else/real", link = folder_ / "link";
  ASSERT_TRUE(write_file(real.string(), std::string_view("old")));
  fs::create_symlink("else/real", link);
  ASSERT_TRUE(write_file(link.string(), std::string_view("new")));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read(real.string()), "new");
}

TEST_F(WriteFile, ReadersSeeOneOfTheTexts) {
  const std::string texts[] = {std::string(100000, 'a'), std::string(200000, 'b')};
  ASSERT_TRUE(write_file(path_, texts[0]));
  std::vector<std::thread> writers;
  for (const std::string& text : texts) {
    writers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(write_file(path_, text));
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read(path_);
    ASSERT_TRUE(seen == texts[0] || seen == texts[1]) << seen.size() << " bytes";
  }
  for (auto& t : writers) t.join();
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace octavo
