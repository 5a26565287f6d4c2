#include "tune/part.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::tune {
namespace {

using region::Region;
using region::Stage;
using region::TensorRef;

constexpr std::size_t kImages = 0, kRows = 2;
constexpr std::int64_t kLeastRows = 16;  // a thread: several row tiles
constexpr std::int64_t kUnit = 16;       // what is removed is a multiple of this, so that strides divide it

/// What the anchor reads less along dimension k for `removed` fewer results. Nothing: it may need all of it, or does not divide.
std::optional<std::int64_t> read_less(const Stage& s, std::size_t k, std::int64_t removed) {
  const region::Anchor& a = s.anchor;
  const auto* w = std::get_if<ir::Window>(&a.facts);
  const std::int64_t step = w == nullptr || k < kRows || w->strides.size() <= k - kRows ? 1 : w->strides[k - kRows];
  switch (a.op) {
    case ir::Op::conv:
    case ir::Op::max_pool:
    case ir::Op::avg_pool: return removed * step;
    case ir::Op::conv_transpose:
      if (step <= 0 || removed % step != 0) return std::nullopt;
      return removed / step;
    case ir::Op::instance_norm: return k == kRows ? std::optional(removed) : std::nullopt;
    case ir::Op::reshape: return a.inputs[0].dims == s.space ? std::optional(removed) : std::nullopt;  // a plain copy
    default: return std::nullopt;
  }
}

bool shorten(TensorRef& t, std::size_t k, std::int64_t by) {
  if (t.dims.size() <= k || t.dims[k] <= by || t.strides[k] < 0) return false;
  t.dims[k] -= by;
  return true;
}

/// Removes `removed` indices of dimension k from the last stage's results, and what belongs to them from all others.
bool cut(const Region& whole, Region& part, std::size_t k, std::int64_t removed) {
  const std::size_t n = whole.stages.size();
  std::vector<std::int64_t> less(n, -1);  // by stage; -1: not known yet
  const auto demand = [&](std::size_t reader, const TensorRef& t, std::int64_t by) {
    const auto from = region::forwarded_from(whole, reader, t);
    if (!from) return true;
    if (less[from->stage] < 0) less[from->stage] = by;
    return less[from->stage] == by;
  };
  for (std::size_t i = n; i-- > 0;) {
    const Stage& was = whole.stages[i];
    Stage& s = part.stages[i];
    if (less[i] < 0 && was.space != whole.stages.back().space) return false;  // nobody says what belongs together
    const std::int64_t by = less[i] < 0 ? removed : less[i];
    if (was.space.size() <= k || was.space[k] <= by) return false;
    s.space[k] -= by;
    for (std::size_t j = 0; j < was.anchor.inputs.size(); ++j) {
      if (j > 0 && was.anchor.op == ir::Op::instance_norm) break;  // scale and bias, a channel
      const auto read = j == 0 ? read_less(was, k, by) : std::nullopt;
      if (!read || !demand(i, was.anchor.inputs[j], *read) || !shorten(s.anchor.inputs[j], k, *read)) return false;
    }
    for (std::size_t j = 0; j < was.operands.size(); ++j) {
      const region::Operand& o = was.operands[j];
      const std::int64_t div = o.div.empty() ? 1 : o.div[k];
      if (o.ref.dims.size() != was.space.size() || by % div != 0) return false;
      if (o.ref.dims[k] == 1) continue;
      if (!demand(i, o.ref, by / div) || !shorten(s.operands[j].ref, k, by / div)) return false;
    }
    for (std::size_t j = 0; j < was.stores.size(); ++j) {
      if (was.stores[j].dims != was.space || !shorten(s.stores[j], k, by)) return false;
    }
  }
  return true;
}

/// The arena's buffers end where the part's last element does.
void shrink(const Region& r, region::Plan& plan) {
  std::map<region::BufferId, std::int64_t> bytes;
  const auto use = [&](const TensorRef& t) {
    std::int64_t last = 0;
    for (std::size_t k = 0; k < t.dims.size(); ++k) last += std::max<std::int64_t>(0, t.strides[k]) * (t.dims[k] - 1);
    std::int64_t& most = bytes[t.buffer];
    most = std::max(most, t.offset + (last + 1) * region::element_bytes(t));
  };
  for (const Stage& s : r.stages) {
    for (const TensorRef& t : s.anchor.inputs) use(t);
    for (const region::Operand& o : s.operands) use(o.ref);
    for (const TensorRef& t : s.stores) use(t);
  }
  for (const auto& [id, most] : bytes) {
    region::Buffer& b = plan.buffers[static_cast<std::size_t>(id)];
    if (b.kind == region::BufferKind::arena) b.bytes = std::min(b.bytes, most);
  }
}

}  // namespace

std::optional<Part> part_of(const Region& region, const region::Plan& plan, double seconds, double wanted) {
  if (region.device != region::kHost || region.stages.empty() || !(seconds > 2 * wanted)) return std::nullopt;
  const ir::Shape& space = region.stages.back().space;
  if (space.size() != 4 || ir::count(space) == 0) return std::nullopt;
  const std::int64_t threads = std::max(region::threads_of(plan), 1);
  Part part{region, {}, 1};
  const auto lose = [&](std::size_t k, std::int64_t least, std::int64_t unit) {
    const auto size = part.region.stages.back().space[k];
    const auto keep =
        std::max(least, static_cast<std::int64_t>(std::ceil(static_cast<double>(size) * wanted * part.scale / seconds)));
    const std::int64_t removed = (size - keep) / unit * unit;
    Region shorter = part.region;
    if (removed <= 0 || !cut(part.region, shorter, k, removed)) return;
    part.region = std::move(shorter);
    part.scale *= static_cast<double>(size) / static_cast<double>(size - removed);
  };
  const bool rows_are_images = space[2] * space[3] == 1;  // a product of matrices
  lose(kImages, rows_are_images ? kLeastRows * threads : threads, 1);
  lose(kRows, kLeastRows * threads, kUnit);
  if (part.scale < 2) return std::nullopt;
  part.plan.threads = plan.threads;
  part.plan.images = plan.images;
  part.plan.lanes = plan.lanes;
  part.plan.devices = plan.devices;
  part.plan.inputs = plan.inputs;
  part.plan.outputs = plan.outputs;
  part.plan.buffers = plan.buffers;
  shrink(part.region, part.plan);
  return part;
}

}  // namespace octavo::tune
