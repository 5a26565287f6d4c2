// Texts whose tests under the emulation are elsewhere, as machine code for every architecture.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/scalar_region.h"
#include "cuda/architectures.h"
#include "cuda/device/nvrtc.h"
#include "cuda/families/families.h"
#include "cuda/families/planar.h"
#include "cuda/plain_scene.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

class Texts : public ::testing::TestWithParam<cuda::Architecture> {
 protected:
  void compiles(const cuda::Family& family, Scene& s) {
    const cuda::Target target{GetParam()};
    const auto all = family.candidates(s.region(), s.plan(), target);
    ASSERT_FALSE(all.empty());
    const auto text = family.emit(s.region(), s.plan(), all[0].parameters, target);
    ASSERT_TRUE(text) << text.error().message;
    const auto code = cuda::compile(cuda::emit_prelude() + text->text, cuda::compile_options(target.architecture));
    EXPECT_TRUE(code) << family.name() << ": " << code.error().message;
  }
  void SetUp() override {
    if (const auto version = cuda::compiler_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(Texts, Planes) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {2, 3, 8, 8};
  st.operands = {{s.tensor(DType::f32, st.space, BufferKind::input), {}}};
  st.stores = {s.nhwc(DType::u8, st.space)};
  auto& p = st.program;
  p.operand_count = 1;
  const int x = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(0.043F));
  p.outputs = {{p.push(Op::f2i, p.push(Op::min, p.push(Op::max, x, p.imm_f(0)), p.imm_f(255))), DType::u8}};
  compiles(cuda::planar_family(), s);
}

TEST_P(Texts, TransposedConvolutionsFolded) {
  Scene s(2);
  auto& st = s.stage();
  st.space = {1, 32, 8, 8};
  st.anchor.op = ir::Op::conv_transpose;
  st.anchor.integer = true;
  st.anchor.facts = ir::Window{.strides = {2, 2}, .dilations = {1, 1}, .pads = {0, 0, 0, 0}, .output_padding = {0, 0}};
  st.anchor.inputs = {s.nhwc(DType::u8, {1, 64, 4, 4}, BufferKind::input)};
  st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 9);
  st.anchor.weights = s.tensor(DType::s8, {64, 32, 2, 2}, BufferKind::constant);
  s.requantize(1, 0.01F);
  st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output)};
  compiles(cuda::transposed_conv_family(), s);
}

/// Every third of the families, another third for each architecture.
TEST_P(Texts, OperatorsThatNumberElements) {
  const auto turn = static_cast<std::size_t>(GetParam().sm % 3);
  for (std::size_t k = turn; k < plain_cases().size(); k += 3) {
    Scene s(static_cast<unsigned>(k + 1));
    plain_cases()[k].build(s, 3);
    compiles(plain_cases()[k].family(), s);
  }
}

INSTANTIATE_TEST_SUITE_P(For, Texts, ::testing::ValuesIn(architectures()));

}  // namespace
}  // namespace octavo::testing
