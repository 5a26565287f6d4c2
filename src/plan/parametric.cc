#include "plan/parametric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

namespace octavo::plan {
namespace {

constexpr int kMostPower = 2;
constexpr __int128 kMostValue = __int128{1} << 48;
constexpr __int128 kTooLarge = __int128{1} << 60;  // and yet its product with an int64 is an int128

template <class F>
void each_fact(ir::Facts& facts, const F& f) {
  const auto all = [&](ir::Shape& list) {
    for (std::int64_t& v : list) f(v, false);
  };
  if (auto* window = std::get_if<ir::Window>(&facts)) all(window->kernel), all(window->pads);
  if (auto* reshape = std::get_if<ir::Reshape>(&facts)) all(reshape->shape);
  if (auto* slice = std::get_if<ir::Slice>(&facts)) all(slice->starts), all(slice->ends);
  if (auto* pad = std::get_if<ir::Pad>(&facts)) all(pad->pads);
  if (auto* tile = std::get_if<ir::Tile>(&facts)) all(tile->repeats);
  if (auto* resize = std::get_if<ir::Resize>(&facts)) all(resize->sizes);
}

/// `f(extent, free)`; free: the stride of a dimension with one element, which says nothing.
template <class F>
void each_extent(region::TensorRef& t, const F& f) {
  std::uint32_t ones = 0;
  for (std::size_t k = 0; k < t.dims.size(); ++k) ones |= t.dims[k] == 1 ? 1U << k : 0U;
  f(t.offset, false);
  for (std::int64_t& v : t.dims) f(v, false);
  for (std::size_t k = 0; k < t.strides.size(); ++k) f(t.strides[k], (ones >> k & 1U) != 0);
}

template <class F>
void each_extent(region::Region& r, const F& f) {
  for (region::Stage& s : r.stages) {
    each_fact(s.anchor.facts, f);
    for (region::TensorRef& t : s.anchor.inputs) each_extent(t, f);
    if (s.anchor.weights) each_extent(*s.anchor.weights, f);
    for (std::int64_t& v : s.space) f(v, false);
    for (region::Operand& o : s.operands) {
      each_extent(o.ref, f);
      for (std::int64_t& v : o.div) f(v, false);
    }
    for (region::TensorRef& t : s.stores) each_extent(t, f);
  }
}

/// Bindings, then regions, then as many buffers as the plan had before it got tactics: they come last, because more follow. Constants count where they
/// grow.
template <class F>
void each_outer_extent(region::Plan& plan, std::size_t buffers, const std::map<region::BufferId, ir::Tensor>& growing, const F& f) {
  for (auto* list : {&plan.inputs, &plan.outputs}) {
    for (region::Binding& b : *list) {
      for (std::int64_t& v : b.type.shape) f(v, false);
      for (std::int64_t& v : b.strides) f(v, false);
      f(b.bytes, false);
    }
  }
  for (std::size_t i = 0; i < buffers; ++i) {
    region::Buffer& b = plan.buffers[i];
    if (b.kind != region::BufferKind::constant || growing.contains(static_cast<region::BufferId>(i))) f(b.bytes, false);
  }
}

std::vector<std::vector<int>> monomials(std::size_t dimensions) {
  std::vector<std::vector<int>> out{std::vector<int>(dimensions, 0)};
  for (std::size_t k = 0; k < dimensions; ++k) {
    const std::size_t before = out.size();
    for (int power = 1; power <= kMostPower; ++power) {
      for (std::size_t i = 0; i < before; ++i) {
        out.push_back(out[i]);
        out.back()[k] = power;
      }
    }
  }
  return out;
}

__int128 value_of(const std::vector<int>& powers, const Point& p) {
  __int128 v = 1;
  for (std::size_t k = 0; k < powers.size(); ++k) {
    for (int i = 0; i < powers[k]; ++i) v = std::clamp(v * p[k], -kTooLarge, kTooLarge);
  }
  return v;
}

tl::unexpected<Error> no(std::string what) {
  return fail(ErrorKind::unsupported, std::move(what));
}

}  // namespace

Result<Parametric> Parametric::fit(const std::vector<Point>& points, const std::vector<region::Plan>& plans) {
  Parametric out;
  const std::size_t buffers = plans.front().buffers.size();
  // Contents of constants: equal, or beginnings of the longest. Those that no region reads, because a device has a copy, leave finished plans.
  std::vector<char> read(buffers, 0);
  for (const region::Region& r : plans.front().regions) {
    for (const region::Stage& s : r.stages) {
      for (const region::TensorRef& t : s.anchor.inputs) read[static_cast<std::size_t>(t.buffer)] = 1;
      if (s.anchor.weights) read[static_cast<std::size_t>(s.anchor.weights->buffer)] = 1;
      for (const region::Operand& o : s.operands) read[static_cast<std::size_t>(o.ref.buffer)] = 1;
    }
  }
  for (std::size_t i = 0; i < buffers; ++i) {
    const ir::Tensor* longest = &plans.front().buffers[i].data;
    for (const region::Plan& p : plans) {
      if (p.buffers.size() != buffers) return no(fmt::format("{} buffers, and {}", buffers, p.buffers.size()));
      if (p.buffers[i].kind != plans.front().buffers[i].kind) return no(fmt::format("buffer {} is of two kinds", i));
      const ir::Tensor& t = p.buffers[i].data;
      if (!t.empty() && (longest->empty() || t.bytes().size() > longest->bytes().size())) longest = &t;
    }
    if (plans.front().buffers[i].kind != region::BufferKind::constant || read[i] == 0) continue;
    bool grows = false;
    for (const region::Plan& p : plans) {
      const ir::Tensor& t = p.buffers[i].data;
      if (t.empty() != longest->empty()) return no(fmt::format("constant {} has no contents", i));
      if (t.empty() || t.bytes().data() == longest->bytes().data()) continue;
      if (std::memcmp(t.bytes().data(), longest->bytes().data(), t.bytes().size()) != 0)
        return no(fmt::format("constant \"{}\" has other contents at other shapes", p.buffers[i].name));
      grows = grows || t.bytes().size() != longest->bytes().size();
    }
    if (grows) out.growing_.emplace(static_cast<region::BufferId>(i), *longest);
  }
  // Everything but extents is equal: compared by the hash of plans without them.
  std::vector<std::vector<std::int64_t>> values(plans.size());
  std::vector<std::vector<char>> free(plans.size());
  std::string hash;
  std::vector<std::size_t> begins;  // of regions, among the values
  for (std::size_t p = 0; p < plans.size(); ++p) {
    region::Plan plan = plans[p];
    const auto take = [&](std::int64_t& v, bool says_nothing) {
      values[p].push_back(v);
      free[p].push_back(says_nothing ? 1 : 0);
      v = 0;
    };
    for (region::Region& r : plan.regions) {
      if (p == 0) begins.push_back(values[p].size());
      each_extent(r, take);
    }
    if (p == 0) begins.push_back(values[p].size());
    each_outer_extent(plan, buffers, out.growing_, take);
    for (std::size_t i = 0; i < buffers; ++i) {
      plan.buffers[i].data = ir::Tensor();
      if (plan.buffers[i].kind == region::BufferKind::constant && read[i] == 0) plan.buffers[i].bytes = 0;
    }
    const std::string mine = region::plan_hash(plan);
    if (p == 0) hash = mine;
    if (mine != hash || values[p].size() != values[0].size())
      return no(
          fmt::format("the plans for {} and {} differ in more than extents", fmt::join(points[0], ","), fmt::join(points[p], ",")));
  }
  const auto terms = monomials(points.front().size());
  std::vector<std::vector<__int128>> at(terms.size());
  for (std::size_t m = 0; m < terms.size(); ++m) {
    for (const Point& p : points) at[m].push_back(value_of(terms[m], p));
  }
  constexpr std::int64_t kFree = INT64_MIN;
  /// `is`: the values at the points, or kFree.
  const auto sum_of = [&](const std::vector<std::int64_t>& is) -> std::optional<Sum> {
    std::vector<std::size_t> counts;  // points
    for (std::size_t p = 0; p < points.size(); ++p) {
      if (is[p] != kFree) counts.push_back(p);
    }
    const auto holds = [&](const Sum& sum, std::size_t m, std::size_t n) {
      return std::all_of(counts.begin(), counts.end(), [&](std::size_t p) {
        __int128 v = sum[0].factor * at[m][p];
        if (sum.size() > 1) v += sum[1].factor * at[n][p];
        return v == is[p];
      });
    };
    const std::size_t first = counts.front(), second = counts.size() > 1 ? counts[1] : first;
    for (std::size_t m = 0; m < terms.size(); ++m) {
      if (is[first] % at[m][first] != 0) continue;
      const Sum sum{{static_cast<std::int64_t>(is[first] / at[m][first]), terms[m]}};
      if (holds(sum, m, m)) return sum;
    }
    for (std::size_t m = 0; m < terms.size(); ++m) {
      for (std::size_t n = 0; n < m; ++n) {
        const __int128 det = at[m][first] * at[n][second] - at[n][first] * at[m][second];
        if (det == 0) continue;
        const __int128 x = is[first] * at[n][second] - at[n][first] * is[second],
                       y = at[m][first] * is[second] - is[first] * at[m][second];
        if (x % det != 0 || y % det != 0) continue;
        const Sum sum{{static_cast<std::int64_t>(x / det), terms[m]}, {static_cast<std::int64_t>(y / det), terms[n]}};
        if (holds(sum, m, n)) return sum;
      }
    }
    return std::nullopt;
  };
  std::map<std::vector<std::int64_t>, std::uint32_t> known;  // by the values at all points
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    std::vector<std::int64_t> mine;
    bool any = false;
    for (std::size_t p = 0; p < values.size(); ++p) any = any || free[p][i] == 0;
    for (std::size_t p = 0; p < values.size(); ++p) mine.push_back(any && free[p][i] != 0 ? kFree : values[p][i]);
    const auto [found, fresh] = known.try_emplace(mine, static_cast<std::uint32_t>(out.sums_.size()));
    if (fresh) {
      auto sum = sum_of(mine);
      if (!sum) return no(fmt::format("an extent is {} at the points {}", fmt::join(mine, ", "), fmt::join(points, ", ")));
      out.sums_.push_back(std::move(*sum));
    }
    out.which_.push_back(found->second);
  }
  for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
    bool varies = false;
    for (std::size_t i = begins[r]; i < begins[r + 1]; ++i) varies = varies || !out.constant(out.which_[i]);
    out.varies_.push_back(varies ? 1 : 0);
  }
  out.buffers_ = buffers;
  return out;
}

std::optional<std::vector<std::int64_t>> Parametric::at(const Point& point) const {
  std::vector<std::int64_t> value(sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    __int128 v = 0;
    for (const Term& t : sums_[i]) v += t.factor * value_of(t.powers, point);  // two terms of 2^123 at most
    if (v > kMostValue || v < -kMostValue) return std::nullopt;
    value[i] = static_cast<std::int64_t>(v);
  }
  return value;
}

bool Parametric::constant(std::uint32_t sum) const {
  return std::all_of(sums_[sum].begin(), sums_[sum].end(), [](const Term& t) {
    return t.factor == 0 || std::all_of(t.powers.begin(), t.powers.end(), [](int power) { return power == 0; });
  });
}

void Parametric::mark(region::Plan& plan) const {
  std::size_t i = 0;  // in the order of each_extent
  const auto is_open = [&] { return !constant(which_[i++]); };
  const auto bits = [&](std::size_t count) {
    std::uint32_t out = 0;
    for (std::size_t k = 0; k < count; ++k) out |= is_open() ? 1U << k : 0U;
    return out;
  };
  const auto tensor = [&](region::TensorRef& t) {
    t.open.offset = is_open();
    t.open.dims = bits(t.dims.size());
    t.open.strides = bits(t.strides.size());
  };
  for (region::Region& r : plan.regions) {
    for (region::Stage& s : r.stages) {
      each_fact(s.anchor.facts, [&](std::int64_t&, bool) { ++i; });
      for (region::TensorRef& t : s.anchor.inputs) tensor(t);
      if (s.anchor.weights) tensor(*s.anchor.weights);
      s.open = bits(s.space.size());
      for (region::Operand& o : s.operands) {
        tensor(o.ref);
        i += o.div.size();
      }
      for (region::TensorRef& t : s.stores) tensor(t);
    }
  }
}

bool Parametric::set(region::Plan& plan, const Point& point) const {
  const auto value = at(point);
  if (!value) return false;
  std::size_t i = 0;
  const auto put = [&](std::int64_t& v, bool) { v = (*value)[which_[i++]]; };
  for (region::Region& r : plan.regions) each_extent(r, put);
  each_outer_extent(plan, buffers_, growing_, put);
  return i == which_.size();
}

bool Parametric::agrees(const region::Plan& given, const Point& point) const {
  const auto value = at(point);
  if (!value || given.buffers.size() < buffers_ || given.regions.size() != varies_.size()) return false;
  region::Plan plan = given;
  std::size_t i = 0;
  bool same = true;
  const auto compare = [&](std::int64_t& v, bool says_nothing) {
    same = same && i < which_.size() && (says_nothing || v == (*value)[which_[i]]);
    ++i;
  };
  for (region::Region& r : plan.regions) each_extent(r, compare);
  each_outer_extent(plan, buffers_, growing_, compare);
  return same && i == which_.size();
}

nlohmann::json Parametric::to_json(std::vector<std::byte>& data) const {
  nlohmann::json sums = nlohmann::json::array(), growing = nlohmann::json::array();
  for (const Sum& sum : sums_) {
    nlohmann::json terms = nlohmann::json::array();
    for (const Term& t : sum) terms.push_back({t.factor, t.powers});
    sums.push_back(std::move(terms));
  }
  for (const auto& [id, tensor] : growing_) {
    growing.push_back({id, ir::name_of(tensor.dtype()), tensor.shape()});
    data.insert(data.end(), tensor.bytes().begin(), tensor.bytes().end());
  }
  return {{"which", which_}, {"sums", sums}, {"growing", growing}, {"buffers", buffers_}, {"varies", varies_}};
}

Result<Parametric> Parametric::from_json(const nlohmann::json& j, std::span<const std::byte> data, std::size_t dimensions) {
  const auto bad = [](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("the extents of a plan cannot be read: {}", what));
  };
  try {
    Parametric out;
    out.which_ = j.at("which").get<std::vector<std::uint32_t>>();
    out.varies_ = j.at("varies").get<std::vector<char>>();
    out.buffers_ = j.at("buffers").get<std::size_t>();
    for (const nlohmann::json& terms : j.at("sums")) {
      Sum sum;
      for (const nlohmann::json& t : terms) sum.push_back({t.at(0).get<std::int64_t>(), t.at(1).get<std::vector<int>>()});
      bool sound = !sum.empty() && sum.size() <= 2;
      for (const Term& t : sum) {
        sound = sound && t.powers.size() == dimensions;
        for (const int power : t.powers) sound = sound && power >= 0 && power <= kMostPower;
      }
      if (!sound) return bad("a sum of other terms than c * n^a * m^b");
      out.sums_.push_back(std::move(sum));
    }
    for (const std::uint32_t sum : out.which_) {
      if (sum >= out.sums_.size()) return bad(fmt::format("sum {} of {}", sum, out.sums_.size()));
    }
    for (const nlohmann::json& g : j.at("growing")) {
      ir::DType dtype{};
      const auto shape = g.at(2).get<ir::Shape>();
      const bool known = ir::parse_dtype(g.at(1).get<std::string>(), dtype);
      std::size_t bytes = known ? ir::size_of(dtype) : 0;
      for (const std::int64_t d : shape) {
        if (d < 0 || (d > 0 && bytes > data.size() / static_cast<std::size_t>(d)))
          return bad("a constant that is longer than its data");
        bytes *= static_cast<std::size_t>(d);
      }
      if (!known || bytes > data.size()) return bad("a constant that is longer than its data");
      ir::Tensor tensor(dtype, shape);
      if (tensor.bytes().size() != bytes) return bad("a constant of another size than its data");
      if (bytes > 0) std::memcpy(tensor.mutable_bytes().data(), data.data(), bytes);
      data = data.subspan(bytes);
      out.growing_.emplace(g.at(0).get<region::BufferId>(), std::move(tensor));
    }
    return out;
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
}

}  // namespace octavo::plan
