// random_network: blocks over a pool of values; each block reads values that exist already and adds its results.
// Over 400 lines: one short function a kind of block, all on the same pool.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/codes.h"
#include "support/graph_maker.h"
#include "support/placement.h"

namespace octavo::testing {
namespace {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Quantizer;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;
using Ints = std::vector<std::int64_t>;

class Network : GraphMaker {
 public:
  Network(std::uint64_t seed, const NetworkOptions& options) : GraphMaker("random_network", seed, 7), options_(options) {}

  ir::Graph build() {
    g_.name = "random";
    if (options_.half_arithmetic && chance(15)) arith_ = chance(70) ? DType::f16 : DType::bf16;
    const int inputs = 1 + below(2);
    for (int i = 0; i < inputs; ++i) add_input(i);
    const int blocks = options_.min_blocks + below(options_.max_blocks - options_.min_blocks + 1);
    for (int i = 0; i < blocks; ++i) block();
    outputs();
    return std::move(g_);
  }

 private:
  ValueId keep(ValueId v) {
    if (ir::count(shape(v)) > 0 && ir::count(shape(v)) <= 240) pool_.push_back(v);
    return v;
  }

  void add_input(int i) {
    const Shape dims{1 + below(2), 1 + below(4), 3 + below(3), 3 + below(3)};
    const std::string n = "input" + std::to_string(i);
    if (options_.typed_edges && chance(20)) {
      const Quantizer q = quantizer();
      const ValueId codes = g_.add_input(n, {q.type, dims});
      keep(g_.add_quantizer(Op::dequantize, codes, q, {DType::f32, dims}, origin(), name()));
      if (chance(30)) codes_.push_back({codes, q});
    } else {
      keep(g_.add_input(n, {DType::f32, dims}));
    }
  }

  float scale() { return std::ldexp(0.5F + static_cast<float>(below(1 << 20)) * 0x1p-21F, one_of({-6, -5, -4, -3})); }
  Quantizer quantizer() {
    const bool is_signed = chance(50);
    const int zp = one_of({0, 0, is_signed ? -128 : 128, below(256) - (is_signed ? 128 : 0)});
    Quantizer q = ir::per_tensor(is_signed ? DType::s8 : DType::u8, scale(), zp);
    q.arith = arith_;
    q.scale[0] = ir::round_to(arith_, q.scale[0]);
    return q;
  }
  ValueId pair(ValueId v, const Quantizer& q) {
    const ValueId codes = g_.add_quantizer(Op::quantize, v, q, {q.type, shape(v)}, origin(), name());
    Quantizer back = q;
    if (options_.reinterpret && chance(4)) back.scale[0] *= 2;
    return g_.add_quantizer(Op::dequantize, codes, back, {DType::f32, shape(v)}, origin(), name());
  }
  ValueId pair(ValueId v) { return pair(v, quantizer()); }
  ValueId maybe_pair(ValueId v, int percent = 60) { return chance(percent) ? pair(v) : v; }

  ValueId pick() { return pool_[static_cast<std::size_t>(below(static_cast<std::int64_t>(pool_.size())))]; }
  /// A value of rank 4, or of the shape `like` outside dimension `free` (-1: none is free).
  std::optional<ValueId> pick_image() {
    for (int i = 0; i < 8; ++i) {
      const ValueId v = pick();
      if (shape(v).size() == 4) return v;
    }
    return std::nullopt;
  }
  std::optional<ValueId> pick_like(const Shape& like, int free) {
    for (int i = 0; i < 12; ++i) {
      const ValueId v = pick();
      bool same = shape(v).size() == like.size();
      for (std::size_t d = 0; same && d < like.size(); ++d) same = static_cast<int>(d) == free || shape(v)[d] == like[d];
      if (same) return v;
    }
    return std::nullopt;
  }

  /// Coded weights; quantized along `axis` or per tensor. Extremes are frequent.
  ValueId weights(Shape dims, int axis) {
    Tensor codes(DType::s8, dims);
    for (std::int8_t& c : codes.mutable_data<std::int8_t>())
      c = static_cast<std::int8_t>(chance(10) ? one_of({-128, 127}) : below(256) - 128);
    Quantizer q = ir::per_tensor(DType::s8, scale() / 8, chance(80) ? 0 : below(7) - 3);
    const auto entries = static_cast<std::size_t>(dims[static_cast<std::size_t>(axis)]);
    if (entries > 1 && chance(50)) {
      q.axis = axis;
      q.scale.resize(entries);
      for (float& s : q.scale) s = scale() / 8;
      q.zero_point.assign(entries, 0);
    }
    return g_.add_constant(std::move(codes), name() + "_w", q);
  }
  /// none, float, s32 counting in units of the products, or s32 in units of its own.
  ValueId bias(ValueId x, ValueId w, std::int64_t channels) {
    const int kind = below(4);
    if (kind == 0) return ir::kNone;
    const auto n = static_cast<std::size_t>(channels);
    if (kind == 1) {
      std::vector<float> values(n);
      for (float& v : values) v = static_cast<float>(below(2001) - 1000) / 256;
      return g_.add_constant(Tensor::of<float>({channels}, values), name() + "_b");
    }
    std::vector<std::int32_t> codes(n);
    for (std::int32_t& c : codes) c = below(20001) - 10000;
    Quantizer q{DType::s32, std::vector<float>(n, 0.001F), std::vector<std::int32_t>(n, 0), 0, DType::f32};
    const ir::Node& p = g_.producer(x);
    if (kind == 2 && p.quantizer && p.quantizer->per_tensor()) {
      const Quantizer& wq = *g_.producer(w).quantizer;
      for (std::size_t c = 0; c < n; ++c)
        q.scale[c] = p.quantizer->scale[0] * wq.scale_at(static_cast<std::int64_t>(c % wq.entries()));
    }
    return g_.add_constant(Tensor::of<std::int32_t>({channels}, codes), name() + "_b", ir::collapse_axis(q));
  }

  ValueId conv(ValueId x, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t group,
               std::int64_t dilation = 1) {
    const std::int64_t in = shape(x)[1];
    while (dilation > 1 && std::min(shape(x)[2], shape(x)[3]) < (kernel - 1) * dilation + 1) --dilation;
    const std::int64_t pad = kernel > 1 ? below(2) + (std::min(shape(x)[2], shape(x)[3]) < kernel ? 1 : 0) : 0;
    const ValueId w = weights({out, in / group, kernel, kernel}, 0);
    std::vector<ValueId> operands{x, w};
    if (const ValueId b = bias(x, w, out); b != ir::kNone) operands.push_back(b);
    return op(Op::conv, operands,
              {{"strides", Ints{stride, stride}},
               {"pads", Ints{pad, pad, pad, pad}},
               {"dilations", Ints{dilation, dilation}},
               {"group", group}});
  }

  ValueId any_conv(ValueId x) {
    const std::int64_t channels = shape(x)[1], extent = std::min(shape(x)[2], shape(x)[3]);
    const std::int64_t kernel = extent >= 2 && chance(60) ? (extent >= 3 ? 3 : 2) : 1;
    switch (below(6)) {
      case 0: return conv(x, channels, kernel, 1, channels);                                    // depthwise
      case 1: return conv(x, channels % 2 == 0 ? 4 : 2, kernel, 1, channels % 2 == 0 ? 2 : 1);  // grouped
      case 2: return conv(x, 1 + below(5), kernel, 2, 1);                                       // strided
      case 3: return conv(x, 1 + below(4), kernel, 1, 1, 2);                                    // dilated
      case 4: {
        const std::int64_t group = channels % 2 == 0 && chance(30) ? 2 : 1, out = 1 + below(3);
        const ValueId w = weights({channels, out, 2, 2}, 1);
        std::vector<ValueId> operands{x, w};
        if (const ValueId b = bias(x, w, out * group); b != ir::kNone) operands.push_back(b);
        const std::int64_t stride = 1 + below(2);
        return op(Op::conv_transpose, operands,
                  {{"strides", Ints{stride, stride}}, {"pads", Ints(4, extent > 1 ? below(2) : 0)}, {"group", group}});
      }
      default: return conv(x, 1 + below(5), kernel, 1, 1);
    }
  }

  ValueId activation(ValueId x) {
    switch (below(8)) {
      case 0:
      case 1: return op(Op::relu, {x});
      case 2: return op(Op::clip, {x}, {{"min", 0.0}, {"max", 6.0}});
      case 3: return op(Op::clip, {x}, {{"min", -0.5}, {"max", static_cast<double>(scale() * 40)}});
      case 4: return op(Op::leaky_relu, {x}, {{"alpha", static_cast<double>(0.1F)}});
      case 5: return op(Op::hard_swish, {x});
      case 6: {
        const ValueId s = maybe_pair(op(Op::sigmoid, {x}), 30);
        return op(Op::mul, {x, s});
      }
      default: return x;
    }
  }

  void block() {
    const std::optional<ValueId> image = pick_image();
    switch (image ? below(14) : 11) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const ValueId x = chance(85) ? pair(*image) : *image;
        keep(maybe_pair(activation(maybe_pair(any_conv(x), 25))));
        return;
      }
      case 4: return residual(*image);
      case 5:
      case 6: return concat(*image);
      case 7: return options_.shuffles && chance(50) ? shuffle(*image) : split(*image);
      case 8: return pool(*image);
      case 9: return resize(*image);
      case 10: return squeeze_excite(*image);
      case 11: return gemm();
      default: {
        ValueId v = maybe_pair(pick(), 30);
        for (int i = 1 + below(3); i > 0; --i) v = maybe_pair(options_.rare_moves ? any_move(v) : plain_move(v), 35);
        if (chance(30)) v = maybe_pair(activation(v));
        keep(v);
      }
    }
  }

  void residual(ValueId a) {
    const ValueId b = pick_like(shape(a), -1).value_or(a);
    const Op how = one_of({Op::add, Op::add, Op::mul, Op::max, Op::min});
    // Of zeros of both signs max and min take the second operand's: labelled operands have no -0, so operands may be swapped.
    const int labelled = how == Op::max || how == Op::min ? 100 : 60;
    ValueId sum = op(how, {maybe_pair(a, labelled), maybe_pair(b, labelled)});
    if (chance(50)) sum = op(Op::relu, {sum});
    keep(maybe_pair(sum));
  }

  void concat(ValueId a) {
    std::vector<ValueId> parts{a};
    for (int i = 1 + below(2); i > 0; --i) parts.push_back(pick_like(shape(a), 1).value_or(a));
    const int style = below(4);  // no labels, equal, unequal, partial
    const Quantizer q = quantizer();
    for (ValueId& p : parts) {
      if (style == 1) p = pair(p, q);
      if (style == 2) p = pair(p);
      if (style == 3) p = maybe_pair(p, 50);
    }
    keep(maybe_pair(op(Op::concat, parts, {{"axis", std::int64_t{1}}})));
  }

  void split(ValueId x) {
    const Shape dims = shape(x);
    if (dims[1] < 2) return;
    const ValueId from = maybe_pair(x);
    const std::int64_t at = 1 + below(dims[1] - 1);
    Ints starts(4, 0), ends = dims;
    ends[1] = at;
    keep(maybe_pair(op(Op::slice, {from}, {{"starts", starts}, {"ends", ends}}), 40));
    starts[1] = at;
    ends[1] = dims[1];
    keep(maybe_pair(op(Op::slice, {from}, {{"starts", starts}, {"ends", ends}}), 40));
  }

  /// A ShuffleNet unit: two halves concatenated, their channels interleaved, and split again.
  void shuffle(ValueId a) {
    std::vector<ValueId> parts{a, pick_like(shape(a), -1).value_or(a)};
    for (ValueId& p : parts) p = maybe_pair(p, 50);
    ValueId x = op(Op::concat, parts, {{"axis", std::int64_t{1}}});
    const Shape dims = shape(x);
    const std::int64_t groups = chance(70) ? 2 : dims[1] / 2, pixels = dims[2] * dims[3];
    x = maybe_pair(x, 40);
    const bool joined = chance(30);
    x = op(Op::reshape, {x},
           {{"shape", joined ? Ints{dims[0], groups, dims[1] / groups, pixels}
                             : Ints{dims[0], groups, dims[1] / groups, dims[2], dims[3]}}});
    x = op(Op::transpose, {maybe_pair(x, 30)}, {{"perm", joined ? Ints{0, 2, 1, 3} : Ints{0, 2, 1, 3, 4}}});
    x = op(Op::reshape, {maybe_pair(x, 30)}, {{"shape", dims}});
    if (chance(30)) return void(keep(maybe_pair(x, 50)));
    if (chance(20)) keep(x);
    split(keep(maybe_pair(x, 30)));
  }

  void pool(ValueId x) {
    const std::int64_t extent = std::min(shape(x)[2], shape(x)[3]),
                       kernel = extent >= 3 && chance(50) ? 3 : std::min<std::int64_t>(2, extent);
    const std::int64_t pad = kernel > 1 ? below(2) : 0;
    const bool average = chance(35);
    Attrs attrs{{"kernel", Ints{kernel, kernel}}, {"strides", Ints(2, 1 + below(2))}, {"pads", Ints{pad, pad, pad, pad}}};
    if (average) attrs["count_include_pad"] = std::int64_t{below(2)};
    keep(maybe_pair(op(average ? Op::avg_pool : Op::max_pool, {maybe_pair(x)}, attrs)));
  }

  void resize(ValueId x) {
    if (ir::count(shape(x)) > 60) return;
    const ValueId from = maybe_pair(x);
    if (chance(25)) {
      keep(maybe_pair(op(Op::resize_linear, {from},
                         {{"scales", std::vector<double>{1, 1, 2, 2}}, {"coordinate_mode", std::string("half_pixel")}})));
      return;
    }
    Attrs attrs;
    for (const int d : {2, 3}) {
      Ints index;
      for (std::int64_t i = 0; i < 2 * shape(x)[static_cast<std::size_t>(d)]; ++i) index.push_back(i / 2);
      attrs["index" + std::to_string(d)] = index;
    }
    keep(maybe_pair(op(Op::resize_nearest, {from}, attrs)));
  }

  void squeeze_excite(ValueId x) {
    const ValueId a = maybe_pair(x, 80);
    const ValueId mean = maybe_pair(op(Op::reduce_mean, {a}, {{"axes", Ints{2, 3}}, {"keepdims", std::int64_t{1}}}), 80);
    const ValueId hidden = maybe_pair(op(Op::relu, {conv(mean, 2, 1, 1, 1)}), 80);
    const ValueId gate = maybe_pair(op(Op::sigmoid, {conv(hidden, shape(x)[1], 1, 1, 1)}), 70);
    keep(maybe_pair(op(Op::mul, {a, gate})));
  }

  void gemm() {
    const ValueId v = pick();
    const std::int64_t rows = shape(v).empty() ? 1 : shape(v)[0];
    const ValueId flat = op(Op::reshape, {v}, {{"shape", Ints{rows, ir::count(shape(v)) / rows}}});
    const ValueId x = maybe_pair(flat, 85);
    const ValueId w = weights({shape(x)[1], 1 + below(5)}, 1);
    std::vector<ValueId> operands{x, w};
    if (const ValueId b = bias(x, w, shape(w)[1]); b != ir::kNone) operands.push_back(b);
    keep(maybe_pair(activation(op(Op::gemm, operands))));
  }

  /// Transpose, reshape, slice, pad: what exporters write between layers.
  ValueId plain_move(ValueId v) {
    const Shape dims = shape(v);
    const std::size_t rank = dims.size();
    if (rank == 0) return v;
    switch (below(4)) {
      case 0: {
        Ints perm;
        for (std::size_t i = 0; i < rank; ++i) perm.push_back(static_cast<std::int64_t>(i));
        std::shuffle(perm.begin(), perm.end(), random_);
        return op(Op::transpose, {v}, {{"perm", perm}});
      }
      case 1:
        return op(Op::reshape, {v}, {{"shape", chance(50) ? Ints{ir::count(dims)} : Ints{1, dims[0], ir::count(dims) / dims[0]}}});
      case 2: {
        Ints starts(rank, 0), ends = dims, steps(rank, 1);
        const auto d = static_cast<std::size_t>(below(static_cast<std::int64_t>(rank)));
        if (chance(30)) {
          starts[d] = dims[d] - 1, ends[d] = -1, steps[d] = -1;
        } else {
          starts[d] = below(dims[d]);
        }
        return op(Op::slice, {v}, {{"starts", starts}, {"ends", ends}, {"steps", steps}});
      }
      default: {
        Ints pads(2 * rank, 0);
        for (std::size_t d = rank > 2 ? rank - 2 : 0; d < rank; ++d) pads[d] = below(2), pads[d + rank] = below(2);
        const bool constant = chance(60);
        Attrs attrs{{"pads", pads}, {"mode", std::string(constant ? "constant" : "edge")}};
        if (constant) attrs["value"] = chance(50) ? 0.0 : static_cast<double>(scale() * static_cast<float>(below(40) - 20));
        return op(Op::pad, {v}, attrs);
      }
    }
  }

  ValueId any_move(ValueId v) {
    const Shape dims = shape(v);
    const auto rank = static_cast<std::int64_t>(dims.size());
    if (rank == 0) return v;
    const std::int64_t axis = below(rank);
    const std::int64_t extent = dims[static_cast<std::size_t>(axis)];
    const bool small = ir::count(dims) <= 100;
    const auto indices = [&](Shape s, std::int64_t limit) {
      std::vector<std::int64_t> values;
      for (std::int64_t i = 0; i < ir::count(s); ++i) values.push_back(below(limit));
      return g_.add_constant(Tensor::of<std::int64_t>(std::move(s), values), name() + "_i");
    };
    switch (below(16)) {
      case 0:
      case 1: return op(Op::gather, {v, indices(chance(30) ? Shape{} : Shape{1 + below(3)}, extent)}, {{"axis", axis}});
      case 2: return op(Op::gather_elements, {v, indices(dims, extent)}, {{"axis", axis}});
      case 3: return op(Op::gather_nd, {v, indices({2, 1}, dims[0])});
      case 4: {
        Shape out = dims;
        if (small) out.insert(out.begin(), 1 + below(2));
        return op(Op::expand, {v}, {{"shape", out}});
      }
      case 5: {
        Ints repeats(dims.size(), 1);
        if (small) repeats[static_cast<std::size_t>(axis)] = 2;
        return op(Op::tile, {v}, {{"repeats", repeats}});
      }
      case 6:
        if (rank != 4 || dims[1] % 4 != 0) return plain_move(v);
        return op(Op::depth_to_space, {v}, {{"blocksize", std::int64_t{2}}, {"mode", std::string(chance(50) ? "DCR" : "CRD")}});
      case 7:
        if (rank != 4 || dims[2] % 2 != 0 || dims[3] % 2 != 0) return plain_move(v);
        return op(Op::space_to_depth, {v}, {{"blocksize", std::int64_t{2}}});
      case 8:
      case 9:
        return op(chance(50) ? Op::reduce_max : Op::reduce_min, {v}, {{"axes", Ints{axis}}, {"keepdims", std::int64_t{below(2)}}});
      case 10: {
        Tensor condition(DType::boolean, dims);
        for (std::uint8_t& c : condition.mutable_data<std::uint8_t>()) c = static_cast<std::uint8_t>(below(2));
        const ValueId other = pick_like(dims, -1).value_or(v);
        return op(Op::where, {g_.add_constant(std::move(condition), name() + "_c"), v, maybe_pair(other, 30)});
      }
      case 11: {
        const ValueId limit =
            g_.add_constant(Tensor::scalar<float>(scale() * (0.5F + static_cast<float>(below(60) - 30))), name() + "_l");
        return op(chance(50) ? Op::max : Op::min, {v, limit});
      }
      default: return plain_move(v);
    }
  }

  void outputs() {
    // Every value that nothing reads, one more that something reads, sometimes one twice.
    std::vector<ValueId> list;
    for (ValueId v = 0; v < g_.value_capacity(); ++v) {
      if (g_.use_count(v) == 0 && g_.producer(v).op != Op::input && g_.producer(v).op != Op::constant) list.push_back(v);
    }
    if (list.empty() || chance(40)) list.push_back(pick());
    if (chance(10)) list.push_back(list.front());
    for (const Codes& c : codes_) list.push_back(c.value);
    for (ValueId v : list) {
      if (options_.typed_edges && ir::is_float(g_.type(v).dtype) && chance(30)) {
        const Quantizer q = quantizer();
        ValueId codes = g_.add_quantizer(Op::quantize, v, q, {q.type, shape(v)}, origin(), name());
        if (chance(40) && !shape(v).empty()) codes = plain_move_of_codes(codes);
        v = codes;
      }
      g_.outputs.push_back(v);
      g_.output_names.push_back("output" + std::to_string(g_.outputs.size() - 1));
    }
  }

  ValueId plain_move_of_codes(ValueId v) {
    Ints perm(shape(v).size());
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(perm.size() - 1 - i);
    return op(Op::transpose, {v}, {{"perm", perm}});
  }

  struct Codes {
    ValueId value;
    Quantizer q;
  };
  const NetworkOptions& options_;
  std::vector<ValueId> pool_;
  std::vector<Codes> codes_;  ///< 8-bit inputs that leave the network as codes too
  DType arith_ = DType::f32;
};

}  // namespace

ir::Graph random_network(std::uint64_t seed, const NetworkOptions& options) {
  return Network(seed, options).build();
}

bool has_loose_codes(const ir::Graph& g) {
  for (const ir::NodeId id : g.order()) {
    const auto& q = g.node(id).quantizer;
    if (q && q->arith != ir::DType::f32 && !quant::gives_back(*q)) return true;
  }
  return false;
}

}  // namespace octavo::testing
