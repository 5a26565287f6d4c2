#include "base/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

namespace octavo {
namespace {

constexpr std::size_t kHead = 1024;            ///< read of every file: what tells formats apart is in there
constexpr std::size_t kDirectory = 8U << 20;   ///< of an archive's directory at most
constexpr std::size_t kEndOfZip = 22 + 65535;  ///< the end record, with the longest comment

/// Up to `size` bytes from an offset on.
using Read = std::function<std::vector<std::byte>(std::uint64_t offset, std::size_t size)>;

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t number(std::string_view bytes, std::size_t at, int size) {
  std::uint64_t v = 0;
  for (int i = 0; i < size && at + static_cast<std::size_t>(i) < bytes.size(); ++i)
    v |= std::uint64_t{static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)])} << (8 * i);
  return v;
}

bool at(std::string_view bytes, std::size_t offset, std::string_view magic) {
  return bytes.size() >= offset && bytes.substr(offset).starts_with(magic);
}

/// The names in a ZIP archive, as its directory lists them; empty when it is damaged.
std::vector<std::string> names_in_zip(std::uint64_t size, const Read& read) {
  const std::size_t tail_size = static_cast<std::size_t>(std::min<std::uint64_t>(size, kEndOfZip));
  const std::vector<std::byte> tail_bytes = read(size - tail_size, tail_size);
  const std::string_view tail = text_of(tail_bytes);
  const std::size_t end = tail.rfind("PK\x05\x06");
  if (end == std::string_view::npos) return {};
  std::uint64_t length = number(tail, end + 12, 4), start = number(tail, end + 16, 4);
  constexpr std::uint64_t kWide = 0xffffffff;  // the number is in the ZIP64 end record
  if (length == kWide || start == kWide) {
    const std::size_t wide = tail.rfind(std::string_view("PK\x06\x06", 4), end);
    if (wide == std::string_view::npos) return {};
    length = number(tail, wide + 40, 8), start = number(tail, wide + 48, 8);
  }
  if (start >= size) return {};
  const std::vector<std::byte> bytes = read(start, static_cast<std::size_t>(std::min<std::uint64_t>(length, kDirectory)));
  const std::string_view directory = text_of(bytes);
  std::vector<std::string> names;
  for (std::size_t entry = 0; at(directory, entry, "PK\x01\x02") && entry + 46 <= directory.size();) {
    const std::uint64_t name = number(directory, entry + 28, 2),
                        more = number(directory, entry + 30, 2) + number(directory, entry + 32, 2);
    names.emplace_back(directory.substr(entry + 46, name));
    entry += 46 + static_cast<std::size_t>(name + more);
  }
  return names;
}

constexpr std::string_view kFromPyTorch =
    "export it to ONNX with torch.onnx.export, and give the .onnx file (docs/from-pytorch.md)";
constexpr std::string_view kConvert =
    "convert it to ONNX (tf2onnx reads TensorFlow, Keras and TFLite), and give the .onnx file (docs/onnx.md)";
constexpr std::string_view kUnpack = "unpack it first, and give the .onnx file inside (docs/troubleshooting.md)";
constexpr std::string_view kPicture = "pictures are inputs: octavo run MODEL --input PICTURE (docs/running.md)";
constexpr std::string_view kArrays = "arrays are inputs: octavo run MODEL --input FILE (docs/running.md)";
constexpr std::string_view kWeights =
    "it holds weights alone; load them into the network's program, and export that to ONNX (docs/from-pytorch.md)";

ForeignFile in_zip(std::uint64_t size, const Read& read) {
  const std::vector<std::string> names = names_in_zip(size, read);
  const auto any = [&](const auto& test) { return std::ranges::any_of(names, test); };
  const auto ends = [&](std::string_view end) {
    return any([&](const std::string& n) { return n == end || n.ends_with(fmt::format("/{}", end)); });
  };
  const bool arrays = !names.empty() && std::ranges::all_of(names, [](const std::string& n) { return n.ends_with(".npy"); });
  if (ends("archive_format") || ends("serialized_exported_program.json") ||
      any([](const std::string& n) { return n.find("models/model.json") != std::string::npos; }))
    return {"a PyTorch ExportedProgram (torch.export.save)",
            "export the program to ONNX with torch.onnx.export, and give the .onnx file (docs/from-pytorch.md)"};
  if (ends("constants.pkl") || any([](const std::string& n) { return n.find("/code/") != std::string::npos; }))
    return {"a TorchScript module",
            "export the module that it was made from to ONNX with torch.onnx.export (docs/from-pytorch.md)"};
  if (ends("data.pkl")) return {"a PyTorch checkpoint", kFromPyTorch};
  if (ends("model.weights.h5") || (ends("config.json") && ends("metadata.json"))) return {"a Keras model (.keras)", kConvert};
  if (arrays) return {"a NumPy archive (.npz)", kArrays};
  return {"a ZIP archive", kUnpack};
}

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  ForeignFile file;
};

template <std::size_t N>
constexpr std::string_view raw(const char (&bytes)[N]) {  // with zeros inside
  return {bytes, N - 1};
}

constexpr ForeignFile kTensorRT{
    "a TensorRT engine", "build again from the ONNX model: engines of TensorRT hold its own kernels (docs/from-tensorrt.md)"};
constexpr ForeignFile kPickle{"a Python pickle, as PyTorch's older checkpoints are", kFromPyTorch};
constexpr ForeignFile kTiff{"a TIFF picture", kPicture};

constexpr Magic kMagic[] = {
    {0,
     raw("OCTAVO\0\n"),
     {"an engine of Octavo",
      "give the ONNX model that it was built from; octavo explain, run and bench take engines, and so does octavo.load in Python"}},
    {0, "ftrt", kTensorRT},
    {0, "ptrt", kTensorRT},
    {4, "TFL3", {"a TFLite model", kConvert}},
    {0, raw("\x89HDF\r\n\x1a\n"), {"an HDF5 file, as Keras writes models (.h5)", kConvert}},
    {0, "GGUF", {"a GGUF file of a language model", "octavo compiles ONNX models: export the network to ONNX (docs/onnx.md)"}},
    {0, raw("\x93NUMPY"), {"a NumPy array (.npy)", kArrays}},
    {0, raw("\xff\xd8\xff"), {"a JPEG picture", kPicture}},
    {0, raw("\x89PNG\r\n\x1a\n"), {"a PNG picture", kPicture}},
    {0, "GIF8", {"a GIF picture", kPicture}},
    {8, "WEBP", {"a WebP picture", kPicture}},
    {0, raw("II*\0"), kTiff},
    {0, raw("MM\0*"), kTiff},
    {0,
     raw("\xfd"
         "7zXZ\0"),
     {"an xz archive", kUnpack}},
    {0, raw("\x1f\x8b"), {"a gzip archive", kUnpack}},
    {0, "BZh", {"a bzip2 archive", kUnpack}},
    {0, raw("\x28\xb5\x2f\xfd"), {"a Zstandard archive", kUnpack}},
    {0, raw("7z\xbc\xaf\x27\x1c"), {"a 7z archive", kUnpack}},
    {257, "ustar", {"a tar archive", kUnpack}},
    {0,
     raw("\x7f"
         "ELF"),
     {"a program or a shared library", "give the .onnx file (docs/troubleshooting.md)"}},
    {0,
     "version https://git-lfs",
     {"a pointer of Git LFS, and not the file itself", "fetch the file: git lfs pull (docs/troubleshooting.md)"}},
    {0, "%PDF", {"a PDF document", "give the .onnx file (docs/troubleshooting.md)"}},
};

std::optional<ForeignFile> of_text(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) return std::nullopt;
  head.remove_prefix(first);
  std::string lower(head.substr(0, 64));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.starts_with("<!doctype html") || lower.starts_with("<html"))
    return ForeignFile{"a web page, and perhaps what a download answered instead of the file",
                       "look at it, and download the file again (docs/troubleshooting.md)"};
  const bool xml = head.starts_with("<?xml");
  if ((xml || head.starts_with("<net ")) && head.find("<net ") != std::string_view::npos)
    return ForeignFile{"an OpenVINO IR (.xml)", "give the ONNX model that it was converted from (docs/from-openvino.md)"};
  if (xml) return ForeignFile{"an XML file", "give the .onnx file (docs/troubleshooting.md)"};
  if (head.starts_with('{') && head.find("\"modelTopology\"") != std::string_view::npos)
    return ForeignFile{"a TensorFlow.js model", kConvert};
  if (head.starts_with('{') && head.size() > 1 &&
      (std::isspace(static_cast<unsigned char>(head[1])) != 0 || head[1] == '"' || head[1] == '}'))
    return ForeignFile{"a JSON file", "give the .onnx file (docs/troubleshooting.md)"};
  if (head.starts_with("TRT-"))
    return ForeignFile{"a TensorRT calibration table", "ranges belong to a model: --calibration FILE (docs/tables.md)"};
  return std::nullopt;
}

std::optional<ForeignFile> tell(std::uint64_t size, const Read& read) {
  const std::vector<std::byte> bytes = read(0, kHead);
  const std::string_view head = text_of(bytes);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return in_zip(size, read);
  for (const Magic& m : kMagic)
    if (at(head, m.offset, m.bytes)) return m.file;
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) return kPickle;  // PROTO, and the version
  if (head.size() > 9 && head[8] == '{' && head[9] == '"' && number(head, 0, 8) > 1 && number(head, 0, 8) < size)
    return ForeignFile{"a safetensors file", kWeights};
  return of_text(head);
}

}  // namespace

std::optional<ForeignFile> foreign_file(std::span<const std::byte> bytes) {
  return tell(bytes.size(), [&](std::uint64_t offset, std::size_t size) {
    const auto part = bytes.subspan(std::min<std::size_t>(static_cast<std::size_t>(offset), bytes.size()));
    const auto some = part.first(std::min(size, part.size()));
    return std::vector<std::byte>(some.begin(), some.end());
  });
}

std::optional<ForeignFile> foreign_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? std::streamoff(in.tellg()) : -1;
  if (size <= 0) return std::nullopt;
  return tell(static_cast<std::uint64_t>(size), [&](std::uint64_t offset, std::size_t count) {
    std::vector<std::byte> bytes(count);
    in.clear();
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
    bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
    return bytes;
  });
}

}  // namespace octavo
