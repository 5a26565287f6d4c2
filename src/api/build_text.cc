// PipelineOptions as JSON and back. A field that a later version adds is left out here where it has its default, so that earlier files read well.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "api/layer_types.h"
#include "api/load.h"
#include "ir/tensor.h"
#include "plan/layout/bind.h"

namespace octavo::api {
namespace {

using nlohmann::json;

json write_tensor(const ir::Tensor& t) {
  std::string digits;
  for (const std::byte b : t.bytes()) digits += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return {{"dtype", ir::name_of(t.type().dtype)}, {"shape", t.type().shape}, {"bytes", digits}};
}

/// What is wrong ends the reading: json's own exceptions for types, this for values.
struct Wrong {
  std::string what;
};

/// A name that is not known is the file's mistake, not the caller's.
template <class T>
T taken(Result<T> read) {
  if (!read) throw Wrong{read.error().message};
  return std::move(*read);
}

ir::Tensor read_tensor(const json& j) {
  ir::DType dtype{};
  const bool known = ir::parse_dtype(j.at("dtype").get<std::string>(), dtype);
  const auto shape = j.at("shape").get<ir::Shape>();
  const auto digits = j.at("bytes").get<std::string>();
  constexpr std::int64_t kMost = 1 << 20;  // values that decide shapes are small
  std::int64_t count = 1;
  for (const std::int64_t d : shape) count = d < 0 || d > kMost || count * d > kMost ? -1 : count * d;
  if (!known || count < 0 || digits.size() != 2 * static_cast<std::size_t>(count) * ir::size_of(dtype))
    throw Wrong{"a value of an input"};
  ir::Tensor t(dtype, shape);
  const auto to = t.mutable_bytes();
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw Wrong{"a value of an input"};
  };
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(digit(digits[2 * i]) * 16 + digit(digits[2 * i + 1]));
  return t;
}

}  // namespace

std::string build_text(const PipelineOptions& o, const onnx::LateValues& late) {
  const plan::PlanOptions& p = o.plan;
  json j{{"device", o.device}, {"threads", p.threads}, {"effort", p.effort}, {"default_batch", o.import.default_batch}};
  if (!o.cpu.empty()) j["cpu"] = o.cpu;
  if (!o.import.shapes.empty()) j["shapes"] = o.import.shapes;
  if (!o.import.max_elements.empty()) j["max_elements"] = o.import.max_elements;
  if (!p.disabled.empty()) j["disabled"] = p.disabled;
  if (!p.forced.empty()) j["forced"] = p.forced;
  if (p.max_error) j["max_error"] = *p.max_error;
  if (p.permit_pairs) j["permit_pairs"] = true;
  if (p.allowed != plan::default_types()) j["allowed"] = p.allowed.names();
  for (const auto& [tensor, q] : p.ranges) j["ranges"][tensor] = ir::to_string(q);
  for (const plan::PrecisionRule& r : p.precisions) j["precisions"].push_back({r.pattern, r.type.name()});
  for (const auto& [tensor, format] : p.bindings) j["bindings"][tensor] = plan::to_string(format);
  for (const auto& [input, value] : late.given) j["values"][input] = write_tensor(value);
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<ReadBuild> read_build(std::string_view text, std::string_view engine) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": the options of its build cannot be read: {}", engine, what));
  };
  try {
    const json j = json::parse(text);
    ReadBuild out;
    PipelineOptions& o = out.options;
    plan::PlanOptions& p = o.plan;
    o.device = j.at("device").get<std::string>();
    o.cpu = j.value("cpu", std::string());
    o.import.default_batch = j.at("default_batch").get<std::int64_t>();
    o.import.shapes = j.value("shapes", std::map<std::string, ir::Shape>());
    o.import.max_elements = j.value("max_elements", std::map<std::string, std::int64_t>());
    for (const auto& [tensor, most] : o.import.max_elements) {
      if (most < 1 || most > onnx::kMostElements) throw Wrong{fmt::format("bound {} of \"{}\"", most, tensor)};
    }
    p.threads = j.at("threads").get<int>();
    p.effort = j.at("effort").get<int>();
    p.disabled = j.value("disabled", decltype(p.disabled)());
    p.forced = j.value("forced", decltype(p.forced)());
    if (j.contains("max_error")) p.max_error = j["max_error"].get<double>();
    p.permit_pairs = j.value("permit_pairs", false);
    p.allowed = taken(allowed_types(j.value("allowed", plan::default_types().names())));
    for (const auto& [tensor, q] : j.value("ranges", std::map<std::string, std::string>())) {
      const auto read = ir::parse_quantizer(q);
      if (!read || read->scale.size() != 1 || read->zero_point.size() != 1 || read->axis >= 0 || !ir::is_int8(read->type) ||
          std::isnan(read->scale[0]) || read->scale[0] < 0 || read->zero_point[0] < read->lo() || read->zero_point[0] > read->hi())
        throw Wrong{fmt::format("range \"{}\" of \"{}\"", q, tensor)};
      p.ranges[tensor] = *read;
    }
    for (const auto& [pattern, type] : j.value("precisions", std::vector<std::pair<std::string, std::string>>())) {
      p.precisions.push_back(taken(precision_rule(pattern, type)));
    }
    for (const auto& [tensor, format] : j.value("bindings", std::map<std::string, std::string>())) {
      p.bindings[tensor] = taken(plan::parse_format(format));
    }
    for (const auto& [input, value] : j.value("values", std::map<std::string, json>())) out.late.given[input] = read_tensor(value);
    return out;
  } catch (const json::exception& e) {
    return bad(e.what());
  } catch (const Wrong& wrong) {
    return bad(wrong.what);
  }
}

}  // namespace octavo::api
