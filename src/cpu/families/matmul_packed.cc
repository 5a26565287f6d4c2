// cpu.matmul.u8u8.rows.<isa> and cpu.matmul.bf16.rows.<level>: products of two matrices of 8-bit codes, or of bfloat16, that are both computed at run
// time, with broadcast batches. Both are packed into the worker's scratch in dwords along the depth (products/products.h,
// products/bf16_products.h), so that their layout in memory may be any; sums, exact or of floats, then the epilogue.
#include <algorithm>

#include "cpu/families/bf16_levels.h"
#include "cpu/families/code_products.h"
#include "cpu/families/matmul_setting.h"
#include "cpu/families/row_families.h"
#include "cpu/parameters.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTaskRows = 48;                      // of the left matrix in a task
constexpr std::int64_t kMostRight = std::int64_t{1} << 18;  // dwords of the right matrix in scratch, if 16 columns are not more
constexpr std::int64_t kStep = kDotColumns;                 // of columns
static_assert(kDotColumns == kBf16Columns);

struct MatmulPackedSetting {
  MatmulSetting product = {};
  Isa isa = Isa::portable;
  std::int64_t rows = kTaskRows;
  std::int64_t groups = 0, columns = 0;  ///< dwords of the depth; of a packed right matrix so many columns at a time
  [[nodiscard]] std::int64_t pieces() const { return (product.m + rows - 1) / rows; }
  [[nodiscard]] std::int64_t blocks() const { return (product.n + columns - 1) / columns; }
};

/// `group`: elements of a dword; `depth_step`: dwords are a multiple of it.
Result<MatmulPackedSetting> matmul_packed_setting(const Request& q, std::int64_t group, std::int64_t depth_step) {
  MatmulPackedSetting t{{}, q.isa};
  OCTAVO_TRY(t.product, matmul_setting(only(q.region), q.isa));
  t.groups = padded_to((t.product.k + group - 1) / group, depth_step);
  t.columns = std::min(padded_to(t.product.n, kStep), std::max(kStep, kMostRight / t.groups / kStep * kStep));
  if (const std::int64_t rows = number(q.parameters, kRows, 4096); rows > 0) t.rows = rows;
  return t;
}

/// A matrix in memory: element (i, j) at data[i * row + j * col].
struct Matrix {
  const std::byte* data;
  std::int64_t row, col;
};

/// Products of codes: what zero points add is a term a row and a term a column, which the sums begin with.
struct OfCodes {
  const CodeProducts& p;
  std::int32_t left_zero, right_zero;
  std::int64_t packing = 0, row_terms = 0;  ///< dwords of scratch, columns' terms behind them

  OfCodes(const MatmulPackedSetting& t)
      : p(code_products(t.isa)), left_zero(t.product.a.quantizer->zero_point[0]), right_zero(t.product.b.quantizer->zero_point[0]) {
    const std::int64_t rows = padded_to(t.rows, p.row_step);
    packing = padded_to(t.groups * std::max(rows, t.columns), 16), row_terms = padded_to(rows, 16);
  }
  [[nodiscard]] std::int64_t dwords(const MatmulPackedSetting& t) const { return packing + row_terms + t.columns; }
  [[nodiscard]] static CodeMatrix codes(const Matrix& m, std::int32_t zero) {
    return {reinterpret_cast<const std::uint8_t*>(m.data), m.row, m.col, zero};
  }
  void pack_right(const MatmulPackedSetting& t, std::uint32_t* to, const Matrix& b, std::int64_t columns,
                  std::uint32_t* own) const {
    p.pack_right(to, t.columns, codes(b, right_zero), t.product.k, columns, t.groups, own);
    p.column_terms(reinterpret_cast<std::int32_t*>(own + packing + row_terms), to, t.columns, padded_to(columns, kStep), t.groups,
                   t.product.k, left_zero, right_zero);
  }
  void multiply(const MatmulPackedSetting& t, std::uint32_t* sums, std::uint32_t* left, const Matrix& a, std::int64_t rows,
                const std::uint32_t* right, std::int64_t columns, std::uint32_t* own) const {
    auto* terms = reinterpret_cast<std::int32_t*>(own + packing);
    p.pack_left(left, t.groups, codes(a, left_zero), rows, t.product.k, t.groups, own);
    p.row_terms(terms, left, t.groups, rows, t.groups, right_zero);
    p.multiply(reinterpret_cast<std::int32_t*>(sums), t.columns, terms, terms + row_terms, left, t.groups, rows, right, t.columns,
               columns, t.groups);
  }
};

struct OfBf16 {
  const Bf16Products& p;
  OfBf16(const MatmulPackedSetting& t) : p(*bf16_products(t.isa)) {}
  [[nodiscard]] std::int64_t dwords(const MatmulPackedSetting&) const { return 0; }
  [[nodiscard]] static Bf16Matrix halves(const Matrix& m) { return {reinterpret_cast<const std::uint16_t*>(m.data), m.row, m.col}; }
  void pack_right(const MatmulPackedSetting& t, std::uint32_t* to, const Matrix& b, std::int64_t columns, std::uint32_t*) const {
    p.pack_right(to, t.columns, halves(b), t.product.k, columns, t.groups);
  }
  void multiply(const MatmulPackedSetting& t, std::uint32_t* sums, std::uint32_t* left, const Matrix& a, std::int64_t rows,
                const std::uint32_t* right, std::int64_t columns, std::uint32_t*) const {
    p.pack_left(left, t.groups, halves(a), rows, t.product.k, t.groups);
    p.multiply(reinterpret_cast<float*>(sums), t.columns, left, t.groups, rows, right, t.columns, columns, t.groups);
  }
};

template <class Products>
class PackedMatmul final : public Kernel {
 public:
  explicit PackedMatmul(MatmulPackedSetting setting) : t_(std::move(setting)), products_(t_) {
    const std::int64_t rows = padded_to(t_.rows, products_.p.row_step);
    at_right_ = place(t_.groups * t_.columns);
    at_left_ = place(t_.groups * rows);
    at_sums_ = place(rows * t_.columns);
    at_own_ = place(products_.dwords(t_));
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(units(), 4096)); }
  std::size_t scratch_bytes() const override { return line(m_.epilogue.scratch_bytes()) + bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    m_.epilogue.prepare(worker.scratch);
    products_.p.begin();
    std::int64_t have = -1;  // the batch and the columns whose right matrix is packed
    for (std::int64_t u = units() * task_begin / tasks(); u < units() * task_end / tasks(); ++u) {
      const std::int64_t right = u / t_.pieces(), first = u % t_.pieces() * t_.rows;
      Index origin = m_.origin_of(right / t_.blocks());
      origin[m_.row_dim()] = first;
      origin[m_.col_dim()] = right % t_.blocks() * t_.columns;
      multiply(memory, worker.scratch, origin, have != right);
      have = right;
    }
    products_.p.end();
  }

 private:
  [[nodiscard]] std::int64_t units() const { return m_.batch * t_.blocks() * t_.pieces(); }
  std::size_t place(std::int64_t dwords) {
    const std::size_t at = bytes_;
    bytes_ += line(static_cast<std::size_t>(dwords) * 4);
    return at;
  }
  std::uint32_t* at(std::byte* scratch, std::size_t place) const {
    return reinterpret_cast<std::uint32_t*>(scratch + line(m_.epilogue.scratch_bytes()) + place);
  }
  /// From row `row` and column `col` on.
  [[nodiscard]] static Matrix matrix(const region::TensorRef& t, const std::byte* at, std::int64_t row, std::int64_t col) {
    const std::int64_t down = t.strides[t.dims.size() - 2], across = t.strides[t.dims.size() - 1];
    return {at + (row * down + col * across) * static_cast<std::int64_t>(ir::size_of(t.dtype)), down, across};
  }

  void multiply(const Memory& memory, std::byte* scratch, const Index& origin, bool packs_right) const {
    const std::int64_t row = origin[m_.row_dim()], col = origin[m_.col_dim()], rows = std::min(t_.rows, m_.m - row),
                       columns = std::min(t_.columns, m_.n - col);
    auto *right = at(scratch, at_right_), *own = at(scratch, at_own_), *sums = at(scratch, at_sums_);
    if (packs_right)
      products_.pack_right(t_, right, matrix(m_.b, MatmulSetting::at(m_.b, memory, origin, m_.b_batch), 0, col), columns, own);
    products_.multiply(t_, sums, at(scratch, at_left_), matrix(m_.a, MatmulSetting::at(m_.a, memory, origin, m_.a_batch), row, 0),
                       rows, right, padded_to(columns, kStep), own);
    store_sums(m_.epilogue, memory, scratch, origin, m_.row_dim(), m_.col_dim(), reinterpret_cast<const float*>(sums), t_.columns,
               rows, columns);
  }

  MatmulPackedSetting t_;
  const MatmulSetting& m_ = t_.product;
  Products products_;
  std::size_t bytes_ = 0, at_right_ = 0, at_left_ = 0, at_sums_ = 0, at_own_ = 0;
};

constexpr std::array kMatmulPackedParameters{kRows};

std::vector<Parameters> row_variants(const MatmulPackedSetting& t) {
  std::vector<Parameters> out;
  for (const std::int64_t n : {kTaskRows / 3, kTaskRows * 2}) {
    if (n < 2 * t.product.m) add(out, kRows, n);
  }
  return out;
}

class MatmulCodesFamily final : public FamilyOf<MatmulPackedSetting> {
 public:
  MatmulCodesFamily() : FamilyOf({.name = "matmul.u8u8.rows", .levels = kDotIsas, .parameters = kMatmulPackedParameters}) {}
  bool about(const Region& r) const override { return is_matmul(r) && only(r).anchor.integer; }
  Match<MatmulPackedSetting> match(const Request& q) const override {
    for (const region::TensorRef& t : only(q.region).anchor.inputs) {
      if (Reasons why = why_no_codes(t); !why.empty()) return refuse(std::move(why));
    }
    const CodeProducts& p = code_products(q.isa);
    return matmul_packed_setting(q, p.group, p.depth_step);
  }
  double cost(const MatmulPackedSetting& t, Isa isa) const override {
    const double out = t.product.results(), k = static_cast<double>(t.product.k);
    return (out * k * clocks_of_product(isa) + (t.product.packed() * 0.3 + out * 2) * slowdown(isa)) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const MatmulPackedSetting& t) const override { return row_variants(t); }
  Result<std::unique_ptr<Kernel>> load(MatmulPackedSetting t, Packed) const override {
    return std::make_unique<PackedMatmul<OfCodes>>(std::move(t));
  }
};

class MatmulBf16Family final : public FamilyOf<MatmulPackedSetting> {
 public:
  explicit MatmulBf16Family(const Bf16Level& level)
      : FamilyOf({.name = level.matmul, .levels = level.isa, .required = {"avx512bf16"}, .parameters = kMatmulPackedParameters}),
        level_(level) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return is_matmul(r) && !a.integer && (a.inputs[0].dtype == ir::DType::bf16 || a.inputs[1].dtype == ir::DType::bf16);
  }
  Match<MatmulPackedSetting> match(const Request& q) const override {
    const auto& in = only(q.region).anchor.inputs;
    if (in[0].dtype != ir::DType::bf16 || in[1].dtype != ir::DType::bf16)
      return refuse("types of the matrices", fmt::format("{} and {}", ir::name_of(in[0].dtype), ir::name_of(in[1].dtype)), "bf16");
    return matmul_packed_setting(q, 2, level_.depth_step);
  }
  double cost(const MatmulPackedSetting& t, Isa) const override {
    const double out = t.product.results(), k = static_cast<double>(t.product.k);
    return (out * k * level_.clocks_of_product + t.product.packed() * 0.3 + out * 1.5) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const MatmulPackedSetting& t) const override { return row_variants(t); }
  Result<std::unique_ptr<Kernel>> load(MatmulPackedSetting t, Packed) const override {
    if (bf16_products(t.isa) == nullptr) return refuse("kernels of this build", "without them", level_.matmul);
    return std::make_unique<PackedMatmul<OfBf16>>(std::move(t));
  }

 private:
  const Bf16Level& level_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(matmul_codes, MatmulCodesFamily)
OCTAVO_DEFINE_FAMILIES(matmul_bf16, MatmulBf16Family, kBf16Levels)

}  // namespace octavo::cpu
