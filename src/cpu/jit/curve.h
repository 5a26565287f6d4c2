// A smooth activation and the rounding behind it as one piecewise polynomial with an error window. The window is sampled, not proven.
//
//   written:  code = clamp(round(steps(f(x))) + zero),  x = scale[c] * acc + bias[c],  f: a SiLU, tanh, GELU, ... in floats
//   computed: z = p(t), t = m[c] * acc + b[c] clamped to 16 intervals; p approximates 65536 * (code before rounding + 1/2)
//
// Why    f is some 25 dependent instructions, the polynomial is 10.
// Exact  where the error of z stays below the window: z is an integer whose bits 16 to 23 are the code unless the value lies within
//        z's error of a place where codes change, and then the low 16 bits of z are less than `window`. Such a group of up to 64
//        codes (1 to 3 of 100) is computed again as written, in a routine of its own.
// Bound  the error is the largest one found by comparison with the oracle at some thousand arguments, rounding noise of the written
//        floats included, times a safety factor, plus what rounding m, b and t can do to a channel. That is a sample: no proof
//        covers the arguments in between. Only functions that are known to be smooth are replaced.
//
// Q/DQ pairs in front of the bias make x a function of a code instead: x = factor * q + bias[c], q a requantization of acc. Then q is
// computed as a quotient, proven for every channel (requant.h), and t = fma(q, factor / step, fma(bias[c], 1 / step, -center / step)).
// There are 256 q, so what the kernel makes of those near to the window is compared with the written codes, channel by channel.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/jit/lower.h"
#include "cpu/jit/requant.h"

namespace octavo::cpu::jit {

inline constexpr int kCurveDegree = 4, kCurvePieces = 16;
/// One group of 64 in ten is open then.
inline constexpr std::int32_t kWidestWindow = 96;

/// What is behind the float x of a packed code, to be evaluated by the oracle.
class Curve {
 public:
  int scale = -1, bias = -1;  ///< f32 operands of x, per channel or uniform; bias -1: none
  bool fused = true;          ///< fma(acc, scale, bias)
  program::Function function = program::Function::silu;
  struct Coded {
    Requant requant;  ///< of acc, with zero point 0
    float factor = 1;
  };
  std::optional<Coded> coded;  ///< x = factor * code + bias; no `scale` then

  /// Empty: `out` describes the packed value, and every output is a sink of the pack. Otherwise why not.
  static Reasons find(const LoweredEpilogue& e, Curve& out);
  /// value + zero before it is rounded and clamped, as written; a NaN where it is none.
  [[nodiscard]] double at(float x) const;
  /// Bounds of the code.
  [[nodiscard]] double lo() const { return lo_; }
  [[nodiscard]] double hi() const { return hi_; }
  /// The code as the kernels of the written form give it.
  [[nodiscard]] std::int32_t code(float x) const;

 private:
  std::vector<program::Instr> cone_;  ///< value 0 is x
  std::int32_t zero_ = 0, lo_ = 0, hi_ = 255;
};

/// The polynomials, in t = (x - center) / step, on [-8, 8).
struct CurveTable {
  std::array<std::array<float, kCurvePieces>, kCurveDegree + 1> c{};  ///< [power][floor(t) & 15]
  double center = 0, step = 1;
  double error = 0;    ///< largest difference to the oracle met, in units of 2^-16 codes
  double slope = 0;    ///< largest |dz/dt|
  bool below = false;  ///< z has to be kept from falling below `floor`
  float floor = 0;
  std::int32_t window = 0;
};
/// Polynomials for the x where the code changes, without a window; empty: no such place, or values that are no numbers.
/// `limit`: of |x|. A function that does not settle within accuracy loses its far end, which is then always computed as written.
[[nodiscard]] std::optional<CurveTable> fit(const Curve& curve, double limit);
/// The error of z for a channel, in units. `scale`: the factor where x is of a code.
[[nodiscard]] double channel_error(const Curve& curve, const CurveTable& table, float scale, float bias);
/// Values of z whose low 16 bits are less, once half of it is added, may have the wrong code; nothing where too many would be.
[[nodiscard]] std::optional<std::int32_t> window_for(double error);
/// z for a t that was computed, as the kernels do it.
[[nodiscard]] std::int32_t curve_value(const CurveTable& table, float t);

/// f32[2 * init_count] and s32[init_count / 16] as pack_lines (requant.h) returns them; then f32[kCurveFloats].
inline constexpr std::int64_t kCurveFloats = (kCurveDegree + 1) * kCurvePieces + 16;
/// `values`: scale (of the code in the middle where there is one) and bias of x; `codes`: those of that code.
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_curve(const ChannelValues& values, const ChannelValues& codes,
                                                         const Curve& curve, const std::vector<LineBlock>& blocks,
                                                         std::int64_t init_count);
/// The epilogue with the packed table: streams are m, b (f32, a channel each), e's operands, then the stores.
[[nodiscard]] LoweredEpilogue curve_epilogue(const LoweredEpilogue& e, const Curve& curve, const float* table);

}  // namespace octavo::cpu::jit
