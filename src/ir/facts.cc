#include "ir/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "ir/fact_fields.h"

namespace octavo::ir {
namespace {

template <class T>
concept Enum = std::is_enum_v<T> && !std::is_same_v<T, DType>;

std::string_view kind_name(const Attr& a) {
  constexpr std::array<std::string_view, 5> names{"an integer", "a number", "a text", "a list of integers", "a list of numbers"};
  return names[a.index()];
}

/// One field out of an attribute; false: the attribute is of another kind, or no enumerator is spelled so.
bool take(const Attr& a, std::int64_t& to) {
  const auto* v = std::get_if<std::int64_t>(&a);
  if (v != nullptr) to = *v;
  return v != nullptr;
}
bool take(const Attr& a, bool& to) {
  const auto* v = std::get_if<std::int64_t>(&a);
  if (v != nullptr) to = *v != 0;
  return v != nullptr;
}
bool take(const Attr& a, double& to) {
  if (const auto* v = std::get_if<double>(&a)) return to = *v, true;
  const auto* v = std::get_if<std::int64_t>(&a);
  if (v != nullptr) to = static_cast<double>(*v);
  return v != nullptr;
}
bool take(const Attr& a, Shape& to) {
  const auto* v = std::get_if<Shape>(&a);
  if (v != nullptr) to = *v;
  return v != nullptr;
}
bool take(const Attr& a, std::vector<double>& to) {
  if (const auto* v = std::get_if<std::vector<double>>(&a)) return to = *v, true;
  const auto* v = std::get_if<Shape>(&a);  // an empty list has no kind of its own in text
  return v != nullptr && v->empty();
}
bool take(const Attr& a, std::optional<std::int64_t>& to) {
  std::int64_t v = 0;
  if (!take(a, v)) return false;
  to = v;
  return true;
}
bool take(const Attr& a, DType& to) {
  const auto* v = std::get_if<std::string>(&a);
  return v != nullptr && parse_dtype(*v, to);
}
template <Enum E>
bool named(std::string_view text, E& to) {
  const auto found = std::find(kSpelling<E>.begin(), kSpelling<E>.end(), text);
  if (found == kSpelling<E>.end()) return false;
  to = static_cast<E>(found - kSpelling<E>.begin());
  return true;
}
template <Enum E>
bool take(const Attr& a, E& to) {
  const auto* v = std::get_if<std::string>(&a);
  return v != nullptr && named(*v, to);
}
bool take(const Attr& a, std::vector<CellFunction>& to) {
  const auto* v = std::get_if<std::string>(&a);
  if (v == nullptr) return false;
  to.clear();
  for (std::size_t from = 0; from <= v->size() && !v->empty();) {
    const std::size_t end = std::min(v->find(',', from), v->size());
    if (!named(std::string_view(*v).substr(from, end - from), to.emplace_back())) return false;
    from = end + 1;
  }
  return true;
}

std::optional<Attr> give(std::int64_t v) {
  return v;
}
std::optional<Attr> give(bool v) {
  return std::int64_t{v};
}
std::optional<Attr> give(double v) {
  return v;
}
std::optional<Attr> give(DType v) {
  return std::string(name_of(v));
}
template <class T>
std::optional<Attr> give(const std::vector<T>& v) {
  return v.empty() ? std::nullopt : std::optional<Attr>(v);
}
std::optional<Attr> give(const std::optional<std::int64_t>& v) {
  return v ? std::optional<Attr>(*v) : std::nullopt;
}
template <Enum E>
std::optional<Attr> give(E v) {
  const std::string_view text = kSpelling<E>[static_cast<std::size_t>(v)];
  return text.empty() ? std::nullopt : std::optional<Attr>(std::string(text));
}
std::optional<Attr> give(const std::vector<CellFunction>& v) {
  std::string text;
  for (const CellFunction f : v)
    text += (text.empty() ? "" : ",") + std::string(kSpelling<CellFunction>[static_cast<std::size_t>(f)]);
  return text;
}

std::string known(const void*) {
  return ", which it cannot be";
}
template <Enum E>
std::string known(const E*) {
  return fmt::format(", not one of \"{}\"", fmt::join(kSpelling<E>, "\", \""));
}

Status bad(Op op, std::string_view attribute, std::string_view what) {
  return fail(ErrorKind::bad_model, fmt::format("{}: attribute {} {}", name_of(op), attribute, what));
}

template <class S>
Status read(Op op, const Attrs& attrs, S& to) {
  Status status;
  const auto one = [&](const auto& field) {
    const auto found = attrs.find(field.attribute);
    if (!status || found == attrs.end()) return;
    auto& member = to.*field.member;
    if (take(found->second, member)) return;
    const auto* text = std::get_if<std::string>(&found->second);
    status = bad(op, field.attribute,
                 text != nullptr ? fmt::format("is \"{}\"{}", *text, known(&member))
                                 : fmt::format("is {}, which it cannot be", kind_name(found->second)));
  };
  std::apply([&](const auto&... field) { (one(field), ...); }, fields_of(to));
  return status;
}

/// The lists of a window, one entry a spatial dimension.
Status fill(Op op, Shape& list, std::string_view attribute, std::size_t size, std::int64_t fallback) {
  if (list.empty()) list.assign(size, fallback);
  if (list.size() == size) return {};
  return bad(op, attribute, fmt::format("has {} entries, needs {}", list.size(), size));
}

Status from_front(Op op, std::int64_t& axis, std::string_view attribute, std::size_t rank) {
  const auto n = static_cast<std::int64_t>(rank);
  const std::int64_t given = axis;
  if (axis < 0) axis += n;
  if (axis >= 0 && axis < std::max<std::int64_t>(n, 1)) return {};
  return bad(op, attribute, fmt::format("is {}, of {} dimensions", given, n));
}

Status complete(Op op, Window& w, std::size_t rank) {
  const std::size_t spatial = rank < 2 ? 0 : rank - 2;
  OCTAVO_CHECK(fill(op, w.strides, "strides", spatial, 1));
  OCTAVO_CHECK(fill(op, w.dilations, "dilations", spatial, 1));
  OCTAVO_CHECK(fill(op, w.pads, "pads", 2 * spatial, 0));
  if (op == Op::conv_transpose) OCTAVO_CHECK(fill(op, w.output_padding, "output_padding", spatial, 0));
  if (op == Op::max_pool || op == Op::avg_pool || op == Op::max_pool_index)
    return w.kernel.size() == spatial ? Status()
                                      : bad(op, "kernel", fmt::format("has {} entries, needs {}", w.kernel.size(), spatial));
  return {};
}
Status complete(Op op, Reduction& r, std::size_t rank) {
  for (std::int64_t& axis : r.axes) OCTAVO_CHECK(from_front(op, axis, "axes", rank));
  return {};
}
template <class S>
requires requires(S s) {
  s.axis;
}
Status complete(Op op, S& s, std::size_t rank) {
  return from_front(op, s.axis, "axis", rank);
}
Status complete(Op op, Slice& s, std::size_t rank) {
  return fill(op, s.steps, "steps", rank, 1);
}
Status complete(Op op, Pad& p, std::size_t rank) {
  return fill(op, p.pads, "pads", 2 * rank, 0);
}
Status complete(Op op, Tile& t, std::size_t rank) {
  return fill(op, t.repeats, "repeats", rank, 1);
}
template <class S>
requires(!requires(S s) { s.axis; }) Status complete(Op, S&, std::size_t) {
  return {};
}

/// The kind of facts of each operator, with the defaults that depend on it.
Facts blank(Op op, std::size_t rank) {
  const auto last = static_cast<std::int64_t>(rank) - 1;
  switch (op) {
    case Op::conv:
    case Op::conv_transpose:
    case Op::deform_conv:
    case Op::max_pool:
    case Op::max_pool_index:
    case Op::avg_pool: return Window{};
    case Op::gemm:
    case Op::matmul: return Product{};
    case Op::reduce_mean:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_prod:
    case Op::reduce_l2: return Reduction{};
    case Op::softmax:
    case Op::log_softmax: return Along{last};
    case Op::quantize_rt:
    case Op::dequantize_rt: return Along{std::min<std::int64_t>(1, std::max<std::int64_t>(last, 0))};
    case Op::concat: return Along{};
    case Op::arg_max: return ArgMax{};
    case Op::resize_linear:
    case Op::resize_cubic: return Resize{};
    case Op::instance_norm: return InstanceNorm{};
    case Op::layer_norm: return LayerNorm{.axis = last};
    case Op::lrn: return LocalResponse{};
    case Op::math: return Math{};
    case Op::bitwise: return Bitwise{};
    case Op::cast:
    case Op::bit_cast: return Cast{};
    case Op::scatter: return Scatter{};
    case Op::top_k: return TopK{.axis = last};
    case Op::cumulate: return Cumulate{};
    case Op::grid_sample: return GridSample{};
    case Op::roi_align: return RoiAlign{};
    case Op::recurrent: return Recurrent{};
    case Op::non_max_suppression: return Suppression{};
    case Op::clip: return Clip{};
    case Op::leaky_relu: return Slope{0.01};
    case Op::elu: return Slope{1};
    case Op::selu: return Selu{};
    case Op::hard_sigmoid: return HardSigmoid{};
    case Op::gelu: return Gelu{};
    case Op::mod: return Remainder{};
    case Op::transpose: return Transpose{};
    case Op::reshape:
    case Op::expand: return Reshape{};
    case Op::slice: return Slice{};
    case Op::pad: return Pad{};
    case Op::resize_nearest: return ResizeNearest{};
    case Op::gather:
    case Op::gather_elements:
    case Op::gather_nd: return Gather{};
    case Op::tile: return Tile{};
    case Op::depth_to_space:
    case Op::space_to_depth: return Blocks{};
    default: return std::monostate{};
  }
}

std::string index_key(std::size_t d) {
  return "index" + std::to_string(d);
}

}  // namespace

Result<Facts> facts_of(Op op, const Attrs& attrs, std::size_t rank) {
  Facts facts = blank(op, rank);
  OCTAVO_CHECK(std::visit(
      [&](auto& f) -> Status {
        using S = std::remove_reference_t<decltype(f)>;
        if constexpr (std::is_same_v<S, ResizeNearest>) {
          f.index.resize(rank);
          for (std::size_t d = 0; d < rank; ++d) {
            const auto found = attrs.find(index_key(d));
            if (found != attrs.end() && !take(found->second, f.index[d])) return bad(op, index_key(d), "is not a list of integers");
          }
          return {};
        } else if constexpr (!std::is_same_v<S, std::monostate>) {
          OCTAVO_CHECK(read(op, attrs, f));
          return complete(op, f, rank);
        }
        return {};
      },
      facts));
  return facts;
}

Result<Facts> facts_of(const Graph& g, const Node& n) {
  return facts_of(n.op, n.attrs, n.inputs.empty() || n.inputs[0] == kNone ? 0 : g.type(n.inputs[0]).shape.size());
}

Attrs attrs_of(const Facts& facts) {
  Attrs attrs;
  std::visit(
      [&](const auto& f) {
        using S = std::remove_cvref_t<decltype(f)>;
        if constexpr (std::is_same_v<S, ResizeNearest>) {
          for (std::size_t d = 0; d < f.index.size(); ++d) {
            if (!f.index[d].empty()) attrs.emplace(index_key(d), f.index[d]);
          }
        } else if constexpr (!std::is_same_v<S, std::monostate>) {
          const auto one = [&](const auto& field) {
            if (auto value = give(f.*field.member)) attrs.emplace(field.attribute, std::move(*value));
          };
          std::apply([&](const auto&... field) { (one(field), ...); }, fields_of(f));
        }
      },
      facts);
  return attrs;
}

std::vector<CellActivation> activations_of(const Recurrent& r) {
  std::vector<CellActivation> out;
  const auto at = [](const std::vector<double>& list, std::size_t i) { return i < list.size() ? static_cast<float>(list[i]) : 0; };
  for (const CellFunction f : r.activations) out.push_back({f, at(r.alpha, out.size()), at(r.beta, out.size())});
  return out;
}

std::optional<std::pair<Op, Facts>> unary_of(const CellActivation& a) {
  const auto alpha = static_cast<double>(a.alpha), beta = static_cast<double>(a.beta);
  switch (a.function) {
    case CellFunction::tanh: return {{Op::tanh, std::monostate()}};
    case CellFunction::sigmoid: return {{Op::sigmoid, std::monostate()}};
    case CellFunction::relu: return {{Op::relu, std::monostate()}};
    case CellFunction::softsign: return {{Op::softsign, std::monostate()}};
    case CellFunction::softplus: return {{Op::softplus, std::monostate()}};
    case CellFunction::elu: return {{Op::elu, Slope{alpha}}};
    case CellFunction::leaky_relu: return {{Op::leaky_relu, Slope{alpha}}};
    case CellFunction::hard_sigmoid: return {{Op::hard_sigmoid, HardSigmoid{alpha, beta}}};
    case CellFunction::scaled_tanh:
    case CellFunction::thresholded_relu:
    case CellFunction::affine: break;
  }
  return std::nullopt;
}

Facts default_facts(Op op, std::size_t rank) {
  auto facts = facts_of(op, {}, rank);
  return facts ? std::move(*facts) : blank(op, rank);
}

bool fit(Op op, const Facts& facts) {
  return blank(op, 4).index() == facts.index();
}

}  // namespace octavo::ir
