// The public Context: an engine, or the engines of an open one, and the memory of one thread that runs them.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "api/convert.h"
#include "api/engine_impl.h"
#include "api/nonfinite.h"
#include "region/sizes.h"

namespace octavo {

/// Contexts of an open engine are made as its shapes occur.
struct Context::Impl {
  struct One {
    Engine engine;  ///< for fixed shapes; stays while its context does
    std::unique_ptr<engine::Context> context;
  };
  /// Contexts of an open engine, of each kind; of resized engines they have neither threads nor arenas of their own.
  static constexpr std::size_t kMost = 16, kMostResized = 512;

  Engine engine;
  int threads = 1;
  std::vector<One> made;                                     ///< the one that ran last is the last
  std::unique_ptr<api::NonFiniteCounter> counter = nullptr;  ///< while it counts
  std::vector<std::vector<std::max_align_t>> memory = {};    ///< of results, by output
  std::vector<ConstView> results = {};

  engine::Context& fixed(std::string_view what) const {
    if (engine.open())
      raise(ErrorKind::usage,
            fmt::format("{}: dimensions of the engine are open; give the run its arrays with their shapes: run(arrays)", what));
    return *made.back().context;
  }
  engine::Context& last(std::string_view what) const {
    if (made.empty()) raise(ErrorKind::usage, fmt::format("{}: the context of an open engine has not run yet", what));
    return *made.back().context;
  }
};

Context::Context(const Engine& engine, int threads)
    : impl_(std::make_unique<Impl>(Impl{engine, threads > 0 ? threads : engine.threads(), {}})) {
  if (!engine.open()) impl_->made.push_back({engine, take(engine.impl_->new_context(impl_->threads))});
}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

void Context::run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  take(impl_->fixed("run").run(inputs, outputs, impl_->counter ? &impl_->counter->observer() : nullptr));
}

void Context::run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream) {
  const auto in = addresses(inputs), out = addresses(outputs);
  take(impl_->fixed("run").run(in, out, stream));
}

void Context::wait() {
  take(impl_->fixed("wait").wait());
}

std::span<const ConstView> Context::run(std::span<const ConstView> inputs) {
  const std::vector<TensorInfo> declared = impl_->engine.inputs();
  if (inputs.size() != declared.size())
    raise(ErrorKind::bad_input, fmt::format("run: {} inputs given, the model has {}", inputs.size(), declared.size()));
  std::map<std::string, Shape> shapes;
  std::map<std::string, ConstView> named;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype != declared[i].dtype)
      raise(ErrorKind::bad_input, fmt::format("run: input \"{}\" is {}, the model wants {}", declared[i].name,
                                              ir::name_of(static_cast<ir::DType>(inputs[i].dtype)),
                                              ir::name_of(static_cast<ir::DType>(declared[i].dtype))));
    shapes[declared[i].name] = inputs[i].shape, named[declared[i].name] = inputs[i];
  }
  const Engine engine = impl_->engine.at(shapes, named);
  auto& made = impl_->made;
  const auto found = std::find_if(made.begin(), made.end(),
                                  [&](const Impl::One& one) { return one.engine.impl_->engine == engine.impl_->engine; });
  if (found != made.end()) {
    std::rotate(found, std::next(found), made.end());
  } else {
    made.push_back({engine, take(engine.impl_->new_context(impl_->threads))});
    const bool small = engine.impl_->resources != nullptr && engine.impl_->engine->is_resized();
    if (made.size() > (small ? Impl::kMostResized : Impl::kMost)) made.erase(made.begin());
  }
  engine::Context& context = *made.back().context;
  const region::Plan& plan = context.engine().plan();
  const std::size_t outputs = region::shown_outputs(plan);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const ConstView& v : inputs) in.push_back(v.data);
  impl_->memory.resize(outputs), impl_->results.resize(outputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    const ir::TensorType& type = plan.outputs[i].type;
    const std::size_t bytes = static_cast<std::size_t>(ir::count(type.shape)) * ir::size_of(type.dtype);
    const std::size_t words = (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
    if (impl_->memory[i].size() < std::max<std::size_t>(words, 1)) impl_->memory[i].resize(std::max<std::size_t>(words, 1));
    out.push_back(impl_->memory[i].data());
  }
  take(context.run(in, out));
  for (std::size_t i = 0; i < outputs; ++i) {
    const ir::TensorType& type = plan.outputs[i].type;
    const Shape shape = context.shape_of(i);
    ir::move_together(static_cast<std::byte*>(out[i]), ir::size_of(type.dtype), type.shape, shape);
    impl_->results[i] = {out[i], api::to_public(type.dtype), shape};
  }
  return impl_->results;
}

RunTimes Context::profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs) {
  const engine::Profile p = take(impl_->fixed("profile").profile(inputs, outputs, runs));
  RunTimes times{p.total.median, p.total.least, {}};
  for (const engine::RegionTime& r : p.regions) times.layers.push_back(r.median);
  return times;
}

void Context::count_nonfinite(bool on) {
  impl_->counter = on ? std::make_unique<api::NonFiniteCounter>(impl_->fixed("count_nonfinite").engine()) : nullptr;
}

std::vector<NonFinite> Context::nonfinite() const {
  std::vector<NonFinite> out;
  if (!impl_->counter) return out;
  for (const api::NonFiniteTensor& t : impl_->counter->found())
    out.push_back({t.name, {t.onnx_nodes.begin(), t.onnx_nodes.end()}, t.nan, t.infinite, t.elements});
  return out;
}

Shape Context::shape_of(std::size_t output) const {
  const engine::Context& context = impl_->last("shape_of");
  const std::size_t shown = region::shown_outputs(context.engine().plan());
  if (output >= shown) raise(ErrorKind::usage, fmt::format("shape_of: output {} of {}", output, shown));
  return context.shape_of(output);
}

int Context::threads() const {
  return impl_->made.empty() ? impl_->threads : impl_->made.back().context->threads();
}

}  // namespace octavo
