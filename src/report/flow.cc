#include "report/flow.h"

#include <algorithm>
#include <limits>

#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::report {
namespace {

using region::TensorRef;

/// The bytes of its buffer between which a tensor lies.
struct Span {
  std::int64_t begin = 0, end = 0;
};

Span span_of(const TensorRef& t) {
  const auto size = element_bytes(t);
  std::int64_t lowest = 0, highest = 0;
  for (std::size_t k = 0; k < t.dims.size() && k < t.strides.size(); ++k) {
    const std::int64_t reach = (t.dims[k] - 1) * t.strides[k];
    (reach < 0 ? lowest : highest) += reach;
  }
  return {t.offset + lowest * size, t.offset + (highest + 1) * size};
}

/// Bytes from one pixel to the next of a tensor whose channels lie side by side; 0 for others.
std::int64_t pixel_of(const TensorRef& t) {
  if (t.dims.size() < 2 || t.strides.size() != t.dims.size() || t.strides[1] != 1) return 0;
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (std::size_t k = 0; k < t.dims.size(); ++k) {
    if (k != 1 && t.dims[k] > 1) next = std::min(next, t.strides[k]);
  }
  const auto size = element_bytes(t);
  return next == std::numeric_limits<std::int64_t>::max() || next < t.dims[1] ? 0 : next * size;
}

bool share_elements(const TensorRef& a, const TensorRef& b) {
  const Span x = span_of(a), y = span_of(b);
  if (x.end <= y.begin || y.end <= x.begin) return false;
  const std::int64_t pixel = pixel_of(a);
  if (pixel == 0 || pixel != pixel_of(b)) return true;
  const auto channels = [&](const TensorRef& t) {
    const std::int64_t first = t.offset % pixel;
    return Span{first, first + t.dims[1] * element_bytes(t)};
  };
  const Span p = channels(a), q = channels(b);
  if (p.end > pixel || q.end > pixel) return true;  // channels that go on in the next pixel
  return p.begin < q.end && q.begin < p.end;
}

/// Calls `read` and `stored` with every tensor that a region takes from memory or puts there, in the order of its stages.
template <class Read, class Stored>
void each_access(const region::Region& r, Read read, Stored stored) {
  const auto kept = region::kept_from_memory(r);
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const region::Stage& stage = r.stages[s];
    for (const TensorRef& t : stage.anchor.inputs) {
      if (!region::forwarded(r, s, t) && !kept.contains(t.buffer)) read(t);
    }
    for (const region::Operand& o : stage.operands) {
      if (!region::forwarded(r, s, o.ref) && !kept.contains(o.ref.buffer)) read(o.ref);
    }
    for (const TensorRef& t : stage.stores) {
      if (!kept.contains(t.buffer)) stored(t);
    }
  }
}

}  // namespace

std::vector<std::vector<Source>> sources_of(const region::Plan& plan) {
  struct Store {
    int region;
    const TensorRef* tensor;
  };
  std::vector<std::vector<Store>> stores(plan.buffers.size());
  std::vector<std::vector<Source>> out(plan.regions.size());
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const auto add = [&](Source source) {
      if (std::find(out[i].begin(), out[i].end(), source) == out[i].end()) out[i].push_back(std::move(source));
    };
    each_access(
        plan.regions[i],
        [&](const TensorRef& t) {
          const auto b = static_cast<std::size_t>(t.buffer);
          if (plan.buffers[b].kind == region::BufferKind::input) add({-1, plan.buffers[b].binding, t.value});
          for (const Store& s : stores[b]) {
            if (s.region < static_cast<int>(i) && share_elements(*s.tensor, t)) add({s.region, -1, t.value});
          }
        },
        [&](const TensorRef& t) {
          stores[static_cast<std::size_t>(t.buffer)].push_back({static_cast<int>(i), &t});
        });
  }
  return out;
}

std::vector<std::vector<int>> makers_of_outputs(const region::Plan& plan) {
  std::vector<std::vector<int>> out(plan.outputs.size());
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    each_access(
        plan.regions[i], [](const TensorRef&) {},
        [&](const TensorRef& t) {
          const region::Buffer& b = plan.buffers[static_cast<std::size_t>(t.buffer)];
          if (b.kind != region::BufferKind::output) return;
          auto& makers = out[static_cast<std::size_t>(b.binding)];
          if (makers.empty() || makers.back() != static_cast<int>(i)) makers.push_back(static_cast<int>(i));
        });
  }
  return out;
}

}  // namespace octavo::report
