// top_k: the k largest or smallest elements along one dimension, with their positions. Blocks sort pieces of a line in shared memory and keep the first k of
// each; then groups of sorted pieces are joined until one is left: a thread counts how many elements of the others come before its own, by bisection, and
// puts it there. Elements are compared as numbers without a sign that stand in the reference's order, the position below the value, so no two are equal.
#include <algorithm>

#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kMostOfPiece = 2048, kJoined = 8;  ///< elements that a block sorts; sorted pieces that become one at a time

// NaN is larger than all, and -0 equals 0.
constexpr const char* kTopKFloats = R"(
typedef unsigned OctavoOrder;
OCTAVO_DEVICE OctavoOrder octavo_order(float v) {
  if (v != v) return 0xffffffffu;
  const unsigned bits = v == 0.0f ? 0u : (unsigned)__float_as_int(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
)";
constexpr const char* kTopKNarrow = R"(
typedef unsigned long long OctavoEntry;
OCTAVO_DEVICE bool octavo_before(OctavoEntry a, OctavoEntry b) { return a < b; }
OCTAVO_DEVICE OctavoEntry octavo_entry(OctavoOrder order, long long place) { return (unsigned long long)order << 32 | (unsigned long long)place; }
OCTAVO_DEVICE long long octavo_place(OctavoEntry e) { return (long long)(e & 0xffffffffull); }
)";
constexpr const char* kTopKWide = R"(
struct OctavoEntry {
  unsigned long long order, place;
};
OCTAVO_DEVICE bool octavo_before(const OctavoEntry& a, const OctavoEntry& b) { return a.order != b.order ? a.order < b.order : a.place < b.place; }
OCTAVO_DEVICE OctavoEntry octavo_entry(OctavoOrder order, long long place) { return {order, (unsigned long long)place}; }
OCTAVO_DEVICE long long octavo_place(const OctavoEntry& e) { return (long long)e.place; }
)";

constexpr const char* kTopKFunctions = R"(
OCTAVO_DEVICE long long octavo_base(long long line) { return line / kInner * kExtent * kInner + line % kInner; }
OCTAVO_DEVICE OctavoEntry octavo_element(const OctavoTensors& t, long long line, long long place) {
  const OctavoOrder order = octavo_order(octavo_x0(t, octavo_base(line) + place * kInner));
  return octavo_entry(kLargest ? (OctavoOrder)~order : order, place);
}
OCTAVO_DEVICE void octavo_give(const OctavoTensors& t, long long line, long long rank, const OctavoEntry& e) {
  const long long to = (line / kInner * kTop + rank) * kInner + line % kInner, place = octavo_place(e);
  octavo_put_bits0(t, to, octavo_bits0(t, octavo_base(line) + place * kInner));
  octavo_put1(t, to, place);
}
)";

// A thread two elements: of steps of at most 32 elements, those of a warp stay within 64 that are its own.
constexpr const char* kTopKSort = R"(
  __shared__ OctavoEntry sorted[kPiece];
  const int mine = octavo_thread();
  const long long line = octavo_block() / kPieces, piece = octavo_block() % kPieces, from = piece * kPiece;
  for (int q = mine; q < kPiece; q += kPiece / 2) {
    OctavoEntry e = octavo_entry((OctavoOrder)~(OctavoOrder)0, 0xffffffffll);
    if (from + q < kExtent) e = octavo_element(t, line, from + q);
    sorted[q] = e;
  }
  octavo_barrier();
  for (int size = 2; size <= kPiece; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      if (step >= 32)
        octavo_barrier();
      else
        octavo_warp_barrier();
      const int a = 2 * mine - (mine & (step - 1));  // below it, and from `step` behind it on, other threads have theirs
      const OctavoEntry x = sorted[a], y = sorted[a + step];
      if (octavo_before(y, x) == ((a & size) == 0)) sorted[a] = y, sorted[a + step] = x;
    }
  }
  octavo_barrier();
  const long long kept = min(min(kTop, kPiece), kExtent - from);
  for (long long q = mine; q < kept; q += kPiece / 2) {
    const OctavoEntry e = sorted[q];
    if (kPieces == 1)
      octavo_give(t, line, q, e);
    else
      ((OctavoEntry*)t.w)[octavo_block() * min(kTop, kPiece) + q] = e;
  }
)";

// Runs of up to `span` elements of the line, of which `length` were kept.
constexpr const char* kTopKJoin = R"(
  constexpr long long kSpan = {span}, kRuns = {runs}, kLength = {length}, kGroups = {groups}, kNext = {next};
  const OctavoEntry* const all = (const OctavoEntry*)t.w + {from};
  const long long line = i / (kRuns * kLength), run = i / kLength % kRuns, q = i % kLength, first = run / {joined} * {joined};
  if (q >= min(kTop, kExtent - run * kSpan)) return;
  const OctavoEntry* const group = all + (line * kRuns + first) * kLength;
  const OctavoEntry mine = group[(run - first) * kLength + q];
  int found[{joined}], lengths[{joined}];
  OCTAVO_UNROLL
  for (int r = 0; r < {joined}; ++r) {{
    const long long left = first + r == run || first + r >= kRuns ? 0ll : min(kLength, kExtent - (first + r) * kSpan);
    found[r] = 0, lengths[r] = (int)left;
  }}
  for (int step = {step}; step > 0; step /= 2) {{
    OCTAVO_UNROLL
    for (int r = 0; r < {joined}; ++r) {{
      const int to = found[r] + step;
      if (to <= lengths[r] && octavo_before(group[r * kLength + to - 1], mine)) found[r] = to;
    }}
  }}
  long long rank = q;
  OCTAVO_UNROLL
  for (int r = 0; r < {joined}; ++r) rank += found[r];
  if (rank >= kTop) return;
  if (kGroups == 1)
    octavo_give(t, line, rank, mine);
  else
    ((OctavoEntry*)t.w)[{to} + (line * kGroups + run / {joined}) * kNext + rank] = mine;
)";

/// Sorted runs after some passes.
struct Runs {
  std::int64_t span, count, length;
};

class TopKFamily final : public PlainFamily {
 public:
  TopKFamily() : PlainFamily("top_k", {ir::Op::top_k}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const auto& top = s.anchor.as<ir::TopK>();
    ir::Shape y = s.anchor.inputs[0].dims;
    OCTAVO_TRY(const Line line, line_of(y, top.axis));
    if (top.k < 0 || top.k > line.extent)
      return fail(ErrorKind::bad_engine, fmt::format("top_k of {} along axis {} of {}", top.k, top.axis, ir::to_string(y)));
    y[static_cast<std::size_t>(top.axis)] = top.k;
    return std::vector<ir::Shape>{y, y};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& top = s.anchor.as<ir::TopK>();
    const region::TensorRef& x = s.anchor.inputs[0];
    OCTAVO_TRY(const Line line, line_of(x.dims, top.axis));
    if (line.extent < 1 || line.extent >= (std::int64_t{1} << 30)) return refuse("elements to compare", line.extent, "1 to 2^30");
    if (top.k < 1) return refuse("elements to find", top.k, "1 and more");
    std::int64_t piece = 64;
    while (piece < line.extent && piece < kMostOfPiece) piece *= 2;
    std::vector<Runs> runs{{piece, parts(line.extent, piece), std::min(top.k, piece)}};
    std::int64_t elements[2] = {runs[0].count * runs[0].length, 0};  // in both parts of the scratch memory, which take turns
    while (runs.back().count > 1) {
      const std::int64_t span = runs.back().span * kJoined;
      runs.push_back({span, parts(line.extent, span), std::min({top.k, span, line.extent})});
      std::int64_t& most = elements[(runs.size() - 1) % 2];
      if (runs.back().count > 1) most = std::max(most, runs.back().count * runs.back().length);
    }
    const bool wide = !reads_floats(x) && ir::size_of(x.dtype) == 8;
    PlainText t;
    t.functions = orders(x) + (wide ? kTopKWide : kTopKNarrow) +
                  fmt::format(
                      "constexpr bool kLargest = {};\nconstexpr long long kExtent = {}, kInner = {}, kTop = {}, kPiece = {}, "
                      "kPieces = {};\n",
                      top.largest, line.extent, line.inner, top.k, piece, runs[0].count) +
                  kTopKFunctions;
    if (runs.size() > 1) t.scratch_bytes = (wide ? 16 : 8) * line.lines * (elements[0] + elements[1]);
    const auto threads = static_cast<int>(piece / 2);
    t.passes = {PlainPass{kTopKSort, line.lines * runs[0].count * threads, threads, true}};
    for (std::size_t k = 1; k < runs.size(); ++k) {
      const Runs &in = runs[k - 1], &out = runs[k];
      std::int64_t step = 1;
      while (step * 2 <= in.length) step *= 2;
      const std::int64_t other = line.lines * elements[0];
      t.passes.push_back(
          {fmt::format(kTopKJoin, fmt::arg("span", in.span), fmt::arg("runs", in.count), fmt::arg("length", in.length),
                       fmt::arg("groups", out.count), fmt::arg("next", out.length), fmt::arg("joined", kJoined),
                       fmt::arg("step", step), fmt::arg("from", k % 2 == 1 ? 0 : other), fmt::arg("to", k % 2 == 1 ? other : 0)),
           line.lines * in.count * in.length});
      t.work += static_cast<double>(line.lines * in.count * in.length) * 8 * kJoined;
    }
    t.work += static_cast<double>(line.lines * runs[0].count * piece) * 66;
    t.chain = 100.0 * static_cast<double>(runs.size());
    return t;
  }

 private:
  static std::string orders(const region::TensorRef& x) {
    if (reads_floats(x)) return kTopKFloats;
    const bool wide = ir::size_of(x.dtype) == 8;
    const char* type = wide ? "unsigned long long" : "unsigned";
    const char* sign = wide ? " ^ 0x8000000000000000ull"
                       : x.dtype == ir::DType::s8 || x.dtype == ir::DType::s16 || x.dtype == ir::DType::s32 ? " ^ 0x80000000u"
                                                                                                            : "";
    return fmt::format("typedef {0} OctavoOrder;\nOCTAVO_DEVICE OctavoOrder octavo_order(long long v) {{ return ({0})v{1}; }}\n",
                       type, sign);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(top_k, TopKFamily)

}  // namespace octavo::cuda
