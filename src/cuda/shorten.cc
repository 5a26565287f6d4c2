#include "cuda/shorten.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "program/reciprocal.h"

namespace octavo::cuda {
namespace {

using program::Instr;
using program::Op;
using program::Program;

constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// A bound of |v| for each value: finite means that v is a finite number. Integers are exact or at most 2^31.
std::vector<double> magnitudes(const Program& p, const Magnitudes& sources) {
  std::vector<double> out;
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
  std::int32_t first = 0, last = 0;  ///< the codes that the clamps leave
};

class Shortener {
 public:
  Shortener(const Program& from, const Magnitudes& sources)
      : from_(from), magnitude_(magnitudes(from, sources)), uses_(from.code.size()) {
    for (std::size_t i = 0; i < from.code.size(); ++i) {
      for (const int a : from.code[i].args) {
        if (a >= 0) uses_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
      }
    }
    for (const program::Output& o : from.outputs) uses_[static_cast<std::size_t>(o.value)].push_back(-1);
  }

  Program run() {
    out_.operand_count = from_.operand_count;
    out_.tables = from_.tables;
    moved_.assign(from_.code.size(), -1);
    for (std::size_t i = 0; i < from_.code.size(); ++i) {
      if (moved_[i] < 0) moved_[i] = rewritten(static_cast<int>(i));
    }
    for (const program::Output& o : from_.outputs) out_.outputs.push_back({moved(o.value), o.type});
    return program::simplify(out_);
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return from_.code[static_cast<std::size_t>(v)]; }
  [[nodiscard]] int moved(int v) const { return moved_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] double magnitude(int v) const { return magnitude_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool is_imm_i(int v) const { return at(v).op == Op::imm_i; }

  int rewritten(int v) {
    const Instr& in = at(v);
    if (in.op == Op::f2i) {
      if (const auto chain = find_chain(v)) return emit_chain(v, *chain);
    }
    if (in.op == Op::sub_i && at(in.args[0]).op == Op::add_i && is_imm_i(in.args[1])) {  // (x + z) - z
      const Instr& sum = at(in.args[0]);
      for (std::size_t k = 0; k < 2; ++k) {
        if (is_imm_i(sum.args[k]) && at(sum.args[k]).imm == at(in.args[1]).imm) return moved(sum.args[1 - k]);
      }
    }
    if (in.op == Op::i2f && at(in.args[0]).op == Op::sub_i) {  // float(code - z)
      const Instr& difference = at(in.args[0]);
      if (at(difference.args[0]).op == Op::load_i && magnitude(difference.args[0]) <= 65536 && is_imm_i(difference.args[1]) &&
          std::abs(static_cast<double>(at(difference.args[1]).imm)) <= 65536) {
        const int code = out_.push(Op::i2f, moved(difference.args[0]));
        return out_.push(Op::sub, code, out_.imm_f(static_cast<float>(at(difference.args[1]).imm)));
      }
    }
    Instr copy = in;
    for (int& a : copy.args) {
      if (a >= 0) a = moved(a);
    }
    out_.code.push_back(copy);
    return static_cast<int>(out_.code.size()) - 1;
  }

  /// The steps from y to the value that is rounded, as the program has them.
  [[nodiscard]] std::optional<Chain> find_chain(int f2i) const {
    Chain chain;
    std::vector<Instr> steps;  // last first
    std::vector<float> constants;
    int v = at(f2i).args[0];
    for (;;) {
      const Instr& in = at(v);
      if (in.op == Op::nan0) {
        v = in.args[0];
        continue;
      }
      if (in.op != Op::max && in.op != Op::min && in.op != Op::div) break;
      std::size_t side = 1;
      if (at(in.args[1]).op != Op::imm_f) side = 0;
      if (at(in.args[side]).op != Op::imm_f) break;
      const auto constant = std::bit_cast<float>(at(in.args[side]).imm);
      if (std::isnan(constant)) break;
      if (in.op == Op::div && (side == 0 || chain.divides || !(constant > 0) || !std::isfinite(constant))) break;
      if (in.op == Op::div) chain.divides = true, chain.divisor = constant;
      steps.push_back(in);
      constants.push_back(constant);
      v = in.args[1 - side];
    }
    chain.y = v;
    if (steps.empty() || !(magnitude(v) < 1e30)) return std::nullopt;
    const auto code = [&](float y) {
      for (std::size_t k = steps.size(); k-- > 0;) {
        if (steps[k].op == Op::div) {
          y /= constants[k];
        } else {
          y = steps[k].op == Op::max ? std::max(y, constants[k]) : std::min(y, constants[k]);
        }
      }
      return y;
    };
    const float lo = code(-3e38F), hi = code(3e38F);
    if (!(lo >= -2048 && hi <= 2048)) return std::nullopt;
    chain.first = program::to_int32(lo), chain.last = program::to_int32(hi);
    if (chain.divides && !program::same_codes(chain.divisor, chain.first, chain.last)) return std::nullopt;
    return chain;
  }

  int emit_chain(int f2i, const Chain& chain) {
    int t = moved(chain.y);
    if (chain.divides) {
      const auto r = program::Reciprocal::of(chain.divisor);
      const int low = out_.push(Op::mul, t, out_.imm_f(r.low));
      t = out_.push(Op::fma, t, out_.imm_f(r.high), low);
    }
    constexpr float kLarge = 1073741824.0F;  // any bound beyond all codes: the conversion stays within int32
    if (!(magnitude(chain.y) / static_cast<double>(chain.divisor) < 1e9)) {
      t = out_.push(Op::max, t, out_.imm_f(-kLarge));
      t = out_.push(Op::min, t, out_.imm_f(kLarge));
    }
    int code = out_.push(Op::f2i, t);
    // A zero point behind the code comes before the bounds, where nothing else reads the code.
    std::int32_t zero = 0;
    const auto& uses = uses_[static_cast<std::size_t>(f2i)];
    int sum = -1;
    if (uses.size() == 1 && uses[0] >= 0 && at(uses[0]).op == Op::add_i) {
      const Instr& add = at(uses[0]);
      const int other = add.args[0] == f2i ? add.args[1] : add.args[0];
      bool minus_again = false;  // somebody takes the zero point off again: the code itself is wanted too
      for (const int user : uses_[static_cast<std::size_t>(uses[0])]) minus_again |= user >= 0 && at(user).op == Op::sub_i;
      if (is_imm_i(other) && !minus_again) {
        zero = at(other).imm, sum = uses[0];
        if (zero != 0) code = out_.push(Op::add_i, code, out_.imm_i(zero));
      }
    }
    code = out_.push(Op::max_i, code, out_.imm_i(chain.first + zero));
    code = out_.push(Op::min_i, code, out_.imm_i(chain.last + zero));
    if (sum >= 0) moved_[static_cast<std::size_t>(sum)] = code;
    return code;
  }

  const Program& from_;
  std::vector<double> magnitude_;
  std::vector<std::vector<int>> uses_;
  Program out_;
  std::vector<int> moved_;
};

}  // namespace

Program shorten(const Program& p, const Magnitudes& sources) {
  return Shortener(p, sources).run();
}

Program without_store_clamps(const Program& p) {
  Program out = p;
  for (program::Output& o : out.outputs) {
    if (!ir::is_int8(o.type)) continue;
    const std::int32_t lo = o.type == ir::DType::u8 ? 0 : -128, hi = lo + 255;
    for (;;) {
      const Instr& in = out.code[static_cast<std::size_t>(o.value)];
      if (in.op != Op::max_i && in.op != Op::min_i) break;
      std::size_t side = 1;
      if (out.code[static_cast<std::size_t>(in.args[1])].op != Op::imm_i) side = 0;
      const Instr& bound = out.code[static_cast<std::size_t>(in.args[side])];
      if (bound.op != Op::imm_i || (in.op == Op::max_i ? bound.imm > lo : bound.imm < hi)) break;
      o.value = in.args[1 - side];
    }
  }
  return program::simplify(out);
}

}  // namespace octavo::cuda
