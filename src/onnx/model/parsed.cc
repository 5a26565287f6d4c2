#include "onnx/model/parsed.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <unordered_set>

#include "base/foreign_file.h"
#include "onnx/model/held.h"
#include "onnx/model/parsed_parts.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

constexpr std::size_t kMostBytes = (std::size_t{1} << 31) - 1;  // protobuf's own limit

std::atomic<std::uint64_t>& parse_count() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

Status parse_stream(google::protobuf::io::ZeroCopyInputStream& raw, std::size_t size, const std::string& name,
                    pb::ModelProto& out) {
  parse_count().fetch_add(1, std::memory_order_relaxed);
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

Status parse_bytes(std::span<const std::byte> bytes, const std::string& name, pb::ModelProto& out) {
  google::protobuf::io::ArrayInputStream raw(bytes.data(), static_cast<int>(std::min(bytes.size(), kMostBytes)));
  const Status parsed = parse_stream(raw, bytes.size(), name, out);
  if (parsed) return parsed;
  if (const auto foreign = foreign_file(bytes)) return no_model(name, *foreign);
  return parsed;
}

Status parse_file(const std::string& path, const std::string& name, pb::ModelProto& out) {
  std::ifstream in;
  OCTAVO_TRY(const std::size_t size, open_model_file(path, in));
  constexpr int kBlock = 1 << 20;
  google::protobuf::io::IstreamInputStream raw(&in, kBlock);
  const Status parsed = parse_stream(raw, size, name, out);
  if (in.bad()) return fail(ErrorKind::io, fmt::format("reading {}: the read failed", path));
  if (parsed) return parsed;
  if (const auto foreign = foreign_file(path)) return no_model(name, *foreign);
  return parsed;
}

Result<Parsed> finished(std::shared_ptr<ParsedParts> parts) {
  try {  // allocation failures are the one exception that a file can provoke
    take_out(parts->model, parts->constants);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::bad_model, fmt::format("reading {}: its tensors do not fit into memory", parts->name));
  }
  return Parsed(std::move(parts));
}

}  // namespace

Result<Parsed> Parsed::file(const std::string& path, const std::string& name) {
  auto parts = std::make_shared<ParsedParts>();
  parts->name = name.empty() ? path : name;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  parts->folder = parent.empty() ? "." : parent.string();
  OCTAVO_CHECK(parse_file(path, parts->name, parts->model));
  return finished(std::move(parts));
}

Result<Parsed> Parsed::bytes(std::span<const std::byte> bytes, const std::string& folder, const std::string& name) {
  auto parts = std::make_shared<ParsedParts>();
  parts->name = name;
  parts->folder = folder;
  OCTAVO_CHECK(parse_bytes(bytes, parts->name, parts->model));
  return finished(std::move(parts));
}

const std::string& Parsed::name() const {
  return parts_->name;
}
const std::string& Parsed::folder() const {
  return parts_->folder;
}

std::uint64_t parses() {
  return parse_count().load(std::memory_order_relaxed);
}

void take_out(pb::ModelProto& model, Constants& constants) {
  std::unordered_set<std::string> once, twice;
  for (const pb::TensorProto& t : model.graph().initializer()) {
    if (!once.insert(t.name()).second) twice.insert(t.name());
  }
  for (pb::TensorProto& t : *model.mutable_graph()->mutable_initializer()) {
    const auto type = dtype_of(t.data_type());
    const bool plain = t.data_location() != pb::TensorProto::EXTERNAL && !t.has_segment() && type && !is_small(*type);
    if (!plain || t.raw_data().size() < kLargeConstant || twice.contains(t.name())) continue;
    const ir::Shape dims(t.dims().begin(), t.dims().end());
    const auto count = checked_count(dims, t.name());
    if (!count || static_cast<std::size_t>(*count) * ir::size_of(*type) != t.raw_data().size()) continue;
    ir::Tensor value(*type, dims);
    std::memcpy(value.mutable_bytes().data(), t.raw_data().data(), t.raw_data().size());
    std::string().swap(*t.mutable_raw_data());
    constants.insert_or_assign(t.name(), std::move(value));
  }
}

Result<std::vector<std::byte>> bytes_of(const pb::ModelProto& model, const Constants& constants) {
  pb::ModelProto whole = model;
  for (pb::TensorProto& t : *whole.mutable_graph()->mutable_initializer()) {
    const auto value = constants.find(t.name());
    if (value != constants.end()) t.set_raw_data(value->second.bytes().data(), value->second.bytes().size());
  }
  const std::size_t size = whole.ByteSizeLong();
  std::vector<std::byte> out(size <= kMostBytes ? size : 0);
  if (size > kMostBytes || !whole.SerializeToArray(out.data(), static_cast<int>(size)))
    return fail(ErrorKind::io, "the model does not fit into one protobuf message (2 GiB)");
  return out;
}

}  // namespace octavo::onnx
