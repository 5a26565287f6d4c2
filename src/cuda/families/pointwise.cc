// pointwise: regions without an anchor. One thread computes a run of elements along memory.
#include "cuda/families/families.h"

namespace octavo::cuda {
namespace {

class PointwiseFamily final : public SingleFamily {
 public:
  std::string_view name() const override { return "pointwise"; }
  bool about(const Region& r) const override { return is_single(r) && only(r).anchor.none() && !only(r).program.outputs.empty(); }
  Result<KernelText> emit(const Region& r, const Plan&, const Parameters&, const Target&) const override {
    OCTAVO_TRY(const Elements elements, Elements::of(only(r), false));
    return elements.emit({});
  }
};

}  // namespace

const Family& pointwise_family() {
  static const PointwiseFamily family;
  return family;
}

}  // namespace octavo::cuda
