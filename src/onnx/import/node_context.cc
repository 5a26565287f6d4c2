#include "onnx/import/node_context.h"

#include <algorithm>

#include "onnx/import/coded.h"
#include "onnx/import/importer.h"
#include "reference/evaluate.h"

namespace octavo::onnx {
namespace {

/// Codes are never folded to float: Q and DQ of constants have their own form (emit_quantizer).
bool may_fold(Op op) {
  switch (op) {
    case Op::quantize_rt:
    case Op::dequantize_rt: return false;
    default: return true;
  }
}

}  // namespace

NodeContext::NodeContext(Importer& importer, const pb::NodeProto& proto, std::string name, int index, std::int64_t opset)
    : importer_(importer),
      proto_(proto),
      name_(std::move(name)),
      index_(index),
      opset_(opset),
      outputs_(static_cast<std::size_t>(proto.output_size()), ir::kNone),
      declared_(static_cast<std::size_t>(proto.output_size())) {}

ir::Graph& NodeContext::graph() {
  return importer_.graph();
}

std::string NodeContext::where() const {
  return fmt::format("node \"{}\" ({}, index {})", name_, proto_.op_type(), index_);
}

const TensorType& NodeContext::type_of(ValueId v) const {
  return importer_.graph().type(v);
}

std::string NodeContext::input_name(std::size_t i) const {
  return static_cast<int>(i) < proto_.input_size() ? proto_.input(static_cast<int>(i)) : std::string();
}

DType NodeContext::declared(std::size_t i) const {
  return importer_.declared(input_name(i), type(i).dtype);
}

const Tensor* NodeContext::constant(std::size_t i) const {
  const ir::Graph& g = importer_.graph();
  return has(i) && is_plain_constant(g, inputs_[i]) ? &g.payload(inputs_[i]) : nullptr;
}

Result<Ints> NodeContext::constant_ints(std::size_t i, std::string_view role) const {
  if (const Tensor* t = constant(i)) {
    if (ir::is_float(t->dtype())) return bad("{} \"{}\" is {}, needs integers", role, input_name(i), ir::to_string(t->type()));
    return t->as_ints();
  }
  return unsupported(
      "{} \"{}\" is computed at run time; it must be constant, or depend on shapes alone (fix the input shapes, or simplify the "
      "model)",
      role, input_name(i));
}

Result<std::int64_t> NodeContext::constant_integer(std::size_t i, std::string_view role) const {
  OCTAVO_TRY(const Ints values, constant_ints(i, role));
  if (values.size() != 1) return bad("{} \"{}\" is {}, needs one element", role, input_name(i), ir::to_string(type(i)));
  return values[0];
}

Result<double> NodeContext::constant_scalar(std::size_t i, std::string_view role) const {
  const Tensor* t = constant(i);
  if (!t) return unsupported("{} \"{}\" is computed at run time; it must be constant", role, input_name(i));
  if (t->size() != 1) return bad("{} \"{}\" is {}, needs one element", role, input_name(i), ir::to_string(t->type()));
  return t->at(0);
}

bool NodeContext::is_weight(ValueId v) const {
  const ir::Graph& g = importer_.graph();
  while (v != ir::kNone && !g.is_constant(v)) {
    const ir::Node& n = g.producer(v);
    const bool passes =
        n.op == Op::quantize || n.op == Op::dequantize || n.op == Op::view || n.op == Op::transpose || n.op == Op::reshape;
    if (!passes) return false;
    v = n.inputs[0];
  }
  return v != ir::kNone;
}

Status NodeContext::need_rank(std::size_t i, std::int64_t least, std::int64_t most) const {
  if (rank(i) >= least && rank(i) <= most) return {};
  return bad("operand {} \"{}\" is {}: rank {}, needs {}", i, input_name(i), ir::to_string(type(i)), rank(i),
             least == most ? std::to_string(least) : fmt::format("{} to {}", least, most));
}

Result<std::int64_t> NodeContext::axis(std::int64_t value, std::int64_t rank) const {
  if (value < -rank || value >= rank) return bad("axis {} is outside [{}, {})", value, -rank, rank);
  return value < 0 ? value + rank : value;
}

Result<Ints> NodeContext::axes(Ints values, std::int64_t rank) const {
  for (std::int64_t& v : values) {
    OCTAVO_TRY(v, axis(v, rank));
  }
  std::sort(values.begin(), values.end());
  if (std::adjacent_find(values.begin(), values.end()) != values.end()) return bad("an axis is named twice");
  return values;
}

const pb::AttributeProto* NodeContext::find(std::string_view key, pb::AttributeProto::AttributeType type) {
  asked_.emplace(key);
  for (const pb::AttributeProto& a : proto_.attribute()) {
    if (a.name() != key) continue;
    if (!a.ref_attr_name().empty()) {
      if (!error_)
        error_ = bad("attribute {} refers to \"{}\" of a function, but the node is in no function", key, a.ref_attr_name()).value();
      return nullptr;
    }
    if (a.type() != type && a.type() != pb::AttributeProto::UNDEFINED) {
      if (!error_) {
        error_ = bad("attribute {} has the type {}, needs {}", key, pb::AttributeProto::AttributeType_Name(a.type()),
                     pb::AttributeProto::AttributeType_Name(type))
                     .value();
      }
      return nullptr;
    }
    return &a;
  }
  return nullptr;
}

bool NodeContext::has_attr(std::string_view key) {
  return std::any_of(proto_.attribute().begin(), proto_.attribute().end(), [&](const auto& a) { return a.name() == key; });
}
std::int64_t NodeContext::attr_int(std::string_view key, std::int64_t fallback) {
  const auto* a = find(key, pb::AttributeProto::INT);
  return a ? a->i() : fallback;
}
float NodeContext::attr_float(std::string_view key, float fallback) {
  const auto* a = find(key, pb::AttributeProto::FLOAT);
  return a ? a->f() : fallback;
}
std::string NodeContext::attr_text(std::string_view key, std::string_view fallback) {
  const auto* a = find(key, pb::AttributeProto::STRING);
  return a ? a->s() : std::string(fallback);
}
Ints NodeContext::attr_ints(std::string_view key, Ints fallback) {
  const auto* a = find(key, pb::AttributeProto::INTS);
  return a ? Ints(a->ints().begin(), a->ints().end()) : std::move(fallback);
}
std::vector<float> NodeContext::attr_floats(std::string_view key) {
  const auto* a = find(key, pb::AttributeProto::FLOATS);
  return a ? std::vector<float>(a->floats().begin(), a->floats().end()) : std::vector<float>();
}
std::vector<std::string> NodeContext::attr_texts(std::string_view key) {
  const auto* a = find(key, pb::AttributeProto::STRINGS);
  return a ? std::vector<std::string>(a->strings().begin(), a->strings().end()) : std::vector<std::string>();
}
const pb::TensorProto* NodeContext::attr_tensor(std::string_view key) {
  const auto* a = find(key, pb::AttributeProto::TENSOR);
  return a && a->has_t() ? &a->t() : nullptr;
}
const pb::GraphProto* NodeContext::attr_graph(std::string_view key) {
  const auto* a = find(key, pb::AttributeProto::GRAPH);
  return a && a->has_g() ? &a->g() : nullptr;
}
void NodeContext::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) asked_.emplace(key);
}

Status NodeContext::finish_attributes() const {
  if (error_) return tl::unexpected<Error>(*error_);
  for (const pb::AttributeProto& a : proto_.attribute()) {
    if (!asked_.contains(a.name())) {
      return unsupported("attribute \"{}\" is not one that Octavo knows for this operator in opset {}; remove it or export again",
                         a.name(), opset_);
    }
  }
  return {};
}

Result<std::vector<ValueId>> NodeContext::emit_many(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  if (error_) return tl::unexpected<Error>(*error_);
  ir::Graph& g = graph();
  Sizes& sizes = importer_.sizes();
  const bool any_size = !sizes.none() && !sizes.plain();
  if (any_size) {
    std::optional<std::vector<ValueId>> done;
    OCTAVO_CHECK(sizes.prepare(*this, op, inputs, attrs, done));
    if (done) return *done;
  }
  const std::vector<ValueId> operands_before = any_size ? inputs : std::vector<ValueId>();
  const Attrs attrs_before = any_size ? attrs : Attrs();
  ir::Node n;
  n.op = op;
  n.inputs = std::move(inputs);
  while (!n.inputs.empty() && n.inputs.back() == ir::kNone) n.inputs.pop_back();
  n.attrs = std::move(attrs);
  n.origin = {name_};
  n.name = name_;
  auto types = ir::infer(g, n);
  if (!types) return fail(types.error().kind, where() + ": " + types.error().message);
  if (std::all_of(types->begin(), types->end(), [](const TensorType& t) { return ir::count(t.shape) == 0; })) {
    std::vector<ValueId> out;  // nothing to compute
    for (const TensorType& t : *types) out.push_back(g.add_constant(Tensor(t)));
    return out;
  }
  if (op == Op::concat) {  // parts without elements add nothing
    std::erase_if(n.inputs, [&](ValueId v) { return ir::count(g.type(v).shape) == 0; });
    if (n.inputs.size() == 1) return n.inputs;
  }
  if (const auto moved = move_coded(g, n, (*types)[0])) return std::vector{*moved};
  const bool constant = !n.inputs.empty() && std::all_of(n.inputs.begin(), n.inputs.end(),
                                                         [&](ValueId v) { return v == ir::kNone || is_plain_constant(g, v); });
  const bool fold = constant && may_fold(op) && importer_.folding().pay(g, n, *types);
  const ir::NodeId id = g.add_node(std::move(n), *types);
  if (fold) {
    std::vector<Tensor> operands;
    for (const ValueId v : g.node(id).inputs) operands.push_back(v == ir::kNone ? Tensor() : g.payload(v));
    if (auto values = reference::evaluate_node(g, {}, id, operands)) {
      g.node(id).dead = true;
      std::vector<ValueId> out;
      for (Tensor& t : *values) out.push_back(g.add_constant(std::move(t)));
      return out;
    } else if (values.error().kind != ErrorKind::unsupported) {
      return fail(values.error().kind, where() + ": evaluating it on constants: " + values.error().message);
    }
  }
  if (!any_size) return g.node(id).outputs;
  std::vector<ValueId> results = g.node(id).outputs;
  OCTAVO_CHECK(sizes.follow(*this, op, operands_before, attrs_before, results));
  return results;
}

Result<ValueId> NodeContext::emit(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  OCTAVO_TRY(const std::vector<ValueId> out, emit_many(op, std::move(inputs), std::move(attrs)));
  return out[0];
}

Result<ValueId> NodeContext::emit_quantizer(Op op, ValueId input, Quantizer q) {
  if (error_) return tl::unexpected<Error>(*error_);
  ir::Graph& g = graph();
  ir::Node n;
  n.op = op;
  n.inputs = {input};
  n.quantizer = std::move(q);
  n.origin = {name_};
  n.name = name_;
  auto types = ir::infer(g, n);
  if (!types) return fail(types.error().kind, where() + ": " + types.error().message);
  if (ir::count((*types)[0].shape) == 0) return g.add_constant(Tensor((*types)[0]));
  if (is_plain_constant(g, input)) {  // codes of a constant, or the coded constant that they are
    auto origin = g.producer(input).origin;
    origin.insert(name_);
    std::optional<ValueId> v;
    if (op == Op::dequantize) {
      v = g.add_constant(g.payload(input), "", std::move(n.quantizer));
    } else if (op == Op::quantize) {
      const ir::NodeId id = g.add_node(std::move(n), *types);
      OCTAVO_TRY(const std::vector<Tensor> codes, reference::evaluate_node(g, {}, id, {g.payload(input)}));
      g.node(id).dead = true;
      v = g.add_constant(codes[0]);
    }
    if (v) {
      g.node(g.value(*v).producer).origin = std::move(origin);
      return *v;
    }
  }
  const ValueId result = g.node(g.add_node(std::move(n), *types)).outputs[0];
  importer_.sizes().set(result, Sizes::Extents(importer_.sizes().extents(input)));
  return result;
}

ValueId NodeContext::add_constant(Tensor t) {
  return graph().add_constant(std::move(t));
}

ValueId NodeContext::add_own_constant(Tensor t) {
  const ValueId v = add_constant(std::move(t));
  graph().node(graph().value(v).producer).origin = {name_};
  return v;
}

Result<ValueId> NodeContext::reshape(ValueId v, Shape shape) {
  if (shape_of(v) == shape) return v;
  return emit(Op::reshape, {v}, {{"shape", std::move(shape)}});
}

Result<ValueId> NodeContext::cast(ValueId v, DType to) {
  if (type_of(v).dtype == to) return v;
  return emit(Op::cast, {v}, {{"to", std::string(ir::name_of(to))}});
}

bool NodeContext::wants(std::size_t i) const {
  return static_cast<int>(i) < proto_.output_size() && importer_.is_read(proto_.output(static_cast<int>(i)));
}

void NodeContext::set(std::size_t i, ValueId v) {
  if (i < outputs_.size()) outputs_[i] = v;
}

Status NodeContext::result(Result<ValueId> v) {
  if (!v) return tl::unexpected<Error>(std::move(v).error());
  set(0, *v);
  return {};
}

void NodeContext::declare(std::size_t i, DType type) {
  if (i < declared_.size()) declared_[i] = type;
}

void NodeContext::note(std::string text) {
  importer_.note(where() + ": " + std::move(text));
}

}  // namespace octavo::onnx
