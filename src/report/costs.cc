#include "report/costs.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "plan/cost.h"
#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::report {
namespace {

using region::TensorRef;

std::int64_t stored_elements(const TensorRef& ref, const std::vector<std::int64_t>& div) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < ref.dims.size(); ++d) {
    if (d < ref.strides.size() && ref.strides[d] == 0) continue;
    const std::int64_t step = d < div.size() ? div[d] : 1;
    n *= (ref.dims[d] + step - 1) / step;
  }
  return n;
}

std::int64_t macs_of(const region::Stage& stage) {
  const region::Anchor& a = stage.anchor;
  if (a.op == ir::Op::matmul && a.inputs.size() == 2) return ir::count(stage.space) * a.inputs[0].dims.back();
  if (!a.weights || (a.op != ir::Op::conv && a.op != ir::Op::conv_transpose)) return 0;
  std::int64_t per_position = 1;  // conv: inputs of one output element; conv_transpose: outputs of one input element
  for (std::size_t d = 1; d < a.weights->dims.size(); ++d) per_position *= a.weights->dims[d];
  const ir::Shape& positions = a.op == ir::Op::conv || a.inputs.empty() ? stage.space : a.inputs[0].dims;
  return per_position * ir::count(positions);
}

}  // namespace

std::string amount(std::int64_t n, std::string_view unit) {
  constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T"};
  auto v = static_cast<double>(n);
  std::size_t p = 0;
  for (; v >= 1000 && p + 1 < std::size(prefixes); ++p) v /= 1000;
  const std::string_view between = unit.starts_with('B') ? "" : " ";  // "1.5 kB", "1.5 k int8 MAC"
  return p == 0 ? fmt::format("{} {}", n, unit) : fmt::format("{:.1f} {}{}{}", v, prefixes[p], between, unit);
}

Costs costs_of(const region::Region& region, const region::Plan& plan) {
  Costs costs;
  std::map<std::tuple<region::BufferId, std::int64_t, bool>, std::int64_t> seen;  // a tensor read by two operands counts once
  const auto touch = [&](const TensorRef& ref, bool written, const std::vector<std::int64_t>& div = {}) {
    const auto bytes = stored_elements(ref, div) * element_bytes(ref);
    auto& most = seen[{ref.buffer, ref.offset, written}];
    most = std::max(most, bytes);
  };
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    const region::Stage& stage = region.stages[s];
    const std::int64_t macs = macs_of(stage);
    costs.macs += macs;
    costs.integer = costs.integer || (macs > 0 && stage.anchor.integer);
    for (const TensorRef& t : stage.anchor.inputs) {
      if (!forwarded(region, s, t)) touch(t, false);
    }
    if (stage.anchor.weights) touch(*stage.anchor.weights, false);
    if (stage.anchor.weight_codes && !region.packed.empty()) {
      std::int64_t packed = 0;
      for (const region::BufferId id : region.packed) packed += plan.buffers[static_cast<std::size_t>(id)].bytes;
      auto& bytes = seen[{stage.anchor.weights->buffer, stage.anchor.weights->offset, false}];
      bytes = std::min(bytes, packed);
    }
    for (const auto& operand : stage.operands) {
      if (!forwarded(region, s, operand.ref)) touch(operand.ref, false, operand.div);
    }
    for (std::size_t i = 0; i < stage.stores.size(); ++i) {
      if (leaves(region, {s, i})) touch(stage.stores[i], true);
    }
  }
  for (const auto& [key, bytes] : seen) costs.bytes += bytes;
  return costs;
}

bool measured(const region::Plan& plan) {
  return plan.cost_source == plan::name_of(plan::CostSource::measured);
}

Totals totals_of(const region::Plan& plan) {
  Totals t;
  for (const auto& region : plan.regions) {
    const Costs c = costs_of(region, plan);
    const bool vector = region.tactic.vector;
    ++t.regions;
    t.int8_regions += region.precision == region::Work::int8 ? 1 : 0;
    t.float_regions += region.precision.from_float32() || region.precision == region::Work::tf32 ||
                               region.precision.has(ir::DType::bf16) || region.precision.has(ir::DType::f16)
                           ? 1
                           : 0;
    (c.integer ? t.int8_macs : t.float_macs) += c.macs;
    t.bytes += c.bytes;
    if (vector) {
      (c.integer ? t.int8_macs_vector : t.float_macs_vector) += c.macs;
      t.bytes_vector += c.bytes;
    }
  }
  return t;
}

}  // namespace octavo::report
