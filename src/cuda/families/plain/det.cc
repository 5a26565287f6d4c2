// det: elimination with pivots in double, a thread a matrix, with the reference's operations in their order.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kDetBody = R"(
  double* const v = (double*)t.w + i * kRows * kRows;
  for (int k = 0; k < kRows * kRows; ++k) v[k] = (double)octavo_x0(t, i * kRows * kRows + k);
  double d = 1.0;
  for (int c = 0; c < kRows; ++c) {
    int pivot = c;
    for (int r = c; r < kRows; ++r) pivot = octavo_size(v[r * kRows + c]) > octavo_size(v[pivot * kRows + c]) ? r : pivot;
    if (pivot != c) {
      for (int k = 0; k < kRows; ++k) {
        const double from = v[c * kRows + k];
        v[c * kRows + k] = v[pivot * kRows + k], v[pivot * kRows + k] = from;
      }
      d = -d;
    }
    d = d * v[c * kRows + c];
    if (v[c * kRows + c] == 0.0) break;
    for (int r = c + 1; r < kRows; ++r) {
      const double factor = v[r * kRows + c] / v[c * kRows + c];
      for (int k = c; k < kRows; ++k) v[r * kRows + k] = v[r * kRows + k] - factor * v[c * kRows + k];
    }
  }
  octavo_put0(t, i, (float)d);
)";

class DetFamily final : public PlainFamily {
 public:
  DetFamily() : PlainFamily("det", {ir::Op::det}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const ir::Shape& x = s.anchor.inputs[0].dims;
    if (x.size() < 2 || x.back() != x[x.size() - 2]) return fail(ErrorKind::bad_engine, fmt::format("det of {}", ir::to_string(x)));
    return std::vector<ir::Shape>{ir::Shape(x.begin(), x.end() - 2)};
  }

  Result<PlainText> text(const Stage& s) const override {
    const ir::Shape& x = s.anchor.inputs[0].dims;
    if (!reads_floats(s.anchor.inputs[0])) return refuse("type of the input", ir::name_of(s.anchor.inputs[0].dtype), "floats");
    const std::int64_t rows = x.back(), matrices = ir::count(ir::Shape(x.begin(), x.end() - 2));
    if (rows > 1024) return refuse("rows of a matrix", rows, "at most 1,024");
    PlainText t;
    t.functions =
        fmt::format("constexpr int kRows = {};\nOCTAVO_DEVICE double octavo_size(double v) {{ return v < 0.0 ? -v : v; }}\n", rows);
    t.scratch_bytes = 8 * std::max<std::int64_t>(ir::count(x), 1);
    t.passes = {PlainPass{kDetBody, matrices, 64}};
    t.chain = static_cast<double>(rows * rows * rows);
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(det, DetFamily)

}  // namespace octavo::cuda
