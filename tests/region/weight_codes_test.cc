// Codes of weights (region::WeightCodes) in keys, JSON, hashes, and the lies about them that verification refuses; the tensors that keep codes.
#include <gtest/gtest.h>

#include <cstring>

#include "ir/block_codes.h"
#include "region/from_key.h"
#include "region/key.h"
#include "region/region.h"

namespace octavo::region {
namespace {

constexpr const char* kKey = "conv float f32[3,65,1,1] w f32[18,65,1,1] codes[4,32,1] : acc_f > f32[3,18,1,1]";

Plan plan_of(const char* key = kKey) {
  auto plan = plan_from_key(key, 2);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *std::move(plan) : Plan{};
}
Anchor& anchor(Plan& p) {
  return p.regions[0].stages[0].anchor;
}

TEST(WeightCodes, APlanIsMadeOfItsKeyWithCodesThatAreItsWeights) {
  for (const char* key : {kKey, "conv float f32[3,65,1,1] w f32[18,65,1,1] codes[8,65,0] : acc_f > f32[3,18,1,1]"}) {
    Plan p = plan_of(key);
    EXPECT_EQ(region::key(p.regions[0], p), key);
    const ir::Tensor& weights = p.buffers[static_cast<std::size_t>(anchor(p).weights->buffer)].data;
    ASSERT_NE(weights.codes(), nullptr);
    const ir::Tensor values = ir::values_of(weights.codes());
    for (std::int64_t j = 0; j < 18; ++j) {
      for (std::int64_t i = 0; i < 65; ++i) EXPECT_EQ(values.at(i * 18 + j), weights.at(j * 65 + i));
    }
  }
  for (const char* key : {"codes[3,32,1]", "codes[4,0,1]", "codes[4,66,1]", "codes[4,32]", "codes[]", "codes"})
    EXPECT_FALSE(plan_from_key(std::string("conv float f32[3,65,1,1] w f32[18,65,1,1] ") + key + " : acc_f > f32[3,18,1,1]", 2))
        << key;
  EXPECT_FALSE(plan_from_key("conv float f32[1,2,3,3] w f32[4,2,3,3] codes[4,2,1] : acc_f > f32[1,4,1,1]", 2))
      << "more than one tap";
}

TEST(WeightCodes, JsonGivesThemBack) {
  Plan p = plan_of();
  const auto back = from_json(to_json(p));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->regions[0].stages[0].anchor.weight_codes, (WeightCodes{4, 32, true}));
}

TEST(WeightCodes, HashesAndKeysTellThemApart) {
  Plan p = plan_of();
  const std::string hash = plan_hash(p), key = region::key(p.regions[0], p);
  for (const std::optional<WeightCodes>& other :
       {std::optional<WeightCodes>(), {{8, 32, true}}, {{4, 16, true}}, {{4, 32, false}}}) {
    Plan q = plan_of();
    anchor(q).weight_codes = other;
    EXPECT_NE(plan_hash(q), hash);
    EXPECT_NE(region::key(q.regions[0], q), key);
  }
}

TEST(WeightCodes, LiesAreRefused) {
  const auto refused = [](auto change) {
    Plan p = plan_of();
    change(p);
    const Status ok = verify(p);
    return ok ? std::string() : ok.error().message;
  };
  EXPECT_EQ(refused([](Plan&) {}), "");
  EXPECT_NE(refused([](Plan& p) { anchor(p).weight_codes->bits = 3; }).find("codes of 3 bits"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { anchor(p).weight_codes->block = 0; }).find("blocks of 0 channels of 65"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { anchor(p).weight_codes->block = 66; }).find("blocks of 66 channels of 65"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { anchor(p).weights->dtype = ir::DType::s32; }).find("codes of weights that are not f32"),
            std::string::npos);
}

TEST(WeightCodes, AreForgottenWhenTheFloatsChange) {
  const Plan p = plan_of();
  const ir::Tensor& weights = p.buffers[static_cast<std::size_t>(p.regions[0].stages[0].anchor.weights->buffer)].data;
  ir::Tensor t = weights.clone();
  EXPECT_EQ(t.codes(), weights.codes());
  EXPECT_EQ(t.to_f32().codes(), weights.codes());
  EXPECT_EQ(t.reshaped({65, 18}).codes(), nullptr) << "another matrix";
  t.mutable_data<float>()[0] = 1;
  EXPECT_EQ(t.codes(), nullptr);
  t = weights.clone();
  t.mutable_bytes()[0] = std::byte{1};
  EXPECT_EQ(t.codes(), nullptr);
  EXPECT_NE(weights.codes(), nullptr);
}

}  // namespace
}  // namespace octavo::region
