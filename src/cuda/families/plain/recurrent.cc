// recurrent: RNN, GRU and LSTM. The products of all inputs first, a thread an element; then step by step a block for each direction of each sequence, whose
// threads share the sums of the gates, and then the elements of the state. The operations are the reference's in their order, so the bits are the same.
#include <algorithm>

#include "cuda/families/float_function.h"
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

using ir::CellKind;

constexpr const char* kRecurrentFunctions = R"(
OCTAVO_DEVICE float octavo_clipped(float x) {
  if (kClip > 0.0f) x = octavo_lt(x, -kClip, -kClip, x), x = octavo_lt(kClip, x, kClip, x);
  return x;
}
// sum + row `row` of W (of R) of direction d times the input (the state) v.
OCTAVO_DEVICE float octavo_input(const OctavoTensors& t, int d, int row, long long x, float sum) {
  for (int k = 0; k < kInputs; ++k) sum = __fmaf_rn(octavo_x1(t, ((long long)d * kRows + row) * kInputs + k), octavo_x0(t, x + k), sum);
  return sum;
}
OCTAVO_DEVICE float octavo_state(const OctavoTensors& t, int d, int row, const float* v, float sum) {
  for (int k = 0; k < kHidden; ++k) sum = __fmaf_rn(octavo_x2(t, ((long long)d * kRows + row) * kHidden + k), v[k], sum);
  return sum;
}
OCTAVO_DEVICE float octavo_bias(const OctavoTensors& t, int d, int row, int second) {
  return octavo_x3(t, ((long long)d * 2 + second) * kRows + row);
}
OCTAVO_DEVICE float octavo_peephole(const OctavoTensors& t, int d, int row) { return octavo_x7(t, (long long)d * 3 * kHidden + row); }
)";

// Scratch memory: of each block the state, the next one, two more vectors of this length, and the sums of the gates; then the products of all inputs, of each
// block and step.
constexpr const char* kRecurrentProducts = R"(
  const long long row = i % kRows, at = i / kRows % kSteps, n = i / ((long long)kRows * kSteps) % kBatch, d = i / ((long long)kRows * kSteps * kBatch);
  const long long x = (kBatchFirst ? n * kSteps + at : at * kBatch + n) * kInputs;
  ((float*)t.w)[kStates + i] = octavo_input(t, (int)d, (int)row, x, 0.0f);
)";

// `first`: c of an LSTM, z of a GRU; `second`: what a GRU keeps of the state.
constexpr const char* kRecurrentBegin = R"(
  const int mine = octavo_thread(), d = octavo_block() / kBatch, n = octavo_block() % kBatch;
  float* h = (float*)t.w + (long long)octavo_block() * (4 * kHidden + kRows);
  float* next = h + kHidden;
  float *const first = h + 2 * kHidden, *const second = h + 3 * kHidden, *const sums = h + 4 * kHidden;
  const bool back = kReverse || d == 1;
  const long long state = (kBatchFirst ? (long long)n * kDirections + d : (long long)d * kBatch + n) * kHidden;
  const long long given = octavo_x4(t, n), length = given < 0 ? 0 : given > kSteps ? kSteps : given;
  for (int j = mine; j < kHidden; j += kBlock) h[j] = octavo_x5(t, state + j), first[j] = octavo_x6(t, state + j);
  octavo_barrier();
  for (long long step = 0; step < length; ++step) {
    const long long at = back ? length - 1 - step : step;
    const float* const products = (const float*)t.w + kStates + ((long long)octavo_block() * kSteps + at) * kRows;
    const long long y = (kBatchFirst ? (n * (long long)kSteps + at) * kDirections + d : (at * kDirections + d) * kBatch + n) * kHidden;
    for (int row = mine; row < kSummed; row += kBlock) {
      sums[row] = kApart && row >= 2 * kHidden
                      ? octavo_state(t, d, row, h, 0.0f) + octavo_bias(t, d, row, 1)
                      : octavo_state(t, d, row, h, products[row]) + octavo_bias(t, d, row, 0) + octavo_bias(t, d, row, 1);
    }
    octavo_barrier();
)";

constexpr const char* kRecurrentRnn = R"(
    for (int j = mine; j < kHidden; j += kBlock) next[j] = octavo_act0(d, octavo_clipped(sums[j]));
)";

constexpr const char* kRecurrentGru = R"(
    for (int j = mine; j < kHidden; j += kBlock) {
      first[j] = octavo_act0(d, octavo_clipped(sums[j]));
      const float reset = octavo_act0(d, octavo_clipped(sums[kHidden + j]));
      second[j] = kApart ? reset : reset * h[j];
    }
    octavo_barrier();
    for (int j = mine; j < kHidden; j += kBlock) {
      const int row = 2 * kHidden + j;
      const float s = kApart ? products[row] + second[j] * sums[row] + octavo_bias(t, d, row, 0)
                             : octavo_state(t, d, row, second, products[row]) + octavo_bias(t, d, row, 0) + octavo_bias(t, d, row, 1);
      const float candidate = octavo_act1(d, octavo_clipped(s));
      next[j] = (1.0f - first[j]) * candidate + first[j] * h[j];
    }
)";

// Peepholes are added in front of the clipping.
constexpr const char* kRecurrentLstm = R"(
    for (int j = mine; j < kHidden; j += kBlock) {
      const float c = first[j];
      const float i = octavo_act0(d, octavo_clipped(sums[j] + octavo_peephole(t, d, j) * c));
      const float f = kInputForget ? 1.0f - i : octavo_act0(d, octavo_clipped(sums[2 * kHidden + j] + octavo_peephole(t, d, 2 * kHidden + j) * c));
      const float g = octavo_act1(d, octavo_clipped(sums[3 * kHidden + j]));
      const float state_of = f * c + i * g;
      const float o = octavo_act0(d, octavo_clipped(sums[kHidden + j] + octavo_peephole(t, d, kHidden + j) * state_of));
      next[j] = o * octavo_act2(d, state_of);
      first[j] = state_of;
    }
)";

constexpr const char* kRecurrentEnd = R"(
    octavo_barrier();
    float* const old = h;
    h = next, next = old;
    for (int j = mine; j < kHidden; j += kBlock) octavo_put0(t, y + j, h[j]);
  }
  for (int j = mine; j < kHidden; j += kBlock) octavo_put1(t, state + j, h[j]), octavo_put2(t, state + j, first[j]);
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
    const PlainPass zero{"  octavo_put0(t, i, 0.0f);\n", z.steps * blocks * z.hidden},
        products{kRecurrentProducts, blocks * z.steps * rows};
    PlainPass run;
    run.whole_blocks = true;
    run.block = static_cast<int>(std::min<std::int64_t>(up(rows, 32), 1024));
    run.threads = blocks * run.block;
    PlainText t;
    t.functions = fmt::format(
        "constexpr int kBlock = {}, kSteps = {}, kBatch = {}, kInputs = {}, kHidden = {}, kDirections = {}, kRows = {}, kSummed = "
        "{};\n"
        "constexpr long long kStates = {};\nconstexpr bool kBatchFirst = {}, kReverse = {}, kApart = {}, kInputForget = "
        "{};\n#define kClip {}\n",
        run.block, z.steps, z.batch, z.inputs, z.hidden, z.directions, rows, gru && !apart ? 2 * z.hidden : rows,
        blocks * (4 * z.hidden + rows), facts.layout, facts.direction == ir::Direction::reverse, apart, facts.input_forget,
        float_text(static_cast<float>(facts.clip)));
    t.functions += kRecurrentFunctions;
    for (int f = 0; f < functions; ++f) {
      for (std::int64_t d = 0; d < z.directions; ++d)
        t.functions += activation(fmt::format("octavo_act{}_{}", f, d), all[static_cast<std::size_t>(d * functions + f)]);
      t.functions += fmt::format(
          "OCTAVO_DEVICE float octavo_act{0}(int d, float x) {{ return d == {1} ? octavo_act{0}_{1}(x) : "
          "octavo_act{0}_0(x); }}\n",
          f, z.directions - 1);
    }
    const char* cell = facts.cell == CellKind::lstm ? kRecurrentLstm : facts.cell == CellKind::gru ? kRecurrentGru : kRecurrentRnn;
    run.body = std::string(kRecurrentBegin) + cell + kRecurrentEnd;
    t.scratch_bytes = 4 * blocks * (4 * z.hidden + rows + z.steps * rows);
    t.passes = {zero, products, run};
    t.work = static_cast<double>(blocks * z.steps * rows * z.inputs);
    t.chain = static_cast<double>(z.steps * z.hidden * ((rows + run.block - 1) / run.block + (gru && !apart ? 1 : 0)));
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

const Family& recurrent_family() {
  static const RecurrentFamily family;
  return family;
}

}  // namespace octavo::cuda
