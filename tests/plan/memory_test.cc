// Where buffers lie in the arena: results in the place of an operand that ends there, and nowhere else.
#include "plan/layout/memory.h"

#include <gtest/gtest.h>

#include <functional>

#include "region/in_place.h"

namespace octavo::plan {
namespace {

using ir::DType;
using program::Op;
using region::BufferId;
using region::BufferKind;
using region::TensorRef;

const ir::Shape kSpace{1, 64, 5, 7};

TensorRef tensor(BufferId buffer, std::int64_t batch_stride = 64 * 35) {
  TensorRef t;
  t.buffer = buffer;
  t.dtype = DType::u8;
  t.dims = kSpace;
  t.strides = {batch_stride, 1, 7 * 64, 64};
  return t;
}

/// Buffers 0 x, 1 a, 2 b, 3 sum, 4 y: a = f(x), b = f(a), sum = a + b, y = f(sum). `batch_stride`: of the operands, of one image.
region::Plan residual_block(bool stores_in_place, std::int64_t batch_stride = 0) {
  region::Plan p;
  p.inputs = {{"x", {DType::u8, kSpace}, std::nullopt, {}, 0, {}}};
  p.outputs = {{"y", {DType::u8, kSpace}, std::nullopt, {}, 0, {}}};
  const std::int64_t bytes = ir::count(kSpace);
  p.buffers = {{BufferKind::input, bytes, 0, 0, {}, "x"},
               {BufferKind::arena, bytes, 0, -1, {}, "a"},
               {BufferKind::arena, bytes, 0, -1, {}, "b"},
               {BufferKind::arena, bytes, 0, -1, {}, "sum"},
               {BufferKind::output, bytes, 0, 0, {}, "y"}};
  const auto add_region = [&](const std::vector<BufferId>& from, BufferId to) {
    region::Region r;
    r.name = p.buffers[static_cast<std::size_t>(to)].name;
    r.tactic.stores_in_place = stores_in_place;
    region::Stage s;
    s.space = kSpace;
    s.program.operand_count = static_cast<int>(from.size());
    int v = -1;
    for (std::size_t i = 0; i < from.size(); ++i) {
      s.operands.push_back({tensor(from[i], batch_stride), {}});
      const int operand = s.program.load(Op::load_i, static_cast<int>(i));
      v = i == 0 ? operand : s.program.push(Op::add_i, v, operand);
    }
    s.program.outputs = {{v, DType::u8}};
    s.stores = {tensor(to)};
    r.stages = {std::move(s)};
    p.regions.push_back(std::move(r));
  };
  add_region({0}, 1);
  add_region({1}, 2);
  add_region({1, 2}, 3);
  add_region({3}, 4);
  return p;
}

bool together(const region::Plan& p, std::size_t a, std::size_t b) {
  return p.buffers[a].arena_offset == p.buffers[b].arena_offset;
}

TEST(PlanMemory, AResultTakesThePlaceOfAnOperandThatEndsThere) {
  {
    region::Plan p = residual_block(true);
    plan_memory(p);
    EXPECT_TRUE(together(p, 1, 3));
    EXPECT_FALSE(together(p, 1, 2));
    EXPECT_LT(p.devices[0].arena_bytes, 3 * p.buffers[1].bytes);
    const Status status = region::verify(p);
    EXPECT_TRUE(status) << status.error().message;
  }
}

TEST(PlanMemory, OthersDoNot) {
  struct Case {
    const char* why;
    std::function<void(region::Plan&)> change;
  };
  const Case cases[] = {
      {"a kernel that may store before it reads", [](region::Plan& p) { p.regions[2].tactic.stores_in_place = false; }},
      {"the operand is wanted later",
       [](region::Plan& p) {
         p.regions[3].stages[0].operands.push_back({tensor(1), {}});
       }},
      {"the anchor reads it as well", [](region::Plan& p) { p.regions[2].stages[0].anchor.inputs = {tensor(1)}; }},
      {"other places",
       [](region::Plan& p) {
         p.regions[2].stages[0].operands[0].ref.strides = {0, 35, 7, 1};
       }},
      {"an operand that repeats",
       [](region::Plan& p) {
         p.regions[2].stages[0].operands[0].div = {1, 1, 2, 2};
       }},
      {"another type", [](region::Plan& p) { p.regions[2].stages[0].operands[0].ref.dtype = DType::f32; }},
      {"another stage", [](region::Plan& p) { p.regions[2].stages.push_back(p.regions[2].stages[0]); }},
  };
  for (const Case& c : cases) {
    region::Plan p = residual_block(true);
    p.regions[1].tactic.stores_in_place = false;
    p.regions[2].stages[0].operands.pop_back();  // b is the place of nothing
    c.change(p);
    plan_memory(p);
    EXPECT_FALSE(together(p, 1, 3)) << c.why;
    p.buffers[3].arena_offset = p.buffers[1].arena_offset;
    const Status status = region::verify(p);
    EXPECT_FALSE(status) << c.why;
  }
}

TEST(PlanMemory, ChainsOfBlocksStayInOnePlace) {
  region::Plan p = residual_block(true);
  // Another block behind the first: c = f(sum), sum2 = sum + c.
  p.buffers.push_back({BufferKind::arena, p.buffers[1].bytes, 0, -1, {}, "c"});
  p.buffers.push_back({BufferKind::arena, p.buffers[1].bytes, 0, -1, {}, "sum2"});
  auto make = p.regions[1], add = p.regions[2];
  make.stages[0].operands[0].ref.buffer = 3, make.stages[0].stores[0].buffer = 5;
  add.stages[0].operands[0].ref.buffer = 3, add.stages[0].operands[1].ref.buffer = 5, add.stages[0].stores[0].buffer = 6;
  p.regions.insert(p.regions.begin() + 3, {make, add});
  p.regions.back().stages[0].operands[0].ref.buffer = 6;
  plan_memory(p);
  EXPECT_TRUE(together(p, 1, 3) && together(p, 3, 6));
  EXPECT_FALSE(together(p, 1, 2));
  EXPECT_FALSE(together(p, 1, 5));
  const Status status = region::verify(p);
  EXPECT_TRUE(status) << status.error().message;
}

}  // namespace
}  // namespace octavo::plan
