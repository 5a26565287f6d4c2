#include "cases/amx_first.h"

#include "api/pipeline.h"
#include "cpu/amx_emulated.h"
#include "cpu/isa.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "support/run_plan.h"

namespace octavo::testing {
namespace {

class AmxFirst final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] bool knows(const region::Tactic& tactic) const override {
    return tactic.name() == "cpu.conv.u8s8.amx" || tactic.name() == "cpu.conv_transpose.u8s8.amx";
  }
  [[nodiscard]] std::vector<region::Offer> offers(const region::Region& r, const region::Plan& plan) const override {
    std::vector<region::Offer> all = emulated_amx_provider().offers(r, plan);
    for (region::Offer& o : all) o.cost = 1e-12;
    return all;
  }
  [[nodiscard]] Result<region::Artifact> compile(const region::Region& r, const region::Plan& plan,
                                                 const region::Tactic& tactic) const override {
    return emulated_amx_provider().compile(r, plan, tactic);
  }
  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                                             const region::ArtifactView& artifact) const override {
    return emulated_amx_provider().load(r, plan, artifact);
  }
};

}  // namespace

bool can_emulate_amx() {
  return cpu::best_isa() >= cpu::Isa::avx512vnni;
}

const std::vector<const region::Provider*>& amx_first_providers() {
  static const AmxFirst first;
  static const std::vector<const region::Provider*> all = [] {
    std::vector<const region::Provider*> list{&first};
    for (const region::Provider* p : cpu::providers()) list.push_back(p);
    return list;
  }();
  return all;
}

Result<OnAmx> run_on_emulated_amx(const ir::Graph& graph, const plan::PlanOptions& options, const std::vector<ir::Tensor>& feeds) {
  const auto& providers = amx_first_providers();
  OCTAVO_TRY(plan::Planned planned, plan::make_plan(graph, providers, options));
  OnAmx out;
  out.float_sums = has_float_sum(planned.plan);
  for (const region::Region& r : planned.plan.regions) {
    out.layers += providers.front()->knows(r.tactic) ? 1 : 0;
    for (const region::Stage& s : r.stages) {
      const bool conv = s.anchor.op == ir::Op::conv || s.anchor.op == ir::Op::conv_transpose;
      out.convolutions += conv && s.anchor.integer ? 1 : 0;
    }
  }
  OCTAVO_TRY(const auto engine, engine::Engine::create(std::move(planned.plan), providers));
  OCTAVO_TRY(const auto context, engine::Context::create(engine, 1));
  (void)take_tile_counts();
  OCTAVO_TRY(out.outputs, api::run(*context, feeds));
  out.dots = take_tile_counts().dots;
  return out;
}

}  // namespace octavo::testing
