// non_zero: the positions of elements that are not 0, zeros behind them, and how many there are. One block: every thread counts in its piece of the
// elements, the counts are added up, and every thread stores its positions behind those of the threads before it.
#include <string>

#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr int kNonZeroThreads = 1024;

constexpr const char* kNonZeroBody = R"(
  __shared__ int counts[1024];
  const int mine = octavo_thread();
  const long long piece = (@ + 1023) / 1024, begin = min(mine * piece, @), end = min(begin + piece, @);
  int n = 0;
  for (long long k = begin; k < end; ++k) n += octavo_is_set(t, k) ? 1 : 0;
  counts[mine] = n;
  int sum = n;  // of the threads up to this one
  for (int step = 1; step < 1024; step *= 2) {
    octavo_barrier();
    const int before = mine >= step ? counts[mine - step] : 0;
    octavo_barrier();
    counts[mine] = sum = sum + before;
  }
  octavo_barrier();
  const int total = counts[1023];
  long long to = sum - n;
  for (long long k = begin; k < end; ++k) {
    if (octavo_is_set(t, k)) octavo_put0(t, to++, k);
  }
  for (long long k = total + mine; k < kElements; k += 1024) octavo_put0(t, k, 0);
  if (mine == 0) octavo_put1(t, 0, total);
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
    const bool all = s.anchor.inputs.size() == 1;
    if (!all)
      t.functions +=
          "OCTAVO_DEVICE long long octavo_there(const OctavoTensors& t) { return min(max(octavo_x1(t, 0), 0ll), kElements); }\n";
    std::string body = all ? "" : "\n  const long long there = octavo_there(t);";
    for (const char* c = kNonZeroBody; *c != 0; ++c) {
      if (*c == '@') {
        body += all ? "kElements" : "there";
      } else {
        body += *c;
      }
    }
    t.passes = {PlainPass{std::move(body), kNonZeroThreads, kNonZeroThreads, true}};
    t.chain = 2.0 * static_cast<double>(x.dims[0]) / kNonZeroThreads;
    return t;
  }
};

}  // namespace

const Family& non_zero_family() {
  static const NonZeroFamily family;
  return family;
}

}  // namespace octavo::cuda
