// top_k: the k largest or smallest elements along one dimension, with their positions. A thread counts the elements that come before its own, and puts it
// there; it stops when there are k of them.
#include "cuda/families/plain/plain.h"
#include "program/program.h"

namespace octavo::cuda {
namespace {

constexpr const char* kTopKRank = R"(
// Of equal elements the one with the lower position comes first; NaN is larger than all.
OCTAVO_DEVICE bool octavo_before(OctavoValue u, long long p, OctavoValue v, long long q) {
  const bool un = u != u, vn = v != v;
  if (un != vn) return kLargest ? un : vn;
  if (!un && u != v) return kLargest ? u > v : u < v;
  return p < q;
}
)";

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
    PlainText t;
    t.functions = fmt::format("typedef {} OctavoValue;\nconstexpr bool kLargest = {};\n", reads_floats(x) ? "float" : "long long",
                              top.largest) +
                  kTopKRank;
    PlainPass rank;
    rank.threads = line.lines * line.extent;
    rank.body = fmt::format(R"(  const long long line = i / {extent}ll, at = i % {extent}ll;
  const long long base = line / {inner}ll * {step}ll + line % {inner}ll;
  const OctavoValue mine = octavo_x0(t, base + at * {inner}ll);
  long long before = 0;
  for (long long p = 0; p < {extent}ll && before < {k}ll; ++p) before += octavo_before(octavo_x0(t, base + p * {inner}ll), p, mine, at);
  if (before >= {k}ll) return;
  const long long to = (line / {inner}ll * {k}ll + before) * {inner}ll + line % {inner}ll;
  octavo_put_bits0(t, to, octavo_bits0(t, base + at * {inner}ll));
  octavo_put1(t, to, at);
)",
                            fmt::arg("extent", line.extent), fmt::arg("inner", line.inner),
                            fmt::arg("step", line.extent * line.inner), fmt::arg("k", top.k));
    t.passes = {rank};
    t.work = static_cast<double>(line.lines) * static_cast<double>(line.extent) * static_cast<double>(line.extent);
    t.chain = static_cast<double>(line.extent);
    return t;
  }
};

}  // namespace

const Family& top_k_family() {
  static const TopKFamily family;
  return family;
}

}  // namespace octavo::cuda
