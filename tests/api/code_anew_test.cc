// Engine files for a GPU whose machine code somebody has replaced, loaded through the public interface: with LoadOptions::rebuild_code (code="rebuild", --code rebuild)
// nothing that the file holds as machine code gets to the loader of kernels or to the GPU. Without it, it does, which is what the option is for.
#include <nlohmann/json.hpp>

#include "api/gpu_here_scene.h"

namespace octavo::testing {
namespace {

using engine::Section;
using nlohmann::json;

class CodeAnew : public GpuHereTest {
 protected:
  static LoadOptions loads(bool rebuild) {
    LoadOptions o;
    o.rebuild_code = rebuild;
    return o;
  }
  /// The names of kernels are spoilt in all machine code of the file, that which plans of a range share as well.
  void poison() const {
    int spoilt = 0;
    rewrite([&](std::string_view name, std::string& bytes) {
      if (name != engine::section::kConstant && name != engine::section::kOpenData) return;
      for (auto at = bytes.find(kKernelWord); at != bytes.npos; at = bytes.find(kKernelWord, at + 1)) {
        if (bytes.substr(0, at).ends_with("#define ")) continue;
        bytes.replace(at, kPoison.size(), kPoison);
        ++spoilt;
      }
    });
    ASSERT_GT(spoilt, 3);
  }
  /// As the file is, its code is handed on, and cannot run; made anew, it is not looked at, and runs give the bits of the CPU.
  void expect_used_only_as_it_is(std::initializer_list<std::int64_t> batches) const {
    (void)saw("");
    for (const std::int64_t n : batches) {
      EXPECT_THROW((void)run(Engine::load(file_, loads(false)), n), Exception) << n << " images";
      EXPECT_TRUE(saw(kPoison)) << n << " images";
      const Engine anew = Engine::load(file_, loads(true));
      expect_runs(anew, n);
      EXPECT_FALSE(saw(kPoison)) << n << " images";
    }
  }
};

TEST_F(CodeAnew, OneShape) {
  BuildOptions o = options("cuda");
  o.shapes["image"] = {2, 1, 16, 16};
  Engine::build(kDigits, o).save(file_);
  expect_runs(Engine::load(file_, loads(false)), 2);
  poison();
  expect_used_only_as_it_is({2});
  // What is written of such an engine has the code that was made here.
  Engine::load(file_, loads(true)).save(file_);
  expect_runs(Engine::load(file_, loads(false)), 2);
}

TEST_F(CodeAnew, ASet) {
  save_set("cuda");
  poison();
  expect_used_only_as_it_is({1, 3});
}

/// A shape that the file has a plan for, and one whose launches start the code that the plans share.
TEST_F(CodeAnew, ARange) {
  Engine::build(kDigits, ranged("cuda")).save(file_);
  poison();
  expect_used_only_as_it_is({4, 7});
}

/// A plan without code before one that has some does not bring the file to the loader that takes code as it is.
TEST_F(CodeAnew, AForgedSetOfACpuAndAGpuPlan) {
  std::vector<std::vector<std::byte>> files;
  for (const char* device : {"cpu", "cuda"}) {
    BuildOptions o = options(device);
    o.keep_model = false;
    o.shapes["image"] = {device == std::string_view("cpu") ? 1 : 3, 1, 16, 16};
    files.push_back(Engine::build(kDigits, o).bytes());
  }
  for (const bool cpu_first : {true, false}) {
    std::vector<Section> sections{{engine::section::kSet, 0, {}}}, constants;
    json table = json::array();
    for (std::uint32_t k = 0; k < 2; ++k) {
      const auto one = engine::read_container(files[cpu_first ? k : 1 - k], "one");
      ASSERT_TRUE(one) << one.error().message;
      json mine = json::array();
      for (const Section& s : one->sections) {
        if (s.name == engine::section::kConstant) {
          mine.push_back({s.id, constants.size()});
          constants.push_back({s.name, static_cast<std::uint32_t>(constants.size()), s.bytes});
        } else {
          sections.push_back({s.name, k, s.bytes});
        }
      }
      table.push_back({{"constants", std::move(mine)}});
    }
    const std::string set = json{{"plans", std::move(table)}}.dump();
    sections.front().bytes = std::as_bytes(std::span(set));
    sections.insert(sections.end(), constants.begin(), constants.end());
    ASSERT_TRUE(engine::write_file(file_, sections));
    poison();
    for (const bool rebuild : {false, true}) {
      (void)saw("");
      try {
        (void)Engine::load(file_, loads(rebuild));
        ADD_FAILURE() << "plans for two devices are no set";
      } catch (const Exception& e) {
        EXPECT_NE(std::string(e.what()).find("they are for different devices"), std::string::npos) << e.what();
      }
      EXPECT_EQ(saw(kPoison), !rebuild);
    }
  }
}

}  // namespace
}  // namespace octavo::testing
