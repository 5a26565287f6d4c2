#include "api/open_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace octavo::api {
namespace {

bool is_open(const onnx::InputInfo& in) {
  return !in.has_shape || std::any_of(in.dims.begin(), in.dims.end(), [](std::int64_t d) { return d < 0; });
}

/// min <= opt <= max, for an input that is open, along its declared dimensions; and a range for each such input.
Status check_ranges(const std::vector<onnx::InputInfo>& inputs, const ShapeRanges& ranges) {
  if (ranges.empty()) return {};
  for (const auto& [name, range] : ranges) {
    const auto in = std::find_if(inputs.begin(), inputs.end(), [n = &name](const onnx::InputInfo& i) { return i.name == *n; });
    if (in == inputs.end()) return fail(ErrorKind::usage, fmt::format("profiles: the model has no input \"{}\"", name));
    if (!range.sound()) {
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" has min {}, opt {}, max {}; they need one rank, and min <= opt <= max "
                              "in every dimension",
                              name, ir::to_string(range.min), ir::to_string(range.opt), ir::to_string(range.max)));
    }
    bool fits = !in->has_shape || in->dims.size() == range.opt.size();
    for (std::size_t k = 0; fits && in->has_shape && k < in->dims.size(); ++k)
      fits = in->dims[k] < 0 || (range.min[k] == in->dims[k] && range.max[k] == in->dims[k]);
    if (!fits) {
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" is {}, its profile goes from {} to {}; dimensions that are fixed must "
                              "be what they are",
                              name, in->shape_text(), ir::to_string(range.min), ir::to_string(range.max)));
    }
  }
  for (const onnx::InputInfo& in : inputs) {
    if (is_open(in) && !ranges.contains(in.name))
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" {} has open dimensions and no profile", in.name, in.shape_text()));
  }
  return {};
}

/// An open dimension is between its ends.
Status inside(const std::string& name, const ir::Shape& shape, const ShapeRange& range) {
  if (range.min.size() == shape.size()) {
    const auto k = range.outside(shape);
    if (!k) return {};
    return fail(
        ErrorKind::bad_input,
        fmt::format("input \"{}\" has shape {}: dimension {} is {}, its profile goes from {} to {}\n  to do: widen the range "
                    "(`profiles`, or --minShapes and --maxShapes) and build again",
                    name, ir::to_string(shape), *k, shape[*k], range.min[*k], range.max[*k]));
  }
  return fail(ErrorKind::bad_input, fmt::format("input \"{}\" has shape {}, its profile goes from {} to {}", name,
                                                ir::to_string(shape), ir::to_string(range.min), ir::to_string(range.max)));
}

}  // namespace

Result<std::unique_ptr<OpenModel>> OpenModel::create(std::shared_ptr<const Session> session,
                                                     std::shared_ptr<const std::vector<std::byte>> bytes, PipelineOptions options,
                                                     ShapeRanges ranges, std::map<std::string, ir::Tensor> values,
                                                     std::size_t most) {
  std::unique_ptr<OpenModel> m(new OpenModel);
  const onnx::Parsed& model = session->parsed();
  m->values_ = std::move(values);
  m->most_ = std::max<std::size_t>(most, 1);
  OCTAVO_TRY(m->inputs_, session->inputs());
  m->description_ = onnx::description_of(model);
  if (auto outputs = onnx::outputs_of(model)) m->outputs_ = std::move(*outputs);  // files need not declare them well
  OCTAVO_CHECK(session->check_ranges(options));
  auto bound = onnx::bind_inputs(m->inputs_, options.import, /*partly=*/true);
  if (!bound) {
    OCTAVO_CHECK(onnx::check_model(model, options.import));  // what no shape would cure
    return tl::unexpected<Error>(std::move(bound).error());
  }
  m->inputs_ = std::move(*bound);
  OCTAVO_CHECK(check_ranges(m->inputs_, ranges));
  m->ranges_ = std::move(ranges);
  m->open_ = std::any_of(m->inputs_.begin(), m->inputs_.end(), is_open);
  if (m->open_) OCTAVO_CHECK(onnx::check_model(model, options.import));
  m->session_ = std::move(session);
  m->bytes_ = std::move(bytes);
  m->options_ = std::move(options);
  return m;
}

Status OpenModel::check(const Shapes& shapes) const {
  for (const auto& [name, shape] : shapes) {
    const auto in = std::find_if(inputs_.begin(), inputs_.end(), [n = &name](const onnx::InputInfo& i) { return i.name == *n; });
    if (in == inputs_.end()) return fail(ErrorKind::bad_input, fmt::format("the model has no input \"{}\"", name));
    bool fits = !in->has_shape || in->dims.size() == shape.size();
    for (std::size_t k = 0; fits && in->has_shape && k < shape.size(); ++k) fits = in->dims[k] < 0 || in->dims[k] == shape[k];
    for (const std::int64_t d : shape) fits = fits && d >= 0;
    if (!fits)
      return fail(ErrorKind::bad_input,
                  fmt::format("input \"{}\" has shape {}, the model wants {}", name, ir::to_string(shape), in->shape_text()));
    if (const auto range = ranges_.find(name); range != ranges_.end()) OCTAVO_CHECK(inside(name, shape, range->second));
  }
  for (const onnx::InputInfo& in : inputs_) {
    if (is_open(in) && !shapes.contains(in.name)) {
      return fail(ErrorKind::bad_input,
                  fmt::format("input \"{}\" {} has open dimensions and no shape was given", in.name, in.shape_text()));
    }
  }
  return {};
}

std::set<std::string> OpenModel::late() const {
  const std::lock_guard lock(fork_safe_mutex());
  return late_;
}

bool OpenModel::keeps(const engine::Engine* engine) const {
  return std::any_of(built_.begin(), built_.end(), [&](const auto& b) { return b.second.engine.get() == engine; });
}

std::shared_ptr<const engine::Engine> OpenModel::find_or_claim(const Key& key) const {
  std::unique_lock lock(fork_safe_mutex());
  for (;;) {
    const auto [entry, mine] = built_.try_emplace(key);
    entry->second.used = ++clock_;
    if (mine) return nullptr;
    if (!entry->second.building) return entry->second.engine;
    if (entry->second.generation != fork_generation()) {  // the thread that builds it is one of the parent process: it never ends
      (void)new Entry(std::exchange(entry->second, {}));  // a condition variable with sleepers cannot be destroyed
      return nullptr;
    }
    const auto done = entry->second.done;  // a failed build removes its entry; then look again
    done->wait(lock);
  }
}

/// Engines that somebody runs live on with their handles.
void OpenModel::drop_oldest() const {
  while (built_.size() > most_) {
    auto oldest = built_.end();
    for (auto b = built_.begin(); b != built_.end(); ++b) {
      if (!b->second.building && (oldest == built_.end() || b->second.used < oldest->second.used)) oldest = b;
    }
    if (oldest == built_.end()) return;
    built_.erase(oldest);
  }
}

Result<std::shared_ptr<const engine::Engine>> OpenModel::at(const Shapes& shapes, const ValueOf& value_of) const {
  OCTAVO_CHECK(check(shapes));
  Shapes complete = shapes;  // every way of asking for the same shapes finds the same engine
  for (const onnx::InputInfo& in : inputs_) {
    if (!is_open(in)) complete.insert_or_assign(in.name, in.dims);
  }
  PipelineOptions options = options_;
  options.import.shapes = complete;
  // A build that lacks the value of an input says so; it is then part of what engines are built for, and the next try has it.
  for (;;) {
    Key key{complete, {}};
    onnx::LateValues given{values_, {}};
    for (const std::string& name : late()) {
      if (values_.contains(name)) continue;
      std::optional<ir::Tensor> value = value_of ? value_of(name) : std::nullopt;
      if (!value) {
        return fail(ErrorKind::bad_input,
                    fmt::format("shapes depend on the value of input \"{}\", and none is given (in the memory of the "
                                "host)\n  to do: run with arrays, or give `values`",
                                name));
      }
      const auto bytes = value->bytes();
      key.second[name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      given.given[name] = std::move(*value);
    }
    if (auto known = find_or_claim(key)) return known;
    auto built = session_->build(options, given);
    const std::lock_guard lock(fork_safe_mutex());
    Entry& entry = built_[key];
    entry.done->notify_all();
    if (built) {
      entry.building = false;
      ++builds_;
      entry.engine = built->engine;
      drop_oldest();
      return built->engine;
    }
    built_.erase(key);
    late_.insert(given.needed.begin(), given.needed.end());
    const bool known =
        std::all_of(given.needed.begin(), given.needed.end(), [&](const auto& n) { return given.given.contains(n); });
    if (known || !value_of) return tl::unexpected<Error>(std::move(built).error());
  }
}

std::uint64_t OpenModel::builds() const {
  const std::lock_guard lock(fork_safe_mutex());
  return builds_;
}

Shapes OpenModel::opt() const {
  Shapes out;
  for (const auto& [name, range] : ranges_) out[name] = range.opt;
  return out;
}

engine::Engines OpenModel::all() const {
  const std::lock_guard lock(fork_safe_mutex());
  engine::Engines out;
  for (const auto& [key, entry] : built_) {
    if (!entry.building) out.push_back(entry.engine);
  }
  return out;
}

}  // namespace octavo::api
