// Inputs as declared, and the binding of their symbolic dimensions.
#include <algorithm>
#include <array>

#include "onnx/import/importer.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

std::string as_flag(const Shape& dims, const std::vector<std::string>& symbols) {
  std::string out;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    out += i ? "x" : "";
    out += dims[i] >= 0 ? std::to_string(dims[i]) : (symbols[i].empty() ? "?" : symbols[i]);
  }
  return out;
}

/// What exporters write where they know no size (paddle2onnx: "?" for each dimension). Two such dimensions have nothing in common, so the
/// word is no symbol: each is an unnamed dimension of its own. A number that tells them apart ("unk__6") makes a symbol.
bool means_unknown(const std::string& name) {
  constexpr std::array<std::string_view, 8> kWords{"?", "-1", "*", "None", "none", "unk", "unknown", "Unknown"};
  return std::find(kWords.begin(), kWords.end(), name) != kWords.end();
}

}  // namespace

bool InputInfo::symbolic() const {
  return !has_shape || std::any_of(dims.begin(), dims.end(), [](std::int64_t d) { return d < 0; });
}

std::string InputInfo::shape_text() const {
  if (!has_shape) return "[?]";
  std::string out = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    out += i ? "," : "";
    out += dims[i] >= 0 ? std::to_string(dims[i]) : (symbols[i].empty() ? "?" : symbols[i]);
  }
  return out + "]";
}

Result<std::vector<InputInfo>> declared_inputs(const pb::GraphProto& graph) {
  std::unordered_set<std::string> initialized;
  for (const auto& t : graph.initializer()) initialized.insert(t.name());
  std::vector<InputInfo> out;
  std::unordered_set<std::string> seen;
  for (const pb::ValueInfoProto& input : graph.input()) {
    if (initialized.contains(input.name())) continue;
    if (!seen.insert(input.name()).second)
      return fail(ErrorKind::bad_model, fmt::format("input \"{}\" is declared twice", input.name()));
    if (!input.type().has_tensor_type()) {
      return fail(
          ErrorKind::unsupported,
          fmt::format("input \"{}\" is not a tensor (sequence, map or optional); only tensors are supported", input.name()));
    }
    const auto& tensor = input.type().tensor_type();
    const auto type = dtype_of(tensor.elem_type());
    if (!type) {
      return fail(ErrorKind::unsupported,
                  fmt::format("input \"{}\" has the element type {}, which is not supported; {}", input.name(),
                              onnx_type_name(tensor.elem_type()), type_advice(tensor.elem_type())));
    }
    InputInfo info;
    info.name = input.name();
    info.dtype = *type;
    info.has_shape = tensor.has_shape();
    for (const auto& dim : tensor.shape().dim()) {
      const bool fixed = dim.has_dim_value() && dim.dim_value() > 0;  // some exporters write 0 or -1 for "unknown"
      info.dims.push_back(fixed ? dim.dim_value() : -1);
      info.symbols.push_back(fixed || means_unknown(dim.dim_param()) ? "" : dim.dim_param());
    }
    if (info.dims.size() > 32)
      return fail(ErrorKind::bad_model, fmt::format("input \"{}\" has rank {}, at most 32", info.name, info.dims.size()));
    out.push_back(std::move(info));
  }
  return out;
}

Result<std::vector<InputInfo>> bind_inputs(const std::vector<InputInfo>& inputs, const ImportOptions& options, bool partly) {
  std::string names;
  for (const InputInfo& info : inputs) names += fmt::format("{}\"{}\" {}", names.empty() ? "" : ", ", info.name, info.shape_text());
  for (const auto& [name, shape] : options.shapes) {
    if (std::none_of(inputs.begin(), inputs.end(), [n = &name](const InputInfo& i) { return i.name == *n; })) {
      return fail(ErrorKind::usage,
                  fmt::format("a shape is given for input \"{}\", but the model has no such input; its inputs: {}", name, names));
    }
  }
  std::map<std::string, std::pair<std::int64_t, std::string>> symbols;  // symbol -> value, the input that bound it
  for (const InputInfo& info : inputs) {
    const auto given = options.shapes.find(info.name);
    if (given == options.shapes.end()) continue;
    const Shape& shape = given->second;
    const auto mismatch = [&](const std::string& why) {
      return fail(ErrorKind::usage,
                  fmt::format("shape {} given for input \"{}\", which the model declares as {}: {}{}", ir::to_string(shape),
                              info.name, info.shape_text(), why, partly ? "; give sizes, or -1 where a dimension stays open" : ""));
    };
    if (std::any_of(shape.begin(), shape.end(), [&](std::int64_t d) { return d < (partly ? -1 : 0); }))
      return mismatch("a dimension is negative");
    if (!info.has_shape) continue;
    if (shape.size() != info.dims.size()) return mismatch(fmt::format("rank {} instead of {}", shape.size(), info.dims.size()));
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0) continue;
      if (info.dims[i] >= 0 && shape[i] != info.dims[i])
        return mismatch(fmt::format("dimension {} is fixed to {}", i, info.dims[i]));
      if (info.dims[i] >= 0 || info.symbols[i].empty()) continue;
      const auto [it, fresh] = symbols.try_emplace(info.symbols[i], shape[i], info.name);
      if (!fresh && it->second.first != shape[i]) {
        return mismatch(fmt::format("dimension {} ({}) is {} here and {} for input \"{}\"", i, info.symbols[i], shape[i],
                                    it->second.first, it->second.second));
      }
    }
  }
  std::vector<InputInfo> out = inputs;
  for (InputInfo& bound : out) {
    const InputInfo info = bound;
    if (const auto given = options.shapes.find(info.name); given != options.shapes.end()) {
      bound.dims = given->second;
      for (std::size_t i = 0; i < bound.dims.size() && info.has_shape; ++i) {
        if (bound.dims[i] < 0) bound.dims[i] = info.dims[i];
      }
      bound.symbols.assign(bound.dims.size(), "");
      bound.has_shape = true;
      continue;
    }
    if (!info.has_shape) {
      if (partly) continue;
      return fail(ErrorKind::usage,
                  fmt::format("input \"{}\" has no shape in the file; give one: --shapes={}:1x...", info.name, info.name));
    }
    Shape& shape = bound.dims;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      if (const auto bound = symbols.find(info.symbols[i]); !info.symbols[i].empty() && bound != symbols.end()) {
        shape[i] = bound->second.first;
      } else if (i == 0 && options.default_batch > 0) {
        shape[i] = options.default_batch;
      } else if (!partly) {
        const std::string symbol = info.symbols[i].empty() ? std::string("unnamed") : fmt::format("\"{}\"", info.symbols[i]);
        return fail(
            ErrorKind::usage,
            fmt::format("input \"{}\" has a symbolic shape {}: dimension {} ({}) needs a value; pass --shapes={}:{} with numbers",
                        info.name, info.shape_text(), i, symbol, info.name, as_flag(shape, info.symbols)));
      }
    }
  }
  return out;
}

}  // namespace octavo::onnx
