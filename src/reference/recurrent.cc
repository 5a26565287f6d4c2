// recurrent: RNN, GRU and LSTM as ONNX defines them, step by step in fp32. Products are fma in the order of the operands, X first, then H;
// both biases are added to the sum, W's first. A sequence that has ended keeps its state and gives 0.
#include <algorithm>
#include <cmath>

#include "program/math.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

using Row = std::vector<float>;

struct Activation : ir::CellActivation {
  [[nodiscard]] float operator()(float x) const {
    program::FloatOps m;
    if (const auto unary = ir::unary_of(*this)) return program::unary(m, unary->first, unary->second, x);
    if (function == ir::CellFunction::scaled_tanh) return alpha * program::unary(m, Op::tanh, {}, beta * x);
    if (function == ir::CellFunction::thresholded_relu) return x > alpha ? x : 0.0F;
    return std::fma(alpha, x, beta);  // affine
  }
};

/// One direction of one sequence.
struct Cell {
  ir::CellKind kind;
  std::size_t hidden, inputs;
  const float *w, *r, *b, *p;  ///< of this direction
  const Activation* act;
  float clip;
  bool before_reset, input_forget;

  [[nodiscard]] float product(const float* m, std::size_t row, const float* v, std::size_t n, float sum) const {
    for (std::size_t k = 0; k < n; ++k) sum = std::fma(m[row * n + k], v[k], sum);
    return sum;
  }
  [[nodiscard]] float clipped(float x) const { return clip > 0 ? std::min(std::max(x, -clip), clip) : x; }
  [[nodiscard]] std::size_t gates() const { return kind == ir::CellKind::lstm ? 4 : kind == ir::CellKind::gru ? 3 : 1; }
  /// W x + R h + both biases, of row `row`.
  [[nodiscard]] float sum(std::size_t row, const float* x, const Row& h) const {
    const float s = product(r, row, h.data(), hidden, product(w, row, x, inputs, 0));
    return s + b[row] + b[gates() * hidden + row];
  }

  void step(const float* x, Row& h, Row& c) const {
    Row next(hidden);
    if (kind == ir::CellKind::rnn) {
      for (std::size_t j = 0; j < hidden; ++j) next[j] = act[0](clipped(sum(j, x, h)));
    } else if (kind == ir::CellKind::gru) {
      gru(x, h, next);
    } else {
      lstm(x, h, c, next);
    }
    h = next;
  }

  void gru(const float* x, const Row& h, Row& next) const {
    Row z(hidden), reset(hidden), kept(hidden);
    for (std::size_t j = 0; j < hidden; ++j) {
      z[j] = act[0](clipped(sum(j, x, h)));
      reset[j] = act[0](clipped(sum(hidden + j, x, h)));
      kept[j] = reset[j] * h[j];
    }
    const float* second = b + 3 * hidden;
    for (std::size_t j = 0; j < hidden; ++j) {
      const std::size_t row = 2 * hidden + j;
      float s = product(w, row, x, inputs, 0);
      if (before_reset) {
        s = s + reset[j] * (product(r, row, h.data(), hidden, 0) + second[row]) + b[row];
      } else {
        s = product(r, row, kept.data(), hidden, s) + b[row] + second[row];
      }
      const float candidate = act[1](clipped(s));
      next[j] = (1.0F - z[j]) * candidate + z[j] * h[j];
    }
  }

  void lstm(const float* x, const Row& h, Row& c, Row& next) const {
    for (std::size_t j = 0; j < hidden; ++j) {
      const float i = act[0](clipped(sum(j, x, h) + p[j] * c[j]));
      const float f = input_forget ? 1.0F - i : act[0](clipped(sum(2 * hidden + j, x, h) + p[2 * hidden + j] * c[j]));
      const float g = act[1](clipped(sum(3 * hidden + j, x, h)));
      const float state = f * c[j] + i * g;
      const float o = act[0](clipped(sum(hidden + j, x, h) + p[hidden + j] * state));
      next[j] = o * act[2](state);
      c[j] = state;
    }
  }
};

}  // namespace

Result<Tensors> eval_recurrent(const Args& a) {
  const auto& facts = a.as<ir::Recurrent>();
  const bool batch_first = facts.layout;
  const ir::CellKind kind = facts.cell;
  const std::size_t steps = idx(a.shape(0)[batch_first ? 1 : 0]), batch = idx(a.shape(0)[batch_first ? 0 : 1]);
  const std::size_t inputs = idx(a.shape(0)[2]), hidden = idx(a.shape(2)[2]),
                    directions = facts.direction == ir::Direction::bidirectional ? 2 : 1;
  const auto x = floats(a.in[0]), w = floats(a.in[1]), r = floats(a.in[2]), b = floats(a.in[3]), h0 = floats(a.in[5]),
             c0 = floats(a.in[6]), p = floats(a.in[7]);
  const Ints lens = integers(a.in[4]);
  std::vector<Activation> act;
  for (const ir::CellActivation& f : ir::activations_of(facts)) act.push_back({f});
  Row y(directions * steps * batch * hidden, 0), last_h(directions * batch * hidden, 0), last_c(last_h);
  for (std::size_t d = 0; d < directions; ++d) {
    Cell cell{kind,
              hidden,
              inputs,
              nullptr,
              nullptr,
              nullptr,
              nullptr,
              nullptr,
              static_cast<float>(facts.clip),
              facts.linear_before_reset,
              facts.input_forget};
    const std::size_t rows = cell.gates() * hidden, functions = kind == ir::CellKind::lstm ? 3 : kind == ir::CellKind::gru ? 2 : 1;
    cell.w = w.data() + d * rows * inputs;
    cell.r = r.data() + d * rows * hidden;
    cell.b = b.data() + d * 2 * rows;
    cell.p = p.data() + d * 3 * hidden;
    if (act.size() < functions * directions) return a.error(ErrorKind::bad_model, "{} activations", act.size());
    cell.act = act.data() + d * functions;
    const bool back = facts.direction == ir::Direction::reverse || d == 1;
    for (std::size_t n = 0; n < batch; ++n) {
      const std::size_t state = (batch_first ? n * directions + d : d * batch + n) * hidden;
      const auto row = [&](const Row& from) {
        return Row(from.begin() + static_cast<std::ptrdiff_t>(state), from.begin() + static_cast<std::ptrdiff_t>(state + hidden));
      };
      Row h = row(h0), c = row(c0);
      if (lens[n] < 0 || lens[n] > static_cast<std::int64_t>(steps))
        return a.error(ErrorKind::bad_input, "sequence length {} of {} steps", lens[n], steps);
      const std::size_t length = idx(lens[n]);
      for (std::size_t k = 0; k < length; ++k) {
        const std::size_t t = back ? length - 1 - k : k;
        cell.step(x.data() + (batch_first ? n * steps + t : t * batch + n) * inputs, h, c);
        const std::size_t at = batch_first ? (n * steps + t) * directions + d : (t * directions + d) * batch + n;
        std::copy(h.begin(), h.end(), y.begin() + static_cast<std::ptrdiff_t>(at * hidden));
      }
      std::copy(h.begin(), h.end(), last_h.begin() + static_cast<std::ptrdiff_t>(state));
      std::copy(c.begin(), c.end(), last_c.begin() + static_cast<std::ptrdiff_t>(state));
    }
  }
  Tensors out{from_floats(y, a.out(0)), from_floats(last_h, a.out(1))};
  if (kind == ir::CellKind::lstm) out.push_back(from_floats(last_c, a.out(2)));
  return out;
}

}  // namespace octavo::reference
