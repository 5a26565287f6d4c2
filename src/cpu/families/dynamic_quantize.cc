// cpu.dynamic_quantize.rows.<isa>: DynamicQuantizeLinear. The range is found in one pass, by every worker for itself (the tensor comes
// from its cache or the next one, and waiting for others costs as much); then each stores its share of the codes. The same operations
// in the same order as the reference's for each element, so the same bits.
#include <algorithm>

#include "cpu/families/row_families.h"
#include "cpu/joined.h"
#include "cpu/table.h"
#include "ir/quantizer.h"
#include "region/store_results.h"

namespace octavo::cpu {
namespace {

constexpr int kMostTasks = 4;                                          // each reads everything once
constexpr std::int64_t kDynamicQuantizeGrain = std::int64_t{1} << 15;  // elements of a task

/// The tensor as lines of neighbours: `length` elements each, at `from` in the input and `to` in the codes (elements).
struct DynamicQuantizeSetting {
  region::TensorRef x = {};
  std::vector<std::pair<std::size_t, region::TensorRef>> stores = {};  ///< with the result that each takes
  Isa isa = Isa::portable;
  std::int64_t length = 1, lines = 1;
  ir::Shape outer = {};                          ///< extents of the dimensions that are no line
  std::vector<std::int64_t> from = {}, to = {};  ///< their strides
  std::int64_t step = 1;                         ///< between neighbours' codes
};

Result<DynamicQuantizeSetting> dynamic_quantize_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "f32");
  const region::TensorRef* codes = nullptr;
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    const std::size_t k = region::result_of_store(s.anchor, i);
    const bool fits = k == 1 ? s.stores[i].dtype == ir::DType::f32 : s.stores[i].dtype == ir::DType::u8;
    if (k > 2 || !fits || s.stores[i].quantizer)
      return refuse(fmt::format("type of result {}", k), ir::name_of(s.stores[i].dtype),
                    "that of the operator, without a quantizer");
    if (k != 0) continue;
    if (s.stores[i].dims != x.dims) return refuse("shape of the codes", ir::to_string(s.stores[i].dims), ir::to_string(x.dims));
    if (codes != nullptr && codes->strides != s.stores[i].strides) return refuse("layouts of the codes", 2, "1");
    codes = &s.stores[i];
  }
  DynamicQuantizeSetting t{x, {}, isa};
  for (std::size_t i = 0; i < s.stores.size(); ++i) t.stores.emplace_back(region::result_of_store(s.anchor, i), s.stores[i]);
  Joined loops = joined(x.dims, {x.strides, codes == nullptr ? x.strides : codes->strides});
  t.outer = std::move(loops.dims), t.from = std::move(loops.strides[0]), t.to = std::move(loops.strides[1]);
  if (!t.outer.empty()) {
    if (t.from.back() != 1) return refuse("stride of the input's last dimension", t.from.back(), "1");
    t.length = t.outer.back(), t.step = t.to.back();
    t.outer.pop_back(), t.from.pop_back(), t.to.pop_back();
  }
  t.lines = ir::count(t.outer);
  return t;
}

class DynamicQuantizeKernel final : public TaskedKernel {
 public:
  explicit DynamicQuantizeKernel(DynamicQuantizeSetting setting) : k_(row_kernels(setting.isa)), t_(std::move(setting)) {
    tasks_ = even_tasks(t_.length * t_.lines, kDynamicQuantizeGrain, kMostTasks, kMostTasks);
  }

  std::size_t scratch_bytes() const override { return t_.step == 1 ? 0 : line(kPart); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const auto* x = reinterpret_cast<const float*>(memory.at(t_.x));
    float lo = 0, hi = 0;
    each_line(0, t_.lines, [&](std::int64_t from, std::int64_t) { k_.range(x + from, t_.length, &lo, &hi); });
    const float range = (hi - lo) / 255.0F, scale = range > 0 ? range : 1.0F;
    const std::int32_t zero = ir::quantize_one(0.0F - lo, scale, 0, 0, 255);
    for (const auto& [result, ref] : t_.stores) {
      std::byte* at = memory.at(ref);
      if (result == 0) {
        codes(x, reinterpret_cast<std::uint8_t*>(at), scale, zero, task_begin, task_end, worker);
      } else if (task_begin == 0 && result == 1) {
        *reinterpret_cast<float*>(at) = scale;
      } else if (task_begin == 0) {
        *reinterpret_cast<std::uint8_t*>(at) = static_cast<std::uint8_t>(zero);
      }
    }
  }

 private:
  static constexpr std::int64_t kPart = 4096;  // codes at a time where they are stored apart

  template <class F>
  void each_line(std::int64_t begin, std::int64_t end, F&& f) const {
    for (std::int64_t l = begin; l < end; ++l) {
      std::int64_t rest = l, from = 0, to = 0;
      for (std::size_t d = t_.outer.size(); d-- > 0;) {
        from += rest % t_.outer[d] * t_.from[d];
        to += rest % t_.outer[d] * t_.to[d];
        rest /= t_.outer[d];
      }
      f(from, to);
    }
  }

  void codes(const float* x, std::uint8_t* y, float scale, std::int32_t zero, int task_begin, int task_end,
             const Worker& worker) const {
    // Tasks share the elements of all lines: a share begins and ends within lines.
    const std::int64_t all = t_.length * t_.lines, begin = all * task_begin / tasks_, end = all * task_end / tasks_;
    if (begin == end) return;
    std::int64_t l = begin / t_.length;
    each_line(l, (end - 1) / t_.length + 1, [&](std::int64_t from, std::int64_t to) {
      const std::int64_t first = std::max<std::int64_t>(begin - l * t_.length, 0), last = std::min(end - l * t_.length, t_.length);
      ++l;
      if (t_.step == 1) return k_.quantize(y + to + first, x + from + first, last - first, scale, zero);
      auto* part = reinterpret_cast<std::uint8_t*>(worker.scratch);
      for (std::int64_t i = first; i < last; i += kPart) {
        const std::int64_t n = std::min(kPart, last - i);
        k_.quantize(part, x + from + i, n, scale, zero);
        for (std::int64_t k = 0; k < n; ++k) y[to + (i + k) * t_.step] = part[k];
      }
    });
  }

  const RowKernels& k_;
  DynamicQuantizeSetting t_;
};

class DynamicQuantizeFamily final : public KernelFamily<DynamicQuantizeSetting, DynamicQuantizeKernel> {
 public:
  DynamicQuantizeFamily()
      : KernelFamily({.name = "dynamic_quantize.rows", .about = {{ir::Op::dynamic_quantize}, 1, Results::raw}}) {}
  Match<DynamicQuantizeSetting> match(const Request& q) const override { return dynamic_quantize_setting(only(q.region), q.isa); }
  double cost(const DynamicQuantizeSetting& t, Isa isa) const override {
    return static_cast<double>(ir::count(t.x.dims)) * 0.5 * slowdown(isa) * kSecondsPerCycle + 0.2e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(dynamic_quantize, DynamicQuantizeFamily)

}  // namespace octavo::cpu
