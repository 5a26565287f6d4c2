// The public Engine and Context: errors become exceptions here, and only here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <utility>

#include "api/convert.h"
#include "api/open_model.h"
#include "api/pipeline.h"
#include "api/ranges.h"
#include "engine/version.h"
#include "octavo/octavo.h"
#include "plan/layout/bind.h"

namespace octavo {

using api::raise;
using api::take;

std::size_t size_of(DType type) {
  return ir::size_of(static_cast<ir::DType>(type));
}
std::string_view name_of(DType type) {
  return ir::name_of(static_cast<ir::DType>(type));
}
std::map<std::string, float> read_calibration(const std::string& path) {
  return api::take(api::read_ranges(path));
}

std::string_view version() {
  return engine::kVersion;
}

/// Either one engine, or a model with open dimensions and the engines built from it (as handles, with their idle contexts).
struct Engine::Impl {
  std::shared_ptr<const engine::Engine> engine;
  std::unique_ptr<const api::OpenModel> model;
  int threads = 1;
  std::string device = "cpu";

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<engine::Context>> idle;
  mutable std::map<const engine::Engine*, std::shared_ptr<const Impl>> built;

  static std::shared_ptr<const Impl> of(std::shared_ptr<const engine::Engine> e, int threads) {
    auto impl = std::make_shared<Impl>();
    impl->threads = threads > 0 ? threads : region::threads_of(e->plan());
    impl->device = api::device_of(e->plan());
    impl->engine = std::move(e);
    return impl;
  }

  static std::shared_ptr<const Impl> from_model(std::vector<std::byte> bytes, const BuildOptions& options,
                                                const std::string& folder, const std::string& name) {
    api::PipelineOptions p;
    p.device = options.device;
    p.import.shapes = options.shapes;
    p.import.default_batch = options.default_batch;
    p.import.display_name = name;
    p.plan.threads = options.threads;
    p.plan.disabled = options.disabled;
    p.plan.effort = options.effort;
    p.timing.cache = options.timing_cache;
    p.timing.strict = options.strict_timing;
    p.plan.ranges = options.ranges;
    for (const auto& [pattern, precision] : options.precisions) p.plan.precisions.push_back({pattern, precision});
    p.plan.allowed = options.allowed;
    p.plan.max_error = options.max_error;
    for (const auto& [tensor, format] : options.bindings) p.plan.bindings[tensor] = take(plan::parse_format(format));
    take(api::check_options(p));
    api::ShapeRanges ranges;
    for (const auto& [input, profile] : options.profiles) ranges[input] = {profile.min, profile.opt, profile.max};
    auto model = take(api::OpenModel::create(std::move(bytes), std::move(p), folder, std::move(ranges)));
    if (!model->open()) return of(take(model->at({})), 0);
    auto impl = std::make_shared<Impl>();
    impl->model = std::move(model);
    impl->threads = options.threads > 0 ? options.threads : engine::available_cores();
    impl->device = options.device;
    if (!options.profiles.empty()) (void)take(impl->model->at(impl->model->opt()));
    return impl;
  }

  /// The engine that introspection is about: this one, or the only one built so far.
  std::shared_ptr<const engine::Engine> only(std::string_view what) const {
    if (engine) return engine;
    auto e = model->only();
    if (e) return e;
    std::vector<std::string> shapes;
    for (const onnx::InputInfo& in : model->inputs()) shapes.push_back(fmt::format("\"{}\" {}", in.name, in.shape_text()));
    raise(ErrorKind::usage,
          fmt::format("{}: no single engine is built yet, because the model has open dimensions: {}. Give `shapes` to build, or "
                      "ask the engine of one set of shapes.",
                      what, fmt::join(shapes, ", ")));
  }

  const engine::Engine& fixed(std::string_view what) const {
    if (!engine) raise(ErrorKind::usage, fmt::format("{}: dimensions are open; bind them with Engine::at", what));
    return *engine;
  }

  /// The handle for an engine built from the open model: one for each, so that idle contexts are kept.
  std::shared_ptr<const Impl> handle(const std::shared_ptr<const engine::Engine>& e) const {
    const std::lock_guard lock(mutex);
    auto& h = built[e.get()];
    if (!h) h = of(e, threads);
    return h;
  }

  void run(std::span<const void* const> inputs, std::span<void* const> outputs) const {
    (void)fixed("run");
    std::unique_ptr<engine::Context> context;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        context = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!context) context = take(engine::Context::create(engine, threads));
    const Status status = context->run(inputs, outputs);
    {
      const std::lock_guard lock(mutex);
      idle.push_back(std::move(context));
    }
    take(status);
  }
};

Engine::Engine(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Engine Engine::build(const std::string& path, const BuildOptions& options) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() < 0) {
    (void)take(onnx::inputs_of_file(path));  // says why it cannot be read
    raise(ErrorKind::io, fmt::format("cannot read model \"{}\"", path));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    raise(ErrorKind::io, fmt::format("cannot read model \"{}\": {} bytes expected, {} read", path, bytes.size(), in.gcount()));
  }
  const std::size_t slash = path.rfind('/');
  return Engine(Impl::from_model(std::move(bytes), options, slash == std::string::npos ? "." : path.substr(0, slash + 1), path));
}

Engine Engine::build(std::span<const std::byte> model, const BuildOptions& options, const std::string& folder) {
  return Engine(Impl::from_model({model.begin(), model.end()}, options, folder, ""));
}

Engine Engine::load(const std::string& path, int threads) {
  if (threads < 0) raise(ErrorKind::usage, fmt::format("load \"{}\": {} threads asked for; give at least 1, or 0", path, threads));
  auto loaded = take(engine::Engine::load(path, api::all_providers(), api::devices()));
  const int wanted = threads > 0 ? threads : std::min(region::threads_of(loaded->plan()), engine::available_cores());
  return Engine(Impl::of(std::move(loaded), wanted));
}

void Engine::save(const std::string& path) const {
  take(impl_->only("save")->save(path));
}

bool Engine::open() const {
  return impl_->model != nullptr;
}

Engine Engine::at(const std::map<std::string, Shape>& shapes) const {
  if (impl_->model) return Engine(impl_->handle(take(impl_->model->at(shapes))));
  for (const auto& [name, shape] : shapes) {
    const auto& bindings = impl_->engine->plan().inputs;
    const auto b = std::find_if(bindings.begin(), bindings.end(), [n = &name](const region::Binding& x) { return x.name == *n; });
    if (b == bindings.end()) raise(ErrorKind::bad_input, fmt::format("the engine has no input \"{}\"", name));
    if (b->type.shape != shape) {
      raise(ErrorKind::bad_input, fmt::format("input \"{}\" has shape {}, the engine was built for {}", name, ir::to_string(shape),
                                              ir::to_string(b->type.shape)));
    }
  }
  return *this;
}

std::vector<TensorInfo> Engine::inputs() const {
  std::vector<TensorInfo> out;
  if (impl_->engine) {
    for (const region::Binding& b : impl_->engine->plan().inputs) out.push_back(api::to_public(b));
  } else {
    for (const onnx::InputInfo& in : impl_->model->inputs())
      out.push_back({in.name, api::to_public(in.dtype), in.dims, std::nullopt});
  }
  return out;
}

std::vector<TensorInfo> Engine::outputs() const {
  std::vector<TensorInfo> out;
  if (impl_->model && !impl_->model->outputs().empty()) {
    for (const onnx::InputInfo& o : impl_->model->outputs()) out.push_back({o.name, api::to_public(o.dtype), o.dims, std::nullopt});
    return out;
  }
  for (const region::Binding& b : impl_->only("outputs")->plan().outputs) out.push_back(api::to_public(b));
  return out;
}

std::vector<LayerInfo> Engine::layers() const {
  return api::layers_of(impl_->only("layers")->plan());
}
std::string Engine::plan_hash() const {
  return impl_->only("plan_hash")->plan_hash();
}
int Engine::threads() const {
  return impl_->threads;
}
std::string Engine::device() const {
  return impl_->device;
}

std::map<std::string, Array> Engine::run(const std::map<std::string, ConstView>& inputs) const {
  if (impl_->model) {
    std::map<std::string, Shape> shapes;
    for (const auto& [name, array] : inputs) shapes[name] = array.shape;
    return at(shapes).run(inputs);
  }
  const region::Plan& plan = impl_->engine->plan();
  std::vector<const void*> in;
  for (const region::Binding& b : plan.inputs) {
    const auto given = inputs.find(b.name);
    if (given == inputs.end())
      raise(ErrorKind::bad_input, fmt::format("run: input \"{}\" {} is missing", b.name, ir::to_string(b.type)));
    const ir::TensorType type{static_cast<ir::DType>(given->second.dtype), given->second.shape};
    if (type != b.type) {
      raise(ErrorKind::bad_input, fmt::format("run: input \"{}\" is {}, the engine was built for {}", b.name, ir::to_string(type),
                                              ir::to_string(b.type)));
    }
    in.push_back(given->second.data);
  }
  for (const auto& [name, array] : inputs) {
    if (std::none_of(plan.inputs.begin(), plan.inputs.end(), [n = &name](const region::Binding& b) { return b.name == *n; })) {
      raise(ErrorKind::bad_input, fmt::format("run: the model has no input \"{}\"", name));
    }
  }
  std::map<std::string, Array> results;
  std::vector<void*> out;
  for (const region::Binding& b : plan.outputs) {
    Array& a = results[b.name];
    a.dtype = api::to_public(b.type.dtype);
    a.shape = b.type.shape;
    a.bytes.resize(static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype));
    out.push_back(a.bytes.data());
  }
  impl_->run(in, out);
  return results;
}

void Engine::run(std::span<const void* const> inputs, std::span<void* const> outputs) const {
  impl_->run(inputs, outputs);
}

struct Context::Impl {
  std::unique_ptr<engine::Context> context;
};

Context::Context(const Engine& engine, int threads) : impl_(std::make_unique<Impl>()) {
  (void)engine.impl_->fixed("Context");
  impl_->context = take(engine::Context::create(engine.impl_->engine, threads > 0 ? threads : engine.threads()));
}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

void Context::run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  take(impl_->context->run(inputs, outputs));
}

}  // namespace octavo
