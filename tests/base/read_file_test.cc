// Files, pipes and devices, read whole; what does not end is refused.
#include "base/read_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace octavo {
namespace {

TEST(ReadFile, ADeviceThatDoesNotEndIsRefused) {
  const auto read = read_file("/dev/zero", "model");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::io);
  EXPECT_EQ(read.error().message, "cannot read model \"/dev/zero\": File too large");
}

TEST(ReadFile, ADeviceThatEndsIsRead) {
  const auto read = read_file("/dev/null");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->empty());
}

TEST(ReadFile, APipeMayBeLongerThanADevice) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(300000, 'x');
  std::thread writer([&] {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(ends[1], text.data() + at, text.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
    ::close(ends[1]);
  });
  std::vector<std::byte> bytes;
  EXPECT_TRUE(read_all(ends[0], bytes));
  writer.join();
  ::close(ends[0]);
  EXPECT_EQ(bytes.size(), text.size());
}

}  // namespace
}  // namespace octavo
