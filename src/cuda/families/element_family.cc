#include "cuda/families/element_family.h"

namespace octavo::cuda {

Result<ElementKernel> element_kernel(const Stage& stage, AnchorText anchor, const std::vector<ElementAccess>& followed,
                                     std::int64_t longest_run) {
  OCTAVO_TRY(Elements elements, Elements::of(stage, /*has_anchor=*/true, followed, longest_run));
  return ElementKernel{std::move(elements), std::move(anchor)};
}

}  // namespace octavo::cuda
