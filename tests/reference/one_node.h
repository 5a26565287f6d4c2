// Evaluating a single operator in a test.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "reference/evaluate.h"

namespace octavo::reference {

using ir::Op;
using ir::Tensor;
using Ints = std::vector<std::int64_t>;

/// Evaluates `op` on constants (coded where a quantizer is given); every type comes from ir::infer.
inline Result<std::vector<Tensor>> run_all(Op op, const std::vector<Tensor>& inputs, ir::Attrs attrs = {},
                                           std::optional<ir::Quantizer> q = std::nullopt) {
  ir::Graph g;
  ir::Node n;
  n.op = op;
  n.name = "node";
  n.attrs = std::move(attrs);
  n.quantizer = std::move(q);
  for (const Tensor& t : inputs) n.inputs.push_back(t.empty() ? ir::kNone : g.add_constant(t));
  auto types = ir::infer(g, n);
  if (!types) return tl::unexpected<Error>(types.error());
  const ir::NodeId id = g.add_node(std::move(n), *types);
  auto result = evaluate_node(g, ir::find_grids(g), id, inputs);
  if (result) {
    for (std::size_t i = 0; i < result->size(); ++i) EXPECT_EQ((*result)[i].type(), (*types)[i]) << ir::name_of(op);
  }
  return result;
}
inline Tensor run(Op op, const std::vector<Tensor>& inputs, ir::Attrs attrs = {}, std::optional<ir::Quantizer> q = std::nullopt) {
  auto result = run_all(op, inputs, std::move(attrs), std::move(q));
  EXPECT_TRUE(result) << ir::name_of(op) << ": " << (result ? "" : result.error().message);
  return result && !result->empty() ? (*result)[0] : Tensor{};
}

inline std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; !t.empty() && i < t.size(); ++i) out.push_back(t.at(i));
  return out;
}
inline Tensor f32(ir::Shape shape, const std::vector<float>& v) {
  return Tensor::of<float>(std::move(shape), v);
}
inline Tensor s64(ir::Shape shape, const std::vector<std::int64_t>& v) {
  return Tensor::of<std::int64_t>(std::move(shape), v);
}
inline Tensor boolean(ir::Shape shape, const std::vector<std::uint8_t>& v) {
  Tensor t(ir::DType::boolean, std::move(shape));
  std::copy(v.begin(), v.end(), t.mutable_data<std::uint8_t>().begin());
  return t;
}
inline Tensor random_f32(ir::Shape shape, std::mt19937& rng, float range = 2) {
  Tensor t(ir::DType::f32, std::move(shape));
  std::uniform_real_distribution<float> d(-range, range);
  for (float& v : t.mutable_data<float>()) v = d(rng);
  return t;
}
/// Half of the codes are extremes of the type.
inline Tensor random_codes(ir::DType type, ir::Shape shape, std::mt19937& rng) {
  Tensor t(type, std::move(shape));
  for (std::byte& b : t.mutable_bytes()) {
    constexpr std::uint8_t kExtremes[] = {0, 127, 128, 255};
    b = static_cast<std::byte>(rng() % 2 ? kExtremes[rng() % 4] : static_cast<std::uint8_t>(rng()));
  }
  return t;
}

}  // namespace octavo::reference
