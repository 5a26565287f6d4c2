// non_zero: the positions of elements that are not 0, zeros behind them, and how many there are. Blocks count in pieces of the elements; then each adds up
// what the blocks before it counted, and stores the positions of its piece behind theirs, a thread those of eight neighbouring elements.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr int kNonZeroThreads = 256, kNonZeroPiece = 8 * kNonZeroThreads;

constexpr const char* kNonZeroCount = R"(
  __shared__ int held[256];
  const int mine = octavo_thread();
  const long long from = octavo_block() * 2048ll, there = octavo_there(t);
  int n = 0;
  for (int q = mine; q < 2048; q += 256) n += from + q < there && octavo_is_set(t, from + q) ? 1 : 0;
  n = octavo_scanned(held, n);
  if (mine == 255) ((int*)t.w)[octavo_block()] = n;
)";

constexpr const char* kNonZeroWrite = R"(
  __shared__ int held[256];
  const int mine = octavo_thread();
  const long long from = octavo_block() * 2048ll + 8 * mine, there = octavo_there(t);
  int before = 0, all = 0, n = 0;
  for (int b = mine; b < kPieces; b += 256) {
    const int count = ((const int*)t.w)[b];
    all += count;
    if (b < octavo_block()) before += count;
  }
  octavo_scanned(held, before);
  long long to = held[255];
  octavo_scanned(held, all);
  const int total = held[255];
  for (int q = 0; q < 8; ++q) n += from + q < there && octavo_is_set(t, from + q) ? 1 : 0;
  to += octavo_scanned(held, n) - n;
  for (int q = 0; q < 8; ++q) {
    if (from + q >= kElements) break;
    if (from + q < there && octavo_is_set(t, from + q)) octavo_put0(t, to++, from + q);
    if (from + q >= total) octavo_put0(t, from + q, 0);
  }
  if (octavo_block() == 0 && mine == 0) octavo_put1(t, 0, total);
)";

class NonZeroFamily final : public PlainFamily {
 public:
  NonZeroFamily() : PlainFamily("non_zero", {ir::Op::non_zero}, 0) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (s.anchor.inputs.size() > 2)
      return fail(ErrorKind::bad_engine, fmt::format("non_zero of {} operands", s.anchor.inputs.size()));
    if (x.dims.size() != 1) return fail(ErrorKind::bad_engine, fmt::format("non_zero of {}", ir::to_string(x.dims)));
    return std::vector<ir::Shape>{x.dims, {}};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (x.dims[0] >= (std::int64_t{1} << 31)) return refuse("elements", x.dims[0], "less than 2^31");
    // A double may be less than any float but 0.
    const char* is_set = x.dtype == ir::DType::f64 ? "((const double*)t.x0)[octavo_at_x0(i)] != 0.0" : "octavo_x0(t, i) != 0";
    PlainText t;
    t.functions = fmt::format(
        "constexpr long long kElements = {};\nOCTAVO_DEVICE bool octavo_is_set(const OctavoTensors& t, long long i) "
        "{{ return {}; }}\n",
        x.dims[0], is_set);
    t.functions += fmt::format(
        "// How many elements there are.\nOCTAVO_DEVICE long long octavo_there(const OctavoTensors& t) {{ return {}; }}\n",
        s.anchor.inputs.size() == 1 ? "kElements" : "min(max(octavo_x1(t, 0), 0ll), kElements)");
    const std::int64_t pieces = std::max<std::int64_t>(parts(x.dims[0], kNonZeroPiece), 1);
    t.functions += fmt::format("constexpr int kPieces = {};\n", pieces) + scan_text("int", kNonZeroThreads, "a + b");
    t.scratch_bytes = 4 * pieces;
    const std::int64_t threads = pieces * kNonZeroThreads;
    t.passes = {PlainPass{kNonZeroCount, threads, kNonZeroThreads, true}, PlainPass{kNonZeroWrite, threads, kNonZeroThreads, true}};
    t.work = static_cast<double>(x.dims[0]) * 4;
    t.chain = 32 + static_cast<double>(pieces) / kNonZeroThreads;
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(non_zero, NonZeroFamily)

}  // namespace octavo::cuda
