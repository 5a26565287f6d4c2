// The public Engine: errors become exceptions here, and in the Context beside it. One class, past 400 lines.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "api/build_options.h"
#include "api/convert.h"
#include "api/description.h"
#include "api/engine_impl.h"
#include "api/load.h"
#include "api/memory_use.h"
#include "api/model_source.h"
#include "api/nonfinite.h"
#include "api/open_model.h"
#include "api/pipeline.h"
#include "api/session.h"
#include "base/fork.h"
#include "base/nearest.h"
#include "base/read_file.h"
#include "base/task.h"
#include "base/write_file.h"
#include "engine/set.h"
#include "engine/version.h"
#include "octavo/octavo.h"
#include "onnx/import/external_files.h"
#include "region/sizes.h"
#include "report/explain.h"

namespace octavo {

namespace {

/// What bindings of all plans have in common: -1 where dimensions differ, none where ranks do.
std::vector<TensorInfo> common_bindings(const engine::Engines& engines, std::vector<region::Binding> region::Plan::*which) {
  std::vector<TensorInfo> out;
  for (const region::Binding& b : engines.front()->plan().*which) out.push_back(api::to_public(b));
  if (which == &region::Plan::outputs) out.resize(region::shown_outputs(engines.front()->plan()));
  for (const auto& e : engines) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const region::Binding& b = (e->plan().*which)[i];
      if (b.type.shape.size() != out[i].shape.size()) out[i].shape.clear();
      for (std::size_t k = 0; k < out[i].shape.size(); ++k)
        if (out[i].shape[k] != b.type.shape[k]) out[i].shape[k] = -1;
      if (out[i].format != b.format) out[i].format.clear();
    }
  }
  return out;
}

}  // namespace

std::shared_ptr<const Engine::Impl> Engine::Impl::from_model(std::vector<std::byte> bytes, const BuildOptions& options,
                                                             const std::string& folder, const std::string& name,
                                                             const std::string& path) {
  api::PipelineOptions p = api::pipeline_of(options, name);
  std::unique_ptr<const api::ModelFile> file;
  if (options.keep_model && !path.empty()) file = take(api::ModelFile::open(path));
  const auto model_bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const auto session = take(api::Session::of(model_bytes, folder, "the model"));
  if (file) p.source = api::file_source(std::move(file), onnx::external_files(session->parsed()));
  api::ShapeRanges ranges;
  for (const auto& [input, profile] : options.profiles) ranges[input] = {profile.min, profile.opt, profile.max};
  if (options.most_engines && *options.most_engines < 1)
    raise(ErrorKind::usage, fmt::format("most_engines {}: give at least 1", *options.most_engines));
  std::map<std::string, ir::Tensor> values;
  for (const auto& [input, value] : options.values) values[input] = api::to_tensor(value);
  auto model = take(
      api::OpenModel::create(session, model_bytes, std::move(p), std::move(ranges), std::move(values),
                             options.most_engines ? std::optional(static_cast<std::size_t>(*options.most_engines)) : std::nullopt,
                             take(api::late_named(options.late))));
  if (!model->open()) {
    auto built = model->at({});
    if (built || !model->open()) return of(take(std::move(built)), 0);  // open now: the value of an input decides shapes
  }
  take(api::check_gpu(options.device));  // builds come with the first shapes: without a GPU they would all fail
  auto impl = std::make_shared<Impl>();
  impl->about = api::described(model->description());
  impl->resources = model->resources();
  impl->model = std::move(model);
  impl->progress = options.progress;
  impl->reserves = options.reserve;
  impl->threads = options.threads > 0 ? options.threads : engine::available_cores();
  impl->device = options.device;
  if (!options.profiles.empty()) {
    auto built = impl->model->at(impl->model->opt());
    if (!built && impl->model->late().empty()) take(std::move(built));  // else with the values of the first run
    impl->reserve();
  }
  return impl;
}

std::shared_ptr<const engine::Engine> Engine::Impl::only(std::string_view what) const {
  if (engine) return engine;
  if (model && model->ranged() && model->late().empty()) return take(model->at(model->opt()));
  if (!model) {
    raise(ErrorKind::usage, fmt::format("{}: the file holds engines for {} sets of shapes; select one with Engine::at:\n  {}", what,
                                        loaded.size(), engine::shapes_text(loaded)));
  }
  if (const engine::Engines there = all(); there.size() == 1) return there.front();
  std::vector<std::string> shapes;
  for (const onnx::InputInfo& in : model->inputs()) shapes.push_back(fmt::format("\"{}\" {}", in.name, in.shape_text()));
  const std::set<std::string> late = model->late();
  if (!late.empty()) {
    raise(ErrorKind::usage,
          fmt::format("{}: no single engine is built yet, because shapes depend on the values of inputs: \"{}\". Give "
                      "`values` to build, or ask the engine of one set of them.",
                      what, fmt::join(late, "\", \"")));
  }
  raise(ErrorKind::usage,
        fmt::format("{}: no single engine is built yet, because the model has open dimensions: {}. Give `shapes` to build, or "
                    "ask the engine of one set of shapes.",
                    what, fmt::join(shapes, ", ")));
}

Engine::Engine(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Engine Engine::build(const std::string& path, const BuildOptions& options) {
  auto bytes = take(read_file(path, "model"));
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::error_code ignored;
  const std::string again = std::filesystem::is_regular_file(path, ignored) ? path : "";
  return watched(options.progress, [&] { return Engine(Impl::from_model(std::move(bytes), options, folder, path, again)); });
}

Engine Engine::build(std::span<const std::byte> model, const BuildOptions& options, const std::string& folder) {
  return watched(options.progress, [&] { return Engine(Impl::from_model({model.begin(), model.end()}, options, folder, "", "")); });
}

Engine Engine::load(const std::string& path, int threads) {
  return load(path, LoadOptions{.threads = threads});
}
Engine Engine::load(std::span<const std::byte> engine, int threads) {
  return load(engine, LoadOptions{.threads = threads});
}

Engine Engine::load(const std::string& path, const LoadOptions& options) {
  const int threads = options.threads;
  if (threads < 0) raise(ErrorKind::usage, fmt::format("load \"{}\": {} threads asked for; give at least 1, or 0", path, threads));
  api::LoadRequest request;
  request.public_key = options.verify;
  request.upgrade = options.upgrade;
  request.rebuild_code = options.rebuild_code;
  request.warn = options.warn;
  const auto file = take(api::open_engine_file(path, request));
  auto open = take(api::load_open(file, request));
  auto loaded = open ? open->tuned() : take(api::load_engines(file, request));
  const int wanted = threads > 0 ? threads : engine::threads_here(loaded.front()->plan());
  if (loaded.size() == 1 && !open) return Engine(Impl::of(std::move(loaded.front()), wanted));
  auto impl = std::make_shared<Impl>();
  impl->resources = open ? open->resources() : std::make_shared<engine::RunResources>();
  impl->threads = wanted;
  impl->device = api::device_of(loaded.front()->plan());
  impl->about = api::described(loaded.front()->about());
  impl->model = std::move(open);
  impl->reserves = options.reserve;
  impl->reserve();
  if (!impl->model) impl->loaded = std::move(loaded);
  return Engine(std::move(impl));
}

Engine Engine::load(std::span<const std::byte> engine, const LoadOptions& options) {
  // Loading maps a file: one in memory, which lasts as long as the map.
  const int fd = ::memfd_create("octavo-engine", MFD_CLOEXEC);
  const bool kept = fd >= 0 && write_all(fd, engine.data(), engine.size());
  const int code = errno;
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  try {
    if (!kept) raise(ErrorKind::io, fmt::format("load: the engine cannot be kept in memory: {}", std::strerror(code)));
    Engine loaded = load(path, options);
    ::close(fd);
    return loaded;
  } catch (...) {
    if (fd >= 0) ::close(fd);
    throw;
  }
}

void Engine::save(const std::string& path) const {
  if (impl_->model && impl_->model->ranged() && impl_->model->late().empty()) return take(impl_->model->save(path));
  const engine::Engines all = impl_->all();
  take(all.size() > 1 ? engine::save_set(path, all) : impl_->only("save")->save(path));
}

std::vector<std::byte> Engine::bytes() const {
  if (impl_->all().empty()) (void)impl_->only("bytes");  // says why
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  std::string path = (folder.empty() ? "/tmp" : folder) + "/octavo-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) raise(ErrorKind::io, fmt::format("bytes: no temporary file \"{}\": {}", path, std::strerror(errno)));
  ::close(fd);
  try {
    save(path);
    auto read = take(read_file(path, "engine"));
    ::unlink(path.c_str());
    return read;
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

std::string Engine::built_by() const {
  const engine::Engines all = impl_->all();
  return all.empty() ? std::string(version()) : all.front()->made_by().version();
}

std::map<std::string, std::string> Engine::notes() const {
  const engine::Engines all = impl_->all();  // a command wrote the same beside every plan
  return all.empty() ? std::map<std::string, std::string>() : all.front()->notes();
}

ModelInfo Engine::model() const {
  return impl_->about.info;
}

Engine Engine::with_engines(std::span<const std::byte> engines) const {
  if (!impl_->model) raise(ErrorKind::usage, "with_engines: engines belong to a model with open dimensions, and this one has none");
  auto impl = std::make_shared<Impl>();
  impl->model = impl_->model, impl->progress = impl_->progress, impl->threads = impl_->threads;
  impl->device = impl_->device, impl->about = impl_->about, impl->resources = impl_->resources;
  impl->loaded = load(engines, impl_->threads).impl_->all();
  return Engine(std::move(impl));
}

std::uint64_t Engine::builds() const {
  return impl_->model ? impl_->model->builds() : 0;
}

std::span<const std::byte> Engine::model_bytes() const {
  if (!impl_->model) return {};
  return impl_->model->bytes();
}

std::string Engine::explain(bool json) const {
  const auto engine = impl_->only("explain");
  if (!json) return report::table(engine->plan());
  return report::to_json(engine->plan(), engine->plan_hash(), take(report::select(engine->plan(), {})), nullptr,
                         engine->made_by().version());
}

void Engine::trim() const {
  std::vector<std::unique_ptr<engine::Context>> idle;
  {
    const std::lock_guard lock(fork_safe_mutex());
    idle.swap(impl_->idle);
    for (const auto& [e, handle] : impl_->built) {
      for (auto& context : handle->idle) idle.push_back(std::move(context));
      handle->idle.clear();
    }
  }
  if (impl_->resources) impl_->resources->trim();
}

MemoryUse Engine::memory() const {
  MemoryUse use = api::memory_of(impl_->all(), impl_->threads);
  if (impl_->resources) {
    use.working = impl_->resources->arenas.largest();
    if (impl_->model) use.working_most = impl_->model->most_arena_bytes();
    use.held = impl_->resources->arenas.held();
    use.scratch = impl_->resources->scratch.held();
    return use;
  }
  const std::lock_guard lock(fork_safe_mutex());
  for (const auto& context : impl_->idle) use.held += context->arena_bytes();
  return use;
}

bool Engine::open() const {
  return impl_->open();
}

Engine Engine::at(const std::map<std::string, Shape>& shapes, const std::map<std::string, ConstView>& values) const {
  if (impl_->open()) {
    const auto value_of = [&](const std::string& name) -> std::optional<ir::Tensor> {
      const auto given = values.find(name);
      if (given == values.end()) return std::nullopt;
      return api::to_tensor(given->second);
    };
    if (!impl_->model) return Engine(impl_->handle(take(engine::choose(impl_->loaded, {shapes, value_of}))));
    if (!impl_->loaded.empty()) {
      if (const auto fit = engine::fitting(impl_->loaded, {shapes, value_of}); fit && fit->size() == 1)
        return Engine(impl_->handle(fit->front()));
    }
    return watched(impl_->progress, [&] { return Engine(impl_->handle(take(impl_->model->at(shapes, value_of)))); });
  }
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

Engine Engine::tune(const std::map<std::string, Shape>& shapes, const std::map<std::string, ConstView>& values) const {
  if (!impl_->open() || !impl_->model) return at(shapes, values);
  const auto value_of = [&](const std::string& name) -> std::optional<ir::Tensor> {
    const auto given = values.find(name);
    if (given == values.end()) return std::nullopt;
    return api::to_tensor(given->second);
  };
  return watched(impl_->progress, [&] {
    Engine tuned(impl_->handle(take(impl_->model->tune(shapes, value_of))));
    impl_->reserve();
    return tuned;
  });
}

std::vector<TensorInfo> Engine::inputs() const {
  std::vector<TensorInfo> out;
  if (!impl_->model) return impl_->named(common_bindings(impl_->all(), &region::Plan::inputs));
  for (const onnx::InputInfo& in : impl_->model->inputs())
    out.push_back({in.name, api::to_public(in.dtype), in.dims, std::nullopt, {}});
  return impl_->named(std::move(out));
}

std::vector<TensorInfo> Engine::outputs() const {
  std::vector<TensorInfo> out;
  if (impl_->model && !impl_->model->outputs().empty()) {
    for (const onnx::InputInfo& o : impl_->model->outputs())
      out.push_back({o.name, api::to_public(o.dtype), o.dims, std::nullopt, {}});
    return impl_->named(std::move(out));
  }
  if (!impl_->model) return impl_->named(common_bindings(impl_->all(), &region::Plan::outputs));
  const auto engine = impl_->only("outputs");
  for (std::size_t i = 0; i < region::shown_outputs(engine->plan()); ++i) out.push_back(api::to_public(engine->plan().outputs[i]));
  return impl_->named(std::move(out));
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
  if (impl_->open()) {
    std::map<std::string, Shape> shapes;
    for (const auto& [name, array] : inputs) shapes[name] = array.shape;
    return at(shapes, inputs).run(inputs);
  }
  const region::Plan& plan = impl_->engine->plan();
  std::set<std::string> names;
  for (const region::Binding& b : plan.inputs) names.insert(b.name);
  for (const auto& [name, array] : inputs) {  // before what is missing: it may be a misspelled name
    if (!names.contains(name))
      raise(ErrorKind::bad_input, fmt::format("run: the model has no input \"{}\"{}", name, nearest_text(names, name)));
  }
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
  std::map<std::string, Array> results;
  std::vector<void*> out;
  for (std::size_t i = 0; i < region::shown_outputs(plan); ++i) {
    const region::Binding& b = plan.outputs[i];
    Array& a = results[b.name];
    a.dtype = api::to_public(b.type.dtype);
    a.shape = b.type.shape;
    a.bytes.resize(static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype));
    out.push_back(a.bytes.data());
  }
  std::vector<Shape> shapes;
  run(in, out, plan.sizes.empty() ? nullptr : &shapes);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Array& a = results[plan.outputs[i].name];
    ir::move_together(a.bytes.data(), size_of(a.dtype), a.shape, shapes[i]);
    a.shape = shapes[i];
    a.bytes.resize(static_cast<std::size_t>(ir::count(a.shape)) * size_of(a.dtype));
  }
  return results;
}

void Engine::run(std::span<const void* const> inputs, std::span<void* const> outputs, std::vector<Shape>* shapes) const {
  impl_->with_context([&](engine::Context& context) -> Status {
    OCTAVO_CHECK(context.run(inputs, outputs));
    if (shapes != nullptr) *shapes = shapes_after(context);
    return {};
  });
}

void Engine::run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream, std::vector<Shape>* shapes) const {
  const auto in = addresses(inputs), out = addresses(outputs);
  impl_->with_context([&](engine::Context& context) -> Status {
    const Status status = context.run(in, out, stream);
    const Status done = stream != nullptr ? context.wait() : Status();
    if (status && done && shapes != nullptr) *shapes = shapes_after(context);
    return status ? done : status;
  });
}

std::shared_ptr<void> Engine::gpu_memory(std::size_t bytes) const {
  const engine::Engine& e = impl_->fixed("gpu_memory");
  if (e.plan().devices.size() < 2) raise(ErrorKind::unsupported, "gpu_memory: the engine runs on the host");
  std::shared_ptr<region::DeviceMemory> memory = take(e.device(kGpu).allocate(bytes));
  void* const at = memory->address();
  return {std::move(memory), at};
}

}  // namespace octavo
