#include "plan/lowering/anchor.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/causes/ir.h"
#include "base/causes/plan_regions.h"
#include "ir/block_codes.h"
#include "plan/layout/layout.h"
#include "plan/layout/place.h"
#include "plan/lowering/weights.h"
#include "plan/regions/narrow_marks.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Grids;
using ir::Node;
using ir::Op;
using ir::ValueId;
using region::TensorRef;

TensorRef constant_ref(const AnchorReader& reader, const ir::Tensor& t, const std::string& name) {
  TensorRef r;
  r.buffer = reader.constant(t, name);
  r.dtype = t.dtype();
  r.dims = t.shape();
  r.strides = ir::dense_strides(t.shape());
  r.value = name;
  return r;
}

/// The operator's region does not use the permission that its node has: the operands are in the narrow type already, or codes.
void compute_exactly(ir::Facts& facts) {
  if (auto* w = std::get_if<ir::Window>(&facts)) w->arithmetic = ir::Arithmetic::exact;
  if (auto* p = std::get_if<ir::Product>(&facts)) p->arithmetic = ir::Arithmetic::exact;
}

/// Products with so many columns have their rows copied side by side, where those lie apart in memory.
constexpr std::int64_t kMovedRowColumns = 16;

Status lower_weighted(const Graph& g, const Grids& grids, ir::NodeId id, const AnchorReader& reader, region::Stage& stage,
                      EpilogueBuilder& builder, std::vector<ValueId>& inputs, region::Region& region) {
  const Node& n = g.node(id);
  const ir::IntegerAnchor kind = ir::classify_anchor(g, grids, id);
  if (!kind.integer && g.type(n.outputs[0]).dtype != g.type(n.inputs[0]).dtype) {
    return fail(ErrorKind::internal,
                fmt::format("lowering \"{}\": exact sums in int32 need 8-bit codes by 8-bit weights", g.value(n.outputs[0]).name));
  }
  const Repr repr = kind.integer ? Repr::codes : Repr::raw;
  const std::optional<ir::DType> narrow = kind.integer ? std::nullopt : narrow_type(n);
  const ValueId data = held(g, n.inputs[0]);
  // Products of few columns take rows from where they lie: moving them first would take as long.
  const bool wide = g.is_constant(n.inputs[1]) && g.type(n.inputs[1]).shape[1] >= kMovedRowColumns;
  OCTAVO_TRY(TensorRef x, n.op != Op::gemm ? reader.read_channel_last(data, repr)
                          : wide           ? reader.read_rows(data, repr)
                                           : reader.read(data, repr));
  inputs.push_back(data);
  stage.anchor.op = n.op;
  OCTAVO_TRY(stage.anchor.facts, ir::facts_of(g, n));
  stage.anchor.inputs.push_back(x);
  stage.anchor.integer = kind.integer;
  const Node& w = g.producer(n.inputs[1]);
  const bool constant_weights = w.op == Op::constant;
  if (!constant_weights) {
    OCTAVO_TRY(TensorRef weights, reader.read(n.inputs[1], Repr::raw));
    stage.anchor.inputs.push_back(weights);
    inputs.push_back(n.inputs[1]);
    const bool bias = n.inputs.size() > 2 && n.inputs[2] != ir::kNone;
    if (bias) {
      OCTAVO_TRY(TensorRef b, reader.read(n.inputs[2], Repr::raw));
      stage.anchor.inputs.push_back(b);
      inputs.push_back(n.inputs[2]);
    }
    builder.set_acc_float(n.outputs[0]);
    builder.may_be_nan = true;
    region.precision = ir::DType::f32;
    region.reasons.push_back(because<cause::weights_at_run_time>(g.value(n.inputs[1]).name));
    return {};
  }
  const WeightForm form{narrow, kind.integer, n.op == Op::gemm};
  if (kind.integer) stage.anchor.weight_zero = weight_zeros(w);
  const ir::Tensor weights = reader.weights.of(w, form, [&] { return lowered_weights(w, form); });
  stage.anchor.weights = constant_ref(reader, weights, g.value(n.inputs[1]).name);
  if (const ir::BlockCodes* codes = weights.codes().get())
    stage.anchor.weight_codes = region::WeightCodes{codes->bits, codes->block, codes->one_zero()};
  if (w.quantizer) {
    ir::Quantizer q = kind.integer ? ir::as_s8(*w.quantizer) : *w.quantizer;
    if (n.op == Op::gemm && !q.per_tensor()) q.axis = 1 - q.axis;  // the weights were transposed
    stage.anchor.weights->quantizer = q;
  }
  if (kind.integer) {
    builder.set_acc_weighted(n, kind);
    region.precision = region::Work::int8;
    const std::string_view scales = kind.w.per_tensor() ? "per tensor" : "per channel";
    region.reasons.push_back(
        kind.x.per_tensor() ? because<cause::integer_anchor>(ir::to_string(ir::as_u8(kind.x)), ir::name_of(kind.w.type), scales)
                            : because<cause::integer_anchor_per_channel_input>(kind.x.entries(), ir::name_of(kind.w.type), scales));
  } else {
    builder.set_acc_float_bias(n);
    builder.may_be_nan = true;
    region.precision = narrow              ? region::Precision(*narrow)
                       : may_tf32(n.attrs) ? region::Work::tf32
                                           : region::Precision(ir::DType::f32);
    if (narrow) {
      region.reasons.push_back(narrow == ir::DType::f16 ? because<cause::float16_anchor>() : because<cause::bfloat16_anchor>());
    } else {
      add(region.reasons, kind.why_float);
    }
  }
  if (narrow || kind.integer) compute_exactly(stage.anchor.facts);
  return {};
}

// A product of two computed matrices on 8-bit grids.
Status lower_product(const Graph& g, const ir::IntegerAnchor& kind, const Node& n, const AnchorReader& reader, region::Stage& stage,
                     EpilogueBuilder& builder, std::vector<ValueId>& inputs, region::Region& region) {
  stage.anchor.op = n.op;
  stage.anchor.facts = ir::Product{};
  for (const ValueId v : n.inputs) {
    if (g.is_constant(v)) {
      const Node& c = g.producer(v);
      const ir::Quantizer q = ir::as_u8(ir::collapse_axis(*c.quantizer));
      const std::int32_t shift = q.zero_point[0] - c.quantizer->zero_point[0];
      ir::Tensor codes(ir::DType::u8, c.payload.shape());
      for (std::int64_t i = 0; i < codes.size(); ++i)
        codes.mutable_data<std::uint8_t>()[static_cast<std::size_t>(i)] =
            static_cast<std::uint8_t>(static_cast<std::int32_t>(c.payload.at(i)) + shift);
      TensorRef matrix = constant_ref(reader, codes, g.value(v).name);
      matrix.quantizer = q;
      stage.anchor.inputs.push_back(std::move(matrix));
    } else {
      OCTAVO_TRY(TensorRef matrix, reader.read(v, Repr::codes));
      stage.anchor.inputs.push_back(std::move(matrix));
    }
    inputs.push_back(v);
  }
  stage.anchor.integer = true;
  builder.set_acc_product(n.outputs[0], kind.unit(0, 1));
  region.precision = region::Work::int8;
  region.reasons.push_back(because<cause::integer_product>(ir::to_string(ir::as_u8(kind.x)), ir::to_string(ir::as_u8(kind.w))));
  return {};
}

// A product of two matrices in bfloat16 or float16, which lie in memory as such.
Status lower_narrow_product(const Graph& g, const Node& n, const AnchorReader& reader, region::Stage& stage,
                            EpilogueBuilder& builder, std::vector<ValueId>& inputs, region::Region& region) {
  stage.anchor.op = n.op;
  stage.anchor.facts = ir::Product{};
  for (const ValueId v : n.inputs) {
    const ValueId small = held(g, v);
    OCTAVO_TRY(TensorRef matrix, reader.read(small, Repr::raw));
    stage.anchor.inputs.push_back(std::move(matrix));
    inputs.push_back(small);
  }
  builder.set_acc_float(n.outputs[0]);
  builder.may_be_nan = true;
  region.precision = *narrow_type(n);
  region.reasons.push_back(narrow_type(n) == ir::DType::f16 ? because<cause::float16_product>()
                                                            : because<cause::bfloat16_product>());
  return {};
}

// Elements in each averaging window (one number when all windows are whole).
ir::Tensor window_counts(const Graph& g, const Node& n, const ir::Window& w) {
  const ir::Shape& in = g.type(n.inputs[0]).shape;
  const ir::Shape& out = g.type(n.outputs[0]).shape;
  const ir::Shape& kernel = w.kernel;
  ir::Shape shape(out.size(), 1);
  std::vector<std::vector<std::int64_t>> per_dim(kernel.size());
  for (std::size_t d = 0; d < kernel.size(); ++d) {
    const std::int64_t extent = in[d + 2], begin_pad = w.before(d), end_pad = w.after(d);
    for (std::int64_t o = 0; o < out[d + 2]; ++o) {
      std::int64_t n_valid = 0;
      for (std::int64_t k = 0; k < kernel[d]; ++k) {
        const std::int64_t i = o * w.strides[d] - begin_pad + k * w.dilations[d];
        const bool inside = i >= 0 && i < extent;
        const bool padded = i >= -begin_pad && i < extent + end_pad;
        n_valid += w.count_include_pad ? padded : inside;
      }
      per_dim[d].push_back(n_valid);
    }
    shape[d + 2] = out[d + 2];
  }
  ir::Tensor counts(ir::DType::f32, shape);
  bool equal = true;
  const auto data = counts.mutable_data<float>();
  for (std::int64_t i = 0; i < counts.size(); ++i) {
    std::int64_t rest = i, product = 1;
    for (std::size_t d = kernel.size(); d-- > 0;) {
      product *= per_dim[d][static_cast<std::size_t>(rest % shape[d + 2])];
      rest /= shape[d + 2];
    }
    data[static_cast<std::size_t>(i)] = static_cast<float>(product);
    equal = equal && data[static_cast<std::size_t>(i)] == data[0];
  }
  return equal ? ir::Tensor::scalar<float>(data[0]) : counts;
}

/// Why an operator without weights reads values and not codes.
Reason why_not_on_codes(const Graph& g, const Node& n, const std::optional<ir::Quantizer>& input, const std::string& precision) {
  if (ir::has_trait(n.op, ir::kMove)) return because<cause::input_off_kept_grid>(precision, ir::name_of(n.op));
  const bool sums = n.op == Op::avg_pool || n.op == Op::reduce_mean || n.op == Op::reduce_sum;
  if (sums && !input) return because<cause::input_not_quantized>(g.nearest_name(n.inputs[0]));
  if (sums && !input->per_tensor()) return because<cause::input_per_axis>(g.value(n.inputs[0]).name, input->entries());
  return because<cause::no_integer_form>(ir::name_of(n.op));  // softmax, norms, sums over channels
}

/// The mean of whole images of floats whose channels are apart in memory: of neighbours, which a kernel of rows adds where they are.
Result<std::optional<ir::Reduction>> mean_of_rows(const Graph& g, const Grids& grids, ir::NodeId id, const AnchorReader& reader,
                                                  const ir::Facts& facts) {
  const Node& n = g.node(id);
  if (n.op != Op::avg_pool || g.is_constant(n.inputs[0]) || anchor_input(g, grids, id, 0) != Repr::raw) return std::nullopt;
  const auto& w = std::get<ir::Window>(facts);
  const ir::Shape& x = g.type(n.inputs[0]).shape;
  const bool whole = std::equal(w.kernel.begin(), w.kernel.end(), x.begin() + 2, x.end()) &&
                     std::all_of(w.pads.begin(), w.pads.end(), [](std::int64_t p) { return p == 0; }) &&
                     std::all_of(w.dilations.begin(), w.dilations.end(), [](std::int64_t d) { return d == 1; });
  if (!whole || x[1] == 1) return std::nullopt;
  OCTAVO_TRY(const TensorRef r, reader.read(held(g, n.inputs[0]), Repr::raw));
  if (r.dtype != ir::DType::f32 || r.strides[1] == 1 || r.strides.back() != 1) return std::nullopt;
  ir::Reduction mean;
  for (std::size_t d = 2; d < x.size(); ++d) mean.axes.push_back(static_cast<std::int64_t>(d));
  return mean;
}

}  // namespace

Status lower_anchor(const Graph& g, const Grids& grids, ir::NodeId id, const AnchorReader& reader, region::Stage& stage,
                    EpilogueBuilder& builder, std::vector<ValueId>& inputs, region::Region& region) {
  const Node& n = g.node(id);
  if (n.op == Op::conv || n.op == Op::conv_transpose || n.op == Op::gemm) {
    return lower_weighted(g, grids, id, reader, stage, builder, inputs, region);
  }
  std::optional<Reason> why_float;
  if (n.op == Op::matmul) {
    ir::IntegerAnchor kind = ir::classify_anchor(g, grids, id);
    if (is_narrow(n) && !kind.integer) return lower_narrow_product(g, n, reader, stage, builder, inputs, region);
    if (kind.integer) return lower_product(g, kind, n, reader, stage, builder, inputs, region);
    why_float = std::move(kind.why_float);
  }
  stage.anchor.op = n.op;
  OCTAVO_TRY(stage.anchor.facts, ir::facts_of(g, n));
  OCTAVO_TRY(const std::optional<ir::Reduction> rows, mean_of_rows(g, grids, id, reader, stage.anchor.facts));
  if (rows) stage.anchor.op = Op::reduce_mean, stage.anchor.facts = *rows;
  const bool resized = stage.anchor.op == Op::resize_linear && g.type(n.inputs[0]).shape.size() == 4;
  const bool image = stage.anchor.op == Op::max_pool || stage.anchor.op == Op::avg_pool || resized;
  for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
    const ValueId v = held(g, n.inputs[slot]);
    if (v == ir::kNone) continue;
    const Repr repr = g.is_constant(v) ? Repr::raw : anchor_input(g, grids, id, slot);
    OCTAVO_TRY(TensorRef r, image && slot == 0 ? reader.read_channel_last(v, repr) : reader.read(v, repr));
    stage.anchor.inputs.push_back(r);
    inputs.push_back(v);
  }
  if (n.op == Op::gather && g.is_constant(n.inputs[1]) && g.type(n.inputs[1]).shape.size() == 1 &&
      g.type(n.inputs[1]).shape[0] <= 8192) {  // kernels are made for them
    std::vector<std::int64_t> indices = g.payload(n.inputs[1]).as_ints();
    auto& gather = stage.anchor.as<ir::Gather>();
    const std::int64_t extent = g.type(n.inputs[0]).shape[static_cast<std::size_t>(gather.axis)];
    for (std::int64_t& i : indices) i += i < 0 ? extent : 0;
    gather.indices = std::move(indices);
  }
  const auto q = inputs.empty() ? std::nullopt : code_quantizer(g, grids, n.inputs[0]);
  const bool codes = !stage.anchor.inputs.empty() && stage.anchor.inputs[0].quantizer.has_value() &&
                     stage.anchor.inputs[0].dtype == ir::DType::u8 && q;
  stage.anchor.integer = codes;
  region.precision = codes ? region::Precision(region::Work::int8) : region::Precision(g.type(n.outputs[0]).dtype);
  if (n.op == Op::matmul && may_tf32(n.attrs)) region.precision = region::Work::tf32;
  if (codes && n.op == Op::avg_pool) {
    builder.set_acc_sum(n, *q, window_counts(g, n, stage.anchor.as<ir::Window>()));
    region.reasons.push_back(because<cause::exact_integer_sum>());
  } else if (codes && (n.op == Op::reduce_mean || n.op == Op::reduce_sum)) {
    const std::int64_t window =
        ir::count(g.type(n.inputs[0]).shape) / std::max<std::int64_t>(1, ir::count(g.type(n.outputs[0]).shape));
    const float divisor = n.op == Op::reduce_mean ? static_cast<float>(window) : 1.0F;  // dividing by 1 changes nothing
    builder.set_acc_sum(n, *q, ir::Tensor::scalar<float>(divisor));
    region.reasons.push_back(because<cause::exact_integer_sum>());
  } else if (codes) {
    if (auto* pad = std::get_if<ir::Pad>(&stage.anchor.facts); pad != nullptr && pad->mode == ir::PadMode::constant)
      pad->value_code = ir::quantize_one(static_cast<float>(pad->value), q->scale[0], q->zero_point[0], 0, 255, q->arith);
    builder.set_acc_codes(n.outputs[0], *q);
    region.reasons.push_back(because<cause::codes_moved>(ir::name_of(n.op)));
  } else {
    region.reasons.push_back(why_float ? *why_float : why_not_on_codes(g, n, q, to_string(region.precision)));
    if (n.outputs.size() == 1 && g.type(n.outputs[0]).dtype == ir::DType::f32) {
      builder.set_acc_float(n.outputs[0]);
      builder.may_be_nan = true;
    }
  }
  return {};
}

void adapt_rank(region::Stage& stage) {
  const Op op = stage.anchor.op;
  // Weights computed at run time: the operator is evaluated as it is, in its own rank.
  const bool weighted = stage.anchor.weights.has_value();
  const bool pool = op == Op::max_pool || op == Op::avg_pool;
  const std::size_t rank = stage.space.size();
  if (op == Op::gemm && weighted && rank == 2) {
    const auto widen = [](TensorRef& r) {
      for (int i = 0; i < 2; ++i) {
        r.dims.push_back(1);
        r.strides.push_back(r.strides.empty() ? 0 : r.dims[1] * r.strides[1]);
      }
    };
    for (TensorRef& r : stage.anchor.inputs) widen(r);
    for (auto& o : stage.operands) {
      o.ref.dims.insert(o.ref.dims.end(), {1, 1});
      o.ref.strides.insert(o.ref.strides.end(), {0, 0});
    }
    for (TensorRef& r : stage.stores) widen(r);
    stage.space.insert(stage.space.end(), {1, 1});
    const ir::Arithmetic arithmetic = stage.anchor.as<ir::Product>().arithmetic;
    stage.anchor.op = Op::conv;
    stage.anchor.facts = ir::Window{.strides = {1, 1}, .dilations = {1, 1}, .pads = {0, 0, 0, 0}, .arithmetic = arithmetic};
    return;
  }
  if (!(weighted || pool) || rank != 3) return;
  const auto widen = [](TensorRef& r) {
    r.dims.insert(r.dims.begin() + 2, 1);
    r.strides.insert(r.strides.begin() + 2, r.dims[3] * r.strides[2]);
  };
  for (TensorRef& r : stage.anchor.inputs) widen(r);
  for (auto& o : stage.operands) {
    o.ref.dims.insert(o.ref.dims.begin() + 2, 1);
    o.ref.strides.insert(o.ref.strides.begin() + 2, 0);
  }
  for (TensorRef& r : stage.stores) widen(r);
  stage.space.insert(stage.space.begin() + 2, 1);
  if (stage.anchor.weights) {
    TensorRef& w = *stage.anchor.weights;
    w.dims.insert(w.dims.begin() + 2, 1);
    w.strides.insert(w.strides.begin() + 2, w.dims[3]);
  }
  auto& w = stage.anchor.as<ir::Window>();
  for (ir::Shape* list : {&w.kernel, &w.strides, &w.dilations}) {
    if (!list->empty()) list->insert(list->begin(), 1);
  }
  if (!w.output_padding.empty()) w.output_padding.insert(w.output_padding.begin(), 0);
  w.pads = {0, w.pads[0], 0, w.pads[1]};
}

}  // namespace octavo::plan
