// Numbers with bounds, as sums of terms, and the scalars of the graph that compute them.
#include <algorithm>
#include <cmath>

#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

Number Sizes::number(std::int64_t v) {
  const auto d = std::clamp(static_cast<double>(v), -kFar, kFar);
  return {d, d, ir::kNone, key_of(d), d};
}

Number Sizes::term(std::uint64_t key, double least, double most) {
  least = std::max(least, -kFar), most = std::min(most, kFar);
  if (least == most) return {least, least, ir::kNone, key_of(least), least};
  Number out{least, most, ir::kNone, key, 0, {{key, 1}}};
  bounds_.emplace(key, std::pair(least, most));
  return out;
}

Number Sizes::sum(const Number& a, double times, const Number& b, double times_b) {
  Number out;
  out.constant = a.constant * times + b.constant * times_b;
  for (const auto& [key, n] : a.terms) out.terms[key] += n * times;
  for (const auto& [key, n] : b.terms) out.terms[key] += n * times_b;
  std::erase_if(out.terms, [](const auto& t) { return t.second == 0; });
  out.least = out.most = out.constant;
  out.key = out.terms.empty() ? key_of(out.constant) : mixed(0x73756dU, key_of(out.constant));
  for (const auto& [key, n] : out.terms) {
    const auto [least, most] = bounds_.at(key);
    out.least += n * (n > 0 ? least : most);
    out.most += n * (n > 0 ? most : least);
    out.key = mixed(mixed(out.key, key), std::bit_cast<std::uint64_t>(n));
  }
  if (out.terms.size() == 1 && out.constant == 0 && out.terms.begin()->second == 1) out.key = out.terms.begin()->first;
  out.least = std::max(out.least, -kFar), out.most = std::min(out.most, kFar);
  return out;
}

std::optional<Number> Sizes::quotient(const Number& a, double by) {
  const auto whole = [&](double v) { return std::trunc(v / by) == v / by; };
  if (by == 0 || !whole(a.constant)) return std::nullopt;
  for (const auto& [key, n] : a.terms) {
    if (!whole(n)) return std::nullopt;
  }
  Number out = sum(a, 1 / by, {}, 0);
  for (auto& [key, n] : out.terms) n = std::round(n);
  return sum(out, 1, {}, 0);
}

Number Sizes::count(ValueId scalar, double least, double most) {
  if (const auto at = counts_.find(scalar); at != counts_.end()) return at->second;
  Number n = term(mixed(0x636f756e74U, next_key_++), least, most);
  n.value = scalar;
  by_key_[n.key] = scalar;
  counts_[scalar] = n;
  return n;
}

Number Sizes::extent(const ir::Graph& g, ValueId v, std::size_t axis) const {
  if (open(v, axis)) return counts_.at(extents_.at(v).at(axis));
  return number(room(g, v, axis));
}

ValueId Sizes::scalar(NodeContext& n, const Number& a) {
  if (a.known()) return n.add_constant(Tensor::scalar(a.exact()));
  if (const auto at = by_key_.find(a.key); at != by_key_.end()) return at->second;
  if (a.value != ir::kNone) {
    by_key_[a.key] = a.value;
    counts_[a.value] = a;
  }
  return a.value;
}

Number Sizes::computed(NodeContext& n, Op op, Number out, const Number& a, const Number& b) {
  if (out.known()) return number(out.exact());
  if (const auto at = by_key_.find(out.key); at != by_key_.end()) return counts_.at(at->second);
  const Plain plain(*this);
  Compose c(n);
  out.value = c.op(op, {scalar(n, a), scalar(n, b)});
  by_key_[out.key] = out.value;
  counts_[out.value] = out;
  return out;
}

Number Sizes::add(NodeContext& n, const Number& a, const Number& b) {
  return computed(n, Op::add, sum(a, 1, b, 1), a, b);
}
Number Sizes::sub(NodeContext& n, const Number& a, const Number& b) {
  return computed(n, Op::sub, sum(a, 1, b, -1), a, b);
}
Number Sizes::mul(NodeContext& n, const Number& a, const Number& b) {
  if (a.known() && !b.known()) return mul(n, b, a);
  if (b.known()) return computed(n, Op::mul, sum(a, b.least, {}, 0), a, b);
  const double ends[] = {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most};
  const std::uint64_t key = key_of_both(Op::mul, a, b);
  return computed(n, Op::mul, term(key, *std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)), a, b);
}
Number Sizes::div(NodeContext& n, const Number& a, const Number& b) {
  if (const auto exact = quotient(a, b.least)) return computed(n, Op::div, *exact, a, b);
  const std::uint64_t key = key_of(Op::div, a.key, b.key);
  return computed(n, Op::div, term(key, std::trunc(a.least / b.least), std::trunc(a.most / b.least)), a, b);
}
Number Sizes::min(NodeContext& n, const Number& a, const Number& b) {
  const Number apart = sum(a, 1, b, -1);
  if (apart.most <= 0) return a;
  if (apart.least >= 0) return b;
  const std::uint64_t key = key_of_both(Op::min, a, b);
  return computed(n, Op::min, term(key, std::min(a.least, b.least), std::min(a.most, b.most)), a, b);
}
Number Sizes::max(NodeContext& n, const Number& a, const Number& b) {
  const Number apart = sum(a, 1, b, -1);
  if (apart.least >= 0) return a;
  if (apart.most <= 0) return b;
  const std::uint64_t key = key_of_both(Op::max, a, b);
  return computed(n, Op::max, term(key, std::max(a.least, b.least), std::max(a.most, b.most)), a, b);
}

std::optional<Numbers> Sizes::elements(NodeContext& n, ValueId v) {
  const ir::Graph& g = n.graph();
  if (v == ir::kNone || open(v)) return std::nullopt;
  if (g.is_constant(v)) {
    const Tensor& t = g.payload(v);
    if (t.size() > kMostNumbers || g.producer(v).quantizer) return std::nullopt;
    Numbers out;
    for (std::int64_t i = 0; i < t.size(); ++i) {
      if (std::isnan(t.at(i))) return std::nullopt;
      const double d = std::clamp(t.at(i), -kFar, kFar);
      out.push_back({d, d, ir::kNone, key_of(d), d});
    }
    return out;
  }
  if (const auto at = counts_.find(v); at != counts_.end()) return Numbers{at->second};
  const auto at = numbers_.find(v);
  if (at == numbers_.end() || ir::is_float(g.type(v).dtype)) return std::nullopt;
  Numbers out = at->second;
  const Plain plain(*this);
  Compose c(n);
  for (std::size_t i = 0; i < out.size(); ++i) {
    Number& x = out[i];
    if (x.known()) continue;
    if (const auto same = by_key_.find(x.key); same != by_key_.end()) {
      x = counts_.at(same->second);
      continue;
    }
    const ValueId flat = c.reshape(c.cast(v, DType::s64), {static_cast<std::int64_t>(out.size())});
    const auto at_i = static_cast<std::int64_t>(i);
    x.value = c.reshape(c.slice(flat, 0, at_i, at_i + 1), {});
    by_key_[x.key] = x.value;
    counts_[x.value] = x;
  }
  numbers_[v] = out;
  return out;
}

ValueId Sizes::list(NodeContext& n, const Numbers& numbers) {
  Compose c(n);
  const auto count = static_cast<std::int64_t>(numbers.size());
  if (std::all_of(numbers.begin(), numbers.end(), [](const Number& x) { return x.known(); })) {
    Ints values;
    for (const Number& x : numbers) values.push_back(x.exact());
    return c.integers({count}, values);
  }
  ValueId out = ir::kNone;
  {
    const Plain plain(*this);
    std::vector<ValueId> parts;
    for (const Number& x : numbers) parts.push_back(c.reshape(scalar(n, x), {1}));
    out = c.concat(std::move(parts), 0);
  }
  numbers_[out] = numbers;
  return out;
}

}  // namespace octavo::onnx
