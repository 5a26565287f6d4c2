// cpu.matmul.bf16.rows.<level>: products of two matrices of bfloat16, as a rule both computed at run time, with broadcast batches. Both are packed into
// the worker's scratch (products/bf16_products.h), so that their layout in memory may be any; float sums, then the epilogue.
#include <algorithm>

#include "cpu/families/bf16_levels.h"
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
  std::int64_t pairs = 0, columns = 0;  ///< of a packed right matrix: so many columns of it at a time
  std::size_t row_dim = 0, col_dim = 1;
  region::TensorRef a, b;
  std::vector<std::int64_t> a_batch, b_batch;
  [[nodiscard]] std::int64_t pieces() const { return (m + rows - 1) / rows; }
  [[nodiscard]] std::int64_t blocks() const { return (n + columns - 1) / columns; }
};

Result<Setting> setting_of(const Stage& s, const Bf16Level& level) {
  const region::TensorRef &a = s.anchor.inputs[0], &b = s.anchor.inputs[1];
  if (a.dtype != ir::DType::bf16 || b.dtype != ir::DType::bf16)
    return refuse("types of the matrices", fmt::format("{} and {}", ir::name_of(a.dtype), ir::name_of(b.dtype)), "bf16");
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
  t.pairs = in_pairs(t.k, level.depth_step());
  t.columns = std::min(in_steps(t.n, kBf16Columns), std::max(kBf16Columns, kMostRight / t.pairs / kBf16Columns * kBf16Columns));
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    t.batch *= s.space[d];
    t.a_batch.push_back(aligned_stride(a, rank, d));
    t.b_batch.push_back(aligned_stride(b, rank, d));
  }
  return t;
}

class MatmulBf16Kernel final : public Kernel {
 public:
  MatmulBf16Kernel(const Bf16Products& products, Setting setting, Epilogue epilogue, const Stage& s)
      : p_(products), t_(std::move(setting)), epilogue_(std::move(epilogue)), space_(s.space) {
    const std::int64_t rows = in_steps(t_.rows, p_.row_step);
    at_right_ = place(t_.pairs * t_.columns);
    at_left_ = place(t_.pairs * rows);
    at_sums_ = place(rows * t_.columns);
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
      multiply(memory, worker.scratch, origin, have != right);
      have = right;
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
  [[nodiscard]] static Bf16Matrix matrix(const region::TensorRef& t, const Memory& memory, const Index& origin,
                                         const std::vector<std::int64_t>& batch) {
    const auto* p = reinterpret_cast<const std::uint16_t*>(memory.at(t));
    for (std::size_t d = 0; d < batch.size(); ++d) p += origin[d] * batch[d];
    return {p, t.strides[t.dims.size() - 2], t.strides[t.dims.size() - 1]};
  }

  void multiply(const Memory& memory, std::byte* scratch, const Index& origin, bool packs_right) const {
    const std::int64_t rows = std::min(t_.rows, t_.m - origin[t_.row_dim]),
                       columns = std::min(t_.columns, t_.n - origin[t_.col_dim]);
    auto *right = at(scratch, at_right_), *left = at(scratch, at_left_);
    if (packs_right) {
      Bf16Matrix b = matrix(t_.b, memory, origin, t_.b_batch);
      b.data += origin[t_.col_dim] * b.col;
      p_.pack_right(right, t_.columns, b, t_.k, columns, t_.pairs);
    }
    Bf16Matrix a = matrix(t_.a, memory, origin, t_.a_batch);
    a.data += origin[t_.row_dim] * a.row;
    p_.pack_left(left, t_.pairs, a, rows, t_.k, t_.pairs);
    auto* sums = at<float>(scratch, at_sums_);
    p_.multiply(sums, t_.columns, left, t_.pairs, rows, right, t_.columns, in_steps(columns, kBf16Columns), t_.pairs);
    store_sums(epilogue_, memory, scratch, origin, t_.row_dim, t_.col_dim, sums, t_.columns, rows, columns);
  }

  const Bf16Products& p_;
  Setting t_;
  Epilogue epilogue_;
  ir::Shape space_;
  std::size_t bytes_ = 0, at_right_ = 0, at_left_ = 0, at_sums_ = 0;
};

class MatmulBf16Family final : public OldFamily {
 public:
  explicit MatmulBf16Family(const Bf16Level& level) : level_(level), name_(fmt::format("matmul.bf16.rows.{}", level.name())) {}
  std::string_view name() const override { return name_; }
  bool per_isa() const override { return false; }
  std::vector<std::string_view> required() const override { return level_.required(); }
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && a.op == ir::Op::matmul && !a.integer && !a.weights && a.inputs.size() == 2 &&
           !only(r).program.outputs.empty() && (a.inputs[0].dtype == ir::DType::bf16 || a.inputs[1].dtype == ir::DType::bf16);
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto t = setting_of(only(r), level_);
    if (!t) return refusal_of(t);
    const auto e = row_epilogue(only(r), Isa::portable, t->row_dim, t->col_dim);
    return refusal_of(e);
  }
  double cost(const Region& r, const Plan&, Isa) const override {
    const auto t = setting_of(only(r), level_);
    if (!t) return 0;
    const auto out = static_cast<double>(ir::count(only(r).space)), k = static_cast<double>(t->k);
    const double packed = static_cast<double>(t->batch) * k * static_cast<double>(t->m + t->n);
    return (out * k * level_.clocks_of_product() + packed * 0.3 + out * 1.5) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa, OldPacked) const override {
    if (level_.products() == nullptr) return refuse("kernels of this build", "without them", level_.name());
    OCTAVO_TRY(Setting t, setting_of(only(r), level_));
    if (const std::int64_t rows = number(r.tactic.parameters, kRows, 4096); rows > 0) t.rows = rows;
    OCTAVO_TRY(Epilogue e, row_epilogue(only(r), level_.isa, t.row_dim, t.col_dim));
    return std::make_unique<MatmulBf16Kernel>(*level_.products(), std::move(t), std::move(e), only(r));
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa) const override {
    std::vector<Parameters> out;
    const auto t = setting_of(only(r), level_);
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

 private:
  Bf16Level level_;
  std::string name_;
};

}  // namespace

Families matmul_bf16_families() {
  static const Adapted<MatmulBf16Family> tiles(kBf16Tiles), registers(kBf16Registers);
  return {&tiles, &registers};
}

}  // namespace octavo::cpu
