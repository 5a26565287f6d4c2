// Every cause has a sentence that names each of its fields, and no other.
#include "report/sentences.h"

#include <gtest/gtest.h>

#include <set>

#include "base/causes/plan_precision.h"
#include "base/causes/plan_regions.h"
#include "base/causes/plan_search.h"
#include "base/causes/quant.h"

namespace octavo::report {
namespace {

std::set<std::string> placeholders(std::string_view text) {
  std::set<std::string> out;
  for (std::size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1))
    out.emplace(text.substr(open + 1, text.find('}', open) - open - 1));
  return out;
}

TEST(Sentences, NameTheFieldsOfTheirCause) {
  std::set<std::string_view> seen;
  for (const Cause cause : all_causes()) {
    std::set<std::string> fields;
    for (std::size_t i = 0; i < field_count(cause); ++i) fields.emplace(field_of(cause, i).name);
    EXPECT_EQ(fields.size(), field_count(cause)) << name_of(cause) << " has two fields of one name";
    EXPECT_EQ(placeholders(sentence_of(cause)), fields) << name_of(cause);
    EXPECT_FALSE(sentence_of(cause).empty() || sentence_of(cause).ends_with('.')) << name_of(cause);
    EXPECT_TRUE(seen.insert(sentence_of(cause)).second) << name_of(cause) << " says what another cause says";
    EXPECT_EQ(find_cause(name_of(cause)), cause);
  }
  EXPECT_FALSE(find_cause("no such cause"));
  EXPECT_EQ(all_causes().size(), seen.size());
}

/// What can be an estimate, or be forced, may not be said to be measured: such a sentence takes the source of its times as a value.
TEST(Sentences, SayMeasuredOnlyOfWhatIs) {
  for (const Cause cause : all_causes()) {
    const bool of_measurements = cause == cause::measured_region_by_region || cause == cause::whole_plan_of_measured_slower;
    EXPECT_TRUE(of_measurements || sentence_of(cause).find("measured") == std::string_view::npos) << name_of(cause);
  }
}

TEST(Sentences, PutValuesInTheirPlaces) {
  EXPECT_EQ(sentence(because<cause::tensor_kept_by_rule>("r1", "float32", "r*")),
            "not int8: tensor \"r1\" is kept float32 by the rule \"r*=float32\"");
  EXPECT_EQ(sentence(because<cause::values_below_zero>(-0.1F)), "the values can be as low as -0.1");
  EXPECT_EQ(
      sentence(because<cause::whole_plan_slower>("slices", 2.5e-6, 1e-3)),
      "\"slices\" was cheaper by the sum of its regions, but not in runs of the whole plan: 2.5 us with it, 1000 us without it");
  const Reasons two{because<cause::epilogue_fused>(std::vector<std::string>{"view", "add"}), because<cause::int8_demanded>()};
  EXPECT_EQ(sentences(two), "epilogue: quantize, add; the model's Q/DQ pairs require int8");
  EXPECT_EQ(sentence(because<cause::faster_by_parts>("bfloat16", "estimated")),
            "the estimated time of the layer is lower in bfloat16");
  EXPECT_EQ(sentence(because<cause::range_near_float16_end>("sum", 40000.0, 32768.0)),
            "not float16: the range of tensor \"sum\" reaches 40000; layers keep a wider type where a range reaches 32768, about "
            "half of the "
            "largest float16 value");
  EXPECT_EQ(sentence(because<cause::grouped_side_by_side>(3)),
            "this region joins 3 regions, none of which reads a result of another");
  EXPECT_EQ(sentence(because<cause::images_at_a_time>(8, 2)), "each run computes 8 images, 2 of them in parallel");
  EXPECT_EQ(sentence(because<cause::kernel_of_one_shape>()),
            "this kernel was compiled for these shapes alone: its text contains an extent, such as a height, as a constant, so no "
            "kernel that was compiled for the whole range serves them");
  EXPECT_TRUE(well_formed(two[0]));
  EXPECT_FALSE(well_formed(Reason(cause::epilogue_fused)));
  EXPECT_FALSE(well_formed(Reason(cause::epilogue_fused, {std::int64_t{1}})));
  const Reason unknown(static_cast<Cause>(1));  // a number that no name has
  EXPECT_TRUE(name_of(unknown.cause).empty() && sentence_of(unknown.cause).empty() && !well_formed(unknown));
}

}  // namespace
}  // namespace octavo::report
