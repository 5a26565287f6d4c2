#include "engine/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "engine/toy.h"
#include "engine/version.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;

class EngineFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octavo_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    auto e = Engine::create(toy::plan(), toy::providers(), "graph \"toy\"\n");
    ASSERT_TRUE(e) << e.error().message;
    engine_ = *e;
    path_ = (folder_ / "toy.octavo").string();
    const Status saved = engine_->save(path_);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string with(const std::string& bytes) const {
    const std::string path = (folder_ / "changed").string();
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }
  /// What an error says of the file: without its name, and without the versions at the end.
  static std::string fact(const Error& error) {
    const std::string text = error.message.substr(error.message.find("\": ") + 3);
    return text.substr(0, text.find("\n  the engine was built by"));
  }
  /// The error of loading these bytes as a file. Fails the test when they load, or when the kind is not bad_engine.
  std::string refusal(const std::string& bytes) const {
    const auto e = Engine::load(with(bytes), toy::providers());
    if (e) return "loaded";
    EXPECT_EQ(e.error().kind, ErrorKind::bad_engine) << e.error().message;
    return fact(e.error());
  }
  /// Refused in memory, which is fast enough for every byte: the section reader, then the engine on top of it for what passes.
  static bool refused(const std::string& bytes) {
    const auto sections = read_sections(std::as_bytes(std::span(bytes)), "fuzz");
    if (sections) return false;
    EXPECT_EQ(sections.error().kind, ErrorKind::bad_engine);
    EXPECT_GT(sections.error().message.size(), 20U);
    return true;
  }

  fs::path folder_;
  std::string path_;
  std::shared_ptr<const Engine> engine_;
};

TEST_F(EngineFile, LoadsAndComputesTheSame) {
  const auto e = Engine::load(path_, toy::providers());
  ASSERT_TRUE(e) << e.error().message;
  EXPECT_EQ((*e)->plan_hash(), engine_->plan_hash());
  EXPECT_EQ((*e)->graph_text(), "graph \"toy\"\n");
  EXPECT_EQ(region::to_json((*e)->plan()), region::to_json(engine_->plan()));
  for (const int id : {3, 4}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*e)->constant(id).data()) % 64, 0U);
    EXPECT_TRUE(std::ranges::equal((*e)->constant(id), engine_->constant(id)));
  }
  auto c = Context::create(*e, 2);
  ASSERT_TRUE(c);
  const auto x = toy::input();
  EXPECT_EQ(toy::run(**c, x), toy::expected(x));
}

TEST_F(EngineFile, IsByteIdenticalForEqualInputs) {
  const std::string bytes = read(path_);
  const auto again = Engine::create(toy::plan(), toy::providers(), "graph \"toy\"\n");
  ASSERT_TRUE((*again)->save(path_));
  EXPECT_EQ(read(path_), bytes);
  const auto loaded = Engine::load(path_, toy::providers());
  ASSERT_TRUE((*loaded)->save((folder_ / "b").string())) << "a loaded engine saves what it was loaded from";
  EXPECT_EQ(read(folder_ / "b"), bytes);
  const auto other = Engine::create(toy::plan(3.5F), toy::providers(), "graph \"toy\"\n");
  ASSERT_TRUE((*other)->save((folder_ / "c").string()));
  EXPECT_NE(read(folder_ / "c"), bytes);
  EXPECT_NE((*other)->plan_hash(), engine_->plan_hash());
}

TEST_F(EngineFile, MayBeReplacedWhileInUse) {
  const auto old = Engine::load(path_, toy::providers());
  const auto other = Engine::create(toy::plan(5.0F), toy::providers());
  ASSERT_TRUE((*other)->save(path_));
  auto c = Context::create(*old, 1);
  const auto x = toy::input();
  EXPECT_EQ(toy::run(**c, x), toy::expected(x));
  c = Context::create(*Engine::load(path_, toy::providers()), 1);
  EXPECT_EQ(toy::run(**c, x), toy::expected(x, 5.0F));
}

TEST_F(EngineFile, FailedWritesLeaveTheOldFile) {
  const std::string bytes = read(path_);
  const Status no_folder = engine_->save((folder_ / "absent" / "e").string());
  ASSERT_FALSE(no_folder);
  EXPECT_EQ(no_folder.error().kind, ErrorKind::io);
  EXPECT_NE(no_folder.error().message.find("No such file or directory"), std::string::npos) << no_folder.error().message;
  const Status folder = engine_->save(folder_.string());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("exists and is not a regular file"), std::string::npos);
  const Status device = engine_->save("/dev/null");
  EXPECT_TRUE(device) << device.error().message;
  EXPECT_TRUE(fs::is_character_file("/dev/null"));

  // A disk that fills up half way: the limit on file sizes stands in for it.
  struct rlimit saved {};
  ::getrlimit(RLIMIT_FSIZE, &saved);
  struct rlimit small = saved;
  small.rlim_cur = 512;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status full = engine_->save(path_);
  ::setrlimit(RLIMIT_FSIZE, &saved);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::io);
  EXPECT_EQ(read(path_), bytes);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "a temporary file was left behind";
}

TEST_F(EngineFile, ErrorsSayWhatWasExpectedAndFound) {
  const std::string good = read(path_);
  EXPECT_EQ(refusal(""), "not an Octavo engine: it should begin with \"OCTAVO\\x00\\x0a\", it begins with \"\" (0 bytes in all).");
  EXPECT_EQ(refusal(std::string("\x08\x07\x12\x04hello", 9)),
            "not an Octavo engine: it should begin with \"OCTAVO\\x00\\x0a\", it begins with \"\\x08\\x07\\x12\\x04hell\" (9 bytes "
            "in all). It looks like "
            "an ONNX model: build an engine from it first.");
  EXPECT_EQ(refusal(good.substr(0, 40)), "truncated: the header needs 64 bytes, the file has 40. Copy or build it again.");
  EXPECT_EQ(
      refusal(good.substr(0, good.size() - 1)),
      fmt::format("truncated: the header says {} bytes, the file has {}. Copy or build it again.", good.size(), good.size() - 1));
  EXPECT_EQ(refusal(good + "x"), fmt::format("too long: the header says {} bytes, the file has {}. Copy or build it again.",
                                             good.size(), good.size() + 1));
  std::string old = good, later = good;  // of the last format without this container, and of a later Octavo
  old[8] = static_cast<char>(kOldestReadable - 1), later[8] = static_cast<char>(kFormat + 1);
  EXPECT_EQ(refusal(old),
            fmt::format("it was built by Octavo {} in file format {}; this is Octavo {}, which runs format {} and can rebuild "
                        "files from format {} on. Build the engine again from its model.",
                        kVersion, kOldestReadable - 1, kVersion, kFormat, kOldestReadable));
  EXPECT_EQ(refusal(later),
            fmt::format("it was built by Octavo {} in file format {}, which is later than this Octavo {} (format {}). Install "
                        "that version or a later one to run it, or build the engine again from its model with this one.",
                        kVersion, kFormat + 1, kVersion, kFormat));
  std::string header = good;
  header[33] = static_cast<char>(header[33] ^ 1);
  EXPECT_EQ(refusal(header).substr(0, 25), "damaged header: checksum ");
  std::string body = good;
  body[body.size() - 70] = static_cast<char>(body[body.size() - 70] ^ 0x10);
  EXPECT_NE(refusal(body).find("damaged"), std::string::npos);
  const auto absent = Engine::load((folder_ / "absent").string(), toy::providers());
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().kind, ErrorKind::io);
  const auto folder = Engine::load(folder_.string(), toy::providers());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("Is a directory"), std::string::npos) << folder.error().message;
}

TEST_F(EngineFile, EveryFlippedByteIsFound) {
  const std::string good = read(path_);
  ASSERT_FALSE(refused(good));
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ mask);
      ASSERT_TRUE(refused(bad)) << "byte " << i << " ^ " << mask;
    }
  }
}

TEST_F(EngineFile, EveryTruncationIsFound) {
  const std::string good = read(path_);
  for (std::size_t n = 0; n < good.size(); ++n) ASSERT_TRUE(refused(good.substr(0, n))) << n << " bytes";
}

/// A file whose checksums are right and whose sections are what the test says: what a buggy or hostile writer would make.
TEST_F(EngineFile, SectionsThatLieAreRefused) {
  const std::string good = read(path_);
  const auto sections = read_sections(std::as_bytes(std::span(good)), "good");
  ASSERT_TRUE(sections);
  const auto refusal_of = [&](const std::vector<Section>& list) {
    const std::string path = (folder_ / "lie").string();
    EXPECT_TRUE(write_file(path, list));
    const auto e = Engine::load(path, toy::providers());
    if (e) return std::string("loaded");
    EXPECT_EQ(e.error().kind, ErrorKind::bad_engine);
    EXPECT_NE(e.error().message.find(fmt::format("\n  the engine was built by this version of Octavo, {}", kVersion)) ==
                  std::string::npos,
              e.error().message.find("two sections") == std::string::npos)
        << "who built it: " << e.error().message;
    return fact(e.error());
  };
  EXPECT_EQ(refusal_of(*sections), "loaded");
  EXPECT_EQ(refusal_of({}), "no plan section");
  std::vector<Section> list = *sections;
  list.erase(list.begin() + 1);
  EXPECT_EQ(refusal_of(list), "no summary section");
  list = *sections;
  list.pop_back();
  EXPECT_EQ(refusal_of(list), "1 constant sections, the plan has 2 constants");
  list = *sections;
  list.push_back(list.back());
  EXPECT_EQ(refusal_of(list), "two sections \"constant\" with id 4. Build the engine again from its model.");
  list = *sections;
  list.back().id = 0;
  EXPECT_EQ(refusal_of(list), "constant section 0: the plan has no such constant buffer");
  list = *sections;
  list.back().bytes = list.back().bytes.first(19);
  EXPECT_EQ(refusal_of(list), "constant 4 has 19 bytes, the plan says 20");
  list = *sections;
  list[1].bytes = list[2].bytes;
  EXPECT_EQ(refusal_of(list), "the summary section is not JSON");
  list = *sections;
  list[0].id = 3;
  EXPECT_EQ(refusal_of(list), "section \"plan\" has id 3, expected 0");
}

/// The hash is of what the file holds, whatever it says of itself: the summary has none any more, and one that is put there is not read.
TEST_F(EngineFile, ThePlanHashIsComputed) {
  const std::string good = read(path_);
  const auto sections = read_sections(std::as_bytes(std::span(good)), "good");
  ASSERT_TRUE(sections);
  const auto hash_with = [&](std::string_view summary, char of_last_constant) {
    std::vector<Section> list = *sections;
    std::string constant(reinterpret_cast<const char*>(list.back().bytes.data()), list.back().bytes.size());
    EXPECT_EQ(list.back().name, section::kConstant);
    constant.front() = static_cast<char>(constant.front() ^ of_last_constant);
    list.back().bytes = std::as_bytes(std::span(constant));
    for (Section& s : list) {
      if (s.name == section::kSummary) s.bytes = std::as_bytes(std::span(summary.data(), summary.size()));
    }
    const std::string path = (folder_ / "hash").string();
    EXPECT_TRUE(write_file(path, list));
    const auto e = Engine::load(path, toy::providers());
    EXPECT_TRUE(e) << e.error().message;
    return e ? (*e)->plan_hash() : "";
  };
  EXPECT_EQ(hash_with("{}", 0), engine_->plan_hash());
  EXPECT_EQ(hash_with(R"({"plan_hash":"00000000000000000000000000000000"})", 0), engine_->plan_hash());
  EXPECT_NE(hash_with("{}", 1), engine_->plan_hash()) << "another constant";
  EXPECT_EQ(hash_with("{}", 1).size(), 32U);
}

/// Random edits of the plan's text under right checksums: from_json decides, and nothing may crash (run this under ASan).
TEST_F(EngineFile, DamagedPlansUnderRightChecksumsNeverCrash) {
  const std::string good = read(path_);
  const auto sections = read_sections(std::as_bytes(std::span(good)), "good");
  ASSERT_TRUE(sections);
  const unsigned seed = 1;
  std::mt19937 random(seed);
  const std::string json(reinterpret_cast<const char*>((*sections)[0].bytes.data()), (*sections)[0].bytes.size());
  int loaded = 0;
  const int rounds = std::getenv("OCTAVO_LONG") != nullptr ? 20000 : 300;  // each costs an fsync
  for (int round = 0; round < rounds; ++round) {
    std::string text = json;
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text[at] = "0123456789-,:[]{}\"e."[random() % 20]; break;
      case 2: text.erase(at, 1 + random() % 20); break;
      default: text.insert(at, std::to_string(static_cast<std::int32_t>(random()))); break;
    }
    std::vector<Section> list = *sections;
    list[0].bytes = std::as_bytes(std::span(text));
    const std::string path = (folder_ / "fuzz").string();
    ASSERT_TRUE(write_file(path, list));
    const auto e = Engine::load(path, toy::providers());
    if (e)
      ++loaded;  // names and reasons may change freely
    else
      ASSERT_TRUE(e.error().kind == ErrorKind::bad_engine || e.error().kind == ErrorKind::unsupported ||
                  e.error().kind == ErrorKind::internal)
          << "seed " << seed << " round " << round;
  }
  EXPECT_LT(loaded, rounds * 3 / 4);
}

}  // namespace
}  // namespace octavo::engine
