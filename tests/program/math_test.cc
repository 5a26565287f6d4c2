// The named functions: accuracy against double precision, saturation at the extremes, and the same bits as floats and as programs.
#include "program/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace octavo::program {
namespace {

constexpr unsigned kSeed = 20;
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  ir::Op op;
  ir::Facts facts;
  std::function<double(double)> exact;
  float lo, hi;       ///< accuracy is measured for lo <= x <= hi
  double ulps;        ///< bound on the error, in units of the last place of the exact result...
  double floor_ulps;  ///< ...plus this many units of 2^-24 in absolute terms (functions with cancellation by their definition)
};

double sigmoid64(double x) {
  return 1 / (1 + std::exp(-x));
}
double softplus64(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}
double gelu_tanh64(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
double clamp01(double x) {
  return std::min(std::max(x, 0.0), 1.0);
}

const std::vector<Case>& cases() {
  static const auto* all = new std::vector<Case>{
      {ir::Op::relu, {}, [](double x) { return std::max(x, 0.0); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::clip, ir::Clip{-1.5, 6.0}, [](double x) { return std::min(std::max(x, -1.5), 6.0); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::clip, ir::Clip{}, [](double x) { return x; }, -1e30F, 1e30F, 0, 0},
      {ir::Op::leaky_relu, ir::Slope{0.125}, [](double x) { return x < 0 ? 0.125 * x : x; }, -1e30F, 1e30F, 0, 0},
      {ir::Op::elu, ir::Slope{1.5}, [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }, -80, 80, 3, 0},
      {ir::Op::selu, ir::Selu{},
       [](double x) { return 1.05070102214813232421875 * (x > 0 ? x : 1.67326319217681884765625 * std::expm1(x)); }, -80, 80, 4, 0},
      {ir::Op::sigmoid, {}, sigmoid64, -87, 87, 3, 0},
      {ir::Op::hard_sigmoid, ir::HardSigmoid{0.25, 0.5}, [](double x) { return clamp01(0.25 * x + 0.5); }, -10, 10, 0.5, 0},
      {ir::Op::hard_swish, {}, [](double x) { return x * clamp01(x / 6 + 0.5); }, -10, 10, 2, 8},
      {ir::Op::tanh, {}, [](double x) { return std::tanh(x); }, -50, 50, 3, 0},
      {ir::Op::erf, {}, [](double x) { return std::erf(x); }, -50, 50, 5, 0},
      {ir::Op::gelu, ir::Gelu{}, [](double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440)); }, -10, 10, 3, 16},
      {ir::Op::gelu, ir::Gelu{ir::GeluForm::tanh}, gelu_tanh64, -10, 10, 4, 8},
      {ir::Op::mish, {}, [](double x) { return x * std::tanh(softplus64(x)); }, -80, 80, 5, 0},
      {ir::Op::softplus, {}, softplus64, -80, 80, 3, 0},
      {ir::Op::softsign, {}, [](double x) { return x / (1 + std::fabs(x)); }, -1e30F, 1e30F, 2, 0},
      {ir::Op::exp, {}, [](double x) { return std::exp(x); }, -103, 88.7F, 2, 0},
      {ir::Op::log, {}, [](double x) { return std::log(x); }, 1e-44F, 3e38F, 2, 0},
      {ir::Op::sqrt, {}, [](double x) { return std::sqrt(x); }, 0, 3e38F, 0.5, 0},
      {ir::Op::reciprocal, {}, [](double x) { return 1 / x; }, 1e-30F, 1e30F, 0.5, 0},
      {ir::Op::abs, {}, [](double x) { return std::fabs(x); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::neg, {}, [](double x) { return -x; }, -1e30F, 1e30F, 0, 0},
      {ir::Op::floor, {}, [](double x) { return std::floor(x); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::ceil, {}, [](double x) { return std::ceil(x); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::round, {}, [](double x) { return std::nearbyint(x); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::sign, {}, [](double x) { return static_cast<double>((x > 0) - (x < 0)); }, -1e30F, 1e30F, 0, 0},
      {ir::Op::sin, {}, [](double x) { return std::sin(x); }, -1e5F, 1e5F, 2, 0.01},
      {ir::Op::cos, {}, [](double x) { return std::cos(x); }, -1e5F, 1e5F, 2, 0.01},
  };
  return *all;
}

std::string name(const Case& c) {
  std::string text(ir::name_of(c.op));
  for (const auto& [key, value] : ir::attrs_of(c.facts))
    text += " " + key + (value.index() == 2 ? "=" + std::get<std::string>(value) : "");
  return text;
}

/// Half uniform in lo..hi, half with uniform exponents; then the edges.
std::vector<float> samples(float lo, float hi, int n, std::mt19937& rng) {
  std::vector<float> out;
  std::uniform_real_distribution<double> uniform(lo, hi), exponent(-40, std::log2(std::max(std::fabs(lo), std::fabs(hi))));
  while (static_cast<int>(out.size()) < n) {
    const auto u = static_cast<float>(uniform(rng));
    const auto e = static_cast<float>(std::exp2(exponent(rng)) * (rng() % 2 ? 1 : -1));
    for (const float v : {u, e}) {
      if (v >= lo && v <= hi) out.push_back(v);
    }
  }
  out.insert(out.end(), {lo, hi});
  return out;
}

TEST(Math, ErrorsAgainstDoubleStayWithinTheirBounds) {
  std::mt19937 rng(kSeed);
  FloatOps m;
  for (const Case& c : cases()) {
    double worst = 0;
    float worst_x = 0;
    for (const float x : samples(c.lo, c.hi, 200000, rng)) {
      const double exact = c.exact(x);
      const double y = unary(m, c.op, c.facts, x);
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact == 0 ? 1e-300 : exact), -126) - 23);
      const double slack = c.floor_ulps * std::ldexp(1.0, -24);
      const double error = std::max(0.0, std::fabs(y - exact) - slack) / ulp;
      if (!(error <= worst)) worst = error, worst_x = x;
    }
    EXPECT_LE(worst, c.ulps) << name(c) << " at x=" << worst_x << " (" << std::hexfloat << worst_x << "), seed " << kSeed;
    std::printf("  %-28s %.2f ulp over [%g, %g], allowance %g * 2^-24\n", name(c).c_str(), worst, static_cast<double>(c.lo),
                static_cast<double>(c.hi), c.floor_ulps);
  }
}

TEST(Math, ExtremesSaturate) {
  FloatOps m;
  const auto at = [&m](ir::Op op, float x) { return unary(m, op, ir::default_facts(op), x); };
  for (const float x : {-200.0F, -1e30F, -kInf}) {
    EXPECT_EQ(at(ir::Op::sigmoid, x), 0.0F) << x;
    EXPECT_EQ(at(ir::Op::tanh, x), -1.0F) << x;
    EXPECT_EQ(at(ir::Op::erf, x), -1.0F) << x;
    EXPECT_EQ(at(ir::Op::exp, x), 0.0F) << x;
    EXPECT_EQ(at(ir::Op::softplus, x), 0.0F) << x;
    EXPECT_EQ(at(ir::Op::elu, x), -1.0F) << x;
    EXPECT_EQ(at(ir::Op::relu, x), 0.0F) << x;
    EXPECT_EQ(at(ir::Op::hard_sigmoid, x), 0.0F) << x;
  }
  for (const float x : {200.0F, 1e30F, kInf}) {
    EXPECT_EQ(at(ir::Op::sigmoid, x), 1.0F) << x;
    EXPECT_EQ(at(ir::Op::tanh, x), 1.0F) << x;
    EXPECT_EQ(at(ir::Op::erf, x), 1.0F) << x;
    EXPECT_EQ(at(ir::Op::exp, x), kInf) << x;
    EXPECT_EQ(at(ir::Op::softplus, x), x) << x;
    EXPECT_EQ(at(ir::Op::mish, x), x) << x;
    EXPECT_EQ(at(ir::Op::gelu, x), x) << x;
    EXPECT_EQ(at(ir::Op::hard_swish, x), x) << x;
  }
  EXPECT_EQ(at(ir::Op::gelu, -1e30F), 0.0F);
  EXPECT_EQ(at(ir::Op::log, 0.0F), -kInf);
  EXPECT_EQ(at(ir::Op::log, kInf), kInf);
  EXPECT_TRUE(std::isnan(at(ir::Op::log, -1.0F)));
  for (const ir::Op op : {ir::Op::sigmoid, ir::Op::tanh, ir::Op::erf, ir::Op::exp, ir::Op::log, ir::Op::mish, ir::Op::softplus,
                          ir::Op::elu, ir::Op::gelu, ir::Op::sin, ir::Op::softsign, ir::Op::sign}) {
    EXPECT_TRUE(std::isnan(at(op, kNan))) << ir::name_of(op);
  }
  for (const ir::Op op : {ir::Op::relu, ir::Op::clip, ir::Op::hard_sigmoid, ir::Op::hard_swish, ir::Op::leaky_relu})
    EXPECT_TRUE(std::isnan(at(op, kNan))) << ir::name_of(op);
  for (const ir::Op op : {ir::Op::max, ir::Op::min}) {
    EXPECT_TRUE(std::isnan(binary(m, op, kNan, 1.0F))) << ir::name_of(op);
    EXPECT_TRUE(std::isnan(binary(m, op, 1.0F, kNan))) << ir::name_of(op);
  }
  EXPECT_TRUE(std::signbit(at(ir::Op::relu, -0.0F))) << "as in ONNX Runtime and PyTorch";
  EXPECT_EQ(std::signbit(at(ir::Op::abs, -0.0F)), false);
  EXPECT_EQ(std::signbit(at(ir::Op::neg, 0.0F)), true);
}

TEST(Math, SinAndCosStayBoundedOutOfRange) {
  FloatOps m;
  for (const float x : {1e6F, -3e7F, 1e20F, 3e38F}) {
    EXPECT_LE(std::fabs(unary(m, ir::Op::sin, {}, x)), 1.0F) << x;
    EXPECT_LE(std::fabs(unary(m, ir::Op::cos, {}, x)), 1.0F) << x;
  }
}

TEST(Math, PowSpecialAndGeneral) {
  FloatOps m;
  for (const float a : {-3.7F, 0.0F, 1.0F, 2.5F, 1e-3F, 700.0F}) {
    EXPECT_EQ(pow(m, a, 2.0F), a * a);
    EXPECT_EQ(pow(m, a, 3.0F), a * a * a);
    EXPECT_EQ(pow(m, a, 1.0F), a);
    EXPECT_EQ(pow(m, a, 0.0F), 1.0F);
    EXPECT_EQ(pow(m, a, -1.0F), 1.0F / a);
    if (a >= 0) {
      EXPECT_EQ(pow(m, a, 0.5F), std::sqrt(a));
    }
    for (const float b : {0.3F, 1.7F, -2.5F, 4.0F, 5.0F, -3.0F, 7.25F}) {
      const double exact = std::pow(static_cast<double>(a), static_cast<double>(b));
      const float y = pow(m, a, b);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(y)) << a << "^" << b;
      } else if (std::isinf(exact)) {
        EXPECT_EQ(y, static_cast<float>(exact)) << a << "^" << b;
      } else {
        const double relative = std::ldexp(1.0, -23) * (1 + std::fabs(static_cast<double>(b) * std::log(std::fabs(a) + 1e-300)));
        EXPECT_NEAR(y, exact, std::fabs(exact) * relative) << a << "^" << b;
      }
    }
  }
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::int32_t>(a) == std::bit_cast<std::int32_t>(b);
}

std::vector<float> any_floats(int n, std::mt19937& rng) {
  std::vector<float> out{0.0F,     -0.0F, 1.0F, -1.0F, kInf,  -kInf, kNan,   1e-45F, -1e-45F, 1.17549435e-38F, 3.4e38F,
                         -3.4e38F, 0.5F,  1.5F, 2.5F,  -2.5F, 88.0F, -88.0F, 88.8F,  89.0F,   -104.0F,         127.5F};
  std::normal_distribution<float> normal(0, 6);
  while (static_cast<int>(out.size()) < n) {
    out.push_back(normal(rng));
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
  }
  return out;
}

TEST(Math, FloatsAndProgramsGiveTheSameBits) {
  std::mt19937 rng(kSeed + 1);
  FloatOps m;
  std::int64_t compared = 0;
  for (const Case& c : cases()) {
    Program p;
    ProgramOps ops{p};
    const int x = p.push(Op::acc_f);
    p.outputs = {{unary(ops, c.op, c.facts, x), ir::DType::f32}};
    ASSERT_TRUE(verify(p)) << verify(p).error().message;
    const Program s = simplify(p);
    std::vector<Scalar> scratch;
    for (const float v : any_floats(40000, rng)) {
      const float expected = unary(m, c.op, c.facts, v);
      Scalar acc{}, out{};
      acc.f = v;
      for (const Program* program : {&std::as_const(p), &s}) {
        interpret(*program, acc, {}, {&out, 1}, scratch);
        ASSERT_TRUE(same_bits(out.f, expected))
            << name(c) << " x=" << v << ": " << out.f << " vs " << expected << ", seed " << kSeed + 1;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000000);
}

TEST(Math, BinaryFloatsAndProgramsGiveTheSameBits) {
  std::mt19937 rng(kSeed + 2);
  FloatOps m;
  for (const ir::Op op :
       {ir::Op::add, ir::Op::sub, ir::Op::mul, ir::Op::div, ir::Op::pow, ir::Op::max, ir::Op::min, ir::Op::prelu}) {
    ASSERT_TRUE(is_binary(op));
    Program p;
    ProgramOps ops{p};
    const int a = p.push(Op::acc_f);
    const int b = p.load(Op::load_f, 0);
    p.outputs = {{binary(ops, op, a, b), ir::DType::f32}};
    std::vector<Scalar> scratch;
    const auto xs = any_floats(3000, rng);
    auto ys = any_floats(3000, rng);
    for (const float e : {0.0F, 0.5F, 1.0F, 2.0F, 3.0F, -1.0F}) ys[rng() % ys.size()] = e;
    std::shuffle(ys.begin(), ys.end(), rng);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      Scalar acc{}, operand{}, out{};
      acc.f = xs[i];
      operand.f = ys[i];
      interpret(p, acc, {&operand, 1}, {&out, 1}, scratch);
      ASSERT_TRUE(same_bits(out.f, binary(m, op, xs[i], ys[i])))
          << ir::name_of(op) << " " << xs[i] << " " << ys[i] << " seed " << kSeed + 2;
    }
  }
}

/// A constant operand needs no selection: of a NaN, max and min give their second operand.
TEST(Math, BoundsThatAreConstantsTakeOneOperation) {
  FloatOps m;
  for (const ir::Op op : {ir::Op::max, ir::Op::min}) {
    for (const float bound : {0.5F, -2.0F, 0.0F}) {
      for (const bool first : {true, false}) {
        Program p;
        ProgramOps ops{p};
        const int x = p.push(Op::acc_f), c = p.imm_f(bound);
        p.outputs = {{first ? binary(ops, op, c, x) : binary(ops, op, x, c), ir::DType::f32}};
        if (first || bound != 0) EXPECT_EQ(p.code.size(), 3U) << print(p);
        std::vector<Scalar> scratch;
        for (const float v : {kNan, 0.0F, -0.0F, 0.5F, 7.0F, -7.0F, kInf, -kInf}) {
          Scalar acc{}, out{};
          acc.f = v;
          interpret(p, acc, {}, {&out, 1}, scratch);
          EXPECT_TRUE(same_bits(out.f, first ? binary(m, op, bound, v) : binary(m, op, v, bound))) << v << "\n" << print(p);
        }
      }
    }
  }
}

TEST(Math, ConstantExponentLeavesOneCase) {
  for (const auto& [exponent, most] :
       std::vector<std::pair<float, std::size_t>>{{2.0F, 2}, {3.0F, 3}, {0.5F, 2}, {1.0F, 1}, {-1.0F, 3}}) {
    Program p;
    ProgramOps ops{p};
    const int a = p.push(Op::acc_f);
    const int b = p.imm_f(exponent);
    p.outputs = {{binary(ops, ir::Op::pow, a, b), ir::DType::f32}};
    EXPECT_LE(simplify(p).code.size(), most) << exponent << ": " << print(simplify(p));
  }
}

TEST(Math, SigmoidIsShort) {
  Program p;
  ProgramOps ops{p};
  const int x = p.push(Op::acc_f);
  p.outputs = {{sigmoid(ops, x), ir::DType::f32}};
  int arithmetic = 0;
  for (const Instr& i : simplify(p).code) {
    arithmetic += i.op != Op::imm_f && i.op != Op::imm_i && i.op != Op::acc_f && i.op != Op::bits_f && i.op != Op::bits_i;
  }
  EXPECT_LE(arithmetic, 16) << print(simplify(p));
}

}  // namespace
}  // namespace octavo::program
