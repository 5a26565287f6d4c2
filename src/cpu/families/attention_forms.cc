#include "cpu/families/attention_forms.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "program/reciprocal.h"

namespace octavo::cpu {
namespace {

using program::Op;

/// The operations from the accumulator on, each with a constant at most.
struct Link {
  Op op;
  float number = 0;          ///< of a float operation
  std::int32_t integer = 0;  ///< of an integer one
};
using Chain = std::vector<Link>;

/// Empty: the program is no such chain.
Chain chain_of(const program::Program& p) {
  Chain chain;
  for (int v = p.outputs[0].value; v >= 0;) {
    const program::Instr& i = p.code[static_cast<std::size_t>(v)];
    Link link{i.op};
    if (i.op == Op::acc_i || i.op == Op::acc_f) {
      chain.push_back(link);
      return {chain.rbegin(), chain.rend()};
    }
    const std::string_view operands = program::info(i.op).operands;
    if (operands.empty() || operands.size() > 2) return {};
    int next = i.args[0];
    if (operands.size() == 2) {
      const auto constant = [&](int arg) {
        const Op op = p.code[static_cast<std::size_t>(arg)].op;
        return op == Op::imm_f || op == Op::imm_i;
      };
      const bool swaps = i.op == Op::mul || i.op == Op::add_i || i.op == Op::max || i.op == Op::min;
      if (!constant(i.args[1]) && !(swaps && constant(i.args[0]))) return {};
      const bool second = constant(i.args[1]);
      if (!second && (i.op == Op::max || i.op == Op::min)) return {};  // of a NaN they give the second
      const program::Instr& imm = p.code[static_cast<std::size_t>(i.args[second ? 1 : 0])];
      next = i.args[second ? 0 : 1];
      link.number = std::bit_cast<float>(imm.imm);
      link.integer = imm.imm;
    }
    chain.push_back(link);
    v = next;
  }
  return {};
}

/// Takes the next link of a chain where it is `op`.
class Reader {
 public:
  explicit Reader(const Chain& chain) : chain_(&chain) {}
  [[nodiscard]] const Link* take(Op op) {
    if (done() || (*chain_)[at_].op != op) return nullptr;
    return &(*chain_)[at_++];
  }
  [[nodiscard]] bool done() const { return at_ == chain_->size(); }

 private:
  const Chain* chain_;
  std::size_t at_ = 0;
};

bool codes_from(float lo, float hi) {
  return lo == std::floor(lo) && hi == std::floor(hi) && lo <= hi && lo >= -255 && hi <= 255;
}

/// What becomes of the rounded number n, as written.
float behind_rounding(const ScoreForm& f, float n) {
  const float x = n * f.grid;
  switch (f.after) {
    case ScoreForm::After::nothing: return x;
    case ScoreForm::After::product: return x * f.by;
    case ScoreForm::After::quotient: return x / f.by;
  }
  return x;
}

/// One product instead of two operations where it gives the same for every number that the clamp leaves.
void join_behind_rounding(ScoreForm& f) {
  if (f.after == ScoreForm::After::nothing) return;
  ScoreForm joined = f;
  joined.after = ScoreForm::After::nothing;
  const float near = f.after == ScoreForm::After::product ? f.grid * f.by : f.grid / f.by;
  for (const float grid : {near, std::nextafter(near, 0.0F), std::nextafter(near, 2 * near)}) {
    joined.grid = grid;
    bool same = true;
    for (float n = f.lo; n <= f.hi && same; ++n)
      same = std::bit_cast<std::uint32_t>(behind_rounding(f, n)) == std::bit_cast<std::uint32_t>(behind_rounding(joined, n));
    if (same) {
      f = joined;
      return;
    }
  }
}

}  // namespace

std::optional<ScoreForm> score_form(const program::Program& p) {
  if (p.outputs.size() != 1 || p.outputs[0].type != ir::DType::f32) return {};
  const Chain chain = chain_of(p);
  Reader r(chain);
  ScoreForm f;
  const Link* unit = nullptr;
  if (r.take(Op::acc_i) == nullptr || r.take(Op::i2f) == nullptr || (unit = r.take(Op::mul)) == nullptr) return {};
  f.unit = unit->number;
  Reader behind = r;
  if (const Link* step = r.take(Op::div)) {
    (void)r.take(Op::nan0);  // sums are numbers
    const Link *lo = r.take(Op::max), *hi = lo == nullptr ? nullptr : r.take(Op::min);
    if (hi != nullptr && r.take(Op::f2i) != nullptr) {
      const Link* up = r.take(Op::add_i);
      const Link* down = up == nullptr ? nullptr : r.take(Op::sub_i);
      if (up != nullptr && (down == nullptr || up->integer != down->integer)) return {};
      const Link* grid = r.take(Op::i2f) == nullptr ? nullptr : r.take(Op::mul);
      if (grid == nullptr || !codes_from(lo->number, hi->number) || !(step->number > 0)) return {};
      f.rounds = true;
      f.step = step->number, f.lo = lo->number, f.hi = hi->number, f.grid = grid->number;
      if (program::same_codes(f.step, static_cast<std::int32_t>(f.lo), static_cast<std::int32_t>(f.hi))) {
        const auto inverse = program::Reciprocal::of(f.step);
        f.high = inverse.high, f.low = inverse.low;
      }
      behind = r;
    }
  }
  const Link *product = behind.take(Op::mul), *quotient = product == nullptr ? behind.take(Op::div) : nullptr;
  if (product != nullptr) f.after = ScoreForm::After::product, f.by = product->number;
  if (quotient != nullptr) f.after = ScoreForm::After::quotient, f.by = quotient->number;
  if (!behind.done()) return {};
  if (f.rounds) join_behind_rounding(f);
  return f;
}

std::optional<ProbabilityForm> probability_form(const program::Program& p) {
  if (p.outputs.size() != 1 || p.outputs[0].type != ir::DType::u8) return {};
  const Chain chain = chain_of(p);
  Reader r(chain);
  ProbabilityForm f;
  if (r.take(Op::acc_f) == nullptr) return {};
  const Link* step = r.take(Op::div);
  if (step == nullptr || !(step->number > 0)) return {};
  f.nan_is_zero = r.take(Op::nan0) != nullptr;
  const Link *lo = r.take(Op::max), *hi = lo == nullptr ? nullptr : r.take(Op::min);
  if (hi == nullptr || r.take(Op::f2i) == nullptr) return {};
  if (const Link* zero = r.take(Op::add_i)) f.zero = zero->integer;
  if (!r.done() || !codes_from(lo->number, hi->number)) return {};
  const auto zero = static_cast<float>(f.zero);
  if (lo->number > 0 || hi->number < 0 || lo->number + zero < 0 || hi->number + zero > 255) return {};
  f.step = step->number, f.lo = lo->number, f.hi = hi->number;
  return f;
}

}  // namespace octavo::cpu
