// pointwise: regions without an anchor. One thread computes a run of elements along memory.
#include "cuda/families/element_family.h"

namespace octavo::cuda {
namespace {

class PointwiseFamily final : public ElementFamily {
 public:
  PointwiseFamily() : ElementFamily("pointwise", {{ir::Op::input}, 0, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    OCTAVO_TRY(Elements elements, Elements::of(s, false));
    return ElementKernel{std::move(elements), {}};
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(pointwise, PointwiseFamily)

}  // namespace octavo::cuda
