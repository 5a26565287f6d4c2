#include "region/precision.h"

#include <gtest/gtest.h>

namespace octavo::region {
namespace {

TEST(Precision, TextsComeBack) {
  for (const Work w : {Work::none, Work::int8, Work::tf32, Work::quantize, Work::narrow, Work::move, Work::transfer, Work::mixed})
    EXPECT_EQ(find_precision(to_string(w)), Precision(w)) << to_string(w);
  for (int i = 0; i <= static_cast<int>(ir::DType::f4e2m1); ++i) {
    const auto type = static_cast<ir::DType>(i);
    EXPECT_EQ(find_precision(to_string(type)), Precision(type)) << ir::name_of(type);
  }
  EXPECT_EQ(to_string(ir::DType::f32), "float32");
  EXPECT_EQ(to_string(ir::DType::f16), "float16");
  for (const ir::DType type : {ir::DType::bf16, ir::DType::f16}) {
    const Precision narrowing = Precision::narrowing_to(type);
    EXPECT_EQ(find_precision(to_string(narrowing)), narrowing) << to_string(narrowing);
  }
  EXPECT_EQ(to_string(Precision::narrowing_to(ir::DType::f16)), "float32->float16");
  for (const char* text : {"f32", "bf16", "f16", "float32->float32", "float32->", "int4", "Move", "int8 "})
    EXPECT_FALSE(find_precision(text)) << text;
}

TEST(Precision, KindsAreTold) {
  EXPECT_TRUE(Precision(Work::int8).has_codes() && Precision(Work::quantize).has_codes());
  EXPECT_FALSE(Precision(ir::DType::u8).has_codes() || Precision(Work::move).has_codes());
  EXPECT_TRUE(Precision(ir::DType::f32).from_float32() && Precision(Work::narrow).from_float32());
  EXPECT_FALSE(Precision(Work::tf32).from_float32() || Precision(Work::none).from_float32());
  EXPECT_TRUE(Precision(ir::DType::bf16).has(ir::DType::bf16) && !Precision(ir::DType::f16).has(ir::DType::bf16));
  EXPECT_TRUE(Precision::narrowing_to(ir::DType::f16).has(ir::DType::f16) && !Precision(Work::int8).has(ir::DType::f32));
}

}  // namespace
}  // namespace octavo::region
