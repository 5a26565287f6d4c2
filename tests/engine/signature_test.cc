// Signed engine files: what is accepted, and that every changed byte is found.
#include "engine/signature.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/toy.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;

// Made for this test by openssl genpkey; they sign nothing else.
constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEfseLxuk5qNLowpqlzNgjdrZnL8Uhg5f6Nb4YYyGmwe\n-----END PRIVATE KEY-----\n";
constexpr const char* kPublic =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAMLxBEOJHFYeR8pii+XU2Nge/uKepYTi4r6tEHN55XDE=\n-----END PUBLIC KEY-----\n";
constexpr const char* kOther =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAKRHXM/S1n1dDk35Y2C1fh/8rbs6+JGoXGbSFnTxHpIo=\n-----END PUBLIC KEY-----\n";

class Signature : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octavo_signature_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const auto e = Engine::create(toy::plan(), toy::providers());
    ASSERT_TRUE(e) << e.error().message;
    ASSERT_TRUE((*e)->save(path("plain")));
    const Status saved = (*e)->save(path("signed"), {}, kPrivate);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string refusal(const std::string& file, const std::string& key) const {
    const auto opened = EngineFile::open(file, key);
    return opened ? "accepted" : opened.error().message;
  }

  fs::path folder_;
};

TEST_F(Signature, FilesOfTheKeyAreAccepted) {
  const auto file = EngineFile::open(path("signed"), kPublic);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE((*file)->is_signed());
  const auto engines = Engine::load_all(*file, toy::providers());
  ASSERT_TRUE(engines) << engines.error().message;
  EXPECT_EQ(read(path("signed")).size(), read(path("plain")).size() + kSignatureBytes);
  EXPECT_EQ(refusal(path("signed"), ""), "accepted") << "nobody has to verify";
  EXPECT_EQ(refusal(path("plain"), ""), "accepted");
}

TEST_F(Signature, OthersAreRefusedByWhatIsWrong) {
  const auto says = [](const std::string& said, const std::string& part) { EXPECT_NE(said.find(part), std::string::npos) << said; };
  says(refusal(path("plain"), kPublic), "it is not signed, and a signature was asked for");
  says(refusal(path("signed"), kOther), "it was signed by the key 30bc4110e2471587...");
  says(refusal(path("signed"), kPrivate), "the public key is a private one");
  says(refusal(path("signed"), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
       "damaged, or protected by a password");
  const auto signed_by_public = sign({}, kPublic);
  ASSERT_FALSE(signed_by_public);
  says(signed_by_public.error().message, "the private key is a public one");
  EXPECT_FALSE(read_key(path("plain")));
  EXPECT_FALSE(read_key(path("absent")));
}

/// Those of the header, the table and the signature one by one, of what lies between each eleventh.
TEST_F(Signature, EveryChangedByteIsFound) {
  const std::string good = read(path("signed"));
  const auto of = [&](const std::string& bytes) {
    return verify_signature(std::as_bytes(std::span(bytes)), kPublic, "x").has_value();
  };
  ASSERT_TRUE(of(good));
  for (std::size_t i = 0; i < good.size(); i += i < 512 || i + 160 > good.size() ? 1 : 11) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    ASSERT_FALSE(of(bad)) << "byte " << i << " of " << good.size();
  }
  EXPECT_FALSE(of(good + "x"));
  EXPECT_FALSE(of(good.substr(0, good.size() - 1)));
  EXPECT_FALSE(of(""));
}

/// The signature of one file behind another whose own checksums are right.
TEST_F(Signature, DoesNotMoveToAnotherFile) {
  const auto e = Engine::create(toy::plan(5.0F), toy::providers());
  ASSERT_TRUE((*e)->save(path("other")));
  const std::string good = read(path("signed"));
  std::ofstream(path("moved"), std::ios::binary) << read(path("other")) << good.substr(good.size() - kSignatureBytes);
  EXPECT_NE(refusal(path("moved"), kPublic).find("the file was changed after it was signed"), std::string::npos);
  EXPECT_EQ(refusal(path("moved"), ""), "accepted") << "the file itself is whole";
}

/// What was verified is what runs: the file may be rewritten meanwhile.
TEST_F(Signature, AVerifiedFileCannotChangeAnyMore) {
  const auto file = EngineFile::open(path("signed"), kPublic);
  ASSERT_TRUE(file);
  {
    std::fstream out(path("signed"), std::ios::binary | std::ios::in | std::ios::out);
    out << std::string(fs::file_size(path("signed")), '\0');
  }
  EXPECT_TRUE(Engine::load_all(*file, toy::providers()));
}

}  // namespace
}  // namespace octavo::engine
