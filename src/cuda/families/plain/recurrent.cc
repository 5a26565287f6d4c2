// recurrent: RNN, GRU and LSTM. The weights are turned first, so that neighbouring threads read neighbouring rows; then come the products of all inputs, a
// thread an element; then the steps. Of small weights, which stay near, a block takes a direction of a sequence, with all steps. Of others the rows are
// divided among many blocks, and every step is a launch, of a GRU that resets the state before its product two: nothing else lets all blocks wait for each
// other on every GPU. The operations are the reference's in their order, so the bits are the same.
#include <algorithm>

#include "cuda/families/float_function.h"
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

using ir::CellKind;

// Scratch memory: weights W and R, turned; of each direction and sequence two states, c of an LSTM or z of a GRU, and what a GRU keeps of the state; sums of gates,
// where a block has no room for them; the products of all inputs.
constexpr const char* kRecurrentFunctions = R"(
OCTAVO_DEVICE float octavo_clipped(float x) {
  if (kClip > 0.0f) x = octavo_lt(x, -kClip, -kClip, x), x = octavo_lt(kClip, x, kClip, x);
  return x;
}
// sum + `count` products of a vector with a row of turned weights, in the order of the elements; reads of weights are under way while others are used.
template <class Vector>
OCTAVO_DEVICE float octavo_row(const float* weights, const Vector& v, int count, float sum) {
  float ahead[2][32];
  const int whole = count / 32 * 32;
  if (whole > 0) {
    OCTAVO_UNROLL
    for (int q = 0; q < 32; ++q) ahead[0][q] = weights[(long long)q * kRows];
  }
  for (int k = 0; k < whole; k += 64) {
    OCTAVO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = k + 32 * half;
      if (at >= whole) break;
      if (at + 32 < whole) {
        OCTAVO_UNROLL
        for (int q = 0; q < 32; ++q) ahead[1 - half][q] = weights[(long long)(at + 32 + q) * kRows];
      }
      OCTAVO_UNROLL
      for (int q = 0; q < 32; ++q) sum = __fmaf_rn(ahead[half][q], v(at + q), sum);
    }
  }
  for (int k = whole; k < count; ++k) sum = __fmaf_rn(weights[(long long)k * kRows], v(k), sum);
  return sum;
}
// Row `row` of R of direction d times a vector of floats.
OCTAVO_DEVICE float octavo_state(const OctavoTensors& t, int d, int row, const float* v, float sum) {
  return octavo_row((const float*)t.w + kTurnedState + (long long)d * kRows * kHidden + row, [&](int k) { return v[k]; }, kHidden, sum);
}
OCTAVO_DEVICE float octavo_bias(const OctavoTensors& t, int d, int row, int second) {
  return octavo_x3(t, ((long long)d * 2 + second) * kRows + row);
}
OCTAVO_DEVICE float octavo_peephole(const OctavoTensors& t, int d, int row) { return octavo_x7(t, (long long)d * 3 * kHidden + row); }
)";

constexpr const char* kRecurrentTurn = R"(
  const long long row = i % kRows, k = i / kRows % (kInputs + kHidden), d = i / ((long long)kRows * (kInputs + kHidden));
  if (k < kInputs)
    ((float*)t.w)[(d * kInputs + k) * kRows + row] = octavo_x1(t, (d * kRows + row) * kInputs + k);
  else
    ((float*)t.w)[kTurnedState + (d * kHidden + k - kInputs) * kRows + row] = octavo_x2(t, (d * kRows + row) * kHidden + k - kInputs);
)";

// Results of steps that a sequence does not have are 0, and the last state of a sequence without steps is the first one.
constexpr const char* kRecurrentFirst = R"(
  if (i < (long long)kSteps * kDirections * kBatch * kHidden) octavo_put0(t, i, 0.0f);
  if (i >= (long long)kDirections * kBatch * kHidden) return;
  const long long sequence = i / kHidden, j = i % kHidden, d = sequence / kBatch, n = sequence % kBatch;
  const long long state = (kBatchFirst ? n * kDirections + d : d * kBatch + n) * kHidden + j;
  float* const kept = (float*)t.w + kStates + sequence * 4 * kHidden;
  kept[j] = octavo_x5(t, state), kept[2 * kHidden + j] = octavo_x6(t, state);
  octavo_put1(t, state, kept[j]), octavo_put2(t, state, kept[2 * kHidden + j]);
)";

constexpr const char* kRecurrentProducts = R"(
  const long long row = i % kRows, at = i / kRows % kSteps, n = i / ((long long)kRows * kSteps) % kBatch, d = i / ((long long)kRows * kSteps * kBatch);
  const long long x = (kBatchFirst ? n * kSteps + at : at * kBatch + n) * kInputs;
  ((float*)t.w)[kProducts + i] = octavo_row((const float*)t.w + d * kRows * kInputs + row, [&](int k) { return octavo_x0(t, x + k); }, kInputs, 0.0f);
)";

// A block has kUnits elements of the state of one direction of one sequence, with all their gates.
// `first`: c of an LSTM, z of a GRU; `second`: what a GRU keeps of the state.
constexpr const char* kRecurrentBegin = R"(
  __shared__ float near_state[kNearState], near_sums[kNearSums];
  const int mine = octavo_thread(), sequence = octavo_block() / kParts, d = sequence / kBatch, n = sequence % kBatch;
  const int from = octavo_block() % kParts * kUnits;
  float* const kept = (float*)t.w + kStates + (long long)sequence * 4 * kHidden;
  float *const first = kept + 2 * kHidden, *const second = kept + 3 * kHidden;
  float* const sums = kNearSums > 1 ? near_sums : (float*)t.w + kSums + (long long)octavo_block() * kUnits * kGates;
  const bool back = kReverse || d == 1;
  const long long state = (kBatchFirst ? (long long)n * kDirections + d : (long long)d * kBatch + n) * kHidden;
  const long long given = octavo_x4(t, n), length = given < 0 ? 0 : given > kSteps ? kSteps : given;
)";
constexpr const char* kRecurrentStep = R"(
    const long long at = back ? length - 1 - step : step;
    const float* const products = (const float*)t.w + kProducts + ((long long)sequence * kSteps + at) * kRows;
    const long long y = (kBatchFirst ? (n * (long long)kSteps + at) * kDirections + d : (at * kDirections + d) * kBatch + n) * kHidden;
    const float* h = kept + step % 2 * kHidden;
    float* const next = kept + (1 - step % 2) * kHidden;
    (void)y, (void)products, (void)next;
)";
// A copy of the state, or of what stands for it, in shared memory.
constexpr const char* kRecurrentNear = R"(
    const float* v = {of};
    if (kNearState > 1) {{
      for (int j = mine; j < kHidden; j += kBlock) near_state[j] = v[j];
      v = near_state;
    }}
    octavo_barrier();
)";
constexpr const char* kRecurrentSums = R"(
    for (int q = mine; q < kUnits * kSummed; q += kBlock) {
      const int row = q / kUnits * kHidden + from + q % kUnits;
      if (from + q % kUnits >= kHidden) continue;
      sums[q] = kApart && row >= 2 * kHidden ? octavo_state(t, d, row, v, 0.0f) + octavo_bias(t, d, row, 1)
                                             : octavo_state(t, d, row, v, products[row]) + octavo_bias(t, d, row, 0) + octavo_bias(t, d, row, 1);
    }
    octavo_barrier();
)";
constexpr const char* kRecurrentUnits = R"(
    for (int u = mine; u < kUnits && from + u < kHidden; u += kBlock) {
      const int j = from + u;
)";

constexpr const char* kRecurrentRnn = R"(
      next[j] = octavo_act0(d, octavo_clipped(sums[u]));
)";

constexpr const char* kRecurrentGates = R"(
      first[j] = octavo_act0(d, octavo_clipped(sums[u]));
      second[j] = octavo_act0(d, octavo_clipped(sums[kUnits + u])) * h[j];
    }
)";
constexpr const char* kRecurrentCandidate = R"(
    for (int u = mine; u < kUnits && from + u < kHidden; u += kBlock) {
      const int j = from + u, row = 2 * kHidden + j;
      const float s = octavo_state(t, d, row, v, products[row]) + octavo_bias(t, d, row, 0) + octavo_bias(t, d, row, 1);
      const float candidate = octavo_act1(d, octavo_clipped(s));
      next[j] = (1.0f - first[j]) * candidate + first[j] * h[j];
)";
constexpr const char* kRecurrentApart = R"(
      const int row = 2 * kHidden + j;
      const float z = octavo_act0(d, octavo_clipped(sums[u])), reset = octavo_act0(d, octavo_clipped(sums[kUnits + u]));
      first[j] = z;
      const float s = products[row] + reset * sums[2 * kUnits + u] + octavo_bias(t, d, row, 0);
      const float candidate = octavo_act1(d, octavo_clipped(s));
      next[j] = (1.0f - z) * candidate + z * h[j];
)";

// What an element of an LSTM's state needs beside its gates: c and three peepholes, read while others compute sums, where a thread has one element.
constexpr const char* kRecurrentAhead = R"(
    float ahead[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (kBlock >= kUnits && mine < kUnits && from + mine < kHidden) octavo_read_ahead(ahead, t, d, from + mine, first);
)";
constexpr const char* kRecurrentReadAhead = R"(
OCTAVO_DEVICE void octavo_read_ahead(float (&a)[4], const OctavoTensors& t, int d, int j, const float* c) {
  a[0] = c[j], a[1] = octavo_peephole(t, d, j), a[2] = octavo_peephole(t, d, kHidden + j), a[3] = octavo_peephole(t, d, 2 * kHidden + j);
}
)";
// Peepholes are added in front of the clipping.
constexpr const char* kRecurrentLstm = R"(
      if (kBlock < kUnits) octavo_read_ahead(ahead, t, d, j, first);
      const float c = ahead[0];
      const float i = octavo_act0(d, octavo_clipped(sums[u] + ahead[1] * c));
      const float f = kInputForget ? 1.0f - i : octavo_act0(d, octavo_clipped(sums[2 * kUnits + u] + ahead[3] * c));
      const float g = octavo_act1(d, octavo_clipped(sums[3 * kUnits + u]));
      const float state_of = f * c + i * g;
      const float o = octavo_act0(d, octavo_clipped(sums[kUnits + u] + ahead[2] * state_of));
      next[j] = o * octavo_act2(d, state_of);
      first[j] = state_of;
)";

constexpr const char* kRecurrentEnd = R"(
      octavo_put0(t, y + j, next[j]);
      if (step == length - 1) octavo_put1(t, state + j, next[j]), octavo_put2(t, state + j, first[j]);
    }
)";

int functions_of(CellKind kind) {
  return kind == CellKind::lstm ? 3 : kind == CellKind::gru ? 2 : 1;
}
int gates_of(CellKind kind) {
  return kind == CellKind::lstm ? 4 : kind == CellKind::gru ? 3 : 1;
}

std::string activation(const std::string& name, const ir::CellActivation& a) {
  return float_function(name, [&](auto& m, int x) {
    if (const auto unary = ir::unary_of(a)) return program::unary(m, unary->first, unary->second, x);
    if (a.function == ir::CellFunction::scaled_tanh)
      return m.mul(m.imm(a.alpha), program::unary(m, ir::Op::tanh, {}, m.mul(m.imm(a.beta), x)));
    if (a.function == ir::CellFunction::thresholded_relu) return m.sel_lt(m.imm(a.alpha), x, x, m.imm(0.0F));
    return m.fma(m.imm(a.alpha), x, m.imm(a.beta));  // affine
  });
}

struct Sizes {
  std::int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1;
};

class RecurrentFamily final : public PlainFamily {
 public:
  RecurrentFamily() : PlainFamily("recurrent", {ir::Op::recurrent}, 8) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    OCTAVO_TRY(const Sizes z, sizes(s));
    const bool first = s.anchor.as<ir::Recurrent>().layout;
    const ir::Shape last = first ? ir::Shape{z.batch, z.directions, z.hidden} : ir::Shape{z.directions, z.batch, z.hidden};
    return std::vector<ir::Shape>{
        first ? ir::Shape{z.batch, z.steps, z.directions, z.hidden} : ir::Shape{z.steps, z.directions, z.batch, z.hidden}, last,
        last};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::Recurrent>();
    OCTAVO_TRY(const Sizes z, sizes(s));
    if (z.hidden * 4 * std::max(z.inputs, z.hidden) >= (std::int64_t{1} << 31))
      return refuse("elements of the weights", z.hidden, "fewer");
    const int functions = functions_of(facts.cell);
    const std::vector<ir::CellActivation> all = ir::activations_of(facts);
    if (static_cast<std::int64_t>(all.size()) < functions * z.directions)
      return fail(ErrorKind::bad_engine, fmt::format("recurrent: {} activations", all.size()));
    const std::int64_t rows = gates_of(facts.cell) * z.hidden, blocks = z.directions * z.batch;
    // The products of a GRU's candidate with the state apart from those with the input; or after the others.
    const bool gru = facts.cell == CellKind::gru, apart = gru && facts.linear_before_reset;
    const bool two = gru && !apart;
    // Weights that stay in the first cache of a multiprocessor, and more steps than launches should be: a block has all steps.
    constexpr std::int64_t kNearWeights = 192 * 1024, kMostLaunches = 4096, kNearFloats = 4096;
    const bool whole = 4 * rows * z.hidden <= kNearWeights || z.steps * (two ? 2 : 1) > kMostLaunches;
    const std::int64_t summed = gates_of(facts.cell) - (two ? 1 : 0);
    const std::int64_t units = whole ? z.hidden : facts.cell == CellKind::lstm ? 8 : 16, divided = parts(z.hidden, units);
    const std::int64_t inputs = z.directions * rows * z.inputs, turned = inputs + z.directions * rows * z.hidden;
    const std::int64_t states = turned + blocks * 4 * z.hidden, sums = states + blocks * divided * units * gates_of(facts.cell);
    const auto block = static_cast<int>(std::min<std::int64_t>(up(units * summed, 32), 1024));
    PlainText t;
    t.functions = fmt::format(
        "constexpr int kBlock = {}, kSteps = {}, kBatch = {}, kInputs = {}, kHidden = {}, kDirections = {}, kRows = {}, kSummed = "
        "{}, kUnits = {}, kParts = {}, kGates = {}, kNearState = {}, kNearSums = {};\n"
        "constexpr long long kTurnedState = {}, kStates = {}, kSums = {}, kProducts = {};\nconstexpr bool kBatchFirst = {}, "
        "kReverse = {}, "
        "kApart = {}, kInputForget = {};\n#define kClip {}\n",
        block, z.steps, z.batch, z.inputs, z.hidden, z.directions, rows, summed, units, divided, gates_of(facts.cell),
        z.hidden <= kNearFloats ? z.hidden : 1, units * summed <= kNearFloats ? std::max<std::int64_t>(units * summed, 2) : 1,
        inputs, turned, states, sums, facts.layout, facts.direction == ir::Direction::reverse, apart, facts.input_forget,
        float_text(static_cast<float>(facts.clip)));
    t.functions += std::string(kRecurrentFunctions) + kRecurrentReadAhead;
    for (int f = 0; f < functions; ++f) {
      for (std::int64_t d = 0; d < z.directions; ++d)
        t.functions += activation(fmt::format("octavo_act{}_{}", f, d), all[static_cast<std::size_t>(d * functions + f)]);
      t.functions += fmt::format(
          "OCTAVO_DEVICE float octavo_act{0}(int d, float x) {{ return d == {1} ? octavo_act{0}_{1}(x) : "
          "octavo_act{0}_0(x); }}\n",
          f, z.directions - 1);
    }
    const std::string near_state = fmt::format(kRecurrentNear, fmt::arg("of", "h"));
    const std::string near_reset = fmt::format(kRecurrentNear, fmt::arg("of", "second"));
    const char* cell = facts.cell == CellKind::lstm ? kRecurrentLstm : gru ? kRecurrentApart : kRecurrentRnn;
    // The step, or both parts of it, with a barrier where all threads of a block have it between them.
    const bool lstm = facts.cell == CellKind::lstm;
    std::vector<std::string> steps{near_state + (lstm ? kRecurrentAhead : "") + kRecurrentSums + kRecurrentUnits};
    if (two) {
      steps[0] += kRecurrentGates;
      steps.push_back(near_reset + kRecurrentCandidate + kRecurrentEnd);
    } else {
      steps[0] += std::string(cell) + kRecurrentEnd;
    }
    const PlainPass turn{kRecurrentTurn, z.directions * rows * (z.inputs + z.hidden)};
    const PlainPass first{kRecurrentFirst, std::max<std::int64_t>(z.steps, 1) * blocks * z.hidden};
    const PlainPass products{kRecurrentProducts, blocks * z.steps * rows};
    t.passes = {turn, first, products};
    PlainPass run{"", blocks * divided * block, block, true};
    if (whole) {
      run.body = std::string(kRecurrentBegin) + "  for (long long step = 0; step < length; ++step) {\n" + kRecurrentStep +
                 "    {\n" + steps[0] + "    }\n    octavo_barrier();\n" +
                 (two ? "    {\n" + steps[1] + "    }\n    octavo_barrier();\n" : "") + "  }\n";
    } else {
      run.turns = static_cast<int>(z.steps * (two ? 2 : 1));
      run.body = std::string(run.turns == 1 ? "  constexpr int turn = 0;\n" : "") + kRecurrentBegin +
                 fmt::format("  const long long step = turn / {};\n  if (step >= length) return;\n", two ? 2 : 1) + kRecurrentStep;
      run.body += two ? "    if (turn % 2 == 0) {\n" + steps[0] + "    } else {\n" + steps[1] + "    }\n" : steps[0];
    }
    if (z.steps > 0) t.passes.push_back(run);
    t.scratch_bytes = 4 * (sums + blocks * z.steps * rows);
    t.work = static_cast<double>(blocks * z.steps * rows * (z.inputs + z.hidden));
    t.chain = static_cast<double>(z.steps * z.hidden) / 16;
    return t;
  }

 private:
  static Result<Sizes> sizes(const Stage& s) {
    const auto& facts = s.anchor.as<ir::Recurrent>();
    const auto dims = [&](std::size_t k) -> const ir::Shape& { return s.anchor.inputs[k].dims; };
    Sizes z;
    z.directions = facts.direction == ir::Direction::bidirectional ? 2 : 1;
    const auto bad = [&] {
      return fail(ErrorKind::bad_engine, fmt::format("recurrent: {} with weights of {} and {}", ir::to_string(dims(0)),
                                                     ir::to_string(dims(1)), ir::to_string(dims(2))));
    };
    if (dims(0).size() != 3 || dims(2).size() != 3) return bad();
    z.steps = dims(0)[facts.layout ? 1 : 0], z.batch = dims(0)[facts.layout ? 0 : 1], z.inputs = dims(0)[2], z.hidden = dims(2)[2];
    const std::int64_t rows = gates_of(facts.cell) * z.hidden, states = z.directions * z.batch * z.hidden;
    const bool fits = dims(1) == ir::Shape{z.directions, rows, z.inputs} && dims(2) == ir::Shape{z.directions, rows, z.hidden} &&
                      dims(3) == ir::Shape{z.directions, 2 * rows} && dims(4) == ir::Shape{z.batch} &&
                      ir::count(dims(5)) == states && ir::count(dims(6)) == states &&
                      ir::count(dims(7)) == z.directions * 3 * z.hidden && !reads_floats(s.anchor.inputs[4]);
    if (!fits) return bad();
    return z;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(recurrent, RecurrentFamily)

}  // namespace octavo::cuda
