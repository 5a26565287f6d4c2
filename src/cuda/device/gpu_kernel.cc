#include "cuda/device/gpu_kernel.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

namespace octavo::cuda {
namespace {

using nlohmann::json;
using region::TensorRef;

/// Every tensor of a region with its name: kind, stage, index.
void each_tensor(const region::Region& r, const std::function<void(const char*, std::size_t, std::size_t, const TensorRef&)>& f) {
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const region::Stage& stage = r.stages[s];
    for (std::size_t k = 0; k < stage.anchor.inputs.size(); ++k) f("input", s, k, stage.anchor.inputs[k]);
    for (std::size_t k = 0; k < stage.operands.size(); ++k) f("operand", s, k, stage.operands[k].ref);
    for (std::size_t k = 0; k < stage.stores.size(); ++k) f("store", s, k, stage.stores[k]);
    if (stage.anchor.weights) f("weights", s, 0, *stage.anchor.weights);
  }
}

tl::unexpected<Error> bad(const std::string& what) {
  return fail(ErrorKind::bad_engine, "launches of GPU kernels: " + what);
}

Result<Argument> read_parameter(const json& p, const region::Region& region) {
  if (!p.is_array() || p.empty() || !p[0].is_string()) return bad("a parameter is not a list that begins with a name");
  for (std::size_t i = 1; i < p.size(); ++i) {
    if (!p[i].is_number_integer()) return bad("a parameter is not a name and integers");
  }
  const std::string kind = p[0];
  if (kind == "workspace" && p.size() == 2) return Argument{Argument::Kind::workspace, 0, p[1]};
  if (kind == "count" && p.size() == 2 && region.count >= 0) return Argument{Argument::Kind::count, region.count, p[1]};
  if (kind == "number" && p.size() == 2) return Argument{Argument::Kind::number, 0, p[1]};
  if (kind == "constant" && p.size() == 3) {
    const std::int64_t index = p[1];
    if (index < 0 || index >= static_cast<std::int64_t>(region.packed.size()))
      return bad(fmt::format("packed constant {} of {}", index, region.packed.size()));
    return Argument{Argument::Kind::constant, region.packed[static_cast<std::size_t>(index)], p[2]};
  }
  Argument found{Argument::Kind::buffer, -1, 0};
  bool inside = true;
  if (p.size() == 4) {
    each_tensor(region, [&](const char* name, std::size_t s, std::size_t k, const TensorRef& t) {
      if (kind != name || p[1] != s || p[2] != k) return;
      found.index = t.buffer;
      inside = !__builtin_add_overflow(t.offset, p[3].get<std::int64_t>(), &found.offset);
    });
  }
  if (found.index < 0) return bad(fmt::format("parameter {} names no tensor of the region", p.dump()));
  if (!inside) return bad(fmt::format("parameter {} is far from its tensor", p.dump()));
  return found;
}

/// The parameter that buffers are, for an image too: its last number is then the image's, one of `images`.
Result<Argument> read_image_parameter(const json& p, const region::Region& region, std::size_t images) {
  if (p.size() != 6 || !p[5].is_number_integer() || p[5] < 0) return bad("an image's parameter is not a tensor and a number");
  if (p[5] >= images) return bad(fmt::format("image {} of {}", p[5].dump(), images));
  json tensor = json::array();
  for (std::size_t i = 1; i < 5; ++i) tensor.push_back(p[i]);
  OCTAVO_TRY(Argument out, read_parameter(tensor, region));
  if (out.kind != Argument::Kind::buffer) return bad("an image that is no tensor of the region");
  out.image = p[5];
  return out;
}

json numbers_of(const ImageMap& m) {
  return {m.channels, m.dims[0],  m.dims[1],  m.dims[2],  m.strides[0], m.strides[1], m.strides[2], m.lower[0],
          m.lower[1], m.upper[0], m.upper[1], m.steps[0], m.steps[1],   m.pixels,     m.bytes};
}

Result<ImageMap> read_image(const json& j) {
  constexpr std::size_t kNumbers = 15, kWide = 7;  // the first are of 64 bits
  bool numbers = j.is_array() && j.size() == kNumbers;
  for (std::size_t i = 0; numbers && i < kNumbers; ++i) {
    numbers = j[i].is_number_integer() && (i < kWide || (j[i] >= INT32_MIN && j[i] <= INT32_MAX));
  }
  if (!numbers) return bad("an image is not a list of its numbers");
  ImageMap m;
  m.channels = j[0];
  for (std::size_t d = 0; d < 3; ++d) m.dims[d] = j[1 + d], m.strides[d] = j[4 + d];
  for (std::size_t d = 0; d < 2; ++d) m.lower[d] = j[7 + d], m.upper[d] = j[9 + d], m.steps[d] = j[11 + d];
  m.pixels = j[13], m.bytes = j[14];
  return m;
}

Result<Launch> read_launch(const json& j, const region::Region& region) {
  Launch l;
  const auto three = [](const json& v, std::array<int, 3>& out) {
    if (!v.is_array() || v.size() != 3) return false;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!v[i].is_number_integer() || v[i] < 1 || v[i] > INT32_MAX) return false;
      out[i] = v[i];
    }
    return true;
  };
  for (const char* key : {"function", "grid", "block", "shared", "early", "parameters"}) {
    if (!j.contains(key)) return bad(fmt::format("a launch without \"{}\"", key));
  }
  if (!j["function"].is_string() || !three(j["grid"], l.grid) || !three(j["block"], l.block) || !j["shared"].is_number_integer() ||
      !j["early"].is_boolean() || !j["parameters"].is_array())
    return bad("a launch whose entries have other types");
  l.function = j["function"];
  l.shared_bytes = j["shared"];
  l.early = j["early"];
  if (l.shared_bytes < 0 || l.shared_bytes > (1 << 20)) return bad(fmt::format("{} bytes of shared memory", l.shared_bytes));
  if (j.contains("images")) {
    if (!j["images"].is_array()) return bad("images that are no list");
    for (const json& one : j["images"]) {
      OCTAVO_TRY(l.images.emplace_back(), read_image(one));
    }
  }
  for (const json& p : j["parameters"]) {
    const bool image = p.is_array() && !p.empty() && p[0] == "image";
    OCTAVO_TRY(const Argument parameter, image ? read_image_parameter(p, region, l.images.size()) : read_parameter(p, region));
    l.arguments.push_back(parameter);
  }
  return l;
}

}  // namespace

Result<std::string> write_launches(const RegionKernels& kernels, const region::Region& region) {
  json list = json::array();
  for (const RegionKernels::Start& start : kernels.starts) {
    json parameters = json::array();
    for (const Argument& p : start.launch.arguments) {
      if (p.kind == Argument::Kind::workspace) parameters.push_back({"workspace", p.offset});
      if (p.kind == Argument::Kind::number) parameters.push_back({"number", p.offset});
      if (p.kind == Argument::Kind::count) parameters.push_back({"count", p.offset});
      if (p.kind == Argument::Kind::constant) parameters.push_back({"constant", p.index, p.offset});
      if (p.kind != Argument::Kind::buffer) continue;
      json found;
      each_tensor(region, [&](const char* name, std::size_t s, std::size_t k, const TensorRef& t) {
        if (t.buffer == p.index && found.is_null()) found = {name, s, k, p.offset - t.offset};
      });
      if (found.is_null())
        return fail(ErrorKind::internal,
                    fmt::format("a kernel of \"{}\" reads buffer {}, which the region does not name", region.name, p.index));
      if (p.image >= 0) {
        json image = {"image"};
        for (const json& part : found) image.push_back(part);
        image.push_back(p.image);
        found = std::move(image);
      }
      parameters.push_back(std::move(found));
    }
    const Launch& l = start.launch;
    json written = {{"module", start.module},
                    {"function", l.function},
                    {"grid", l.grid},
                    {"block", l.block},
                    {"shared", l.shared_bytes},
                    {"early", l.early},
                    {"parameters", std::move(parameters)}};
    for (const ImageMap& m : l.images) written["images"].push_back(numbers_of(m));
    list.push_back(std::move(written));
  }
  return json{{"launches", std::move(list)}, {"workspace", kernels.workspace_bytes}}.dump();
}

Result<RegionKernels> read_launches(std::string_view text, const region::Region& region) {
  const json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!j.is_object() || !j.contains("launches") || !j["launches"].is_array() || !j.contains("workspace") ||
      !j["workspace"].is_number_integer())
    return bad("not an object with \"launches\" and \"workspace\"");
  RegionKernels out;
  out.workspace_bytes = j["workspace"];
  if (out.workspace_bytes < 0 || out.workspace_bytes > (std::int64_t{1} << 36))
    return bad(fmt::format("a workspace of {} bytes", out.workspace_bytes));
  for (const json& one : j["launches"]) {
    if (!one.is_object() || !one.contains("module") || !one["module"].is_number_integer() || one["module"] < 0 ||
        one["module"] > 4096)
      return bad("a launch without its module");
    OCTAVO_TRY(Launch launch, read_launch(one, region));
    out.starts.push_back({one["module"], std::move(launch)});
  }
  return out;
}

std::string join_modules(const std::vector<std::string>& modules) {
  std::string out;
  const auto number = [&](std::uint64_t v) {
    for (int i = 0; i < 8; ++i) out += static_cast<char>(v >> (8 * i));
  };
  if (modules.empty()) return out;
  number(modules.size());
  for (const std::string& m : modules) {
    number(m.size());
    out += m;
    out.append((8 - m.size() % 8) % 8, '\0');
  }
  return out;
}

Result<std::vector<std::span<const std::byte>>> split_modules(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> out;
  if (bytes.empty()) return out;
  std::size_t at = 0;
  const auto number = [&](std::uint64_t& v) {
    if (bytes.size() - at < 8) return false;
    v = 0;
    for (std::size_t i = 0; i < 8; ++i) v |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
    at += 8;
    return true;
  };
  std::uint64_t count = 0, size = 0;
  if (!number(count) || count > 4096) return bad("a wrong number of modules");
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!number(size) || size > bytes.size() - at) return bad(fmt::format("module {} is cut off", i));
    out.push_back(bytes.subspan(at, size));
    at = std::min(bytes.size(), at + size + (8 - size % 8) % 8);
  }
  return out;
}

}  // namespace octavo::cuda
