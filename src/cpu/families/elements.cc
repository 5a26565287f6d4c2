// cpu.elements.<op>.<isa>: element-wise operators on every element type, where no program computes them (program/elements.def; Cast; Where). The
// operands are broadcast and walked in blocks: what lies side by side is read and stored where it is, the rest is collected in scratch first. A
// float result that a program works on goes through the program's accumulator. Past 400 lines: the forms that operators have, the one walk and the one kernel.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "cpu/families/element_families.h"
#include "cpu/families/row_families.h"
#include "cpu/joined.h"
#include "cpu/table.h"
#include "ir/with_integer.h"
#include "program/math.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using ir::DType;
using ir::Op;
using region::TensorRef;

constexpr std::int64_t kElements = 1024;          ///< that are computed at a time
constexpr std::int64_t kElementsGrain = 1 << 15;  ///< bytes of a task
constexpr std::size_t kMostOperands = 3;

/// The row of program/elements.def for an operator of the IR.
std::optional<ElementOp> element_op(const region::Anchor& a) {
  if (a.op == Op::bitwise) {
    switch (a.as<ir::Bitwise>().function) {
      case ir::BitFunction::bit_not: return ElementOp::bit_not;
      case ir::BitFunction::bit_and: return ElementOp::bit_and;
      case ir::BitFunction::bit_or: return ElementOp::bit_or;
      case ir::BitFunction::bit_xor: return ElementOp::bit_xor;
      case ir::BitFunction::left: return ElementOp::shift_left;
      case ir::BitFunction::right: return ElementOp::shift_right;
    }
  }
  if (a.op == Op::mod && a.as<ir::Remainder>().fmod) return ElementOp::fmod;
  static constexpr std::array<std::string_view, kElementOps> kNames{
#define ELEMENT(id, operands, types, result) #id,
#include "program/elements.def"
  };
  static const auto by_op = [] {
    std::map<Op, ElementOp> found;
#define OP(id, text, least, most, traits)                                                                        \
  if (const auto at = std::find(kNames.begin(), kNames.end(), #id); at != kNames.end() && Op::id != Op::bitwise) \
    found[Op::id] = static_cast<ElementOp>(at - kNames.begin());
#include "ir/ops.def"
    return found;
  }();
  const auto found = by_op.find(a.op);
  return found == by_op.end() ? std::nullopt : std::optional(found->second);
}

/// How one block is computed from contiguous operands.
enum class Way : std::uint8_t {
  loop,       ///< a loop of elements.h on the operands' type
  as_floats,  ///< the same on float32, for float16 and bfloat16
  function,   ///< a function of program/math.h in float32, for operands of another float type
  cast,
  where,
  clip,
};
struct Form {
  Way way = Way::loop;
  ElementOp op = ElementOp::add;
  DType in = DType::f32, out = DType::f32;  ///< the operands' (of where: the last two's), the result's
  std::size_t operands = 1;
};
int number(DType t) {
  return static_cast<int>(t);
}
int size_class(DType t) {
  return std::countr_zero(static_cast<unsigned>(ir::size_of(t)));
}
bool half(DType t) {
  return t == DType::f16 || t == DType::bf16;
}

/// Of operators with a function in program/math.h.
bool has_function(Op op) {
  switch (op) {
    case Op::logical_not:
    case Op::cast:
    case Op::view:
    case Op::quantize:
    case Op::dequantize:
    case Op::affine: return false;
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::max:
    case Op::min:
    case Op::prelu:
    case Op::pow: return true;
    default: return ir::has_trait(op, ir::kPointwise) && ir::info(op).max_inputs == 1;
  }
}

Result<Form> form_of(const Stage& s) {
  const region::Anchor& a = s.anchor;
  Form f;
  f.operands = a.inputs.size();
  f.in = a.inputs.back().dtype;
  if (number(f.in) >= kElementTypes) return refuse("type of an operand", ir::name_of(f.in), "a type that is computed in");
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    if (a.inputs[i].quantizer && a.inputs[i].dtype == DType::u8) return refuse("operand", "codes of a quantizer", "numbers");
  }
  const auto op = element_op(a);
  const auto& kernels = element_kernels(Isa::portable);
  const auto has = [&](DType t) { return op && kernels.of[static_cast<int>(*op)][number(t)] != nullptr; };
  if (a.op == Op::cast) {
    f.way = Way::cast;
    f.out = a.as<ir::Cast>().to;
    if (number(f.out) >= kElementTypes) return refuse("type of the result", ir::name_of(f.out), "a type that is computed in");
    return f;
  }
  f.out = f.in;
  if (a.op == Op::where) {
    f.way = Way::where;
  } else if (a.op == Op::clip && kernels.clip[number(f.in)] != nullptr) {
    f.way = Way::clip;
  } else if (has(f.in)) {
    f.op = *op;
  } else if (half(f.in) && has(DType::f32)) {
    f.way = Way::as_floats, f.op = *op;
  } else if (ir::is_float(f.in) && has_function(a.op)) {
    f.way = Way::function;
  } else {
    return refuse("type of the operands", ir::name_of(f.in), fmt::format("one that {} has loops for", ir::name_of(a.op)));
  }
  const bool truth = f.way != Way::function && f.way != Way::where && f.way != Way::clip && f.op >= ElementOp::equal &&
                     f.op <= ElementOp::logical_not;
  if (truth) f.out = DType::boolean;
  return f;
}

/// Bounds of a Clip as integers of the type.
template <class T>
std::array<std::byte, 8> bound_bytes(double v) {
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min()),
                 kMost = static_cast<double>(std::numeric_limits<T>::max());
  const T bound = v <= kLeast ? std::numeric_limits<T>::min() : v >= kMost ? std::numeric_limits<T>::max() : static_cast<T>(v);
  std::array<std::byte, 8> out{};
  std::memcpy(out.data(), &bound, sizeof bound);
  return out;
}
std::array<std::byte, 8> bound(DType t, double v) {
  return ir::with_integer(t, [&](auto zero) { return bound_bytes<decltype(zero)>(v); });
}

/// The operator as a program on float32.
Result<Code> function_code(const Stage& s) {
  program::Program p;
  program::ProgramOps ops{p};
  const std::size_t n = s.anchor.inputs.size();
  std::vector<int> x;
  for (std::size_t i = 0; i < n; ++i) x.push_back(p.load(program::Op::load_f, static_cast<int>(i)));
  p.operand_count = static_cast<int>(n);
  const int y = n == 1 ? program::unary(ops, s.anchor.op, s.anchor.facts, x[0]) : program::binary(ops, s.anchor.op, x[0], x[1]);
  p.outputs = {{y, DType::f32}};
  return Code::compile(p, std::vector<Elem>(n, Elem::f32));
}

/// Blocks of contiguous operands to a contiguous result.
class Computation {
 public:
  static Result<Computation> of(const Stage& s, Isa isa) {
    Computation c;
    OCTAVO_TRY(c.form_, form_of(s));
    c.kernels_ = &element_kernels(isa);
    if (c.form_.way == Way::function) {
      OCTAVO_TRY(c.code_, function_code(s));
      c.table_ = kernel_table(isa);
    }
    if (c.form_.way == Way::clip) {
      const auto& clip = s.anchor.as<ir::Clip>();
      c.lo_ = bound(c.form_.in, std::ceil(clip.min));
      c.hi_ = bound(c.form_.in, std::floor(clip.max));
    }
    return c;
  }

  [[nodiscard]] const Form& form() const { return form_; }
  [[nodiscard]] const ElementKernels& kernels() const { return *kernels_; }
  [[nodiscard]] std::size_t scratch_bytes() const {
    const std::size_t floats = form_.way == Way::as_floats || form_.way == Way::function ? kMostOperands * kElements * 4 : 0;
    return floats + (form_.way == Way::function ? line(code_.slot_bytes()) : 0);
  }
  /// Once a run, before blocks.
  void prepare(std::byte* scratch) const {
    if (form_.way == Way::function) code_.prepare(reinterpret_cast<std::int32_t*>(slots(scratch)));
  }

  /// n <= kElements
  void run(void* to, const std::array<const std::byte*, kMostOperands>& x, std::int64_t n, std::byte* scratch) const {
    switch (form_.way) {
      case Way::loop: return loop(form_.in)(to, x[0], x[1], n);
      case Way::cast: return cast(form_.out, form_.in)(to, x[0], n);
      case Way::clip: return kernels_->clip[number(form_.in)](to, x[0], lo_.data(), hi_.data(), n);
      case Way::where: return kernels_->where[size_class(form_.in)](to, reinterpret_cast<const std::uint8_t*>(x[0]), x[1], x[2], n);
      case Way::as_floats: {
        const auto floats = widened(x, n, scratch);
        if (form_.out == DType::boolean) return loop(DType::f32)(to, floats[0], floats[1], n);
        loop(DType::f32)(floats[0], floats[0], floats[1], n);
        return cast(form_.out, DType::f32)(to, floats[0], n);
      }
      case Way::function: {
        const auto floats = widened(x, n, scratch);
        std::array<Stream, kMostOperands + 1> streams;
        for (std::int64_t i = 0; i < n; i += code_.block()) {
          const std::int64_t some = std::min<std::int64_t>(code_.block(), n - i);
          for (std::size_t k = 0; k < floats.size(); ++k) streams[k] = {reinterpret_cast<std::byte*>(floats[k] + i), 4 * some, 4};
          streams[kMostOperands] = streams[0];
          table_->run_block(code_.view(), {1, static_cast<int>(some), streams.data(), &streams[kMostOperands],
                                           reinterpret_cast<std::int32_t*>(slots(scratch))});
        }
        return cast(form_.out, DType::f32)(to, floats[0], n);
      }
    }
  }

 private:
  [[nodiscard]] ElementLoop loop(DType t) const { return kernels_->of[static_cast<int>(form_.op)][number(t)]; }
  [[nodiscard]] CastLoop cast(DType to, DType from) const { return kernels_->cast[number(to)][number(from)]; }
  std::array<float*, kMostOperands> widened(const std::array<const std::byte*, kMostOperands>& x, std::int64_t n,
                                            std::byte* scratch) const {
    std::array<float*, kMostOperands> floats{};
    for (std::size_t k = 0; k < kMostOperands; ++k) {
      floats[k] = reinterpret_cast<float*>(scratch) + static_cast<std::int64_t>(k) * kElements;
      if (k < form_.operands) cast(DType::f32, form_.in)(floats[k], x[k], n);
    }
    return floats;
  }
  static std::byte* slots(std::byte* scratch) { return scratch + kMostOperands * kElements * 4; }

  Form form_;
  const ElementKernels* kernels_ = nullptr;
  const KernelTable* table_ = nullptr;
  Code code_;
  std::array<std::byte, 8> lo_{}, hi_{};
};

/// A tensor in a walk: strides along the walk's dimensions, in elements.
struct Walked {
  std::vector<std::int64_t> strides;
  std::int64_t size = 1;  ///< bytes of an element
  [[nodiscard]] bool one() const {
    return std::all_of(strides.begin(), strides.end(), [](std::int64_t s) { return s == 0; });
  }
};
/// The elements of a result and of its operands, blocks of the last two dimensions at a time; dimensions that all walk as one are joined.
struct Walk {
  std::vector<std::int64_t> dims;
  std::vector<Walked> operands;
  Walked to;
  std::int64_t rows = 1, cols = 1;  ///< of a block, at most kElements
  std::int64_t units = 0;           ///< blocks

  Walk(const ir::Shape& space, const std::vector<TensorRef>& inputs, const TensorRef& store, bool joins) {
    std::vector<ir::Shape> strides(inputs.size() + 1);
    for (std::size_t d = 0; d < space.size(); ++d) {
      strides[0].push_back(space[d] == 1 ? 0 : store.strides[d]);
      for (std::size_t i = 0; i < inputs.size(); ++i) strides[i + 1].push_back(region::aligned_stride(inputs[i], space.size(), d));
    }
    Joined loops = joins ? joined(space, strides) : Joined{space, strides};
    dims = std::move(loops.dims);
    to = {std::move(loops.strides[0]), element_bytes(store)};
    for (std::size_t i = 0; i < inputs.size(); ++i) operands.push_back({std::move(loops.strides[i + 1]), element_bytes(inputs[i])});
    while (dims.size() < 2) {
      dims.insert(dims.begin(), 1);
      to.strides.insert(to.strides.begin(), 0);
      for (Walked& w : operands) w.strides.insert(w.strides.begin(), 0);
    }
  }
  void cut(std::int64_t most_rows, std::int64_t most_cols) {
    const std::int64_t last = dims.back(), above = dims[dims.size() - 2];
    cols = std::clamp<std::int64_t>(last, 1, most_cols);
    rows = last > cols ? 1 : std::clamp<std::int64_t>(most_cols / cols, 1, std::max<std::int64_t>(1, std::min(above, most_rows)));
    units = 1;
    for (std::size_t d = 0; d + 2 < dims.size(); ++d) units *= dims[d];
    units *= ((above + rows - 1) / rows) * ((last + cols - 1) / cols);
  }

  struct Block {
    Index index{};  ///< of its first element
    std::int64_t rows = 1, cols = 1;
  };
  [[nodiscard]] Block block(std::int64_t unit) const {
    Block b;
    const std::size_t col = dims.size() - 1, row = dims.size() - 2;
    const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
    b.index[col] = unit % pieces(dims[col], cols) * cols, unit /= pieces(dims[col], cols);
    b.index[row] = unit % pieces(dims[row], rows) * rows, unit /= pieces(dims[row], rows);
    for (std::size_t d = row; d-- > 0;) b.index[d] = unit % dims[d], unit /= dims[d];
    b.rows = std::min(rows, dims[row] - b.index[row]), b.cols = std::min(cols, dims[col] - b.index[col]);
    return b;
  }
  [[nodiscard]] std::int64_t offset(const Walked& w, const Block& b) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) at += b.index[d] * w.strides[d];
    return at * w.size;
  }
  /// Do the block's elements lie side by side?
  [[nodiscard]] bool together(const Walked& w, const Block& b) const {
    return (w.strides.back() == 1 || b.cols == 1) && (b.rows == 1 || w.strides[dims.size() - 2] == b.cols);
  }
};

struct ElementsSetting {
  Computation computation = {};
  ir::Shape space = {};
  std::vector<TensorRef> inputs = {}, stores = {};
  std::optional<BlockEpilogue> epilogue = {};
};

class ElementsKernel final : public TaskedKernel {
 public:
  explicit ElementsKernel(ElementsSetting t)
      : c_(std::move(t.computation)), inputs_(std::move(t.inputs)), stores_(std::move(t.stores)), epilogue_(std::move(t.epilogue)) {
    const ir::Shape& space = t.space;
    if (epilogue_) {  // rows of the space, as the program stores them
      TensorRef dense;
      dense.dtype = DType::f32, dense.dims = space, dense.strides = ir::dense_strides(space);
      walks_.emplace_back(space, inputs_, dense, false);
      walks_.back().cut(1, std::min<std::int64_t>(kElements, epilogue_->code().block()));
    } else {
      for (const TensorRef& r : stores_) {
        walks_.emplace_back(space, inputs_, r, true);
        walks_.back().cut(kElements, kElements);
      }
    }
    std::int64_t bytes = 0;
    for (const Walk& w : walks_) {
      units_ += w.units;
      bytes += ir::count(space) * w.to.size;
    }
    if (ir::count(space) == 0) units_ = 0;
    rank_ = space.size();
    tasks_ = even_tasks(bytes, kElementsGrain, units_);
  }

  std::size_t scratch_bytes() const override {
    return (epilogue_ ? line(epilogue_->scratch_bytes()) : 0) + (kMostOperands + 1) * kElements * 8 + c_.scratch_bytes();
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const std::int64_t begin = units_ * task_begin / tasks_, end = units_ * task_end / tasks_;
    if (begin == end) return;
    std::byte* scratch = worker.scratch;
    if (epilogue_) epilogue_->prepare(scratch), scratch += line(epilogue_->scratch_bytes());
    std::array<std::byte*, kMostOperands + 1> own;
    for (auto& p : own) p = scratch, scratch += kElements * 8;
    c_.prepare(scratch);
    std::array<const std::byte*, kMostOperands> x{};
    for (std::size_t i = 0; i < inputs_.size(); ++i) {  // one element for all: once
      if (walks_[0].operands[i].one()) fill(own[i], memory.at(inputs_[i]), walks_[0].operands[i].size, kElements);
    }
    std::size_t which = 0;
    std::int64_t first = 0;
    for (std::int64_t u = begin; u < end; ++u) {
      while (u - first >= walks_[which].units) first += walks_[which++].units;
      const Walk& w = walks_[which];
      const Walk::Block b = w.block(u - first);
      for (std::size_t i = 0; i < inputs_.size(); ++i) x[i] = operand(memory, w, i, b, own[i]);
      const std::int64_t n = b.rows * b.cols;
      if (epilogue_) {
        c_.run(BlockEpilogue::acc(worker.scratch), x, n, scratch);
        Index origin{};
        for (std::size_t d = 0; d < rank_; ++d) origin[d] = b.index[d + w.dims.size() - rank_];
        epilogue_->run(memory, worker.scratch, origin, 1, static_cast<int>(n));
        continue;
      }
      std::byte* const y = memory.at(stores_[which]) + w.offset(w.to, b);
      if (w.together(w.to, b)) {
        c_.run(y, x, n, scratch);
      } else {
        c_.run(own[kMostOperands], x, n, scratch);
        store(y, own[kMostOperands], w, b);
      }
    }
  }

 private:
  void fill(std::byte* to, const std::byte* one, std::int64_t size, std::int64_t n) const {
    c_.kernels().fill[std::countr_zero(static_cast<unsigned>(size))](to, one, n);
  }

  const std::byte* operand(const Memory& memory, const Walk& w, std::size_t i, const Walk::Block& b, std::byte* own) const {
    const Walked& o = w.operands[i];
    if (o.one()) return own;
    const std::byte* from = memory.at(inputs_[i]) + w.offset(o, b);
    if (w.together(o, b)) return from;
    const std::int64_t row = o.strides[w.dims.size() - 2] * o.size, col = o.strides.back();
    std::byte* to = own;
    for (std::int64_t r = 0; r < b.rows; ++r, to += b.cols * o.size, from += row) {
      if (col == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(b.cols * o.size));
      } else if (col == 0) {
        fill(to, from, o.size, b.cols);
      } else {
        c_.kernels().collect[std::countr_zero(static_cast<unsigned>(o.size))](to, from, col, b.cols);
      }
    }
    return own;
  }

  void store(std::byte* to, const std::byte* from, const Walk& w, const Walk::Block& b) const {
    const std::int64_t row = w.to.strides[w.dims.size() - 2] * w.to.size, col = w.to.strides.back();
    for (std::int64_t r = 0; r < b.rows; ++r, to += row, from += b.cols * w.to.size) {
      if (col == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(b.cols * w.to.size));
      } else {
        c_.kernels().spread[std::countr_zero(static_cast<unsigned>(w.to.size))](to, col, from, b.cols);
      }
    }
  }

  Computation c_;
  std::vector<TensorRef> inputs_, stores_;
  std::optional<BlockEpilogue> epilogue_;
  std::vector<Walk> walks_;  ///< one a store; with a program one
  std::size_t rank_ = 0;
  std::int64_t units_ = 0;
};

/// One float32 store of what was computed, nothing else.
bool plain(const BlockEpilogue& e) {
  const Space& space = e.space();
  if (!e.code().identity() || !space.loads.empty() || space.stores.size() != 1) return false;
  const StridedAccess& to = space.stores.front();
  return to.elem == Elem::f32 && std::all_of(to.div.begin(), to.div.end(), [](auto d) { return d == 1; });
}

Result<ElementsSetting> elements_setting(const Stage& s, Isa isa) {
  OCTAVO_TRY(Computation computation, Computation::of(s, isa));
  const Form& form = computation.form();
  if (s.space.size() > 8) return refuse("dimensions", ir::to_string(s.space), "at most 8");
  for (const TensorRef& x : s.anchor.inputs) {
    if (x.dims.size() > s.space.size()) return refuse("operand", ir::to_string(x.dims), ir::to_string(s.space));
    for (std::size_t k = 0; k < x.dims.size(); ++k) {
      const std::int64_t extent = s.space[k + s.space.size() - x.dims.size()];
      if (x.dims[k] != extent && x.dims[k] != 1) return refuse("operand", ir::to_string(x.dims), ir::to_string(s.space));
    }
  }
  const bool where = s.anchor.op == Op::where;
  if (s.anchor.inputs.size() != (where ? 3U : static_cast<std::size_t>(ir::info(s.anchor.op).max_inputs)) &&
      s.anchor.op != Op::bitwise)
    return refuse("operands", s.anchor.inputs.size(), ir::info(s.anchor.op).max_inputs);
  for (std::size_t i = where ? 1 : 0; i < s.anchor.inputs.size(); ++i) {
    if (s.anchor.inputs[i].dtype != form.in)
      return refuse("type of an operand", ir::name_of(s.anchor.inputs[i].dtype), ir::name_of(form.in));
  }
  if (where && ir::size_of(s.anchor.inputs[0].dtype) != 1)
    return refuse("type of the condition", ir::name_of(s.anchor.inputs[0].dtype), "bool");
  ElementsSetting t{std::move(computation), s.space, s.anchor.inputs, s.stores, {}};
  if (!s.program.outputs.empty()) {
    if (form.out != DType::f32) return refuse("type of what a program works on", ir::name_of(form.out), "f32");
    const std::size_t col = s.space.empty() ? 0 : s.space.size() - 1;
    OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, col == 0 ? 1 : 0, col));
    if (plain(*t.epilogue)) t.epilogue.reset();
    return t;
  }
  for (const TensorRef& r : s.stores) {
    if (r.dtype != form.out || r.quantizer) return refuse("type of a result", ir::name_of(r.dtype), ir::name_of(form.out));
    if (r.dims != s.space) return refuse("result", ir::to_string(r.dims), ir::to_string(s.space));
  }
  return t;
}

class ElementsFamily final : public KernelFamily<ElementsSetting, ElementsKernel> {
 public:
  ElementsFamily() : KernelFamily({.name = "elements"}) {}
  std::string name_for(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    const std::string function = a.op == Op::bitwise ? "_" + std::string(ir::spelled(a.as<ir::Bitwise>().function)) : "";
    return "elements." + std::string(ir::name_of(a.op)) + function;
  }
  bool about(const Region& r) const override {
    if (r.stages.size() != 1 || only(r).anchor.inputs.empty() || only(r).anchor.inputs.size() > kMostOperands ||
        only(r).stores.empty() || only(r).anchor.weights)
      return false;
    const Op op = only(r).anchor.op;
    return op == Op::cast || op == Op::where || op == Op::clip || has_function(op) || element_op(only(r).anchor).has_value();
  }
  Match<ElementsSetting> match(const Request& q) const override { return elements_setting(only(q.region), q.isa); }
  double cost(const ElementsSetting& t, Isa isa) const override {
    const Form& form = t.computation.form();
    auto bytes = static_cast<double>(ir::size_of(form.out));
    for (const TensorRef& x : t.inputs) bytes += static_cast<double>(element_bytes(x));
    const double each = form.way == Way::function || form.way == Way::as_floats ? 2.0 + bytes / 16 : 0.1 + bytes / 16;
    return static_cast<double>(ir::count(t.space) * static_cast<std::int64_t>(t.stores.size())) * each * slowdown(isa) *
               kSecondsPerCycle +
           0.1e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(elements, ElementsFamily)

}  // namespace octavo::cpu
