// cpu.matmul.f32.rows.<isa>: products of two matrices that are both computed at run time, with broadcast batches. Both are gathered into
// the worker's scratch, the right one in panels of columns, so that their layout in memory may be any (attention keeps heads innermost), then the epilogue.
#include <algorithm>
#include <cstring>

#include "cpu/families/row_families.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTaskRows = 36;                      // of the left matrix in a task
constexpr std::int64_t kMostRight = std::int64_t{1} << 20;  // elements of the right matrix in scratch

struct Setting {
  std::int64_t m = 1, k = 1, n = 1, batch = 1, rows = kTaskRows;
  std::int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  std::size_t row_dim = 0, col_dim = 1;
  std::vector<std::int64_t> a_batch, b_batch;
  [[nodiscard]] std::int64_t padded() const { return (n + kColumns - 1) / kColumns * kColumns; }
  [[nodiscard]] std::int64_t pieces() const { return (m + rows - 1) / rows; }
};

Result<Setting> setting_of(const Stage& s) {
  const region::TensorRef &a = s.anchor.inputs[0], &b = s.anchor.inputs[1];
  if (a.dtype != ir::DType::f32 || b.dtype != ir::DType::f32)
    return refuse("types of the matrices", fmt::format("{} and {}", ir::name_of(a.dtype), ir::name_of(b.dtype)), "f32");
  const std::size_t rank = s.space.size();
  if (rank < 2 || a.dims.size() < 2 || b.dims.size() < 2 || a.dims.size() > rank || b.dims.size() > rank)
    return refuse("shapes", fmt::format("{} and {}", ir::to_string(a.dims), ir::to_string(b.dims)), "two matrices");
  Setting t;
  t.row_dim = rank - 2, t.col_dim = rank - 1;
  const std::size_t ar = a.dims.size() - 2, br = b.dims.size() - 2;
  t.m = a.dims[ar], t.k = a.dims[ar + 1], t.n = b.dims[br + 1];
  if (b.dims[br] != t.k || s.space[rank - 2] != t.m || s.space[rank - 1] != t.n)
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  if (t.m * t.n * t.k == 0) return refuse("elements", 0, "some");
  if (t.k * t.padded() > kMostRight)
    return refuse("elements of the right matrix", t.k * t.padded(), fmt::format("at most {}, which scratch holds", kMostRight));
  t.a_row = a.strides[ar], t.a_col = a.strides[ar + 1], t.b_row = b.strides[br], t.b_col = b.strides[br + 1];
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    t.batch *= s.space[d];
    t.a_batch.push_back(aligned_stride(a, rank, d));
    t.b_batch.push_back(aligned_stride(b, rank, d));
  }
  return t;
}

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(const RowKernels& rows, Setting setting, Epilogue epilogue, const Stage& s, Isa isa)
      : k_(rows),
        panel_(panel_columns(isa)),
        t_(std::move(setting)),
        epilogue_(std::move(epilogue)),
        a_(s.anchor.inputs[0]),
        b_(s.anchor.inputs[1]),
        space_(s.space) {}

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(t_.batch * t_.pieces(), 4096)); }
  std::size_t scratch_bytes() const override {
    return line(epilogue_.scratch_bytes()) +
           static_cast<std::size_t>((t_.k * t_.padded() + t_.rows * t_.k + t_.rows * t_.padded()) * 4 + 192);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    auto* right = reinterpret_cast<float*>(worker.scratch + line(epilogue_.scratch_bytes()));
    float* left = right + line(static_cast<std::size_t>(t_.k * t_.padded()) * 4) / 4;
    float* out = left + line(static_cast<std::size_t>(t_.rows * t_.k) * 4) / 4;
    const std::int64_t units = t_.batch * t_.pieces();
    std::int64_t have = -1;  // the batch whose right matrix is gathered
    for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
      const std::int64_t batch = u / t_.pieces(), first = u % t_.pieces() * t_.rows, rows = std::min(t_.rows, t_.m - first);
      Index origin{};
      std::int64_t rest = batch;
      for (std::size_t d = t_.a_batch.size(); d-- > 0;) {
        origin[d] = rest % space_[d];
        rest /= space_[d];
      }
      const auto *a = reinterpret_cast<const float*>(memory.at(a_)), *b = reinterpret_cast<const float*>(memory.at(b_));
      for (std::size_t d = 0; d < t_.a_batch.size(); ++d) a += origin[d] * t_.a_batch[d], b += origin[d] * t_.b_batch[d];
      if (have != batch) pack_panels(k_, right, panel_, b, t_.k, t_.n, t_.b_row, t_.b_col);
      have = batch;
      const bool neighbours = t_.a_col == 1;  // then the rows are read where they are
      if (!neighbours) gather_matrix(k_, left, t_.k, a + first * t_.a_row, rows, t_.k, t_.a_row, t_.a_col);
      const float* x = neighbours ? a + first * t_.a_row : left;
      origin[t_.row_dim] = first;
      float* direct = t_.padded() == t_.n ? stored_row(epilogue_, memory, origin, t_.col_dim) : nullptr;
      float* to = direct == nullptr ? out : direct;
      const std::int64_t step = direct == nullptr ? t_.padded() : row_step();
      for (std::int64_t r = 0; r < rows; ++r) std::memset(to + r * step, 0, static_cast<std::size_t>(t_.padded()) * sizeof(float));
      for (std::int64_t j = 0; j < t_.padded(); j += panel_) {  // a panel stays in L1 for all rows
        const std::int64_t width = std::min(panel_, t_.padded() - j);
        k_.multiply(to + j, step, x, neighbours ? t_.a_row : t_.k, rows, right + j * t_.k, width, t_.k, width);
      }
      if (direct == nullptr)
        store_sums(epilogue_, memory, worker.scratch, origin, t_.row_dim, t_.col_dim, out, t_.padded(), rows, t_.n);
    }
  }

 private:
  /// Floats between the rows of the result.
  [[nodiscard]] std::int64_t row_step() const { return epilogue_.space().stores.front().strides[t_.row_dim] / 4; }

  const RowKernels& k_;
  std::int64_t panel_;  ///< columns of the right matrix that are packed together: as many as accumulators are
  Setting t_;
  Epilogue epilogue_;
  region::TensorRef a_, b_;
  ir::Shape space_;
};

class MatmulFamily final : public OldFamily {
 public:
  std::string_view name() const override { return "matmul.f32.rows"; }
  int version() const override { return 2; }  // the same sums; the right matrix packed in panels
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && a.op == ir::Op::matmul && !a.weights && a.inputs.size() == 2 && !only(r).program.outputs.empty();
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto t = setting_of(only(r));
    if (!t) return refusal_of(t);
    const auto e = row_epilogue(only(r), Isa::portable, t->row_dim, t->col_dim);
    return refusal_of(e);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto t = setting_of(only(r));
    if (!t) return 0;
    const auto out = static_cast<double>(ir::count(only(r).space)), k = static_cast<double>(t->k);
    const double gathered = static_cast<double>(t->batch) * k * static_cast<double>(t->m + t->n);
    return (out * k / 20.0 + gathered * 1.5 + out * 1.5) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, OldPacked) const override {
    OCTAVO_TRY(Setting t, setting_of(only(r)));
    if (const std::int64_t rows = number(r.tactic.parameters, kRows, 4096); rows > 0) t.rows = rows;
    OCTAVO_TRY(Epilogue e, row_epilogue(only(r), isa, t.row_dim, t.col_dim));
    return std::make_unique<MatmulKernel>(row_kernels(isa), std::move(t), std::move(e), only(r), isa);
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa) const override {
    std::vector<Parameters> out;
    const auto t = setting_of(only(r));
    if (!t) return out;
    for (const std::int64_t n : {kTaskRows / 4, kTaskRows / 2, kTaskRows * 2}) {
      if (n < 2 * t->m) add(out, kRows, n);
    }
    return out;
  }
  std::span<const ParameterRow> parameter_rows() const override {
    static constexpr std::array kParameters{kRows};
    return kParameters;
  }
};

}  // namespace

void pack_panels(const RowKernels& k, float* to, std::int64_t panel, const float* from, std::int64_t rows, std::int64_t cols,
                 std::int64_t row, std::int64_t col) {
  const std::int64_t padded = (cols + kColumns - 1) / kColumns * kColumns;
  for (std::int64_t j = 0; j < padded; j += panel) {
    const std::int64_t width = std::min(panel, padded - j), some = std::min(width, cols - j);
    if (some < width) std::fill(to, to + rows * width, 0.0F);
    gather_matrix(k, to, width, from + j * col, rows, some, row, col);
    to += rows * width;
  }
}

void store_sums(const Epilogue& e, const Memory& memory, std::byte* scratch, Index origin, std::size_t row_dim, std::size_t col_dim,
                const float* sums, std::int64_t step, std::int64_t rows, std::int64_t cols) {
  auto* acc = reinterpret_cast<float*>(Epilogue::acc(scratch));
  const std::int64_t block = e.code().block(), width = std::min(block, cols), at_once = std::max<std::int64_t>(1, block / width),
                     first = origin[row_dim], left = origin[col_dim];
  for (std::int64_t r = 0; r < rows; r += at_once) {
    const std::int64_t some = std::min(at_once, rows - r);
    origin[row_dim] = first + r;
    for (std::int64_t j = 0; j < cols; j += width) {
      const std::int64_t part = std::min(width, cols - j);
      origin[col_dim] = left + j;
      for (std::int64_t i = 0; i < some; ++i) std::copy_n(sums + (r + i) * step + j, part, acc + i * part);
      e.run(memory, scratch, origin, static_cast<int>(some), static_cast<int>(part));
    }
  }
}

const Family& matmul_family() {
  static const Adapted<MatmulFamily> family;
  return family;
}

}  // namespace octavo::cpu
