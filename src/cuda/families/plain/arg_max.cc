// arg_max: the position of the largest element along one dimension, the first or the last of equal ones. A block a result: its threads share the
// elements, and join what they found. Or a thread a result, where there are many results of few elements.
#include <algorithm>

#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

// What is compared with a NaN is not greater: a NaN is the largest where it is the first element, and nowhere else.
constexpr const char* kArgMaxFunctions = R"(
OCTAVO_DEVICE void octavo_take(OctavoValue& value, int& place, OctavoValue v, int k) {
  if (v == v && (place < 0 || v > value || (kLast && v == value))) value = v, place = k;
}
)";

constexpr const char* kArgMaxThread = R"(
  const long long base = i / kInner * kExtent * kInner + i % kInner;
  const OctavoValue first = octavo_x0(t, base);
  OctavoValue value = 0;
  int place = -1;
  for (int k = 0; k < kExtent; ++k) octavo_take(value, place, octavo_x0(t, base + k * kInner), k);
  octavo_put0(t, i, first != first ? 0 : (long long)place);
)";

constexpr const char* kArgMaxBlock = R"(
  __shared__ OctavoValue values[kBlock];
  __shared__ int places[kBlock];
  const int mine = octavo_thread();
  const long long base = octavo_block() / kInner * kExtent * kInner + octavo_block() % kInner;
  OctavoValue value = 0;
  int place = -1;
  for (int k = mine; k < kExtent; k += kBlock) octavo_take(value, place, octavo_x0(t, base + k * kInner), k);
  values[mine] = value, places[mine] = place;
  for (int half = kBlock / 2; half > 0; half /= 2) {
    octavo_barrier();
    if (mine >= half) continue;
    const OctavoValue v = values[mine + half];
    const int p = places[mine + half];
    if (p < 0 || (place >= 0 && (v < value || (v == value && (kLast ? p < place : p > place))))) continue;
    values[mine] = value = v, places[mine] = place = p;
  }
  if (mine != 0) return;
  const OctavoValue first = octavo_x0(t, base);
  octavo_put0(t, octavo_block(), first != first ? 0 : (long long)place);
)";

class ArgMaxFamily final : public PlainFamily {
 public:
  ArgMaxFamily() : PlainFamily("arg_max", {ir::Op::arg_max}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::ArgMax>();
    ir::Shape y = s.anchor.inputs[0].dims;
    OCTAVO_CHECK(line_of(y, facts.axis));
    if (facts.keepdims)
      y[static_cast<std::size_t>(facts.axis)] = 1;
    else
      y.erase(y.begin() + facts.axis);
    return std::vector<ir::Shape>{y};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::ArgMax>();
    const region::TensorRef& x = s.anchor.inputs[0];
    OCTAVO_TRY(const Line line, line_of(x.dims, facts.axis));
    if (line.extent < 1 || line.extent >= (std::int64_t{1} << 30)) return refuse("elements to compare", line.extent, "1 to 2^30");
    // Neighbouring threads read neighbouring elements where other dimensions are inside; else a line of one is in few pieces of 32 bytes.
    constexpr std::int64_t kManyResults = 4096, kInside = 32, kFewElements = 1024, kShortLine = 64;
    const bool alone = line.lines >= kManyResults && line.extent <= (line.inner >= kInside ? kFewElements : kShortLine);
    PlainPass pass;
    if (!alone) {
      pass.whole_blocks = true;
      pass.block = 32;
      while (pass.block < 256 && pass.block * 4 < line.extent) pass.block *= 2;
    }
    pass.threads = alone ? line.lines : line.lines * pass.block;
    pass.body = alone ? kArgMaxThread : kArgMaxBlock;
    PlainText t;
    t.functions = fmt::format(
        "typedef {} OctavoValue;\nconstexpr int kBlock = {}, kExtent = {};\nconstexpr long long kInner = {};\nconstexpr bool "
        "kLast = {};\n",
        reads_floats(x) ? "float" : "long long", pass.block, line.extent, line.inner, facts.select_last_index);
    t.functions += kArgMaxFunctions;
    t.passes = {pass};
    t.work = static_cast<double>(line.lines) * static_cast<double>(line.extent);
    t.chain = alone ? static_cast<double>(line.extent) / 8 : static_cast<double>(line.extent) / pass.block;
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(arg_max, ArgMaxFamily)

}  // namespace octavo::cuda
