#include "plan/layout/layout.h"

#include <algorithm>
#include <numeric>

#include "region/tensor_ref.h"

namespace octavo::plan {

using region::TensorRef;

Strides strides_in_order(const ir::Shape& dims, const std::vector<int>& order) {
  Strides strides(dims.size(), 1);
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[static_cast<std::size_t>(order[i])] = step;
    step *= dims[static_cast<std::size_t>(order[i])];
  }
  return strides;
}

Strides channel_last(const ir::Shape& dims) {
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (dims.size() >= 3) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return strides_in_order(dims, order);
}

std::vector<int> order_of(const ir::Shape& dims, const Strides& strides) {
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return strides[static_cast<std::size_t>(a)] > strides[static_cast<std::size_t>(b)]; });
  return order;
}

std::optional<Strides> reshape_strides(const ir::Shape& from, const Strides& strides, const ir::Shape& to) {
  // Walk both shapes from the innermost side in chunks of equal element count; a chunk of `from` must be contiguous in itself.
  Strides out(to.size(), 0);
  std::size_t i = from.size(), j = to.size();
  while (true) {
    while (i > 0 && from[i - 1] == 1) --i;
    while (j > 0 && to[j - 1] == 1) out[--j] = 1;
    if (i == 0 || j == 0) break;
    std::int64_t base = strides[i - 1];
    std::int64_t have = from[i - 1], want = to[j - 1];
    std::int64_t step = base;
    out[--j] = step;
    step *= to[j];
    --i;
    std::int64_t expect = base * have;  // stride the next outer dimension of this chunk must have
    while (have != want) {
      if (have < want) {
        if (i == 0) return std::nullopt;
        --i;
        if (from[i] == 1) continue;
        if (strides[i] != expect) return std::nullopt;
        have *= from[i];
        expect *= from[i];
      } else {
        if (j == 0) return std::nullopt;
        --j;
        out[j] = step;
        step *= to[j];
        want *= to[j];
      }
    }
  }
  if (i != 0 || j != 0) return std::nullopt;
  return out;
}

TensorRef permuted(const TensorRef& r, const std::vector<std::int64_t>& perm) {
  TensorRef out = r;
  for (std::size_t k = 0; k < perm.size(); ++k) {
    out.dims[k] = r.dims[static_cast<std::size_t>(perm[k])];
    out.strides[k] = r.strides[static_cast<std::size_t>(perm[k])];
  }
  return out;
}

TensorRef unpermuted(const TensorRef& r, const std::vector<std::int64_t>& perm) {
  TensorRef out = r;
  for (std::size_t k = 0; k < perm.size(); ++k) {
    out.dims[static_cast<std::size_t>(perm[k])] = r.dims[k];
    out.strides[static_cast<std::size_t>(perm[k])] = r.strides[k];
  }
  return out;
}

TensorRef sliced(const TensorRef& r, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& steps,
                 const ir::Shape& dims) {
  TensorRef out = r;
  out.dims = dims;
  for (std::size_t k = 0; k < dims.size(); ++k) {
    out.offset += starts[k] * r.strides[k] * element_bytes(r);
    out.strides[k] = r.strides[k] * (steps.empty() ? 1 : steps[k]);
  }
  return out;
}

std::optional<TensorRef> reshaped(const TensorRef& r, const ir::Shape& dims) {
  auto strides = reshape_strides(r.dims, r.strides, dims);
  if (!strides) return std::nullopt;
  TensorRef out = r;
  out.dims = dims;
  out.strides = std::move(*strides);
  return out;
}

TensorRef broadcast(const TensorRef& r, const ir::Shape& space) {
  TensorRef out = r;
  out.dims = space;
  out.strides.assign(space.size(), 0);
  const std::size_t lead = space.size() - r.dims.size();
  for (std::size_t k = 0; k < r.dims.size(); ++k) {
    if (r.dims[k] == space[lead + k] && r.dims[k] != 1) out.strides[lead + k] = r.strides[k];
  }
  return out;
}

}  // namespace octavo::plan
