// Families whose kernels are those of cuda/text/elements.h: a thread computes a run of elements, one independent of the others.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "cuda/families/families.h"
#include "cuda/text/elements.h"

namespace octavo::cuda {

struct ElementKernel {
  Elements elements;
  AnchorText anchor;
  double seconds = 0;
};
/// Of a stage whose anchor adds `anchor`; the other parameters are those of Elements::of.
[[nodiscard]] Result<ElementKernel> element_kernel(const Stage& stage, AnchorText anchor, const std::vector<Access>& followed = {},
                                                   std::int64_t longest_run = 16);

/// One stage and one way to compute it.
class ElementFamily : public FamilyOf<ElementKernel> {
 public:
  [[nodiscard]] Result<ElementKernel> match(const Region& region, const Plan& plan, const Target&) const final {
    OCTAVO_TRY(ElementKernel made, kernel(only(region), plan));
    made.seconds = seconds(region);
    return made;
  }
  [[nodiscard]] std::vector<Choice<NoTile>> tactics(const ElementKernel& k, const Target&) const final { return {{{}, k.seconds}}; }
  [[nodiscard]] Result<KernelText> emit(const ElementKernel& k, const NoTile&, const Target&) const final {
    return k.elements.emit(k.anchor);
  }

 protected:
  [[nodiscard]] virtual Result<ElementKernel> kernel(const Stage& stage, const Plan& plan) const = 0;
  [[nodiscard]] virtual double seconds(const Region& region) const { return seconds_of_a_pass(region); }
};

}  // namespace octavo::cuda
