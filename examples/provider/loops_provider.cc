#include "loops_provider.h"

#include <algorithm>
#include <cstring>

#include "program/program.h"
#include "region/host_kernel.h"
#include "region/refusal.h"

namespace example {
namespace {

using octavo::ErrorKind;
using octavo::Reasons;
using octavo::Result;
using octavo::ir::DType;
using octavo::ir::Op;
using octavo::program::Scalar;
using octavo::region::Memory;
using octavo::region::Region;
using octavo::region::Stage;
using octavo::region::Tactic;
using octavo::region::TensorRef;
using octavo::region::unmet;
using Index = octavo::ir::Shape;

constexpr double kSecondsPerElement =
    20e-9;  ///< an estimate: with several tactics it says which to prefer until times are measured

// ---- what the tactic is, and which regions it takes

Tactic loops() {
  Tactic t;
  t.provider = "example";
  t.family = "loops";
  t.version = 1;     // raise it whenever the kernel's results, or its constants, change: older engine files are refused then
  t.vector = false;  // reported by `octavo explain`
  t.required = {};   // capabilities of the machine, for kernels that need some
  return t;
}

bool pools(const Stage& s) {
  return s.anchor.op == Op::max_pool;
}

/// The kinds of regions that this provider is about; for others it is silent.
bool about(const Region& r) {
  return r.stages.size() == 1 && (r.stages[0].anchor.none() || pools(r.stages[0]));
}

bool supported(DType t) {
  return t == DType::u8 || t == DType::f32;
}

/// By what the region is alone, so that an engine built on one machine is loaded on another.
Reasons why_not(const Region& r) {
  const Stage& s = r.stages[0];
  if (s.program.outputs.empty()) return unmet("epilogue", "none: the anchor writes its result itself", "one");
  for (const octavo::region::Operand& o : s.operands) {
    if (!supported(o.ref.dtype)) return unmet("type of an operand", octavo::ir::name_of(o.ref.dtype), "u8 or f32");
  }
  for (const TensorRef& store : s.stores) {
    if (!supported(store.dtype)) return unmet("type of a result", octavo::ir::name_of(store.dtype), "u8 or f32");
  }
  if (!pools(s)) return {};
  const TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != DType::u8) return unmet("type of the input", octavo::ir::name_of(x.dtype), "u8");
  if (x.dims.size() != 4) return unmet("spatial dimensions", x.dims.size() - 2, "2");
  return {};
}

// ---- the kernel

template <class T>
T get(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Logical index to address: layouts, slices and broadcasts are all strides.
std::byte* address(const Memory& memory, const TensorRef& r, const Index& index) {
  std::int64_t at = 0;
  for (std::size_t k = 0; k < r.strides.size(); ++k) at += index[k] * r.strides[k];
  return memory.at(r) + at * static_cast<std::int64_t>(octavo::ir::size_of(r.dtype));
}
Scalar load_scalar(const std::byte* p, DType type) {
  Scalar s{};
  if (type == DType::f32) {
    s.f = get<float>(p);
  } else {
    s.i = get<std::uint8_t>(p);
  }
  return s;
}
void store_scalar(std::byte* p, DType type, Scalar s) {
  const auto code = static_cast<std::uint8_t>(s.i);
  type == DType::f32 ? std::memcpy(p, &s.f, sizeof s.f) : std::memcpy(p, &code, sizeof code);
}

class LoopsKernel final : public octavo::region::HostKernel {
 public:
  explicit LoopsKernel(const Region& r)
      : stage_(r.stages[0]), window_(pools(r.stages[0]) ? r.stages[0].anchor.as<octavo::ir::Window>() : octavo::ir::Window()) {
    outer_ = stage_.space.empty() ? 1 : static_cast<int>(std::clamp<std::int64_t>(stage_.space[0], 1, 64));
  }

  /// Tasks may run in any order, on any thread, at the same time. Here each has its share of the outermost dimension.
  int tasks() const override { return outer_; }

  void run(const Memory& memory, int task_begin, int task_end, const octavo::region::Worker&) const override {
    const octavo::ir::Shape& space = stage_.space;
    std::vector<Scalar> operands(stage_.operands.size()), results(stage_.program.outputs.size()), scratch;
    Index index(space.size(), 0), divided(space.size(), 0);
    const std::int64_t rows = space.empty() ? 1 : space[0], inner = rows == 0 ? 0 : octavo::ir::count(space) / rows;
    for (std::int64_t i = rows * task_begin / outer_ * inner; i < rows * task_end / outer_ * inner; ++i) {
      std::int64_t rest = i;
      for (std::size_t k = space.size(); k-- > 0; rest /= space[k]) index[k] = rest % space[k];
      Scalar acc{};
      if (pools(stage_)) acc.i = largest(memory, index);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const octavo::region::Operand& o = stage_.operands[k];
        for (std::size_t d = 0; d < index.size(); ++d) divided[d] = o.div.empty() ? index[d] : index[d] / o.div[d];
        operands[k] = load_scalar(address(memory, o.ref, divided), o.ref.dtype);
      }
      // Everything behind the anchor: activations, requantization. A kernel that has vectors translates the program instead.
      octavo::program::interpret(stage_.program, acc, operands, results, scratch);
      for (std::size_t k = 0; k < results.size(); ++k)
        store_scalar(address(memory, stage_.stores[k], index), stage_.stores[k].dtype, results[k]);
    }
  }

 private:
  /// The largest code under the window; positions in the padding do not count.
  std::int32_t largest(const Memory& memory, const Index& out) const {
    const TensorRef& x = stage_.anchor.inputs[0];
    std::int32_t most = 0;
    for (std::int64_t i = 0; i < window_.kernel[0]; ++i) {
      for (std::int64_t j = 0; j < window_.kernel[1]; ++j) {
        const std::int64_t row = out[2] * window_.strides[0] - window_.pads[0] + i * window_.dilations[0],
                           col = out[3] * window_.strides[1] - window_.pads[1] + j * window_.dilations[1];
        if (row < 0 || row >= x.dims[2] || col < 0 || col >= x.dims[3]) continue;
        most = std::max<std::int32_t>(most, get<std::uint8_t>(address(memory, x, {out[0], out[1], row, col})));
      }
    }
    return most;
  }

  Stage stage_;
  octavo::ir::Window window_;
  int outer_ = 1;
};

}  // namespace

// ---- the provider

std::vector<octavo::region::Offer> LoopsProvider::offers(const Region& region, const octavo::region::Plan&) const {
  if (!about(region)) return {};
  const auto elements = static_cast<double>(octavo::ir::count(region.stages[0].space));
  return {{loops(), why_not(region), elements * kSecondsPerElement}};
}

/// Build time: this kernel needs nothing beside the region. Packed weights and tables would be Artifact::constants.
Result<octavo::region::Artifact> LoopsProvider::compile(const Region&, const octavo::region::Plan&, const Tactic&) const {
  return octavo::region::Artifact{};
}

/// Load time: the engine file may come from anywhere, so what it says is compared with what this provider makes.
Result<std::unique_ptr<octavo::region::Kernel>> LoopsProvider::load(const Region& region, const octavo::region::Plan&,
                                                                    const octavo::region::ArtifactView& artifact) const {
  if (region.tactic.provider == name() && region.tactic.family == loops().family && region.tactic.version != loops().version)
    return octavo::fail(ErrorKind::unsupported, "made by version " + std::to_string(region.tactic.version) +
                                                    " of the example's loops, this is version " + std::to_string(loops().version) +
                                                    "\n  build the engine again");
  if (region.tactic != loops() || !about(region) || !artifact.constants.empty())
    return octavo::fail(ErrorKind::bad_engine, "not a region that the example's loops were made for");
  if (Reasons why = why_not(region); !why.empty()) return octavo::region::refuse(std::move(why));
  return std::make_unique<LoopsKernel>(region);
}

}  // namespace example
