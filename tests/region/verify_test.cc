// Each thing a kernel relies on, broken once.
#include "region/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "region/toy_plan.h"

namespace octavo::region {
namespace {

TEST(PlanVerify, AcceptsTheToyPlan) {
  const Status status = verify(toy_plan());
  EXPECT_TRUE(status) << status.error().message;
  Plan empty;
  EXPECT_TRUE(verify(empty));
}

TEST(PlanVerify, CatchesEachBrokenInvariant) {
  constexpr auto kHuge = std::int64_t{1} << 62;
  struct Case {
    const char* why;
    std::function<void(Plan&)> break_it;
  };
  const auto stage = [](Plan& p) -> Stage& { return p.regions[0].stages[0]; };
  const auto last = [](Plan& p) -> Stage& { return p.regions[1].stages[0]; };
  const Case cases[] = {
      {"for 0 threads", [](Plan& p) { p.threads = 0; }},
      {"arena of -1 bytes", [](Plan& p) { p.devices[0].arena_bytes = -1; }},
      {"negative or too large",
       [](Plan& p) {
         p.inputs[0].type.shape = {1, -4, 6, 6};
       }},
      {"negative or too large",
       [&](Plan& p) {
         p.inputs[0].type.shape = {kHuge, kHuge};
       }},
      {"2 entries, needs 1",
       [](Plan& p) {
         p.inputs[0].quantizer->scale = {1, 1}, p.inputs[0].quantizer->zero_point = {0, 0};
       }},
      {"binding 2 of 2", [](Plan& p) { p.buffers[0].binding = 2; }},
      {"binding -1 of 2", [](Plan& p) { p.buffers[5].binding = -1; }},
      {"its binding u8[1,4,6,6] has another size", [](Plan& p) { p.buffers[0].bytes = 145; }},
      {"has 0 buffers, needs 1", [](Plan& p) { p.buffers[5].binding = 1; }},
      {"has 2 buffers, needs at most 1", [](Plan& p) { p.buffers.push_back(p.buffers[0]); }},
      {"says 292 bytes, holds 288", [](Plan& p) { p.buffers[2].bytes = 292; }},
      {"64-byte aligned", [](Plan& p) { p.buffers[4].arena_offset = 65; }},
      {"64-byte aligned", [](Plan& p) { p.buffers[4].arena_offset = 0; }},
      {"64-byte aligned", [](Plan& p) { p.buffers[4].arena_offset = 128; }},
      {"64-byte aligned", [&](Plan& p) { p.buffers[4].arena_offset = kHuge; }},
      {"has no stage", [](Plan& p) { p.regions[1].stages.clear(); }},
      {"packed buffer 99 is not a constant", [](Plan& p) { p.regions[0].packed = {99}; }},
      {"packed buffer 4 is not a constant", [](Plan& p) { p.regions[0].packed = {4}; }},
      // Addresses
      {"names buffer 7 of 7", [&](Plan& p) { stage(p).anchor.inputs[0].buffer = 7; }},
      {"names buffer -1 of 7", [&](Plan& p) { stage(p).stores[0].buffer = -1; }},
      {"leave buffer 0", [&](Plan& p) { stage(p).anchor.inputs[0].offset = 1; }},
      {"offset -1", [&](Plan& p) { stage(p).anchor.inputs[0].offset = -1; }},
      {"offset 145", [&](Plan& p) { stage(p).anchor.inputs[0].offset = 145; }},
      {"offset 2 in a buffer", [&](Plan& p) { stage(p).stores[1].offset = 2; }},
      {"leave buffer 0", [&](Plan& p) { stage(p).anchor.inputs[0].strides[1] = 37; }},
      {"leave buffer 0", [&](Plan& p) { stage(p).anchor.inputs[0].strides[1] = -1; }},
      {"leave buffer 0", [&](Plan& p) { stage(p).anchor.inputs[0].strides[3] = std::int64_t{1} << 47; }},
      {"stride 4611686018427387904", [&](Plan& p) { stage(p).anchor.inputs[0].strides[1] = kHuge; }},
      {"stride -4611686018427387904", [&](Plan& p) { stage(p).anchor.inputs[0].strides[1] = -kHuge; }},
      {"leave buffer 6", [&](Plan& p) { last(p).stores[0].offset -= 4; }},
      {"leave buffer 3", [&](Plan& p) { stage(p).operands[0].ref.strides[0] = 0, stage(p).operands[0].ref.strides[1] = 2; }},
      {"leave buffer 1",
       [&](Plan& p) {
         stage(p).operands[1].div = {1, 1, 2, 1};
       }},
      {"leave buffer 1", [&](Plan& p) { stage(p).operands[1].div.clear(); }},
      {"divides by 0", [&](Plan& p) { stage(p).operands[1].div[2] = 0; }},
      {"write an element more than once (dimension 3)", [&](Plan& p) { stage(p).stores[0].strides[3] = 0; }},
      {"write an element more than once (dimension 2)", [&](Plan& p) { stage(p).stores[0].strides[2] = 40; }},
      {"attribute pads is 2147483649, at most 2147483648",
       [&](Plan& p) {
         stage(p).anchor.as<ir::Window>().pads = {1, 1, (std::int64_t{1} << 31) + 1, 1};
       }},
      {"the padded input is [1,4,2147483654,2147483654]",
       [&](Plan& p) { stage(p).anchor.as<ir::Window>().pads.assign(4, std::int64_t{1} << 30); }},
      {"3 divisors for rank 4", [&](Plan& p) { stage(p).operands[1].div.pop_back(); }},
      {"3 strides, needs 4", [&](Plan& p) { stage(p).operands[0].ref.strides.pop_back(); }},
      {"writes to an input or a constant",
       [&](Plan& p) {
         last(p).stores[0] = channels_last(1, ir::DType::f32, {1, 8, 3, 3}), last(p).space = {1, 8, 3, 3};
       }},
      {"not in a constant buffer", [&](Plan& p) { stage(p).anchor.weights->buffer = 1; }},
      {"negative or too large",
       [&](Plan& p) {
         stage(p).space = {1, -8, 6, 6};
       }},
      {"negative or too large",
       [&](Plan& p) {
         stage(p).space = {kHuge, kHuge, 6, 6};
       }},
      // Anchors
      {"needs one input and weights", [&](Plan& p) { stage(p).anchor.weights.reset(); }},
      {"the anchor's result is [1,8,4,4]", [&](Plan& p) { stage(p).anchor.as<ir::Window>().pads.assign(4, 0); }},
      {"attribute pads has 1 entries", [&](Plan& p) { stage(p).anchor.as<ir::Window>().pads = {1}; }},
      {"the facts of conv are not complete", [&](Plan& p) { stage(p).anchor.as<ir::Window>().strides.clear(); }},
      {"the facts of conv are not complete", [&](Plan& p) { stage(p).anchor.facts = {}; }},
      {"reads u8 codes", [&](Plan& p) { stage(p).anchor.inputs[0].quantizer.reset(); }},
      {"reads u8 codes", [&](Plan& p) { stage(p).anchor.inputs[0].dtype = ir::DType::s8; }},
      {"u8 weights, needs s8", [&](Plan& p) { stage(p).anchor.weights->dtype = ir::DType::u8; }},
      {"7 weight zero points for 8", [&](Plan& p) { stage(p).anchor.weight_zero.pop_back(); }},
      {"has anchor inputs", [&](Plan& p) { stage(p).anchor.op = ir::Op::input; }},
      {"2 entries, needs 8",
       [&](Plan& p) {
         stage(p).stores[0].quantizer = ir::Quantizer{ir::DType::u8, {1, 1}, {0, 0}, 1, ir::DType::f32};
       }},
      // Programs
      {"defined before", [&](Plan& p) { stage(p).program.code[1].args[0] = 5; }},
      {"v2 = load_f 1: there are 1 operands", [&](Plan& p) { stage(p).program.operand_count = 1; }},
      {"reads 2 operands, there are 1", [&](Plan& p) { stage(p).operands.pop_back(); }},
      {"stores nothing", [&](Plan& p) { stage(p).stores.clear(); }},
      {"2 program outputs, 1 stores", [&](Plan& p) { stage(p).stores.pop_back(); }},
      {"holds f32, the program makes u8", [&](Plan& p) { std::swap(stage(p).stores[0], stage(p).stores[1]); }},
      {"wrong type", [&](Plan& p) { stage(p).anchor.integer = false; }},
      {"there is no anchor", [&](Plan& p) { last(p).program.push(program::Op::acc_i); }},
      {"neither an anchor nor a program", [&](Plan& p) { last(p).program.outputs.clear(); }},
      {"load_i of operand 0, which is f32",
       [&](Plan& p) {
         last(p).operands[0].ref = channels_last(5, ir::DType::f32, {1, 8, 6, 6});
       }},
      {"load_f of operand 0, which is s32", [&](Plan& p) { stage(p).operands[0].ref.dtype = ir::DType::s32; }},
      {"store 0 is [1,8,3,3]",
       [&](Plan& p) {
         last(p).stores[0].dims = {1, 8, 3, 3};
       }},
  };
  for (const Case& c : cases) {
    Plan p = toy_plan();
    c.break_it(p);
    const Status status = verify(p);
    ASSERT_FALSE(status) << "not caught: " << c.why;
    EXPECT_NE(status.error().message.find(c.why), std::string::npos) << "said: " << status.error().message << "\nwanted: " << c.why;
    const Status resized = verify_resized(p, toy_plan());  // what is equal there is not looked at again
    ASSERT_FALSE(resized) << "not caught beside the sound plan: " << c.why;
    EXPECT_EQ(resized.error().message, status.error().message);
  }
  EXPECT_TRUE(verify_resized(toy_plan(), toy_plan()));
}

TEST(PlanVerify, BuffersInUseTogetherShareNoBytes) {
  // Region 0 stores a and b, region 1 reads a into c, region 2 reads c: b and c never live together, a and c do in region 1.
  const auto plan_with = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    Plan p;
    p.devices[0].arena_bytes = 1024;
    p.buffers = {{BufferKind::arena, 128, a, -1, {}, "a"},
                 {BufferKind::arena, 128, b, -1, {}, "b"},
                 {BufferKind::arena, 128, c, -1, {}, "c"}};
    const auto ref = [](BufferId id) { return TensorRef{id, 0, ir::DType::f32, {32}, {1}, std::nullopt, ""}; };
    const auto region = [&](std::vector<BufferId> reads, std::vector<BufferId> stores) {
      Stage s;
      s.space = {32};
      for (const BufferId id : reads) s.operands.push_back({ref(id), {}});
      s.program.operand_count = static_cast<int>(reads.size());
      for (const BufferId id : stores) {
        s.stores.push_back(ref(id));
        s.program.outputs.push_back({s.program.imm_f(1), ir::DType::f32});
      }
      Region r;
      r.stages = {s};
      return r;
    };
    p.regions = {region({}, {0, 1}), region({0}, {2}), region({2}, {2})};
    return p;
  };
  EXPECT_TRUE(verify(plan_with(64, 192, 320))) << verify(plan_with(64, 192, 320)).error().message;
  EXPECT_TRUE(verify(plan_with(64, 192, 192)));
  EXPECT_TRUE(verify(plan_with(64, 192, 256)));
  for (const auto& p : {plan_with(64, 128, 320), plan_with(64, 192, 64), plan_with(64, 192, 128), plan_with(192, 320, 128)}) {
    const Status status = verify(p);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("share bytes of the arena"), std::string::npos) << status.error().message;
  }
}

TEST(PlanVerify, EmptyTensorsTouchNothing) {
  Plan p = toy_plan();
  Region r;
  Stage s;
  s.space = {0, 8};
  s.program.outputs = {{s.program.imm_f(1), ir::DType::f32}};
  s.stores = {TensorRef{4, 0, ir::DType::f32, {0, 8}, {1 << 20, 1 << 20}, std::nullopt, ""}};
  r.stages = {s};
  p.regions.push_back(r);
  EXPECT_TRUE(verify(p)) << verify(p).error().message;
}

}  // namespace
}  // namespace octavo::region
