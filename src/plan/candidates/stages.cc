#include "plan/candidates/stages.h"

#include <algorithm>
#include <map>

#include "base/causes/plan_candidates.h"
#include "base/causes/plan_regions.h"
#include "region/in_place.h"
#include "region/refusal.h"
#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::plan {
namespace {

using region::BufferId;
using region::Plan;
using region::Region;
using region::Stage;
using region::StoreId;
using region::TensorRef;

bool depthwise(const Stage& s) {
  return s.anchor.op == ir::Op::conv && s.anchor.weights && s.anchor.weights->dims[1] == 1 && s.space.size() == 4 &&
         s.anchor.as<ir::Window>().group == s.space[1];
}
bool pointwise_conv(const Stage& s) {
  return s.anchor.op == ir::Op::conv && s.anchor.weights && s.anchor.weights->dims.size() == 4 && s.anchor.weights->dims[2] == 1 &&
         s.anchor.weights->dims[3] == 1 && s.anchor.as<ir::Window>().group == 1;
}

/// Kinds of anchors, in two spatial dimensions and several rows, whatever they compute in.
bool tiled_shape(const Stage& s) {
  const region::Anchor& a = s.anchor;
  const bool window = (a.op == ir::Op::conv && a.weights) || a.op == ir::Op::max_pool || a.op == ir::Op::avg_pool;
  return (window || a.none()) && s.space.size() == 4 && s.space[2] > 1;
}

/// The pair a -> b that b's anchor joins; none if it is not one that is asked for on its own.
LinkKind link_kind(const Stage& a, const Stage& b) {
  if (!b.anchor.integer) return LinkKind::none;
  const bool pool = b.anchor.op == ir::Op::max_pool || b.anchor.op == ir::Op::avg_pool;
  if (a.anchor.op == ir::Op::conv && a.anchor.integer && pool) return LinkKind::conv_pool;
  if (depthwise(a) && a.anchor.integer && pointwise_conv(b)) return LinkKind::depthwise_pointwise;
  if (pointwise_conv(a) && a.anchor.integer && depthwise(b)) return LinkKind::pointwise_depthwise;
  if (a.anchor.none() && b.anchor.op == ir::Op::conv) return LinkKind::quantize_conv;
  return LinkKind::none;
}

/// Which regions read and write each buffer.
class Uses {
 public:
  explicit Uses(const Plan& plan) : Uses(plan, nullptr) {}
  /// Of the buffers alone that one region stores to: asked for each pair that is joined.
  static Uses of_results(const Plan& plan, const Region& r) {
    std::set<BufferId> stored;
    for (const Stage& s : r.stages) {
      for (const TensorRef& t : s.stores) stored.insert(t.buffer);
    }
    return {plan, &stored};
  }

  /// Region `i` and the store where all of what is in the buffer is made.
  struct Maker {
    std::size_t region;
    StoreId store;
  };
  [[nodiscard]] std::optional<Maker> maker(BufferId buffer) const {
    const auto s = stores_.find(buffer);
    if (s == stores_.end() || s->second.size() != 1) return std::nullopt;
    if (plan_.buffers[static_cast<std::size_t>(buffer)].kind != region::BufferKind::arena) return std::nullopt;
    return s->second[0];
  }
  [[nodiscard]] const std::set<std::size_t>& readers(BufferId buffer) const {
    static const std::set<std::size_t> none;
    const auto r = readers_.find(buffer);
    return r == readers_.end() ? none : r->second;
  }
  /// Does a region between these two read a result of the first?
  [[nodiscard]] bool needed_between(std::size_t first, std::size_t second) const {
    for (const TensorRef* t : region::results_of(plan_.regions[first])) {
      const auto& r = readers(t->buffer);
      const auto next = r.upper_bound(first);
      if (next != r.end() && *next < second) return true;
    }
    return false;
  }

 private:
  Uses(const Plan& plan, const std::set<BufferId>* only) : plan_(plan) {
    const auto wanted = [only](BufferId b) { return only == nullptr || only->contains(b); };
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      const Region& r = plan.regions[i];
      for (std::size_t s = 0; s < r.stages.size(); ++s) {
        for (std::size_t k = 0; k < region::input_count(r.stages[s]); ++k) {
          const BufferId read = region::input_of(r.stages[s], k).buffer;
          if (wanted(read)) readers_[read].insert(i);
        }
        for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
          const BufferId stored = r.stages[s].stores[j].buffer;
          if (wanted(stored)) stores_[stored].push_back({i, {s, j}});
        }
      }
    }
  }

  const Plan& plan_;
  std::map<BufferId, std::set<std::size_t>> readers_;
  std::map<BufferId, std::vector<Maker>> stores_;
};

/// A tensor that a region reads from outside: the stages and inputs that do.
struct Read {
  BufferId buffer;
  std::vector<std::pair<std::size_t, std::size_t>> at;
};
std::vector<Read> outside_reads(const Region& r) {
  std::vector<Read> out;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t k = 0; k < region::input_count(r.stages[s]); ++k) {
      const TensorRef& t = region::input_of(r.stages[s], k);
      if (region::forwarded(r, s, t)) continue;
      const auto same = std::find_if(out.begin(), out.end(), [&](const Read& x) { return x.buffer == t.buffer; });
      if (same == out.end()) {
        out.push_back({t.buffer, {{s, k}}});
      } else {
        same->at.emplace_back(s, k);
      }
    }
  }
  return out;
}

/// Is element i of the operand read for element i of the result?
bool as_it_is(const Stage& s, std::size_t input) {
  if (input < s.anchor.inputs.size()) return true;
  const auto& div = s.operands[input - s.anchor.inputs.size()].div;
  return std::all_of(div.begin(), div.end(), [](std::int64_t d) { return d == 1; });
}

/// The kind of a link. `alone`: no other region reads the value, and it is the only result of its region.
LinkKind kind_of(const Stage& maker, const Region& reader, const Read& read, bool alone, bool others_read) {
  const auto& [stage, input] = read.at[0];
  const Stage& s = reader.stages[stage];
  const bool by_anchor = input < s.anchor.inputs.size();
  if (alone && read.at.size() == 1 && by_anchor && s.anchor.inputs.size() == 1) {
    if (const LinkKind kind = link_kind(maker, s); kind != LinkKind::none) return kind;
  }
  if (alone && read.at.size() == 1 && !by_anchor && tiled_shape(s) && s.anchor.inputs.size() == 1 && tiled_shape(maker) &&
      maker.space == s.space)
    return LinkKind::stage_operand;
  if (!in_row_tiles(maker) || !in_row_tiles(s)) return LinkKind::none;
  if (!others_read) return LinkKind::chain;
  return by_anchor && s.anchor.op == ir::Op::conv && maker.anchor.op == ir::Op::conv ? LinkKind::stage_store : LinkKind::none;
}

/// Results with their values, by store.
std::vector<std::pair<StoreId, ir::ValueId>> values_of(const Region& r) {
  std::vector<std::pair<StoreId, ir::ValueId>> out;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
      if (region::leaves(r, {s, j}) && out.size() < r.graph_outputs.size())
        out.emplace_back(StoreId{s, j}, r.graph_outputs[out.size()]);
    }
  }
  return out;
}

Region chained(Plan& plan, const Link& link, const Uses& uses) {
  const Region& a = plan.regions[link.first];
  Region b = plan.regions[link.second];
  Region both = a;
  std::vector<std::pair<StoreId, ir::ValueId>> values = values_of(a);
  for (const auto& [id, value] : values) {
    const TensorRef store = a.stages[id.stage].stores[id.store];
    const auto& readers = uses.readers(store.buffer);
    const bool others = readers.size() > 1 || !uses.maker(store.buffer);
    if (!others || !readers.contains(link.second)) continue;
    TensorRef forwarded = store;
    const ir::Shape& d = store.dims;
    forwarded.buffer = static_cast<BufferId>(plan.buffers.size());
    forwarded.offset = 0;
    forwarded.strides = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
    region::Buffer buffer = plan.buffers[static_cast<std::size_t>(store.buffer)];
    buffer.kind = region::BufferKind::arena;
    buffer.bytes = ir::count(d) * element_bytes(store);
    buffer.binding = -1;
    plan.buffers.push_back(std::move(buffer));
    const auto rename = [&](TensorRef& t) {
      if (t.buffer != store.buffer || !region::same_places(t, store)) return;
      t.buffer = forwarded.buffer;
      t.offset = 0;
      t.strides = forwarded.strides;
    };
    for (Stage& s : b.stages) {
      for (TensorRef& t : s.anchor.inputs) rename(t);
      for (region::Operand& o : s.operands) rename(o.ref);
    }
    Stage& maker = both.stages[id.stage];
    maker.program.outputs.push_back(maker.program.outputs[id.store]);
    maker.stores.push_back(std::move(forwarded));
  }
  for (const auto& [id, value] : values_of(b)) values.emplace_back(StoreId{id.stage + a.stages.size(), id.store}, value);
  both.stages.insert(both.stages.end(), b.stages.begin(), b.stages.end());
  std::size_t next = 0;  // of b's graph_inputs
  for (std::size_t s = 0; s < b.stages.size(); ++s) {
    for (std::size_t k = 0; k < region::input_count(b.stages[s]); ++k) {
      const TensorRef& t = region::input_of(b.stages[s], k);
      if (region::forwarded(b, s, t)) continue;
      const ir::ValueId value = next < b.graph_inputs.size() ? b.graph_inputs[next] : ir::kNone;
      ++next;
      if (!region::forwarded(both, a.stages.size() + s, t)) both.graph_inputs.push_back(value);
    }
  }
  both.graph_outputs.clear();
  for (const auto& [id, value] : values) {
    if (region::leaves(both, id)) both.graph_outputs.push_back(value);
  }
  // A quantization that no node of the model demands has the name of the layer that reads it.
  both.name = b.onnx_nodes.contains(a.name) ? b.name : a.name + " + " + b.name;
  both.onnx_nodes.insert(b.onnx_nodes.begin(), b.onnx_nodes.end());
  both.reasons.push_back(link.kind == LinkKind::stage_operand ? because<cause::stages_joined_in_epilogue>(b.name)
                                                              : because<cause::stages_joined>(name_of(link.kind), b.name));
  add(both.reasons, b.reasons);
  both.precision = b.precision;
  return both;
}

}  // namespace

bool in_row_tiles(const Stage& s) {
  return tiled_shape(s) && (s.anchor.none() || s.anchor.integer) && !s.program.outputs.empty();
}

Region joined(Plan& plan, const Link& link) {
  return chained(plan, link, Uses::of_results(plan, plan.regions[link.first]));
}

Reasons refusal(const Region& r, const Plan& plan, const std::vector<const region::Provider*>& providers) {
  if (const Status graph = region::check_stages(r); !graph) return region::refusal_of(graph.error());
  Reasons why{because<cause::no_provider_for_region>()};
  const std::string& device = plan.devices[static_cast<std::size_t>(r.device)].name;
  for (const region::Provider* p : providers) {
    if (p->device() != device) continue;
    for (const region::Offer& o : p->offers(r, plan)) {
      if (o.refusal.empty()) return {};
      why = {because<cause::kernel_refused>(o.tactic.name())};
      add(why, o.refusal);
    }
  }
  return why;
}

std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::none: return "";
    case LinkKind::conv_pool: return "conv-pool";
    case LinkKind::depthwise_pointwise: return "depthwise-pointwise";
    case LinkKind::pointwise_depthwise: return "pointwise-depthwise";
    case LinkKind::quantize_conv: return "quantize-conv";
    case LinkKind::stage_operand: return "stage-operand";
    case LinkKind::stage_store: return "stage-store";
    case LinkKind::chain: return "chain";
    case LinkKind::attention: return "attention";
  }
  return "";
}

std::string_view choice_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::none:
    case LinkKind::chain:
    case LinkKind::attention: return "";
    case LinkKind::conv_pool:
    case LinkKind::depthwise_pointwise:
    case LinkKind::pointwise_depthwise:
    case LinkKind::quantize_conv: return kStages;
    case LinkKind::stage_operand: return kStageOperand;
    case LinkKind::stage_store: return kStageStore;
  }
  return "";
}

std::vector<Link> find_links(const Plan& plan) {
  const Uses uses(plan);
  std::vector<Link> out;
  for (std::size_t j = 0; j < plan.regions.size(); ++j) {
    const Region& b = plan.regions[j];
    if (b.independent || b.stages.empty()) continue;
    for (const Read& read : outside_reads(b)) {
      const auto made = uses.maker(read.buffer);
      if (!made || made->region >= j) continue;
      const Region& a = plan.regions[made->region];
      if (a.device != b.device || a.independent || !region::leaves(a, made->store) || uses.needed_between(made->region, j))
        continue;
      const Stage& maker = a.stages[made->store.stage];
      const TensorRef& store = maker.stores[made->store.store];
      const bool whole = std::all_of(read.at.begin(), read.at.end(), [&](const auto& at) {
        const TensorRef& t = region::input_of(b.stages[at.first], at.second);
        return region::same_places(store, t) && store.dtype == t.dtype && as_it_is(b.stages[at.first], at.second);
      });
      if (!whole) continue;
      const bool others = uses.readers(read.buffer).size() > 1;
      const bool alone = !others && region::results_of(a).size() == 1;
      const auto values = values_of(a);
      const auto value = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == made->store; });
      const LinkKind kind = kind_of(maker, b, read, alone, others);
      if (kind == LinkKind::none || value == values.end()) continue;
      out.push_back({made->region, j, value->second, kind, tensor_bytes(store)});
    }
  }
  return out;
}

Reasons join_stages(Plan& plan, const std::set<ir::ValueId>& staged, const std::vector<const region::Provider*>& providers) {
  std::set<ir::ValueId> refused, stored;
  Reasons last;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Link& link : find_links(plan)) {
      if (!staged.contains(link.value) || refused.contains(link.value) || stored.contains(link.value)) continue;
      const std::size_t buffers = plan.buffers.size();
      Region both = joined(plan, link);
      if (const Reasons why = refusal(both, plan, providers); !why.empty()) {
        Reasons& reasons = plan.regions[link.second].reasons;
        reasons.push_back(because<cause::stages_not_joined>(name_of(link.kind), plan.regions[link.first].name));
        add(reasons, why);
        refused.insert(link.value);
        last = why;
        plan.buffers.resize(buffers);
        continue;
      }
      if (link.kind == LinkKind::stage_store) stored.insert(link.value);  // the first reader alone
      plan.regions[link.second] = std::move(both);
      plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(link.first));
      changed = true;
      break;
    }
  }
  return last;
}

}  // namespace octavo::plan
