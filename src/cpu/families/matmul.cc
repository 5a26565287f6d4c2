// cpu.matmul.f32.rows.<isa>: products of two matrices that are both computed at run time, with broadcast batches. Both are gathered into
// the worker's scratch, the right one in panels of columns, so that their layout in memory may be any (attention keeps heads innermost), then the epilogue.
#include <algorithm>
#include <cstring>

#include "cpu/families/matmul_setting.h"
#include "cpu/families/row_families.h"
#include "cpu/parameters.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTaskRows = 36;                      // of the left matrix in a task
constexpr std::int64_t kMostRight = std::int64_t{1} << 20;  // elements of the right matrix in scratch

struct MatmulKernelSetting {
  MatmulSetting product = {};
  Isa isa = Isa::portable;
  std::int64_t rows = kTaskRows;
  [[nodiscard]] std::int64_t padded() const { return (product.n + kColumns - 1) / kColumns * kColumns; }
  [[nodiscard]] std::int64_t pieces() const { return (product.m + rows - 1) / rows; }
};

Result<MatmulKernelSetting> matmul_kernel_setting(const Request& q) {
  const auto& in = only(q.region).anchor.inputs;
  if (in[0].dtype != ir::DType::f32 || in[1].dtype != ir::DType::f32)
    return refuse("types of the matrices", fmt::format("{} and {}", ir::name_of(in[0].dtype), ir::name_of(in[1].dtype)), "f32");
  MatmulKernelSetting t{{}, q.isa};
  OCTAVO_TRY(t.product, matmul_setting(only(q.region), q.isa));
  if (const std::int64_t right = t.product.k * t.padded(); right > kMostRight)
    return refuse("elements of the right matrix", right, fmt::format("at most {}, which scratch holds", kMostRight));
  if (const std::int64_t rows = number(q.parameters, kRows, 4096); rows > 0) t.rows = rows;
  return t;
}

class MatmulKernel final : public Kernel {
 public:
  explicit MatmulKernel(MatmulKernelSetting setting)
      : k_(row_kernels(setting.isa)), panel_(panel_columns(setting.isa)), t_(std::move(setting)), epilogue_(t_.product.epilogue) {}

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(m_.batch * t_.pieces(), 4096)); }
  std::size_t scratch_bytes() const override {
    return line(epilogue_.scratch_bytes()) +
           static_cast<std::size_t>((m_.k * t_.padded() + t_.rows * m_.k + t_.rows * t_.padded()) * 4 + 192);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    auto* right = reinterpret_cast<float*>(worker.scratch + line(epilogue_.scratch_bytes()));
    float* left = right + line(static_cast<std::size_t>(m_.k * t_.padded()) * 4) / 4;
    float* out = left + line(static_cast<std::size_t>(t_.rows * m_.k) * 4) / 4;
    const std::int64_t units = m_.batch * t_.pieces();
    std::int64_t have = -1;  // the batch whose right matrix is gathered
    for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
      const std::int64_t batch = u / t_.pieces(), first = u % t_.pieces() * t_.rows, rows = std::min(t_.rows, m_.m - first);
      Index origin = m_.origin_of(batch);
      const auto *a = reinterpret_cast<const float*>(MatmulSetting::at(m_.a, memory, origin, m_.a_batch)),
                 *b = reinterpret_cast<const float*>(MatmulSetting::at(m_.b, memory, origin, m_.b_batch));
      if (have != batch) pack_panels(k_, right, panel_, b, m_.k, m_.n, b_row(), b_col());
      have = batch;
      const bool neighbours = a_col() == 1;  // then the rows are read where they are
      if (!neighbours) gather_matrix(k_, left, m_.k, a + first * a_row(), rows, m_.k, a_row(), a_col());
      const float* x = neighbours ? a + first * a_row() : left;
      origin[m_.row_dim()] = first;
      float* direct = t_.padded() == m_.n ? stored_row(epilogue_, memory, origin, m_.col_dim()) : nullptr;
      float* to = direct == nullptr ? out : direct;
      const std::int64_t step = direct == nullptr ? t_.padded() : row_step();
      for (std::int64_t r = 0; r < rows; ++r) std::memset(to + r * step, 0, static_cast<std::size_t>(t_.padded()) * sizeof(float));
      for (std::int64_t j = 0; j < t_.padded(); j += panel_) {  // a panel stays in L1 for all rows
        const std::int64_t width = std::min(panel_, t_.padded() - j);
        k_.multiply(to + j, step, x, neighbours ? a_row() : m_.k, rows, right + j * m_.k, width, m_.k, width);
      }
      if (direct == nullptr)
        store_sums(epilogue_, memory, worker.scratch, origin, m_.row_dim(), m_.col_dim(), out, t_.padded(), rows, m_.n);
    }
  }

 private:
  [[nodiscard]] std::int64_t a_row() const { return m_.a.strides[m_.a.strides.size() - 2]; }
  [[nodiscard]] std::int64_t a_col() const { return m_.a.strides.back(); }
  [[nodiscard]] std::int64_t b_row() const { return m_.b.strides[m_.b.strides.size() - 2]; }
  [[nodiscard]] std::int64_t b_col() const { return m_.b.strides.back(); }
  /// Floats between the rows of the result.
  [[nodiscard]] std::int64_t row_step() const { return epilogue_.space().stores.front().strides[m_.row_dim()] / 4; }

  const RowKernels& k_;
  std::int64_t panel_;  ///< columns of the right matrix that are packed together: as many as accumulators are
  MatmulKernelSetting t_;
  const MatmulSetting& m_ = t_.product;
  const BlockEpilogue& epilogue_;
};

constexpr std::array kMatmulParameters{kRows};

class MatmulFamily final : public KernelFamily<MatmulKernelSetting, MatmulKernel> {
 public:
  // Version 2: the same sums; the right matrix packed in panels.
  MatmulFamily() : KernelFamily({.name = "matmul.f32.rows", .version = 2, .parameters = kMatmulParameters}) {}
  bool about(const Region& r) const override { return is_matmul(r); }
  Match<MatmulKernelSetting> match(const Request& q) const override { return matmul_kernel_setting(q); }
  double cost(const MatmulKernelSetting& t, Isa isa) const override {
    const double out = t.product.results(), k = static_cast<double>(t.product.k);
    return (out * k / 20.0 + t.product.packed() * 1.5 + out * 1.5) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const MatmulKernelSetting& t) const override {
    std::vector<Parameters> out;
    for (const std::int64_t n : {kTaskRows / 4, kTaskRows / 2, kTaskRows * 2}) {
      if (n < 2 * t.product.m) add(out, kRows, n);
    }
    return out;
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

void store_sums(const BlockEpilogue& e, const Memory& memory, std::byte* scratch, Index origin, std::size_t row_dim,
                std::size_t col_dim, const float* sums, std::int64_t step, std::int64_t rows, std::int64_t cols) {
  auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
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

OCTAVO_DEFINE_FAMILY(matmul, MatmulFamily)

}  // namespace octavo::cpu
