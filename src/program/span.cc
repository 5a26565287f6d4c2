#include "program/span.h"

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "program/math.h"

namespace octavo::program {
namespace {

constexpr std::array<std::string_view, 10> kNames{"sigmoid",   "silu",        "tanh", "erf",      "gelu",
                                                  "gelu_tanh", "gelu_of_erf", "mish", "softplus", "elu"};
constexpr std::uint8_t kGeluForms = 6;
constexpr int kMostSteps =
    32;  // of a requantization: no activations are as long, and what files hold shall not cost the square of their size

template <class M>
typename M::F gelu_of_erf(M& m, typename M::F x, std::uint8_t form) {
  const bool divides = form < 3;
  const auto root = m.imm(divides ? 1.41421354F : 0.707106769F);
  const auto scaled = divides ? m.div(x, root) : m.mul(x, root);
  const auto e = erf(m, scaled);
  const auto both = add_k(m, e, 1.0F);
  if (form % 3 == 0) {
    const auto product = m.mul(x, both);
    return mul_k(m, product, 0.5F);
  }
  const auto halved = mul_k(m, form % 3 == 1 ? x : both, 0.5F);
  return m.mul(form % 3 == 1 ? both : x, halved);
}

template <class M>
typename M::F apply(M& m, const FunctionSpan& s, typename M::F x) {
  switch (s.function) {
    case Function::sigmoid: return sigmoid(m, x);
    case Function::silu: {
      const auto gate = sigmoid(m, x);
      return m.mul(x, gate);
    }
    case Function::tanh: return tanh(m, x);
    case Function::erf: return erf(m, x);
    case Function::gelu: return gelu(m, x);
    case Function::gelu_tanh: return gelu_tanh(m, x);
    case Function::gelu_of_erf: return gelu_of_erf(m, x, s.form);
    case Function::mish: return mish(m, x);
    case Function::softplus: return softplus(m, x);
    case Function::elu: return elu(m, x, 1.0F);
  }
  return x;
}

int push_step(Program& p, const Step& s, int y) {
  if (s.op == Op::nan0) return p.push(Op::nan0, y);
  if (s.op == Op::sel_lt) {
    const int zero = p.imm_f(0), scaled = p.push(Op::mul, y, p.imm_f(s.constant));
    return p.push(Op::sel_lt, y, zero, scaled, y);
  }
  const int c = p.imm_f(s.constant);
  return s.constant_first ? p.push(s.op, c, y) : p.push(s.op, y, c);
}

/// A definition written out, of its value 0.
struct Pattern {
  FunctionSpan span;
  Program code;
  int result = 0;
};

Pattern pattern_of(const FunctionSpan& s) {
  Pattern out{s, {}, 0};
  out.code.push(Op::acc_f);
  ProgramOps ops{out.code};
  out.result = apply(ops, s, 0);
  return out;
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> list = [] {
    std::vector<Pattern> all;
    for (std::size_t k = 0; k < kNames.size(); ++k) {
      const auto f = static_cast<Function>(k);
      for (std::uint8_t form = 0; form < (f == Function::gelu_of_erf ? kGeluForms : 1); ++form)
        all.push_back(pattern_of({f, -1, -1, form}));
    }
    return all;
  }();
  return list;
}

/// Is a value of a program what a value of a definition is? Operands that commute may have changed places, which the last bit never shows.
class Same {
 public:
  Same(const Program& p, const Program& definition, int x = -1) : p_(p), d_(definition), met_(definition.code.size(), -1) {
    met_[0] = x;
  }
  bool operator()(int v, int q) {
    const auto at = static_cast<std::size_t>(q);
    if (met_[at] >= 0) return met_[at] == v;
    const Instr &in = p_.code[static_cast<std::size_t>(v)], &want = d_.code[at];
    if (q == 0) {
      if (in.op == Op::imm_f || in.op == Op::imm_i) return false;
      met_[at] = v;
      return true;
    }
    if (in.op == want.op && in.imm == want.imm) {
      const std::vector<int> before = met_;
      for (const bool swap : {false, true}) {
        if (swap && !commutes(in.op)) break;
        if (operands(in, want, swap)) {
          met_[at] = v;
          return true;
        }
        met_ = before;
      }
    }
    return want.op == Op::mul && without_one(v, q);
  }
  [[nodiscard]] int x() const { return met_[0]; }

 private:
  /// A product by 1 is what simplify leaves of it, the other operand.
  bool without_one(int v, int q) {
    const Instr& product = d_.code[static_cast<std::size_t>(q)];
    for (const std::size_t side : {0, 1}) {
      const Instr& factor = d_.code[static_cast<std::size_t>(product.args[side])];
      if (factor.op != Op::imm_f || factor.imm != std::bit_cast<std::int32_t>(1.0F) || !(*this)(v, product.args[1 - side]))
        continue;
      met_[static_cast<std::size_t>(q)] = v;
      return true;
    }
    return false;
  }
  bool operands(const Instr& in, const Instr& want, bool swap) {
    for (std::size_t k = 0; k < want.args.size(); ++k) {
      if (want.args[k] >= 0 && !(*this)(in.args[swap && k < 2 ? 1 - k : k], want.args[k])) return false;
    }
    return true;
  }

  const Program &p_, &d_;
  std::vector<int> met_;
};

class Finder {
 public:
  explicit Finder(const Program& p) : p_(p) {}

  std::vector<Span> run() {
    for (int v = 0; v < static_cast<int>(p_.code.size()); ++v) {
      if (is(v, Op::f2i)) requantized_[v] = spans_.size(), spans_.emplace_back(requantize(v));
      if (is(v, Op::add_i)) zero_point(v);
      if (is(v, Op::mul)) dequantize(v);
      for (const Pattern& pattern : patterns()) function(v, pattern);
    }
    return std::move(spans_);
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return p_.code[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool is(int v, Op op) const { return at(v).op == op; }
  [[nodiscard]] float number(int v) const { return std::bit_cast<float>(at(v).imm); }

  void function(int v, const Pattern& pattern) {
    if (at(v).op != pattern.code.code[static_cast<std::size_t>(pattern.result)].op) return;
    Same same(p_, pattern.code);
    if (same(v, pattern.result)) spans_.emplace_back(FunctionSpan{pattern.span.function, same.x(), v, pattern.span.form});
  }

  void dequantize(int v) {
    const std::size_t side = is(at(v).args[0], Op::imm_f) ? 0 : 1;
    const int scale = at(v).args[side], number_of_code = at(v).args[1 - side];
    if (!is(scale, Op::imm_f) || !is(number_of_code, Op::i2f)) return;
    DequantizeSpan s{-1, at(number_of_code).args[0], v, number(scale), 0};
    const Instr& difference = at(s.shifted);
    const bool shifts = difference.op == Op::sub_i && is(difference.args[1], Op::imm_i) && at(difference.args[1]).imm != 0;
    s.code = shifts ? difference.args[0] : s.shifted;
    if (shifts) s.zero = at(difference.args[1]).imm;
    spans_.emplace_back(s);
  }

  [[nodiscard]] RequantizeSpan requantize(int rounded) const {
    RequantizeSpan s{at(rounded).args[0], rounded, rounded, {}, 0};
    for (int left = kMostSteps; left > 0; --left) {
      const auto step = step_to(s.x);
      if (!step) break;
      s.steps.insert(s.steps.begin(), *step);
      s.x = step->from;
    }
    return s;
  }
  /// Of a rounded value, the first constant that is added to it.
  void zero_point(int v) {
    for (const std::size_t side : {0, 1}) {
      const auto found = requantized_.find(at(v).args[side]);
      if (found == requantized_.end() || !is(at(v).args[1 - side], Op::imm_i)) continue;
      auto& s = std::get<RequantizeSpan>(spans_[found->second]);
      if (s.result == s.rounded) s.result = v, s.zero = at(at(v).args[1 - side]).imm;
    }
  }
  /// The step whose result v is.
  [[nodiscard]] std::optional<Step> step_to(int v) const {
    const Instr& in = at(v);
    if (in.op == Op::nan0) return Step{in.op, 0, false, in.args[0]};
    if (in.op == Op::sel_lt) return leaky(in);
    if (in.op != Op::div && in.op != Op::max && in.op != Op::min) return std::nullopt;
    const std::size_t side = is(in.args[1], Op::imm_f) ? 1 : 0;
    if (!is(in.args[side], Op::imm_f)) return std::nullopt;
    const float c = number(in.args[side]);
    if (std::isnan(c) || (in.op == Op::div && (side == 0 || !(c > 0) || std::isinf(c)))) return std::nullopt;
    return Step{in.op, c, side == 0, in.args[1 - side]};
  }
  [[nodiscard]] std::optional<Step> leaky(const Instr& in) const {
    const int y = in.args[0];
    const Instr& scaled = at(in.args[2]);
    if (in.args[3] != y || !is(in.args[1], Op::imm_f) || at(in.args[1]).imm != 0 || scaled.op != Op::mul) return std::nullopt;
    const std::size_t side = scaled.args[0] == y ? 1 : 0;
    if (scaled.args[1 - side] != y || !is(scaled.args[side], Op::imm_f) || std::isnan(number(scaled.args[side])))
      return std::nullopt;
    return Step{Op::sel_lt, number(scaled.args[side]), false, y};
  }

  const Program& p_;
  std::vector<Span> spans_;
  std::map<int, std::size_t> requantized_;  ///< the span of a rounded value
};

/// Which spans hold, from their definitions.
class Checker {
 public:
  explicit Checker(const Program& p) : p_(p) {}

  bool operator()(const FunctionSpan& s) const {
    if (static_cast<std::size_t>(s.function) >= kNames.size() || s.form >= (s.function == Function::gelu_of_erf ? kGeluForms : 1))
      return false;
    return type(s.x) == 'f' && type(s.result) == 'f' && expands_to(s, s.x, s.result);
  }
  bool operator()(const RequantizeSpan& s) const {
    if (type(s.x) != 'f' || type(s.rounded) != 'i' || type(s.result) != 'i') return false;
    int y = s.x;
    for (std::size_t k = 0; k < s.steps.size(); ++k) {
      const int next = k + 1 < s.steps.size() ? s.steps[k + 1].from : at(s.rounded).args[0];
      if (s.steps[k].from != y || type(next) != 'f' || !is_step(s.steps[k], next)) return false;
      y = next;
    }
    if (at(s.rounded).op != Op::f2i || at(s.rounded).args[0] != y) return false;
    return s.result == s.rounded ? s.zero == 0 : is_integer(s.result, Op::add_i, s.rounded, s.zero);
  }
  bool operator()(const DequantizeSpan& s) const {
    if (type(s.code) != 'i' || type(s.shifted) != 'i' || type(s.result) != 'f') return false;
    const bool shifts = s.shifted != s.code;
    return shifts == (s.zero != 0) && (!shifts || is_integer(s.shifted, Op::sub_i, s.code, s.zero)) &&
           expands_to(DequantizeSpan{s.shifted, s.shifted, s.result, s.scale, 0}, s.shifted, s.result);
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return p_.code[static_cast<std::size_t>(v)]; }
  /// Of a value; 0: there is no such value.
  [[nodiscard]] char type(int v) const {
    return v >= 0 && static_cast<std::size_t>(v) < p_.code.size() ? info(at(v).op).result : '\0';
  }
  /// v = op(x, constant).
  [[nodiscard]] bool is_integer(int v, Op op, int x, std::int32_t constant) const {
    Program d;
    d.push(Op::acc_i);
    const int result = d.push(op, 0, d.imm_i(constant));
    return Same(p_, d, x)(v, result);
  }
  [[nodiscard]] bool is_step(const Step& s, int v) const {
    const bool bounds = s.op == Op::max || s.op == Op::min;
    if (!bounds && s.op != Op::div && s.op != Op::sel_lt && s.op != Op::nan0) return false;
    if (std::isnan(s.constant) || (s.constant_first && !bounds)) return false;
    if (s.op == Op::div && (!(s.constant > 0) || std::isinf(s.constant))) return false;
    Program d;
    d.push(Op::acc_f);
    const int result = push_step(d, s, 0);
    return Same(p_, d, s.from)(v, result);
  }
  [[nodiscard]] bool expands_to(const Span& s, int x, int v) const {
    Program d;
    d.push(type(x) == 'i' ? Op::acc_i : Op::acc_f);
    const int result = expand(d, s, 0);
    return Same(p_, d, x)(v, result);
  }

  const Program& p_;
};

/// One expression for each kind of span.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::string_view name_of(Function f) {
  return kNames[static_cast<std::size_t>(f)];
}

int first_of(const Span& s) {
  return std::visit(Overloaded{[](const DequantizeSpan& d) { return d.code; }, [](const auto& other) { return other.x; }}, s);
}

int last_of(const Span& s) {
  return std::visit([](const auto& of) { return of.result; }, s);
}

void mark(Program& p) {
  p.spans = Finder(p).run();
}

bool holds(const Program& p, const Span& s) {
  return std::visit(Checker(p), s);
}

int expand(Program& p, const Span& s, int x) {
  return std::visit(Overloaded{[&](const FunctionSpan& f) {
                                 ProgramOps ops{p};
                                 return apply(ops, f, x);
                               },
                               [&](const RequantizeSpan& r) {
                                 int y = x;
                                 for (const Step& step : r.steps) y = push_step(p, step, y);
                                 const int rounded = p.push(Op::f2i, y);
                                 return r.zero == 0 ? rounded : p.push(Op::add_i, rounded, p.imm_i(r.zero));
                               },
                               [&](const DequantizeSpan& d) {
                                 const int shifted = d.zero == 0 ? x : p.push(Op::sub_i, x, p.imm_i(d.zero));
                                 const int number = p.push(Op::i2f, shifted);
                                 return p.push(Op::mul, number, p.imm_f(d.scale));
                               }},
                    s);
}

Scalar evaluate(const Span& s, Scalar x) {
  Scalar out{};
  std::visit(Overloaded{[&](const FunctionSpan& f) {
                          FloatOps ops;
                          out.f = apply(ops, f, x.f);
                        },
                        [&](const RequantizeSpan& r) {
                          float y = x.f;
                          for (const Step& step : r.steps) y = step(y);
                          out.i = FloatOps::add_i(to_int32(y), r.zero);
                        },
                        [&](const DequantizeSpan& d) { out.f = static_cast<float>(FloatOps::sub_i(x.i, d.zero)) * d.scale; }},
             s);
  return out;
}

}  // namespace octavo::program
