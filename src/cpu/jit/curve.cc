// Past 400 lines: a curve is found, fitted, bounded and written by the same few definitions of its values.
#include "cpu/jit/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace octavo::cpu::jit {
namespace {

using program::Op;

constexpr double kUnit = 65536;  // of z, a code
constexpr float kMagic = 12582912.0F;
constexpr float kLimit = 7.99999952F;  // the float below 8

/// Whether value v is factor * code + bias, the bias f32 and one a channel or for all. (Without it all is a table of the code, lower.h.)
bool find_coded(const LoweredEpilogue& e, int v, Curve& out) {
  const auto at = [&](int i) -> const Instr& { return e.code[static_cast<std::size_t>(i)]; };
  if (at(v).op != Op::add) return false;
  const std::size_t of_product = at(at(v).args[0]).op == Op::mul ? 0 : 1;
  const auto* product = span_to<program::DequantizeSpan>(e, at(v).args[of_product]);
  const Instr& bias = at(at(v).args[1 - of_product]);
  if (product == nullptr || product->zero != 0 || bias.op != Op::load_f) return false;
  const Stream& s = e.operands[static_cast<std::size_t>(bias.imm)];
  if (s.dtype != ir::DType::f32 || (s.access != OperandAccess::channel && s.access != OperandAccess::uniform)) return false;
  constexpr std::int32_t kMost = 1024;  // wider than any code
  Requant r;
  r.lo = -kMost, r.hi = kMost;
  if (!find_requant_of(e, product->code, r).empty() || r.alpha < 1 || r.first <= -kMost || r.last >= kMost) return false;
  if (!(product->scale > 0) || !std::isfinite(product->scale)) return false;
  out.scale = -1, out.bias = bias.imm, out.fused = false;
  out.coded = Curve::Coded{r, product->scale};
  return true;
}

double units(double value) {
  return kUnit * (value + 0.5);
}

}  // namespace

Reasons Curve::find(const LoweredEpilogue& e, Curve& out) {
  out = Curve{};
  if (e.pack.sinks.empty()) return unmet("packed 8-bit stores", 0, "some");
  for (std::size_t j = 0; j < e.outputs.size(); ++j) {
    if (!e.pack.packs(j)) return unmet(fmt::format("output {}", j), "of its own", "the packed value or a table of it");
  }
  if (e.pack.is_signed) return unmet("codes", "s8", "u8");
  const auto at = [&](int v) -> const Instr& { return e.code[static_cast<std::size_t>(v)]; };
  if (at(e.pack.value).op != Op::f2i) return unmet("packed value", "not rounded", "rounded");
  // The steps between the function and the rounding, each with one constant.
  const int last = at(e.pack.value).args[0];
  int v = last, x = -1;
  for (;;) {
    const Instr& in = at(v);
    // Each function that has a name is smooth, with one extremum at most, and settled on both sides once it is rounded and clamped.
    if (const auto* f = span_to<program::FunctionSpan>(e, v)) {
      if (!find_affine(e, f->x, out.scale, out.bias, out.fused).empty() && !find_coded(e, f->x, out))
        return unmet("activation", "unknown", "a known function of scale * acc + bias");
      x = f->x, out.function = f->function;
      break;
    }
    if (in.op == Op::nan0) {
      v = in.args[0];
      continue;
    }
    if (in.op != Op::div && in.op != Op::mul && in.op != Op::add && in.op != Op::max && in.op != Op::min)
      return unmet("activation", "unknown", "a known function of scale * acc + bias");
    const std::size_t side = at(in.args[1]).op == Op::imm_f ? 1 : 0;
    if (at(in.args[side]).op != Op::imm_f || (in.op == Op::div && side == 0))
      return unmet("step of the epilogue", "of two values", "of one value and a constant");
    v = in.args[1 - side];
  }
  // x and what depends on it, in order.
  std::vector<int> moved(e.code.size(), -1);
  out.cone_.push_back({Op::load_f, {-1, -1, -1, -1}, 0});
  moved[static_cast<std::size_t>(x)] = 0;
  std::vector<char> live(e.code.size(), 0);
  std::vector<int> open{last};
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (n == x || live[static_cast<std::size_t>(n)] != 0) continue;
    live[static_cast<std::size_t>(n)] = 1;
    for (const int a : at(n).args) {
      if (a >= 0) open.push_back(a);
    }
  }
  // A simplification's new values come last, but read only what is before them.
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (live[i] == 0) continue;
    program::Instr in{e.code[i].op, e.code[i].args, e.code[i].imm};
    if (in.op == Op::acc_i || in.op == Op::acc_f || in.op == Op::load_i || in.op == Op::load_f)
      return unmet("activation", "of a further value", "of scale * acc + bias alone");
    if (e.code[i].reversed) std::swap(in.args[0], in.args[1]);
    for (int& a : in.args) {
      if (a >= 0) a = moved[static_cast<std::size_t>(a)];
    }
    moved[i] = static_cast<int>(out.cone_.size());
    out.cone_.push_back(in);
  }
  out.zero_ = e.pack.zero, out.lo_ = e.pack.lo, out.hi_ = e.pack.hi;
  return {};
}

double Curve::at(float x) const {
  static const program::Program kNoTables;
  std::array<program::Scalar, 256> values;
  if (cone_.size() > values.size()) return std::numeric_limits<double>::quiet_NaN();
  values[0].f = x;
  for (std::size_t i = 1; i < cone_.size(); ++i) {
    const auto& in = cone_[i];
    if (in.op == Op::imm_f || in.op == Op::imm_i) {
      values[i].i = in.imm;
      continue;
    }
    const auto arg = [&](std::size_t k) {
      return in.args[k] < 0 ? program::Scalar{} : values[static_cast<std::size_t>(in.args[k])];
    };
    values[i] = program::evaluate_op(kNoTables, in, arg(0), arg(1), arg(2), arg(3));
  }
  return static_cast<double>(values[cone_.size() - 1].f) + zero_;
}

std::int32_t Curve::code(float x) const {
  const double rounded = std::nearbyint(at(x) - zero_);
  return static_cast<std::int32_t>(std::clamp(std::clamp(rounded, -32768.0, 32767.0) + zero_, lo(), hi()));
}

std::int32_t curve_value(const CurveTable& table, float t) {
  const float inside = std::copysign(std::min(std::fabs(t), kLimit), t);
  const auto piece = static_cast<std::size_t>(static_cast<int>(std::floor(inside)) & 15);
  float z = table.c[kCurveDegree][piece];
  for (std::size_t k = kCurveDegree; k-- > 0;) z = std::fma(z, inside, table.c[k][piece]);
  if (table.below) z = std::max(z, table.floor);
  return static_cast<std::int32_t>(std::nearbyint(z));
}

namespace {

/// The polynomials between lo and hi. `open`: beyond lo the code still changes, and piece -8 always asks for the written form.
std::optional<CurveTable> fit_between(const Curve& curve, double lo, double hi, bool open) {
  CurveTable out;
  out.step = (hi - lo) / (open ? kCurvePieces - 1 : kCurvePieces);
  out.center = open ? lo + 7 * out.step : (lo + hi) / 2;
  const double least = units(curve.lo()), most = units(curve.hi());
  const auto value = [&](double t) { return units(curve.at(static_cast<float>(out.center + out.step * t))); };
  constexpr int kNodes = 24, kChecks = 200;
  for (int i = -8; i < 8; ++i) {
    const auto piece = static_cast<std::size_t>(i & 15);
    if (open && i == -8) {
      out.c[0][piece] = static_cast<float>(kUnit * (curve.lo() + 1));
      continue;
    }
    const double middle = i + 0.5;
    std::array<double, kCurveDegree + 1> chebyshev{};
    double top = -1e300;
    for (int k = 0; k < kNodes; ++k) {
      const double angle = (k + 0.5) * 3.14159265358979323846 / kNodes, y = value(middle + 0.5 * std::cos(angle));
      if (!(std::fabs(y) < 1e12)) return std::nullopt;
      top = std::max(top, y);
      for (std::size_t j = 0; j <= kCurveDegree; ++j)
        chebyshev[j] += (j == 0 ? 1.0 : 2.0) / kNodes * y * std::cos(static_cast<double>(j) * angle);
    }
    if (top < least - kUnit) {  // far below what is kept
      out.c[0][piece] = static_cast<float>(least);
      continue;
    }
    // Powers of u = t - middle in [-1/2, 1/2].
    const auto& a = chebyshev;
    std::array<double, kCurveDegree + 1> power{a[0] - a[2] + a[4], 2 * a[1] - 6 * a[3], 8 * a[2] - 32 * a[4], 32 * a[3],
                                               128 * a[4]};
    // Powers of t, highest first: what rounding a coefficient changes goes to the lower ones, all but a tiny rest.
    for (int d = kCurveDegree; d >= 0; --d) {
      const auto n = static_cast<std::size_t>(d);
      const auto rounded = static_cast<float>(power[n]);
      out.c[n][piece] = rounded;
      double term = rounded;  // rounded * (u + middle)^d
      for (int j = d; j >= 0; --j) {
        power[static_cast<std::size_t>(j)] -= term;
        term *= middle * j / (d - j + 1);
      }
    }
  }
  out.floor = static_cast<float>(least);
  const auto evaluate = [&](bool check) {
    double lowest = 1e300;
    for (int i = open ? -7 : -8; i < 8; ++i) {
      for (int k = 0; k < kChecks; ++k) {
        const auto t0 = static_cast<float>(i + (k + 0.5) / kChecks);
        const auto x = static_cast<float>(out.center + out.step * static_cast<double>(t0));
        const auto t = static_cast<float>((static_cast<double>(x) - out.center) / out.step);
        const auto piece = static_cast<std::size_t>(static_cast<int>(std::floor(t)) & 15);
        double z = out.c[4][piece], slope = 0;
        for (std::size_t j = kCurveDegree; j-- > 0;) slope = slope * t + z, z = z * t + out.c[j][piece];
        lowest = std::min(lowest, z);
        if (!check) continue;
        if (z > least - kUnit / 4) out.slope = std::max(out.slope, std::fabs(slope));
        const double y = std::clamp(units(curve.at(x)), least, most);
        if (!(std::fabs(y) < 1e12)) return std::numeric_limits<double>::quiet_NaN();
        out.error = std::max(out.error, std::fabs(curve_value(out, t) - y));
      }
    }
    return lowest;
  };
  out.below = evaluate(false) < least - kUnit / 4;
  if (std::isnan(evaluate(true))) return std::nullopt;
  return out;
}

/// The window that covers an error, and a margin for places between those looked at.
double wanted(const CurveTable& table) {
  return 1.25 * table.error + 2;
}

}  // namespace

std::optional<CurveTable> fit(const Curve& curve, double limit) {
  const auto clamped = [&](double x) { return std::clamp(curve.at(static_cast<float>(x)), curve.lo(), curve.hi()); };
  std::vector<double> places;
  for (int e = 20 * 16; e >= -12 * 16; --e) places.push_back(-std::exp2(e / 16.0));
  for (std::size_t i = places.size(); i-- > 0;) places.push_back(-places[i]);
  // From where on the code is what it is far away, and a quarter of a code away from changing.
  const auto settled = [&](double far) {
    const double end = clamped(far);
    return [&clamped, &curve, end, code = curve.code(static_cast<float>(far))](double x) {
      return std::fabs(clamped(x) - end) < 0.25 && curve.code(static_cast<float>(x)) == code;
    };
  };
  const auto edge = [&](double far, auto first, auto last) -> std::optional<double> {
    const auto same = settled(far);
    for (const double more : {1e-3, 1e-6, 1.0}) {
      if (!same(far * more)) return std::nullopt;
    }
    double inside = far;
    for (; first != last; ++first) {
      if (same(*first)) {
        inside = *first;
        continue;
      }
      double outside = *first;
      for (int k = 0; k < 40; ++k) {
        const double middle = (inside + outside) / 2;
        (same(middle) ? inside : outside) = middle;
      }
      return inside;
    }
    return std::nullopt;
  };
  const double far = std::max(limit, 1e15);
  const auto lo = edge(-far, places.begin(), places.end()), hi = edge(far, places.rbegin(), places.rend());
  if (!lo || !hi || !(*lo < *hi)) return std::nullopt;
  auto best = fit_between(curve, *lo, *hi, false);
  // Codes far finer than the function's own scale: its far end would take all the pieces.
  for (double part = 0.8; best && wanted(*best) > 14; part *= 0.8) {
    const double from = *hi - (*hi - *lo) * part;
    if (from > -2 * *hi || *hi <= 0) break;
    const auto other = fit_between(curve, from, *hi, true);
    if (other && wanted(*other) < 0.5 * wanted(*best)) best = other;
  }
  return best;
}

double channel_error(const Curve& curve, const CurveTable& table, float scale, float bias) {
  const double b = std::fabs((static_cast<double>(bias) - table.center) / table.step),
               offset = std::fabs(table.center) / table.step;
  // t: the roundings of m, b and their sum; x: its own, and that of the product.
  double of_t = 2 * b + 17 + 8 + offset;
  if (!curve.fused) of_t += 8 + offset + std::fabs(static_cast<double>(bias)) / table.step;
  if (curve.coded)
    of_t += 2 * std::fabs(static_cast<double>(bias)) / table.step + 2 * offset + b;  // b is a rounded fma of rounded numbers
  if (!std::isfinite(scale) || !std::isfinite(bias)) return std::numeric_limits<double>::infinity();
  return wanted(table) + table.slope * std::ldexp(of_t, -24);
}

std::optional<std::int32_t> window_for(double error) {
  if (!(error <= kWidestWindow / 2 - 1)) return std::nullopt;
  return 2 * static_cast<std::int32_t>(std::ceil(error + 1));
}

namespace {

/// What the kernel of a coded curve multiplies and adds, behind the table: t = fma(q, slope, fma(bias, inverse, start)).
struct CodeLine {
  float slope, inverse, start;
  CodeLine(const Curve& curve, const CurveTable& table)
      : slope(static_cast<float>(static_cast<double>(curve.coded->factor) / table.step)),
        inverse(static_cast<float>(1 / table.step)),
        start(static_cast<float>(-table.center / table.step)) {}
  [[nodiscard]] float at(std::int32_t q, float bias) const {
    return std::fma(static_cast<float>(q), slope, std::fma(bias, inverse, start));
  }
};

/// Whether the kernel is right about each q whose z is nearer to the window than 16 times its width. `table` has the window in it.
bool right_near_the_window(const Curve& curve, const CurveTable& table, const CodeLine& line, float bias) {
  const Requant& r = curve.coded->requant;
  for (std::int32_t q = r.first; q <= r.last; ++q) {
    const std::int32_t z = curve_value(table, line.at(q, bias)), low = z & 65535;
    if (low < table.window || (low >= 17 * table.window && low < 65536 - 16 * table.window)) continue;
    const float product = curve.coded->factor * static_cast<float>(q);
    if (z >> 16 != curve.code(product + bias)) return false;
  }
  return true;
}

/// A code whose z is not in the window, for lanes without a channel.
std::int32_t settled_code(const Curve& curve, const CurveTable& table, const CodeLine& line) {
  const Requant& r = curve.coded->requant;
  std::int32_t q = r.last;
  while (q > r.first && (curve_value(table, line.at(q, 0)) & 65535) < table.window) --q;
  return q;
}

}  // namespace

Result<std::vector<ir::Tensor>> pack_curve(const ChannelValues& values, const ChannelValues& codes, const Curve& curve,
                                           const std::vector<LineBlock>& blocks, std::int64_t init_count) {
  OCTAVO_CHECK(values.check());
  OCTAVO_CHECK(codes.check());
  const auto scale_of = [&](std::int64_t channel) { return curve.coded ? curve.coded->factor : values.scale(channel); };
  // |acc|, or |code|, at most.
  const auto most = [&](std::int64_t sum) {
    return curve.coded ? static_cast<double>(std::max(-curve.coded->requant.first, curve.coded->requant.last))
                       : static_cast<double>(sum);
  };
  ir::Tensor lines(ir::DType::f32, {2 * init_count}), taken(ir::DType::s32, {init_count / 16}),
      packed(ir::DType::f32, {kCurveFloats});
  auto* m = lines.mutable_data<float>().data();
  auto* flags = taken.mutable_data<std::int32_t>().data();
  auto* to = packed.mutable_data<float>().data();
  // |x| at most, or infinite: an infinite x is not looked at.
  double limit = 0;
  for (const LineBlock& b : blocks) {
    for (std::size_t c = 0; c < b.limits.size(); ++c) {
      const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c);
      limit = std::max(limit, std::fabs(static_cast<double>(scale_of(channel))) * most(b.limits[c]) +
                                  std::fabs(static_cast<double>(values.bias(channel))));
    }
  }
  auto table = limit < 1e30 ? fit(curve, limit) : std::nullopt;
  if (table) {
    std::vector<double> errors;
    for (const LineBlock& b : blocks) {
      double error = 0;
      for (std::size_t c = 0; c < b.limits.size(); ++c) {
        const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c);
        error = std::max(error, channel_error(curve, *table, scale_of(channel), values.bias(channel)));
      }
      errors.push_back(error);
    }
    for (const double error : errors) {
      if (const auto window = window_for(error)) table->window = std::max(table->window, *window);
    }
    CurveTable moved = *table;  // the window begins at a multiple of 65536: all values move up by half of it
    for (auto& c : moved.c[0]) c += static_cast<float>(table->window) / 2;
    moved.floor += static_cast<float>(table->window) / 2;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const LineBlock& b = blocks[i];
      if (!window_for(errors[i])) continue;
      if (curve.coded) {
        const CodeLine line(curve, *table);
        const Quotient quotient = Quotient::of(curve.coded->requant);
        bool all = true;
        for (std::size_t c = 0; c < b.limits.size() && all; ++c) {
          const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c), at = b.init + static_cast<std::int64_t>(c);
          m[at] = codes.scale(channel), m[init_count + at] = codes.bias(channel);
          all = by_quotient(curve.coded->requant, quotient, m[at], m[init_count + at], b.limits[c]) &&
                right_near_the_window(curve, moved, line, values.bias(channel));
        }
        const float settled = static_cast<float>(settled_code(curve, moved, line)) / quotient.high;
        for (auto c = static_cast<std::int64_t>(b.limits.size()); c % 16 != 0; ++c) m[init_count + b.init + c] = settled;
        flags[b.init / 16] = all ? 1 : 0;
        to[(kCurveDegree + 1) * kCurvePieces + 3] = line.slope, to[(kCurveDegree + 1) * kCurvePieces + 4] = line.inverse,
                                               to[(kCurveDegree + 1) * kCurvePieces + 5] = line.start;
        continue;
      }
      flags[b.init / 16] = 1;
      for (std::size_t c = 0; c < b.limits.size(); ++c) {
        const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c), at = b.init + static_cast<std::int64_t>(c);
        m[at] = static_cast<float>(static_cast<double>(values.scale(channel)) / table->step);
        m[init_count + at] = static_cast<float>((static_cast<double>(values.bias(channel)) - table->center) / table->step);
      }
      for (auto c = static_cast<std::int64_t>(b.limits.size()); c % 16 != 0; ++c) m[init_count + b.init + c] = 8;  // a settled code
    }
    for (std::size_t k = 0; k <= kCurveDegree; ++k) to = std::copy(moved.c[k].begin(), moved.c[k].end(), to);
    to[0] = static_cast<float>(table->window), to[1] = table->below ? 1 : 0, to[2] = moved.floor;
  }
  return std::vector<ir::Tensor>{std::move(lines), std::move(taken), std::move(packed)};
}

LoweredEpilogue curve_epilogue(const LoweredEpilogue& e, const Curve& curve, const float* table) {
  LoweredEpilogue out = of_two_channel_values(e);
  out.operands.insert(out.operands.end(), e.operands.begin(), e.operands.end());
  auto written = std::make_shared<LoweredEpilogue>(e);
  written->operands = out.operands;
  for (Instr& in : written->code) {
    if (in.op == Op::load_f || in.op == Op::load_i) in.imm += 2;
  }
  out.written = std::move(written);
  const auto push = [&out](Instr in) {
    out.code.push_back(in);
    return static_cast<int>(out.code.size()) - 1;
  };
  const auto number = [&](float v) { return push({Op::imm_f, {-1, -1, -1, -1}, std::bit_cast<std::int32_t>(v)}); };
  const int acc = push({Op::acc_i});
  const int sum = push({Op::i2f, {acc, -1, -1, -1}});
  const int m = push({Op::load_f, {-1, -1, -1, -1}, 0}), b = push({Op::load_f, {-1, -1, -1, -1}, 1});
  const float* more = table + (kCurveDegree + 1) * kCurvePieces;
  int line = push({Op::fma, {sum, m, b, -1}});
  if (curve.coded) {
    const Requant& r = curve.coded->requant;
    const Quotient quotient = Quotient::of(r);
    const int high = number(quotient.high), low = number(quotient.low);
    line = push({Op::fma, {line, high, push({Op::mul, {line, low, -1, -1}}), -1}});
    line = push({Op::max, {line, number(static_cast<float>(r.first)), -1, -1}});
    line = push({Op::min, {line, number(static_cast<float>(r.last)), -1, -1}});
    const int code = push({Op::i2f, {push({Op::f2i, {line, -1, -1, -1}}), -1, -1, -1}});
    const int bias = push({Op::load_f, {-1, -1, -1, -1}, curve.bias + 2}), inverse = number(more[4]);
    const int start = push({Op::fma, {bias, inverse, number(more[5]), -1}});
    line = push({Op::fma, {code, number(more[3]), start, -1}});
  }
  const int limit = number(kLimit), magic = number(kMagic);
  Instr range{Op::nan0, {line, limit, -1, -1}};
  range.special = Special::within;
  const int t = push(range);
  Instr floor{Op::nan0, {t, magic, -1, -1}};
  floor.special = Special::add_down;
  const int piece = push(floor);
  int z = -1;
  for (int k = kCurveDegree; k >= 0; --k) {
    Instr values{Op::imm_f};
    values.block = static_cast<int>(out.blocks.size());
    auto& block = out.blocks.emplace_back();
    std::copy_n(table + k * kCurvePieces, kCurvePieces, block.begin());
    const int entries = push(values);
    Instr pick{Op::nan0, {piece, entries, -1, -1}};
    pick.special = Special::pick;
    const int c = push(pick);
    z = z < 0 ? c : push({Op::fma, {z, t, c, -1}});
  }
  if (more[1] != 0) {
    const int least = number(more[2]);
    z = push({Op::max, {z, least, -1, -1}});
  }
  out.pack.value = push({Op::f2i, {z, -1, -1, -1}});
  out.window = more[0] >= 1 && more[0] <= 32768 ? static_cast<std::int32_t>(more[0]) : 1;
  return out;
}

}  // namespace octavo::cpu::jit
