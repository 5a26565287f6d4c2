// Regions without an anchor: programs over strided, broadcast and repeated operands; plain copies; random programs on every
// instruction set.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string_view>

#include "cpu/code.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "program/program.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

#define EXPECT_SAME(scene, tactic)                                               \
  do {                                                                           \
    const std::string difference = (scene).compare(cpu::cpu_provider(), tactic); \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;          \
    EXPECT_EQ(difference, "");                                                   \
  } while (false)

/// Parametrized by what the block kernels and the generated ones are called behind "cpu.pointwise.".
class Pointwise : public ::testing::TestWithParam<const char*> {
 protected:
  static bool generated() { return std::string_view(GetParam()).rfind("generated", 0) == 0; }
  static std::string isa() { return std::string(GetParam()).substr(std::string_view(GetParam()).find('.') + 1); }
  /// "" also where generated kernels refuse what block kernels take: rows that are short or not contiguous, repeated operands, tables.
  std::string compare(Scene& s) {
    const std::string why = s.compare(cpu::cpu_provider(), std::string("cpu.pointwise.") + GetParam());
    if (generated() && why.rfind("refused: ", 0) == 0) return "";
    ++ran_;
    return why;
  }
  int ran_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Isa, Pointwise,
                         ::testing::Values("block.portable", "block.avx2", "block.avx512", "generated.avx2", "generated.avx512"));

#define EXPECT_PROGRAM(scene)                                           \
  do {                                                                  \
    const std::string difference = compare(scene);                      \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference; \
    EXPECT_EQ(difference, "");                                          \
  } while (false)

void quantize_input(Scene& s, region::TensorRef x, region::TensorRef y) {
  auto& st = s.stage();
  st.space = y.dims;
  st.operands.push_back({std::move(x), {}});
  auto& p = st.program;
  p.operand_count = 1;
  int v = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(0.03F));
  v = p.push(Op::nan0, v);
  v = p.push(Op::max, v, p.imm_f(-128));
  v = p.push(Op::min, v, p.imm_f(127));
  v = p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(128));
  p.outputs.push_back({v, DType::u8});
  st.stores.push_back(std::move(y));
}

TEST_P(Pointwise, QuantizesNetworkInput) {
  std::uint32_t seed = 1;
  for (const int channels : {1, 2, 3, 4, 5, 16, 17}) {
    for (const int width : {1, 3, 15, 16, 17, 18, 33, 224, 3499}) {  // of three rows: several blocks
      for (const bool to_nhwc : {true, false}) {
        Scene s(seed++);
        const ir::Shape dims{2, channels, 3, width};
        const auto x = s.tensor(DType::f32, dims, BufferKind::input);
        quantize_input(s, x, to_nhwc ? s.nhwc(DType::u8, dims) : s.tensor(DType::u8, dims, BufferKind::output));
        EXPECT_PROGRAM(s);
      }
    }
  }
}

// Both ways to divide, on floats around every tie, side by side and as an image.
TEST_P(Pointwise, QuantizesByMultiplications) {
#ifndef __x86_64__
  GTEST_SKIP() << "products in place of divisions are found for x86-64 alone";
#endif
  if (generated()) GTEST_SKIP() << "a test of the block interpreter";
  const auto isa = *cpu::find_isa(Pointwise::isa());
  if (const Reasons why = cpu::why_not(isa); !why.empty()) GTEST_SKIP() << cpu::in_words(why);
  const cpu::KernelTable& table = *cpu::kernel_table(isa);
  std::mt19937 rng(7);
  int multiplied = 0;
  for (int n = 0; n < 60; ++n) {
    const float s = n == 0 ? 1.0F : n == 1 ? 1e-20F : std::exp2(std::uniform_real_distribution<float>(-12, 4)(rng));
    const float lo = n % 2 == 0 ? -128 : -17, hi = lo + 255;
    program::Program p;
    p.operand_count = 1;
    int v = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(s));
    if (n % 3 != 0) v = p.push(Op::nan0, v);
    v = p.push(Op::min, p.push(Op::max, v, p.imm_f(lo)), p.imm_f(hi));
    p.outputs = {{p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(-static_cast<int>(lo))), DType::u8}};
    std::vector<float> x;
    for (float k = lo - 1; k <= hi + 1; ++k) {
      float at = (k - 0.5F) * s;
      for (int i = 0; i < 5; ++i) at = std::nextafter(at, -INFINITY);
      for (int i = 0; i < 11; ++i, at = std::nextafter(at, INFINITY)) x.push_back(at);
    }
    for (const float f : {INFINITY, -INFINITY, NAN, 3.4e38F, -3.4e38F, 0.0F, -0.0F, 1e-40F}) x.push_back(f);
    while (x.size() % 3 != 0) x.push_back(s);
    const int count = static_cast<int>(x.size());
    for (const int rows : {1, 3}) {
      std::array<std::vector<std::uint8_t>, 2> codes;
      for (const bool multiply : {false, true}) {
        const auto code = cpu::Code::compile(p, {cpu::Elem::f32}, multiply);
        ASSERT_TRUE(code) << code.error().message;
        if (multiply) multiplied += code->view().steps[1].f3 > 0 ? 1 : 0;
        auto& out = codes[multiply ? 1 : 0];
        out.resize(x.size() + 64);
        std::vector<std::int32_t> memory(code->slot_bytes() / 4 + 16);
        auto* slots = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) / 4;
        code->prepare(slots);
        const int cols = count / rows, most = rows == 3 ? cols : code->block();
        for (int first = 0; first < cols; first += most) {
          const cpu::Stream from{reinterpret_cast<std::byte*>(x.data() + first), 4 * cols, 4, nullptr};
          const cpu::Stream to{reinterpret_cast<std::byte*>(out.data() + first * rows), rows == 3 ? 1 : cols, rows, nullptr};
          if (rows == 3 && isa == cpu::Isa::portable) continue;  // slots hold a block
          table.run_block(code->view(), {rows, std::min(most, cols - first), &from, &to, slots});
        }
      }
      EXPECT_EQ(codes[0], codes[1]) << "scale " << s << ", from " << lo << ", rows " << rows;
    }
  }
  EXPECT_GT(multiplied, 100);
  EXPECT_LT(multiplied, 120);  // not 1e-20
}

TEST_P(Pointwise, ResidualAddOfCodes) {
  std::uint32_t seed = 1;
  for (const int c : {1, 7, 16, 24, 64, 257}) {
    for (const int gap : {0, 5}) {
      Scene s(seed++);
      const ir::Shape dims{1, c, 5, 6};
      auto& st = s.stage();
      st.space = dims;
      st.operands.push_back({s.nhwc(DType::u8, dims, BufferKind::arena, gap), {}});
      st.operands.push_back({s.nhwc(DType::u8, dims), {}});
      auto& p = st.program;
      p.operand_count = 2;
      const int a = p.push(Op::mul, p.push(Op::i2f, p.push(Op::sub_i, p.load(Op::load_i, 0), p.imm_i(3))), p.imm_f(0.02F));
      const int b = p.push(Op::mul, p.push(Op::i2f, p.push(Op::sub_i, p.load(Op::load_i, 1), p.imm_i(128))), p.imm_f(0.05F));
      int v = p.push(Op::max, p.push(Op::add, a, b), p.imm_f(0));
      v = p.push(Op::div, v, p.imm_f(0.041F));
      v = p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(0)), p.imm_f(255)));
      p.outputs = {{v, DType::u8}, {p.push(Op::add, a, b), DType::f32}};
      st.stores = {s.nhwc(DType::u8, dims, BufferKind::arena, gap), s.tensor(DType::f32, dims, BufferKind::output)};
      EXPECT_PROGRAM(s);
    }
  }
}

TEST_P(Pointwise, NearestUpsamplingByDivision) {
  std::uint32_t seed = 1;
  for (const int fy : {1, 2, 3, 4}) {
    for (const int fx : {1, 2, 3}) {
      for (const int h : {6, 12, 7}) {  // 7: not a multiple
        Scene s(seed++);
        const ir::Shape dims{1, 19, h, 12};
        auto& st = s.stage();
        st.space = dims;
        st.operands.push_back({s.nhwc(DType::u8, {1, 19, (h + fy - 1) / fy, 12 / fx}), {1, 1, fy, fx}});
        st.operands.push_back({s.nhwc(DType::u8, {1, 19, (h + 1) / 2, 6}), {1, 1, 2, 2}});
        auto& p = st.program;
        p.operand_count = 2;
        p.outputs = {{p.push(Op::max_i, p.load(Op::load_i, 0), p.load(Op::load_i, 1)), DType::u8}};
        st.stores = {s.nhwc(DType::u8, dims)};
        EXPECT_PROGRAM(s);
      }
    }
  }
}

TEST_P(Pointwise, EveryDimensionDivided) {
  Scene s(3);
  const ir::Shape dims{7, 5};
  s.stage().space = dims;
  s.stage().operands.push_back({s.tensor(DType::f32, {4, 3}), {2, 2}});
  auto& p = s.stage().program;
  p.operand_count = 1;
  p.outputs = {{p.push(Op::mul, p.load(Op::load_f, 0), p.imm_f(3)), DType::f32}};
  s.stage().stores = {s.tensor(DType::f32, dims)};
  EXPECT_PROGRAM(s);
}

TEST_P(Pointwise, ScalarSpace) {
  Scene s(1);
  quantize_input(s, s.tensor(DType::f32, {}), s.tensor(DType::u8, {}));
  EXPECT_PROGRAM(s);
}

// Every memory type in, every type out, in all orders of a small space.
TEST_P(Pointwise, TypesAndTransposes) {
  std::uint32_t seed = 1;
  for (const DType in : {DType::u8, DType::s8, DType::s32, DType::f32, DType::f16, DType::bf16, DType::boolean}) {
    for (const DType out : {DType::u8, DType::s8, DType::s32, DType::f32, DType::f16, DType::bf16}) {
      for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}}) {
        Scene s(seed++);
        const ir::Shape dims{3, 18, 35};
        s.stage().space = dims;
        s.stage().operands.push_back({s.tensor(in, dims, BufferKind::input, order), {}});
        auto& p = s.stage().program;
        p.operand_count = 1;
        int v = ir::is_float(in) ? p.load(Op::load_f, 0) : p.load(Op::load_i, 0);
        if (ir::is_float(in) && !ir::is_float(out)) v = p.push(Op::f2i, p.push(Op::mul, v, p.imm_f(7)));
        if (!ir::is_float(in) && ir::is_float(out)) v = p.push(Op::mul, p.push(Op::i2f, v), p.imm_f(0.1F));
        if (out == DType::u8) v = p.push(Op::min_i, p.push(Op::max_i, v, p.imm_i(0)), p.imm_i(255));
        if (out == DType::s8) v = p.push(Op::min_i, p.push(Op::max_i, v, p.imm_i(-128)), p.imm_i(127));
        p.outputs = {{v, out}};
        s.stage().stores = {s.tensor(out, dims)};
        EXPECT_PROGRAM(s);
      }
    }
  }
  EXPECT_GE(ran_, generated() ? 30 : 168);
}

// Straight-line programs of every operation on random data, NaN and infinities included.
program::Program random_program(Scene& s, int length, bool with_table) {
  program::Program p;
  p.operand_count = 3;
  std::vector<int> floats{p.load(Op::load_f, 0), p.imm_f(0.5F), p.imm_f(-3.25F)};
  std::vector<int> ints{p.load(Op::load_i, 1), p.load(Op::load_i, 2), p.imm_i(77)};
  if (with_table) {
    program::Table t;
    for (auto& byte : t) byte = static_cast<std::uint8_t>(s.rng()());
    p.tables.push_back(t);
  }
  const auto f = [&] { return floats[static_cast<std::size_t>(s.pick(0, static_cast<int>(floats.size()) - 1))]; };
  const auto i = [&] { return ints[static_cast<std::size_t>(s.pick(0, static_cast<int>(ints.size()) - 1))]; };
  while (static_cast<int>(p.code.size()) < length) {
    const auto op = static_cast<Op>(s.pick(static_cast<int>(Op::i2f), static_cast<int>(Op::table)));
    const auto& info = program::info(op);
    program::Instr t;
    t.op = op;
    if (op == Op::f2i) {  // the contract: within int32
      const int bounded = p.push(Op::min, p.push(Op::max, p.push(Op::nan0, f()), p.imm_f(-1e6F)), p.imm_f(1e6F));
      ints.push_back(p.push(Op::f2i, bounded));
      continue;
    }
    if (op == Op::table) {
      if (!with_table) continue;
      ints.push_back(p.push_imm(Op::table, 0, p.push(Op::and_i, i(), p.imm_i(255))));
      continue;
    }
    for (std::size_t a = 0; a < info.operands.size(); ++a) t.args[a] = info.operands[a] == 'f' ? f() : i();
    if (op == Op::shl_i || op == Op::sra_i) t.imm = s.pick(0, 31);
    p.code.push_back(t);
    (info.result == 'f' ? floats : ints).push_back(static_cast<int>(p.code.size()) - 1);
  }
  // nan0 before the store: the bits of a NaN are not promised.
  p.outputs = {{p.push(Op::nan0, floats.back()), DType::f32}, {ints.back(), DType::s32}};
  p.outputs.push_back({p.push(Op::and_i, i(), p.imm_i(255)), DType::u8});
  return p;
}

TEST_P(Pointwise, RandomPrograms) {
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    Scene s(seed);
    const ir::Shape dims{2, s.pick(1, 40), s.pick(1, 9)};
    s.stage().space = dims;
    s.stage().operands = {{s.tensor(DType::f32, dims), {}}, {s.tensor(DType::s32, dims), {}}, {s.tensor(DType::u8, dims), {}}};
    auto& bytes = s.memory[0];
    const float specials[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1e-40F, 2.5F, -1.5F};
    for (std::size_t k = 64; k + 68 <= bytes.size(); k += 28) std::memcpy(bytes.data() + k, &specials[k / 28 % 8], 4);
    s.stage().program = random_program(s, s.pick(8, 60), seed % 3 == 0);
    s.stage().stores = {s.tensor(DType::f32, dims), s.tensor(DType::s32, dims), s.tensor(DType::u8, dims)};
    EXPECT_PROGRAM(s);
  }
  EXPECT_GE(ran_, generated() ? 60 : 150);
}

// Rows of a tensor that are wider than a function, operands along them and beside them, a single long row, and parts of 64-bit strides.
TEST_P(Pointwise, RowsOfEveryLength) {
  std::uint32_t seed = 400;
  for (const std::int64_t c : {1, 15, 16, 17, 63, 64, 65, 130}) {
    for (const std::int64_t w : {1, 5, 9}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool beside : {false, true}) {
          Scene s(seed++);
          const ir::Shape dims{2, c, 3, w};
          auto& st = s.stage();
          st.space = dims;
          st.operands = {{s.nhwc(type, dims, BufferKind::arena, seed % 3 == 0 ? 7 : 0), {}}, {s.nhwc(type, dims), {}}};
          auto& p = st.program;
          p.operand_count = beside ? 4 : 2;
          int v = p.push(Op::mul, p.load(Op::load_f, 0), p.load(Op::load_f, 1));
          if (beside) {
            st.operands.push_back({s.along(DType::f32, dims, 1), {}});
            st.operands.push_back({s.along(DType::f32, dims, 3), {}});
            v = p.push(Op::fma, v, p.load(Op::load_f, 2), p.load(Op::load_f, 3));
          }
          v = p.push(Op::div, v, p.push(Op::add, p.push(Op::mul, v, v), p.imm_f(1)));
          p.outputs = {{v, type}, {v, DType::f32}};
          st.stores = {s.nhwc(type, dims), s.nhwc(DType::f32, dims, BufferKind::arena, 3)};
          EXPECT_PROGRAM(s);
        }
      }
    }
  }
  EXPECT_GE(ran_, generated() ? 90 : 144);
}

TEST(Copy, RunsTransposesAndAnyType) {
  std::uint32_t seed = 1;
  for (const DType t : {DType::u8, DType::f16, DType::f32, DType::s64}) {
    for (const ir::Shape& dims :
         {ir::Shape{2, 3, 5, 7}, {1, 64, 20, 17}, {3, 16, 16, 16}, {1, 33, 40, 40}, {1, 1, 1, 1}, {5, 255, 2, 3}}) {
      for (const int kind : {0, 1, 2, 3, 4}) {
        Scene s(seed++);
        auto& st = s.stage();
        st.space = dims;
        const auto from =
            kind % 2 == 0 ? s.tensor(t, dims, BufferKind::input) : s.nhwc(t, dims, BufferKind::arena, kind == 3 ? 5 : 0);
        const auto to = kind == 0   ? s.nhwc(t, dims, BufferKind::arena, 3)
                        : kind >= 3 ? s.nhwc(t, dims)
                                    : s.tensor(t, dims, BufferKind::output);
        st.stores = {to};
        if (t == DType::s64 || kind == 2) {
          st.anchor.op = ir::Op::reshape;
          st.anchor.inputs = {from};
        } else {
          st.operands = {{from, {}}};
          const int v = st.program.load(ir::is_float(t) ? Op::load_f : Op::load_i, 0);
          st.program.operand_count = 1;
          st.program.outputs = {{v, t}};
        }
        EXPECT_SAME(s, "cpu.copy.strided");
      }
    }
  }
}

TEST(Copy, NearestUpsampling) {
  std::uint32_t seed = 1;
  for (const int f : {2, 3}) {
    for (const int c : {1, 3, 32, 100}) {
      Scene s(seed++);
      const ir::Shape dims{1, c, 6, 12};
      s.stage().space = dims;
      s.stage().operands = {{s.nhwc(DType::u8, {1, c, 6 / f, 12 / f}), {1, 1, f, f}}};
      s.stage().program.operand_count = 1;
      s.stage().program.outputs = {{s.stage().program.load(Op::load_i, 0), DType::u8}};
      s.stage().stores = {s.nhwc(DType::u8, dims)};
      EXPECT_SAME(s, "cpu.copy.strided");
    }
  }
}

}  // namespace
}  // namespace octavo::testing
