#include "reference/oracle_provider.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "program/program.h"
#include "reference/evaluate.h"
#include "region/host_kernel.h"
#include "region/store_results.h"

namespace octavo::reference {
namespace {

using ir::DType;
using ir::Op;
using program::Scalar;
using region::Memory;
using region::Stage;
using region::TensorRef;

template <class T>
T get(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void put(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

std::byte* element(const Memory& m, const TensorRef& r, const ir::Shape& index) {
  std::int64_t at = 0;
  for (std::size_t k = 0; k < r.strides.size(); ++k) at += index[k] * r.strides[k];
  return m.at(r) + at * static_cast<std::int64_t>(ir::size_of(r.dtype));
}

// A code, an element of one byte, where the strides are known.
int code(const std::byte* p, bool is_signed = false) {
  return is_signed ? static_cast<int>(get<std::int8_t>(p)) : static_cast<int>(get<std::uint8_t>(p));
}

Scalar load(const std::byte* p, DType t) {
  Scalar s{};
  switch (t) {
    case DType::f32: s.f = get<float>(p); break;
    case DType::f16: s.f = f16_to_f32(get<std::uint16_t>(p)); break;
    case DType::bf16: s.f = bf16_to_f32(get<std::uint16_t>(p)); break;
    case DType::boolean:
    case DType::u8: s.i = get<std::uint8_t>(p); break;
    case DType::s8: s.i = get<std::int8_t>(p); break;
    default: s.i = get<std::int32_t>(p); break;
  }
  return s;
}

void store(std::byte* p, DType t, Scalar s) {
  switch (t) {
    case DType::f32: put(p, s.f); break;
    case DType::f16: put(p, f32_to_f16(s.f)); break;
    case DType::bf16: put(p, f32_to_bf16(s.f)); break;
    case DType::boolean:
    case DType::u8: put(p, static_cast<std::uint8_t>(s.i)); break;
    case DType::s8: put(p, static_cast<std::int8_t>(s.i)); break;
    default: put(p, s.i); break;
  }
}

bool next(ir::Shape& index, const ir::Shape& dims) {
  for (std::size_t k = dims.size(); k-- > 0;) {
    if (++index[k] < dims[k]) return true;
    index[k] = 0;
  }
  return false;
}

// Dense copy of a strided ref; codes are decoded to the floats they stand for, or stay what they are, as floats.
ir::Tensor gather(const Memory& m, const TensorRef& r, bool as_codes = false) {
  const bool coded = r.quantizer && r.dtype == DType::u8;
  ir::Tensor out(coded ? DType::f32 : r.dtype, r.dims);
  if (out.size() == 0) return out;
  ir::Shape index(r.dims.size(), 0);
  const std::size_t bytes = ir::size_of(out.dtype());
  std::byte* to = out.mutable_bytes().data();
  do {
    const std::byte* from = element(m, r, index);
    if (coded && as_codes) {
      put(to, static_cast<float>(get<std::uint8_t>(from)));
    } else if (coded) {
      const std::int64_t c = r.quantizer->per_tensor() ? 0 : index[static_cast<std::size_t>(r.quantizer->axis)];
      put(to, ir::dequantize_one(get<std::uint8_t>(from), r.quantizer->scale_at(c), r.quantizer->zero_at(c), r.quantizer->arith));
    } else {
      std::memcpy(to, from, bytes);
    }
    to += bytes;
  } while (next(index, r.dims));
  return out;
}

class Oracle final : public region::HostKernel {
 public:
  explicit Oracle(const region::Region& r) : region_(r) {}
  void run(const Memory& memory, int, int, const region::Worker&) const override {
    for (const Stage& s : region_.stages) run_stage(memory, s);
  }

 private:
  static void run_stage(const Memory& m, const Stage& s) {
    std::vector<ir::Tensor> results;
    const Op op = s.anchor.op;
    const bool windowed =
        s.anchor.integer && s.space.size() == 4 && (op == Op::conv || op == Op::conv_transpose || op == Op::avg_pool);
    const bool summed = s.anchor.integer && (op == Op::reduce_mean || op == Op::reduce_sum);
    const bool product = s.anchor.integer && op == Op::matmul;
    if (!s.anchor.none() && !windowed && !summed && !product) results = evaluate_anchor(m, s);
    if (s.program.outputs.empty()) {
      for (std::size_t i = 0; i < s.stores.size(); ++i) {
        const std::size_t k = region::result_of_store(s.anchor, i);
        if (k < results.size()) scatter(m, s.stores[i], results[k]);
      }
      return;
    }
    if (ir::count(s.space) == 0) return;
    std::vector<Scalar> operands(s.operands.size()), out(s.program.outputs.size()), scratch;
    ir::Shape index(s.space.size(), 0), divided(s.space.size(), 0);
    std::int64_t flat = 0;
    do {
      Scalar acc{};
      if (windowed)
        acc.i = op == Op::conv ? conv(m, s, index) : op == Op::avg_pool ? window_sum(m, s, index) : deconv(m, s, index);
      else if (summed)
        acc.i = axis_sum(m, s, index);
      else if (product)
        acc.i = product_of_rows(m, s, index);
      else if (!results.empty())
        acc = anchor_value(s, results[0], flat);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const region::Operand& o = s.operands[k];
        for (std::size_t d = 0; d < index.size(); ++d) divided[d] = o.div.empty() ? index[d] : index[d] / o.div[d];
        operands[k] = load(element(m, o.ref, divided), o.ref.dtype);
      }
      program::interpret(s.program, acc, operands, out, scratch);
      for (std::size_t j = 0; j < out.size(); ++j) store(element(m, s.stores[j], index), s.stores[j].dtype, out[j]);
      ++flat;
    } while (next(index, s.space));
  }

  // An operator that moves or selects codes of one grid is evaluated on the codes: not every quantizer gives a value's code back.
  static bool on_codes(const Stage& s) {
    return s.anchor.integer && s.anchor.inputs[0].quantizer && s.anchor.inputs[0].dtype == DType::u8 && s.anchor.op != Op::pad &&
           ir::has_trait(s.anchor.op, ir::kMove);
  }

  static Scalar anchor_value(const Stage& s, const ir::Tensor& t, std::int64_t flat) {
    Scalar acc{};
    const float v = static_cast<float>(t.at(flat));
    const TensorRef& in = s.anchor.inputs[0];
    if (on_codes(s)) {
      acc.i = static_cast<std::int32_t>(v);
    } else if (s.anchor.integer && in.quantizer) {  // pad: its value is a float
      acc.i = ir::quantize_one(v, in.quantizer->scale[0], in.quantizer->zero_point[0], 0, 255, in.quantizer->arith);
    } else {
      acc.f = v;
    }
    return acc;
  }

  static void scatter(const Memory& m, const TensorRef& r, const ir::Tensor& t) {
    if (t.size() == 0) return;
    ir::Shape index(r.dims.size(), 0);
    const std::byte* from = t.bytes().data();
    do {
      std::memcpy(element(m, r, index), from, ir::size_of(r.dtype));
      from += ir::size_of(r.dtype);
    } while (next(index, r.dims));
  }

  // Float anchors and everything without a rule of its own: the graph evaluator on a one-node graph.
  static std::vector<ir::Tensor> evaluate_anchor(const Memory& m, const Stage& s) {
    std::vector<ir::Tensor> inputs;
    for (const TensorRef& r : s.anchor.inputs) inputs.push_back(gather(m, r, on_codes(s)));
    if (s.anchor.weights) inputs.push_back(gather(m, *s.anchor.weights));
    const bool weighted = s.anchor.weights || s.anchor.op == Op::matmul;
    if (weighted || !s.program.outputs.empty()) {
      for (ir::Tensor& t : inputs) {  // what a program continues with is a float, not rounded to the type of the operands
        if (t.dtype() == DType::bf16 || (t.dtype() == DType::f16 && !s.program.outputs.empty())) t = t.to_f32();
      }
    }
    if (s.anchor.op == Op::reshape && s.program.outputs.empty()) return inputs;
    ir::Graph g;
    ir::Node n;
    n.op = s.anchor.op;
    n.attrs = region::attributes_of(s.anchor);
    for (const ir::Tensor& t : inputs) n.inputs.push_back(g.add_constant(t));
    const auto types = ir::infer(g, n);
    if (!types) return {};
    const ir::NodeId id = g.add_node(std::move(n), *types);
    auto result = evaluate_node(g, ir::Grids{}, id, inputs);
    return result ? std::move(*result) : std::vector<ir::Tensor>{};
  }

  static std::int32_t weight_zero(const Stage& s, std::int64_t channel) {
    const auto& z = s.anchor.weight_zero;
    return z.empty() ? 0 : z[z.size() == 1 ? 0 : static_cast<std::size_t>(channel) % z.size()];
  }

  static std::int32_t conv(const Memory& m, const Stage& s, const ir::Shape& o) {
    const auto& w = s.anchor.as<ir::Window>();
    const TensorRef& x = s.anchor.inputs[0];
    const TensorRef& k = *s.anchor.weights;
    const std::int32_t zx = x.quantizer->zero_point[0], zw = weight_zero(s, o[1]);
    const std::int64_t first = o[1] / (s.space[1] / w.group) * k.dims[1];
    const std::byte *px = m.at(x) + o[0] * x.strides[0] + first * x.strides[1], *pk = m.at(k) + o[1] * k.strides[0];
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < k.dims[2]; ++i) {
      const std::int64_t y = o[2] * w.strides[0] - w.pads[0] + i * w.dilations[0];
      if (y < 0 || y >= x.dims[2]) continue;
      for (std::int64_t j = 0; j < k.dims[3]; ++j) {
        const std::int64_t z = o[3] * w.strides[1] - w.pads[1] + j * w.dilations[1];
        if (z < 0 || z >= x.dims[3]) continue;
        const std::byte *at = px + y * x.strides[2] + z * x.strides[3], *by = pk + i * k.strides[2] + j * k.strides[3];
        for (std::int64_t c = 0; c < k.dims[1]; ++c)
          sum += (code(at + c * x.strides[1]) - zx) * (code(by + c * k.strides[1], true) - zw);
      }
    }
    return sum;
  }

  /// An element of the product of two matrices of codes, whose leading dimensions are broadcast.
  static std::int32_t product_of_rows(const Memory& m, const Stage& s, const ir::Shape& o) {
    const TensorRef &a = s.anchor.inputs[0], &b = s.anchor.inputs[1];
    const std::int32_t za = a.quantizer->zero_point[0], zb = b.quantizer->zero_point[0];
    const auto place = [&](const TensorRef& t) {
      ir::Shape at(t.dims.size(), 0);
      for (std::size_t d = 0; d + 2 < at.size(); ++d) at[d] = t.dims[d] == 1 ? 0 : o[d + o.size() - at.size()];
      return at;
    };
    ir::Shape left = place(a), right = place(b);
    left[left.size() - 2] = o[o.size() - 2], right.back() = o.back();
    const std::byte *pa = element(m, a, left), *pb = element(m, b, right);
    const std::int64_t step_a = a.strides.back(), step_b = b.strides[right.size() - 2];
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < a.dims.back(); ++k) sum += (code(pa + k * step_a) - za) * (code(pb + k * step_b) - zb);
    return sum;
  }

  static std::int32_t deconv(const Memory& m, const Stage& s, const ir::Shape& o) {
    const auto& w = s.anchor.as<ir::Window>();
    const TensorRef& x = s.anchor.inputs[0];
    const TensorRef& k = *s.anchor.weights;
    const std::int64_t per_group = x.dims[1] / w.group, g = o[1] / k.dims[1], oc = o[1] % k.dims[1];
    const std::int32_t zx = x.quantizer->zero_point[0], zw = weight_zero(s, oc);
    const std::byte *px = m.at(x) + o[0] * x.strides[0], *pk = m.at(k) + oc * k.strides[1];
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < k.dims[2]; ++i) {
      for (std::int64_t j = 0; j < k.dims[3]; ++j) {
        const std::int64_t y = o[2] + w.pads[0] - i * w.dilations[0], z = o[3] + w.pads[1] - j * w.dilations[1];
        if (y < 0 || z < 0 || y % w.strides[0] != 0 || z % w.strides[1] != 0) continue;
        if (y / w.strides[0] >= x.dims[2] || z / w.strides[1] >= x.dims[3]) continue;
        const std::byte* at = px + y / w.strides[0] * x.strides[2] + z / w.strides[1] * x.strides[3];
        const std::byte* by = pk + i * k.strides[2] + j * k.strides[3];
        for (std::int64_t c = g * per_group; c < (g + 1) * per_group; ++c)
          sum += (code(at + c * x.strides[1]) - zx) * (code(by + c * k.strides[0], true) - zw);
      }
    }
    return sum;
  }

  static std::int32_t window_sum(const Memory& m, const Stage& s, const ir::Shape& o) {
    const auto& w = s.anchor.as<ir::Window>();
    const TensorRef& x = s.anchor.inputs[0];
    const std::byte* px = m.at(x) + o[0] * x.strides[0] + o[1] * x.strides[1];
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < w.kernel[0]; ++i) {
      for (std::int64_t j = 0; j < w.kernel[1]; ++j) {
        const std::int64_t y = o[2] * w.strides[0] - w.pads[0] + i * w.dilations[0],
                           z = o[3] * w.strides[1] - w.pads[1] + j * w.dilations[1];
        if (y < 0 || y >= x.dims[2] || z < 0 || z >= x.dims[3]) continue;
        sum += code(px + y * x.strides[2] + z * x.strides[3]) - x.quantizer->zero_point[0];
      }
    }
    return sum;
  }

  // Reductions with keepdims 0 or 1: the kept dimensions follow in order.
  static std::int32_t axis_sum(const Memory& m, const Stage& s, const ir::Shape& o) {
    const TensorRef& x = s.anchor.inputs[0];
    const auto& [axes, keep] = s.anchor.as<ir::Reduction>();
    ir::Shape index(x.dims.size(), 0), extent(x.dims.size(), 1), base(x.dims.size(), 0);
    std::size_t out = 0;
    for (std::size_t d = 0; d < x.dims.size(); ++d) {
      const bool reduced = axes.empty() || std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end();
      if (reduced)
        extent[d] = x.dims[d];
      else
        base[d] = o[out];
      if (!reduced || keep) ++out;
    }
    const std::byte* px = element(m, x, base);
    std::int32_t sum = 0;
    do {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * x.strides[d];
      sum += code(px + at) - x.quantizer->zero_point[0];
    } while (next(index, extent));
    return sum;
  }

  region::Region region_;
};

class OracleProvider final : public region::Provider {
 public:
  std::string_view name() const override { return "reference"; }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override { return {{tactic(), {}, 1.0}}; }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan&,
                                               const region::ArtifactView&) const override {
    if (r.tactic != tactic())
      return fail(ErrorKind::bad_engine, "tactic \"" + r.tactic.name() + "\" is not one of the reference's");
    if (!r.packed.empty())  // a region with packed constants may leave its weights empty
      return fail(ErrorKind::bad_engine,
                  "the reference takes no packed constants, the region has " + std::to_string(r.packed.size()));
    return std::make_unique<Oracle>(r);
  }

 private:
  static region::Tactic tactic() {
    region::Tactic t;
    t.provider = "reference";
    t.family = "region";
    t.vector = false;
    t.reference = true;
    return t;
  }
};

}  // namespace

const region::Provider& oracle_provider() {
  static const OracleProvider provider;
  return provider;
}

}  // namespace octavo::reference
