// cpu.{lstm,gru,rnn}.rows.<isa>: recurrent layers with constant weights (past 400 lines: three cells, one walk over steps). W and R are
// packed in panels of columns with gates side by side. Products with W are taken for many steps at once, so that only R is read again at
// each step and stays in cache; those of a step are of a few rows with a matrix. What the gates compute from their sums is a
// program that the block kernels run: the same operations as the reference's, for any activation. Sums begin with the biases
// and are taken in another order than the reference's: floats within the tolerance of docs/semantics.md.
#include <algorithm>
#include <cstring>

#include "cpu/constant.h"
#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "program/math.h"
#include "region/store_results.h"

namespace octavo::cpu {
namespace {

using program::Program;
using program::ProgramOps;
using POp = program::Op;

constexpr std::int64_t kMostSequences = 4;   // of a task, side by side
constexpr std::int64_t kMostSteps = 96;      // whose products with W are taken together: whole groups of rows of `multiply`
constexpr std::int64_t kMostSums = 1 << 18;  // floats of those products, of all sequences of a task
enum Input : std::size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

/// What a cell computes from the sums of its gates, for one direction. Operands and results as `run_step` gives them.
struct Programs {
  Code gates;  ///< lstm: sums i o f c, state c, P i o f -> c, h. gru: sums z r, of X and of R for h, state h -> h. rnn: sum -> h
  Code reset;  ///< gru that resets before the product: sum r, state h -> r * h
};

struct Setting {
  std::vector<region::TensorRef> in = {};
  std::vector<std::pair<std::size_t, region::TensorRef>> stores = {};  ///< with the result that each takes
  Constant w = {}, r = {};
  std::vector<Programs> programs = {};  ///< by direction
  Isa isa = Isa::portable;
  int threads = 1;
  ir::CellKind cell = ir::CellKind::rnn;
  std::int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1, gates = 1;
  bool batch_first = false, reverse = false, before_reset = false;
  [[nodiscard]] bool lstm() const { return cell == ir::CellKind::lstm; }
  [[nodiscard]] bool gru() const { return cell == ir::CellKind::gru; }
  /// Columns of the packed matrices: those of one gate, and of all.
  [[nodiscard]] std::int64_t gate() const { return (hidden + kColumns - 1) / kColumns * kColumns; }
  [[nodiscard]] std::int64_t columns() const { return gates * gate(); }
  [[nodiscard]] std::int64_t rows() const { return gates * hidden; }
  /// Columns that lie side by side for all rows: those that products of one row have accumulators for.
  [[nodiscard]] std::int64_t panel() const {
    return isa >= Isa::avx512 ? 8 * kColumns : isa >= Isa::avx2 ? 4 * kColumns : kColumns;
  }
  /// Where products with R end: a GRU's candidate has one of its own.
  [[nodiscard]] std::vector<std::int64_t> cuts() const {
    return gru() ? std::vector<std::int64_t>{0, 2 * gate(), columns()} : std::vector<std::int64_t>{0, columns()};
  }
  [[nodiscard]] std::int64_t w_floats() const { return inputs * columns(); }
  [[nodiscard]] std::int64_t r_floats() const { return hidden * columns(); }
};

int apply(Program& p, const ir::CellActivation& f, int x) {
  ProgramOps ops{p};
  if (const auto unary = ir::unary_of(f)) return program::unary(ops, unary->first, unary->second, x);
  const int alpha = p.imm_f(f.alpha);
  if (f.function == ir::CellFunction::thresholded_relu) return p.push(POp::sel_lt, alpha, x, x, p.imm_f(0));
  const int beta = p.imm_f(f.beta);
  if (f.function == ir::CellFunction::affine) return p.push(POp::fma, alpha, x, beta);
  x = p.push(POp::mul, beta, x);  // scaled_tanh
  return p.push(POp::mul, alpha, program::unary(ops, ir::Op::tanh, {}, x));
}

Result<Programs> programs_of(const Setting& t, const ir::Recurrent& facts, std::size_t direction) {
  const std::size_t functions = t.lstm() ? 3 : t.gru() ? 2 : 1;
  std::vector<ir::CellActivation> f = ir::activations_of(facts);
  if (f.size() < functions * static_cast<std::size_t>(t.directions))
    return fail(ErrorKind::bad_engine, fmt::format("{} activations", f.size()));
  f.erase(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(direction * functions));
  const auto clip = static_cast<float>(facts.clip);
  const auto clipped = [&](Program& p, int x) {  // as std::max(x, -clip), std::min
    if (!(clip > 0)) return x;
    x = p.push(POp::max, p.imm_f(-clip), x);
    return p.push(POp::min, p.imm_f(clip), x);
  };
  const auto load = [](Program& p, int i) { return p.load(POp::load_f, i); };
  const auto compile = [](Program& p, int operands) {
    p.operand_count = operands;
    return Code::compile(p, std::vector<Elem>(static_cast<std::size_t>(operands), Elem::f32));
  };
  const auto one_minus = [](Program& p, int x) { return p.push(POp::sub, p.imm_f(1), x); };
  Programs out;
  Program p;
  if (t.lstm()) {
    const int c = load(p, 4);
    const auto gate = [&](int sum, int weight, int state) {
      return apply(p, f[0], clipped(p, p.push(POp::add, load(p, sum), p.push(POp::mul, load(p, weight), state))));
    };
    const int i = gate(0, 5, c);
    const int forget = facts.input_forget ? one_minus(p, i) : gate(2, 7, c);
    const int g = apply(p, f[1], clipped(p, load(p, 3)));
    const int kept = p.push(POp::mul, forget, c);
    const int state = p.push(POp::add, kept, p.push(POp::mul, i, g));
    const int o = gate(1, 6, state);
    const int h = p.push(POp::mul, o, apply(p, f[2], state));
    p.outputs = {{state, ir::DType::f32}, {h, ir::DType::f32}};
    OCTAVO_TRY(out.gates, compile(p, 8));
  } else if (t.gru()) {
    const int h = load(p, 4), z = apply(p, f[0], clipped(p, load(p, 0)));
    int sum = load(p, 2);
    if (t.before_reset) {
      const int r = apply(p, f[0], clipped(p, load(p, 1)));
      sum = p.push(POp::add, sum, p.push(POp::mul, r, load(p, 3)));
    } else {
      Program reset;
      const int r = apply(reset, f[0], clipped(reset, load(reset, 0)));
      reset.outputs = {{reset.push(POp::mul, r, load(reset, 1)), ir::DType::f32}};
      OCTAVO_TRY(out.reset, compile(reset, 2));
    }
    const int candidate = apply(p, f[1], clipped(p, sum));
    const int fresh = p.push(POp::mul, one_minus(p, z), candidate);
    p.outputs = {{p.push(POp::add, fresh, p.push(POp::mul, z, h)), ir::DType::f32}};
    OCTAVO_TRY(out.gates, compile(p, 5));
  } else {
    p.outputs = {{apply(p, f[0], clipped(p, load(p, 0))), ir::DType::f32}};
    OCTAVO_TRY(out.gates, compile(p, 1));
  }
  return out;
}

Result<Setting> setting_of(const Request& q) {
  const Stage& s = only(q.region);
  const Plan& plan = q.plan;
  const region::Anchor& a = s.anchor;
  if (a.inputs.size() != 8) return refuse("operands", a.inputs.size(), "8");
  for (const std::size_t i : {kX, kW, kR, kB, kH0, kC0, kP}) {
    if (a.inputs[i].dtype != ir::DType::f32)
      return refuse(fmt::format("type of operand {}", i), ir::name_of(a.inputs[i].dtype), "f32");
  }
  for (const std::size_t i : {kW, kR}) {
    const region::Buffer& b = plan.buffers[static_cast<std::size_t>(a.inputs[i].buffer)];
    if (b.kind != region::BufferKind::constant) return refuse("weights", "computed at run time", "constant");
    if (a.inputs[i].strides != ir::dense_strides(a.inputs[i].dims)) return refuse("weights", "strided", "dense");
  }
  Setting t{a.inputs, {}, Constant(a.inputs[kW], plan), Constant(a.inputs[kR], plan), {}, q.isa, plan.threads};
  const auto& facts = a.as<ir::Recurrent>();
  t.cell = facts.cell;
  t.batch_first = facts.layout;
  t.before_reset = facts.linear_before_reset;
  t.reverse = facts.direction == ir::Direction::reverse;
  t.directions = facts.direction == ir::Direction::bidirectional ? 2 : 1;
  t.gates = t.lstm() ? 4 : t.gru() ? 3 : 1;
  const ir::Shape& x = a.inputs[kX].dims;
  t.steps = x[t.batch_first ? 1 : 0], t.batch = x[t.batch_first ? 0 : 1], t.inputs = x[2];
  t.hidden = a.inputs[kR].dims[2];
  const auto shape = [&](Input i, const ir::Shape& want) { return a.inputs[i].dims == want; };
  const std::int64_t d = t.directions;
  const ir::Shape state = t.batch_first ? ir::Shape{t.batch, d, t.hidden} : ir::Shape{d, t.batch, t.hidden};
  if (!shape(kW, {d, t.rows(), t.inputs}) || !shape(kR, {d, t.rows(), t.hidden}) || !shape(kB, {d, 2 * t.rows()}) ||
      !shape(kLengths, {t.batch}) || !shape(kH0, state) || !shape(kC0, state) || !shape(kP, {d, 3 * t.hidden}) ||
      a.inputs[kLengths].dtype != ir::DType::s64)
    return fail(ErrorKind::bad_engine, "operands of a recurrent layer do not fit");
  const ir::Shape y = t.batch_first ? ir::Shape{t.batch, t.steps, d, t.hidden} : ir::Shape{t.steps, d, t.batch, t.hidden};
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    const std::size_t k = region::result_of_store(a, i);
    if (s.stores[i].dtype != ir::DType::f32 || s.stores[i].dims != (k == 0 ? y : state) || k > (t.lstm() ? 2U : 1U))
      return refuse(fmt::format("result {}", k),
                    fmt::format("{}{}", ir::name_of(s.stores[i].dtype), ir::to_string(s.stores[i].dims)),
                    "f32 of the operator's shape");
    t.stores.emplace_back(k, s.stores[i]);
  }
  t.programs.resize(static_cast<std::size_t>(t.directions));
  for (std::size_t direction = 0; direction < t.programs.size(); ++direction) {
    OCTAVO_TRY(t.programs[direction], programs_of(t, facts, direction));
  }
  return t;
}

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(Setting setting, Packed packed)
      : table_(*kernel_table(setting.isa)), k_(row_kernels(setting.isa)), t_(std::move(setting)) {
    w_ = reinterpret_cast<const float*>(packed[0].data());
    r_ = reinterpret_cast<const float*>(packed[1].data());
    steps_ = std::clamp<std::int64_t>(kMostSums / t_.columns() / kMostSequences / 12 * 12, 12, kMostSteps);
    steps_ = std::min(steps_, std::max<std::int64_t>(t_.steps, 1));
    together_ = std::clamp<std::int64_t>(t_.batch * t_.directions / std::max(t_.threads, 1), 1, kMostSequences);
    groups_ = (t_.batch + together_ - 1) / together_;
    for (const Programs& p : t_.programs) slots_ = std::max({slots_, p.gates.slot_bytes(), p.reset.slot_bytes()});
  }

  int tasks() const override { return static_cast<int>(std::max<std::int64_t>(1, groups_ * t_.directions)); }
  std::size_t scratch_bytes() const override { return 2 * line(slots_) + layout(nullptr).bytes; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const bool valid = lengths_valid(memory);
    for (int t = task_begin; t < task_end; ++t) {
      const std::int64_t d = t / std::max<std::int64_t>(groups_, 1), first = t % std::max<std::int64_t>(groups_, 1) * together_;
      if (first >= t_.batch) continue;
      sequences(memory, worker.scratch, d, first, std::min(together_, t_.batch - first), valid);
    }
  }

 private:
  struct Scratch {
    float *x, *xw, *sums, *h, *c, *kept, *bias, *p;
    std::size_t bytes;
  };
  [[nodiscard]] Scratch layout(std::byte* at) const {
    Scratch w{};
    const auto next = [&](std::int64_t n) {
      auto* p = reinterpret_cast<float*>(at + w.bytes);
      w.bytes += line(static_cast<std::size_t>(n) * 4);
      return p;
    };
    w.x = next(steps_ * t_.inputs);
    w.xw = next(together_ * steps_ * t_.columns());
    w.sums = next(together_ * t_.columns());
    w.h = next(together_ * t_.gate());
    w.c = next(together_ * t_.gate());
    w.kept = next(together_ * t_.gate());
    w.bias = next(2 * t_.columns());
    w.p = next(3 * t_.gate());
    return w;
  }

  [[nodiscard]] std::int64_t length_of(const Memory& memory, std::int64_t n) const {
    return reinterpret_cast<const std::int64_t*>(memory.at(t_.in[kLengths]))[n * t_.in[kLengths].strides[0]];
  }
  /// Lengths are known only now; where one is impossible, every result is 0 (as regions of the reference evaluator leave it).
  [[nodiscard]] bool lengths_valid(const Memory& memory) const {
    for (std::int64_t n = 0; n < t_.batch; ++n) {
      if (length_of(memory, n) < 0 || length_of(memory, n) > t_.steps) return false;
    }
    return true;
  }
  static const float* floats(const Memory& memory, const region::TensorRef& t) {
    return reinterpret_cast<const float*>(memory.at(t));
  }

  /// Element 0 of the state of sequence n: of an operand or a result.
  [[nodiscard]] std::int64_t state_at(const region::TensorRef& t, std::int64_t d, std::int64_t n) const {
    return t_.batch_first ? n * t.strides[0] + d * t.strides[1] : d * t.strides[0] + n * t.strides[1];
  }
  [[nodiscard]] std::int64_t result_at(const region::TensorRef& t, std::int64_t d, std::int64_t n, std::int64_t step) const {
    return t_.batch_first ? n * t.strides[0] + step * t.strides[1] + d * t.strides[2]
                          : step * t.strides[0] + d * t.strides[1] + n * t.strides[2];
  }
  void store(const Memory& memory, const region::TensorRef& t, std::int64_t at, const float* from) const {
    auto* to = reinterpret_cast<float*>(memory.at(t)) + at;
    const std::int64_t step = t.strides.back();
    for (std::int64_t j = 0; j < t_.hidden; ++j) to[j * step] = from == nullptr ? 0.0F : from[j];
  }

  /// Sequences first..first+count-1 of direction d, from the first step to the last.
  void sequences(const Memory& memory, std::byte* scratch, std::int64_t d, std::int64_t first, std::int64_t count,
                 bool valid) const {
    const Scratch w = layout(scratch + 2 * line(slots_));
    const std::int64_t gate = t_.gate(), columns = t_.columns();
    std::fill(w.h, w.h + count * gate, 0.0F);
    std::fill(w.c, w.c + count * gate, 0.0F);
    parameters(memory, d, w);
    const Programs& programs = t_.programs[static_cast<std::size_t>(d)];
    programs.gates.prepare(reinterpret_cast<std::int32_t*>(scratch));
    if (t_.gru() && !t_.before_reset) programs.reset.prepare(reinterpret_cast<std::int32_t*>(scratch + line(slots_)));
    std::int64_t lengths[kMostSequences] = {}, longest = 0;
    for (std::int64_t s = 0; s < count && valid; ++s) {
      lengths[s] = length_of(memory, first + s);
      longest = std::max(longest, lengths[s]);
      const auto take = [&](Input i, float* to) {
        const float* from = floats(memory, t_.in[i]) + state_at(t_.in[i], d, first + s);
        for (std::int64_t j = 0; j < t_.hidden; ++j) to[j] = from[j * t_.in[i].strides[2]];
      };
      take(kH0, w.h + s * gate);
      if (t_.lstm()) take(kC0, w.c + s * gate);
    }
    const bool back = t_.reverse || d == 1;
    for (std::int64_t k = 0; k < longest; ++k) {
      if (k % steps_ == 0) {
        for (std::int64_t s = 0; s < count; ++s) products_with_w(memory, w, d, first + s, s, k, lengths[s], back);
      }
      for (std::int64_t s = 0; s < count; ++s) {
        const float* from = w.xw + (s * steps_ + k % steps_) * columns;
        std::copy(from, from + columns, w.sums + s * columns);
      }
      run_step(scratch, w, d, count, k, lengths);
      for (std::int64_t s = 0; s < count; ++s) {
        if (k >= lengths[s]) continue;
        const std::int64_t step = back ? lengths[s] - 1 - k : k;
        for (const auto& [result, ref] : t_.stores) {
          if (result == 0) store(memory, ref, result_at(ref, d, first + s, step), w.h + s * gate);
        }
      }
    }
    for (std::int64_t s = 0; s < count; ++s) {
      for (const auto& [result, ref] : t_.stores) {
        for (std::int64_t k = lengths[s]; result == 0 && k < t_.steps; ++k)
          store(memory, ref, result_at(ref, d, first + s, k), nullptr);
        if (result == 1) store(memory, ref, state_at(ref, d, first + s), valid ? w.h + s * gate : nullptr);
        if (result == 2) store(memory, ref, state_at(ref, d, first + s), valid ? w.c + s * gate : nullptr);
      }
    }
  }

  /// Biases by packed column: those that sums begin with; where a GRU resets behind the product, those of R for the candidate lie
  /// behind them. And the weights of the state in the gates.
  void parameters(const Memory& memory, std::int64_t d, const Scratch& w) const {
    const region::TensorRef &b = t_.in[kB], &p = t_.in[kP];
    const float* from = floats(memory, b) + d * b.strides[0];
    const float* peephole = floats(memory, p) + d * p.strides[0];
    std::fill(w.bias, w.bias + 2 * t_.columns(), 0.0F);
    std::fill(w.p, w.p + 3 * t_.gate(), 0.0F);
    for (std::int64_t g = 0; g < t_.gates; ++g) {
      const bool apart = t_.gru() && t_.before_reset && g == 2;
      for (std::int64_t j = 0; j < t_.hidden; ++j) {
        const float of_w = from[(g * t_.hidden + j) * b.strides[1]], of_r = from[(t_.rows() + g * t_.hidden + j) * b.strides[1]];
        w.bias[g * t_.gate() + j] = apart ? of_w : of_w + of_r;
        if (apart) w.bias[t_.columns() + j] = of_r;
        if (g < 3 && t_.lstm()) w.p[g * t_.gate() + j] = peephole[(g * t_.hidden + j) * p.strides[1]];
      }
    }
  }

  /// Biases and products with W of the next steps of sequence n, the s-th of its group.
  void products_with_w(const Memory& memory, const Scratch& w, std::int64_t d, std::int64_t n, std::int64_t s, std::int64_t k,
                       std::int64_t length, bool back) const {
    const std::int64_t count = std::min(steps_, length - k), columns = t_.columns();
    const region::TensorRef& x = t_.in[kX];
    const std::int64_t step = x.strides[t_.batch_first ? 1 : 0], of = x.strides[t_.batch_first ? 0 : 1];
    float* to = w.xw + s * steps_ * columns;
    for (std::int64_t i = 0; i < count; ++i) {
      const float* from = floats(memory, x) + n * of + (back ? length - 1 - k - i : k + i) * step;
      for (std::int64_t j = 0; j < t_.inputs; ++j) w.x[i * t_.inputs + j] = from[j * x.strides[2]];
      std::copy(w.bias, w.bias + columns, to + i * columns);
    }
    if (count > 0) multiply(to, columns, w.x, t_.inputs, count, w_ + d * t_.w_floats(), t_.inputs, columns);
  }

  /// y += x m, m in panels.
  void multiply(float* y, std::int64_t y_step, const float* x, std::int64_t x_step, std::int64_t rows, const float* m,
                std::int64_t k, std::int64_t columns) const {
    for (std::int64_t j = 0; j < columns; j += t_.panel()) {
      const std::int64_t width = std::min(t_.panel(), columns - j);
      k_.multiply(y + j, y_step, x, x_step, rows, m + j * k, width, k, width);
    }
  }

  void run_step(std::byte* scratch, const Scratch& w, std::int64_t d, std::int64_t count, std::int64_t k,
                const std::int64_t* lengths) const {
    const std::int64_t gate = t_.gate(), columns = t_.columns();
    const Programs& programs = t_.programs[static_cast<std::size_t>(d)];
    const float* r = r_ + d * t_.r_floats();
    if (t_.gru() && t_.before_reset) {  // the candidate's product with R stays apart
      multiply(w.sums, columns, w.h, gate, count, r, t_.hidden, 2 * gate);
      for (std::int64_t s = 0; s < count; ++s) std::copy(w.bias + columns, w.bias + columns + gate, w.kept + s * gate);
      multiply(w.kept, gate, w.h, gate, count, r + t_.hidden * 2 * gate, t_.hidden, gate);
    } else if (t_.gru()) {
      multiply(w.sums, columns, w.h, gate, count, r, t_.hidden, 2 * gate);
      for (std::int64_t s = 0; s < count; ++s) {
        const float* in[] = {w.sums + s * columns + gate, w.h + s * gate};
        float* out[] = {w.kept + s * gate};
        block(programs.reset, scratch + line(slots_), in, 2, out, 1);
      }
      multiply(w.sums + 2 * gate, columns, w.kept, gate, count, r + t_.hidden * 2 * gate, t_.hidden, gate);
    } else {
      multiply(w.sums, columns, w.h, gate, count, r, t_.hidden, columns);
    }
    for (std::int64_t s = 0; s < count; ++s) {
      if (k >= lengths[s]) continue;  // this sequence has ended
      const float* g = w.sums + s * columns;
      float *h = w.h + s * gate, *c = w.c + s * gate;
      if (t_.lstm()) {
        const float* in[] = {g, g + gate, g + 2 * gate, g + 3 * gate, c, w.p, w.p + gate, w.p + 2 * gate};
        float* out[] = {c, h};
        block(programs.gates, scratch, in, 8, out, 2);
      } else if (t_.gru()) {
        const float* in[] = {g, g + gate, g + 2 * gate, w.kept + s * gate, h};
        float* out[] = {h};
        block(programs.gates, scratch, in, 5, out, 1);
      } else {
        const float* in[] = {g};
        float* out[] = {h};
        block(programs.gates, scratch, in, 1, out, 1);
      }
    }
  }

  /// A program over all units of a gate. A block reads all of its operands before it stores: results may lie where operands do.
  void block(const Code& code, std::byte* slots, const float* const* in, std::size_t loads, float* const* out,
             std::size_t stores) const {
    const BlockCode view = code.view();
    for (std::int64_t j = 0; j < t_.hidden; j += code.block()) {
      Stream from[8], to[2];
      for (std::size_t i = 0; i < loads; ++i)
        from[i] = {reinterpret_cast<std::byte*>(const_cast<float*>(in[i] + j)), 0, 4, nullptr};  // loads only
      for (std::size_t i = 0; i < stores; ++i) to[i] = {reinterpret_cast<std::byte*>(out[i] + j), 0, 4, nullptr};
      const int cols = static_cast<int>(std::min<std::int64_t>(code.block(), t_.hidden - j));
      table_.run_block(view, {1, cols, from, to, reinterpret_cast<std::int32_t*>(slots)});
    }
  }

  const KernelTable& table_;
  const RowKernels& k_;
  Setting t_;
  const float *w_ = nullptr, *r_ = nullptr;
  std::int64_t together_ = 1, groups_ = 1, steps_ = 1;  ///< sequences of a task, tasks a direction, steps of a product with W
  std::size_t slots_ = 0;
};

/// [direction][gate * hidden][k] -> [direction][k * columns]: between two cuts panels, each [k][column of the panel]; unused columns 0.
Result<ir::Tensor> packed_weights(const Constant& weights, const Setting& s, std::int64_t k,
                                  const std::vector<std::int64_t>& cuts) {
  OCTAVO_TRY(const float* from, weights.data<float>("weights"));
  ir::Tensor out(ir::DType::f32, {s.directions, k * s.columns()});
  float* to = out.mutable_data<float>().data();
  for (std::int64_t d = 0; d < s.directions; ++d) {
    for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
      for (std::int64_t begin = cuts[cut]; begin < cuts[cut + 1]; begin += s.panel()) {
        const std::int64_t end = std::min(begin + s.panel(), cuts[cut + 1]);
        for (std::int64_t i = 0; i < k; ++i) {
          for (std::int64_t column = begin; column < end; ++column, ++to) {
            const std::int64_t g = column / s.gate(), j = column % s.gate();
            if (j < s.hidden) *to = from[((d * s.gates + g) * s.hidden + j) * k + i];
          }
        }
      }
    }
  }
  return out;
}

class RecurrentFamily final : public FamilyOf<Setting> {
 public:
  // Version 2: the same sums; weights in panels.
  RecurrentFamily() : FamilyOf({.name = "recurrent.rows", .version = 2}) {}
  std::string name_for(const Region& r) const override {
    return std::string(ir::spelled(only(r).anchor.as<ir::Recurrent>().cell)) + ".rows";
  }
  bool about(const Region& r) const override { return is_one(r, ir::Op::recurrent) && only(r).program.outputs.empty(); }
  Match<Setting> match(const Request& q) const override { return setting_of(q); }
  double cost(const Setting& t, Isa isa) const override {
    const auto runs = static_cast<double>(t.steps * t.batch * t.directions);
    const double products = static_cast<double>(t.columns()) * static_cast<double>(t.inputs + 2 * t.hidden);
    return runs * (products / 16 + static_cast<double>(t.columns()) * 10) * slowdown(isa) * kSecondsPerCycle + 1e-6;
  }
  std::vector<std::int64_t> packed_bytes(const Setting& t) const override {
    return {t.directions * t.w_floats() * 4, t.directions * t.r_floats() * 4};
  }
  Result<std::vector<ir::Tensor>> pack(const Setting& t) const override {
    OCTAVO_TRY(ir::Tensor w, packed_weights(t.w, t, t.inputs, {0, t.columns()}));
    OCTAVO_TRY(ir::Tensor r, packed_weights(t.r, t, t.hidden, t.cuts()));
    return std::vector<ir::Tensor>{std::move(w), std::move(r)};
  }
  std::optional<std::string> layout(const Setting&) const override { return "plain"; }
  Result<std::unique_ptr<Kernel>> load(Setting t, Packed packed) const override {
    return std::make_unique<RecurrentKernel>(std::move(t), packed);
  }
};

}  // namespace

const Family& recurrent_family() {
  static const RecurrentFamily family;
  return family;
}

}  // namespace octavo::cpu
