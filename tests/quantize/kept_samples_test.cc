// Samples in memory and in the file behind it are the same samples.
#include "quantize/data/kept_samples.h"

#include <gtest/gtest.h>

namespace octavo::quantize {
namespace {

Sample numbered(int i) {
  const auto x = static_cast<float>(i);
  return {"sample " + std::to_string(i),
          {ir::Tensor::of<float>({2, 2}, {x, -x, x / 2, 7}), ir::Tensor::of<std::int64_t>({3}, {i, 2 * i, -i})}};
}

TEST(KeptSamples, AreTheSameInMemoryAndInTheFile) {
  constexpr int kCount = 9;
  const std::size_t one = 4 * sizeof(float) + 3 * sizeof(std::int64_t);
  for (const std::size_t most : {std::size_t{0}, 4 * one, 100 * one}) {  // all in the file, some, none
    KeptSamples kept(most);
    for (int i = 0; i < kCount; ++i) ASSERT_TRUE(kept.add(numbered(i)));
    ASSERT_EQ(kept.size(), static_cast<std::size_t>(kCount));
    for (int i = kCount; i-- > 0;) {
      const auto back = kept.at(static_cast<std::size_t>(i));
      ASSERT_TRUE(back) << back.error().message;
      const Sample wanted = numbered(i);
      EXPECT_EQ(back->name, wanted.name);
      ASSERT_EQ(back->inputs.size(), 2U);
      for (std::size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(back->inputs[k].type(), wanted.inputs[k].type());
        EXPECT_TRUE(ir::same_bytes(back->inputs[k], wanted.inputs[k])) << most << " bytes in memory, sample " << i;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::quantize
