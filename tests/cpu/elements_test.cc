// cpu.elements.*: every row of program/elements.def on every element type, Cast between every two, Where, Clip and functions, against the reference
// evaluator, bit for bit. Sizes around vectors of 8 to 64 elements and blocks of 1024; operands that are broadcast along every dimension, and
// tensors in any order of memory.
#include "cpu/elements/elements.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <span>

#include "cpu/isa.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::Op;
using region::BufferKind;

constexpr std::size_t kGuard = 64;
constexpr std::array kTypes{DType::f32, DType::f16, DType::bf16, DType::f64, DType::s8,  DType::u8,     DType::s16,
                            DType::u16, DType::s32, DType::u32,  DType::s64, DType::u64, DType::boolean};

class Elements : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic(const std::string& op) { return "cpu.elements." + op + "." + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Elements, ::testing::Values("portable", "avx2", "avx512"));

template <class T>
std::span<T> elements(Scene& s, const region::TensorRef& r) {
  auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
  return {reinterpret_cast<T*>(bytes.data() + kGuard), (bytes.size() - 2 * kGuard) / sizeof(T)};
}

/// Small numbers, equal ones among them, and one in four an extreme: values at both ends, and those around which conversions round or saturate.
template <class T>
void fill(Scene& s, const region::TensorRef& r, bool no_zeros, int first) {
  using L = std::numeric_limits<T>;
  for (T& v : elements<T>(s, r)) {
    v = static_cast<T>(s.pick(L::is_signed ? -12 : 0, 12));
    if (s.pick(0, 3) == 0) {
      if constexpr (std::is_floating_point_v<T>) {
        const double some[] = {L::quiet_NaN(), L::infinity(), -L::infinity(), -0.0,         0.5,          -0.5,
                               127.5,          128,           -128.5,         255.5,        32767.5,      65535.5,
                               -32769,         2147483520.,   2147483648.,    -2147483648., -2147483904., 4294967040.,
                               4294967296.,    9.223372e18,   -9.223373e18,   1.8446744e19, 1e30};
        v = static_cast<T>(some[s.pick(first, 22)]);
      } else {
        const T some[] = {L::min(), L::max(), static_cast<T>(L::max() - 1), static_cast<T>(L::max() / 2 + 1),
                          static_cast<T>(16777217)};
        v = some[s.pick(0, 4)];
      }
    }
    if (no_zeros && v == 0) v = 3;
  }
}
void fill(Scene& s, const region::TensorRef& r, bool no_zeros, bool no_nan) {
  switch (r.dtype) {
    case DType::f32: return fill<float>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::f64: return fill<double>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::s8: return fill<std::int8_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::u8: return fill<std::uint8_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::s16: return fill<std::int16_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::u16: return fill<std::uint16_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::s32: return fill<std::int32_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::u32: return fill<std::uint32_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::s64: return fill<std::int64_t>(s, r, no_zeros, no_nan ? 1 : 0);
    case DType::u64: return fill<std::uint64_t>(s, r, no_zeros, no_nan ? 1 : 0);
    default: return;  // float16, bfloat16 between -4 and 4; bool
  }
}

struct Case {
  Op op;
  std::string name;
  std::vector<DType> in;
  DType out;
  ir::Attrs attrs = {};
};
/// An operand of `dims` in a space: in its own order of memory, with a gap behind rows.
void set(Scene& s, const Case& c, const ir::Shape& space, const std::vector<ir::Shape>& dims, const std::vector<int>& order = {},
         const std::vector<int>& stored = {}, int gap = 0) {
  region::Stage& st = s.stage();
  st.anchor.op = c.op, st.anchor.facts = testing::facts(st.anchor.op, c.attrs), st.space = space;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const bool ordered = dims[i].size() == order.size();
    st.anchor.inputs.push_back(s.tensor(c.in[i], dims[i], BufferKind::arena, ordered ? order : std::vector<int>{}, gap));
    // The sign of a NaN that a function computes is anyone's.
    const bool function = c.in.size() == 1 && c.op != Op::cast;
    fill(s, st.anchor.inputs.back(), i == 1 && (c.op == Op::div || c.op == Op::mod), function);
  }
  st.stores = {s.tensor(c.out, space, BufferKind::arena, stored)};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto whole = [](DType t) { return !ir::is_float(t) && t != DType::boolean; };
  for (const DType t : kTypes) {
    const bool number = whole(t) || t == DType::f64;
    if (number) {
      for (const Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::max, Op::min})
        all.push_back({op, std::string(ir::name_of(op)), {t, t}, t});
    }
    if (whole(t)) {
      all.push_back({Op::pow, "pow", {t, t}, t});
      for (const Op op : {Op::relu, Op::abs, Op::neg, Op::sign}) all.push_back({op, std::string(ir::name_of(op)), {t}, t});
      all.push_back({Op::clip, "clip", {t}, t, {{"min", 2.5}, {"max", 9.5}}});
      all.push_back({Op::clip, "clip", {t}, t});
      all.push_back({Op::bitwise, "bitwise_not", {t}, t, {{"function", std::string("not")}}});
      for (const char* f : {"and", "or", "xor", "left", "right"})
        all.push_back({Op::bitwise, std::string("bitwise_") + f, {t, t}, t, {{"function", std::string(f)}}});
    }
    if (t != DType::boolean) {
      all.push_back({Op::mod, "mod", {t, t}, t});
      all.push_back({Op::mod, "mod", {t, t}, t, {{"fmod", std::int64_t{1}}}});
    }
    for (const Op op : {Op::equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal})
      all.push_back({op, std::string(ir::name_of(op)), {t, t}, DType::boolean});
    all.push_back({Op::where, "where", {DType::boolean, t, t}, t});
    if (t == DType::boolean) {
      for (const Op op : {Op::logical_and, Op::logical_or}) all.push_back({op, std::string(ir::name_of(op)), {t, t}, t});
      all.push_back({Op::logical_not, "not", {t}, t});
    }
    if (t == DType::f64 || t == DType::f16 || t == DType::bf16) {
      for (const Op op : {Op::relu, Op::sigmoid, Op::exp, Op::floor, Op::gelu})
        all.push_back({op, std::string(ir::name_of(op)), {t}, t});
      all.push_back({Op::prelu, "prelu", {t, t}, t});
    }
  }
  return all;
}

TEST_P(Elements, OfEveryOperatorAndType) {
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    for (const std::int64_t n : {1, 9, 33, 65, 1025}) {
      Scene s(seed++);
      set(s, c, {n}, std::vector<ir::Shape>(c.in.size(), {n}));
      SCOPED_TRACE(c.name + " on " + std::string(ir::name_of(c.in.back())));
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.name)));
    }
  }
}

TEST_P(Elements, CastOfEveryPairOfTypes) {
  std::uint32_t seed = 1;
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      if (from == to) continue;
      for (const std::int64_t n : {1, 9, 65, 257, 2100}) {
        Scene s(seed++);
        set(s, {Op::cast, "cast", {from}, to, {{"to", std::string(ir::name_of(to))}}}, {n}, {{n}});
        SCOPED_TRACE(std::string(ir::name_of(from)) + " to " + std::string(ir::name_of(to)));
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("cast")));
      }
    }
  }
}

// Blocks of several short rows, of one, and of a part of one; operands of fewer dimensions, of one element, and along either side.
TEST_P(Elements, Broadcast) {
  std::uint32_t seed = 1;
  const std::vector<Case> some{{Op::add, "add", {DType::s8, DType::s8}, DType::s8},
                               {Op::less, "less", {DType::f32, DType::f32}, DType::boolean},
                               {Op::mul, "mul", {DType::s64, DType::s64}, DType::s64},
                               {Op::where, "where", {DType::boolean, DType::u16, DType::u16}, DType::u16}};
  for (const Case& c : some) {
    for (const ir::Shape& space : {ir::Shape{2, 3, 5, 7}, {2, 3, 40, 33}, {1, 4, 2, 1500}, {3, 700, 1, 2}}) {
      const ir::Shape each[] = {space, {space[0], 1, space[2], space[3]}, {space[1], 1, 1},   {space[3]}, {1},
                                {},    {space[0], space[1], space[2], 1}, {1, 1, space[2], 1}};
      for (std::size_t i = 0; i < 8; ++i) {
        std::vector<ir::Shape> dims{space};
        for (std::size_t k = 1; k < c.in.size(); ++k) dims.push_back(each[(i + k) % 8]);
        if (i % 2 == 1) std::swap(dims.front(), dims.back());
        Scene s(seed++);
        set(s, c, space, dims, {}, {}, static_cast<int>(i % 3));
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.name)));
      }
    }
  }
}

TEST_P(Elements, AnyOrderOfMemory) {
  std::uint32_t seed = 1;
  const std::vector<Case> some{{Op::add, "add", {DType::s8, DType::s8}, DType::s8},
                               {Op::equal, "equal", {DType::s32, DType::s32}, DType::boolean},
                               {Op::cast, "cast", {DType::f32}, DType::s64, {{"to", std::string("s64")}}},
                               {Op::cast, "cast", {DType::u16}, DType::f32, {{"to", std::string("f32")}}}};
  for (const Case& c : some) {
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}}) {
      for (const std::vector<int>& stored : {std::vector<int>{0, 1, 2, 3}, {0, 2, 3, 1}, {2, 0, 1, 3}}) {
        Scene s(seed++);
        set(s, c, {2, 9, 5, 33}, {{2, 9, 5, 33}, {9, 1, 33}}, order, stored, static_cast<int>(seed % 3));
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(c.name)));
      }
    }
  }
}

TEST_P(Elements, ResultsThatAProgramWorksOn) {
  std::uint32_t seed = 1;
  for (const DType from : {DType::s32, DType::s64, DType::u16, DType::boolean, DType::f64}) {
    for (const ir::Shape& space : {ir::Shape{}, {1}, {7}, {1030}, {3, 5, 70}}) {
      Scene s(seed++);
      set(s, {Op::cast, "cast", {from}, DType::f32, {{"to", std::string("f32")}}}, space, {space});
      auto& p = s.stage().program;
      const int v = p.push(program::Op::acc_f);
      p.outputs = {{p.push(program::Op::add, v, v), DType::f32}};
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("cast")));
    }
  }
  Scene s(seed);
  set(s, {Op::where, "where", {DType::boolean, DType::f32, DType::f32}, DType::f32}, {4, 6, 50}, {{4, 1, 50}, {1}, {4, 6, 50}});
  auto& p = s.stage().program;
  p.outputs = {{p.push(program::Op::max, p.push(program::Op::acc_f), p.imm_f(1.0F)), DType::f16}};
  s.stage().stores[0] = s.tensor(DType::f16, {4, 6, 50});
  EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("where")));
}

// The reference evaluator refuses to divide by 0; a run that comes to it neither traps nor changes other elements.
TEST(ElementLoops, QuotientsByZeroAreZero) {
  const cpu::ElementKernels* all[] = {&cpu::portable_elements(), nullptr};
#if defined(__x86_64__)
  if (cpu::detected_isa() >= cpu::Isa::avx2) all[1] = &cpu::avx2_elements();
#endif
  for (const cpu::ElementKernels* k : all) {
    if (k == nullptr) continue;
    for (const auto op : {cpu::ElementOp::div, cpu::ElementOp::mod, cpu::ElementOp::fmod}) {
      std::int32_t a[20], by[20], y[20];
      std::int64_t wide_a[20], wide_by[20], wide_y[20];
      for (int i = 0; i < 20; ++i) wide_a[i] = a[i] = 7 * i - 60, wide_by[i] = by[i] = i % 3;
      k->of[static_cast<int>(op)][static_cast<int>(DType::s32)](y, a, by, 20);
      k->of[static_cast<int>(op)][static_cast<int>(DType::s64)](wide_y, wide_a, wide_by, 20);
      for (int i = 0; i < 20; ++i) {
        const int rest = by[i] == 0 ? 0 : a[i] % by[i];
        const int expected = by[i] == 0                   ? 0
                             : op == cpu::ElementOp::div  ? a[i] / by[i]
                             : op == cpu::ElementOp::fmod ? rest
                             : rest < 0                   ? rest + by[i]
                                                          : rest;
        EXPECT_EQ(y[i], expected) << a[i] << " by " << by[i];
        EXPECT_EQ(wide_y[i], expected) << a[i] << " by " << by[i];
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
