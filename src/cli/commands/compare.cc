#include "cli/commands/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands/onnxruntime.h"
#include "cli/commands/pairing.h"
#include "cli/inputs/late.h"
#include "ir/text.h"
#include "region/sizes.h"

namespace octavo::cli {
namespace {

/// The other side: a model that Octavo runs, or what ONNX Runtime has computed.
struct Other {
  std::string name;
  std::vector<region::Binding> inputs, outputs;
  Loaded loaded;
  std::unique_ptr<engine::Context> context;
  std::vector<std::vector<ir::Tensor>> results;  ///< by feed, where they are there already
};

/// One output, over all feeds.
struct Row {
  std::string name, other;
  ir::TensorType type;
  std::int64_t elements = 0, beyond = 0;
  double worst = 0;       ///< |first - other|; infinity where one is not finite and the other is something else
  double least_atol = 0;  ///< that would hold with this rtol
  double signal = 0, noise = 0;
  std::string at;  ///< the worst element
  [[nodiscard]] bool ok() const { return beyond == 0; }
};

ModelOptions options_of_other(const ModelOptions& model, const std::string& other, bool same_names) {
  ModelOptions m = options_for(model, other);
  if (is_engine_file(other)) m.values.clear(), m.batch = 0;
  if (!same_names) m.values.clear(), m.bindings.clear();  // options that name inputs are about the first
  m.shapes.clear(), m.opt_shapes.clear(), m.min_shapes.clear(), m.max_shapes.clear();
  return m;
}

/// Before a build for shapes that the model cannot have.
Status takes(const Declared& declared, const std::string& path, const std::vector<region::Binding>& inputs,
             const std::string& first, bool same) {
  bool fits = declared.inputs.size() == inputs.size();
  for (std::size_t i = 0; fits && i < inputs.size(); ++i) {
    const auto at =
        same ? std::find_if(declared.inputs.begin(), declared.inputs.end(), [&](const auto& d) { return d.name == inputs[i].name; })
             : declared.inputs.begin() + static_cast<std::ptrdiff_t>(i);
    const ir::Shape &has = at->type.shape, &wants = inputs[i].type.shape;
    fits = at->type.dtype == inputs[i].type.dtype && (at->shape_text == "[?]" || has.size() == wants.size());
    for (std::size_t k = 0; fits && k < has.size() && k < wants.size(); ++k) fits = has[k] < 0 || has[k] == wants[k];
  }
  if (fits) return {};
  std::string theirs, mine;
  for (const auto& d : declared.inputs)
    theirs += fmt::format("{}\"{}\" {}{}", theirs.empty() ? "" : ", ", d.name, ir::name_of(d.type.dtype), d.shape_text);
  for (const auto& b : inputs) mine += fmt::format("{}\"{}\" {}", mine.empty() ? "" : ", ", b.name, ir::to_string(b.type));
  return fail(ErrorKind::usage, fmt::format("the models have different inputs, and cannot be compared\n  {}: {}\n  {}: {}", first,
                                            mine, path, theirs));
}

Result<Other> open_octavo(const ModelOptions& model, const std::string& path, const Loaded& first, const Arrays& arrays,
                          Progress& progress) {
  Other out;
  out.name = path;
  OCTAVO_TRY(out.loaded, load_beside(model, path, first, arrays, progress));
  OCTAVO_TRY(out.context, engine::Context::create(out.loaded.engine, out.loaded.threads));
  out.inputs = out.loaded.engine->plan().inputs;
  out.outputs = out.loaded.engine->plan().outputs;
  out.outputs.resize(region::shown_outputs(out.loaded.engine->plan()));
  return out;
}

Result<Other> open_onnxruntime(const std::string& path, const Loaded& first, const std::vector<Feed>& feeds, int threads,
                               Progress& progress) {
  if (is_engine_file(path)) {
    return fail(ErrorKind::usage,
                fmt::format("--against onnxruntime: \"{0}\" is an engine, and ONNX Runtime runs ONNX files\n  name both: octavo "
                            "check {0} model.onnx --against onnxruntime",
                            path));
  }
  progress.step(fmt::format("{} in ONNX Runtime", path));
  std::vector<std::vector<ir::Tensor>> tensors;
  for (const Feed& feed : feeds) tensors.push_back(feed.tensors);
  OCTAVO_TRY(auto ran, run_onnxruntime(path, first.engine->plan().inputs, tensors, threads));
  Other out;
  out.name = fmt::format("{} in {}", path, ran.version);
  out.inputs = std::move(ran.inputs), out.outputs = std::move(ran.outputs), out.results = std::move(ran.results);
  return out;
}

std::string index_text(std::int64_t flat, const ir::Shape& shape) {
  ir::Shape index(shape.size());
  for (std::size_t k = shape.size(); k-- > 0;) {
    index[k] = flat % shape[k];
    flat /= shape[k];
  }
  return ir::to_string(index);
}

void add(const ir::Tensor& mine, const ir::Tensor& theirs, const CompareOptions& o, const std::string& feed, bool several,
         Row& row) {
  row.elements += mine.size();
  if (mine.shape() != theirs.shape()) {  // of a size that data decide
    row.at = fmt::format("{}{} and {}", several ? feed + ": " : "", ir::to_string(mine.shape()), ir::to_string(theirs.shape()));
    row.worst = row.least_atol = INFINITY;
    row.beyond += std::max<std::int64_t>(mine.size(), 1);
    return;
  }
  for (std::int64_t i = 0; i < mine.size(); ++i) {
    const double a = mine.at(i), b = theirs.at(i);
    if (std::isfinite(a) && std::isfinite(b)) row.signal += b * b, row.noise += (a - b) * (a - b);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const bool finite = std::isfinite(a) && std::isfinite(b);
    const double gap = finite ? std::abs(a - b) : INFINITY;
    if (gap > row.worst) {
      row.worst = gap;
      row.at = fmt::format("{}{}: {:.7g} and {:.7g}", index_text(i, mine.shape()), several ? " of " + feed : "", a, b);
    }
    row.least_atol = std::max(row.least_atol, finite ? gap - o.rtol * std::abs(b) : INFINITY);
    row.beyond += gap <= o.atol + o.rtol * std::abs(b) ? 0 : 1;
  }
}

std::string sqnr_text(const Row& r) {
  if (r.noise == 0) return r.worst == 0 ? "equal" : "-";
  return r.signal == 0 ? "-" : fmt::format("{:.1f} dB", 10 * std::log10(r.signal / r.noise));
}

void print(const std::vector<Row>& rows, const CompareOptions& o, const std::string& first, const std::string& other,
           std::size_t feeds, const std::vector<std::string>& notes) {
  fmt::print("{} and {}, {} input{}\n", first, other, feeds, feeds == 1 ? "" : "s");
  for (const std::string& note : notes) fmt::print("{}\n", note);
  std::size_t width = 6, types = 4;
  for (const Row& r : rows) {
    width = std::max(width, r.name.size() + (r.other == r.name ? 0 : 4 + r.other.size()));
    types = std::max(types, ir::to_string(r.type).size());
  }
  fmt::print("{:<{}}  {:<{}}  {:>11}  {:>9}  {:>15}  verdict\n", "output", width, "type", types, "largest gap", "SQNR", "beyond");
  for (const Row& r : rows) {
    fmt::print("{:<{}}  {:<{}}  {:>11.3g}  {:>9}  {:>15}  {}\n", r.other == r.name ? r.name : r.name + " -> " + r.other, width,
               ir::to_string(r.type), types, r.worst, sqnr_text(r), fmt::format("{} of {}", r.beyond, r.elements),
               r.ok() ? "ok" : "DIFFERENT");
  }
  for (const Row& r : rows) {
    if (!r.ok()) fmt::print("\"{}\": the largest difference is at {}\n", r.name, r.at);
  }
  const bool ok = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.ok(); });
  const double needed = std::max_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
                          return a.least_atol < b.least_atol;
                        })->least_atol;
  fmt::print("{}: differences are at most {:g} + {:g} of the second model's magnitude (--atol, --rtol){}\n",
             ok ? "ok" : "DIFFERENT", o.atol, o.rtol,
             ok                   ? ""
             : std::isinf(needed) ? "; values that are not finite differ, which no tolerance allows"
                                  : fmt::format(" in not all elements; with --atol {:.2g} they would be", needed * 1.05));
}

nlohmann::json as_json(const std::vector<Row>& rows, const CompareOptions& o, const std::string& first, const std::string& other,
                       std::size_t feeds, const std::vector<std::string>& notes) {
  const auto number = [](double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(nullptr); };
  nlohmann::json out{{"first", first}, {"other", other}, {"inputs", feeds}, {"rtol", o.rtol},
                     {"atol", o.atol}, {"notes", notes}, {"ok", true}};
  for (const Row& r : rows) {
    out["outputs"].push_back(
        {{"name", r.name},
         {"other", r.other},
         {"type", ir::to_string(r.type)},
         {"elements", r.elements},
         {"beyond", r.beyond},
         {"largest_gap", number(r.worst)},
         {"at", r.at},
         {"least_atol", number(r.least_atol)},
         {"sqnr_db", r.noise > 0 && r.signal > 0 ? number(10 * std::log10(r.signal / r.noise)) : nlohmann::json(nullptr)},
         {"ok", r.ok()}});
    out["ok"] = out["ok"].get<bool>() && r.ok();
  }
  return out;
}

}  // namespace

Result<Loaded> load_beside(const ModelOptions& model, const std::string& path, const Loaded& first, const Arrays& arrays,
                           Progress& progress) {
  const auto& inputs = first.engine->plan().inputs;
  OCTAVO_TRY(const Declared declared, declared_inputs(options_of_other(model, path, true)));
  const auto knows = [&](const std::string& name) {
    return std::any_of(declared.inputs.begin(), declared.inputs.end(), [&](const auto& d) { return d.name == name; });
  };
  const bool same = std::all_of(inputs.begin(), inputs.end(), [&](const auto& b) { return knows(b.name); });
  OCTAVO_CHECK(takes(declared, path, inputs, model.path, same));
  Shapes shapes;
  Arrays values;
  for (std::size_t i = 0; i < inputs.size() && i < declared.inputs.size(); ++i) {
    const std::string& name = same ? inputs[i].name : declared.inputs[i].name;
    shapes[name] = inputs[i].type.shape;
    if (const auto at = arrays.find(inputs[i].name); at != arrays.end()) values[name] = at->second;
  }
  return load(options_of_other(model, path, same), progress, shapes, 1, values);
}

ModelOptions options_of_first(const ModelOptions& model, const std::string& other) {
  return other.empty() ? model : options_for(model, model.path);
}

Result<int> compare(const ModelOptions& model, const CompareOptions& o, const Loaded& first, const std::vector<Feed>& feeds,
                    const Arrays& arrays, std::optional<Progress>& progress) {
  const std::string path = o.other.empty() ? model.path : o.other;
  OCTAVO_TRY(Other other, o.against.empty() ? open_octavo(model, path, first, arrays, *progress)
                                            : open_onnxruntime(path, first, feeds, model.build.plan.threads, *progress));
  const region::Plan& plan = first.engine->plan();
  OCTAVO_TRY(const Pairing inputs, pair_up("input", plan.inputs, model.path, other.inputs, other.name));
  const std::vector<region::Binding> shown(plan.outputs.begin(),
                                           plan.outputs.begin() + static_cast<std::ptrdiff_t>(region::shown_outputs(plan)));
  for (const ir::OutputSize& s : plan.sizes) {  // a run of another runtime has its own size
    if (s.output < 0) continue;
    const region::Binding& own = shown[static_cast<std::size_t>(s.output)];
    const auto axis = static_cast<std::size_t>(s.axis);
    for (region::Binding& b : other.outputs) {
      if (b.name == own.name && b.type.shape.size() == own.type.shape.size()) b.type.shape[axis] = own.type.shape[axis];
    }
  }
  OCTAVO_TRY(const Pairing outputs, pair_up("output", shown, model.path, other.outputs, other.name));
  std::vector<std::string> notes;
  for (std::string text : {said("input", inputs, plan.inputs, other.inputs), said("output", outputs, shown, other.outputs)}) {
    if (!text.empty()) notes.push_back(std::move(text));
  }
  std::vector<Row> rows;
  for (std::size_t k = 0; k < shown.size(); ++k) {
    Row row;
    row.name = plan.outputs[k].name, row.other = other.outputs[outputs.to[k]].name, row.type = plan.outputs[k].type;
    rows.push_back(std::move(row));
  }
  OCTAVO_TRY(const auto context, engine::Context::create(first.engine, first.threads));
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    progress->step(fmt::format("run {} of {}", f + 1, feeds.size()));
    OCTAVO_TRY(auto mine, api::run(*context, feeds[f].tensors));
    ir::cut_results(mine, plan.sizes);
    std::vector<ir::Tensor> theirs;
    if (other.context != nullptr) {
      std::vector<ir::Tensor> fed(feeds[f].tensors.size());
      for (std::size_t i = 0; i < fed.size(); ++i) fed[inputs.to[i]] = feeds[f].tensors[i];
      OCTAVO_TRY(theirs, api::run(*other.context, fed));
      ir::cut_results(theirs, other.context->engine().plan().sizes);
    } else {
      theirs = other.results[f];
    }
    for (std::size_t k = 0; k < rows.size(); ++k) add(mine[k], theirs[outputs.to[k]], o, feeds[f].name, feeds.size() > 1, rows[k]);
  }
  progress.reset();
  const bool ok = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.ok(); });
  if (o.json) {
    fmt::print("{}\n", as_json(rows, o, model.path, other.name, feeds.size(), notes)
                           .dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print(rows, o, model.path, other.name, feeds.size(), notes);
  }
  return ok ? 0 : 1;
}

}  // namespace octavo::cli
