// Moves, depthwise convolutions, softmax, and operators computed by the reference evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/isa.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "reference/oracle_provider.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

#define EXPECT_SAME(scene, tactic)                                               \
  do {                                                                           \
    const std::string difference = (scene).compare(cpu::cpu_provider(), tactic); \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;          \
    EXPECT_EQ(difference, "");                                                   \
  } while (false)

// ---- moves: forwarded, and with an epilogue
// --------------------------------------------------------------------------------------
void set_move(Scene& s, ir::Op op, ir::Attrs attrs, const ir::Shape& x, const ir::Shape& y, DType type, int variant) {
  auto& st = s.stage();
  st.space = y;
  st.anchor.op = op;
  st.anchor.facts = testing::facts(st.anchor.op, attrs, x.size());
  st.anchor.integer = type == DType::u8;
  const bool planar = (variant & 1) != 0, epilogue = (variant & 2) != 0;
  const auto make = [&](DType t, const ir::Shape& dims) {
    return planar ? s.tensor(t, dims, BufferKind::input) : s.nhwc(t, dims, BufferKind::arena, variant);
  };
  st.anchor.inputs = {make(type, x)};
  auto& p = st.program;
  const int acc = p.push(type == DType::u8 ? Op::acc_i : Op::acc_f);
  if (!epilogue) {
    p.outputs = {{acc, type}};
    st.stores = {make(type, y)};
  } else {
    const int value = type == DType::u8 ? p.push(Op::i2f, acc) : acc;
    p.outputs = {{p.push(Op::mul, value, p.imm_f(0.25F)), DType::f32}};
    st.stores = {make(DType::f32, y)};
  }
}

TEST(Move, PadEveryMode) {
  std::uint32_t seed = 1;
  for (const char* mode : {"constant", "edge", "reflect"}) {
    for (const DType type : {DType::u8, DType::f32}) {
      for (int variant = 0; variant < 4; ++variant) {
        Scene s(seed++);
        set_move(
            s, ir::Op::pad,
            {{"pads", Ints{0, 1, 2, 3, 1, 2, 1, 0}}, {"mode", std::string(mode)}, {"value", 1.5}, {"value_code", std::int64_t{77}}},
            {2, 9, 4, 5}, {3, 12, 7, 8}, type, variant);
        if (std::string(mode) == "reflect") {
          s = Scene(seed);
          set_move(s, ir::Op::pad, {{"pads", Ints{0, 0, 2, 3, 0, 0, 1, 4}}, {"mode", std::string(mode)}}, {2, 9, 4, 5},
                   {2, 9, 7, 12}, type, variant);
        }
        EXPECT_SAME(s, "cpu.move.pad");
      }
    }
  }
}

TEST(Move, ResizeByWholeFactorsCopiesEqualPixels) {
  std::uint32_t seed = 700;
  for (const DType type : {DType::u8, DType::f32}) {
    for (int variant = 0; variant < 4; ++variant) {
      for (const std::int64_t down : {1, 2, 3}) {
        for (const std::int64_t across : {1, 2, 4, 8}) {
          for (const std::int64_t c : {1, 20, 40}) {
            Ints rows, cols;
            for (std::int64_t i = 0; i < 5 * down; ++i) rows.push_back(i / down);
            for (std::int64_t i = 0; i < 9 * across; ++i) cols.push_back(i / across);
            Scene s(seed++);
            set_move(s, ir::Op::resize_nearest, {{"index2", rows}, {"index3", cols}}, {2, c, 5, 9}, {2, c, 5 * down, 9 * across},
                     type, variant);
            EXPECT_SAME(s, "cpu.move.resize_nearest");
          }
        }
      }
    }
  }
}

TEST(Move, TransposesInAnyOrder) {
  std::uint32_t seed = 900;
  for (const Ints& perm : {Ints{0, 2, 3, 1}, Ints{0, 3, 1, 2}, Ints{3, 1, 0, 2}, Ints{1, 0, 2, 3}}) {
    for (const DType type : {DType::u8, DType::f32}) {
      for (int variant = 0; variant < 4; ++variant) {
        const ir::Shape x{2, 5, 3, 4};
        ir::Shape y;
        for (const std::int64_t d : perm) y.push_back(x[static_cast<std::size_t>(d)]);
        Scene s(seed++);
        set_move(s, ir::Op::transpose, {{"perm", perm}}, x, y, type, variant);
        EXPECT_SAME(s, "cpu.move.transpose");
      }
    }
  }
}

TEST(Move, ResizeTileSliceBlocks) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::u8, DType::f32}) {
    for (int variant = 0; variant < 4; ++variant) {
      {
        Scene s(seed++);
        set_move(s, ir::Op::resize_nearest, {{"index2", Ints{0, 0, 1, 2, 2}}, {"index3", Ints{0, 0, 0, 1, 1, 2, 3}}}, {1, 20, 3, 4},
                 {1, 20, 5, 7}, type, variant);
        EXPECT_SAME(s, "cpu.move.resize_nearest");
      }
      {
        Scene s(seed++);
        set_move(s, ir::Op::tile, {{"repeats", Ints{1, 2, 3, 1}}}, {2, 5, 3, 4}, {2, 10, 9, 4}, type, variant);
        EXPECT_SAME(s, "cpu.move.tile");
      }
      {
        Scene s(seed++);
        set_move(s, ir::Op::slice, {{"starts", Ints{0, 8, 1, 6}}, {"ends", Ints{1, -1, 5, 0}}, {"steps", Ints{1, -2, 1, -3}}},
                 {1, 9, 6, 8}, {1, 5, 4, 2}, type, variant);
        EXPECT_SAME(s, "cpu.move.slice");
      }
      for (const char* mode : {"DCR", "CRD"}) {
        Scene s(seed++);
        set_move(s, ir::Op::depth_to_space, {{"blocksize", std::int64_t{2}}, {"mode", std::string(mode)}}, {2, 12, 3, 5},
                 {2, 3, 6, 10}, type, variant);
        EXPECT_SAME(s, "cpu.move.depth_to_space");
      }
      {
        Scene s(seed++);
        set_move(s, ir::Op::space_to_depth, {{"blocksize", std::int64_t{3}}}, {1, 4, 6, 9}, {1, 36, 2, 3}, type, variant);
        EXPECT_SAME(s, "cpu.move.space_to_depth");
      }
    }
  }
}

TEST(Move, GatherReadsItsIndicesAtRunTime) {
  std::uint32_t seed = 1;
  for (const int axis : {0, 1, 2, 3}) {
    for (int variant = 0; variant < 4; ++variant) {
      Scene s(seed++);
      const ir::Shape x{3, 8, 4, 5};
      ir::Shape y = x;
      y[static_cast<std::size_t>(axis)] = 6;
      set_move(s, ir::Op::gather, {{"axis", std::int64_t{axis}}}, x, y, variant == 0 ? DType::u8 : DType::f32, variant);
      s.stage().anchor.inputs.push_back(s.tensor(DType::s64, {6}, BufferKind::constant));
      auto& bytes = s.memory[static_cast<std::size_t>(s.stage().anchor.inputs[1].buffer)];
      for (int i = 0; i < 6; ++i) {
        const auto extent = static_cast<int>(x[static_cast<std::size_t>(axis)]);
        const std::int64_t v = s.pick(-extent, extent - 1);
        std::memcpy(bytes.data() + 64 + 8 * i, &v, 8);
      }
      EXPECT_SAME(s, "cpu.move.gather");
    }
  }
}

TEST(Move, AllExtentsOne) {
  Scene s(1);
  set_move(s, ir::Op::tile, {{"repeats", Ints{1, 1}}}, {1, 1}, {1, 1}, DType::f32, 1);
  EXPECT_SAME(s, "cpu.move.tile");
}

// ---- depthwise
// ------------------------------------------------------------------------------------------------------------------------
class Depthwise : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Depthwise, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(Depthwise, ShapesAndBorders) {
  struct Case {
    std::int64_t c, h, w;
    Ints kernel, strides, pads, dilations;
    bool transposed = false;
  };
  std::vector<Case> cases;
  for (const std::int64_t c : {2, 7, 8, 15, 16, 17, 32, 63, 64, 96, 130, 300})
    cases.push_back({c, 6, 7, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}});
  cases.push_back({24, 9, 11, {3, 3}, {2, 2}, {0, 0, 1, 1}, {1, 1}});
  cases.push_back({24, 9, 11, {5, 5}, {1, 2}, {2, 2, 2, 2}, {1, 1}});
  cases.push_back({24, 7, 7, {7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}});
  cases.push_back({24, 3, 2, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}});
  cases.push_back({24, 9, 9, {3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}});
  for (const std::int64_t c : {2, 15, 16, 17, 64, 65, 300}) cases.push_back({c, 5, 6, {1, 3}, {1, 2}, {0, 1, 0, 1}, {1, 1}, true});
  cases.push_back({24, 5, 6, {3, 3}, {2, 2}, {0, 0, 0, 0}, {1, 1}, true});
  cases.push_back({24, 5, 6, {4, 5}, {3, 2}, {1, 2, 1, 2}, {1, 1}, true});
  cases.push_back({24, 4, 4, {2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}, true});  // outputs without a tap
  cases.push_back({24, 1, 1, {3, 3}, {4, 4}, {0, 0, 0, 0}, {1, 1}, true});  // fewer outputs than phases
  cases.push_back({24, 5, 6, {3, 2}, {1, 2}, {1, 1, 1, 0}, {2, 2}, true});
  std::uint32_t seed = 1;
  for (const Case& c : cases) {
    for (const int gap : {0, 3, 1}) {
      const bool integer = gap != 1;
      Scene s(seed++);
      auto& st = s.stage();
      const auto out = [&](std::size_t d, std::int64_t in) {
        if (c.transposed) return (in - 1) * c.strides[d] + (c.kernel[d] - 1) * c.dilations[d] + 1 - c.pads[d] - c.pads[d + 2];
        return (in + c.pads[d] + c.pads[d + 2] - (c.kernel[d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1;
      };
      st.space = {2, c.c, out(0, c.h), out(1, c.w)};
      auto& a = st.anchor;
      a.op = c.transposed ? ir::Op::conv_transpose : ir::Op::conv;
      const std::string family = c.transposed ? "cpu.depthwise_transpose." : "cpu.depthwise.";
      a.integer = integer;
      a.facts = testing::facts(a.op, {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.c}});
      a.inputs = {s.nhwc(integer ? DType::u8 : DType::f32, {2, c.c, c.h, c.w}, BufferKind::input, gap)};
      if (!integer) {
        a.weights = s.tensor(DType::f32, {c.c, 1, c.kernel[0], c.kernel[1]}, BufferKind::constant);
        st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
        st.stores = {s.nhwc(DType::f32, st.space, BufferKind::arena, gap)};
        const std::string tactic = family + "f32.block." + GetParam();
        const std::string difference = s.compare(cpu::cpu_provider(), tactic, 1e-5F);
        if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;
        EXPECT_EQ(difference, "");
        continue;
      }
      a.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, s.pick(0, 255));
      a.weights = s.tensor(DType::s8, {c.c, 1, c.kernel[0], c.kernel[1]}, BufferKind::constant);
      if (gap != 0) {
        for (std::int64_t k = 0; k < c.c; ++k) a.weight_zero.push_back(s.pick(-128, 127));
      }
      s.requantize(1, 0.002F);
      st.stores = {s.nhwc(DType::u8, st.space, BufferKind::arena, gap)};
      EXPECT_SAME(s, family + "u8s8.block." + GetParam());
    }
  }
}

// ---- operators against the reference evaluator
// ------------------------------------------------------------------------------------ Runs both providers on the same memory.
std::string against_reference(Scene& s, const std::string& tactic, float tolerance = 0) {
  const auto run = [&](const region::Provider& provider, const std::string& name,
                       std::vector<std::vector<std::byte>>& bytes) -> std::string {
    region::Region r = s.region();
    for (const auto& o : provider.offers(r, s.plan())) {
      region::Tactic wanted = *region::parse_tactic(name);
      wanted.version = o.tactic.version;  // names here are without one
      if (!region::selects(wanted, o.tactic)) continue;
      r.tactic = o.tactic;
      if (!o.refusal.empty()) return (cpu::lacks_capability(o.refusal) ? "skip: " : "refused: ") + cpu::in_words(o.refusal);
    }
    if (r.tactic.none()) return "no tactic " + name;
    auto kernel = region::as_host_kernel(provider.load(r, s.plan(), {}));
    if (!kernel) return kernel.error().message;
    region::Memory m;
    for (auto& b : bytes) m.base.push_back(b.data() + 64);
    std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 64);
    auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
    for (int t = (*kernel)->tasks(); t-- > 0;) (*kernel)->run(m, t, t + 1, region::Worker{0, 1, base});
    return "";
  };
  auto expected = s.memory, actual = s.memory;
  if (auto e = run(reference::oracle_provider(), "reference.region", expected); !e.empty()) return e;
  if (auto e = run(cpu::cpu_provider(), tactic, actual); !e.empty()) return e;
  for (std::size_t b = 0; b < actual.size(); ++b) {
    for (std::size_t i = 0; i < actual[b].size(); ++i) {
      if (actual[b][i] == expected[b][i]) continue;
      if (tolerance > 0 && static_cast<int>(b) == s.stage().stores[0].buffer) {
        float e, a;
        std::memcpy(&e, expected[b].data() + i / 4 * 4, 4);
        std::memcpy(&a, actual[b].data() + i / 4 * 4, 4);
        if (std::abs(e - a) <= tolerance * (1 + std::abs(e))) continue;
      }
      return tactic + ": buffer " + std::to_string(b) + " byte " + std::to_string(i) + ", seed " + std::to_string(s.seed());
    }
  }
  return expected == s.memory ? "nothing was written" : "";
}
#define EXPECT_REFERENCE(scene, tactic)                                 \
  do {                                                                  \
    const std::string difference = against_reference(scene, tactic);    \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference; \
    EXPECT_EQ(difference, "");                                          \
  } while (false)

void float_anchor(Scene& s, ir::Op op, ir::Attrs attrs, region::TensorRef x, const ir::Shape& y) {
  auto& st = s.stage();
  st.space = y;
  st.anchor.op = op;
  st.anchor.facts = testing::facts(st.anchor.op, attrs, x.dims.size());
  st.anchor.inputs.push_back(std::move(x));
  auto& p = st.program;
  p.outputs = {{p.push(Op::mul, p.push(Op::acc_f), p.imm_f(3)), DType::f32}};
  st.stores = {s.tensor(DType::f32, y, BufferKind::output)};
}

class Softmax : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Softmax, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(Softmax, EveryAxisAndLength) {
  std::uint32_t seed = 1;
  for (const ir::Op op : {ir::Op::softmax, ir::Op::log_softmax}) {
    for (const ir::Shape& dims :
         {ir::Shape{3, 1000}, {2, 16, 4, 21}, {1, 1, 1, 1}, {7}, {5, 257}, {300, 3}, {20, 300}, {9, 1030}}) {
      for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(dims.size()); ++axis) {
        Scene s(seed++);
        const auto x =
            dims.size() == 4 && axis == 1 ? s.nhwc(DType::f32, dims) : s.tensor(DType::f32, dims, BufferKind::input, {}, 0, 20.0F);
        float_anchor(s, op, {{"axis", axis}}, x, dims);
        if (seed % 2 == 0) {  // stored as computed
          s.stage().program = {};
          s.stage().program.outputs = {{s.stage().program.push(Op::acc_f), DType::f32}};
        }
        EXPECT_REFERENCE(s, std::string("cpu.") + std::string(ir::name_of(op)) + ".block." + GetParam());
      }
    }
  }
}

TEST_P(Softmax, ResizeLinear) {
  std::uint32_t seed = 1;
  for (const char* mode :
       {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn"}) {
    for (const std::int64_t c : {1, 3, 15, 16, 17, 65, 300, 1040}) {
      for (const ir::Shape& to : {ir::Shape{8, 10}, {4, 13}, {2, 5}, {1, 1}, {9, 3}}) {
        Scene s(seed++);
        const ir::Shape x{2, c, 4, 5}, y{2, c, to[0], to[1]};
        const std::vector<double> scales{1, 1, static_cast<double>(to[0]) / 4, static_cast<double>(to[1]) / 5};
        float_anchor(s, ir::Op::resize_linear, {{"scales", scales}, {"coordinate_mode", std::string(mode)}}, s.nhwc(DType::f32, x),
                     y);
        EXPECT_REFERENCE(s, std::string("cpu.resize_linear.block.") + GetParam());
      }
    }
  }
}

TEST(ByReference, FloatOperators) {
  Scene a(1);
  float_anchor(a, ir::Op::instance_norm, {{"epsilon", 1e-5}}, a.nhwc(DType::f32, {2, 6, 5, 4}), {2, 6, 5, 4});
  a.stage().anchor.inputs.push_back(a.tensor(DType::f32, {6}, BufferKind::constant));
  a.stage().anchor.inputs.push_back(a.tensor(DType::f32, {6}, BufferKind::constant));
  EXPECT_REFERENCE(a, "cpu.reference.instance_norm");
  Scene b(2);
  float_anchor(b, ir::Op::matmul, {}, b.tensor(DType::f32, {2, 5, 7}), {2, 5, 3});
  b.stage().anchor.inputs.push_back(b.tensor(DType::f32, {2, 7, 3}));
  EXPECT_REFERENCE(b, "cpu.reference.matmul");
  Scene c(3);
  float_anchor(c, ir::Op::resize_linear,
               {{"scales", std::vector<double>{1, 1, 2, 2}}, {"coordinate_mode", std::string("half_pixel")}},
               c.nhwc(DType::f32, {1, 3, 4, 5}), {1, 3, 8, 10});
  EXPECT_REFERENCE(c, "cpu.reference.resize_linear");
}

TEST(OneDnn, Matmul) {
  std::uint32_t seed = 1;
  for (const std::int64_t m : {1, 5, 64, 130}) {
    for (const std::int64_t n : {1, 7, 300}) {
      for (const int kind : {0, 1, 2}) {
        Scene s(seed++);
        auto& st = s.stage();
        const std::int64_t k = 19;
        st.anchor.op = ir::Op::matmul;
        st.space = {3, 2, m, n};
        // Batches: equal, one matrix broadcast over both, the right one transposed in memory.
        st.anchor.inputs = {s.tensor(DType::f32, {3, 2, m, k})};
        st.anchor.inputs.push_back(kind == 0   ? s.tensor(DType::f32, {3, 2, k, n})
                                   : kind == 1 ? s.tensor(DType::f32, {k, n})
                                               : s.tensor(DType::f32, {3, 1, k, n}, BufferKind::arena, {0, 1, 3, 2}));
        st.program.outputs = {{st.program.push(Op::mul, st.program.push(Op::acc_f), st.program.imm_f(2)), DType::f32}};
        st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
        const std::string difference = against_reference(s, "cpu.matmul.f32.onednn", 1e-5F);
        if (difference.find("no tactic") != std::string::npos) GTEST_SKIP() << "this build has no oneDNN";
        if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;
        EXPECT_EQ(difference, "");
      }
    }
  }
}

TEST(ByReference, TypedResults) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {3, 1};
  st.anchor.op = ir::Op::arg_max;
  st.anchor.facts = testing::facts(st.anchor.op, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{1}}});
  st.anchor.inputs = {s.tensor(DType::f32, {3, 50}, BufferKind::input)};
  st.stores = {s.tensor(DType::s64, {3, 1}, BufferKind::output)};
  EXPECT_REFERENCE(s, "cpu.reference.arg_max");
}

TEST(IsaCap, UnknownNameIsAnError) {
  setenv("OCTAVO_CPU", "avx1024", 1);
  const auto cap = cpu::isa_cap();
  unsetenv("OCTAVO_CPU");
  ASSERT_FALSE(cap);
  EXPECT_EQ(cap.error().kind, ErrorKind::usage);
  EXPECT_NE(cap.error().message.find("OCTAVO_CPU is \"avx1024\", which is not one of portable, avx2, avx512, avx512vnni, amx"),
            std::string::npos)
      << cap.error().message;
}

TEST(IsaCap, RefusesWithTheReason) {
  Scene s(1);
  s.stage().space = {4};
  s.stage().operands = {{s.tensor(DType::f32, {4}), {}}};
  s.stage().program.operand_count = 1;
  s.stage().program.outputs = {{s.stage().program.push(Op::sqrt, s.stage().program.load(Op::load_f, 0)), DType::f32}};
  s.stage().stores = {s.tensor(DType::f32, {4})};
  setenv("OCTAVO_CPU", "portable", 1);
  const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
  s.region().tactic = *region::parse_tactic("cpu.pointwise.block.avx2");
  const auto kernel = cpu::cpu_provider().load(s.region(), s.plan(), {});
  unsetenv("OCTAVO_CPU");
  for (const auto& o : offers)
    EXPECT_EQ(o.refusal.empty(), o.tactic.name() == "cpu.pointwise.block.portable")
        << o.tactic.name() << ": " << cpu::in_words(o.refusal);
  EXPECT_FALSE(kernel);
}

}  // namespace
}  // namespace octavo::testing
