#include "cpu/families/attention_tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // of a tile of scores, and of each matrix in scratch

std::int64_t default_queries(Isa isa) {
  return isa >= Isa::avx512 ? 2 * kColumns : kColumns;
}

AttentionMatrix matrix_of(const region::TensorRef& t, std::size_t rank) {
  AttentionMatrix m{t, t.strides[t.dims.size() - 2], t.strides[t.dims.size() - 1], {}};
  for (std::size_t d = 0; d + 2 < rank; ++d) m.batch.push_back(aligned_stride(t, rank, d));
  return m;
}

}  // namespace

Index AttentionSetting::origin_of(std::int64_t tile) const {
  Index origin{};
  std::int64_t rest = tile / tiles();
  for (std::size_t d = rank - 2; d-- > 0;) {
    origin[d] = rest % space[d];
    rest /= space[d];
  }
  origin[rank - 2] = tile % tiles() * width;
  return origin;
}

bool is_attention(const Region& r) {
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

Result<AttentionSetting> attention_setting(const Request& request, ir::DType type) {
  const Region& r = request.region;
  const Stage &scores = r.stages[0], &softmax = r.stages[1], &product = r.stages[2];
  const auto refers = [&](std::size_t stage, std::size_t from) {
    const auto id = region::forwarded_from(r, stage, r.stages[stage].anchor.inputs[0]);
    return id && *id == region::StoreId{from, 0} && r.stages[from].stores.size() == 1;
  };
  if (!refers(1, 0) || !refers(2, 1) || region::edges_of(r).size() != 2)
    return refuse("what is read within", "something else",
                  "the scores by softmax alone, its result by the left side of the product alone");
  const region::TensorRef &a = scores.anchor.inputs[0], &b = scores.anchor.inputs[1], &c = product.anchor.inputs[1];
  for (const region::TensorRef* t : {&a, &b, &c, &softmax.stores[0]}) {
    if (t->dtype != type) return refuse("type of a matrix", ir::name_of(t->dtype), ir::name_of(type));
  }
  if (scores.stores[0].dtype != ir::DType::f32) return refuse("type of the scores", ir::name_of(scores.stores[0].dtype), "f32");
  AttentionSetting t;
  t.space = scores.space;
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
  const std::int64_t axis = softmax.anchor.as<ir::Along>().axis;
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
    if (n > kMostElements) return refuse(what, n, fmt::format("at most {}, which scratch holds", kMostElements));
  }
  t.q = matrix_of(a, t.rank), t.k = matrix_of(b, t.rank), t.v = matrix_of(c, t.rank);
  t.isa = request.isa;
  const std::int64_t given = number(request.parameters, kRows, kMostQueries);
  t.width = given > 0 ? (given + kColumns - 1) / kColumns * kColumns : default_queries(t.isa);
  OCTAVO_TRY(t.scores, TileProgram::of(scores, t.isa, t.width));
  OCTAVO_TRY(t.softmax, TileProgram::of(softmax, t.isa, t.width));
  OCTAVO_TRY(t.product, block_epilogue(product, t.isa, t.rank - 2, t.rank - 1));
  return t;
}

std::vector<Parameters> attention_variants(const AttentionSetting& t) {
  std::vector<Parameters> out;
  for (std::int64_t n = kColumns; n <= kMostQueries; n *= 2) {
    if (n != default_queries(t.isa) && n < 2 * t.queries) add(out, kRows, n);
  }
  return out;
}

AttentionKernel::AttentionKernel(AttentionSetting setting) : t_(std::move(setting)), k_(row_kernels(t_.isa)) {
  at_scores_ = place(t_.scores.scratch_bytes());
  at_softmax_ = place(t_.softmax.scratch_bytes());
  at_product_ = place(t_.product.scratch_bytes());
}

std::size_t AttentionKernel::place(std::size_t bytes) {
  const std::size_t at = bytes_;
  bytes_ += line(bytes);
  return at;
}

void AttentionKernel::run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const {
  t_.scores.prepare(worker.scratch + at_scores_);
  t_.softmax.prepare(worker.scratch + at_softmax_);
  t_.product.prepare(worker.scratch + at_product_);
  Operands own{t_.scores.operands_of(memory), t_.softmax.operands_of(memory)};
  begin();
  const std::int64_t units = t_.batch * t_.tiles();
  std::int64_t have = worker.kept == nullptr ? region::kNothingKept : *worker.kept;  // the batch that is packed
  for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
    const std::int64_t batch = u / t_.tiles();
    const Index origin = t_.origin_of(u);
    if (have != batch) pack(memory, worker.scratch, origin);
    have = batch;
    one(memory, own, worker.scratch, origin);
  }
  end();
  if (worker.kept != nullptr) *worker.kept = have;
}

std::optional<TileProgram::Scaling> TileProgram::scaling_of(const program::Program& p) {
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

Result<TileProgram> TileProgram::of(const Stage& s, Isa isa, std::int64_t width) {
  Stage own = s;
  TileProgram p;
  for (region::Operand& o : own.operands) {
    p.operands_.push_back(o.ref.buffer);
    o.ref.buffer = static_cast<region::BufferId>(p.operands_.size() - 1);
  }
  region::TensorRef& tile = own.stores[0];
  p.width_ = width;
  p.rank_ = own.space.size();
  p.stored_bytes_ = element_bytes(tile);
  tile.buffer = static_cast<region::BufferId>(p.operands_.size());
  tile.offset = 0;
  tile.strides.assign(p.rank_, 0);
  tile.strides[p.rank_ - 2] = 1, tile.strides[p.rank_ - 1] = width;
  OCTAVO_TRY(p.epilogue_, block_epilogue(own, isa, p.rank_ - 1, p.rank_ - 2));
  p.scaling_ = scaling_of(s.program);
  const auto& loads = p.epilogue_.space().loads;
  // One query alone has no stride to its neighbours in the tile: only the columns in use are stored.
  p.flat_ = own.space[p.rank_ - 2] > 1 && std::all_of(loads.begin(), loads.end(), [&](const StridedAccess& a) {
              return a.strides[p.rank_ - 1] == 0 && a.strides[p.rank_ - 2] == 0;
            });
  return p;
}

Memory TileProgram::operands_of(const Memory& memory) const {
  Memory own;
  for (const region::BufferId b : operands_) own.base.push_back(memory.base[static_cast<std::size_t>(b)]);
  own.base.push_back(nullptr);
  return own;
}

void TileProgram::run(const RowKernels& k, Memory& own, std::byte* scratch, const Index& origin, float* tile, std::byte* to,
                      std::int64_t keys, std::int64_t cols) const {
  if (epilogue_.code().identity()) return;
  if (scaling_) {
    if (scaling_->divides) return k.divide(tile, tile, scaling_->by, keys * width_);
    return k.centre_all(tile, tile, 0.0F, scaling_->by, keys * width_);
  }
  own.base.back() = to - origin[rank_ - 2] * stored_bytes_;
  if (flat_) {  // rows of the tile are neighbours, and nothing else differs among them
    const std::int64_t block = epilogue_.code().block() / width_ * width_;
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    Index at = origin;
    for (std::int64_t i = 0; i < keys * width_; i += block) {
      const std::int64_t n = std::min(block, keys * width_ - i);
      std::memcpy(acc, tile + i, static_cast<std::size_t>(n) * sizeof(float));
      at[rank_ - 1] = i / width_;
      epilogue_.run(own, scratch, at, 1, static_cast<int>(n));
    }
    return;
  }
  store_sums(epilogue_, own, scratch, origin, rank_ - 1, rank_ - 2, tile, width_, keys, cols);
}

}  // namespace octavo::cpu
