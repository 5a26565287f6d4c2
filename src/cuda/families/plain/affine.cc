// affine: BatchNormalization of types that no program holds, a thread an element.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

class AffineFamily final : public PlainFamily {
 public:
  AffineFamily() : PlainFamily("affine", {ir::Op::affine}, 3) {}

  Result<PlainText> text(const Stage& s) const override {
    const ir::Shape& x = s.anchor.inputs[0].dims;
    OCTAVO_TRY(const Line line, line_of(x, 1));
    for (const region::TensorRef& given : s.anchor.inputs) {
      if (!reads_floats(given)) return refuse("type of an input", ir::name_of(given.dtype), "floats");
      if (&given != s.anchor.inputs.data() && ir::count(given.dims) != line.extent)
        return fail(ErrorKind::bad_engine, fmt::format("affine: {} for {} channels", ir::to_string(given.dims), line.extent));
    }
    PlainText t;
    t.passes = {
        PlainPass{fmt::format("  const long long channel = i / {}ll % {}ll;\n  octavo_put0(t, i, __fmaf_rn(octavo_x0(t, i), "
                              "octavo_x1(t, channel), octavo_x2(t, channel)));\n",
                              line.inner, line.extent),
                  ir::count(x)}};
    t.passes.front().in_order = true;
    t.work = static_cast<double>(ir::count(x));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(affine, AffineFamily)

}  // namespace octavo::cuda
