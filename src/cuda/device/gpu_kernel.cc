#include "cuda/device/gpu_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

namespace octavo::cuda {
namespace {

using nlohmann::json;
using region::TensorRef;

using ParameterKind = LaunchForm::Parameter::Kind;
/// By kind: what parameters are called in files.
constexpr std::string_view kNames[] = {"workspace", "count", "next", "number", "constant", "input", "operand", "store", "weights"};
std::string_view name_of(ParameterKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

/// Every tensor of a region: kind, stage, index.
void each_tensor(const region::Region& r, const std::function<void(ParameterKind, std::size_t, std::size_t, const TensorRef&)>& f) {
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const region::Stage& stage = r.stages[s];
    for (std::size_t k = 0; k < stage.anchor.inputs.size(); ++k) f(ParameterKind::input, s, k, stage.anchor.inputs[k]);
    for (std::size_t k = 0; k < stage.operands.size(); ++k) f(ParameterKind::operand, s, k, stage.operands[k].ref);
    for (std::size_t k = 0; k < stage.stores.size(); ++k) f(ParameterKind::store, s, k, stage.stores[k]);
    if (stage.anchor.weights) f(ParameterKind::weights, s, 0, *stage.anchor.weights);
  }
}

tl::unexpected<Error> bad(const std::string& what) {
  return fail(ErrorKind::bad_engine, "launches of GPU kernels: " + what);
}

json numbers_of(const ImageMap& m) {
  return {m.channels, m.dims[0],  m.dims[1],  m.dims[2],  m.strides[0], m.strides[1], m.strides[2], m.lower[0],
          m.lower[1], m.upper[0], m.upper[1], m.steps[0], m.steps[1],   m.pixels,     m.bytes};
}

constexpr std::size_t kImageNumbers = 15, kWideNumbers = 7;  // the first are of 64 bits

/// JSON as a form, and the numbers that stood there.
class FormReader {
 public:
  std::vector<std::int64_t> numbers;

  Result<LaunchForm> read(std::string_view text) {
    const json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
    LaunchForm out;
    if (!j.is_object() || !j.contains("launches") || !j["launches"].is_array() || !j.contains("workspace") ||
        !number(j["workspace"], out.workspace))
      return bad("not an object with \"launches\" and \"workspace\"");
    for (const json& one : j["launches"]) {
      if (!one.is_object() || !one.contains("module") || !one["module"].is_number_integer())
        return bad("a launch without its module");
      OCTAVO_TRY(out.starts.emplace_back(), start(one));
    }
    return out;
  }

 private:
  bool number(const json& j, LaunchForm::Number& at) {
    if (!j.is_number_integer()) return false;
    at = static_cast<LaunchForm::Number>(numbers.size());
    numbers.push_back(j.get<std::int64_t>());
    return true;
  }
  template <std::size_t N>
  bool list(const json& j, std::array<LaunchForm::Number, N>& at) {
    bool all = j.is_array() && j.size() == N;
    for (std::size_t i = 0; all && i < N; ++i) all = number(j[i], at[i]);
    return all;
  }

  Result<LaunchForm::Parameter> parameter(const json& p) {
    if (!p.is_array() || p.empty() || !p[0].is_string()) return bad("a parameter is not a list that begins with a name");
    LaunchForm::Parameter out;
    out.image = p[0] == "image";
    const std::size_t name = out.image ? 1 : 0;
    if (p.size() <= name || !p[name].is_string()) return bad("an image's parameter is not a tensor and a number");
    const auto word = p[name].get<std::string>();
    const auto kind = std::find(std::begin(kNames), std::end(kNames), word);
    const std::size_t count = p.size() - name - 1;
    bool known = kind != std::end(kNames) && count <= out.numbers.size();
    if (known) {
      out.kind = static_cast<ParameterKind>(kind - std::begin(kNames));
      known = count == LaunchForm::count_of(out) && (!out.image || out.kind >= ParameterKind::input);
    }
    if (!known) return bad(fmt::format("parameter {} names no tensor of the region", p.dump()));
    for (std::size_t i = 0; i < count; ++i) {
      if (!number(p[name + 1 + i], out.numbers[i])) return bad("a parameter is not a name and integers");
    }
    return out;
  }

  Result<LaunchForm::Start> start(const json& j) {
    LaunchForm::Start out;
    for (const char* key : {"function", "grid", "block", "shared", "early", "parameters"}) {
      if (!j.contains(key)) return bad(fmt::format("a launch without \"{}\"", key));
    }
    if (!j["function"].is_string() || !list(j["grid"], out.grid) || !list(j["block"], out.block) ||
        !number(j["shared"], out.shared) || !j["early"].is_boolean() || !j["parameters"].is_array() ||
        !number(j["module"], out.module))
      return bad("a launch whose entries have other types");
    out.function = j["function"];
    out.early = j["early"];
    if (j.contains("images")) {
      if (!j["images"].is_array()) return bad("images that are no list");
      for (const json& one : j["images"]) {
        if (!list(one, out.images.emplace_back())) return bad("an image is not a list of its numbers");
      }
    }
    for (const json& p : j["parameters"]) {
      OCTAVO_TRY(out.parameters.emplace_back(), parameter(p));
    }
    return out;
  }
};

/// A form with numbers: launches of a region.
class Launches {
 public:
  Launches(std::span<const std::int64_t> numbers, const region::Region& region) : numbers_(numbers), region_(region) {}

  Result<RegionKernels> of(const LaunchForm& form) {
    RegionKernels out;
    out.workspace_bytes = at(form.workspace);
    if (out.workspace_bytes < 0 || out.workspace_bytes > (std::int64_t{1} << 36))
      return bad(fmt::format("a workspace of {} bytes", out.workspace_bytes));
    out.starts.reserve(form.starts.size());
    for (const LaunchForm::Start& s : form.starts) {
      const std::int64_t module = at(s.module);
      if (module < 0 || module > 4096) return bad("a launch without its module");
      OCTAVO_TRY(Launch launch, launch_of(s));
      out.starts.push_back({static_cast<int>(module), std::move(launch)});
    }
    if (missing_) return bad("a number that is not there");
    return out;
  }

 private:
  using Kind = ParameterKind;
  std::int64_t at(LaunchForm::Number i) {
    if (i < numbers_.size()) return numbers_[i];
    missing_ = true;
    return 0;
  }
  bool three(const std::array<LaunchForm::Number, 3>& from, std::array<int, 3>& to) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t v = at(from[i]);
      if (v < 1 || v > INT32_MAX) return false;
      to[i] = static_cast<int>(v);
    }
    return true;
  }

  Result<Launch> launch_of(const LaunchForm::Start& s) {
    Launch l;
    if (!three(s.grid, l.grid) || !three(s.block, l.block)) return bad("a launch whose entries have other types");
    l.function = s.function;
    l.shared_bytes = at(s.shared);
    l.early = s.early;
    if (l.shared_bytes < 0 || l.shared_bytes > (1 << 20)) return bad(fmt::format("{} bytes of shared memory", l.shared_bytes));
    for (const auto& image : s.images) {
      std::array<std::int64_t, kImageNumbers> n{};
      for (std::size_t i = 0; i < kImageNumbers; ++i) {
        n[i] = at(image[i]);
        if (i >= kWideNumbers && (n[i] < INT32_MIN || n[i] > INT32_MAX)) return bad("an image is not a list of its numbers");
      }
      const auto narrow = [&](std::size_t i) { return static_cast<std::int32_t>(n[i]); };
      ImageMap& m = l.images.emplace_back();
      m.channels = n[0];
      for (std::size_t d = 0; d < 3; ++d) m.dims[d] = n[1 + d], m.strides[d] = n[4 + d];
      for (std::size_t d = 0; d < 2; ++d) m.lower[d] = narrow(7 + d), m.upper[d] = narrow(9 + d), m.steps[d] = narrow(11 + d);
      m.pixels = narrow(13), m.bytes = narrow(14);
    }
    l.arguments.reserve(s.parameters.size());
    for (const LaunchForm::Parameter& p : s.parameters) {
      OCTAVO_TRY(l.arguments.emplace_back(), argument(p, l.images.size()));
    }
    return l;
  }

  Result<Argument> argument(const LaunchForm::Parameter& p, std::size_t images) {
    if (p.kind == Kind::workspace) return Argument{Argument::Kind::workspace, 0, at(p.numbers[0])};
    if (p.kind == Kind::next) return Argument{Argument::Kind::next, 0, at(p.numbers[0])};
    if (p.kind == Kind::number) return Argument{Argument::Kind::number, 0, at(p.numbers[0])};
    if (p.kind == Kind::count) {
      if (region_.count < 0) return bad("a parameter is a count, and none decides the region's size");
      return Argument{Argument::Kind::count, region_.count, at(p.numbers[0])};
    }
    if (p.kind == Kind::constant) {
      const std::int64_t index = at(p.numbers[0]);
      if (index < 0 || index >= static_cast<std::int64_t>(region_.packed.size()))
        return bad(fmt::format("packed constant {} of {}", index, region_.packed.size()));
      return Argument{Argument::Kind::constant, region_.packed[static_cast<std::size_t>(index)], at(p.numbers[1])};
    }
    const std::int64_t stage = at(p.numbers[0]), index = at(p.numbers[1]), offset = at(p.numbers[2]);
    const TensorRef* t = tensor(p.kind, stage, index);
    if (t == nullptr)
      return bad(fmt::format("a parameter names tensor {} of stage {}, which the region does not have", index, stage));
    Argument found{Argument::Kind::buffer, t->buffer, 0};
    if (__builtin_add_overflow(t->offset, offset, &found.offset))
      return bad(fmt::format("a parameter {} bytes from its tensor", offset));
    if (p.image) {
      const std::int64_t image = at(p.numbers[3]);
      if (image < 0 || image >= static_cast<std::int64_t>(images)) return bad(fmt::format("image {} of {}", image, images));
      found.image = static_cast<std::int32_t>(image);
    }
    return found;
  }

  [[nodiscard]] const TensorRef* tensor(Kind kind, std::int64_t stage, std::int64_t index) const {
    if (stage < 0 || stage >= static_cast<std::int64_t>(region_.stages.size()) || index < 0) return nullptr;
    const region::Stage& s = region_.stages[static_cast<std::size_t>(stage)];
    const auto k = static_cast<std::size_t>(index);
    if (kind == Kind::input) return k < s.anchor.inputs.size() ? &s.anchor.inputs[k] : nullptr;
    if (kind == Kind::operand) return k < s.operands.size() ? &s.operands[k].ref : nullptr;
    if (kind == Kind::store) return k < s.stores.size() ? &s.stores[k] : nullptr;
    return k == 0 && s.anchor.weights ? &*s.anchor.weights : nullptr;
  }

  std::span<const std::int64_t> numbers_;
  const region::Region& region_;
  bool missing_ = false;
};

}  // namespace

Result<std::string> write_launches(const RegionKernels& kernels, const region::Region& region) {
  json list = json::array();
  for (const RegionKernels::Start& start : kernels.starts) {
    json parameters = json::array();
    for (const Argument& p : start.launch.arguments) {
      if (p.kind == Argument::Kind::workspace) parameters.push_back({name_of(ParameterKind::workspace), p.offset});
      if (p.kind == Argument::Kind::next) parameters.push_back({name_of(ParameterKind::next), p.offset});
      if (p.kind == Argument::Kind::number) parameters.push_back({name_of(ParameterKind::number), p.offset});
      if (p.kind == Argument::Kind::count) parameters.push_back({name_of(ParameterKind::count), p.offset});
      if (p.kind == Argument::Kind::constant) parameters.push_back({name_of(ParameterKind::constant), p.index, p.offset});
      if (p.kind != Argument::Kind::buffer) continue;
      json found;
      each_tensor(region, [&](ParameterKind kind, std::size_t s, std::size_t k, const TensorRef& t) {
        if (t.buffer == p.index && found.is_null()) found = {name_of(kind), s, k, p.offset - t.offset};
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
  FormReader reader;
  OCTAVO_TRY(const LaunchForm form, reader.read(text));
  return launches_of(form, reader.numbers, region);
}

Result<LaunchForm> read_form(std::string_view text) {
  FormReader reader;
  OCTAVO_TRY(LaunchForm form, reader.read(text));
  bool sound = true;
  const auto index = [&](LaunchForm::Number& n) {
    const std::int64_t v = reader.numbers[n];
    sound = sound && v >= 0 && v <= INT32_MAX;
    n = static_cast<LaunchForm::Number>(v);
  };
  index(form.workspace);
  for (LaunchForm::Start& s : form.starts) {
    index(s.module), index(s.shared);
    for (auto* three : {&s.grid, &s.block}) std::for_each(three->begin(), three->end(), index);
    for (auto& image : s.images) std::for_each(image.begin(), image.end(), index);
    for (LaunchForm::Parameter& p : s.parameters) {
      const std::size_t count = LaunchForm::count_of(p);
      for (std::size_t i = 0; i < count; ++i) index(p.numbers[i]);
    }
  }
  if (!sound) return bad("an index that is none");
  return form;
}

Result<RegionKernels> launches_of(const LaunchForm& form, std::span<const std::int64_t> numbers, const region::Region& region) {
  return Launches(numbers, region).of(form);
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
