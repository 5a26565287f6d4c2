// bit_cast: the bits of every element as another type of the same size.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

class BitCastFamily final : public PlainFamily {
 public:
  BitCastFamily() : PlainFamily("bit_cast", {ir::Op::bit_cast}, 1) {}

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const bool raw = s.program.outputs.empty();
    if (ir::size_of(x.dtype) != ir::size_of(raw ? s.stores[0].dtype : ir::DType::f32))
      return refuse("type of the result", ir::name_of(s.stores[0].dtype), fmt::format("one as wide as {}", ir::name_of(x.dtype)));
    PlainText t;
    t.passes = {in_order({raw ? "  octavo_put_bits0(t, i, octavo_bits0(t, i));\n"
                              : "  octavo_put0(t, i, __int_as_float((int)octavo_bits0(t, i)));\n",
                          ir::count(x.dims)})};
    t.work = static_cast<double>(ir::count(x.dims));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(bit_cast, BitCastFamily)

}  // namespace octavo::cuda
