#include "plan/choose.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::plan {
namespace {

using region::Plan;
using region::Region;
using region::Stage;

struct Choice {
  const region::Provider* provider = nullptr;
  std::string tactic;
};

Choice ask(const Region& r, const Plan& plan, const std::vector<const region::Provider*>& providers,
           std::vector<region::Alternative>& heard) {
  Choice choice;
  for (const region::Provider* p : providers) {
    const std::vector<region::Offer> offers = p->offers(r, plan);
    const region::Offer* best = nullptr;
    for (const region::Offer& o : offers) {
      if (!o.refusal.empty()) {
        heard.push_back({o.tactic, "refused: " + o.refusal, -1});
      } else if (!best || o.cost < best->cost) {
        best = &o;
      }
    }
    for (const region::Offer& o : offers) {
      if (!o.refusal.empty()) continue;
      const bool taken = &o == best && !choice.provider;
      heard.push_back({o.tactic,
                       taken ? fmt::format("taken: first of the preferred provider's offers, estimate {:.3g} us", o.cost * 1e6)
                             : fmt::format("possible, estimate {:.3g} us", o.cost * 1e6),
                       -1});
      if (taken) choice = {p, o.tactic};
    }
  }
  return choice;
}

}  // namespace

Status choose_tactics(Plan& plan, const std::vector<const region::Provider*>& providers) {
  std::vector<char> raw_needed(plan.buffers.size(), 0);
  const auto need = [&](const region::TensorRef& r) { raw_needed[static_cast<std::size_t>(r.buffer)] = 1; };
  for (Region& r : plan.regions) {
    r.alternatives.clear();
    const Choice choice = ask(r, plan, providers, r.alternatives);
    if (!choice.provider) {
      std::string reasons;
      for (const auto& a : r.alternatives) reasons += fmt::format("\n  {}: {}", a.tactic, a.reason);
      return fail(ErrorKind::unsupported,
                  fmt::format("no tactic can run region \"{}\":{}\n  please report this model", r.name, reasons));
    }
    r.tactic = choice.tactic;
    OCTAVO_TRY(auto packed, choice.provider->pack(r, plan, choice.tactic));
    r.packed.clear();
    for (ir::Tensor& t : packed) {
      region::Buffer b;
      b.kind = region::BufferKind::constant;
      b.bytes = static_cast<std::int64_t>(t.bytes().size());
      b.data = std::move(t);
      b.name = r.name + " (packed)";
      plan.buffers.push_back(std::move(b));
      r.packed.push_back(static_cast<region::BufferId>(plan.buffers.size() - 1));
    }
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

void fuse_conv_pool(Plan& plan, const std::vector<const region::Provider*>& providers) {
  const auto readers = [&](region::BufferId buffer) {
    int n = 0;
    for (const Region& r : plan.regions) {
      for (const Stage& s : r.stages) {
        for (const auto& in : s.anchor.inputs) n += in.buffer == buffer;
        for (const auto& o : s.operands) n += o.ref.buffer == buffer;
      }
    }
    return n;
  };
  for (std::size_t i = 0; i + 1 < plan.regions.size(); ++i) {
    Region& conv = plan.regions[i];
    Region& pool = plan.regions[i + 1];
    if (conv.stages.size() != 1 || pool.stages.size() != 1) continue;
    const Stage& a = conv.stages[0];
    const Stage& b = pool.stages[0];
    if (a.anchor.op != ir::Op::conv || !a.anchor.integer || b.anchor.op != ir::Op::max_pool || !b.anchor.integer) continue;
    if (a.stores.size() != 1 || b.anchor.inputs[0].buffer != a.stores[0].buffer) continue;
    const auto& buffer = plan.buffers[static_cast<std::size_t>(a.stores[0].buffer)];
    if (buffer.kind != region::BufferKind::arena || readers(a.stores[0].buffer) != 1 || a.stores[0].dims != b.anchor.inputs[0].dims)
      continue;
    Region both = conv;
    both.name = conv.name + " + " + pool.name;
    both.onnx_nodes.insert(pool.onnx_nodes.begin(), pool.onnx_nodes.end());
    both.stages.push_back(b);
    both.reason = conv.reason + "; fuse-conv-pool: max_pool alone reads the result, on its grid, so bands of rows stay in cache";
    both.graph_inputs.insert(both.graph_inputs.end(), pool.graph_inputs.begin() + 1, pool.graph_inputs.end());
    both.graph_outputs = pool.graph_outputs;
    std::vector<region::Alternative> heard;
    if (!ask(both, plan, providers, heard).provider) {
      std::string why = "no provider offers it";
      for (const auto& alternative : heard) why = alternative.reason;
      pool.reason += "; not fused with the convolution before it: " + why;
      continue;
    }
    conv = std::move(both);
    plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace octavo::plan
