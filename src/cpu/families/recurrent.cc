// cpu.{lstm,gru,rnn}.rows.<isa>: recurrent layers with constant weights. W and R are packed in panels of hidden units, the columns of a unit's gates side by
// side, so that a worker of a team (cpu/team.h) takes whole units: their products, their gates and their results. Products with W are taken for many steps
// at once, so that only R is read again at each step and stays in cache, a part of it in each worker's. What the gates compute from their sums are programs
// (recurrent_cell.h). Sums begin with the biases and are taken in another order than the reference's: floats within the tolerance of docs/semantics.md.
// One kernel, past 400 lines: its phases share the team's scratch.
#include <algorithm>
#include <cstring>

#include "cpu/constant.h"
#include "cpu/families/recurrent_cell.h"
#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "cpu/team.h"
#include "region/store_results.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMostSequences = 4;   // of a task, side by side
constexpr std::int64_t kMostSteps = 96;      // whose products with W are taken together: whole groups of rows of `multiply`
constexpr std::int64_t kMostSums = 1 << 18;  // floats of those products, of all sequences of a task
constexpr std::int64_t kLeastProducts =
    16384;  // of a step for each worker of a team: less takes as long as waiting for one another
enum Input : std::size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };
/// Parts of a step that a team takes one after the other.
enum What : int { kProductsWithW = 1, kStep = 2, kCandidate = 3 };

struct RecurrentSetting {
  std::vector<region::TensorRef> in = {};
  std::vector<std::pair<std::size_t, region::TensorRef>> stores = {};  ///< with the result that each takes
  Constant w = {}, r = {};
  ir::Recurrent facts = {};
  Isa isa = Isa::portable;
  int threads = 1;
  ir::CellKind cell = ir::CellKind::rnn;
  std::int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1, gates = 1;
  bool batch_first = false, reverse = false, before_reset = false;
  [[nodiscard]] bool lstm() const { return cell == ir::CellKind::lstm; }
  [[nodiscard]] bool gru() const { return cell == ir::CellKind::gru; }
  [[nodiscard]] bool resets_before() const { return gru() && !before_reset; }
  [[nodiscard]] bool resets_behind() const { return gru() && before_reset; }
  [[nodiscard]] std::int64_t rows() const { return gates * hidden; }
  /// Units with those that fill the last vector.
  [[nodiscard]] std::int64_t units() const { return padded_to(hidden, kColumns); }
  /// Units of a panel: as many as divide them and have accumulators for all gates in products of one row.
  [[nodiscard]] std::int64_t panel() const {
    const std::int64_t most = isa >= Isa::avx512 ? 8 * kColumns : isa >= Isa::avx2 ? 4 * kColumns : kColumns;
    std::int64_t n = most;
    while (n > kColumns && (units() % n != 0 || gates * n > most)) n /= 2;
    return n;
  }
  [[nodiscard]] std::int64_t panels() const { return units() / panel(); }
  /// Columns of a panel in the sums of a step, gate by gate. A GRU that resets behind the product has the candidate's product with R before that with W.
  [[nodiscard]] std::int64_t sums() const { return (gates + (resets_behind() ? 1 : 0)) * panel(); }
  [[nodiscard]] std::int64_t columns() const { return panels() * sums(); }
  [[nodiscard]] CellShape shape() const { return {units(), panel(), sums()}; }
  [[nodiscard]] std::int64_t w_floats() const { return inputs * gates * units(); }
  [[nodiscard]] std::int64_t r_floats() const { return hidden * gates * units(); }
  /// Gates whose columns of R lie side by side; the others' follow in panels of their own.
  [[nodiscard]] std::int64_t first_gates() const { return resets_before() ? 2 : gates; }
};

Result<RecurrentSetting> recurrent_setting(const Request& q) {
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
  RecurrentSetting t{a.inputs, {},          Constant(a.inputs[kW], plan), Constant(a.inputs[kR], plan), a.as<ir::Recurrent>(),
                     q.isa,    plan.threads};
  const ir::Recurrent& facts = t.facts;
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
  return t;
}

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(RecurrentSetting setting, std::vector<Cell> cells, Packed packed)
      : k_(row_kernels(setting.isa)), t_(std::move(setting)), cells_(std::move(cells)) {
    w_ = reinterpret_cast<const float*>(packed[0].data());
    r_ = reinterpret_cast<const float*>(packed[1].data());
    steps_ = std::clamp<std::int64_t>(kMostSums / t_.columns() / kMostSequences / 12 * 12, 12, kMostSteps);
    steps_ = std::min(steps_, std::max<std::int64_t>(t_.steps, 1));
    const std::int64_t threads = std::max(t_.threads, 1);
    together_ = std::clamp<std::int64_t>(t_.batch * t_.directions / threads, 1, kMostSequences);
    groups_ = (t_.batch + together_ - 1) / together_;
    if (const std::int64_t each = groups_ * t_.directions; each > 0 && t_.steps > 1 && t_.steps < Team::kMostSteps) {
      const std::int64_t worth = together_ * t_.r_floats() / kLeastProducts;
      team_ = static_cast<int>(
          std::clamp<std::int64_t>(std::min({threads / each, worth, t_.panels(), std::int64_t{Team::kMost}}), 1, threads));
    }
    for (const Cell& c : cells_)
      slots_ = std::max({slots_, line(c.gates.scratch_bytes()), c.reset ? line(c.reset->scratch_bytes()) : 0});
  }

  int tasks() const override { return static_cast<int>(std::max<std::int64_t>(1, groups_ * t_.directions)) * team_; }
  std::size_t scratch_bytes() const override { return 2 * slots_ + line(x_floats() * 4) + state(nullptr).bytes; }
  std::size_t shared_bytes() const override {
    return team_ == 1 ? 0 : static_cast<std::size_t>(groups_ * t_.directions) * each_shared();
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const bool valid = lengths_valid(memory);
    for (int t = task_begin, next = t; t < task_end; t = next) {
      const std::int64_t group = t / team_;
      next = std::min(task_end, static_cast<int>(group + 1) * team_);
      if (group >= groups_ * t_.directions) continue;
      std::byte* shared = worker.shared == nullptr ? nullptr : worker.shared + static_cast<std::size_t>(group) * each_shared();
      Part part(*this, memory, worker.scratch, team_ == 1 || shared == nullptr ? nullptr : shared + Team::bytes(), group, valid);
      if (team_ == 1 || shared == nullptr) {
        if (t == group * team_) sequences(part, [&](int what, std::int64_t k) { take(part, what, k, 0, 1); });
        continue;
      }
      Team team(shared, team_);
      const auto body = [&](int what, std::int64_t k, int member, int members) { take(part, what, k, member, members); };
      if (const int member = team.join(); member > 0) {
        team.help(member, body);
      } else {
        sequences(part, [&](int what, std::int64_t k) { team.together(what, k, body); });
        team.end();
      }
      team.leave(next - t);
    }
  }

 private:
  /// What the workers of a team see.
  struct State {
    float *h[2], *c, *kept, *xw, *bias, *p;
    std::size_t bytes;
  };
  [[nodiscard]] State state(std::byte* at) const {
    State s{};
    const auto next = [&](std::int64_t n) {
      auto* p = reinterpret_cast<float*>(at + s.bytes);
      s.bytes += line(static_cast<std::size_t>(n) * 4);
      return p;
    };
    const std::int64_t units = t_.units();
    s.h[0] = next(together_ * units);
    s.h[1] = next(together_ * units);
    s.c = next(together_ * units);
    s.kept = next(together_ * units);
    s.xw = next(together_ * steps_ * t_.columns());
    s.bias = next(t_.columns());
    s.p = next(3 * units);
    return s;
  }
  [[nodiscard]] std::size_t each_shared() const { return Team::bytes() + state(nullptr).bytes; }
  [[nodiscard]] std::size_t x_floats() const { return static_cast<std::size_t>(steps_ * t_.inputs); }

  /// One worker's view of the sequences first..first+count-1 of direction d.
  struct Part {
    const Memory& memory;
    State state;
    std::int64_t d, first, count, lengths[kMostSequences] = {}, longest = 0;
    bool valid, back;
    std::byte *slots, *reset_slots;
    float* x;
    Memory cell;  ///< CellBuffer

    Part(const RecurrentKernel& k, const Memory& m, std::byte* scratch, std::byte* shared, std::int64_t group, bool lengths_fit)
        : memory(m), d(group / k.groups_), first(group % k.groups_ * k.together_), valid(lengths_fit) {
      count = std::min(k.together_, k.t_.batch - first);
      back = k.t_.reverse || d == 1;
      slots = scratch, reset_slots = scratch + k.slots_;
      x = reinterpret_cast<float*>(scratch + 2 * k.slots_);
      state = k.state(shared != nullptr ? shared : scratch + 2 * k.slots_ + line(k.x_floats() * 4));
      for (std::int64_t s = 0; s < count && valid; ++s) {
        lengths[s] = k.length_of(memory, first + s);
        longest = std::max(longest, lengths[s]);
      }
      const Cell& c = k.cells_[static_cast<std::size_t>(d)];
      c.gates.prepare(slots);
      if (c.reset) c.reset->prepare(reset_slots);
      cell.base.resize(kCellBuffers);
    }
  };

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
  /// Units begin..end-1 of a state or of a step's result; from null: zeros.
  void store(const Memory& memory, const region::TensorRef& t, std::int64_t at, const float* from, std::int64_t begin,
             std::int64_t end) const {
    auto* to = reinterpret_cast<float*>(memory.at(t)) + at;
    const std::int64_t step = t.strides.back();
    end = std::min(end, t_.hidden);
    if (step == 1 && from != nullptr && begin < end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * 4);
      return;
    }
    for (std::int64_t j = begin; j < end; ++j) to[j * step] = from == nullptr ? 0.0F : from[j];
  }

  /// From the first step to the last. `all(what, step)` has the team take something.
  template <class All>
  void sequences(Part& w, const All& all) const {
    const std::int64_t units = t_.units();
    std::memset(w.state.h[0], 0, static_cast<std::size_t>(w.count * units) * 4);
    std::memset(w.state.c, 0, static_cast<std::size_t>(w.count * units) * 4);
    parameters(w);
    for (std::int64_t s = 0; s < w.count && w.valid; ++s) {
      const auto take = [&](Input i, float* to) {
        const float* from = floats(w.memory, t_.in[i]) + state_at(t_.in[i], w.d, w.first + s);
        for (std::int64_t j = 0; j < t_.hidden; ++j) to[j] = from[j * t_.in[i].strides[2]];
      };
      take(kH0, w.state.h[0] + s * units);
      if (t_.lstm()) take(kC0, w.state.c + s * units);
    }
    for (std::int64_t k = 0; k < w.longest; ++k) {
      if (k % steps_ == 0) all(kProductsWithW, k);
      all(kStep, k);
      if (t_.resets_before()) all(kCandidate, k);
    }
    const float* h = w.state.h[w.longest % 2];
    for (std::int64_t s = 0; s < w.count; ++s) {
      for (const auto& [result, ref] : t_.stores) {
        for (std::int64_t k = w.lengths[s]; result == 0 && k < t_.steps; ++k)
          store(w.memory, ref, result_at(ref, w.d, w.first + s, k), nullptr, 0, units);
        const float* last = result == 1 ? h : w.state.c;
        if (result != 0) store(w.memory, ref, state_at(ref, w.d, w.first + s), w.valid ? last + s * units : nullptr, 0, units);
      }
    }
  }

  /// Biases, which sums begin with: of W and R together but for the candidate of a GRU that resets behind the product. And the weights of the state in the
  /// gates.
  void parameters(const Part& w) const {
    const region::TensorRef &b = t_.in[kB], &p = t_.in[kP];
    const float* from = floats(w.memory, b) + w.d * b.strides[0];
    const float* peephole = floats(w.memory, p) + w.d * p.strides[0];
    std::fill(w.state.bias, w.state.bias + t_.columns(), 0.0F);
    std::fill(w.state.p, w.state.p + 3 * t_.units(), 0.0F);
    const std::int64_t panel = t_.panel();
    for (std::int64_t g = 0; g < t_.gates; ++g) {
      for (std::int64_t j = 0; j < t_.hidden; ++j) {
        const float of_w = from[(g * t_.hidden + j) * b.strides[1]], of_r = from[(t_.rows() + g * t_.hidden + j) * b.strides[1]];
        float* to = w.state.bias + j / panel * t_.sums() + g * panel + j % panel;
        if (t_.resets_behind() && g == 2) {
          to[0] = of_r, to[panel] = of_w;
        } else {
          *to = of_w + of_r;
        }
        if (g < 3 && t_.lstm()) w.state.p[g * t_.units() + j] = peephole[(g * t_.hidden + j) * p.strides[1]];
      }
    }
  }

  /// A member's panels of something.
  void take(Part& w, int what, std::int64_t k, int member, int members) const {
    const std::int64_t begin = t_.panels() * member / members, end = t_.panels() * (member + 1) / members;
    if (what == kProductsWithW) {
      for (std::int64_t s = 0; s < w.count; ++s) products_with_w(w, s, k, begin, end);
    } else if (what == kStep) {
      step(w, k, begin, end);
    } else {
      candidate(w, k, begin, end);
    }
  }

  /// Biases and products with W of the next steps of the s-th sequence.
  void products_with_w(const Part& w, std::int64_t s, std::int64_t k, std::int64_t begin, std::int64_t end) const {
    const std::int64_t rows = std::min(steps_, w.lengths[s] - k), columns = t_.columns(), panel = t_.panel(), n = t_.gates * panel;
    if (rows <= 0) return;
    const region::TensorRef& x = t_.in[kX];
    std::int64_t step = x.strides[t_.batch_first ? 1 : 0];
    const float* from =
        floats(w.memory, x) + (w.first + s) * x.strides[t_.batch_first ? 0 : 1] + (w.back ? w.lengths[s] - 1 - k : k) * step;
    if (w.back) step = -step;
    if (x.strides[2] != 1) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < t_.inputs; ++j) w.x[i * t_.inputs + j] = from[i * step + j * x.strides[2]];
      }
      from = w.x, step = t_.inputs;
    }
    for (std::int64_t p = begin; p < end; ++p) {
      float* to = w.state.xw + s * steps_ * columns + p * t_.sums();
      const float* bias = w.state.bias + p * t_.sums();
      for (std::int64_t i = 0; i < rows; ++i) std::copy(bias, bias + t_.sums(), to + i * columns);
      const float* m = w_ + w.d * t_.w_floats() + p * t_.inputs * n;
      const std::int64_t first = t_.resets_behind() ? 2 * panel : n;  // between them is the candidate's product with R
      k_.multiply(to, columns, from, step, rows, m, n, t_.inputs, first);
      if (first < n) k_.multiply(to + first + panel, columns, from, step, rows, m + first, n, t_.inputs, panel);
    }
  }

  void step(Part& w, std::int64_t k, std::int64_t begin, std::int64_t end) const {
    const std::int64_t units = t_.units(), columns = t_.columns(), n = t_.first_gates() * t_.panel();
    float* sums = w.state.xw + k % steps_ * columns;
    const float* r = r_ + w.d * t_.r_floats();
    for (std::int64_t p = begin; p < end; ++p)
      k_.multiply(sums + p * t_.sums(), steps_ * columns, w.state.h[k % 2], units, w.count, r + p * t_.hidden * n, n, t_.hidden, n);
    if (!t_.resets_before()) return gates(w, k, begin, end);
    for (std::int64_t s = 0; s < w.count; ++s) {
      place(w, s, k);
      cells_[static_cast<std::size_t>(w.d)].reset->run(w.cell, w.reset_slots, begin, end);
    }
  }

  /// Of a GRU that resets before the product.
  void candidate(Part& w, std::int64_t k, std::int64_t begin, std::int64_t end) const {
    const std::int64_t columns = t_.columns(), panel = t_.panel();
    float* sums = w.state.xw + k % steps_ * columns;
    const float* r = r_ + w.d * t_.r_floats() + t_.hidden * 2 * t_.units();
    for (std::int64_t p = begin; p < end; ++p)
      k_.multiply(sums + p * t_.sums() + 2 * panel, steps_ * columns, w.state.kept, t_.units(), w.count, r + p * t_.hidden * panel,
                  panel, t_.hidden, panel);
    gates(w, k, begin, end);
  }

  void gates(Part& w, std::int64_t k, std::int64_t begin, std::int64_t end) const {
    const std::int64_t units = t_.units(), from = begin * t_.panel(), to = end * t_.panel();
    for (std::int64_t s = 0; s < w.count; ++s) {
      float *h = w.state.h[k % 2] + s * units, *next = w.state.h[(k + 1) % 2] + s * units;
      if (k >= w.lengths[s]) {  // this sequence has ended
        std::copy(h + from, h + to, next + from);
        continue;
      }
      place(w, s, k);
      cells_[static_cast<std::size_t>(w.d)].gates.run(w.cell, w.slots, begin, end);
      const std::int64_t at = w.back ? w.lengths[s] - 1 - k : k;
      for (const auto& [result, ref] : t_.stores) {
        if (result == 0) store(w.memory, ref, result_at(ref, w.d, w.first + s, at), next, from, to);
      }
    }
  }

  /// What the programs read and write at step k of the s-th sequence.
  void place(Part& w, std::int64_t s, std::int64_t k) const {
    const std::int64_t units = t_.units();
    const auto set = [&](CellBuffer b, float* at) { w.cell.base[b] = reinterpret_cast<std::byte*>(at); };
    set(kSums, w.state.xw + (s * steps_ + k % steps_) * t_.columns());
    set(kCell, w.state.c + s * units);
    set(kPeepholes, w.state.p);
    set(kBefore, w.state.h[k % 2] + s * units);
    set(kAfter, w.state.h[(k + 1) % 2] + s * units);
    set(kKept, w.state.kept + s * units);
  }

  const RowKernels& k_;
  RecurrentSetting t_;
  std::vector<Cell> cells_;  ///< by direction
  const float *w_ = nullptr, *r_ = nullptr;
  std::int64_t together_ = 1, groups_ = 1, steps_ = 1;  ///< sequences of a task, tasks a direction, steps of a product with W
  int team_ = 1;                                        ///< workers that take the steps of these sequences together, at most
  std::size_t slots_ = 0;
};

/// [direction][gate * hidden][k] -> [direction][k * columns]: gates before `cut` in panels [k][gate][unit of the panel], then the others; unused columns 0.
Result<ir::Tensor> packed_weights(const Constant& weights, const RecurrentSetting& s, std::int64_t k, std::int64_t cut) {
  OCTAVO_TRY(const float* from, weights.data<float>("weights"));
  ir::Tensor out(ir::DType::f32, {s.directions, k * s.gates * s.units()});
  float* to = out.mutable_data<float>().data();
  for (std::int64_t d = 0; d < s.directions; ++d) {
    for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, s.gates}}) {
      for (std::int64_t unit = 0; unit < s.units() && first < last; unit += s.panel()) {
        for (std::int64_t i = 0; i < k; ++i) {
          for (std::int64_t g = first; g < last; ++g) {
            for (std::int64_t j = unit; j < unit + s.panel(); ++j, ++to) {
              if (j < s.hidden) *to = from[((d * s.gates + g) * s.hidden + j) * k + i];
            }
          }
        }
      }
    }
  }
  return out;
}

class RecurrentFamily final : public FamilyOf<RecurrentSetting> {
 public:
  // Version 3: the same sums; weights in panels of units.
  RecurrentFamily() : FamilyOf({.name = "recurrent.rows", .version = 3, .about = {{ir::Op::recurrent}, 0, Results::raw}}) {}
  std::string name_for(const Region& r) const override {
    return std::string(ir::spelled(only(r).anchor.as<ir::Recurrent>().cell)) + ".rows";
  }
  Match<RecurrentSetting> match(const Request& q) const override { return recurrent_setting(q); }
  double cost(const RecurrentSetting& t, Isa isa) const override {
    const auto runs = static_cast<double>(t.steps * t.batch * t.directions);
    const double products = static_cast<double>(t.gates * t.units()) * static_cast<double>(t.inputs + 2 * t.hidden);
    return runs * (products / 16 + static_cast<double>(t.gates * t.units()) * 10) * slowdown(isa) * kSecondsPerCycle + 1e-6;
  }
  std::vector<std::int64_t> packed_bytes(const RecurrentSetting& t) const override {
    return {t.directions * t.w_floats() * 4, t.directions * t.r_floats() * 4};
  }
  Result<std::vector<ir::Tensor>> pack(const RecurrentSetting& t) const override {
    OCTAVO_TRY(ir::Tensor w, packed_weights(t.w, t, t.inputs, t.gates));
    OCTAVO_TRY(ir::Tensor r, packed_weights(t.r, t, t.hidden, t.first_gates()));
    return std::vector<ir::Tensor>{std::move(w), std::move(r)};
  }
  std::optional<std::string> layout(const RecurrentSetting&) const override { return "plain"; }
  Result<std::unique_ptr<Kernel>> load(RecurrentSetting t, Packed packed) const override {
    std::vector<Cell> cells;
    for (std::size_t direction = 0; direction < static_cast<std::size_t>(t.directions); ++direction) {
      OCTAVO_TRY(Cell cell, cell_of(t.facts, direction, t.shape(), t.isa));
      cells.push_back(std::move(cell));
    }
    return std::make_unique<RecurrentKernel>(std::move(t), std::move(cells), packed);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(recurrent, RecurrentFamily)

}  // namespace octavo::cpu
