// The timing cache as text: round trips, merging, pins, and what damaged files do.
#include "tune/timing_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace octavo {
namespace {

using tune::TimingCache;
using tune::Where;

const Where kHere{"Some Processor = 3 GHz; avx2", 2};

TimingCache sample() {
  TimingCache c;
  c.set(kHere, "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc", "cpu.a", 12.5e-6);
  c.set(kHere, "conv u8[1,3,8,8]nhwc : acc_i #0001 > u8[1,4,8,8]nhwc", "cpu.b", 3e-3);
  c.set({"other", 1}, "copy || copy", "cpu.c", 0);
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
  EXPECT_EQ(c.pinned({"other", 2}, key), std::nullopt);
}

TEST(TimingCache, MergeTakesTheLater) {
  TimingCache a = sample(), b;
  b.set({"other", 1}, "copy || copy", "cpu.c", 5e-6);
  b.set(kHere, "new", "cpu.d", 1e-6);
  a.merge(b);
  EXPECT_EQ(a.entries.size(), 4U);
  EXPECT_DOUBLE_EQ(a.find({"other", 1}, "copy || copy", "cpu.c")->seconds, 5e-6);
}

TEST(TimingCache, DamageIsNamedByLine) {
  const std::string text = sample().text();
  const std::pair<const char*, const char*> wrong[] = {
      {"t2", "no thread count"}, {"us ", "no \"us\""}, {" | ", "no \" | \""}, {"12.50", "no time"}, {"pin cpu.b", "one tactic"}};
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

TEST(TimingCache, DisturbedTimesAreMarkedAndReplaced) {
  TimingCache c;
  c.set(kHere, "key", "cpu.a", 12.5e-6, 1764000000);
  c.set(kHere, "key", "cpu.b", 10e-6);
  EXPECT_NE(c.text().find("12.50 us     disturbed@1764000000 cpu.a | key"), std::string::npos) << c.text();
  const auto back = TimingCache::parse(c.text());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->entries, c.entries);
  for (const char* wrong : {"disturbed@", "disturbed@x", "disturbed@0", "disturbed@1x"}) {
    std::string text = c.text();
    text.replace(text.find("disturbed@1764000000"), 20, wrong);
    EXPECT_FALSE(TimingCache::parse(text)) << wrong;
  }
  const std::string path = (std::filesystem::temp_directory_path() / ("octavo-disturbed-" + std::to_string(::getpid()))).string();
  ASSERT_TRUE(c.merge_into(path));
  TimingCache later;  // another build: what the file has stays, but for what was disturbed
  later.set(kHere, "key", "cpu.a", 9e-6);
  later.set(kHere, "key", "cpu.b", 20e-6);
  ASSERT_TRUE(later.add_to(path));
  const auto now = TimingCache::read(path);
  ASSERT_TRUE(now);
  EXPECT_DOUBLE_EQ(now->find(kHere, "key", "cpu.a")->seconds, 9e-6);
  EXPECT_EQ(now->find(kHere, "key", "cpu.a")->disturbed, 0);
  EXPECT_DOUBLE_EQ(now->find(kHere, "key", "cpu.b")->seconds, 10e-6);
  std::filesystem::remove(path);
}

TEST(TimingCache, TheUsersFileFollowsTheEnvironment) {
  const char* was = std::getenv("XDG_CACHE_HOME");
  const std::string kept = was == nullptr ? "" : was;
  const auto folder = std::filesystem::temp_directory_path() / ("octavo-user-" + std::to_string(::getpid()));
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  EXPECT_EQ(tune::user_cache(), (folder / "octavo/timing.txt").string());
  EXPECT_TRUE(std::filesystem::is_directory(folder / "octavo"));
  ::setenv("XDG_CACHE_HOME", "/proc/nothing/can/be/made/here", 1);
  EXPECT_EQ(tune::user_cache(), "") << "builds go without";
  ::setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  std::filesystem::remove_all(folder);
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

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("octavo_cache_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(const char* name) const { return (path / name).string(); }
};

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(TimingCache, WritersDoNotLoseEachOthersTimes) {
  const Folder folder;
  const std::string path = folder / "times.txt";
  std::vector<std::thread> writers;
  for (int w = 0; w < 8; ++w) {
    writers.emplace_back([&, w] {
      TimingCache c;
      c.set(kHere, "key " + std::to_string(w), "cpu.a", 1e-6);
      EXPECT_TRUE(c.merge_into(path));
    });
  }
  for (auto& t : writers) t.join();
  const auto all = TimingCache::read(path);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->entries.size(), 8U);
  EXPECT_FALSE(all->merge_into(folder / "absent/times.txt"));
}

/// Builds that add entries, somebody who pins and unpins, and one who prunes, as processes of their own.
TEST(TimingCache, ProcessesDoNotLoseEachOthersLines) {
  const Folder folder;
  const std::string path = folder / "times.txt";
  constexpr int kBuilders = 4, kRounds = 25;
  TimingCache start = sample();
  start.set({"third", 1}, "old key", "cpu.a", 1e-6);
  write(path, start.text() + "# written by hand\n");
  const auto build = [&](int process) {
    for (int i = 0; i < kRounds; ++i) {
      TimingCache c;
      c.set(kHere, "key " + std::to_string(process) + " " + std::to_string(i), "cpu.a", 1e-6);
      if (!c.merge_into(path)) return 1;
    }
    return 0;
  };
  const auto pin = [&](int) {
    for (int i = 0; i < kRounds; ++i) {
      const auto done = TimingCache::edit(path, [&](TimingCache& c) -> Status {
        c.pin(kHere, "pinned " + std::to_string(i), "cpu.b");
        c.pin(kHere, "pinned " + std::to_string(i - 5), "");
        return {};
      });
      if (!done) return 1;
    }
    return 0;
  };
  const auto prune = [&](int) {
    for (int i = 0; i < kRounds; ++i) {
      const auto done = TimingCache::edit(path, [&](TimingCache& c) -> Status {
        c.prune([](const TimingCache::Entry& e) { return std::get<1>(e) == "old key"; });
        return {};
      });
      if (!done) return 1;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int p = 0; p < kBuilders + 2; ++p) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(p < kBuilders ? build(p) : p == kBuilders ? pin(p) : prune(p));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto all = TimingCache::read(path);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->entries.size(), sample().entries.size() + kBuilders * kRounds + 5) << "five pins are left";
  for (const auto& [entry, t] : sample().entries) EXPECT_EQ(all->entries.at(entry), t);
  EXPECT_FALSE(all->devices.contains("third"));
  EXPECT_TRUE(all->devices.contains("other"));
  EXPECT_EQ(all->tail, std::vector<std::string>{"# written by hand"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), std::filesystem::directory_iterator()), 1)
      << "no lock, no temporary is left";
}

TEST(TimingCache, AFailedEditLeavesTheFile) {
  const Folder folder;
  const std::string path = folder / "times.txt";
  write(path, sample().text());
  EXPECT_FALSE(TimingCache::edit(path, [](TimingCache& c) -> Status {
    c.entries.clear();
    return fail(ErrorKind::usage, "no");
  }));
  EXPECT_EQ(TimingCache::read(path)->entries, sample().entries);
  write(path, "damaged");
  EXPECT_FALSE(sample().merge_into(path));
  std::string kept;
  std::getline(std::ifstream(path), kept);
  EXPECT_EQ(kept, "damaged") << "a file that cannot be read is not written over";
}

TEST(TimingCache, CommentsStayWhereTheyWere) {
  std::string text = sample().text();
  const auto above = [&](const char* what, const char* comment) {
    const auto at = text.rfind('\n', text.find(what)) + 1;
    text.insert(at, std::string(comment) + "\n");
  };
  above("device ", "# of the whole file");
  above("cpu.b", "# the second of these\r");
  above("# the second", "#the first");
  above("cpu.c", "# above c");
  text += "\n# at the end";
  auto cache = TimingCache::parse(text);
  ASSERT_TRUE(cache) << cache.error().message;
  const std::string once = cache->text();
  EXPECT_LT(once.find("# of the whole file"), once.find("device "));
  const auto b = once.find("#the first\n# the second of these\n");
  ASSERT_NE(b, std::string::npos) << once;
  EXPECT_EQ(once.find("cpu.b"), once.find("cpu.", b));
  EXPECT_EQ(once.substr(once.size() - 13), "# at the end\n");
  EXPECT_EQ(TimingCache::parse(once)->text(), once) << "written again, nothing moves";

  TimingCache merged = sample();
  merged.merge(*cache);
  merged.merge(*cache);
  EXPECT_EQ(merged.text(), once) << "merged twice, said once";

  cache->set(kHere, "a new key", "cpu.z", 1e-6);
  EXPECT_NE(cache->text().find("#the first\n# the second of these\n"), std::string::npos);
  const auto gone = cache->prune([](const TimingCache::Entry& e) { return std::get<2>(e) == "cpu.b"; });
  EXPECT_EQ(gone.entries, 1U);
  EXPECT_EQ(gone.pins, 1U);
  EXPECT_EQ(gone.comments, 2U);
  EXPECT_EQ(gone.devices, 0U);
  EXPECT_EQ(cache->text().find("the first"), std::string::npos);
}

TEST(TimingCache, CommentsOfAPinThatGoesStay) {
  TimingCache c = sample();
  c.pin(kHere, "key", "cpu.x");
  c.comments[{kHere, "key", "cpu.x"}] = {"# why"};
  c.pin(kHere, "key", "cpu.y");
  EXPECT_EQ((c.comments[{kHere, "key", "cpu.y"}]), std::vector<std::string>{"# why"});
  c.pin(kHere, "key", "");
  EXPECT_EQ(c.tail, std::vector<std::string>{"# why"}) << "no line is left that it could stand above";
}

TEST(TimingCache, DevicesWithoutTimesStay) {
  const auto cache = TimingCache::parse("# octavo timing cache 2\ndevice abc = a machine\n");
  ASSERT_TRUE(cache);
  EXPECT_NE(cache->text().find(" = a machine\n"), std::string::npos);
  const auto two = TimingCache::parse("# octavo timing cache 2\ndevice abc = a machine\ndevice abc = another\n");
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("line 3 describes the device of an earlier line otherwise"), std::string::npos);
}

TEST(TimingCache, AnEmptyFileIsAnEmptyCache) {
  const Folder folder;
  write(folder / "times.txt", "");
  ASSERT_TRUE(sample().merge_into(folder / "times.txt"));
  EXPECT_EQ(TimingCache::read(folder / "times.txt")->entries, sample().entries);
  write(folder / "lines.txt", "\n\n");
  EXPECT_FALSE(TimingCache::read(folder / "lines.txt"));
}

}  // namespace
}  // namespace octavo
