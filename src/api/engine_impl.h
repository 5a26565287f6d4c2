// What a public Engine holds. Errors are exceptions here.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/convert.h"
#include "api/description.h"
#include "api/open_model.h"
#include "api/pipeline.h"
#include "base/fork.h"
#include "base/task.h"
#include "engine/set.h"
#include "octavo/octavo.h"
#include "region/sizes.h"

namespace octavo {

using api::raise;
using api::take;

/// Long work that `progress` watches. An error after it said stop is a cancellation.
template <class Work>
auto watched(const TaskWatcher& progress, const Work& work) {
  const TaskScope task(progress);
  try {
    return work();
  } catch (const Exception& e) {
    if (task.cancelled()) throw Exception(Exception::Kind::cancelled, e.what());
    throw;
  }
}

/// Plans have one device beside the host.
inline constexpr region::DeviceId kGpu = 1;

[[nodiscard]] inline std::vector<engine::Address> addresses(std::span<const Memory> memory) {
  std::vector<engine::Address> out;
  for (const Memory& m : memory) out.push_back({m.data, m.on_gpu ? kGpu : region::kHost});
  return out;
}

[[nodiscard]] inline std::vector<Shape> shapes_after(const engine::Context& context) {
  std::vector<Shape> out;
  for (std::size_t i = 0; i < region::shown_outputs(context.engine().plan()); ++i) out.push_back(context.shape_of(i));
  return out;
}

/// One engine; or a model with open dimensions and the engines built from it (as handles, with their idle contexts); or a file of several.
struct __attribute__((visibility("hidden"))) Engine::Impl {
  std::shared_ptr<const engine::Engine> engine;
  std::shared_ptr<const api::OpenModel> model;
  engine::Engines loaded;  ///< of a file with several, or handed to an open model (Engine::with_engines); empty otherwise
  api::Described about;
  TaskWatcher progress;  ///< of builds for new shapes
  int threads = 1;
  std::string device = "cpu";
  /// Of all engines of an open model; null: contexts have arenas of their own.
  std::shared_ptr<engine::RunResources> resources;
  bool reserves = true;
  /// Memory of the largest shapes of the range, unless the caller does not want it.
  void reserve() const {
    if (reserves && model) model->expect_largest(threads);
  }

  // Both under fork_safe_mutex(): a child that was forked while another thread ran the engine may run it, too.
  mutable std::vector<std::unique_ptr<engine::Context>> idle;
  mutable std::map<const engine::Engine*, std::shared_ptr<const Impl>> built;

  static std::shared_ptr<Impl> of(std::shared_ptr<const engine::Engine> e, int threads) {
    auto impl = std::make_shared<Impl>();
    impl->threads = threads > 0 ? threads : region::threads_of(e->plan());
    impl->device = api::device_of(e->plan());
    impl->about = api::described(e->about());
    impl->engine = std::move(e);
    return impl;
  }

  /// `path`: of a model in a regular file, which is read again when the engine is saved; empty: it stays in memory for that.
  static std::shared_ptr<const Impl> from_model(std::vector<std::byte> bytes, const BuildOptions& options,
                                                const std::string& folder, const std::string& name, const std::string& path);

  [[nodiscard]] bool open() const { return engine == nullptr; }

  /// Every engine that there is: this one, those of the file, those built so far.
  [[nodiscard]] engine::Engines all() const {
    if (engine) return {engine};
    engine::Engines all = loaded;
    for (auto& made : model ? model->all() : engine::Engines()) all.push_back(std::move(made));
    return all;
  }
  [[nodiscard]] bool was_loaded(const engine::Engine* e) const {
    return std::any_of(loaded.begin(), loaded.end(), [&](const auto& l) { return l.get() == e; });
  }

  /// Bindings with the model's names of their dimensions.
  [[nodiscard]] std::vector<TensorInfo> named(std::vector<TensorInfo> tensors) const {
    for (TensorInfo& t : tensors) {
      const auto symbols = about.symbols.find(t.name);
      if (symbols != about.symbols.end() && symbols->second.size() == t.shape.size()) t.symbols = symbols->second;
    }
    return tensors;
  }

  /// The engine that introspection is about: this one, or the only one built so far.
  std::shared_ptr<const engine::Engine> only(std::string_view what) const;

  const engine::Engine& fixed(std::string_view what) const {
    if (!engine)
      raise(ErrorKind::usage,
            fmt::format(
                "{}: dimensions are open; bind them with Engine::at, or, if it is the batch alone, build with default_batch = 1",
                what));
    return *engine;
  }

  /// The handle for an engine built from the open model: one for each, so that idle contexts are kept.
  std::shared_ptr<const Impl> handle(const std::shared_ptr<const engine::Engine>& e) const {
    const std::lock_guard lock(fork_safe_mutex());
    if (const auto known = built.find(e.get()); known != built.end()) return known->second;
    if (model) {  // handles of engines that are no longer kept go when another one comes
      const auto kept = model->kept();
      std::erase_if(built, [&](const auto& b) { return !kept.contains(b.first) && !was_loaded(b.first); });
    }
    auto& h = built[e.get()];
    if (!h) {
      auto made = of(e, threads);
      made->resources = resources;
      h = std::move(made);
    }
    return h;
  }

  [[nodiscard]] Result<std::unique_ptr<engine::Context>> new_context(int of_threads) const {
    return engine::Context::create(engine, of_threads, nullptr, resources);
  }

  /// Calls `f` with an idle context, or a new one.
  template <class F>
  void with_context(F f) const {
    (void)fixed("run");
    std::unique_ptr<engine::Context> context;
    {
      const std::lock_guard lock(fork_safe_mutex());
      if (!idle.empty()) {
        context = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!context) context = take(new_context(threads));
    const Status status = f(*context);
    {
      const std::lock_guard lock(fork_safe_mutex());
      idle.push_back(std::move(context));
    }
    take(status);
  }
};

}  // namespace octavo
