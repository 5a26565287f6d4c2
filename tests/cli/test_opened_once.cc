// A command parses its model once and makes its engine ready once, however many parts of it ask.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "engine/part_plan.h"
#include "onnx/model/parsed.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/";
const std::string kFloat = kFolder + "digits_fp32.onnx", kPairs = kFolder + "digits_qdq.onnx", kData = kFolder + "images";

struct Counts {
  int code = 0;
  std::uint64_t parses = 0, loads = 0;
};

Counts run(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"octavo"};
  for (const std::string& a : arguments) argv.push_back(a.c_str());
  const std::uint64_t parses = onnx::parses(), loads = engine::loads();
  Counts out;
  out.code = run_main(static_cast<int>(argv.size()), argv.data());
  out.parses = onnx::parses() - parses;
  out.loads = engine::loads() - loads;
  return out;
}

class OpenedOnce : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("octavo-once-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  /// The first picture.
  static std::string picture() {
    std::string first;
    for (const auto& entry : fs::directory_iterator(kData)) {
      const std::string path = entry.path().string();
      if (path.ends_with(".png") && (first.empty() || path < first)) first = path;
    }
    return first;
  }
  fs::path folder_;
};

TEST_F(OpenedOnce, AModelIsParsedOnce) {
  const std::vector<std::vector<std::string>> commands{
      {"build", kPairs, "--effort", "0", "-o", in("a.octavo")},
      {"build", kPairs, "--effort", "0", "--shapes", "image:1x1x16x16", "--shapes", "image:2x1x16x16", "-o", in("b.octavo")},
      {"build", kPairs, "--effort", "0", "--minShapes", "image:1x1x16x16", "--optShapes", "image:2x1x16x16", "--maxShapes",
       "image:3x1x16x16", "-o", in("c.octavo")},
      {"build", kPairs, "--effort", "0", "--inputIOFormats", "fp32:chw", "-o", in("d.octavo")},
      {"run", kPairs, "--effort", "0", "--input", picture(), "--scale", "1/255"},
      {"check", kPairs, "--effort", "0"},
      {"explain", kPairs, "--effort", "0", "--tensor", "image"},
      {"explain", kPairs, "--effort", "0", "--roundings"},
      {"view", kPairs, "--effort", "0", "-o", in("page.html")},
      {"doctor", kPairs},
      {"advise", kPairs, "--effort", "0", "--apply", in("advised.onnx")},
      {"convert", kPairs, "--to-table", in("t.cache"), "--approximate"},
      {"quantize", kFloat, "--data", kData, "--scale", "1/255", "--threads", "2", "-o", in("q.onnx")},
      {"quantize", kFloat, "--data", kData, "--scale", "1/255", "--threads", "2", "--effort", "0", "-o", in("q.octavo")},
      {"build", kFloat, "--effort", "0", "--data", kData, "--scale", "1/255", "-o", in("e.octavo")},
  };
  for (const auto& command : commands) {
    const Counts counts = run(command);
    EXPECT_EQ(counts.code, 0) << ::testing::PrintToString(command);
    EXPECT_EQ(counts.parses, 1U) << ::testing::PrintToString(command);
  }
}

TEST_F(OpenedOnce, AnEngineIsMadeReadyOnceAndHasNoModelToParse) {
  ASSERT_EQ(
      run({"build", kPairs, "--effort", "0", "--shapes", "image:1x1x16x16", "--shapes", "image:2x1x16x16", "-o", in("e.octavo")})
          .code,
      0);
  const std::string shapes = "image:1x1x16x16";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"run", in("e.octavo"), "--input", picture(), "--scale", "1/255", "--batch", "1"},
           {"profile", in("e.octavo"), "--input", picture(), "--scale", "1/255", "--runs", "1", "--shapes", shapes},
           {"bench", in("e.octavo"), "--device", "cpu", "--seconds", "0.01", "--shapes", shapes},
           {"explain", in("e.octavo"), "--device", "cpu", "--shapes", shapes}}) {
    const Counts counts = run(command);
    EXPECT_EQ(counts.code, 0) << ::testing::PrintToString(command);
    EXPECT_EQ(counts.loads, 1U) << ::testing::PrintToString(command);
    EXPECT_EQ(counts.parses, 0U) << ::testing::PrintToString(command);
  }
}

TEST_F(OpenedOnce, WhatIsWrongWithInputsIsSaidBeforeKernelsAreLoaded) {
  ASSERT_EQ(run({"build", kPairs, "--effort", "0", "-o", in("e.octavo")}).code, 0);
  const Counts counts = run({"run", in("e.octavo"), "--input", "nosuch=" + picture()});
  EXPECT_EQ(counts.code, 2);
  EXPECT_EQ(counts.loads, 0U);
}

}  // namespace
}  // namespace octavo::cli
