#include "cpu/jit/requant.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "region/tensor_ref.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

/// As the packs do it: 16-bit saturation, zero point, 16-bit saturation, bounds (which lie within 8 bits).
std::int32_t packed(const Requant& r, float value, std::int32_t lo, std::int32_t hi) {
  constexpr float kIntegers = 12582912.0F;  // floats from here on are integers: adding it rounds to nearest even
  const float rounded = (std::clamp(value, -32768.0F, 32767.0F) + kIntegers) - kIntegers;
  return std::clamp(static_cast<std::int32_t>(rounded) + r.zero, lo, hi);
}

/// fma(x, a, b) without a library call: the product of floats is exact in double, and rounding the sum twice only differs from
/// rounding it once where the double lies halfway between two floats.
float fma_of(float x, float a, float b) {
  const double sum = static_cast<double>(x) * static_cast<double>(a) + static_cast<double>(b);
  if ((std::bit_cast<std::uint64_t>(sum) & 0x1fffffffU) == 0x10000000U || std::fabs(sum) < 1e-30) return std::fma(x, a, b);
  return static_cast<float>(sum);
}

float stepped(const Requant& r, float y) {
  for (const auto& s : r.steps) y = s(y);
  return y;
}

/// The least sum in (-limit, limit] whose code is at least k, from a guess; nothing when the guess is far off.
std::optional<std::int64_t> reach(const Requant& r, float scale, float bias, std::int64_t limit, std::int64_t offset,
                                  std::int32_t k, double guess) {
  auto sum = static_cast<std::int64_t>(std::clamp(guess, static_cast<double>(1 - limit), static_cast<double>(limit)));
  int left = 200;
  while (r.code(sum + offset, scale, bias) < k) {
    if (++sum > limit || --left < 0) return std::nullopt;
  }
  while (r.code(sum - 1 + offset, scale, bias) >= k) {
    if (--sum <= -limit || --left < 0) return std::nullopt;
  }
  return sum;
}

struct Corner {
  std::int64_t sum;  ///< the least with code >= k
  std::int32_t k;
  double slack;  ///< distance of the real-valued line from k - 1/2 at sum or sum - 1, whichever is nearer
};

bool holds(const Requant& r, const Line& line, const Corner& c) {
  return line_code(r, line, c.sum) >= c.k && line_code(r, line, c.sum - 1) < c.k;
}

double divisor_of(const Requant& r) {
  double divisor = 1;
  for (const auto& s : r.steps) {
    if (s.op == Op::div) divisor *= static_cast<double>(s.constant);
  }
  return divisor;
}

}  // namespace

std::int32_t Requant::code(std::int64_t acc, float s, float b) const {
  const auto x = static_cast<float>(acc);
  const float y = bias < 0 ? x * s : fused ? fma_of(x, s, b) : x * s + b;
  return packed(*this, stepped(*this, y), lo, hi);
}

std::int32_t Requant::code_of(float y) const {
  return packed(*this, stepped(*this, y), lo, hi);
}

std::int32_t Requant::code_of_rounded(float t) const {
  return packed(*this, t, first, last);
}

std::int32_t line_code(const Requant& r, const Line& line, std::int64_t sum) {
  const float t = fma_of(static_cast<float>(sum), line.m, line.b);
  return packed(r, r.alpha < 1 ? std::max(t, r.alpha * t) : t, r.first, r.last);
}

Reasons find_affine(const LoweredEpilogue& e, int v, int& scale, int& bias, bool& fused) {
  const auto at = [&](int value) -> const Instr& { return e.code[static_cast<std::size_t>(value)]; };
  const auto channel_load = [&](int value) {
    if (at(value).op != Op::load_f) return false;
    const Stream& s = e.operands[static_cast<std::size_t>(at(value).imm)];
    return s.dtype == ir::DType::f32 && (s.access == OperandAccess::channel || s.access == OperandAccess::uniform);
  };
  const auto is_acc = [&](int value) { return at(value).op == Op::i2f && at(at(value).args[0]).op == Op::acc_i; };
  const auto product = [&](int a, int b) {
    if (is_acc(b)) std::swap(a, b);
    if (!is_acc(a) || !channel_load(b)) return false;
    scale = at(b).imm;
    return true;
  };
  scale = bias = -1;
  fused = true;
  const Instr& in = at(v);
  if (in.op == Op::fma) {
    if (!product(in.args[0], in.args[1]) || !channel_load(in.args[2]))
      return unmet("packed value", "of another form", "scale * acc + bias");
    bias = at(in.args[2]).imm;
  } else if (in.op == Op::mul) {
    if (!product(in.args[0], in.args[1])) return unmet("packed value", "of another form", "scale * acc");
  } else if (in.op == Op::add) {
    const std::size_t m = at(in.args[0]).op == Op::mul ? 0 : 1;
    const Instr& mul = at(in.args[m]);
    if (mul.op != Op::mul || !product(mul.args[0], mul.args[1]) || !channel_load(in.args[1 - m]))
      return unmet("packed value", "of another form", "scale * acc + bias");
    bias = at(in.args[1 - m]).imm;
    fused = false;
  } else {
    return unmet("packed value", "of another form", "scale * acc + bias");
  }
  return {};
}

std::int32_t quotient_code(const Requant& r, const Quotient& q, float scale, float bias, std::int64_t acc) {
  const float y = fma_of(static_cast<float>(acc), scale, bias), t = fma_of(y, q.high, y * q.low);
  return packed(r, r.alpha < 1 ? std::max(t, r.alpha * t) : t, r.first, r.last);
}

Reasons find_requant(const LoweredEpilogue& e, Requant& out) {
  out = Requant{};
  if (e.pack.sinks.empty()) return unmet("packed 8-bit stores", 0, "some");
  for (std::size_t j = 0; j < e.outputs.size(); ++j) {
    if (!e.pack.packs(j)) return unmet(fmt::format("output {}", j), "of its own", "the packed value or a table of it");
  }
  out.zero = e.pack.zero, out.lo = e.pack.lo, out.hi = e.pack.hi;
  return find_requant_of(e, e.pack.value, out);
}

Reasons find_steps(const LoweredEpilogue& e, int rounded, int& x, Requant& out) {
  const auto* span = span_to<program::RequantizeSpan>(e, rounded);
  if (span == nullptr) return unmet("packed value", "not rounded", "rounded");
  for (const program::Step& s : span->steps) {
    if (s.op == Op::nan0) continue;
    if (s.op == Op::sel_lt) {
      if (!(s.constant > 0 && s.constant < 1) || out.alpha < 1)
        return unmet("LeakyRelu", "with this factor, or a second one", "one with a factor in (0, 1)");
      out.alpha = s.constant;
    }
    out.steps.push_back(s);
  }
  x = span->x;
  out.first = out.code_of(-3e38F);
  out.last = out.code_of(3e38F);
  return {};
}

Reasons find_requant_of(const LoweredEpilogue& e, int v, Requant& out) {
  int x = -1;
  if (auto why = find_steps(e, v, x, out); !why.empty()) return why;
  return find_affine(e, x, out.scale, out.bias, out.fused);
}

std::optional<Line> one_fma(const Requant& r, float scale, float bias, std::int64_t limit, std::int64_t offset) {
  const double divisor = divisor_of(r);
  if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(bias)) return std::nullopt;
  const double slope = static_cast<double>(scale) / divisor;
  const double start = static_cast<double>(bias) / divisor + slope * static_cast<double>(offset);
  // Beyond this a sum would wrap, the conversion to int32 would leave its range, or m would be denormal.
  if (limit + std::abs(offset) > INT32_MAX || static_cast<double>(limit) * slope + std::fabs(start) > 1e9 || slope < 1e-30)
    return std::nullopt;
  // Where every code begins.
  std::vector<Corner> corners;
  const std::int32_t least = r.code(offset - limit, scale, bias), most = r.code(offset + limit, scale, bias);
  for (std::int32_t k = least + 1; k <= most; ++k) {
    const double code = k - r.zero - 0.5, level = code < 0 ? code / static_cast<double>(r.alpha) : code;
    const auto sum = reach(r, scale, bias, limit, offset, k, std::ceil((level - start) / slope));
    if (!sum) return std::nullopt;
    const double above = slope * static_cast<double>(*sum) + start - level;
    const double slack = std::min(std::fabs(above), std::fabs(slope - above));
    corners.push_back({*sum, k, code < 0 ? slack * static_cast<double>(r.alpha) : slack});
  }
  const auto ends = [&](const Line& line) { return line_code(r, line, -limit) == least && line_code(r, line, limit) == most; };
  const auto all = [&](const Line& line) {
    return ends(line) && std::all_of(corners.begin(), corners.end(), [&](const Corner& c) { return holds(r, line, c); });
  };
  const Line plain{static_cast<float>(slope), static_cast<float>(start)};
  if (all(plain)) return plain;
  // Few corners are close to the line; only those tell candidates apart.
  std::vector<Corner> close;
  std::copy_if(corners.begin(), corners.end(), std::back_inserter(close), [](const Corner& c) { return c.slack < 1e-3; });
  const double unit = std::ldexp(1.0, -20);  // of b, in codes
  for (int db = 0; db <= 12; ++db) {
    for (int dm = 0; dm <= 8; ++dm) {
      for (const int sign : {0, 1, 2, 3}) {
        const double b = start + ((sign & 1) != 0 ? -db : db) * unit;
        const double m = slope * (1.0 + ((sign & 2) != 0 ? -dm : dm) * std::ldexp(1.0, -24));
        const Line line{static_cast<float>(m), static_cast<float>(b)};
        if (std::all_of(close.begin(), close.end(), [&](const Corner& c) { return holds(r, line, c); }) && all(line)) return line;
      }
    }
  }
  return std::nullopt;
}

Quotient Quotient::of(const Requant& r) {
  const double exact = 1 / divisor_of(r);
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

bool by_quotient(const Requant& r, const Quotient& q, float scale, float bias, std::int64_t limit) {
  if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(bias) || (r.bias >= 0 && !r.fused)) return false;
  const double divisor = divisor_of(r), slope = static_cast<double>(scale) / divisor, start = static_cast<double>(bias) / divisor;
  if (limit > INT32_MAX || static_cast<double>(limit) * slope + std::fabs(start) > 1e9 || slope < 1e-30 ||
      !(divisor > 1e-18 && divisor < 1e18))
    return false;
  const auto code = [&](std::int64_t acc) { return quotient_code(r, q, scale, bias, acc); };
  const std::int32_t least = r.code(-limit, scale, bias), most = r.code(limit, scale, bias);
  if (code(-limit) != least || code(limit) != most) return false;
  for (std::int32_t k = least + 1; k <= most; ++k) {
    const double at = k - r.zero - 0.5, level = at < 0 ? at / static_cast<double>(r.alpha) : at;
    const auto sum = reach(r, scale, bias, limit, 0, k, std::ceil((level - start) / slope));
    if (!sum || code(*sum) < k || code(*sum - 1) >= k) return false;
  }
  return true;
}

bool foldable(const region::Stage& stage, const region::Plan& plan, const Requant& r) {
  const auto constant = [&](int operand) {
    if (operand < 0) return true;
    const auto& ref = stage.operands[static_cast<std::size_t>(operand)].ref;
    return plan.buffers[static_cast<std::size_t>(ref.buffer)].kind == region::BufferKind::constant;
  };
  return constant(r.scale) && constant(r.bias);
}

Result<std::vector<ir::Tensor>> pack_lines(const ChannelValues& values, const Requant& r, const std::vector<LineBlock>& blocks,
                                           std::int64_t init_count) {
  OCTAVO_CHECK(values.check());
  ir::Tensor lines(ir::DType::f32, {2 * init_count}), taken(ir::DType::s32, {init_count / 16});
  auto* m = lines.mutable_data<float>().data();
  auto* flags = taken.mutable_data<std::int32_t>().data();
  for (const LineBlock& b : blocks) {
    bool all = true;
    for (std::size_t c = 0; c < b.limits.size() && all; ++c) {
      const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c);
      const auto line = one_fma(r, values.scale(channel), values.bias(channel), b.limits[c], b.offsets.empty() ? 0 : b.offsets[c]);
      all = line.has_value();
      if (line) m[b.init + static_cast<std::int64_t>(c)] = line->m, m[init_count + b.init + static_cast<std::int64_t>(c)] = line->b;
    }
    flags[b.init / 16] = all ? 1 : 0;
  }
  return std::vector<ir::Tensor>{std::move(lines), std::move(taken)};
}

LoweredEpilogue of_two_channel_values(const LoweredEpilogue& e) {
  LoweredEpilogue out;
  out.outputs = e.outputs;
  out.tables = e.tables;
  out.stores = e.stores;
  out.columns = e.columns;
  out.pack = e.pack;
  const Stream channel{OperandAccess::channel, ir::DType::f32, -1};
  out.operands = {channel, channel};
  return out;
}

}  // namespace octavo::cpu::jit
