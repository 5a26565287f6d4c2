// cpu.cumulate.<isa>: sums or products along one dimension, from its first element to its last or the other way around. Vectors run over a kept dimension,
// whose running sums stay in scratch; floats are added in the reference's order and leave by the program, integers of any size wrap and are stored
// as they are.
#include <algorithm>
#include <optional>

#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using ir::DType;
using region::TensorRef;

constexpr std::int64_t kCumulateGrain = 1 << 14;  ///< elements of a task
constexpr std::int64_t kApart = 16;               ///< columns at a time where they do not lie side by side: rows stay in the cache

struct CumulateSetting {
  TensorRef x = {};
  std::vector<TensorRef> stores = {};
  ir::Cumulate how = {};
  Isa isa = Isa::portable;
  ir::Shape dims = {};                  ///< of the space, at least two
  std::vector<std::int64_t> from = {};  ///< strides of the input, in elements
  std::size_t axis = 0, col = 1;
  std::optional<BlockEpilogue> epilogue = {};  ///< of floats; absent: integers
};

/// The kept dimension that vectors run over: that whose elements lie closest in the input.
std::optional<std::size_t> column_of(const CumulateSetting& t, const Space* space) {
  std::optional<std::size_t> col;
  for (std::size_t d = 0; d < t.dims.size(); ++d) {
    const bool divided = space != nullptr && std::any_of(space->loads.begin(), space->loads.end(),
                                                         [&](const StridedAccess& a) { return a.div[d] != 1; });
    if (d == t.axis || divided) continue;
    if (!col || t.dims[*col] == 1 || (t.dims[d] != 1 && t.from[d] < t.from[*col])) col = d;
  }
  return col;
}

Result<CumulateSetting> cumulate_setting(const Stage& s, Isa isa) {
  CumulateSetting t{s.anchor.inputs[0], s.stores, s.anchor.as<ir::Cumulate>(), isa};
  const bool floats = !s.program.outputs.empty();
  const DType type = t.x.dtype;
  if (floats ? type != DType::f32 : ir::is_float(type) || type == DType::boolean)
    return refuse("type of the input", ir::name_of(type), "f32 or integers");
  if (t.x.quantizer) return refuse("input", "codes of a quantizer", "numbers");
  const auto rank = static_cast<std::int64_t>(t.x.dims.size());
  if (s.space != t.x.dims || t.how.axis < 0 || t.how.axis >= rank || rank > 8)
    return fail(ErrorKind::bad_engine,
                fmt::format("cumulate along axis {} of {} into {}", t.how.axis, ir::to_string(t.x.dims), ir::to_string(s.space)));
  for (const TensorRef& r : t.stores) {
    if (!floats && (r.dtype != type || r.dims != s.space))
      return refuse("type of a result", ir::name_of(r.dtype), ir::name_of(type));
  }
  t.axis = static_cast<std::size_t>(t.how.axis);
  t.dims = s.space;
  for (std::size_t d = 0; d < t.dims.size(); ++d) t.from.push_back(t.dims[d] == 1 ? 0 : t.x.strides[d]);
  if (t.dims.size() < 2) t.dims.push_back(1), t.from.push_back(0);
  if (!floats) {
    t.col = *column_of(t, nullptr);
    return t;
  }
  OCTAVO_TRY(Space space, Space::of(s));
  while (space.dims.size() < 2) space.add_unit();
  const std::optional<std::size_t> col = column_of(t, &space);
  if (!col) return refuse("dimensions that no operand repeats", 0, "1");
  t.col = *col;
  OCTAVO_TRY(t.epilogue, block_epilogue(s.program, std::move(space), isa, t.axis, t.col));
  return t;
}

class CumulateKernel final : public Kernel {
 public:
  explicit CumulateKernel(CumulateSetting setting) : k_(row_kernels(setting.isa)), t_(std::move(setting)) {
    cols_ = std::min<std::int64_t>(t_.from[t_.col] == 1 ? kBlock : kApart, t_.dims[t_.col]);
    rows_ = std::min<std::int64_t>(std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(1, cols_)), t_.dims[t_.axis]);
    counts_ = t_.dims;
    counts_[t_.axis] = 1;
    counts_[t_.col] = cols_ == 0 ? 0 : (t_.dims[t_.col] + cols_ - 1) / cols_;
    units_ = ir::count(t_.dims) == 0 ? 0 : ir::count(counts_);
    tasks_ = even_tasks(ir::count(t_.dims), kCumulateGrain, units_);
  }

  int tasks() const override { return tasks_; }
  std::size_t scratch_bytes() const override {
    return (t_.epilogue ? line(t_.epilogue->scratch_bytes()) : 0) + kBlock * sizeof(std::uint64_t);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    if (t_.epilogue) t_.epilogue->prepare(worker.scratch);
    for (std::int64_t u = units_ * task_begin / tasks_; u < units_ * task_end / tasks_; ++u) {
      Index origin{};
      std::int64_t rest = u, at = 0;
      for (std::size_t d = t_.dims.size(); d-- > 0;) {
        origin[d] = rest % counts_[d] * (d == t_.col ? cols_ : 1);
        rest /= counts_[d];
        at += origin[d] * t_.from[d];
      }
      const std::int64_t cols = std::min(cols_, t_.dims[t_.col] - origin[t_.col]);
      if (t_.epilogue) {
        floats(memory, worker.scratch, origin, reinterpret_cast<const float*>(memory.at(t_.x)) + at, cols);
        continue;
      }
      switch (ir::size_of(t_.x.dtype)) {
        case 1: integers<std::uint8_t>(memory, worker.scratch, origin, at, cols); break;
        case 2: integers<std::uint16_t>(memory, worker.scratch, origin, at, cols); break;
        case 4: integers<std::uint32_t>(memory, worker.scratch, origin, at, cols); break;
        default: integers<std::uint64_t>(memory, worker.scratch, origin, at, cols); break;
      }
    }
  }

 private:
  /// Blocks of rows, from the first or from the last on; the running sums are behind the epilogue's scratch.
  void floats(const Memory& memory, std::byte* scratch, Index origin, const float* x, std::int64_t cols) const {
    auto* sums = reinterpret_cast<float*>(scratch + line(t_.epilogue->scratch_bytes()));
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    const bool product = t_.how.function == ir::Accumulation::prod;
    std::fill_n(sums, cols, product ? 1.0F : 0.0F);
    const std::int64_t n = t_.dims[t_.axis], step = t_.from[t_.axis];
    for (std::int64_t done = 0; done < n; done += rows_) {
      const std::int64_t rows = std::min(rows_, n - done), first = t_.how.reverse ? n - done - rows : done;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t r = t_.how.reverse ? rows - 1 - i : i;
        k_.cumulate(sums, acc + r * cols, x + (first + r) * step, t_.from[t_.col], cols, product, t_.how.exclusive);
      }
      origin[t_.axis] = first;
      t_.epilogue->run(memory, scratch, origin, static_cast<int>(rows), static_cast<int>(cols));
    }
  }

  /// Sums and products of integers are the same for both signs: they wrap.
  template <class T>
  void integers(const Memory& memory, std::byte* scratch, const Index& origin, std::int64_t at, std::int64_t cols) const {
    using Wide = std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>;  // products of 16 bits would be signed
    auto* sums = reinterpret_cast<T*>(scratch);
    const bool product = t_.how.function == ir::Accumulation::prod;
    const T* x = reinterpret_cast<const T*>(memory.at(t_.x)) + at;
    const std::int64_t n = t_.dims[t_.axis], beside = t_.from[t_.col];
    for (const TensorRef& store : t_.stores) {
      std::fill_n(sums, cols, static_cast<T>(product ? 1 : 0));
      T* y = reinterpret_cast<T*>(memory.at(store));
      for (std::size_t d = 0; d < store.dims.size(); ++d) y += origin[d] * store.strides[d];
      const std::int64_t y_step = store.strides[t_.axis], y_beside = t_.col < store.dims.size() ? store.strides[t_.col] : 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t r = t_.how.reverse ? n - 1 - i : i;
        const T* from = x + r * t_.from[t_.axis];
        T* to = y + r * y_step;
        for (std::int64_t c = 0; c < cols; ++c) {
          const Wide before = sums[c], value = from[c * beside];
          const auto next = static_cast<T>(product ? before * value : before + value);
          sums[c] = next;
          to[c * y_beside] = t_.how.exclusive ? static_cast<T>(before) : next;
        }
      }
    }
  }

  const RowKernels& k_;
  CumulateSetting t_;
  std::int64_t cols_ = 1, rows_ = 1, units_ = 0;
  ir::Shape counts_;
  int tasks_ = 1;
};

class CumulateFamily final : public FamilyOf<CumulateSetting> {
 public:
  CumulateFamily() : FamilyOf({.name = "cumulate"}) {}
  bool about(const Region& r) const override {
    return is_one(r, ir::Op::cumulate) && only(r).anchor.inputs.size() == 1 && !only(r).stores.empty();
  }
  Match<CumulateSetting> match(const Request& q) const override { return cumulate_setting(only(q.region), q.isa); }
  double cost(const CumulateSetting& t, Isa isa) const override {
    const bool vectors = t.epilogue && t.from[t.col] == 1;
    return static_cast<double>(ir::count(t.dims)) * (vectors ? 0.4 * slowdown(isa) : 2.0) * kSecondsPerCycle + 0.3e-6;
  }
  Result<std::unique_ptr<Kernel>> load(CumulateSetting t, Packed) const override {
    return std::make_unique<CumulateKernel>(std::move(t));
  }
};

}  // namespace

const Family& cumulate_family() {
  static const CumulateFamily family;
  return family;
}

}  // namespace octavo::cpu
