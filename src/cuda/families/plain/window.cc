#include "cuda/families/plain/window.h"

namespace octavo::cuda {

Result<ir::Shape> pooled_shape(const Stage& stage) {
  const auto& w = stage.anchor.as<ir::Window>();
  const ir::Shape& x = stage.anchor.inputs[0].dims;
  const std::size_t spatial = w.kernel.size();
  const auto bad = [&] {
    return fail(ErrorKind::bad_engine, fmt::format("windows of {} over {}", ir::to_string(w.kernel), ir::to_string(x)));
  };
  if (x.size() != spatial + 2 || w.strides.size() != spatial || w.dilations.size() != spatial || w.pads.size() != 2 * spatial)
    return bad();
  ir::Shape y{x[0], x[1]};
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t room = x[d + 2] + w.before(d) + w.after(d) - (w.kernel[d] - 1) * w.dilations[d] - 1;
    if (w.kernel[d] < 1 || w.strides[d] < 1 || room < 0) return bad();
    y.push_back(room / w.strides[d] + 1);
  }
  return y;
}

std::string window_functions(const Stage& stage) {
  const auto& w = stage.anchor.as<ir::Window>();
  const ir::Shape &x = stage.anchor.inputs[0].dims, y = *pooled_shape(stage);
  std::int64_t taps = 1, plane = 1, results = 1;
  std::string steps;
  for (std::size_t d = w.kernel.size(); d-- > 0;) {
    steps += fmt::format(
        "  p = rest % {}ll * {}ll - {}ll + tap % {} * {}ll;\n  if (p < 0 || p >= {}ll) return -1;\n  at += p * {}ll;\n  rest /= "
        "{}ll;\n  "
        "tap /= {};\n",
        y[d + 2], w.strides[d], w.before(d), w.kernel[d], w.dilations[d], x[d + 2], plane, y[d + 2], w.kernel[d]);
    taps *= w.kernel[d], plane *= x[d + 2], results *= y[d + 2];
  }
  return fmt::format(
      "constexpr int kTaps = {};\nconstexpr long long kPlane = {}, kResults = {};\n"
      "OCTAVO_DEVICE long long octavo_inside(long long i, int tap) {{\n  long long rest = i % kResults, at = 0, p = 0;\n{}  return "
      "at;\n}}\n",
      taps, plane, results, steps);
}

}  // namespace octavo::cuda
