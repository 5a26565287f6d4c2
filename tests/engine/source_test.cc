// The model inside of engine files, and files of other versions.
#include "engine/source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/set.h"
#include "engine/toy.h"
#include "engine/version.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;

class Texts final : public ModelSource {
 public:
  Result<ModelBytes> read() const override {
    ModelBytes out;
    out.model = std::as_bytes(std::span(model));
    for (const auto& [name, data] : files) out.files.emplace_back(name, std::as_bytes(std::span(data)));
    return out;
  }
  std::string model = "the model's bytes";
  std::vector<std::pair<std::string, std::string>> files;
};

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Source : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octavo_source_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = (folder_ / "e.octavo").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void save(const std::vector<std::pair<std::string, std::string>>& files = {}) const {
    auto source = std::make_shared<Texts>();
    source->files = files;
    const auto e = Engine::create(toy::plan(), toy::providers(), "", {}, nullptr, {source, R"({"effort":0})", {{"note", "kept"}}});
    ASSERT_TRUE(e) << e.error().message;
    const Status saved = (*e)->save(file_);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  /// The same sections, written by another version or format.
  void written_by(const MadeBy& by) const {
    const std::string bytes = read(file_);
    const auto all = read_container(std::as_bytes(std::span(bytes)), file_);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_TRUE(write_file(file_, all->sections, by));
  }

  fs::path folder_;
  std::string file_;
};

TEST_F(Source, ComesBackFromTheFile) {
  save({{"weights.bin", "123"}, {"sub/more.bin", std::string(1000, 'x')}});
  const auto file = EngineFile::open(file_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_NE((*file)->model(), nullptr);
  const auto model = (*file)->model()->read();
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(text(model->model), "the model's bytes");
  ASSERT_EQ(model->files.size(), 2U);
  EXPECT_EQ(model->files[0].first, "weights.bin");
  EXPECT_EQ(text(model->files[0].second), "123");
  EXPECT_EQ(model->files[1].first, "sub/more.bin");
  EXPECT_EQ(model->files[1].second.size(), 1000U);
  const auto builds = (*file)->builds();
  ASSERT_EQ(builds.size(), 1U);
  EXPECT_EQ(text(builds[0].build), R"({"effort":0})");
  EXPECT_EQ(builds[0].notes(), (Notes{{"note", "kept"}}));

  const auto loaded = Engine::load(file_, toy::providers());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->notes(), (Notes{{"note", "kept"}}));
  ASSERT_TRUE((*loaded)->save((folder_ / "again").string()));
  EXPECT_EQ(read((folder_ / "again").string()), read(file_)) << "a loaded engine has its model";
}

/// A normal load does not read the model: damage in it is found by who reads it, and by nobody else.
TEST_F(Source, IsNotTouchedByANormalLoad) {
  save();
  std::string bytes = read(file_);
  const std::size_t at = bytes.find("the model's bytes");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'T';
  std::ofstream(file_, std::ios::binary) << bytes;
  EXPECT_TRUE(Engine::load(file_, toy::providers()));
  const auto model = (*EngineFile::open(file_))->model()->read();
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("damaged: section"), std::string::npos) << model.error().message;
}

TEST_F(Source, FilesOfAnEarlierVersionSayHowToRebuildThem) {
  save();
  for (const MadeBy& by : {MadeBy{kFormat, 0, 0, 7}, MadeBy{kOldestReadable, 0, 0, 7}}) {
    written_by(by);
    const auto e = Engine::load(file_, toy::providers());
    ASSERT_FALSE(e);
    EXPECT_EQ(e.error().kind, ErrorKind::bad_engine);
    EXPECT_EQ(
        e.error().message,
        fmt::format("engine \"{0}\": it was built by Octavo 0.0.7 in file format {1}; this is Octavo {2}, which runs format {3}\n"
                    "  it holds its model: octavo rebuild {0} builds it again and replaces the file",
                    file_, by.format, kVersion, kFormat));
    const auto file = EngineFile::open(file_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(Engine::is_outdated(**file, e.error()));
    EXPECT_TRUE((*file)->model()->read());
  }
}

TEST_F(Source, WithoutAModelItSaysToBuildAgain) {
  const auto plain = Engine::create(toy::plan(), toy::providers());
  ASSERT_TRUE((*plain)->save(file_));
  EXPECT_EQ((*EngineFile::open(file_))->model(), nullptr);
  written_by({kFormat, 0, 0, 7});
  const auto e = Engine::load(file_, toy::providers());
  ASSERT_FALSE(e);
  EXPECT_NE(e.error().message.find("it was built without its model (--no-model): build it again from the ONNX file"),
            std::string::npos)
      << e.error().message;
}

TEST_F(Source, FilesOfALaterVersionAreRefused) {
  save();
  for (const MadeBy& by :
       {MadeBy{kFormat, kVersionMajor, kVersionMinor + 1, 0}, MadeBy{kFormat + 1, kVersionMajor, kVersionMinor, kVersionPatch},
        MadeBy{kFormat, kVersionMajor + 1, 0, 0}}) {
    const std::string good = read(file_);
    written_by(by);
    const auto file = EngineFile::open(file_);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind, ErrorKind::bad_engine);
    EXPECT_NE(file.error().message.find(
                  fmt::format("it was built by Octavo {} in file format {}, which is later than this Octavo {} (format {})",
                              by.version(), by.format, kVersion, kFormat)),
              std::string::npos)
        << file.error().message;
    std::ofstream(file_, std::ios::binary) << good;
  }
  written_by({kFormat, kVersionMajor, kVersionMinor, kVersionPatch + 5});  // patches change neither kernels nor the format
  const auto e = Engine::load(file_, toy::providers());
  ASSERT_TRUE(e) << e.error().message;
  EXPECT_EQ((*e)->made_by().version(), fmt::format("{}.{}.{}", kVersionMajor, kVersionMinor, kVersionPatch + 5));
}

/// Names of external data that are missing or too many.
TEST_F(Source, ModelSectionsThatLieAreRefused) {
  save({{"weights.bin", "123"}});
  const std::string bytes = read(file_);
  const auto good = read_container(std::as_bytes(std::span(bytes)), file_);
  ASSERT_TRUE(good);
  for (const std::string names : {"", "7", "[]", "[1]", R"(["a","b"])", R"({"a":"b"})"}) {
    std::vector<Section> list = good->sections;
    for (Section& s : list) {
      if (s.name == section::kModelFiles) s.bytes = std::as_bytes(std::span(names));
    }
    ASSERT_TRUE(write_file(file_, list));
    const auto model = (*EngineFile::open(file_))->model()->read();
    ASSERT_FALSE(model) << names;
    EXPECT_EQ(model.error().kind, ErrorKind::bad_engine);
  }
}

}  // namespace
}  // namespace octavo::engine
