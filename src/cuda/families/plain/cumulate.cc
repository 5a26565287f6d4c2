// cumulate: sums or products along one dimension. Floats in the reference's order, which is one chain of operations: a warp a line, whose lanes read ahead
// and all compute the same chain; or a thread a line, where there are many. Integers wrap, so their order does not matter: blocks fold pieces of a line, and
// then scan them behind what the pieces before them gave.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr int kScanThreads = 256, kScanPiece = 8 * kScanThreads;
constexpr std::int64_t kManyLines = 4096, kShortLine = 64;

// Element j of a line, in the order of the sum.
constexpr const char* kCumulateFunctions = R"(
OCTAVO_DEVICE long long octavo_at(long long line, long long j) {
  return line / kInner * kExtent * kInner + line % kInner + (kReverse ? kExtent - 1 - j : j) * kInner;
}
)";

constexpr const char* kCumulateThread = R"(
  OctavoSum sum = kStart;
  for (long long from = 0; from < kExtent; from += 16) {
    OctavoSum ahead[16];
    OCTAVO_UNROLL
    for (int k = 0; k < 16; ++k) ahead[k] = from + k < kExtent ? (OctavoSum)octavo_x0(t, octavo_at(i, from + k)) : kStart;
    OCTAVO_UNROLL
    for (int k = 0; k < 16; ++k) {
      const OctavoSum next = octavo_next(sum, ahead[k]);
      if (from + k < kExtent) octavo_put0(t, octavo_at(i, from + k), (OctavoStored)(kExclusive ? sum : next));
      sum = next;
    }
  }
)";

constexpr const char* kCumulateWarp = R"(
  __shared__ OctavoSum held[128];
  const int mine = octavo_thread();
  const long long line = octavo_block();
  OctavoSum sum = kStart, ahead[4];
  OCTAVO_UNROLL
  for (int r = 0; r < 4; ++r) ahead[r] = 32 * r + mine < kExtent ? (OctavoSum)octavo_x0(t, octavo_at(line, 32 * r + mine)) : kStart;
  for (long long from = 0; from < kExtent; from += 128) {
    OCTAVO_UNROLL
    for (int r = 0; r < 4; ++r) held[32 * r + mine] = ahead[r];
    octavo_warp_barrier();
    OCTAVO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const long long j = from + 128 + 32 * r + mine;
      ahead[r] = j < kExtent ? (OctavoSum)octavo_x0(t, octavo_at(line, j)) : kStart;
    }
    OCTAVO_UNROLL
    for (int r = 0; r < 4; ++r) {
      OctavoSum given = kStart;
      OCTAVO_UNROLL
      for (int k = 0; k < 32; ++k) {
        const OctavoSum next = octavo_next(sum, held[32 * r + k]);
        if (k == mine) given = kExclusive ? sum : next;
        sum = next;
      }
      const long long j = from + 32 * r + mine;
      if (j < kExtent) octavo_put0(t, octavo_at(line, j), (OctavoStored)given);
    }
    octavo_warp_barrier();
  }
)";

// Scratch memory: what each piece gave. A thread has eight neighbouring elements.
constexpr const char* kCumulatePiece = R"(
  __shared__ OctavoSum held[256];
  const int mine = octavo_thread();
  const long long line = octavo_block() / kPieces, from = octavo_block() % kPieces * 2048ll + 8 * mine;
  OctavoSum own = kStart;
  for (int q = 0; q < 8; ++q) {
    if (from + q < kExtent) own = octavo_next(own, (OctavoSum)octavo_x0(t, octavo_at(line, from + q)));
  }
)";
constexpr const char* kCumulateFold = R"(
  own = octavo_scanned(held, own);
  if (mine == 255) ((OctavoSum*)t.w)[octavo_block()] = own;
)";
constexpr const char* kCumulateScan = R"(
  OctavoSum before = kStart;
  for (int b = mine; b < octavo_block() % kPieces; b += 256) before = octavo_next(before, ((const OctavoSum*)t.w)[line * kPieces + b]);
  octavo_scanned(held, before);
  OctavoSum sum = held[255];
  octavo_scanned(held, own);
  if (mine > 0) sum = octavo_next(sum, held[mine - 1]);
  for (int q = 0; q < 8; ++q) {
    if (from + q >= kExtent) break;
    const long long at = octavo_at(line, from + q);
    const OctavoSum next = octavo_next(sum, (OctavoSum)octavo_x0(t, at));
    octavo_put0(t, at, (OctavoStored)(kExclusive ? sum : next));
    sum = next;
  }
)";

class CumulateFamily final : public PlainFamily {
 public:
  CumulateFamily() : PlainFamily("cumulate", {ir::Op::cumulate}, 1) {}

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::Cumulate>();
    const region::TensorRef& x = s.anchor.inputs[0];
    OCTAVO_TRY(const Line line, line_of(x.dims, facts.axis));
    const bool real = reads_floats(x), product = facts.function == ir::Accumulation::prod;
    const std::int64_t pieces = std::max<std::int64_t>(parts(line.extent, kScanPiece), 1);
    PlainText t;
    t.functions =
        fmt::format(
            "typedef {} OctavoSum;\ntypedef {} OctavoStored;\nconstexpr long long kExtent = {}, kInner = {}, kPieces = {};\n"
            "constexpr OctavoSum kStart = {};\nconstexpr bool kReverse = {}, kExclusive = {};\n"
            "OCTAVO_DEVICE OctavoSum octavo_next(OctavoSum sum, OctavoSum v) {{ return {}; }}\n",
            real ? "float" : "unsigned long long", real ? "float" : "long long", line.extent, line.inner, pieces, product ? 1 : 0,
            facts.reverse, facts.exclusive,
            real      ? (product ? "__fmul_rn(sum, v)" : "__fadd_rn(sum, v)")
            : product ? "sum * v"
                      : "sum + v") +
        kCumulateFunctions;
    t.work = static_cast<double>(ir::count(x.dims));
    if (line.lines >= kManyLines || line.extent <= kShortLine) {
      t.passes = {PlainPass{kCumulateThread, line.lines, 64}};
      t.chain = static_cast<double>(line.extent) / 8;
    } else if (real) {
      t.passes = {PlainPass{kCumulateWarp, line.lines * 32, 32, true}};
      t.chain = static_cast<double>(line.extent) / 8;
    } else {
      t.functions += scan_text("OctavoSum", kScanThreads, "octavo_next(a, b)");
      t.scratch_bytes = 8 * line.lines * pieces;
      const PlainPass fold{std::string(kCumulatePiece) + kCumulateFold, line.lines * pieces * kScanThreads, kScanThreads, true};
      PlainPass scan = fold;
      scan.body = std::string(kCumulatePiece) + kCumulateScan;
      t.passes = {fold, scan};
      t.chain = 40;
    }
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(cumulate, CumulateFamily)

}  // namespace octavo::cuda
