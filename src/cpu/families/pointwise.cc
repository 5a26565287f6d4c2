// cpu.pointwise.block.<isa>: regions without an anchor. Dimensions are joined where every access allows, then one dimension is
// walked by columns and one by rows of blocks; the pair is chosen so that as many accesses as possible run along memory (a
// 3-channel NCHW input becomes rows = channels, columns = pixels, and its store interleaves them).
#include <algorithm>
#include <limits>

#include "cpu/family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

/// How blocks lie in the space.
struct Blocks {
  int row_dim = 1, col_dim = 0;
  int rows = 1, cols = 1;                                   // of a block
  double cycles = std::numeric_limits<double>::infinity();  // for the whole space
};

// Rough cycles an element of one access in a block, on avx512; only ratios matter.
double access_cycles(const StridedAccess& a, bool store, const Blocks& s) {
  const std::int64_t row = a.strides[static_cast<std::size_t>(s.row_dim)], col = a.strides[static_cast<std::size_t>(s.col_dim)];
  const std::int64_t size = bytes_of(a.elem);
  const double row_cost = 4.0 / s.cols;
  if ((col == size && (s.rows == 1 || row == size * s.cols)) || (col == 0 && row == 0)) return 0.1;
  if (col == size || col == 0) return s.cols < 16 ? 1.0 : 0.1 + row_cost;
  const double alone = a.elem == Elem::f16 ? 4.0 : 0.0;  // vectors convert eight halves at a time, shifts and branches a single one
  if (row == size) return store && size == 1 && s.rows >= 2 && s.rows <= 4 && col == s.rows ? 0.25 : alone + 1.0 + 4.0 / s.rows;
  return alone + 2.0;
}

/// Planes of floats to pixels of codes, whole pixels a block: quantize_image of block/program.inc takes it on vectors, any length.
bool is_image(const Space& space, const Code& code, int row, int col, bool vectors) {
  const auto r = static_cast<std::size_t>(row), c = static_cast<std::size_t>(col);
  if (!vectors || !code.quantizes() || space.loads.size() != 1 || space.stores.size() != 1 || space.dims[r] < 2 ||
      space.dims[r] > 4)
    return false;
  const StridedAccess &from = space.loads[0], &to = space.stores[0];
  return from.strides[c] == 4 && from.div[r] == 1 && from.div[c] == 1 && to.strides[r] == 1 && to.div[r] == 1 &&
         to.strides[c] == space.dims[r];
}

/// Pixels of a block of an image: setting a block up costs as much as some 100 of them; threads share blocks.
std::int64_t image_pixels(std::int64_t all) {
  return std::min(all, std::clamp<std::int64_t>(all / 32 / 64 * 64, 320, 4096));
}

Blocks choose_blocks(const Space& space, const Code& code, bool vectors) {
  const std::size_t steps = code.step_count();
  const std::int64_t block = code.block();
  Blocks best;
  double total = 1;
  for (const auto d : space.dims) total *= static_cast<double>(d);
  const int rank = static_cast<int>(space.dims.size());
  for (int col = 0; col < rank; ++col) {
    if (std::any_of(space.loads.begin(), space.loads.end(),
                    [&](const StridedAccess& a) { return a.div[static_cast<std::size_t>(col)] != 1; }))
      continue;
    for (int row = 0; row < rank; ++row) {
      if (row == col) continue;
      const std::int64_t c = space.dims[static_cast<std::size_t>(col)], r = space.dims[static_cast<std::size_t>(row)];
      if (is_image(space, code, row, col, vectors)) {
        return {row, col, static_cast<int>(r), static_cast<int>(image_pixels(c)), 0.7 * total};
      }
      for (const std::int64_t limit : {block, block / 3 / 16 * 16, std::int64_t{64}, std::int64_t{16}}) {
        Blocks s{row, col, 1, static_cast<int>(std::min(c, limit))};
        s.rows = static_cast<int>(std::min<std::int64_t>(r, block / s.cols));
        double each = 0.12 * static_cast<double>(steps);
        for (const StridedAccess& a : space.loads) each += access_cycles(a, false, s);
        for (const StridedAccess& a : space.stores) each += access_cycles(a, true, s);
        const double blocks = total / (static_cast<double>(c) * static_cast<double>(r)) *
                              static_cast<double>((c + s.cols - 1) / s.cols) * static_cast<double>((r + s.rows - 1) / s.rows);
        s.cycles = each * total + blocks * (60.0 + 15.0 * static_cast<double>(space.loads.size() + space.stores.size()));
        if (s.cycles < best.cycles) best = s;
      }
    }
  }
  return best;
}

Result<Space> joined_space(const Stage& stage) {
  OCTAVO_TRY(Space space, Space::of(stage));
  space.split_divisions();
  space.order_and_join();
  while (space.dims.size() < 2) {  // a row and a column dimension always exist
    space.add_unit();
  }
  // Should every dimension be divided by some operand, the columns are a dimension of one.
  const auto divided = [&](std::size_t k) {
    return std::any_of(space.loads.begin(), space.loads.end(), [&](const StridedAccess& a) { return a.div[k] != 1; });
  };
  bool free = false;
  for (std::size_t k = 0; k < space.dims.size(); ++k) free = free || !divided(k);
  if (!free) {
    space.add_unit();
  }
  return space;
}

class PointwiseKernel final : public TaskedKernel {
 public:
  PointwiseKernel(BlockEpilogue epilogue, const Blocks& shape) : epilogue_(std::move(epilogue)), shape_(shape) {
    const auto& dims = epilogue_.space().dims;
    counts_.assign(dims.begin(), dims.end());
    steps_.assign(dims.size(), 1);
    const auto tile = [&](int dim, int size) {
      auto& n = counts_[static_cast<std::size_t>(dim)];
      n = (n + size - 1) / size;
      steps_[static_cast<std::size_t>(dim)] = size;
    };
    tile(shape.row_dim, shape.rows);
    tile(shape.col_dim, shape.cols);
    blocks_ = 1;
    std::int64_t elements = 1;
    for (const auto n : counts_) blocks_ *= n;
    for (const auto n : dims) elements *= n;
    tasks_ = even_tasks(elements, 16384, blocks_);
    if (elements == 0) blocks_ = 0;
  }

  std::size_t scratch_bytes() const override { return epilogue_.scratch_bytes(); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const std::int64_t begin = blocks_ * task_begin / tasks_, end = blocks_ * task_end / tasks_;
    if (begin == end) return;
    epilogue_.prepare(worker.scratch);
    const auto& dims = epilogue_.space().dims;
    const auto row = static_cast<std::size_t>(shape_.row_dim), col = static_cast<std::size_t>(shape_.col_dim);
    Index origin{};
    std::int64_t rest = begin;
    for (std::size_t k = dims.size(); k-- > 0;) {
      origin[k] = rest % counts_[k] * steps_[k];
      rest /= counts_[k];
    }
    for (std::int64_t b = begin; b < end; ++b) {
      const auto rows = static_cast<int>(std::min<std::int64_t>(shape_.rows, dims[row] - origin[row]));
      const auto cols = static_cast<int>(std::min<std::int64_t>(shape_.cols, dims[col] - origin[col]));
      epilogue_.run(memory, worker.scratch, origin, rows, cols);
      for (std::size_t k = dims.size(); k-- > 0;) {
        origin[k] += steps_[k];
        if (origin[k] < dims[k]) break;
        origin[k] = 0;
      }
    }
  }

 private:
  BlockEpilogue epilogue_;
  Blocks shape_;
  std::vector<std::int64_t> counts_, steps_;  // blocks along each dimension, and their extents
  std::int64_t blocks_ = 1;
};

/// Blocks depend on whether there are vectors.
struct PointwiseSetting {
  Space space = {};
  Code code = {};
  Isa isa = Isa::portable;
  [[nodiscard]] Blocks blocks(Isa at) const { return choose_blocks(space, code, at != Isa::portable); }
};

class PointwiseFamily final : public FamilyOf<PointwiseSetting> {
 public:
  PointwiseFamily() : FamilyOf({.name = "pointwise.block", .about = {{ir::Op::input}, 0, Results::programmed}}) {}
  Match<PointwiseSetting> match(const Request& q) const override {
    PointwiseSetting t{{}, {}, q.isa};
    OCTAVO_TRY(t.space, joined_space(only(q.region)));
    std::vector<Elem> loads;
    for (const StridedAccess& a : t.space.loads) loads.push_back(a.elem);
    OCTAVO_TRY(t.code, Code::compile(only(q.region).program, loads));
    return t;
  }
  double cost(const PointwiseSetting& t, Isa isa) const override { return t.blocks(isa).cycles * slowdown(isa) * kSecondsPerCycle; }
  Result<std::unique_ptr<Kernel>> load(PointwiseSetting t, Packed) const override {
    const Blocks blocks = t.blocks(t.isa);
    OCTAVO_TRY(BlockEpilogue epilogue,
               BlockEpilogue::make(*kernel_table(t.isa), std::move(t.code), std::move(t.space), blocks.row_dim, blocks.col_dim));
    return std::make_unique<PointwiseKernel>(std::move(epilogue), blocks);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(pointwise, PointwiseFamily)

}  // namespace octavo::cpu
