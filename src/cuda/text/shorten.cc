// One class, past 400 lines: each proof uses the bounds that the others found.
#include "cuda/text/shorten.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "program/reciprocal.h"

namespace octavo::cuda {
namespace {

using program::Instr;
using program::Op;
using program::Program;

constexpr float kIntegers = 12582912.0F;  // 1.5 * 2^23: floats around it are the integers
constexpr std::int32_t kIntegerBits = 0x4b400000;
constexpr double kReach = 4190000;  // |n| for which kIntegers + n is exact, and then some
constexpr float kBytes = 8388608.0F;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// A bound of |v| for each value: finite means that v is a finite number. Integers are exact or at most 2^31.
std::vector<double> magnitudes(const Program& p, const Magnitudes& sources) {
  std::vector<double> out;
  std::vector<int> sigmoid_of(p.code.size(), -1);
  for (const program::Span& s : p.spans) {
    const auto* f = std::get_if<program::FunctionSpan>(&s);
    if (f != nullptr && f->function == program::Function::sigmoid) sigmoid_of[static_cast<std::size_t>(f->result)] = f->x;
  }
  for (const Instr& i : p.code) {
    const auto arg = [&](std::size_t k) { return out[static_cast<std::size_t>(i.args[k])]; };
    const auto constant = [&](std::size_t k) -> std::optional<float> {
      const Instr& a = p.code[static_cast<std::size_t>(i.args[k])];
      return a.op == Op::imm_f ? std::optional(std::bit_cast<float>(a.imm)) : std::nullopt;
    };
    double m = program::info(i.op).result == 'i' ? 2147483648.0 : kUnknown;
    switch (i.op) {
      case Op::acc_i: m = sources.acc; break;
      case Op::load_i:
      case Op::load_f:
        m = static_cast<std::size_t>(i.imm) < sources.operands.size() ? sources.operands[static_cast<std::size_t>(i.imm)] : m;
        break;
      case Op::imm_i: m = std::fabs(static_cast<double>(i.imm)); break;
      case Op::imm_f: {
        const auto v = std::bit_cast<float>(i.imm);
        m = std::isfinite(v) ? std::fabs(static_cast<double>(v)) : kUnknown;
        break;
      }
      case Op::i2f:
      case Op::nan0:
      case Op::round: m = arg(0) * 1.000001; break;
      case Op::f2i: m = std::min(arg(0) + 1, m); break;
      case Op::add:
      case Op::sub: m = (arg(0) + arg(1)) * 1.000001; break;
      case Op::mul: m = arg(0) * arg(1) * 1.000001; break;
      case Op::fma: m = (arg(0) * arg(1) + arg(2)) * 1.000001; break;
      case Op::div:
        if (const auto s = constant(1); s && std::isfinite(*s) && std::fabs(*s) > 1e-30F) m = arg(0) / std::fabs(*s) * 1.000001;
        if (const int x = sigmoid_of[out.size()]; x >= 0 && out[static_cast<std::size_t>(x)] < kUnknown) m = 1;
        break;
      case Op::max:
      case Op::min: m = std::max(arg(0), arg(1)); break;
      case Op::sel_lt:
      case Op::sel_eq: m = std::max(arg(2), arg(3)); break;
      case Op::add_i:
      case Op::sub_i: m = arg(0) + arg(1) <= 2147483647.0 ? arg(0) + arg(1) : m; break;
      case Op::max_i:
      case Op::min_i: m = std::max(arg(0), arg(1)); break;
      case Op::table: m = 255; break;
      default: break;
    }
    if (std::isnan(m) || (program::info(i.op).result == 'f' && m > 1e30)) m = kUnknown;  // 0 times unknown
    out.push_back(m);
  }
  return out;
}

/// round(clamp(clamp(y) / s)) as found behind an f2i.
struct Chain {
  int y = -1;
  float divisor = 1;
  bool divides = false;
  bool nan_is_zero = false;          ///< NaN gives the code of 0; otherwise that of -infinity
  std::int32_t first = 0, last = 0;  ///< the codes that the clamps leave
};

class Shortener {
 public:
  Shortener(const Program& from, const Magnitudes& sources, const std::vector<char>& is_byte)
      : from_(from), magnitude_(magnitudes(from, sources)), uses_(from.code.size()), float_code_(from.code.size()) {
    for (std::size_t i = 0; i < from.code.size(); ++i) {
      for (const int a : from.code[i].args) {
        if (a >= 0) uses_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
      }
    }
    for (const program::Output& o : from.outputs) uses_[static_cast<std::size_t>(o.value)].push_back(-1);
    out_.byte_floats.assign(static_cast<std::size_t>(from.operand_count), 0);
    for (std::size_t k = 0; k < is_byte.size() && k < out_.byte_floats.size(); ++k) out_.byte_floats[k] = is_byte[k];
    const auto integer = [](const Instr& in) { return in.op == Op::acc_i; };
    bool floats = sources.acc <= kReach && std::any_of(from.code.begin(), from.code.end(), integer);
    for (std::size_t i = 0; i < from.code.size(); ++i) {
      const Instr& in = from.code[i];
      if (in.op == Op::acc_i) floats = floats && only_float(static_cast<int>(i), false);
      if (in.op == Op::load_i && !only_float(static_cast<int>(i), true)) out_.byte_floats[static_cast<std::size_t>(in.imm)] = 0;
    }
    if (floats) out_.acc_offset = kIntegerBits;
  }

  Shortened run() {
    program_.operand_count = from_.operand_count;
    program_.tables = from_.tables;
    moved_.assign(from_.code.size(), -1);
    for (std::size_t i = 0; i < from_.code.size(); ++i) {
      if (moved_[i] < 0) moved_[i] = rewritten(static_cast<int>(i));
    }
    for (const program::Output& o : from_.outputs) program_.outputs.push_back({moved(o.value), o.type});
    out_.program = program::simplify(program_);
    return out_;
  }

 private:
  /// A code as a float, and its bounds.
  struct FloatCode {
    int value = -1;
    std::int32_t first = 0, last = 0;
  };

  [[nodiscard]] const Instr& at(int v) const { return from_.code[static_cast<std::size_t>(v)]; }
  [[nodiscard]] int moved(int v) const { return moved_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] double magnitude(int v) const { return magnitude_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool is_imm_i(int v) const { return at(v).op == Op::imm_i; }
  [[nodiscard]] bool small_imm(int v) const { return is_imm_i(v) && std::abs(static_cast<double>(at(v).imm)) <= 65536; }

  /// Nobody wants `v` but as a float, where allowed less a constant.
  [[nodiscard]] bool only_float(int v, bool less_constant) const {
    return std::all_of(uses_[static_cast<std::size_t>(v)].begin(), uses_[static_cast<std::size_t>(v)].end(), [&](int user) {
      if (user < 0) return false;
      const Instr& in = at(user);
      return in.op == Op::i2f ||
             (less_constant && in.op == Op::sub_i && in.args[0] == v && small_imm(in.args[1]) && only_float(user, false));
    });
  }
  /// (x + z) - z is x.
  [[nodiscard]] int without_zero(int v) const {
    const Instr& in = at(v);
    if (in.op != Op::sub_i || at(in.args[0]).op != Op::add_i || !is_imm_i(in.args[1])) return v;
    const Instr& sum = at(in.args[0]);
    for (std::size_t k = 0; k < 2; ++k) {
      if (is_imm_i(sum.args[k]) && at(sum.args[k]).imm == at(in.args[1]).imm) return sum.args[1 - k];
    }
    return v;
  }

  int push(Op op, int a, int b = -1, int c = -1) { return program_.push(op, a, b, c); }

  int rewritten(int v) {
    const Instr& in = at(v);
    if (in.op == Op::f2i) {
      if (const auto chain = find_chain(v)) return emit_chain(v, *chain);
    }
    if (in.op == Op::sub_i && without_zero(v) != v) return moved(without_zero(v));
    if (in.op == Op::load_i && out_.byte_floats[static_cast<std::size_t>(in.imm)] != 0) return program_.load(Op::load_f, in.imm);
    if (in.op == Op::i2f) return as_float(v);
    if (in.op == Op::sub_i && at(in.args[0]).op == Op::load_i && moved_type(in.args[0]) == 'f')
      return moved(in.args[0]);  // see as_float
    Instr copy = in;
    for (int& a : copy.args) {
      if (a >= 0) a = moved(a);
    }
    // A bound in front of a value that is no NaN may stand behind it, where a GPU has one instruction for it.
    if ((in.op == Op::max || in.op == Op::min) && at(in.args[0]).op == Op::imm_f && magnitude(in.args[1]) < kUnknown &&
        std::bit_cast<float>(at(in.args[0]).imm) != 0)
      std::swap(copy.args[0], copy.args[1]);
    program_.code.push_back(copy);
    return static_cast<int>(program_.code.size()) - 1;
  }

  [[nodiscard]] char moved_type(int v) const { return program::info(program_.code[static_cast<std::size_t>(moved(v))].op).result; }

  /// The i2f `v`.
  int as_float(int v) {
    const int x = without_zero(at(v).args[0]);
    const FloatCode& code = float_code_[static_cast<std::size_t>(x)];
    if (code.value >= 0) {
      float_code_[static_cast<std::size_t>(v)] = code;
      return code.value;
    }
    if (at(x).op == Op::acc_i && out_.acc_offset != 0) return push(Op::sub, push(Op::bits_f, moved(x)), program_.imm_f(kIntegers));
    const bool difference = at(x).op == Op::sub_i && at(at(x).args[0]).op == Op::load_i && small_imm(at(x).args[1]);
    const int load = difference ? at(x).args[0] : x;
    if (at(load).op == Op::load_i && magnitude(load) <= 65536) {
      const std::int32_t zero = difference ? at(at(x).args[1]).imm : 0;
      const bool byte = out_.byte_floats[static_cast<std::size_t>(at(load).imm)] != 0;
      int value = byte ? moved(load) : push(Op::i2f, moved(load));
      const float less = static_cast<float>(zero) + (byte ? kBytes : 0.0F);
      if (less != 0) value = push(Op::sub, value, program_.imm_f(less));
      if (magnitude(load) <= 255 && byte) float_code_[static_cast<std::size_t>(v)] = {value, -zero, 255 - zero};
      return value;
    }
    return push(Op::i2f, moved(x));
  }

  /// The last steps of the requantization, with one division at most.
  [[nodiscard]] std::optional<Chain> find_chain(int f2i) const {
    const program::RequantizeSpan* span = nullptr;
    for (const program::Span& s : from_.spans) {
      if (const auto* r = std::get_if<program::RequantizeSpan>(&s); r != nullptr && r->rounded == f2i) span = r;
    }
    if (span == nullptr) return std::nullopt;
    Chain chain;
    chain.y = at(f2i).args[0];
    auto first = span->steps.end();
    for (; first != span->steps.begin(); --first) {
      const program::Step& s = *(first - 1);
      if (s.op == Op::sel_lt || (s.op == Op::div && chain.divides)) break;
      if (s.op == Op::div) chain.divides = true, chain.divisor = s.constant;
      chain.y = s.from;
    }
    if (first == span->steps.end()) return std::nullopt;
    const auto code = [&](float y) {
      for (auto s = first; s != span->steps.end(); ++s) y = (*s)(y);
      return y;
    };
    const float lo = code(-3e38F), hi = code(3e38F);
    if (!(lo >= -2048 && hi <= 2048)) return std::nullopt;
    chain.first = program::to_int32(lo), chain.last = program::to_int32(hi);
    if (!(magnitude(chain.y) < 1e30)) {  // infinities are what the bounds make of them; NaN has to be looked at
      const float nan = code(std::numeric_limits<float>::quiet_NaN());
      chain.nan_is_zero = nan != lo;
      if (chain.nan_is_zero && nan != code(0)) return std::nullopt;  // or NaN reaches the rounding
    }
    if (chain.divides && !program::same_codes(chain.divisor, chain.first, chain.last)) return std::nullopt;
    return chain;
  }

  int emit_chain(int f2i, const Chain& chain) {
    int t = moved(chain.y), rounded = -1;
    double largest = magnitude(chain.y) / static_cast<double>(chain.divisor);
    if (const auto sum = of_accumulator(chain, largest); sum) {
      rounded = *sum;
    } else if (const auto pair = of_two_codes(chain); pair) {
      t = *pair;
    } else if (chain.divides) {
      const auto r = program::Reciprocal::of(chain.divisor);
      const int low = push(Op::mul, t, program_.imm_f(r.low));
      t = push(Op::fma, t, program_.imm_f(r.high), low);
    }
    if (chain.nan_is_zero) t = push(Op::nan0, t);
    // Of a value that may be of any size the quotient is bounded: as integers, the bounds stand in front of the rounding as well as behind it.
    const bool bounded = !(largest < 1e9);
    if (bounded) {
      t = push(Op::max, t, program_.imm_f(static_cast<float>(chain.first)));
      t = push(Op::min, t, program_.imm_f(static_cast<float>(chain.last)));
      largest = std::max(std::abs(chain.first), std::abs(chain.last));
    }
    // A zero point behind the code comes before the bounds, where nothing else reads the code.
    std::int32_t zero = 0;
    const auto& uses = uses_[static_cast<std::size_t>(f2i)];
    int sum = -1;
    if (uses.size() == 1 && uses[0] >= 0 && at(uses[0]).op == Op::add_i) {
      const Instr& add = at(uses[0]);
      const int other = add.args[0] == f2i ? add.args[1] : add.args[0];
      bool minus_again = false;  // somebody takes the zero point off again: the code itself is wanted too
      for (const int user : uses_[static_cast<std::size_t>(uses[0])]) minus_again |= user >= 0 && at(user).op == Op::sub_i;
      if (is_imm_i(other) && !minus_again) zero = at(other).imm, sum = uses[0];
    }
    int code = -1;
    std::int32_t more = zero;
    if (largest < kReach) {
      if (rounded < 0) rounded = push(Op::add, t, program_.imm_f(kIntegers));
      int value = push(Op::sub, rounded, program_.imm_f(kIntegers));
      value = push(Op::max, value, program_.imm_f(static_cast<float>(chain.first)));
      value = push(Op::min, value, program_.imm_f(static_cast<float>(chain.last)));
      float_code_[static_cast<std::size_t>(f2i)] = {value, chain.first, chain.last};
      code = push(Op::bits_i, rounded);
      more -= kIntegerBits;
    } else {
      code = push(Op::f2i, t);
    }
    if (more != 0) code = push(Op::add_i, code, program_.imm_i(more));
    if (!bounded) {
      code = push(Op::max_i, code, program_.imm_i(chain.first + zero));
      code = push(Op::min_i, code, program_.imm_i(chain.last + zero));
    }
    if (sum >= 0) moved_[static_cast<std::size_t>(sum)] = code;
    return code;
  }

  /// kIntegers + the accumulator times one factor, rounded once, where y is the accumulator times a constant, over a divisor: if that gives the same code on
  /// both sides of every accumulator from which on a code is reached. Both ways rise with the accumulator, so others do not matter.
  std::optional<int> of_accumulator(const Chain& chain, double largest) {
    const Instr& y = at(chain.y);
    if (y.op != Op::mul || !chain.divides || !(largest < kReach) || out_.acc_offset == 0) return std::nullopt;
    const std::size_t constant = at(y.args[1]).op == Op::imm_f ? 1 : 0;
    const Instr& sum = at(y.args[1 - constant]);
    if (at(y.args[constant]).op != Op::imm_f || sum.op != Op::i2f || at(sum.args[0]).op != Op::acc_i) return std::nullopt;
    const float scale = std::bit_cast<float>(at(y.args[constant]).imm);
    const auto limit = static_cast<std::int32_t>(magnitude(sum.args[0]));
    if (!(scale > 0) || !std::isnormal(scale / chain.divisor)) return std::nullopt;
    const auto code = [&](float t) {
      return std::clamp((t + kIntegers) - kIntegers, static_cast<float>(chain.first), static_cast<float>(chain.last));
    };
    const auto written = [&](std::int32_t n) { return code(static_cast<float>(n) * scale / chain.divisor); };
    std::vector<std::int32_t> reached;  // the least accumulators of their codes
    for (std::int32_t c = chain.first + 1; c <= chain.last; ++c) {
      std::int32_t below = -limit, from = limit;
      if (written(below) >= static_cast<float>(c) || written(from) < static_cast<float>(c)) continue;
      while (from - below > 1) {
        const std::int32_t middle = below + (from - below) / 2;
        (written(middle) >= static_cast<float>(c) ? from : below) = middle;
      }
      reached.push_back(from);
    }
    const auto good = [&](float factor) {
      const auto computed = [&](std::int32_t n) {
        return std::clamp(std::fma(static_cast<float>(n), factor, kIntegers) - kIntegers, static_cast<float>(chain.first),
                          static_cast<float>(chain.last));
      };
      return computed(-limit) == written(-limit) && computed(limit) == written(limit) &&
             std::all_of(reached.begin(), reached.end(),
                         [&](std::int32_t n) { return computed(n) == written(n) && computed(n - 1) == written(n - 1); });
    };
    const auto factor = static_cast<float>(static_cast<double>(scale) / static_cast<double>(chain.divisor));
    for (const int step : {0, 1, -1, 2, -2}) {
      const auto near = std::bit_cast<float>(std::bit_cast<std::int32_t>(factor) + step);
      if (good(near)) return push(Op::fma, moved(y.args[1 - constant]), program_.imm_f(near), program_.imm_f(kIntegers));
    }
    return std::nullopt;
  }

  /// y = c1 * s1 + c2 * s2 of two codes as floats, over a divisor: fma(c1, a, c2 * b), if that rounds to the same code for all pairs.
  std::optional<int> of_two_codes(const Chain& chain) {
    const Instr& y = at(chain.y);
    if (y.op != Op::add || !chain.divides) return std::nullopt;
    FloatCode codes[2];
    float scales[2] = {};
    for (std::size_t k = 0; k < 2; ++k) {
      const Instr& product = at(y.args[k]);
      if (product.op != Op::mul) return std::nullopt;
      const std::size_t constant = at(product.args[1]).op == Op::imm_f ? 1 : 0;
      if (at(product.args[constant]).op != Op::imm_f) return std::nullopt;
      codes[k] = float_code_[static_cast<std::size_t>(product.args[1 - constant])];
      scales[k] = std::bit_cast<float>(at(product.args[constant]).imm);
      if (codes[k].value < 0 || codes[k].last - codes[k].first > 255 || !std::isnormal(scales[k])) return std::nullopt;
    }
    const auto rounded = [&](float t) {
      return std::clamp((t + kIntegers) - kIntegers, static_cast<float>(chain.first), static_cast<float>(chain.last));
    };
    const auto good = [&](float a, float b) {
      for (std::int32_t i = codes[0].first; i <= codes[0].last; ++i) {
        for (std::int32_t j = codes[1].first; j <= codes[1].last; ++j) {
          const auto c1 = static_cast<float>(i), c2 = static_cast<float>(j);
          const float written = (c1 * scales[0] + c2 * scales[1]) / chain.divisor;
          if (rounded(written) != rounded(std::fma(c1, a, c2 * b))) return false;
        }
      }
      return true;
    };
    const auto near = [](float v, int steps) { return std::bit_cast<float>(std::bit_cast<std::int32_t>(v) + steps); };
    const double s = static_cast<double>(chain.divisor);
    const auto a = static_cast<float>(static_cast<double>(scales[0]) / s),
               b = static_cast<float>(static_cast<double>(scales[1]) / s);
    for (const int da : {0, 1, -1, 2, -2, 4, -4}) {
      for (const int db : {0, 1, -1, 2, -2, 4, -4}) {
        if (!good(near(a, da), near(b, db))) continue;
        const int other = push(Op::mul, codes[1].value, program_.imm_f(near(b, db)));
        return push(Op::fma, codes[0].value, program_.imm_f(near(a, da)), other);
      }
    }
    return std::nullopt;
  }

  const Program& from_;
  std::vector<double> magnitude_;
  std::vector<std::vector<int>> uses_;
  std::vector<FloatCode> float_code_;  ///< of f2i and i2f
  Program program_;
  Shortened out_;
  std::vector<int> moved_;
};

}  // namespace

Shortened shorten(const Program& p, const Magnitudes& sources, const std::vector<char>& is_byte) {
  return Shortener(p, sources, is_byte).run();
}

Program shortened(const Program& p, std::size_t operands) {
  return shorten(p, {kUnknown, std::vector<double>(operands, kUnknown)}, {}).program;
}

Program without_store_clamps(const Program& p) {
  Program out = p;
  for (program::Output& o : out.outputs) {
    if (!ir::is_int8(o.type)) continue;
    // However many bounds follow each other, together they are one from below and one from above: what the least and the greatest
    // integer become. The store's own are the last ones.
    const std::int64_t lo = o.type == ir::DType::u8 ? 0 : -128, hi = lo + 255;
    std::vector<std::pair<bool, std::int64_t>> bounds;  // of the value on its way back to where it comes from: is it a max?
    int value = o.value;
    for (;;) {
      const Instr& in = out.code[static_cast<std::size_t>(value)];
      if (in.op != Op::max_i && in.op != Op::min_i) break;
      std::size_t side = 1;
      if (out.code[static_cast<std::size_t>(in.args[1])].op != Op::imm_i) side = 0;
      const Instr& bound = out.code[static_cast<std::size_t>(in.args[side])];
      if (bound.op != Op::imm_i) break;
      bounds.emplace_back(in.op == Op::max_i, bound.imm);
      value = in.args[1 - side];
    }
    const auto reached = [&](std::int64_t v) {
      for (std::size_t k = bounds.size(); k-- > 0;)
        v = bounds[k].first ? std::max(v, bounds[k].second) : std::min(v, bounds[k].second);
      return std::clamp(v, lo, hi);
    };
    const std::int64_t first = reached(std::numeric_limits<std::int32_t>::min()),
                       last = reached(std::numeric_limits<std::int32_t>::max());
    if (first > lo) value = out.push(Op::max_i, value, out.imm_i(static_cast<std::int32_t>(first)));
    if (last < hi) value = out.push(Op::min_i, value, out.imm_i(static_cast<std::int32_t>(last)));
    o.value = value;
  }
  return program::simplify(out);
}

}  // namespace octavo::cuda
