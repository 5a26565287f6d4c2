// resize: resize_linear and resize_cubic of floats, in any dimensions. The source elements and weights of each output coordinate are
// tables, computed as the reference does it (in double, weights rounded to fp32 once); the last dimension is resized first, one
// product and then one fma a tap.
#include <algorithm>
#include <cmath>

#include "cuda/families/element_family.h"
#include "ir/resize_source.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;

struct Taps {
  std::vector<std::int32_t> from;  ///< a coordinate's taps beside each other
  std::vector<float> weight;
};

void add_linear(Taps& t, double x, std::int64_t extent) {
  const double inside = std::clamp(x, 0.0, static_cast<double>(extent - 1));
  const auto low = static_cast<std::int64_t>(std::floor(inside));
  const auto w = static_cast<float>(inside - static_cast<double>(low));
  t.from.insert(t.from.end(), {static_cast<std::int32_t>(low), static_cast<std::int32_t>(std::min(low + 1, extent - 1))});
  t.weight.insert(t.weight.end(), {1.0F - w, w});
}

void add_cubic(Taps& taps, double x, std::int64_t extent, double coefficient, bool exclude_outside) {
  const double floor = std::floor(x), t = x - floor, A = coefficient;
  const auto near = [A](double d) { return ((A + 2) * d - (A + 3)) * d * d + 1; };
  const auto far = [A](double d) { return ((A * d - 5 * A) * d + 8 * A) * d - 4 * A; };
  double w[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)}, sum = 0;
  for (int k = 0; k < 4; ++k) {
    const std::int64_t i = static_cast<std::int64_t>(floor) - 1 + k;
    if (exclude_outside && (i < 0 || i >= extent)) w[k] = 0;
    sum += w[k];
    taps.from.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(i, 0, extent - 1)));
  }
  for (const double v : w) taps.weight.push_back(static_cast<float>(exclude_outside ? v / sum : v));
}

class ResizeFamily final : public ElementFamily {
 public:
  ResizeFamily() : ElementFamily("resize", {{Op::resize_linear, Op::resize_cubic}, 1, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (!ir::is_float(x.dtype) || load_function(x.dtype).empty())
      return refuse("type of the input", ir::name_of(x.dtype), "a float type");
    if (x.dims.size() != s.space.size()) return fail(ErrorKind::bad_engine, "resizing to another rank");
    const auto& resize = s.anchor.as<ir::Resize>();
    const bool linear = s.anchor.op == Op::resize_linear;
    const int taps_each = linear ? 2 : 4;
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = true;
    const auto size = element_bytes(x);
    std::string at = "0ll";
    std::vector<std::size_t> resized;
    for (std::size_t d = 0; d < x.dims.size(); ++d) {
      const auto in = static_cast<double>(x.dims[d]), out = static_cast<double>(s.space[d]);
      const double scale = resize.scales.empty() ? out / in : resize.scales[d];
      if (x.dims[d] == s.space[d] && scale == 1) {
        at += fmt::format(" + c{} * {}ll", d, x.strides[d] * size);
        continue;
      }
      Taps taps;
      for (std::int64_t o = 0; o < s.space[d]; ++o) {
        const double from = ir::resize_source(resize.coordinates, static_cast<double>(o), in, out, scale);
        if (linear) {
          add_linear(taps, from, x.dims[d]);
        } else {
          add_cubic(taps, from, x.dims[d], resize.cubic_coeff_a, resize.exclude_outside);
        }
      }
      const auto n = static_cast<std::int64_t>(taps.from.size());
      anchor.constants.push_back(ir::Tensor::of<std::int32_t>({n}, taps.from));
      anchor.constants.push_back(ir::Tensor::of<float>({n}, taps.weight));
      resized.push_back(d);
      at += fmt::format(" + p{} * {}ll", d, x.strides[d] * size);
    }
    // Nested loops, the last dimension innermost: each folds its taps into s<d>, which is one tap of the dimension before.
    std::string open, close;
    for (std::size_t i = 0; i < resized.size(); ++i) {
      const std::size_t d = resized[i];
      open += fmt::format("  float s{0}[kRun];\n  OCTAVO_UNROLL\n  for (int t{0} = 0; t{0} < {1}; ++t{0}) {{\n", d, taps_each);
      open += fmt::format(
          "  const long long p{0} = ((const int*)k{1})[c{0} * {3} + t{0}];\n  const float w{0} = ((const float*)k{2})[c{0} * {3} + "
          "t{0}];\n",
          d, 2 * i, 2 * i + 1, taps_each);
      const std::string inner = i + 1 == resized.size() ? "e" : fmt::format("s{}", resized[i + 1]);
      close = fmt::format(
                  "  OCTAVO_UNROLL\n  for (int v = 0; v < kRun; ++v) s{0}[v] = t{0} == 0 ? __fmul_rn({1}[v], w{0}) : "
                  "__fmaf_rn({1}[v], w{0}, s{0}[v]);\n  }}\n",
                  d, inner) +
              close;
    }
    const std::string result = resized.empty() ? "e" : fmt::format("s{}", resized[0]);
    anchor.body = fmt::format(
        "  {{\n{}  float e[kRun];\n  {}(e, x0 + {});\n{}  OCTAVO_UNROLL\n  for (int v = 0; v < kRun; ++v) acc[v] = {}[v];\n  }}\n",
        open, load_function(x.dtype), at, close, result);
    // Runs go along a dimension that stays as it is.
    std::size_t along = s.space.size() - 1;
    for (std::size_t d = 0; d < s.space.size(); ++d) {
      if (x.strides[d] == 1 && std::find(resized.begin(), resized.end(), d) == resized.end() && x.dims[d] > 1) along = d;
    }
    const bool kept = std::find(resized.begin(), resized.end(), along) == resized.end();
    return element_kernel(s, std::move(anchor), {followed_along(x, along, along, s.space)}, kept ? 8 : 1);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(resize, ResizeFamily)

}  // namespace octavo::cuda
