// cpu.non_zero.rows and cpu.roi_align.* against the reference evaluator, bit for bit: lists around pieces of 1024 elements and words of 8, of every type, empty, full
// and in between; regions inside, on the border, outside and without an area, of images with channels side by side and apart.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

std::byte* bytes_of(Scene& s, const region::TensorRef& t) {
  return s.memory[static_cast<std::size_t>(t.buffer)].data() + 64;
}

TEST(NonZero, PiecesAndTypes) {
  std::uint32_t seed = 1;
  for (const DType type :
       {DType::f32, DType::boolean, DType::u8, DType::s8, DType::s32, DType::s64, DType::f16, DType::f64, DType::u16}) {
    for (const std::int64_t count : {1, 7, 8, 9, 1023, 1024, 1025, 2060}) {
      for (const int share : {0, 1, 3, 4, 5, 6, 7, 8}) {  // of 4 elements; from 5 on some of the first elements alone are there
        Scene s(seed++);
        region::Stage& st = s.stage();
        st.anchor.op = ir::Op::non_zero;
        st.anchor.facts = testing::facts(st.anchor.op, {});
        st.space = {count};
        st.anchor.inputs = {s.tensor(type, {count})};
        const std::size_t size = ir::size_of(type);
        std::byte* x = bytes_of(s, st.anchor.inputs[0]);
        for (std::int64_t i = 0; i < count; ++i) {
          const bool zero = static_cast<int>(s.pick(0, 3)) >= share;
          std::fill_n(x + static_cast<std::size_t>(i) * size, size, std::byte{0});
          if (!zero) x[static_cast<std::size_t>(i) * size + size - 1] = type == DType::boolean ? std::byte{1} : std::byte{0x3f};
          if (zero && type == DType::f32) x[static_cast<std::size_t>(i) * size + size - 1] = std::byte{0x80};  // -0
        }
        if (share > 4) {
          const std::int64_t there = share == 5 ? 0 : share == 6 ? count / 2 : share == 7 ? count : count + 7;
          st.anchor.inputs.push_back(s.tensor(DType::s64, {}));
          std::memcpy(bytes_of(s, st.anchor.inputs[1]), &there, sizeof there);
        }
        st.stores = {s.tensor(DType::s64, {count}), s.tensor(DType::s64, {})};
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), "cpu.non_zero.rows"));
      }
    }
  }
}

class RoiAlign : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Isa, RoiAlign, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(RoiAlign, RegionsAndOrdersOfMemory) {
  std::uint32_t seed = 1;
  for (const std::int64_t ratio : {0, 1, 2}) {
    for (const bool half : {false, true}) {
      for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}}) {
        for (const std::int64_t channels : {1, 7, 8, 17, 64}) {
          Scene s(seed++);
          region::Stage& st = s.stage();
          st.anchor.op = ir::Op::roi_align;
          st.anchor.facts = testing::facts(st.anchor.op, {{"mode", std::string("avg")},
                                                          {"output_height", std::int64_t{3}},
                                                          {"output_width", std::int64_t{5}},
                                                          {"sampling_ratio", ratio},
                                                          {"spatial_scale", 0.5},
                                                          {"half_pixel", std::int64_t{half}}});
          constexpr std::int64_t kRegions = 9;
          st.space = {kRegions, channels, 3, 5};
          st.anchor.inputs = {s.tensor(DType::f32, {2, channels, 11, 9}, BufferKind::arena, order),
                              s.tensor(DType::f32, {kRegions, 4}), s.tensor(DType::s64, {kRegions})};
          auto* roi = reinterpret_cast<float*>(bytes_of(s, st.anchor.inputs[1]));
          auto* batch = reinterpret_cast<std::int64_t*>(bytes_of(s, st.anchor.inputs[2]));
          for (std::int64_t r = 0; r < kRegions; ++r) {
            for (int k = 0; k < 4; ++k) roi[4 * r + k] = static_cast<float>(s.pick(0, 60)) / 2.0F - 5.0F;
            batch[r] = static_cast<std::int64_t>(s.pick(0, 2)) - 1;  // -1: zeros
          }
          st.stores = {s.tensor(DType::f32, st.space, BufferKind::arena, order)};
          int v = st.program.push(program::Op::acc_f);
          if (seed % 2 == 0) v = st.program.push(program::Op::mul, v, st.program.imm_f(0.7F));
          st.program.outputs = {{v, DType::f32}};
          EXPECT_RUNS(s.compare(cpu::cpu_provider(), std::string("cpu.roi_align.") + GetParam()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
