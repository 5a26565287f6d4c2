// Tables written and read again, to the last bit; and what else may be in such a file.
#include "api/ranges.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "quant/table.h"

namespace octavo::api {
namespace {

std::map<std::string, float> random_scales(std::mt19937& rng) {
  std::map<std::string, float> out{
      {"(Unnamed Layer* 4) [Fully Connected]_output", 1.0F / 127}, {"a: b: ", 0x1p-149F}, {"q\"\\\x01\xc3\xa9", 3e36F}};
  while (out.size() < 500) {
    const float s = std::bit_cast<float>(static_cast<std::uint32_t>(rng()) & 0x7fffffffU);
    if (std::isfinite(s) && s < 1e36F) out["t" + std::to_string(out.size())] = s;
  }
  return out;
}

std::map<std::string, float> scales_of(const ir::Ranges& ranges) {
  std::map<std::string, float> out;
  for (const auto& [name, q] : ranges) {
    EXPECT_EQ(q, ir::symmetric(q.scale[0])) << name;
    out[name] = q.scale[0];
  }
  return out;
}

TEST(Ranges, ZeroPointsComeBackFromJson) {
  std::mt19937 rng(5);
  ir::Ranges ranges;
  for (int i = 0; i < 2000; ++i) {
    const auto scale = static_cast<float>(std::exp(static_cast<double>(rng() % 2000) / 50.0 - 20.0) * (1 + rng() % 1000 / 1000.0));
    ranges["t" + std::to_string(i)] = ir::per_tensor(ir::DType::u8, scale, static_cast<std::int32_t>(rng() % 256));
  }
  const auto json = parse_ranges(quant::ranges_json(ranges), "t");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(*json, ranges);
}

TEST(Ranges, ThreeSpellingsOfOneRange) {
  const auto r = parse_ranges(
      R"({"a": [0, 25.5], "b": {"min": 0, "max": 25.5, "mean": 3}, "c": {"scale": 0.1}, "d": {"scale": 0.1, "zero_point": -128, "type": "s8"},
      "e": [1, 25.5], "f": [-25.5, -3], "g": [0, 0]})",
      "t");
  ASSERT_TRUE(r) << r.error().message;
  for (const char* name : {"a", "b", "c", "e"}) EXPECT_EQ(r->at(name), ir::per_tensor(ir::DType::u8, 0.1F)) << name;
  EXPECT_EQ(ir::as_u8(r->at("d")), ir::per_tensor(ir::DType::u8, 0.1F));
  EXPECT_EQ(r->at("f"), ir::per_tensor(ir::DType::u8, 0.1F, 255));
  EXPECT_EQ(r->at("g").scale[0], 0);
  for (const char* text : {R"({"a": [1]})", R"({"a": [2, 1]})", R"({"a": ["0", 1]})", R"({"a": [0, 1e39]})", R"({"a": {"min": 0}})",
                           R"({"a": {"scale": -1}})", R"({"a": {"scale": 1, "zero_point": 256}})",
                           R"({"a": {"scale": 1, "zero_point": 0.5}})", R"({"a": {"scale": 1, "type": "s32"}})"}) {
    const auto bad = parse_ranges(text, "t");
    ASSERT_FALSE(bad) << text;
    EXPECT_NE(bad.error().message.find("\"a\""), std::string::npos) << text;
  }
}

TEST(Ranges, BothFormatsGiveBackEveryBit) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    auto scales = random_scales(rng);
    scales.erase("q\"\\\x01\xc3\xa9");  // JSON only, below
    const auto table = parse_ranges(quant::table_text(scales, "100700-EntropyCalibration2"), "t");
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(*table, ir::symmetric(scales));
    scales["q\"\\\x01\xc3\xa9"] = 2.5F;
    for (auto& [name, s] : scales) s = std::min(s, 2e36F);  // amax stays a float32
    const auto json = parse_ranges(quant::ranges_json(ir::symmetric(scales)), "t");
    ASSERT_TRUE(json) << json.error().message;
    EXPECT_EQ(*json, ir::symmetric(scales));
  }
}

TEST(Ranges, JsonMayHoldMoreThanTheMagnitude) {
  const auto r = parse_ranges(R"({"a": {"amax": 12.7, "hist": [1, 2]}, "b": 1.27})", "t");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->at("a"), ir::symmetric(static_cast<float>(12.7 / 127)));
  EXPECT_EQ(r->at("b"), ir::symmetric(static_cast<float>(1.27 / 127)));
  EXPECT_FALSE(parse_ranges(R"({"a": {"max": 12.7}})", "t"));
  EXPECT_FALSE(parse_ranges(R"({"a": {"amax": "12.7"}})", "t"));
  EXPECT_FALSE(parse_ranges(R"({"a": {"amax": -1}})", "t"));
}

TEST(Ranges, HostileBytesAreReadOrRefused) {
  int refused = 0, read = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const std::map<std::string, float> scales{{"a", 0.5F}, {"b: c", 1.0F}, {"d", 2.0F}};
    std::string text =
        seed % 2 == 0 ? quant::table_text(scales, "8510-MinMaxCalibration") : quant::ranges_json(ir::symmetric(scales));
    for (unsigned k = rng() % 4 + 1; k > 0 && !text.empty(); --k) {
      const std::size_t at = rng() % text.size();
      switch (rng() % 3) {
        case 0: text[at] = static_cast<char>(rng()); break;
        case 1: text.erase(at, rng() % 8 + 1); break;
        default: text.insert(at, text.substr(rng() % text.size(), rng() % 9)); break;
      }
    }
    const auto r = parse_ranges(text, "t");
    if (!r) {
      ++refused;
      EXPECT_EQ(r.error().kind, ErrorKind::bad_input) << r.error().message;
      continue;
    }
    ++read;
    for (const auto& [name, q] : *r) EXPECT_GE(q.scale[0], 0) << name;  // so not NaN either
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(read, 500);
}

TEST(Ranges, EveryTableOfTheSharedFolderIsReadAndWrittenAgain) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const std::filesystem::path folder = std::filesystem::path(set != nullptr ? set : OCTAVO_SOURCE_DIR "/../shared") / "caches";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << folder;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const auto scales = read_ranges(entry.path().string());
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_GT(scales->size(), 10U);
    const auto again = parse_ranges(quant::table_text(scales_of(*scales), "1-X"), "t");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *scales);
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace octavo::api
