// One class, past 400 lines: values, names and problems of a file are found by all of its steps.
#include "onnx/import/importer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ir/output_sizes.h"
#include "ir/verify.h"
#include "onnx/import/registry.h"
#include "onnx/model/held.h"
#include "onnx/model/node_label.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

constexpr std::string_view kFolded = "folded into a constant";
constexpr std::string_view kNoEffect = "no effect at inference";

}  // namespace

DType Importer::declared(const std::string& tensor_name, DType fallback) const {
  const auto it = declared_.find(tensor_name);
  return it == declared_.end() ? fallback : it->second;
}

Result<Tensor> Importer::tensor(const pb::TensorProto& proto, DType& type) {
  OCTAVO_TRY(Tensor t, value_of(proto));
  folding_.grant(t.size());
  type = t.dtype();
  return as_held(std::move(t));
}

Result<Tensor> Importer::value_of(const pb::TensorProto& proto) const {
  if (const auto at = outside_.find(&proto); at != outside_.end()) return *at->second;
  return read_tensor(proto, base_dir_);
}

Tensor Importer::as_held(Tensor t) {
  const DType type = t.dtype();
  if (ir::is_float(type)) return t.to_f32();
  if (!is_small(type)) return t;
  Tensor out(held(type), t.shape());
  if (ir::is_small_int(type)) {  // the same bytes
    std::copy(t.bytes().begin(), t.bytes().end(), out.mutable_bytes().begin());
    return out;
  }
  for (std::int64_t i = 0; i < t.size(); ++i) out.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(t.at(i));
  return out;
}

std::int64_t Importer::opset_of(const std::string& domain) const {
  const auto it = out_.opsets.find(domain == "ai.onnx" ? "" : domain);
  return it == out_.opsets.end() ? 0 : it->second;
}

Status Importer::read_header() {
  out_.ir_version = model_.ir_version();
  out_.producer = model_.producer_name();
  out_.producer_version = model_.producer_version();
  for (const auto& entry : model_.metadata_props()) out_.metadata.emplace(entry.key(), entry.value());
  out_.description = describe(model_);
  out_.graph.name = model_.graph().name();
  out_.node_count = model_.graph().node_size();
  for (const auto& set : model_.opset_import()) out_.opsets[set.domain() == "ai.onnx" ? "" : set.domain()] = set.version();
  if (!out_.opsets.contains("")) {
    if (out_.ir_version >= 3 || !out_.opsets.empty()) {
      // Models of other domains only are legal; nothing in them is ours unless a node says so.
      out_.opsets.emplace("", kNewestOpset);
      note("the file imports no opset of the default domain; the newest is assumed");
    } else {
      out_.opsets.emplace("", 1);
    }
  }
  out_.opset = out_.opsets[""];
  if (out_.opset < kOldestOpset) {
    return fail(ErrorKind::unsupported,
                fmt::format("the model uses opset {}; opsets {} to {} are supported. Convert it: onnx.version_converter."
                            "convert_version(model, 13)",
                            out_.opset, kOldestOpset, kNewestOpset));
  }
  if (out_.opset > kNewestOpset) {
    return fail(ErrorKind::unsupported,
                fmt::format("the model uses opset {}, newer than this version knows ({} to {}). Export with "
                            "opset_version={} or less",
                            out_.opset, kOldestOpset, kNewestOpset, kNewestOpset));
  }
  if (model_.training_info_size() > 0) note("training information in the file is not used");
  return {};
}

Status Importer::declare_inputs() {
  OCTAVO_TRY(out_.inputs, declared_inputs(model_.graph()));
  OCTAVO_TRY(const ImportOptions bound, with_values());
  OCTAVO_TRY(const std::vector<InputInfo> known, bind_inputs(out_.inputs, bound));
  ir::Graph& g = graph();
  for (std::size_t i = 0; i < out_.inputs.size(); ++i) {
    const InputInfo& info = out_.inputs[i];
    const Shape& shape = known[i].dims;
    OCTAVO_CHECK(checked_count(shape, fmt::format("input \"{}\"", info.name)));
    if (info.symbolic() && !bound.shapes.contains(info.name)) {
      note(fmt::format("input \"{}\" {} is bound to {}", info.name, info.shape_text(), ir::to_string(shape)));
    }
    ValueId v = g.add_input(info.name, {info.dtype, shape});
    if (late_ != nullptr && late_->given.contains(info.name)) {
      const Tensor& value = late_->given.at(info.name);
      if (held(info.dtype) != info.dtype) declared_[info.name] = info.dtype;
      v = g.add_constant(as_held(value));
      if (info.dtype == DType::f64) wide_[v] = g.add_constant(value);
    } else if (const DType inside = held(info.dtype); inside != info.dtype) {
      declared_[info.name] = info.dtype;
      const std::string to(ir::name_of(inside));
      const ValueId given = v;
      v = g.add(Op::cast, {v}, {inside, shape}, {{"to", to}}, {"input:" + info.name}, info.name + "." + to);
      if (info.dtype == DType::f64) wide_[v] = given;
    }
    // Nothing computes on an input without elements.
    if (ir::count(shape) == 0) v = g.add_constant(Tensor(held(info.dtype), shape));
    values_[info.name] = v;
  }
  return {};
}

Status Importer::add_initializers(const pb::GraphProto& graph_proto) {
  for (const pb::TensorProto& t : graph_proto.initializer()) {
    if (t.name().empty()) return fail(ErrorKind::bad_model, "an initializer has no name");
    if (depth_ == 0 && initializers_.contains(t.name()))
      return fail(ErrorKind::bad_model, fmt::format("initializer \"{}\" is defined twice", t.name()));
    initializers_[t.name()] = &t;
    values_.erase(t.name());
  }
  if (graph_proto.sparse_initializer_size() > 0) {
    return fail(ErrorKind::unsupported, fmt::format("initializer \"{}\" is sparse; store it as a dense tensor",
                                                    graph_proto.sparse_initializer(0).values().name()));
  }
  return {};
}

std::string Importer::unique_name(const pb::NodeProto& node, int index, const std::string& prefix) {
  std::string name = prefix + node_label(node, index);
  if (node_names_.contains(name)) name = fmt::format("{}_{}", name, index);
  while (!node_names_.insert(name).second) name += "_";
  return name;
}

Result<ValueId> Importer::resolve(const std::string& tensor_name) {
  if (const auto it = values_.find(tensor_name); it != values_.end()) return it->second;
  const auto init = initializers_.find(tensor_name);
  if (init == initializers_.end())
    return fail(ErrorKind::bad_model, fmt::format("tensor \"{}\" is read, but nothing defines it", tensor_name));
  DType type{};
  OCTAVO_TRY(Tensor t, tensor(*init->second, type));
  if (held(type) != type) declared_[tensor_name] = type;
  const ValueId v = values_[tensor_name] = graph().add_constant(std::move(t), tensor_name);
  if (type == DType::f64) {
    OCTAVO_TRY(Tensor wide, value_of(*init->second));
    wide_[v] = graph().add_constant(std::move(wide));
  }
  return v;
}

void Importer::record_problem(const NodeContext& node, std::string reason) {
  Problem p{node.name(), node.proto().op_type(), node.proto().domain(), std::move(reason), node.opset(), node.index(), true, {}};
  for (const std::string& name : node.proto().input()) {
    if (name.empty()) continue;
    const auto it = values_.find(name);
    p.inputs.push_back(it == values_.end() || it->second == ir::kNone ? name
                                                                      : name + " " + ir::to_string(graph().type(it->second)));
  }
  problems_.push_back(std::move(p));
  for (const std::string& name : node.proto().output()) poisoned_.insert(name);
}

Status Importer::bind_results(NodeContext& node) {
  ir::Graph& g = graph();
  bool all_constant = true, all_passed = true;
  // Results have the type that the file gives the first operand held in the same one, unless the handler says otherwise.
  const auto inherited = [&](DType inside) {
    for (std::size_t i = 0; i < node.operands(); ++i) {
      if (node.has(i) && node.type(i).dtype == inside) return node.declared(i);
    }
    return inside;
  };
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    const std::string& name = node.proto().output(static_cast<int>(i));
    if (name.empty()) continue;
    const ValueId v = node.outputs_[i];
    if (v == ir::kNone) {
      if (!node.wants(i) || sequences_.contains(name)) continue;
      return fail(ErrorKind::unsupported,
                  fmt::format("its output {} (\"{}\") is read, but only the output before it is supported", i, name));
    }
    ir::Value& value = g.value(v);
    const std::string full = value_prefix_ + name;
    if (value.name.empty()) {
      value.name = full;
      ir::Node& n = g.node(value.producer);
      if (n.op == Op::constant) n.name = full;
    } else if (value.name != full) {
      out_.aliases[full] = value.name;
    }
    values_[name] = v;
    const DType inside = value.type.dtype, declared_type = node.declared_[i].value_or(inherited(inside));
    if (held(declared_type) == inside && declared_type != inside) declared_[name] = declared_type;
    if (i == 0 && inside == DType::f32) out_.float_types.emplace(node.name(), declared_type);
    all_constant = all_constant && g.is_constant(v);
    all_passed = all_passed && std::find(node.inputs_.begin(), node.inputs_.end(), v) != node.inputs_.end();
  }
  fates_.emplace_back(node.name(), all_passed ? kNoEffect : all_constant ? kFolded : std::string_view());
  return {};
}

Status Importer::refuse_small(const NodeContext& node) const {
  constexpr std::array<std::string_view, 26> kStored{
      "Cast",      "CastLike", "QuantizeLinear", "DequantizeLinear", "BitCast", "Identity", "Reshape",
      "Transpose", "Flatten",  "Squeeze",        "Unsqueeze",        "Shape",   "Size",     "ConstantOfShape",
      "If",        "Loop",     "Scan",           "Gather",           "Slice",   "Concat",   "Split",
      "Expand",    "Tile",     "DepthToSpace",   "SpaceToDepth",     "EyeLike"};
  if (std::find(kStored.begin(), kStored.end(), node.proto().op_type()) != kStored.end()) return {};
  for (std::size_t i = 0; i < node.operands(); ++i) {
    if (!node.has(i) || !is_small(node.declared(i))) continue;
    return node.unsupported("its operand \"{}\" is {}, a type that only stores; cast it first", node.input_name(i),
                            ir::name_of(node.declared(i)));
  }
  return {};
}

bool Importer::widen(NodeContext& node) {
  constexpr std::array<std::string_view, 25> kWide{"Add",
                                                   "Sub",
                                                   "Mul",
                                                   "Div",
                                                   "Max",
                                                   "Min",
                                                   "Sum",
                                                   "Mod",
                                                   "Equal",
                                                   "Less",
                                                   "LessOrEqual",
                                                   "Greater",
                                                   "GreaterOrEqual",
                                                   "Where",
                                                   "Identity",
                                                   "Reshape",
                                                   "Transpose",
                                                   "Squeeze",
                                                   "Unsqueeze",
                                                   "Flatten",
                                                   "Concat",
                                                   "Slice",
                                                   "Expand",
                                                   "Tile",
                                                   "Cast"};
  const pb::NodeProto& proto = node.proto();
  if (wide_.empty() || !proto.domain().empty() || std::find(kWide.begin(), kWide.end(), proto.op_type()) == kWide.end())
    return false;
  bool any = false;
  for (std::size_t i = 0; i < node.operands(); ++i) {
    if (!node.has(i) || !ir::is_float(node.type(i).dtype)) continue;
    if (node.declared(i) != DType::f64) return false;
    any = any || wide_.contains(node.in(i));
  }
  if (!any) return false;
  for (ValueId& v : node.inputs_) {
    if (v == ir::kNone || graph().type(v).dtype != DType::f32) continue;
    const Sizes::Extents extents = sizes_.extents(v);
    const auto found = wide_.find(v);
    v = found != wide_.end()
            ? found->second
            : graph().add(Op::cast, {v}, {DType::f64, graph().type(v).shape}, {{"to", std::string("f64")}}, {node.name()});
    sizes_.set(v, extents);
  }
  return true;
}

void Importer::narrow(NodeContext& node) {
  ir::Graph& g = graph();
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    const ValueId v = node.out(i);
    if (v == ir::kNone || g.type(v).dtype != DType::f64) continue;
    const ValueId small = g.is_constant(v)
                              ? g.add_constant(g.payload(v).to_f32())
                              : g.add(Op::cast, {v}, {DType::f32, g.type(v).shape}, {{"to", std::string("f32")}}, {node.name()});
    sizes_.set(small, Sizes::Extents(sizes_.extents(v)));
    wide_[small] = v;
    node.set(i, small);
    node.declare(i, DType::f64);
  }
}

Status Importer::lower_node(NodeContext& node) {
  const pb::NodeProto& proto = node.proto();
  const OpRow* row = find_row(proto.domain(), proto.op_type(), node.opset());
  if (!row) {
    record_problem(node, advice(proto.domain(), proto.op_type()));
    return {};
  }
  std::vector<std::string> reads;
  collect_reads(proto, reads);
  for (const std::string& name : reads) {
    if (poisoned_.contains(name)) {
      for (const std::string& o : proto.output()) poisoned_.insert(o);
      return {};
    }
  }
  const auto attempt = [&]() -> Status {
    for (const std::string& name : proto.input()) {
      ValueId v = ir::kNone;
      if (!name.empty() && !sequences_.contains(name)) {
        OCTAVO_TRY(v, resolve(name));
        if (options_.max_elements.contains(name) && graph().producer(v).op == Op::input) {
          OCTAVO_TRY(v, bounded(node, name, v));
          values_[name] = v;
        }
      }
      node.inputs_.push_back(v);
    }
    while (!node.inputs_.empty() && node.inputs_.back() == ir::kNone) node.inputs_.pop_back();
    const int given = static_cast<int>(node.inputs_.size());
    if (given < row->min_inputs || (row->max_inputs >= 0 && given > row->max_inputs)) {
      return node.bad("{} inputs, the operator takes {}", given,
                      row->max_inputs < 0                  ? fmt::format("{} or more", row->min_inputs)
                      : row->min_inputs == row->max_inputs ? std::to_string(row->min_inputs)
                                                           : fmt::format("{} to {}", row->min_inputs, row->max_inputs));
    }
    for (int i = 0; i < row->min_inputs; ++i) {
      if (!node.has(static_cast<std::size_t>(i))) return node.bad("input {} is missing", i);
    }
    OCTAVO_CHECK(refuse_small(node));
    OCTAVO_CHECK(admit_sizes(node));
    const bool wide = widen(node);
    OCTAVO_CHECK(row->handler(node));
    if (wide) narrow(node);
    OCTAVO_CHECK(node.finish_attributes());
    const bool by_steps = proto.op_type() == "Loop";  // its bound is that of its steps
    for (std::size_t i = 0; i < node.output_count() && !options_.max_elements.empty() && !by_steps; ++i) {
      OCTAVO_TRY(const ValueId cut, bounded(node, proto.output(static_cast<int>(i)), node.out(i)));
      node.set(i, cut);
    }
    return bind_results(node);
  };
  Status status = attempt();
  if (!status && status.error().kind == ErrorKind::unsupported) {
    record_late(node, status.error().message);
    return {};
  }
  return status;
}

Status Importer::lower_nodes(const pb::GraphProto& graph_proto, const std::vector<int>& order, const std::string& prefix) {
  for (const int i : order) {
    const pb::NodeProto& proto = graph_proto.node(i);
    NodeContext node(*this, proto, unique_name(proto, i, prefix), i, opset_of(proto.domain()));
    OCTAVO_CHECK(lower_node(node));
  }
  return {};
}

Result<std::vector<ValueId>> Importer::inline_graph(const pb::GraphProto& branch, const std::string& prefix) {
  constexpr int kDeepest = 16;
  if (depth_ >= kDeepest) return fail(ErrorKind::unsupported, "branches nested more than 16 deep");
  ++depth_;
  const auto attempt = [&]() -> Result<std::vector<ValueId>> {
    OCTAVO_CHECK(add_initializers(branch));
    OCTAVO_TRY(const std::vector<int> order, sort_nodes(branch, true));
    OCTAVO_CHECK(lower_nodes(branch, order, prefix));
    std::vector<ValueId> out;
    for (const auto& o : branch.output()) {
      if (poisoned_.contains(o.name()))
        return fail(ErrorKind::unsupported, "a node in the chosen branch is not supported (it is listed separately)");
      if (sequences_.contains(o.name())) {  // the handler asks for it by this name
        out.push_back(ir::kNone);
        continue;
      }
      OCTAVO_TRY(const ValueId v, resolve(o.name()));
      out.push_back(v);
    }
    return out;
  };
  auto out = attempt();
  --depth_;
  return out;
}

Result<std::vector<Importer::Given>> Importer::inline_body(const pb::GraphProto& body, const std::vector<Given>& given,
                                                           const std::string& prefix) {
  if (static_cast<std::size_t>(body.input_size()) != given.size())
    return fail(ErrorKind::bad_model, fmt::format("a body takes {} values, {} are given", body.input_size(), given.size()));
  // What the names of the body mean outside of it, to be put back.
  struct Outer {
    std::string name;
    std::optional<ValueId> value;
    std::optional<DType> type;
    const pb::TensorProto* initializer;
  };
  std::vector<Outer> outers;
  const auto remember = [&](const std::string& name) {
    const auto value = values_.find(name);
    const auto type = declared_.find(name);
    const auto initializer = initializers_.find(name);
    outers.push_back({name, value == values_.end() ? std::nullopt : std::optional(value->second),
                      type == declared_.end() ? std::nullopt : std::optional(type->second),
                      initializer == initializers_.end() ? nullptr : initializer->second});
    values_.erase(name);
    declared_.erase(name);
    initializers_.erase(name);
  };
  for (const auto& input : body.input()) remember(input.name());
  for (const auto& t : body.initializer()) remember(t.name());
  for (const auto& node : body.node()) {
    for (const std::string& name : node.output()) remember(name);
  }
  std::string outer_prefix = std::exchange(value_prefix_, prefix);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string& name = body.input(static_cast<int>(i)).name();
    if (given[i].value == ir::kNone) continue;  // a sequence, which has this name by now
    values_[name] = given[i].value;
    if (held(given[i].type) != given[i].type) declared_[name] = given[i].type;
  }
  const auto attempt = [&]() -> Result<std::vector<Given>> {
    OCTAVO_TRY(const std::vector<ValueId> results, inline_graph(body, prefix));
    std::vector<Given> out;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] == ir::kNone) {
        out.push_back({ir::kNone, DType::f32});
        continue;
      }
      const DType type = graph().type(results[i]).dtype;
      out.push_back({results[i], this->declared(body.output(static_cast<int>(i)).name(), type)});
    }
    return out;
  };
  auto out = attempt();
  for (auto it = outers.rbegin(); it != outers.rend(); ++it) {  // a name given twice: its first meaning last
    values_.erase(it->name);
    declared_.erase(it->name);
    initializers_.erase(it->name);
    if (it->value) values_[it->name] = *it->value;
    if (it->type) declared_[it->name] = *it->type;
    if (it->initializer) initializers_[it->name] = it->initializer;
  }
  value_prefix_ = std::move(outer_prefix);
  return out;
}

Status Importer::bind_outputs() {
  ir::Graph& g = graph();
  if (model_.graph().output_size() == 0) return fail(ErrorKind::bad_model, "the graph has no outputs");
  std::vector<Sizes::Extents> open;
  for (const pb::ValueInfoProto& output : model_.graph().output()) {
    const std::string& name = output.name();
    if (sequences_.contains(name)) {
      return fail(ErrorKind::unsupported,
                  fmt::format("output \"{}\" is a sequence; only tensors are supported. Make its elements outputs, or join them "
                              "(ConcatFromSequence)",
                              name));
    }
    OCTAVO_TRY(ValueId v, resolve(name));
    open.push_back(sizes_.extents(v));
    const TensorType type = g.type(v);
    DType want = declared(name, type.dtype);
    if (output.type().has_tensor_type() && output.type().tensor_type().elem_type() != 0) {
      const auto file_type = dtype_of(output.type().tensor_type().elem_type());
      if (!file_type || held(*file_type) != type.dtype) {
        return fail(ErrorKind::bad_model,
                    fmt::format("output \"{}\" is declared as {}, but it is computed as {}", name,
                                onnx_type_name(output.type().tensor_type().elem_type()), ir::to_string(type)));
      }
      want = *file_type;
    }
    const auto& dims = output.type().tensor_type().shape().dim();
    bool differs = output.type().tensor_type().has_shape() && dims.size() != static_cast<int>(type.shape.size());
    for (int i = 0; !differs && i < dims.size(); ++i) {
      differs = !open.back().contains(static_cast<std::size_t>(i)) && dims[i].has_dim_value() && dims[i].dim_value() > 0 &&
                dims[i].dim_value() != type.shape[static_cast<std::size_t>(i)];
    }
    if (differs)
      note(fmt::format("output \"{}\" has the shape {}, not the one the file declares", name, ir::to_string(type.shape)));
    if (want == DType::f64 && wide_.contains(v)) {
      v = wide_[v];
    } else if (want != type.dtype) {
      Attrs attrs{{"to", std::string(ir::name_of(want))}};
      if (ir::is_small_float(want)) attrs["saturate"] = std::int64_t{0};  // infinities stay; the value is one of the type's already
      v = g.add(Op::cast, {v}, {want, type.shape}, std::move(attrs), {"output:" + name},
                name + "." + std::string(ir::name_of(want)));
    }
    g.outputs.push_back(v);
    g.output_names.push_back(name);
  }
  // Outputs that say sizes come behind those of the model.
  std::map<ValueId, int> counts;
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const auto& [axis, count] : open[i]) {
      const auto [at, fresh] = counts.emplace(count, static_cast<int>(g.outputs.size()));
      if (fresh) {
        g.outputs.push_back(count);
        g.output_names.push_back(fmt::format("{}, size {}", g.output_names[i], axis));
      }
      g.sizes.push_back({static_cast<int>(i), static_cast<int>(axis), at->second});
    }
  }
  for (const Sizes::Limit& limit : sizes_.limits()) {  // each an output of its own: its name says what the bound was given for
    g.sizes.push_back(ir::bound_of(static_cast<int>(g.outputs.size()), limit.bound.most));
    g.outputs.push_back(limit.count);
    g.output_names.push_back(limit.bound.tensor);
  }
  publish_counts(counts);
  return {};
}

Error Importer::problem_report() const {
  const std::size_t most = options_.most_listed;
  std::string text = fmt::format("{} of {} nodes cannot be compiled:", problems_.size(), model_.graph().node_size());
  for (std::size_t i = 0; i < std::min(problems_.size(), most); ++i) {
    const Problem& p = problems_[i];
    std::string inputs;
    for (const std::string& in : p.inputs) inputs += (inputs.empty() ? "" : ", ") + in;
    text += fmt::format("\n  {} ({}opset {}), node \"{}\", index {}: {}\n    inputs: {}", p.type,
                        p.domain.empty() ? "" : "domain " + p.domain + ", ", p.opset, p.node, p.index, p.reason,
                        inputs.empty() ? "none" : inputs);
  }
  if (problems_.size() > most) text += fmt::format("\n  ... and {} more", problems_.size() - most);
  std::map<std::string, int> types;
  for (const Problem& p : problems_) ++types[(p.domain.empty() ? "" : p.domain + ".") + p.type];
  text += "\n  by operator:";
  for (const auto& [type, times] : types) text += fmt::format(" {} x{}", type, times);
  return {ErrorKind::unsupported, std::move(text)};
}

void Importer::list_absorbed() {
  std::unordered_set<std::string> standing;
  for (const ir::NodeId id : graph().order()) standing.insert(graph().node(id).origin.begin(), graph().node(id).origin.end());
  for (auto& [name, fate] : fates_) {
    if (!standing.contains(name)) out_.absorbed.emplace_back(name, fate.empty() ? std::string(kReachesNoOutput) : fate);
  }
}

Status Importer::check_operators() {
  OCTAVO_TRY(const std::vector<InputInfo> inputs, declared_inputs(model_.graph()));
  values_.clear();
  for (const InputInfo& in : inputs) values_[in.name] = ir::kNone;
  OCTAVO_CHECK(add_initializers(model_.graph()));
  OCTAVO_TRY(const std::vector<int> order, sort_nodes(model_.graph(), false));
  for (const int i : order) {
    const pb::NodeProto& proto = model_.graph().node(i);
    const std::int64_t opset = opset_of(proto.domain());
    if (find_row(proto.domain(), proto.op_type(), opset)) continue;
    record_problem(NodeContext(*this, proto, unique_name(proto, i, ""), i, opset), advice(proto.domain(), proto.op_type()));
  }
  if (!problems_.empty()) return tl::unexpected<Error>(problem_report());
  return {};
}

Status Importer::check() {
  OCTAVO_CHECK(read_header());
  return check_operators();
}

Result<Model> Importer::run() {
  OCTAVO_CHECK(read_header());
  if (Status inputs = declare_inputs(); !inputs) {  // shapes that are missing do not hide what no shape would cure
    if (inputs.error().kind == ErrorKind::usage) OCTAVO_CHECK(check_operators());
    return tl::unexpected<Error>(std::move(inputs).error());
  }
  OCTAVO_CHECK(add_initializers(model_.graph()));
  for (const pb::TensorProto& t : model_.graph().initializer()) {
    if (const auto at = constants_.find(t.name()); at != constants_.end()) outside_[&t] = &at->second;
  }
  OCTAVO_TRY(const std::vector<int> order, sort_nodes(model_.graph(), false));
  OCTAVO_CHECK(lower_nodes(model_.graph(), order, ""));
  if (!problems_.empty()) {
    const bool curable = std::none_of(problems_.begin(), problems_.end(), [](const Problem& p) { return p.final; });
    if (late_ != nullptr && curable) late_->needed = needed_;
    return tl::unexpected<Error>(problem_report());
  }
  OCTAVO_CHECK(bounds_used());
  OCTAVO_CHECK(bind_outputs());
  graph().remove_dead();
  list_absorbed();
  const auto half = [](const auto& of_node) { return of_node.second == DType::f16 || of_node.second == DType::bf16; };
  if (std::none_of(out_.float_types.begin(), out_.float_types.end(), half)) out_.float_types.clear();
  if (auto status = ir::verify(graph()); !status) {
    return fail(ErrorKind::internal, "the imported graph does not verify (please report this model): " + status.error().message);
  }
  return std::move(out_);
}

}  // namespace octavo::onnx
