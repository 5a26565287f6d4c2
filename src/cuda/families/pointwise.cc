// pointwise: regions without an anchor. One thread computes a run of elements along memory.
#include "cuda/families/element_family.h"

namespace octavo::cuda {
namespace {

class PointwiseFamily final : public ElementFamily {
 public:
  std::string_view name() const override { return "pointwise"; }
  bool about(const Region& r) const override { return is_single(r) && only(r).anchor.none() && !only(r).program.outputs.empty(); }
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    OCTAVO_TRY(Elements elements, Elements::of(s, false));
    return ElementKernel{std::move(elements), {}};
  }
};

}  // namespace

const Family& pointwise_family() {
  static const PointwiseFamily family;
  return family;
}

}  // namespace octavo::cuda
