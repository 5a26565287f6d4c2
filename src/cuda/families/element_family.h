// Families whose kernels are those of cuda/text/elements.h: a thread computes a run of elements, one independent of the others.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "cuda/families/families.h"
#include "cuda/text/elements.h"

namespace octavo::cuda {

struct ElementKernel {
  Elements elements;
  AnchorText anchor;
  double seconds = 0;
  /// Weights as the kernel reads them, behind the anchor's constants. Made when the text is emitted: a family is asked about a region many times.
  std::function<ir::Tensor()> weights = {};
};
/// Of a stage whose anchor adds `anchor`; the other parameters are those of Elements::of.
[[nodiscard]] Result<ElementKernel> element_kernel(const Stage& stage, AnchorText anchor,
                                                   const std::vector<ElementAccess>& followed = {}, std::int64_t longest_run = 16);

/// One stage and one way to compute it.
class ElementFamily : public FamilyOf<ElementKernel> {
 public:
  [[nodiscard]] std::string_view name() const final { return name_; }
  [[nodiscard]] int version() const final { return version_; }
  [[nodiscard]] bool about(const Region& region) const override { return about_.holds(region); }
  [[nodiscard]] Result<ElementKernel> match(const Region& region, const Plan& plan, const Target&) const final {
    OCTAVO_TRY(ElementKernel made, kernel(only(region), plan));
    made.seconds = seconds(region);
    return made;
  }
  [[nodiscard]] std::vector<Choice<NoTile>> tactics(const ElementKernel& k, const Target&) const final { return {{{}, k.seconds}}; }
  [[nodiscard]] Result<KernelText> emit(const ElementKernel& k, const NoTile&, const Target&) const final {
    if (!k.weights) return k.elements.emit(k.anchor);
    AnchorText anchor = k.anchor;
    anchor.constants.push_back(of_weights(k.weights()));
    return k.elements.emit(anchor);
  }

 protected:
  using Results = region::About::Results;
  explicit ElementFamily(std::string_view name, region::About about = {}, int version = 1)
      : name_(name), about_(std::move(about)), version_(version) {}
  [[nodiscard]] virtual Result<ElementKernel> kernel(const Stage& stage, const Plan& plan) const = 0;
  [[nodiscard]] virtual double seconds(const Region& region) const { return seconds_of_a_pass(region); }

 private:
  std::string_view name_;
  region::About about_;
  int version_;
};

}  // namespace octavo::cuda
