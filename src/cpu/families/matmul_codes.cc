// cpu.matmul.u8u8.rows.<isa>: products of two matrices of 8-bit codes that are both computed at run time, with broadcast batches. Both are
// packed into the worker's scratch (products/products.h), so that their layout in memory may be any; exact sums, then the epilogue.
#include <algorithm>

#include "cpu/families/code_products.h"
#include "cpu/families/row_families.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTaskRows = 48;                      // of the left matrix in a task
constexpr std::int64_t kMostRight = std::int64_t{1} << 18;  // dwords of the right matrix in scratch, if 16 columns are not more

struct Setting {
  std::int64_t m = 1, k = 1, n = 1, batch = 1, rows = kTaskRows;
  std::int64_t groups = 0, columns = 0;  ///< of a packed right matrix: so many columns of it at a time
  std::size_t row_dim = 0, col_dim = 1;
  region::TensorRef a, b;
  std::vector<std::int64_t> a_batch, b_batch;
  [[nodiscard]] std::int64_t pieces() const { return (m + rows - 1) / rows; }
  [[nodiscard]] std::int64_t blocks() const { return (n + columns - 1) / columns; }
};

Result<Setting> setting_of(const Stage& s, const CodeProducts& products) {
  const region::TensorRef &a = s.anchor.inputs[0], &b = s.anchor.inputs[1];
  for (const region::TensorRef* t : {&a, &b}) {
    if (Reasons why = why_no_codes(*t); !why.empty()) return refuse(std::move(why));
  }
  const std::size_t rank = s.space.size();
  if (rank < 2 || a.dims.size() < 2 || b.dims.size() < 2 || a.dims.size() > rank || b.dims.size() > rank)
    return refuse("shapes", fmt::format("{} and {}", ir::to_string(a.dims), ir::to_string(b.dims)), "two matrices");
  Setting t;
  t.a = a, t.b = b;
  t.row_dim = rank - 2, t.col_dim = rank - 1;
  const std::size_t ar = a.dims.size() - 2, br = b.dims.size() - 2;
  t.m = a.dims[ar], t.k = a.dims[ar + 1], t.n = b.dims[br + 1];
  if (b.dims[br] != t.k || s.space[rank - 2] != t.m || s.space[rank - 1] != t.n)
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  if (t.m * t.n * t.k == 0) return refuse("elements", 0, "some");
  t.groups = padded_to((t.k + products.group - 1) / products.group, products.depth_step);
  t.columns = std::min(padded_to(t.n, kDotColumns), std::max(kDotColumns, kMostRight / t.groups / kDotColumns * kDotColumns));
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    t.batch *= s.space[d];
    t.a_batch.push_back(aligned_stride(a, rank, d));
    t.b_batch.push_back(aligned_stride(b, rank, d));
  }
  return t;
}

class MatmulCodesKernel final : public Kernel {
 public:
  MatmulCodesKernel(const CodeProducts& products, Setting setting, Epilogue epilogue, const Stage& s)
      : p_(products), t_(std::move(setting)), epilogue_(std::move(epilogue)), space_(s.space) {
    const std::int64_t rows = padded_to(t_.rows, p_.row_step);
    at_right_ = place(t_.groups * t_.columns);
    at_left_ = place(t_.groups * rows);
    at_packing_ = place(t_.groups * std::max(rows, t_.columns));
    at_sums_ = place(rows * t_.columns);
    at_row_terms_ = place(rows);
    at_column_terms_ = place(t_.columns);
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(units(), 4096)); }
  std::size_t scratch_bytes() const override { return line(epilogue_.scratch_bytes()) + bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    p_.begin();
    std::int64_t have = -1;  // the batch and the columns whose right matrix is packed
    for (std::int64_t u = units() * task_begin / tasks(); u < units() * task_end / tasks(); ++u) {
      const std::int64_t right = u / t_.pieces(), first = u % t_.pieces() * t_.rows;
      Index origin{};
      std::int64_t rest = right / t_.blocks();
      for (std::size_t d = t_.a_batch.size(); d-- > 0;) {
        origin[d] = rest % space_[d];
        rest /= space_[d];
      }
      origin[t_.row_dim] = first;
      origin[t_.col_dim] = right % t_.blocks() * t_.columns;
      if (have != right) pack_right(memory, worker.scratch, origin);
      have = right;
      multiply(memory, worker.scratch, origin);
    }
    p_.end();
  }

 private:
  [[nodiscard]] std::int64_t units() const { return t_.batch * t_.blocks() * t_.pieces(); }
  std::size_t place(std::int64_t dwords) {
    const std::size_t at = bytes_;
    bytes_ += line(static_cast<std::size_t>(dwords) * 4);
    return at;
  }
  template <class T = std::uint32_t>
  T* at(std::byte* scratch, std::size_t place) const {
    return reinterpret_cast<T*>(scratch + line(epilogue_.scratch_bytes()) + place);
  }
  [[nodiscard]] static CodeMatrix matrix(const region::TensorRef& t, const Memory& memory, const Index& origin,
                                         const std::vector<std::int64_t>& batch) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(memory.at(t));
    for (std::size_t d = 0; d < batch.size(); ++d) p += origin[d] * batch[d];
    return {p, t.strides[t.dims.size() - 2], t.strides[t.dims.size() - 1], t.quantizer->zero_point[0]};
  }

  void pack_right(const Memory& memory, std::byte* scratch, const Index& origin) const {
    CodeMatrix b = matrix(t_.b, memory, origin, t_.b_batch);
    b.data += origin[t_.col_dim] * b.col;
    const std::int64_t columns = std::min(t_.columns, t_.n - origin[t_.col_dim]);
    auto* right = at(scratch, at_right_);
    p_.pack_right(right, t_.columns, b, t_.k, columns, t_.groups, at(scratch, at_packing_));
    p_.column_terms(at<std::int32_t>(scratch, at_column_terms_), right, t_.columns, padded_to(columns, kDotColumns), t_.groups,
                    t_.k, t_.a.quantizer->zero_point[0], b.zero);
  }
  void multiply(const Memory& memory, std::byte* scratch, const Index& origin) const {
    CodeMatrix a = matrix(t_.a, memory, origin, t_.a_batch);
    a.data += origin[t_.row_dim] * a.row;
    const std::int64_t rows = std::min(t_.rows, t_.m - origin[t_.row_dim]),
                       columns = std::min(t_.columns, t_.n - origin[t_.col_dim]);
    auto* left = at(scratch, at_left_);
    auto *terms = at<std::int32_t>(scratch, at_row_terms_), *sums = at<std::int32_t>(scratch, at_sums_);
    p_.pack_left(left, t_.groups, a, rows, t_.k, t_.groups, at(scratch, at_packing_));
    p_.row_terms(terms, left, t_.groups, rows, t_.groups, t_.b.quantizer->zero_point[0]);
    p_.multiply(sums, t_.columns, terms, at<std::int32_t>(scratch, at_column_terms_), left, t_.groups, rows, at(scratch, at_right_),
                t_.columns, padded_to(columns, kDotColumns), t_.groups);
    store_sums(epilogue_, memory, scratch, origin, t_.row_dim, t_.col_dim, reinterpret_cast<const float*>(sums), t_.columns, rows,
               columns);
  }

  const CodeProducts& p_;
  Setting t_;
  Epilogue epilogue_;
  ir::Shape space_;
  std::size_t bytes_ = 0, at_right_ = 0, at_left_ = 0, at_packing_ = 0, at_sums_ = 0, at_row_terms_ = 0, at_column_terms_ = 0;
};

class MatmulCodesFamily final : public OldFamily {
 public:
  std::string_view name() const override { return "matmul.u8u8.rows"; }
  std::span<const Isa> levels() const override { return kDotIsas; }
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && a.op == ir::Op::matmul && a.integer && !a.weights && a.inputs.size() == 2 &&
           !only(r).program.outputs.empty();
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto t = setting_of(only(r), portable_products());
    if (!t) return refusal_of(t);
    const auto e = row_epilogue(only(r), Isa::portable, t->row_dim, t->col_dim);
    return refusal_of(e);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto t = setting_of(only(r), code_products(isa));
    if (!t) return 0;
    const auto out = static_cast<double>(ir::count(only(r).space)), k = static_cast<double>(t->k);
    const double packed = static_cast<double>(t->batch) * k * static_cast<double>(t->m + t->n);
    return (out * k * clocks_of_product(isa) + (packed * 0.3 + out * 2) * slowdown(isa)) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, OldPacked) const override {
    OCTAVO_TRY(Setting t, setting_of(only(r), code_products(isa)));
    if (const std::int64_t rows = number(r.tactic.parameters, kRows, 4096); rows > 0) t.rows = rows;
    OCTAVO_TRY(Epilogue e, row_epilogue(only(r), isa, t.row_dim, t.col_dim));
    return std::make_unique<MatmulCodesKernel>(code_products(isa), std::move(t), std::move(e), only(r));
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa isa) const override {
    std::vector<Parameters> out;
    const auto t = setting_of(only(r), code_products(isa));
    if (!t) return out;
    for (const std::int64_t n : {kTaskRows / 3, kTaskRows * 2}) {
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

const Family& matmul_codes_family() {
  static const Adapted<MatmulCodesFamily> family;
  return family;
}

}  // namespace octavo::cpu
