#include "report/decisions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/causes/ir.h"
#include "base/causes/plan_layout.h"
#include "base/causes/plan_precision.h"
#include "base/causes/plan_regions.h"
#include "plan/candidates/registry.h"
#include "plan/effort.h"
#include "region/tensor_ref.h"
#include "report/costs.h"
#include "report/sentences.h"

namespace octavo::report {
namespace {

using region::BufferKind;
using region::Plan;
using region::Region;
using region::TensorRef;

std::string price(double seconds) {
  return seconds < 0 ? std::string("not priced") : fmt::format("{:.4g} us", seconds * 1e6);
}

bool int8(const Region& r) {
  return r.precision == region::Work::int8;
}

/// No heavy operator, and only 8-bit data on both sides or one: a change of type or scale that has a pass of its own.
bool requantizes(const Region& r) {
  const bool none = std::all_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) { return s.anchor.none(); });
  return none && r.precision.has_codes();
}

/// A pass that only rounds: of one that computes something, the data and the result have different meanings and so different scales.
bool only_rounds(const Region& r) {
  return std::all_of(r.reasons.begin(), r.reasons.end(), [](const Reason& why) {
    if (why.cause != cause::pointwise_pass) return true;
    const auto& ops = std::get<std::vector<std::string>>(why.values[0]);
    return std::all_of(ops.begin(), ops.end(), [](const std::string& name) {
      const auto op = ir::find_op(name);
      return op == ir::Op::view || op == ir::Op::quantize || op == ir::Op::dequantize || op == ir::Op::cast;
    });
  });
}

template <class F>
void each_ref(const Region& r, F f) {
  for (const region::Stage& s : r.stages) {
    for (const TensorRef& t : s.anchor.inputs) f(t, false);
    for (const region::Operand& o : s.operands) f(o.ref, false);
    for (const TensorRef& t : s.stores) f(t, true);
  }
}

std::string layout(const TensorRef& t) {
  if (t.strides == ir::dense_strides(t.dims)) return t.dims.size() >= 3 ? "NCHW, dense" : "dense";
  if (t.dims.size() >= 3 && t.strides[1] == 1) return "NHWC";
  return fmt::format("strides ({})", fmt::join(t.strides, ","));
}

/// "channels 32 to 63 of 96" for a tensor whose channels are a part of those that its buffer holds; empty for others, and where the
/// buffer is not a whole number of such channels (then nothing says what the rest of it is).
std::string channels_of(const TensorRef& t, const region::Buffer& b) {
  if (t.dims.size() < 2 || t.dims[1] < 1) return "";
  const auto size = element_bytes(t);
  const std::int64_t first = t.offset / size, elements = b.bytes / size, channels = t.dims[1];
  std::int64_t pixels = 1;  // of one image
  for (std::size_t k = 2; k < t.dims.size(); ++k) pixels *= t.dims[k];
  if (t.strides[1] == 1 && (channels > 1 || t.dims.size() > 2)) {
    std::int64_t next = elements;  // from one pixel to the next
    for (std::size_t k = 0; k < t.dims.size(); ++k) {
      if (k != 1 && t.dims[k] > 1) next = std::min(next, t.strides[k]);
    }
    if (next <= channels || elements % next != 0) return "";
    return fmt::format("channels {} to {} of {}", first % next, first % next + channels - 1, next);
  }
  if (pixels == 0 || (channels > 1 && t.strides[1] != pixels)) return "";
  const std::int64_t image = t.dims[0] > 1 ? t.strides[0] : elements, all = image / pixels;
  if (all <= channels || first % pixels != 0 || image % pixels != 0) return "";
  return fmt::format("channels {} to {} of {}", first / pixels % all, first / pixels % all + channels - 1, all);
}

}  // namespace

std::vector<std::string> decisions_about(const Region& r, const Plan& plan) {
  std::vector<std::string> out;
  for (const region::Decision& d : plan.decisions) {
    const bool concerns =
        std::any_of(d.onnx_nodes.begin(), d.onnx_nodes.end(), [&](const std::string& n) { return r.onnx_nodes.contains(n); });
    if (!concerns) continue;
    std::string text = fmt::format("{} at {}: {} ({})", d.choice, d.where,
                                   plan::description_of(d.choice, d.candidates[d.chosen].name), sentences(d.reasons));
    const std::string_view source = measured(plan) ? "measured " : "estimated ";
    for (const auto& c : d.candidates) {
      const std::string what = c.seconds >= 0    ? fmt::format("{}{}", source, price(c.seconds))
                               : c.notes.empty() ? price(-1)
                                                 : sentences(c.notes);
      text += fmt::format("; {}: {}", plan::description_of(d.choice, c.name), what);
    }
    out.push_back(std::move(text));
  }
  return out;
}

std::string place_of(const TensorRef& t, const Plan& plan) {
  const region::Buffer& b = plan.buffers[static_cast<std::size_t>(t.buffer)];
  const auto size = element_bytes(t);
  const std::int64_t own = ir::count(t.dims) * size;
  std::string where;
  switch (b.kind) {
    case BufferKind::input: where = fmt::format("the network input \"{}\"", b.name); break;
    case BufferKind::output: where = fmt::format("the network output \"{}\"", b.name); break;
    case BufferKind::source:
    case BufferKind::constant: where = "a constant"; break;
    case BufferKind::arena: where = fmt::format("working memory at byte {}", b.arena_offset + t.offset); break;
  }
  if (b.bytes > own && b.kind != BufferKind::constant) {
    const std::string channels = channels_of(t, b);
    where += channels.empty() ? fmt::format(", a part of the {} bytes of \"{}\" from byte {} on", b.bytes, b.name, t.offset)
                              : fmt::format(", {} of \"{}\"", channels, b.name);
  }
  return fmt::format("{}, {}", where, layout(t));
}

std::string way_out(const Region& r) {
  if (r.precision == region::Work::move) {
    if (has(r.reasons, cause::reader_needs_channels_last) || has(r.reasons, cause::store_needs_channels_last))
      return "a reader or a network output needs another order of dimensions: take the output in NHWC (--bind), or drop the "
             "Transpose or "
             "Reshape";
    if (has(r.reasons, cause::input_is_part_of_another))
      return "copy the input into the larger tensor yourself, or drop the Concat of a network input";
    return "one tensor is needed at two places in memory: drop the second Concat, Split or output, or give both the same scale";
  }
  if (requantizes(r) && !only_rounds(r))
    return "no change of scales removes this pass; it disappears when the reason above no longer holds";
  if (requantizes(r)) {
    return r.precision == region::Work::quantize
               ? "pass the network input as int8 codes (--bind), or place the Q/DQ pair directly behind the operator that computes "
                 "the tensor"
               : "give both sides the same scale, or drop the second QuantizeLinear/DequantizeLinear pair";
  }
  if (r.precision.from_float32()) {
    if (has(r.reasons, cause::input_on_two_grids))
      return fmt::format(
          "give both parts the same scale, the larger one, or build with --effort {} or more, which also tries int8 part by part",
          plan::first_effort(&plan::Effort::searches));
    if (has(r.reasons, cause::kept_for_max_error) || has(r.reasons, cause::kept_with_neighbours_for_max_error))
      return "give the tensors around it better ranges, or allow a larger --max-error";
    if (has(r.reasons, cause::faster_by_parts)) return "";
    if (has(r.reasons, cause::tensor_without_range)) return "give the tensor named above a range";
    if (has(r.reasons, cause::tensor_kept_by_rule) || has(r.reasons, cause::kept_by_rule)) return "change the --precision rule";
    if (has(r.reasons, cause::type_not_allowed)) return "allow int8 with --allow";
    if (has(r.reasons, cause::input_not_quantized) || has(r.reasons, cause::input_part_not_quantized) ||
        has(r.reasons, cause::weights_not_quantized))
      return "put a QuantizeLinear/DequantizeLinear pair on the tensor named above";
    if (has(r.reasons, cause::no_integer_form)) return "no Q/DQ pair changes this: Octavo computes this operator in float32";
    if (has(r.reasons, cause::input_off_kept_grid))
      return "put the same QuantizeLinear/DequantizeLinear pair on its input and on its result";
  }
  return "";
}

std::string_view kind_of(const Region& r, const Plan& plan) {
  if (r.precision == region::Work::move) return "copy";
  if (requantizes(r)) return "requantize";
  return r.precision.from_float32() && std::any_of(plan.regions.begin(), plan.regions.end(), int8) ? "float" : "";
}

std::string extras(const Plan& plan) {
  std::string out;
  double sum = 0;
  int count = 0;
  const char* times = measured(plan) ? "measured" : "estimated";
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    const std::string_view kind = kind_of(r, plan);
    if (kind.empty()) continue;
    ++count;
    if (r.seconds >= 0) sum += r.seconds;
    out += fmt::format("{} {}: {}, {} {}\n  because   {}\n  caused by {}\n", kind, i, r.name, times, price(r.seconds),
                       sentences(r.reasons), fmt::join(r.onnx_nodes, ", "));
    if (const auto way = way_out(r); !way.empty()) out += fmt::format("  change it {}\n", way);
    for (const auto& d : decisions_about(r, plan)) out += fmt::format("  weighed   {}\n", d);
  }
  if (count == 0) return "no copies, no requantizing passes, no float layers\n";
  return out + fmt::format("{} in all, {} {} together\n", count, times, price(sum));
}

Result<std::string> tensor(const Plan& plan, const std::string& name) {
  std::string out;
  std::set<std::string> others;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    each_ref(r, [&](const TensorRef& t, bool stored) {
      if (t.value != name) {
        if (!t.value.empty()) others.insert(t.value);
        return;
      }
      const std::string as =
          t.quantizer ? fmt::format("codes of {}", ir::to_string(*t.quantizer)) : std::string(ir::name_of(t.dtype));
      out += fmt::format("  {} by region {} ({}{}) as {}, in {}\n", stored ? "made" : "read", i,
                         r.precision == region::Work::move ? "a copy: " : "",
                         r.precision == region::Work::move ? sentences(r.reasons) : r.name, as, place_of(t, plan));
    });
  }
  if (out.empty()) {
    std::vector<std::string> near;
    for (const std::string& o : others) {
      if (o.find(name) != std::string::npos || name.find(o) != std::string::npos) near.push_back(o);
    }
    if (near.empty()) near.assign(others.begin(), others.end());
    near.resize(std::min<std::size_t>(near.size(), 8));
    return fail(
        ErrorKind::usage,
        fmt::format("no region reads or stores a tensor \"{}\": it was fused away or does not exist\n  there are, for example: {}",
                    name, fmt::join(near, ", ")));
  }
  return fmt::format("tensor \"{}\"\n{}", name, out);
}

}  // namespace octavo::report
