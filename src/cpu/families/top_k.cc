// cpu.top_k.rows.<isa>: the k largest or smallest of float32 along one dimension, with their positions. Elements become integers in their order; a heap
// has the best so far, and vectors pass over what is not better than the worst of those.
#include <algorithm>
#include <functional>

#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "region/store_results.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTopKGrain = 1 << 13;       ///< elements of a task
constexpr std::int64_t kMostElements = 1LL << 31;  ///< positions that a key has room for

struct TopKSetting {
  region::TensorRef x = {};
  std::vector<region::TensorRef> stores = {};
  std::vector<std::size_t> results = {};  ///< by store: 0 values, 1 positions
  Isa isa = Isa::portable;
  std::size_t axis = 0;
  std::int64_t extent = 1, k = 1, lines = 1;
  bool smallest = false;
};

Result<TopKSetting> top_k_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "f32");
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  const auto& top = s.anchor.as<ir::TopK>();
  const std::int64_t axis = top.axis, k = top.k;
  if (axis < 0 || axis >= rank || k < 0 || k > x.dims[static_cast<std::size_t>(axis)])
    return fail(ErrorKind::bad_engine, fmt::format("top_k of {} along axis {} of {}", k, axis, ir::to_string(x.dims)));
  TopKSetting t{x, s.stores, {}, isa};
  t.axis = static_cast<std::size_t>(axis);
  t.extent = x.dims[t.axis], t.k = k;
  t.smallest = !top.largest;
  if (t.extent >= kMostElements) return refuse("elements that are compared", t.extent, "fewer than 2^31");
  ir::Shape result = x.dims;
  result[t.axis] = k;
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    const region::TensorRef& r = s.stores[i];
    const std::size_t of = region::result_of_store(s.anchor, i);
    if (of > 1 || r.dims != result || r.dtype != (of == 0 ? ir::DType::f32 : ir::DType::s64) || r.quantizer)
      return fail(ErrorKind::bad_engine, fmt::format("top_k: result {} is {} {}", of, ir::name_of(r.dtype), ir::to_string(r.dims)));
    t.results.push_back(of);
  }
  t.lines = t.extent == 0 ? 0 : ir::count(x.dims) / t.extent;
  return t;
}

class TopKKernel final : public TaskedKernel {
 public:
  explicit TopKKernel(TopKSetting setting) : k_(row_kernels(setting.isa)), t_(std::move(setting)) {
    step_ = t_.extent == 1 ? 1 : t_.x.strides[t_.axis];
    tasks_ = even_tasks(t_.lines * t_.extent, kTopKGrain, t_.lines);
  }

  std::size_t scratch_bytes() const override {
    return line(static_cast<std::size_t>(t_.k) * 8) + (step_ == 1 ? 1 : 2) * line(static_cast<std::size_t>(t_.extent) * 4);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    auto* const best = reinterpret_cast<std::uint64_t*>(worker.scratch);
    auto* const keys = reinterpret_cast<std::int32_t*>(worker.scratch + line(static_cast<std::size_t>(t_.k) * 8));
    auto* const row = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(keys) + line(static_cast<std::size_t>(t_.extent) * 4));
    for (std::int64_t l = t_.lines * task_begin / tasks_; l < t_.lines * task_end / tasks_; ++l) {
      const auto* x = reinterpret_cast<const float*>(memory.at(t_.x)) + offset(t_.x, l);
      const float* elements = x;
      if (step_ != 1) {
        for (std::int64_t i = 0; i < t_.extent; ++i) row[i] = x[i * step_];
        elements = row;
      }
      k_.order(keys, elements, t_.extent, t_.smallest);
      select(keys, best);
      for (std::size_t i = 0; i < t_.stores.size(); ++i) {
        const std::int64_t step = t_.k == 1 ? 1 : t_.stores[i].strides[t_.axis];
        std::byte* const to = memory.at(t_.stores[i]) + offset(t_.stores[i], l) * element_bytes(t_.stores[i]);
        for (std::int64_t j = 0; j < t_.k; ++j) {
          const std::int64_t at = position(best[j]);
          if (t_.results[i] == 0) reinterpret_cast<float*>(to)[j * step] = elements[at];
          if (t_.results[i] == 1) reinterpret_cast<std::int64_t*>(to)[j * step] = at;
        }
      }
    }
  }

 private:
  /// Greater where the element is, and where it comes earlier among equals.
  static std::uint64_t packed(std::int32_t key, std::int64_t at) {
    return std::uint64_t{static_cast<std::uint32_t>(key) ^ 0x80000000U} << 32 | (0xffffffffU - static_cast<std::uint32_t>(at));
  }
  static std::int32_t key_of(std::uint64_t v) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(v >> 32) ^ 0x80000000U);
  }
  static std::int64_t position(std::uint64_t v) { return 0xffffffffU - static_cast<std::uint32_t>(v); }

  void select(const std::int32_t* keys, std::uint64_t* best) const {
    const std::greater<> least_first;
    for (std::int64_t i = 0; i < t_.k; ++i) best[i] = packed(keys[i], i);
    if (t_.k < t_.extent && t_.k > 0) {
      std::make_heap(best, best + t_.k, least_first);
      for (std::int64_t at = t_.k;; ++at) {
        at = k_.next_greater(keys, at, t_.extent, key_of(best[0]));
        if (at >= t_.extent) break;
        std::pop_heap(best, best + t_.k, least_first);
        best[t_.k - 1] = packed(keys[at], at);
        std::push_heap(best, best + t_.k, least_first);
      }
    }
    std::sort(best, best + t_.k, least_first);
  }

  /// Elements from the tensor's first one to that of line `l`.
  [[nodiscard]] std::int64_t offset(const region::TensorRef& r, std::int64_t l) const {
    std::int64_t at = 0;
    for (std::size_t d = r.dims.size(); d-- > 0;) {
      if (d == t_.axis || r.dims[d] == 1) continue;
      at += l % r.dims[d] * r.strides[d];
      l /= r.dims[d];
    }
    return at;
  }

  const RowKernels& k_;
  TopKSetting t_;
  std::int64_t step_ = 1;
};

class TopKFamily final : public KernelFamily<TopKSetting, TopKKernel> {
 public:
  TopKFamily() : KernelFamily({.name = "top_k.rows", .about = {{ir::Op::top_k}, 1, Results::raw}}) {}
  Match<TopKSetting> match(const Request& q) const override { return top_k_setting(only(q.region), q.isa); }
  double cost(const TopKSetting& t, Isa isa) const override {
    const double each = 20.0 * static_cast<double>(t.k * t.lines);
    return (static_cast<double>(ir::count(t.x.dims)) * slowdown(isa) + each) * kSecondsPerCycle + 0.2e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(top_k, TopKFamily)

}  // namespace octavo::cpu
