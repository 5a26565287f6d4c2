// scatter, top_k, cumulate, bitwise, bit_cast, math, non_zero, det.
//   scatter    updates in row-major order of the indices; negative indices count from the end
//   top_k      equal elements: the lower index first; NaN is larger than all. Unsorted results are sorted too
//   cumulate   floats in f32, from the first element (from the last when reversed); integers wrap
//   math       in double by the C library, rounded once to fp32
//   det        Gaussian elimination with partial pivoting in double, rounded once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "ir/with_integer.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

#include "program/elements.inc"

template <class T>
T reduced(ir::Combine how, T old, T update) {
  switch (how) {
    case ir::Combine::add: return static_cast<T>(old + update);
    case ir::Combine::mul: return static_cast<T>(old * update);
    case ir::Combine::max: return old < update ? update : old;
    case ir::Combine::min: return update < old ? update : old;
    default: return update;
  }
}

/// How many of the first `room` elements along a dimension there are: operand i says it, or all.
std::int64_t there(const Args& a, std::size_t i, std::int64_t room) {
  return a.in.size() > i ? std::clamp<std::int64_t>(a.in[i].data<std::int64_t>()[0], 0, room) : room;
}

/// Where each updated element goes: (element of the data) for each element of the updates that are there.
Result<Ints> targets(const Args& a) {
  const Shape& x = a.shape(0);
  const Shape dense = ir::dense_strides(x);
  Ints ids = integers(a.in[1]);
  Shape walked = a.shape(1);
  if (a.in.size() > 3) {
    const std::int64_t all = walked[0];
    walked[0] = there(a, 3, all);
    if (all > 0) ids.resize(idx(ir::count(walked)));
  }
  Ints out;
  const auto resolved = [&](std::int64_t i, std::int64_t extent) -> Result<std::int64_t> {
    const std::int64_t k = i < 0 ? i + extent : i;
    if (k >= 0 && k < extent) return k;
    return a.error(ErrorKind::bad_input, "index {} is outside a dimension of {} elements", i, extent);
  };
  if (a.as<ir::Scatter>().kind == ir::ScatterKind::elements) {
    const std::size_t axis = idx(a.as<ir::Scatter>().axis);
    Ints strides = dense;
    strides[axis] = 0;
    Status status;
    for_each_element(walked, {strides}, [&](std::int64_t flat, const Ints& at) {
      const auto k = resolved(ids[idx(flat)], x[axis]);
      if (!k) status = tl::unexpected<Error>(k.error());
      out.push_back(k ? at[0] + *k * dense[axis] : 0);
    });
    OCTAVO_CHECK(status);
    return out;
  }
  const std::size_t length = idx(a.shape(1).back());
  const std::int64_t inner = ir::count(Shape(x.begin() + static_cast<std::ptrdiff_t>(length), x.end()));
  for (std::size_t t = 0; t + length <= ids.size(); t += length) {
    std::int64_t base = 0;
    for (std::size_t d = 0; d < length; ++d) {
      OCTAVO_TRY(const std::int64_t k, resolved(ids[t + d], x[d]));
      base += k * dense[d];
    }
    for (std::int64_t i = 0; i < inner; ++i) out.push_back(base + i);
  }
  return out;
}

Result<Tensors> scatter(const Args& a) {
  OCTAVO_TRY(const Ints to, targets(a));
  const ir::Combine how = a.as<ir::Scatter>().combine;
  const std::size_t bytes = ir::size_of(a.out().dtype);
  if (how == ir::Combine::none) {
    Tensor y = a.in[0].clone();
    for (std::size_t i = 0; i < to.size(); ++i)
      std::memcpy(y.mutable_bytes().data() + idx(to[i]) * bytes, a.in[2].bytes().data() + i * bytes, bytes);
    return Tensors{y};
  }
  if (ir::is_float(a.out().dtype)) {
    auto y = floats(a.in[0]);
    const auto u = floats(a.in[2]);
    for (std::size_t i = 0; i < to.size(); ++i) y[idx(to[i])] = reduced(how, y[idx(to[i])], u[i]);
    return Tensors{from_floats(y, a.out())};
  }
  auto y = integers(a.in[0]);
  const auto u = integers(a.in[2]);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto old = static_cast<std::uint64_t>(y[idx(to[i])]), update = static_cast<std::uint64_t>(u[i]);
    const bool arithmetic = how == ir::Combine::add || how == ir::Combine::mul || a.out().dtype == DType::u64;
    y[idx(to[i])] = arithmetic ? static_cast<std::int64_t>(reduced(how, old, update)) : reduced(how, y[idx(to[i])], u[i]);
  }
  return Tensors{from_integers(y, a.out())};
}

template <class T>
void best(const std::vector<T>& x, std::vector<std::size_t>& order, std::size_t k, bool largest) {
  const auto before = [&](std::size_t p, std::size_t q) {
    const T u = x[p], v = x[q];
    const bool un = u != u, vn = v != v;
    if (un != vn) return largest ? un : vn;
    if (!un && u != v) return largest ? u > v : u < v;
    return p < q;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), before);
}

Tensors top_k(const Args& a) {
  const Shape& x = a.shape(0);
  const std::size_t axis = idx(a.as<ir::TopK>().axis), k = idx(a.out().shape[axis]), n = idx(x[axis]);
  const bool largest = a.as<ir::TopK>().largest;
  const std::size_t inner = idx(ir::dense_strides(x)[axis]), bytes = ir::size_of(a.out().dtype);
  const std::size_t outer = n == 0 ? 0 : idx(a.in[0].size()) / n / std::max<std::size_t>(inner, 1);
  Tensor values(a.out(0)), indices(a.out(1));
  const bool real = ir::is_float(a.out().dtype);
  const auto f = real ? floats(a.in[0]) : std::vector<float>{};
  const auto w = real ? Ints{} : integers(a.in[0]);
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < inner; ++i) {
      const std::size_t base = o * n * inner + i;
      std::vector<float> line;
      Ints whole;
      for (std::size_t j = 0; j < n; ++j) real ? line.push_back(f[base + j * inner]) : whole.push_back(w[base + j * inner]);
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      real ? best(line, order, k, largest) : best(whole, order, k, largest);
      for (std::size_t j = 0; j < k; ++j) {
        const std::size_t at = (o * k + j) * inner + i;
        std::memcpy(values.mutable_bytes().data() + at * bytes, a.in[0].bytes().data() + (base + order[j] * inner) * bytes, bytes);
        indices.mutable_data<std::int64_t>()[at] = static_cast<std::int64_t>(order[j]);
      }
    }
  }
  return {values, indices};
}

template <class T>
std::vector<T> accumulated(const Args& a, const std::vector<T>& x) {
  const auto& facts = a.as<ir::Cumulate>();
  const std::size_t axis = idx(facts.axis), n = idx(a.shape(0)[axis]), inner = idx(ir::dense_strides(a.shape(0))[axis]);
  const bool product = facts.function == ir::Accumulation::prod, exclusive = facts.exclusive, reverse = facts.reverse;
  std::vector<T> y(x.size());
  for (std::size_t base = 0; base < x.size(); ++base) {
    if (n == 0 || base / inner % n != 0) continue;
    T sum = product ? T{1} : T{0};
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t at = base + (reverse ? n - 1 - j : j) * inner;
      const T next = product ? static_cast<T>(sum * x[at]) : static_cast<T>(sum + x[at]);
      y[at] = exclusive ? sum : next;
      sum = next;
    }
  }
  return y;
}

Tensors cumulate(const Args& a) {
  if (ir::is_float(a.out().dtype)) return {from_floats(accumulated(a, floats(a.in[0])), a.out())};
  const Ints x = integers(a.in[0]);
  const auto y = accumulated(a, std::vector<std::uint64_t>(x.begin(), x.end()));
  return {from_integers(Ints(y.begin(), y.end()), a.out())};
}

Result<Tensors> bitwise(const Args& a) {
  const ir::BitFunction how = a.as<ir::Bitwise>().function;
  const Shape& out = a.out().shape;
  return ir::with_integer(a.out().dtype, [&]<class T>(T) -> Result<Tensors> {
    Tensor y(a.out());
    const auto to = y.mutable_data<T>();
    const auto x = a.in[0].data<T>();
    if (how == ir::BitFunction::bit_not) {
      std::transform(x.begin(), x.end(), to.begin(), element::bit_not<T>);
      return Tensors{y};
    }
    T(*const f)
    (T, T) = how == ir::BitFunction::bit_and   ? element::bit_and<T>
             : how == ir::BitFunction::bit_or  ? element::bit_or<T>
             : how == ir::BitFunction::bit_xor ? element::bit_xor<T>
             : how == ir::BitFunction::left    ? element::shift_left<T>
                                               : element::shift_right<T>;
    const auto z = a.in[1].data<T>();
    for_each_element(out, {broadcast_strides(a.shape(0), out), broadcast_strides(a.shape(1), out)},
                     [&](std::int64_t i, const Ints& at) { to[idx(i)] = f(x[idx(at[0])], z[idx(at[1])]); });
    return Tensors{y};
  });
}

Tensors math(const Args& a) {
  const ir::MathFunction f = a.as<ir::Math>().function;
  using Function = double (*)(double);
  const Function fn = f == ir::MathFunction::tan     ? static_cast<Function>(std::tan)
                      : f == ir::MathFunction::asin  ? static_cast<Function>(std::asin)
                      : f == ir::MathFunction::acos  ? static_cast<Function>(std::acos)
                      : f == ir::MathFunction::atan  ? static_cast<Function>(std::atan)
                      : f == ir::MathFunction::sinh  ? static_cast<Function>(std::sinh)
                      : f == ir::MathFunction::cosh  ? static_cast<Function>(std::cosh)
                      : f == ir::MathFunction::asinh ? static_cast<Function>(std::asinh)
                      : f == ir::MathFunction::acosh ? static_cast<Function>(std::acosh)
                                                     : static_cast<Function>(std::atanh);
  auto x = floats(a.in[0]);
  for (float& v : x) v = static_cast<float>(fn(static_cast<double>(v)));
  return {from_floats(x, a.out())};
}

Tensors det(const Args& a) {
  const std::size_t n = idx(a.shape(0).back());
  const auto x = floats(a.in[0]);
  std::vector<float> y;
  for (std::size_t m = 0; m < idx(ir::count(a.out().shape)); ++m) {
    std::vector<double> v(x.begin() + static_cast<std::ptrdiff_t>(m * n * n),
                          x.begin() + static_cast<std::ptrdiff_t>((m + 1) * n * n));
    double d = 1;
    for (std::size_t c = 0; c < n; ++c) {
      std::size_t pivot = c;
      for (std::size_t r = c; r < n; ++r) pivot = std::abs(v[r * n + c]) > std::abs(v[pivot * n + c]) ? r : pivot;
      if (pivot != c) {
        for (std::size_t k = 0; k < n; ++k) std::swap(v[c * n + k], v[pivot * n + k]);
        d = -d;
      }
      d *= v[c * n + c];
      if (v[c * n + c] == 0) break;
      for (std::size_t r = c + 1; r < n; ++r) {
        const double factor = v[r * n + c] / v[c * n + c];
        for (std::size_t k = c; k < n; ++k) v[r * n + k] -= factor * v[c * n + k];
      }
    }
    y.push_back(static_cast<float>(d));
  }
  return {from_floats(y, a.out())};
}

Tensors non_zero(const Args& a) {
  Tensor positions(a.out(0)), count(a.out(1));
  const auto to = positions.mutable_data<std::int64_t>();
  std::size_t n = 0;
  for (std::int64_t i = 0; i < there(a, 1, a.in[0].size()); ++i) {
    if (a.in[0].at(i) != 0) to[n++] = i;
  }
  std::fill(to.begin() + static_cast<std::ptrdiff_t>(n), to.end(), 0);
  count.mutable_data<std::int64_t>()[0] = static_cast<std::int64_t>(n);
  return {positions, count};
}

}  // namespace

Result<Tensors> eval_index(const Args& a) {
  switch (a.n.op) {
    case Op::scatter: return scatter(a);
    case Op::top_k: return top_k(a);
    case Op::cumulate: return cumulate(a);
    case Op::bitwise: return bitwise(a);
    case Op::math: return math(a);
    case Op::det: return det(a);
    case Op::non_zero: return non_zero(a);
    default: {  // bit_cast
      Tensor y(a.out());
      if (a.in[0].size() != 0) std::memcpy(y.mutable_bytes().data(), a.in[0].bytes().data(), a.in[0].bytes().size());
      return Tensors{y};
    }
  }
}

}  // namespace octavo::reference
