// gather, gather_elements, gather_nd: copies by index. Negative indices count from the end; others outside are an error.
#include <cstring>

#include "reference/detail.h"

namespace octavo::reference {
namespace {

Result<std::int64_t> resolved(const Args& a, std::int64_t i, std::int64_t extent) {
  const std::int64_t k = i < 0 ? i + extent : i;
  if (k >= 0 && k < extent) return k;
  return a.error(ErrorKind::bad_input, "index {} is outside a dimension of {} elements", i, extent);
}

Result<Tensors> gather(const Args& a, const Ints& ids) {
  const Shape& x = a.shape(0);
  const std::size_t axis = idx(a.as<ir::Gather>().axis);
  const std::size_t inner = idx(ir::dense_strides(x)[axis]) * ir::size_of(a.out().dtype);
  const std::int64_t outer = ir::count(Shape(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis)));
  Tensor y(a.out());
  std::byte* to = y.mutable_bytes().data();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const std::int64_t i : ids) {
      OCTAVO_TRY(const std::int64_t k, resolved(a, i, x[axis]));
      if (inner != 0) std::memcpy(to, a.in[0].bytes().data() + idx(o * x[axis] + k) * inner, inner);
      to += inner;
    }
  }
  return Tensors{y};
}

Result<Tensors> gather_elements(const Args& a, const Ints& ids) {
  const std::size_t axis = idx(a.as<ir::Gather>().axis), bytes = ir::size_of(a.out().dtype);
  const Shape dense = ir::dense_strides(a.shape(0));
  Ints strides(dense.begin(), dense.end());
  strides[axis] = 0;
  Tensor y(a.out());
  Status status;
  for_each_element(a.out().shape, {strides}, [&](std::int64_t flat, const Ints& at) {
    const auto k = resolved(a, ids[idx(flat)], a.shape(0)[axis]);
    if (!k) {
      status = tl::unexpected<Error>(k.error());
      return;
    }
    std::memcpy(y.mutable_bytes().data() + idx(flat) * bytes, a.in[0].bytes().data() + idx(at[0] + *k * dense[axis]) * bytes,
                bytes);
  });
  OCTAVO_CHECK(status);
  return Tensors{y};
}

Result<Tensors> gather_nd(const Args& a, const Ints& ids) {
  const Shape& x = a.shape(0);
  const std::size_t batch = idx(a.as<ir::Gather>().batch_dims), length = idx(a.shape(1).back());
  const Shape dense = ir::dense_strides(x);
  const std::int64_t batches = ir::count(Shape(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(batch)));
  const std::size_t last = batch + length;
  const std::size_t inner =
      idx(ir::count(Shape(x.begin() + static_cast<std::ptrdiff_t>(last), x.end()))) * ir::size_of(a.out().dtype);
  const std::size_t tuples = ids.size() / length, tuples_a_batch = batches == 0 ? 0 : tuples / idx(batches);
  const std::int64_t batch_stride = batch == 0 ? 0 : dense[batch - 1];
  Tensor y(a.out());
  for (std::size_t t = 0; t < tuples; ++t) {
    std::int64_t at = tuples_a_batch == 0 ? 0 : static_cast<std::int64_t>(t / tuples_a_batch) * batch_stride;
    for (std::size_t d = 0; d < length; ++d) {
      OCTAVO_TRY(const std::int64_t k, resolved(a, ids[t * length + d], x[batch + d]));
      at += k * dense[batch + d];
    }
    if (inner != 0)
      std::memcpy(y.mutable_bytes().data() + t * inner, a.in[0].bytes().data() + idx(at) * ir::size_of(a.out().dtype), inner);
  }
  return Tensors{y};
}

}  // namespace

Result<Tensors> eval_gather(const Args& a) {
  const Ints ids = integers(a.in[1]);
  switch (a.n.op) {
    case Op::gather: return gather(a, ids);
    case Op::gather_elements: return gather_elements(a, ids);
    default: return gather_nd(a, ids);
  }
}

}  // namespace octavo::reference
