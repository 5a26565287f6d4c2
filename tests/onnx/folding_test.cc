// What an import evaluates: nodes of constants, unless that takes long. A file of some hundred bytes must not cost minutes.
#include "onnx/import/folding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "onnx/build_model.h"

namespace octavo::onnx {
namespace {

using testing::kS64;
using testing::ModelBuilder;

std::int64_t nodes_of(const ir::Graph& g, ir::Op op) {
  const auto order = g.order();
  return std::count_if(order.begin(), order.end(), [&](ir::NodeId id) { return g.node(id).op == op; });
}

/// A constant of one value, made by a node: the file holds its shape alone.
void filled(ModelBuilder& b, const std::string& name, const testing::Dims& dims) {
  b.ints(name + "_shape", dims);
  b.node("ConstantOfShape", {name + "_shape"}, {name});
}

std::int64_t recurrent_nodes(std::int64_t steps, std::int64_t width) {
  ModelBuilder b;
  b.output("y");
  filled(b, "x", {steps, 1, width}), filled(b, "w", {1, 4 * width, width}), filled(b, "r", {1, 4 * width, width});
  b.node("LSTM", {"x", "w", "r"}, {"y"}).i("hidden_size", width);
  const auto m = b.import();
  EXPECT_TRUE(m) << m.error().message;
  return m ? nodes_of(m->graph, ir::Op::recurrent) : -1;
}

TEST(Folding, OperatorsThatComputeMoreThanTheyHold) {
  EXPECT_EQ(recurrent_nodes(4, 4), 0) << "small ones are evaluated";
  EXPECT_EQ(recurrent_nodes(20000, 500), 1) << "80 thousand million products";
}

/// 60 additions of four million elements each: the first ones are evaluated, and the others are left to the runs.
TEST(Folding, AllNodesTogether) {
  ModelBuilder b;
  b.output("y60");
  filled(b, "a", {2048, 2048}), filled(b, "y0", {2048, 2048});
  for (int i = 0; i < 60; ++i) b.node("Add", {"y" + std::to_string(i), "a"}, {"y" + std::to_string(i + 1)});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_GT(nodes_of(m->graph, ir::Op::add), 20);
  EXPECT_LT(nodes_of(m->graph, ir::Op::add), 50);
}

TEST(Folding, WhatAFileBringsPaysForMore) {
  ir::Graph g;
  ir::Node n;
  n.op = ir::Op::add;
  n.inputs = {g.add_constant(ir::Tensor(ir::DType::f32, {1000, 1000})), g.add_constant(ir::Tensor(ir::DType::f32, {1000, 1000}))};
  const std::vector<ir::TensorType> types{{ir::DType::f32, {1000, 1000}}};
  EXPECT_EQ(folding_steps(g, n, types), 3e6);
  FoldingBudget budget;
  int paid = 0;
  while (budget.pay(g, n, types)) ++paid;
  EXPECT_EQ(paid, 133);
  budget.grant(1000000);
  EXPECT_TRUE(budget.pay(g, n, types));
}

}  // namespace
}  // namespace octavo::onnx
