#include "python/describe.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <variant>

#include "python/arrays.h"
#include "python/text.h"

namespace octavo::python {
namespace {

/// {"name", "dtype", "shape", "scale", "zero_point", "axis"}: scale and zero_point are a number, a list (per axis), or None.
nb::dict describe(const TensorInfo& t) {
  nb::dict d;
  d["name"] = t.name;
  d["dtype"] = numpy_name(t.dtype);
  nb::list shape;
  for (const auto n : t.shape) shape.append(n < 0 ? nb::none() : nb::object(nb::int_(n)));
  d["shape"] = nb::tuple(shape);
  d["format"] = t.format.empty() ? nb::none() : nb::object(nb::str(t.format.c_str()));
  d["scale"] = d["zero_point"] = d["axis"] = nb::none();
  if (const auto& q = t.quantization) {
    if (q->axis < 0) {
      d["scale"] = q->scale[0];
      d["zero_point"] = q->zero_point[0];
    } else {
      d["scale"] = nb::cast(q->scale);
      d["zero_point"] = nb::cast(q->zero_point);
      d["axis"] = q->axis;
    }
  }
  return d;
}

nb::list describe(const std::vector<TensorInfo>& tensors) {
  nb::list out;
  for (const TensorInfo& t : tensors) out.append(describe(t));
  return out;
}

/// {"cause": "several_readers", "tensor": "x", "readers": 3}
nb::list describe(const std::vector<LayerReason>& reasons) {
  nb::list out;
  for (const LayerReason& r : reasons) {
    nb::dict d;
    d["cause"] = r.cause;
    for (const auto& [field, value] : r.values)
      std::visit([&, key = field.c_str()](const auto& v) { d[key] = nb::cast(v); }, value);
    out.append(d);
  }
  return out;
}

}  // namespace

nb::dict describe(const ModelInfo& m) {
  nb::dict d, metadata;
  for (const auto& [key, value] : m.metadata) metadata[text_of(key)] = text_of(value);
  d["producer_name"] = text_of(m.producer_name);
  d["graph_name"] = text_of(m.graph_name);
  d["domain"] = text_of(m.domain);
  d["description"] = text_of(m.description);
  d["graph_description"] = text_of(m.graph_description);
  d["version"] = m.version;
  d["metadata"] = metadata;
  return d;
}

nb::list describe_bindings(const std::vector<TensorInfo>& tensors) {
  nb::list out;
  for (const TensorInfo& t : tensors) {
    nb::list symbols;
    for (std::size_t i = 0; i < t.shape.size(); ++i)
      symbols.append(i < t.symbols.size() && !t.symbols[i].empty() ? nb::object(text_of(t.symbols[i])) : nb::none());
    nb::dict d = describe(t);
    d["symbols"] = nb::tuple(symbols);
    out.append(d);
  }
  return out;
}

nb::list layers(const Engine& engine) {
  nb::list out;
  for (const LayerInfo& l : engine.layers()) {
    nb::dict d;
    d["name"] = l.name;
    d["kind"] = l.kind;
    nb::list nodes;
    for (const std::string& n : l.onnx_nodes) nodes.append(n);
    d["onnx_nodes"] = nodes;
    d["inputs"] = describe(l.inputs);
    d["outputs"] = describe(l.outputs);
    d["tactic"] = l.tactic;
    d["precision"] = l.precision;
    d["reason"] = l.reason;
    d["reasons"] = describe(l.reasons);
    nb::list alternatives;
    for (const auto& a : l.alternatives) {
      nb::dict other;
      other["tactic"] = a.tactic;
      other["reason"] = a.reason;
      other["reasons"] = describe(a.reasons);
      other["seconds"] = a.seconds < 0 ? nb::none() : nb::object(nb::float_(a.seconds));
      other["estimate"] = a.estimate < 0 ? nb::none() : nb::object(nb::float_(a.estimate));
      alternatives.append(other);
    }
    d["alternatives"] = alternatives;
    const auto source = [](TimeFrom from) {
      return from == TimeFrom::nothing ? nb::object(nb::none())
                                       : nb::object(nb::str(from == TimeFrom::measurement ? "measured" : "estimated"));
    };
    d["seconds"] = l.seconds < 0 ? nb::object(nb::none()) : nb::object(nb::float_(l.seconds));
    d["seconds_source"] = source(l.from);
    nb::list others;
    for (const LayerInfo::OtherType& o : l.other_types) {
      nb::dict other;
      other["type"] = o.type;
      other["node"] = o.node;
      other["seconds"] = o.seconds;
      other["seconds_source"] = source(o.from);
      others.append(other);
    }
    d["other_types"] = others;
    out.append(d);
  }
  return out;
}

nb::list findings(const std::vector<Finding>& found) {
  nb::list out;
  for (const Finding& f : found) {
    nb::dict d;
    d["severity"] = f.error ? "error" : "warning";
    d["rule"] = f.rule;
    d["tensor"] = text_of(f.tensor);
    nb::list nodes;
    for (const std::string& node : f.nodes) nodes.append(text_of(node));
    d["nodes"] = nodes;
    d["text"] = text_of(f.text);
    out.append(d);
  }
  return out;
}

}  // namespace octavo::python
