#include "support/tier.h"

#include <algorithm>
#include <array>

#include "cpu/isa.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool belongs(Tier tier, std::string_view tactic) {
  const bool jit = contains(tactic, ".jit"), avx512 = contains(tactic, ".avx512"), avx2 = contains(tactic, ".avx2"),
             portable = contains(tactic, ".portable");
  if (!jit && !avx512 && !avx2 && !portable) return true;
  switch (tier) {
    case Tier::portable: return portable;
    case Tier::avx2: return avx2;
    case Tier::avx512: return avx512 && !jit;
    case Tier::jit: return true;
  }
  return false;
}

class TierProvider final : public region::Provider {
 public:
  explicit TierProvider(Tier tier) : tier_(tier) {}
  std::string_view name() const override { return "cpu"; }

  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& plan) const override {
    std::vector<region::Offer> own = cpu::cpu_provider().offers(r, plan);
    std::erase_if(own, [&](const region::Offer& o) { return !belongs(tier_, o.tactic.name()); });
    return own;
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& plan, const region::Tactic& tactic) const override {
    return cpu::cpu_provider().compile(r, plan, tactic);
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    return cpu::cpu_provider().load(r, plan, artifact);
  }

 private:
  Tier tier_;
};

}  // namespace

std::string name_of(Tier tier) {
  static constexpr std::array<const char*, 4> kNames{"portable", "avx2", "avx512", "jit"};
  return kNames[static_cast<std::size_t>(tier)];
}

const region::Provider& tier_provider(Tier tier) {
  static const std::array<TierProvider, 4> all{TierProvider(Tier::portable), TierProvider(Tier::avx2), TierProvider(Tier::avx512),
                                               TierProvider(Tier::jit)};
  return all[static_cast<std::size_t>(tier)];
}

bool available(Tier tier) {
  static constexpr std::array kNeeds{cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512vnni};
  return cpu::why_not(kNeeds[static_cast<std::size_t>(tier)]).empty();
}

}  // namespace octavo::testing
