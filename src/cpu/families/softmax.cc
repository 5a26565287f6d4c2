// cpu.softmax.block.<isa>, cpu.log_softmax.block.<isa>: the reference's operations in the reference's order: largest element, exp
// of the differences (the same named polynomial), sum in blocks, one division each.
#include <algorithm>

#include "cpu/families/row_families.h"
#include "cpu/family.h"
#include "cpu/table.h"
#include "program/math.h"

namespace octavo::cpu {
namespace {

/// Rows whose sums are added up side by side, where they are not so long that they would leave the first-level cache.
constexpr std::int64_t kRowsTogether = 8, kLongRow = 1024;
/// Rows of at most so many elements, as classes of pixels, become columns, a row in each lane: so many elements at a time.
constexpr std::int64_t kShortRow = 16, kShortRows = 4096;

struct SoftmaxSetting {
  region::TensorRef x = {};
  BlockEpilogue epilogue = {};
  std::size_t axis = 0, row = 0;
  bool log = false;
  Isa isa = Isa::portable;
};

Result<SoftmaxSetting> softmax_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "f32");
  const auto rank = static_cast<std::int64_t>(s.space.size());
  const std::int64_t axis = s.anchor.as<ir::Along>().axis;
  if (x.dims != s.space || axis < 0 || axis >= rank) {
    return fail(ErrorKind::bad_engine,
                fmt::format("softmax over axis {} of {} into {}", axis, ir::to_string(x.dims), ir::to_string(s.space)));
  }
  SoftmaxSetting t{x, {}, static_cast<std::size_t>(axis), axis == 0 ? 1U : 0U, s.anchor.op == ir::Op::log_softmax, isa};
  OCTAVO_TRY(Space space, Space::of(s));
  if (space.dims.size() < 2) space.add_unit();
  for (std::size_t k = 0; k < space.dims.size(); ++k) {
    if (k != t.axis && space.dims[k] >= space.dims[t.row]) t.row = k;
  }
  OCTAVO_TRY(t.epilogue, block_epilogue(s.program, std::move(space), isa, t.row, t.axis));
  return t;
}

class SoftmaxKernel final : public TaskedKernel {
 public:
  explicit SoftmaxKernel(SoftmaxSetting setting)
      : kernels_(row_kernels(setting.isa)), p_(std::move(setting)), x_(p_.x), log_(p_.log) {
    const auto& dims = p_.epilogue.space().dims;
    extent_ = dims[p_.axis];
    rows_ = extent_ == 0 ? 1 : std::clamp<std::int64_t>(kBlock / extent_, extent_ <= kLongRow ? kRowsTogether : 1, kBlock);
    short_ = !log_ && extent_ > 0 && extent_ <= kShortRow && dims[p_.row] >= kColumns;
    if (short_) rows_ = std::min<std::int64_t>(kShortRows / 8, kShortRows / extent_ / kColumns * kColumns);
    rows_ = std::min(rows_, std::max<std::int64_t>(dims[p_.row], 1));
    columns_ = (rows_ + kColumns - 1) / kColumns * kColumns;
    groups_ = (dims[p_.row] + rows_ - 1) / rows_;
    blocks_ = groups_;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      if (k != p_.axis && k != p_.row) blocks_ *= dims[k];
    }
    if (extent_ == 0) blocks_ = 0;
    tasks_ =
        static_cast<int>(std::clamp<std::int64_t>(blocks_ * rows_ * extent_ / 4096, 1, std::clamp<std::int64_t>(blocks_, 1, 64)));
  }

  std::size_t scratch_bytes() const override { return epilogue_bytes() + 2 * row_bytes() + 2 * sums_bytes(); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    p_.epilogue.prepare(worker.scratch);
    const auto& dims = p_.epilogue.space().dims;
    for (std::int64_t b = blocks_ * task_begin / tasks_; b < blocks_ * task_end / tasks_; ++b) {
      Index origin{};
      std::int64_t rest = b;
      for (std::size_t k = dims.size(); k-- > 0;) {
        if (k == p_.axis) continue;
        const std::int64_t n = k == p_.row ? groups_ : dims[k];
        origin[k] = rest % n * (k == p_.row ? rows_ : 1);
        rest /= n;
      }
      one(memory, worker.scratch, origin, std::min(rows_, dims[p_.row] - origin[p_.row]));
    }
  }

 private:
  [[nodiscard]] std::size_t epilogue_bytes() const { return (p_.epilogue.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>((columns_ * extent_ * 4 + 63) / 64 * 64); }
  [[nodiscard]] std::size_t sums_bytes() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(kBlock, columns_)) * sizeof(float);
  }

  /// Short rows: columns of as many lanes as there are rows, and back.
  void several(const Memory& memory, std::byte* scratch, Index origin, std::int64_t rows, const float* from, std::int64_t row_step,
               std::int64_t step) const {
    auto* turned = reinterpret_cast<float*>(scratch + epilogue_bytes());
    auto* e = turned + row_bytes() / 4;
    float* sums = e + row_bytes() / 4;
    const std::int64_t cols = (rows + kColumns - 1) / kColumns * kColumns, first_row = origin[p_.row];
    if (step == 1) {
      kernels_.transpose(turned, columns_, from, row_step, rows, extent_);
    } else {
      for (std::int64_t k = 0; k < extent_; ++k) {
        for (std::int64_t r = 0; r < rows; ++r) turned[k * columns_ + r] = from[r * row_step + k * step];
      }
    }
    for (std::int64_t k = 0; k < extent_; ++k) std::fill(turned + k * columns_ + rows, turned + k * columns_ + cols, 0.0F);
    kernels_.exp_columns(turned, columns_, extent_, cols, sums);
    kernels_.divide_columns(turned, columns_, extent_, cols, sums);
    const bool stored = stored_row(p_.epilogue, memory, origin, p_.axis) != nullptr;
    const auto& strides = p_.epilogue.space().stores[0].strides;
    if (stored && strides[p_.row] == extent_ * 4)
      return kernels_.transpose(stored_row(p_.epilogue, memory, origin, p_.axis), extent_, turned, columns_, extent_, rows);
    kernels_.transpose(e, extent_, turned, columns_, extent_, rows);
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    const std::int64_t each = kBlock / extent_;
    for (std::int64_t r = 0; r < rows; r += each) {
      const std::int64_t count = std::min(each, rows - r);
      origin[p_.row] = first_row + r;
      std::copy(e + r * extent_, e + (r + count) * extent_, acc);
      p_.epilogue.run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(extent_));
    }
  }

  void one(const Memory& memory, std::byte* scratch, Index origin, std::int64_t rows) const {
    auto* x = reinterpret_cast<float*>(scratch + epilogue_bytes());
    auto* e = x + row_bytes() / 4;
    float* largest = e + row_bytes() / 4;
    float* sums = largest + sums_bytes() / 4;
    const auto* from = reinterpret_cast<const float*>(memory.at(x_));
    for (std::size_t k = 0; k < x_.strides.size(); ++k) from += origin[k] * x_.strides[k];
    const std::int64_t row_step = p_.row < x_.strides.size() ? x_.strides[p_.row] : 0, step = x_.strides[p_.axis];
    if (short_) return several(memory, scratch, origin, rows, from, row_step, step);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* row = from + r * row_step;  // read where it is, unless a logarithm needs it again
      if (step != 1 || log_) {
        float* to = x + r * extent_;
        for (std::int64_t k = 0; k < extent_; ++k) to[k] = row[k * step];
        row = to;
      }
      largest[r] = kernels_.largest(row, extent_);
      kernels_.exp_differences(e + r * extent_, row, largest[r], extent_);
    }
    program::FloatOps m;
    kernels_.sums_in_blocks(sums, e, rows, extent_, extent_);
    for (std::int64_t r = 0; log_ && r < rows; ++r) sums[r] = program::log(m, sums[r]);
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    // The epilogue takes a block of elements: some rows, or a piece of one.
    const std::int64_t piece = std::min<std::int64_t>(extent_, kBlock), each = kBlock / piece, first_row = origin[p_.row];
    for (std::int64_t r = 0; !log_ && r < rows; ++r) {
      origin[p_.row] = first_row + r;
      float* to = stored_row(p_.epilogue, memory, origin, p_.axis);
      if (to == nullptr) break;
      kernels_.divide(to, e + r * extent_, sums[r], extent_);
      if (r + 1 == rows) return;
    }
    for (std::int64_t r0 = 0; r0 < rows; r0 += each) {
      const std::int64_t count = std::min(each, rows - r0);
      origin[p_.row] = first_row + r0;
      for (std::int64_t k = 0; k < extent_; k += piece) {
        const std::int64_t cols = std::min(piece, extent_ - k);
        for (std::int64_t r = 0; r < count; ++r) {
          const float* values = (log_ ? x : e) + (r0 + r) * extent_ + k;
          float* to = acc + r * cols;
          if (!log_) kernels_.divide(to, values, sums[r0 + r], cols);
          for (std::int64_t c = 0; log_ && c < cols; ++c) to[c] = (values[c] - largest[r0 + r]) - sums[r0 + r];
        }
        origin[p_.axis] = k;
        p_.epilogue.run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(cols));
      }
    }
  }

  const RowKernels& kernels_;
  SoftmaxSetting p_;
  const region::TensorRef& x_;
  bool log_, short_ = false;
  std::int64_t extent_ = 1, rows_ = 1, columns_ = 1, groups_ = 1, blocks_ = 1;
};

class SoftmaxFamily final : public KernelFamily<SoftmaxSetting, SoftmaxKernel> {
 public:
  explicit SoftmaxFamily(ir::Op op)
      : KernelFamily({.name = op == ir::Op::softmax ? "softmax.block" : "log_softmax.block",
                      .version = 2,
                      .about = {{op}, 1, Results::programmed}}) {}
  Match<SoftmaxSetting> match(const Request& q) const override { return softmax_setting(only(q.region), q.isa); }
  double cost(const SoftmaxSetting& t, Isa isa) const override {
    return static_cast<double>(ir::count(t.x.dims)) * 12.0 * slowdown(isa) * kSecondsPerCycle + 0.3e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(softmax, SoftmaxFamily, std::array{ir::Op::softmax, ir::Op::log_softmax})

}  // namespace octavo::cpu
