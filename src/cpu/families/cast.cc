// cpu.cast.rows.<isa>: Cast between float32, s64, s32, s8, u8 and bool, element by element. Neighbours in memory are converted where they lie, others
// are collected first. A result that a program works on goes through scratch.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "cpu/families/row_families.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kBlock = 1024;     ///< elements that are converted at a time
constexpr std::int64_t kGrain = 1 << 14;  ///< elements of a task

std::optional<Number> number(ir::DType t) {
  switch (t) {
    case ir::DType::f32: return Number::f32;
    case ir::DType::s64: return Number::s64;
    case ir::DType::s32: return Number::s32;
    case ir::DType::u8: return Number::u8;
    case ir::DType::s8: return Number::s8;
    case ir::DType::boolean: return Number::boolean;
    default: return std::nullopt;
  }
}

/// Elements of two tensors that are walked together: dimensions that both walk as one are joined.
struct Walk {
  ir::Shape dims;
  std::vector<std::int64_t> from, to;  ///< strides
};
Walk walk_of(const region::TensorRef& x, const std::vector<std::int64_t>& to) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < x.dims.size(); ++d) {
    if (x.dims[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x.strides[a] > x.strides[b]; });
  Walk w;
  for (const std::size_t d : order) {
    if (!w.dims.empty() && w.from.back() == x.strides[d] * x.dims[d] && w.to.back() == to[d] * x.dims[d]) {
      w.dims.back() *= x.dims[d], w.from.back() = x.strides[d], w.to.back() = to[d];
    } else {
      w.dims.push_back(x.dims[d]), w.from.push_back(x.strides[d]), w.to.push_back(to[d]);
    }
  }
  if (w.dims.empty()) w = {{1}, {1}, {1}};
  return w;
}

/// to[i * to_step] = from[i * from_step], elements of `size` bytes.
void move(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step, std::int64_t n, std::int64_t size) {
  const auto copy = [&]<class T>(T) {
    for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(to)[i * to_step] = reinterpret_cast<const T*>(from)[i * from_step];
  };
  if (size == 1) return copy(std::uint8_t());
  if (size == 4) return copy(std::uint32_t());
  copy(std::uint64_t());
}

class CastKernel final : public Kernel {
 public:
  CastKernel(const RowKernels& rows, const Stage& s, std::optional<Epilogue> epilogue)
      : k_(rows), x_(s.anchor.inputs[0]), stores_(s.stores), space_(s.space), epilogue_(std::move(epilogue)) {
    if (epilogue_) {
      width_ = epilogue_->code().block();
      const std::int64_t cols = space_.empty() ? 1 : space_.back();
      blocks_ = (cols + width_ - 1) / width_;
      units_ = cols == 0 ? 0 : ir::count(space_) / cols * blocks_;
    } else {
      for (const region::TensorRef& r : stores_) walks_.push_back(walk_of(x_, r.strides));
      units_ = 0;
      for (const Walk& w : walks_) units_ += units_of(w);
    }
    tasks_ = even_tasks(ir::count(space_), kGrain, units_);
  }

  int tasks() const override { return tasks_; }
  std::size_t scratch_bytes() const override { return (epilogue_ ? line(epilogue_->scratch_bytes()) : 0) + 2 * kBlock * 8; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    if (epilogue_) epilogue_->prepare(worker.scratch);
    const std::int64_t end = units_ * task_end / tasks_;
    for (std::int64_t u = units_ * task_begin / tasks_; u < end; ++u) {
      if (epilogue_) {
        run_program(memory, u, worker.scratch);
        continue;
      }
      std::size_t i = 0;
      std::int64_t k = u;
      while (k >= units_of(walks_[i])) k -= units_of(walks_[i++]);
      convert(memory, walks_[i], stores_[i], k, worker.scratch);
    }
  }

 private:
  static std::int64_t units_of(const Walk& w) {
    const std::int64_t last = w.dims.back();
    return last == 0 ? 0 : ir::count(w.dims) / last * ((last + kBlock - 1) / kBlock);
  }
  [[nodiscard]] auto* function(ir::DType to) const {
    return k_.cast[static_cast<int>(*number(to))][static_cast<int>(*number(x_.dtype))];
  }

  /// Piece `unit` of a store.
  void convert(const Memory& memory, const Walk& w, const region::TensorRef& store, std::int64_t unit, std::byte* scratch) const {
    const std::int64_t last = w.dims.back(), blocks = (last + kBlock - 1) / kBlock;
    const std::int64_t first = unit % blocks * kBlock, n = std::min(kBlock, last - first);
    std::int64_t from = first * w.from.back(), to = first * w.to.back(), rest = unit / blocks;
    for (std::size_t d = w.dims.size() - 1; d-- > 0;) {
      from += rest % w.dims[d] * w.from[d], to += rest % w.dims[d] * w.to[d];
      rest /= w.dims[d];
    }
    const std::byte* x = memory.at(x_) + from * element_bytes(x_);
    std::byte* y = memory.at(store) + to * element_bytes(store);
    const bool together = w.to.back() == 1 || n == 1;
    std::byte* const out = together ? y : scratch + kBlock * 8;
    function(store.dtype)(out, collected(x, w.from.back(), n, scratch), n);
    if (!together) move(y, w.to.back(), out, 1, n, element_bytes(store));
  }

  const std::byte* collected(const std::byte* x, std::int64_t step, std::int64_t n, std::byte* scratch) const {
    if (step == 1 || n == 1) return x;
    move(scratch, 1, x, step, n, element_bytes(x_));
    return scratch;
  }

  void run_program(const Memory& memory, std::int64_t unit, std::byte* scratch) const {
    const std::int64_t cols = space_.empty() ? 1 : space_.back();
    const std::int64_t first = unit % blocks_ * width_, n = std::min<std::int64_t>(width_, cols - first);
    std::byte* const collecting = scratch + line(epilogue_->scratch_bytes());
    Index origin{};
    std::int64_t from = 0, rest = unit / blocks_;
    for (std::size_t d = space_.size(); d-- > 1;) {
      origin[d - 1] = rest % space_[d - 1];
      from += origin[d - 1] * x_.strides[d - 1];
      rest /= space_[d - 1];
    }
    const std::int64_t step = space_.empty() || cols == 1 ? 1 : x_.strides.back();
    if (!space_.empty()) origin[space_.size() - 1] = first;
    std::int32_t* acc = Epilogue::acc(scratch);
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      const std::byte* x = memory.at(x_) + (from + (first + i) * step) * element_bytes(x_);
      function(ir::DType::f32)(acc + i, collected(x, step, m, collecting), m);
    }
    epilogue_->run(memory, scratch, origin, 1, static_cast<int>(n));
  }

  const RowKernels& k_;
  region::TensorRef x_;
  std::vector<region::TensorRef> stores_;
  ir::Shape space_;
  std::optional<Epilogue> epilogue_;
  std::vector<Walk> walks_;
  std::int64_t width_ = 1, blocks_ = 1, units_ = 0;
  int tasks_ = 1;
};

/// Converted, one float32 store, nothing else.
bool plain(const Epilogue& e) {
  const Space& space = e.space();
  if (!e.code().identity() || !space.loads.empty() || space.stores.size() != 1) return false;
  const Access& to = space.stores.front();
  return to.elem == Elem::f32 && std::all_of(to.div.begin(), to.div.end(), [](auto d) { return d == 1; });
}

class CastFamily final : public Family {
 public:
  std::string_view name() const override { return "cast.rows"; }
  bool about(const Region& r) const override {
    return r.stages.size() == 1 && only(r).anchor.op == ir::Op::cast && only(r).anchor.inputs.size() == 1;
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const Stage& s = only(r);
    const region::TensorRef& x = s.anchor.inputs[0];
    constexpr std::string_view kTypes = "f32, s64, s32, s8, u8 or bool";
    if (!number(x.dtype)) return unmet("type of the input", ir::name_of(x.dtype), kTypes);
    if (x.quantizer) return unmet("input", "codes of a quantizer", "numbers");
    if (x.dims != s.space) return unmet("input", ir::to_string(x.dims), ir::to_string(s.space));
    if (!s.program.outputs.empty()) {
      const std::string to = ir::get_text(s.anchor.attrs, "to");
      if (to != "f32" || x.dtype == ir::DType::f32)
        return unmet("types", fmt::format("{} to {}", ir::name_of(x.dtype), to), "to f32");
      const auto e = epilogue_of(s, Isa::portable);
      return refusal_of(e);
    }
    for (const region::TensorRef& t : s.stores) {
      if (!number(t.dtype) || t.dtype == x.dtype) return unmet("type of a result", ir::name_of(t.dtype), kTypes);
      if (t.dims != s.space || t.quantizer) return unmet("result", ir::to_string(t.dims), ir::to_string(s.space));
    }
    return {};
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    return static_cast<double>(ir::count(only(r).space) * static_cast<std::int64_t>(only(r).stores.size())) * 0.5 * slowdown(isa) *
               kSecondsPerCycle +
           0.1e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, Packed) const override {
    const Stage& s = only(r);
    std::optional<Epilogue> e;
    if (!s.program.outputs.empty()) {
      OCTAVO_TRY(e, epilogue_of(s, isa));
      if (plain(*e)) e.reset();
    }
    return std::make_unique<CastKernel>(row_kernels(isa), s, std::move(e));
  }

 private:
  static Result<Epilogue> epilogue_of(const Stage& s, Isa isa) {
    const std::size_t col = s.space.empty() ? 0 : s.space.size() - 1;
    return row_epilogue(s, isa, col == 0 ? 1 : 0, col);
  }
};

}  // namespace

const Family& cast_family() {
  static const CastFamily family;
  return family;
}

}  // namespace octavo::cpu
