// cpu.{lstm,gru,rnn}.rows.*: recurrent layers against the reference evaluator, over units around whole panels, alone and in teams of workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/isa.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

class Recurrent : public ::testing::TestWithParam<const char*> {
 protected:
  /// "cpu.lstm.rows" for this instruction set.
  static std::string tactic(const std::string& cell) { return "cpu." + cell + ".rows." + GetParam() + "@3"; }
};
INSTANTIATE_TEST_SUITE_P(Isa, Recurrent, ::testing::Values("portable", "avx2", "avx512"));

struct Layer {
  std::string cell, direction = "forward";
  std::int64_t steps = 1, batch = 1, inputs = 1, hidden = 1;
  bool batch_first = false, before_reset = false, input_forget = false;
  double clip = 0;
  std::string functions = {};  ///< of one direction; empty: the usual ones
  bool short_sequences = false;
  float weights = 0.4F;  ///< their largest magnitude
};

void set_recurrent(Scene& s, const Layer& l) {
  region::Stage& st = s.stage();
  const std::int64_t d = l.direction == "bidirectional" ? 2 : 1, gates = l.cell == "lstm" ? 4 : l.cell == "gru" ? 3 : 1;
  std::string functions = l.functions.empty() ? (l.cell == "lstm"  ? "Sigmoid,Tanh,Tanh"
                                                 : l.cell == "gru" ? "Sigmoid,Tanh"
                                                                   : "Tanh")
                                              : l.functions;
  if (d == 2) functions += "," + functions;
  const Ints x = l.batch_first ? Ints{l.batch, l.steps, l.inputs} : Ints{l.steps, l.batch, l.inputs};
  const Ints state = l.batch_first ? Ints{l.batch, d, l.hidden} : Ints{d, l.batch, l.hidden};
  const Ints y = l.batch_first ? Ints{l.batch, l.steps, d, l.hidden} : Ints{l.steps, d, l.batch, l.hidden};
  st.space = y;
  st.anchor.op = ir::Op::recurrent;
  st.anchor.facts = testing::facts(st.anchor.op, {{"cell", l.cell},
                                                  {"direction", l.direction},
                                                  {"layout", std::int64_t{l.batch_first}},
                                                  {"linear_before_reset", std::int64_t{l.before_reset}},
                                                  {"input_forget", std::int64_t{l.input_forget}},
                                                  {"clip", l.clip},
                                                  {"activations", functions},
                                                  {"alpha", std::vector<double>(9, 0.3)},
                                                  {"beta", std::vector<double>(9, 0.6)}});
  const auto constant = [&](const Ints& dims) { return s.tensor(DType::f32, dims, BufferKind::constant, {}, 0, l.weights); };
  st.anchor.inputs = {
      s.tensor(DType::f32, x, BufferKind::arena, l.batch == 1 ? std::vector<int>{0, 2, 1} : std::vector<int>{}, 0, 1.0F),
      constant({d, gates * l.hidden, l.inputs}),
      constant({d, gates * l.hidden, l.hidden}),
      constant({d, 2 * gates * l.hidden}),
      s.tensor(DType::s64, {l.batch}),
      s.tensor(DType::f32, state, BufferKind::arena, {}, 0, 1.0F),
      s.tensor(DType::f32, state, BufferKind::arena, {}, 0, 1.0F),
      constant({d, 3 * l.hidden})};
  auto& lengths = s.memory[static_cast<std::size_t>(st.anchor.inputs[4].buffer)];
  for (std::int64_t n = 0; n < l.batch; ++n) {
    const std::int64_t length = l.short_sequences ? n % (l.steps + 1) : l.steps;
    std::memcpy(lengths.data() + 64 + 8 * n, &length, 8);
  }
  st.stores = {s.tensor(DType::f32, y), s.tensor(DType::f32, state)};
  if (l.cell == "lstm") st.stores.push_back(s.tensor(DType::f32, state));
}

TEST_P(Recurrent, Shapes) {
  std::uint32_t seed = 1;
  for (const std::string cell : {"lstm", "gru", "rnn"}) {
    for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
      for (const std::int64_t hidden : {1, 15, 16, 17, 40}) {
        Scene s(seed);
        s.plan().threads = 1 + static_cast<int>(seed % 2);
        set_recurrent(s, {.cell = cell,
                          .direction = direction,
                          .steps = Ints{1, 7, 8, 9, 17}[seed % 5],
                          .batch = Ints{1, 5, 2}[seed % 3],
                          .inputs = Ints{1, 16, 21}[seed % 3],
                          .hidden = hidden,
                          .batch_first = seed % 2 == 1,
                          .before_reset = seed % 4 < 2,
                          .short_sequences = seed % 3 == 1});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(cell), 1e-4F));
        ++seed;
      }
    }
  }
}

/// Workers that take each step together: as many as have work, of every number of panels, and more than there are.
TEST_P(Recurrent, Teams) {
  std::uint32_t seed = 1;
  for (const std::string cell : {"lstm", "gru", "rnn"}) {
    for (const std::int64_t hidden : {64, 100, 130, 256}) {
      for (const int threads : {2, 3, 4, 8}) {
        Scene s(seed++);
        s.plan().threads = threads;
        set_recurrent(s, {.cell = cell,
                          .direction = seed % 5 == 0   ? "bidirectional"
                                       : seed % 5 == 1 ? "reverse"
                                                       : "forward",
                          .steps = Ints{1, 2, 13, 99}[seed % 4],
                          .batch = seed % 7 == 0 ? 3 : 1,
                          .inputs = 9,
                          .hidden = hidden,
                          .batch_first = seed % 3 == 1,
                          .before_reset = seed % 2 == 0,
                          .short_sequences = seed % 7 == 0,
                          .weights = 0.1F});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(cell), 1e-4F));
      }
    }
  }
}

/// Panels of 16, 64 and 128 columns, more steps than are multiplied at once, and groups of rows that end early.
TEST_P(Recurrent, Panels) {
  std::uint32_t seed = 1;
  for (const std::string cell : {"lstm", "gru", "rnn"}) {
    for (const std::int64_t hidden : {31, 32, 33, 64, 65}) {
      for (const std::int64_t steps : {11, 97}) {
        Scene s(seed++);
        set_recurrent(s, {.cell = cell,
                          .direction = seed % 2 == 0 ? "bidirectional" : "forward",
                          .steps = steps,
                          .batch = steps == 11 ? 3 : 1,
                          .inputs = 7,
                          .hidden = hidden,
                          .before_reset = seed % 4 < 2,
                          .weights = 0.1F});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(cell), 1e-4F));
      }
    }
  }
}

TEST_P(Recurrent, ActivationsAndClip) {
  std::uint32_t seed = 1;
  for (const std::string function :
       {"Relu", "Softsign", "Softplus", "Elu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Affine", "ScaledTanh"}) {
    for (const std::string cell : {"lstm", "gru", "rnn"}) {
      Scene s(seed++);
      const std::string functions = cell == "lstm"  ? "Sigmoid," + function + ",Tanh"
                                    : cell == "gru" ? "Sigmoid," + function
                                                    : function;
      set_recurrent(s, {.cell = cell,
                        .steps = 3,
                        .batch = 2,
                        .inputs = 5,
                        .hidden = 6,
                        .input_forget = seed % 2 == 0,
                        .clip = seed % 2 == 0 ? 0.4 : 0.0,
                        .functions = functions});
      // Where a sum may lie on either side of a threshold, results differ by a step: wider weights than tolerances.
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic(cell), 1e-4F));
    }
  }
}

TEST_P(Recurrent, ImpossibleLengthsGiveZeros) {
  Scene s(3);
  set_recurrent(s, {.cell = "lstm", .steps = 4, .batch = 2, .inputs = 3, .hidden = 5});
  const std::int64_t length = 5;
  std::memcpy(s.memory[static_cast<std::size_t>(s.stage().anchor.inputs[4].buffer)].data() + 64, &length, 8);
  for (const region::TensorRef& r : s.stage().stores) {  // the evaluator gives up: what it does not write must be 0 here
    auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
    std::fill(bytes.begin() + 64, bytes.end() - 64, std::byte{0});
  }
  EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("lstm")));
}

}  // namespace
}  // namespace octavo::testing
