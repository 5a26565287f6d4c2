// Equal wherever buffers stand in a plan; different for everything that a kernel may read at compile time.
#include <gtest/gtest.h>

#include <functional>

#include "region/hash.h"
#include "region/toy_plan.h"

namespace octavo::region {
namespace {

TEST(ContentHash, DoesNotDependOnWhereBuffersStand) {
  const Plan plan = toy_plan();
  Plan moved = plan;
  moved.buffers.insert(moved.buffers.begin(), {BufferKind::arena, 12345, 0, -1, {}, "another"});
  const auto shift = [](TensorRef& r) { ++r.buffer; };
  for (Region& r : moved.regions) {
    for (Stage& s : r.stages) {
      for (TensorRef& t : s.anchor.inputs) shift(t);
      if (s.anchor.weights) shift(*s.anchor.weights);
      for (Operand& o : s.operands) shift(o.ref);
      for (TensorRef& t : s.stores) shift(t);
    }
  }
  for (Buffer& b : moved.buffers) b.arena_offset += 4096, b.name += "?";
  moved.regions[0].name = "named otherwise";
  moved.regions[0].reasons.clear();
  for (std::size_t i = 0; i < plan.regions.size(); ++i)
    EXPECT_EQ(content_hash(plan.regions[i], plan), content_hash(moved.regions[i], moved)) << i;
  EXPECT_NE(content_hash(plan.regions[0], plan), content_hash(plan.regions[1], plan));
}

TEST(ContentHash, EveryChangeOfTheContentShows) {
  const std::vector<std::pair<const char*, std::function<void(Plan&)>>> changes = {
      {"a weight",
       [](Plan& p) {
         p.buffers[2].data = p.buffers[2].data.clone();
         p.buffers[2].data.mutable_data<std::int8_t>()[287] = 6;
       }},
      {"a scale",
       [](Plan& p) {
         p.buffers[3].data = p.buffers[3].data.clone();
         p.buffers[3].data.mutable_data<float>()[0] = 1.5F;
       }},
      {"a pad",
       [](Plan& p) {
         p.regions[0].stages[0].anchor.as<ir::Window>().pads = {1, 1, 1, 0};
       }},
      {"a zero point", [](Plan& p) { p.regions[0].stages[0].anchor.inputs[0].quantizer->zero_point[0] = 4; }},
      {"a zero point of the weights", [](Plan& p) { p.regions[0].stages[0].anchor.weight_zero = {1}; }},
      {"a stride", [](Plan& p) { p.regions[0].stages[0].stores[0].strides[0] += 8; }},
      {"an offset", [](Plan& p) { p.regions[0].stages[0].stores[0].offset += 8; }},
      {"an immediate",
       [](Plan& p) {
         for (program::Instr& i : p.regions[0].stages[0].program.code) {
           if (i.op == program::Op::imm_f || i.op == program::Op::imm_i) i.imm += 1;
         }
       }},
      {"two operands that are one",
       [](Plan& p) { p.regions[0].stages[0].operands[1].ref.buffer = p.regions[0].stages[0].operands[0].ref.buffer; }},
      {"an open extent", [](Plan& p) { p.regions[0].stages[0].anchor.inputs[0].open.dims = 1; }},
      {"an open stride", [](Plan& p) { p.regions[0].stages[0].stores[0].open.strides = 2; }},
      {"an open extent of the space", [](Plan& p) { p.regions[0].stages[0].open = 1; }},
      {"a counted dimension", [](Plan& p) { p.regions[0].stages[0].counted = 0; }},
      {"a count", [](Plan& p) { p.regions[0].count = 0; }},
      {"what a count is multiplied by", [](Plan& p) { p.regions[0].count_times = 2; }},
      {"the largest sum of weights", [](Plan& p) { p.regions[0].stages[0].anchor.weight_sum = 7; }},
      {"threads", [](Plan& p) { p.threads = 3; }},
      {"images", [](Plan& p) { p.images = 2; }},
      {"the caller's rows", [](Plan& p) { p.inputs[0].bytes = 4096; }},
  };
  const Plan plan = toy_plan();
  ASSERT_GE(plan.regions[0].stages[0].operands.size(), 2U);
  for (const auto& [what, change] : changes) {
    Plan other = plan;
    change(other);
    EXPECT_NE(content_hash(plan.regions[0], plan), content_hash(other.regions[0], other)) << what;
  }
}

}  // namespace
}  // namespace octavo::region
