// cpu.attention.f32.queries.<isa>: scores = A x B with their program (scale, mask, roundings), softmax over the keys with its own, and the
// product with a third matrix: three stages, query tile by query tile, so that scores never leave the first- and second-level caches.
// A tile lies transposed, [key][query]: each lane of a vector has a query of its own, so that the maximum, the exponentials and their sum
// need nothing across lanes although the sum keeps the reference's order. Every element is the sum, in the same order, that the
// families of the three operators compute: bit for bit the same (tests/cpu/attention_test.cc).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "cpu/families/row_families.h"
#include "cpu/parameters.h"
#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMostFloats = std::int64_t{1} << 20;  // of a tile of scores, and of each matrix in scratch
constexpr std::int64_t kMostQueries = 64;

/// Queries of a tile: with those of 197 keys, and a panel of what they are multiplied with, a first-level cache is full.
std::int64_t default_queries(Isa isa) {
  return isa >= Isa::avx512 ? 2 * kColumns : kColumns;
}

/// One matrix of each product: elements between rows, columns, and along the batch dimensions.
struct Matrix {
  region::TensorRef ref;
  std::int64_t row = 0, col = 0;
  std::vector<std::int64_t> batch;
  [[nodiscard]] const float* at(const Memory& memory, const Index& origin) const {
    const auto* p = reinterpret_cast<const float*>(memory.at(ref));
    for (std::size_t d = 0; d < batch.size(); ++d) p += origin[d] * batch[d];
    return p;
  }
};
struct Setting {
  std::int64_t queries = 1, features = 1, keys = 1, columns = 1, batch = 1;
  std::size_t rank = 2;
  Matrix q, k, v;  ///< [queries, features], [features, keys], [keys, columns]
  [[nodiscard]] std::int64_t padded() const { return (columns + kColumns - 1) / kColumns * kColumns; }
};

Matrix matrix_of(const region::TensorRef& t, std::size_t rank) {
  Matrix m{t, t.strides[t.dims.size() - 2], t.strides[t.dims.size() - 1], {}};
  for (std::size_t d = 0; d + 2 < rank; ++d) m.batch.push_back(aligned_stride(t, rank, d));
  return m;
}

Result<Setting> setting_of(const Region& r) {
  const Stage &scores = r.stages[0], &softmax = r.stages[1], &product = r.stages[2];
  const auto refers = [&](std::size_t stage, std::size_t from) {
    const auto id = region::forwarded_from(r, stage, r.stages[stage].anchor.inputs[0]);
    return id && *id == region::StoreId{from, 0} && r.stages[from].stores.size() == 1;
  };
  if (!refers(1, 0) || !refers(2, 1) || region::edges_of(r).size() != 2)
    return refuse("what is read within", "something else",
                  "the scores by softmax alone, its result by the left side of the product alone");
  const region::TensorRef &a = scores.anchor.inputs[0], &b = scores.anchor.inputs[1], &c = product.anchor.inputs[1];
  for (const region::TensorRef* t : {&a, &b, &c, &scores.stores[0], &softmax.stores[0]}) {
    if (t->dtype != ir::DType::f32) return refuse("type of a matrix", ir::name_of(t->dtype), "f32");
  }
  Setting t;
  t.rank = scores.space.size();
  const auto fits = [&](const region::TensorRef& m) { return m.dims.size() >= 2 && m.dims.size() <= t.rank; };
  if (t.rank < 2 || !fits(a) || !fits(b) || !fits(c) || product.space.size() != t.rank || softmax.space != scores.space)
    return refuse("shapes", fmt::format("{} and {}", ir::to_string(scores.space), ir::to_string(product.space)),
                  "equally many dimensions");
  if (!std::equal(scores.space.begin(), scores.space.end() - 1, product.space.begin()))
    return refuse("batches of the scores", ir::to_string(scores.space), ir::to_string(product.space));
  for (const region::TensorRef* m : {&a, &b, &c}) {
    for (std::size_t d = 0; d + 2 < m->dims.size(); ++d) {
      const std::int64_t of_scores = scores.space[d + t.rank - m->dims.size()];
      if (m->dims[d] != 1 && m->dims[d] != of_scores) return refuse("batches of a matrix", m->dims[d], of_scores);
    }
  }
  std::int64_t axis = ir::get_int(softmax.anchor.attrs, "axis", static_cast<std::int64_t>(t.rank) - 1);
  if (axis < 0) axis += static_cast<std::int64_t>(t.rank);
  if (axis != static_cast<std::int64_t>(t.rank) - 1) return refuse("axis of softmax", axis, "the last");
  t.queries = scores.space[t.rank - 2], t.keys = scores.space[t.rank - 1], t.columns = product.space[t.rank - 1];
  t.features = a.dims[a.dims.size() - 1];
  const auto extents = [](const region::TensorRef& m, std::int64_t rows, std::int64_t cols) {
    return m.dims[m.dims.size() - 2] == rows && m.dims[m.dims.size() - 1] == cols;
  };
  if (!extents(a, t.queries, t.features) || !extents(b, t.features, t.keys) || !extents(c, t.keys, t.columns))
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  for (std::size_t d = 0; d + 2 < t.rank; ++d) t.batch *= scores.space[d];
  if (t.batch == 0 || t.queries == 0 || t.keys == 0 || t.columns == 0 || t.features == 0) return refuse("elements", 0, "some");
  for (const auto& [what, n] : {std::pair{"keys and features", t.keys * t.features},
                                {"keys and columns", t.keys * t.padded()},
                                {"keys and queries of a tile", t.keys * kMostQueries}}) {
    if (n > kMostFloats) return refuse(what, n, fmt::format("at most {}, which scratch holds", kMostFloats));
  }
  t.q = matrix_of(a, t.rank), t.k = matrix_of(b, t.rank), t.v = matrix_of(c, t.rank);
  return t;
}

/// The program that only multiplies or divides sums by a number, and stores them.
struct Scaling {
  float by = 1;
  bool divides = false;
};
std::optional<Scaling> scaling_of(const program::Program& p) {
  using program::Op;
  if (p.code.size() != 3 || p.outputs.size() != 1 || p.outputs[0].value != 2 || p.outputs[0].type != ir::DType::f32) return {};
  const program::Instr& last = p.code[2];
  const auto is = [&](int arg, Op op) { return p.code[static_cast<std::size_t>(arg)].op == op; };
  if (last.op != Op::mul && last.op != Op::div) return {};
  const bool swapped = last.op == Op::mul && is(last.args[0], Op::imm_f);
  const int acc = last.args[swapped ? 1 : 0], number = last.args[swapped ? 0 : 1];
  if (!is(acc, Op::acc_f) || !is(number, Op::imm_f)) return {};
  const auto by = std::bit_cast<float>(p.code[static_cast<std::size_t>(number)].imm);
  if (last.op == Op::mul) return Scaling{by, false};
  int exponent = 0;  // the product with the inverse of a power of two is the quotient
  if (std::abs(std::frexp(by, &exponent)) == 0.5F && exponent > -100 && exponent < 100) return Scaling{1.0F / by, false};
  return Scaling{by, true};
}

/// A stage's program over a tile of scores: rows are keys, columns queries. Its operands are buffers 0, 1, ..; the tile is the last one.
struct TileProgram {
  Epilogue epilogue;
  std::vector<region::BufferId> operands;
  std::optional<Scaling> scaling;
  bool flat = false;  ///< no operand differs among the elements of a tile
  [[nodiscard]] bool nothing() const { return epilogue.code().identity(); }
};

Result<TileProgram> tile_program(const Stage& s, Isa isa, std::int64_t width) {
  Stage own = s;
  TileProgram p;
  for (region::Operand& o : own.operands) {
    p.operands.push_back(o.ref.buffer);
    o.ref.buffer = static_cast<region::BufferId>(p.operands.size() - 1);
  }
  region::TensorRef& tile = own.stores[0];
  const std::size_t rank = own.space.size();
  tile.buffer = static_cast<region::BufferId>(p.operands.size());
  tile.offset = 0;
  tile.strides.assign(rank, 0);
  tile.strides[rank - 2] = 1, tile.strides[rank - 1] = width;
  OCTAVO_TRY(p.epilogue, row_epilogue(own, isa, rank - 1, rank - 2));
  p.scaling = scaling_of(s.program);
  const auto& loads = p.epilogue.space().loads;
  p.flat = std::all_of(loads.begin(), loads.end(),
                       [&](const Access& a) { return a.strides[rank - 1] == 0 && a.strides[rank - 2] == 0; });
  return p;
}

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const RowKernels& rows, Setting setting, std::int64_t width, TileProgram scores, TileProgram softmax,
                  Epilogue product, const Region& r, Isa isa)
      : k_(rows),
        panel_(panel_columns(isa)),
        width_(width),
        t_(std::move(setting)),
        scores_(std::move(scores)),
        softmax_(std::move(softmax)),
        product_(std::move(product)),
        space_(r.stages[0].space) {
    const auto floats = [&](std::int64_t n) { return place(static_cast<std::size_t>(n) * sizeof(float)); };
    at_scores_ = place(scores_.epilogue.scratch_bytes());
    at_softmax_ = place(softmax_.epilogue.scratch_bytes());
    at_product_ = place(product_.scratch_bytes());
    at_queries_ = floats(t_.features * width_);
    at_tile_ = floats(t_.keys * width_);
    at_sums_ = floats(width_);
    at_keys_ = floats(gathers_keys() ? t_.keys * t_.features : 0);
    at_values_ = floats(t_.keys * t_.padded());
    at_out_ = floats(width_ * t_.padded());
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(t_.batch * tiles(), 4096)); }
  std::size_t scratch_bytes() const override { return bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    scores_.epilogue.prepare(worker.scratch + at_scores_);
    softmax_.epilogue.prepare(worker.scratch + at_softmax_);
    product_.prepare(worker.scratch + at_product_);
    const Memory for_scores = operands_of(scores_, memory), for_softmax = operands_of(softmax_, memory);
    Memory own[] = {for_scores, for_softmax};
    const std::int64_t units = t_.batch * tiles();
    std::int64_t have = worker.kept == nullptr ? region::kNothingKept : *worker.kept;  // the batch whose values are packed
    for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
      const std::int64_t batch = u / tiles();
      Index origin{};
      std::int64_t rest = batch;
      for (std::size_t d = t_.rank - 2; d-- > 0;) {
        origin[d] = rest % space_[d];
        rest /= space_[d];
      }
      if (have != batch) pack(memory, worker.scratch, origin);
      have = batch;
      origin[t_.rank - 2] = u % tiles() * width_;
      one(memory, own, worker.scratch, origin);
    }
    if (worker.kept != nullptr) *worker.kept = have;
  }

 private:
  [[nodiscard]] std::int64_t tiles() const { return (t_.queries + width_ - 1) / width_; }
  /// Rows of factors that are neighbours are read where they are.
  [[nodiscard]] bool gathers_keys() const { return t_.k.row != 1 && t_.features != 1; }
  std::size_t place(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += line(bytes);
    return at;
  }
  static float* floats(std::byte* scratch, std::size_t at) { return reinterpret_cast<float*>(scratch + at); }

  static Memory operands_of(const TileProgram& p, const Memory& memory) {
    Memory own;
    for (const region::BufferId b : p.operands) own.base.push_back(memory.base[static_cast<std::size_t>(b)]);
    own.base.push_back(nullptr);
    return own;
  }

  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const {
    pack_panels(k_, floats(scratch, at_values_), panel_, t_.v.at(memory, origin), t_.keys, t_.columns, t_.v.row, t_.v.col);
    if (gathers_keys())
      gather_matrix(k_, floats(scratch, at_keys_), t_.features, t_.k.at(memory, origin), t_.keys, t_.features, t_.k.col, t_.k.row);
  }

  /// A tile of queries, from origin on.
  void one(const Memory& memory, Memory* own, std::byte* scratch, Index origin) const {
    float *tile = floats(scratch, at_tile_), *queries = floats(scratch, at_queries_), *sums = floats(scratch, at_sums_);
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = std::min(width_, (some + kColumns - 1) / kColumns * kColumns);
    if (some < used) std::fill(queries, queries + t_.features * width_, 0.0F);
    gather_matrix(k_, queries, width_, t_.q.at(memory, origin) + first * t_.q.row, t_.features, some, t_.q.col, t_.q.row);
    const float* keys = gathers_keys() ? floats(scratch, at_keys_) : t_.k.at(memory, origin);
    std::memset(tile, 0, static_cast<std::size_t>(t_.keys * width_) * sizeof(float));
    k_.multiply(tile, width_, keys, gathers_keys() ? t_.features : t_.k.col, t_.keys, queries, width_, t_.features, used);
    apply(scores_, own[0], scratch + at_scores_, origin, tile, some);
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    k_.divide_columns(tile, width_, t_.keys, used, sums);
    apply(softmax_, own[1], scratch + at_softmax_, origin, tile, some);

    const std::int64_t padded = t_.padded();
    float* direct = padded == t_.columns ? stored_row(product_, memory, origin, t_.rank - 1) : nullptr;
    float* to = direct == nullptr ? floats(scratch, at_out_) : direct;
    const std::int64_t step = direct == nullptr ? padded : product_.space().stores.front().strides[t_.rank - 2] / 4;
    for (std::int64_t r = 0; r < some; ++r) std::memset(to + r * step, 0, static_cast<std::size_t>(padded) * sizeof(float));
    const float* values = floats(scratch, at_values_);
    for (std::int64_t j = 0; j < padded; j += panel_) {
      const std::int64_t columns = std::min(panel_, padded - j);
      k_.multiply_turned(to + j, step, tile, width_, some, values + j * t_.keys, columns, t_.keys, columns);
    }
    if (direct == nullptr)
      store_sums(product_, memory, scratch + at_product_, origin, t_.rank - 2, t_.rank - 1, to, step, some, t_.columns);
  }

  /// The program over `cols` queries of the tile, in place.
  void apply(const TileProgram& p, Memory& own, std::byte* scratch, const Index& origin, float* tile, std::int64_t cols) const {
    if (p.nothing()) return;
    if (p.scaling) {
      if (p.scaling->divides) return k_.divide(tile, tile, p.scaling->by, t_.keys * width_);
      return k_.centre_all(tile, tile, 0.0F, p.scaling->by, t_.keys * width_);
    }
    own.base.back() = reinterpret_cast<std::byte*>(tile - origin[t_.rank - 2]);
    if (p.flat) {  // rows of the tile are neighbours, and nothing else differs among them
      const std::int64_t block = p.epilogue.code().block() / width_ * width_;
      auto* acc = reinterpret_cast<float*>(Epilogue::acc(scratch));
      Index at = origin;
      for (std::int64_t i = 0; i < t_.keys * width_; i += block) {
        const std::int64_t n = std::min(block, t_.keys * width_ - i);
        std::memcpy(acc, tile + i, static_cast<std::size_t>(n) * sizeof(float));
        at[t_.rank - 1] = i / width_;
        p.epilogue.run(own, scratch, at, 1, static_cast<int>(n));
      }
      return;
    }
    store_sums(p.epilogue, own, scratch, origin, t_.rank - 1, t_.rank - 2, tile, width_, t_.keys, cols);
  }

  const RowKernels& k_;
  std::int64_t panel_, width_;
  Setting t_;
  TileProgram scores_, softmax_;
  Epilogue product_;
  ir::Shape space_;
  std::size_t bytes_ = 0;
  std::size_t at_scores_ = 0, at_softmax_ = 0, at_product_ = 0, at_queries_ = 0, at_tile_ = 0, at_sums_ = 0, at_keys_ = 0,
              at_values_ = 0, at_out_ = 0;
};

class AttentionFamily final : public Family {
 public:
  std::string_view name() const override { return "attention.f32.queries"; }
  bool forwards_stages() const override { return true; }
  bool about(const Region& r) const override {
    if (r.independent || r.stages.size() != 3) return false;
    const auto product = [](const Stage& s) {
      return s.anchor.op == ir::Op::matmul && !s.anchor.weights && s.anchor.inputs.size() == 2;
    };
    const Stage& softmax = r.stages[1];
    return product(r.stages[0]) && product(r.stages[2]) && softmax.anchor.op == ir::Op::softmax &&
           softmax.anchor.inputs.size() == 1 && std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
             return !s.program.outputs.empty() && !s.stores.empty();
           });
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto made = parts_of(r, Isa::portable);
    return refusal_of(made);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto t = setting_of(r);
    if (!t) return 0;
    const auto scores = static_cast<double>(ir::count(r.stages[0].space)), queries = static_cast<double>(t->batch * t->queries);
    const double products = scores * static_cast<double>(t->features + t->columns) / 20.0;
    const double packed = static_cast<double>(t->batch) * static_cast<double>(t->keys) * static_cast<double>(t->columns) +
                          queries * static_cast<double>(t->features + t->columns);
    return (products + scores * 4.0 + packed * 1.5) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, Packed) const override {
    OCTAVO_TRY(Parts p, parts_of(r, isa));
    return std::make_unique<AttentionKernel>(row_kernels(isa), std::move(p.setting), p.width, std::move(p.scores),
                                             std::move(p.softmax), std::move(p.product), r, isa);
  }
  std::vector<std::map<std::string, std::string>> parameter_sets(const Region& r, const Plan&, Isa isa) const override {
    Parameters out;
    const auto t = setting_of(r);
    if (!t) return out;
    for (std::int64_t n = kColumns; n <= kMostQueries; n *= 2) {
      if (n != default_queries(isa) && n < 2 * t->queries) add(out, kRows, n);
    }
    return out;
  }
  bool takes_parameter(std::string_view name) const override { return name == kRows; }

 private:
  struct Parts {
    Setting setting;
    std::int64_t width = 0;
    TileProgram scores, softmax;
    Epilogue product;
  };
  static Result<Parts> parts_of(const Region& r, Isa isa) {
    Parts p;
    OCTAVO_TRY(p.setting, setting_of(r));
    p.width = default_queries(isa);
    if (const std::int64_t n = number(r.tactic, kRows, kMostQueries); n > 0) p.width = (n + kColumns - 1) / kColumns * kColumns;
    OCTAVO_TRY(p.scores, tile_program(r.stages[0], isa, p.width));
    OCTAVO_TRY(p.softmax, tile_program(r.stages[1], isa, p.width));
    OCTAVO_TRY(p.product, row_epilogue(r.stages[2], isa, p.setting.rank - 2, p.setting.rank - 1));
    return p;
  }
};

}  // namespace

const Family& attention_family() {
  static const AttentionFamily family;
  return family;
}

}  // namespace octavo::cpu
