// What a chain's stages forward, and which buffers then need no memory.
#include <gtest/gtest.h>

#include "region/forwarded.h"
#include "region/toy_plan.h"

namespace octavo::region {
namespace {

/// The toy's convolution, which stores codes alone, and the pass that decodes them, as one region; the codes have no place.
Plan chain(bool forwards) {
  Plan p = toy_plan();
  Stage& first = p.regions[0].stages[0];
  first.stores.resize(1);
  first.program.outputs.resize(1);
  p.regions[0].stages.push_back(p.regions[1].stages[0]);
  p.regions[0].tactic.forwards_stages = forwards;
  p.regions.pop_back();
  p.buffers[4].arena_offset = 1 << 20;
  return p;
}

TEST(HandedOn, OnlyWhatRowTilesHandOnNeedsNoMemory) {
  Plan p = chain(true);
  EXPECT_TRUE(forwarded(p.regions[0], 1, p.regions[0].stages[1].operands[0].ref));
  EXPECT_TRUE(read_by_epilogue(p.regions[0], 1));
  EXPECT_FALSE(read_by_epilogue(p.regions[0], 0));
  EXPECT_EQ(kept_from_memory(p.regions[0]), std::set<BufferId>{4});
  EXPECT_TRUE(verify(p)) << verify(p).error().message;
  EXPECT_FALSE(verify(chain(false))) << "other tactics write it";
  Plan beside = p;
  beside.regions[0].independent = true;
  EXPECT_TRUE(kept_from_memory(beside.regions[0]).empty());
}

TEST(HandedOn, WhatAnythingElseNamesNeedsAPlace) {
  const auto breaks = [](const auto& change) {
    Plan p = chain(true);
    change(p);
    EXPECT_TRUE(kept_from_memory(p.regions[0]).empty());
    EXPECT_FALSE(verify(p));
  };
  breaks([](Plan& p) {  // stored again
    Stage& s = p.regions[0].stages[1];
    s.stores.push_back(p.regions[0].stages[0].stores[0]);
    s.program.outputs.push_back({s.program.push(program::Op::f2i, s.program.outputs[0].value), ir::DType::u8});
  });
  breaks([](Plan& p) { p.regions[0].stages[1].operands.push_back(p.regions[0].stages[1].operands[0]); });
  breaks([](Plan& p) { p.regions[0].stages[0].operands[1].ref = p.regions[0].stages[0].stores[0]; });
  Plan later = chain(true);  // another region reads it
  later.regions.push_back(toy_plan().regions[1]);
  EXPECT_FALSE(verify(later));
}

}  // namespace
}  // namespace octavo::region
