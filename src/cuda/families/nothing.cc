// nothing: regions whose every store has no elements (a dimension of 0). No other family is asked about them.
#include <algorithm>

#include "cuda/families/families.h"

namespace octavo::cuda {
namespace {

class NothingFamily final : public SingleFamily {
 public:
  std::string_view name() const override { return "nothing"; }
  bool about(const Region& r) const override {
    return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
      return std::all_of(s.stores.begin(), s.stores.end(), [](const region::TensorRef& t) { return ir::count(t.dims) == 0; });
    });
  }
  Result<KernelText> emit(const Region&, const Plan&, const Parameters&, const Target&) const override { return KernelText{}; }
};

}  // namespace

const Family& nothing_family() {
  static const NothingFamily family;
  return family;
}

}  // namespace octavo::cuda
