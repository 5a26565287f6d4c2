// Reductions, ArgMax, ArgMin.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

struct Reduction {
  Ints axes;
  std::int64_t keepdims = 1;
  bool nothing = false;  ///< noop_with_empty_axes and no axes: the operand passes (through the element-wise part)
};

/// axes: an attribute before opset `input_since`, an input from then on. None: all axes, unless noop_with_empty_axes.
Result<Reduction> read_reduction(NodeContext& n, std::int64_t input_since) {
  Reduction r;
  r.keepdims = n.attr_int("keepdims", 1) != 0 ? 1 : 0;
  if (n.opset() < input_since) {
    r.axes = n.attr_ints("axes");
  } else {
    if (n.has(1)) {
      OCTAVO_TRY(r.axes, n.constant_ints(1, "axes"));
    }
    r.nothing = n.attr_int("noop_with_empty_axes", 0) != 0 && r.axes.empty();
  }
  OCTAVO_TRY(r.axes, n.axes(r.axes, n.rank(0)));
  if (r.axes.empty() && !r.nothing) {
    r.axes.resize(static_cast<std::size_t>(n.rank(0)));
    std::iota(r.axes.begin(), r.axes.end(), 0);
  }
  return r;
}

Result<ValueId> reduce(NodeContext& n, Op op, ValueId x, const Reduction& r) {
  if (r.nothing || r.axes.empty()) return x;
  const bool maximum = op == Op::reduce_max;
  if (ir::count(n.shape_of(x)) == 0 && (maximum || op == Op::reduce_min)) {  // the least, the greatest value of the type
    Shape out = n.shape_of(x);
    for (const std::int64_t a : r.axes) out[static_cast<std::size_t>(a)] = r.keepdims ? 1 : -1;
    std::erase(out, -1);
    const DType type = n.type_of(x).dtype;
    constexpr double kInf = std::numeric_limits<double>::infinity();
    Tensor bound(DType::f32, out);
    for (float& v : bound.mutable_data<float>()) v = static_cast<float>(maximum ? -kInf : kInf);
    return n.cast(n.add_constant(std::move(bound)), type);  // saturates
  }
  return n.emit(op, {x}, {{"axes", r.axes}, {"keepdims", r.keepdims}});
}

template <Op op, int input_since>
Status plain(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, input_since));
  return n.result(reduce(n, op, n.in(0), r));
}

/// Of bool: any, all.
template <Op op>
Status extreme(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, 18));
  if (n.type(0).dtype != DType::boolean) return n.result(reduce(n, op, n.in(0), r));
  OCTAVO_TRY(ValueId v, n.cast(n.in(0), ir::count(n.shape(0)) == 0 ? DType::u8 : DType::s32));
  OCTAVO_TRY(v, reduce(n, op, v, r));
  return n.result(n.cast(v, DType::boolean));
}

/// Over exactly the spatial axes of an image it is a global average pool.
Status reduce_mean(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, 18));
  if (n.rank(0) == 4 && r.axes == Ints{2, 3} && ir::is_float(n.type(0).dtype)) {
    OCTAVO_TRY(const ValueId y, lower_global_average(n, n.in(0)));
    if (r.keepdims) return n.result(y);
    const Shape x = n.shape(0);
    return n.result(n.reshape(y, {x[0], x[1]}));
  }
  return n.result(reduce(n, Op::reduce_mean, n.in(0), r));
}

Status reduce_l1(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, 18));
  OCTAVO_TRY(const ValueId v, n.emit(Op::abs, {n.in(0)}));
  return n.result(reduce(n, Op::reduce_sum, v, r));
}

Status reduce_sum_square(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, 18));
  OCTAVO_TRY(const ValueId v, n.emit(Op::mul, {n.in(0), n.in(0)}));
  return n.result(reduce(n, Op::reduce_sum, v, r));
}

Status reduce_log_sum(NodeContext& n) {
  OCTAVO_TRY(const Reduction r, read_reduction(n, 18));
  OCTAVO_TRY(const ValueId v, reduce(n, Op::reduce_sum, n.in(0), r));
  return n.result(n.emit(Op::log, {v}));
}

/// m + log(sum(exp(x - m))) with m the maximum, so that exp cannot overflow.
Status reduce_log_sum_exp(NodeContext& n) {
  OCTAVO_TRY(Reduction r, read_reduction(n, 18));
  if (r.nothing || r.axes.empty()) return n.result(n.in(0));
  const Reduction kept{r.axes, 1, false};
  OCTAVO_TRY(const ValueId m, reduce(n, Op::reduce_max, n.in(0), kept));
  OCTAVO_TRY(ValueId v, n.emit(Op::sub, {n.in(0), m}));
  OCTAVO_TRY(v, n.emit(Op::exp, {v}));
  OCTAVO_TRY(v, reduce(n, Op::reduce_sum, v, kept));
  OCTAVO_TRY(v, n.emit(Op::log, {v}));
  OCTAVO_TRY(v, n.emit(Op::add, {v, m}));
  if (r.keepdims) return n.result(v);
  Shape shape;
  for (std::size_t i = 0; i < n.shape(0).size(); ++i) {
    if (std::find(r.axes.begin(), r.axes.end(), static_cast<std::int64_t>(i)) == r.axes.end()) shape.push_back(n.shape(0)[i]);
  }
  return n.result(n.reshape(v, shape));
}

Status arg(NodeContext& n, ValueId x) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  const Attrs attrs{{"axis", axis},
                    {"keepdims", std::int64_t{n.attr_int("keepdims", 1) != 0}},
                    {"select_last_index", std::int64_t{n.attr_int("select_last_index", 0) != 0}}};
  return n.result(n.emit(Op::arg_max, {x}, attrs));
}
Status arg_max(NodeContext& n) {
  return arg(n, n.in(0));
}
/// The maximum of -x. Exact for floats and signed integers.
Status arg_min(NodeContext& n) {
  const DType type = n.type(0).dtype;
  if (!ir::is_float(type)) return n.unsupported("ArgMin of {}; cast the operand to float", ir::name_of(type));
  OCTAVO_TRY(const ValueId v, n.emit(Op::neg, {n.in(0)}));
  return arg(n, v);
}

constexpr std::array kReduceRows{
    OpRow{"ReduceMean", "", 1, 0, 1, 2, reduce_mean},
    OpRow{"ReduceSum", "", 1, 0, 1, 2, plain<Op::reduce_sum, 13>},
    OpRow{"ReduceMax", "", 1, 0, 1, 2, extreme<Op::reduce_max>},
    OpRow{"ReduceMin", "", 1, 0, 1, 2, extreme<Op::reduce_min>},
    OpRow{"ReduceProd", "", 1, 0, 1, 2, plain<Op::reduce_prod, 18>},
    OpRow{"ReduceL1", "", 1, 0, 1, 2, reduce_l1},
    OpRow{"ReduceL2", "", 1, 0, 1, 2, plain<Op::reduce_l2, 18>},
    OpRow{"ReduceSumSquare", "", 1, 0, 1, 2, reduce_sum_square},
    OpRow{"ReduceLogSum", "", 1, 0, 1, 2, reduce_log_sum},
    OpRow{"ReduceLogSumExp", "", 1, 0, 1, 2, reduce_log_sum_exp},
    OpRow{"ArgMax", "", 1, 0, 1, 1, arg_max},
    OpRow{"ArgMin", "", 1, 0, 1, 1, arg_min},
};

}  // namespace

Family reduce_ops() {
  return kReduceRows;
}

}  // namespace octavo::onnx
