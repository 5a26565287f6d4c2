// dynamic_quantize: DynamicQuantizeLinear. Blocks find the ranges of pieces of the tensor; then every block joins these and quantizes its share, with the
// reference's operations, so the same codes.
#include <algorithm>

#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kDynamicQuantizeFunctions = R"(
struct OctavoRange {
  float lo, hi;
};
OCTAVO_DEVICE OctavoRange octavo_joined(OctavoRange r, float lo, float hi) {
  return {octavo_lt(lo, r.lo, lo, r.lo), octavo_gt(hi, r.hi, hi, r.hi)};
}
OCTAVO_DEVICE int octavo_code(float v, float scale, int zero) {
  const float ratio = __fdiv_rn(v, scale);
  if (ratio != ratio) return zero;
  const float code = rintf(ratio), lo = (float)(0 - zero), hi = (float)(255 - zero);
  return (int)(code < lo ? lo : code > hi ? hi : code) + zero;
}
)";

// The range of what all threads of the block found, in lows[0] and highs[0].
constexpr const char* kDynamicQuantizeJoin = R"(
  __shared__ float lows[256], highs[256];
  const int mine = octavo_thread();
  lows[mine] = r.lo, highs[mine] = r.hi;
  for (int half = 128; half > 0; half /= 2) {
    octavo_barrier();
    if (mine >= half) continue;
    r = octavo_joined(r, lows[mine + half], highs[mine + half]);
    lows[mine] = r.lo, highs[mine] = r.hi;
  }
)";

constexpr const char* kDynamicQuantizeQuantize = R"(
  octavo_barrier();
  const float range = __fdiv_rn(__fsub_rn(highs[0], lows[0]), 255.0f), scale = range > 0.0f ? range : 1.0f;
  const int zero = octavo_code(__fsub_rn(0.0f, lows[0]), scale, 0);
  const long long at = (long long)octavo_block() * 256 + mine;
  if (at == 0) octavo_put1(t, 0, scale), octavo_put2(t, 0, (long long)zero);
  if (at < kElements) octavo_put0(t, at, (long long)octavo_code(octavo_x0(t, at), scale, zero));
)";

class DynamicQuantizeFamily final : public PlainFamily {
 public:
  DynamicQuantizeFamily() : PlainFamily("dynamic_quantize", {ir::Op::dynamic_quantize}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    return std::vector<ir::Shape>{s.anchor.inputs[0].dims, {}, {}};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const std::int64_t n = ir::count(x.dims), pieces = std::clamp<std::int64_t>(n / 2048, 1, 256);
    PlainText t;
    t.functions = fmt::format("constexpr long long kElements = {}, kPieces = {};\n", n, pieces) + kDynamicQuantizeFunctions;
    t.scratch_bytes = pieces * 8;
    const PlainPass ranges{
        fmt::format("  OctavoRange r{{0.0f, 0.0f}};\n"
                    "  for (long long k = (long long)octavo_block() * 256 + octavo_thread(); k < kElements; k += kPieces * "
                    "256) {{\n    const float v = octavo_x0(t, k);\n    r = octavo_joined(r, v, v);\n  }}\n{}"
                    "  if (mine == 0) ((float*)t.w)[2 * octavo_block()] = r.lo, ((float*)t.w)[2 * octavo_block() + 1] = "
                    "r.hi;\n",
                    kDynamicQuantizeJoin),
        pieces * 256, 256, true};
    const PlainPass codes{
        fmt::format("  OctavoRange r{{0.0f, 0.0f}};\n  if (octavo_thread() < kPieces) r = octavo_joined(r, ((const "
                    "float*)t.w)[2 * octavo_thread()], ((const float*)t.w)[2 * octavo_thread() + 1]);\n{}{}",
                    kDynamicQuantizeJoin, kDynamicQuantizeQuantize),
        std::max<std::int64_t>(n, 1), 256, true};
    t.passes = {ranges, codes};
    t.work = 2.0 * static_cast<double>(n);
    t.chain = static_cast<double>(n) / static_cast<double>(pieces * 256);
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(dynamic_quantize, DynamicQuantizeFamily)

}  // namespace octavo::cuda
