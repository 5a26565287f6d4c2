#include "region/stage_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "region/in_place.h"

namespace octavo::region {
namespace {

Halo halo_of(const Stage& s, std::size_t input) {
  if (s.space.size() != 4) return {};
  const std::size_t anchors = s.anchor.inputs.size();
  if (input >= anchors) {
    const std::vector<std::int64_t>& div = s.operands[input - anchors].div;
    return div.size() == 4 && div[2] != 1 ? Halo{} : Halo{1, 0, 1};
  }
  const bool window = s.anchor.op == ir::Op::conv || s.anchor.op == ir::Op::max_pool || s.anchor.op == ir::Op::avg_pool;
  const TensorRef& x = s.anchor.inputs[input];
  if (!window || input != 0 || x.dims.size() != 4) return {};
  const auto* w = std::get_if<ir::Window>(&s.anchor.facts);
  if (w == nullptr || w->strides.empty()) return {};
  std::int64_t kernel = w->kernel.empty() ? 1 : w->kernel[0];
  if (s.anchor.weights) kernel = s.anchor.weights->dims.size() == 4 ? s.anchor.weights->dims[2] : 0;
  const std::int64_t step = w->strides[0], before = w->pads[0], dilation = w->dilations[0];
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // from a file that nothing has checked yet
  for (const std::int64_t v : {kernel, step, dilation}) {
    if (v < 1 || v > kMost) return {};
  }
  if (before < -kMost || before > kMost) return {};
  return {step, before, (kernel - 1) * dilation + 1};
}

/// Stages that store a buffer, each store once.
std::vector<StoreId> stores_to(const Region& r, BufferId buffer) {
  std::vector<StoreId> out;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
      if (r.stages[s].stores[j].buffer == buffer) out.push_back({s, j});
    }
  }
  return out;
}

const TensorRef& store_of(const Region& r, StoreId id) {
  return r.stages[id.stage].stores[id.store];
}

bool same_tensor(const TensorRef& a, const TensorRef& b) {
  return a.buffer == b.buffer && a.strides.size() == a.dims.size() && b.strides.size() == b.dims.size() && same_places(a, b);
}

tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorKind::internal, std::move(what));
}

}  // namespace

std::size_t input_count(const Stage& s) {
  return s.anchor.inputs.size() + s.operands.size();
}

const TensorRef& input_of(const Stage& s, std::size_t input) {
  const std::size_t anchors = s.anchor.inputs.size();
  return input < anchors ? s.anchor.inputs[input] : s.operands[input - anchors].ref;
}

std::optional<StoreId> forwarded_from(const Region& r, std::size_t s, const TensorRef& t) {
  if (r.independent) return std::nullopt;
  for (std::size_t p = 0; p < s; ++p) {
    for (std::size_t j = 0; j < r.stages[p].stores.size(); ++j) {
      if (same_tensor(r.stages[p].stores[j], t)) return StoreId{p, j};
    }
  }
  return std::nullopt;
}

std::vector<StageEdge> edges_of(const Region& r) {
  std::vector<StageEdge> out;
  for (std::size_t s = 1; s < r.stages.size(); ++s) {
    for (std::size_t i = 0; i < input_count(r.stages[s]); ++i) {
      if (const auto from = forwarded_from(r, s, input_of(r.stages[s], i))) out.push_back({*from, s, i, halo_of(r.stages[s], i)});
    }
  }
  return out;
}

bool read_by_epilogue(const Region& r, std::size_t s) {
  const auto& all = r.stages[s].operands;
  return std::any_of(all.begin(), all.end(), [&](const Operand& o) { return forwarded(r, s, o.ref); });
}

bool leaves(const Region& r, StoreId id) {
  if (r.independent) return true;
  const TensorRef& t = store_of(r, id);
  for (std::size_t s = id.stage + 1; s < r.stages.size(); ++s) {
    for (std::size_t i = 0; i < input_count(r.stages[s]); ++i) {
      if (same_tensor(t, input_of(r.stages[s], i))) return false;
    }
  }
  return true;
}

std::vector<const TensorRef*> results_of(const Region& r) {
  std::vector<const TensorRef*> out;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
      if (leaves(r, {s, j})) out.push_back(&r.stages[s].stores[j]);
    }
  }
  return out;
}

std::vector<const TensorRef*> reads_of(const Region& r) {
  std::vector<const TensorRef*> out;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t i = 0; i < input_count(r.stages[s]); ++i) {
      const TensorRef& t = input_of(r.stages[s], i);
      if (!forwarded(r, s, t)) out.push_back(&t);
    }
  }
  return out;
}

std::set<BufferId> kept_from_memory(const Region& r) {
  std::set<BufferId> kept;
  if (r.independent || !r.tactic.forwards_stages || !check_stages(r)) return kept;
  for (const StageEdge& e : edges_of(r)) kept.insert(store_of(r, e.from).buffer);
  return kept;
}

Status check_stages(const Region& r) {
  if (r.independent || r.stages.size() < 2) return {};
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
      const TensorRef& t = r.stages[s].stores[j];
      for (const StoreId& other : stores_to(r, t.buffer)) {
        if (other != StoreId{s, j} && same_tensor(store_of(r, other), t))
          return bad(fmt::format("stage {} and stage {} store the same elements of buffer {}", s, other.stage, t.buffer));
      }
    }
    for (std::size_t i = 0; i < input_count(r.stages[s]); ++i) {
      const TensorRef& t = input_of(r.stages[s], i);
      for (const StoreId& id : stores_to(r, t.buffer)) {
        const TensorRef& stored = store_of(r, id);
        const bool same = same_tensor(stored, t);
        if (id.stage >= s && same)
          return bad(fmt::format("stage {} reads what stage {} stores: stages read results of those before them", s, id.stage));
        if (id.stage >= s) continue;
        if (!same)
          return bad(fmt::format("stage {} reads buffer {}, which stage {} stores, at another place than it is stored", s, t.buffer,
                                 id.stage));
        if (stored.dtype != t.dtype)
          return bad(fmt::format("stage {} reads as {} what stage {} stores as {}", s, ir::name_of(t.dtype), id.stage,
                                 ir::name_of(stored.dtype)));
      }
    }
  }
  for (const StageEdge& e : edges_of(r)) {  // it may have no place in memory
    const BufferId buffer = store_of(r, e.from).buffer;
    if (stores_to(r, buffer).size() != 1)
      return bad(fmt::format("buffer {} is forwarded from stage {} to stage {} and stored by another stage as well", buffer,
                             e.from.stage, e.reader));
    for (std::size_t s = 0; s <= e.from.stage; ++s) {
      for (std::size_t i = 0; i < input_count(r.stages[s]); ++i) {
        if (input_of(r.stages[s], i).buffer == buffer)
          return bad(fmt::format("stage {} reads buffer {}, which stage {} stores and forwards", s, buffer, e.from.stage));
      }
    }
  }
  return {};
}

}  // namespace octavo::region
