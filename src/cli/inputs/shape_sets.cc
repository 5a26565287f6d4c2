#include "cli/inputs/shape_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/open_file.h"
#include "api/shapes.h"
#include "ir/text.h"
#include "region/bound_value.h"

namespace octavo::cli {
namespace {

/// --minShapes, --optShapes and --maxShapes.
struct Ends {
  Shapes min, opt, max;
  [[nodiscard]] bool empty() const { return min.empty() && max.empty(); }
};

/// "x:1x3x8x8,y:2" of shapes.
std::string text_of(const Shapes& shapes) {
  std::vector<std::string> parts;
  for (const auto& [name, shape] : shapes) parts.push_back(fmt::format("{}:{}", name, fmt::join(shape, "x")));
  return fmt::format("{}", fmt::join(parts, ","));
}

/// --minShapes and --maxShapes with --optShapes (or --shapes) between them; empty when there is no range.
Result<Ends> range_of(const ModelOptions& o) {
  Ends r;
  if (!o.min_shapes.empty()) {
    OCTAVO_TRY(r.min, parse_shapes("--minShapes", o.min_shapes));
  }
  if (!o.max_shapes.empty()) {
    OCTAVO_TRY(r.max, parse_shapes("--maxShapes", o.max_shapes));
  }
  if (r.empty()) return r;
  const bool by_shapes = o.opt_shapes.empty() && !o.shapes.empty();
  const std::string opt = by_shapes ? o.shapes.front() : o.opt_shapes;
  if (opt.empty())
    return fail(ErrorKind::usage, "--minShapes and --maxShapes need --optShapes: the shapes that the engine is tuned for");
  OCTAVO_TRY(r.opt, parse_shapes(by_shapes ? "--shapes" : "--optShapes", opt));
  if (r.min.empty()) r.min = r.opt;
  if (r.max.empty()) r.max = r.opt;
  for (const auto& [name, shape] : r.opt) {
    const auto min = r.min.find(name), max = r.max.find(name);
    const bool sound = min != r.min.end() && max != r.max.end() && api::ShapeRange{min->second, shape, max->second}.sound();
    if (sound && r.min.size() == r.opt.size() && r.max.size() == r.opt.size()) continue;
    return fail(ErrorKind::usage,
                fmt::format("--minShapes {}, --optShapes {}, --maxShapes {}: they need the same inputs and ranks, and "
                            "min <= opt <= max in every dimension",
                            text_of(r.min), text_of(r.opt), text_of(r.max)));
  }
  return r;
}

/// The sets of --shapes: several that name different inputs are one, given in parts.
Result<std::vector<Shapes>> sets_of(const std::vector<std::string>& given) {
  std::vector<Shapes> sets;
  for (const std::string& text : given) {
    OCTAVO_TRY(sets.emplace_back(), parse_shapes("--shapes", text));
  }
  Shapes all;
  std::size_t named = 0;
  bool same = true;
  for (const Shapes& s : sets) {
    named += s.size();
    all.insert(s.begin(), s.end());
    same = same && s.size() == sets.front().size() &&
           std::ranges::equal(
               s, sets.front(), {}, [](const auto& one) { return one.first; }, [](const auto& one) { return one.first; });
  }
  if (named == all.size() && sets.size() > 1) return std::vector<Shapes>{all};
  if (same) return sets;
  return fail(
      ErrorKind::usage,
      fmt::format("--shapes {}: these name different inputs, and some name the same one twice\n  to do: for one set of shapes give "
                  "each input once; for several plans name every input in each, as in: --shapes {}",
                  fmt::join(given, " --shapes "), text_of(all)));
}

/// The name and the text of "k=3".
std::pair<std::string, std::string> split_value(const std::string& text) {
  const std::size_t at = text.find_last_of("=:");
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

/// A dimension that a range leaves open: of all inputs that give it one symbol.
struct Open {
  std::int64_t min = 0, max = 0;
  std::string first;  ///< the input that opened it
  std::vector<std::pair<std::string, std::size_t>> places;
};

Result<std::vector<Open>> open_dimensions(const Ends& range, const std::vector<onnx::InputInfo>& inputs) {
  std::vector<Open> out;
  std::map<std::string, std::size_t> by_symbol;
  for (const auto& [name, min] : range.min) {
    const auto in = std::find_if(inputs.begin(), inputs.end(), [n = &name](const auto& i) { return i.name == *n; });
    const ir::Shape& max = range.max.at(name);
    for (std::size_t k = 0; k < min.size(); ++k) {
      const bool declared = in != inputs.end() && in->has_shape && k < in->symbols.size();
      const std::string symbol = declared ? in->symbols[k] : "";
      const auto known = symbol.empty() ? by_symbol.end() : by_symbol.find(symbol);
      if (known == by_symbol.end()) {
        if (min[k] == max[k] && symbol.empty()) continue;
        if (!symbol.empty()) by_symbol.emplace(symbol, out.size());
        out.push_back({min[k], max[k], name, {{name, k}}});
        continue;
      }
      Open& open = out[known->second];
      if (open.min != min[k] || open.max != max[k]) {
        return fail(ErrorKind::usage,
                    fmt::format("--minShapes, --maxShapes: dimension {} of \"{}\" goes from {} to {}, and \"{}\", whose "
                                "dimension has the same symbol {}, from {} to {}",
                                k, name, min[k], max[k], open.first, symbol, open.min, open.max));
      }
      open.places.emplace_back(name, k);
    }
  }
  return out;
}

/// Every set of shapes of the range, opt first.
Result<std::vector<Shapes>> all_of(const Ends& range, const ModelOptions& options) {
  OCTAVO_TRY(const auto session, options.opened->session(options.path));
  OCTAVO_TRY(const auto inputs, session->inputs());
  OCTAVO_TRY(const auto open, open_dimensions(range, inputs));
  double count = 1;
  for (const Open& o : open) count *= static_cast<double>(o.max - o.min + 1);
  if (count > static_cast<double>(kMostInRange)) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "--minShapes {}, --maxShapes {}: there are {:.0f} sets of shapes between them, and with --values an engine file has "
            "plans for at most {}\n  to do: name those that occur: --shapes {} --shapes ...; or keep the model: run, check "
            "and bench build for the shapes they meet, as octavo.build(profiles=...) does",
            text_of(range.min), text_of(range.max), count, kMostInRange, text_of(range.opt)));
  }
  std::vector<Shapes> out{range.opt};
  std::vector<Shapes> made{range.min};
  for (const Open& o : open) {
    std::vector<Shapes> more;
    for (const Shapes& base : made) {
      for (std::int64_t d = o.min; d <= o.max; ++d) {
        more.push_back(base);
        for (const auto& [name, k] : o.places) more.back()[name][k] = d;
      }
    }
    made = std::move(more);
  }
  std::ranges::copy_if(made, std::back_inserter(out), [&](const Shapes& s) { return s != range.opt; });
  return out;
}

}  // namespace

Result<Shapes> given_shapes(const ModelOptions& o) {
  OCTAVO_TRY(auto sets, sets_of(o.shapes));
  if (sets.size() > 1) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "--shapes is given {} times for the same inputs: only octavo build takes several sets of shapes, for one engine "
            "file",
            o.shapes.size()));
  }
  if (!sets.empty()) return std::move(sets.front());
  return o.opt_shapes.empty() ? Shapes() : parse_shapes("--optShapes", o.opt_shapes);
}

Status check_range(const ModelOptions& options, const Shapes& shapes) {
  OCTAVO_TRY(const Ends range, range_of(options));
  for (const auto& [name, shape] : shapes) {
    const auto min = range.min.find(name), max = range.max.find(name);
    if (min == range.min.end() || min->second.size() != shape.size())
      continue;  // fixed by the model, or refused where it is imported
    if (const auto k = api::ShapeRange{min->second, {}, max->second}.outside(shape)) {
      return fail(
          ErrorKind::bad_input,
          fmt::format(
              "input \"{}\" has shape {}: dimension {} is {}, --minShapes and --maxShapes go from {} to {}\n  to do: give a "
              "shape between them, or widen them",
              name, ir::to_string(shape), *k, shape[*k], min->second[*k], max->second[*k]));
    }
  }
  return {};
}

Result<std::map<std::string, ir::Tensor>> given_values(const ModelOptions& options, const std::vector<InputDeclaration>& inputs) {
  std::map<std::string, ir::Tensor> out;
  for (const std::string& given : options.values) {
    const auto [name, text] = split_value(given);
    const auto in = std::find_if(inputs.begin(), inputs.end(), [n = &name](const auto& i) { return i.name == *n; });
    if (in == inputs.end()) {
      std::vector<std::string> names;
      for (const auto& i : inputs) names.push_back(i.name);
      return fail(ErrorKind::usage, fmt::format("--values {}: the model has no input \"{}\"; its inputs are \"{}\"", given, name,
                                                fmt::join(names, "\", \"")));
    }
    region::Binding b{name, in->type, {}, {}, 0, "=" + text};
    if (b.type.shape.size() == 1) b.type.shape = {std::count(text.begin(), text.end(), ',') + 1};
    auto value = b.type.shape.size() > 1 || text.empty() ? std::nullopt : region::value_of(b);
    if (!value) {
      return fail(ErrorKind::usage, fmt::format("--values {}: \"{}\" is not the value of a {}{}, as in k=3 or sizes=1,3,8,8", given,
                                                text, ir::name_of(in->type.dtype), in->shape_text));
    }
    if (!out.emplace(name, std::move(*value)).second)
      return fail(
          ErrorKind::usage,
          fmt::format("--values gives input \"{}\" twice: only octavo build takes several values, for one engine file", name));
  }
  return out;
}

Result<std::vector<ModelOptions>> shape_sets(const ModelOptions& options) {
  OCTAVO_TRY(const Ends range, range_of(options));
  std::vector<ModelOptions> sets;
  if (!range.empty() && !options.values.empty()) {
    if (options.shapes.size() > 1)
      return fail(ErrorKind::usage,
                  "--minShapes and --maxShapes with --values build every set of shapes between them, so several --shapes cannot be "
                  "given as well: give one of the two");
    if (!options.shapes.empty() && !options.opt_shapes.empty()) {
      return fail(ErrorKind::usage,
                  fmt::format("--shapes {} has no effect: every set of shapes from --minShapes to --maxShapes is built, that of "
                              "--optShapes first\n  leave out one of --shapes and --optShapes",
                              options.shapes.front()));
    }
    OCTAVO_TRY(const auto all, all_of(range, options));
    for (const Shapes& shapes : all) sets.emplace_back(options).shapes = {text_of(shapes)};
  } else if (!range.empty()) {
    sets.emplace_back(options).shapes = {text_of(range.opt)};
    OCTAVO_TRY(const auto further, sets_of(options.shapes));
    for (const Shapes& shapes : further) {
      if (shapes == range.opt) continue;
      OCTAVO_CHECK(check_range(options, shapes));
      sets.emplace_back(options).shapes = {text_of(shapes)};
    }
  } else {
    OCTAVO_TRY(const auto given, sets_of(options.shapes));
    for (const Shapes& shapes : given) sets.emplace_back(options).shapes = {text_of(shapes)};
    if (sets.empty()) sets.push_back(options);
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // by input, in the order given
  for (const std::string& text : options.values) {
    const std::string name = split_value(text).first;
    const auto known = std::ranges::find(values, name, [](const auto& v) { return v.first; });
    if (known == values.end())
      values.push_back({name, {text}});
    else
      known->second.push_back(text);
  }
  for (ModelOptions& s : sets) s.values.clear();
  for (const auto& [name, texts] : values) {
    std::vector<ModelOptions> more;
    for (const ModelOptions& s : sets) {
      for (const std::string& text : texts) more.emplace_back(s).values.push_back(text);
      if (more.size() > engine::kMostPlans)
        return fail(ErrorKind::usage,
                    fmt::format("--shapes and --values make more than {} engines, and a file holds no more", engine::kMostPlans));
    }
    sets = std::move(more);
  }
  return sets;
}

Result<api::ShapeRanges> given_range(const ModelOptions& options) {
  OCTAVO_TRY(const Ends range, range_of(options));
  api::ShapeRanges out;
  for (const auto& [name, opt] : range.opt) {
    if (!range.empty()) out[name] = {range.min.at(name), opt, range.max.at(name)};
  }
  return out;
}

std::string range_lines(const Loaded& loaded) {
  if (loaded.range == nullptr) return "";
  const region::Plan& plan = loaded.engine->plan();
  const auto megabytes = [](std::size_t bytes) { return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6); };
  const std::size_t most = loaded.range->most_arena_bytes();
  const auto bytes_of = [&](const region::DeviceUse& d) {
    return static_cast<std::size_t>(d.arena_bytes) * static_cast<std::size_t>(plan.lanes);
  };
  const auto here = bytes_of(plan.devices[region::kHost]);
  const std::string memory =
      plan.devices.size() > 1
          ? fmt::format("{} on the GPU and {} on the host for these shapes", megabytes(bytes_of(plan.devices[1])), megabytes(here))
      : most == 0 ? megabytes(here) + " for these shapes, not known for the largest of the range"
                  : fmt::format("{} for these shapes, at most {} in the range", megabytes(here), megabytes(most));
  return fmt::format("range: {}\nthis plan: {}; decisions: {}\nworking memory of a run: {}\n",
                     api::range_text(loaded.range->ranges()), engine::shapes_text(plan),
                     plan.decided_for.empty() ? "its own" : "of the plan for " + plan.decided_for, memory);
}

Result<std::shared_ptr<const engine::Engine>> choose(const api::OpenModel& open, const ModelOptions& options, const Shapes& shapes,
                                                     const Arrays& arrays) {
  OCTAVO_TRY(Shapes wanted, given_shapes(options));
  wanted.insert(shapes.begin(), shapes.end());
  // Open dimensions of one symbol are equal: what one input is given holds for the others.
  std::map<std::string, std::int64_t> known;
  for (const onnx::InputInfo& in : open.inputs()) {
    const auto given = wanted.find(in.name);
    for (std::size_t k = 0; given != wanted.end() && k < in.symbols.size() && k < given->second.size(); ++k) {
      if (!in.symbols[k].empty()) known.emplace(in.symbols[k], given->second[k]);
    }
  }
  const Shapes opt = open.opt();
  for (const onnx::InputInfo& in : open.inputs()) {
    const auto usual = opt.find(in.name);
    if (usual == opt.end() || wanted.contains(in.name)) continue;
    ir::Shape shape = usual->second;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const auto same = k < in.symbols.size() ? known.find(in.symbols[k]) : known.end();
      if (same != known.end()) shape[k] = same->second;
    }
    if (options.batch > 0 && !shape.empty() && in.has_shape && in.dims[0] < 0) shape[0] = options.batch;
    wanted[in.name] = std::move(shape);
  }
  return open.at(wanted, [&](const std::string& name) -> std::optional<ir::Tensor> {
    const auto array = arrays.find(name);
    return array == arrays.end() ? std::nullopt : std::optional(array->second);
  });
}

Result<std::shared_ptr<const engine::Engine>> choose(const engine::Engines& engines, const ModelOptions& options,
                                                     const Shapes& shapes, std::int64_t batch, const Arrays& arrays) {
  engine::Wanted wanted;
  OCTAVO_TRY(wanted.shapes, given_shapes(options));
  wanted.shapes.insert(shapes.begin(), shapes.end());
  std::vector<InputDeclaration> inputs;
  for (const region::Binding& b : engines.front()->plan().inputs) inputs.push_back({b.name, ir::to_string(b.type.shape), b.type});
  OCTAVO_TRY(const auto values, given_values(options, inputs));
  wanted.value = [&](const std::string& name) -> std::optional<ir::Tensor> {
    if (const auto v = values.find(name); v != values.end()) return v->second;
    if (const auto a = arrays.find(name); a != arrays.end()) return a->second;
    return std::nullopt;
  };
  OCTAVO_TRY(engine::Engines left, engine::fitting(engines, wanted));
  engine::Engines of_batch;  // as an open batch of a model: 1 unless the command says otherwise
  for (const auto& e : left) {
    bool same = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ir::Shape &mine = e->plan().inputs[i].type.shape, &first = left.front()->plan().inputs[i].type.shape;
      const bool open = std::ranges::any_of(left, [&](const auto& other) {
        const ir::Shape& s = other->plan().inputs[i].type.shape;
        return !s.empty() && !first.empty() && s[0] != first[0];
      });
      same = same && (!open || (!mine.empty() && mine[0] == batch));
    }
    if (same) of_batch.push_back(e);
  }
  if (left.size() > 1 && !of_batch.empty()) left = std::move(of_batch);
  if (left.size() == 1) return left.front();
  return fail(ErrorKind::usage,
              fmt::format("\"{}\" holds engines for several shapes, and {} fit:\n  {}\n  to do: say which by --shapes or "
                          "--values",
                          options.path, left.size(), engine::shapes_text(left)));
}

}  // namespace octavo::cli
