#include "cli/outputs/view_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>

#include "base/write_file.h"
#include "cli/commands/run_buffers.h"
#include "cli/print.h"
#include "plan/advice/price_roundings.h"
#include "report/document.h"
#include "report/schema.h"

namespace octavo::cli {
namespace {

using nlohmann::json;
using std::string_view_literals::operator""sv;  // whose length the compiler need not count

/// The page without its data, in pieces, as scripts/view_template.py makes it: "..." stands where the documents go.
constexpr std::string_view kTemplate[] = {
#include "view_template.inc"
};
constexpr std::string_view kDataMark = "@@octavo-data@@";

json roundings_json(const std::vector<plan::Rounding>& roundings) {
  json out = json::array();
  for (const plan::Rounding& r : roundings) {
    out.push_back({{"tensor", r.tensor},
                   {"kind", r.kind == plan::Rounding::Kind::inside ? "inside" : "left_out"},
                   {"grid", ir::to_string(r.quantizer)},
                   {"onnx_nodes", r.onnx_nodes},
                   {"around", r.around}});
  }
  return out;
}

Result<json> profile_json(const std::shared_ptr<const engine::Engine>& engine, int threads, int runs) {
  const RunBuffers buffers(engine->plan());
  OCTAVO_TRY(const auto context, engine::Context::create(engine, threads));
  OCTAVO_TRY(const auto profile, context->profile(buffers.in, buffers.out, runs));
  json regions = json::array();
  for (const engine::RegionTime& t : profile.regions) regions.push_back(t.median);
  return json{{"runs", runs},
              {"threads", context->threads()},
              {"median_seconds", profile.total.median},
              {"least_seconds", profile.total.least},
              {"regions", std::move(regions)}};
}

/// JSON of at most this depth: what is written again recursively must not exhaust the stack.
constexpr int kDeepest = 64;

Result<json> parse(std::string_view text, const std::string& name) {
  bool deep = false;
  json j = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        deep = deep || depth > kDeepest;
        return depth <= kDeepest;
      },
      false);
  if (deep) return fail(ErrorKind::bad_input, fmt::format("\"{}\" is nested more than {} deep", name, kDeepest));
  if (j.is_discarded() || !j.is_object())
    return fail(ErrorKind::bad_input,
                fmt::format("\"{}\" is not a JSON object\n  give what `octavo explain MODEL --json` printed", name));
  return j;
}

struct Wanted {
  const char* field;
  json::value_t type;
};

/// The fields that the page counts on, with their types.
Status check_fields(const json& j, std::initializer_list<Wanted> wanted, const std::string& where, const std::string& name) {
  for (const Wanted& w : wanted) {
    const auto at = j.is_object() ? j.find(w.field) : j.end();
    const bool there = j.is_object() && at != j.end();
    const bool fits =
        there && (at->type() == w.type || (w.type == json::value_t::number_float && at->is_number()) ||
                  (w.type == json::value_t::number_unsigned && at->is_number_integer() && at->get<std::int64_t>() >= 0));
    if (fits) continue;
    return fail(ErrorKind::bad_input,
                fmt::format("\"{}\": {}\"{}\" is {}, needs {}\n"
                            "  give what `octavo explain MODEL --json` of this version printed",
                            name, where, w.field, there ? at->type_name() : "missing", json(w.type).type_name()));
  }
  return {};
}

/// Of many scales or zero points, [least, greatest]; and how many there were.
void shorten(json& j, const char* field, const char* count) {
  constexpr std::size_t kMost = 16;
  if (!j.contains(field) || !j[field].is_array() || j[field].size() <= kMost) return;
  const auto [least, greatest] = std::minmax_element(j[field].begin(), j[field].end());
  json range = json::array({*least, *greatest});
  j[count] = j[field].size();
  j[field] = std::move(range);
}

void strip(json& j) {
  if (j.is_object()) {
    j.erase("reasons");
    j.erase("notes");
    shorten(j, "scale", "scales");
    shorten(j, "zero_point", "zero_points");
  }
  for (auto& child : j) {
    if (child.is_structured()) strip(child);
  }
}

}  // namespace

json onnx_document(const onnx::GraphNodes& graph, const api::Built* built) {
  json nodes = json::array();
  std::map<std::string, std::string> absorbed;
  if (built != nullptr) absorbed.insert(built->model.absorbed.begin(), built->model.absorbed.end());
  for (const onnx::GraphNode& n : graph.nodes) {
    json j = {{"name", n.name}, {"op", n.op}, {"inputs", n.inputs}, {"outputs", n.outputs}};
    if (const auto why = absorbed.find(n.name); why != absorbed.end()) j["absorbed"] = why->second;
    nodes.push_back(std::move(j));
  }
  return {{"nodes", std::move(nodes)}, {"inputs", graph.inputs}, {"outputs", graph.outputs}};
}

Result<json> view_document(const std::shared_ptr<const engine::Engine>& engine, const ViewExtras& extras) {
  const region::Plan& plan = engine->plan();
  std::vector<std::size_t> all(plan.regions.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::optional<report::LawLog> laws;
  if (extras.built != nullptr) laws = report::laws_at(extras.built->reports, {});
  json out = report::document(plan, engine->plan_hash(), all, laws ? &*laws : nullptr, engine->made_by().version());
  if (!extras.file.empty()) out["file"] = extras.file;
  if (extras.nodes != nullptr) out["onnx"] = onnx_document(*extras.nodes, extras.built);
  if (extras.built != nullptr && !extras.ranges) {
    plan::PlanOptions options;
    options.disabled.insert(extras.disabled.begin(), extras.disabled.end());
    OCTAVO_TRY(const auto roundings, plan::roundings_of(extras.built->model.graph, options));
    out["roundings"] = roundings_json(roundings);
  }
  if (extras.runs > 0) {
    OCTAVO_TRY(out["profile"], profile_json(engine, extras.threads, extras.runs));
  }
  return out;
}

Result<json> read_document(std::string_view text, const std::string& name) {
  using Type = json::value_t;
  OCTAVO_TRY(json j, parse(text, name));
  if (!j.contains("schema") || j["schema"] != report::kSchema) {
    return fail(
        ErrorKind::bad_input,
        fmt::format(
            "\"{}\" has \"schema\": {}, needs {}\n  give what `octavo explain MODEL --json` of this version printed", name,
            j.contains("schema") ? j["schema"].dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40) : "nothing",
            report::kSchema));
  }
  OCTAVO_CHECK(check_fields(j,
                            {{"model", Type::string},
                             {"plan_hash", Type::string},
                             {"threads", Type::number_unsigned},
                             {"totals", Type::object},
                             {"cost_source", Type::string},
                             {"decisions", Type::array},
                             {"devices", Type::array},
                             {"inputs", Type::array},
                             {"outputs", Type::array},
                             {"memory", Type::array},
                             {"regions", Type::array}},
                            "", name));
  for (std::size_t i = 0; i < j["regions"].size(); ++i) {
    const json& r = j["regions"][i];
    const std::string where = fmt::format("region {}: ", i);
    OCTAVO_CHECK(check_fields(r,
                              {{"index", Type::number_unsigned},
                               {"name", Type::string},
                               {"onnx_nodes", Type::array},
                               {"precision", Type::string},
                               {"tactic", Type::string},
                               {"reason", Type::string},
                               {"sources", Type::array},
                               {"stages", Type::array},
                               {"alternatives", Type::array}},
                              where, name));
    for (const json& source : r["sources"]) {
      if (!source.is_object() || !source.contains("region")) continue;
      if (!source["region"].is_number_integer() || source["region"] < 0 || source["region"] >= i)
        return fail(ErrorKind::bad_input, fmt::format("\"{}\": {}a source that is no earlier region", name, where));
    }
  }
  return j;
}

Status add_accuracy(json& document, std::string_view report, const std::string& name) {
  OCTAVO_TRY(const json given, parse(report, name));
  if (!given.contains("layers") || !given["layers"].is_array()) {
    return fail(ErrorKind::bad_input,
                fmt::format("\"{}\" has no list \"layers\": it is not what `octavo quantize --report` writes", name));
  }
  std::set<std::string> nodes;
  for (const json& r : document["regions"]) {
    for (const json& n : r["onnx_nodes"]) {
      if (n.is_string()) nodes.insert(n.get<std::string>());
    }
  }
  json layers = json::array();
  std::string other;
  for (const json& layer : given["layers"]) {
    if (!layer.is_object() || !layer.contains("node") || !layer["node"].is_string()) continue;
    const char* field = layer.contains("sqnr_db") ? "sqnr_db" : "sqnr_db_nearest";
    if (!layer.contains(field) || !layer[field].is_number()) continue;
    if (nodes.contains(layer["node"].get<std::string>())) {
      layers.push_back({{"node", layer["node"]}, {"sqnr_db", layer[field]}});
    } else {
      other = layer["node"].get<std::string>();
    }
  }
  if (layers.empty()) {
    return fail(
        ErrorKind::bad_input,
        fmt::format("\"{}\" says nothing of any node of this plan{}\n  give the report of `octavo quantize` of the same model",
                    name,
                    other.empty() ? std::string(": no layer has a signal to noise")
                                  : fmt::format(": it is about \"{}\", for example", other)));
  }
  document["accuracy"] = {{"source", name}, {"layers", std::move(layers)}};
  return {};
}

std::string view_page(std::vector<json> documents) {
  for (json& d : documents) strip(d);
  std::string page;
  for (const std::string_view piece : kTemplate) page += piece;
  const std::string data = json(std::move(documents)).dump(-1, ' ', false, json::error_handler_t::replace);
  std::string safe;  // "</script>" in a name would end the element that holds the data
  safe.reserve(data.size() + data.size() / 16);
  for (const char c : data) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  const std::size_t at = page.find(kDataMark);
  page.replace(at, kDataMark.size(), safe);
  return page;
}

Result<int> write_page(std::vector<json> documents, const std::string& path) {
  const std::string page = view_page(std::move(documents));
  if (path == "-") {
    fmt::print("{}", page);
    return 0;
  }
  OCTAVO_CHECK(write_file(path, page));
  say("{}: {:.1f} MB\n", path, static_cast<double>(page.size()) / 1e6);
  return 0;
}

}  // namespace octavo::cli
