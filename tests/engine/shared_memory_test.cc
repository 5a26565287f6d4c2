// SharedMemory: constants that are the same tensors in two plans, and one arena, are there once; results stay what they are.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/toy.h"

namespace octavo::engine {
namespace {

TEST(SharedMemory, EqualTensorsOfTwoPlansAreThereOnce) {
  const region::Plan first = toy::plan(3.0F);
  region::Plan second = toy::plan(4.0F);           // another w, of its own
  second.buffers[4].data = first.buffers[4].data;  // the same b
  SharedMemory shared;
  const auto a = Engine::create(first, toy::providers(), {}, {}, &shared);
  ASSERT_TRUE(a) << a.error().message;
  const auto b = Engine::create(second, toy::providers(), {}, {}, &shared);
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_NE((*a)->constant_address(3), (*b)->constant_address(3));
  EXPECT_EQ((*a)->constant_address(4), (*b)->constant_address(4));
  auto x = Context::create(*a, 1, &shared), y = Context::create(*b, 1, &shared), alone = Context::create(*b, 1);
  ASSERT_TRUE(x && y && alone);
  EXPECT_EQ((*x)->arena(), (*y)->arena());
  EXPECT_NE((*x)->arena(), (*alone)->arena());
  const auto in = toy::input();
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(toy::run(**x, in), toy::expected(in));
    EXPECT_EQ(toy::run(**y, in), toy::expected(in, 4.0F));
  }
}

TEST(SharedMemory, OutlivesTheEngineThatItCameFrom) {
  const region::Plan plan = toy::plan();
  std::unique_ptr<Context> context;
  {
    SharedMemory shared;
    {
      const auto first = Engine::create(plan, toy::providers(), {}, {}, &shared);
      ASSERT_TRUE(first);
    }
    const auto second = Engine::create(plan, toy::providers(), {}, {}, &shared);
    ASSERT_TRUE(second);
    auto made = Context::create(*second, 1, &shared);
    ASSERT_TRUE(made);
    context = std::move(*made);
  }
  const auto in = toy::input();
  EXPECT_EQ(toy::run(*context, in), toy::expected(in));
}

TEST(SharedMemory, AnArenaThatIsTooSmallIsNotTaken) {
  region::Plan larger = toy::plan();
  larger.devices[0].arena_bytes = 4096;
  SharedMemory shared;
  const auto a = Engine::create(toy::plan(), toy::providers(), {}, {}, &shared),
             b = Engine::create(larger, toy::providers(), {}, {}, &shared);
  ASSERT_TRUE(a && b);
  const auto x = Context::create(*a, 1, &shared), y = Context::create(*b, 1, &shared);
  ASSERT_TRUE(x && y);
  EXPECT_NE((*x)->arena(), (*y)->arena());
  EXPECT_EQ((*y)->arena_bytes(), 4096U);
}

}  // namespace
}  // namespace octavo::engine
