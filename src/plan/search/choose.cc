#include "plan/search/choose.h"

#include <fmt/format.h>

#include "plan/search/price.h"
#include "region/artifact.h"
#include "region/key.h"

namespace octavo::plan {
namespace {

using region::Plan;
using region::Region;
using region::Stage;

std::string micro(double seconds) {
  return seconds < 0 ? std::string("not timed") : fmt::format("{:.4g} us", seconds * 1e6);
}

/// Every offer in words.
std::vector<region::Alternative> heard(const Ballot& b) {
  std::vector<region::Alternative> out;
  for (std::size_t i = 0; i < b.offers.size(); ++i) {
    const region::Offer& o = b.offers[i];
    const TacticTime& t = b.times[i];
    if (!o.refusal.empty()) {
      out.push_back({o.tactic.name(), "refused: " + o.refusal, -1});
      continue;
    }
    const bool measured = t.source != "estimate" && t.seconds >= 0;
    const std::string time = t.seconds < 0
                                 ? "not timed at this effort"
                                 : fmt::format("{} {}", t.source == "estimate" ? "estimate" : "measured", micro(t.seconds));
    out.push_back({o.tactic.name(),
                   fmt::format("{}{}", static_cast<int>(i) == b.winner ? fmt::format("taken: {}, ", b.why) : "possible, ", time),
                   measured ? t.seconds : -1});
  }
  return out;
}

}  // namespace

Status choose_tactics(Plan& plan, const std::vector<const region::Provider*>& providers, Costs& costs) {
  plan.cost_source = costs.source();
  std::vector<char> raw_needed(plan.buffers.size(), 0);
  const auto need = [&](const region::TensorRef& r) { raw_needed[static_cast<std::size_t>(r.buffer)] = 1; };
  for (Region& r : plan.regions) {
    OCTAVO_TRY(const Ballot ballot, vote(r, plan, providers, costs));
    r.key = region::key(r, plan);
    r.alternatives = heard(ballot);
    if (ballot.winner < 0) {
      std::string reasons;
      for (const auto& a : r.alternatives) reasons += fmt::format("\n  {}: {}", a.tactic, a.reason);
      return fail(ErrorKind::unsupported,
                  fmt::format("no tactic can run region \"{}\":{}\n  please report this model", r.name, reasons));
    }
    const auto winner = static_cast<std::size_t>(ballot.winner);
    r.tactic = ballot.offers[winner].tactic;
    r.seconds = ballot.times[winner].seconds;
    OCTAVO_TRY(region::Artifact made, ballot.by[winner]->compile(r, plan, r.tactic));
    region::keep_artifact(std::move(made), r, plan);
    for (const Stage& s : r.stages) {
      for (const auto& in : s.anchor.inputs) need(in);
      for (const auto& o : s.operands) need(o.ref);
      for (const auto& out : s.stores) need(out);
      if (s.anchor.weights && r.packed.empty()) need(*s.anchor.weights);
    }
  }
  // Raw weights that every reader has packed for itself are not written to the engine.
  for (std::size_t i = 0; i < raw_needed.size(); ++i) {
    region::Buffer& b = plan.buffers[i];
    if (b.kind == region::BufferKind::constant && raw_needed[i] == 0) {
      b.bytes = 0;
      b.data = ir::Tensor(ir::DType::u8, {0});
    }
  }
  return {};
}

}  // namespace octavo::plan
