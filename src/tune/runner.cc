#include "tune/runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/build_work.h"
#include "base/task.h"
#include "region/stage_graph.h"
#include "tune/activations.h"

namespace octavo::tune {
namespace {

using region::BufferKind;
using region::DeviceId;
using region::kHost;

std::size_t dense_bytes(const region::Binding& b) {
  return std::max(static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype), static_cast<std::size_t>(b.bytes));
}

/// Writes activations to the memory of a device, a pattern of some MiB again and again.
Status fill_on(const region::Device& device, std::byte* at, std::size_t bytes, ir::DType type) {
  std::vector<std::byte> pattern(std::min(bytes, std::size_t{4} << 20));
  fill_activations(pattern.data(), pattern.size(), type);
  for (std::size_t done = 0; done < bytes; done += pattern.size()) {
    const std::size_t size = std::min(pattern.size(), bytes - done);
    OCTAVO_CHECK(device.write(at + done, std::span(pattern).first(size)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(region::Plan plan, const engine::Providers& providers,
                                               const engine::Devices& devices, Together* together) {
  const BuildTimer preparing(&BuildWork::prepare);
  auto r = std::unique_ptr<Runner>(new Runner);
  const int threads = region::threads_of(plan);
  engine::SharedMemory* const memory = together == nullptr ? nullptr : &together->memory;
  for (const region::Provider* p : providers) {
    const BuildTimer waiting(&BuildWork::wait);
    region::Plan* const one = &plan;
    OCTAVO_CHECK(p->finish({&one, 1}, engine::available_cores()));
  }
  OCTAVO_TRY(auto made, engine::Engine::create(std::move(plan), providers, {}, devices, memory));
  OCTAVO_TRY(r->context_, engine::Context::create(std::move(made), threads, memory));
  const region::Plan& p = r->context_->engine().plan();
  OCTAVO_CHECK(r->take_memory(p, together));
  if (p.regions.empty()) return r;
  for (const region::Stage& s : p.regions.front().stages) {  // of a region alone all copies read the same
    for (const region::TensorRef& in : s.anchor.inputs) OCTAVO_CHECK(r->fill(in));
    for (const region::Operand& o : s.operands) OCTAVO_CHECK(r->fill(o.ref));
  }
  return r;
}

Status Runner::take_memory(const region::Plan& p, Together* together) {
  std::vector<std::size_t> bytes;
  for (const auto* list : {&p.inputs, &p.outputs}) {
    for (const region::Binding& b : *list) bytes.push_back(dense_bytes(b));
  }
  if (together != nullptr && !together->host.empty() && together->bytes == bytes) {
    host_ = together->host, in_ = together->in, out_ = together->out;
    return {};
  }
  const auto on_host = [&](const region::Binding& b) {
    const std::size_t bytes = dense_bytes(b);
    host_.push_back(std::make_unique<std::byte[]>(bytes + 64));
    void* at = host_.back().get();
    std::size_t space = bytes + 64;
    return engine::Address{std::align(64, bytes, at, space), kHost};
  };
  for (const region::Binding& b : p.inputs) {
    in_.push_back(on_host(b));
    fill_activations(static_cast<std::byte*>(in_.back().at),
                     static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype), b.type.dtype);
  }
  for (const region::Binding& b : p.outputs) out_.push_back(on_host(b));
  const auto transfers = [&](const region::Region& r) { return region::is_transfer(r, p); };
  if (p.devices.size() < 2 || std::all_of(p.regions.begin(), p.regions.end(), transfers)) {
    if (together != nullptr) together->bytes = std::move(bytes), together->host = host_, together->in = in_, together->out = out_;
    return {};
  }
  constexpr DeviceId kDevice = 1;  // plans have one device beside the host
  const region::Device& device = context_->engine().device(kDevice);
  const auto move = [&](const region::Binding& b, engine::Address& a) -> Status {
    OCTAVO_TRY(auto memory, device.allocate(dense_bytes(b)));
    OCTAVO_CHECK(device.write(memory->address(), {static_cast<const std::byte*>(a.at), dense_bytes(b)}));
    a = {memory->address(), kDevice};
    device_.push_back(std::move(memory));
    return {};
  };
  for (std::size_t i = 0; i < in_.size(); ++i) OCTAVO_CHECK(move(p.inputs[i], in_[i]));
  for (std::size_t i = 0; i < out_.size(); ++i) OCTAVO_CHECK(move(p.outputs[i], out_[i]));
  host_.clear();
  return {};
}

Status Runner::fill(const region::TensorRef& ref) {
  const region::Plan& p = context_->engine().plan();
  const region::Buffer& b = p.buffers[static_cast<std::size_t>(ref.buffer)];
  if (b.kind != BufferKind::arena || region::kept_from_memory(p.regions.front()).contains(ref.buffer)) return {};
  std::byte* at = context_->arena(b.space) + b.arena_offset;
  const auto bytes = static_cast<std::size_t>(b.bytes);
  if (b.space != kHost) return fill_on(context_->engine().device(b.space), at, bytes, ref.dtype);
  fill_activations(at, bytes, ref.dtype);
  return {};
}

Result<double> Runner::run() {
  using Clock = std::chrono::steady_clock;
  OCTAVO_CHECK(check_cancelled());
  const auto start = Clock::now();
  OCTAVO_CHECK(context_->run(in_, out_, nullptr));
  if (device_.empty()) return std::chrono::duration<double>(Clock::now() - start).count();
  return context_->time(0, context_->engine().plan().regions.size(), 1);
}

}  // namespace octavo::tune
