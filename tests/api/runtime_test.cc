// Running an engine needs neither protobuf nor importer nor planner: shown by a program that links octavo_runtime alone.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/check.h"
#include "api/pipeline.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 65536> block{};
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;) text.append(block.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

TEST(Runtime, LinksNoProtobufAndNoPlanner) {
  const std::string symbols = output_of("nm -C " OCTAVO_RUNTIME_ONLY);
  ASSERT_NE(symbols.find("octavo::engine::Context::run"), std::string::npos) << "nm must see the program's symbols";
  for (const char* name :
       {"protobuf", "octavo_onnx", "octavo::onnx::", "octavo::plan::", "octavo::passes::", "octavo::quant::", "octavo::api::"}) {
    EXPECT_EQ(symbols.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(output_of("ldd " OCTAVO_RUNTIME_ONLY).find("protobuf"), std::string::npos);
}

TEST(Runtime, RunsAnEngineFileWithTheSameBits) {
  std::string pattern = (fs::temp_directory_path() / "octavo_runtime_XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern;
  PipelineOptions o;
  o.import.default_batch = 2;
  const auto b = build_file(std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx", o);
  ASSERT_TRUE(b) << b.error().message;
  ASSERT_TRUE(b->engine->save(folder / "engine"));
  const auto inputs = random_inputs(b->engine->plan(), 3);
  auto context = engine::Context::create(b->engine, 1);
  ASSERT_TRUE(context);
  const auto expected = run(**context, inputs);
  ASSERT_TRUE(expected) << expected.error().message;
  const auto bytes = inputs[0].bytes();
  std::ofstream(folder / "input", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  for (const char* threads : {"0", "1", "3"}) {
    const std::string command =
        fmt::format("{0} {1}/engine {1}/input {1}/output {2}", OCTAVO_RUNTIME_ONLY, folder.string(), threads);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream in(folder / "output", std::ios::binary);
    const std::string got{std::istreambuf_iterator<char>(in), {}};
    const auto want = (*expected)[0].bytes();
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0) << command;
  }
  // Damage is refused with the exit code of bad_engine.
  fs::resize_file(folder / "engine", 1000);
  const std::string command = fmt::format("{0} {1}/engine {1}/input {1}/output 1 2>{1}/log", OCTAVO_RUNTIME_ONLY, folder.string());
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), exit_code(ErrorKind::bad_engine));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace octavo::api
