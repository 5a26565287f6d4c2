// nothing: regions whose every store has no elements (a dimension of 0). No other family is asked about them.
#include <algorithm>

#include "cuda/families/families.h"

namespace octavo::cuda {
namespace {

struct Nothing {
  double seconds = 0;
};

class NothingFamily final : public FamilyOf<Nothing> {
 public:
  std::string_view name() const override { return "nothing"; }
  bool about(const Region& r) const override {
    return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
      return std::all_of(s.stores.begin(), s.stores.end(), [](const region::TensorRef& t) { return ir::count(t.dims) == 0; });
    });
  }
  bool alone() const override { return true; }
  Result<Nothing> match(const Region& r, const Plan&, const Target&) const override { return Nothing{seconds_of_a_pass(r)}; }
  std::vector<Choice<NoTile>> tactics(const Nothing& n, const Target&) const override { return {{{}, n.seconds}}; }
  Result<KernelText> emit(const Nothing&, const NoTile&, const Target&) const override { return KernelText{}; }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(nothing, NothingFamily)

}  // namespace octavo::cuda
