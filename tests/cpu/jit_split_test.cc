// How generated convolutions are split over threads: row tiles of all sizes, single blocks as tasks, both orders; and that threads get
// the same work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/amx_emulated.h"
#include "cpu/jit/conv_plan.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

struct Layer {
  std::int64_t c, h, w, o, kernel = 1, stride = 1;
  bool transposed = false;
  [[nodiscard]] std::int64_t out(std::int64_t size) const {
    return transposed ? (size - 1) * stride + kernel : (size + kernel / 2 * 2 - kernel) / stride + 1;
  }
};

void build(Scene& s, const Layer& k, int threads, std::int64_t upsampled = 1) {
  auto& st = s.stage();
  auto& a = st.anchor;
  const std::int64_t pad = k.transposed ? 0 : k.kernel / 2;
  a.op = k.transposed ? ir::Op::conv_transpose : ir::Op::conv;
  a.integer = true;
  a.facts = testing::facts(a.op, {{"strides", std::vector<std::int64_t>{k.stride, k.stride}},
                                  {"pads", std::vector<std::int64_t>{pad, pad, pad, pad}},
                                  {"dilations", std::vector<std::int64_t>{1, 1}},
                                  {"group", std::int64_t{1}}});
  auto x = s.nhwc(DType::u8, {1, k.c, k.h, k.w}, BufferKind::arena);
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, 7);
  a.inputs = {x};
  a.weights = s.tensor(DType::s8, k.transposed ? ir::Shape{k.c, k.o, k.kernel, k.kernel} : ir::Shape{k.o, k.c, k.kernel, k.kernel},
                       BufferKind::constant);
  st.space = {1, k.o, k.out(k.h), k.out(k.w)};
  s.plan().threads = threads;
  s.requantize(1, 2e-4F);
  st.stores = {s.nhwc(DType::u8, st.space)};
  if (upsampled > 1) {  // row tiles begin where the operand's rows begin
    region::Operand o;
    o.ref = s.nhwc(DType::u8, {1, k.o, (st.space[2] + upsampled - 1) / upsampled, (st.space[3] + upsampled - 1) / upsampled});
    o.ref.dims = st.space;
    o.div = {1, 1, upsampled, upsampled};
    auto& p = st.program;
    const int r = p.load(program::Op::load_i, static_cast<int>(st.operands.size()));
    st.operands.push_back(std::move(o));
    p.operand_count = static_cast<int>(st.operands.size());
    const int sum = p.push(program::Op::add_i, p.outputs[0].value, p.push(program::Op::min_i, r, p.imm_i(20)));
    p.outputs[0].value = p.push(program::Op::min_i, sum, p.imm_i(255));
  }
}

void expect_results(const region::Provider& provider, const std::string& suffix) {
  std::uint32_t seed = 1;
  for (const int threads : {2, 5, 16}) {
    for (const Layer& k : {Layer{64, 9, 13, 208}, Layer{512, 7, 7, 320}, Layer{40, 15, 11, 70, 3}, Layer{128, 7, 7, 192, 3},
                           Layer{64, 29, 15, 144, 3, 2}, Layer{64, 7, 9, 64, 2, 2, true}, Layer{32, 11, 5, 48, 3, 2, true},
                           Layer{2048, 1, 1, 1000}, Layer{16, 131, 17, 24}}) {
      const std::int64_t upsampled = 1 + seed % 3;
      Scene s(seed++);
      build(s, k, threads, upsampled);
      const std::string tactic = std::string(k.transposed ? "cpu.conv_transpose.u8s8." : "cpu.conv.u8s8.") + suffix;
      const std::string why = s.compare(provider, tactic);
      if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
      EXPECT_EQ(why, "") << fmt::format("{} threads, {}x{}x{} to {}, kernel {}, stride {}, operand / {}", threads, k.c, k.h, k.w,
                                        k.o, k.kernel, k.stride, upsampled);
    }
    ++seed;  // another divisor for each layer
  }
}

TEST(Avx512Split, ResultsDoNotDependOnIt) {
  expect_results(cpu::cpu_provider(), "avx512vnni.jit");
}

TEST(Avx512Split, ResultsDoNotDependOnItWithTiles) {
  expect_results(emulated_amx_provider(), "amx");
}

TEST(Avx512Split, RowTilesCoverTheRowsAndThreadsGetTheSameWork) {
  std::uint32_t seed = 1;
  for (const Layer& k : {Layer{64, 56, 56, 256}, Layer{128, 28, 28, 128, 3}, Layer{512, 28, 28, 128}, Layer{256, 14, 14, 256, 3},
                         Layer{1024, 14, 14, 256}, Layer{2048, 7, 7, 512}, Layer{512, 7, 7, 512, 3}, Layer{960, 7, 7, 320},
                         Layer{960, 7, 7, 160}, Layer{64, 14, 14, 384}, Layer{32, 28, 28, 192}, Layer{64, 128, 128, 64, 3},
                         Layer{128, 40, 40, 128, 3, 2}, Layer{384, 20, 20, 256}, Layer{2048, 1, 1, 1000}}) {
    for (const int threads : {1, 2, 4}) {
      Scene s(seed++);
      build(s, k, threads);
      const auto plan = cpu::jit::match_conv(s.region(), s.plan(), {.vbmi = true});
      ASSERT_TRUE(plan) << plan.error().message;
      const auto& ph = plan->phases.front();
      std::int64_t row = 0;
      for (std::int64_t b = 0; b < ph.row_tiles; ++b) {
        EXPECT_EQ(ph.first_row(b), row);
        EXPECT_GT(ph.rows_of(b), 0);
        EXPECT_LE(ph.pixels_of(b), ph.pixels_of(0));
        row += ph.rows_of(b);
      }
      EXPECT_EQ(row, ph.rows);
      const std::int64_t blocks = static_cast<std::int64_t>(ph.blocks.size()), tasks = ph.row_tiles * ph.parts;
      double most = 0, all = 0;
      for (std::int64_t w = 0; w < threads; ++w) {
        double work = 0;
        for (std::int64_t t = tasks * w / threads; t < tasks * (w + 1) / threads; ++t) {
          const std::int64_t row_tile = ph.parts_first ? t % ph.row_tiles : t / ph.parts,
                             part = ph.parts_first ? t / ph.row_tiles : t % ph.parts;
          for (std::int64_t b = blocks * part / ph.parts; b < blocks * (part + 1) / ph.parts; ++b)
            work += static_cast<double>(ph.pixels_of(row_tile)) * ph.blocks[static_cast<std::size_t>(b)].vectors;
        }
        most = std::max(most, work);
        all += work;
      }
      EXPECT_LE(most * threads / all, threads <= 2 ? 1.07 : 1.35)
          << fmt::format("{} threads, {}x{}x{} to {}, kernel {}: {} row tiles of {} blocks", threads, k.c, k.h, k.w, k.o, k.kernel,
                         ph.row_tiles, blocks);
    }
  }
}

}  // namespace
}  // namespace octavo::testing
