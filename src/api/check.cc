// One comparison, past 400 lines: tolerances, ties and messages are of the same two tensors.
#include "api/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "api/host_view.h"
#include "api/ties.h"
#include "ir/grid.h"
#include "ir/quantizer.h"
#include "reference/evaluate.h"
#include "region/stage_graph.h"

namespace octavo::api {
namespace {

using region::Region;
using region::Stage;
using region::TensorRef;

/// One tensor that crosses the region's border, with its value of the normalized graph.
struct Crossing {
  const TensorRef* ref;
  ir::ValueId value;
};
struct Border {
  std::vector<Crossing> in, out;
  std::string problem;
};

/// Region::graph_inputs are the values of region::reads_of, graph_outputs those of region::results_of. Operands that are planner-made
/// constants have no value.
Border border_of(const Region& r) {
  Border b;
  const std::vector<const TensorRef*> in = region::reads_of(r), out = region::results_of(r);
  if (in.size() != r.graph_inputs.size() || out.size() != r.graph_outputs.size()) {
    b.problem = fmt::format("the plan names {} inputs and {} outputs of the graph for {} and {} tensors", r.graph_inputs.size(),
                            r.graph_outputs.size(), in.size(), out.size());
    return b;
  }
  for (std::size_t i = 0; i < in.size(); ++i) b.in.push_back({in[i], r.graph_inputs[i]});
  for (std::size_t i = 0; i < out.size(); ++i) b.out.push_back({out[i], r.graph_outputs[i]});
  return b;
}

/// Tolerance, as a part of the largest magnitude, if operands may be rounded to tf32: each is off by up to 2^-11, in sums of thousands of terms of both signs.
/// This gives 1e-3 if sums do not cancel. If they do, or if a clamp removes the largest results, it is more of the rest. So this number is measured (2.9e-3 was the
/// largest seen), not derived. It is also the width of ties (docs/check.md).
constexpr double kTf32Tolerance = 1e-2;

/// The same if a region rounds to bfloat16 or float16 between its stages, as attention does with probabilities. A score that was summed in another
/// order may round a probability to the next value, at most 2^-8 of it, and results are values weighted by probabilities.
constexpr double kRoundedWithinTolerance = 1.0 / 256;

bool rounds_within(const Region& r) {
  return std::any_of(r.stages.begin(), r.stages.end(), [&](const Stage& s) {
    return &s != &r.stages.back() && std::any_of(s.stores.begin(), s.stores.end(), [](const TensorRef& t) {
      return t.dtype == ir::DType::bf16 || t.dtype == ir::DType::f16;
    });
  });
}

ir::Shape unflatten(std::int64_t flat, const ir::Shape& shape) {
  ir::Shape index(shape.size());
  for (std::size_t k = shape.size(); k-- > 0;) {
    index[k] = flat % shape[k];
    flat /= shape[k];
  }
  return index;
}

bool same_bits(const ir::Tensor& a, const ir::Tensor& b, std::int64_t i) {
  const std::size_t size = ir::size_of(a.dtype());
  return std::memcmp(a.bytes().data() + static_cast<std::size_t>(i) * size, b.bytes().data() + static_cast<std::size_t>(i) * size,
                     size) == 0;
}

/// The distance between neighbours of a 16-bit float type at `v`; 0 for other types.
double step_of(ir::DType type, double v) {
  const int digits = type == ir::DType::bf16 ? 8 : type == ir::DType::f16 ? 11 : 0;
  if (digits == 0 || v == 0 || !std::isfinite(v)) return 0;
  int exponent = 0;
  (void)std::frexp(v, &exponent);
  return std::ldexp(1.0, exponent - digits);
}

/// The code of a value on the store's grid, for messages and for "off by one".
std::int32_t code_of(const ir::Quantizer& q, double value, const ir::Shape& shape, std::int64_t flat) {
  std::int64_t channel = 0;
  if (!q.per_tensor()) channel = unflatten(flat, shape)[static_cast<std::size_t>(q.axis)];
  return ir::quantize_one(static_cast<float>(value), q.scale_at(channel), q.zero_at(channel), q.lo(), q.hi(), q.arith);
}

double value_of(const ir::Quantizer& q, std::int32_t code, const ir::Shape& shape, std::int64_t flat) {
  const std::int64_t channel = q.per_tensor() ? 0 : unflatten(flat, shape)[static_cast<std::size_t>(q.axis)];
  return static_cast<double>(ir::dequantize_one(code, q.scale_at(channel), q.zero_at(channel), q.arith));
}

/// The type that a stored value was rounded to last: its own, or of floats that a cast widened, the narrower one before.
ir::DType rounded_type(const ir::Graph& graph, ir::ValueId v) {
  const ir::Node& n = graph.producer(v);
  return n.op == ir::Op::cast && graph.type(v).dtype == ir::DType::f32 ? graph.type(n.inputs[0]).dtype : graph.type(v).dtype;
}

bool is_code(ir::DType type) {
  return ir::is_int8(type) || type == ir::DType::s16 || type == ir::DType::u16;
}

/// One tensor of a region, and what is known of it.
struct Compared {
  const ir::Tensor &engine, &reference;
  std::string name;
  const ir::Quantizer* quantizer = nullptr;  ///< of values on a grid, however they are stored
  ir::DType rounded = ir::DType::f32;        ///< floats: the type they were rounded to last
  bool behind_float_sum = false;
  std::function<Result<AtTies>()> ties;  ///< asked when codes differ behind a float sum
};

void compare(const Compared& c, const CheckOptions& options, RegionCheck& out) {
  const auto& [engine, reference, name, quantizer, rounded, float_accumulation, ask_ties] = c;
  const ir::Shape& shape = reference.shape();
  const bool codes = quantizer != nullptr;
  const bool typed_codes = is_code(reference.dtype());
  const bool exact = codes || !ir::is_float(reference.dtype());
  std::optional<AtTies> ties;
  double largest = 0;
  if (!exact) {
    for (std::int64_t i = 0; i < reference.size(); ++i) {
      if (std::isfinite(reference.at(i))) largest = std::max(largest, std::abs(reference.at(i)));
    }
  }
  out.elements += reference.size();
  for (std::int64_t i = 0; i < reference.size(); ++i) {
    if (same_bits(engine, reference, i)) continue;
    const double e = engine.at(i), r = reference.at(i);
    std::optional<std::int32_t> engine_code, reference_code;
    if (exact) {
      if (codes && !typed_codes) {
        engine_code = code_of(*quantizer, e, shape, i);
        reference_code = code_of(*quantizer, r, shape, i);
      } else if (typed_codes) {
        engine_code = static_cast<std::int32_t>(e);
        reference_code = static_cast<std::int32_t>(r);
      }
      if (codes && e == r) continue;  // the signs of zeros
      const bool one = engine_code && std::abs(*engine_code - *reference_code) == 1;
      const bool on_grid = !codes || typed_codes || e == value_of(*quantizer, *engine_code, shape, i);
      if (engine_code && float_accumulation && on_grid) {
        if (!ties) {
          auto asked = ask_ties();
          if (!asked) out.skipped = "the reference cannot say which codes lie at ties: " + asked.error().message;
          ties = asked ? std::move(*asked) : AtTies();
        }
        if (ties->decided ? e >= ties->between.least.at(i) && e <= ties->between.most.at(i) : one) {
          if (!ties->decided && options.model != nullptr && out.skipped.empty()) {
            out.skipped = fmt::format(
                "codes of \"{}\" that differ by one were accepted: rounding ties before them have no bound that the reference "
                "could give, as where codes that a float sum was rounded to are summed again",
                name);
          }
          ++out.allowed;
          continue;
        }
      }
      out.off_by_one += one;
    } else {
      if (std::isnan(e) && std::isnan(r)) continue;
      const double error = e == r ? 0 : std::abs(e - r) / (largest > 0 ? largest : 1);
      out.worst = std::max(out.worst, std::isnan(error) ? INFINITY : error);
      if (error <= options.float_tolerance) continue;  // false for NaN
      const double step = float_accumulation ? step_of(rounded, std::max(std::abs(e), std::abs(r))) : 0;
      if (std::abs(e - r) <= options.float_tolerance * largest + step) {
        ++out.allowed;
        continue;
      }
    }
    ++out.different;
    if (!out.first) out.first = Divergence{name, unflatten(i, shape), e, r, engine_code, reference_code};
  }
}

/// A region must read what other regions have stored, through the concats, slices and reshapes that are only offsets and strides in
/// the plan.
void judge_reading(const ir::Graph& graph, const std::map<ir::ValueId, ir::Tensor>& stored, const Crossing& c,
                   const ir::Tensor& read, RegionCheck& out) {
  auto expected = reference::evaluate_between(graph, stored, {c.value});
  if (!expected) {
    out.skipped = "the reference cannot evaluate its input: " + expected.error().message;
    return;
  }
  for (std::int64_t i = 0; i < read.size(); ++i) {
    if (same_bits(read, (*expected)[0], i)) continue;
    ++out.different;
    if (!out.first)
      out.first = Divergence{c.ref->value, unflatten(i, read.shape()), read.at(i), (*expected)[0].at(i), {}, {}, true};
  }
}

/// The same for the network's outputs, which may be concats or slices of stored tensors. Reported with the last region.
void judge_outputs(const ir::Graph& graph, const std::map<ir::ValueId, ir::Tensor>& stored, const std::vector<ir::Tensor>& outputs,
                   CheckReport& report) {
  if (report.regions.empty()) return;
  for (std::size_t k = 0; k < graph.outputs.size() && k < outputs.size(); ++k) {
    TensorRef ref;
    ref.value = graph.output_names[k];
    judge_reading(graph, stored, {&ref, graph.outputs[k]}, outputs[k], report.regions.back());
  }
}

std::vector<const TensorRef*> refs_of(const std::vector<Crossing>& crossings) {
  std::vector<const TensorRef*> out;
  for (const Crossing& c : crossings) out.push_back(c.ref);
  return out;
}

/// The grid that the values of a tensor lie on; null: none of 8 or 16 bits.
const ir::Quantizer* quantizer_of(const ir::Graph& graph, const ir::Grids& grids, ir::ValueId v, const TensorRef* ref) {
  if (ref != nullptr && ref->quantizer && ir::is_int8(ref->dtype)) return &*ref->quantizer;
  if (!ir::is_float(graph.type(v).dtype)) return nullptr;
  const ir::Node& n = graph.producer(v);
  if (n.op == ir::Op::view && is_code(n.quantizer->type)) return &*n.quantizer;
  const ir::Quantizer* grid = grids.get(v);
  return grid != nullptr && is_code(grid->type) ? grid : nullptr;
}

/// Judges what one region stored, `results`, values of `graph`: `known` was read before it ran, or stored earlier, `memory` is what it left.
/// `floats`: the results are behind float sums; of the model as imported: and so are those with a float operation between `known` and them, which rules may have
/// rewritten.
void judge(const ir::Graph& graph, const ir::Grids& grids, const Region& r, const std::vector<Crossing>& results,
           const std::map<ir::ValueId, ir::Tensor>& known, const region::Memory& memory, bool floats, Loose loose,
           const CheckOptions& options, RegionCheck& out) {
  std::vector<ir::ValueId> wanted;
  for (const Crossing& c : results) wanted.push_back(c.value);
  auto expected = reference::evaluate_between(graph, grids, known, wanted);
  if (!expected) {
    out.skipped = "the reference cannot evaluate it: " + expected.error().message;
    return;
  }
  const bool rounded = r.precision == region::Work::tf32;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TensorRef& ref = *results[i].ref;
    const auto got = read_value(memory, ref, graph.type(wanted[i]));
    if (!got) {
      out.skipped = fmt::format("tensor \"{}\" is stored as {} of {}", ref.value, ir::to_string(ref.dims),
                                ir::to_string(graph.type(wanted[i])));
      continue;
    }
    if (ref.dtype == ir::DType::f16) {
      double& largest = out.float16[ref.value];
      for (std::int64_t k = 0; k < got->size(); ++k) {
        const double x = std::abs(got->at(k));
        largest = std::isnan(x) ? largest : std::max(largest, x);
      }
    }
    CheckOptions with = options;
    if (rounded) with.float_tolerance = std::max(with.float_tolerance, kTf32Tolerance);
    if (rounds_within(r)) with.float_tolerance = std::max(with.float_tolerance, kRoundedWithinTolerance);
    const double sums = rounded || rounds_within(r) ? with.float_tolerance : kSumTolerance;
    const bool behind_sum = floats || (loose == Loose::all && !exact_between(graph, grids, known, wanted[i]));
    compare({*got, (*expected)[i], ref.value, quantizer_of(graph, grids, wanted[i], &ref), rounded_type(graph, wanted[i]),
             behind_sum, [&] { return at_ties(graph, grids, known, wanted[i], sums, loose); }},
            with, out);
  }
}

/// The model as imported, beside the plan's graph: their values that are one by name and type.
class AsImported {
 public:
  AsImported(const ir::Graph& model, const ir::Graph& normalized) : graph(model), grids(ir::find_grids(model)) {
    std::map<std::string, ir::ValueId> by_name;
    for (const ir::NodeId id : model.order()) {
      for (const ir::ValueId v : model.node(id).outputs) {
        const auto [at, fresh] = by_name.emplace(model.value(v).name, v);
        if (!fresh) at->second = ir::kNone;  // two of one name
      }
    }
    to_model_.assign(static_cast<std::size_t>(normalized.value_capacity()), ir::kNone);
    for (ir::ValueId v = 0; v < normalized.value_capacity(); ++v) {
      const auto at = normalized.value(v).name.empty() ? by_name.end() : by_name.find(normalized.value(v).name);
      if (at != by_name.end() && at->second != ir::kNone && model.type(at->second) == normalized.type(v))
        to_model_[static_cast<std::size_t>(v)] = at->second;
    }
  }

  [[nodiscard]] ir::ValueId of(ir::ValueId v) const { return v == ir::kNone ? v : to_model_[static_cast<std::size_t>(v)]; }
  /// The results that the model has, under its own ids.
  [[nodiscard]] std::vector<Crossing> of(const std::vector<Crossing>& results) const {
    std::vector<Crossing> out;
    for (const Crossing& c : results) {
      if (of(c.value) != ir::kNone) out.push_back({c.ref, of(c.value)});
    }
    return out;
  }
  /// Every output, computed from the tensors that the regions stored last before it. Reported with the last region.
  void judge_outputs(const std::vector<ir::Tensor>& outputs, const CheckOptions& options, CheckReport& report) const {
    RegionCheck& out = report.regions.back();
    auto expected = reference::evaluate_between(graph, grids, stored, graph.outputs);
    if (!expected) {
      out.skipped = "the reference cannot evaluate the outputs: " + expected.error().message;
      return;
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const ir::ValueId v = graph.outputs[k];
      compare(
          {outputs[k], (*expected)[k], graph.output_names[k], quantizer_of(graph, grids, v, nullptr), rounded_type(graph, v),
           !exact_between(graph, grids, stored, v), [&] { return at_ties(graph, grids, stored, v, kSumTolerance, Loose::all); }},
          options, out);
    }
  }

  const ir::Graph& graph;
  const ir::Grids grids;
  std::map<ir::ValueId, ir::Tensor> stored;  ///< what regions have stored, and the network's inputs

 private:
  std::vector<ir::ValueId> to_model_;
};

}  // namespace

bool CheckReport::ok() const {
  return std::all_of(regions.begin(), regions.end(), [](const RegionCheck& r) { return r.ok(); });
}

bool CheckReport::complete() const {
  return std::all_of(regions.begin(), regions.end(), [](const RegionCheck& r) { return r.skipped.empty(); });
}

std::string CheckReport::first_divergence() const {
  for (const RegionCheck& r : regions) {
    if (!r.first) continue;
    const Divergence& d = *r.first;
    const auto value = [](double v, const std::optional<std::int32_t>& code) {
      return code ? fmt::format("code {} ({:.9g})", *code, v) : fmt::format("{:.9g}", v);
    };
    return fmt::format(
        "region {} \"{}\" ({}): {}tensor \"{}\" at {}: engine {}, reference {}; {} of {} elements differ, {} of them by one code",
        r.region, r.name, r.tactic, d.reading ? "reads what was not stored: " : "", d.tensor, ir::to_string(d.index),
        value(d.engine, d.engine_code), value(d.reference, d.reference_code), r.different, r.elements, r.off_by_one);
  }
  return {};
}

/// Part `image` of `images` equal parts.
ir::Tensor part_of(const ir::Tensor& whole, std::int64_t image, std::int64_t images) {
  ir::Shape shape = whole.shape();
  shape[0] /= images;
  ir::Tensor part(whole.dtype(), std::move(shape));
  const std::size_t bytes = part.bytes().size();
  std::memcpy(part.mutable_bytes().data(), whole.bytes().data() + static_cast<std::size_t>(image) * bytes, bytes);
  return part;
}

Result<CheckReport> check(const std::shared_ptr<const engine::Engine>& engine, const ir::Graph& graph,
                          const std::vector<ir::Tensor>& inputs, const CheckOptions& options) {
  OCTAVO_TRY(const auto context, engine::Context::create(engine, options.threads));
  context->compute_all();  // the reference has values for all elements
  const region::Plan& plan = engine->plan();
  CheckReport report;
  std::vector<Border> borders;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    RegionCheck r;
    r.region = i;
    r.name = plan.regions[i].name;
    r.tactic = plan.regions[i].tactic.name();
    borders.push_back(region::is_transfer(plan.regions[i], plan) ? Border{} : border_of(plan.regions[i]));
    for (const auto* list : {&borders.back().in, &borders.back().out}) {
      for (const Crossing& c : *list) {
        if (c.value >= graph.value_capacity() || (c.value < 0 && list == &borders.back().out)) {
          return fail(ErrorKind::internal,
                      fmt::format("check: region {} \"{}\" names value {}, the graph has {}: not the graph of this plan", i, r.name,
                                  c.value, graph.value_capacity()));
        }
      }
    }
    r.skipped = borders.back().problem;
    report.regions.push_back(std::move(r));
  }
  const ir::Grids grids = ir::find_grids(graph);
  std::optional<AsImported> model;
  if (options.model != nullptr) model.emplace(*options.model, graph);
  if (model && plan.images > 1) {
    return fail(
        ErrorKind::unsupported,
        fmt::format(
            "check from the model: the engine runs {} images one by one, and the model has them as one batch\n  give shapes "
            "with a batch of 1",
            plan.images));
  }
  std::map<ir::ValueId, ir::Tensor> known;                // what the current region reads
  std::map<ir::ValueId, ir::Tensor> stored;               // what regions have stored, and the network's inputs
  std::vector<std::map<ir::ValueId, ir::Tensor>> finals;  // by image: what it left
  HostView view(context->engine());
  engine::Observer observer;
  observer.before = [&](std::size_t i, const region::Memory& device_memory) {
    const region::Memory memory = view.of(device_memory, refs_of(borders[i].in));
    if (options.progress) options.progress(i, borders.size());
    if (i == 0) {  // an image begins
      stored.clear();
      for (std::size_t k = 0; k < inputs.size() && k < graph.inputs.size(); ++k) {
        stored[graph.inputs[k]] =
            plan.images == 1 ? inputs[k] : part_of(inputs[k], static_cast<std::int64_t>(finals.size()), plan.images);
        if (model && k < model->graph.inputs.size()) model->stored[model->graph.inputs[k]] = inputs[k];
      }
    }
    RegionCheck& out = report.regions[i];
    known.clear();
    for (const Crossing& c : borders[i].in) {
      if (c.value == ir::kNone || known.contains(c.value) || graph.is_constant(c.value)) continue;
      auto value = read_value(memory, *c.ref, graph.type(c.value));
      if (!value) {
        out.skipped = fmt::format("input \"{}\" ({}) cannot be read from {} of {}", c.ref->value,
                                  ir::to_string(graph.type(c.value)), ir::name_of(c.ref->dtype), ir::to_string(c.ref->dims));
        continue;
      }
      judge_reading(graph, stored, c, *value, out);
      known.emplace(c.value, std::move(*value));
    }
  };
  observer.after = [&](std::size_t i, const region::Memory& device_memory) {
    const region::Memory memory = view.of(device_memory, refs_of(borders[i].out));
    const Region& r = plan.regions[i];
    RegionCheck& out = report.regions[i];
    const bool floats =
        std::any_of(r.stages.begin(), r.stages.end(), [](const Stage& s) { return !s.anchor.none() && !s.anchor.integer; });
    if (out.skipped.empty()) {
      if (model) {  // rules may have changed the order of float operations anywhere
        const auto results = model->of(borders[i].out);
        if (!results.empty())
          judge(model->graph, model->grids, r, results, model->stored, memory, floats, Loose::all, options, out);
      } else {
        judge(graph, grids, r, borders[i].out, known, memory, floats, Loose::sums, options, out);
      }
    }
    for (const Crossing& c : model ? model->of(borders[i].out) : std::vector<Crossing>()) {
      if (auto value = read_value(memory, *c.ref, model->graph.type(c.value)))
        model->stored.insert_or_assign(c.value, std::move(*value));
    }
    for (const Crossing& c : borders[i].out) {
      if (auto value = read_value(memory, *c.ref, graph.type(c.value))) stored.insert_or_assign(c.value, std::move(*value));
    }
    if (i + 1 == borders.size()) finals.push_back(std::move(stored));
  };
  OCTAVO_TRY(report.outputs, run(*context, inputs, &observer));
  if (model && !report.regions.empty()) model->judge_outputs(report.outputs, options, report);
  for (std::size_t image = 0; image < finals.size(); ++image) {
    std::vector<ir::Tensor> parts;
    for (const ir::Tensor& t : report.outputs)
      parts.push_back(plan.images == 1 ? t : part_of(t, static_cast<std::int64_t>(image), plan.images));
    judge_outputs(graph, finals[image], parts, report);
  }
  return report;
}

}  // namespace octavo::api
