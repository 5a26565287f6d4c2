#include "cpu/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "region/refusal.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {

Result<StridedAccess> access_of(const region::TensorRef& ref, const std::vector<std::int64_t>& div, const ir::Shape& space) {
  StridedAccess a;
  a.buffer = ref.buffer;
  a.offset = ref.offset;
  OCTAVO_TRY(a.elem, elem_of(ref.dtype));
  if (ref.strides.size() != space.size()) {
    return fail(ErrorKind::internal, fmt::format("reading \"{}\": {} strides for an iteration space of {} dimensions", ref.value,
                                                 ref.strides.size(), space.size()));
  }
  for (std::size_t k = 0; k < space.size(); ++k) {
    const std::int64_t stride = broadcast_stride(ref, space, k) * bytes_of(a.elem);
    const std::int64_t d = div.empty() || stride == 0 ? 1 : div[k];
    // One step of a division never taken: every index reads element 0.
    a.strides.push_back(d >= space[k] && d > 1 ? 0 : stride);
    a.div.push_back(a.strides.back() == 0 ? 1 : d);
  }
  return a;
}

Result<Space> Space::of(const region::Stage& stage) {
  if (stage.space.size() > 8) {
    return region::refuse("dimensions", ir::to_string(stage.space), "at most 8");
  }
  Space s;
  s.dims = stage.space;
  for (const region::Operand& o : stage.operands) {
    OCTAVO_TRY(StridedAccess a, access_of(o.ref, o.div, stage.space));
    s.loads.push_back(std::move(a));
  }
  for (const region::TensorRef& r : stage.stores) {
    OCTAVO_TRY(StridedAccess a, access_of(r, {}, stage.space));
    s.stores.push_back(std::move(a));
  }
  return s;
}

namespace {

template <class Fn>
void each_access(Space& s, Fn fn) {
  for (StridedAccess& a : s.loads) fn(a);
  for (StridedAccess& a : s.stores) fn(a);
}

}  // namespace

void Space::split_divisions() {
  for (std::size_t k = 0; k < dims.size(); ++k) {
    std::int64_t d = 1;  // the smallest division that divides the extent and all other divisions
    for (const StridedAccess& a : loads) {
      if (a.div[k] > 1 && (d == 1 || a.div[k] < d)) d = a.div[k];
    }
    if (d == 1 || dims[k] % d != 0 || dims.size() + 1 > kMaxRank) continue;
    if (std::any_of(loads.begin(), loads.end(), [&](const StridedAccess& a) { return a.div[k] > 1 && a.div[k] % d != 0; }))
      continue;
    const auto at = static_cast<std::ptrdiff_t>(k);
    dims.insert(dims.begin() + at + 1, d);
    dims[k] /= d;
    each_access(*this, [&](StridedAccess& a) {
      const bool divided = a.div[k] > 1;
      a.strides.insert(a.strides.begin() + at + 1, divided ? 0 : a.strides[k]);
      a.div.insert(a.div.begin() + at + 1, 1);
      if (divided) {
        a.div[k] /= d;
      } else {
        a.strides[k] *= d;
      }
    });
    // The outer part may still be divided by another factor.
    if (std::any_of(loads.begin(), loads.end(), [&](const StridedAccess& a) { return a.div[k] > 1; })) --k;
  }
}

void Space::order_and_join() {
  const auto keep = [&](const std::vector<std::size_t>& order) {
    const auto pick = [&](std::vector<std::int64_t>& v) {
      std::vector<std::int64_t> out;
      for (const std::size_t k : order) out.push_back(v[k]);
      v = std::move(out);
    };
    pick(dims);
    each_access(*this, [&](StridedAccess& a) {
      pick(a.strides);
      pick(a.div);
    });
  };
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] != 1) order.push_back(k);
  }
  if (!stores.empty()) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return stores[0].strides[a] > stores[0].strides[b]; });
  }
  keep(order);
  for (std::size_t k = 0; k + 1 < dims.size();) {
    bool joins = true;
    each_access(*this, [&](const StridedAccess& a) {
      joins = joins && a.div[k] == 1 && a.div[k + 1] == 1 && a.strides[k] == a.strides[k + 1] * dims[k + 1];
    });
    if (!joins) {
      ++k;
      continue;
    }
    dims[k] *= dims[k + 1];
    const auto at = static_cast<std::ptrdiff_t>(k);
    dims.erase(dims.begin() + at + 1);
    each_access(*this, [&](StridedAccess& a) {
      a.strides.erase(a.strides.begin() + at);
      a.div.erase(a.div.begin() + at);
    });
  }
}

void Space::add_unit() {
  dims.push_back(1);
  each_access(*this, [](StridedAccess& a) {
    a.strides.push_back(0);
    a.div.push_back(1);
  });
}

Result<BlockEpilogue> BlockEpilogue::make(const KernelTable& kernels, Code code, Space space, int row_dim, int col_dim) {
  BlockEpilogue e;
  e.kernels_ = &kernels;
  e.row_dim_ = static_cast<std::size_t>(row_dim);
  e.col_dim_ = static_cast<std::size_t>(col_dim);
  for (const StridedAccess& a : space.loads) {
    if (a.div[e.col_dim_] != 1) {
      return region::refuse(fmt::format("repetition of an operand along dimension {}", col_dim), a.div[e.col_dim_], "1");
    }
    e.divided_ += a.div[e.row_dim_] != 1;
  }
  e.code_ = std::move(code);
  e.space_ = std::move(space);
  return e;
}

Result<BlockEpilogue> block_epilogue(const program::Program& program, Space space, Isa isa, std::size_t row_dim,
                                     std::size_t col_dim) {
  std::vector<Elem> loads;
  for (const StridedAccess& a : space.loads) loads.push_back(a.elem);
  OCTAVO_TRY(Code code, Code::compile(program, loads));
  const KernelTable* table = kernel_table(isa);  // a level that this build lacks is refused elsewhere
  return BlockEpilogue::make(table != nullptr ? *table : portable_table(), std::move(code), std::move(space),
                             static_cast<int>(row_dim), static_cast<int>(col_dim));
}

Result<BlockEpilogue> block_epilogue(const region::Stage& stage, Isa isa, std::size_t row_dim, std::size_t col_dim) {
  OCTAVO_TRY(Space space, Space::of(stage));
  while (space.dims.size() < 2) space.add_unit();
  return block_epilogue(stage.program, std::move(space), isa, row_dim, col_dim);
}

std::size_t BlockEpilogue::scratch_bytes() const {
  return code_.slot_bytes() + (space_.loads.size() + space_.stores.size()) * sizeof(Stream) +
         divided_ * static_cast<std::size_t>(code_.block()) * sizeof(std::int64_t);
}

Stream BlockEpilogue::stream(const StridedAccess& a, const region::Memory& memory, const Index& origin, int rows,
                             std::int64_t row_step, std::int64_t*& offsets) const {
  Stream s;
  std::int64_t at = a.offset;
  for (std::size_t k = 0; k < a.strides.size(); ++k) {
    if (a.strides[k] != 0) at += (a.div[k] == 1 ? origin[k] : origin[k] / a.div[k]) * a.strides[k];
  }
  s.base = memory.base[static_cast<std::size_t>(a.buffer)] + at;
  s.row = a.strides[row_dim_] * row_step;
  s.col = a.strides[col_dim_];
  if (const std::int64_t d = a.div[row_dim_]; d != 1) {
    const std::int64_t first = origin[row_dim_] / d;
    for (int r = 0; r < rows; ++r) offsets[r] = ((origin[row_dim_] + r * row_step) / d - first) * a.strides[row_dim_];
    s.row_offsets = offsets;
    offsets += code_.block();
  }
  return s;
}

void BlockEpilogue::run(const region::Memory& memory, std::byte* scratch, const Index& origin, int rows, int cols,
                        std::int64_t row_step) const {
  auto* streams = reinterpret_cast<Stream*>(scratch + code_.slot_bytes());
  auto* offsets = reinterpret_cast<std::int64_t*>(streams + space_.loads.size() + space_.stores.size());
  Stream* next = streams;
  for (const StridedAccess& a : space_.loads) *next++ = stream(a, memory, origin, rows, row_step, offsets);
  for (const StridedAccess& a : space_.stores) *next++ = stream(a, memory, origin, rows, row_step, offsets);
  const BlockRun run{rows, cols, streams, streams + space_.loads.size(), reinterpret_cast<std::int32_t*>(scratch)};
  kernels_->run_block(code_.view(), run);
}

}  // namespace octavo::cpu
