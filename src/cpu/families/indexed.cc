// cpu.indexed.<op>: gather, gather_elements and gather_nd with indices that are computed at run time, and scatter. In each of them the place of an element
// in the indexed tensor is a sum of one stride a dimension and of one index or several, times the stride of the dimension that it is along: one
// loop serves all. Elements are moved whatever their type; rows that lie side by side are copied whole. (Past 400 lines for that reason.)
#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "cpu/copy_bytes.h"
#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "ir/with_integer.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

#include "program/elements.inc"

using ir::DType;
using ir::Op;
using region::TensorRef;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kIndexedGrain = 1 << 15;  ///< bytes of a task

/// Element o of `dims` belongs to indexed[sum of o[d] * stride[d] + sum of index k(o) * along[k]]; index k(o) is indices[sum of o[d] * index[d] + k * next].
struct Places {
  ir::Shape dims;
  Ints stride, index;
  Ints along, extent;     ///< of each indexed dimension
  std::int64_t next = 0;  ///< from one index of a tuple to the next
  int cut = -1;           ///< scatter: the dimension that tasks share; -1: none, one task
  int cut_of_data = -1;   ///< which dimension of the data that is
};

Ints strides_of(const TensorRef& t) {
  Ints out;
  for (std::size_t d = 0; d < t.dims.size(); ++d) out.push_back(region::broadcast_stride(t, t.dims, d));
  return out;
}

/// `walked`: what has one element for each index, or row of them: the result of a gather, the updates of a scatter.
Result<Places> places_of(const Stage& s, const TensorRef& x, const TensorRef& ids, const ir::Shape& walked) {
  if (ids.dtype != DType::s64 && ids.dtype != DType::s32)
    return refuse("type of the indices", ir::name_of(ids.dtype), "s64 or s32");
  if (walked.size() > 8 || x.dims.size() > 8) return refuse("dimensions", ir::to_string(walked), "at most 8");
  const Ints from = strides_of(x), id = strides_of(ids);
  const Op op = s.anchor.op;
  Places t;
  t.dims = walked;
  const auto rank = x.dims.size();
  const auto put = [&](std::int64_t stride, std::int64_t index, int of_data) {
    const std::int64_t extent = t.stride.size() < walked.size() ? walked[t.stride.size()] : 0;
    if (of_data >= 0 && (t.cut < 0 || extent > walked[static_cast<std::size_t>(t.cut)])) {
      t.cut = static_cast<int>(t.stride.size()), t.cut_of_data = of_data;
    }
    t.stride.push_back(stride), t.index.push_back(index);
  };
  const auto along = [&](std::size_t d) { t.along.push_back(from[d]), t.extent.push_back(x.dims[d]); };
  const auto* gather = std::get_if<ir::Gather>(&s.anchor.facts);
  const auto* scatter = std::get_if<ir::Scatter>(&s.anchor.facts);
  if (op == Op::gather_nd || (scatter != nullptr && scatter->kind == ir::ScatterKind::nd)) {
    const auto batch = gather == nullptr ? std::size_t{0} : static_cast<std::size_t>(gather->batch_dims);
    if (ids.dims.empty() || batch + static_cast<std::size_t>(ids.dims.back()) > rank)
      return refuse("index tuples", ir::to_string(ids.dims), "shorter");
    const auto length = static_cast<std::size_t>(ids.dims.back());
    t.next = id.back();
    for (std::size_t d = 0; d + 1 < ids.dims.size(); ++d) put(d < batch ? from[d] : 0, id[d], -1);
    for (std::size_t d = 0; d < length; ++d) along(batch + d);
    for (std::size_t d = batch + length; d < rank; ++d) put(from[d], 0, static_cast<int>(d));
  } else {
    const auto a = static_cast<std::size_t>(gather != nullptr ? gather->axis : scatter->axis);
    along(a);
    if (op == Op::gather) {
      for (std::size_t d = 0; d < a; ++d) put(from[d], 0, -1);
      for (const std::int64_t stride : id) put(0, stride, -1);
      for (std::size_t d = a + 1; d < rank; ++d) put(from[d], 0, -1);
    } else {
      if (ids.dims.size() != rank) return refuse("indices", ir::to_string(ids.dims), fmt::format("of {} dimensions", rank));
      for (std::size_t d = 0; d < rank; ++d) put(d == a ? 0 : from[d], id[d], d == a ? -1 : static_cast<int>(d));
    }
  }
  if (t.stride.size() != walked.size()) return refuse("result", ir::to_string(walked), "what the indices give");
  for (const std::int64_t e : t.extent) {
    if (e == 0 && ir::count(walked) != 0) return refuse("indexed dimension", e, "elements");
  }
  return t;
}

/// Walks elements or rows of them in row-major order within bounds of each dimension.
class Walker {
 public:
  Walker(const Places& t, const TensorRef& ids) : t_(t), narrow_(ids.dtype == DType::s32) {}

  [[nodiscard]] std::int64_t index(const std::byte* ids, std::int64_t at, std::size_t k) const {
    std::int64_t v = 0;
    const std::int64_t place = at + static_cast<std::int64_t>(k) * t_.next;
    if (narrow_) {
      v = reinterpret_cast<const std::int32_t*>(ids)[place];
    } else {
      v = reinterpret_cast<const std::int64_t*>(ids)[place];
    }
    if (v < 0) v += t_.extent[k];
    return std::clamp<std::int64_t>(v, 0, t_.extent[k] - 1);  // outside is the caller's mistake: stay inside the tensor
  }
  /// Where the element whose strides give `at` and whose indices begin at `id` lies.
  [[nodiscard]] std::int64_t place(const std::byte* ids, std::int64_t at, std::int64_t id) const {
    for (std::size_t k = 0; k < t_.along.size(); ++k) at += index(ids, id, k) * t_.along[k];
    return at;
  }
  /// fn(place of the first, step in the indexed tensor, its index in the last dimension, elements, offset in `other`) for rows of units [begin, end) of all
  /// but the last dimension; a row is one element where each has its own index.
  template <class Fn>
  void rows(const std::byte* ids, const Ints& other, const Index& low, const Index& high, std::int64_t begin, std::int64_t end,
            Fn fn) const {
    const std::size_t rank = t_.dims.size(), last = rank == 0 ? 0 : rank - 1;
    for (std::int64_t u = begin; u < end; ++u) {
      std::int64_t rest = u, at = 0, id = 0, to = 0;
      for (std::size_t d = last; d-- > 0;) {
        const std::int64_t n = high[d] - low[d], i = low[d] + rest % n;
        rest /= n;
        at += i * t_.stride[d], id += i * t_.index[d], to += i * other[d];
      }
      if (rank == 0) {
        fn(place(ids, 0, 0), 0, std::int64_t{1}, 0);
      } else if (t_.index[last] == 0) {
        fn(place(ids, at + low[last] * t_.stride[last], id), t_.stride[last], high[last] - low[last], to + low[last] * other[last]);
      } else if (t_.along.size() == 1) {
        // All places of a piece first: then many elements are fetched at a time.
        constexpr std::int64_t kPiece = 64;
        std::int64_t places[kPiece];
        const std::int64_t stride = t_.along[0], step = t_.stride[last], next = other[last];
        for (std::int64_t first = low[last]; first < high[last]; first += kPiece) {
          const std::int64_t n = std::min(kPiece, high[last] - first);
          for (std::int64_t i = 0; i < n; ++i)
            places[i] = at + (first + i) * step + index(ids, id + (first + i) * t_.index[last], 0) * stride;
          for (std::int64_t i = 0; i < n; ++i) fn(places[i], 0, std::int64_t{1}, to + (first + i) * next);
        }
      } else {
        for (std::int64_t i = low[last]; i < high[last]; ++i)
          fn(place(ids, at + i * t_.stride[last], id + i * t_.index[last]), 0, std::int64_t{1}, to + i * other[last]);
      }
    }
  }

 private:
  const Places& t_;
  bool narrow_;
};

Index whole(const ir::Shape& dims) {
  Index high{};
  std::copy(dims.begin(), dims.end(), high.begin());
  return high;
}
std::int64_t units_of(const Index& low, const Index& high, std::size_t rank) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d + 1 < rank; ++d) n *= high[d] - low[d];
  return rank > 0 && high[rank - 1] <= low[rank - 1] ? 0 : n;
}

template <class T>
void move(T* to, std::int64_t to_step, const T* from, std::int64_t from_step, std::int64_t n) {
  if (n == 1) {
    *to = *from;
  } else if (to_step == 1 && from_step == 1) {
    copy_bytes(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
               n * static_cast<std::int64_t>(sizeof(T)));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }
}
/// fn(T{}) with an unsigned type of the size.
template <class Fn>
void with_size(std::int64_t size, Fn fn) {
  switch (size) {
    case 1: return fn(std::uint8_t{});
    case 2: return fn(std::uint16_t{});
    case 4: return fn(std::uint32_t{});
    default: return fn(std::uint64_t{});
  }
}

struct IndexedSetting {
  Places places = {};
  std::vector<TensorRef> inputs = {}, stores = {};
  ir::Combine how = ir::Combine::none;
  std::optional<BlockEpilogue> epilogue = {};  ///< absent: elements are handed on
};

class GatherKernel final : public TaskedKernel {
 public:
  explicit GatherKernel(IndexedSetting t)
      : t_(std::move(t.places)),
        x_(t.inputs[0]),
        ids_(t.inputs[1]),
        stores_(std::move(t.stores)),
        epilogue_(std::move(t.epilogue)) {
    for (const TensorRef& r : stores_) to_.push_back(strides_of(r));
    units_ = units_of({}, whole(t_.dims), t_.dims.size());
    tasks_ = even_tasks(ir::count(t_.dims) * element_bytes(x_), kIndexedGrain, units_);
  }
  std::size_t scratch_bytes() const override { return epilogue_ ? epilogue_->scratch_bytes() : 0; }
  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const std::int64_t begin = units_ * task_begin / tasks_, end = units_ * task_end / tasks_;
    const Walker walker(t_, ids_);
    const std::byte* ids = memory.at(ids_);
    if (epilogue_) return run_program(memory, walker, ids, begin, end, worker.scratch);
    with_size(element_bytes(x_), [&]<class T>(T) {
      const T* x = reinterpret_cast<const T*>(memory.at(x_));
      for (std::size_t i = 0; i < stores_.size(); ++i) {
        T* y = reinterpret_cast<T*>(memory.at(stores_[i]));
        const std::int64_t step = to_[i].empty() ? 1 : to_[i].back();
        walker.rows(
            ids, to_[i], {}, whole(t_.dims), begin, end,
            [&](std::int64_t at, std::int64_t x_step, std::int64_t n, std::int64_t to) { move(y + to, step, x + at, x_step, n); });
      }
    });
  }

 private:
  void run_program(const Memory& memory, const Walker& walker, const std::byte* ids, std::int64_t begin, std::int64_t end,
                   std::byte* scratch) const {
    epilogue_->prepare(scratch);
    std::int32_t* acc = BlockEpilogue::acc(scratch);
    const std::size_t rank = t_.dims.size();
    const std::int64_t cols = rank == 0 ? 1 : t_.dims.back(), width = epilogue_->code().block();
    const Ints none(rank, 0);
    const auto* bytes = memory.at(x_);
    const auto value = [&](std::int64_t at) {
      std::int32_t word = 0;
      if (x_.dtype == DType::u8) {
        word = std::to_integer<std::int32_t>(bytes[at]);
      } else {
        std::memcpy(&word, bytes + 4 * at, 4);
      }
      return word;
    };
    const std::int64_t height = rank < 2 ? 1 : t_.dims[rank - 2];
    std::int64_t together = 1;  // rows that the program takes at once: as many as fit, of one matrix
    for (std::int64_t u = begin; u < end; u += together) {
      Index origin{};
      std::int64_t rest = u;
      for (std::size_t d = rank; d-- > 1;) origin[d - 1] = rest % t_.dims[d - 1], rest /= t_.dims[d - 1];
      together = std::min({end - u, height - u % height, std::max<std::int64_t>(1, width / cols)});
      for (std::int64_t first = 0; first < cols; first += width) {
        Index low{}, high = whole(t_.dims);
        if (rank > 0) low[rank - 1] = first, high[rank - 1] = std::min(cols, first + width);
        std::int32_t* to = acc;
        walker.rows(ids, none, low, high, u, u + together, [&](std::int64_t at, std::int64_t step, std::int64_t n, std::int64_t) {
          for (std::int64_t i = 0; i < n; ++i) *to++ = value(at + i * step);
        });
        if (rank > 0) origin[rank - 1] = first;
        epilogue_->run(memory, scratch, origin, static_cast<int>(together), static_cast<int>((to - acc) / together));
      }
    }
  }

  Places t_;
  TensorRef x_, ids_;
  std::vector<TensorRef> stores_;
  std::vector<Ints> to_;
  std::optional<BlockEpilogue> epilogue_;
  std::int64_t units_ = 0;
};

using How = ir::Combine;
template <class T>
T reduced(How how, T old, T update) {
  switch (how) {
    case How::add: return element::add(old, update);
    case How::mul: return element::mul(old, update);
    case How::max: return old < update ? update : old;
    case How::min: return update < old ? update : old;
    default: return update;
  }
}
/// fn(T{}) with the type that updates are reduced in.
template <class Fn>
void with_type(DType t, Fn fn) {
  if (t == DType::f32) return fn(float{});
  ir::with_integer(t, fn);
}

class ScatterKernel final : public TaskedKernel {
 public:
  explicit ScatterKernel(IndexedSetting t)
      : t_(std::move(t.places)), x_(t.inputs[0]), ids_(t.inputs[1]), u_(t.inputs[2]), y_(t.stores[0]), how_(t.how) {
    if (t.inputs.size() > 3) many_ = t.inputs[3];
    const std::int64_t bytes = (ir::count(x_.dims) + ir::count(t_.dims)) * element_bytes(x_);
    tasks_ = t_.cut < 0 ? 1 : even_tasks(bytes, kIndexedGrain, x_.dims[static_cast<std::size_t>(t_.cut_of_data)]);
  }
  void run(const Memory& memory, int task_begin, int task_end, const Worker&) const override {
    // A part of one dimension of the data, and the updates that lie in it: all of them, in their order.
    Index data_low{}, data_high = whole(x_.dims), low{}, high = whole(t_.dims);
    if (t_.cut >= 0) {
      const auto of_data = static_cast<std::size_t>(t_.cut_of_data), of_updates = static_cast<std::size_t>(t_.cut);
      const std::int64_t n = x_.dims[of_data], updates = t_.dims[of_updates];
      data_low[of_data] = n * task_begin / tasks_, data_high[of_data] = n * task_end / tasks_;
      low[of_updates] = std::min(data_low[of_data], updates), high[of_updates] = std::min(data_high[of_data], updates);
    }
    if (many_) high[0] = std::max(low[0], std::min(high[0], *reinterpret_cast<const std::int64_t*>(memory.at(*many_))));
    const Ints from = strides_of(x_), to = strides_of(y_), updates = strides_of(u_);
    const std::size_t rank = x_.dims.size();
    with_size(element_bytes(x_), [&]<class T>(T) {
      const T* x = reinterpret_cast<const T*>(memory.at(x_));
      T* y = reinterpret_cast<T*>(memory.at(y_));
      for (std::int64_t u = 0; u < units_of(data_low, data_high, rank); ++u) {
        std::int64_t rest = u, at = 0, out = 0;
        for (std::size_t d = rank == 0 ? 0 : rank - 1; d-- > 0;) {
          const std::int64_t n = data_high[d] - data_low[d], i = data_low[d] + rest % n;
          rest /= n;
          at += i * from[d], out += i * to[d];
        }
        const std::int64_t first = rank == 0 ? 0 : data_low[rank - 1], n = rank == 0 ? 1 : data_high[rank - 1] - first;
        const std::int64_t x_step = rank == 0 ? 1 : from.back(), y_step = rank == 0 ? 1 : to.back();
        move(y + out + first * y_step, y_step, x + at + first * x_step, x_step, n);
      }
    });
    const Walker walker(t_, ids_);
    const std::byte* ids = memory.at(ids_);
    const std::int64_t units = units_of(low, high, t_.dims.size()), step = updates.empty() ? 1 : updates.back();
    if (how_ == How::none) {
      with_size(element_bytes(x_), [&]<class T>(T) {
        T* y = reinterpret_cast<T*>(memory.at(y_));
        const T* v = reinterpret_cast<const T*>(memory.at(u_));
        walker.rows(ids, updates, low, high, 0, units, [&](std::int64_t at, std::int64_t y_step, std::int64_t n, std::int64_t u) {
          move(y + at, y_step, v + u, step, n);
        });
      });
      return;
    }
    with_type(x_.dtype, [&]<class T>(T) {
      T* y = reinterpret_cast<T*>(memory.at(y_));
      const T* v = reinterpret_cast<const T*>(memory.at(u_));
      walker.rows(ids, updates, low, high, 0, units, [&](std::int64_t at, std::int64_t y_step, std::int64_t n, std::int64_t u) {
        for (std::int64_t i = 0; i < n; ++i) y[at + i * y_step] = reduced(how_, y[at + i * y_step], v[u + i * step]);
      });
    });
  }

 private:
  Places t_;
  TensorRef x_, ids_, u_, y_;
  std::optional<TensorRef> many_;  ///< how many updates along dimension 0 there are; nothing: all
  How how_;
};

/// Do the elements reach stores of their own type as they are?
bool hands_on(const Stage& s) {
  const auto same = [&](const TensorRef& r) { return r.dtype == s.anchor.inputs[0].dtype; };
  if (!std::all_of(s.stores.begin(), s.stores.end(), same)) return false;
  if (s.program.outputs.empty()) return true;
  const program::Op op = s.program.code[static_cast<std::size_t>(s.program.outputs[0].value)].op;
  return s.stores.size() == 1 && (op == program::Op::acc_i || op == program::Op::acc_f);
}

Result<IndexedSetting> indexed_setting(const Stage& s) {
  const TensorRef& x = s.anchor.inputs[0];
  const bool scatter = s.anchor.op == Op::scatter;  // updates go to places in the result
  TensorRef indexed = scatter ? s.stores[0] : x;
  if (scatter) indexed.dims = x.dims;
  if (indexed.strides.size() != indexed.dims.size()) return refuse("result", ir::to_string(s.stores[0].dims), "the data's shape");
  IndexedSetting t{{}, s.anchor.inputs, s.stores};
  OCTAVO_TRY(t.places, places_of(s, indexed, s.anchor.inputs[1], scatter ? s.anchor.inputs[2].dims : s.space));
  if (scatter) {
    t.how = s.anchor.as<ir::Scatter>().combine;
    const bool whole_number = !ir::is_float(x.dtype) && x.dtype < DType::boolean;
    if (t.how != How::none && x.dtype != DType::f32 && !whole_number)
      return refuse("type that is reduced", ir::name_of(x.dtype), "f32 or an integer");
    if (s.anchor.inputs[2].dtype != x.dtype)
      return refuse("type of the updates", ir::name_of(s.anchor.inputs[2].dtype), ir::name_of(x.dtype));
    if (s.anchor.inputs.size() > 3 &&
        (s.anchor.inputs[3].dtype != DType::s64 || !s.anchor.inputs[3].dims.empty() || s.anchor.inputs[2].dims.empty()))
      return fail(ErrorKind::bad_engine, "scatter: the operand that says how many updates there are is not s64[]");
    if (s.stores.size() != 1) return refuse("results", s.stores.size(), 1);
    if (s.stores[0].dims != x.dims) return refuse("shape of the result", ir::to_string(s.stores[0].dims), ir::to_string(x.dims));
    for (const TensorRef& in : s.anchor.inputs) {
      if (in.quantizer) return refuse("operand", "codes of a quantizer", "numbers");
    }
  }
  if (hands_on(s)) return t;
  if (scatter || s.program.outputs.empty()) return refuse("type of the stores", "another", "that of the input");
  if (x.dtype != DType::f32 && x.dtype != DType::u8)
    return refuse("type of what a program works on", ir::name_of(x.dtype), "f32 or codes");
  const std::size_t col = s.space.empty() ? 0 : s.space.size() - 1;
  OCTAVO_TRY(t.epilogue, block_epilogue(s, best_isa(), col == 0 ? 1 : col - 1, col));
  return t;
}

struct IndexedKind {
  Op op;
  std::string_view name;
};
constexpr std::array kIndexedKinds{IndexedKind{Op::gather, "indexed.gather"},
                                   IndexedKind{Op::gather_elements, "indexed.gather_elements"},
                                   IndexedKind{Op::gather_nd, "indexed.gather_nd"}, IndexedKind{Op::scatter, "indexed.scatter"}};

class IndexedFamily final : public FamilyOf<IndexedSetting> {
 public:
  explicit IndexedFamily(const IndexedKind& kind) : FamilyOf({.name = kind.name, .levels = kAnyIsa}), op_(kind.op) {}
  bool about(const Region& r) const override {
    return is_one(r, op_) && takes(only(r).anchor.inputs.size()) && !only(r).stores.empty();
  }
  [[nodiscard]] bool takes(std::size_t inputs) const { return op_ == Op::scatter ? inputs == 3 || inputs == 4 : inputs == 2; }
  Match<IndexedSetting> match(const Request& q) const override { return indexed_setting(only(q.region)); }
  double cost(const IndexedSetting& t, Isa) const override {
    const auto elements = static_cast<double>(ir::count(t.places.dims));
    const std::int64_t results = op_ == Op::scatter ? ir::count(t.inputs[0].dims) : ir::count(t.places.dims);
    const double moved = static_cast<double>(results * element_bytes(t.inputs[0])) * 0.1e-9;
    const bool rows = t.places.dims.empty() || op_ != Op::gather_elements;
    return 0.5e-6 + moved + elements * (rows ? 0.3e-9 : 1.5e-9) + (t.epilogue ? elements * 1e-9 : 0);
  }
  Result<std::unique_ptr<Kernel>> load(IndexedSetting t, Packed) const override {
    if (op_ == Op::scatter) return std::make_unique<ScatterKernel>(std::move(t));
    return std::make_unique<GatherKernel>(std::move(t));
  }

 private:
  Op op_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(indexed, IndexedFamily, kIndexedKinds)

}  // namespace octavo::cpu
