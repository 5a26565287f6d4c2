// The simple families under emulation: every layout, type, border and zero point on small shapes, bit-equal to the contract.
#include "cuda/families/families.h"

#include <gtest/gtest.h>

#include "cuda/emulation/emulated_test.h"
#include "cuda/family_scene.h"
#include "program/random_program.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

class Families : public EmulatedTest {};

// ---- regions without an anchor
TEST_F(Families, PointwiseResidualAndTwoStores) {
  std::uint32_t seed = 1;
  for (const ir::Shape& shape : {ir::Shape{1, 16, 3, 5}, ir::Shape{2, 7, 4, 4}, ir::Shape{1, 3, 6, 6}, ir::Shape{1, 24, 1, 1}}) {
    for (const int gap : {0, 16, 3}) {
      for (const bool planar : {false, true}) {
        Scene s(seed++);
        auto& st = s.stage();
        st.space = shape;
        auto& p = st.program;
        p.operand_count = 3;
        st.operands.push_back({s.nhwc(DType::u8, shape, BufferKind::input, gap), {}});
        st.operands.push_back(
            {planar ? s.tensor(DType::f32, shape, BufferKind::input) : s.nhwc(DType::f32, shape, BufferKind::arena, gap), {}});
        st.operands.push_back({s.along(DType::f32, shape, 1), {}});
        const int a = p.push(Op::i2f, p.load(Op::load_i, 0));
        const int y = p.push(Op::fma, a, p.load(Op::load_f, 2), p.load(Op::load_f, 1));
        int q = p.push(Op::max, p.push(Op::min, p.push(Op::round, y), p.imm_f(100)), p.imm_f(-7));
        p.outputs = {{p.push(Op::add_i, p.push(Op::f2i, q), p.imm_i(7)), DType::u8}, {y, DType::bf16}, {y, DType::f16}};
        st.stores = {s.nhwc(DType::u8, shape, BufferKind::arena, gap), s.nhwc(DType::bf16, shape, BufferKind::output),
                     planar ? s.tensor(DType::f16, shape, BufferKind::output) : s.nhwc(DType::f16, shape, BufferKind::output)};
        ASSERT_EQ(run_emulated(s, cuda::pointwise_family()), "");
      }
    }
  }
}

TEST_F(Families, PointwiseRandomPrograms) {
  constexpr DType kInts[] = {DType::u8, DType::s8, DType::s32}, kFloats[] = {DType::f32, DType::f16, DType::bf16};
  for (unsigned seed = 0; seed < 6; ++seed) {
    Scene s(seed);
    auto& st = s.stage();
    st.space = {2, 8, 3, 4};
    st.program = program::random_program(seed, 40);
    std::erase_if(st.program.code, [](const auto&) { return false; });
    const DType types[] = {kInts[seed % 3], kFloats[seed / 3 % 3], DType::f32};
    for (int k = 0; k < st.program.operand_count; ++k) st.operands.push_back({s.nhwc(types[k], st.space, BufferKind::input), {}});
    for (auto& i : st.program.code) {  // no anchor: its accumulator is a constant
      if (i.op == Op::acc_i) i = {Op::imm_i, {-1, -1, -1, -1}, 12};
      if (i.op == Op::acc_f) i = {Op::imm_f, {-1, -1, -1, -1}, 0x3fc00000};
    }
    for (const auto& o : st.program.outputs) st.stores.push_back(s.nhwc(o.type, st.space, BufferKind::output));
    ASSERT_EQ(run_emulated(s, cuda::pointwise_family(), {}, 1e-6F), "") << seed;
  }
}

TEST_F(Families, PointwiseRepeatsAndBroadcasts) {
  std::uint32_t seed = 1;
  for (const Ints& div : {Ints{1, 1, 2, 2}, Ints{1, 4, 1, 1}, Ints{1, 1, 3, 1}}) {
    Scene s(seed++);
    auto& st = s.stage();
    st.space = {1, 8, 6, 4};
    ir::Shape from = st.space;
    for (std::size_t k = 0; k < 4; ++k) from[k] = (from[k] - 1) / div[k] + 1;
    st.program.operand_count = 2;
    st.operands.push_back({s.nhwc(DType::u8, from, BufferKind::input), div});
    st.operands.push_back({s.along(DType::u8, st.space, 3), {}});
    auto& p = st.program;
    p.outputs = {{p.push(Op::and_i, p.push(Op::add_i, p.load(Op::load_i, 0), p.load(Op::load_i, 1)), p.imm_i(255)), DType::u8}};
    st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output)};
    ASSERT_EQ(run_emulated(s, cuda::pointwise_family()), "");
  }
}

// ---- copies and moves
TEST_F(Families, CopiesOfAnyTypeBetweenAnyLayouts) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::u8, DType::f16, DType::f32, DType::s64}) {
    for (const std::vector<int>& order :
         {std::vector<int>{0, 1, 2, 3}, std::vector<int>{0, 2, 3, 1}, std::vector<int>{3, 1, 0, 2}}) {
      for (const std::int64_t channels : {5, 40}) {
        Scene s(seed++);
        auto& st = s.stage();
        st.space = {2, channels, 5, 9};
        st.anchor.op = ir::Op::reshape;
        st.anchor.facts = ir::Reshape{};
        st.anchor.inputs = {s.tensor(type, st.space, BufferKind::input, order, 2)};
        st.stores = {s.tensor(type, st.space, BufferKind::output, {0, 2, 3, 1}, 0)};
        ASSERT_EQ(run_emulated(s, cuda::copy_family()), "");
      }
    }
  }
}

TEST_F(Families, LargeTransposesGoThroughTiles) {
  Scene s(3);
  auto& st = s.stage();
  st.space = {1, 40, 7, 11};
  st.anchor.op = ir::Op::reshape;
  st.anchor.facts = ir::Reshape{};
  st.anchor.inputs = {s.tensor(DType::f32, st.space, BufferKind::input, {0, 2, 1, 3})};  // width innermost, but only 11
  st.space = {1, 40, 3, 37};
  st.anchor.inputs = {s.tensor(DType::f32, st.space, BufferKind::input)};
  st.stores = {s.nhwc(DType::f32, st.space, BufferKind::output)};
  ASSERT_EQ(run_emulated(s, cuda::copy_family(), {}, 0,
                         [](std::string text) {
                           EXPECT_NE(text.find("octavo_turn"), std::string::npos);
                           return text;
                         }),
            "");
}

void set_move(Scene& s, ir::Op op, ir::Facts facts, const ir::Shape& x, const ir::Shape& y, DType type, int variant) {
  auto& st = s.stage();
  st.space = y;
  st.anchor.op = op;
  st.anchor.facts = std::move(facts);
  st.anchor.integer = type == DType::u8;
  const bool planar = (variant & 1) != 0, epilogue = (variant & 2) != 0;
  const auto make = [&](DType t, const ir::Shape& dims, BufferKind kind) {
    return planar ? s.tensor(t, dims, kind) : s.nhwc(t, dims, kind, variant);
  };
  st.anchor.inputs = {make(type, x, BufferKind::input)};
  auto& p = st.program;
  const int acc = p.push(type == DType::u8 ? Op::acc_i : Op::acc_f);
  if (!epilogue) {
    p.outputs = {{acc, type}};
    st.stores = {make(type, y, BufferKind::output)};
  } else {
    const int value = type == DType::u8 ? p.push(Op::i2f, acc) : acc;
    p.outputs = {{p.push(Op::mul, value, p.imm_f(0.25F)), DType::f32}};
    st.stores = {make(DType::f32, y, BufferKind::output)};
  }
}

TEST_F(Families, MovesWithAndWithoutPrograms) {
  std::uint32_t seed = 1;
  EveryOther some;
  for (const DType type : {DType::u8, DType::f32}) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool takes = some.takes(type, variant);
      const auto expect = [&](ir::Op op, ir::Facts facts, const ir::Shape& x, const ir::Shape& y) {
        Scene s(seed++);
        if (!takes) return;
        set_move(s, op, std::move(facts), x, y, type, variant);
        EXPECT_EQ(run_emulated(s, cuda::move_family()), "") << ir::name_of(op);
      };
      for (const ir::PadMode mode : {ir::PadMode::constant, ir::PadMode::edge, ir::PadMode::reflect}) {
        expect(ir::Op::pad, ir::Pad{.pads = {0, 0, 2, 3, 0, 0, 1, 0}, .mode = mode, .value = 1.5, .value_code = 77}, {1, 16, 4, 5},
               {1, 16, 7, 8});
      }
      expect(ir::Op::pad, ir::Pad{.pads = {0, 1, 0, 0, 1, 2, 0, 0}, .mode = ir::PadMode::constant, .value = -2, .value_code = 255},
             {1, 9, 2, 2}, {2, 12, 2, 2});
      expect(ir::Op::resize_nearest, ir::ResizeNearest{{{}, {}, {0, 0, 1, 2, 2}, {0, 0, 0, 1, 1, 2, 3}}}, {1, 8, 3, 4},
             {1, 8, 5, 7});
      expect(ir::Op::tile, ir::Tile{{2, 2, 1, 2}}, {1, 4, 2, 3}, {2, 8, 2, 6});
      expect(ir::Op::slice, ir::Slice{.starts = {0, 6, 1, 3}, .ends = {}, .steps = {1, -2, 1, -1}}, {1, 8, 3, 4}, {1, 3, 2, 4});
      expect(ir::Op::depth_to_space,
             ir::Blocks{2, variant % 2 ? ir::BlockOrder::column_row_depth : ir::BlockOrder::depth_column_row}, {1, 16, 2, 3},
             {1, 4, 4, 6});
      expect(ir::Op::space_to_depth, ir::Blocks{2}, {1, 4, 4, 6}, {1, 16, 2, 3});
    }
  }
}

TEST_F(Families, GatherByConstantAndComputedIndices) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::u8, DType::f32}) {
    for (const std::size_t axis : {0U, 1U, 3U}) {
      Scene s(seed++);
      ir::Shape x{4, 8, 3, 5}, y = x;
      y[axis] = 6;
      set_move(s, ir::Op::gather, ir::Gather{.axis = static_cast<std::int64_t>(axis)}, x, y, type, 0);
      auto& st = s.stage();
      st.anchor.inputs.push_back(s.tensor(DType::s64, {6}, BufferKind::input));
      auto* ids = reinterpret_cast<std::int64_t*>(s.memory.back().data() + 64);
      for (int i = 0; i < 6; ++i) ids[i] = s.pick(-static_cast<int>(x[axis]), static_cast<int>(x[axis]) - 1);
      EXPECT_EQ(run_emulated(s, cuda::move_family()), "");
    }
  }
}

// One index without dimensions: the result has a dimension less, and every run of it begins where the index says.
TEST_F(Families, GatherByOneIndex) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::u8, DType::f32}) {
    for (const std::size_t axis : {0U, 1U, 3U}) {
      Scene s(seed++);
      const ir::Shape x{4, 8, 3, 5};
      ir::Shape y = x;
      y.erase(y.begin() + static_cast<std::ptrdiff_t>(axis));
      set_move(s, ir::Op::gather, ir::Gather{.axis = static_cast<std::int64_t>(axis)}, x, y, type, 1);
      s.stage().anchor.inputs.push_back(s.tensor(DType::s64, {}, BufferKind::input));
      reinterpret_cast<std::int64_t*>(s.memory.back().data() + 64)[0] = axis == 1 ? 5 : -2;
      EXPECT_EQ(run_emulated(s, cuda::move_family()), "");
    }
  }
}

// ---- pooling and reductions
struct PoolCase {
  ir::Shape x;
  Ints kernel, strides, pads, dilations;
};

TEST_F(Families, PoolingOfCodesAndFloats) {
  const std::vector<PoolCase> cases{{{1, 16, 7, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
                                    {{2, 5, 6, 5}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
                                    {{1, 32, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
                                    {{1, 8, 10, 11}, {2, 3}, {3, 1}, {0, 2, 1, 0}, {2, 3}},
                                    {{1, 6, 12}, {3}, {2}, {1, 1}, {1}},
                                    {{1, 6, 4, 5, 6}, {2, 3, 2}, {2, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}}};
  std::uint32_t seed = 1;
  EveryOther some;
  for (const PoolCase& c : cases) {
    for (const bool max : {true, false}) {
      for (const bool codes : {true, false}) {
        for (const bool planar : {false, true}) {
          Scene s(seed++);
          if (!some.takes(&c, max, codes, planar)) continue;
          auto& st = s.stage();
          const std::size_t spatial = c.kernel.size();
          st.space = {c.x[0], c.x[1]};
          for (std::size_t d = 0; d < spatial; ++d)
            st.space.push_back(
                (c.x[2 + d] + c.pads[d] + c.pads[spatial + d] - (c.kernel[d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
          st.anchor.op = max ? ir::Op::max_pool : ir::Op::avg_pool;
          st.anchor.integer = codes;
          st.anchor.facts = ir::Window{
              .kernel = c.kernel, .strides = c.strides, .dilations = c.dilations, .pads = c.pads, .count_include_pad = planar};
          const DType type = codes ? DType::u8 : DType::f32;
          st.anchor.inputs = {planar ? s.tensor(type, c.x, BufferKind::input)
                                     : s.nhwc(type, c.x, BufferKind::input, codes ? 16 : 0)};
          constexpr int kZeros[] = {0, 128, 255, 7};
          if (codes) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, kZeros[seed % 4]);
          auto& p = st.program;
          if (codes && max) {
            p.outputs = {{p.push(Op::acc_i), DType::u8}};
          } else {
            p.outputs = {
                {p.push(Op::mul, codes ? p.push(Op::i2f, p.push(Op::acc_i)) : p.push(Op::acc_f), p.imm_f(0.37F)), DType::f32}};
          }
          st.stores = {planar ? s.tensor(p.outputs[0].type, st.space, BufferKind::output)
                              : s.nhwc(p.outputs[0].type, st.space, BufferKind::output)};
          const bool shared = !codes && !max && c.kernel == Ints{7, 7};  // sums in another order
          ASSERT_EQ(run_emulated(s, cuda::pool_family(), {}, shared ? 1e-6F : 0), "");
        }
      }
    }
  }
}

TEST_F(Families, WindowsOfFloatsThatThreadsShare) {
  std::uint32_t seed = 1;
  const auto run = [&](const ir::Shape& x, const Ints& kernel, const Ints& strides, DType type, bool max, const Edit& edit = {}) {
    Scene s(seed++);
    auto& st = s.stage();
    st.space = {x[0], x[1], (x[2] - kernel[0]) / strides[0] + 1, (x[3] - kernel[1]) / strides[1] + 1};
    st.anchor.op = max ? ir::Op::max_pool : ir::Op::avg_pool;
    st.anchor.facts = ir::Window{.kernel = kernel, .strides = strides, .dilations = {1, 1}, .pads = {0, 0, 0, 0}};
    st.anchor.inputs = {s.nhwc(type, x, BufferKind::input)};
    auto& p = st.program;
    p.outputs = {{p.push(Op::add, p.push(Op::acc_f), p.imm_f(0.37F)), type}};
    st.stores = {s.nhwc(type, st.space, BufferKind::output)};
    return run_emulated(s, cuda::pool_family(), {}, max ? 0 : 1e-5F, [&](std::string text) {
      EXPECT_NE(text.find("parts[v * 256 + octavo_thread()]"), std::string::npos) << "nothing is shared";
      return edit ? edit(text) : text;
    });
  };
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool max : {true, false}) {
      EXPECT_EQ(run({2, 24, 29, 31}, {29, 31}, {1, 1}, type, max), "") << "the whole image, 256 threads a window";
      if (type != DType::f16) continue;
      EXPECT_EQ(run({1, 10, 7, 7}, {7, 7}, {1, 1}, type, max), "") << "channels that are no whole vectors";
      EXPECT_EQ(run({1, 16, 11, 12}, {5, 4}, {3, 4}, type, max), "") << "several windows";
    }
  }
  const auto planted = [&](std::string_view from, std::string_view to) {
    return run({2, 24, 29, 31}, {29, 31}, {1, 1}, DType::f16, false, [&](std::string text) {
      const auto at = text.find(from);
      EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
      return at == std::string::npos ? text : text.replace(at, from.size(), to);
    });
  };
  EXPECT_NE(planted("tap < 899 ? e[k][v] : 0.0f", "e[k][v]"), "") << "the first tap again where there are no more";
  EXPECT_NE(planted("    octavo_barrier();\n    if (share < half)", "    if (share < half)"), "")
      << "parts that are not written yet";
  EXPECT_NE(planted("rest_taps % 31", "rest_taps % 30"), "") << "a column that is never read";
  EXPECT_NE(planted("half > 0", "half > 1"), "") << "the last two parts are not joined";
}

TEST_F(Families, ReductionsOverAnyAxes) {
  std::uint32_t seed = 1;
  EveryOther some;
  for (const Ints& axes : {Ints{2, 3}, Ints{1}, Ints{3}, Ints{0, 2}, Ints{}}) {
    for (const ir::Op op : {ir::Op::reduce_max, ir::Op::reduce_min, ir::Op::reduce_sum, ir::Op::reduce_mean}) {
      for (const bool codes : {true, false}) {
        const ir::Shape x{2, 12, 5, 9};
        Scene s(seed++);
        if (!some.takes(axes.size(), axes.empty() ? -1 : axes[0], op, codes)) continue;
        auto& st = s.stage();
        const bool keep = seed % 2 != 0;
        std::vector<bool> over(4, axes.empty());
        for (const auto a : axes) over[static_cast<std::size_t>((a + 4) % 4)] = true;
        for (std::size_t k = 0; k < 4; ++k) {
          if (!over[k] || keep) st.space.push_back(over[k] ? 1 : x[k]);
        }
        st.anchor.op = op;
        st.anchor.integer = codes;
        st.anchor.facts = ir::Reduction{axes, keep};
        st.anchor.inputs = {s.nhwc(codes ? DType::u8 : DType::f32, x, BufferKind::input)};
        if (codes) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, s.pick(0, 255));
        auto& p = st.program;
        p.outputs = {{p.push(Op::mul, codes ? p.push(Op::i2f, p.push(Op::acc_i)) : p.push(Op::acc_f), p.imm_f(0.5F)), DType::f32}};
        st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
        ASSERT_EQ(run_emulated(s, cuda::reduce_family(), {}, codes ? 0 : 1e-5F), "") << ir::name_of(op);
      }
    }
  }
}

// ---- convolutions that no tiled family takes
TEST_F(Families, DirectConvolutions) {
  struct Case {
    ir::Shape x;
    std::int64_t outputs;
    Ints kernel, strides, pads, dilations;
    std::int64_t group;
    bool transposed;
  };
  const std::vector<Case> cases{{{1, 6, 5, 6}, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, false},
                                {{2, 4, 7, 6}, 6, {3, 2}, {2, 1}, {1, 0, 2, 1}, {2, 1}, 2, false},
                                {{1, 3, 9}, 5, {3}, {2}, {1, 1}, {1}, 1, false},
                                {{1, 2, 4, 4, 3}, 4, {2, 2, 2}, {1, 2, 1}, {0, 1, 0, 1, 0, 1}, {1, 1, 1}, 1, false},
                                {{1, 6, 4, 3}, 4, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1, true},
                                {{1, 4, 3, 3}, 8, {4, 3}, {2, 3}, {1, 0, 0, 1}, {1, 2}, 2, true}};
  std::uint32_t seed = 1;
  for (const Case& c : cases) {
    for (const bool integer : {true, false}) {
      for (const int zero : {0, 128, 255}) {
        if (!integer && zero != 0) continue;
        Scene s(seed++);
        auto& st = s.stage();
        const std::size_t spatial = c.kernel.size();
        st.space = {c.x[0], c.outputs};
        for (std::size_t d = 0; d < spatial; ++d) {
          const std::int64_t reach = (c.kernel[d] - 1) * c.dilations[d] + 1, pads = c.pads[d] + c.pads[spatial + d];
          st.space.push_back(c.transposed ? (c.x[2 + d] - 1) * c.strides[d] + reach - pads
                                          : (c.x[2 + d] + pads - reach) / c.strides[d] + 1);
        }
        st.anchor.op = c.transposed ? ir::Op::conv_transpose : ir::Op::conv;
        st.anchor.integer = integer;
        st.anchor.facts = ir::Window{.strides = c.strides,
                                     .dilations = c.dilations,
                                     .pads = c.pads,
                                     .output_padding = c.transposed ? ir::Shape(spatial, 0) : ir::Shape(),
                                     .group = c.group};
        st.anchor.inputs = {s.nhwc(integer ? DType::u8 : DType::f32, c.x, BufferKind::input)};
        if (integer) st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, zero);
        ir::Shape w = c.transposed ? ir::Shape{c.x[1], c.outputs / c.group} : ir::Shape{c.outputs, c.x[1] / c.group};
        w.insert(w.end(), c.kernel.begin(), c.kernel.end());
        st.anchor.weights = s.tensor(integer ? DType::s8 : DType::f32, w, BufferKind::constant);
        if (integer && seed % 2 != 0) {
          for (std::int64_t o = 0; o < c.outputs; ++o) st.anchor.weight_zero.push_back(s.pick(-3, 3));
        }
        if (integer) {
          s.requantize(1, 0.01F);
          st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output)};
        } else {
          st.program.outputs = {{st.program.push(Op::mul, st.program.push(Op::acc_f), st.program.imm_f(0.5F)), DType::f32}};
          st.stores = {s.nhwc(DType::f32, st.space, BufferKind::output)};
        }
        ASSERT_EQ(run_emulated(s, cuda::direct_conv_family(), {}, integer ? 0 : 1e-5F), "");
      }
    }
  }
}

TEST_F(Families, TransposedConvolutionsByPhases) {
  struct Case {
    ir::Shape x;
    std::int64_t outputs;
    Ints kernel, strides, pads;
    int zero;
  };
  std::uint32_t seed = 1;
  for (const Case& c :
       {Case{{1, 32, 3, 4}, 24, {2, 2}, {2, 2}, {0, 0, 0, 0}, 128}, Case{{2, 16, 3, 3}, 16, {4, 3}, {2, 1}, {1, 1, 0, 1}, 255},
        Case{{1, 16, 4, 3}, 8, {3, 5}, {2, 3}, {0, 2, 1, 0}, 7}, Case{{2, 16, 5, 3}, 32, {2, 2}, {2, 2}, {0, 0, 0, 0}, 9},
        Case{{1, 32, 3, 2}, 16, {1, 3}, {1, 3}, {0, 0, 0, 0}, 0}}) {
    Scene s(seed++);
    auto& st = s.stage();
    st.space = {c.x[0], c.outputs};
    for (std::size_t d = 0; d < 2; ++d)
      st.space.push_back((c.x[2 + d] - 1) * c.strides[d] + c.kernel[d] - c.pads[d] - c.pads[2 + d]);
    st.anchor.op = ir::Op::conv_transpose;
    st.anchor.integer = true;
    st.anchor.facts = ir::Window{.strides = c.strides, .dilations = {1, 1}, .pads = c.pads, .output_padding = {0, 0}};
    st.anchor.inputs = {s.nhwc(DType::u8, c.x, BufferKind::input)};
    st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, c.zero);
    st.anchor.weights = s.tensor(DType::s8, {c.x[1], c.outputs, c.kernel[0], c.kernel[1]}, BufferKind::constant);
    s.requantize(1, 0.01F);
    st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output, 16)};
    ASSERT_EQ(run_emulated(s, cuda::transposed_conv_family(), {}, 0, {}, scalar_region, {"sm_80", 108, 163 * 1024}), "");
  }
}

// ---- operators on floats, against the reference evaluator
std::string against_reference(Scene& s, const cuda::Family& family, float tolerance) {
  auto& p = s.stage().program;
  p.outputs = {{p.push(Op::mul, p.push(Op::acc_f), p.imm_f(0.5F)), DType::f32}};
  s.stage().stores = {s.nhwc(DType::f32, s.stage().space, BufferKind::output)};
  return run_emulated(s, family, {}, tolerance, {}, reference_region);
}

TEST_F(Families, SoftmaxOfShortAndLongRows) {
  std::uint32_t seed = 1;
  for (const ir::Op op : {ir::Op::softmax, ir::Op::log_softmax}) {
    for (const std::int64_t extent : {70, 128, 129, 700, 5}) {  // up to six blocks of a sum
      const std::int64_t axis = extent == 5 ? 3 : 1;
      Scene s(seed++);
      s.stage().space = axis == 1 ? ir::Shape{2, extent, 2, 3} : ir::Shape{2, 8, 3, extent};
      s.stage().anchor.op = op;
      s.stage().anchor.facts = ir::Along{axis};
      s.stage().anchor.inputs = {s.nhwc(DType::f32, s.stage().space, BufferKind::input)};
      EXPECT_EQ(against_reference(s, cuda::softmax_family(), 0), "") << extent;
    }
  }
}

TEST_F(Families, NormsOfRowsAndWindows) {
  for (const ir::Op op : {ir::Op::instance_norm, ir::Op::layer_norm, ir::Op::lrn}) {
    Scene s(5);
    auto& st = s.stage();
    st.space = {2, 6, 4, 5};
    st.anchor.op = op;
    st.anchor.facts = ir::default_facts(op);
    st.anchor.inputs = {s.nhwc(DType::f32, st.space, BufferKind::input)};
    if (op == ir::Op::instance_norm)
      st.anchor.inputs.insert(st.anchor.inputs.end(),
                              {s.tensor(DType::f32, {6}, BufferKind::input), s.tensor(DType::f32, {6}, BufferKind::input)});
    if (op == ir::Op::layer_norm) {
      st.anchor.as<ir::LayerNorm>().axis = 2;
      st.anchor.inputs.insert(st.anchor.inputs.end(),
                              {s.tensor(DType::f32, {4, 5}, BufferKind::input), s.tensor(DType::f32, {5}, BufferKind::input)});
    }
    if (op == ir::Op::lrn) st.anchor.facts = ir::LocalResponse{.size = 3, .alpha = 0.01, .beta = 0.75, .bias = 1.5};
    EXPECT_EQ(against_reference(s, cuda::norm_family(), op == ir::Op::lrn ? 0 : 1e-5F), "") << ir::name_of(op);
  }
}

TEST_F(Families, ResizeLinearAndCubic) {
  std::uint32_t seed = 1;
  for (const auto mode : {ir::Coordinates::half_pixel, ir::Coordinates::align_corners, ir::Coordinates::asymmetric}) {
    for (const ir::Op op : {ir::Op::resize_linear, ir::Op::resize_cubic}) {
      Scene s(seed++);
      s.stage().space = {1, 8, 7, 5};
      s.stage().anchor.op = op;
      s.stage().anchor.facts = ir::Resize{.scales = {1, 1, 7.0 / 4, 5.0 / 6}, .sizes = {}, .coordinates = mode};
      s.stage().anchor.inputs = {s.nhwc(DType::f32, {1, 8, 4, 6}, BufferKind::input)};
      EXPECT_EQ(against_reference(s, cuda::resize_family(), 0), "") << ir::spelled(mode);
    }
  }
}

TEST_F(Families, MatrixProductsOfComputedValues) {
  Scene s(1);
  s.stage().space = {2, 3, 4, 5};
  s.stage().anchor.op = ir::Op::matmul;
  s.stage().anchor.facts = ir::Product{};
  s.stage().anchor.inputs = {s.tensor(DType::f32, {2, 1, 4, 7}, BufferKind::input),
                             s.tensor(DType::f32, {3, 7, 5}, BufferKind::input)};
  EXPECT_EQ(against_reference(s, cuda::matmul_family(), 1e-5F), "");
}

TEST_F(Families, MatrixProductsInBfloat16) {
  Scene s(3);
  s.stage().space = {2, 3, 4, 5};
  s.stage().anchor.op = ir::Op::matmul;
  s.stage().anchor.facts = ir::Product{};
  s.stage().anchor.inputs = {s.tensor(DType::bf16, {2, 1, 4, 7}, BufferKind::input),
                             s.tensor(DType::bf16, {3, 7, 5}, BufferKind::input, {0, 2, 1})};
  EXPECT_EQ(against_reference(s, cuda::matmul_family(), 1e-5F), "");
}

TEST_F(Families, MatrixProductsOfCodes) {
  Scene s(2);
  region::Stage& st = s.stage();
  st.space = {2, 3, 4, 5};
  st.anchor.op = ir::Op::matmul;
  st.anchor.facts = ir::Product{};
  st.anchor.integer = true;
  st.anchor.inputs = {s.tensor(DType::u8, {2, 1, 4, 70}, BufferKind::input, {0, 2, 1, 3}),
                      s.tensor(DType::u8, {3, 70, 5}, BufferKind::input, {0, 2, 1})};
  st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 128);
  st.anchor.inputs[1].quantizer = ir::per_tensor(DType::u8, 0.1F, 3);
  auto& p = st.program;
  p.outputs = {{p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(0.01F)), DType::f32}};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
  EXPECT_EQ(run_emulated(s, cuda::matmul_family(), {}, 0, {}, reference_region), "");
}

}  // namespace
}  // namespace octavo::testing
