// What one planning computed is taken again only for what is equal in all that the computation reads.
#include "plan/memo.h"

#include <gtest/gtest.h>

#include "region/toy_plan.h"

namespace octavo::plan {
namespace {

class Counting : public region::Provider {
 public:
  explicit Counting(bool code) : code_(code) {}
  std::string_view name() const override { return "counting"; }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override { return {}; }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    region::Artifact out;
    out.constants = {ir::Tensor::of<std::int8_t>({1}, {static_cast<std::int8_t>(++compiled)})};
    if (code_) out.code = "code";
    return out;
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region&, const region::Plan&,
                                               const region::ArtifactView&) const override {
    return fail(ErrorKind::internal, "never loaded");
  }
  mutable int compiled = 0;

 private:
  bool code_;
};

TEST(Memo, EqualRegionsAreCompiledOnce) {
  const Counting provider(false);
  const region::Plan plan = region::toy_plan();
  const region::Tactic a = *region::parse_tactic("cpu.a"), b = *region::parse_tactic("cpu.b");
  CompiledRegions memo;
  ASSERT_TRUE(memo.compile(provider, plan.regions[0], plan, a));
  const auto again = memo.compile(provider, plan.regions[0], plan, a);
  ASSERT_TRUE(again);
  EXPECT_EQ(provider.compiled, 1);
  EXPECT_EQ(again->constants[0].data<std::int8_t>()[0], 1);
  ASSERT_TRUE(memo.compile(provider, plan.regions[0], plan, b));
  EXPECT_EQ(provider.compiled, 2) << "another tactic";
  ASSERT_TRUE(memo.compile(provider, plan.regions[1], plan, a));
  EXPECT_EQ(provider.compiled, 3) << "another region";
  region::Plan other = plan;
  other.buffers[2].data = other.buffers[2].data.clone();
  other.buffers[2].data.mutable_data<std::int8_t>()[0] = 6;
  ASSERT_TRUE(memo.compile(provider, other.regions[0], other, a));
  EXPECT_EQ(provider.compiled, 4) << "other weights";
}

TEST(Memo, CodeMayNameBuffersOfItsPlanAndIsNotKept) {
  const Counting provider(true);
  const region::Plan plan = region::toy_plan();
  const region::Tactic a = *region::parse_tactic("cpu.a");
  CompiledRegions memo;
  ASSERT_TRUE(memo.compile(provider, plan.regions[0], plan, a));
  ASSERT_TRUE(memo.compile(provider, plan.regions[0], plan, a));
  EXPECT_EQ(provider.compiled, 2);
}

TEST(Memo, ProgramsThatDifferAnywhereAreSimplifiedApart) {
  using program::Op;
  SimplifiedPrograms memo;
  program::Program p;
  p.operand_count = 1;
  const int x = p.load(Op::load_f, 0);
  const int sum = p.push(Op::add, x, p.imm_f(1));
  p.outputs = {{p.push(Op::mul, sum, p.imm_f(1)), ir::DType::f32}};
  const program::Program first = memo.of(p, {false, false});
  EXPECT_EQ(first, program::simplify(p, {false, false}));
  EXPECT_EQ(&memo.of(p, {false, false}), &memo.of(p, {false, false}));
  std::vector<program::Program> others(4, p);
  others[0].outputs[0].type = ir::DType::f16;
  others[1].outputs.push_back(p.outputs[0]);
  others[2].operand_count = 2;
  others[3].code[1].imm += 1;
  for (const program::Program& o : others) {
    EXPECT_NE(&memo.of(o, {false, false}), &memo.of(p, {false, false}));
    EXPECT_EQ(memo.of(o, {false, false}), program::simplify(o, {false, false}));
  }
  EXPECT_NE(&memo.of(p, {true, false}), &memo.of(p, {false, false}));
}

TEST(Memo, WeightsAreLoweredOnceForEachConstantFormAndQuantizer) {
  LoweredWeights memo;
  int made = 0;
  const auto take = [&](const ir::Node& constant, const WeightForm& form) {
    return memo.of(constant, form, [&] { return ir::Tensor::of<float>({1}, {static_cast<float>(++made)}); }).data<float>()[0];
  };
  ir::Node one;
  one.payload = ir::Tensor::of<float>({2}, {1, 2});
  ir::Node copy = one, other = one, quantized = one;  // a copy shares the bytes
  other.payload = one.payload.clone();
  quantized.quantizer = ir::per_tensor(ir::DType::s8, 0.5F);
  EXPECT_EQ(take(one, {}), 1);
  EXPECT_EQ(take(copy, {}), 1);
  EXPECT_EQ(take(other, {}), 2);
  EXPECT_EQ(take(one, {.narrow = ir::DType::f16}), 3);
  EXPECT_EQ(take(one, {.narrow = ir::DType::bf16}), 4);
  EXPECT_EQ(take(one, {.narrow = ir::DType::f16, .transposed = true}), 5);
  EXPECT_EQ(take(quantized, {.codes = true}), 6);
  quantized.quantizer = ir::per_tensor(ir::DType::s8, 0.25F);
  EXPECT_EQ(take(quantized, {.codes = true}), 7);
  EXPECT_EQ(take(one, {}), 1);
  EXPECT_EQ(take(one, {.narrow = ir::DType::f16}), 3);
}

}  // namespace
}  // namespace octavo::plan
