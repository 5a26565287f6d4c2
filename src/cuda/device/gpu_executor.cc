#include "cuda/device/gpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/first_run.h"
#include "cuda/device/encoded_image.h"

namespace octavo::cuda {
namespace {

// CU_FUNC_ATTRIBUTE_*, CU_STREAM_*, CU_LAUNCH_ATTRIBUTE_*
constexpr int kMaxDynamicShared = 8;
constexpr unsigned kNonBlocking = 1;
constexpr int kCaptureThread = 1;
constexpr int kProgrammaticSerialization = 6;
constexpr std::size_t kUnit = 256;                ///< bytes that a workspace begins at a multiple of
constexpr std::int64_t kStaticShared = 48 << 10;  ///< more must be asked for
constexpr std::size_t kMostGraphs = 64;           ///< timing has two of each tactic
/// Launches of a graph that is timed, about: some microseconds each, against some for its start. As few as are asked for, as of long kernels, but at
/// least the second number.
constexpr std::size_t kTimedLaunches = 32, kFewTimed = 4;

std::int64_t blocks_of(const Launch& l) {
  return std::int64_t{l.grid[0]} * l.grid[1] * l.grid[2];
}

/// May the next kernel's blocks be placed while the last blocks of a kernel run? Only where neither has more blocks than there are multiprocessors: blocks that are
/// placed while others run go where room is, several on one multiprocessor, and some multiprocessors have none then.
///   On one H200, with the other changes of the same day, medians at batch 1: BERT-base of 128 tokens 0.409 and 0.371 ms, Swin-T 0.450 and 0.408. Where every kernel
/// lets the next one begin, ViT-B/16 at batch 1, with more blocks than multiprocessors, loses: 0.442 and 0.495 ms, MobileNetV2 at batch 128 too, 0.74 and 0.79.
bool begins_early(const Launch& l, const Launch& next, int multiprocessors) {
  return blocks_of(l) <= multiprocessors && blocks_of(next) <= multiprocessors;
}

}  // namespace

GpuExecutor::~GpuExecutor() {
  if (!gpu_.enter()) return;
  if (stream_ != nullptr) api_.synchronize(stream_);
  for (const Captured& c : graphs_) {
    if (c.exec != nullptr) api_.destroy_exec(c.exec);
  }
  if (from_ != nullptr) api_.destroy_event(from_);
  if (to_ != nullptr) api_.destroy_event(to_);
  if (stream_ != nullptr) api_.destroy_stream(stream_);
}

Status GpuExecutor::prepare(std::span<const region::Kernel* const> kernels) {
  const RunPartTimer timer(RunPart::prepare);
  OCTAVO_CHECK(gpu_.enter());
  OCTAVO_CHECK(api_.check(api_.create_stream(&stream_, kNonBlocking), "making a stream"));
  std::map<const std::byte*, CuModule> loaded;  // regions of equal texts share their machine code
  std::vector<std::size_t> workspace_at(kernels.size());
  std::size_t workspaces = 0;  // of all: an allocation takes longer than the rest of a small plan
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto* k = dynamic_cast<const GpuKernel*>(kernels[i]);
    workspace_at[i] = workspaces;
    if (k != nullptr) workspaces += (static_cast<std::size_t>(k->workspace_bytes()) + kUnit - 1) / kUnit * kUnit;
  }
  if (workspaces > 0) {
    OCTAVO_TRY(workspaces_, gpu_.allocate(workspaces));
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto* k = dynamic_cast<const GpuKernel*>(kernels[i]);
    if (k == nullptr) continue;
    if (k->architecture() && *k->architecture() != gpu_.facts().architecture)
      return fail(ErrorKind::unsupported,
                  fmt::format("region \"{}\" needs {}, {} is {}", plan_.regions[i].name, k->architecture()->text(),
                              gpu_.facts().name, gpu_.facts().architecture.text()));
    const CuAddress workspace = k->workspace_bytes() > 0 ? address(workspaces_->address()) + workspace_at[i] : 0;
    for (const RegionKernels::Start& s : k->starts()) {
      const auto code = k->modules()[static_cast<std::size_t>(s.module)];
      CuModule& module = loaded[code.data()];
      if (module == nullptr) {
        OCTAVO_TRY(modules_.emplace_back(), gpu_.load(code.data(), plan_.regions[i].name));
        module = modules_.back()->get();
      }
      Ready r{nullptr, &s.launch, workspace};
      OCTAVO_CHECK(api_.check(api_.function(&r.function, module, s.launch.function.c_str()),
                              fmt::format("finding kernel {}", s.launch.function)));
      if (s.launch.shared_bytes > kStaticShared)
        OCTAVO_CHECK(api_.check(api_.set_attribute(r.function, kMaxDynamicShared, static_cast<int>(s.launch.shared_bytes)),
                                fmt::format("asking for {} bytes of shared memory", s.launch.shared_bytes)));
      ready_[i].push_back(r);
      const auto& arguments = s.launch.arguments;
      const bool counts =
          std::any_of(arguments.begin(), arguments.end(), [](const Argument& a) { return a.kind == Argument::Kind::count; });
      if (!counts || beyond_ != nullptr) continue;
      constexpr std::int64_t kBeyond = std::int64_t{1} << 40;
      OCTAVO_TRY(beyond_, gpu_.allocate(sizeof kBeyond));
      OCTAVO_CHECK(gpu_.write(beyond_->address(), std::as_bytes(std::span(&kBeyond, 1))));
    }
  }
  return {};
}

Status GpuExecutor::start(std::size_t first, std::size_t last, const region::Memory& memory, void* stream) {
  const RunPartTimer timer(RunPart::launch);
  OCTAVO_CHECK(gpu_.enter());
  used_ = stream != nullptr ? stream : stream_;
  if (waited_) copies_.begin();
  waited_ = false;
  for (std::size_t i = first; i < last;) {
    if (region::is_transfer(plan_.regions[i], plan_)) {
      OCTAVO_CHECK(transfer(plan_.regions[i], memory));
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < last && !region::is_transfer(plan_.regions[end], plan_)) ++end;
    OCTAVO_TRY(const CuGraphExec exec, graph(i, end, 1, memory));
    if (exec != nullptr) OCTAVO_CHECK(api_.check(api_.launch_graph(exec, used_), "starting the captured graph"));
    i = end;
  }
  return {};
}

Status GpuExecutor::wait() {
  const RunPartTimer timer(RunPart::wait);
  OCTAVO_CHECK(gpu_.enter());
  OCTAVO_CHECK(api_.check(api_.synchronize(used_ != nullptr ? used_ : stream_), "waiting for the GPU"));
  const RunPartTimer copy(RunPart::copy);
  copies_.deliver();
  waited_ = true;
  return {};
}

Result<double> GpuExecutor::time(std::size_t first, std::size_t last, const region::Memory& memory, int runs) {
  for (std::size_t i = first; i < last; ++i) {
    if (!region::is_transfer(plan_.regions[i], plan_)) continue;
    double sum = 0;  // the host takes part in it; each run waits, since copies under way keep their pinned memory
    for (int run = 0; run < runs; ++run) {
      OCTAVO_TRY(const double one, Executor::time(first, last, memory, 1));
      sum += one;
    }
    return sum / std::max(runs, 1);
  }
  OCTAVO_CHECK(wait());
  used_ = stream_;
  if (from_ == nullptr) OCTAVO_CHECK(api_.check(api_.create_event(&from_, 0), "making an event"));
  if (to_ == nullptr) OCTAVO_CHECK(api_.check(api_.create_event(&to_, 0), "making an event"));
  std::size_t launches = 0;
  for (std::size_t i = first; i < last; ++i) launches += ready_[i].size();
  if (launches == 0) return 0.0;
  const auto most = std::clamp<std::size_t>(kTimedLaunches / launches, 1, kTimedLaunches);
  const int copies =
      static_cast<int>(std::clamp<std::size_t>(static_cast<std::size_t>(std::max(runs, 1)), std::min(kFewTimed, most), most));
  const int starts = std::max(1, (runs + copies - 1) / copies);
  OCTAVO_TRY(const CuGraphExec exec, graph(first, last, copies, memory));
  OCTAVO_CHECK(api_.check(api_.record(from_, stream_), "noting the time on the GPU"));
  for (int i = 0; i < starts; ++i) OCTAVO_CHECK(api_.check(api_.launch_graph(exec, stream_), "starting the captured graph"));
  OCTAVO_CHECK(api_.check(api_.record(to_, stream_), "noting the time on the GPU"));
  OCTAVO_CHECK(api_.check(api_.await_event(to_), "waiting for the GPU"));
  float milliseconds = 0;
  OCTAVO_CHECK(api_.check(api_.elapsed(&milliseconds, from_, to_), "reading the time on the GPU"));
  return static_cast<double>(milliseconds) * 1e-3 / copies / starts;
}

std::byte* GpuExecutor::place(const Argument& p, const region::Memory& memory) const {
  if (p.kind == Argument::Kind::count && all_) return beyond_->address();
  return memory.base[static_cast<std::size_t>(p.index)];
}

Status GpuExecutor::transfer(const region::Region& r, const region::Memory& memory) {
  const region::TensorRef &from = r.stages[0].anchor.inputs[0], &to = r.stages[0].stores[0];
  const auto bytes = static_cast<std::size_t>(ir::count(to.dims)) * ir::size_of(to.dtype);
  if (bytes == 0) return {};
  const RunPartTimer timer(RunPart::copy);
  const bool staged = used_ == stream_;  // in a caller's stream nobody waits here
  const bool up = plan_.buffers[static_cast<std::size_t>(from.buffer)].space == region::kHost;
  return up ? copies_.to_gpu(address(memory.at(to)), memory.at(from), bytes, used_, staged)
            : copies_.to_host(memory.at(to), address(memory.at(from)), bytes, used_, staged);
}

/// The captured graph of these regions for these addresses. Null: they launch nothing.
Result<CuGraphExec> GpuExecutor::graph(std::size_t first, std::size_t last, int copies, const region::Memory& memory) {
  Key key{first, last, copies, {}};
  for (std::size_t i = first; i < last; ++i) {
    for (const Ready& r : ready_[i]) {
      for (const Argument& p : r.launch->arguments) {
        if (p.kind == Argument::Kind::buffer || p.kind == Argument::Kind::count) key.addresses.push_back(place(p, memory));
      }
    }
  }
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Captured& c) { return c.key == key; });
  if (found != graphs_.end()) return found->exec;
  OCTAVO_CHECK(capture(key, memory));
  return graphs_.back().exec;
}

Status GpuExecutor::capture(const Key& key, const region::Memory& memory) {
  const RunPartTimer timer(RunPart::capture);
  if (graphs_.size() == kMostGraphs) {  // the oldest goes, when what it runs is done
    OCTAVO_CHECK(wait());
    if (graphs_.front().exec != nullptr) api_.destroy_exec(graphs_.front().exec);
    graphs_.erase(graphs_.begin());
  }
  Captured c{key, nullptr};
  std::size_t launches = 0;
  for (std::size_t i = key.first; i < key.last; ++i) launches += ready_[i].size();
  if (launches > 0) {
    CuGraph graph = nullptr;
    OCTAVO_CHECK(api_.check(api_.begin_capture(stream_, kCaptureThread), "beginning a captured graph"));
    Status launched;
    std::vector<std::pair<const Ready*, std::size_t>> all;  // with their regions
    for (std::size_t i = key.first; i < key.last; ++i) {
      for (const Ready& r : ready_[i]) all.emplace_back(&r, i);
    }
    for (int copy = 0; copy < key.copies; ++copy) {
      for (std::size_t k = 0; k < all.size(); ++k) {
        // Not where a region is timed: it follows itself there.
        const bool lets_next = key.copies == 1 && k + 1 < all.size() &&
                               begins_early(*all[k].first->launch, *all[k + 1].first->launch, gpu_.facts().multiprocessors);
        if (launched) launched = launch(*all[k].first, memory, plan_.regions[all[k].second].name, lets_next);
      }
    }
    const Status ended = api_.check(api_.end_capture(stream_, &graph), "ending a captured graph");
    OCTAVO_CHECK(launched);
    OCTAVO_CHECK(ended);
    const Status made = api_.check(api_.instantiate(&c.exec, graph, 0), "making a captured graph ready");
    api_.destroy_graph(graph);
    OCTAVO_CHECK(made);
  }
  graphs_.push_back(std::move(c));
  return {};
}

Status GpuExecutor::launch(const Ready& r, const region::Memory& memory, const std::string& name, bool lets_next) const {
  std::vector<CuAddress> values;
  std::vector<EncodedImage> images;
  std::vector<void*> parameters;
  images.reserve(r.launch->arguments.size());
  for (const Argument& p : r.launch->arguments) {
    const CuAddress base = p.kind == Argument::Kind::next        ? CuAddress{lets_next ? 1U : 0U}
                           : p.kind == Argument::Kind::number    ? 0
                           : p.kind == Argument::Kind::workspace ? r.workspace
                                                                 : address(place(p, memory));
    values.push_back(base + static_cast<CuAddress>(p.offset));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int32_t image = r.launch->arguments[i].image;
    if (image < 0) {
      parameters.push_back(&values[i]);
      continue;
    }
    OCTAVO_TRY(const EncodedImage encoded, encode(r.launch->images[static_cast<std::size_t>(image)], values[i], api_));
    parameters.push_back(&images.emplace_back(encoded));
  }
  CuLaunchConfig config;
  for (std::size_t d = 0; d < 3; ++d) {
    config.grid[d] = static_cast<unsigned>(r.launch->grid[d]);
    config.block[d] = static_cast<unsigned>(r.launch->block[d]);
  }
  config.shared_bytes = static_cast<unsigned>(r.launch->shared_bytes);
  config.stream = stream_;
  CuLaunchAttribute early;
  early.id = kProgrammaticSerialization;
  early.number = 1;
  if (r.launch->early) config.attributes = &early, config.attribute_count = 1;
  return api_.check(api_.launch_with(&config, r.function, parameters.data(), nullptr),
                    fmt::format("launching {} of \"{}\"", r.launch->function, name));
}

Result<std::unique_ptr<region::Executor>> Gpu::executor(const region::Plan& plan,
                                                        std::span<const region::Kernel* const> kernels) const {
  auto e = std::make_unique<GpuExecutor>(*this, plan);
  OCTAVO_CHECK(e->prepare(kernels));
  return e;
}

}  // namespace octavo::cuda
