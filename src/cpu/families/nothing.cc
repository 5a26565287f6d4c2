// cpu.nothing: regions whose every store has no elements (a dimension of 0). No other family is asked about them, so that kernels
// may divide by extents.
#include <algorithm>

#include "cpu/family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

class Nothing final : public Kernel {
 public:
  void run(const Memory&, int, int, const Worker&) const override {}
};

struct NothingSetting {};

class NothingFamily final : public FamilyOf<NothingSetting> {
 public:
  NothingFamily() : FamilyOf({.name = "nothing", .levels = kAnyIsa}) {}
  bool about(const Region& r) const override { return stores_nothing(r); }
  Match<NothingSetting> match(const Request&) const override { return NothingSetting(); }
  double cost(const NothingSetting&, Isa) const override { return 0; }
  Result<std::unique_ptr<Kernel>> load(NothingSetting, Packed) const override { return std::make_unique<Nothing>(); }
};

}  // namespace

bool stores_nothing(const Region& r) {
  return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
    return std::all_of(s.stores.begin(), s.stores.end(), [](const region::TensorRef& t) { return ir::count(t.dims) == 0; });
  });
}

OCTAVO_DEFINE_FAMILY(nothing, NothingFamily)

}  // namespace octavo::cpu
