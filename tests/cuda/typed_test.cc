// Element-wise operators by their types, under emulation against the reference evaluator: every operator, every type, casts between all kinds, layouts.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::Op;
using region::BufferKind;

constexpr std::size_t kGuard = 64;  // of Scene::memory

/// A tensor of any type: random bits for integers, among them the ends of the type and small numbers; for floats such as casts meet.
region::TensorRef any(Scene& s, DType type, const ir::Shape& dims, BufferKind kind, std::vector<int> order = {}, int gap = 0) {
  const std::size_t size = ir::size_of(type);
  const DType same = size == 1 ? DType::u8 : size == 2 ? DType::bf16 : size == 4 ? DType::s32 : DType::s64;
  region::TensorRef r = s.tensor(type == DType::boolean ? type : same, dims, kind, std::move(order), gap);
  r.dtype = type;
  if (type == DType::boolean) return r;
  auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
  const auto n = static_cast<std::size_t>(s.plan().buffers[static_cast<std::size_t>(r.buffer)].bytes) / size;
  for (std::size_t i = 0; i < n; ++i) {
    std::byte* const at = bytes.data() + kGuard + i * size;
    if (type == DType::f32) {
      const float some[] = {0.0F,      -0.0F, 2.5F,   -3.5F, 1e10F,   -1e20F, INFINITY,
                            -INFINITY, NAN,   254.9F, 4e9F,  1.9e19F, -0.9F,  32767.5F};
      std::memcpy(at, &some[static_cast<std::size_t>(s.pick(0, 13))], 4);
    } else if (type == DType::f16 || type == DType::bf16) {
      const std::uint16_t v =
          static_cast<std::uint16_t>((type == DType::f16 ? 0x3c00 : 0x3f80) + s.pick(-600, 600) + s.pick(0, 1) * 0x8000);
      std::memcpy(at, &v, 2);
    } else if (s.pick(0, 1) == 0) {
      const std::int64_t small[] = {
          0, 1, -1, 2, 3, -7, 100, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
      std::memcpy(at, &small[static_cast<std::size_t>(s.pick(0, 8))], size);
    }
  }
  return r;
}

/// Divisors and exponents: none is 0, none is far from it.
void keep_small(Scene& s, const region::TensorRef& r) {
  auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
  const std::size_t size = ir::size_of(r.dtype);
  for (std::size_t at = kGuard; at + size <= bytes.size() - kGuard; at += size) {
    const std::int64_t v = s.pick(1, 5);
    std::memcpy(bytes.data() + at, &v, size);
  }
}

struct TypedCase {
  Op op;
  DType from, to;
  ir::Facts facts;  ///< none: the defaults
  int inputs = 1;
  ir::Shape dims{2, 3, 4, 16};
  ir::Shape second;  ///< of the other input; empty: the same
  int stores = 1;    ///< places for the result
};

std::string run(const TypedCase& c, std::vector<int> order = {}, const Edit& edit = {}) {
  Scene s(9);
  auto& st = s.stage();
  st.space = c.dims;
  st.anchor.op = c.op;
  st.anchor.facts = c.facts.index() == 0 ? ir::default_facts(c.op, c.dims.size()) : c.facts;
  if (c.op == Op::cast) st.anchor.as<ir::Cast>().to = c.to;
  st.anchor.inputs = {any(s, c.from, c.dims, BufferKind::input, order)};
  if (c.inputs == 2) {
    st.anchor.inputs.push_back(any(s, c.from, c.second.empty() ? c.dims : c.second, BufferKind::input));
    if (c.op == Op::div || c.op == Op::mod || c.op == Op::pow || c.op == Op::bitwise) keep_small(s, st.anchor.inputs.back());
  }
  if (c.to == DType::f32) {
    auto& p = st.program;
    p.outputs = {{p.push(program::Op::acc_f), DType::f32}};
  }
  st.stores = {any(s, c.to, c.dims, BufferKind::output)};
  for (int k = 1; k < c.stores; ++k) st.stores.push_back(any(s, c.to, c.dims, BufferKind::output, {}, 16 * k));
  if (c.stores > 1) st.anchor.store_results.assign(static_cast<std::size_t>(c.stores), 0);
  return run_emulated(s, cuda::typed_family(), {}, 0, edit, reference_region);
}

class Typed : public EmulatedTest {};

TEST_F(Typed, IntegersOfEveryType) {
  const DType types[] = {DType::s8, DType::u8, DType::s16, DType::u16, DType::s32, DType::u32, DType::s64, DType::u64};
  const Op ops[] = {Op::add, Op::sub, Op::mul, Op::div, Op::mod, Op::pow, Op::max, Op::min};
  for (std::size_t t = 0; t < 8; ++t) {
    for (std::size_t o = t % 2; o < 8; o += 2) {
      TypedCase c{ops[o], types[t], types[t], {}, 2};
      if (o % 4 == 0) c.second = {3, 1, 16};
      EXPECT_EQ(run(c), "") << ir::name_of(ops[o]) << " of " << ir::name_of(types[t]);
    }
  }
}

TEST_F(Typed, OneOperand) {
  EXPECT_EQ(run({Op::logical_not, DType::boolean, DType::boolean, {}}), "");
  EXPECT_EQ(run({Op::logical_not, DType::boolean, DType::boolean, {}, 1, {3, 5, 7}}, {1, 0, 2}), "") << "in another order";
  for (const Op op : {Op::relu, Op::abs, Op::neg, Op::sign}) EXPECT_EQ(run({op, DType::s8, DType::s8, {}}), "") << ir::name_of(op);
  EXPECT_EQ(run({Op::neg, DType::s64, DType::s64, {}}), "");
  EXPECT_EQ(run({Op::clip, DType::s32, DType::s32, ir::Clip{-5, 99}}), "");
  EXPECT_EQ(run({Op::clip, DType::s64, DType::s64, ir::Clip{.min = 3}}), "");
  EXPECT_EQ(run({Op::bitwise, DType::u16, DType::u16, ir::Bitwise{ir::BitFunction::bit_not}}), "");
  for (const auto how : {ir::BitFunction::bit_and, ir::BitFunction::bit_xor, ir::BitFunction::left, ir::BitFunction::right})
    EXPECT_EQ(run({Op::bitwise, DType::s32, DType::s32, ir::Bitwise{how}, 2}), "") << ir::spelled(how);
  EXPECT_EQ(run({Op::abs, DType::f16, DType::f16, {}}), "");
  EXPECT_EQ(run({Op::add, DType::bf16, DType::bf16, {}, 2}), "");
}

TEST_F(Typed, CastsBetweenAllKinds) {
  const DType types[] = {DType::boolean, DType::s8,  DType::u8,  DType::s16, DType::u16,
                         DType::s32,     DType::u32, DType::s64, DType::u64};
  for (const DType t : types) {
    EXPECT_EQ(run({Op::cast, DType::f32, t, {}}), "") << "f32 to " << ir::name_of(t);
    EXPECT_EQ(run({Op::cast, t, DType::f32, {}}), "") << ir::name_of(t) << " to f32";
  }
  EXPECT_EQ(run({Op::cast, DType::s64, DType::s32, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::s8, DType::s64, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::s64, DType::boolean, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::boolean, DType::s64, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::f16, DType::s32, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::s32, DType::f16, {}}), "");
  EXPECT_EQ(run({Op::cast, DType::f32, DType::s64, {}, 1, {}}), "") << "one element";
}

// A sum of counts is a network's output and a part of another tensor.
TEST_F(Typed, OneResultInSeveralPlaces) {
  for (const DType type : {DType::s64, DType::s32, DType::u8}) {
    TypedCase c{Op::add, type, type, {}, 2};
    c.stores = 2;
    EXPECT_EQ(run(c), "") << ir::name_of(type);
    const auto lost = [](std::string text) { return edited(std::move(text), "(o1 + ", "(o0 + "); };
    EXPECT_NE(run(c, {}, lost), "") << ir::name_of(type);
  }
  TypedCase scalar{Op::add, DType::s64, DType::s64, {}, 2, {}};
  scalar.stores = 3;
  EXPECT_EQ(run(scalar), "");
}

TEST_F(Typed, MistakesAreFound) {
  const TypedCase c{Op::mod, DType::s8, DType::s8, {}, 2};
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run(c, {}, [&](std::string text) { return edited(std::move(text), from, to); });
  };
  EXPECT_EQ(planted("kRun", "kRun"), "") << "nothing planted";
  EXPECT_NE(planted("octavo_remainder(a0, a1, true)", "octavo_remainder(a0, a1, false)"), "") << "the other sign";
  EXPECT_NE(planted("(long long)(signed char)", "(long long)(unsigned char)"), "") << "without a sign";
}

TEST(TypedKinds, RefusesWhatItCannot) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {4, 8};
  st.anchor.op = Op::add;
  st.anchor.inputs = {s.tensor(DType::u8, st.space, BufferKind::input), s.tensor(DType::u8, st.space, BufferKind::input)};
  st.stores = {s.tensor(DType::u8, st.space, BufferKind::output)};
  EXPECT_TRUE(cuda::typed_family().why_not(s.region(), s.plan(), {}).empty());
  st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 9);
  EXPECT_FALSE(cuda::typed_family().why_not(s.region(), s.plan(), {}).empty()) << "quantized values";
  st.anchor.inputs[0].quantizer.reset();
  st.anchor.inputs[0].dtype = DType::s8;
  EXPECT_FALSE(cuda::typed_family().why_not(s.region(), s.plan(), {}).empty()) << "two types";
}

}  // namespace
}  // namespace octavo::testing
