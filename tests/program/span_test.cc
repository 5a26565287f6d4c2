// Spans: every definition against the primitives that it stands for, what is found and what is not, and that a wrong span is an error.
#include "program/span.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "ir/quantizer.h"
#include "program/math.h"
#include "program/random_program.h"

namespace octavo::program {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Function kFunctions[] = {Function::sigmoid,   Function::silu,        Function::tanh, Function::erf,      Function::gelu,
                                   Function::gelu_tanh, Function::gelu_of_erf, Function::mish, Function::softplus, Function::elu};

std::vector<FunctionSpan> all_functions() {
  std::vector<FunctionSpan> all;
  for (const Function f : kFunctions) {
    for (std::uint8_t form = 0; form < (f == Function::gelu_of_erf ? 6 : 1); ++form) all.push_back({f, -1, -1, form});
  }
  return all;
}

/// A program of one operand that computes `s` of it; marked.
Program written(const Span& s) {
  Program p;
  const bool of_code = std::holds_alternative<DequantizeSpan>(s);
  const int x = p.load(of_code ? Op::load_i : Op::load_f, 0);
  const int y = expand(p, s, x);
  p.outputs = {{y, std::holds_alternative<RequantizeSpan>(s) ? ir::DType::s32 : ir::DType::f32}};
  mark(p);
  return p;
}

Scalar run(const Program& p, Scalar x, std::vector<Scalar>& scratch) {
  std::array<Scalar, 1> in{x}, out{};
  interpret(p, {}, in, out, scratch);
  return out[0];
}

/// The one span of p that ends where its output does.
const Span* found_at_the_end(const Program& p) {
  for (const Span& s : p.spans) {
    if (last_of(s) == p.outputs[0].value) return &s;
  }
  return nullptr;
}

/// All floats whose lower 16 bits are 0, the corners of the format, and a quarter of a million random ones around 0.
std::vector<float> interesting_floats(std::uint32_t seed) {
  std::vector<float> all;
  for (std::uint32_t high = 0; high < 65536; ++high) all.push_back(std::bit_cast<float>(high << 16));
  for (const std::uint32_t bits : {1U, 0x007fffffU, 0x00800000U, 0x7f7fffffU, 0x7fc00001U, 0x3effffffU, 0x3f000001U})
    all.push_back(std::bit_cast<float>(bits)), all.push_back(std::bit_cast<float>(bits | 0x80000000U));
  std::mt19937 rng(seed);
  for (int k = 0; k < 250000; ++k) {
    const float v = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-31F;
    all.push_back(v * std::exp2(static_cast<float>(k % 16) - 8));
  }
  return all;
}

TEST(Spans, DefinitionsOfFunctionsGiveTheBitsOfTheirPrimitives) {
  constexpr std::uint32_t kSeed = 5;
  const std::vector<float> xs = interesting_floats(kSeed);
  for (const FunctionSpan& s : all_functions()) {
    const Program p = written(s);
    const auto name = std::string(name_of(s.function)) + ", form " + std::to_string(s.form);
    ASSERT_TRUE(verify(p)) << name;
    const Span* found = found_at_the_end(p);
    ASSERT_NE(found, nullptr) << name;
    const auto& of = std::get<FunctionSpan>(*found);
    ASSERT_EQ(of, (FunctionSpan{s.function, 0, p.outputs[0].value, s.form})) << name;
    std::vector<Scalar> scratch;
    for (const float x : xs) {
      Scalar in{};
      in.f = x;
      const Scalar want = evaluate(*found, in), got = run(p, in, scratch);
      if (std::isnan(want.f) && std::isnan(got.f)) continue;
      ASSERT_EQ(want.i, got.i) << name << " of " << x << ", seed " << kSeed;
    }
  }
}

/// quantize as lowering writes it.
RequantizeSpan quantizer(float scale, std::int32_t zero, bool is_signed, bool guards_nan) {
  const std::int32_t lo = is_signed ? -128 : 0;
  RequantizeSpan s;
  s.steps.push_back({Op::div, scale});
  if (guards_nan) s.steps.push_back({Op::nan0});
  s.steps.push_back({Op::max, static_cast<float>(lo - zero)});
  s.steps.push_back({Op::min, static_cast<float>(lo + 255 - zero)});
  s.zero = zero;
  return s;
}

TEST(Spans, RequantizationIsTheQuantizerOfTheReference) {
  std::vector<Scalar> scratch;
  std::int64_t tried = 0;
  for (const bool is_signed : {false, true}) {
    for (const std::int32_t from_lo : {0, 1, 100, 128, 254, 255}) {
      for (const float scale : {0.02F, 1.0F / 3, 1.0F, 7.5F, 1e-6F, 0.00392156886F}) {
        const std::int32_t lo = is_signed ? -128 : 0, zero = lo + from_lo;
        const Program p = written(quantizer(scale, zero, is_signed, true));
        ASSERT_TRUE(verify(p));
        const Span* found = found_at_the_end(p);
        ASSERT_NE(found, nullptr);
        ASSERT_EQ(std::get<RequantizeSpan>(*found).zero, zero);
        const auto check = [&](float x) {
          Scalar in{};
          in.f = x;
          const std::int32_t want = ir::quantize_one(x, scale, zero, lo, lo + 255, ir::DType::f32);
          ASSERT_EQ(run(p, in, scratch).i, want) << x << " by " << scale << ", zero point " << zero;
          ASSERT_EQ(evaluate(*found, in).i, want) << x << " by " << scale << ", zero point " << zero;
          ++tried;
        };
        for (std::int32_t code = lo - 3; code <= lo + 258; ++code) {  // every code, and the places where codes change
          check(ir::dequantize_one(code, scale, zero, ir::DType::f32));
          const float middle = (static_cast<float>(code - zero) - 0.5F) * scale;
          for (std::int32_t step = -3; step <= 3; ++step)
            check(middle == 0 ? 0 : std::bit_cast<float>(std::bit_cast<std::int32_t>(middle) + step));
        }
        for (const float x : {kInf, -kInf, NAN, 0.0F, -0.0F, 3e38F, -3e38F}) check(x);
      }
    }
  }
  EXPECT_GT(tried, 100000);
}

// Activations in front of the division, and bounds that a NaN passes because they stand first.
TEST(Spans, RequantizationBehindActivations) {
  const Step relu{Op::max, 0, true}, six{Op::min, 6, true}, leaky{Op::sel_lt, 0.1F}, div{Op::div, 0.05F}, lo{Op::max, -100},
      hi{Op::min, 155}, nan0{Op::nan0};
  constexpr std::uint32_t kSeed = 6;
  const std::vector<float> xs = interesting_floats(kSeed);
  for (const std::vector<Step>& steps : std::vector<std::vector<Step>>{{relu, div, nan0, lo, hi},
                                                                       {relu, six, div, nan0, lo, hi},
                                                                       {leaky, div, lo, hi},
                                                                       {div, leaky, nan0, lo, hi},
                                                                       {div, div, lo, hi},
                                                                       {lo, hi},
                                                                       {}}) {
    RequantizeSpan s;
    s.steps = steps, s.zero = 100;
    const Program p = written(s);
    ASSERT_TRUE(verify(p)) << print(p);
    const Span* found = found_at_the_end(p);
    ASSERT_NE(found, nullptr) << print(p);
    const auto& of = std::get<RequantizeSpan>(*found);
    EXPECT_EQ(of.x, 0);
    ASSERT_EQ(of.steps.size(), steps.size()) << print(p);
    std::vector<Scalar> scratch;
    for (std::size_t k = 0; k < xs.size(); k += 7) {
      Scalar in{};
      in.f = xs[k];
      ASSERT_EQ(evaluate(*found, in).i, run(p, in, scratch).i) << xs[k] << ", seed " << kSeed << "\n" << print(p);
    }
  }
}

TEST(Spans, DequantizationOfEveryCode) {
  std::vector<Scalar> scratch;
  for (std::int32_t zero = -128; zero <= 255; ++zero) {
    for (const float scale : {0.02F, 1.0F / 3, 7.5F, 1e-30F}) {
      const Program p = written(DequantizeSpan{-1, -1, -1, scale, zero});
      ASSERT_TRUE(verify(p));
      const Span* found = found_at_the_end(p);
      ASSERT_NE(found, nullptr);
      for (std::int32_t code = -128; code <= 255; ++code) {
        Scalar in{};
        in.i = code;
        const auto want = std::bit_cast<std::int32_t>(ir::dequantize_one(code, scale, zero, ir::DType::f32));
        ASSERT_EQ(run(p, in, scratch).i, want) << code;
        ASSERT_EQ(evaluate(*found, in).i, want) << code;
      }
    }
  }
}

/// A SiLU between two quantizers of one operand's codes, and a leaky relu of the same float.
Program pipeline() {
  Program p;
  const int code = p.load(Op::load_i, 0), x = expand(p, DequantizeSpan{-1, -1, -1, 0.1F, 128}, code);
  const int y = expand(p, FunctionSpan{Function::silu}, p.push(Op::add, x, p.load(Op::load_f, 1)));
  RequantizeSpan leaky = quantizer(0.07F, 3, false, true);
  leaky.steps.insert(leaky.steps.begin(), {Op::sel_lt, 0.2F});
  p.outputs = {{expand(p, quantizer(0.04F, 10, false, false), y), ir::DType::u8}, {expand(p, leaky, y), ir::DType::u8}};
  mark(p);
  return p;
}

TEST(Spans, AreKeptBySimplifyAndByText) {
  const auto kinds = [](const Program& p) {
    std::array<int, 3> count{};
    for (const Span& s : p.spans) ++count[s.index()];
    return count;
  };
  const Program p = pipeline();
  EXPECT_EQ(kinds(p), (std::array{2, 2, 1})) << "a SiLU and the sigmoid in it, two quantizers, one code that becomes a float";
  const Program q = simplify(p, {true, false});
  EXPECT_EQ(kinds(q), kinds(p)) << print(q);
  for (unsigned seed = 0; seed < 200; ++seed) {
    Program r = random_program(seed);
    const int float_value = r.outputs[1].value;
    r.outputs.push_back(
        {expand(r, quantizer(0.5F, 4, false, true), expand(r, FunctionSpan{kFunctions[seed % 10]}, float_value)), ir::DType::s32});
    const Program s = simplify(r, {});
    ASSERT_TRUE(verify(s)) << "seed " << seed << ": " << verify(s).error().message;
    Program again = s;
    mark(again);
    ASSERT_EQ(again.spans, s.spans) << "seed " << seed;
    const auto back = parse(print(s));
    ASSERT_TRUE(back) << "seed " << seed;
    ASSERT_EQ(back->spans, s.spans) << "seed " << seed;
  }
}

TEST(Spans, OperandsThatCommuteMayChangePlaces) {
  for (const FunctionSpan& s : all_functions()) {
    Program p = written(s);
    const std::size_t spans = p.spans.size();
    for (Instr& i : p.code) {
      if (commutes(i.op)) std::swap(i.args[0], i.args[1]);
    }
    mark(p);
    EXPECT_EQ(p.spans.size(), spans) << name_of(s.function);
    EXPECT_TRUE(verify(p)) << name_of(s.function);
  }
}

TEST(Spans, OtherConstantsAndOperationsAreNotTheFunction) {
  for (const FunctionSpan& s : all_functions()) {
    const Program p = written(s);
    const Span whole = *found_at_the_end(p);
    for (std::size_t k = 0; k < p.code.size(); ++k) {
      Program q = p;
      Instr& i = q.code[k];
      if (has_immediate(i.op) && i.op != Op::load_f)
        i.imm ^= i.op == Op::shl_i || i.op == Op::sra_i ? 1 : 4;
      else if (i.op == Op::mul)
        i.op = Op::add;
      else if (i.op == Op::add)
        i.op = Op::mul;
      else if (i.op == Op::min || i.op == Op::max)
        std::swap(i.args[0], i.args[1]);
      else
        continue;
      EXPECT_FALSE(holds(q, whole)) << name_of(s.function) << ", v" << k << "\n" << print(q);
      EXPECT_FALSE(verify(q)) << name_of(s.function) << ", v" << k;
      mark(q);
      EXPECT_TRUE(verify(q)) << name_of(s.function) << ", v" << k;
      const Span* found = found_at_the_end(q);
      EXPECT_TRUE(found == nullptr || *found != whole) << name_of(s.function) << ", v" << k;
    }
  }
}

TEST(Spans, AWrongSpanIsAnError) {
  const Program p = simplify(pipeline(), {true, false});
  ASSERT_TRUE(verify(p));
  int wrong = 0;
  const auto refused = [&](std::size_t k, const Span& s, const char* what) {
    Program q = p;
    q.spans[k] = s;
    const auto ok = verify(q);
    ASSERT_FALSE(ok) << what << "\n" << print(q);
    EXPECT_NE(ok.error().message.find("is not what the code computes"), std::string::npos) << ok.error().message;
    ++wrong;
  };
  const int size = static_cast<int>(p.code.size());
  for (std::size_t k = 0; k < p.spans.size(); ++k) {
    for (int v = -2; v <= size; ++v) {  // every other value in each place
      std::visit(
          [&](const auto& of) {
            using T = std::decay_t<decltype(of)>;
            const auto with = [&](int T::*field) {
              if (of.*field == v) return;
              T changed = of;
              changed.*field = v;
              refused(k, changed, "another value");
            };
            with(&T::result);
            if constexpr (!std::is_same_v<T, DequantizeSpan>) with(&T::x);
            if constexpr (std::is_same_v<T, DequantizeSpan>) with(&T::code), with(&T::shifted);
            if constexpr (std::is_same_v<T, RequantizeSpan>) with(&T::rounded);
          },
          p.spans[k]);
    }
    if (const auto* f = std::get_if<FunctionSpan>(&p.spans[k])) {
      for (int n = 0; n < 256; ++n) {
        if (static_cast<Function>(n) != f->function)
          refused(k, FunctionSpan{static_cast<Function>(n), f->x, f->result, 0}, "another function");
      }
      refused(k, FunctionSpan{f->function, f->x, f->result, 1}, "another form");
    } else if (const auto* r = std::get_if<RequantizeSpan>(&p.spans[k])) {
      RequantizeSpan s = *r;
      s.zero += 1;
      refused(k, s, "another zero point");
      for (std::size_t n = 0; n < r->steps.size(); ++n) {
        s = *r;
        s.steps.erase(s.steps.begin() + static_cast<std::ptrdiff_t>(n));
        refused(k, s, "a step less");
        s = *r;
        s.steps[n].constant += 0.25F;
        if (s.steps[n].op != Op::nan0) refused(k, s, "another constant");
        s = *r;
        s.steps[n].constant_first = true;
        refused(k, s, "the constant first");
        s = *r;
        s.steps[n].op = s.steps[n].op == Op::max ? Op::min : Op::max;
        refused(k, s, "another step");
        s = *r;
        s.steps[n].from -= 1;
        refused(k, s, "a step of another value");
      }
    } else {
      auto s = std::get<DequantizeSpan>(p.spans[k]);
      s.zero += 1;
      refused(k, s, "another zero point");
      s = std::get<DequantizeSpan>(p.spans[k]);
      s.scale *= 2;
      refused(k, s, "another scale");
    }
  }
  EXPECT_GT(wrong, 500);
}

TEST(Spans, AFileCannotBringThem) {
  const Program p = simplify(pipeline(), {true, false});
  ASSERT_TRUE(parse(print(p)));
  EXPECT_EQ(print(p).find("span"), std::string::npos);
  for (const char* more : {"; span0 sigmoid v0 v1", "; span v0 v1"}) EXPECT_FALSE(parse(print(p) + more)) << more;
}

// What a file says may be long: finding spans takes time in proportion.
TEST(Spans, LongProgramsAreMarkedInTime) {
  Program p;
  int v = p.push(Op::acc_f);
  for (int k = 0; k < 30000; ++k) v = p.push(Op::nan0, v);
  for (int k = 0; k < 30000; ++k) p.push(Op::f2i, v);
  mark(p);
  EXPECT_EQ(p.spans.size(), 30000U);
  EXPECT_EQ(std::get<RequantizeSpan>(p.spans[0]).steps.size(), 32U);
  EXPECT_TRUE(verify(p));
}

}  // namespace
}  // namespace octavo::program
