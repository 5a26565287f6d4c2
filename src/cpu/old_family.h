// Families whose functions still read the region, as rows of the table.
#pragma once

#include <map>

#include "cpu/family.h"
#include "cpu/parameters.h"

namespace octavo::cpu {

using OldPacked = std::span<const std::byte* const>;

class OldFamily {
 public:
  virtual ~OldFamily() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string name_for(const Region&) const { return std::string(name()); }
  [[nodiscard]] virtual std::vector<Parameters> parameter_sets(const Region&, const Plan&, Isa) const { return {}; }
  [[nodiscard]] virtual std::span<const ParameterRow> parameter_rows() const { return {}; }
  [[nodiscard]] virtual int version() const { return 1; }
  [[nodiscard]] virtual std::vector<std::string_view> required() const { return {}; }
  [[nodiscard]] virtual bool reference() const { return false; }
  [[nodiscard]] virtual bool forwards_stages() const { return false; }
  [[nodiscard]] virtual bool about(const Region& region) const = 0;
  [[nodiscard]] virtual Reasons why_not(const Region& region, const Plan& plan) const = 0;
  [[nodiscard]] virtual double cost(const Region& region, const Plan& plan, Isa isa) const = 0;
  [[nodiscard]] virtual std::span<const Isa> levels() const { return kBlockIsas; }
  [[nodiscard]] virtual bool per_isa() const { return true; }
  [[nodiscard]] virtual Result<std::vector<ir::Tensor>> pack(const Region&, const Plan&, Isa) const {
    return std::vector<ir::Tensor>{};
  }
  [[nodiscard]] virtual Result<std::vector<std::int64_t>> packed_bytes(const Region&, const Plan&, Isa) const {
    return std::vector<std::int64_t>{};
  }
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> instantiate(const Region& region, const Plan& plan, Isa isa,
                                                                    OldPacked packed) const = 0;
};

struct OldSetting {
  Region region;
  const Plan* plan = nullptr;
  Isa isa = Isa::portable;
};

template <class F>
class Adapted final : public FamilyOf<OldSetting> {
 public:
  template <class... Args>
  explicit Adapted(Args&&... args) : Adapted(0, std::make_unique<F>(std::forward<Args>(args)...)) {}
  bool about(const Region& r) const override { return old_->about(r); }
  std::string name_for(const Region& r) const override { return old_->name_for(r); }
  Match<OldSetting> match(const Request& q) const override {
    if (Reasons why = old_->why_not(q.region, q.plan); !why.empty()) return refuse(std::move(why));
    OldSetting s{q.region, &q.plan, q.isa};
    s.region.tactic.parameters = q.parameters;
    return s;
  }
  double cost(const OldSetting& s, Isa isa) const override { return old_->cost(s.region, *s.plan, isa); }
  std::vector<Parameters> variants(const OldSetting& s) const override { return old_->parameter_sets(s.region, *s.plan, s.isa); }
  std::vector<std::int64_t> packed_bytes(const OldSetting& s) const override { return *old_->packed_bytes(s.region, *s.plan, s.isa); }
  Result<std::vector<ir::Tensor>> pack(const OldSetting& s) const override { return old_->pack(s.region, *s.plan, s.isa); }
  Result<std::unique_ptr<Kernel>> load(OldSetting s, Packed packed) const override {
    std::vector<const std::byte*> at;
    for (const auto& p : packed) at.push_back(p.data());
    return old_->instantiate(s.region, *s.plan, s.isa, at);
  }

 private:
  Adapted(int, std::unique_ptr<F> f) : FamilyOf<OldSetting>(row_of(*f)), old_(std::move(f)) {}
  static Row row_of(const OldFamily& f) {
    Row r{.name = f.name()};
    r.version = f.version(), r.required = f.required(), r.parameters = f.parameter_rows();
    if (f.per_isa()) r.levels = f.levels();
    else r.levels = kAnyIsa;
    r.vector = !f.reference(), r.reference = f.reference(), r.forwards_stages = f.forwards_stages();
    return r;
  }
  std::unique_ptr<F> old_;
};

}  // namespace octavo::cpu
