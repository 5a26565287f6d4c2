#include "ir/verify.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/infer.h"
#include "ir/output_sizes.h"

namespace octavo::ir {
namespace {

/// A broken invariant is our own mistake, whichever rule or importer made it; the text says which node shows it.
tl::unexpected<Error> broken(const Graph& g, NodeId id, std::string_view what) {
  const Node& n = g.node(id);
  std::string origin;
  for (const std::string& o : n.origin) origin += (origin.empty() ? " from " : ", ") + o;
  return fail(ErrorKind::internal,
              fmt::format("verifying graph \"{}\": {} node #{} \"{}\"{}: {}", g.name, name_of(n.op), id, n.name, origin, what));
}

bool exists(const Graph& g, ValueId v) {
  return v >= 0 && v < g.value_capacity();
}

/// Definitions and references: each value names the node that lists it, and no live node reads a dead one.
Status check_links(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  if (n.outputs.empty()) return broken(g, id, "has no output");
  for (std::size_t i = 0; i < n.outputs.size(); ++i) {
    const ValueId v = n.outputs[i];
    if (!exists(g, v)) return broken(g, id, fmt::format("output value %{} does not exist", v));
    if (g.value(v).producer != id || g.value(v).output_index != static_cast<int>(i)) {
      return broken(g, id,
                    fmt::format("output value %{} names node #{} output {} as its definition", v, g.value(v).producer,
                                g.value(v).output_index));
    }
  }
  for (const ValueId v : n.inputs) {
    if (v == kNone) continue;
    if (!exists(g, v)) return broken(g, id, fmt::format("operand %{} does not exist", v));
    const NodeId p = g.value(v).producer;
    if (p < 0 || p >= g.node_capacity()) return broken(g, id, fmt::format("operand %{} has no definition", v));
    if (g.node(p).dead) return broken(g, id, fmt::format("operand %{} is defined by the dead node #{}", v, p));
  }
  return {};
}

Status check_constant(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const TensorType& type = g.type(n.outputs[0]);
  if (!n.inputs.empty() || n.outputs.size() != 1) return broken(g, id, "a constant has no operands and one output");
  if (n.payload.empty()) return broken(g, id, "the constant has no payload");
  if (n.payload.shape() != type.shape) {
    return broken(g, id, fmt::format("payload {}, value {}", to_string(n.payload.type()), to_string(type)));
  }
  if (n.payload.bytes().size() != static_cast<std::size_t>(n.payload.size()) * size_of(n.payload.dtype())) {
    return broken(g, id, fmt::format("payload {} holds {} bytes", to_string(n.payload.type()), n.payload.bytes().size()));
  }
  if (!n.quantizer) {
    if (n.payload.dtype() != type.dtype)
      return broken(g, id, fmt::format("payload {}, value {}", to_string(n.payload.type()), to_string(type)));
    return {};
  }
  if (n.payload.dtype() != n.quantizer->type || !is_float(type.dtype)) {
    return broken(
        g, id,
        fmt::format("codes {}, quantizer {}, value {}", name_of(n.payload.dtype()), to_string(*n.quantizer), to_string(type)));
  }
  if (auto status = detail::check_quantizer(*n.quantizer, type.shape); !status) return broken(g, id, status.error().message);
  return {};
}

Status check_types(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const auto types = infer(g, n);
  if (!types) return broken(g, id, types.error().message);
  if (types->size() != n.outputs.size())
    return broken(g, id, fmt::format("{} outputs, inferred {}", n.outputs.size(), types->size()));
  for (std::size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] != g.type(n.outputs[i])) {
      return broken(g, id, fmt::format("output {} is {}, inferred {}", i, to_string(g.type(n.outputs[i])), to_string((*types)[i])));
    }
  }
  return {};
}

/// Kahn's algorithm over all live nodes, reachable or not.
Status check_acyclic(const Graph& g) {
  std::vector<int> waiting(static_cast<std::size_t>(g.node_capacity()), 0);
  std::vector<std::vector<NodeId>> readers(waiting.size());
  std::vector<NodeId> ready;
  std::size_t live = 0;
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    if (g.node(id).dead) continue;
    ++live;
    for (const ValueId v : g.node(id).inputs) {
      if (v == kNone) continue;
      ++waiting[static_cast<std::size_t>(id)];
      readers[static_cast<std::size_t>(g.value(v).producer)].push_back(id);
    }
    if (waiting[static_cast<std::size_t>(id)] == 0) ready.push_back(id);
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    for (const NodeId reader : readers[static_cast<std::size_t>(ready[i])]) {
      if (--waiting[static_cast<std::size_t>(reader)] == 0) ready.push_back(reader);
    }
  }
  if (ready.size() == live) return {};
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    if (!g.node(id).dead && waiting[static_cast<std::size_t>(id)] > 0) return broken(g, id, "depends on its own result");
  }
  return {};
}

Status check_interface(const Graph& g) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::internal, fmt::format("verifying graph \"{}\": {}", g.name, what));
  };
  std::vector<char> listed(static_cast<std::size_t>(g.node_capacity()), 0);
  for (const ValueId v : g.inputs) {
    if (!exists(g, v)) return bad(fmt::format("graph input %{} does not exist", v));
    const NodeId p = g.value(v).producer;
    if (p < 0 || p >= g.node_capacity() || g.node(p).op != Op::input || g.node(p).dead) {
      return bad(fmt::format("graph input %{} is not defined by a live input node", v));
    }
    if (listed[static_cast<std::size_t>(p)]++) return bad(fmt::format("graph input %{} is listed twice", v));
  }
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    if (!g.node(id).dead && g.node(id).op == Op::input && !listed[static_cast<std::size_t>(id)]) {
      return broken(g, id, "is not among the graph's inputs");
    }
  }
  if (g.output_names.size() != g.outputs.size())
    return bad(fmt::format("{} outputs, {} output names", g.outputs.size(), g.output_names.size()));
  const auto outputs = static_cast<int>(g.outputs.size());
  for (const OutputSize& s : g.sizes) {
    if (is_bound(s) || is_counter(s)) {
      const bool there = s.axis >= 0 && s.count >= 0 && s.count < outputs &&
                         exists(g, g.outputs[static_cast<std::size_t>(s.count)]) &&
                         g.type(g.outputs[static_cast<std::size_t>(s.count)]) == TensorType{DType::s64, {}};
      if (!there) return bad(fmt::format("bound {} of output {} of {}", s.axis, s.count, outputs));
      continue;
    }
    if (s.output < 0 || s.count <= s.output || s.count >= outputs || !exists(g, g.outputs[static_cast<std::size_t>(s.output)]) ||
        !exists(g, g.outputs[static_cast<std::size_t>(s.count)]))
      return bad(fmt::format("size {} {} {}: the graph has {} outputs", s.output, s.axis, s.count, outputs));
    const TensorType &of = g.type(g.outputs[static_cast<std::size_t>(s.output)]),
                     &count = g.type(g.outputs[static_cast<std::size_t>(s.count)]);
    if (s.axis < 0 || static_cast<std::size_t>(s.axis) >= of.shape.size() || count != TensorType{DType::s64, {}})
      return bad(fmt::format("size {} {} {}: of {}, counted by {}", s.output, s.axis, s.count, to_string(of), to_string(count)));
  }
  for (const ValueId v : g.outputs) {
    if (!exists(g, v)) return bad(fmt::format("graph output %{} does not exist", v));
    const NodeId p = g.value(v).producer;
    if (p < 0 || p >= g.node_capacity() || g.node(p).dead)
      return bad(fmt::format("graph output %{} is not defined by a live node", v));
  }
  return {};
}

}  // namespace

Status verify(const Graph& g) {
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    if (!g.node(id).dead) OCTAVO_CHECK(check_links(g, id));
  }
  OCTAVO_CHECK(check_interface(g));
  OCTAVO_CHECK(check_acyclic(g));
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    const Node& n = g.node(id);
    if (n.dead) continue;
    for (const ValueId v : n.outputs) {
      if (const auto& q = g.value(v).range; q && !is_range(*q)) {
        return broken(g, id, fmt::format("range {} of its value is not one finite scale >= 0 of 8 bits", to_string(*q)));
      }
    }
    const bool quantizes = n.op == Op::view || n.op == Op::quantize || n.op == Op::dequantize || n.op == Op::constant;
    if (n.quantizer && !quantizes) return broken(g, id, "carries a quantizer");
    if (n.op == Op::constant) {
      OCTAVO_CHECK(check_constant(g, id));
      continue;
    }
    if (!n.payload.empty()) return broken(g, id, "carries a payload");
    if (n.op == Op::input) {
      if (!n.inputs.empty() || n.outputs.size() != 1) return broken(g, id, "an input has no operands and one output");
      continue;
    }
    OCTAVO_CHECK(check_types(g, id));
    if (n.origin.empty()) return broken(g, id, "has no origin: the rewrite lost the ONNX nodes it stands for");
  }
  return {};
}

}  // namespace octavo::ir
