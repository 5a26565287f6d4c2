#include "cuda/family_scene.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <set>

#include "cuda/emulation/image.h"
#include "cuda/text/counted.h"
#include "cuda/text/emit_cuda.h"
#include "reference/oracle_provider.h"
#include "region/counted.h"
#include "region/host_kernel.h"
#include "region/stage_graph.h"

namespace octavo::testing {
namespace {

constexpr std::size_t kGuard = 64;  // of Scene::memory, around each buffer

double value(const std::byte* p, ir::DType t) {
  ir::Tensor one(t, {});
  std::memcpy(one.mutable_bytes().data(), p, ir::size_of(t));
  return one.at(0);
}

/// Within the tolerance, or equal bytes.
bool close(const std::byte* a, const std::byte* e, ir::DType t, float tolerance) {
  if (std::memcmp(a, e, ir::size_of(t)) == 0) return true;
  if (tolerance == 0 || !ir::is_float(t)) return false;
  const double x = value(a, t), y = value(e, t);
  if (std::isnan(x) && std::isnan(y)) return true;
  const double step = t == ir::DType::bf16  ? std::max(std::abs(x), std::abs(y)) / 128
                      : t == ir::DType::f16 ? std::abs(y) / 1024
                                            : 0;
  return std::abs(x - y) <= static_cast<double>(tolerance) * (1 + std::abs(y)) + step;
}

/// "", or which kernel of the text never waits for the ones before it (Launch::early), or lets the next one begin before it has waited itself.
std::string begins_before_others_end(const std::string& text) {
  constexpr std::string_view kKernel = "OCTAVO_KERNEL(", kWait = "octavo_wait_for_previous();", kNext = "octavo_let_next_begin();";
  for (std::size_t at = text.find(kKernel); at != std::string::npos;) {
    const std::size_t next = text.find(kKernel, at + kKernel.size());
    const std::string kernel = text.substr(at, next - at), name = kernel.substr(0, kernel.find('{'));
    const std::size_t waits = kernel.find(kWait);
    if (waits == std::string::npos) return "a kernel does not wait: " + name;
    if (kernel.find(kNext) < waits) return "a kernel lets the next one begin before it waits: " + name;
    at = next;
  }
  return "";
}

}  // namespace

void reference_region(const region::Region& region, const region::Memory& memory) {
  region::Region r = region;
  r.tactic = {};
  r.tactic.provider = "reference";
  const auto offers = reference::oracle_provider().offers(r, region::Plan{});
  if (!offers.empty()) r.tactic = offers[0].tactic;
  const auto kernel = region::as_host_kernel(reference::oracle_provider().load(r, region::Plan{}, {}));
  if (kernel) (*kernel)->run(memory, 0, 1, region::Worker{});
}

std::set<region::BufferId> handed_over(const region::Region& region) {
  std::set<region::BufferId> out;
  for (const region::StageEdge& e : region::edges_of(region)) out.insert(region.stages[e.from.stage].stores[e.from.store].buffer);
  return out;
}

std::string run_emulated(Scene& scene, const cuda::Family& family, const cuda::Parameters& parameters, float tolerance,
                         const Edit& edit, const Truth& truth, const cuda::Target& target) {
  return run_emulated({scene.region(), scene.plan(), scene.memory, kGuard, scene.seed()}, family, parameters, tolerance, edit,
                      truth, target);
}

std::string run_emulated(const EmulatedCase& c, const cuda::Family& family, const cuda::Parameters& parameters, float tolerance,
                         const Edit& edit, const Truth& truth, const cuda::Target& target) {
  const std::string repeat = fmt::format(" (family {}, seed {})", family.name(), c.seed);
  const region::Region& region = c.region;
  const region::Plan& plan = c.plan;
  if (!family.about(region)) return "the family is silent about the region" + repeat;
  if (const Reasons refusal = family.why_not(region, plan, target); !refusal.empty())
    return "refused: " + spelled(refusal) + repeat;
  if (const auto all = family.candidates(region, plan, target); all.empty() || !(all[0].seconds > 0))
    return "no candidate with an estimate" + repeat;
  auto kernels = family.emit(region, plan, parameters, target);
  if (!kernels) return "emit: " + kernels.error().message + repeat;
  cuda::leave_out_uncounted(*kernels, region);
  std::int64_t computed = -1;  // rows of the counted dimension, by the last launch
  if (c.count >= 0) {
    const cuda::Launch& last = kernels->launches.back();
    const bool reads = std::any_of(last.arguments.begin(), last.arguments.end(),
                                   [](const cuda::Argument& a) { return a.kind == cuda::Argument::Kind::count; });
    if (!reads) return "not counted" + repeat;
    const std::int64_t of_row = last.counted.rows / region::room_of(region), unit = last.counted.unit;
    computed = ((c.count * of_row + unit - 1) / unit * unit + of_row - 1) / of_row;
  }
  if (const std::string early = begins_before_others_end(kernels->text); !early.empty())
    return early + repeat + "\n" + kernels->text;
  const std::string functions(target.architecture == "sm_75" ? cuda::turing_functions() : "");
  const auto library = emulate(functions + (edit ? edit(kernels->text) : kernels->text));
  if (!library) return library.error().message + "\n" + kernels->text + repeat;

  GlobalMemory memory;
  std::vector<std::byte*> buffers, constants;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const region::Buffer& buffer = plan.buffers[b];
    const bool writable = buffer.kind == region::BufferKind::arena || buffer.kind == region::BufferKind::output;
    buffers.push_back(
        memory.allocate(fmt::format("buffer {} \"{}\"", b, buffer.name), static_cast<std::size_t>(buffer.bytes), writable));
    std::memcpy(buffers.back(), c.memory[b].data() + c.guard, static_cast<std::size_t>(buffer.bytes));
  }
  for (std::size_t k = 0; k < kernels->constants.size(); ++k) {
    const auto bytes = kernels->constants[k].bytes();
    constants.push_back(memory.allocate(fmt::format("packed constant {}", k), bytes.size(), false));
    std::memcpy(constants.back(), bytes.data(), bytes.size());
  }
  std::byte* workspace = memory.allocate("the workspace", static_cast<std::size_t>(kernels->workspace_bytes), true);
  std::byte* const count = memory.allocate("the count", sizeof c.count, false);
  std::memcpy(count, &c.count, sizeof c.count);

  auto expected = c.memory;
  region::Memory at;
  for (auto& bytes : expected) at.base.push_back(bytes.data() + c.guard);
  truth(region, at);

  for (int run = 0; run < (kernels->workspace_bytes > 0 ? 2 : 1); ++run) {  // the second finds the workspace as the first left it
    for (const cuda::Launch& launch : kernels->launches) {
      const auto kernel = (*library)->find(launch.function);
      if (!kernel) return kernel.error().message + repeat;
      std::vector<void*> arguments;
      std::deque<OctavoImage> images;
      for (const cuda::Argument& p : launch.arguments) {
        if (p.kind == cuda::Argument::Kind::number) {
          arguments.push_back(reinterpret_cast<void*>(p.offset));  // NOLINT: eight bytes
          continue;
        }
        std::byte* base = p.kind == cuda::Argument::Kind::count      ? count
                          : p.kind == cuda::Argument::Kind::buffer   ? buffers[static_cast<std::size_t>(p.index)]
                          : p.kind == cuda::Argument::Kind::constant ? constants[static_cast<std::size_t>(p.index)]
                                                                     : workspace;
        if (p.image >= 0) {
          images.push_back(emulated_image(launch.images[static_cast<std::size_t>(p.image)], base + p.offset));
          arguments.push_back(&images.back());
          continue;
        }
        arguments.push_back(base + p.offset);
      }
      const Grid grid{launch.grid, launch.block, static_cast<std::size_t>(launch.shared_bytes)};
      const std::string wrong = run_grid(*kernel, grid, arguments, memory, c.seed);
      if (!wrong.empty()) return wrong + repeat + "\n" + kernels->text;
    }
  }
  const std::set<region::BufferId> within = handed_over(region);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (within.contains(static_cast<region::BufferId>(b))) continue;
    ir::DType type = ir::DType::u8;
    std::int64_t begin = 0, step = 0;  // of the rows that are counted
    for (const region::Stage& stage : region.stages) {
      for (const region::TensorRef& s : stage.stores) {
        if (s.buffer == static_cast<region::BufferId>(b)) {
          type = s.dtype;
          if (c.count >= 0)
            begin = s.offset,
            step = s.strides[static_cast<std::size_t>(stage.counted)] * static_cast<std::int64_t>(ir::size_of(type));
        }
      }
    }
    const std::size_t size = ir::size_of(type);
    for (std::size_t i = 0; i + size <= static_cast<std::size_t>(plan.buffers[b].bytes); i += size) {
      const std::int64_t row =
          step == 0 || static_cast<std::int64_t>(i) < begin ? 0 : (static_cast<std::int64_t>(i) - begin) / step;
      if (step != 0 && row >= computed) {
        if (std::memcmp(buffers[b] + i, c.memory[b].data() + c.guard + i, size) == 0) continue;
        return fmt::format("buffer {} element {}, in row {}, was computed for {} rows{}\n{}", b, i / size, row, c.count, repeat,
                           kernels->text);
      }
      if (step != 0 && row >= c.count) continue;
      if (close(buffers[b] + i, expected[b].data() + c.guard + i, type, tolerance)) continue;
      return fmt::format("buffer {} element {}: {} instead of {}{}\n{}", b, i / size, value(buffers[b] + i, type),
                         value(expected[b].data() + c.guard + i, type), repeat, kernels->text);
    }
  }
  return "";
}

}  // namespace octavo::testing
