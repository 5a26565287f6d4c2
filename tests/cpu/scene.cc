// Scenes of one region (scalar_region.h): their memory, and kernels beside the brute force.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/half.h"
#include "cpu/element.h"
#include "cpu/isa.h"
#include "cpu/scalar_region.h"
#include "reference/oracle_provider.h"
#include "region/stage_graph.h"

namespace octavo::testing {

using ir::DType;
using region::BufferKind;
using region::Memory;
using region::TensorRef;

namespace {

constexpr std::size_t kGuard = 64;

}  // namespace

TensorRef Scene::tensor(DType dtype, ir::Shape dims, BufferKind kind, std::vector<int> order, int gap, float scale) {
  if (order.empty()) {
    for (std::size_t k = 0; k < dims.size(); ++k) order.push_back(static_cast<int>(k));
  }
  TensorRef r;
  r.buffer = static_cast<region::BufferId>(plan_.buffers.size());
  r.dtype = dtype;
  r.dims = dims;
  r.strides.assign(dims.size(), 1);
  std::int64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    const auto d = static_cast<std::size_t>(order[k]);
    r.strides[d] = step;
    step *= dims[d];
    if (k + 1 == order.size()) step += gap;
  }
  const std::int64_t n = std::max<std::int64_t>(step, 1);
  region::Buffer b;
  b.kind = kind;
  b.bytes = n * static_cast<std::int64_t>(ir::size_of(dtype));
  b.name = fmt::format("buffer {}", plan_.buffers.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(b.bytes) + 2 * kGuard);
  for (auto& byte : bytes) byte = static_cast<std::byte>(rng_());
  for (std::int64_t i = 0; i < n; ++i) {
    std::byte* p = bytes.data() + kGuard + static_cast<std::size_t>(i) * ir::size_of(dtype);
    const float f = std::uniform_real_distribution<float>(-scale, scale)(rng_);
    const std::uint32_t u = rng_();
    const int extremes[4] = {0, 255, 127, 128};
    const int code = (u & 1U) != 0 ? extremes[(u >> 1) & 3U] : static_cast<int>((u >> 8) & 255U);
    switch (dtype) {
      case DType::f32: put(p, f); break;
      case DType::f16: put(p, f32_to_f16(f)); break;
      case DType::bf16: put(p, f32_to_bf16(f)); break;
      case DType::boolean: put(p, static_cast<std::uint8_t>(u & 1U)); break;
      case DType::u8: put(p, static_cast<std::uint8_t>(code)); break;
      case DType::s8: put(p, static_cast<std::int8_t>(code - 128)); break;
      case DType::s32: put(p, static_cast<std::int32_t>(u % 20001) - 10000); break;
      case DType::s64: put(p, static_cast<std::int64_t>(u)); break;
      case DType::f64: put(p, static_cast<double>(f) * 1.000000001); break;
      case DType::s16: put(p, static_cast<std::int16_t>(u)); break;
      case DType::u16: put(p, static_cast<std::uint16_t>(u)); break;
      case DType::u32: put(p, u); break;
      case DType::u64: put(p, (static_cast<std::uint64_t>(u) << 32) + rng_()); break;
      default: std::abort();
    }
  }
  if (kind == BufferKind::constant) {
    b.data = ir::Tensor(dtype, {n});
    std::memcpy(b.data.mutable_bytes().data(), bytes.data() + kGuard, static_cast<std::size_t>(b.bytes));
  }
  plan_.buffers.push_back(std::move(b));
  memory.push_back(std::move(bytes));
  return r;
}

TensorRef Scene::nhwc(DType dtype, ir::Shape dims, BufferKind kind, int gap) {
  std::vector<int> order{0};
  for (std::size_t k = 2; k < dims.size(); ++k) order.push_back(static_cast<int>(k));
  order.push_back(1);
  return tensor(dtype, std::move(dims), kind, order, gap);
}

TensorRef Scene::along(DType dtype, const ir::Shape& space, int axis, float scale) {
  TensorRef r = tensor(dtype, {space[static_cast<std::size_t>(axis)]}, BufferKind::constant, {}, 0, scale);
  r.dims = space;
  r.strides.assign(space.size(), 0);
  r.strides[static_cast<std::size_t>(axis)] = 1;
  return r;
}

TensorRef Scene::constant_along(const std::vector<float>& values, const ir::Shape& space, int axis) {
  TensorRef r = along(DType::f32, space, axis);
  auto& bytes = memory[static_cast<std::size_t>(r.buffer)];
  std::memcpy(bytes.data() + kGuard, values.data(), values.size() * sizeof(float));
  auto& b = plan_.buffers[static_cast<std::size_t>(r.buffer)];
  b.data = ir::Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
  return r;
}

TensorRef Scene::constant_along(const std::vector<std::int32_t>& values, const ir::Shape& space, int axis) {
  TensorRef r = along(DType::s32, space, axis);
  auto& bytes = memory[static_cast<std::size_t>(r.buffer)];
  std::memcpy(bytes.data() + kGuard, values.data(), values.size() * sizeof(std::int32_t));
  auto& b = plan_.buffers[static_cast<std::size_t>(r.buffer)];
  b.data = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(values.size())}, values);
  return r;
}

void Scene::requantize(int channel_axis, float acc_scale, DType out) {
  using program::Op;
  region::Stage& s = stage();
  const auto channels = static_cast<std::size_t>(s.space[static_cast<std::size_t>(channel_axis)]);
  std::vector<float> scale(channels), bias(channels);
  for (auto& v : scale) v = acc_scale * std::uniform_real_distribution<float>(0.5F, 1.5F)(rng_);
  for (auto& v : bias) v = std::uniform_real_distribution<float>(-20, 20)(rng_);
  const int first = static_cast<int>(s.operands.size());
  s.operands.push_back({constant_along(scale, s.space, channel_axis), {}});
  s.operands.push_back({constant_along(bias, s.space, channel_axis), {}});
  program::Program& p = s.program;
  p.operand_count = first + 2;
  const int acc = p.push(Op::i2f, p.push(Op::acc_i));
  const int y = p.push(Op::fma, acc, p.load(Op::load_f, first), p.load(Op::load_f, first + 1));
  const int lo = out == DType::u8 ? -3 : -128, hi = lo + 255;
  int q = p.push(Op::div, y, p.imm_f(0.37F));
  q = p.push(Op::max, q, p.imm_f(static_cast<float>(lo)));
  q = p.push(Op::min, q, p.imm_f(static_cast<float>(hi)));
  q = p.push(Op::f2i, q);
  if (out == DType::u8) q = p.push(Op::add_i, q, p.imm_i(3));
  p.outputs.push_back({q, out});
}

region::Memory Scene::addresses(std::vector<std::vector<std::byte>>& bytes) const {
  region::Memory m;
  for (auto& b : bytes) m.base.push_back(b.data() + kGuard);
  return m;
}

region::Plan Scene::with_packed(const std::vector<ir::Tensor>& packed) {
  region::Plan plan = plan_;
  region_.packed.clear();
  for (const ir::Tensor& t : packed) {
    region::Buffer b;
    b.kind = region::BufferKind::constant;
    b.bytes = static_cast<std::int64_t>(t.bytes().size());
    region_.packed.push_back(static_cast<region::BufferId>(plan.buffers.size()));
    plan.buffers.push_back(std::move(b));
  }
  return plan;
}

namespace {
/// Versions count changes of a family; a test is about the one that there is.
region::Tactic of_any_version(region::Tactic t) {
  t.version = 1;
  for (region::Tactic& part : t.parts) part = of_any_version(std::move(part));
  return t;
}
}  // namespace

std::string Scene::run_apart(const region::Provider& provider, const region::Memory& at) const {
  for (std::size_t k = 0; k < region_.stages.size(); ++k) {
    region::Region one = region_;
    one.stages = {region_.stages[k]};
    one.packed.clear();
    const auto wanted = region::parse_tactic(apart[k]);
    if (!wanted) return wanted.error().message;
    bool found = false;
    for (const region::Offer& o : provider.offers(one, plan_)) {
      if (!region::selects(of_any_version(*wanted), of_any_version(o.tactic)) || !o.refusal.empty()) continue;
      found = true;
      one.tactic = o.tactic;
    }
    if (!found) return fmt::format("stage {} has no tactic {}", k, apart[k]);
    const auto kernel = region::as_host_kernel(provider.load(one, plan_, {}));
    if (!kernel) return "load: " + kernel.error().message;
    std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 64);
    auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
    (*kernel)->run(at, 0, (*kernel)->tasks(), region::Worker{0, 1, base, nullptr, nullptr});
  }
  return "";
}

region::Region& Scene::region() {
  for (region::Stage& s : region_.stages) program::mark(s.program);
  return region_;
}

/// Each run of tasks by a thread of its own, all at once.
static void together(const region::HostKernel& kernel, const Memory& at, const std::vector<std::pair<int, int>>& runs,
                     std::byte* shared) {
  std::vector<std::thread> threads;
  std::vector<std::vector<std::byte>> scratch(runs.size(), std::vector<std::byte>(kernel.scratch_bytes() + 64, std::byte{0xA5}));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    threads.emplace_back([&, i] {
      auto* base = scratch[i].data() + (64 - reinterpret_cast<std::uintptr_t>(scratch[i].data()) % 64) % 64;
      kernel.run(at, runs[i].first, runs[i].second,
                 {static_cast<int>(i), static_cast<int>(runs.size()), base, nullptr, nullptr, shared});
    });
  }
  for (std::thread& t : threads) t.join();
}

std::string Scene::compare(const region::Provider& provider, const std::string& tactic, float tolerance, int ignored) {
  (void)region();
  const std::string repeat = fmt::format(" (tactic {}, seed {}; repeat with --gtest_filter of this test)", tactic, seed_);
  bool known = false;
  const auto wanted = region::parse_tactic(tactic);
  if (!wanted) return wanted.error().message;
#ifdef __x86_64__
  constexpr bool foreign = false;
#else
  const bool foreign = tactic.find("avx") != std::string::npos || tactic.find("amx") != std::string::npos;
#endif
  for (const region::Offer& o : provider.offers(region_, plan_)) {
    if (!region::selects(of_any_version(*wanted), of_any_version(o.tactic))) continue;
    known = true;
    if (foreign || cpu::lacks_capability(o.refusal)) return "skip: " + tactic + " " + spelled(o.refusal);
    if (!o.refusal.empty()) return "refused: " + spelled(o.refusal) + repeat;
    if (!(o.cost > 0)) return "the offer has no cost" + repeat;
    region_.tactic = o.tactic;
    for (const auto& [name, value] : parameters) region_.tactic.parameters[name] = value;
  }
  if (!known && foreign) return "skip: " + tactic + " is for x86-64";
  if (!known) return "the provider does not offer the tactic" + repeat;
  auto made = provider.compile(region_, plan_, region_.tactic);
  if (!made) return "compile: " + made.error().message + repeat;
  std::vector<std::vector<std::byte>> packed_bytes;
  std::vector<const std::byte*> packed_at;
  for (const ir::Tensor& t : made->constants) {  // 64-byte aligned, 64 readable bytes after the end
    packed_bytes.emplace_back(t.bytes().size() + 128);
    auto* p = packed_bytes.back().data();
    p += (64 - reinterpret_cast<std::uintptr_t>(p) % 64) % 64;
    std::memcpy(p, t.bytes().data(), t.bytes().size());
    packed_at.push_back(p);
  }
  auto kernel = region::as_host_kernel(provider.load(region_, with_packed(made->constants), {packed_at, {}, {}}));
  if (!kernel) return "load: " + kernel.error().message + repeat;
  auto expected = memory, actual = memory;
  if (apart.empty()) {
    scalar_region(region_, addresses(expected));
  } else if (const std::string why = run_apart(provider, addresses(expected)); !why.empty()) {
    return why + repeat;
  }
  const region::Memory at = addresses(actual);
  std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 192, std::byte{0xA5});
  auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  const int tasks = (*kernel)->tasks();
  std::vector<std::pair<int, int>> runs;
  for (int begin = 0; begin < tasks;) {
    const int end = std::min(tasks, begin + pick(1, 3));
    runs.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(runs.begin(), runs.end(), rng_);
  // Two workers in turns, each with scratch that says what it holds.
  std::vector<std::byte> other(scratch);
  auto* other_base = other.data() + (64 - reinterpret_cast<std::uintptr_t>(other.data()) % 64) % 64;
  std::array<std::int64_t, 2> kept{-1, -1};
  std::vector<std::byte> shared((*kernel)->shared_bytes() + 64);
  auto* shared_base = shared.data() + (64 - reinterpret_cast<std::uintptr_t>(shared.data()) % 64) % 64;
  const int how = (*kernel)->shared_bytes() == 0 ? 0 : pick(0, 2);  // without shared memory, with it, and at once
  for (int k = 0; how == 2 && k < 2; ++k)
    together(**kernel, at, runs, shared_base);  // what the first run leaves is what the second begins with
  for (const auto& [begin, end] : runs) {
    if (how == 2) break;
    const int w = pick(0, 1);
    (*kernel)->run(
        at, begin, end,
        {w, 2, w == 0 ? base : other_base, nullptr, &kept[static_cast<std::size_t>(w)], how == 0 ? nullptr : shared_base});
  }
  for (std::size_t k = (*kernel)->scratch_bytes(); base + k < scratch.data() + scratch.size(); ++k) {
    if (base[k] != std::byte{0xA5}) return fmt::format("wrote past its {} bytes of scratch{}", (*kernel)->scratch_bytes(), repeat);
  }
  const std::set<region::BufferId> unwritten = region::kept_from_memory(region_);
  for (std::size_t b = 0; b < memory.size(); ++b) {
    if (static_cast<int>(b) == ignored || unwritten.contains(static_cast<region::BufferId>(b))) continue;
    DType type = DType::u8;  // f32 or bf16 where a tolerance applies
    for (const TensorRef& s : region_.stages.back().stores) {
      if (tolerance > 0 && s.buffer == static_cast<region::BufferId>(b) && (s.dtype == DType::f32 || s.dtype == DType::bf16))
        type = s.dtype;
    }
    for (std::size_t i = 0; i < actual[b].size(); ++i) {
      if (actual[b][i] == expected[b][i]) continue;
      if (type != DType::u8 && i >= kGuard && i < actual[b].size() - kGuard) {
        const std::size_t size = ir::size_of(type), at_float = kGuard + (i - kGuard) / size * size;
        const float e = read_float(expected[b].data() + at_float, type), a = read_float(actual[b].data() + at_float, type);
        const float step = type == DType::bf16 ? std::max(std::abs(a), std::abs(e)) / 128 : 0.0F;  // between neighbours, at most
        if (std::abs(a - e) <= tolerance * (1 + std::abs(e)) + step) continue;
        return fmt::format("buffer {} float {}: {} instead of {}{}", b, (i - kGuard) / size, a, e, repeat);
      }
      return fmt::format("buffer {} byte {} of {}: {} instead of {}{}", b,
                         static_cast<std::int64_t>(i) - static_cast<std::int64_t>(kGuard), actual[b].size() - 2 * kGuard,
                         std::to_integer<int>(actual[b][i]), std::to_integer<int>(expected[b][i]), repeat);
    }
  }
  return "";
}

}  // namespace octavo::testing
