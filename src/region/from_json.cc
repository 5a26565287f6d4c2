// JSON -> Plan. The text may come from anywhere: every field is checked for kind and range before use, then `verify` checks the
// whole.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ir/output_sizes.h"
#include "region/json.h"
#include "region/reason_json.h"
#include "region/stage_graph.h"
#include "region/store_results.h"

namespace octavo::region {
namespace {

using nlohmann::json;

/// Remembers the first mistake and where it was; after it, every reader returns something harmless.
class Reader {
 public:
  [[nodiscard]] bool failed() const { return !error_.empty(); }
  [[nodiscard]] const std::string& error() const { return error_; }

  Plan plan(const json& j) {
    Plan p;
    if (!j.is_object()) return complain("not a JSON object"), p;
    const std::int64_t format = integer(j, "format", 0, std::numeric_limits<int>::max());
    if (format != detail::kFormat) return complain(fmt::format("format {}, this version reads {}", format, detail::kFormat)), p;
    p.model_name = text(j, "model_name");
    p.threads = static_cast<int>(integer(j, "threads", 1, 1 << 16));
    p.images = integer(j, "images", 1, 1 << 20);
    p.lanes = static_cast<int>(integer(j, "lanes", 1, 1 << 16));
    p.devices.clear();
    each(j, "devices", [&](const json& e) { p.devices.push_back({text(e, "name"), integer(e, "arena_bytes", 0, kMaxBytes)}); });
    each(j, "inputs", [&](const json& e) { p.inputs.push_back(binding(e)); });
    each(j, "outputs", [&](const json& e) { p.outputs.push_back(binding(e)); });
    if (has(j, "sizes")) {
      each(j, "sizes", [&](const json& e) {
        constexpr std::int64_t kMostOutputs = 1 << 20, kMostElements = 1 << 28;
        const auto number = [](const json& n, std::int64_t least, std::int64_t most) {
          return n.is_number_integer() && n >= least && n <= most;
        };
        const bool three = e.is_array() && e.size() == 3 && number(e[0], ir::kCounter, kMostOutputs) &&
                           number(e[1], 0, e[0] == ir::kNoOutput ? kMostElements : kMostOutputs) && number(e[2], 0, kMostOutputs);
        if (!three) return complain("a size is not three numbers");
        p.sizes.push_back({e[0].get<int>(), e[1].get<int>(), e[2].get<int>()});
      });
    }
    each(j, "buffers", [&](const json& e) { p.buffers.push_back(buffer(e)); });
    each(j, "regions", [&](const json& e) { p.regions.push_back(region(e)); });
    each(j, "decisions", [&](const json& e) { p.decisions.push_back(decision(e)); });
    p.cost_source = text(j, "cost_source");
    if (has(j, "decided_for")) p.decided_for = text(j, "decided_for");
    return p;
  }

 private:
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

  void complain(const std::string& what) {
    if (error_.empty()) error_ = fmt::format("{}{}{}", path_, path_.empty() ? "" : ": ", what);
  }
  const json* field(const json& j, const char* key) {
    if (failed()) return nullptr;
    if (!j.is_object()) return complain("not an object"), nullptr;
    const auto it = j.find(key);
    if (it == j.end()) return complain(fmt::format("field \"{}\" is missing", key)), nullptr;
    return &*it;
  }
  static bool has(const json& j, const char* key) { return j.is_object() && j.contains(key); }

  std::int64_t number(const json& j, std::string_view what, std::int64_t lo, std::int64_t hi) {
    if (j.is_number_unsigned() ? j.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                               : !j.is_number_integer()) {
      complain(fmt::format("{} is not an integer", what));
      return lo;
    }
    const auto v = j.get<std::int64_t>();
    if (v < lo || v > hi) complain(fmt::format("{} is {}, must be in {}..{}", what, v, lo, hi));
    return std::min(std::max(v, lo), hi);
  }
  std::int64_t integer(const json& j, const char* key, std::int64_t lo, std::int64_t hi) {
    const json* f = field(j, key);
    return f == nullptr ? lo : number(*f, key, lo, hi);
  }
  std::string text(const json& j, const char* key) {
    const json* f = field(j, key);
    if (f == nullptr) return {};
    if (!f->is_string()) return complain(fmt::format("\"{}\" is not a text", key)), std::string();
    return f->get<std::string>();
  }
  bool boolean(const json& j, const char* key) {
    const json* f = field(j, key);
    if (f == nullptr) return false;
    if (!f->is_boolean()) return complain(fmt::format("\"{}\" is not true or false", key)), false;
    return f->get<bool>();
  }
  template <class F>
  void each(const json& j, const char* key, F&& element) {
    const json* f = field(j, key);
    if (f == nullptr) return;
    if (!f->is_array()) return complain(fmt::format("\"{}\" is not a list", key));
    const std::string outer = path_;
    std::size_t i = 0;
    for (const json& e : *f) {
      path_ = fmt::format("{}{}{}[{}]", outer, outer.empty() ? "" : ".", key, i++);
      element(e);
      if (failed()) return;
    }
    path_ = outer;
  }
  template <class T = std::int64_t>
  std::vector<T> integers(const json& j, const char* key, std::int64_t lo, std::int64_t hi) {
    std::vector<T> out;
    each(j, key, [&](const json& e) { out.push_back(static_cast<T>(number(e, "an entry", lo, hi))); });
    return out;
  }
  ir::Shape dims(const json& j, const char* key) {
    ir::Shape out = integers(j, key, 0, kMaxBytes);
    if (out.size() > 32) complain(fmt::format("\"{}\" has {} dimensions, at most 32", key, out.size()));
    return out;
  }
  ir::DType dtype(const json& j) {
    ir::DType type{};
    const std::string name = text(j, "dtype");
    if (!ir::parse_dtype(name, type)) complain(fmt::format("\"{}\" is not a type", name));
    return type;
  }
  std::optional<ir::Quantizer> quantizer(const json& j) {
    if (!has(j, "quantizer")) return std::nullopt;
    const std::string spelled = text(j, "quantizer");
    auto q = ir::parse_quantizer(spelled);
    if (!q) complain(fmt::format("\"{}\" is not a quantizer", spelled.substr(0, 60)));
    return q;
  }

  double real(const json& j) {
    if (j.is_number_float()) return j.get<double>();
    if (j.is_object() && j.size() == 1 && has(j, "f") && j["f"].is_string()) {
      const auto& s = j["f"].get_ref<const std::string&>();
      if (s == "inf") return INFINITY;
      if (s == "-inf") return -INFINITY;
      if (s == "nan") return std::nan("");
    }
    complain("not a float");
    return 0;
  }
  ir::Attr attr(const json& j) {
    if (j.is_number_integer())
      return number(j, "an attribute", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
    if (j.is_string()) return j.get<std::string>();
    const bool empty_reals = j.is_object() && has(j, "f") && j["f"].is_array();
    if (!j.is_array() && !empty_reals) return real(j);
    const json& list = empty_reals ? j["f"] : j;
    if (empty_reals || (!list.empty() && !list[0].is_number_integer())) {
      std::vector<double> reals;
      for (const json& e : list) reals.push_back(real(e));
      return reals;
    }
    std::vector<std::int64_t> ints;
    for (const json& e : list)
      ints.push_back(number(e, "an attribute", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()));
    return ints;
  }

  TensorRef tensor(const json& j) {
    TensorRef r;
    r.buffer = static_cast<BufferId>(integer(j, "buffer", 0, std::numeric_limits<BufferId>::max()));
    r.offset = integer(j, "offset", 0, kMaxBytes);
    r.dtype = dtype(j);
    r.dims = dims(j, "dims");
    r.strides = integers(j, "strides", -kMaxBytes, kMaxBytes);
    r.quantizer = quantizer(j);
    if (has(j, "value")) r.value = text(j, "value");
    return r;
  }
  Anchor anchor(const json& j) {
    Anchor a;
    const std::string op = text(j, "op");
    const auto found = ir::find_op(op);
    if (!found) return complain(fmt::format("\"{}\" is not an operator", op)), a;
    a.op = *found;
    const json* attrs = field(j, "attrs");
    if (attrs != nullptr && !attrs->is_object()) return complain("\"attrs\" is not an object"), a;
    ir::Attrs said;
    if (attrs != nullptr) {
      for (const auto& [key, value] : attrs->items()) said.emplace(key, attr(value));
    }
    each(j, "inputs", [&](const json& e) { a.inputs.push_back(tensor(e)); });
    if (const Status facts = set_attributes(a, said); !facts) complain(facts.error().message);
    if (has(j, "weights")) a.weights = tensor(j["weights"]);
    if (has(j, "weight_zero")) a.weight_zero = integers<std::int32_t>(j, "weight_zero", -128, 255);
    if (has(j, "weight_codes")) {
      const json& c = j["weight_codes"];
      a.weight_codes =
          WeightCodes{static_cast<int>(integer(c, "bits", 2, 8)), integer(c, "block", 1, kMaxBytes), boolean(c, "one_zero")};
    }
    a.integer = boolean(j, "integer");
    return a;
  }
  Stage stage(const json& j) {
    Stage s;
    if (const json* a = field(j, "anchor")) s.anchor = anchor(*a);
    s.space = dims(j, "space");
    const std::string program = text(j, "program");
    if (failed()) return s;
    auto parsed = program::parse(program);
    if (!parsed) return complain(parsed.error().message), s;
    s.program = std::move(*parsed);
    each(j, "operands", [&](const json& e) {
      Operand o;
      if (const json* ref = field(e, "ref")) o.ref = tensor(*ref);
      o.div = integers(e, "div", 1, kMaxBytes);
      s.operands.push_back(std::move(o));
    });
    each(j, "stores", [&](const json& e) { s.stores.push_back(tensor(e)); });
    return s;
  }
  std::vector<std::string> texts(const json& j, const char* key) {
    std::vector<std::string> out;
    each(j, key, [&](const json& e) { e.is_string() ? out.push_back(e.get<std::string>()) : complain("not a text"); });
    return out;
  }
  /// The fields that identify the tactic must have a spelling that reads back to them: nothing else is in caches and messages.
  Tactic tactic(const json& j, int depth) {
    Tactic t;
    if (depth > 8) return complain("tactics nest too deep"), t;
    t.provider = text(j, "provider");
    t.family = text(j, "family");
    t.version = static_cast<int>(integer(j, "version", 0, std::numeric_limits<int>::max()));  // 0: before the first of any family
    const json* parameters = field(j, "parameters");
    if (parameters != nullptr && !parameters->is_object()) return complain("\"parameters\" is not an object"), t;
    if (parameters != nullptr) {
      for (const auto& [key, value] : parameters->items()) {
        if (!value.is_string()) return complain(fmt::format("parameter \"{}\" is not a text", key)), t;
        t.parameters.emplace(key, value.get<std::string>());
      }
    }
    each(j, "parts", [&](const json& e) { t.parts.push_back(tactic(e, depth + 1)); });
    t.required = texts(j, "required");
    t.vector = boolean(j, "vector");
    t.reference = boolean(j, "reference");
    t.stores_in_place = boolean(j, "stores_in_place");
    t.forwards_stages = boolean(j, "forwards_stages");
    t.workspace_bytes = integer(j, "workspace_bytes", 0, kMaxBytes);
    if (depth > 1 || failed() || (t.none() && t.provider.empty())) return t;
    const auto read = parse_tactic(t.name());
    if (!read) return complain(read.error().message), t;
    if (read->name() != t.name()) complain(fmt::format("tactic \"{}\" is not spelled as it is read", t.name()));
    return t;
  }
  Reason reason(const json& j) {
    auto read = reason_from_json(j);
    if (read) return *std::move(read);
    complain(read.error().message);
    return {};
  }
  Reasons reasons(const json& j, const char* key) {
    Reasons out;
    each(j, key, [&](const json& e) { out.push_back(reason(e)); });
    return out;
  }
  StageEdge stage_edge(const json& j, std::size_t reader) {
    constexpr std::int64_t kMost = 1 << 20;
    const auto index = [&](const char* key) { return static_cast<std::size_t>(integer(j, key, 0, kMost)); };
    StageEdge e;
    e.from.stage = index("stage");
    e.from.store = index("store");
    e.reader = reader;
    e.input = index("input");
    if (!has(j, "halo")) return e;
    const json& halo = j["halo"];
    e.halo = {integer(halo, "step", 1, kMaxBytes), integer(halo, "before", -kMaxBytes, kMaxBytes),
              integer(halo, "rows", 1, kMaxBytes)};
    return e;
  }
  Region region(const json& j) {
    Region r;
    constexpr auto kMaxId = std::numeric_limits<std::int32_t>::max();
    r.name = text(j, "name");
    std::vector<StageEdge> edges;
    each(j, "stages", [&](const json& e) {
      if (has(e, "reads")) each(e, "reads", [&](const json& edge) { edges.push_back(stage_edge(edge, r.stages.size())); });
      r.stages.push_back(stage(e));
    });
    r.device = static_cast<DeviceId>(integer(j, "device", 0, kMaxId));
    if (const json* t = field(j, "tactic")) r.tactic = tactic(*t, 1);
    r.packed = integers<BufferId>(j, "packed", 0, kMaxId);
    r.code = static_cast<BufferId>(integer(j, "code", -1, kMaxId));
    r.launch = text(j, "launch");
    r.required = texts(j, "required");
    each(j, "onnx_nodes",
         [&](const json& e) { e.is_string() ? void(r.onnx_nodes.insert(e.get<std::string>())) : complain("not a text"); });
    const std::string precision = text(j, "precision");
    if (const auto found = find_precision(precision)) {
      r.precision = *found;
    } else {
      complain(fmt::format("\"{}\" is not a precision", precision));
    }
    r.reasons = reasons(j, "reasons");
    each(j, "alternatives", [&](const json& e) {
      Alternative a;
      a.tactic = text(e, "tactic");
      a.reasons = reasons(e, "reasons");
      if (const json* seconds = field(e, "seconds")) a.seconds = real(*seconds);
      if (const json* estimate = field(e, "estimate")) a.estimate = real(*estimate);
      r.alternatives.push_back(std::move(a));
    });
    r.independent = boolean(j, "independent");
    if (r.stages.size() > kMostStages) return complain(fmt::format("{} stages, at most {}", r.stages.size(), kMostStages)), r;
    if (!failed() && edges != edges_of(r))
      return complain("what its stages say they read of each other (\"reads\") is not what their tensors say"), r;
    if (const json* seconds = field(j, "seconds")) r.seconds = real(*seconds);
    r.key = text(j, "key");
    r.graph_inputs = integers<ir::ValueId>(j, "graph_inputs", ir::kNone, kMaxId);
    r.graph_outputs = integers<ir::ValueId>(j, "graph_outputs", ir::kNone, kMaxId);
    if (const json* c = has(j, "counted") ? field(j, "counted") : nullptr) {  // null too once something is wrong
      r.count = static_cast<BufferId>(integer(*c, "count", 0, kMaxId));
      r.count_times = static_cast<std::int32_t>(integer(*c, "times", 1, kMaxId));
      r.count_per = static_cast<std::int32_t>(integer(*c, "per", 1, kMaxId));
      const auto dims = integers<std::int32_t>(*c, "dims", -1, kMaxId);
      for (std::size_t s = 0; s < std::min(dims.size(), r.stages.size()); ++s) r.stages[s].counted = dims[s];
    }
    return r;
  }
  Binding binding(const json& j) {
    Binding b;
    b.name = text(j, "name");
    b.type = {dtype(j), dims(j, "dims")};
    b.quantizer = quantizer(j);
    if (has(j, "strides")) b.strides = integers(j, "strides", 0, kMaxBytes);
    if (has(j, "bytes")) b.bytes = integer(j, "bytes", 0, kMaxBytes);
    if (has(j, "format")) b.format = text(j, "format");
    return b;
  }
  Decision decision(const json& j) {
    Decision d;
    d.choice = text(j, "choice");
    d.where = text(j, "where");
    d.reasons = reasons(j, "reasons");
    each(j, "candidates", [&](const json& e) {
      Decision::Candidate c;
      c.name = text(e, "name");
      if (const json* seconds = field(e, "seconds")) c.seconds = real(*seconds);
      c.notes = reasons(e, "notes");
      d.candidates.push_back(std::move(c));
    });
    if (d.candidates.empty()) return complain("a decision without candidates"), d;
    d.chosen = static_cast<std::size_t>(integer(j, "chosen", 0, static_cast<std::int64_t>(d.candidates.size()) - 1));
    each(j, "onnx_nodes",
         [&](const json& e) { e.is_string() ? void(d.onnx_nodes.insert(e.get<std::string>())) : complain("not a text"); });
    return d;
  }
  Buffer buffer(const json& j) {
    Buffer b;
    const std::string kind = text(j, "kind");
    const auto found = std::find(detail::kKinds.begin(), detail::kKinds.end(), kind);
    if (found == detail::kKinds.end()) return complain(fmt::format("\"{}\" is not a kind of buffer", kind)), b;
    b.kind = static_cast<BufferKind>(found - detail::kKinds.begin());
    b.bytes = integer(j, "bytes", 0, kMaxBytes);
    if (has(j, "space")) b.space = static_cast<DeviceId>(integer(j, "space", 0, std::numeric_limits<DeviceId>::max()));
    if (has(j, "alignment")) b.alignment = integer(j, "alignment", 64, 1 << 20);
    if (b.kind == BufferKind::arena) b.arena_offset = integer(j, "arena_offset", 0, kMaxBytes);
    if (b.kind == BufferKind::input || b.kind == BufferKind::output)
      b.binding = static_cast<int>(integer(j, "binding", 0, std::numeric_limits<int>::max()));
    b.name = text(j, "name");
    return b;
  }

  std::string path_, error_;
};

}  // namespace

Result<Plan> from_json(std::string_view text) {
  const json j = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (j.is_discarded()) return fail(ErrorKind::bad_engine, "reading a plan: the text is not JSON");
  Reader reader;
  Plan plan = reader.plan(j);
  if (reader.failed()) return fail(ErrorKind::bad_engine, "reading a plan: " + reader.error());
  if (auto status = verify(plan); !status) return fail(ErrorKind::bad_engine, "reading a plan: " + status.error().message);
  return plan;
}

}  // namespace octavo::region
