// The CUDA form of programs: a row for every operation, text that NVRTC compiles for both targets, and exact text for a small
// program. No GPU is needed; tests/cuda/gpu/run_on_gpu.cc compares results on one.
#include <gtest/gtest.h>

#include <set>

#include "cuda/device/nvrtc.h"
#include "cuda/program_kernel.h"
#include "cuda/text/emit_cuda.h"
#include "program/math.h"
#include "program/random_program.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using program::Op;
using program::Program;

TEST(EmitCuda, EveryOperationHasAnExpressionWithItsOperands) {
  for (const program::OpInfo& row : program::all_ops()) {
    const std::string_view text = expression(row.op);
    const bool source = row.op == Op::acc_i || row.op == Op::acc_f || row.op == Op::load_i || row.op == Op::load_f;
    EXPECT_EQ(text.empty(), source) << row.name;
    for (std::size_t k = 0; k < row.operands.size(); ++k) {
      EXPECT_NE(text.find("$" + std::to_string(k)), std::string_view::npos) << row.name << " does not use operand " << k;
    }
    EXPECT_EQ(text.find("$k") != std::string_view::npos, program::has_immediate(row.op) && !source) << row.name;
  }
}

TEST(EmitCuda, TextOfASmallProgram) {
  const auto p =
      program::parse("operands 2; v0 = acc_i; v1 = i2f v0; v2 = load_f 1; v3 = fma v1 v2 v2; v4 = round v3; store0 f32 v4");
  ASSERT_TRUE(p);
  EXPECT_EQ(emit_function(*p, "f"),
            "OCTAVO_DEVICE void f(int acc, float x1, float& r0) {\n"
            "  const int v0 = acc;\n"
            "  const float v1 = __int2float_rn(v0);\n"
            "  const float v2 = x1;\n"
            "  const float v3 = __fmaf_rn(v1, v2, v2);\n"
            "  const float v4 = rintf(v3);\n"
            "  r0 = v4;\n"
            "}\n");
}

class CompileFor : public ::testing::TestWithParam<Architecture> {};

TEST_P(CompileFor, ProgramsThatCoverEveryOperation) {
  const auto version = compiler_version();
  if (!version) GTEST_SKIP() << version.error().message;
  std::string text = emit_prelude() + argument_structures();
  std::set<Op> used;
  for (unsigned seed = 0; seed < 24; ++seed) {
    constexpr DType kInts[] = {DType::u8, DType::s8, DType::s32}, kFloats[] = {DType::f32, DType::f16, DType::bf16};
    KernelSpec spec{
        "k" + std::to_string(seed), program::random_program(seed, 80), {kInts[seed % 3], kFloats[seed / 3 % 3], DType::f32}};
    for (const program::Instr& i : spec.program.code) used.insert(i.op);
    text += emit_kernel(spec);
  }
  Program p;
  program::ProgramOps ops{p};
  const int x = p.push(Op::acc_f);
  int sum = x;
  for (int k = static_cast<int>(ir::Op::relu); k <= static_cast<int>(ir::Op::cos); ++k) {
    const int y = program::unary(ops, static_cast<ir::Op>(k), ir::default_facts(static_cast<ir::Op>(k)), x);
    sum = p.push(Op::add, sum, y);
  }
  p.outputs = {{sum, DType::f32}};
  text += emit_kernel({"functions", p, {}});
  EXPECT_EQ(used.size(), program::all_ops().size()) << "the programs no longer use every operation";
  const auto code = compile(text, compile_options(GetParam()));
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_GT(code->cubin.size(), 10000u);
  EXPECT_EQ(code->log, "") << "warnings";
}

TEST_P(CompileFor, BrokenTextIsAnErrorWithTheCompilersLog) {
  const auto version = compiler_version();
  if (!version) GTEST_SKIP() << version.error().message;
  const auto code = compile("this is no program", compile_options(GetParam()));
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("octavo.cu"), std::string::npos) << code.error().message;
}

INSTANTIATE_TEST_SUITE_P(Targets, CompileFor, ::testing::Values(Architecture("sm_80"), Architecture("sm_90a")));

}  // namespace
}  // namespace octavo::cuda
