// cpu.matmul.f32.onednn: products of two computed matrices (matmul with broadcast batches; gemm whose weights are not constant),
// one primitive for every group of rows, then the epilogue.
#ifdef OCTAVO_HAVE_ONEDNN
#include <algorithm>
#include <cstring>
#include <optional>

#include "cpu/onednn/onednn.h"
#include "cpu/onednn/single_thread.h"
#include "cpu/table.h"
#include "dnnl.hpp"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using Dims = dnnl::memory::dims;
constexpr auto kF32 = dnnl::memory::data_type::f32;
constexpr std::int64_t kPieceRows = 64;  // of the left matrix in one task

struct OnednnMatmulSetting {
  region::TensorRef a = {}, b = {};
  ir::Shape space = {};
  BlockEpilogue epilogue = {};
  std::int64_t m = 1, k = 1, n = 1, batch = 1;
  Dims a_strides = {}, b_strides = {};                   // of one matrix, elements
  std::size_t row_dim = 0, col_dim = 1;                  // of the space
  std::vector<std::int64_t> a_batch = {}, b_batch = {};  // strides along the batch dimensions, elements
};

Result<OnednnMatmulSetting> onednn_matmul_setting(const Stage& s) {
  const region::Anchor& an = s.anchor;
  const region::TensorRef &a = an.inputs[0], &b = an.inputs[1];
  if (a.dtype != ir::DType::f32 || b.dtype != ir::DType::f32)
    return refuse("types of the matrices", fmt::format("{} and {}", ir::name_of(a.dtype), ir::name_of(b.dtype)), "f32");
  const bool gemm = an.op == ir::Op::gemm;
  // gemm comes as [M, K, 1, 1] x [K, N, 1, 1]; matmul as [..., M, K] x [..., K, N].
  const std::size_t rank = s.space.size();
  OnednnMatmulSetting t{a, b, s.space};
  if (gemm) {
    if (an.inputs.size() != 2 || rank != 4 || a.dims.size() != 4 || b.dims.size() != 4)
      return refuse("bias", "an input of the operator", "part of the epilogue");
    t.row_dim = 0;
    t.col_dim = 1;
  } else {
    if (rank < 2 || a.dims.size() < 2 || b.dims.size() < 2)
      return refuse("rank", std::min({rank, a.dims.size(), b.dims.size()}), "at least 2");
    t.row_dim = rank - 2;
    t.col_dim = rank - 1;
  }
  const std::size_t ar = gemm ? 0 : a.dims.size() - 2, br = gemm ? 0 : b.dims.size() - 2;
  t.m = a.dims[ar];
  t.k = a.dims[ar + 1];
  t.n = b.dims[br + 1];
  if (b.dims[br] != t.k || s.space[t.row_dim] != t.m || s.space[t.col_dim] != t.n)
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  if (t.m * t.n * t.k == 0) return refuse("elements", 0, "some");
  const auto strides = [](std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
    // A dimension of one has any stride; the library wants a plausible one.
    if (rows == 1) row = col * cols;
    if (cols == 1) col = row == 1 ? rows : 1;
    return Dims{row, col};
  };
  t.a_strides = strides(a.strides[ar], a.strides[ar + 1], t.m, t.k);
  t.b_strides = strides(b.strides[br], b.strides[br + 1], t.k, t.n);
  for (const Dims& d : {t.a_strides, t.b_strides}) {
    if (d[0] != 1 && d[1] != 1) return refuse("strides of a matrix", fmt::format("{}, {}", d[0], d[1]), "1 in one dimension");
  }
  for (std::size_t d = 0; !gemm && d + 2 < rank; ++d) {
    t.batch *= s.space[d];
    t.a_batch.push_back(aligned_stride(a, rank, d));
    t.b_batch.push_back(aligned_stride(b, rank, d));
  }
  OCTAVO_TRY(t.epilogue, block_epilogue(s, best_isa(), t.row_dim, t.col_dim));
  return t;
}

dnnl::matmul::primitive_desc describe(const OnednnMatmulSetting& t, std::int64_t rows, const dnnl::engine& engine) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::memory::desc a({rows, t.k}, kF32, t.a_strides), b({t.k, t.n}, kF32, t.b_strides), c({rows, t.n}, kF32, Dims{t.n, 1});
  return {dnnl::matmul::desc(a, b, c), attr, engine};
}

class OneDnnMatmul final : public Kernel {
 public:
  explicit OneDnnMatmul(OnednnMatmulSetting setting) : t_(std::move(setting)), engine_(dnnl::engine::kind::cpu, 0) {
    const SingleThread here;
    const auto make = [&](std::int64_t rows) {
      const auto pd = describe(t_, rows, engine_);
      scratchpad_ = std::max(scratchpad_, pd.scratchpad_desc().get_size());
      return Ready{dnnl::matmul(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc(), pd.scratchpad_desc()};
    };
    pieces_ = (t_.m + kPieceRows - 1) / kPieceRows;
    if (t_.m >= kPieceRows) full_ = make(kPieceRows);
    if (t_.m % kPieceRows != 0) rest_ = make(t_.m % kPieceRows);
  }

  int tasks() const override { return static_cast<int>(t_.batch * pieces_); }
  std::size_t scratch_bytes() const override { return epilogue_bytes() + piece_bytes() + scratchpad_ + 64; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const SingleThread here;
    dnnl::stream stream(engine_);
    t_.epilogue.prepare(worker.scratch);
    for (int t = task_begin; t < task_end; ++t) piece(memory, worker.scratch, stream, t / pieces_, t % pieces_ * kPieceRows);
  }

 private:
  struct Ready {
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratchpad;
  };
  [[nodiscard]] std::size_t epilogue_bytes() const { return (t_.epilogue.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t piece_bytes() const {
    return static_cast<std::size_t>((std::min(kPieceRows, t_.m) * t_.n * 4 + 63) / 64 * 64);
  }

  void piece(const Memory& memory, std::byte* scratch, dnnl::stream& stream, std::int64_t batch, std::int64_t first) const {
    const std::int64_t rows = std::min(kPieceRows, t_.m - first);
    const Ready& ready = rows == kPieceRows ? *full_ : *rest_;
    std::int64_t a = first * (t_.m == 1 ? 0 : t_.a_strides[0]), b = 0;
    Index origin{};
    for (std::size_t d = t_.a_batch.size(); d-- > 0;) {
      origin[d] = batch % t_.space[d];
      batch /= t_.space[d];
      a += origin[d] * t_.a_batch[d];
      b += origin[d] * t_.b_batch[d];
    }
    std::byte* c = scratch + epilogue_bytes();
    ready.primitive.execute(stream, {{DNNL_ARG_SRC, dnnl::memory(ready.a, engine_, memory.at(t_.a) + a * 4)},
                                     {DNNL_ARG_WEIGHTS, dnnl::memory(ready.b, engine_, memory.at(t_.b) + b * 4)},
                                     {DNNL_ARG_DST, dnnl::memory(ready.c, engine_, c)},
                                     {DNNL_ARG_SCRATCHPAD, dnnl::memory(ready.scratchpad, engine_, c + piece_bytes())}});
    stream.wait();
    const std::int64_t cols = std::min<std::int64_t>(t_.n, kBlock), step = kBlock / cols;
    for (std::int64_t r = 0; r < rows; r += step) {
      const std::int64_t count = std::min(step, rows - r);
      origin[t_.row_dim] = first + r;
      for (std::int64_t j = 0; j < t_.n; j += cols) {
        const std::int64_t part = std::min(cols, t_.n - j);
        std::memcpy(BlockEpilogue::acc(scratch), c + (r * t_.n + j) * 4, static_cast<std::size_t>(count * part * 4));
        origin[t_.col_dim] = j;
        t_.epilogue.run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(part));
      }
    }
  }

  OnednnMatmulSetting t_;
  dnnl::engine engine_;
  std::optional<Ready> full_, rest_;
  std::int64_t pieces_ = 1;
  std::size_t scratchpad_ = 0;
};

class OneDnnMatmulFamily final : public FamilyOf<OnednnMatmulSetting> {
 public:
  OneDnnMatmulFamily() : FamilyOf({.name = "matmul.f32.onednn", .levels = kAnyIsa}) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && (a.op == ir::Op::matmul || a.op == ir::Op::gemm) && !a.weights && a.inputs.size() >= 2 &&
           !only(r).program.outputs.empty();
  }
  Reasons why_not_here() const override { return why_no_onednn(); }
  Match<OnednnMatmulSetting> match(const Request& q) const override {
    OCTAVO_TRY(OnednnMatmulSetting t, onednn_matmul_setting(only(q.region)));
    try {
      const SingleThread here;
      (void)describe(t, std::min(kPieceRows, t.m), dnnl::engine(dnnl::engine::kind::cpu, 0));
    } catch (const dnnl::error& error) {
      return refuse("oneDNN's primitives", error.what(), "one for this product");
    }
    return t;
  }
  double cost(const OnednnMatmulSetting& t, Isa) const override {
    const double out = static_cast<double>(ir::count(t.space));
    return (out * static_cast<double>(t.k) / 25.0 + out * 1.5) * slowdown(best_isa()) * kSecondsPerCycle + 3e-6;
  }
  Result<std::unique_ptr<Kernel>> load(OnednnMatmulSetting t, Packed) const override {
    try {
      return std::make_unique<OneDnnMatmul>(std::move(t));
    } catch (const dnnl::error& error) {
      return fail(ErrorKind::unsupported, fmt::format("oneDNN: {}", error.what()));
    }
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(onednn_matmul, OneDnnMatmulFamily)

}  // namespace octavo::cpu
#endif
