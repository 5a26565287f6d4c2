// gather_elements, gather_nd, where, comparisons under emulation: every type that is moved, broadcasting, negative indices, with and without an
// epilogue program, equal to the reference evaluator.
#include <gtest/gtest.h>

#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

constexpr DType kTypes[] = {DType::u8, DType::f16, DType::f32, DType::s64};

class Indexed : public EmulatedTest {};

/// The result as it is, or (floats) times a quarter.
void store(Scene& s, DType type, bool epilogue) {
  auto& st = s.stage();
  if (!epilogue) {
    st.program = {};
    st.stores = {s.nhwc(type, st.space, BufferKind::output)};
    return;
  }
  auto& p = st.program;
  p.outputs = {{p.push(Op::mul, p.push(Op::acc_f), p.imm_f(0.25F)), DType::f32}};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
}

template <class T>
void indices(Scene& s, std::int64_t extent, std::int64_t count) {
  auto* ids = reinterpret_cast<T*>(s.memory.back().data() + 64);
  for (std::int64_t i = 0; i < count; ++i) ids[i] = static_cast<T>(s.pick(static_cast<int>(-extent), static_cast<int>(extent) - 1));
}

TEST_F(Indexed, GatherElementsAlongEachAxis) {
  std::uint32_t seed = 1;
  for (const DType type : kTypes) {
    for (const std::size_t axis : {0U, 1U, 3U}) {
      for (const bool epilogue : {false, true}) {
        if (epilogue && type != DType::f32) continue;
        Scene s(seed++);
        auto& st = s.stage();
        const ir::Shape x{3, 5, 4, 6};
        st.space = {3, 4, 4, 5};  // no more than x beside the axis
        st.space[axis] = 7;
        st.anchor.op = ir::Op::gather_elements;
        st.anchor.facts = ir::Gather{.axis = static_cast<std::int64_t>(axis)};
        st.anchor.inputs = {s.nhwc(type, x, BufferKind::input, 2)};
        st.anchor.inputs.push_back(s.tensor(seed % 2 ? DType::s64 : DType::s32, st.space, BufferKind::input));
        seed % 2 ? indices<std::int64_t>(s, x[axis], ir::count(st.space)) : indices<std::int32_t>(s, x[axis], ir::count(st.space));
        store(s, type, epilogue);
        EXPECT_EQ(run_emulated(s, cuda::indexed_family(), {}, 0, {}, reference_region), "");
      }
    }
  }
}

TEST_F(Indexed, GatherNdOfTuplesOfEachLengthAndBatches) {
  std::uint32_t seed = 1;
  for (const DType type : kTypes) {
    for (const std::int64_t batch : {0, 1}) {
      for (const std::int64_t length : {1, 2}) {
        Scene s(seed++);
        auto& st = s.stage();
        const ir::Shape x{3, 3, 3, 5};  // one extent, so that every index fits
        st.anchor.op = ir::Op::gather_nd;
        st.anchor.facts = ir::Gather{.batch_dims = batch};
        st.anchor.inputs = {s.tensor(type, x, BufferKind::input)};
        const ir::Shape ids{3, 4, length};
        st.anchor.inputs.push_back(s.tensor(DType::s64, ids, BufferKind::input));
        indices<std::int64_t>(s, 3, ir::count(ids));
        st.space = {3, 4};
        for (std::size_t k = static_cast<std::size_t>(batch + length); k < x.size(); ++k) st.space.push_back(x[k]);
        st.program = {};
        st.stores = {s.tensor(type, st.space, BufferKind::output)};
        EXPECT_EQ(run_emulated(s, cuda::indexed_family(), {}, 0, {}, reference_region), "") << batch << " " << length;
      }
    }
  }
}

void condition(Scene& s) {
  for (std::size_t i = 64; i < s.memory.back().size() - 64; ++i) s.memory.back()[i] = static_cast<std::byte>(s.pick(0, 1));
}

TEST_F(Indexed, WhereWithBroadcasting) {
  std::uint32_t seed = 1;
  for (const DType type : kTypes) {
    for (const bool epilogue : {false, true}) {
      if (epilogue && type != DType::f32) continue;
      for (const ir::Shape& narrow : {ir::Shape{2, 6, 3, 4}, ir::Shape{6, 1, 4}, ir::Shape{1}}) {
        Scene s(seed++);
        auto& st = s.stage();
        st.space = {2, 6, 3, 4};
        st.anchor.op = ir::Op::where;
        st.anchor.inputs = {s.tensor(DType::boolean, seed % 2 ? narrow : st.space, BufferKind::input)};
        condition(s);
        st.anchor.inputs.push_back(s.nhwc(type, st.space, BufferKind::input, 1));
        st.anchor.inputs.push_back(s.tensor(type, narrow, BufferKind::input));
        store(s, type, epilogue);
        EXPECT_EQ(run_emulated(s, cuda::choose_family(), {}, 0, {}, reference_region), "");
      }
    }
  }
}

TEST_F(Indexed, ComparisonsGiveConditions) {
  std::uint32_t seed = 1;
  for (const ir::Op op : {ir::Op::equal, ir::Op::less, ir::Op::less_equal, ir::Op::greater, ir::Op::greater_equal}) {
    for (const DType type : {DType::f32, DType::s64, DType::s32, DType::u8}) {
      Scene s(seed++);
      auto& st = s.stage();
      st.space = {2, 3, 4, 5};
      st.anchor.op = op;
      st.anchor.inputs = {s.tensor(type, st.space, BufferKind::input)};
      st.anchor.inputs.push_back(s.tensor(type, {1, 4, 1}, BufferKind::input));
      st.program = {};
      st.stores = {s.tensor(DType::boolean, st.space, BufferKind::output)};
      EXPECT_EQ(run_emulated(s, cuda::choose_family(), {}, 0, {}, reference_region), "") << ir::name_of(op);
    }
  }
}

// An index outside of the dimension reads the nearest element inside, and nothing else: the emulation reports every read outside of a buffer.
TEST_F(Indexed, IndicesOutsideReadNothingElse) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {1, 1, 1, 4};
  st.anchor.op = ir::Op::gather_elements;
  st.anchor.facts = ir::Gather{.axis = 3};
  st.anchor.inputs = {s.tensor(DType::f32, {1, 1, 1, 3}, BufferKind::input)};
  st.anchor.inputs.push_back(s.tensor(DType::s64, st.space, BufferKind::input));
  auto* ids = reinterpret_cast<std::int64_t*>(s.memory.back().data() + 64);
  const std::int64_t wild[] = {std::int64_t{1} << 40, -5, 3, 2}, inside[] = {2, 0, 2, 2};
  std::copy(wild, wild + 4, ids);
  st.program = {};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
  const Truth truth = [&](const region::Region& r, const region::Memory& m) {
    for (int i = 0; i < 4; ++i)
      reinterpret_cast<float*>(m.at(r.stages[0].stores[0]))[i] =
          reinterpret_cast<const float*>(m.at(r.stages[0].anchor.inputs[0]))[inside[i]];
  };
  EXPECT_EQ(run_emulated(s, cuda::indexed_family(), {}, 0, {}, truth), "");
}

}  // namespace
}  // namespace octavo::testing
