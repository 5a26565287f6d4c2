// cpu.indexed.*: gathers with indices of the run, and scatter, against the reference evaluator, on elements of 1 to 8 bytes, of any rank, along every
// axis and in any order of memory; rows that are copied whole, single elements, tasks that share a dimension.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::Op;
using region::BufferKind;

constexpr std::size_t kGuard = 64;

std::string tactic(Op op) {
  return "cpu.indexed." + std::string(ir::name_of(op));
}

struct Case {
  Op op;
  ir::Shape x, ids, walked;  ///< walked: of a gather the result, of a scatter the updates
  ir::Attrs attrs;
  std::vector<std::int64_t> extents;  ///< of the dimensions that a tuple of indices is along
};

/// Indices within their dimensions, a third of them counted from the end.
region::TensorRef set_indices(Scene& s, const Case& c, DType type) {
  region::TensorRef r = s.tensor(type, c.ids);
  auto* at = s.memory[static_cast<std::size_t>(r.buffer)].data() + kGuard;
  for (std::int64_t i = 0; i < ir::count(c.ids); ++i) {
    const std::int64_t extent = c.extents[static_cast<std::size_t>(i) % c.extents.size()];
    std::int64_t v = s.pick(0, static_cast<int>(extent) - 1);
    if (s.pick(0, 2) == 0) v -= extent;
    if (type == DType::s64) {
      reinterpret_cast<std::int64_t*>(at)[i] = v;
    } else {
      reinterpret_cast<std::int32_t*>(at)[i] = static_cast<std::int32_t>(v);
    }
  }
  return r;
}

void set(Scene& s, const Case& c, DType type, DType indices, const std::vector<int>& order = {},
         const std::vector<int>& stored = {}) {
  region::Stage& st = s.stage();
  const bool scatter = c.op == Op::scatter;
  st.anchor.op = c.op, st.anchor.facts = testing::facts(st.anchor.op, c.attrs), st.space = scatter ? c.x : c.walked;
  const auto ordered = [&](const ir::Shape& dims, const std::vector<int>& o) {
    return o.size() == dims.size() ? o : std::vector<int>{};
  };
  st.anchor.inputs = {s.tensor(type, c.x, BufferKind::arena, ordered(c.x, order), static_cast<int>(s.seed() % 3)),
                      set_indices(s, c, indices)};
  if (scatter) st.anchor.inputs.push_back(s.tensor(type, c.walked, BufferKind::arena, ordered(c.walked, stored)));
  st.stores = {s.tensor(type, st.space, BufferKind::arena, ordered(st.space, stored))};
}

std::vector<Case> gathers() {
  std::vector<Case> all;
  const ir::Shape x{3, 7, 5, 33};
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    const std::int64_t n = x[static_cast<std::size_t>(axis)];
    ir::Shape elements = x, rows = x;
    elements[static_cast<std::size_t>(axis)] = 20;
    elements[static_cast<std::size_t>((axis + 1) % 4)] -= 1;  // fewer indices than data beside the axis
    all.push_back({Op::gather_elements, x, elements, elements, {{"axis", axis}}, {n}});
    for (const ir::Shape& ids : {ir::Shape{}, {4}, {2, 3}, {1, 2, 2}}) {
      rows = x;
      rows.erase(rows.begin() + axis);
      rows.insert(rows.begin() + axis, ids.begin(), ids.end());
      all.push_back({Op::gather, x, ids, rows, {{"axis", axis}}, {n}});
    }
  }
  for (std::int64_t length = 1; length <= 4; ++length) {
    for (std::int64_t batch = 0; batch + length <= 4 && batch < 3; ++batch) {
      ir::Shape ids(x.begin(), x.begin() + batch), walked;
      ids.push_back(6), walked = ids, ids.push_back(length);
      walked.insert(walked.end(), x.begin() + batch + length, x.end());
      all.push_back({Op::gather_nd, x, ids, walked, {{"batch_dims", batch}}, {x.begin() + batch, x.begin() + batch + length}});
    }
  }
  all.push_back({Op::gather_elements, {5000}, {9000}, {9000}, {{"axis", std::int64_t{0}}}, {5000}});
  all.push_back({Op::gather_nd, {400, 300}, {350, 1}, {350, 300}, {}, {400}});
  all.push_back({Op::gather_nd, {40}, {1}, {}, {}, {40}});
  return all;
}

TEST(Indexed, GathersOfEveryFormAndSize) {
  std::uint32_t seed = 1;
  for (const Case& c : gathers()) {
    for (const DType type : {DType::u8, DType::f16, DType::f32, DType::s64}) {
      Scene s(seed++);
      set(s, c, type, seed % 2 == 0 ? DType::s64 : DType::s32, seed % 3 == 0 ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{},
          seed % 5 == 0 ? std::vector<int>{3, 1, 2, 0} : std::vector<int>{});
      SCOPED_TRACE(ir::to_string(c.ids) + " of " + ir::to_string(c.x));
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.op)));
    }
  }
}

TEST(Indexed, ResultsThatAProgramWorksOn) {
  std::uint32_t seed = 1;
  for (const Case& c : gathers()) {
    Scene s(seed++);
    set(s, c, DType::f32, DType::s64);
    auto& p = s.stage().program;
    p.outputs = {{p.push(program::Op::mul, p.push(program::Op::acc_f), p.imm_f(3.0F)), DType::f32}};
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.op)));
  }
}

// Updates that meet are taken in their order, whichever thread has them.
TEST(Indexed, ScatterOfEveryReduction) {
  std::uint32_t seed = 1;
  std::vector<Case> all;
  for (const ir::Shape& x : {ir::Shape{3, 7, 5, 33}, {2, 90, 3, 40}}) {
    for (std::int64_t axis = 0; axis < 4; ++axis) {
      ir::Shape updates = x;
      updates[static_cast<std::size_t>(axis)] = 9;
      updates[static_cast<std::size_t>((axis + 2) % 4)] -= 1;
      all.push_back({Op::scatter,
                     x,
                     updates,
                     updates,
                     {{"kind", std::string("elements")}, {"axis", axis}},
                     {x[static_cast<std::size_t>(axis)]}});
    }
    for (std::int64_t length = 1; length <= 4; ++length) {
      ir::Shape walked{20};
      walked.insert(walked.end(), x.begin() + length, x.end());
      all.push_back({Op::scatter, x, {20, length}, walked, {{"kind", std::string("nd")}}, {x.begin(), x.begin() + length}});
    }
  }
  for (Case& c : all) {
    for (const char* how : {"none", "add", "mul", "max", "min"}) {
      for (const DType type : {DType::f32, DType::s64, DType::u8}) {
        c.attrs["reduction"] = std::string(how);
        Scene s(seed++);
        set(s, c, type, seed % 2 == 0 ? DType::s64 : DType::s32, seed % 3 == 0 ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{},
            seed % 5 == 0 ? std::vector<int>{3, 1, 2, 0} : std::vector<int>{});
        if (seed % 4 < 2) {  // of the updates along the first dimension only so many are there
          const std::int64_t there = seed % 4 == 0 ? c.ids[0] / 2 : seed % 8 == 1 ? 0 : c.ids[0] + 3;
          const region::TensorRef many = s.tensor(DType::s64, {});
          std::memcpy(s.memory[static_cast<std::size_t>(many.buffer)].data() + 64, &there, sizeof there);
          s.stage().anchor.inputs.push_back(many);
        }
        SCOPED_TRACE(std::string(how) + " on " + std::string(ir::name_of(type)));
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.op)));
      }
    }
  }
}

TEST(Indexed, RefusesIndicesOfOtherTypes) {
  Scene s(1);
  set(s, {Op::gather_elements, {8}, {4}, {4}, {{"axis", std::int64_t{0}}}, {8}}, DType::f32, DType::s64);
  s.stage().anchor.inputs[1].dtype = DType::u8;
  EXPECT_NE(s.compare(cpu::cpu_provider(), tactic(Op::gather_elements)).find("s64 or s32"), std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
