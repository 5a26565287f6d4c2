#include "onnx/import/import.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>

#include "base/foreign_file.h"
#include "onnx/import/functions.h"
#include "onnx/import/importer.h"

namespace octavo::onnx {
namespace {

constexpr std::size_t kMostBytes = (std::size_t{1} << 31) - 1;  // protobuf's own limit

Status parse(google::protobuf::io::ZeroCopyInputStream& raw, std::size_t size, const std::string& name, pb::ModelProto& out) {
  if (size == 0) return fail(ErrorKind::bad_model, fmt::format("reading {}: the file is empty", name));
  if (size > kMostBytes) {
    return fail(ErrorKind::bad_model,
                fmt::format("reading {}: {} bytes, but one ONNX file holds at most 2 GiB; save it with external data "
                            "(onnx.save(..., save_as_external_data=True))",
                            name, size));
  }
  google::protobuf::io::CodedInputStream stream(&raw);
  stream.SetTotalBytesLimit(static_cast<int>(kMostBytes));
  if (!out.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return fail(ErrorKind::bad_model,
                fmt::format("reading {}: {} bytes that are not a whole ONNX model (damaged, truncated, or another kind of file)",
                            name, size));
  }
  if (!out.has_graph() || (out.opset_import_size() == 0 && out.ir_version() == 0)) {
    return fail(ErrorKind::bad_model, fmt::format("reading {}: no ONNX model in it (no {}); is it another kind of file?", name,
                                                  out.has_graph() ? "opset and IR version" : "graph"));
  }
  return {};
}

/// What bytes that are no ONNX model are, where that is known.
tl::unexpected<Error> no_model(const std::string& name, const ForeignFile& file) {
  return fail(ErrorKind::bad_model, fmt::format("reading {}: it is {}, not an ONNX model\n  {}", name, file.name, file.help));
}

/// Opens the file and says how long it is.
Result<std::size_t> open_model_file(const std::string& path, std::ifstream& in) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return fail(ErrorKind::io, fmt::format("reading {}: no such file", path));
  if (std::filesystem::is_directory(path, code))
    return fail(ErrorKind::io, fmt::format("reading {}: it is a folder, not an ONNX file", path));
  in.open(path, std::ios::binary | std::ios::ate);
  if (!in) return fail(ErrorKind::io, fmt::format("reading {}: cannot open it (permissions?)", path));
  const std::streamoff size = in.tellg();
  if (size < 0) return fail(ErrorKind::io, fmt::format("reading {}: not a regular file", path));
  if (static_cast<std::uint64_t>(size) > kMostBytes) {
    if (const auto foreign = foreign_file(path)) return no_model(path, *foreign);
    return fail(ErrorKind::bad_model,
                fmt::format("reading {}: {} bytes, but one ONNX file holds at most 2 GiB; save it with external data", path, size));
  }
  in.seekg(0);
  return static_cast<std::size_t>(size);
}

}  // namespace

Status parse_model(std::span<const std::byte> bytes, const std::string& name, pb::ModelProto& out) {
  google::protobuf::io::ArrayInputStream raw(bytes.data(), static_cast<int>(std::min(bytes.size(), kMostBytes)));
  const Status parsed = parse(raw, bytes.size(), name, out);
  if (parsed) return parsed;
  if (const auto foreign = foreign_file(bytes)) return no_model(name, *foreign);
  return parsed;
}

Status parse_model_file(const std::string& path, const std::string& name, pb::ModelProto& out) {
  std::ifstream in;
  OCTAVO_TRY(const std::size_t size, open_model_file(path, in));
  constexpr int kBlock = 1 << 20;
  google::protobuf::io::IstreamInputStream raw(&in, kBlock);
  const Status parsed = parse(raw, size, name, out);
  if (in.bad()) return fail(ErrorKind::io, fmt::format("reading {}: the read failed", path));
  if (parsed) return parsed;
  if (const auto foreign = foreign_file(path)) return no_model(name, *foreign);
  return parsed;
}

namespace {

std::string display(const ImportOptions& options) {
  return options.display_name.empty() ? std::string("the model") : options.display_name;
}

Result<Model> import_parsed(pb::ModelProto& model, const ImportOptions& options, const std::string& base_dir, LateValues& late) {
  // Allocation failures are the one exception that a file can provoke; they end here.
  auto out = [&]() -> Result<Model> {
    try {
      OCTAVO_CHECK(inline_functions(model));
      return Importer(model, options, base_dir, &late).run();
    } catch (const std::bad_alloc&) {
      return fail(ErrorKind::bad_model, "its tensors do not fit into memory");
    }
  }();
  if (!out) return fail(out.error().kind, fmt::format("importing {}: {}", display(options), out.error().message));
  return out;
}

}  // namespace

Status check_bytes(std::span<const std::byte> bytes, const ImportOptions& options) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, display(options), model));
  const auto out = [&]() -> Status {
    try {
      OCTAVO_CHECK(inline_functions(model));
      return Importer(model, options, "").check();
    } catch (const std::bad_alloc&) {
      return fail(ErrorKind::bad_model, "its tensors do not fit into memory");
    }
  }();
  if (!out) return fail(out.error().kind, fmt::format("importing {}: {}", display(options), out.error().message));
  return {};
}

Result<Model> import_bytes(std::span<const std::byte> bytes, const ImportOptions& options, const std::string& base_dir,
                           LateValues& late) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, display(options), model));
  return import_parsed(model, options, base_dir, late);
}

Result<Model> import_bytes(std::span<const std::byte> bytes, const ImportOptions& options, const std::string& base_dir) {
  LateValues none;
  return import_bytes(bytes, options, base_dir, none);
}

Result<Model> import_file(const std::string& path, const ImportOptions& options) {
  LateValues none;
  return import_file(path, options, none);
}

Result<Model> import_file(const std::string& path, const ImportOptions& options, LateValues& late) {
  ImportOptions named = options;
  if (named.display_name.empty()) named.display_name = path;
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model_file(path, named.display_name, model));
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return import_parsed(model, named, parent.empty() ? "." : parent.string(), late);
}

Result<std::vector<InputInfo>> inputs_of(std::span<const std::byte> bytes) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, "the model", model));
  return declared_inputs(model.graph());
}

Result<std::vector<InputInfo>> inputs_of_file(const std::string& path) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model_file(path, path, model));
  return declared_inputs(model.graph());
}

Result<std::vector<InputInfo>> outputs_of(std::span<const std::byte> bytes) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, "the model", model));
  pb::GraphProto outputs;  // read by the same rules as inputs
  for (const pb::ValueInfoProto& output : model.graph().output()) *outputs.add_input() = output;
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

Result<Description> description_of(std::span<const std::byte> bytes) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, "the model", model));
  return describe(model);
}

}  // namespace octavo::onnx
