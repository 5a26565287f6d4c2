// The timing cache as text: round trips, merging, pins, and what damaged files do.
#include "tune/timing_cache.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace octavo {
namespace {

using tune::TimingCache;
using tune::Where;

const Where kHere{"Some Processor = 3 GHz; avx2", 2, "0.1.0"};

TimingCache sample() {
  TimingCache c;
  c.set(kHere, "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc", "cpu.a", 12.5e-6);
  c.set(kHere, "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc", "cpu.b", 3e-3);
  c.set({"other", 1, "0.2.0"}, "copy || copy", "cpu.c", 0);
  c.pin(kHere, "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc", "cpu.b");
  return c;
}

TEST(TimingCache, TextRoundTrip) {
  const TimingCache c = sample();
  const auto back = TimingCache::parse(c.text());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->entries, c.entries);
  EXPECT_EQ(back->text(), c.text());
  std::string crlf;
  for (const char ch : c.text()) crlf += ch == '\n' ? std::string("\r\n") : std::string(1, ch);
  ASSERT_TRUE(TimingCache::parse(crlf));
  EXPECT_EQ(TimingCache::parse(crlf)->entries, c.entries);
}

TEST(TimingCache, OnePinAKey) {
  TimingCache c = sample();
  const std::string key = "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc";
  EXPECT_EQ(c.pinned(kHere, key), "cpu.b");
  c.pin(kHere, key, "cpu.new");
  EXPECT_EQ(c.pinned(kHere, key), "cpu.new");
  EXPECT_EQ(c.find(kHere, key, "cpu.new")->seconds, -1);
  c.pin(kHere, key, "cpu.a");
  EXPECT_EQ(c.find(kHere, key, "cpu.new"), nullptr) << "a pin by hand without a time goes with the pin";
  c.pin(kHere, key, "");
  EXPECT_EQ(c.pinned(kHere, key), std::nullopt);
  EXPECT_EQ(c.pinned({"other", 2, "0.1.0"}, key), std::nullopt);
}

TEST(TimingCache, MergeTakesTheLater) {
  TimingCache a = sample(), b;
  b.set({"other", 1, "0.2.0"}, "copy || copy", "cpu.c", 5e-6);
  b.set(kHere, "new", "cpu.d", 1e-6);
  a.merge(b);
  EXPECT_EQ(a.entries.size(), 4U);
  EXPECT_DOUBLE_EQ(a.find({"other", 1, "0.2.0"}, "copy || copy", "cpu.c")->seconds, 5e-6);
}

TEST(TimingCache, DamageIsNamedByLine) {
  const std::string text = sample().text();
  const std::pair<const char*, const char*> wrong[] = {{"t2", "no thread count"}, {"us ", "no \"us\""},
                                                       {"v0.1.0", "no version"},  {" | ", "no \" | \""},
                                                       {"12.50", "no time"},      {"pin cpu.b", "one tactic"}};
  for (const auto& [what, message] : wrong) {
    std::string damaged = text;
    const auto at = damaged.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    damaged.replace(at, std::string(what).size(), std::string(what) == "pin cpu.b" ? "pin" : "x ");
    const auto parsed = TimingCache::parse(damaged);
    ASSERT_FALSE(parsed) << what;
    EXPECT_NE(parsed.error().message.find(message), std::string::npos) << parsed.error().message;
    EXPECT_NE(parsed.error().message.find("line "), std::string::npos) << parsed.error().message;
  }
  EXPECT_FALSE(TimingCache::parse("device\n"));
  EXPECT_FALSE(TimingCache::parse("# octavo timing cache 12\n"));
  const auto last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  const auto twice = TimingCache::parse(text + last);
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("repeats a key and tactic"), std::string::npos);
}

TEST(TimingCache, HostileBytesAreErrorsOrCaches) {
  const std::string text = sample().text();
  int errors = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    std::string damaged = text;
    for (int k = 0; k < 3; ++k) {
      const auto at = random() % damaged.size();
      if (random() % 3 == 0)
        damaged.erase(at, random() % 20);
      else
        damaged[at] = static_cast<char>(random());
    }
    const auto parsed = TimingCache::parse(damaged);
    errors += !parsed;
    if (parsed) {
      const auto again = TimingCache::parse(parsed->text());
      ASSERT_TRUE(again) << "seed " << seed << "\n" << again.error().message;
    }
  }
  EXPECT_GT(errors, 500);
}

TEST(TimingCache, WritersDoNotLoseEachOthersTimes) {
  const auto folder = std::filesystem::temp_directory_path() / ("octavo_cache_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "times.txt").string();
  std::vector<std::thread> writers;
  for (int w = 0; w < 8; ++w) {
    writers.emplace_back([&, w] {
      TimingCache c;
      c.set(kHere, "key " + std::to_string(w), "cpu.a", 1e-6);
      EXPECT_TRUE(c.write(path, true));
    });
  }
  for (auto& t : writers) t.join();
  const auto all = TimingCache::read(path);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->entries.size(), 8U);
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(all->write(path, false)) << "a folder that is not there";
}

}  // namespace
}  // namespace octavo
