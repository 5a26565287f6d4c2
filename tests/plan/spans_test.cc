// What the planner makes of activations and quantizers is marked (program/span.h), and an engine's plan is marked alike when it is read again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "plan/plan.h"
#include "reference/oracle_provider.h"
#include "region/region.h"

namespace octavo {
namespace {

using program::Function;
using program::FunctionSpan;
using program::RequantizeSpan;
using program::Span;

/// An int8 convolution, `nodes` from y to a, codes of a.
region::Plan planned(const std::string& nodes) {
  auto graph = ir::parse(fmt::format(R"(
graph "g"
x = input : f32[1,4,6,6]
q = view x q=u8(0.03,128) from {{"q"}}
w = constant s8[8,4,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01,0.02,0.03,0.01,0.02;0,0,0,0,0,0,0,0) seed:1
b = constant f32[8] seed:2
y = conv q w b {{dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}} from {{"conv"}}
{}
v = view a q=u8(0.05,100) from {{"v"}}
w2 = constant s8[4,8,1,1] q=s8(0.02,0) seed:3
z = conv v w2 {{dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]}} from {{"conv2"}}
output z
)",
                                     nodes));
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = plan::make_plan(*graph, {&reference::oracle_provider()}, {});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made->plan);
}

/// The program of the first convolution.
const program::Program& program_of(const region::Plan& plan) {
  for (const region::Region& r : plan.regions) {
    if (r.stages[0].anchor.op == ir::Op::conv) return r.stages[0].program;
  }
  static const program::Program none;
  return none;
}

template <class Kind>
std::vector<Kind> spans_of(const program::Program& p) {
  std::vector<Kind> all;
  for (const Span& s : p.spans) {
    if (const auto* of = std::get_if<Kind>(&s)) all.push_back(*of);
  }
  return all;
}

TEST(Spans, ActivationsOfAPlanAreMarked) {
  struct Case {
    Function function;
    const char* nodes;
  };
  for (const Case& c : {Case{Function::sigmoid, R"(a = sigmoid y from {"a"})"},
                        {Function::silu, "s = sigmoid y from {\"s\"}\na = mul y s from {\"a\"}"},
                        {Function::silu, "s = sigmoid y from {\"s\"}\na = mul s y from {\"a\"}"},
                        {Function::tanh, R"(a = tanh y from {"a"})"},
                        {Function::erf, R"(a = erf y from {"a"})"},
                        {Function::gelu, R"(a = gelu y from {"a"})"},
                        {Function::gelu_tanh, R"(a = gelu y {approximate="tanh"} from {"a"})"},
                        {Function::mish, R"(a = mish y from {"a"})"},
                        {Function::softplus, R"(a = softplus y from {"a"})"},
                        {Function::elu, R"(a = elu y {alpha=1} from {"a"})"}}) {
    const region::Plan plan = planned(c.nodes);
    const program::Program& p = program_of(plan);
    SCOPED_TRACE(std::string(c.nodes) + "\n" + program::print(p));
    const auto requantized = spans_of<RequantizeSpan>(p);
    ASSERT_EQ(requantized.size(), 1U);
    EXPECT_EQ(requantized[0].zero, 100);
    EXPECT_EQ(requantized[0].result, p.outputs[0].value);
    // The requantization is of the function's result; an erf ends with two bounds of constants, which are its steps too.
    const auto begins_with = [&](int v) {
      const auto& steps = requantized[0].steps;
      return v == requantized[0].x || std::any_of(steps.begin(), steps.end(), [v](const program::Step& s) { return s.from == v; });
    };
    bool found = false;
    for (const FunctionSpan& f : spans_of<FunctionSpan>(p)) found |= f.function == c.function && begins_with(f.result);
    EXPECT_TRUE(found) << program::name_of(c.function);
  }
}

TEST(Spans, StepsInFrontOfAQuantizerAreItsOwn) {
  const region::Plan plan = planned("a = leaky_relu y {alpha=0.1} from {\"a\"}");
  const auto spans = spans_of<RequantizeSpan>(program_of(plan));
  ASSERT_EQ(spans.size(), 1U);
  std::vector<program::Op> ops;
  for (const program::Step& s : spans[0].steps) ops.push_back(s.op);
  using program::Op;
  EXPECT_EQ(ops, (std::vector{Op::sel_lt, Op::div, Op::max, Op::min})) << program::print(program_of(plan));
  EXPECT_EQ(spans[0].steps[0].constant, 0.1F);
  EXPECT_EQ(spans[0].steps[1].constant, 0.05F);
}

TEST(Spans, AnEngineHasThemAgain) {
  const region::Plan plan = planned("s = sigmoid y from {\"s\"}\na = mul y s from {\"a\"}");
  const std::string text = region::to_json(plan);
  EXPECT_EQ(text.find("span"), std::string::npos) << "they are no part of a file";
  const auto back = region::from_json(text);
  ASSERT_TRUE(back) << back.error().message;
  std::size_t spans = 0;
  for (std::size_t r = 0; r < plan.regions.size(); ++r) {
    for (std::size_t k = 0; k < plan.regions[r].stages.size(); ++k) {
      EXPECT_EQ(back->regions[r].stages[k].program.spans, plan.regions[r].stages[k].program.spans) << plan.regions[r].name;
      spans += plan.regions[r].stages[k].program.spans.size();
    }
  }
  EXPECT_GE(spans, 4U);
}

// Whoever changes the code and leaves the spans is refused.
TEST(Spans, APlanWithWrongSpansIsRefused) {
  region::Plan plan = planned("s = sigmoid y from {\"s\"}\na = mul y s from {\"a\"}");
  ASSERT_TRUE(region::verify(plan));
  int refused = 0;
  for (region::Region& r : plan.regions) {
    for (region::Stage& s : r.stages) {
      for (program::Instr& i : s.program.code) {
        if (i.op != program::Op::imm_f || i.imm == 0) continue;
        i.imm ^= 1;
        const Status ok = region::verify(plan);
        if (!ok && ok.error().message.find("is not what the code computes") != std::string::npos) ++refused;
        i.imm ^= 1;
      }
    }
  }
  EXPECT_GE(refused, 10);
}

}  // namespace
}  // namespace octavo
