// cpu.move.<op>: pad, resize_nearest, gather, tile, slice, transpose, depth_to_space, space_to_depth. In each of them the source
// address is a sum of one table entry a dimension (or nothing: the pad value), so one kernel serves all: runs of elements where the
// inner table is contiguous, element by element otherwise, and the block interpreter when there is an epilogue. Compiled once;
// copies are limited by memory. (Over 400 lines: eight operators are one loop.)
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/half.h"
#include "cpu/copy_bytes.h"
#include "cpu/family.h"
#include "cpu/table.h"
#include "region/counted_tasks.h"
#include "region/move_source.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using region::MoveSource;
using Ints = std::vector<std::int64_t>;
using ir::Op;
constexpr std::int64_t kFill = MoveSource::kFill;

// Byte offsets into the source for each index of each dimension of the space; kFill where the pad value goes.
struct Tables {
  std::vector<Ints> of;
  int gather_dim = -1;  ///< dimension whose table is read from indices at run time
};

Result<Tables> tables_of(const Stage& s) {
  OCTAVO_TRY(MoveSource source, region::move_source(s));
  Tables t{std::move(source.of)};
  if (s.anchor.op == Op::gather) {
    const region::TensorRef& indices = s.anchor.inputs[1];
    if (source.gathered != 1) return refuse("shape of the indices", ir::to_string(indices.dims), "one dimension");
    t.gather_dim = static_cast<int>(source.axis);
  }
  for (Ints& of : t.of) {
    for (std::int64_t& at : of) at *= at == kFill ? 1 : element_bytes(s.anchor.inputs[0]);
  }
  return t;
}

// Bytes of one element of the pad value.
std::array<std::byte, 8> fill_bytes(const Stage& s) {
  std::array<std::byte, 8> out{};
  const ir::DType t = s.anchor.inputs[0].dtype;
  const auto put = [&](auto v) { std::memcpy(out.data(), &v, sizeof v); };
  const auto* pad = std::get_if<ir::Pad>(&s.anchor.facts);
  const double value = pad == nullptr ? 0 : pad->value;
  const auto whole = pad != nullptr && pad->value_code ? *pad->value_code : static_cast<std::int64_t>(ir::is_float(t) ? 0 : value);
  switch (t) {
    case ir::DType::f32: put(static_cast<float>(value)); break;
    case ir::DType::f64: put(value); break;
    case ir::DType::f16: put(f32_to_f16(static_cast<float>(value))); break;
    case ir::DType::bf16: put(f32_to_bf16(static_cast<float>(value))); break;
    default: put(whole);  // little endian: the low bytes
  }
  return out;
}

// A stretch of the inner dimension: n elements from `from` on (kFill: the pad value).
struct Stretch {
  std::int64_t first, n, from;
};

/// Loops from the largest stride of the first store to the smallest, those of one element first: they would hide what is contiguous.
std::vector<std::size_t> loops_of(const Stage& s) {
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < s.space.size(); ++k) order.push_back(k);
  const auto& strides = s.stores[0].strides;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  std::stable_partition(order.begin(), order.end(), [&](std::size_t k) { return s.space[k] == 1; });
  return order;
}

struct MoveSetting {
  Op op = Op::slice;
  region::TensorRef x = {}, store = {}, indices = {};
  ir::Shape space = {};
  Tables tables = {};
  std::array<std::byte, 8> fill{};
  std::vector<std::size_t> order = {};         ///< of loops
  std::optional<BlockEpilogue> epilogue = {};  ///< absent: the elements go to the store unchanged
  bool one_store = true;
};

class MoveKernel final : public TaskedKernel, public region::CountedTasks {
 public:
  explicit MoveKernel(MoveSetting t)
      : tables_(std::move(t.tables)),
        epilogue_(std::move(t.epilogue)),
        x_(std::move(t.x)),
        store_(std::move(t.store)),
        indices_(std::move(t.indices)),
        dims_(std::move(t.space)),
        fill_(t.fill),
        order_(std::move(t.order)) {
    size_ = element_bytes(x_);
    if (!order_.empty() && static_cast<int>(order_.back()) != tables_.gather_dim) make_stretches(tables_.of[order_.back()]);
    whole_ = !stretches_.empty() &&
             std::none_of(stretches_.begin(), stretches_.end(), [](const Stretch& one) { return one.from == kFill; });
    outer_ = 1;
    for (std::size_t k = 0; k + 1 < order_.size(); ++k) outer_ *= dims_[order_[k]];
    if (epilogue_ && epilogue_->space().loads.empty() && t.one_store && order_.size() >= 2 && t.op == Op::resize_nearest &&
        store_.strides[order_.back()] == 1)
      repeats_ = repeats_of(tables_.of[order_[order_.size() - 2]]);
    if (epilogue_ && !order_.empty())
      at_once_ = std::max<std::int64_t>(1, epilogue_->code().block() / std::max<std::int64_t>(1, dims_[order_.back()]));
    const std::int64_t bytes = ir::count(dims_) * size_;
    tasks_ = even_tasks(bytes, 32768, outer_);
    empty_ = bytes == 0;
  }

  std::int64_t first_element(int task, int dim, std::int64_t extent) const override {
    return order_.size() > 1 && static_cast<int>(order_.front()) == dim ? extent * task / tasks_ : 0;
  }
  std::size_t scratch_bytes() const override {
    const std::size_t gather =
        tables_.gather_dim >= 0 ? static_cast<std::size_t>(dims_[static_cast<std::size_t>(tables_.gather_dim)]) * 8 : 0;
    return epilogue_bytes() + gather;
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    if (empty_) return;
    std::vector<const std::int64_t*> table(dims_.size());
    for (std::size_t k = 0; k < dims_.size(); ++k) table[k] = tables_.of[k].data();
    if (tables_.gather_dim >= 0) {
      auto* own = reinterpret_cast<std::int64_t*>(worker.scratch + epilogue_bytes());
      read_indices(memory, own);
      table[static_cast<std::size_t>(tables_.gather_dim)] = own;
    }
    if (epilogue_) epilogue_->prepare(worker.scratch);
    const std::int64_t* const inner = order_.empty() ? nullptr : table[order_.back()];
    const std::size_t loops = order_.empty() ? 0 : order_.size() - 1;
    Index index{};
    const std::int64_t begin = outer_ * task_begin / tasks_, end = outer_ * task_end / tasks_;
    std::int64_t rest = begin;
    for (std::size_t k = loops; k-- > 0;) {
      index[order_[k]] = rest % dims_[order_[k]];
      rest /= dims_[order_[k]];
    }
    // Rows along the dimension above the innermost one, as many as there are of it.
    for (std::int64_t o = begin; o < end;) {
      std::int64_t from = 0, to = 0;
      bool filled = false;
      for (std::size_t k = 0; k + 1 < loops; ++k) {
        const std::size_t d = order_[k];
        const std::int64_t step = table[d][index[d]];
        to += index[d] * store_.strides[d];
        filled = filled || step == kFill;
        from += step;
      }
      const std::byte* x = filled ? nullptr : memory.at(x_) + from;
      Rows rows{0, 1, 0, nullptr};
      if (loops > 0) {
        const std::size_t d = order_[loops - 1];
        rows = {index[d], std::min(dims_[d] - index[d], end - o), store_.strides[d] * element_bytes(store_), table[d]};
      }
      if (repeats_ > 1 && repeats_above(index, table, rows, o - begin)) {
        const std::size_t above = order_[order_.size() - 3];
        std::byte* const out = memory.at(store_) + to * element_bytes(store_);
        copy_rows(out, out - store_.strides[above] * element_bytes(store_), rows.count);
      } else if (epilogue_) {
        run_blocks(memory, worker.scratch, index, x, rows, inner,
                   memory.at(store_) + to * element_bytes(store_) + rows.first * rows.step);
      } else {
        std::byte* const out = memory.at(store_) + to * size_ + rows.first * rows.step;
        for (std::int64_t i = 0; i < rows.count; ++i) copy_row(out + i * rows.step, rows.at(x, i), inner);
      }
      o += rows.count;
      if (loops > 0) index[order_[loops - 1]] += rows.count;
      for (std::size_t k = loops; k-- > 0;) {
        if (index[order_[k]] < dims_[order_[k]]) break;
        index[order_[k]] = 0;
        if (k > 0) ++index[order_[k - 1]];
      }
    }
  }

 private:
  /// Rows of the innermost dimension: the first one's index, their number, the distance of their stores, and where each is read.
  struct Rows {
    std::int64_t first, count, step;
    const std::int64_t* table;  ///< null: a row alone, at its base
    [[nodiscard]] const std::byte* at(const std::byte* base, std::int64_t i) const {
      if (base == nullptr || table == nullptr) return base;
      const std::int64_t from = table[first + i];
      return from == kFill ? nullptr : base + from;
    }
  };

  [[nodiscard]] std::size_t epilogue_bytes() const { return epilogue_ ? (epilogue_->scratch_bytes() + 63) / 64 * 64 : 0; }

  void make_stretches(const Ints& table) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(table.size()); ++i) {
      const std::int64_t from = table[static_cast<std::size_t>(i)];
      if (!stretches_.empty()) {
        Stretch& last = stretches_.back();
        if (from == kFill ? last.from == kFill : last.from != kFill && last.from + last.n * size_ == from) {
          ++last.n;
          continue;
        }
      }
      stretches_.push_back({i, 1, from});
    }
  }

  void read_indices(const Memory& memory, std::int64_t* table) const {
    const auto axis = static_cast<std::size_t>(tables_.gather_dim);
    const auto width = element_bytes(indices_);
    for (std::int64_t i = 0; i < dims_[axis]; ++i) {
      std::int64_t v = 0;
      const std::byte* p = memory.at(indices_) + i * indices_.strides[0] * width;
      if (width == 8) {
        std::memcpy(&v, p, 8);
      } else {
        std::int32_t narrow;
        std::memcpy(&narrow, p, 4);
        v = narrow;
      }
      if (v < 0) v += x_.dims[axis];
      // Run-time indices outside are the caller's mistake; stay inside the tensor.
      table[i] = std::clamp<std::int64_t>(v, 0, x_.dims[axis] - 1) * x_.strides[axis] * size_;
    }
  }

  void fill(std::byte* to, std::int64_t n, std::int64_t step) const {
    if (size_ == 1 && step == 1) {
      std::memset(to, std::to_integer<int>(fill_[0]), static_cast<std::size_t>(n));
      return;
    }
    switch (size_) {
      case 1: return filled<1>(to, n, step, fill_.data());
      case 2: return filled<2>(to, n, step, fill_.data());
      case 4: return filled<4>(to, n, step, fill_.data());
      default: return filled<8>(to, n, step, fill_.data());
    }
  }
  template <std::size_t kSize>
  static void filled(std::byte* to, std::int64_t n, std::int64_t step, const std::byte* fill) {
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * step, fill, kSize);
  }

  template <std::size_t kSize>
  static void scattered(std::byte* to, const std::byte* x, const std::int64_t* table, std::int64_t n, std::int64_t step,
                        const std::byte* fill) {
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * step, table[i] == kFill ? fill : x + table[i], kSize);
  }

  void copy_row(std::byte* to, const std::byte* x, const std::int64_t* table) const {
    if (order_.empty()) {
      std::memcpy(to, x, static_cast<std::size_t>(size_));
      return;
    }
    const std::size_t inner = order_.back();
    const std::int64_t n = dims_[inner], step = store_.strides[inner] * size_;
    if (x == nullptr) return fill(to, n, step);
    if (step == size_ && !stretches_.empty() && static_cast<std::int64_t>(stretches_.size()) * 4 <= n + 3) {
      for (const Stretch& s : stretches_) {
        if (s.from == kFill) {
          fill(to + s.first * step, s.n, step);
        } else {
          copy_bytes(to + s.first * step, x + s.from, s.n * size_);
        }
      }
      return;
    }
    switch (size_) {
      case 1: return scattered<1>(to, x, table, n, step, fill_.data());
      case 2: return scattered<2>(to, x, table, n, step, fill_.data());
      case 4: return scattered<4>(to, x, table, n, step, fill_.data());
      default: return scattered<8>(to, x, table, n, step, fill_.data());
    }
  }

  // Nearest upsampling whose program depends on nothing but the element: one of the equal neighbours is computed, the others are copied.
  /// How many neighbours have the same source: 1 unless all do in groups of as many.
  static std::int64_t repeats_of(const Ints& table) {
    const auto n = static_cast<std::int64_t>(table.size());
    std::int64_t f = 1;
    while (f < n && table[static_cast<std::size_t>(f)] == table[0]) ++f;
    for (std::int64_t i = 0; i < n; ++i) {
      if (n % f != 0 || table[static_cast<std::size_t>(i)] != table[static_cast<std::size_t>(i / f * f)]) return 1;
    }
    return f;
  }
  /// Are these rows all those of their line, and equal to those of the line above, which this task has stored (`done` rows)?
  [[nodiscard]] bool repeats_above(const Index& index, const std::vector<const std::int64_t*>& table, const Rows& rows,
                                   std::int64_t done) const {
    if (order_.size() < 3 || rows.count != dims_[order_[order_.size() - 2]] || done < rows.count) return false;
    const std::size_t above = order_[order_.size() - 3];
    return index[above] > 0 && table[above][index[above]] == table[above][index[above] - 1];
  }
  /// Rows of the innermost dimension, as they are stored.
  void copy_rows(std::byte* to, const std::byte* from, std::int64_t count) const {
    const std::int64_t bytes = dims_[order_.back()] * element_bytes(store_),
                       step = store_.strides[order_[order_.size() - 2]] * element_bytes(store_);
    for (std::int64_t i = 0; i < count; ++i) copy_bytes(to + i * step, from + i * step, bytes);
  }

  /// Several short rows, or a part of a long one, are a block of the epilogue.
  void run_blocks(const Memory& memory, std::byte* scratch, Index index, const std::byte* x, const Rows& rows,
                  const std::int64_t* table, std::byte* out) const {
    const std::size_t inner = order_.empty() ? 0 : order_.back();
    const std::int64_t n = order_.empty() ? 1 : dims_[inner], block = epilogue_->code().block();
    std::int32_t* const acc = BlockEpilogue::acc(scratch);
    const bool whole_groups = rows.first % repeats_ == 0 && rows.count % repeats_ == 0;
    const std::int64_t step = whole_groups ? repeats_ : 1, stored = rows.count / step;  // every so many rows; their number
    for (std::int64_t r = 0; r < stored; r += at_once_) {
      const std::int64_t some = std::min(at_once_, stored - r);
      if (rows.table != nullptr) index[order_[order_.size() - 2]] = rows.first + r * step;
      for (std::int64_t first = 0; first < n; first += block) {
        const std::int64_t count = std::min(block, n - first);
        for (std::int64_t i = 0; i < some; ++i) {
          const std::byte* const row = rows.at(x, (r + i) * step);
          std::int32_t* const to = acc + i * count;
          if (row != nullptr && x_.dtype == ir::DType::f32 && stretches_.size() == 1 && stretches_[0].from != kFill) {
            std::memcpy(to, row + stretches_[0].from + first * size_, static_cast<std::size_t>(count) * 4);
            continue;
          }
          if (row != nullptr && x_.dtype == ir::DType::f32 && whole_) {
            for (std::int64_t k = 0; k < count; ++k) std::memcpy(to + k, row + table[first + k], 4);
            continue;
          }
          for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t from = table == nullptr ? 0 : table[first + k];
            to[k] = widened(row == nullptr || from == kFill ? fill_.data() : row + from);
          }
        }
        index[inner] = first;
        epilogue_->run(memory, scratch, index, static_cast<int>(some), static_cast<int>(count), step);
      }
      for (std::int64_t i = 0; i < some; ++i) {
        std::byte* const row = out + (r + i) * step * rows.step;
        for (std::int64_t k = 1; k < step; ++k) copy_rows(row + k * rows.step, row, 1);
      }
    }
  }

  [[nodiscard]] std::int32_t widened(const std::byte* p) const {
    const auto get = [&](auto v) {
      std::memcpy(&v, p, sizeof v);
      return v;
    };
    switch (x_.dtype) {
      case ir::DType::u8:
      case ir::DType::boolean: return get(std::uint8_t{});
      case ir::DType::s8: return get(std::int8_t{});
      case ir::DType::f16: return std::bit_cast<std::int32_t>(f16_to_f32(get(std::uint16_t{})));
      case ir::DType::bf16: return std::bit_cast<std::int32_t>(bf16_to_f32(get(std::uint16_t{})));
      default: return get(std::int32_t{});
    }
  }

  Tables tables_;
  std::optional<BlockEpilogue> epilogue_;  // absent: the elements go to the store unchanged
  region::TensorRef x_, store_, indices_;
  ir::Shape dims_;
  std::array<std::byte, 8> fill_;
  std::vector<std::size_t> order_;
  std::int64_t size_ = 1, outer_ = 1, at_once_ = 1;  ///< rows of a block of the epilogue
  std::int64_t repeats_ = 1;                         ///< neighbours that are equal, of the dimension above the innermost
  std::vector<Stretch> stretches_;
  bool empty_ = false;
  bool whole_ = false;  ///< rows of the innermost dimension have no pad value
};

// Whether the elements reach one store of their own type unchanged.
bool hands_on(const Stage& s) {
  if (s.stores.size() != 1 || s.stores[0].dtype != s.anchor.inputs[0].dtype) return false;
  if (s.program.outputs.empty()) return true;
  const program::Op op = s.program.code[static_cast<std::size_t>(s.program.outputs[0].value)].op;
  return op == program::Op::acc_i || op == program::Op::acc_f;
}

Result<MoveSetting> move_setting(const Stage& s) {
  OCTAVO_TRY(Tables tables, tables_of(s));
  MoveSetting t{s.anchor.op,       s.anchor.inputs[0], s.stores[0], {},           s.space,
                std::move(tables), fill_bytes(s),      loops_of(s), std::nullopt, s.stores.size() == 1};
  if (t.tables.gather_dim >= 0) t.indices = s.anchor.inputs[1];
  if (hands_on(s)) return t;
  if (s.program.outputs.empty()) return refuse("type of the stores", "another", "that of the input");
  // Blocks run along the two dimensions that are innermost in store 0, as MoveKernel's loops do.
  const std::size_t inner = t.order.empty() ? 0 : t.order.back();
  const std::size_t above = t.order.size() < 2 ? (inner == 0 ? 1 : 0) : t.order[t.order.size() - 2];
  OCTAVO_TRY(t.epilogue, block_epilogue(s, best_isa(), above, inner));
  return t;
}

struct MoveKind {
  Op op;
  std::string_view name;
};
constexpr std::array kMoveKinds{MoveKind{Op::pad, "move.pad"},
                                MoveKind{Op::resize_nearest, "move.resize_nearest"},
                                MoveKind{Op::gather, "move.gather"},
                                MoveKind{Op::tile, "move.tile"},
                                MoveKind{Op::slice, "move.slice"},
                                MoveKind{Op::transpose, "move.transpose"},
                                MoveKind{Op::depth_to_space, "move.depth_to_space"},
                                MoveKind{Op::space_to_depth, "move.space_to_depth"}};

class MoveFamily final : public KernelFamily<MoveSetting, MoveKernel> {
 public:
  explicit MoveFamily(const MoveKind& kind) : KernelFamily({.name = kind.name, .levels = kAnyIsa}), op_(kind.op) {}
  bool about(const Region& r) const override { return is_one(r, op_) && !only(r).anchor.inputs.empty() && !only(r).stores.empty(); }
  Match<MoveSetting> match(const Request& q) const override { return move_setting(only(q.region)); }
  double cost(const MoveSetting& t, Isa) const override {
    const auto bytes = static_cast<double>(ir::count(t.space) * element_bytes(t.x));
    return 0.5e-6 + bytes * (t.epilogue ? 1e-9 : 0.1e-9);
  }

 private:
  Op op_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(move, MoveFamily, kMoveKinds)

}  // namespace octavo::cpu
