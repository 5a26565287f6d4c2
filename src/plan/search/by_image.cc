#include "plan/search/by_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/causes/plan_candidates.h"
#include "base/causes/plan_search.h"
#include "plan/candidates/registry.h"
#include "plan/effort.h"
#include "plan/search/whole_runs.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Shape;
using ir::ValueId;

constexpr int kForecastPercent = 10;
constexpr double kForecast = 1.1;  // parts do not show what threads wait for, nor what a cache no longer holds: whole runs decide

std::string called(const Node& n) {
  return n.name.empty() ? std::string(ir::name_of(n.op)) : fmt::format("{} \"{}\"", ir::name_of(n.op), n.name);
}

using Refusal = std::optional<Reason>;

Refusal refuse_if(bool condition, Reason why) {
  return condition ? Refusal(std::move(why)) : std::nullopt;
}

class Divider {
 public:
  explicit Divider(const Graph& g) : g_(g), batched_(static_cast<std::size_t>(g.value_capacity()), 0) {}

  tl::expected<Graph, Reason> run() {
    const auto refuse = [](Reason why) { return tl::unexpected(std::move(why)); };
    if (g_.inputs.empty()) return refuse(because<cause::batch_without_input>());
    for (const ValueId v : g_.inputs) {
      Shape shape = g_.type(v).shape;
      if (shape.empty()) return refuse(because<cause::batch_input_without_dimensions>(g_.value(v).name));
      if (images_ == 0) images_ = shape[0];
      if (shape[0] != images_) return refuse(because<cause::batch_sizes_differ>(g_.value(v).name, shape[0], images_));
      shape[0] = 1;
      set(v, std::move(shape));
    }
    if (images_ < 2) return refuse(because<cause::batch_of_one>());
    for (const NodeId id : g_.order()) {
      Node& n = g_.node(id);
      const auto is_batched = [&](ValueId v) { return v != ir::kNone && batched(v); };
      if (n.op == Op::input || std::none_of(n.inputs.begin(), n.inputs.end(), is_batched)) continue;
      if (auto why = divide(n)) return refuse(*std::move(why));
      auto types = ir::infer(g_, n);
      if (!types) return refuse(because<cause::batch_not_inferred>(called(n), types.error().message));
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        Shape shape = g_.type(n.outputs[k]).shape;
        if (shape.empty() || shape[0] != images_) return refuse(because<cause::batch_not_in_result>(called(n)));
        shape[0] = 1;
        if ((*types)[k].shape != shape) return refuse(because<cause::batch_result_changes>(called(n)));
        set(n.outputs[k], std::move(shape));
      }
    }
    for (std::size_t i = 0; i < g_.outputs.size(); ++i) {
      if (!batched(g_.outputs[i])) return refuse(because<cause::batch_output_independent>(g_.output_names[i]));
    }
    return std::move(g_);
  }

 private:
  [[nodiscard]] bool batched(ValueId v) const { return batched_[static_cast<std::size_t>(v)] != 0; }
  void set(ValueId v, Shape shape) {
    g_.value(v).type.shape = std::move(shape);
    batched_[static_cast<std::size_t>(v)] = 1;
  }
  [[nodiscard]] const Shape& shape(ValueId v) const { return g_.type(v).shape; }

  /// Only the first input holds images.
  [[nodiscard]] Refusal first_only(const Node& n) const {
    if (!batched(n.inputs[0])) return because<cause::batch_through_other_operand>(called(n));
    for (std::size_t i = 1; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != ir::kNone && batched(n.inputs[i])) return because<cause::batch_operand_differs>(called(n), i);
    }
    return std::nullopt;
  }

  /// A scale for each image is no hindrance if they are equal: it becomes one scale.
  [[nodiscard]] Refusal pointwise(Node& n) const {
    const std::size_t rank = shape(n.outputs[0]).size();
    for (const ValueId v : n.inputs) {
      if (v == ir::kNone) continue;
      if (batched(v) ? shape(v).size() != rank : shape(v).size() == rank && shape(v)[0] != 1)
        return because<cause::batch_operand_mixed>(called(n), g_.value(v).name);
    }
    if (n.quantizer) n.quantizer = ir::collapse_axis(*n.quantizer);
    if (n.quantizer && !n.quantizer->per_tensor() && n.quantizer->axis == 0)
      return because<cause::batch_scales_per_image>(called(n));
    return std::nullopt;
  }

  [[nodiscard]] Refusal not_along_images(const Node& n, std::string_view key, std::int64_t fallback = 0) const {
    const std::int64_t axis = ir::get_int(n.attrs, key, fallback);
    if (axis != 0 && axis != -static_cast<std::int64_t>(shape(n.inputs[0]).size())) return std::nullopt;
    return because<cause::batch_axis_used>(called(n));
  }

  /// Entry i of an integer attribute, -1 where it has none.
  static std::int64_t at(const Node& n, std::string_view key, std::size_t i, std::int64_t absent = -1) {
    const auto values = ir::get_ints(n.attrs, key);
    if (values.empty()) return absent;
    return i < values.size() ? values[i] : -1;
  }

  /// Nothing: no element of an image depends on another image, and attributes are those of one image now.
  Refusal divide(Node& n) {
    const auto rank = static_cast<std::int64_t>(shape(n.outputs[0]).size());
    if (ir::has_trait(n.op, ir::kPointwise)) {
      return n.op == Op::quantize_rt || n.op == Op::dequantize_rt ? first_only(n) : pointwise(n);
    }
    switch (n.op) {
      case Op::conv:
      case Op::conv_transpose:
      case Op::max_pool:
      case Op::avg_pool:
      case Op::resize_linear:
      case Op::resize_cubic:
      case Op::instance_norm:
      case Op::lrn:
      case Op::depth_to_space:
      case Op::space_to_depth: return first_only(n);
      case Op::resize_nearest: return n.attrs.contains("index0") ? because<cause::batch_repeated>(called(n)) : first_only(n);
      case Op::gemm: {
        if (auto why = first_only(n)) return why;
        const bool row_each =
            n.inputs.size() > 2 && n.inputs[2] != ir::kNone && shape(n.inputs[2]).size() == 2 && shape(n.inputs[2])[0] != 1;
        return refuse_if(row_each, because<cause::batch_bias_differs>(called(n)));
      }
      case Op::matmul: {
        const Shape &a = shape(n.inputs[0]), &b = shape(n.inputs[1]);
        if (batched(n.inputs[0]) && !batched(n.inputs[1]) && static_cast<std::int64_t>(a.size()) == rank &&
            (b.size() < a.size() || b[0] == 1 || a.size() == 2))
          return std::nullopt;
        const bool each = a.size() == b.size() && a.size() >= 3 && batched(n.inputs[0]) && batched(n.inputs[1]);
        return refuse_if(!each, because<cause::batch_not_a_matmul_dimension>(called(n)));
      }
      case Op::reduce_mean:
      case Op::reduce_sum:
      case Op::reduce_max:
      case Op::reduce_min:
      case Op::reduce_prod:
      case Op::reduce_l2: {
        const auto axes = ir::get_ints(n.attrs, "axes");
        const auto in = static_cast<std::int64_t>(shape(n.inputs[0]).size());
        const bool across = axes.empty() || std::any_of(axes.begin(), axes.end(), [&](auto a) { return a == 0 || a == -in; });
        return across ? because<cause::batch_reduced>(called(n)) : first_only(n);
      }
      case Op::softmax:
      case Op::log_softmax:
      case Op::layer_norm: {
        auto why = not_along_images(n, "axis", -1);
        return why ? why : first_only(n);
      }
      case Op::concat: {
        if (auto why = not_along_images(n, "axis")) return why;
        const bool all = std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return batched(v); });
        return refuse_if(!all, because<cause::batch_part_from_elsewhere>(called(n)));
      }
      case Op::gather: {
        auto why = not_along_images(n, "axis");
        return why ? why : first_only(n);
      }
      case Op::transpose: return refuse_if(at(n, "perm", 0) != 0, because<cause::batch_transposed>(called(n)));
      case Op::slice: {
        if (at(n, "starts", 0) != 0 || at(n, "steps", 0, 1) != 1 || at(n, "ends", 0) != images_)
          return because<cause::batch_selected>(called(n));
        auto ends = ir::get_ints(n.attrs, "ends");
        ends[0] = 1;
        n.attrs["ends"] = std::move(ends);
        return std::nullopt;
      }
      case Op::pad: {
        return refuse_if(at(n, "pads", 0) != 0 || at(n, "pads", static_cast<std::size_t>(rank)) != 0,
                         because<cause::batch_padded>(called(n)));
      }
      case Op::tile: return refuse_if(at(n, "repeats", 0) != 1, because<cause::batch_repeated>(called(n)));
      case Op::reshape: {
        auto to = ir::get_ints(n.attrs, "shape");
        if (to.empty() || to[0] != images_) return because<cause::batch_reshaped>(called(n));
        to[0] = 1;
        n.attrs["shape"] = std::move(to);
        return std::nullopt;
      }
      default: return because<cause::batch_unknown_operator>(called(n));
    }
  }

  Graph g_;
  std::vector<char> batched_;
  std::int64_t images_ = 0;
};

}  // namespace

tl::expected<Graph, Reason> one_image(const Graph& g) {
  return Divider(g).run();
}

void repeat(region::Plan& plan, std::int64_t images, int threads) {
  plan.images = images;
  plan.lanes = static_cast<int>(std::min<std::int64_t>(images, threads));
  for (auto* list : {&plan.inputs, &plan.outputs}) {
    for (region::Binding& b : *list) {
      b.type.shape[0] *= images;
      b.bytes *= images;
    }
  }
}

Status choose_images(const Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned) {
  if (!effort_at(context.options.effort).compares_plans || !context.enabled(kByImage) || g.inputs.empty()) return {};
  if (planned.plan.devices.size() > 1) return {};  // image after image is how threads of the host share a batch
  const Shape& first = g.type(g.inputs[0]).shape;
  if (first.size() < 2 || first[0] < 2) return {};
  const std::int64_t images = first[0];
  region::Decision d;
  d.choice = kByImage;
  d.where = g.value(g.inputs[0]).name;
  d.candidates = {{"whole-batch", planned.seconds}, {"image-by-image"}};
  const auto leave = [&](Reason why) -> Status {
    d.reasons = {std::move(why)};
    planned.plan.decisions.push_back(d);
    return {};
  };
  auto one = one_image(g);
  if (!one) return leave(one.error());
  PlanOptions alone = context.options;
  alone.threads = 1;
  auto made = plan_once(std::move(*one), {context.providers, alone, context.costs, context.memo, context.shown});
  if (!made) {
    if (made.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(made.error());
    return leave(because<cause::not_planned>(made.error().message));
  }
  repeat(made->plan, images, context.options.threads);
  const auto rounds = (images + made->plan.lanes - 1) / made->plan.lanes;
  double& seconds = d.candidates[1].seconds;
  seconds = made->seconds * static_cast<double>(rounds);
  d.candidates[1].notes = {because<cause::images_at_a_time>(images, made->plan.lanes)};
  if (seconds >= kForecast * planned.seconds) return leave(because<cause::dearer_by_parts>(kForecastPercent));
  OCTAVO_TRY(const auto times, run_in_turn(planned.plan, made->plan, context));
  if (times && !times->faster()) return leave(because<cause::not_faster_in_whole_runs>(kWholePercent, times->other, times->base));
  if (!times && seconds >= kPart * planned.seconds) return leave(because<cause::not_cheaper>(kPartPercent));
  if (times) d.candidates[0].seconds = times->base, seconds = times->other;
  d.chosen = 1;
  Decided whole = std::move(planned.decided);
  keep_tactics(planned.plan, whole);
  planned = std::move(*made);
  planned.whole_batch = std::move(whole);
  planned.seconds = seconds;
  return leave(times ? because<cause::faster_in_whole_runs>(kWholePercent) : because<cause::cheapest>(kPartPercent));
}

}  // namespace octavo::plan
