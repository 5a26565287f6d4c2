#include "plan/candidates/by_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/search/margins.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Shape;
using ir::ValueId;

constexpr double kForecast = 1.1;  // parts do not show what threads wait for, nor what a cache no longer holds: whole runs decide

std::string called(const Node& n) {
  return n.name.empty() ? std::string(ir::name_of(n.op)) : fmt::format("{} \"{}\"", ir::name_of(n.op), n.name);
}

class Divider {
 public:
  explicit Divider(const Graph& g) : g_(g), batched_(static_cast<std::size_t>(g.value_capacity()), 0) {}

  Result<Graph> run() {
    const auto refuse = [](std::string why) { return fail(ErrorKind::unsupported, std::move(why)); };
    if (g_.inputs.empty()) return refuse("the network has no input");
    for (const ValueId v : g_.inputs) {
      Shape shape = g_.type(v).shape;
      if (shape.empty()) return refuse(fmt::format("input \"{}\" has no dimensions", g_.value(v).name));
      if (images_ == 0) images_ = shape[0];
      if (shape[0] != images_)
        return refuse(fmt::format("input \"{}\" has {} in dimension 0, others have {}", g_.value(v).name, shape[0], images_));
      shape[0] = 1;
      set(v, std::move(shape));
    }
    if (images_ < 2) return refuse("one image");
    for (const NodeId id : g_.order()) {
      Node& n = g_.node(id);
      const auto is_batched = [&](ValueId v) { return v != ir::kNone && batched(v); };
      if (n.op == Op::input || std::none_of(n.inputs.begin(), n.inputs.end(), is_batched)) continue;
      if (const std::string why = divide(n); !why.empty()) return refuse(fmt::format("{}: {}", called(n), why));
      auto types = ir::infer(g_, n);
      if (!types) return refuse(fmt::format("{}: {}", called(n), types.error().message));
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        Shape shape = g_.type(n.outputs[k]).shape;
        if (shape.empty() || shape[0] != images_) return refuse(called(n) + ": its result does not have the images in dimension 0");
        shape[0] = 1;
        if ((*types)[k].shape != shape) return refuse(called(n) + ": its result has another shape for one image");
        set(n.outputs[k], std::move(shape));
      }
    }
    for (std::size_t i = 0; i < g_.outputs.size(); ++i) {
      if (!batched(g_.outputs[i])) return refuse(fmt::format("output \"{}\" does not depend on the inputs", g_.output_names[i]));
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
  [[nodiscard]] std::string first_only(const Node& n) const {
    if (!batched(n.inputs[0])) return "images come in through another operand than the data";
    for (std::size_t i = 1; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != ir::kNone && batched(n.inputs[i])) return fmt::format("operand {} differs among images", i);
    }
    return "";
  }

  [[nodiscard]] std::string pointwise(const Node& n) const {
    const std::size_t rank = shape(n.outputs[0]).size();
    for (const ValueId v : n.inputs) {
      if (v == ir::kNone) continue;
      if (batched(v) ? shape(v).size() != rank : shape(v).size() == rank && shape(v)[0] != 1)
        return fmt::format("operand \"{}\" is not the same for all images, or not one for each", g_.value(v).name);
    }
    const auto q = n.quantizer ? ir::collapse_axis(*n.quantizer) : ir::Quantizer{};  // equal scales are one scale
    if (n.quantizer && !q.per_tensor() && q.axis == 0) return "it has scales of its own for each image";
    return "";
  }

  [[nodiscard]] std::string not_along_images(const Node& n, std::string_view key, std::int64_t fallback = 0) const {
    const std::int64_t axis = ir::get_int(n.attrs, key, fallback);
    return axis == 0 || axis == -static_cast<std::int64_t>(shape(n.inputs[0]).size()) ? "it runs along the images" : "";
  }

  /// Entry i of an integer attribute, -1 where it has none.
  static std::int64_t at(const Node& n, std::string_view key, std::size_t i, std::int64_t absent = -1) {
    const auto values = ir::get_ints(n.attrs, key);
    if (values.empty()) return absent;
    return i < values.size() ? values[i] : -1;
  }

  /// Empty: no element of an image depends on another image, and attributes are those of one image now.
  std::string divide(Node& n) {
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
      case Op::resize_nearest: return n.attrs.contains("index0") ? "it repeats images" : first_only(n);
      case Op::gemm: {
        if (const auto why = first_only(n); !why.empty()) return why;
        const bool row_each =
            n.inputs.size() > 2 && n.inputs[2] != ir::kNone && shape(n.inputs[2]).size() == 2 && shape(n.inputs[2])[0] != 1;
        return row_each ? "its bias differs among images" : "";
      }
      case Op::matmul: {
        const Shape &a = shape(n.inputs[0]), &b = shape(n.inputs[1]);
        if (batched(n.inputs[0]) && !batched(n.inputs[1]) && static_cast<std::int64_t>(a.size()) == rank &&
            (b.size() < a.size() || b[0] == 1 || a.size() == 2))
          return "";
        const bool each = a.size() == b.size() && a.size() >= 3 && batched(n.inputs[0]) && batched(n.inputs[1]);
        return each ? "" : "images are not a dimension of both operands, or of the first alone";
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
        return across ? "it reduces over images" : first_only(n);
      }
      case Op::softmax:
      case Op::log_softmax:
      case Op::layer_norm: {
        const auto why = not_along_images(n, "axis", -1);
        return why.empty() ? first_only(n) : why;
      }
      case Op::concat: {
        if (const auto why = not_along_images(n, "axis"); !why.empty()) return why;
        const bool all = std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return batched(v); });
        return all ? "" : "a part of it does not come from the inputs";
      }
      case Op::gather: {
        const auto why = not_along_images(n, "axis");
        return why.empty() ? first_only(n) : why;
      }
      case Op::transpose: return at(n, "perm", 0) == 0 ? "" : "it moves the images to another dimension";
      case Op::slice: {
        if (at(n, "starts", 0) != 0 || at(n, "steps", 0, 1) != 1 || at(n, "ends", 0) != images_) return "it selects among images";
        auto ends = ir::get_ints(n.attrs, "ends");
        ends[0] = 1;
        n.attrs["ends"] = std::move(ends);
        return "";
      }
      case Op::pad: {
        return at(n, "pads", 0) == 0 && at(n, "pads", static_cast<std::size_t>(rank)) == 0 ? "" : "it adds images";
      }
      case Op::tile: return at(n, "repeats", 0) == 1 ? "" : "it repeats images";
      case Op::reshape: {
        auto to = ir::get_ints(n.attrs, "shape");
        if (to.empty() || to[0] != images_) return "it joins images with another dimension, or splits them";
        to[0] = 1;
        n.attrs["shape"] = std::move(to);
        return "";
      }
      default: return "not known to treat images apart";
    }
  }

  Graph g_;
  std::vector<char> batched_;
  std::int64_t images_ = 0;
};

}  // namespace

Result<Graph> one_image(const Graph& g) {
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

Status choose_images(const Graph& g, const PlanOptions& options, Costs& costs, const MakePlan& make, Planned& planned) {
  if (options.effort < 2 || options.disabled.contains("by-image") || g.inputs.empty()) return {};
  const Shape& first = g.type(g.inputs[0]).shape;
  if (first.size() < 2 || first[0] < 2) return {};
  const std::int64_t images = first[0];
  region::Decision d;
  d.kind = "by-image";
  d.where = g.value(g.inputs[0]).name;
  d.chosen = "whole batch";
  d.answers = {{"whole batch", planned.seconds, ""}, {"image by image", -1, ""}};
  auto& other = d.answers[1];
  const auto decided = [&] { planned.plan.decisions.push_back(d); };
  auto one = one_image(g);
  if (!one) {
    if (one.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(one.error());
    other.note = d.reason = "not possible: " + one.error().message;
    decided();
    return {};
  }
  PlanOptions alone = options;
  alone.threads = 1;
  auto made = make(std::move(*one), alone);
  if (!made) {
    if (made.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(made.error());
    other.note = d.reason = "not possible: " + made.error().message;
    decided();
    return {};
  }
  repeat(made->plan, images, options.threads);
  const auto rounds = (images + made->plan.lanes - 1) / made->plan.lanes;
  other.seconds = made->seconds * static_cast<double>(rounds);
  other.note = fmt::format("{} images, {} at a time", images, made->plan.lanes);
  if (other.seconds >= kForecast * planned.seconds) {
    d.reason = "more than 10 % dearer by parts";
    decided();
    return {};
  }
  OCTAVO_TRY(const auto pair, costs.compare(planned.plan, made->plan));
  if (pair && pair->second >= kWhole * pair->first) {
    d.reason =
        fmt::format("not more than 1 % faster in whole runs: {:.4g} us against {:.4g} us", pair->second * 1e6, pair->first * 1e6);
    decided();
    return {};
  }
  if (!pair && other.seconds >= kPart * planned.seconds) {
    d.reason = "not more than 2 % cheaper than the default";
    decided();
    return {};
  }
  if (pair) d.answers[0].seconds = pair->first, other.seconds = pair->second;
  d.chosen = "image by image";
  d.reason = pair ? "faster by more than 1 % in whole runs" : "cheapest by more than 2 %";
  planned = std::move(*made);
  planned.seconds = other.seconds;
  decided();
  return {};
}

}  // namespace octavo::plan
