// cpu.reduce.block.<isa>: maximum, minimum, sum, mean and (of floats) root of the sum of squares over any axes, of codes (exact integers) and floats (in the order of
// reference/sums.h). Vectors over the kept dimension that lies closest in memory.
#include <algorithm>
#include <cmath>

#include "cpu/family.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

struct ReduceSetting {
  region::TensorRef x = {};
  ir::Op op = ir::Op::reduce_max;
  Isa isa = Isa::portable;
  BlockEpilogue epilogue = {};
  std::vector<std::int64_t> x_strides = {};  // bytes, for each dimension of the epilogue's space; 0 for dimensions of one
  std::vector<std::int64_t> outer = {};      // byte offsets of all reduced positions but the innermost dimension's
  std::int64_t inner_count = 1, inner_step = 0, count = 1;
  int row_dim = 0, col_dim = 1;
};

Result<ReduceSetting> reduce_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::u8 && x.dtype != ir::DType::f32) {
    return refuse("type of the input", ir::name_of(x.dtype), "u8 or f32");
  }
  if (s.anchor.op == ir::Op::reduce_l2 && x.dtype != ir::DType::f32)
    return refuse("type of the input", ir::name_of(x.dtype), "f32");
  const auto size = element_bytes(x);
  std::vector<char> reduced(x.dims.size(), 0);
  const ir::Shape& axes = s.anchor.as<ir::Reduction>().axes;
  for (const std::int64_t a : axes) reduced[static_cast<std::size_t>(a)] = 1;
  if (axes.empty()) std::fill(reduced.begin(), reduced.end(), 1);
  OCTAVO_TRY(Space space, Space::of(s));
  ReduceSetting p{x, s.anchor.op, isa};
  p.x_strides.assign(space.dims.size(), 0);
  const bool keep = s.space.size() == x.dims.size();
  std::size_t next = 0;
  struct Dim {
    std::int64_t extent, stride;
  };
  std::vector<Dim> over;
  for (std::size_t k = 0; k < x.dims.size(); ++k) {
    const std::size_t at = keep ? k : next;
    if (reduced[k] == 0 || keep) ++next;
    if (reduced[k] != 0) {
      p.count *= x.dims[k];
      if (keep && s.space[k] != 1) return fail(ErrorKind::bad_engine, "a reduced dimension has an extent in the result");
      if (x.dims[k] == 1) continue;
      const Dim d{x.dims[k], x.strides[k] * size};
      if (!over.empty() && over.back().stride == d.stride * d.extent) {
        over.back() = {over.back().extent * d.extent, d.stride};
      } else {
        over.push_back(d);
      }
      continue;
    }
    if (at >= s.space.size() || s.space[at] != x.dims[k]) {
      return fail(ErrorKind::bad_engine,
                  fmt::format("reducing {} does not give {}", ir::to_string(x.dims), ir::to_string(s.space)));
    }
    p.x_strides[at] = x.dims[k] == 1 ? 0 : x.strides[k] * size;
  }
  if (p.count == 0) return refuse("elements to reduce", 0, "some");
  if (!over.empty()) {
    p.inner_count = over.back().extent;
    p.inner_step = over.back().stride;
    over.pop_back();
  }
  p.outer = {0};
  for (const Dim& d : over) {
    std::vector<std::int64_t> wider;
    for (const std::int64_t o : p.outer) {
      for (std::int64_t i = 0; i < d.extent; ++i) wider.push_back(o + i * d.stride);
    }
    p.outer = std::move(wider);
  }
  while (space.dims.size() < 2) {
    space.add_unit();
    p.x_strides.push_back(0);
  }
  const auto usable = [&](std::size_t k) {
    return std::all_of(space.loads.begin(), space.loads.end(), [&](const StridedAccess& a) { return a.div[k] == 1; });
  };
  int col = -1;
  for (std::size_t k = 0; k < space.dims.size(); ++k) {
    if (!usable(k) || (p.x_strides[k] == 0 && col >= 0)) continue;
    const bool better =
        col < 0 || p.x_strides[static_cast<std::size_t>(col)] == 0 || p.x_strides[k] < p.x_strides[static_cast<std::size_t>(col)];
    if (better) col = static_cast<int>(k);
  }
  if (col < 0) return refuse("dimensions that no operand repeats", 0, "1");
  int row = col == 0 ? 1 : 0;
  for (std::size_t k = 0; k < space.dims.size(); ++k) {
    if (static_cast<int>(k) != col && space.dims[k] > space.dims[static_cast<std::size_t>(row)]) row = static_cast<int>(k);
  }
  p.row_dim = row;
  p.col_dim = col;
  OCTAVO_TRY(p.epilogue,
             block_epilogue(s.program, std::move(space), isa, static_cast<std::size_t>(row), static_cast<std::size_t>(col)));
  return p;
}

class ReduceKernel final : public TaskedKernel {
 public:
  explicit ReduceKernel(ReduceSetting setting) : table_(*kernel_table(setting.isa)), p_(std::move(setting)), x_(p_.x) {
    const ir::Op op = p_.op;
    kind_ = op == ir::Op::reduce_max ? Reduce::max : op == ir::Op::reduce_min ? Reduce::min : Reduce::sum;
    if (op == ir::Op::reduce_l2) kind_ = Reduce::squares;
    mean_ = op == ir::Op::reduce_mean && x_.dtype == ir::DType::f32;
    zero_ = x_.dtype == ir::DType::u8 && x_.quantizer ? x_.quantizer->zero_point[0] : 0;
    const auto& dims = p_.epilogue.space().dims;
    cols_ = std::min<std::int64_t>(kBlock, dims[static_cast<std::size_t>(p_.col_dim)]);
    rows_ = std::min(kBlock / cols_, dims[static_cast<std::size_t>(p_.row_dim)]);
    counts_ = dims;
    counts_[static_cast<std::size_t>(p_.col_dim)] = (dims[static_cast<std::size_t>(p_.col_dim)] + cols_ - 1) / cols_;
    counts_[static_cast<std::size_t>(p_.row_dim)] = (dims[static_cast<std::size_t>(p_.row_dim)] + rows_ - 1) / rows_;
    std::int64_t elements = p_.count;
    for (const auto n : counts_) blocks_ *= n;
    for (const auto n : dims) elements *= n;
    tasks_ = even_tasks(elements, 16384, blocks_);
  }

  std::size_t scratch_bytes() const override { return p_.epilogue.scratch_bytes(); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    p_.epilogue.prepare(worker.scratch);
    const auto& dims = p_.epilogue.space().dims;
    const auto row = static_cast<std::size_t>(p_.row_dim), col = static_cast<std::size_t>(p_.col_dim);
    for (std::int64_t b = blocks_ * task_begin / tasks_; b < blocks_ * task_end / tasks_; ++b) {
      Index origin{};
      std::int64_t rest = b;
      for (std::size_t k = dims.size(); k-- > 0;) {
        origin[k] = rest % counts_[k] * (k == row ? rows_ : k == col ? cols_ : 1);
        rest /= counts_[k];
      }
      const auto rows = static_cast<int>(std::min(rows_, dims[row] - origin[row]));
      ReduceTile t;
      t.kind = kind_;
      t.elem = x_.dtype == ir::DType::u8 ? Elem::u8 : Elem::f32;
      t.outer = p_.outer.data();
      t.outer_count = static_cast<int>(p_.outer.size());
      t.inner_count = static_cast<int>(p_.inner_count);
      t.inner_step = p_.inner_step;
      t.col = p_.x_strides[col];
      t.zero = x_.dtype == ir::DType::f32 ? 1 : zero_;  // of floats: a NaN is the maximum (reduce.inc)
      t.cols = static_cast<int>(std::min(cols_, dims[col] - origin[col]));
      const std::byte* x = memory.at(x_);
      for (std::size_t k = 0; k < dims.size(); ++k) x += origin[k] * p_.x_strides[k];
      for (int r = 0; r < rows; ++r) {
        t.base = x + r * p_.x_strides[row];
        t.acc = BlockEpilogue::acc(worker.scratch) + static_cast<std::ptrdiff_t>(r) * t.cols;
        table_.reduce(t);
        for (int c = 0; mean_ && c < t.cols; ++c) static_cast<float*>(t.acc)[c] /= static_cast<float>(p_.count);
        for (int c = 0; kind_ == Reduce::squares && c < t.cols; ++c)
          static_cast<float*>(t.acc)[c] = std::sqrt(static_cast<float*>(t.acc)[c]);
      }
      p_.epilogue.run(memory, worker.scratch, origin, rows, t.cols);
    }
  }

 private:
  const KernelTable& table_;
  ReduceSetting p_;
  const region::TensorRef& x_;
  Reduce kind_ = Reduce::max;
  bool mean_ = false;
  std::int32_t zero_ = 0;
  std::int64_t cols_ = 1, rows_ = 1, blocks_ = 1;
  std::vector<std::int64_t> counts_;
};

class ReduceFamily final : public KernelFamily<ReduceSetting, ReduceKernel> {
 public:
  ReduceFamily() : KernelFamily({.name = "reduce.block"}) {}
  bool about(const Region& r) const override {
    const ir::Op op = only(r).anchor.op;
    return r.stages.size() == 1 && !only(r).anchor.inputs.empty() && !only(r).program.outputs.empty() &&
           (op == ir::Op::reduce_max || op == ir::Op::reduce_min || op == ir::Op::reduce_mean || op == ir::Op::reduce_sum ||
            op == ir::Op::reduce_l2);
  }
  Match<ReduceSetting> match(const Request& q) const override { return reduce_setting(only(q.region), q.isa); }
  double cost(const ReduceSetting& t, Isa isa) const override {
    const bool vectors = t.x_strides[static_cast<std::size_t>(t.col_dim)] == element_bytes(t.x);
    const auto results = static_cast<double>(ir::count(t.epilogue.space().dims));
    return (static_cast<double>(ir::count(t.x.dims)) * (vectors ? 0.1 : 2.0) + results * 0.5) * slowdown(isa) * kSecondsPerCycle +
           0.3e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(reduce, ReduceFamily)

}  // namespace octavo::cpu
