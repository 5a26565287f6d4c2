// Every law against its text test (tests/quant/rules/*.irt).
#include <gtest/gtest.h>

#include <algorithm>

#include "quant/normal_form.h"
#include "support/irt.h"

namespace octavo {
namespace {

class LawText : public ::testing::TestWithParam<std::string> {};

TEST_P(LawText, Holds) {
  testing::run_irt(GetParam(), quant::laws());
}

INSTANTIATE_TEST_SUITE_P(Quant, LawText, ::testing::ValuesIn(testing::irt_files("tests/quant/rules")), [](const auto& file) {
  const std::string stem = file.param.substr(file.param.rfind('/') + 1);
  return stem.substr(0, stem.rfind('.'));
});

TEST(LawNames, EachHasItsTextTest) {
  const std::vector<std::string> files = testing::irt_files("tests/quant/rules");
  for (const rewrite::Rule* law : quant::laws()) {
    std::string stem(law->name());
    std::replace(stem.begin(), stem.end(), '-', '_');
    EXPECT_TRUE(std::count(files.begin(), files.end(), "tests/quant/rules/" + stem + ".irt")) << law->name() << " has no text test";
  }
  EXPECT_EQ(files.size(), quant::laws().size());
}

}  // namespace
}  // namespace octavo
