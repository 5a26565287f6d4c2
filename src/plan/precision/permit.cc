// One class, longer than 400 lines: what may be int8 and what narrower floats share the rules and the report.
#include "plan/precision/permit.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/causes/plan_precision.h"
#include "ir/grid.h"
#include "plan/candidates/narrow.h"
#include "plan/precision/refused_type.h"
#include "plan/regions/group.h"
#include "quant/weight_scales.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

constexpr double kRoundsToInfinity = 65520;  // in float16

class Permitter {
 public:
  Permitter(Graph& g, const PlanOptions& options, const PermitChoices& choices)
      : g_(g), options_(options), choices_(choices), grids_(ir::find_grids(g)), grouping_(make_groups(g, options.disabled)) {}

  Result<PermitReport> run() {
    order_ = g_.order();
    travel();
    OCTAVO_CHECK(check_rules());
    for (const NodeId id : order_) {
      const Node n = g_.node(id);  // a copy: adding nodes moves the original
      if (stays_float32(n)) report_.kept_wide.insert(n.origin.begin(), n.origin.end());
      if (weighted_op(n.op)) {
        OCTAVO_CHECK(weighted(id, n));
      } else if (n.op == Op::matmul) {
        OCTAVO_CHECK(product(id, n));
      } else if (in_program(g_, n) && n.op != Op::view && !is_choice(n.op)) {
        for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
          if (choices_.keep_float.contains(name_of(n))) break;
          if ((leaves_region(n.inputs[slot], id) && !from_input(n.inputs[slot])) || inner(n.inputs[slot])) other(id, slot);
        }
      } else if (n.op == Op::avg_pool || n.op == Op::reduce_mean) {
        if (!choices_.keep_float.contains(name_of(n))) other(id, 0);
      }
    }
    for (const auto& [at, view] : edits_) g_.node(at.first).inputs[at.second] = view;
    g_.touch();
    return std::move(report_);
  }

 private:
  /// Every rule names a known type, and something that exists; int8 can be had where it is asked of a tensor.
  Status check_rules() const {
    for (const PrecisionRule& rule : options_.precisions) {
      const std::string text = fmt::format("{}={}", rule.pattern, rule.type.name());
      bool computes = false;  // a weighted operator, a product of two matrices, or what one reads
      bool found = false;
      for (const NodeId id : order_) {
        const Node& n = g_.node(id);
        const bool here =
            std::any_of(n.origin.begin(), n.origin.end(), [&](const std::string& o) { return matches(rule.pattern, o); });
        found = found || here;
        computes = computes || (weighted_op(n.op) && (here || matches(rule.pattern, g_.value(n.inputs[0]).name))) ||
                   (n.op == Op::matmul && (here || std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
                                             return matches(rule.pattern, g_.value(v).name);
                                           })));
        for (const ValueId v : n.outputs) {
          const ir::Value& value = g_.value(v);
          if (n.op == Op::constant || value.name.empty() || !matches(rule.pattern, value.name)) continue;
          found = true;
          const bool of_node = here && weighted_op(n.op);  // the rule is about the operator, which reads another tensor
          if (rule.type == LayerType::int8 && !of_node && !value.range && grids_.get(v) == nullptr) {
            return fail(ErrorKind::usage, fmt::format("precision: the rule \"{}\" asks int8 of tensor \"{}\", which has no range\n"
                                                      "  add it to the calibration table, or remove the rule",
                                                      text, value.name));
          }
        }
      }
      if (!found) {
        return fail(ErrorKind::usage,
                    fmt::format("precision: the rule \"{}\" matches no ONNX node and no tensor\n  patterns may hold * "
                                "and ?; octavo explain lists the nodes",
                                text));
      }
      if (rule.type.narrow() && !computes) {
        return fail(ErrorKind::usage,
                    fmt::format("precision: the rule \"{}\" asks {} of no convolution or product\n  give the name "
                                "of a Conv, ConvTranspose or Gemm with constant weights, of a MatMul, or of a tensor that "
                                "it reads",
                                text, rule.type.name()));
      }
    }
    return {};
  }

  static std::string name_of(const Node& n) { return n.origin.empty() ? std::string(ir::name_of(n.op)) : *n.origin.begin(); }

  /// Ranges of values that have none of their own, from what they are made of or turned into without a change of magnitude.
  void travel() {
    for (const NodeId id : order_) {
      const Node& n = g_.node(id);
      if (n.outputs.size() != 1 || g_.value(n.outputs[0]).range) continue;
      if (const auto q = range_behind(n)) g_.value(n.outputs[0]).range = q;
    }
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {  // what keeps every element: backwards too
      const Node& n = g_.node(*at);
      if (n.op != Op::transpose && n.op != Op::reshape && !permutes(n)) continue;
      ir::Value& in = g_.value(n.inputs[0]);
      if (!in.range) in.range = g_.value(n.outputs[0]).range;
    }
  }

  /// A gather of every element once.
  [[nodiscard]] bool permutes(const Node& n) const {
    if (n.op != Op::gather || !g_.is_constant(n.inputs[1]) || g_.type(n.inputs[1]).shape.size() != 1) return false;
    std::vector<std::int64_t> taken = g_.payload(n.inputs[1]).as_ints();
    std::sort(taken.begin(), taken.end());
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (taken[i] != static_cast<std::int64_t>(i)) return false;
    }
    return g_.type(n.inputs[0]).shape == g_.type(n.outputs[0]).shape;
  }

  /// The range of the data operands, where every element of the result is an element of them or nearer to 0: of unlike ones the widest,
  /// or one that covers all where they have zero points.
  [[nodiscard]] std::optional<ir::Quantizer> range_behind(const Node& n) const {
    const bool towards_zero =
        n.op == Op::relu || (n.op == Op::clip && ir::get_float(n.attrs, "min") <= 0 && ir::get_float(n.attrs, "max") >= 0);
    if (!ir::has_trait(n.op, ir::kMove) && !towards_zero) return std::nullopt;
    if (n.op == Op::pad && ir::get_float(n.attrs, "value") != 0) return std::nullopt;  // another value comes in
    std::optional<ir::Quantizer> widest;
    for (std::size_t i = 0; i < (n.op == Op::concat ? n.inputs.size() : 1); ++i) {
      const auto& r = g_.value(n.inputs[i]).range;
      if (!r) return std::nullopt;
      widest = widest ? joined(*widest, *r) : *r;
    }
    return widest;
  }

  static ir::Quantizer joined(const ir::Quantizer& a, const ir::Quantizer& b) {
    const ir::Quantizer sa = ir::as_s8(a), sb = ir::as_s8(b);
    if (sa == sb || (sa.zero_point[0] == 0 && sb.zero_point[0] == 0)) return ir::wider(a, b);
    const ir::Ends x = ir::ends_of(a), y = ir::ends_of(b);
    return ir::covering(std::min(x.lo, y.lo), std::max(x.hi, y.hi));
  }

  /// True if a view on this edge is not inside an epilogue. What moves elements is no border in itself: a view behind it is one
  /// before it, by the laws, and then what follows joins the convolution that it is combined with.
  [[nodiscard]] bool leaves_region(ValueId v, NodeId user) const {
    if (v == ir::kNone || g_.is_constant(v)) return false;
    if (moves(g_.producer(v))) return true;
    const int from = grouping_.of_node[static_cast<std::size_t>(g_.value(v).producer)];
    const int to = grouping_.of_node[static_cast<std::size_t>(user)];
    if (from < 0 || to < 0) return true;
    if (from == to) return false;
    const NodeId here = grouping_.groups[static_cast<std::size_t>(to)].anchor;
    const NodeId there = grouping_.groups[static_cast<std::size_t>(from)].anchor;
    const bool will_join =
        here != ir::kNone && moves(g_.node(here)) && there != ir::kNone && weighted_op(g_.node(there).op) && g_.use_count(v) == 1;
    return !will_join;
  }
  /// True if the choices put a view between an anchor and the activation that reads it.
  bool inner(ValueId v) {
    if (v == ir::kNone || !g_.value(v).range || (!choices_.all_inner && choices_.inner.empty())) return false;
    const int group = grouping_.of_node[static_cast<std::size_t>(g_.value(v).producer)];
    const NodeId anchor = group < 0 ? ir::kNone : grouping_.groups[static_cast<std::size_t>(group)].anchor;
    if (anchor == ir::kNone || !weighted_op(g_.node(anchor).op)) return false;
    const auto& users = g_.users(v);
    if (std::none_of(users.begin(), users.end(), [&](const auto& u) { return costly(g_.node(u.first).op); })) return false;
    const std::string name = name_of(g_.node(anchor));
    if (!choices_.all_inner && !choices_.inner.contains(name)) return false;
    report_.inner.insert(name);
    return true;
  }
  /// Whose arithmetic takes longer than looking it up, at least where the result is stored at several scales.
  static bool costly(Op op) {
    switch (op) {
      case Op::sigmoid:
      case Op::tanh:
      case Op::erf:
      case Op::gelu:
      case Op::hard_swish:
      case Op::hard_sigmoid:
      case Op::exp:
      case Op::softplus:
      case Op::softsign:
      case Op::mish:
      case Op::elu:
      case Op::selu:
      case Op::leaky_relu:
      case Op::relu:
      case Op::clip: return true;
      default: return false;
    }
  }

  static bool moves(const Node& n) { return ir::has_trait(n.op, ir::kMove) && !ir::has_trait(n.op, ir::kPointwise); }
  static bool weighted_op(Op op) { return op == Op::conv || op == Op::conv_transpose || op == Op::gemm; }

  /// Directly or through moves: it lies in memory as float already, so that a view would be a pass of its own.
  [[nodiscard]] bool from_input(ValueId v) const {
    const Node& n = g_.producer(v);
    if (n.op == Op::input) return true;
    return is_alias(n) && from_input(n.inputs[0]);
  }

  /// The quantizer by which `v` may be read, if any, after the user's rules about tensors. Of those, the rules from `asked` on do not
  /// count: the first match counts, and that one asks int8 of the reader.
  std::optional<ir::Quantizer> range_of(ValueId v, std::optional<Reason>& why, const PrecisionRule* asked = nullptr) {
    const ir::Value& value = g_.value(v);
    for (const PrecisionRule& rule : options_.precisions) {
      if (&rule == asked) break;
      if (rule.type != LayerType::int8 && !value.name.empty() && matches(rule.pattern, value.name)) {
        why = because<cause::tensor_kept_by_rule>(value.name, rule.type.name(), rule.pattern);
        return std::nullopt;
      }
    }
    if (!value.range) why = because<cause::tensor_without_range>(g_.nearest_name(v));
    return value.range;
  }

  /// A view stands for nothing in the model: it belongs to what makes the value, or else to what reads it.
  [[nodiscard]] std::set<std::string> origin(ValueId v, NodeId reader) const {
    const std::set<std::string>& made_by = g_.producer(v).origin;
    return made_by.empty() ? g_.node(reader).origin : made_by;
  }

  bool read_through(NodeId id, std::size_t slot, const PrecisionRule* asked = nullptr) {
    const ValueId v = g_.node(id).inputs[slot];
    if (!options_.allowed.contains(LayerType::int8) || grids_.get(v) != nullptr || g_.type(v).dtype != ir::DType::f32) return false;
    std::optional<Reason> why;
    const auto q = range_of(v, why, asked);
    if (!q) return false;
    auto& made = views_[v].id;
    if (made == ir::kNone) made = g_.add_quantizer(Op::view, v, *q, g_.type(v), origin(v, id), g_.value(v).name);
    edits_.push_back({{id, slot}, made});
    return true;
  }

  void other(NodeId id, std::size_t slot) {
    if (read_through(id, slot)) report_.others.insert(name_of(g_.node(id)));
  }

  /// A rule asks float32 of the node, or of the tensor that it makes.
  [[nodiscard]] bool stays_float32(const Node& n) const {
    const auto first = std::find_if(options_.precisions.begin(), options_.precisions.end(), [&](const PrecisionRule& r) {
      return std::any_of(n.origin.begin(), n.origin.end(), [&](const std::string& o) { return matches(r.pattern, o); }) ||
             std::any_of(n.outputs.begin(), n.outputs.end(),
                         [&](ValueId v) { return !g_.value(v).name.empty() && matches(r.pattern, g_.value(v).name); });
    });
    return first != options_.precisions.end() && first->type == LayerType::float32;
  }

  const PrecisionRule* rule_for(const Node& n) const {
    for (const PrecisionRule& rule : options_.precisions) {
      for (const std::string& name : n.origin) {
        if (matches(rule.pattern, name)) return &rule;
      }
    }
    return nullptr;
  }

  Status weighted(NodeId id, const Node& n) {
    const std::string name = name_of(n);
    const PrecisionRule* rule = rule_for(n);
    const bool demanded = ir::classify_anchor(g_, grids_, id).integer;
    if (demanded) {
      if (rule != nullptr && rule->type != LayerType::int8) {
        return fail(ErrorKind::usage,
                    fmt::format("precision: the rule \"{}={}\" asks {} of node \"{}\", but QuantizeLinear and DequantizeLinear "
                                "around it demand int8\n  remove the pairs from the model, or the rule",
                                rule->pattern, rule->type.name(), rule->type.name(), name));
      }
      ++report_.demanded_layers;
      report_.demanded.insert(n.origin.begin(), n.origin.end());
      return {};
    }
    std::optional<Reason> why;
    const PrecisionRule* asked = rule != nullptr && rule->type == LayerType::int8 ? rule : nullptr;
    if (rule != nullptr && asked == nullptr) {
      why = because<cause::kept_by_rule>(rule->type.name(), rule->pattern);
    } else if (!options_.allowed.contains(LayerType::int8)) {
      why = because<cause::type_not_allowed>("int8");
    } else if (choices_.keep_float.contains(name)) {
      const auto given = choices_.why.find(name);
      why = given == choices_.why.end() ? because<cause::left_out_for_comparison>() : given->second;
    } else if (!g_.is_constant(n.inputs[1]) || g_.type(n.inputs[1]).dtype != ir::DType::f32) {
      why = because<cause::weights_not_float_constant>(g_.value(n.inputs[1]).name);
    } else if (grids_.get(n.inputs[0]) == nullptr && g_.type(n.inputs[0]).dtype == ir::DType::f32 &&
               range_of(n.inputs[0], why, asked)) {
      read_through(id, 0, asked);
      code_weights(id, n);
      ++report_.int8_layers;
      report_.layers.insert(name);
      if (!may_leave_int8(n)) report_.only_int8.insert(name);
      if (bfloat16_allowed() && !options_.allowed.contains(LayerType::float16) && !why_not_narrow(n))
        report_.may_bfloat16.insert(name);
      report_.permitted.insert(n.origin.begin(), n.origin.end());
      return {};
    }
    if (!why) why = because<cause::input_not_float_activation>(g_.nearest_name(n.inputs[0]));  // it lies on a grid already
    if (rule != nullptr && rule->type == LayerType::int8) {
      return fail(ErrorKind::usage,
                  fmt::format("precision: the rule \"{}=int8\" cannot be kept for node \"{}\": {}\n  give the tensor a range, "
                              "or remove the rule",
                              rule->pattern, name, stated(*why)));
    }
    OCTAVO_TRY(const auto small, narrow(id, n, name, rule));
    if (!small && type_rule(n, rule) == nullptr) OCTAVO_CHECK(may_be_float32(n, name, *why));
    ++(!small ? report_.float_layers : *small == ir::DType::bf16 ? report_.bfloat16_layers : report_.float16_layers);
    if (!g_.value(n.inputs[0]).range) report_.missing.push_back(g_.nearest_name(n.inputs[0]));
    for (const std::string& origin : n.origin) report_.why_float.insert_or_assign(origin, *why);
    return {};
  }

  /// Without float32 among the allowed types, a layer that no rule speaks of must have one of them. Layers on other types than float32 (float64) have
  /// the model's.
  [[nodiscard]] Status may_be_float32(const Node& n, const std::string& name, const Reason& not_int8) const {
    if (options_.allowed.contains(LayerType::float32) || g_.type(n.outputs[0]).dtype != ir::DType::f32) return {};
    std::vector<std::pair<LayerType, Reason>> refused;
    for (const LayerType type : options_.allowed.all()) {
      if (type == LayerType::int8) refused.emplace_back(type, not_int8);
      if (type == LayerType::float16) refused.emplace_back(type, why_not_float16(n).value_or(not_int8));
      if (type == LayerType::bfloat16) refused.emplace_back(type, why_not_narrow(n).value_or(not_int8));
    }
    return tl::unexpected<Error>(no_allowed_type(name, options_.allowed, refused));
  }
  /// Has a layer that a range makes int8 another type to go to?
  [[nodiscard]] bool may_leave_int8(const Node& n) const {
    return options_.allowed.contains(LayerType::float32) ||
           (options_.allowed.contains(LayerType::float16) && !why_not_float16(n)) || (bfloat16_allowed() && !why_not_narrow(n));
  }

  /// A product of two matrices of floats, as a rule both computed: in a 16-bit type, or as it is.
  Status product(NodeId id, const Node& n) {
    if (ir::classify_anchor(g_, grids_, id).integer) return {};
    OCTAVO_TRY([[maybe_unused]] const auto small, narrow(id, n, name_of(n), rule_for(n)));
    return {};
  }

  [[nodiscard]] bool bfloat16_allowed() const { return options_.allowed.contains(LayerType::bfloat16); }

  [[nodiscard]] std::optional<Reason> why_not_narrow(const Node& n) const {
    if (n.op == Op::matmul) {
      for (const ValueId v : n.inputs) {
        if (g_.type(v).dtype != ir::DType::f32 || (g_.is_constant(v) && g_.producer(v).quantizer))
          return because<cause::input_not_float_activation>(g_.nearest_name(v));
      }
      return std::nullopt;
    }
    if (!g_.is_constant(n.inputs[1]) || g_.producer(n.inputs[1]).quantizer || g_.type(n.inputs[1]).dtype != ir::DType::f32)
      return because<cause::weights_not_float_constant>(g_.value(n.inputs[1]).name);
    if (g_.is_constant(n.inputs[0]) || g_.type(n.inputs[0]).dtype != ir::DType::f32)
      return because<cause::input_not_float_activation>(g_.nearest_name(n.inputs[0]));
    return std::nullopt;
  }

  /// The same, and why its tensors may not fit float16. `asked`: a rule or the model says so, against which a random input proves nothing.
  [[nodiscard]] std::optional<Reason> why_not_float16(const Node& n, bool asked = false) const {
    if (auto why = why_not_narrow(n)) return why;
    if (n.op != Op::matmul) {
      double largest = 0;
      for (const float w : g_.payload(n.inputs[1]).data<float>()) {
        if (std::isfinite(w)) largest = std::max(largest, std::abs(static_cast<double>(w)));
      }
      if (largest >= kRoundsToInfinity)
        return because<cause::weights_beyond_float16>(g_.value(n.inputs[1]).name, largest, kFloat16End);
    }
    std::vector<ValueId> read{n.inputs[0], n.outputs[0]};
    if (n.op == Op::matmul) read.push_back(n.inputs[1]);
    for (const ValueId v : read) {
      if (const double largest = largest_of_range(g_, v); largest >= kFloat16Limit)
        return because<cause::range_near_float16_end>(g_.value(v).name, largest, kFloat16Limit);
      const auto seen = choices_.large.find(g_.value(v).name);
      if (!asked && !g_.value(v).range && seen != choices_.large.end())
        return because<cause::random_near_float16_end>(seen->first, seen->second, kFloat16Limit);
    }
    return std::nullopt;
  }

  /// The rule about the node, or else about a tensor that it reads, where that does not ask int8.
  [[nodiscard]] const PrecisionRule* type_rule(const Node& n, const PrecisionRule* of_node) const {
    if (of_node != nullptr) return of_node;
    const std::size_t read = n.op == Op::matmul ? 2 : 1;
    const auto of_tensor = std::find_if(options_.precisions.begin(), options_.precisions.end(), [&](const PrecisionRule& r) {
      return std::any_of(n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(read),
                         [&](ValueId v) { return !g_.value(v).name.empty() && matches(r.pattern, g_.value(v).name); });
    });
    return of_tensor != options_.precisions.end() && of_tensor->type != LayerType::int8 ? &*of_tensor : nullptr;
  }

  /// The type of 16 bits in which a layer that is not int8 computes, because a rule, the model, the allowed types or the choices say so; nothing:
  /// none. One that is to be emulated computes in float32, on rounded operands.
  Result<std::optional<ir::DType>> narrow(NodeId id, const Node& n, const std::string& name, const PrecisionRule* rule) {
    using Type = std::optional<ir::DType>;
    rule = type_rule(n, rule);
    if (rule != nullptr && rule->type == LayerType::float32) return Type();
    const auto take = [&](ir::DType type, const Reason& why) {
      mark_narrow(g_.node(id), type);
      auto& list = type == ir::DType::f16 ? report_.float16 : report_.bfloat16;
      for (const std::string& origin : n.origin) list.insert_or_assign(origin, why);
      return Type(type);
    };
    if (const auto asked = rule == nullptr ? std::nullopt : rule->type.narrow()) {
      if (const auto impossible = *asked == ir::DType::f16 ? why_not_float16(n, true) : why_not_narrow(n)) {
        return fail(ErrorKind::usage,
                    fmt::format("precision: the rule \"{}={}\" cannot be kept for node \"{}\": {}\n  remove the rule",
                                rule->pattern, rule->type.name(), name, stated(*impossible)));
      }
      if (rule->type.emulated()) {
        mark_narrow(g_.node(id), *asked, true);
        return Type();
      }
      if (*asked == ir::DType::bf16) report_.may_bfloat16.insert(name);
      return take(*asked, because<cause::asked_for_by_rule>(rule->type.name(), rule->pattern));
    }
    const Type of_model = narrow_type_of_model(n, options_.model_types);
    if (of_model == ir::DType::f16 || options_.allowed.contains(LayerType::float16)) {
      const auto impossible = why_not_float16(n, of_model.has_value());
      if (!impossible) {
        return take(ir::DType::f16,
                    of_model ? because<cause::type_of_the_model>("float16") : because<cause::type_permitted>("float16"));
      }
      for (const std::string& origin : n.origin) report_.not_float16.insert_or_assign(origin, *impossible);
    }
    const auto impossible = why_not_narrow(n);
    if (of_model == ir::DType::bf16 && !impossible) return take(ir::DType::bf16, because<cause::type_of_the_model>("bfloat16"));
    if (!bfloat16_allowed()) return Type();
    if (!impossible) report_.may_bfloat16.insert(name);
    std::optional<Reason> why;
    if (!options_.allowed.contains(LayerType::float32)) {
      why = because<cause::type_not_allowed>("float32");
    } else if (choices_.bfloat16.contains(name)) {
      const auto given = choices_.why.find(name);
      why = given == choices_.why.end() ? because<cause::left_out_for_comparison>() : given->second;
    }
    if (!why || impossible) return Type();
    return take(ir::DType::bf16, *why);
  }

  void code_weights(NodeId id, const Node& n) {
    const ValueId w = n.inputs[1];
    if (g_.producer(w).quantizer) return;  // coded already: demanded
    const ValueId coded = g_.add_quantizer(Op::view, w, quant::weight_quantizer(g_, n), g_.type(w), n.origin, g_.value(w).name);
    edits_.push_back({{id, std::size_t{1}}, coded});
  }

  Graph& g_;
  const PlanOptions& options_;
  const PermitChoices& choices_;
  ir::Grids grids_;
  Grouping grouping_;
  std::vector<NodeId> order_;
  struct View {
    ValueId id = ir::kNone;
  };
  std::map<ValueId, View> views_;
  std::vector<std::pair<std::pair<NodeId, std::size_t>, ValueId>> edits_;
  PermitReport report_;
};

}  // namespace

PermitReport set_ranges(Graph& g, const ir::Ranges& ranges) {
  PermitReport report;
  std::set<std::string> unmatched;
  const auto usable = [](const ir::Quantizer& q) { return ir::is_range(q) && std::isnormal(q.scale[0]); };
  for (const auto& [name, q] : ranges) {
    unmatched.insert(name);
    if (!usable(q)) report.unusable.push_back(name);
  }
  for (const NodeId id : g.order()) {
    for (const ValueId v : g.node(id).outputs) {
      const auto found = ranges.find(g.value(v).name);
      if (found == ranges.end()) continue;
      unmatched.erase(found->first);
      if (usable(found->second)) g.value(v).range = found->second;
    }
  }
  report.unmatched.assign(unmatched.begin(), unmatched.end());
  return report;
}

Result<PermitReport> permit(Graph& g, const PlanOptions& options, const PermitChoices& choices) {
  return Permitter(g, options, choices).run();
}

}  // namespace octavo::plan
