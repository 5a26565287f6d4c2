#include "support/operator_forms.h"

#include <tuple>

namespace octavo::testing {
namespace {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Shape;
using Ints = std::vector<std::int64_t>;

const Shape kImage{2, 8, 12, 12}, kMatrix{6, 40}, kRow{40};

void add(std::vector<Form>& to, Op op, std::vector<In> inputs, Attrs attrs = {}, const std::string& form = "",
         std::optional<ir::Quantizer> q = {}, std::set<DType> types = {}) {
  to.push_back({std::string(ir::name_of(op)) + (form.empty() ? "" : " " + form), op, std::move(inputs), std::move(attrs),
                std::move(q), std::move(types)});
}

void add_quantization(std::vector<Form>& to) {
  for (const DType codes : {DType::u8, DType::s8, DType::u16, DType::s16, DType::s32}) {
    const std::string name(ir::name_of(codes));
    if (ir::is_int8(codes)) {  // others are written out by the importer
      const ir::Quantizer q = ir::per_tensor(codes, 0.5F, 1);
      add(to, Op::view, {{kMatrix}}, {}, "in " + name, q, {DType::f32});
      add(to, Op::quantize, {{kMatrix}}, {}, "to " + name, q, {DType::f32, DType::f16, DType::bf16, DType::s32});
      add(to, Op::dequantize, {{kMatrix}}, {}, "of " + name, q);
    }
    add(to, Op::quantize_rt, {{kMatrix}, {{1}, DType::f32}, {{1}, codes}}, {}, "to " + name);
    add(to, Op::dequantize_rt, {{kMatrix}, {{1}, DType::f32}, {{1}, codes}}, {}, "of " + name);
  }
  add(to, Op::dynamic_quantize, {{kMatrix}});
}

void add_anchors(std::vector<Form>& to) {
  const In weights{{8, 8, 3, 3}, DType::f32, true};
  const Attrs window{{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{0, 0, 0, 0}}};
  add(to, Op::conv, {{kImage}, weights});
  add(to, Op::conv, {{kImage}, {weights.shape}}, {}, "with computed weights");
  add(to, Op::conv_transpose, {{kImage}, weights});
  add(to, Op::conv_transpose, {{kImage}, {weights.shape}}, {}, "with computed weights");
  add(to, Op::gemm, {{kMatrix}, {{40, 24}, DType::f32, true}});
  add(to, Op::gemm, {{kMatrix}, {{40, 24}}}, {}, "with computed weights");
  // Products of bfloat16 are asked for by the planner, where the processor has instructions for them.
  add(to, Op::matmul, {{kMatrix}, {{40, 24}}}, {}, "", {}, {DType::f32, DType::f16, DType::f64, DType::s32, DType::u8});
  add(to, Op::max_pool, {{kImage}}, window);
  add(to, Op::avg_pool, {{kImage}}, window);
  add(to, Op::max_pool_index, {{kImage}}, window);
  for (const Op op : {Op::reduce_mean, Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod, Op::reduce_l2})
    add(to, op, {{kMatrix}}, {{"axes", Ints{1}}});
  for (const Op op : {Op::softmax, Op::log_softmax, Op::arg_max}) add(to, op, {{kMatrix}}, {{"axis", std::int64_t{1}}});
  const Attrs twice{{"scales", std::vector<double>{1, 1, 2, 2}}, {"coordinate_mode", std::string("half_pixel")}};
  add(to, Op::resize_linear, {{kImage}}, twice);
  add(to, Op::resize_cubic, {{kImage}}, twice);
  add(to, Op::instance_norm, {{kImage}, {{8}}, {{8}}}, {{"epsilon", 1e-5}});
  add(to, Op::layer_norm, {{kMatrix}, {kRow}, {kRow}}, {{"axis", std::int64_t{1}}, {"epsilon", 1e-5}});
  add(to, Op::lrn, {{kImage}}, {{"size", std::int64_t{3}}, {"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}});
}

void add_indexed(std::vector<Form>& to) {
  for (const char* f : {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"})
    add(to, Op::math, {{kMatrix}}, {{"function", std::string(f)}}, f);
  add(to, Op::bitwise, {{kMatrix}}, {{"function", std::string("not")}}, "not");
  for (const char* f : {"and", "or", "xor", "left", "right"})
    add(to, Op::bitwise, {{kMatrix}, {kMatrix}}, {{"function", std::string(f)}}, f);
  for (const DType t : {DType::u8, DType::u16, DType::s32, DType::f32, DType::s64})
    add(to, Op::bit_cast, {{kMatrix}}, {{"to", std::string(ir::name_of(t))}}, "to " + std::string(ir::name_of(t)));
  for (const char* how : {"none", "add", "mul", "max", "min"}) {
    add(to, Op::scatter, {{kMatrix}, {{6, 3}, DType::s64}, {{6, 3}}},
        {{"kind", std::string("elements")}, {"axis", std::int64_t{1}}, {"reduction", std::string(how)}},
        std::string("elements ") + how);
    add(to, Op::scatter, {{kMatrix}, {{3, 1}, DType::s64}, {{3, 40}}},
        {{"kind", std::string("nd")}, {"reduction", std::string(how)}}, std::string("nd ") + how);
  }
  add(to, Op::top_k, {{kMatrix}}, {{"k", std::int64_t{5}}, {"axis", std::int64_t{1}}});
  for (const char* f : {"sum", "prod"})
    add(to, Op::cumulate, {{kMatrix}}, {{"axis", std::int64_t{1}}, {"function", std::string(f)}}, f);
  for (const char* mode : {"linear", "nearest", "cubic"})
    add(to, Op::grid_sample, {{kImage}, {{2, 5, 7, 2}}}, {{"mode", std::string(mode)}}, mode);
  for (const char* mode : {"avg", "max"})
    add(to, Op::roi_align, {{kImage}, {{3, 4}}, {{3}, DType::s64}},
        {{"mode", std::string(mode)}, {"output_height", std::int64_t{3}}, {"output_width", std::int64_t{3}}}, mode);
  add(to, Op::deform_conv, {{kImage}, {{8, 8, 3, 3}}, {{2, 18, 10, 10}}, {{8}}, {{2, 9, 10, 10}}});
  for (const auto& [cell, gates, functions] : {std::tuple<const char*, std::int64_t, const char*>{"rnn", 1, "Tanh"},
                                               {"gru", 3, "Sigmoid,Tanh"},
                                               {"lstm", 4, "Sigmoid,Tanh,Tanh"}}) {
    const std::int64_t h = 8, x = 5;
    add(to, Op::recurrent,
        {{{4, 2, x}},
         {{1, gates * h, x}, {}, true},
         {{1, gates * h, h}, {}, true},
         {{1, 2 * gates * h}, {}, true},
         {{2}, DType::s64, true},
         {{1, 2, h}, {}, true},
         {{1, 2, h}, {}, true},
         {{1, 3 * h}, {}, true}},
        {{"cell", std::string(cell)}, {"activations", std::string(functions)}}, cell);
  }
  add(to, Op::det, {{{3, 4, 4}}});
  add(to, Op::non_zero, {{{37}}});
  add(to, Op::non_max_suppression, {{{1, 20, 4}}, {{1, 2, 20}}, {{1}}, {{1}}}, {{"count", std::int64_t{6}}});
}

void add_pointwise(std::vector<Form>& to) {
#define OP(id, text, least, most, traits)                                               \
  if constexpr (((traits)&ir::kPointwise) != 0 && (least) == (most)) {                  \
    switch (Op::id) {                                                                   \
      case Op::view:                                                                    \
      case Op::quantize:                                                                \
      case Op::dequantize:                                                              \
      case Op::quantize_rt:                                                             \
      case Op::dequantize_rt:                                                           \
      case Op::cast:                                                                    \
      case Op::affine:                                                                  \
      case Op::where: break;                                                            \
      case Op::clip: add(to, Op::id, {{kMatrix}}, {{"min", 1.0}, {"max", 6.0}}); break; \
      default: add(to, Op::id, std::vector<In>(least, In{kMatrix}));                    \
    }                                                                                   \
  }
  using ir::kAnchor, ir::kCommute, ir::kImages, ir::kMove, ir::kPointwise;
#include "ir/ops.def"
  add(to, Op::mod, {{kMatrix}, {kMatrix}}, {{"fmod", std::int64_t{1}}}, "fmod");
  add(to, Op::affine, {{kImage}, {{8}, DType::f32, true}, {{8}, DType::f32, true}});
  add(to, Op::where, {{kMatrix, DType::boolean}, {kMatrix}, {kMatrix}});
  for (const DType t : kElementTypes)
    add(to, Op::cast, {{kMatrix}}, {{"to", std::string(ir::name_of(t))}}, "to " + std::string(ir::name_of(t)));
}

void add_moving(std::vector<Form>& to) {
  add(to, Op::transpose, {{kImage}}, {{"perm", Ints{0, 2, 3, 1}}});
  add(to, Op::reshape, {{kMatrix}}, {{"shape", Ints{40, 6}}});
  add(to, Op::slice, {{kMatrix}}, {{"starts", Ints{1, 30}}, {"ends", Ints{5, 2}}, {"steps", Ints{1, -2}}});
  add(to, Op::concat, {{kMatrix}, {kMatrix}}, {{"axis", std::int64_t{0}}});
  for (const char* mode : {"constant", "reflect", "edge"})
    add(to, Op::pad, {{kMatrix}}, {{"pads", Ints{1, 2, 1, 2}}, {"mode", std::string(mode)}, {"value", 1.0}}, mode);
  add(to, Op::resize_nearest, {{kMatrix}}, {{"index1", Ints{0, 0, 1, 1, 5}}});
  add(to, Op::gather, {{kMatrix}, {{7}, DType::s64, true}}, {{"axis", std::int64_t{0}}}, "with constant indices");
  add(to, Op::gather, {{kMatrix}, {{7}, DType::s64}}, {{"axis", std::int64_t{0}}});
  add(to, Op::gather, {{kMatrix}, {{3, 4}, DType::s64}}, {{"axis", std::int64_t{0}}}, "with a matrix of indices");
  add(to, Op::gather_elements, {{kMatrix}, {{6, 9}, DType::s64}}, {{"axis", std::int64_t{1}}});
  add(to, Op::gather_nd, {{kMatrix}, {{5, 2}, DType::s64}});
  add(to, Op::gather_nd, {{kImage}, {{2, 5, 1}, DType::s64}}, {{"batch_dims", std::int64_t{1}}}, "in batches");
  add(to, Op::expand, {{{6, 1}}}, {{"shape", Ints{6, 40}}});
  add(to, Op::tile, {{kMatrix}}, {{"repeats", Ints{2, 1}}});
  add(to, Op::depth_to_space, {{kImage}}, {{"blocksize", std::int64_t{2}}});
  add(to, Op::space_to_depth, {{kImage}}, {{"blocksize", std::int64_t{2}}});
}

}  // namespace

std::vector<Form> operator_forms() {
  std::vector<Form> all;
  add_quantization(all), add_anchors(all), add_indexed(all), add_pointwise(all), add_moving(all);
  return all;
}

std::optional<ir::Graph> graph_of(const Form& f, DType type) {
  ir::Graph g;
  ir::Node n;
  n.op = f.op, n.attrs = f.attrs, n.quantizer = f.quantizer, n.name = f.label, n.origin = {f.label};
  for (const In& in : f.inputs) {
    const ir::TensorType t{in.type.value_or(type), in.shape};
    n.inputs.push_back(in.constant ? g.add_constant(ir::Tensor(t)) : g.add_input("in" + std::to_string(n.inputs.size()), t));
  }
  const auto types = ir::infer(g, n);
  if (!types) return std::nullopt;
  g.outputs = g.node(g.add_node(std::move(n), *types)).outputs;
  for (std::size_t i = 0; i < g.outputs.size(); ++i) g.output_names.push_back("out" + std::to_string(i));
  return g;
}

}  // namespace octavo::testing
