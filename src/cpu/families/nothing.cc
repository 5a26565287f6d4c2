// cpu.nothing: regions whose every store has no elements (a dimension of 0). No other family is asked about them, so that kernels
// may divide by extents.
#include <algorithm>

#include "cpu/family.h"
#include "cpu/old_family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

class Nothing final : public Kernel {
 public:
  void run(const Memory&, int, int, const Worker&) const override {}
};

class NothingFamily final : public OldFamily {
 public:
  std::string_view name() const override { return "nothing"; }
  bool about(const Region& r) const override { return stores_nothing(r); }
  Reasons why_not(const Region&, const Plan&) const override { return {}; }
  double cost(const Region&, const Plan&, Isa) const override { return 0; }
  bool per_isa() const override { return false; }
  Result<std::unique_ptr<Kernel>> instantiate(const Region&, const Plan&, Isa, OldPacked) const override {
    return std::make_unique<Nothing>();
  }
};

}  // namespace

bool stores_nothing(const Region& r) {
  return std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) {
    return std::all_of(s.stores.begin(), s.stores.end(), [](const region::TensorRef& t) { return ir::count(t.dims) == 0; });
  });
}

const Family& nothing_family() {
  static const Adapted<NothingFamily> family;
  return family;
}

}  // namespace octavo::cpu
