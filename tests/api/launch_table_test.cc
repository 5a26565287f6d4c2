// The table of launches: what it gives is what was put into it, through JSON too, and a forged one is refused or gives texts.
#include "api/launch_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace octavo::testing {
namespace {

using api::LaunchTable;
using Start = LaunchTable::Start;

/// As providers write launches: quoted digits, escapes, negative and large numbers, numbers that are no whole ones.
Start start_at(std::mt19937_64& random, const plan::Point& p, std::size_t region) {
  const std::int64_t n = p[0] * (p.size() > 1 ? p[1] : 3);
  nlohmann::json j{{"grid", {(n + 127) / 128, 1, 1}},
                   {"function", "octavo_07\"\\3"},
                   {"texts", "00ff12"},
                   {"wide", (std::int64_t{1} << 40) * p[0] - 7},
                   {"early", n % 2 == 0}};
  if (region == 1) j["real"] = 0.05;  // not spelled again by its parts
  if (region == 2 && n % 5 == 0) j["more"] = nlohmann::json::array({-n, n, n});
  return {j.dump(), static_cast<std::int32_t>(random() % 3) - 1};
}

TEST(LaunchTable, GivesWhatWasPutIntoIt) {
  for (const auto& [least, most] :
       {std::pair<plan::Point, plan::Point>{{1}, {40}}, {{1, 7}, {5, 30}}, {{2, 0, 1}, {3, 4, 9}}, {{4}, {4}}}) {
    std::mt19937_64 random(7);
    LaunchTable table(least, most);
    std::vector<std::vector<std::optional<Start>>> all(3);
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (std::size_t p = 0; p < table.points(); ++p) {
        const plan::Point point = table.point(p);
        EXPECT_EQ(table.index_of(point), p);
        all[r].emplace_back(random() % 7 == 0 ? std::nullopt : std::optional(start_at(random, point, r)));
      }
      table.put(r, all[r]);
    }
    plan::Point outside = most;
    ++outside.back();
    EXPECT_FALSE(table.index_of(outside));
    std::vector<std::byte> data(5);
    const nlohmann::json j = nlohmann::json::parse(table.to_json(data).dump());
    const auto read = LaunchTable::from_json(j, std::span(data).subspan(5), least.size(), 2);
    ASSERT_TRUE(read) << read.error().message;
    int kept = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (std::size_t p = 0; p < table.points(); ++p) {
        for (const LaunchTable* t : {static_cast<const LaunchTable*>(&table), &*read}) {
          const auto got = t->find(r, p);
          if (r == 1) {
            EXPECT_FALSE(got && all[r][p] && *got != *all[r][p]);
            continue;
          }
          EXPECT_EQ(got, all[r][p]) << "region " << r << ", point " << p;
          EXPECT_EQ(t->code(r, p), all[r][p] ? all[r][p]->code : -1);
          kept += got ? 1 : 0;
          // The same by its form and numbers.
          std::vector<std::int64_t> numbers;
          const auto form = t->numbers(r, p, numbers);
          ASSERT_EQ(form.has_value(), got.has_value());
          if (!got) continue;
          const LaunchTable::Indexed indexed = t->forms(r).at(*form);
          EXPECT_EQ(indexed.code, got->code);
          nlohmann::json told = nlohmann::json::parse(indexed.text);
          for (auto& value : told) {
            if (value.is_number_integer()) value = numbers.at(value.get<std::size_t>());
            if (!value.is_array()) continue;
            for (auto& item : value) item = numbers.at(item.get<std::size_t>());
          }
          EXPECT_EQ(told.dump(), got->launch);
        }
      }
    }
    EXPECT_GT(kept, 0);
    EXPECT_FALSE(table.find(9, 0));
  }
}

/// Numbers that are not marks, and marks that are no whole numbers, are no forms: their launches are texts.
TEST(LaunchTable, FormsHaveWholeNumbersAlone) {
  LaunchTable table({1}, {1});
  std::vector<std::byte> data;
  table.put(0, std::vector<std::optional<Start>>{Start{R"({"grid":[1,-2],"name":"a7\"8"})", -1}});
  const nlohmann::json sound = table.to_json(data);
  const auto text_of = [&](const std::string& form) {
    nlohmann::json j = sound;
    j["rows"][0][2][0][0] = form;
    const auto read = LaunchTable::from_json(j, data, 1, 0);
    return read ? read->forms(0).at(0).text : "refused";
  };
  const std::string mark = "\x01", form = sound["rows"][0][2][0][0];
  EXPECT_EQ(text_of(form), R"({"grid":[0,1],"name":"a7\"8"})");
  for (const std::string& bad :
       {"[1" + mark + "," + mark + "]", "[" + mark + mark + "]", "[\"" + mark + "\"," + mark + "]", "[" + mark + "," + mark + ",3]",
        "[" + mark + "." + mark + "]", "[-" + mark + "," + mark + "]", mark + mark})
    EXPECT_EQ(text_of(bad), "") << bad;
}

TEST(LaunchTable, ForgedOnesAreRefusedOrGiveTexts) {
  std::mt19937_64 random(11);
  LaunchTable table({1, 1}, {4, 6});
  std::vector<std::optional<Start>> starts;
  for (std::size_t p = 0; p < table.points(); ++p) starts.emplace_back(start_at(random, table.point(p), 2));
  table.put(2, starts);
  std::vector<std::byte> sound_data;
  const nlohmann::json sound = table.to_json(sound_data);
  int refused = 0;
  constexpr int kTries = 600;
  for (int i = 0; i < kTries; ++i) {
    nlohmann::json j = sound;
    std::vector<std::byte> data = sound_data;
    nlohmann::json& form = j["rows"][0][2][0];
    const auto any = static_cast<std::int64_t>(random() % 80) - 20;
    switch (random() % 9) {
      case 0: j["least"][0] = any; break;
      case 1: j["most"][1] = any * 1000; break;
      case 2: j["columns"][random() % j["columns"].size()] = random() % 2 == 0 ? nlohmann::json("s64") : nlohmann::json(any); break;
      case 3: form[0] = form[0].get<std::string>() + std::string(random() % 3, '\x01'); break;
      case 4: form[1] = any; break;
      case 5: form[2][random() % form[2].size()] = any + 20; break;
      case 6: j["rows"][0][1] = random() % 40; break;
      case 7: data.resize(random() % (data.size() + 8)); break;
      default:
        if (!data.empty()) data[random() % data.size()] ^= static_cast<std::byte>(1U << random() % 8);
        break;
    }
    const auto read = LaunchTable::from_json(j, data, 2, 2);
    if (!read) {
      EXPECT_EQ(read.error().kind, ErrorKind::bad_engine) << read.error().message;
      ++refused;
      continue;
    }
    for (std::size_t p = 0; p < read->points(); ++p) (void)read->find(2, p);
  }
  EXPECT_GT(refused, kTries / 4);
}

}  // namespace
}  // namespace octavo::testing
