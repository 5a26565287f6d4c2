#include "onnx/import/import.h"

#include <algorithm>
#include <new>
#include <optional>

#include "onnx/import/functions.h"
#include "onnx/import/importer.h"
#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {
namespace {

std::string display(const Parsed& parsed, const ImportOptions& options) {
  return options.display_name.empty() ? parsed.name() : options.display_name;
}

/// Allocation failures are the one exception that a file can provoke; they end here.
template <class Work>
auto importing(const Parsed& parsed, const ImportOptions& options, const Work& work) -> decltype(work()) {
  auto out = [&]() -> decltype(work()) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return fail(ErrorKind::bad_model, "its tensors do not fit into memory");
    }
  }();
  if (!out) return fail(out.error().kind, fmt::format("importing {}: {}", display(parsed, options), out.error().message));
  return out;
}

}  // namespace

Result<const pb::ModelProto*> without_functions(const pb::ModelProto& model, std::optional<pb::ModelProto>& copy) {
  if (model.functions_size() == 0) return &model;
  copy.emplace(model);
  OCTAVO_CHECK(inline_functions(*copy));
  return &*copy;
}

Status check_model(const Parsed& parsed, const ImportOptions& options) {
  return importing(parsed, options, [&]() -> Status {
    std::optional<pb::ModelProto> copy;
    OCTAVO_TRY(const pb::ModelProto* model, without_functions(parsed.parts().model, copy));
    return Importer(*model, parsed.parts().constants, options, "").check();
  });
}

Result<Model> import_model(const Parsed& parsed, const ImportOptions& options, LateValues& late) {
  return importing(parsed, options, [&]() -> Result<Model> {
    std::optional<pb::ModelProto> copy;
    OCTAVO_TRY(const pb::ModelProto* model, without_functions(parsed.parts().model, copy));
    return Importer(*model, parsed.parts().constants, options, parsed.folder(), &late).run();
  });
}

Result<Model> import_model(const Parsed& parsed, const ImportOptions& options) {
  LateValues none;
  return import_model(parsed, options, none);
}

Result<Model> import_bytes(std::span<const std::byte> bytes, const ImportOptions& options, const std::string& base_dir) {
  const std::string name = options.display_name.empty() ? "the model" : options.display_name;
  OCTAVO_TRY(const Parsed parsed, Parsed::bytes(bytes, base_dir, name));
  return import_model(parsed, options);
}

Result<Model> import_file(const std::string& path, const ImportOptions& options) {
  OCTAVO_TRY(const Parsed parsed, Parsed::file(path, options.display_name));
  return import_model(parsed, options);
}

Result<std::vector<InputInfo>> inputs_of(const Parsed& parsed) {
  return declared_inputs(parsed.parts().model.graph());
}

Result<std::vector<InputInfo>> outputs_of(const Parsed& parsed) {
  pb::GraphProto outputs;  // read by the same rules as inputs
  for (const pb::ValueInfoProto& output : parsed.parts().model.graph().output()) *outputs.add_input() = output;
  return declared_inputs(outputs);
}

Description describe(const pb::ModelProto& model) {
  Description d{model.producer_name(),
                model.graph().name(),
                model.domain(),
                model.doc_string(),
                model.graph().doc_string(),
                model.model_version(),
                {},
                {}};
  for (const auto& entry : model.metadata_props()) d.metadata.emplace(entry.key(), entry.value());
  for (const auto* list : {&model.graph().input(), &model.graph().output()}) {
    for (const pb::ValueInfoProto& tensor : *list) {
      std::vector<std::string> symbols;
      for (const auto& dim : tensor.type().tensor_type().shape().dim())
        symbols.push_back(dim.has_dim_value() && dim.dim_value() > 0 ? "" : dim.dim_param());
      if (std::any_of(symbols.begin(), symbols.end(), [](const std::string& s) { return !s.empty(); }))
        d.symbols.emplace(tensor.name(), std::move(symbols));
    }
  }
  return d;
}

Description description_of(const Parsed& parsed) {
  return describe(parsed.parts().model);
}

}  // namespace octavo::onnx
