// What the exported layer list reads off a plan: names that stay apart, biases, activations.
#include "report/trex.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "report/epilogue.h"

namespace octavo::report {
namespace {

using program::Op;
using program::Program;

region::TensorRef ref(region::BufferId buffer, ir::DType type, ir::Shape dims) {
  region::TensorRef r;
  r.buffer = buffer;
  r.dtype = type;
  r.strides = ir::dense_strides(dims);
  r.dims = std::move(dims);
  return r;
}

/// A convolution [1,4,8,8] -> [1,16,8,8] with this program; operand 0 is a constant a channel, 1 a tensor.
region::Plan plan_with(const Program& p, std::vector<std::string> names = {"conv"}) {
  region::Plan plan;
  for (int i = 0; i < 5; ++i) {
    region::Buffer b;
    b.kind = i == 1 || i == 2 ? region::BufferKind::constant : region::BufferKind::arena;
    b.bytes = 16 * 64 * 4;
    plan.buffers.push_back(b);
  }
  region::Stage s;
  s.anchor.op = ir::Op::conv;
  s.anchor.facts = ir::default_facts(ir::Op::conv);
  s.anchor.integer = true;
  s.anchor.inputs = {ref(0, ir::DType::u8, {1, 4, 8, 8})};
  s.anchor.weights = ref(1, ir::DType::s8, {16, 4, 3, 3});
  s.space = {1, 16, 8, 8};
  s.program = p;
  region::Operand channel{ref(2, ir::DType::f32, s.space), {}}, tensor{ref(3, ir::DType::f32, s.space), {}};
  channel.ref.strides = {0, 1, 0, 0};
  s.operands = {channel, tensor};
  s.stores = {ref(4, ir::DType::u8, s.space)};
  for (const std::string& name : names) {
    region::Region r;
    r.name = name;
    r.stages = {s};
    plan.regions.push_back(r);
  }
  return plan;
}

EpilogueSummary epilogue(const std::function<int(Program&, int)>& rest) {
  Program p;
  p.operand_count = 2;
  const int acc = p.push(Op::acc_i);
  const int real = p.push(Op::i2f, acc);
  p.outputs = {{rest(p, real), ir::DType::u8}};
  const auto plan = plan_with(p);
  return epilogue_of(plan.regions[0].stages[0], plan);
}

/// To codes of scale 0.5: a lower bound of -zero.
int quantized(Program& p, int v, float low) {
  const int scaled = p.push(Op::div, v, p.imm_f(0.5F));
  const int bounded = p.push(Op::max, scaled, p.imm_f(low));
  return p.push(Op::f2i, p.push(Op::min, bounded, p.imm_f(low + 255)));
}

TEST(EpilogueOf, Biases) {
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, v, -5); }).bias, 0);
  EXPECT_EQ(epilogue([](Program& p, int v) {
              const int scale = p.imm_f(2), bias = p.load(Op::load_f, 0);
              return quantized(p, p.push(Op::fma, v, scale, bias), -5);
            }).bias,
            16);
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::add, p.load(Op::load_f, 0), v), -5); }).bias, 16);
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::add, v, p.load(Op::load_f, 1)), -5); }).bias, 0)
      << "a residual is no bias";
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::mul, v, p.load(Op::load_f, 0)), -5); }).bias, 0)
      << "a scale is no bias";
}

TEST(EpilogueOf, Activations) {
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, v, -5); }).activation, Activation::none);
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, v, 0); }).activation, Activation::relu) << "absorbed by the range";
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::max, v, p.imm_f(0)), -5); }).activation,
            Activation::relu);
  EXPECT_EQ(epilogue([](Program& p, int v) {
              const int relu = p.push(Op::max, v, p.imm_f(0));
              return quantized(p, p.push(Op::min, relu, p.imm_f(6)), -5);
            }).activation,
            Activation::clipped_relu);
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::sqrt, v), 0); }).activation, Activation::none)
      << "not a bound of the sum";
  EXPECT_EQ(epilogue([](Program& p, int v) { return quantized(p, p.push(Op::max, v, p.imm_f(1)), -5); }).activation,
            Activation::none);
}

TEST(Trex, LayerNamesStayApart) {
  Program p;
  p.operand_count = 2;
  p.outputs = {{quantized(p, p.push(Op::i2f, p.push(Op::acc_i)), 0), ir::DType::u8}};
  const std::vector<std::string> names = {"a", "a (2)", "a", "a", "", "", "b [profile 1]", "b (profile 1)"};
  const auto plan = plan_with(p, names);
  const auto layers = nlohmann::json::parse(layer_info(plan))["Layers"];
  ASSERT_EQ(layers.size(), names.size());
  std::set<std::string> seen;
  for (const auto& layer : layers) {
    const std::string name = layer["Name"];
    EXPECT_TRUE(seen.insert(name).second) << name;
    EXPECT_EQ(name.find("[profile"), std::string::npos);
    EXPECT_FALSE(name.empty());
  }
  EXPECT_EQ(layers[0]["Name"], "a");
  EXPECT_EQ(layers[1]["Name"], "a (2)");
  const auto times = nlohmann::json::parse(profile(plan, std::vector<LayerTimes>(names.size()), 3));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(times[i + 1]["name"], layers[i]["Name"]);
}

}  // namespace
}  // namespace octavo::report
