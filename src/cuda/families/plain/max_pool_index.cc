// max_pool_index: where the first largest element of each window lies in the whole tensor, a thread a window.
#include "cuda/families/plain/window.h"

namespace octavo::cuda {
namespace {

constexpr const char* kMaxPoolIndexBody = R"(
  const long long base = i / kResults * kPlane;
  long long best = -1;
  OctavoValue value = 0;
  for (int tap = 0; tap < kTaps; ++tap) {
    const long long at = octavo_inside(i, tap);
    if (at < 0) continue;
    const OctavoValue v = octavo_x0(t, base + at);
    if (best < 0 || v > value) best = at, value = v;
  }
  octavo_put0(t, i, best < 0 ? 0 : base + octavo_counted(best));
)";

class MaxPoolIndexFamily final : public PlainFamily {
 public:
  MaxPoolIndexFamily() : PlainFamily("max_pool_index", {ir::Op::max_pool_index}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    OCTAVO_TRY(ir::Shape y, pooled_shape(s));
    return std::vector<ir::Shape>{std::move(y)};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    OCTAVO_TRY(const ir::Shape y, pooled_shape(s));
    std::string counted = "OCTAVO_DEVICE long long octavo_counted(long long i) {\n";
    if (s.anchor.as<ir::Window>().column_major) {  // the first spatial dimension fastest
      std::int64_t step = 1;
      for (std::size_t d = 2; d < x.dims.size(); ++d) step *= x.dims[d];
      counted += "  long long at = 0;\n";
      for (std::size_t d = x.dims.size(); d-- > 2;) {
        step /= x.dims[d];
        counted += fmt::format("  at += i % {0}ll * {1}ll;\n  i /= {0}ll;\n", x.dims[d], step);
      }
      counted += "  return at;\n}\n";
    } else {
      counted += "  return i;\n}\n";
    }
    PlainText t;
    t.functions = window_functions(s) + counted + fmt::format("typedef {} OctavoValue;\n", reads_floats(x) ? "float" : "long long");
    t.passes = {PlainPass{kMaxPoolIndexBody, ir::count(y)}};
    t.work = static_cast<double>(ir::count(y)) * static_cast<double>(ir::count(s.anchor.as<ir::Window>().kernel));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(max_pool_index, MaxPoolIndexFamily)

}  // namespace octavo::cuda
