// math: tan, asin, acos, atan and the hyperbolic ones, in double as the reference computes them, rounded once; a thread an element. The library of the GPU may
// differ from that of the host in the last place of a double, so a float differs only where the exact value is within that of the middle of two floats.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

class MathFamily final : public PlainFamily {
 public:
  MathFamily() : PlainFamily("math", {ir::Op::math}, 1) {}

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    PlainText t;
    t.passes = {in_order({fmt::format("  octavo_put0(t, i, (float)octavo_{}((double)octavo_x0(t, i)));\n",
                                      ir::spelled(s.anchor.as<ir::Math>().function)),
                          ir::count(x.dims)})};
    t.work = 50.0 * static_cast<double>(ir::count(x.dims));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(math, MathFamily)

}  // namespace octavo::cuda
